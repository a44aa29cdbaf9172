package tempofake

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
)

var errTimeout = &apiError{
	httpStatus: http.StatusServiceUnavailable, msg: "unable to process request in the configured timeout",
}

// searchParams are the parameters of a search as they came; has says which did.
type searchParams struct {
	query            string
	start, end       int64
	hasStart, hasEnd bool
	limit, spss      int
	hasLimit         bool
	grpc             bool
}

func (s *Server) searchRequest(p searchParams, now time.Time) (*searchRequest, error) {
	r := &searchRequest{limit: p.limit, spss: p.spss, start: p.start, end: p.end}
	switch {
	case p.hasEnd && !p.hasStart, p.grpc && p.hasStart && !p.hasEnd:
		return nil, badRequest("error parsing date range: only one of start and end provided: must provide both or neither")
	case (p.hasStart || p.hasEnd) && p.start >= p.end:
		return nil, badRequest("http parameter start must be before end. received start=%d end=%d", p.start, p.end)
	case p.hasLimit && p.limit <= 0:
		return nil, badRequest("invalid limit: must be a positive number")
	}
	if p.query != "" {
		q, err := parseQuery(p.query)
		if err != nil {
			return nil, badRequest("invalid TraceQL query: %v", err)
		}
		r.query = q
	}
	cutoff := now.Add(-s.o.QueryEndCutoff)
	if !p.hasStart {
		r.start, r.end = now.Add(-queryBackendAfter).Unix(), cutoff.Unix()
	}
	if time.Unix(r.end, 0).After(cutoff) && s.o.QueryEndCutoff > 0 {
		if time.Unix(r.start, 0).After(cutoff) {
			r.start = now.Add(-queryBackendAfter).Unix()
		}
		r.end = cutoff.Unix()
	}
	if r.limit == 0 {
		r.limit = s.o.DefaultLimit
	}
	if s.o.MaxLimit > 0 && r.limit > s.o.MaxLimit {
		return nil, badRequest("limit %d exceeds max limit %d", r.limit, s.o.MaxLimit)
	}
	if s.o.MaxSearchRange > 0 && time.Duration(r.end-r.start)*time.Second > s.o.MaxSearchRange {
		return nil, badRequest("range specified by start and end exceeds %s. received start=%d end=%d",
			s.o.MaxSearchRange, r.start, r.end)
	}
	if s.o.MaxSpansPerSpanSet > 0 && r.spss > s.o.MaxSpansPerSpanSet {
		return nil, badRequest("spans per span set exceeds %d. received %d", s.o.MaxSpansPerSpanSet, r.spss)
	}
	if r.spss == 0 {
		r.spss = 3
	}
	return r, nil
}

// metricsRequest checks and clamps a metrics query; step is 0 for an instant one, in nanoseconds.
func (s *Server) metricsRequest(
	text string, start, end, step uint64, ranged bool, now time.Time,
) (*metricsRequest, error) {
	q, err := parseQuery(text)
	if err != nil {
		return nil, rejected("compiling query: %v", err)
	}
	if q.metric == "" {
		return nil, rejected("not a metrics query")
	}
	if start > end {
		return nil, rejected("end must be greater than start")
	}
	if s.o.MaxMetricsRange > 0 && end-start > uint64(s.o.MaxMetricsRange) {
		return nil, badRequest("metrics query time range exceeds the maximum allowed duration of %s", s.o.MaxMetricsRange)
	}
	r := &metricsRequest{query: q, start: start, end: end}
	if ranged {
		const maxIntervals = 10_000
		if step == 0 {
			step = max(uint64(time.Second), (end-start)/240/uint64(time.Second)*uint64(time.Second))
		}
		if (end-start)/step > maxIntervals {
			return nil, rejected("step of %s is too small, minimum step for given range is %s",
				time.Duration(step), time.Duration((end-start)/maxIntervals))
		}
		r.step = step
		r.start -= r.start % step
		r.end = (r.end + step - 1) / step * step
	}
	if cutoff := uint64(max(0, now.Add(-s.o.QueryEndCutoff).UnixNano())); s.o.QueryEndCutoff > 0 && r.end > cutoff {
		r.end = cutoff
		if ranged {
			r.end -= r.end % r.step
		}
	}
	return r, nil
}

