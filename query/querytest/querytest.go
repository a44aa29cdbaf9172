// Package querytest is the one suite that every backend of traces passes: a ledger of known spans goes in, and what
// comes out is compared with it, span by span, by an oracle that looks at every span of the ledger.
package querytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/roll"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Harness is what the suite needs of a backend.
type Harness struct {
	// Base is the beginning of the ledger's minute: every span lies in [Base, Base+Length), but for some that begin up to
	// a minute earlier.
	Base time.Time
	// Open stores the batches in order and returns a backend that has caught up with them. A trace that has spans in more
	// than one batch should be stored in pieces, where the backend does that.
	Open func(t *testing.T, batches [][]*tracepb.ResourceSpans) query.Traces
	// Shared says that the backend holds spans of others too: they are taken out of an answer before it is compared.
	Shared bool
}

// Length is the time that the ledger spans.
const Length = 60 * time.Second

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	l := newLedger(h.Base)
	tr := h.Open(t, l.batches())
	at := func(d time.Duration) time.Time { return h.Base.Add(d) }
	window := func(from, to time.Duration) roll.Range { return roll.Range{Start: at(from), End: at(to)} }
	all := window(-2*time.Minute, Length)

	type question struct {
		name   string
		ranges []roll.Range
		sel    query.Selection
		atMost int // spans in the answer, -1: any
	}
	one := func(from, to time.Duration) []roll.Range { return []roll.Range{window(from, to)} }
	whole := []roll.Range{all}
	of := func(names ...string) (sel query.Selection) {
		for _, n := range names {
			sel.Services = append(sel.Services, l.service(n))
		}
		return sel
	}
	splitErrors := of("split")
	splitErrors.ErrorsOnly = true
	const s = time.Second
	questions := []question{
		{"everything", whole, query.Selection{}, -1},
		{"errors only", whole, query.Selection{ErrorsOnly: true}, -1},
		{"no range", nil, query.Selection{}, 0},
		{"an empty and an inverted range", []roll.Range{window(5*s, 5*s), window(9*s, 3*s)}, query.Selection{}, 0},
		{"a range with nothing in it", one(-4*time.Minute, -3*time.Minute), query.Selection{}, 0},
		{"ranges that overlap, touch and repeat", []roll.Range{
			window(20*s, 30*s), window(10*s, 20*s), window(15*s, 25*s), window(10*s, 20*s),
		}, query.Selection{}, -1},
		{"edges, to the nanosecond", one(edgeFrom, edgeTo), of("edges"), -1},
		{"one nanosecond", one(edgeFrom, edgeFrom+1), of("edges"), -1},
		{"inside of a long span", one(40*s, 40*s+time.Millisecond), of("long"), 1},
		{"between a trace's spans", one(28*s, 31*s), of("apart"), 0},
		{"around a trace's spans, not between", []roll.Range{window(24*s, 28*s), window(31*s, 36*s)}, of("apart"), 2},
		{"a trace of many spans", whole, of("big"), -1},
		{"a trace in pieces", whole, of("split"), -1},
		{"errors of a trace in pieces", whole, splitErrors, -1},
		{"spans stored twice", whole, of("twice"), -1},
		{"ids with leading zeros", whole, of("zeros"), -1},
		{"attributes of every kind", whole, of("attributes"), -1},
		{"kinds", whole, of("kinds"), 2},
		{"a service that is not there", whole, of("nobody"), 0},
		{"two services", one(0, 30*s), of("front", "cart"), -1},
	}
	for _, name := range l.odd {
		questions = append(questions,
			question{fmt.Sprintf("service %q", name), whole, query.Selection{Services: []string{name}}, -1})
	}
	questions = append(questions,
		question{"all odd services, errors", whole, query.Selection{Services: l.odd, ErrorsOnly: true}, -1})

	for _, q := range questions {
		t.Run(q.name, func(t *testing.T) {
			req := query.Request{Ranges: q.ranges, Selection: q.sel}
			want := l.oracle(req)
			if q.atMost >= 0 && len(want) != q.atMost || q.atMost < 0 && len(want) == 0 {
				t.Fatalf("the ledger holds %d spans for this, want %d: the suite is wrong", len(want), q.atMost)
			}
			a, err := tr.Spans(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, h, l, req, a, want)
		})
	}
	t.Run("all at once", func(t *testing.T) {
		var wg sync.WaitGroup
		for _, q := range questions[:6] {
			wg.Go(func() {
				req := query.Request{Ranges: q.ranges, Selection: q.sel}
				a, err := tr.Spans(t.Context(), req)
				if err != nil {
					t.Errorf("%s: %v", q.name, err)
					return
				}
				compare(t, h, l, req, a, l.oracle(req))
			})
		}
		wg.Wait()
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := tr.Spans(ctx, query.Request{Ranges: whole}); !errors.Is(err, context.Canceled) {
			t.Errorf("Spans of a cancelled context: error %v, want context.Canceled", err)
		}
	})
	t.Run("caught up", func(t *testing.T) {
		line, gaps := tr.CaughtUp(t.Context(), h.Base.Add(Length))
		if len(gaps) > 0 || line == "" {
			t.Errorf("CaughtUp: %q, %v; want a line and no gap", line, gaps)
		}
	})
	t.Run("name", func(t *testing.T) {
		if tr.Name() == "" || tr.Address() == "" {
			t.Errorf("name %q, address %q; want both", tr.Name(), tr.Address())
		}
	})
}

