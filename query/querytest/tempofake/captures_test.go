package tempofake

import (
	"bytes"
	"context"
	bytesorder "encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
)

// A capture is what a real Tempo answered.
type capture struct {
	method, target string
	header         http.Header
	status         int
	answer         http.Header
	body           []byte
	at             time.Time
}

func captures(t *testing.T) map[string]*capture {
	t.Helper()
	ar, err := txtar.ParseFile("testdata/captures.txtar")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*capture{}
	for _, f := range ar.Files {
		name, part, _ := strings.Cut(f.Name, ".")
		c := out[name]
		if c == nil {
			c = &capture{header: http.Header{}, answer: http.Header{}}
			out[name] = c
		}
		lines := strings.Split(strings.TrimSpace(string(f.Data)), "\n")
		headers := func(into http.Header) {
			for _, line := range lines[1:] {
				k, v, _ := strings.Cut(line, ": ")
				into.Set(k, v)
			}
		}
		switch part {
		case "req":
			c.method, c.target, _ = strings.Cut(lines[0], " ")
			headers(c.header)
		case "hdr":
			c.status, err = strconv.Atoi(strings.Fields(lines[0])[1])
			if err != nil {
				t.Fatal(err)
			}
			headers(c.answer)
			c.at, err = http.ParseTime(c.answer.Get("Date"))
			if err != nil {
				t.Fatal(err)
			}
		case "body":
			c.body = bytes.TrimSuffix(f.Data, []byte("\n"))
		}
	}
	for name, c := range out {
		if c.answer.Get("Content-Type") == typeProtobuf {
			if c.body, err = os.ReadFile("testdata/" + name + ".pb"); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

func capturedTrace(t *testing.T, name string) *tempopb.Trace {
	t.Helper()
	body, err := os.ReadFile("testdata/" + name + ".pb")
	if err != nil {
		t.Fatal(err)
	}
	var r tempopb.TraceByIDResponse
	if err := proto.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	return r.GetTrace()
}

// replay sends the captured request and returns the answer.
func replay(t *testing.T, s *Server, c *capture) (*http.Response, []byte) {
	t.Helper()
	url := strings.Replace(c.target, "127.0.0.1:3200", s.HTTPAddr(), 1)
	req, err := http.NewRequestWithContext(t.Context(), c.method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = c.header.Clone()
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, body
}

// A comparison is how much of the body must be equal.
type comparison int

const (
	exact      comparison = iota // byte for byte, but for the last newline
	sameJSON                     // but for the order of spans, sets, attributes and series, and for the metrics
	sameShape                    // which keys lead to what
	sameProto                    // a TraceByIDResponse or a Trace, but for metrics and order
	statusOnly                   // the data behind it is not at hand
)

const (
	mainData = "main"
	fragData = "fragments"
	mtData   = "tenants"
)

func TestCaptures(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, data string
		how        comparison
		fault      *Fault
	}{
		{"search_default_limits", mainData, sameShape, nil},
		{"search_spss0", mainData, sameShape, nil},
		{"search_spss100", mainData, sameShape, nil},
		{"search_spss101", mainData, exact, nil},
		{"search_limit_max", mainData, exact, nil},
		{"search_limit0", mainData, exact, nil},
		{"search_limit_neg", mainData, exact, nil},
		{"search_bad_traceql", mainData, exact, nil},
		{"search_bad_type", mainData, exact, nil},
		{"search_range_too_long", mainData, exact, nil},
		{"search_start_only", mainData, exact, nil},
		{"search_start_after_end", mainData, exact, nil},
		{"search_start_eq_end", mainData, exact, nil},
		{"search_nanos", mainData, exact, nil},
		{"search_fractional", mainData, exact, nil},
		{"search_rfc3339", mainData, exact, nil},
		{"search_empty", mainData, sameShape, nil},
		{"search_proto", mainData, statusOnly, nil},
		{"api_v2_search", mainData, exact, nil},
		{"ready", mainData, exact, nil},
		{"echo", mainData, exact, nil},
		{"buildinfo", mainData, exact, nil},
		{"status_version", mainData, exact, nil},
		{"select_all", mainData, sameJSON, nil},
		{"trace_v1_json", mainData, sameJSON, nil},
		{"trace_v1_proto", mainData, sameProto, nil},
		{"trace_v2_json", mainData, sameJSON, nil},
		{"trace_v2_proto", mainData, sameProto, nil},
		{"trace_v1_404", mainData, exact, nil},
		{"trace_v2_missing", mainData, exact, nil},
		{"trace_v2_badid", mainData, exact, nil},
		{"trace_v2_range_disjoint", mainData, exact, nil},
		{"by_status", mainData, sameJSON, nil},
		{"by_spanid", mainData, sameJSON, nil},
		{"errors_only", mainData, exact, nil},
		{"metrics_instant", mainData, sameJSON, nil},
		{"metrics_instant_proto", mainData, sameJSON, nil},
		{"metrics_range", mainData, sameShape, nil},
		{"metrics_instant_empty", mainData, sameJSON, nil},
		{"metrics_no_agg", mainData, exact, nil},
		{"metrics_range_too_long", mainData, exact, nil},
		{"metrics_step_tiny", mainData, exact, nil},
		{"api_timeout", mainData, exact, new(TimedOut())},
		{"api_timeout_metrics", mainData, exact, new(TimedOut())},
		{"frag_err_plain", fragData, sameJSON, nil},
		{"frag_err_byspanid", fragData, sameJSON, nil},
		{"frag_err_metrics", fragData, sameJSON, nil},
		{"frag_trace_v2", fragData, sameProto, nil},
		{"mt_no_tenant", mtData, exact, nil},
		{"mt_no_tenant_trace", mtData, exact, nil},
		{"mt_badtenant", mtData, exact, nil},
		{"mt_429", mtData, exact, new(QueueFull())},
		{"mt_other", mtData, sameShape, nil},
		{"mt_multi", mtData, sameShape, nil},
		{"trace_v1_toolarge", mtData, exact, nil},
	}
	all := captures(t)
	servers := map[string]*Server{}
	clocks := map[string]*Clock{}
	servers[mainData], clocks[mainData] = mainServer(t)
	servers[fragData], clocks[fragData] = fragmentServer(t)
	servers[mtData], clocks[mtData] = tenantServer(t)
	for name := range all {
		if !slices.ContainsFunc(cases, func(c struct {
			name, data string
			how        comparison
			fault      *Fault
		},
		) bool {
			return c.name == name
		}) {
			t.Errorf("capture %s has no case", name)
		}
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c, s := all[tc.name], servers[tc.data]
			if c == nil {
				t.Fatal("no such capture")
			}
			clocks[tc.data].Set(c.at)
			if tc.fault != nil {
				e := Search
				if strings.Contains(c.target, "/metrics/") {
					e = Metrics
				}
				s.Script(e, *tc.fault)
			}
			if tc.name == "trace_v1_toolarge" {
				s.LowerMaxBytesPerTrace(5000)
			}
			resp, body := replay(t, s, c)
			if resp.StatusCode != c.status {
				t.Errorf("status %d, want %d: %s", resp.StatusCode, c.status, body)
			}
			if got, want := resp.Header.Get("Content-Type"), c.answer.Get("Content-Type"); got != want {
				t.Errorf("content type %q, want %q", got, want)
			}
			compareBodies(t, tc.how, body, c.body)
		})
	}
}

var blockID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func compareBodies(t *testing.T, how comparison, got, want []byte) {
	t.Helper()
	switch how {
	case exact:
		g := blockID.ReplaceAllString(strings.TrimSuffix(string(got), "\n"), "BLOCK")
		w := blockID.ReplaceAllString(strings.TrimSuffix(string(want), "\n"), "BLOCK")
		if g != w {
			t.Errorf("body\n got %s\nwant %s", g, w)
		}
	case sameJSON:
		if g, w := canonical(t, got), canonical(t, want); g != w {
			t.Errorf("body\n got %s\nwant %s", g, w)
		}
	case sameShape:
		g, w := shape(t, got), shape(t, want)
		if !slices.Equal(g, w) {
			t.Errorf("shape\n got %q\nwant %q", g, w)
		}
	case sameProto:
		if g, w := protoSpans(t, got), protoSpans(t, want); !slices.Equal(g, w) {
			t.Errorf("spans\n got %q\nwant %q", g, w)
		}
	case statusOnly:
		if len(got) == 0 {
			t.Error("no body")
		}
	}
}

// canonical sorts what has no order and drops metrics, whose numbers are about blocks that we do not have.
func canonical(t *testing.T, body []byte) string {
	t.Helper()
	var v any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	var walk func(v any) any
	walk = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			delete(v, "metrics")
			if set, ok := v["spanSet"]; ok {
				first := v["spanSets"].([]any)[0]
				if fmt.Sprint(set) != fmt.Sprint(first) {
					t.Error("spanSet is not spanSets[0]")
				}
				delete(v, "spanSet")
			}
			for k, e := range v {
				v[k] = walk(e)
			}
		case []any:
			for i, e := range v {
				v[i] = walk(e)
			}
			slices.SortFunc(v, func(a, b any) int { return strings.Compare(marshal(a), marshal(b)) })
		}
		return v
	}
	return marshal(walk(v))
}

