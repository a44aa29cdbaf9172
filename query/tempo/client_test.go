package tempo

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/query/querytest/tempofake"
	"github.com/rolltrace/rolltrace/roll"
)

func TestParseAddr(t *testing.T) {
	for _, tt := range []struct{ addr, base, grpc, err string }{
		{"tempo:3200", "http://tempo:3200", "tempo:3200", ""},
		{"http://tempo", "http://tempo", "tempo:80", ""},
		{"https://tempo.example/prefix/", "https://tempo.example/prefix", "tempo.example:443", ""},
		{"http://[::1]:3200", "http://[::1]:3200", "[::1]:3200", ""},
		{"", "", "", "empty"},
		{"ftp://tempo", "", "", `scheme "ftp"`},
		{"http://", "", "", "no host"},
		{"http://user:secret@tempo", "", "", "user name or password"},
		{"http://tempo/?x=1", "", "", "query or fragment"},
		{"http://tempo:port", "", "", "read the address"},
		{"%zz", "", "", "read the address"},
	} {
		base, grpc, err := parseAddr(tt.addr)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%q: error %v, want %q", tt.addr, err, tt.err)
			}
			continue
		}
		if err != nil || base.String() != tt.base || grpc != tt.grpc {
			t.Errorf("%q: %v, %s, %v; want %s, %s", tt.addr, base, grpc, err, tt.base, tt.grpc)
		}
	}
}

