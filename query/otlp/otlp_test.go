package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/query/otlpspan"
	"github.com/rolltrace/rolltrace/roll"
)

// forever is every moment of the tests.
var forever = []roll.Range{{Start: time.Unix(0, 1), End: time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)}}

const (
	tid = "0123456789abcdef0123456789abcdef"
	sid = "fedcba9876543210"
)

// line wraps spans into a request of one resource.
func line(spans ...string) string {
	return `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"cart"}}]},"scopeSpans":[{"spans":[` +
		strings.Join(spans, ",") + `]}]}]}`
}

// span is a server span; more are members that follow.
func span(more string) string {
	return `{"traceId":"` + tid + `","spanId":"` + sid + `","kind":2,"startTimeUnixNano":"1000000000","endTimeUnixNano":"2000000000"` + more + `}`
}

func read(t *testing.T, data string, sel query.Selection) (*query.Answer, error) {
	t.Helper()
	return New(source([]byte(data))).Spans(t.Context(), query.Request{Ranges: forever, Selection: sel})
}

func TestLines(t *testing.T) {
	good := line(span(""))
	start := `{"traceId":"` + tid + `","spanId":"` + sid + `","kind":2,`
	times := `"startTimeUnixNano":"1000000000","endTimeUnixNano":"2000000000"`
	for _, tt := range []struct {
		name  string
		data  string
		spans int
		gaps  []string // reason, place, and a part of the detail
		err   string
	}{
		{name: "empty file"},
		{name: "blank lines", data: "\n\n  \n" + good + "\n\r\n", spans: 1},
		{name: "no newline at the end", data: good, spans: 1},
		{name: "CRLF", data: good + "\r\n" + line(strings.Replace(span(""), sid, "1123456789abcdef", 1)) + "\r\n", spans: 2},
		{name: "an empty request", data: "{}\n" + good + "\n", spans: 1},
		{name: "other signals", data: `{"resourceLogs":[{}]}` + "\n" + `{"resourceMetrics":[]}` + "\n" + good, spans: 1},
		{name: "only other signals", data: `{"resourceLogs":[{}]}` + "\n"},
		{name: "null members", data: `{"resourceSpans":null}` + "\n" + `{"resourceSpans":[{"resource":null,"scopeSpans":[{"scope":null,"spans":[` + span(`,"attributes":null,"events":null,"status":null,"parentSpanId":null`) + `]}]}]}`, spans: 1},
		{name: "torn", data: good + "\n" + good[:200], spans: 1, gaps: []string{"torn-line spans.jsonl:2 middle of this line"}},
		{name: "torn in the first member", data: good + "\n" + `{"resour`, spans: 1, gaps: []string{"torn-line spans.jsonl:2"}},
		{name: "torn and nothing else", data: good[:150], gaps: []string{"torn-line spans.jsonl:1"}},
		{name: "unreadable in the middle", data: good + "\n" + good[:200] + "\n" + line(strings.Replace(span(""), sid, "1123456789abcdef", 1)) + "\n", spans: 2, gaps: []string{"unreadable-line spans.jsonl:2 not JSON at byte 200"}},
		{name: "unreadable at the end, with a newline", data: good + "\n" + good[:200] + "\n", spans: 1, gaps: []string{"unreadable-line spans.jsonl:2"}},
		{name: "a broken line gives none of its spans", data: good + "\n" + strings.Replace(line(strings.Replace(span(""), sid, "1123456789abcdef", 1), span("")), `]}]}]}`, `],,}]}]}`, 1) + "\n", spans: 1, gaps: []string{"unreadable-line spans.jsonl:2"}},
		{name: "two values on a line", data: good + "\n" + good + good + "\n", spans: 1, gaps: []string{"unreadable-line spans.jsonl:2 more than one JSON value"}},
		{name: "JSON of something else in the middle", data: good + "\n" + `{"batches":[]}` + "\n", spans: 1, gaps: []string{"unreadable-line spans.jsonl:2 without resourceSpans"}},
		{name: "a member of another type", data: good + "\n" + `{"resourceSpans":{"a":1}}` + "\n", spans: 1, gaps: []string{"unreadable-line spans.jsonl:2 want a JSON array"}},
		{name: "not JSON", data: "hello\nworld\n", err: "not OTLP JSON lines: line 1"},
		{name: "binary", data: "\x00\x01\x02\n\xff\xfe", err: "not OTLP JSON lines: line 1"},
		{name: "another JSON lines format", data: `{"header":{"schema":1}}` + "\n" + `{"footer":{}}` + "\n", err: "not OTLP JSON lines: line 1: a JSON object without resourceSpans"},
		{name: "a JSON array", data: `[{"resourceSpans":[]}]`, err: "want a JSON object"},
		{name: "pretty-printed", data: "{\n  \"resourceSpans\": [\n  ]\n}\n", err: "not OTLP JSON lines: line 1"},

		{name: "zero trace id", data: line(strings.Replace(span(""), tid, strings.Repeat("0", 32), 1)), gaps: []string{"malformed-span spans.jsonl:1 trace id is zero"}},
		{name: "zero span id", data: line(strings.Replace(span(""), sid, strings.Repeat("0", 16), 1)), gaps: []string{"malformed-span spans.jsonl:1 span id is zero"}},
		{name: "no ids", data: line(`{"kind":2,` + times + `}`), gaps: []string{"malformed-span spans.jsonl:1 trace id is zero"}},
		{name: "base64 ids", data: line(strings.Replace(span(""), tid, "AWn20vUlkcaU0KGPEd0CAg==", 1)), gaps: []string{"malformed-span spans.jsonl:1 want 32 of hex"}},
		{name: "ids not hex", data: line(strings.Replace(span(""), tid, strings.Repeat("x", 32), 1)), gaps: []string{"malformed-span spans.jsonl:1 not hex"}},
		{name: "end before start", data: line(start + `"startTimeUnixNano":"2000000000","endTimeUnixNano":"1000000000"}`), gaps: []string{"malformed-span spans.jsonl:1 ends 1s before it starts"}},
		{name: "no start", data: line(start + `"endTimeUnixNano":"1000000000"}`), gaps: []string{"malformed-span spans.jsonl:1 no start time"}},
		{name: "no end", data: line(start + `"startTimeUnixNano":"1000000000"}`), gaps: []string{"malformed-span spans.jsonl:1 no end time"}},
		{name: "time out of range", data: line(start + `"startTimeUnixNano":"1000000000","endTimeUnixNano":"18446744073709551615"}`), gaps: []string{"malformed-span spans.jsonl:1 out of range"}},
		{name: "time is a fraction", data: line(start + `"startTimeUnixNano":1.5,"endTimeUnixNano":"2000000000"}`), gaps: []string{"malformed-span spans.jsonl:1 whole number of nanoseconds"}},
		{name: "unknown kind", data: line(strings.Replace(span(""), `"kind":2`, `"kind":"SPAN_KIND_MAGIC"`, 1)), gaps: []string{`malformed-span spans.jsonl:1 unknown kind "SPAN_KIND_MAGIC"`}},
		{name: "unknown status", data: line(span(`,"status":{"code":7}`)), gaps: []string{"malformed-span spans.jsonl:1 unknown status code 7"}},
		{name: "a malformed span among others", data: line(span(""), strings.Replace(span(""), sid, "zz", 1)), spans: 1, gaps: []string{"malformed-span spans.jsonl:1 span id"}},
		{name: "a malformed internal span is not asked for", data: line(strings.Replace(strings.Replace(span(""), `"kind":2`, `"kind":1`, 1), tid, "", 1))},
		{name: "repeated", data: good + "\n" + good, spans: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, err := read(t, tt.data, query.Selection{})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "spans.jsonl") || strings.Contains(err.Error(), "\n") {
					t.Fatalf("error %q, want one line with the file and %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Spans) != tt.spans {
				t.Errorf("%d spans, want %d", len(a.Spans), tt.spans)
			}
			if len(a.Coverage.Gaps) != len(tt.gaps) {
				t.Fatalf("gaps %v, want %q", a.Coverage, tt.gaps)
			}
			for i, g := range a.Coverage.Gaps {
				f := strings.SplitN(tt.gaps[i], " ", 3)
				f = append(f, "")
				if string(g.Reason) != f[0] || g.Object != f[1] || !strings.Contains(g.Detail, f[2]) {
					t.Errorf("gap %v, want %q", g, tt.gaps[i])
				}
			}
		})
	}
}

