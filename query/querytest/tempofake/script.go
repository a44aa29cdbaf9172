package tempofake

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
)

// An Endpoint is a kind of request, over HTTP or gRPC.
type Endpoint string

// The endpoints that a script can be written for.
const (
	Search    Endpoint = "search"
	Metrics   Endpoint = "metrics"
	TraceByID Endpoint = "trace"
	BuildInfo Endpoint = "buildinfo"
	Export    Endpoint = "export"
)

// A Request is what the server was asked.
type Request struct {
	Endpoint Endpoint
	// GRPC is false for HTTP. Path is the URL's or the method's.
	GRPC bool
	Path string
	// Tenant is what X-Scope-OrgID held.
	Tenant string
	// Query is TraceQL, or the trace id in hex.
	Query string
	// Start and End are as asked, before any clamping; zero when absent.
	Start, End time.Time
	// Limit and SpansPerSpanSet are as asked, 0 when absent.
	Limit, SpansPerSpanSet int
}

type faultKind int

const (
	faultNone faultKind = iota
	faultError
	faultHang
	faultCut
	faultPartial
	faultUnfinished
	faultDuplicate
	faultLose
	faultClock
	faultRaw
)

// A Fault is what happens to one request.
type Fault struct {
	kind        faultKind
	n           int
	d           time.Duration
	err         *apiError
	code        codes.Code
	contentType string
}

// Healthy lets a request through.
func Healthy() Fault { return Fault{} }

// QueueFull answers 429 "job queue full", or ResourceExhausted. For Export it is the rate limit.
func QueueFull() Fault {
	return Fault{kind: faultError, err: &apiError{httpStatus: 429, msg: "job queue full"}}
}

// ResponseTooLarge answers 500, or Internal, as if a search job were over 16 MiB.
func ResponseTooLarge() Fault {
	return Fault{kind: faultError, err: &apiError{
		httpStatus: 500, msg: "response larger than the max (66532491 vs 16777216)",
	}}
}

// TimedOut answers 503, or Internal, as when api_timeout is over.
func TimedOut() Fault { return Fault{kind: faultError, err: errTimeout} }

// Hang does not answer until the client goes away or the server closes, as Tempo does while it stops.
func Hang() Fault { return Fault{kind: faultHang} }

// CutAfter breaks the connection after n messages of a stream; over HTTP in the middle of the body.
func CutAfter(messages int) Fault { return Fault{kind: faultCut, n: messages} }

// PartialTrace answers PARTIAL with the first half of the spans (v2 by id), or 422 (v1).
func PartialTrace() Fault { return Fault{kind: faultPartial} }

// JobsUnfinished leaves out the last trace and says completedJobs < totalJobs.
func JobsUnfinished() Fault { return Fault{kind: faultUnfinished} }

// DuplicateSpans repeats every span of an answer, as when each was exported twice; counts are doubled.
func DuplicateSpans() Fault { return Fault{kind: faultDuplicate} }

// Lose leaves out n traces of a search, or n spans of a trace or of each count, and nothing says so.
func Lose(n int) Fault { return Fault{kind: faultLose, n: n} }

// ClockAhead answers as a server would whose clock is ahead by d; behind, when d is negative.
func ClockAhead(d time.Duration) Fault { return Fault{kind: faultClock, d: d} }

// Respond answers over HTTP with this status and body; over gRPC with Unavailable and the body as message.
func Respond(status int, contentType, body string) Fault {
	return Fault{
		kind: faultRaw, contentType: contentType, err: &apiError{httpStatus: status, msg: body}, code: codes.Unavailable,
	}
}

// RespondGRPC answers over gRPC with this code; over HTTP with 500.
func RespondGRPC(code codes.Code, msg string) Fault {
	return Fault{kind: faultRaw, contentType: "text/plain", err: &apiError{httpStatus: 500, msg: msg}, code: code}
}

