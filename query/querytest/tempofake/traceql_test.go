package tempofake

import (
	bytesorder "encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
)

// TestQueryErrors holds what Tempo 3.0.3 says of each query.
func TestQueryErrors(t *testing.T) {
	t.Parallel()
	cases := []struct{ query, want string }{
		{`{ status = "error" `, "parse error at line 1, col 20: syntax error: unexpected $end"},
		{`{`, "parse error at line 1, col 2: syntax error: unexpected $end"},
		{`}`, "parse error at line 1, col 1: syntax error: unexpected }"},
		{`{ foo = 3 }`, "parse error at line 1, col 3: unknown identifier: foo"},
		{`{ .a = }`, "parse error at line 1, col 8: syntax error: unexpected }"},
		{`{ .a == 3 }`, "parse error at line 1, col 7: syntax error: unexpected ="},
		{`{} | foo()`, "parse error at line 1, col 6: syntax error: unexpected IDENTIFIER"},
		{`{} | select()`, "parse error at line 1, col 13: syntax error: unexpected )"},
		{`{} | by()`, "parse error at line 1, col 9: syntax error: unexpected )"},
		{`{} select(name)`, "parse error at line 1, col 4: syntax error: unexpected select, expecting with"},
		{`{} extra`, "parse error at line 1, col 4: syntax error: unexpected IDENTIFIER, expecting with"},
		{`{ "abc`, "parse error at line 1, col 3: literal not terminated"},
		{`{ .a = 3s && }`, "parse error at line 1, col 14: syntax error: unexpected }"},
		{`{ kind = foo }`, "parse error at line 1, col 10: unknown identifier: foo"},
		{`{ status = ok || 3 }`, "binary operations must operate on the same type: (status = ok) || 3"},
		{`{ 3 }`, "span filter field expressions must resolve to a boolean: { 3 }"},
		{`{ name }`, "span filter field expressions must resolve to a boolean: { name }"},
		{`{ span:foo = 3}`, "parse error at line 1, col 8: syntax error: unexpected IDENTIFIER"},
		{`{ span:start > 3 }`, "parse error at line 1, col 8: syntax error: unexpected IDENTIFIER"},
		{`{ name =~ "(" }`, "invalid regex: `(`"},
		{`{ .a = 1 } | by(1)`, "grouping field expressions must reference the span: by(1)"},
		{`{} | count_over_time(3)`, "parse error at line 1, col 22: syntax error: unexpected INTEGER, expecting )"},
		{`{ duration = "3" }`, "binary operations must operate on the same type: duration = `3`"},
		{`{ name = nil }`, "name=nil is not valid because intrinsics cannot be nil"},
		{
			`{ resource.service.name = nil }`,
			"resource.service.name=nil is not valid because resource.service.name cannot be nil",
		},
		{`{ name =~ .a }`, "invalid type for =~ or !~: .a"},
		{`{ .i in [5,7] }`, "parse error at line 1, col 6: syntax error: unexpected IDENTIFIER"},
		{`{ .i = [5,7] }`, "parse error at line 1, col 8: unknown identifier: ["},
		{`{ name = "a\q" }`, "parse error at line 1, col 10: invalid char escape"},
		{`{ status > ok }`, "illegal operation for the given types: status > ok"},
		{`{ !name }`, "illegal operation for the given type: !name"},
		{`{ .a =~ 3 }`, "illegal operation for the given types: .a =~ 3"},
		{`{ span:kind = "x" }`, "binary operations must operate on the same type: kind = `x`"},
		{`{ parent = nil }`, "intrinsic (parent) not yet supported"},
		{`{ kind = server && (name = "x" }`, "parse error at line 1, col 32: syntax error: unexpected }"},
		{`{ } | { `, "parse error at line 1, col 9: syntax error: unexpected $end"},
		{"", "parse error : syntax error: unexpected $end"},
		{`{ .a + 1 = 3 }`, "tempofake: arithmetic is not supported"},
		{`{} >> {}`, "tempofake: a structural operator is not supported"},
		{`{} | quantile_over_time(duration, .9)`, "tempofake: quantile_over_time is not supported"},
		{`{` + strings.Repeat("(", 5000), "tempofake: nesting deeper than 1000 is not supported"},
	}
	for _, c := range cases {
		_, err := parseQuery(c.query)
		if err == nil || err.Error() != c.want {
			t.Errorf("%.60s\n got %v\nwant %s", c.query, err, c.want)
		}
	}
}

