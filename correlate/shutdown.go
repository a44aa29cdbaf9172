package correlate

import (
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// NarrowByShutdown ends the bounds of SIGTERM where a process says by a span, or a span event, that it shuts down: the first
// such moment within the bounds, on the application's clock, which may be off the node's by skew. says tells such names;
// the spans are of any kind, and those of no known pod, or of a pod with several containers that do not name theirs, say
// nothing. It returns how many bounds it narrowed.
func NarrowByShutdown(tl *roll.Timeline, spans []roll.Span, says func(string) bool, skew time.Duration) int {
	NewIndex(tl, Options{Skew: skew}).Correlate(spans)
	type key struct{ uid, container string }
	told := map[key][]time.Time{}
	for i := range spans {
		s := &spans[i]
		if s.Pod == nil {
			continue
		}
		container, _ := s.Resource.Attributes.Get("k8s.container.name")
		if container == "" && len(s.Pod.Containers) == 1 {
			container = s.Pod.Containers[0]
		}
		k := key{s.Pod.UID, container}
		if says(s.Name) {
			told[k] = append(told[k], s.Start.Add(skew))
		}
		for _, e := range s.Events {
			if says(e.Name) {
				told[k] = append(told[k], e.Time.Add(skew))
			}
		}
	}
	if len(told) == 0 {
		return 0
	}
	n := 0
	one := func(t *roll.Termination) bool {
		before := t.Signaled
		for _, at := range told[key{t.Pod.UID, t.Container}] {
			if !t.Signaled.IsZero() && at.After(t.Signaled.Earliest) && at.Before(t.Signaled.Latest) {
				t.Signaled.Latest, t.Signaled.Source = at, roll.SourceSpan
			}
		}
		return before != t.Signaled
	}
	for i := range tl.Rolls {
		for j := range tl.Rolls[i].Terminations {
			if one(&tl.Rolls[i].Terminations[j]) {
				n++
			}
		}
	}
	for _, p := range tl.Pods {
		for j := range p.Terminations {
			if t := &p.Terminations[j]; one(t) && !p.Signaled.IsZero() && p.Signaled.Earliest.Equal(t.Signaled.Earliest) {
				p.Signaled = t.Signaled
			}
		}
	}
	return n
}