// TestSpellings reads the same span in every spelling that OTLP/JSON allows.
func TestSpellings(t *testing.T) {
	want, err := read(t, line(`{"traceId":"`+tid+`","spanId":"`+sid+`","parentSpanId":"00000000000000ff","name":"Get","kind":3,`+
		`"startTimeUnixNano":"1000000000","endTimeUnixNano":"2000000001","status":{"code":2,"message":"no"},`+
		`"attributes":[{"key":"n","value":{"intValue":"7"}},{"key":"b","value":{"boolValue":true}},{"key":"d","value":{"doubleValue":0.5}},{"key":"a","value":{"arrayValue":{"values":[{"intValue":"1"},{"stringValue":"x"}]}}}],`+
		`"events":[{"name":"exception","timeUnixNano":"1500000000","attributes":[{"key":"exception.type","value":{"stringValue":"E"}}]}]}`), query.Selection{})
	if err != nil || len(want.Spans) != 1 || len(want.Spans[0].Events) != 1 {
		t.Fatal(want, err)
	}
	for name, data := range map[string]string{
		"numbers for strings, names for numbers": line(`{"traceId":"` + strings.ToUpper(tid) + `","spanId":"` + sid + `","parentSpanId":"00000000000000FF","name":"Get","kind":"SPAN_KIND_CLIENT",` +
			`"startTimeUnixNano":1000000000,"endTimeUnixNano":2000000001,"status":{"code":"STATUS_CODE_ERROR","message":"no"},` +
			`"attributes":[{"key":"n","value":{"intValue":7}},{"key":"b","value":{"boolValue":true}},{"key":"d","value":{"doubleValue":"0.5"}},{"key":"a","value":{"arrayValue":{"values":[{"intValue":1},{"stringValue":"x"}]}}}],` +
			`"events":[{"name":"exception","timeUnixNano":1500000000,"attributes":[{"key":"exception.type","value":{"stringValue":"E"}}]}]}`),
		"original names, unknown fields, late resource": `{"unknown":[1,{"a":"}"}],"resource_spans":[{"schema_url":"x","scope_spans":[{"scope":{"name":"s"},"spans":[` +
			`{"attributes":[{"value":{"int_value":"7"},"key":"n"},{"key":"b","value":{"bool_value":true}},{"key":"d","value":{"double_value":5e-1}},{"key":"a","value":{"array_value":{"values":[{"int_value":"1"},{"string_value":"x"}]}}}],` +
			`"end_time_unix_nano":"2000000001","trace_state":"a=b","dropped_attributes_count":0,"flags":257,"links":[{"traceId":"x"}],"trace_id":"` + tid + `","span_id":"` + sid + `","parent_span_id":"00000000000000ff","kind":3,"name":"Get",` +
			`"events":[{"time_unix_nano":"1500000000","name":"exception","attributes":[{"key":"exception.type","value":{"string_value":"E"}}],"dropped_attributes_count":1}],` +
			`"status":{"message":"no","code":2},"start_time_unix_nano":"1000000000"}]}],"resource":{"attributes":[{"key":"service.name","value":{"string_value":"cart"}}]}}]}`,
		"escapes": strings.NewReplacer(`"Get"`, `"\u0047\u0065t"`, `"cart"`, `"c\u0061rt"`, `"spans"`, `"sp\u0061ns"`).Replace(
			line(`{"traceId":"` + tid + `","spanId":"` + sid + `","parentSpanId":"00000000000000ff","name":"Get","kind":3,` +
				`"startTimeUnixNano":"1000000000","endTimeUnixNano":"2000000001","status":{"code":2,"message":"no"},` +
				`"attributes":[{"key":"n","value":{"intValue":"7"}},{"key":"b","value":{"boolValue":true}},{"key":"d","value":{"doubleValue":0.5}},{"key":"a","value":{"arrayValue":{"values":[{"intValue":"1"},{"stringValue":"x"}]}}},{"key":"n","value":{"intValue":"8"}}],` +
				`"events":[{"name":"exception","timeUnixNano":"1500000000","attributes":[{"key":"exception.type","value":{"stringValue":"E"}}]}]}`)),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(t, data, query.Selection{})
			if err != nil || !got.Coverage.Complete() {
				t.Fatal(err, got)
			}
			if !reflect.DeepEqual(got.Spans, want.Spans) {
				t.Errorf("got  %+v\nwant %+v", got.Spans, want.Spans)
			}
		})
	}
}

