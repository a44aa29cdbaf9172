package verify_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/assertions"
	"github.com/rolltrace/rolltrace/correlate"
	"github.com/rolltrace/rolltrace/query/otlp"
	"github.com/rolltrace/rolltrace/roll"
	"github.com/rolltrace/rolltrace/roll/rolltest"
	"github.com/rolltrace/rolltrace/verify"
)

// spanFile is a file of OTLP JSON lines that is made while it is read, so that it takes no memory: calls of one client
// to the pods of a timeline, one client and one server span each. It notes how much heap was in use while it was read.
type spanFile struct {
	pods    []*roll.Pod
	calls   int
	start   time.Time
	step    time.Duration
	next    int
	buf     bytes.Buffer
	peak    uint64
	sampled int
}

const callsPerLine = 50

func (f *spanFile) Close() error { return nil }

func (f *spanFile) Read(p []byte) (int, error) {
	if f.buf.Len() == 0 {
		if f.next >= f.calls {
			return 0, io.EOF
		}
		f.line()
		if f.sampled++; f.sampled%500 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			f.peak = max(f.peak, m.HeapAlloc)
		}
	}
	return f.buf.Read(p)
}

func (f *spanFile) line() {
	pod := f.pods[(f.next/callsPerLine)%len(f.pods)]
	span := func(kind, i int, id, parent string) {
		start := f.start.Add(time.Duration(i) * f.step).UnixNano()
		fmt.Fprintf(&f.buf, `{"traceId":"%032x","spanId":"%s","parentSpanId":"%s","name":"shop.Cart/Get","kind":%d,"startTimeUnixNano":"%d","endTimeUnixNano":"%d",`+
			`"attributes":[{"key":"rpc.system.name","value":{"stringValue":"grpc"}},{"key":"rpc.response.status_code","value":{"stringValue":"OK"}}],"status":{}}`,
			i+1, id, parent, kind, start, start+int64(5*time.Millisecond))
	}
	resource := func(service, uid string) {
		f.buf.WriteString(`{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"` + service + `"}},{"key":"k8s.pod.uid","value":{"stringValue":"` + uid + `"}}]},"scopeSpans":[{"spans":[`)
	}
	f.buf.WriteString(`{"resourceSpans":[`)
	for side, kind := range []int{3, 2} {
		if side == 0 {
			resource("shop", "the-client")
		} else {
			f.buf.WriteByte(',')
			resource("cart", pod.UID)
		}
		for k := range callsPerLine {
			if k > 0 {
				f.buf.WriteByte(',')
			}
			i := f.next + k
			client, server := fmt.Sprintf("%016x", 2*i+1), fmt.Sprintf("%016x", 2*i+2)
			if side == 0 {
				span(kind, i, client, "")
			} else {
				span(kind, i, server, client)
			}
		}
		f.buf.WriteString(`]}]}`)
	}
	f.buf.WriteString("]}\n")
	f.next += callsPerLine
}

// bench is a recording of 200 rolls and a file of spans spread evenly over it, of which a share falls into the windows.
type bench struct {
	rec  *roll.Recording
	tl   *roll.Timeline
	file *spanFile
}

func newBench(tb testing.TB, spans int, over float64) *bench {
	tb.Helper()
	rec, err := roll.ReadRecording(bytes.NewReader(rolltest.Synthetic(tb, 200, 2, 5)))
	if err != nil {
		tb.Fatal(err)
	}
	tl := correlate.Derive(rec)
	if len(tl.Rolls) != 200 {
		tb.Fatalf("%d rolls, want 200", len(tl.Rolls))
	}
	total := time.Duration(float64(tl.Recorded.Duration()) * over)
	return &bench{rec, tl, &spanFile{pods: tl.Pods, calls: spans / 2, start: tl.Recorded.Start, step: total / time.Duration(spans/2)}}
}

func (b *bench) run(tb testing.TB) *roll.Report {
	tb.Helper()
	b.file.next = 0
	traces := otlp.New(otlp.Source{Name: "bench", Open: func() (io.ReadCloser, error) { return b.file, nil }})
	rep, err := verify.Run(tb.Context(), verify.Options{
		Recording: b.rec, Traces: traces, Params: assertions.DefaultParams(), Padding: verify.DefaultPadding, Now: time.Now,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return rep
}

// BenchmarkVerify judges 200 rolls offline on a file of a million spans, and of twice as many, nearly all of them in a
// window; and on a file of the same size of which one in a hundred is: memory follows the windows, not the file.
func BenchmarkVerify(b *testing.B) {
	var once time.Duration
	for _, c := range []struct {
		spans int
		over  float64
	}{{1_000_000, 1}, {2_000_000, 1}, {1_000_000, 100}} {
		b.Run("spans="+strconv.Itoa(c.spans)+"/in-windows=1_of_"+strconv.Itoa(int(c.over)), func(b *testing.B) {
			w := newBench(b, c.spans, c.over)
			var in int
			for b.Loop() {
				rep := w.run(b)
				in = 0
				for _, r := range rep.Rolls {
					in += r.Spans.Client + r.Spans.Server
				}
			}
			per := b.Elapsed() / time.Duration(b.N)
			b.ReportMetric(float64(c.spans)/per.Seconds(), "spans/s")
			b.ReportMetric(float64(in), "spans-in-windows")
			b.ReportMetric(float64(w.file.peak)/(1<<20), "peak-heap-MiB")
			switch {
			case c.over > 1:
			case once == 0:
				once = per
			default:
				b.ReportMetric(float64(per)/float64(once), "times-for-double")
			}
		})
	}
}

// TestMemoryFollowsTheWindows: a file of which one span in a hundred lies in a window takes little memory to judge.
func TestMemoryFollowsTheWindows(t *testing.T) {
	heap := func(over float64) (peak uint64, spans int) {
		w := newBench(t, 200_000, over)
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		rep := w.run(t)
		for _, r := range rep.Rolls {
			spans += r.Spans.Client + r.Spans.Server
		}
		return w.file.peak - min(before.HeapAlloc, w.file.peak), spans
	}
	all, n := heap(1)
	few, m := heap(100)
	if n < 100_000 || m == 0 || m > n/50 {
		t.Fatalf("%d and %d spans in the windows: the benchmark measures something else", n, m)
	}
	if few > all/3 {
		t.Errorf("%d MiB for %d spans in windows, %d MiB for %d", few>>20, m, all>>20, n)
	}
}