func TestFilter(t *testing.T) {
	for _, tt := range []struct {
		sel  query.Selection
		want string
	}{
		{query.Selection{}, `{ (kind = client || kind = server) }`},
		{query.Selection{ErrorsOnly: true}, `{ (kind = client || kind = server) && status = error }`},
		{query.Selection{Services: []string{`a"b`}}, `{ (kind = client || kind = server) && resource.service.name = "a\"b" }`},
		{query.Selection{Services: []string{"a", `b\`}, ErrorsOnly: true}, `{ (kind = client || kind = server) && status = error && (resource.service.name = "a" || resource.service.name = "b\\") }`},
	} {
		if got := filter(tt.sel); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.sel, got, tt.want)
		}
	}
	// The scope of a key is lost in an answer: no key may be asked for in both.
	for _, k := range query.ResourceKeys {
		if slices.Contains(query.SpanKeys, k) {
			t.Errorf("%s is asked for in two scopes", k)
		}
	}
	if n := max(len(query.ResourceKeys), len(query.SpanKeys)); n > len(values{}.text) {
		t.Errorf("%d keys do not fit into values", n)
	}
}

// FuzzQuote: what Tempo reads (strconv.Unquote of one token without line ends) is what was meant.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", `"`, `\`, "`", "a\nb", "\x00", "\u2028", "☃", "\xff", "}' && {"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q := quote(s)
		got, err := strconv.Unquote(q)
		if err != nil || got != s || strings.ContainsAny(q, "\n\r\x00") {
			t.Errorf("%q became %s, read as %q, %v", s, q, got, err)
		}
	})
}

// TestErrors: one line that names the address and the cause, and no secret.
func TestErrors(t *testing.T) {
	answer := func(code int, media, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", media)
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	closed := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().String()
	}()
	rejecting := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/status/buildinfo":
			answer(200, "application/json", `{"version":"3.0.3"}`)(w, r)
		default:
			answer(400, "text/plain", "invalid TraceQL query: parse error at line 1, col 18:\n syntax error")(w, r)
		}
	}
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		change  func(*Options)
		want    string
	}{
		{"unreachable", nil, func(o *Options) { o.Addr = closed }, "reach Tempo at http://" + closed + ": "},
		{"no such host", nil, func(o *Options) { o.Addr = "tempo.invalid:3200" }, "reach Tempo at http://tempo.invalid:3200: "},
		{"401", answer(401, "text/plain", "no org id"), nil, "not allowed by Tempo at "},
		{"403", answer(403, "text/html", "<html>no</html>"), nil, "HTTP 403 with an HTML page"},
		{"404", answer(404, "text/plain", "404 page not found\n"), nil, "not a Tempo API at "},
		{"redirected", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, nil, "is a login in front of it?"},
		{"HTML", answer(200, "text/html", "<!doctype html>"), nil, "not a Tempo API at "},
		{"another API", answer(200, "application/json", `{"status":"success","data":{"version":"2.50"}}`), nil, "not a Tempo API at "},
		{"query rejected", rejecting, nil, "invalid TraceQL query: parse error at line 1, col 18: syntax error"},
		{"plain HTTP behind https", answer(200, "application/json", "{}"), func(o *Options) { o.Addr = strings.Replace(o.Addr, "http://", "https://", 1) }, "TLS: "},
		{"no CA file", nil, func(o *Options) { o.Addr, o.BearerTokenFile = closed, "/nonexistent/token" }, "read bearer token"},
	} {
		for _, transport := range []Transport{TransportAuto, TransportHTTP} {
			t.Run(tt.name+"/"+string(transport), func(t *testing.T) {
				o := Options{Now: time.Now, Transport: transport, BearerToken: "s3cret", OrgID: "shop", Timeout: 5 * time.Second}
				if tt.handler != nil {
					s := httptest.NewServer(tt.handler)
					defer s.Close()
					o.Addr = s.URL
				}
				if tt.change != nil {
					tt.change(&o)
				}
				c, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				c.backoff = time.Millisecond
				a, err := c.Spans(t.Context(), query.Request{Ranges: oneRange(time.Now().Add(-time.Hour), time.Now().Add(-time.Hour+time.Minute))})
				if err == nil {
					t.Fatalf("no error but %+v", a)
				}
				if s := err.Error(); !strings.Contains(s, tt.want) || !strings.Contains(s, c.Address()) || strings.Contains(s, "\n") || strings.Contains(s, "s3cret") {
					t.Errorf("error %q, want one line with %q and %s", s, tt.want, c.Address())
				}
			})
		}
	}
}

// TestTLS: a certificate of an unknown authority is refused, unless it is given or the check is off.
func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"version":"3.0.3"}`))
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pemOf(s.Certificate().Raw), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"unknown authority", func(*Options) {}, "TLS: "},
		{"given", func(o *Options) { o.CACertPath = ca }, ""},
		{"not checked", func(o *Options) { o.TLSSkipVerify = true }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Addr: s.URL, Now: time.Now, Transport: TransportHTTP}
			tt.change(&o)
			c, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			err = c.Probe(t.Context())
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	for _, o := range []Options{{CACertPath: "/nonexistent"}, {CertPath: "only"}, {Transport: "pigeon"}} {
		o.Addr, o.Now = s.URL, time.Now
		if c, err := New(o); err == nil {
			c.Close()
			t.Errorf("%+v was accepted", o)
		}
	}
}

// TestHeaders: tenant, authentication and our name are on every request, over both transports.
func TestHeaders(t *testing.T) {
	f := newFake(t, tempofake.Options{Multitenancy: true})
	f.PushTenant("shop", traffic(f.base, trafficTraces)...)
	f.clock.Advance(2 * time.Minute)
	c := f.client(t, func(o *Options) { o.OrgID = "shop" })
	if _, err := f.ask(t, c); err != nil {
		t.Fatal(err)
	}
	endpoints := map[string]bool{}
	for _, r := range f.Requests() {
		if r.Endpoint != tempofake.BuildInfo && r.Tenant != "shop" {
			t.Errorf("%+v: tenant %q", r, r.Tenant)
		}
		endpoints[fmt.Sprint(r.Endpoint, r.GRPC)] = true
	}
	if !endpoints["searchtrue"] || !endpoints["metricsfalse"] || !endpoints["tracefalse"] {
		t.Errorf("asked %v", endpoints)
	}
	none := f.client(t)
	if _, err := f.ask(t, none); err == nil || !strings.Contains(err.Error(), "no org id") {
		t.Errorf("without a tenant: %v", err)
	}
	// An unknown tenant is no error for Tempo: empty, and for the caller to doubt.
	if a, err := f.ask(t, f.client(t, func(o *Options) { o.OrgID = "shpo" })); err != nil || len(a.Spans) != 0 {
		t.Errorf("%+v, %v", a, err)
	}

	for want, o := range map[string]Options{
		"Bearer t0":          {BearerToken: "t0"},
		"Basic dXNlcjpwYXNz": {Username: "user", Password: "pass"},
	} {
		h, err := o.auth()
		if err != nil || h.Get("Authorization") != want {
			t.Errorf("authorization %q, %v; want %q", h.Get("Authorization"), err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "token")
	for _, token := range []string{"one", "two"} { // it is read anew
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		o := Options{BearerTokenFile: file, Headers: http.Header{"X-Extra": {"1"}}}
		if h, err := o.auth(); err != nil || h.Get("Authorization") != "Bearer "+token || h.Get("X-Extra") != "1" {
			t.Errorf("%v, %v", h, err)
		}
	}
}

// TestNeverAsksTooLate guards grafana/tempo#3150 and the clamp of query_end_cutoff: no search or count may end later than
// 31 s ago, and a range that does is a gap.
func TestNeverAsksTooLate(t *testing.T) {
	f := withTraffic(t, tempofake.Options{})
	now := f.clock.Now()
	c := f.client(t)
	for _, tt := range []struct {
		name     string
		from, to time.Duration // from now
		gap      bool
	}{
		{"long ago", -5 * time.Minute, -2 * time.Minute, false},
		{"36 s ago", -time.Minute, -36 * time.Second, false},
		{"35 s ago", -time.Minute, -35 * time.Second, true},
		{"now", -time.Minute, 0, true},
		{"the future", time.Minute, time.Hour, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			was := len(f.Requests())
			a, err := c.Spans(t.Context(), query.Request{Ranges: oneRange(now.Add(tt.from), now.Add(tt.to))})
			if err != nil {
				t.Fatal(err)
			}
			gap := slices.ContainsFunc(a.Coverage.Gaps, func(g roll.Gap) bool { return g.Reason == roll.GapNotCaughtUp })
			if gap != tt.gap {
				t.Errorf("coverage %v, want a gap: %v", a.Coverage, tt.gap)
			}
			for _, r := range f.Requests()[was:] {
				if (r.Endpoint == tempofake.Search || r.Endpoint == tempofake.Metrics) && r.End.After(now.Add(-endCutoff)) {
					t.Errorf("asked until %s before now: %s", now.Sub(r.End), r.Query)
				}
			}
		})
	}
}

// TestServerClockBehind: the cutoff is the server's, so its clock counts when it is behind.
func TestServerClockBehind(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	var last atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", now.Add(-time.Minute).Format(http.TimeFormat))
		w.Header().Set("Content-Type", "application/json")
		if end, err := strconv.ParseInt(r.FormValue("end"), 10, 64); err == nil {
			last.Store(max(last.Load(), end))
		}
		_, _ = w.Write([]byte(`{"version":"3.0.3","metrics":{}}`))
	}))
	defer s.Close()
	c, err := New(Options{Addr: s.URL, Transport: TransportHTTP, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, err := c.Spans(t.Context(), query.Request{Ranges: oneRange(now.Add(-10*time.Minute), now.Add(-80*time.Second))})
	if err != nil {
		t.Fatal(err)
	}
	if a.Coverage.Complete() || last.Load() == 0 || last.Load() > now.Add(-time.Minute-endCutoff).Unix() {
		t.Errorf("asked until %s before now, coverage %v; want 91 s and a gap", now.Sub(time.Unix(last.Load(), 0)), a.Coverage)
	}
}

// TestLateSpans guards grafana/tempo#1299, #4877: an error, and a long call, that are stored minutes after they began.
func TestLateSpans(t *testing.T) {
	f := newFake(t, tempofake.Options{})
	f.store(traffic(f.base, trafficTraces))
	// Four minutes after the base: an error of then, and a call of three minutes that ends now.
	f.clock.Advance(f.base.Add(4 * time.Minute).Sub(f.clock.Now()))
	f.Push(
		one(1000, 1, 0, 3, 2, f.base.Add(20*time.Second), time.Millisecond),
		one(1001, 1, 0, 3, 0, f.base.Add(20*time.Second), 220*time.Second))
	f.clock.Advance(10 * time.Second)
	f.Flush()
	f.clock.Advance(time.Minute)
	c := f.client(t)
	a, err := c.Spans(t.Context(), query.Request{Ranges: oneRange(f.base, f.base.Add(time.Minute))})
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, s := range a.Spans {
		if n := s.TraceID[14]; n == 3 { // 1000 and 1001 are 0x3e8 and 0x3e9
			found++
		}
	}
	if found != 2 && a.Coverage.Complete() {
		t.Errorf("%d of 2 late spans and no gap", found)
	}
	if found == 0 {
		t.Error("no late span was found")
	}
}

// TestHalving: more traces than a search may return are found by asking for less time.
func TestHalving(t *testing.T) {
	f := withTraffic(t, tempofake.Options{MaxLimit: 10})
	for _, transport := range []Transport{TransportGRPC, TransportHTTP} {
		a, err := f.ask(t, f.client(t, func(o *Options) { o.Transport = transport }))
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Spans) != trafficSpans || !a.Coverage.Complete() {
			t.Errorf("%s: %d spans, %v", transport, len(a.Spans), a.Coverage)
		}
	}
	// More than the limit in one second cannot be had.
	tight := newFake(t, tempofake.Options{MaxLimit: 10})
	at := tight.base.Add(10*time.Second + time.Millisecond)
	for i := range 50 {
		tight.Push(one(uint64(i+1), 1, 0, 3, 0, at, time.Millisecond))
	}
	tight.store()
	a, err := tight.ask(t, tight.client(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Spans) < 50 && !slices.ContainsFunc(a.Coverage.Gaps, func(g roll.Gap) bool { return g.Reason == roll.GapSpanLimit }) {
		t.Errorf("%d of 50 spans, %v; want the limit named", len(a.Spans), a.Coverage)
	}
}

// TestServerLimits: a server whose limits are lower than the usual names them, and is asked for no more.
func TestServerLimits(t *testing.T) {
	f := withTraffic(t, tempofake.Options{MaxLimit: 1000, MaxSpansPerSpanSet: 7})
	c := f.client(t)
	if a, err := f.ask(t, c); err != nil || short(a) != "" || !a.Coverage.Complete() {
		t.Errorf("%v, %v", a, err)
	}
	if c.maxLimit.Load() != 1000 || c.maxSpss.Load() != 7 {
		t.Errorf("limit %d, spss %d; want the server's 1000 and 7", c.maxLimit.Load(), c.maxSpss.Load())
	}
}

func TestDiscarded(t *testing.T) {
	f := withTraffic(t, tempofake.Options{MaxBytesPerTrace: 2000})
	c := f.client(t, func(o *Options) { o.MetricsURL = "http://" + f.HTTPAddr() + "/metrics" })
	if a, err := f.ask(t, c); err != nil || slices.ContainsFunc(a.Coverage.Gaps, func(g roll.Gap) bool { return g.Reason == roll.GapDiscarded }) {
		t.Fatalf("%v, %v; want no gap before anything was dropped", a.Coverage, err)
	}
	for i := range 100 {
		f.Push(one(77, uint64(i), 0, 3, 0, f.clock.Now(), time.Millisecond))
	}
	a, err := f.ask(t, c)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(a.Coverage.Gaps, func(g roll.Gap) bool { return g.Reason == roll.GapDiscarded }) {
		t.Errorf("%v, server dropped %v; want spans-discarded", a.Coverage, f.Discarded())
	}
}

// proxy is a plain HTTP/1 reverse proxy below /tempo, which refuses the requests that refuse names.
func proxy(t *testing.T, f *fake, refuse func(*http.Request) (int, string)) string {
	t.Helper()
	rp := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: f.HTTPAddr()})
		r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/tempo")
	}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/tempo/") {
			http.NotFound(w, r)
			return
		}
		if refuse != nil {
			if code, text := refuse(r); code != 0 {
				http.Error(w, text, code)
				return
			}
		}
		rp.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/tempo/"
}