func marshal(v any) string {
	out, _ := json.Marshal(v)
	return string(out)
}

// shape lists the paths of keys, and what is at their ends. The metrics' and the services' keys vary with the data.
func shape(t *testing.T, body []byte) []string {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	paths := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				if strings.HasSuffix(path, ".serviceStats") {
					k = "*"
				}
				if path == ".metrics" && k != "completedJobs" && k != "totalJobs" || k == "errorCount" {
					continue
				}
				walk(path+"."+k, e)
			}
		case []any:
			paths[path+"[]"] = true
			for _, e := range v {
				walk(path+"[]", e)
			}
		default:
			paths[fmt.Sprintf("%s %T", path, v)] = true
		}
	}
	walk("", v)
	out := make([]string, 0, len(paths))
	for p := range paths {
		out = append(out, p)
	}
	slices.Sort(out)
	return out
}

// protoSpans reads v2's answer or v1's, which is a trace.
func protoSpans(t *testing.T, body []byte) []string {
	t.Helper()
	var r tempopb.TraceByIDResponse
	trace := &tempopb.Trace{}
	if err := proto.Unmarshal(body, trace); err != nil {
		t.Fatal(err)
	}
	if proto.Unmarshal(body, &r) == nil && len(r.GetTrace().GetResourceSpans()) > 0 {
		trace = r.GetTrace()
	}
	var out []string
	for _, rs := range trace.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, sp := range ss.GetSpans() {
				b, err := proto.MarshalOptions{Deterministic: true}.Marshal(sp)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, fmt.Sprintf("%x %x", attrText(rs.GetResource().GetAttributes()), b))
			}
		}
	}
	slices.Sort(out)
	return out
}

