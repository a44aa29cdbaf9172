package verify

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rolltrace/rolltrace/roll"
)

// A backend holds the spans of everybody. Those of a namespace that was not recorded say nothing about the rolls, unless
// they are one side of a call whose other side was.

// elsewhere reports whether the span's own resource says that it ran in a namespace that was not recorded, and nothing
// ties it to a recorded pod.
func elsewhere(h *roll.Header, s *roll.Span) bool {
	if s.Pod != nil || s.Peer != nil || len(h.Namespaces) == 0 {
		return false
	}
	ns, ok := s.Resource.Attributes.Get("k8s.namespace.name")
	return ok && ns != "" && !slices.Contains(h.Namespaces, ns)
}

// here returns the spans that may concern the recorded namespaces, how many others there are, and what cannot be told of
// those: a call that failed and of which no server span shows where it went may have gone to the workload. That is neither
// a finding nor nothing.
func here(h *roll.Header, spans []roll.Span) (mine []roll.Span, others int, gaps []roll.Gap) {
	first := slices.IndexFunc(spans, func(s roll.Span) bool { return elsewhere(h, &s) })
	if first < 0 {
		return spans, 0, nil
	}
	type call struct {
		trace roll.TraceID
		span  roll.SpanID
	}
	lost := map[call]*roll.Span{}
	mine = slices.Clone(spans[:first])
	for i := first; i < len(spans); i++ {
		s := &spans[i]
		if !elsewhere(h, s) {
			mine = append(mine, *s)
			continue
		}
		others++
		if s.Kind == roll.KindClient && (s.Status == roll.StatusError || s.Outcome == roll.OutcomeError) {
			lost[call{s.TraceID, s.SpanID}] = s
		}
	}
	for i := range spans {
		if s := &spans[i]; s.Kind == roll.KindServer {
			delete(lost, call{s.TraceID, s.ParentID}) // it went to where this ran
		}
	}
	services := map[string]int{}
	for _, s := range lost {
		services[s.Resource.Service()]++
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		gaps = append(gaps, roll.Gap{
			Reason: roll.GapUnattributed, Object: name,
			Detail: fmt.Sprintf("calls of callers in a namespace that was not recorded failed (%d), and no server span shows where they went: "+
				"record that namespace too, or name the services that matter with --service", services[name]),
		})
	}
	return mine, others, gaps
}
