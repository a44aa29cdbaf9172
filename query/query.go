// Package query says what rolltrace asks of a backend of traces, and how complete an answer is. One folder a backend:
// query/tempo, query/otlp. Each passes the one suite in query/querytest.
package query

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// Selection narrows the spans that are asked for. The zero Selection is every client and server span.
type Selection struct {
	// Services are service.name values, any of which matches; empty: all services.
	Services []string
	// ErrorsOnly keeps the spans whose status is error.
	ErrorsOnly bool
}

// Matches reports whether a span is selected. Backends apply it to what came back, whatever the server filtered.
func (s Selection) Matches(sp *roll.Span) bool {
	if sp.Kind != roll.KindClient && sp.Kind != roll.KindServer {
		return false
	}
	if s.ErrorsOnly && sp.Status != roll.StatusError {
		return false
	}
	return len(s.Services) == 0 || slices.Contains(s.Services, sp.Resource.Service())
}

// Request asks for the selected spans any moment of which lies in one of Ranges.
type Request struct {
	// Ranges are half-open, UTC; they may overlap and need no order.
	Ranges    []roll.Range
	Selection Selection
}

// Answer is what a backend returned. Each span that overlaps a range and matches the selection is in Spans exactly once
// (trace id, span id), in order of start then ids; what may be missing is in Coverage.
type Answer struct {
	Spans    []roll.Span
	Coverage roll.Coverage
	// Query is what was asked, in the backend's language; Version the server's, "" when it has none.
	Query   string
	Version string
	// Requests counts the requests that were sent, Duplicates the repeated spans that were folded, Malformed the spans
	// that were dropped because they cannot be placed (no id, end before start): each of those is in Coverage too.
	Requests   int
	Duplicates int
	Malformed  int
}

// Traces is a backend of traces.
//
// An error means that nothing can be said (unreachable, not allowed, not this API); it names the address and the next
// step. Everything less is a gap in the answer's Coverage. Spans is safe for concurrent use.
type Traces interface {
	// Name is "tempo", "otlp-file", …
	Name() string
	// Address is where the backend is, without secrets: for a person.
	Address() string
	Spans(ctx context.Context, req Request) (*Answer, error)
	// CaughtUp waits until every span that ended before end can be expected to be found, or until ctx ends. It returns
	// one line that says by which rule, and a not-caught-up gap when that could not be made sure.
	CaughtUp(ctx context.Context, end time.Time) (string, []roll.Gap)
}

// Merge returns the ranges in order, those that overlap or touch united, empty ones dropped.
func Merge(ranges []roll.Range) []roll.Range {
	rs := slices.DeleteFunc(slices.Clone(ranges), func(r roll.Range) bool { return !r.Start.Before(r.End) })
	slices.SortFunc(rs, func(a, b roll.Range) int { return a.Start.Compare(b.Start) })
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && !r.Start.After(out[n-1].End) {
			if r.End.After(out[n-1].End) {
				out[n-1].End = r.End
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

// Clip reports whether any moment of the span lies in one of the ranges, which are as Merge returns them.
func Clip(merged []roll.Range, s *roll.Span) bool {
	start, end := s.Start, s.End()
	// The first range that ends after the span starts is the only candidate that can begin before the span ends first.
	i, _ := slices.BinarySearchFunc(merged, start, func(r roll.Range, t time.Time) int {
		if r.End.After(t) {
			return 1
		}
		return -1
	})
	return i < len(merged) && !merged[i].Start.After(end)
}

// SortSpans orders spans by start, then trace id, then span id.
func SortSpans(spans []roll.Span) {
	slices.SortFunc(spans, func(a, b roll.Span) int {
		if c := a.Start.Compare(b.Start); c != 0 {
			return c
		}
		if c := strings.Compare(string(a.TraceID[:]), string(b.TraceID[:])); c != 0 {
			return c
		}
		return strings.Compare(string(a.SpanID[:]), string(b.SpanID[:]))
	})
}
