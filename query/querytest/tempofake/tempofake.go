// Package tempofake is a stand-in for Grafana Tempo 3.0.3 (single binary, default limits) in one process: it serves
// the same HTTP and gRPC query surface, and takes OTLP, with the limits and the silent faults that the real one has.
// Tests use it to prove that a client notices each of them; the demo uses it as its store.
//
// What it reproduces, each by the name of the field of [Options] that turns it off or moves it:
//
//   - A trace whose spans arrive over more than TraceIdle (5 s) or TraceLive (30 s) is stored as several fragments. A
//     search answers with the fragment that has the most matches and drops the others without a word, unless by()
//     tells the span sets apart (pkg/traceql/combine.go). Metrics and lookup by id see all (NoFragments).
//   - Search and metrics read blocks, not live traces: spans are found 5 to 10 s after they came, or up to 35 s for a
//     trace that keeps growing. By id they are found at once.
//   - The end of every query is clamped to now-QueryEndCutoff (30 s); a search that starts later still gets now-15min
//     as its start. Ranges are whole seconds and select fragments that overlap, not spans.
//   - A block's time range is clamped to TimeRangeSlack (2 min) around the arrival: older spans are found by id,
//     hardly by time, and never counted (NoLateSpanClamp).
//   - 20 traces unless limit is given, at most 262,144; 3 spans per span set unless spss is given, at most 100, and 0
//     is 3. Only matched tells.
//   - select() answers "nil" for missing attributes with a column of their own and nothing for others, drops scopes,
//     and gives one event of several. Trace ids have no leading zeros.
//   - What is over MaxBytesPerTrace or MaxLiveTraces is dropped at ingest and answered OK;
//     tempo_discarded_spans_total on /metrics moves. A span that comes twice is stored twice.
//   - An answer of a search job over MaxResponseBytes (16 MiB) is a 500, APITimeout a 503, a full queue a 429; a
//     wrong tenant is empty, none is a 401.
//
// Where it is simpler than the real one: one process without goroutines of its own, so that time passes in the store
// only when it is used; blocks stay in memory, are never compacted unless [Server.Compact] is called, and are both
// "live" and "backend", chosen by the 15 min of query_backend_after. OTLP is taken on the ports of the queries.
// TraceQL is the part that a client of spans needs: filters, select, by, count, count_over_time and rate; a query
// that Tempo knows and this package does not is answered 400 "tempofake: ... is not supported". A filter on span:id,
// which the real one answers strangely, works. The order of attributes and traces, which is random in the real one,
// is fixed.
package tempofake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
)

// Options configure a [Server]. The zero value of a field is Tempo 3.0.3's default; a negative number or duration is no
// limit, or none of the delay.
type Options struct {
	// Now is the clock of the store, and must be given. A [Clock] is one that tests move.
	Now func() time.Time
	// HTTPAddr and GRPCAddr are listened on; default "127.0.0.1:0". The HTTP port takes gRPC as well (h2c).
	HTTPAddr, GRPCAddr string
	// Version is what buildinfo tells; default "3.0.3".
	Version string

	// Multitenancy demands X-Scope-OrgID.
	Multitenancy bool
	// NoFragments keeps each trace in one piece whenever its spans arrive.
	NoFragments bool
	// NoLateSpanClamp lets a block's time range be that of its spans.
	NoLateSpanClamp bool

	// FlushPeriod is live_store.flush_check_period, 5 s: live traces are looked at so often.
	FlushPeriod time.Duration
	// TraceIdle is max_trace_idle, 5 s: a live trace without new spans for so long becomes searchable.
	TraceIdle time.Duration
	// TraceLive is max_trace_live, 30 s: so does one of this age, in the middle of its life.
	TraceLive time.Duration
	// BlockDuration is max_block_duration, 30 s: a block is cut no sooner after the one before.
	BlockDuration time.Duration
	// TimeRangeSlack is ingestion_time_range_slack, 2 min.
	TimeRangeSlack time.Duration
	// QueryEndCutoff is query_end_cutoff, 30 s.
	QueryEndCutoff time.Duration
	// APITimeout is query_frontend.api_timeout; default 30 s of real time.
	APITimeout time.Duration

	// DefaultLimit and MaxLimit bound the traces of a search: 20 and 262,144.
	DefaultLimit, MaxLimit int
	// MaxSpansPerSpanSet bounds spss: 100.
	MaxSpansPerSpanSet int
	// MaxSearchRange and MaxMetricsRange bound the range: 168 h and 24 h.
	MaxSearchRange, MaxMetricsRange time.Duration
	// MaxBytesPerTrace is 5,000,000, MaxLiveTraces 10,000 a tenant, MaxResponseBytes 16 MiB a search job.
	MaxBytesPerTrace, MaxLiveTraces, MaxResponseBytes int
	// MessageTraces and MessageBytes cut the stream of a search into messages: no limit of traces, and 2 MB.
	MessageTraces, MessageBytes int
}

