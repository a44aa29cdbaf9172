package tempofake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// t0 is on a second, so that ranges are easy to read.
var t0 = time.Unix(1_800_000_000, 0)

// A rig is a server, its clock, and a client of each kind.
type rig struct {
	*Server
	t     *testing.T
	clock *Clock
	query tempopb.StreamingQuerierClient
	otlp  collectorpb.TraceServiceClient
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	clock := NewClock(t0)
	o.Now = clock.Now
	s := start(t, o)
	return &rig{
		Server: s, t: t, clock: clock, query: tempopb.NewStreamingQuerierClient(dial(t, s.GRPCAddr())),
		otlp: collectorpb.NewTraceServiceClient(dial(t, s.GRPCAddr())),
	}
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func trace(n byte) []byte { return []byte{0xa0, 15: n} }

// span pushes one server span that ends now.
func (r *rig) span(traceNo, id byte) {
	r.Push(batch("api", makeSpan(trace(traceNo), id, r.clock.Now().Add(-time.Millisecond), time.Millisecond)))
}

// search asks over gRPC and puts the deltas together, as a client must.
func (r *rig) search(
	req *tempopb.SearchRequest,
) (traces map[string]*tempopb.TraceSearchMetadata, messages int, err error) {
	r.t.Helper()
	if req.GetEnd() == 0 {
		req.Start, req.End = uint32(t0.Add(-time.Hour).Unix()), uint32(r.clock.Now().Unix())
	}
	stream, err := r.query.Search(r.t.Context(), req)
	if err != nil {
		return nil, 0, err
	}
	traces = map[string]*tempopb.TraceSearchMetadata{}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return traces, messages, nil
		}
		if err != nil {
			return traces, messages, err
		}
		messages++
		for _, t := range m.GetTraces() {
			traces[t.GetTraceID()] = t
		}
	}
}

// counts are matched and returned spans over all sets of all traces.
func (r *rig) counts(q string) string {
	r.t.Helper()
	traces, _, err := r.search(&tempopb.SearchRequest{Query: q, SpansPerSpanSet: 100, Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	matched, spans := 0, 0
	for _, t := range traces {
		for _, set := range t.GetSpanSets() {
			matched += int(set.GetMatched())
			spans += len(set.GetSpans())
		}
	}
	return fmt.Sprintf("%d/%d", matched, spans)
}

// count is a metrics count over the same range as search.
func (r *rig) count(q string) float64 {
	r.t.Helper()
	n, err := r.countBetween(q, t0.Add(-time.Hour), r.clock.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) countBetween(q string, from, to time.Time) (float64, error) {
	stream, err := r.query.MetricsQueryInstant(r.t.Context(), &tempopb.QueryInstantRequest{
		Query: q, Start: uint64(from.UnixNano()), End: uint64(to.UnixNano()),
	})
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return sum, nil
		}
		if err != nil {
			return 0, err
		}
		sum = 0
		for _, s := range m.GetSeries() {
			sum += s.GetValue()
		}
	}
}

// get returns status and body.
func (r *rig) get(path string, header ...string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.HTTPAddr()+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err.Error()
	}
	return resp.StatusCode, string(body)
}

func (r *rig) spansByID(n byte) int {
	r.t.Helper()
	_, body := r.get(fmt.Sprintf("/api/v2/traces/%x", trace(n)), "Accept", typeProtobuf)
	return len(protoSpans(r.t, []byte(body)))
}

