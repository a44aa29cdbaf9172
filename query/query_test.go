package query

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

func at(n int) time.Time { return time.Unix(1000, int64(n)).UTC() }

func TestMerge(t *testing.T) {
	r := func(from, to int) roll.Range { return roll.Range{Start: at(from), End: at(to)} }
	for _, tt := range []struct{ in, want []roll.Range }{
		{nil, nil},
		{[]roll.Range{r(3, 3), r(5, 2)}, nil},
		{[]roll.Range{r(5, 7), r(1, 3)}, []roll.Range{r(1, 3), r(5, 7)}},
		{[]roll.Range{r(3, 5), r(1, 3)}, []roll.Range{r(1, 5)}},
		{[]roll.Range{r(1, 9), r(2, 3), r(8, 12), r(1, 9)}, []roll.Range{r(1, 12)}},
	} {
		in := slices.Clone(tt.in)
		if got := Merge(tt.in); !slices.Equal(got, tt.want) || !slices.Equal(tt.in, in) {
			t.Errorf("Merge(%v) = %v, want %v and the argument untouched", in, got, tt.want)
		}
	}
}

// TestClip compares with a look at every range.
func TestClip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var rs []roll.Range
		for range rnd.IntN(5) {
			from := rnd.IntN(30)
			rs = append(rs, roll.Range{Start: at(from), End: at(from + rnd.IntN(6))})
		}
		s := &roll.Span{Start: at(rnd.IntN(35)), Duration: time.Duration(rnd.IntN(8))}
		want := slices.ContainsFunc(rs, func(r roll.Range) bool { return r.Start.Before(r.End) && s.Overlaps(r.Start, r.End) })
		if got := Clip(Merge(rs), s); got != want {
			t.Fatalf("Clip(%v, %v +%d) = %v, want %v", rs, s.Start, s.Duration, got, want)
		}
	}
}

func TestSortAndFold(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		spans := make([]roll.Span, rnd.IntN(60))
		for i := range spans {
			spans[i] = roll.Span{
				TraceID: roll.TraceID{byte(rnd.IntN(3))}, SpanID: roll.SpanID{byte(rnd.IntN(6))},
				Kind: roll.KindServer + roll.SpanKind(rnd.IntN(2)), Status: roll.StatusCode(rnd.IntN(3)),
				Start: at(rnd.IntN(9)), Duration: time.Duration(rnd.IntN(3)),
			}
		}
		type id struct {
			t roll.TraceID
			s roll.SpanID
			k roll.SpanKind
		}
		want, failed := map[id]bool{}, map[id]bool{}
		for _, s := range spans {
			k := id{s.TraceID, s.SpanID, s.Kind}
			want[k] = true
			failed[k] = failed[k] || s.Status == roll.StatusError
		}
		n := len(spans)
		out, dropped := Fold(spans)
		if len(out) != len(want) || dropped != n-len(want) {
			t.Fatalf("%d spans and %d dropped, want %d of %d", len(out), dropped, len(want), n)
		}
		for i, s := range out {
			k := id{s.TraceID, s.SpanID, s.Kind}
			if !want[k] {
				t.Fatalf("%v came twice", k)
			}
			delete(want, k)
			if failed[k] != (s.Status == roll.StatusError) {
				t.Errorf("%v: an error was folded away", k)
			}
			if i > 0 && s.Start.Before(out[i-1].Start) {
				t.Error("out of order")
			}
		}
	}
}

func TestSelectionMatches(t *testing.T) {
	cart := &roll.Resource{Attributes: roll.Attributes{{Key: "service.name", Value: "cart"}}}
	for _, tt := range []struct {
		sel  Selection
		span roll.Span
		want bool
	}{
		{Selection{}, roll.Span{Kind: roll.KindServer, Resource: cart}, true},
		{Selection{}, roll.Span{Kind: roll.KindInternal, Resource: cart}, false},
		{Selection{}, roll.Span{Kind: roll.KindClient}, true},
		{Selection{ErrorsOnly: true}, roll.Span{Kind: roll.KindClient, Status: roll.StatusOK}, false},
		{Selection{ErrorsOnly: true}, roll.Span{Kind: roll.KindClient, Status: roll.StatusError}, true},
		{Selection{Services: []string{"front", "cart"}}, roll.Span{Kind: roll.KindClient, Resource: cart}, true},
		{Selection{Services: []string{"car"}}, roll.Span{Kind: roll.KindClient, Resource: cart}, false},
	} {
		if got := tt.sel.Matches(&tt.span); got != tt.want {
			t.Errorf("%+v matches %+v: %v, want %v", tt.sel, tt.span, got, tt.want)
		}
	}
}

func BenchmarkSortSpans(b *testing.B) {
	spans := make([]roll.Span, 100_000)
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range spans {
		spans[i] = roll.Span{TraceID: roll.TraceID{byte(i), byte(i >> 8)}, Start: at(rnd.IntN(1e9))}
	}
	work := make([]roll.Span, len(spans))
	for b.Loop() {
		copy(work, spans)
		SortSpans(work)
	}
	b.ReportMetric(float64(len(spans)*b.N)/b.Elapsed().Seconds(), "spans/s")
}
