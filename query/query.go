// Package query says what rolltrace asks of a backend of traces, and how complete an answer is. One folder a backend:
// query/tempo, query/otlp. Each passes the one suite in query/querytest.
package query

import (
	"bytes"
	"cmp"
	"context"
	"regexp"
	"slices"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// Selection narrows the spans that are asked for. The zero Selection is every client and server span.
type Selection struct {
	// Services are service.name values, any of which matches; empty: all services.
	Services []string
	// ErrorsOnly keeps the spans whose status is error.
	ErrorsOnly bool
	// Shutdown asks for spans of any kind whose name says that a process shuts down, by [ShutdownName]. Their answer's
	// coverage says little: such spans are few, and whoever asks takes what there is.
	Shutdown bool
}

// ShutdownName is the regular expression, RE2, of a span's name that says that a process shuts down.
const ShutdownName = `(?i).*(sigterm|shut.?down|shutting.?down|graceful.?stop).*`

var shutdownName = regexp.MustCompile(`^(?:` + ShutdownName + `)$`)

// SaysShutdown reports whether a span's or span event's name says that a process shuts down.
func SaysShutdown(name string) bool { return shutdownName.MatchString(name) }

// Matches reports whether a span is selected. Backends apply it to what came back, whatever the server filtered.
func (s Selection) Matches(sp *roll.Span) bool {
	if s.Shutdown {
		if !SaysShutdown(sp.Name) && !slices.ContainsFunc(sp.Events, func(e roll.SpanEvent) bool { return SaysShutdown(e.Name) }) {
			return false
		}
	} else if sp.Kind != roll.KindClient && sp.Kind != roll.KindServer {
		return false
	}
	if s.ErrorsOnly && sp.Status != roll.StatusError {
		return false
	}
	return len(s.Services) == 0 || slices.Contains(s.Services, sp.Resource.Service())
}

// ResourceKeys and SpanKeys are the attributes that every backend returns with every span that has them: what attribution
// and outcomes are judged by. Spans whose status is error come with all of theirs and with their events, unless there are
// more of them than the backend fetches one by one; of the others a backend may leave the rest out.
var (
	ResourceKeys = []string{
		"service.name", "service.namespace", "service.instance.id",
		"k8s.namespace.name", "k8s.pod.name", "k8s.pod.uid", "k8s.pod.ip", "k8s.container.name", "host.name",
	}
	SpanKeys = []string{
		"network.peer.address", "network.peer.port", "net.peer.ip", "net.peer.name", "net.sock.peer.addr",
		"server.address", "server.port", "client.address",
		"rpc.system", "rpc.system.name", "rpc.service", "rpc.method",
		"rpc.grpc.status_code", "rpc.response.status_code", "rpc.status_code", "rpc.connect_rpc.error_code",
		"http.request.method", "http.response.status_code", "http.status_code", "http.request.resend_count",
		"error.type",
	}
)

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

// SortSpans orders spans by start, then trace id, then span id, then kind.
func SortSpans(spans []roll.Span) {
	compare := func(a, b *roll.Span) int {
		return cmp.Or(
			a.Start.Compare(b.Start),
			bytes.Compare(a.TraceID[:], b.TraceID[:]),
			bytes.Compare(a.SpanID[:], b.SpanID[:]),
			cmp.Compare(a.Kind, b.Kind))
	}
	// A span is some 300 bytes: sort small keys, then move each span once.
	type key struct {
		start int64
		i     int
	}
	keys, sorted := make([]key, len(spans)), true
	for i := range spans {
		keys[i] = key{spans[i].Start.UnixNano(), i}
		sorted = sorted && (i == 0 || compare(&spans[i-1], &spans[i]) <= 0)
	}
	if sorted {
		return
	}
	slices.SortFunc(keys, func(a, b key) int {
		if a.start != b.start {
			if a.start < b.start {
				return -1
			}
			return 1
		}
		return compare(&spans[a.i], &spans[b.i])
	})
	for i := range keys {
		// Follow the cycle that begins here; a place that is done points at itself.
		if keys[i].i == i {
			continue
		}
		first := spans[i]
		at := i
		for {
			from := keys[at].i
			keys[at].i = at
			if from == i {
				spans[at] = first
				break
			}
			spans[at] = spans[from]
			at = from
		}
	}
}

// Fold sorts the spans as [SortSpans] does and keeps one of each repetition, in place: the same trace id, span id and
// kind (client and server share a span id in Zipkin's model). It returns how many it dropped. When repetitions differ it
// keeps an error before another status, then the one that ends last.
func Fold(spans []roll.Span) (folded []roll.Span, dropped int) {
	SortSpans(spans)
	type identity struct {
		trace roll.TraceID
		span  roll.SpanID
		kind  roll.SpanKind
	}
	seen := make(map[identity]int, len(spans))
	better := func(a, b *roll.Span) bool {
		if e := a.Status == roll.StatusError; e != (b.Status == roll.StatusError) {
			return e
		}
		return a.End().After(b.End())
	}
	out := spans[:0]
	moved := false
	for i := range spans {
		id := identity{spans[i].TraceID, spans[i].SpanID, spans[i].Kind}
		if at, ok := seen[id]; ok {
			if better(&spans[i], &out[at]) {
				moved = moved || !out[at].Start.Equal(spans[i].Start)
				out[at] = spans[i]
			}
			continue
		}
		seen[id] = len(out)
		out = append(out, spans[i])
	}
	dropped = len(spans) - len(out)
	clear(spans[len(out):])
	if moved {
		SortSpans(out)
	}
	return out, dropped
}