// TestFragments guards the fault of grafana/tempo#2513 and #5370: search shows part of a trace.
func TestFragments(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		o       Options
		arrive  func(r *rig)
		search  string // matched/returned
		by      string
		metrics float64
	}{
		{"together", Options{}, func(r *rig) {
			for i := range byte(5) {
				r.span(1, i)
				r.clock.Advance(time.Second)
			}
		}, "5/5", "5/5", 5},
		{"idle between", Options{}, func(r *rig) {
			r.span(1, 1)
			r.span(1, 2)
			r.clock.Advance(40 * time.Second)
			r.span(1, 3)
		}, "2/2", "3/3", 3},
		{"long life", Options{}, func(r *rig) {
			for i := range byte(30) { // one every 2 s
				r.span(1, i)
				r.clock.Advance(2 * time.Second)
			}
		}, "15/15", "30/30", 30},
		{"flushed between", Options{}, func(r *rig) {
			r.span(1, 1)
			r.Flush()
			r.span(1, 2)
			r.span(1, 3)
			r.Flush()
		}, "2/2", "3/3", 3},
		{"compacted", Options{}, func(r *rig) {
			r.span(1, 1)
			r.Flush()
			r.span(1, 2)
			r.Flush()
			r.Compact()
		}, "2/2", "2/2", 2},
		{"switched off", Options{NoFragments: true}, func(r *rig) {
			r.span(1, 1)
			r.clock.Advance(40 * time.Second)
			r.span(1, 2)
			r.clock.Advance(40 * time.Second)
			r.span(1, 3)
		}, "3/3", "3/3", 3},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, tc.o)
			tc.arrive(r)
			r.clock.Advance(time.Minute)
			if got := r.counts("{}"); got != tc.search {
				t.Errorf("search %s, want %s", got, tc.search)
			}
			if got := r.counts("{} | by(span:id)"); got != tc.by {
				t.Errorf("by(span:id) %s, want %s", got, tc.by)
			}
			if got := r.count("{} | count_over_time()"); got != tc.metrics {
				t.Errorf("metrics %v, want %v", got, tc.metrics)
			}
			if got := r.spansByID(1); got != int(tc.metrics) {
				t.Errorf("by id %v, want %v", got, tc.metrics)
			}
		})
	}
}

// TestIngestLag: by id at once, by search once the live trace was cut and the cutoff is past.
func TestIngestLag(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.span(1, 1)
	if got := r.spansByID(1); got != 1 {
		t.Fatalf("by id at once: %d", got)
	}
	for _, step := range []struct {
		at   time.Duration
		want string
	}{{4 * time.Second, "0/0"}, {11 * time.Second, "0/0"}, {28 * time.Second, "0/0"}, {31 * time.Second, "1/1"}} {
		r.clock.Set(t0.Add(step.at))
		if got := r.counts("{}"); got != step.want {
			t.Errorf("at %s: %s, want %s", step.at, got, step.want)
		}
	}
	// A span that was 40 s old on arrival is found as soon as its trace is cut.
	r.Push(batch("api", makeSpan(trace(2), 1, r.clock.Now().Add(-40*time.Second), time.Second)))
	r.clock.Advance(4 * time.Second)
	if got := r.counts("{}"); got != "1/1" {
		t.Errorf("old span after 4 s: %s", got)
	}
	r.clock.Advance(7 * time.Second)
	if got := r.counts("{}"); got != "2/2" {
		t.Errorf("old span after 11 s: %s", got)
	}
}

