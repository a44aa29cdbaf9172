package correlate

import (
	"cmp"
	"slices"

	"github.com/rolltrace/rolltrace/roll"
)

// LogGaps says which logs of the timeline's pods may lack lines, and from when on: those whose following ended before
// the container's end was known to be in them, and containers of which no log was recorded at all. A recording without
// any logs gives one gap about everything.
func LogGaps(rec *roll.Recording, tl *roll.Timeline) []roll.Gap {
	if !rec.Header.Logs && len(rec.Logs) == 0 {
		return []roll.Gap{{Reason: roll.GapNoLogs, Detail: "the recording holds no logs"}}
	}
	type key struct{ uid, container string }
	seen, ended := map[key]bool{}, map[key]bool{}
	for i := range rec.Logs {
		seen[key{rec.Logs[i].UID, rec.Logs[i].Container}] = true
	}
	pods := make(map[string]*roll.Pod, len(tl.Pods))
	for _, p := range tl.Pods {
		pods[p.UID] = p
	}
	var gaps []roll.Gap
	for i := range rec.Ends {
		e := &rec.Ends[i]
		seen[key{e.UID, e.Container}], ended[key{e.UID, e.Container}] = true, true
		if e.Complete {
			continue
		}
		reason, detail := roll.GapLogs, "its log may lack lines from here on ("+e.Reason+")"
		if e.Reason == roll.LogEndNotFollowed {
			reason, detail = roll.GapNoLogs, "its log could not be read"
		}
		g := roll.Gap{Reason: reason, Detail: detail, From: e.At, Object: e.Namespace + "/" + e.Pod + "/" + e.Container}
		if reason == roll.GapLogs && e.Reason == roll.LogEndRecordingEnded {
			g.From = maxTime(e.At, tl.Recorded.End)
		}
		if p := pods[e.UID]; p != nil && !p.Removed.IsZero() {
			g.To = p.Removed.Latest
		}
		gaps = append(gaps, g)
	}
	for _, p := range tl.Pods {
		for _, c := range p.Containers {
			// A recorder says of every log that it followed how that ended, at the latest when it ends itself.
			if k := (key{p.UID, c}); seen[k] && !ended[k] {
				gaps = append(gaps, roll.Gap{
					Reason: roll.GapLogs, Detail: "nothing says that its log was read to its end", Object: p.String() + "/" + c,
					From: p.Created.Earliest, To: p.Removed.Latest,
				})
			}
			if !seen[key{p.UID, c}] && overlapsRange(p, tl.Recorded) {
				gaps = append(gaps, roll.Gap{
					Reason: roll.GapNoLogs, Detail: "no log of it was recorded", Object: p.String() + "/" + c,
					From: p.Created.Earliest, To: p.Removed.Latest,
				})
			}
		}
	}
	slices.SortFunc(gaps, func(a, b roll.Gap) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason))
	})
	return gaps
}

func overlapsRange(p *roll.Pod, r roll.Range) bool {
	return p.Removed.IsZero() || !p.Removed.Latest.Before(r.Start)
}