func compare(t *testing.T, h Harness, l *ledger, req query.Request, a *query.Answer, want []roll.Span) {
	t.Helper()
	if !a.Coverage.Complete() {
		t.Errorf("coverage: %v, want complete", a.Coverage)
	}
	if a.Malformed != 0 {
		t.Errorf("%d malformed spans, want none", a.Malformed)
	}
	got := a.Spans
	if h.Shared {
		got = slices.DeleteFunc(slices.Clone(got), func(s roll.Span) bool { return !l.traces[s.TraceID] })
	}
	byStart := func(a, b roll.Span) int { return a.Start.Compare(b.Start) }
	if !slices.IsSortedFunc(a.Spans, byStart) {
		t.Error("the spans are not in order of start")
	}
	type id struct {
		t roll.TraceID
		s roll.SpanID
	}
	have := map[id]*roll.Span{}
	for i := range got {
		k := id{got[i].TraceID, got[i].SpanID}
		if have[k] != nil {
			t.Errorf("span %s %s came twice", k.t, k.s)
		}
		have[k] = &got[i]
	}
	failed := 0
	for i := range want {
		w := &want[i]
		k := id{w.TraceID, w.SpanID}
		g := have[k]
		delete(have, k)
		if failed > 5 {
			continue
		}
		if g == nil {
			failed++
			t.Errorf("missing: %s", show(w))
			continue
		}
		if d := difference(g, w); d != "" {
			failed++
			t.Errorf("%s: %s", show(w), d)
		}
	}
	for k := range have {
		t.Errorf("not asked for: %s", show(have[k]))
	}
	if len(got) != len(want) {
		t.Errorf("%d spans, want %d (%v)", len(got), len(want), req.Selection)
	}
}

func show(s *roll.Span) string {
	return fmt.Sprintf("%s %s %s of %q %q [%s +%s]", s.Kind, s.TraceID, s.SpanID, s.Resource.Service(), s.Name,
		s.Start.Format(time.RFC3339Nano), s.Duration)
}

func difference(g, w *roll.Span) string {
	switch {
	case g.ParentID != w.ParentID:
		return fmt.Sprintf("parent %s, want %s", g.ParentID, w.ParentID)
	case g.Kind != w.Kind || g.Status != w.Status || g.Name != w.Name || g.StatusMessage != w.StatusMessage:
		return fmt.Sprintf("%s %s %q %q, want %s %s %q %q",
			g.Kind, g.Status, g.Name, g.StatusMessage, w.Kind, w.Status, w.Name, w.StatusMessage)
	case !g.Start.Equal(w.Start) || g.Duration != w.Duration || g.Start.Location() != time.UTC:
		return fmt.Sprintf("%v +%s, want %v +%s", g.Start, g.Duration, w.Start, w.Duration)
	case g.Resource == nil:
		return "no resource"
	}
	resource, attrs := query.ResourceKeys, query.SpanKeys
	if w.Status == roll.StatusError {
		resource, attrs = nil, nil // all
	}
	if d := differ("resource", g.Resource.Attributes, w.Resource.Attributes, resource); d != "" {
		return d
	}
	if d := differ("span", g.Attributes, w.Attributes, attrs); d != "" {
		return d
	}
	if w.Status != roll.StatusError {
		return ""
	}
	if len(g.Events) != len(w.Events) {
		return fmt.Sprintf("%d events, want %d", len(g.Events), len(w.Events))
	}
	for i, e := range w.Events {
		if g.Events[i].Name != e.Name || !g.Events[i].Time.Equal(e.Time) {
			return fmt.Sprintf("event %q at %v, want %q at %v", g.Events[i].Name, g.Events[i].Time, e.Name, e.Time)
		}
		if d := differ("event", g.Events[i].Attributes, e.Attributes, nil); d != "" {
			return d
		}
	}
	return ""
}

// differ compares the attributes of the keys, or all of them.
func differ(what string, g, w roll.Attributes, keys []string) string {
	only := func(as roll.Attributes) map[string]string {
		m := map[string]string{}
		for _, a := range as {
			if keys == nil || slices.Contains(keys, a.Key) {
				m[a.Key] = a.Value
			}
		}
		return m
	}
	if gm, wm := only(g), only(w); !maps.Equal(gm, wm) {
		return fmt.Sprintf("%s attributes %q, want %q", what, gm, wm)
	}
	return ""
}