func TestSelection(t *testing.T) {
	data := line(span(""), strings.Replace(span(`,"status":{"code":2}`), sid, "1123456789abcdef", 1)) + "\n" +
		strings.ReplaceAll(line(strings.Replace(span(""), sid, "2123456789abcdef", 1)), `"cart"`, `"front"`)
	for _, tt := range []struct {
		sel  query.Selection
		want int
	}{
		{query.Selection{}, 3},
		{query.Selection{ErrorsOnly: true}, 1},
		{query.Selection{Services: []string{"front"}}, 1},
		{query.Selection{Services: []string{"cart", "front"}}, 3},
		{query.Selection{Services: []string{"front"}, ErrorsOnly: true}, 0},
	} {
		a, err := read(t, data, tt.sel)
		if err != nil || len(a.Spans) != tt.want || !a.Coverage.Complete() {
			t.Errorf("%+v: %d spans, %v, %v; want %d", tt.sel, len(a.Spans), a.Coverage, err, tt.want)
		}
	}
}

// TestManyGaps: a file of rubbish gets some gaps with their lines and one that counts the rest.
func TestManyGaps(t *testing.T) {
	a, err := read(t, line(span(""))+"\n"+strings.Repeat("{\n", 1000), query.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(a.Coverage.Gaps); n != maxNamed+1 || a.Coverage.Gaps[n-1].Detail != "and 990 more" {
		t.Errorf("%d gaps, the last %v; want %d and one of 990 more", n, a.Coverage.Gaps[n-1], maxNamed)
	}
}

// TestDuplicates: of repetitions that differ the error is kept.
func TestDuplicates(t *testing.T) {
	bad := span(`,"status":{"code":2}`)
	for _, data := range []string{line(span(""), bad, span("")), line(bad, span(""), span(""))} {
		a, err := read(t, data, query.Selection{})
		if err != nil || len(a.Spans) != 1 || a.Spans[0].Status != roll.StatusError || a.Duplicates != 2 {
			t.Errorf("%+v, %v; want one error span and 2 duplicates", a, err)
		}
	}
}

// TestLongLine: a line longer than any buffer is read.
func TestLongLine(t *testing.T) {
	pad := strings.Repeat("x", 3<<20)
	a, err := read(t, line(span(`,"attributes":[{"key":"pad","value":{"stringValue":"`+pad+`"}}]`))+"\n"+line(strings.Replace(span(""), sid, "1123456789abcdef", 1)), query.Selection{})
	if err != nil || len(a.Spans) != 2 || a.Spans[1].Attributes.First("pad") != pad {
		t.Fatalf("%v, %d spans", err, len(a.Spans))
	}
}

// TestMemory: what is kept grows with the spans in the ranges, not with the file.
func TestMemory(t *testing.T) {
	small, big := synthetic(20_000), synthetic(80_000)
	req := query.Request{Ranges: []roll.Range{{Start: t0, End: t0.Add(time.Second)}}}
	cost := func(data []byte) uint64 {
		r := testing.Benchmark(func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := New(source(data)).Spans(context.Background(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
		return uint64(r.AllocedBytesPerOp())
	}
	if s, b := cost(small), cost(big); b > s+s/2 {
		t.Errorf("four times the file allocates %d bytes instead of %d", b, s)
	}
}

func TestCollectorFile(t *testing.T) {
	f, err := Open(filepath.Join("testdata", "collector.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := f.Spans(t.Context(), query.Request{Ranges: forever})
	if err != nil || !a.Coverage.Complete() || len(a.Spans) == 0 {
		t.Fatalf("%v, %v", a, err)
	}
	s := a.Spans[0]
	if s.Resource.Service() != "internal-api" || s.Attributes.First("server.address") != "10.88.0.11" || s.Attributes.First("server.port") != "9443" ||
		s.Name != "space.v1.ClusterApi/Heartbeat" || s.Kind != roll.KindServer || s.Duration != 42799954*time.Nanosecond {
		t.Errorf("%+v %+v", s, s.Resource)
	}
	if a.Spans[0].Resource != a.Spans[1].Resource {
		t.Error("spans of one resource have two")
	}
}

func TestOpen(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "absent.jsonl")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("a folder was opened")
	}
	f := New(Source{Name: "gone", Open: func() (io.ReadCloser, error) { return nil, os.ErrNotExist }})
	if _, err := f.Spans(t.Context(), query.Request{Ranges: forever}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a file that went away: %v", err)
	}
}

// FuzzLine: no input panics or hangs, and what protobuf can say reads the same from JSON as from protobuf.
func FuzzLine(f *testing.F) {
	f.Add([]byte(line(span(""))))
	f.Add([]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"k","value":{"kvlistValue":{"values":[{"key":"a","value":{"bytesValue":"AAE="}}]}}}]}]}]}]}`))
	for l := range bytes.Lines(synthetic(3)) {
		f.Add(l)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.IndexByte(data, '\n') >= 0 {
			return
		}
		a, err := New(source(data)).Spans(t.Context(), query.Request{Ranges: forever})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of more than one line: %q", err)
			}
			return
		}
		for _, s := range a.Spans {
			if s.TraceID.IsZero() || s.SpanID.IsZero() || s.Duration < 0 || s.Resource == nil {
				t.Errorf("a span that cannot be placed: %+v", s)
			}
		}
		// The same message through protobuf. ProtoJSON refuses more than we do and wants ids in base64.
		var td tracepb.TracesData
		if protojson.Unmarshal(data, &td) != nil || bytes.Contains(data, []byte(`"traceId"`)) {
			return
		}
		again, err := New(source(marshal(t, td.GetResourceSpans()...))).Spans(t.Context(), query.Request{Ranges: forever})
		if err != nil {
			t.Fatalf("what protojson wrote is not read: %v", err)
		}
		var want []roll.Span
		for _, rs := range td.GetResourceSpans() {
			otlpspan.Each(rs, func(sp *roll.Span, bad error) {
				if bad == nil && (query.Selection{}).Matches(sp) {
					want = append(want, *sp)
				}
			})
		}
		if len(again.Spans) > len(want) {
			t.Errorf("%d spans from JSON, %d from protobuf", len(again.Spans), len(want))
		}
	})
}

// TestSameAsProtobuf reads spans both ways, attribute by attribute.
func TestSameAsProtobuf(t *testing.T) {
	var td tracepb.TracesData
	if err := protojson.Unmarshal([]byte(`{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"c\"a☃"}}]},
		"scopeSpans":[{"spans":[{"traceId":"AWn20vUlkcaU0KGPEd0CAg==","spanId":"u1ADmu1FwDc=","parentSpanId":"v3ImT0+QH+g=","name":"n","kind":2,
		"startTimeUnixNano":"1796093240602384601","endTimeUnixNano":"1796093240615984601","status":{"code":2,"message":"m"},"attributes":[
		{"key":"i","value":{"intValue":"-9223372036854775808"}},{"key":"d","value":{"doubleValue":1e300}},{"key":"nan","value":{"doubleValue":"NaN"}},
		{"key":"inf","value":{"doubleValue":"-Infinity"}},{"key":"whole","value":{"doubleValue":1000000}},{"key":"tiny","value":{"doubleValue":1e-9}},
		{"key":"b","value":{"boolValue":false}},{"key":"raw","value":{"bytesValue":"AAH/"}},{"key":"none"},{"key":"empty","value":{}},
		{"key":"list","value":{"arrayValue":{"values":[{"stringValue":"a\"\n"},{"doubleValue":"NaN"},{},{"arrayValue":{}}]}}},
		{"key":"map","value":{"kvlistValue":{"values":[{"key":"k☃","value":{"boolValue":true}},{"key":"x","value":{"bytesValue":"AA=="}}]}}}],
		"events":[{"name":"late","timeUnixNano":"1796093240602384700"},{"name":"early","timeUnixNano":"1796093240602384650"}]}]}]}]}`), &td); err != nil {
		t.Fatal(err)
	}
	var want []roll.Span
	otlpspan.Each(td.GetResourceSpans()[0], func(sp *roll.Span, bad error) {
		if bad != nil {
			t.Error(bad)
		}
		want = append(want, *sp)
	})
	a, err := New(source(marshal(t, td.GetResourceSpans()...))).Spans(t.Context(), query.Request{Ranges: forever})
	if err != nil || !a.Coverage.Complete() || !reflect.DeepEqual(a.Spans, want) {
		t.Errorf("%v, %v\nJSON     %+v\nprotobuf %+v", err, a, a.Spans, want)
	}
	for k, v := range map[string]string{
		"i": "-9223372036854775808", "nan": "NaN", "inf": "-Infinity", "whole": "1000000", "tiny": "1e-09", "b": "false", "raw": "AAH/", "none": "", "empty": "",
		"list": `["a\"\n","NaN",null,[]]`, "map": `{"k☃":true,"x":"AA=="}`,
	} {
		if got, ok := want[0].Attributes.Get(k); !ok || got != v {
			t.Errorf("%s is %q, want %q", k, got, v)
		}
	}
	if names := []string{want[0].Events[0].Name, want[0].Events[1].Name}; !slices.Equal(names, []string{"early", "late"}) {
		t.Errorf("events %v, want them in order of time", names)
	}
}

func ExampleFiles_CaughtUp() {
	line, gaps := New().CaughtUp(context.Background(), t0)
	fmt.Println(line, len(gaps))
	// Output: a file holds what it holds 0
}
