package tempofake

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
)

const (
	typeJSON     = "application/json"
	typeProtobuf = "application/protobuf"
	// someBlock stands for the block's id where an error names one.
	someBlock = "97c39ce1-a4fe-4734-9276-e129056b8cc8"
)

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/search", s.api(Search, s.serveSearch))
	mux.HandleFunc("GET /api/metrics/query", s.api(Metrics, s.serveInstant))
	mux.HandleFunc("GET /api/metrics/query_range", s.api(Metrics, s.serveRange))
	mux.HandleFunc("GET /api/traces/{id}", s.api(TraceByID, s.serveTraceV1))
	mux.HandleFunc("GET /api/v2/traces/{id}", s.api(TraceByID, s.serveTraceV2))
	mux.HandleFunc("POST /v1/traces", s.serveOTLP)
	mux.HandleFunc("GET /api/status/buildinfo", s.serveBuildInfo)
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	mux.HandleFunc("GET /ready", plainText("ready\n"))
	mux.HandleFunc("GET /api/echo", plainText("echo\n"))
	mux.HandleFunc("GET /status/version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "GET /status/version\ntempo, version %s (branch: HEAD, revision: 1900ed7bb5)\n"+
			"  build user:       \n  build date:       \n  go version:       go1.26.8\n  platform:         linux/amd64\n"+
			"  tags:             unknown\n", s.o.Version)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			s.grpc.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func plainText(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, text)
	}
}

// A call is one request to the API, past the tenant's check and the script.
type call struct {
	*http.Request
	tenants []*tenant
	fault   Fault
	now     time.Time
}

// An answer is sent as it is; status 0 is 200.
type answer struct {
	status      int
	contentType string
	body        []byte
}

func (s *Server) api(e Endpoint, serve func(*call) (*answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		f := s.arrive(requestOf(e, r))
		now := f.now(s.o.Now)
		setDate(w, now)
		a, err := s.serve(serve, r, f, now)
		if err != nil && r.Context().Err() != nil {
			// The client is gone, or the server closes: no answer.
			panic(http.ErrAbortHandler)
		}
		if err != nil && s.ctx.Err() != nil {
			panic(http.ErrAbortHandler)
		}
		if err != nil {
			writeError(w, asAPIError(err))
			return
		}
		w.Header().Set("Vary", "Accept-Encoding")
		if a.contentType != "" {
			w.Header().Set("Content-Type", a.contentType)
		}
		if a.status != 0 {
			w.WriteHeader(a.status)
		}
		if f.kind == faultCut {
			_, _ = w.Write(a.body[:len(a.body)/2])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(a.body)
	}
}

func (s *Server) serve(
	serve func(*call) (*answer, error), r *http.Request, f Fault, now time.Time,
) (*answer, error) {
	tenants, err := s.tenantsOf(r.Header.Get("X-Scope-OrgID"), now)
	if err != nil {
		return nil, err
	}
	if f.kind == faultRaw {
		return &answer{status: f.err.httpStatus, contentType: f.contentType, body: []byte(f.err.msg)}, nil
	}
	if err := f.before(r.Context(), s.ctx); err != nil {
		return nil, err
	}
	if s.o.APITimeout > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), s.o.APITimeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	return serve(&call{Request: r, tenants: tenants, fault: f, now: now})
}

func requestOf(e Endpoint, r *http.Request) Request {
	q := r.URL.Query()
	out := Request{
		Endpoint: e, Path: r.URL.Path, Tenant: r.Header.Get("X-Scope-OrgID"), Query: q.Get("q") + r.PathValue("id"),
	}
	if q.Has("query") {
		out.Query = q.Get("query")
	}
	out.Start, _ = parseTimestamp(q.Get("start"), time.Time{})
	out.End, _ = parseTimestamp(q.Get("end"), time.Time{})
	out.Limit, _ = strconv.Atoi(q.Get("limit"))
	out.SpansPerSpanSet, _ = strconv.Atoi(q.Get("spss"))
	return out
}