// TestProxy: behind a gateway with a path prefix and no gRPC, auto falls back to HTTP.
func TestProxy(t *testing.T) {
	f := withTraffic(t, tempofake.Options{})
	c := f.client(t, func(o *Options) { o.Addr = proxy(t, f, nil) })
	a, err := f.ask(t, c)
	if err != nil || short(a) != "" || !a.Coverage.Complete() || len(a.Spans) != trafficSpans || c.sawGRPC.Load() {
		t.Errorf("%v, %v, gRPC %v", a, err, c.sawGRPC.Load())
	}
	wrong := f.client(t, func(o *Options) { o.Addr = strings.TrimSuffix(proxy(t, f, nil), "/tempo/") + "/loki" })
	if _, err := f.ask(t, wrong); err == nil || !strings.Contains(err.Error(), "not a Tempo API at ") {
		t.Errorf("a wrong prefix: %v", err)
	}
}

// TestOldServers: what a server does not understand is made up for by id, or named when that is too much.
func TestOldServers(t *testing.T) {
	refuseQuery := func(part string) func(*http.Request) (int, string) {
		return func(r *http.Request) (int, string) {
			if strings.Contains(r.FormValue("q"), part) {
				return http.StatusBadRequest, "invalid TraceQL query: parse error at line 1, col 9: syntax error"
			}
			return 0, ""
		}
	}
	refusePath := func(part string, code int) func(*http.Request) (int, string) {
		return func(r *http.Request) (int, string) {
			if strings.Contains(r.URL.Path, part) {
				return code, "404 page not found"
			}
			return 0, ""
		}
	}
	for _, tt := range []struct {
		name   string
		refuse func(*http.Request) (int, string)
		max    int
		gap    roll.GapReason
	}{
		{"no by(span:id)", refuseQuery("by(span:id)"), 500, ""},
		{"no by(span:id), many traces", refuseQuery("by(span:id)"), 20, roll.GapUnsupported},
		{"no span:parentID", refuseQuery("span:parentID"), 500, ""},
		{"no span:parentID, many traces", refuseQuery("span:parentID"), 20, roll.GapPartialTrace},
		{"no metrics", refusePath("/api/metrics/", 404), 500, ""},
		{"no /api/v2/traces", refusePath("/api/v2/traces/", 404), 500, ""},
		{"no buildinfo", refusePath("/api/status/", 404), 500, ""},
		{"none of them", func(r *http.Request) (int, string) {
			for _, f := range []func(*http.Request) (int, string){
				refuseQuery("span:"), refusePath("/api/metrics/", 404), refusePath("/api/v2/", 404), refusePath("/api/status/", 404),
			} {
				if code, text := f(r); code != 0 {
					return code, text
				}
			}
			return 0, ""
		}, 500, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := withTraffic(t, tempofake.Options{})
			c := f.client(t, func(o *Options) { o.Addr, o.MaxTraces = proxy(t, f, tt.refuse), tt.max })
			a, err := f.ask(t, c)
			if err != nil {
				t.Fatal(err)
			}
			if s := short(a); s != "" {
				t.Fatal(s)
			}
			if tt.gap == "" && !a.Coverage.Complete() || tt.gap != "" && !slices.ContainsFunc(a.Coverage.Gaps, func(g roll.Gap) bool { return g.Reason == tt.gap }) {
				t.Errorf("coverage %v, want %q", a.Coverage, tt.gap)
			}
		})
	}
}

