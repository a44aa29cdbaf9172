package correlate

import (
	"strings"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// TestNarrowByShutdown: a span that begins when SIGTERM is handled ends its bounds; others change nothing.
func TestNarrowByShutdown(t *testing.T) {
	says := func(n string) bool { return strings.Contains(n, "shutdown") }
	bare := func() (*roll.Timeline, *roll.Termination) {
		tl := DeriveWith(load(t, "rollout-restart"), Sources{ShutdownLog: never})
		return tl, &tl.Rolls[0].Terminations[0]
	}
	_, x := bare()
	true1 := x.Signaled.Earliest.Add(200 * time.Millisecond)
	span := func(name string, at time.Time, attrs ...roll.Attribute) roll.Span {
		return roll.Span{
			TraceID: roll.TraceID{1}, SpanID: roll.SpanID{1}, Kind: roll.KindInternal, Name: name, Start: at, Duration: time.Second,
			Resource: &roll.Resource{Attributes: append(roll.Attributes{{Key: "k8s.pod.uid", Value: x.Pod.UID}}, attrs...)},
		}
	}
	event := span("serve", true1.Add(-time.Minute))
	event.Events = []roll.SpanEvent{{Name: "shutdown", Time: true1}}
	elsewhere := span("shutdown", true1)
	elsewhere.Resource = &roll.Resource{Attributes: roll.Attributes{{Key: "k8s.pod.uid", Value: "nobody"}}}
	for name, c := range map[string]struct {
		span roll.Span
		want bool
	}{
		"a span":            {span("shutdown", true1), true},
		"with a container":  {span("shutdown", true1, roll.Attribute{Key: "k8s.container.name", Value: "app"}), true},
		"an event":          {event, true},
		"another container": {span("shutdown", true1, roll.Attribute{Key: "k8s.container.name", Value: "proxy"}), false},
		"another name":      {span("serve", true1), false},
		"another pod":       {elsewhere, false},
		"too early":         {span("shutdown", x.Signaled.Earliest.Add(-time.Second)), false},
		"too late":          {span("shutdown", x.Signaled.Latest.Add(time.Second)), false},
	} {
		tl, got := bare()
		n := NarrowByShutdown(tl, []roll.Span{c.span}, says, 0)
		narrowed := got.Signaled.Source == roll.SourceSpan && got.Signaled.Latest.Equal(true1) && got.Signaled.Earliest.Equal(x.Signaled.Earliest)
		if narrowed != c.want || n > 0 != c.want {
			t.Errorf("%s: %d narrowed, %+v", name, n, got.Signaled)
		}
		for _, p := range tl.Pods {
			if p.UID == got.Pod.UID && p.Signaled != got.Signaled {
				t.Errorf("%s: the pod has %+v, its termination %+v", name, p.Signaled, got.Signaled)
			}
		}
	}
}