// testFragment is a call with its server's span and a span inside that.
func testFragment() *fragment {
	num := func(k string, n int64) *commonpb.KeyValue {
		return &commonpb.KeyValue{Key: k, Value: value{typ: typeInt, n: n}.proto()}
	}
	client := makeSpan(trace(1), 1, t0, 50*time.Millisecond)
	client.Name, client.Kind = "Call", tracepb.Span_SPAN_KIND_CLIENT
	client.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR, Message: "boom"}
	client.Attributes = []*commonpb.KeyValue{
		attr("x", "span-x"), attr("dup", "S"), attr("only", "c"), num("i", 5),
		{Key: "f", Value: value{typ: typeFloat, f: 1.5}.proto()},
		{Key: "b", Value: boolean(true).proto()},
	}
	client.Events = []*tracepb.Span_Event{
		{TimeUnixNano: client.StartTimeUnixNano + 1e7, Name: "exception"},
		{TimeUnixNano: client.StartTimeUnixNano + 2e7, Name: "second"},
	}
	for i, e := range client.Events {
		e.Attributes = []*commonpb.KeyValue{attr("exception.type", []string{"T1", "T2"}[i])}
	}
	server := makeSpan(trace(1), 2, t0, 30*time.Millisecond)
	server.Name, server.ParentSpanId = "Call", client.SpanId
	server.Attributes = []*commonpb.KeyValue{num("i", 7)}
	inner := makeSpan(trace(1), 3, t0, 10*time.Millisecond)
	inner.Name, inner.Kind, inner.ParentSpanId = "inner", tracepb.Span_SPAN_KIND_INTERNAL, server.SpanId
	inner.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_OK}
	inner.Attributes = []*commonpb.KeyValue{attr("i", "str")}
	rc := batch("client", client)
	rc.Resource.Attributes = append(rc.Resource.Attributes, attr("x", "res-x"), attr("dup", "R"))
	rs := batch("server", server, inner)
	var spans []*span
	for _, rs := range []*tracepb.ResourceSpans{rc, rs} {
		for _, pb := range rs.GetScopeSpans()[0].GetSpans() {
			spans = append(spans, &span{pb: pb, resource: rs.GetResource(), group: rs, sub: rs.GetScopeSpans()[0]})
		}
	}
	return newFragment(traceID(trace(1)), spans)
}