// setDate makes the Date header that of the server's clock, from which a client can tell how far apart the clocks are.
func setDate(w http.ResponseWriter, now time.Time) {
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
}

// writeError writes an error as Tempo does: text, never JSON.
func writeError(w http.ResponseWriter, e *apiError) {
	if e.httpStatus == http.StatusUnauthorized && e.org {
		http.Error(w, e.msg, e.httpStatus)
		return
	}
	w.Header().Set("Vary", "Accept-Encoding")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(e.httpStatus)
	_, _ = io.WriteString(w, e.msg)
}

func (s *Server) serveSearch(c *call) (*answer, error) {
	q := c.URL.Query()
	p := searchParams{query: q.Get("q"), hasLimit: q.Has("limit"), hasStart: q.Has("start"), hasEnd: q.Has("end")}
	for _, field := range []struct {
		name string
		set  func(uint64)
	}{
		{"start", func(n uint64) { p.start = int64(n) }},
		{"end", func(n uint64) { p.end = int64(n) }},
		{"limit", func(n uint64) { p.limit = int(n) }},
		{"spss", func(n uint64) { p.spss = int(n) }},
	} {
		if !q.Has(field.name) {
			continue
		}
		n, err := strconv.ParseUint(q.Get(field.name), 10, 32)
		if err != nil {
			return nil, badRequest("invalid %s: %v", field.name, err)
		}
		field.set(n)
	}
	r, err := s.searchRequest(p, c.now)
	if err != nil {
		return nil, err
	}
	out := &tempopb.SearchResponse{}
	err = s.search(c.Context(), c.tenants, r, c.now, func(co *combiner, m *tempopb.SearchMetrics, done bool) error {
		if done {
			out.Metrics = m
			out.Traces = c.fault.spoilSearch(co.take(true), m)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if wantsProtobuf(c.Request) {
		return protobuf(out)
	}
	a, err := jsonAnswer(out)
	if err == nil && len(out.GetTraces()) == 0 {
		a.body = slices.Concat([]byte(`{"traces":[],`), bytes.TrimPrefix(a.body, []byte("{")))
	}
	return a, err
}

func (s *Server) serveInstant(c *call) (*answer, error) {
	r, err := s.httpMetrics(c, false)
	if err != nil {
		return nil, err
	}
	all, m := r.count(c.tenants, c.now)
	c.spoilCounts(all, m)
	return jsonAnswer(&tempopb.QueryInstantResponse{Series: r.instant(all), Metrics: m})
}

func (s *Server) serveRange(c *call) (*answer, error) {
	r, err := s.httpMetrics(c, true)
	if err != nil {
		return nil, err
	}
	all, m := r.count(c.tenants, c.now)
	c.spoilCounts(all, m)
	return jsonAnswer(&tempopb.QueryRangeResponse{Series: r.timeSeries(all), Metrics: m})
}

func (c *call) spoilCounts(all []*series, m *tempopb.SearchMetrics) { c.fault.spoilCounts(all, m) }

func (f Fault) spoilCounts(all []*series, m *tempopb.SearchMetrics) {
	for _, s := range all {
		for i := range s.counts {
			s.counts[i] = f.spoilCount(s.counts[i])
		}
	}
	if f.kind == faultUnfinished {
		m.TotalJobs++
	}
}

func (s *Server) httpMetrics(c *call, ranged bool) (*metricsRequest, error) {
	q := c.URL.Query()
	text := q.Get("q")
	if q.Has("query") {
		text = q.Get("query")
	}
	end, err := parseTimestamp(q.Get("end"), c.now)
	if err != nil {
		return nil, badRequest("could not parse 'end' parameter: %v", err)
	}
	start, err := parseTimestamp(q.Get("start"), end.Add(-time.Hour))
	if err != nil {
		return nil, badRequest("could not parse 'start' parameter: %v", err)
	}
	var step time.Duration
	if text := q.Get("step"); text != "" && ranged {
		if step, err = time.ParseDuration(text); err != nil {
			f, ferr := strconv.ParseFloat(text, 64)
			if ferr != nil || f <= 0 || f > 1e6 {
				return nil, badRequest("could not parse 'step' parameter: %v", err)
			}
			step = time.Duration(f * float64(time.Second))
		}
		if step <= 0 {
			return nil, badRequest("could not parse 'step' parameter: must be positive")
		}
	}
	return s.metricsRequest(text, nanos(start), nanos(end), uint64(step), ranged, c.now)
}

// lookup finds the trace; nil when the request's range does not cover it.
func (s *Server) lookup(c *call) (*traceAnswer, error) {
	id, err := parseTraceID(c.PathValue("id"))
	if err != nil {
		return nil, err
	}
	a := s.traceByID(c.tenants, id, c.fault, c.now)
	q := c.URL.Query()
	if q.Get("start") == "" || q.Get("end") == "" {
		return a, nil
	}
	start, serr := parseTimestamp(q.Get("start"), time.Time{})
	end, eerr := parseTimestamp(q.Get("end"), time.Time{})
	if err := errors.Join(serr, eerr); err != nil {
		return nil, badRequest("%v", err)
	}
	for _, rs := range a.trace.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, sp := range ss.GetSpans() {
				if sp.GetStartTimeUnixNano() <= nanos(end) && sp.GetEndTimeUnixNano() >= nanos(start) {
					return a, nil
				}
			}
		}
	}
	return &traceAnswer{trace: &tempopb.Trace{}}, nil
}

func (s *Server) serveTraceV1(c *call) (*answer, error) {
	a, err := s.lookup(c)
	switch {
	case err != nil:
		return nil, err
	case a.partial:
		return nil, &apiError{httpStatus: http.StatusUnprocessableEntity, msg: fmt.Sprintf(
			"error querying live-stores in Querier.FindTraceByID: rpc error: code = Unknown desc = error searching for trace: "+
				"processing complete block (%s): trace exceeds max size (max bytes: %d)", someBlock, a.max)}
	case a.spans == 0:
		return &answer{status: http.StatusNotFound}, nil
	case wantsProtobuf(c.Request):
		return protobuf(a.trace)
	}
	out, err := jsonAnswer(a.trace)
	if err == nil {
		out.body = bytes.Replace(out.body, []byte(`"resourceSpans":`), []byte(`"batches":`), 1)
	}
	return out, err
}

func (s *Server) serveTraceV2(c *call) (*answer, error) {
	a, err := s.lookup(c)
	if err != nil {
		return nil, err
	}
	out := &tempopb.TraceByIDResponse{
		Trace: a.trace, Metrics: &tempopb.TraceByIDMetrics{InspectedBytes: uint64(a.bytes)},
	}
	if a.partial {
		out.Status = tempopb.PartialStatus_PARTIAL
		out.Message = fmt.Sprintf("Trace exceeds maximum size of %d bytes, a partial trace is returned", a.max)
	}
	if wantsProtobuf(c.Request) {
		return protobuf(out)
	}
	return jsonAnswer(out)
}

func (s *Server) serveBuildInfo(w http.ResponseWriter, r *http.Request) {
	f := s.arrive(requestOf(BuildInfo, r))
	setDate(w, f.now(s.o.Now))
	if f.kind == faultRaw {
		w.Header().Set("Content-Type", f.contentType)
		w.WriteHeader(f.err.httpStatus)
		_, _ = io.WriteString(w, f.err.msg)
		return
	}
	if err := f.before(r.Context(), s.ctx); err != nil {
		if f.kind == faultHang {
			panic(http.ErrAbortHandler)
		}
		writeError(w, asAPIError(err))
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	fmt.Fprintf(w, `{"version":%q,"revision":"1900ed7bb5","branch":"HEAD","buildUser":"","buildDate":"",`+
		`"goVersion":"go1.26.8"}`+"\n", s.o.Version)
}

func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	tenants := make(map[string]*tenant, len(s.tenants))
	for name, t := range s.tenants {
		tenants[name] = t
	}
	s.mu.Unlock()
	var lines []string
	for name, t := range tenants {
		for reason, n := range t.discards() {
			lines = append(lines, fmt.Sprintf("tempo_discarded_spans_total{reason=%q,tenant=%q} %d\n", reason, name, n))
		}
	}
	slices.Sort(lines)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8; escaping=underscores")
	fmt.Fprintf(w, "# HELP tempo_build_info A metric with a constant '1' value.\n# TYPE tempo_build_info gauge\n"+
		"tempo_build_info{version=%q} 1\n", s.o.Version)
	if len(lines) > 0 {
		fmt.Fprint(w, "# HELP tempo_discarded_spans_total The total number of samples that were discarded.\n"+
			"# TYPE tempo_discarded_spans_total counter\n")
	}
	for _, line := range lines {
		_, _ = io.WriteString(w, line)
	}
}

func wantsProtobuf(r *http.Request) bool { return r.Header.Get("Accept") == typeProtobuf }

func protobuf(m proto.Message) (*answer, error) {
	body, err := proto.Marshal(m)
	return &answer{contentType: typeProtobuf, body: body}, err
}

func jsonAnswer(m proto.Message) (*answer, error) {
	body, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	// protojson varies its spaces on purpose.
	var compact bytes.Buffer
	err = json.Compact(&compact, body)
	return &answer{contentType: typeJSON, body: compact.Bytes()}, err
}

// serveOTLP takes protobuf and JSON, gzipped or not.
func (s *Server) serveOTLP(w http.ResponseWriter, r *http.Request) {
	now := s.o.Now()
	f := s.arrive(Request{Endpoint: Export, Path: r.URL.Path, Tenant: r.Header.Get("X-Scope-OrgID")})
	isJSON := strings.HasPrefix(r.Header.Get("Content-Type"), typeJSON)
	tenants, err := s.tenantsOf(r.Header.Get("X-Scope-OrgID"), now)
	if err == nil {
		err = f.before(r.Context(), s.ctx)
	}
	var body []byte
	if err == nil {
		body, err = readBody(r)
	}
	req := &collectorpb.ExportTraceServiceRequest{}
	switch {
	case err != nil:
	case isJSON:
		err = unmarshalOTLPJSON(body, req)
	default:
		err = proto.Unmarshal(body, req)
	}
	if err != nil {
		var api *apiError
		if !errors.As(err, &api) {
			api = &apiError{httpStatus: http.StatusBadRequest, msg: err.Error()}
		}
		writeError(w, api)
		return
	}
	for _, t := range tenants {
		t.push(now, req.GetResourceSpans())
	}
	if isJSON {
		w.Header().Set("Content-Type", typeJSON)
		_, _ = io.WriteString(w, `{"partialSuccess":{}}`)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

func readBody(r *http.Request) ([]byte, error) {
	const maxBody = 64 << 20
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err
		}
		body = z
	}
	out, err := io.ReadAll(io.LimitReader(body, maxBody+1))
	if err == nil && len(out) > maxBody {
		err = errors.New("request body too large")
	}
	return out, err
}

// unmarshalOTLPJSON reads OTLP's JSON, which is protobuf's but for ids in hex (OTLP specification, JSON Protobuf
// Encoding).
func unmarshalOTLPJSON(body []byte, into proto.Message) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return err
	}
	if err := hexIDs(tree); err != nil {
		return err
	}
	body, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, into)
}

func hexIDs(tree any) error {
	switch tree := tree.(type) {
	case []any:
		for _, v := range tree {
			if err := hexIDs(v); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, v := range tree {
			text, isText := v.(string)
			if !isText || k != "traceId" && k != "spanId" && k != "parentSpanId" {
				if err := hexIDs(v); err != nil {
					return err
				}
				continue
			}
			id, err := hex.DecodeString(text)
			if err != nil {
				return fmt.Errorf("%s: %w", k, err)
			}
			tree[k] = base64.StdEncoding.EncodeToString(id)
		}
	}
	return nil
}
