package assertions

import (
	"fmt"
	"strings"

	"github.com/rolltrace/rolltrace/roll"
)

// TrafficCovered wants the spans to have seen the traffic of the workload that rolled.
var TrafficCovered = &Assertion{
	ID:    "traffic-covered",
	Title: "the roll's window holds the traffic of the workload that rolled, seen from its callers",
	Doc: `A roll under no traffic proves nothing, and so does one whose traffic left no spans. This check looks whether the spans
could have shown a lost request at all, and says how many calls touched a pod while it was being terminated.

**Fails** never: it is about the evidence.

**Inconclusive** when the roll's own window, without its padding, holds no client or server span; when none of them is
of, or calls, a pod of the workload, or none while its pods were being ended; and when the workload's pods serve but no caller's client span is there: a call
that is cut at the exit leaves no server span, so only the caller can tell.

Spans that lead to no known pod are counted and shown. That no call touched a terminating pod is said, and is no gap: an
orderly roll takes a pod out of the endpoints before it stops.

**What to do:** put k8s.pod.uid and k8s.pod.name on the resources (the k8sattributes processor, or the downward API),
instrument
the callers, and send traffic while the roll runs.`,
	Check: checkTrafficCovered,
}

func checkTrafficCovered(ev *Evidence, _ Params) Outcome {
	var out Outcome
	var inWindow, unattributed, touched, failed int
	var served, called, issued int // server spans of the workload, client spans to it, client spans by it
	phase := map[roll.Phase]int{}
	ending, ends := endingRange(ev.Roll)
	during := 0 // spans of or to the workload while its pods were being ended
	mine := func(p *roll.Pod) bool { return p != nil && p.Workload == ev.Roll.Workload }
	for i := range ev.Spans {
		s := &ev.Spans[i]
		if !s.Overlaps(ev.Roll.Window.Start, ev.Roll.Window.End) {
			continue
		}
		inWindow++
		if s.Pod == nil && s.Peer == nil {
			unattributed++
		}
		before := served + called + issued
		own := mine(s.Pod) || s.Pod == nil && s.Resource.Service() == ev.Roll.Workload.Name
		switch {
		case s.Kind == roll.KindServer && own:
			served++
		case s.Kind == roll.KindClient && mine(s.Peer):
			called++
		case s.Kind == roll.KindClient && own:
			issued++
		}
		if ends && served+called+issued > before && s.Overlaps(ending.Start, ending.End) {
			during++
		}
		if p, ok := TouchedTerminating(s); ok {
			touched++
			phase[p]++
			if s.Status == roll.StatusError || s.Outcome == roll.OutcomeError {
				failed++
			}
		}
	}
	w := ev.Roll.Workload
	switch {
	case inWindow == 0:
		addGaps(&out, noSpans(ev,
			"the roll's window holds no client or server span: no traffic, or none that left spans"))
	case served+called+issued == 0:
		addGaps(&out, noSpans(ev, fmt.Sprintf("%s in the roll's window, but none is of or to a pod of %s",
			plural(inWindow, "span"), w)))
	case served > 0 && called == 0:
		addGaps(&out, noSpans(ev, fmt.Sprintf(
			"%s of %s, but no client span that called it: a call that was cut at the exit shows in its caller alone",
			plural(served, "server span"), w)))
	}
	if ends && served+called+issued > 0 && during == 0 {
		g := noSpans(ev, fmt.Sprintf("no span of or to a pod of %s from the first request to end a pod to the last exit", w))
		g.From, g.To = ending.Start, ending.End
		addGaps(&out, g)
	}
	if inWindow == 0 {
		out.Summary = "no span in the roll's own window"
		return out
	}
	parts := []string{fmt.Sprintf("%s to %s, %s of it, %s by it",
		plural(called, "client span"), w.Name, plural(served, "server span"), plural(issued, "client span"))}
	if touched > 0 {
		parts = append(parts, fmt.Sprintf("%s touched a terminating pod (%d in preStop, %d in drain), %d in error",
			plural(touched, "span"), phase[roll.PhasePreStop], phase[roll.PhaseDrain], failed))
	} else {
		parts = append(parts, "no span certainly touched a terminating pod")
	}
	if unattributed > 0 {
		parts = append(parts, plural(unattributed, "span")+" of no known pod")
	}
	out.Summary = strings.Join(parts, "; ")
	return out
}

// endingRange is the time from the first request to end a container of the roll to the last exit, taken wide, and whether
// any container was asked to end.
func endingRange(r *roll.Roll) (rg roll.Range, ok bool) {
	for i := range r.Terminations {
		t := &r.Terminations[i]
		if t.Requested.IsZero() {
			continue
		}
		end := t.Exited.Latest
		if end.IsZero() {
			end = t.Removed.Latest
		}
		if end.IsZero() || t.Forced {
			end = r.Window.End
		}
		if start := t.Requested.Earliest; !ok || start.Before(rg.Start) {
			rg.Start = start
		}
		if end.After(rg.End) {
			rg.End = end
		}
		ok = true
	}
	return rg, ok
}

// TouchedTerminating reports whether a span ran on, or called, a pod that was certainly being terminated when the
// span started or ended, and in which phase: preStop before drain. A client span of a terminating pod counts too: its
// own pod is the one that was ending.
func TouchedTerminating(s *roll.Span) (roll.Phase, bool) {
	for _, p := range []roll.Phase{roll.PhasePreStop, roll.PhaseDrain} {
		if s.Phase == p || s.EndPhase == p || s.PeerPhase == p || s.PeerEndPhase == p {
			return p, true
		}
	}
	return "", false
}
