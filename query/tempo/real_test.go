//go:build conformance

package tempo

import (
	"net/url"
	"os"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/query/querytest"
)

// TestConformanceReal runs the suite against the Tempo at ROLLTRACE_TEMPO_ADDR. Spans go in over OTLP gRPC at
// ROLLTRACE_TEMPO_OTLP_ADDR, port 4317 of the same host by default. It takes some two minutes: fragments need them.
func TestConformanceReal(t *testing.T) {
	addr := os.Getenv("ROLLTRACE_TEMPO_ADDR")
	if addr == "" {
		t.Fatal("ROLLTRACE_TEMPO_ADDR is not set: the address of a Tempo that takes test spans")
	}
	push := os.Getenv("ROLLTRACE_TEMPO_OTLP_ADDR")
	if push == "" {
		_, hostport, err := parseAddr(addr)
		if err != nil {
			t.Fatal(err)
		}
		push = (&url.URL{Host: hostport}).Hostname() + ":4317"
	}
	base := time.Now().Add(-querytest.Length - 2*time.Second).UTC().Truncate(time.Second)
	stored := false
	for _, transport := range []Transport{TransportAuto, TransportHTTP, TransportJSON} {
		t.Run(string(transport), func(t *testing.T) {
			querytest.Run(t, querytest.Harness{
				Base:   base,
				Shared: true,
				Open: func(t *testing.T, batches [][]*tracepb.ResourceSpans) query.Traces {
					c, err := New(Options{Addr: addr, Transport: transport, OrgID: os.Getenv("ROLLTRACE_TEMPO_ORG_ID"), Now: time.Now})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { c.Close() })
					if !stored {
						export(t, push, batches)
						stored = true
					}
					line, gaps := c.CaughtUp(t.Context(), time.Now())
					t.Logf("caught up: %s, %v", line, gaps)
					start := time.Now()
					a, err := c.Spans(t.Context(), query.Request{Ranges: oneRange(base, base.Add(querytest.Length))})
					if err != nil {
						t.Fatal(err)
					}
					t.Logf("%d spans, %d requests, %s, gRPC %v, version %q", len(a.Spans), a.Requests, time.Since(start), c.sawGRPC.Load(), a.Version)
					return c
				},
			})
		})
	}
}

// export sends the batches so far apart that Tempo stores them in different blocks.
func export(t *testing.T, addr string, batches [][]*tracepb.ResourceSpans) {
	t.Helper()
	cc, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	for i, b := range batches {
		if i > 0 {
			time.Sleep(40 * time.Second) // max_block_duration is 30 s, max_trace_idle 5 s
		}
		if _, err := collectorpb.NewTraceServiceClient(cc).Export(t.Context(), &collectorpb.ExportTraceServiceRequest{ResourceSpans: b}); err != nil {
			t.Fatal(err)
		}
	}
}