// Times repeats a fault.
func Times(n int, f Fault) []Fault {
	out := make([]Fault, n)
	for i := range out {
		out[i] = f
	}
	return out
}

type script struct {
	mu     sync.Mutex
	faults map[Endpoint][]Fault
}

// Script appends to what happens to the next requests of an endpoint, one fault each. When it has run out, requests are
// answered as they should be.
func (s *Server) Script(e Endpoint, faults ...Fault) {
	s.script.mu.Lock()
	defer s.script.mu.Unlock()
	if s.script.faults == nil {
		s.script.faults = map[Endpoint][]Fault{}
	}
	s.script.faults[e] = append(s.script.faults[e], faults...)
}

// Scripted is the number of faults that are still to happen.
func (s *Server) Scripted() int {
	s.script.mu.Lock()
	defer s.script.mu.Unlock()
	n := 0
	for _, f := range s.script.faults {
		n += len(f)
	}
	return n
}

// Requests is what the server was asked so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// arrive notes a request and takes its fault.
func (s *Server) arrive(r Request) Fault {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
	s.script.mu.Lock()
	defer s.script.mu.Unlock()
	queue := s.script.faults[r.Endpoint]
	if len(queue) == 0 {
		return Fault{}
	}
	s.script.faults[r.Endpoint] = queue[1:]
	return queue[0]
}

// before is what a fault does instead of evaluating the request; nil when there is an answer.
func (f Fault) before(ctx, server context.Context) error {
	switch f.kind {
	case faultError:
		return f.err
	case faultHang:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-server.Done():
			return context.Cause(server)
		}
	}
	return nil
}

// now is the server's time for this request.
func (f Fault) now(clock func() time.Time) time.Time {
	if f.kind == faultClock {
		return clock().Add(f.d)
	}
	return clock()
}

// spoilSearch changes the traces of one message.
func (f Fault) spoilSearch(
	traces []*tempopb.TraceSearchMetadata, m *tempopb.SearchMetrics,
) []*tempopb.TraceSearchMetadata {
	switch f.kind {
	case faultUnfinished:
		m.TotalJobs++
		return traces[:max(0, len(traces)-1)]
	case faultLose:
		return traces[:max(0, len(traces)-f.n)]
	case faultDuplicate:
		for i, t := range traces {
			traces[i] = duplicated(t)
		}
	}
	return traces
}

func duplicated(t *tempopb.TraceSearchMetadata) *tempopb.TraceSearchMetadata {
	out := &tempopb.TraceSearchMetadata{
		TraceID: t.GetTraceID(), RootServiceName: t.GetRootServiceName(), RootTraceName: t.GetRootTraceName(),
		StartTimeUnixNano: t.GetStartTimeUnixNano(), DurationMs: t.GetDurationMs(), ServiceStats: t.GetServiceStats(),
	}
	for _, set := range t.GetSpanSets() {
		spans := append(append([]*tempopb.Span(nil), set.GetSpans()...), set.GetSpans()...)
		out.SpanSets = append(out.SpanSets, &tempopb.SpanSet{
			Spans: spans, Matched: set.GetMatched() * 2, Attributes: set.GetAttributes(),
		})
	}
	if len(out.GetSpanSets()) > 0 {
		out.SpanSet = out.GetSpanSets()[0]
	}
	return out
}

// spoilCount changes a count.
func (f Fault) spoilCount(n float64) float64 {
	switch f.kind {
	case faultLose:
		return max(0, n-float64(f.n))
	case faultDuplicate:
		return 2 * n
	}
	return n
}

// spoilTrace changes the spans of a trace; partial says whether that is owned up to.
func (f Fault) spoilTrace(spans []*span) (_ []*span, partial bool) {
	switch f.kind {
	case faultPartial:
		return spans[:len(spans)/2], true
	case faultLose:
		return spans[:max(0, len(spans)-f.n)], false
	case faultDuplicate:
		return append(append([]*span(nil), spans...), spans...), false
	}
	return spans, false
}
