package record

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// serverClock bounds the API server's clock against the observer's by the Date header of its answers, which is
// truncated to the second (RFC 9110, 6.6.1): the answer to a request that lasted from t0 to t1 and is dated D was made
// when the server's clock stood in [D, D+1s). Answers around the turn of a second give the narrowest bounds. A proxy in
// front of the API server that dates answers anew would be measured instead.
type serverClock struct {
	now func() time.Time

	mu               sync.Mutex
	earliest, latest time.Duration
	samples          int
}

func (c *serverClock) add(t0, t1, date time.Time) {
	earliest, latest := date.Sub(t1), date.Add(time.Second).Sub(t0)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.samples++; c.samples == 1 {
		c.earliest, c.latest = earliest, latest
		return
	}
	c.earliest, c.latest = max(c.earliest, earliest), min(c.latest, latest)
}

// take returns what was measured since the last take; ok is false when nothing was, or when the samples contradict each
// other: then a clock was set in between.
func (c *serverClock) take() (l roll.Clock, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l = roll.Clock{Of: "apiserver", Earliest: c.earliest, Latest: c.latest, Method: "http-date", Samples: c.samples}
	ok = c.samples > 0 && c.earliest <= c.latest
	c.samples = 0
	return l, ok
}

// clockTransport gives every dated answer to a serverClock.
type clockTransport struct {
	next  http.RoundTripper
	clock *serverClock
}

func (t *clockTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	t0 := t.clock.now()
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if date, derr := http.ParseTime(resp.Header.Get("Date")); derr == nil {
		t.clock.add(t0, t.clock.now(), date)
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *clockTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// measureClock writes a clock line at once and then every now and then.
func (r *recorder) measureClock(ctx context.Context) {
	for {
		for range r.t.clockProbes {
			r.api.probe(ctx)
			if !sleep(ctx, time.Second/time.Duration(r.t.clockProbes)) {
				return
			}
		}
		if c, ok := r.clock.take(); ok {
			r.writeLine(roll.Line{ReceivedAt: r.now(), Clock: &c})
		}
		if !sleep(ctx, r.t.clockEvery) {
			return
		}
		r.clock.take() // what came in between is too old to be one measurement
	}
}