// TestLateSpans guards the fault of grafana/tempo#1299: backdated spans are found by id and not by time.
func TestLateSpans(t *testing.T) {
	t.Parallel()
	for _, off := range []bool{false, true} {
		r := newRig(t, Options{NoLateSpanClamp: off})
		at := t0.Add(-5 * time.Minute)
		r.Push(batch("api", makeSpan(trace(1), 1, at, time.Second)))
		r.clock.Advance(time.Minute)
		traces, _, err := r.search(&tempopb.SearchRequest{
			Query: "{}", Start: uint32(at.Unix() - 5), End: uint32(at.Unix() + 5),
		})
		if err != nil {
			t.Fatal(err)
		}
		n, err := r.countBetween("{} | count_over_time()", at.Add(-time.Second), r.clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		if off {
			want = 1
		}
		if len(traces) != want || n != float64(want) || r.spansByID(1) != 1 {
			t.Errorf("NoLateSpanClamp %v: search %d, metrics %v, by id %d", off, len(traces), n, r.spansByID(1))
		}
	}
}

// TestLateSpansInPieces: a span that came 3 min late is found when the range is such that the block's clamped range
// and the trace meet in one of the pieces that the frontend makes of it. Tempo 3.0.3 gave each of these answers.
func TestLateSpansInPieces(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	at := t0.Add(-3 * time.Minute)
	r.Push(batch("api", makeSpan(trace(1), 1, at, 50*time.Millisecond)))
	for _, c := range []struct {
		after, before time.Duration
		want          int
	}{
		{34 * time.Second, 5 * time.Second, 0},
		{42 * time.Second, 5 * time.Second, 1},
		{74 * time.Second, 5 * time.Second, 1},
		{74 * time.Second, 60 * time.Second, 0},
		{74 * time.Second, 300 * time.Second, 0},
	} {
		r.clock.Set(t0.Add(c.after))
		from, now := at.Add(-c.before), r.clock.Now()
		traces, _, err := r.search(&tempopb.SearchRequest{
			Query: "{}", Start: uint32(from.Unix()), End: uint32(now.Unix()),
		})
		if err != nil {
			t.Fatal(err)
		}
		n, err := r.countBetween("{} | count_over_time()", from, now)
		if err != nil || len(traces) != c.want || n != 0 {
			t.Errorf("%s after, from %s before: %d traces, %v spans, %v", c.after, c.before, len(traces), n, err)
		}
	}
}

// TestQueryEndCutoff: a range in the last 30 s becomes the last 15 min.
func TestQueryEndCutoff(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.span(1, 1)
	r.clock.Advance(5 * time.Minute)
	now := r.clock.Now()
	for _, c := range []struct {
		from, to time.Duration
		want     int
	}{{-10 * time.Second, 0, 1}, {time.Minute, 2 * time.Minute, 1}, {-2 * time.Minute, 0, 0}} {
		traces, _, err := r.search(&tempopb.SearchRequest{
			Query: "{}", Start: uint32(now.Add(c.from).Unix()), End: uint32(now.Add(c.to).Unix()),
		})
		if err != nil || len(traces) != c.want {
			t.Errorf("[%s, %s): %d traces, want %d, %v", c.from, c.to, len(traces), c.want, err)
		}
	}
}

// TestRangeOverlap: a window between two spans of a trace finds it whole.
func TestRangeOverlap(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.Push(batch("api", makeSpan(trace(1), 1, t0.Add(-100*time.Second), time.Second),
		makeSpan(trace(1), 2, t0.Add(-40*time.Second), time.Second)))
	r.clock.Advance(time.Minute)
	traces, _, err := r.search(&tempopb.SearchRequest{
		Query: "{}", Start: uint32(t0.Unix() - 80), End: uint32(t0.Unix() - 60),
	})
	if err != nil || len(traces) != 1 {
		t.Fatalf("%d traces, %v", len(traces), err)
	}
	n, err := r.countBetween("{} | count_over_time()", t0.Add(-80*time.Second), t0.Add(-60*time.Second))
	if err != nil || n != 0 {
		t.Errorf("metrics count by span start: %v, %v", n, err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	for i := range byte(25) {
		for j := range byte(5) {
			r.span(i, j)
		}
	}
	r.clock.Advance(time.Minute)
	for _, c := range []struct {
		name          string
		req           *tempopb.SearchRequest
		traces, spans int
	}{
		{"defaults", &tempopb.SearchRequest{Query: "{}"}, 20, 3},
		{"more", &tempopb.SearchRequest{Query: "{}", Limit: 100, SpansPerSpanSet: 100}, 25, 5},
		{"most recent", &tempopb.SearchRequest{Query: "{} with(most_recent=true)", Limit: 2}, 2, 3},
	} {
		traces, _, err := r.search(c.req)
		if err != nil || len(traces) != c.traces {
			t.Fatalf("%s: %d traces, %v", c.name, len(traces), err)
		}
		for _, tr := range traces {
			if set := tr.GetSpanSets()[0]; len(set.GetSpans()) != c.spans || set.GetMatched() != 5 {
				t.Errorf("%s: %d of %d spans, want %d of 5", c.name, len(set.GetSpans()), set.GetMatched(), c.spans)
			}
		}
	}
}

func TestGRPCErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{MaxResponseBytes: 100})
	r.span(1, 1)
	r.clock.Advance(time.Minute)
	for _, c := range []struct {
		req  *tempopb.SearchRequest
		code codes.Code
		msg  string
	}{
		{
			&tempopb.SearchRequest{Query: "{ foo }"},
			codes.InvalidArgument, "invalid TraceQL query: parse error at line 1, col 3: unknown identifier: foo",
		},
		{&tempopb.SearchRequest{Query: "{}", Limit: 262145}, codes.InvalidArgument, "limit 262145 exceeds max limit 262144"},
		{
			&tempopb.SearchRequest{Query: "{}", SpansPerSpanSet: 101},
			codes.InvalidArgument, "spans per span set exceeds 100. received 101",
		},
		{
			&tempopb.SearchRequest{Query: "{}", Start: 20, End: 10},
			codes.InvalidArgument, "http parameter start must be before end. received start=20 end=10",
		},
		{&tempopb.SearchRequest{Query: "{}"}, codes.Internal, "response larger than the max"},
	} {
		_, _, err := r.search(c.req)
		if st := status.Convert(err); st.Code() != c.code || !strings.Contains(st.Message(), c.msg) {
			t.Errorf("%v: %v", c.req, err)
		}
	}
	// Metrics queries are refused with the code Unknown, but for the range.
	for _, c := range []struct {
		query string
		to    time.Duration
		code  codes.Code
		msg   string
	}{
		{"{}", time.Minute, codes.Unknown, "not a metrics query"},
		{
			"{} | rate(", time.Minute, codes.Unknown,
			"compiling query: parse error at line 1, col 11: syntax error: unexpected $end, expecting )",
		},
		{"{} | rate()", -time.Minute, codes.Unknown, "end must be greater than start"},
		{
			"{} | rate()", 25 * time.Hour, codes.InvalidArgument,
			"metrics query time range exceeds the maximum allowed duration of 24h0m0s",
		},
	} {
		_, err := r.countBetween(c.query, t0, t0.Add(c.to))
		if st := status.Convert(err); st.Code() != c.code || st.Message() != c.msg {
			t.Errorf("%s: %v", c.query, err)
		}
	}
	if code, body := r.get("/api/search?q=%7B%7D"); code != 500 {
		t.Errorf("too large over HTTP: %d %s", code, body)
	}
}

// TestStream: deltas by trace in several messages, the last word on a trace wins, the end is EOF; the same over h2c.
func TestStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{MessageTraces: 2})
	for i := range byte(5) {
		r.Push(batch("api", makeSpan(trace(i), 1, t0.Add(-200*time.Second), 250*time.Second)))
	}
	r.clock.Advance(90 * time.Second)
	want, messages, err := r.search(&tempopb.SearchRequest{
		Query: "{}", Start: uint32(t0.Unix() - 300), End: uint32(t0.Unix() + 60),
	})
	// The range is searched in three pieces that each hold all of the traces.
	if err != nil || len(want) != 5 || messages < 7 {
		t.Errorf("%d traces in %d messages, %v", len(want), messages, err)
	}
	r.query = tempopb.NewStreamingQuerierClient(dial(t, r.HTTPAddr()))
	got, again, err := r.search(&tempopb.SearchRequest{
		Query: "{}", Start: uint32(t0.Unix() - 300), End: uint32(t0.Unix() + 60),
	})
	if err != nil || len(got) != len(want) || again != messages {
		t.Errorf("over h2c: %d traces in %d messages, %v", len(got), again, err)
	}
}

