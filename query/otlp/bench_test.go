package otlp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/roll"
)

// synthetic returns n spans of about 400 bytes each, 20 a line, 1 ms apart from t0.
func synthetic(n int) []byte {
	var b bytes.Buffer
	for i := range n {
		if i%20 == 0 {
			fmt.Fprintf(&b, `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"cart"}},`+
				`{"key":"k8s.pod.uid","value":{"stringValue":"d02b6f19-55c0-403b-acba-%012d"}},`+
				`{"key":"k8s.pod.name","value":{"stringValue":"cart-%d"}}]},"scopeSpans":[{"scope":{"name":"otelgrpc"},"spans":[`, i/20%50, i/20%50)
		} else {
			b.WriteByte(',')
		}
		start := t0.Add(time.Duration(i) * time.Millisecond).UnixNano()
		fmt.Fprintf(&b, `{"traceId":"%032x","spanId":"%016x","parentSpanId":"%016x","flags":769,"name":"shop.v1.Cart/Get","kind":%d,`+
			`"startTimeUnixNano":"%d","endTimeUnixNano":"%d","attributes":[{"key":"rpc.method","value":{"stringValue":"shop.v1.Cart/Get"}},`+
			`{"key":"server.address","value":{"stringValue":"10.88.0.11"}},{"key":"server.port","value":{"intValue":"9443"}},`+
			`{"key":"rpc.response.status_code","value":{"stringValue":"OK"}}],"status":{}}`, i/2+1, i+1, i, 2+i%2, start, start+5e6)
		if i%20 == 19 || i == n-1 {
			b.WriteString("]}]}]}\n")
		}
	}
	return b.Bytes()
}

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func source(b []byte) Source {
	return Source{Name: "spans.jsonl", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}

// BenchmarkSpans reads a whole file: every span kept, one in ten kept, none kept.
func BenchmarkSpans(b *testing.B) {
	const n = 200_000
	data := synthetic(n)
	for _, kept := range []int{n, n / 10, 0} {
		b.Run(fmt.Sprintf("kept=%d", kept), func(b *testing.B) {
			req := query.Request{Ranges: []roll.Range{{Start: t0.Add(-time.Hour), End: t0.Add(time.Duration(kept)*time.Millisecond - time.Hour)}}}
			if kept > 0 {
				req.Ranges[0].End = t0.Add(time.Duration(kept) * time.Millisecond)
			}
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				a, err := New(source(data)).Spans(context.Background(), req)
				if err != nil || len(a.Spans) != kept || !a.Coverage.Complete() {
					b.Fatalf("%d spans, %v, %v; want %d", len(a.Spans), a.Coverage, err, kept)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "spans/s")
		})
	}
}
