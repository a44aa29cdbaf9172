package verify

import (
	"testing"

	"github.com/rolltrace/rolltrace/roll"
)

// TestElsewhere: what others do in a shared backend neither fails a roll nor, when it may have been a call to the workload,
// passes it.
func TestElsewhere(t *testing.T) {
	h := &roll.Header{Namespaces: []string{"shop"}}
	in := func(ns string) *roll.Resource {
		r := &roll.Resource{Attributes: roll.Attributes{{Key: "service.name", Value: ns + "-svc"}}}
		if ns != "" {
			r.Attributes = append(r.Attributes, roll.Attribute{Key: "k8s.namespace.name", Value: ns})
		}
		return r
	}
	pod := &roll.Pod{}
	client := func(id byte, ns string) roll.Span {
		return roll.Span{TraceID: roll.TraceID{id}, SpanID: roll.SpanID{id}, Kind: roll.KindClient, Status: roll.StatusError, Resource: in(ns)}
	}
	server := func(id byte, ns string) roll.Span {
		return roll.Span{TraceID: roll.TraceID{id}, SpanID: roll.SpanID{id, 1}, ParentID: roll.SpanID{id}, Kind: roll.KindServer, Status: roll.StatusError, Resource: in(ns)}
	}
	calledUs := client(1, "bank")
	calledUs.Peer = pod
	ok := client(7, "bank")
	ok.Status = roll.StatusUnset
	for name, c := range map[string]struct {
		h      *roll.Header
		spans  []roll.Span
		mine   int
		others int
		gaps   int
	}{
		"our own":                          {h, []roll.Span{client(1, "shop"), server(1, "shop")}, 2, 0, 0},
		"says no namespace":                {h, []roll.Span{client(1, "")}, 1, 0, 0},
		"everything was recorded":          {&roll.Header{}, []roll.Span{client(1, "bank")}, 1, 0, 0},
		"a caller from elsewhere":          {h, []roll.Span{calledUs}, 1, 0, 0},
		"a call among others":              {h, []roll.Span{client(2, "bank"), server(2, "bank")}, 0, 2, 0},
		"a server of others":               {h, []roll.Span{server(3, "bank")}, 0, 1, 0},
		"a call of others that went well":  {h, []roll.Span{ok}, 0, 1, 0},
		"a failed call that leads nowhere": {h, []roll.Span{client(4, "bank"), client(5, "shop")}, 1, 1, 1},
		"several, by service":              {h, []roll.Span{client(4, "bank"), client(5, "bank"), client(6, "post")}, 0, 3, 2},
	} {
		mine, others, gaps := here(c.h, c.spans)
		if len(mine) != c.mine || others != c.others || len(gaps) != c.gaps {
			t.Errorf("%s: %d here, %d others, gaps %v; want %d, %d, %d", name, len(mine), others, gaps, c.mine, c.others, c.gaps)
		}
	}
}