// withDefaults fills in the defaults; what was negative becomes 0, which the code takes for none.
func (o Options) withDefaults() Options {
	def(&o.HTTPAddr, "127.0.0.1:0")
	def(&o.GRPCAddr, "127.0.0.1:0")
	def(&o.Version, "3.0.3")
	limit(&o.TraceIdle, 5*time.Second)
	limit(&o.TraceLive, 30*time.Second)
	limit(&o.BlockDuration, 30*time.Second)
	limit(&o.TimeRangeSlack, 2*time.Minute)
	limit(&o.QueryEndCutoff, 30*time.Second)
	limit(&o.APITimeout, 30*time.Second)
	limit(&o.DefaultLimit, 20)
	limit(&o.MaxLimit, 262_144)
	limit(&o.MaxSpansPerSpanSet, 100)
	limit(&o.MaxSearchRange, 168*time.Hour)
	limit(&o.MaxMetricsRange, 24*time.Hour)
	limit(&o.MaxBytesPerTrace, 5_000_000)
	limit(&o.MaxLiveTraces, 10_000)
	limit(&o.MaxResponseBytes, 16<<20)
	limit(&o.MessageBytes, 2_000_000)
	if o.FlushPeriod <= 0 {
		o.FlushPeriod = 5 * time.Second
	}
	return o
}

func def(v *string, d string) {
	if *v == "" {
		*v = d
	}
}

func limit[T int | time.Duration](v *T, d T) {
	switch {
	case *v == 0:
		*v = d
	case *v < 0:
		*v = 0
	}
}

// A Clock is moved by hand. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that stands at t.
func NewClock(t time.Time) *Clock { return &Clock{now: t} }

// Now is the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Set moves the clock to t. A store does not go back in time: it only waits until its clock has caught up.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// A Server is a running stand-in. Its methods are safe for concurrent use.
type Server struct {
	o      Options
	script script
	// ctx ends with the server: what hangs by script is let go.
	ctx     context.Context
	cancel  context.CancelFunc
	http    *http.Server
	grpc    *grpc.Server
	httpL   net.Listener
	grpcL   net.Listener
	serving sync.WaitGroup
	closed  sync.Once

	mu       sync.Mutex
	tenants  map[string]*tenant
	maxTrace int
	requests []Request
}

// singleTenant is the tenant of a Tempo without multitenancy.
const singleTenant = "single-tenant"

