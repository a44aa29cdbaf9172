package tempo

import (
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/query/querytest"
	"github.com/rolltrace/rolltrace/query/querytest/tempofake"
	"github.com/rolltrace/rolltrace/roll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a tempofake and the clock that it and its clients share. The clock ends near the time of day, since the Date
// header is always of today.
type fake struct {
	*tempofake.Server
	clock *tempofake.Clock
	base  time.Time
}

// newFake starts a fake whose clock stands at the end of the minute that begins at base.
func newFake(t *testing.T, opts tempofake.Options) *fake {
	t.Helper()
	f := &fake{base: time.Now().Add(-4 * time.Minute).UTC().Truncate(time.Second)}
	f.clock = tempofake.NewClock(f.base.Add(time.Minute))
	opts.Now = f.clock.Now
	var err error
	if f.Server, err = tempofake.Start(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// store stores batches half a minute apart and lets the clock run until all are found.
func (f *fake) store(batches ...[]*tracepb.ResourceSpans) {
	for _, b := range batches {
		f.Push(b...)
		f.clock.Advance(35 * time.Second)
		f.Flush()
	}
	f.clock.Advance(time.Minute)
}

func (f *fake) client(t *testing.T, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{Addr: f.HTTPAddr(), Now: f.clock.Now, Timeout: 10 * time.Second}
	for _, c := range change {
		c(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.pause, c.backoff = time.Millisecond, time.Millisecond
	t.Cleanup(func() { c.Close() })
	return c
}

func TestConformance(t *testing.T) {
	for _, transport := range []Transport{TransportAuto, TransportGRPC, TransportHTTP, TransportJSON} {
		t.Run(string(transport), func(t *testing.T) {
			f := newFake(t, tempofake.Options{})
			querytest.Run(t, querytest.Harness{
				Base: f.base,
				Open: func(t *testing.T, batches [][]*tracepb.ResourceSpans) query.Traces {
					f.store(batches...)
					return f.client(t, func(o *Options) { o.Transport = transport })
				},
			})
		})
	}
}

func oneRange(from, to time.Time) []roll.Range { return []roll.Range{{Start: from, End: to}} }