// TestSilentDrops: what is over a limit is answered OK; only the counter moves.
func TestSilentDrops(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{MaxLiveTraces: 2, MaxBytesPerTrace: 400})
	if code, body := r.get("/metrics"); code != 200 || strings.Contains(body, "tempo_discarded_spans_total") {
		t.Errorf("before: %d %s", code, body)
	}
	for i := range byte(3) {
		_, err := r.otlp.Export(t.Context(), &collectorpb.ExportTraceServiceRequest{
			ResourceSpans: []*tracepb.ResourceSpans{batch("api", makeSpan(trace(i), 1, t0, time.Second))},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range byte(10) {
		r.span(0, 10+i)
	}
	if code, _ := r.get(fmt.Sprintf("/api/traces/%x", trace(2))); code != 404 {
		t.Errorf("third trace: %d", code)
	}
	_, body := r.get("/metrics")
	for _, line := range []string{
		`tempo_discarded_spans_total{reason="live_traces_exceeded",tenant="single-tenant"} 1`,
		`tempo_discarded_spans_total{reason="trace_too_large",tenant="single-tenant"} `,
	} {
		if !strings.Contains(body, line) {
			t.Errorf("no %s in %s", line, body)
		}
	}
	if d := r.Discarded(); d["trace_too_large"] == 0 || d["live_traces_exceeded"] != 1 {
		t.Errorf("Discarded() = %v", d)
	}
}

// TestDoubleExport guards the fault of grafana/tempo#4257: a span that comes twice counts twice.
func TestDoubleExport(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	sp := batch("api", makeSpan(trace(1), 1, t0.Add(-time.Second), time.Second))
	r.Push(sp)
	r.Push(sp)
	r.clock.Advance(time.Minute)
	if s, n, id := r.counts("{}"), r.count("{} | count_over_time()"), r.spansByID(1); s != "2/2" || n != 2 || id != 2 {
		t.Errorf("search %s, metrics %v, by id %d", s, n, id)
	}
}

func TestTooLargeByID(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	for i := range byte(10) {
		r.span(1, i)
	}
	r.LowerMaxBytesPerTrace(500)
	code, body := r.get(fmt.Sprintf("/api/traces/%x", trace(1)))
	if code != 422 || !strings.Contains(body, "max bytes: 500") {
		t.Errorf("v1: %d %s", code, body)
	}
	_, body = r.get(fmt.Sprintf("/api/v2/traces/%x", trace(1)))
	var got tempopb.TraceByIDResponse
	if err := protojson.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if got.GetStatus() != tempopb.PartialStatus_PARTIAL ||
		got.GetMessage() != "Trace exceeds maximum size of 500 bytes, a partial trace is returned" {
		t.Errorf("v2: %v %q", got.GetStatus(), got.GetMessage())
	}
}

func TestTenants(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Multitenancy: true})
	export := func(org string) error {
		ctx := t.Context()
		if org != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "x-scope-orgid", org)
		}
		_, err := r.otlp.Export(ctx, &collectorpb.ExportTraceServiceRequest{
			ResourceSpans: []*tracepb.ResourceSpans{batch("api", makeSpan(trace(1), 1, t0.Add(-time.Second), time.Second))},
		})
		return err
	}
	if err := export(""); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "no org id" {
		t.Errorf("OTLP without a tenant: %v", err)
	}
	for _, org := range []string{"a", "b"} {
		if err := export(org); err != nil {
			t.Fatal(err)
		}
	}
	r.clock.Advance(time.Minute)
	if _, _, err := r.search(&tempopb.SearchRequest{Query: "{}"}); status.Code(err) != codes.Unknown {
		t.Errorf("search without a tenant: %v", err)
	}
	for org, want := range map[string]int{"a": 1, "c": 0, "a|b": 2, "a|c": 1} {
		_, body := r.get("/api/traces/"+fmt.Sprintf("%x", trace(1)), "X-Scope-OrgID", org, "Accept", typeProtobuf)
		if got := len(protoSpans(t, []byte(body))); got != want {
			t.Errorf("%s: %d spans, want %d", org, got, want)
		}
	}
}