// parseTimestamp reads Unix seconds, whole or not, or nanoseconds, or RFC 3339, as the metrics endpoints take them.
func parseTimestamp(text string, absent time.Time) (time.Time, error) {
	if text == "" {
		return absent, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if len(text) <= 10 {
			return time.Unix(n, 0), nil
		}
		return time.Unix(0, n), nil
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(f) < 1e12 {
		sec, frac := math.Modf(f)
		return time.Unix(int64(sec), int64(math.Round(frac*1e3))*1e6), nil
	}
	return time.Parse(time.RFC3339Nano, text)
}

func nanos(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) }

// parseTraceID reads up to 32 hex digits; missing ones are zeros in front.
func parseTraceID(text string) (traceID, error) {
	for i, c := range text {
		if !strings.ContainsRune("0123456789abcdefABCDEF", c) {
			return traceID{}, badRequest(
				"trace IDs can only contain hex characters: invalid character '%c' at position %d", c, i+1)
		}
	}
	if len(text) > 32 {
		return traceID{}, badRequest("trace IDs can't be larger than 128 bits")
	}
	var id traceID
	_, err := hex.Decode(id[:], []byte(strings.Repeat("0", 32-len(text))+text))
	return id, err
}

// tenantsOf reads X-Scope-OrgID: a|b is the tenants a and b.
func (s *Server) tenantsOf(orgID string, now time.Time) ([]*tenant, error) {
	if !s.o.Multitenancy {
		return []*tenant{s.tenant(singleTenant, now)}, nil
	}
	if orgID == "" {
		return nil, &apiError{httpStatus: http.StatusUnauthorized, msg: "no org id", org: true}
	}
	var out []*tenant
	for name := range strings.SplitSeq(orgID, "|") {
		if err := validTenant(name); err != nil {
			return nil, err
		}
		out = append(out, s.tenant(name, now))
	}
	return out, nil
}

func validTenant(name string) error {
	for _, c := range name {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("!-_.*'()", c)
		if !ok {
			return badRequest("tenant ID '%s' contains unsupported character '%c'", name, c)
		}
	}
	if name == "." || name == ".." {
		return badRequest("tenant ID is '.' or '..'")
	}
	return nil
}

// A traceAnswer is what is known of a trace by id.
type traceAnswer struct {
	trace   *tempopb.Trace
	spans   int
	partial bool
	max     int
	bytes   int
}

func (s *Server) traceByID(tenants []*tenant, id traceID, f Fault, now time.Time) *traceAnswer {
	var spans []*span
	for _, t := range tenants {
		spans = append(spans, t.trace(now, id)...)
	}
	a := &traceAnswer{max: s.o.MaxBytesPerTrace}
	s.mu.Lock()
	if s.maxTrace > 0 {
		a.max = s.maxTrace
	}
	s.mu.Unlock()
	spans, a.partial = f.spoilTrace(spans)
	if a.max > 0 {
		size := 0
		for i, sp := range spans {
			if size += sp.size; size > a.max {
				spans, a.partial = spans[:i], true
				break
			}
		}
	}
	for _, sp := range spans {
		a.bytes += sp.size
	}
	a.spans = len(spans)
	a.trace = &tempopb.Trace{ResourceSpans: resourceSpans(spans)}
	return a
}

// asAPIError makes an answer of what ended a request.
func asAPIError(err error) *apiError {
	var api *apiError
	switch {
	case errors.As(err, &api):
		return api
	case errors.Is(err, context.DeadlineExceeded):
		return errTimeout
	default:
		return &apiError{httpStatus: http.StatusInternalServerError, msg: fmt.Sprint(err)}
	}
}
