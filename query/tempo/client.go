// Package tempo asks a real Grafana Tempo for spans and does not believe it: whatever Tempo is known to cut without a
// word (fragments of a trace, spans of a set, traces of an answer, the last 30 s) is healed or becomes a named gap.
//
// # How an answer becomes complete
//
// Each range is asked for twice: once plainly, with the spans' attributes, and once with each span as its own span set,
// which the loss of fragments cannot touch. What the second finds beyond the first, and every trace with an error, is
// fetched by id. What was found is then held against the server's own count by kind and status. See [Client.Spans].
//
// # Versions
//
// Tempo 2.4 to 3.x. Facts about Tempo cite its source, as of v3.0.
package tempo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
	"github.com/rolltrace/rolltrace/roll"
)

const (
	// endCutoff is how far from now the end of a range must stay: Tempo 3 moves a later end back to now − 30 s, and when
	// the start is later as well answers for the last 15 minutes instead (query_end_cutoff in modules/frontend/config.go,
	// ClampDateRange in pkg/api/http.go). One second more for clocks.
	endCutoff = 31 * time.Second
	// settle is when a span can be expected to be found: the cutoff and the 5 s that an idle trace stays outside of
	// blocks (max_trace_idle in modules/livestore/config.go), one more for clocks.
	settle = 36 * time.Second
	// pause lies between two looks that should agree: the live store's flush period.
	pause = 5 * time.Second
	// backoff is the wait before the first retry; it doubles, up to 10 s.
	backoff = 500 * time.Millisecond
)

// Client is a [query.Traces] over Tempo. Close it.
type Client struct {
	opts    Options
	base    *url.URL
	http    *http.Client
	conn    *grpc.ClientConn
	streams tempopb.StreamingQuerierClient
	sem     chan struct{}
	pause   time.Duration // between two looks
	backoff time.Duration // before the first retry

	oldTraces atomic.Bool // by id only at /api/traces
	noGRPC    atomic.Bool // auto: searches go over HTTP
	noFull    atomic.Bool // the server does not understand the full select()
	noBySpan  atomic.Bool // the server does not understand by(span:id)
	sawGRPC   atomic.Bool
	maxLimit  atomic.Uint32
	maxSpss   atomic.Uint32

	probed    sync.Mutex
	ready     bool
	version   string
	behind    time.Duration // how far the server's clock is behind ours, ≥ 0
	baseline  map[string]float64
	baselined time.Time
}

var _ query.Traces = (*Client)(nil)

// New returns a client. It connects when it is first asked.
func New(opts Options) (*Client, error) {
	opts.defaults()
	if opts.Now == nil {
		return nil, errors.New("tempo: no clock")
	}
	base, hostport, err := parseAddr(opts.Addr)
	if err != nil {
		return nil, err
	}
	tlsCfg, err := opts.tlsConfig()
	if err != nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = tlsCfg
	t.MaxIdleConnsPerHost = opts.Parallel
	if opts.Dial != nil {
		t.DialContext = opts.Dial
	}
	c := &Client{
		opts: opts, base: base, pause: pause, backoff: backoff, sem: make(chan struct{}, opts.Parallel),
		http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // to a login page, with our token
		}},
	}
	c.maxLimit.Store(262144) // max_result_limit
	c.maxSpss.Store(100)     // max_spans_per_span_set
	switch opts.Transport {
	case TransportAuto, TransportGRPC:
		if opts.GRPCAddr != "" {
			hostport = opts.GRPCAddr
		}
		if base.Scheme == "http" {
			tlsCfg = nil
		} else {
			tlsCfg = tlsCfg.Clone()
		}
		if err := c.dialGRPC(hostport, tlsCfg); err != nil {
			return nil, err
		}
	case TransportHTTP, TransportJSON:
		c.noGRPC.Store(true)
	default:
		return nil, fmt.Errorf("unknown transport %q, want auto, grpc, http or json", opts.Transport)
	}
	return c, nil
}

// Close ends the connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	if c.conn != nil {
		return c.conn.Close()
	}
	return nil
}

// Name returns "tempo".
func (c *Client) Name() string { return "tempo" }

// Address returns the HTTP address.
func (c *Client) Address() string { return c.base.String() }