func TestVersions(t *testing.T) {
	for version, supported := range map[string]bool{
		"3.0.3": true, "v2.10.8": true, "2.4.0": true, "2.3.9": false, "1.5.0": false, "4.0.0": false, "": true, "main-abc": true,
	} {
		c := &Client{version: version}
		if got := len(c.versionGaps()) == 0; got != supported {
			t.Errorf("%q: supported %v, want %v", version, got, supported)
		}
	}
}

// TestDeadline: time that runs out is a gap, an interrupt an error.
func TestDeadline(t *testing.T) {
	f := withTraffic(t, tempofake.Options{})
	f.Script(tempofake.Search, tempofake.Times(100, tempofake.Hang())...)
	c := f.client(t)
	if err := c.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	a, err := c.Spans(ctx, query.Request{Ranges: oneRange(f.base, f.base.Add(time.Minute))})
	if err != nil || !slices.ContainsFunc(a.Coverage.Gaps, func(g roll.Gap) bool { return g.Reason == roll.GapDeadline }) {
		t.Errorf("%+v, %v; want the deadline as a gap", a, err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := c.Spans(ctx, query.Request{Ranges: oneRange(f.base, f.base.Add(time.Minute))}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}

// tempoInBubble answers counts from n, in a synctest bubble: its network is a pipe.
func tempoInBubble(t *testing.T, counts func() string) *Client {
	t.Helper()
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/metrics/query" {
			_, _ = w.Write([]byte(`{"series":[{"labels":[{"key":"kind","value":{"stringValue":"client"}}],"value":` + counts() + `}],"metrics":{}}`))
			return
		}
		_, _ = w.Write([]byte(`{"version":"3.0.3"}`))
	})}
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { s.Close() })
	c, err := New(Options{Addr: "tempo", Transport: TransportHTTP, Now: time.Now, Dial: l.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCaughtUp(t *testing.T) {
	steady := func() func() string { return func() string { return "7" } }
	growing := func() func() string {
		n := 0
		return func() string { n++; return strconv.Itoa(n) }
	}
	settling := func() func() string {
		n := 0
		return func() string { n++; return strconv.Itoa(min(n, 3)) }
	}
	for _, tt := range []struct {
		name    string
		counts  func() func() string
		timeout time.Duration
		want    time.Duration // waited
		gap     bool
	}{
		{"36 s and a second look", steady, time.Hour, settle + pause, false},
		{"still arriving, then not", settling, time.Hour, settle + 3*pause, false},
		{"never quiet", growing, time.Hour, settle + 6*pause, true},
		{"no time", steady, 10 * time.Second, 10 * time.Second, true},
		{"no time for a second look", steady, settle + time.Second, settle + time.Second, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := tempoInBubble(t, tt.counts())
				ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
				defer cancel()
				start := time.Now()
				line, gaps := c.CaughtUp(ctx, start)
				if waited := time.Since(start); waited != tt.want {
					t.Errorf("waited %s, want %s", waited, tt.want)
				}
				if line == "" || (len(gaps) > 0) != tt.gap {
					t.Errorf("%q, %v; want a gap: %v", line, gaps, tt.gap)
				}
				for _, g := range gaps {
					if g.Reason != roll.GapNotCaughtUp {
						t.Errorf("gap %v", g)
					}
				}
			})
		})
	}
}

