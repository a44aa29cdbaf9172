package otlpspan

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/rolltrace/rolltrace/roll"
)

// TestEachMalformed: a span that cannot be placed comes with the reason.
func TestEachMalformed(t *testing.T) {
	trace, span := make([]byte, 16), make([]byte, 8)
	trace[3], span[7] = 1, 1
	good := func() *tracepb.Span {
		return &tracepb.Span{TraceId: trace, SpanId: span, Kind: 2, StartTimeUnixNano: 10, EndTimeUnixNano: 30}
	}
	for _, tt := range []struct {
		name   string
		change func(*tracepb.Span)
		want   string
	}{
		{"good", func(*tracepb.Span) {}, ""},
		{"no trace id", func(s *tracepb.Span) { s.TraceId = nil }, "trace id of 0 bytes"},
		{"zero trace id", func(s *tracepb.Span) { s.TraceId = make([]byte, 16) }, "trace id is zero"},
		{"short span id", func(s *tracepb.Span) { s.SpanId = span[:4] }, "span id of 4 bytes"},
		{"long parent", func(s *tracepb.Span) { s.ParentSpanId = trace }, "parent span id of 16 bytes"},
		{"no start", func(s *tracepb.Span) { s.StartTimeUnixNano = 0 }, "no start time"},
		{"no end", func(s *tracepb.Span) { s.EndTimeUnixNano = 0 }, "no end time"},
		{"end first", func(s *tracepb.Span) { s.EndTimeUnixNano = 4 }, "ends 6ns before it starts"},
		{"too late", func(s *tracepb.Span) { s.EndTimeUnixNano = math.MaxUint64 }, "out of range"},
		{"status", func(s *tracepb.Span) { s.Status = &tracepb.Status{Code: 9} }, "unknown status code 9"},
	} {
		s := good()
		tt.change(s)
		n := 0
		Each(&tracepb.ResourceSpans{ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{s}}}}, func(sp *roll.Span, err error) {
			n++
			if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && !strings.Contains(got, tt.want) {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			}
			if sp.Resource == nil || sp.Kind != roll.KindServer {
				t.Errorf("%s: %+v", tt.name, sp)
			}
			if tt.name == "end first" && (!sp.Start.Equal(time.Unix(0, 4)) || sp.Duration != 6) {
				t.Errorf("where to look is %v +%v", sp.Start, sp.Duration)
			}
		})
		if n != 1 {
			t.Errorf("%s: %d spans", tt.name, n)
		}
	}
}

func TestUnique(t *testing.T) {
	var few, many roll.Attributes
	for i := range 100 {
		a := roll.Attribute{Key: fmt.Sprint(i % 7), Value: fmt.Sprint(i)}
		if i < 20 {
			few = append(few, a)
		}
		many = append(many, a)
	}
	for _, as := range []roll.Attributes{few, many} {
		got := Unique(as)
		if len(got) != 7 || got.First("3") != "3" {
			t.Errorf("%v, want the first of each of 7 keys", got)
		}
	}
}