// TestScript is each fault as a client sees it, over gRPC and HTTP, and then the healthy answer.
func TestScript(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{MessageTraces: 1, APITimeout: time.Minute})
	for i := range byte(4) {
		r.span(i, 1)
		r.span(i, 2)
	}
	r.clock.Advance(time.Minute)
	url := "/api/search?" + url.Values{
		"q": {"{}"}, "start": {strconv.FormatInt(t0.Unix()-60, 10)}, "end": {strconv.FormatInt(t0.Unix()+10, 10)},
	}.Encode()
	summary := func() string {
		traces, messages, err := r.search(&tempopb.SearchRequest{Query: "{}"})
		spans := 0
		for _, tr := range traces {
			spans += len(tr.GetSpanSets()[0].GetSpans())
		}
		return fmt.Sprintf("%d traces %d spans %d messages %s", len(traces), spans, messages, status.Code(err))
	}
	healthy := summary()
	for _, c := range []struct {
		name     string
		fault    Fault
		want     string
		httpCode int
		httpBody string
	}{
		{"healthy", Healthy(), healthy, 200, `"completedJobs":`},
		{"queue full", QueueFull(), "0 traces 0 spans 0 messages ResourceExhausted", 429, "job queue full"},
		{
			"too large", ResponseTooLarge(), "0 traces 0 spans 0 messages Internal", 500,
			"response larger than the max (66532491 vs 16777216)",
		},
		{
			"timed out", TimedOut(), "0 traces 0 spans 0 messages Internal", 503,
			"unable to process request in the configured timeout",
		},
		{"cut", CutAfter(2), "", 200, "unexpected EOF"},
		{"duplicates", DuplicateSpans(), "", 200, `"matched":4`},
		{"other", Respond(502, "text/html", "<html>"), "0 traces 0 spans 0 messages Unavailable", 502, "<html>"},
		{"code", RespondGRPC(codes.Aborted, "x"), "0 traces 0 spans 0 messages Aborted", 500, "x"},
		{"clock", ClockAhead(-time.Hour), "0 traces 0 spans", 200, `"traces":[]`},
	} {
		r.Script(Search, c.fault, c.fault)
		got := summary()
		switch c.name {
		case "cut":
			if !strings.HasSuffix(got, " 2 messages Unavailable") {
				t.Errorf("cut: %s", got)
			}
		default:
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
		}
		code, body := r.get(url)
		if code != c.httpCode || !strings.Contains(body, c.httpBody) {
			t.Errorf("%s: HTTP %d %s", c.name, code, body)
		}
		if r.Scripted() != 0 || summary() != healthy {
			t.Errorf("%s: not healthy afterwards: %s", c.name, summary())
		}
	}
	r.Script(Search, Times(2, QueueFull())...)
	if a, b, c := summary(), summary(), summary(); a == healthy || b == healthy || c != healthy {
		t.Errorf("429 twice: %s, %s, %s", a, b, c)
	}
	r.Script(Search, JobsUnfinished(), Lose(1))
	_, body := r.get(url)
	var got tempopb.SearchResponse
	if err := protojson.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	if m := got.GetMetrics(); m.GetCompletedJobs() >= m.GetTotalJobs() || len(got.GetTraces()) != 3 {
		t.Errorf("unfinished: %v, %d traces", m, len(got.GetTraces()))
	}
	if _, body = r.get(url); strings.Count(body, `"traceID"`) != 3 {
		t.Errorf("lost: %s", body)
	}
	r.Script(Metrics, Lose(1), DuplicateSpans())
	for _, want := range []float64{7, 16, 8} {
		if got := r.count("{} | count_over_time()"); got != want {
			t.Errorf("count %v, want %v", got, want)
		}
	}
	r.Script(TraceByID, PartialTrace())
	if _, body := r.get(fmt.Sprintf("/api/v2/traces/%x", trace(1))); !strings.Contains(body, `"status":"PARTIAL"`) {
		t.Errorf("partial: %s", body)
	}
}