// TestQueryMatches is what Tempo 3.0.3 finds in such a trace: the last digit of each span's id, a bar between span
// sets.
func TestQueryMatches(t *testing.T) {
	t.Parallel()
	f := testFragment()
	cases := []struct{ query, want string }{
		{`{}`, "123"},
		{`{ true }`, "123"},
		{`{ false }`, ""},
		{`{ kind = client || status = ok }`, "13"},
		{`{ (kind = client || kind = server) && status = error }`, "1"},
		{`{ span:kind = server && status != error && statusMessage = "" }`, "2"},
		{`{ !(span.only = "c") }`, ""},
		{`{ !(span.only = "c") || name = "zz" }`, ""},
		{`{ span.only != "c" }`, ""},
		{`{ span.only != nil }`, "1"},
		{`{ span.only = nil }`, "23"},
		{`{ span.only !~ "d" }`, "1"},
		{`{ .i != 5 }`, "2"},
		{`{ .i > 5 }`, "2"},
		{`{ .i < 6 || .i = "str" }`, "13"},
		{`{ .i = 5.0 }`, ""},
		{`{ span.f > 1 }`, ""},
		{`{ span.f > 1.0 }`, "1"},
		{`{ span.b }`, "1"},
		{`{ !span.b }`, ""},
		{`{ span.b != false }`, "1"},
		{`{ .dup = "R" }`, ""},
		{`{ .dup = "S" }`, "1"},
		{`{ resource.dup = "R" }`, "1"},
		{`{ name =~ "al" }`, ""},
		{`{ name =~ ".*al.*" }`, "12"},
		{`{ name > "D" }`, "3"},
		{`{ duration > 20ms && duration <= 50ms }`, "12"},
		{`{ duration > -3 }`, "123"},
		{`{ trace:id = "a0000000000000000000000000000001" }`, "123"},
		{`{ span:id = "0101010101010102" }`, "2"},
		{`{ nestedSetParent < 0 }`, "1"},
		{`{ trace:rootService = "client" && trace:duration > 40ms }`, "123"},
		{`{ event.exception.type = "T1" }`, "1"},
		{`{ event:name = "second" }`, "1"},
		{`{ resource.service.name =~ "(?i)SERVER" && kind != server }`, "3"},
		{`{ kind = server } && { kind = client }`, "21"},
		{`{ kind = server } && { kind = producer }`, ""},
		{`{ kind = server } || { kind = producer }`, "2"},
		{`{ name = "Call" } | { status = error }`, "1"},
		{`{} | by(status)`, "1|2|3"},
		{`{} | by(resource.service.name) | by(name)`, "1|2|3"},
		{`{} | by(span.only)`, "1|23"},
		{`{} | count() > 2`, "123"},
		{`{} | by(name) | count() > 1`, "12"},
		{`{} | count_over_time() by (kind)`, "123"},
		{"{ name = `Call` } | select(kind) with (most_recent=true)", "12"},
	}
	for _, c := range cases {
		q, err := parseQuery(c.query)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		var sets []string
		for _, set := range q.run(f) {
			var ids strings.Builder
			for _, sp := range set.spans {
				ids.WriteByte('0' + sp.pb.GetSpanId()[7])
			}
			sets = append(sets, ids.String())
		}
		if got := strings.Join(sets, "|"); got != c.want {
			t.Errorf("%s: %q, want %q", c.query, got, c.want)
		}
	}
}