func attrText(attrs []*commonpb.KeyValue) string {
	var out []string
	for _, kv := range attrs {
		out = append(out, kv.GetKey()+"="+fromProto(kv.GetValue()).String())
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// mainServer holds a run like the captured one of 250 traces of 4 spans, one of which is the real one.
func mainServer(t *testing.T) (*Server, *Clock) {
	t.Helper()
	real := capturedTrace(t, "trace_v2_proto")
	const first = 1796093240
	clock := NewClock(time.Unix(first, 0))
	s := start(t, Options{Now: clock.Now})
	s.Push(real.GetResourceSpans()...)
	// The real one has one client error; the run 15 of 500 client spans and 8 of 500 server spans.
	clientErrors, serverErrors := 14, 8
	for i := range 249 {
		clock.Advance(2300 * time.Millisecond)
		id := make([]byte, 16)
		bytesorder.BigEndian.PutUint64(id, 0xA000_0000_0000_0000+uint64(i))
		bytesorder.BigEndian.PutUint64(id[8:], uint64(i)*7919+1)
		at := clock.Now().Add(-time.Second)
		for j := range 4 {
			kind, service := tracepb.Span_SPAN_KIND_CLIENT, "node-ctl"
			left := &clientErrors
			if j%2 == 1 {
				kind, service, left = tracepb.Span_SPAN_KIND_SERVER, "internal-api", &serverErrors
			}
			sp := makeSpan(id, byte(j+1), at.Add(time.Duration(j)*time.Millisecond), 10*time.Millisecond)
			sp.Kind, sp.Name, sp.Status = kind, "ClusterApi/GetNode", &tracepb.Status{}
			sp.Attributes = []*commonpb.KeyValue{attr("lab.run", "L1k")}
			if j > 0 {
				sp.ParentSpanId = []byte{1, 1, 1, 1, 1, 1, 1, byte(j)}
			}
			if *left > 0 && i%3 == 0 && j < 2 {
				*left--
				sp.Status.Code = tracepb.Status_STATUS_CODE_ERROR
			}
			s.Push(batch(service, sp))
		}
	}
	clock.Advance(time.Minute)
	return s, clock
}

// fragmentServer gets the spans of the captured trace in the rhythm in which the real one got them: so it cuts the
// trace where that did, and loses the same half of the error spans.
func fragmentServer(t *testing.T) (*Server, *Clock) {
	t.Helper()
	trace := capturedTrace(t, "frag_trace_v2")
	type timed struct {
		rs  *tracepb.ResourceSpans
		end uint64
	}
	var all []timed
	for _, rs := range trace.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, sp := range ss.GetSpans() {
				one := &tracepb.ScopeSpans{Scope: ss.GetScope(), Spans: []*tracepb.Span{sp}}
				all = append(all, timed{
					&tracepb.ResourceSpans{Resource: rs.GetResource(), ScopeSpans: []*tracepb.ScopeSpans{one}},
					sp.GetEndTimeUnixNano(),
				})
			}
		}
	}
	slices.SortFunc(all, func(a, b timed) int { return int(int64(a.end) - int64(b.end)) })
	// They were pushed two every 2 s and a bit: so the trace was cut when it was 30 s old, and again after 35 s.
	clock := NewClock(time.Unix(0, int64(all[0].end)))
	s := start(t, Options{Now: clock.Now})
	for i := 0; i < len(all); i += 2 {
		s.Push(all[i].rs, all[i+1].rs)
		clock.Advance(2020 * time.Millisecond)
	}
	clock.Advance(time.Minute)
	return s, clock
}