// TestBackoff: refusals are waited out as Retry-After says.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Client{opts: Options{Retries: 5}, backoff: backoff}
		start, n := time.Now(), 0
		err := c.retry(t.Context(), func() error {
			if n++; n < 4 {
				return &requestError{kind: failBusy, retryAfter: 20 * time.Second}
			}
			return nil
		})
		if waited := time.Since(start); err != nil || waited != time.Minute {
			t.Errorf("waited %s, %v; want three times Retry-After", waited, err)
		}
		start, n = time.Now(), 0
		err = c.retry(t.Context(), func() error { n++; return &requestError{kind: failBusy, msg: "full"} })
		if waited := time.Since(start); err == nil || n != 6 || waited < 7*time.Second || waited > 16*time.Second {
			t.Errorf("%d tries in %s, %v; want 6 in 7.75 to 15.5 s", n, waited, err)
		}
	})
}

// pipes is a network of one listener, whose connections are pipes.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case p.conns <- b:
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func pemOf(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestBigTrace: a trace of thousands of spans, in two fragments, is too much for by(span:id) and comes by id.
func TestBigTrace(t *testing.T) {
	f := newFake(t, tempofake.Options{})
	var parts [2][]*tracepb.ResourceSpans
	const n = 6000
	for i := range n {
		at := f.base.Add(time.Duration(i) * time.Millisecond)
		parts[i%3/2] = append(parts[i%3/2], one(900, uint64(i+1), 0, 3, 0, at, time.Millisecond))
	}
	f.store(append(parts[0], traffic(f.base, 20)...), parts[1])
	c := f.client(t)
	a, err := f.ask(t, c)
	if err != nil || len(a.Spans) != n+40 || !a.Coverage.Complete() {
		t.Fatalf("%d spans, %v, %v; want %d and no gap", len(a.Spans), a.Coverage, err, n+40)
	}
	for _, r := range f.Requests() {
		if r.Endpoint == tempofake.Search && strings.Contains(r.Query, "by(span:id)") && !strings.Contains(r.Query, "status = error") && !strings.Contains(r.Query, "duration >") {
			t.Errorf("asked span by span for a trace of thousands: %s", r.Query)
		}
	}
}

// TestTraceByID: what the server says of a trace that it does not hold, or not in whole.
func TestTraceByID(t *testing.T) {
	f := withTraffic(t, tempofake.Options{})
	c := f.client(t)
	if rss, err := c.trace(t.Context(), roll.TraceID{15: 2}); err != nil || len(rss) == 0 {
		t.Errorf("%v, %v; want a trace", rss, err)
	}
	if _, err := c.trace(t.Context(), roll.TraceID{1}); !errors.Is(err, errNotFound) {
		t.Errorf("an unknown trace: %v", err)
	}
	f.Script(tempofake.TraceByID, tempofake.PartialTrace())
	var partial *errPartial
	if rss, err := c.trace(t.Context(), roll.TraceID{15: 2}); !errors.As(err, &partial) || len(rss) == 0 {
		t.Errorf("a partial trace: %v, %v; want its spans and errPartial", rss, err)
	}
}