// TestAttributes is what an answer carries of the client's span: Tempo reads no value that it was not asked for.
func TestAttributes(t *testing.T) {
	t.Parallel()
	f := testFragment()
	cases := []struct{ query, name, want string }{
		{`{}`, "", ""},
		{`{ name = "Call" }`, "Call", ""},
		{`{ kind = server || status = error }`, "", "status=error"},
		{`{ kind = server || status = error } | select(kind)`, "", "kind=client,status=error"},
		{`{ .dup = "S" }`, "", "dup=`S`"},
		{`{ .dup = "S" } | by(.dup)`, "", "dup=`R`,dup=`S`"},
		{`{} | select(span.x, resource.x)`, "", "x=`res-x`,x=`span-x`"},
		{`{ resource.dup = "R" } | select(.dup)`, "", "dup=`R`,dup=`S`"},
		{`{ event.exception.type = "T1" }`, "", "exception.type=`T1`"},
		{
			`{} | select(event.exception.type, event:name, event:timeSinceStart)`, "",
			"event:name=`second`,event:timeSinceStart=`20ms`,exception.type=`T2`",
		},
		{
			`{} | select(resource.k8s.pod.name, resource.k8s.pod.uid, span.http.url, span.nope)`, "",
			"http.url=`nil`,k8s.pod.name=`nil`",
		},
		{`{ span.nope = nil }`, "", "nope=`nil`"},
		{
			`{} | select(span:id, trace:id, duration, rootName, span:childCount, span:parentID)`, "",
			"span:parentID=`0000000000000000`",
		},
		{`{} | select(span.i, span.f, span.b, statusMessage)`, "", "b=true,f=1.5,i=5,statusMessage=`boom`"},
	}
	for _, c := range cases {
		q, err := parseQuery(c.query)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		name, attrs := q.describe(f, f.spans[0])
		got := strings.ReplaceAll(attrText(attrs), "status=`error`", "status=error")
		got = strings.ReplaceAll(got, "kind=`client`", "kind=client")
		if name != c.name || got != c.want {
			t.Errorf("%s: %q %s, want %q %s", c.query, name, got, c.name, c.want)
		}
	}
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{
		`{ (kind=client || kind=server) && status=error && resource.service.name="a" } | by(span:id) | select(name, .x)`,
		`{ !(span."a b" =~ "x.*") } && { 3s <= duration } | count() > 3`,
		`{} | rate() by (name) with (a=1, most_recent=true)`,
		"{ `a` = .b }\n", `{ .a = -1.5 }`, `{ "\n\t\"" != name }`, `{ (((`, `{ event:name = nil }`,
	} {
		f.Add(s)
	}
	fr := testFragment()
	f.Fuzz(func(t *testing.T, text string) {
		q, err := parseQuery(text)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		seen := map[*span]bool{}
		for _, set := range q.run(fr) {
			if len(set.spans) == 0 {
				t.Error("an empty span set")
			}
			for _, sp := range set.spans {
				if seen[sp] || !slices.Contains(fr.spans, sp) {
					t.Errorf("span %s twice, or from nowhere", sp.hexID())
				}
				seen[sp] = true
				q.describe(fr, sp)
			}
		}
	})
}

// bigServer holds traces of 10 spans, 1 in 50 of which is an error.
func bigServer(b *testing.B, spans int) (*Server, *Clock) {
	b.Helper()
	clock := NewClock(t0)
	s := start(b, Options{Now: clock.Now, MaxLiveTraces: -1})
	for i := range spans / 10 {
		id := make([]byte, 16)
		bytesorder.BigEndian.PutUint64(id[8:], uint64(i)+1)
		var all []*tracepb.Span
		for j := range byte(10) {
			sp := makeSpan(id, j+1, t0.Add(-time.Second), time.Millisecond)
			sp.Status = &tracepb.Status{}
			if (i*10+int(j))%50 == 0 {
				sp.Status.Code = tracepb.Status_STATUS_CODE_ERROR
			}
			sp.Attributes = []*commonpb.KeyValue{
				attr("rpc.system", "grpc"), attr("rpc.method", "Get"), attr("rpc.service", "Api"),
			}
			all = append(all, sp)
		}
		s.Push(batch("api", all...))
	}
	clock.Advance(time.Minute)
	return s, clock
}

func BenchmarkSearch(b *testing.B) {
	for _, c := range []struct {
		name  string
		spans int
		query string
	}{
		{"20k-all", 20_000, `{ kind = client || kind = server } | select(name, kind, status, resource.service.name)`},
		{
			"200k-errors", 200_000,
			`{ (kind = client || kind = server) && status = error } | by(span:id) | select(name, statusMessage)`,
		},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, clock := bigServer(b, c.spans)
			now := clock.Now()
			for b.Loop() {
				r, err := s.searchRequest(searchParams{
					query: c.query, start: t0.Unix() - 60, end: t0.Unix() + 10, hasStart: true, hasEnd: true, limit: 262144, spss: 100,
				}, now)
				if err != nil {
					b.Fatal(err)
				}
				found := 0
				err = s.search(b.Context(), []*tenant{s.tenant(singleTenant, now)}, r, now,
					func(co *combiner, _ *tempopb.SearchMetrics, _ bool) error { found += len(co.take(true)); return nil })
				if err != nil || found == 0 {
					b.Fatal(found, err)
				}
			}
		})
	}
}