func tenantServer(t *testing.T) (*Server, *Clock) {
	t.Helper()
	at := time.Unix(0, 1796096480724151593)
	clock := NewClock(at.Add(time.Second))
	s := start(t, Options{Now: clock.Now, Multitenancy: true})
	for i := range 10 {
		sp := makeSpan([]byte{0xbb, 15: 1}, byte(i+1), at.Add(time.Duration(i)*80*time.Millisecond), 5*time.Millisecond)
		sp.Attributes = []*commonpb.KeyValue{attr("lab.run", "mtA")}
		s.PushTenant("acme", batch([]string{"node-ctl", "internal-api"}[i%2], sp))
	}
	big := make([]*tracepb.Span, 200)
	for i := range big {
		big[i] = makeSpan([]byte{0xbb, 14: 2, 15: 0}, byte(i+1), at, time.Millisecond)
	}
	s.PushTenant("acme", batch("node-ctl", big...))
	return s, clock
}

func start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Start(context.WithoutCancel(t.Context()), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func attr(k, v string) *commonpb.KeyValue {
	return &commonpb.KeyValue{Key: k, Value: stringValue(v)}
}

// makeSpan makes a span whose id is 01010101010101XX; it is a root.
func makeSpan(trace []byte, id byte, at time.Time, d time.Duration) *tracepb.Span {
	return &tracepb.Span{
		TraceId: trace, SpanId: []byte{1, 1, 1, 1, 1, 1, 1, id}, Name: "op", Kind: tracepb.Span_SPAN_KIND_SERVER,
		StartTimeUnixNano: uint64(at.UnixNano()), EndTimeUnixNano: uint64(at.Add(d).UnixNano()),
	}
}

func batch(service string, spans ...*tracepb.Span) *tracepb.ResourceSpans {
	return &tracepb.ResourceSpans{
		Resource:   &resourcepb.Resource{Attributes: []*commonpb.KeyValue{attr("service.name", service)}},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}},
	}
}