// TestHang: no answer until the client gives up, and Close does not wait for one.
func TestHang(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.Script(Search, Times(3, Hang())...)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	stream, err := r.query.Search(ctx, &tempopb.SearchRequest{Query: "{}"})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("hang: %v", err)
	}
	done := make(chan int)
	go func() {
		code, _ := r.get("/api/search?q=%7B%7D")
		done <- code
	}()
	go func() {
		_, _, err := r.search(&tempopb.SearchRequest{Query: "{}"})
		done <- int(status.Code(err))
	}()
	for r.Scripted() > 0 {
		select {
		case <-t.Context().Done():
			t.Fatal("requests did not arrive")
		case <-time.After(time.Millisecond):
		}
	}
	r.Close()
	if a, b := <-done, <-done; a == 200 || b == 200 {
		t.Errorf("answers %d, %d", a, b)
	}
}

func TestAPITimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{APITimeout: time.Nanosecond})
	r.span(1, 1)
	r.clock.Advance(time.Minute)
	if code, body := r.get("/api/search?q=%7B%7D"); code != 503 {
		t.Errorf("HTTP: %d %s", code, body)
	}
	_, _, err := r.search(&tempopb.SearchRequest{Query: "{}"})
	if st := status.Convert(err); st.Code() != codes.Internal || st.Message() != "context deadline exceeded" {
		t.Errorf("gRPC: %v", err)
	}
}

func TestOTLPOverHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	req := &collectorpb.ExportTraceServiceRequest{
		ResourceSpans: []*tracepb.ResourceSpans{batch("api", makeSpan(trace(1), 1, t0, time.Second))},
	}
	pb, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	inHex := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"a0000000000000000000000000000001",` +
		`"spanId":"0102030405060708","name":"op","startTimeUnixNano":"1800000000000000000"}]}]}]}`
	for _, c := range []struct {
		contentType, body string
		code              int
	}{
		{"application/x-protobuf", string(pb), 200},
		{typeJSON, inHex, 200},
		{typeJSON, `{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"xx"}]}]}]}`, 400},
		{"application/x-protobuf", "\xff", 400},
	} {
		resp, err := http.Post("http://"+r.HTTPAddr()+"/v1/traces", c.contentType, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.code {
			t.Errorf("%s: %d, want %d", c.contentType, resp.StatusCode, c.code)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if got := r.spansByID(1); got != 2 {
		t.Errorf("%d spans", got)
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	req := &tempopb.SearchRequest{Query: "{}", Start: 1_799_999_000, End: 1_799_999_500, Limit: 7}
	if _, _, err := r.search(req); err != nil {
		t.Fatal(err)
	}
	r.get("/api/traces/abc?start=1")
	got := r.Requests()
	if len(got) != 2 {
		t.Fatalf("%d requests", len(got))
	}
	if q := got[0]; q.Endpoint != Search || !q.GRPC || q.Query != "{}" || q.Limit != 7 || q.Start.Unix() != 1_799_999_000 {
		t.Errorf("search: %+v", q)
	}
	if q := got[1]; q.Endpoint != TraceByID || q.GRPC || q.Query != "abc" {
		t.Errorf("by id: %+v", q)
	}
}

// TestDate: the Date header tells the server's clock.
func TestDate(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	r.Script(BuildInfo, Healthy(), ClockAhead(time.Hour))
	for _, want := range []time.Time{t0, t0.Add(time.Hour)} {
		resp, err := http.Get("http://" + r.HTTPAddr() + "/api/status/buildinfo")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got, err := http.ParseTime(resp.Header.Get("Date")); err != nil || !got.Equal(want) {
			t.Errorf("Date %s, want %s", resp.Header.Get("Date"), want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestStartWithoutClock(t *testing.T) {
	t.Parallel()
	if _, err := Start(t.Context(), Options{}); err == nil {
		t.Error("no error")
	}
}

func TestStartEndsWithContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Start(ctx, Options{Now: NewClock(t0).Now})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	s.serving.Wait()
	s.Close()
}