// requestsKey is the context's counter of requests.
type requestsKey struct{}

func (c *Client) acquire(ctx context.Context) error {
	select {
	case c.sem <- struct{}{}:
		if n, ok := ctx.Value(requestsKey{}).(*atomic.Int64); ok {
			n.Add(1)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Client) release() { <-c.sem }

// now is the earlier of our clock and the server's.
func (c *Client) now() time.Time { return c.opts.Now().Add(-c.behind) }

// sleep waits, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// describe puts the address and the cause into one line.
func (c *Client) describe(err error) error {
	var re *requestError
	if !errors.As(err, &re) {
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("ask Tempo at %s: time ran out: %w", c.Address(), err)
		}
		return err
	}
	switch re.kind {
	case failUnreachable:
		return fmt.Errorf("reach Tempo at %s: %w", c.Address(), err)
	case failAuth:
		return fmt.Errorf("not allowed by Tempo at %s (tenant %q): %w", c.Address(), c.opts.OrgID, err)
	case failNotTempo:
		return fmt.Errorf("not a Tempo API at %s: %w", c.Address(), err)
	case failQuery:
		return fmt.Errorf("query rejected by Tempo at %s: %w", c.Address(), err)
	}
	return fmt.Errorf("ask Tempo at %s: %w", c.Address(), err)
}

// Probe asks who is there: the version, the clock, and how many spans it has discarded so far. Spans and CaughtUp call
// it when nobody did. Call it before a roll, so that spans discarded during it are noticed.
func (c *Client) Probe(ctx context.Context) error {
	c.probed.Lock()
	defer c.probed.Unlock()
	if c.ready {
		return nil
	}
	var body []byte
	var date time.Time
	err := c.retry(ctx, func() (err error) {
		body, _, date, err = c.get(ctx, "/api/status/buildinfo", nil, mimeJSON)
		return err
	})
	var re *requestError
	switch {
	case err == nil:
		var info struct {
			Version *string `json:"version"`
		}
		if json.Unmarshal(body, &info) != nil || info.Version == nil {
			return c.describe(&requestError{kind: failNotTempo, msg: "/api/status/buildinfo says no version"})
		}
		c.version = *info.Version
	case errors.As(err, &re) && re.status == http.StatusNotFound:
		// A gateway may pass on the query API alone.
		body, _, date, err = c.get(ctx, "/api/echo", nil, "text/plain")
		if err != nil || strings.TrimSpace(string(body)) != "echo" {
			return c.describe(&requestError{kind: failNotTempo, msg: re.msg + " for /api/status/buildinfo"})
		}
	default:
		return c.describe(err)
	}
	// The header has whole seconds: less than 2 s says nothing.
	if d := c.opts.Now().Sub(date); !date.IsZero() && d > 2*time.Second {
		c.behind = d
	}
	if c.opts.MetricsURL != "" {
		if c.baseline, err = c.discarded(ctx); err != nil {
			return fmt.Errorf("read Tempo's own metrics at %s: %w", redact(c.opts.MetricsURL), err)
		}
		c.baselined = c.opts.Now()
	}
	c.ready = true
	return nil
}

func redact(u string) string {
	p, err := url.Parse(u)
	if err != nil {
		return "the given URL"
	}
	return p.Scheme + "://" + p.Host + p.Path
}

var discardedLine = regexp.MustCompile(`^tempo_discarded_spans_total\{(.*)\} ([0-9.eE+]+)`)

// discarded reads tempo_discarded_spans_total of our tenant by reason.
func (c *Client) discarded(ctx context.Context) (map[string]float64, error) {
	body, _, _, err := c.getURL(ctx, c.opts.MetricsURL, "text/plain")
	if err != nil {
		return nil, err
	}
	tenant := c.opts.OrgID
	if tenant == "" {
		tenant = "single-tenant"
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		m := discardedLine.FindStringSubmatch(line)
		if m == nil || !strings.Contains(m[1], `tenant="`+tenant+`"`) {
			continue
		}
		if n, err := strconv.ParseFloat(m[2], 64); err == nil {
			out[m[1]] += n
		}
	}
	return out, nil
}

// discardGaps says whether the server discarded spans since Probe.
func (c *Client) discardGaps(ctx context.Context) []roll.Gap {
	if c.opts.MetricsURL == "" {
		return nil
	}
	g := roll.Gap{Reason: roll.GapDiscarded, From: c.baselined, To: c.opts.Now()}
	now, err := c.discarded(ctx)
	if err != nil {
		g.Detail = "whether the server discarded spans could not be read: " + err.Error()
		return []roll.Gap{g}
	}
	n := 0.0
	for k, v := range now {
		n += max(v-c.baseline[k], 0)
	}
	if n == 0 {
		return nil
	}
	g.Detail = fmt.Sprintf(
		"tempo_discarded_spans_total moved by %.0f: the server dropped spans that it had accepted; raise its limits", n)
	return []roll.Gap{g}
}

// retry runs a request again while that can help: after a refusal with growing, jittered waits, as Retry-After says
// when it does; after a broken answer soon.
func (c *Client) retry(ctx context.Context, f func() error) error {
	wait := c.backoff
	for n := 0; ; n++ {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
		var re *requestError
		if !errors.As(err, &re) || n >= c.opts.Retries {
			return err
		}
		switch re.kind {
		case failBusy:
		case failCut, failOther, failUnreachable, failJobs:
			if n >= 2 {
				return err
			}
		default:
			return err
		}
		d := wait/2 + rand.N(wait/2+1)
		d = max(d, min(re.retryAfter, time.Minute))
		if err := sleep(ctx, d); err != nil {
			return err
		}
		wait = min(2*wait, 10*time.Second)
	}
}

var (
	limitText = regexp.MustCompile(`limit \d+ exceeds max limit (\d+)`)
	spssText  = regexp.MustCompile(`spans per span set exceeds (\d+)`)
)

// search runs one search, over the transport that works, retried.
func (c *Client) search(
	ctx context.Context, traceQL string, w secs, limit uint32,
) (resp *tempopb.SearchResponse, used uint32, err error) {
	for {
		used = min(limit, c.maxLimit.Load())
		r := &tempopb.SearchRequest{
			Query: traceQL, Start: uint32(w.from), End: uint32(w.to), Limit: used, SpansPerSpanSet: c.maxSpss.Load(),
		}
		err = c.retry(ctx, func() error {
			resp, err = c.searchOnce(ctx, r)
			done, total := resp.GetMetrics().GetCompletedJobs(), resp.GetMetrics().GetTotalJobs()
			if err == nil && done < total && len(resp.GetTraces()) < int(used) {
				err = &requestError{kind: failJobs, msg: fmt.Sprintf("the server did %d of %d jobs", done, total)}
			}
			return err
		})
		if err == nil || kindOf(err) != failQuery {
			return resp, used, err
		}
		// The server's limits may be lower than the usual; it names them.
		if n := named(limitText, err); n > 0 && n < used {
			c.maxLimit.Store(n)
			continue
		}
		if n := named(spssText, err); n > 0 && n < r.GetSpansPerSpanSet() {
			c.maxSpss.Store(n)
			continue
		}
		return nil, used, err
	}
}

func named(re *regexp.Regexp, err error) uint32 {
	m := re.FindStringSubmatch(err.Error())
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseUint(m[1], 10, 32)
	return uint32(n)
}

func (c *Client) searchOnce(ctx context.Context, r *tempopb.SearchRequest) (*tempopb.SearchResponse, error) {
	if c.noGRPC.Load() {
		accept := mimeProto // Tempo compares the header as a whole; before 2.10 it answers JSON
		if c.opts.Transport == TransportJSON {
			accept = mimeJSON
		}
		return c.searchHTTP(ctx, r, accept)
	}
	resp, err := c.searchGRPC(ctx, r)
	if err == nil {
		c.sawGRPC.Store(true)
		return resp, nil
	}
	if kindOf(err) != failNoGRPC || c.opts.Transport != TransportAuto || c.sawGRPC.Load() {
		if kindOf(err) == failNoGRPC {
			err = &requestError{kind: failUnreachable, msg: err.Error()}
		}
		return nil, err
	}
	c.noGRPC.Store(true)
	return c.searchOnce(ctx, r)
}
