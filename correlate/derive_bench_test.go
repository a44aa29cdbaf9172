package correlate

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
	"github.com/rolltrace/rolltrace/roll/rolltest"
)

// TestSyntheticIsWhatItSays guards the benchmark: what it measures is derived, not skipped.
func TestSyntheticIsWhatItSays(t *testing.T) {
	rec, err := roll.ReadRecording(bytes.NewReader(rolltest.Synthetic(t, 10, 2, 50)))
	if err != nil {
		t.Fatal(err)
	}
	tl := Derive(rec)
	terms := terminations(tl)
	if len(tl.Pods) != 1000 || len(terms) != 500 {
		t.Errorf("%d pods and %d terminations, want 1000 and 500", len(tl.Pods), len(terms))
	}
	for _, x := range terms {
		if x.Signaled.IsZero() || x.ExitCode == nil || x.Cause != roll.CauseRollout {
			t.Fatalf("%+v", x)
		}
	}
}

// BenchmarkRecording reads and derives a recording of 10,000 pods with 5,000 terminations, and one twice as large.
func BenchmarkRecording(b *testing.B) {
	var once time.Duration
	for _, n := range []int{10000, 20000} {
		raw := rolltest.Synthetic(b, n/100, 2, 50)
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			var read, derive time.Duration
			for b.Loop() {
				t0 := time.Now()
				rec, err := roll.ReadRecording(bytes.NewReader(raw))
				if err != nil {
					b.Fatal(err)
				}
				t1 := time.Now()
				Derive(rec)
				read, derive = read+t1.Sub(t0), derive+time.Since(t1)
			}
			per := b.Elapsed() / time.Duration(b.N)
			b.ReportMetric(float64(read.Milliseconds())/float64(b.N), "read-ms/op")
			b.ReportMetric(float64(derive.Milliseconds())/float64(b.N), "derive-ms/op")
			if n == 10000 {
				once = per
			} else if once > 0 {
				b.ReportMetric(float64(per)/float64(once), "times-for-double")
			}
		})
	}
}