// Start listens and serves until Close, or until ctx ends.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Now == nil {
		return nil, errors.New("start tempofake: no clock: Options.Now is nil")
	}
	s := &Server{o: o.withDefaults(), tenants: map[string]*tenant{}}
	var lc net.ListenConfig
	var err error
	if s.httpL, err = lc.Listen(ctx, "tcp", s.o.HTTPAddr); err != nil {
		return nil, fmt.Errorf("listen for HTTP: %w", err)
	}
	if s.grpcL, err = lc.Listen(ctx, "tcp", s.o.GRPCAddr); err != nil {
		_ = s.httpL.Close()
		return nil, fmt.Errorf("listen for gRPC: %w", err)
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.grpc = grpc.NewServer(grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(64<<20))
	tempopb.RegisterStreamingQuerierServer(s.grpc, &grpcQuerier{s: s})
	collectorpb.RegisterTraceServiceServer(s.grpc, &otlpService{s: s})
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{Handler: s.handler(), Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second}
	s.serving.Go(func() { _ = s.http.Serve(s.httpL) })
	s.serving.Go(func() { _ = s.grpc.Serve(s.grpcL) })
	context.AfterFunc(ctx, s.Close)
	return s, nil
}

// HTTPAddr is host:port of the HTTP API, of gRPC over h2c and of OTLP over HTTP.
func (s *Server) HTTPAddr() string { return s.httpL.Addr().String() }

// GRPCAddr is host:port of the gRPC API and of OTLP over gRPC.
func (s *Server) GRPCAddr() string { return s.grpcL.Addr().String() }

// Close ends all requests and waits until the listeners are closed.
func (s *Server) Close() {
	s.closed.Do(func() {
		s.cancel()
		_ = s.http.Close()
		s.grpc.Stop()
	})
	s.serving.Wait()
}

// Push stores spans of the default tenant as if they came by OTLP now.
func (s *Server) Push(rs ...*tracepb.ResourceSpans) { s.PushTenant(singleTenant, rs...) }

// PushTenant is Push for one tenant.
func (s *Server) PushTenant(name string, rs ...*tracepb.ResourceSpans) {
	now := s.o.Now()
	s.tenant(name, now).push(now, rs)
}

// Flush makes all that came so far searchable, in a block of its own. So spans of one trace that are pushed before and
// after a Flush are in two fragments, whatever the clock says.
func (s *Server) Flush() {
	s.each(func(t *tenant, now time.Time) { t.flush(now) })
}

// Compact unites the fragments of each trace that are in finished blocks.
func (s *Server) Compact() {
	s.each(func(t *tenant, _ time.Time) { t.compact() })
}

func (s *Server) each(f func(*tenant, time.Time)) {
	now := s.o.Now()
	s.mu.Lock()
	var all []*tenant
	for _, t := range s.tenants {
		all = append(all, t)
	}
	s.mu.Unlock()
	for _, t := range all {
		t.mu.Lock()
		t.pass(now)
		f(t, now)
		t.mu.Unlock()
	}
}

// LowerMaxBytesPerTrace changes the limit for reading alone, as an override does that comes after the trace: by id it
// is then answered 422 (v1) or PARTIAL (v2).
func (s *Server) LowerMaxBytesPerTrace(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxTrace = n
}

// Discarded is tempo_discarded_spans_total over all tenants, by reason.
func (s *Server) Discarded() map[string]int {
	out := map[string]int{}
	s.each(func(t *tenant, _ time.Time) {
		for reason, n := range t.discarded {
			out[reason] += n
		}
	})
	return out
}

func (s *Server) tenant(name string, now time.Time) *tenant {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[name]
	if t == nil {
		t = newTenant(s.o, now)
		s.tenants[name] = t
	}
	return t
}

// An apiError is an answer other than 200.
type apiError struct {
	httpStatus int
	msg        string
	// org is set on errors of the tenant's header, which another layer of Tempo writes.
	org bool
	// uncoded is set where gRPC gets the code Unknown, although HTTP gets a 400.
	uncoded bool
}

func (e *apiError) Error() string { return e.msg }

// rejected is a bad request that the metrics handlers find before the pipeline does.
func rejected(format string, args ...any) error {
	return &apiError{httpStatus: http.StatusBadRequest, msg: fmt.Sprintf(format, args...), uncoded: true}
}

func badRequest(format string, args ...any) error {
	return &apiError{httpStatus: http.StatusBadRequest, msg: fmt.Sprintf(format, args...)}
}
