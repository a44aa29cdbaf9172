package tempo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
	"github.com/rolltrace/rolltrace/roll"
)

// maxBody bounds one answer. Tempo bounds one job's at 16 MiB, and an answer is the sum of some jobs.
const maxBody = 512 << 20

const (
	mimeProto = "application/protobuf"
	mimeJSON  = "application/json"
)

// get asks for a path below the address and returns the body of a 200, its media type and the Date header.
func (c *Client) get(
	ctx context.Context, path string, q url.Values, accept string,
) (body []byte, media string, date time.Time, err error) {
	u := *c.base
	u.Path += path
	u.RawQuery = q.Encode()
	return c.getURL(ctx, u.String(), accept)
}

func (c *Client) getURL(
	parent context.Context, u, accept string,
) (body []byte, media string, date time.Time, err error) {
	if err := c.acquire(parent); err != nil {
		return nil, "", date, err
	}
	defer c.release()
	ctx, cancel := context.WithTimeout(parent, c.opts.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, "", date, &requestError{kind: failConfig, msg: "cannot make the request"}
	}
	h, err := c.opts.auth()
	if err != nil {
		return nil, "", date, &requestError{kind: failConfig, msg: err.Error()}
	}
	req.Header = h
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", c.opts.UserAgent)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, "", date, c.interrupted(parent, ctx, err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, "", date, c.interrupted(parent, ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, "", date, httpError(resp, body)
	}
	if len(body) > maxBody {
		return nil, "", date, &requestError{kind: failTooLarge, msg: "the answer is too large"}
	}
	if isHTML(resp, body) {
		return nil, "", date, &requestError{kind: failNotTempo, msg: "HTTP 200 with an HTML page"}
	}
	media, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	date, _ = http.ParseTime(resp.Header.Get("Date"))
	return body, media, date, nil
}

// interrupted is the caller's own error when the caller ended the request, else what broke it.
func (c *Client) interrupted(parent, ctx context.Context, err error) error {
	if cause := parent.Err(); cause != nil {
		return cause
	}
	return netError(err, ctx.Err() != nil)
}

// decode reads a body into m as its media type says.
func decode(body []byte, media string, m proto.Message) error {
	switch media {
	case mimeProto, "application/x-protobuf":
		if err := proto.Unmarshal(body, m); err != nil {
			return &requestError{kind: failCut, msg: "the answer is not readable protobuf"}
		}
	case mimeJSON, "text/json":
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, m); err != nil {
			if !json.Valid(body) {
				return &requestError{kind: failCut, msg: "the answer is not readable JSON"}
			}
			return &requestError{kind: failNotTempo, msg: "the answer is JSON of another API"}
		}
	default:
		return &requestError{kind: failNotTempo, msg: fmt.Sprintf("HTTP 200 with %q, want protobuf or JSON", media)}
	}
	return nil
}

func (c *Client) searchHTTP(
	ctx context.Context, r *tempopb.SearchRequest, accept string,
) (*tempopb.SearchResponse, error) {
	q := url.Values{
		"q":     {r.GetQuery()},
		"start": {strconv.FormatUint(uint64(r.GetStart()), 10)},
		"end":   {strconv.FormatUint(uint64(r.GetEnd()), 10)},
		"limit": {strconv.FormatUint(uint64(r.GetLimit()), 10)},
		"spss":  {strconv.FormatUint(uint64(r.GetSpansPerSpanSet()), 10)},
	}
	body, media, _, err := c.get(ctx, "/api/search", q, accept)
	if err != nil {
		return nil, err
	}
	resp := &tempopb.SearchResponse{}
	if err := decode(body, media, resp); err != nil {
		return nil, err
	}
	if resp.GetMetrics() == nil {
		return nil, errNoMetrics
	}
	return resp, nil
}

// errNoMetrics: the metrics are the last field of an answer; one without them was cut where protobuf does not notice.
var errNoMetrics = &requestError{kind: failCut, msg: "the answer ends before its metrics"}

// counts are spans by kind and status.
type class struct {
	kind   roll.SpanKind
	status roll.StatusCode
}

// countHTTP asks for the count of the spans that start in [from, to), by kind and status.
func (c *Client) countHTTP(ctx context.Context, traceQL string, from, to int64) (map[class]int, error) {
	q := url.Values{
		"q":     {traceQL},
		"start": {strconv.FormatInt(from, 10)},
		"end":   {strconv.FormatInt(to, 10)},
	}
	body, media, _, err := c.get(ctx, "/api/metrics/query", q, mimeJSON)
	if err != nil {
		return nil, err
	}
	resp := &tempopb.QueryInstantResponse{}
	if err := decode(body, media, resp); err != nil {
		return nil, err
	}
	if resp.GetMetrics() == nil {
		return nil, errNoMetrics
	}
	m := resp.GetMetrics()
	if m.GetCompletedJobs() < m.GetTotalJobs() || resp.GetStatus() != tempopb.PartialStatus_COMPLETE {
		return nil, &requestError{msg: "the count is partial"}
	}
	out := map[class]int{}
	for _, s := range resp.GetSeries() {
		var k class
		for _, l := range s.GetLabels() {
			switch v := l.GetValue().GetStringValue(); l.GetKey() {
			case "kind":
				_ = k.kind.UnmarshalText([]byte(v))
			case "status":
				_ = k.status.UnmarshalText([]byte(v))
			}
		}
		if n := int(s.GetValue()); n != 0 {
			out[k] += n
		}
	}
	return out, nil
}

// errNotFound: the server has no trace of this id.
var errNotFound = errors.New("no trace of this id")

// errPartial: the server has more of the trace than it returns.
type errPartial struct{ msg string }

func (e *errPartial) Error() string { return e.msg }

// trace fetches a whole trace. Times are not given: a range that does not cover the trace makes it look absent.
func (c *Client) trace(ctx context.Context, id roll.TraceID) ([]*tracepb.ResourceSpans, error) {
	if !c.oldTraces.Load() {
		body, media, _, err := c.get(ctx, "/api/v2/traces/"+id.String(), nil, mimeProto)
		switch {
		case err == nil:
			resp := &tempopb.TraceByIDResponse{}
			if err := decode(body, media, resp); err != nil {
				return nil, err
			}
			if resp.GetStatus() != tempopb.PartialStatus_COMPLETE {
				return resp.GetTrace().GetResourceSpans(), &errPartial{oneLine(resp.GetMessage())}
			}
			if len(resp.GetTrace().GetResourceSpans()) == 0 {
				return nil, errNotFound
			}
			return resp.GetTrace().GetResourceSpans(), nil
		case kindOf(err) != failNotTempo:
			return nil, err
		}
		// 404: before v2.6.
	}
	body, media, _, err := c.get(ctx, "/api/traces/"+id.String(), nil, mimeProto)
	if err != nil {
		var re *requestError
		if errors.As(err, &re) {
			switch re.status {
			case http.StatusNotFound:
				return nil, errNotFound
			case http.StatusUnprocessableEntity:
				return nil, &errPartial{re.msg}
			}
		}
		return nil, err
	}
	c.oldTraces.Store(true)
	t := &tempopb.Trace{}
	if media == mimeJSON {
		body = []byte(strings.Replace(string(body), `{"batches":`, `{"resourceSpans":`, 1))
	}
	if err := decode(body, media, t); err != nil {
		return nil, err
	}
	return t.GetResourceSpans(), nil
}
