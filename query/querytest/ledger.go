package querytest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/roll"
)

// The range whose edges are probed, from the base: not whole seconds.
const (
	edgeFrom = 10*time.Second + 123456789
	edgeTo   = 12*time.Second + 987654321
)

// entry is one span of the ledger: as it must come back, and as it goes in.
type entry struct {
	want  roll.Span
	res   []attribute
	attrs []attribute
	batch int
	twice bool
}

// attribute is an OTLP value and the text that it must become.
type attribute struct {
	key   string
	value *commonpb.AnyValue
	text  string
}

func str(key, s string) attribute {
	return attribute{key, &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}, s}
}

func num(key string, n int64) attribute {
	return attribute{key, &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: n}}, fmt.Sprint(n)}
}

type ledger struct {
	base    time.Time
	run     string
	rnd     *rand.Rand
	entries []*entry
	odd     []string // service names that are hard to quote
	traces  map[roll.TraceID]bool
	seen    map[uint64]bool
}

// newLedger writes the ledger. Ids and service names depend on base, so that two runs against one server do not meet.
func newLedger(base time.Time) *ledger {
	seed := uint64(base.UnixNano())
	l := &ledger{
		base: base, run: fmt.Sprintf("%x", seed), rnd: rand.New(rand.NewPCG(seed, 1)),
		traces: map[roll.TraceID]bool{}, seen: map[uint64]bool{},
	}
	l.calls()
	l.big()
	l.split()
	l.edges()
	l.oddServices()
	l.oddAttributes()
	l.rest()
	return l
}

func (l *ledger) service(name string) string { return "rt-" + l.run + "-" + name }

func (l *ledger) traceID() (id roll.TraceID) {
	binary.BigEndian.PutUint64(id[:], l.rnd.Uint64())
	binary.BigEndian.PutUint64(id[8:], l.rnd.Uint64())
	return id
}

func (l *ledger) spanID() (id roll.SpanID) {
	binary.BigEndian.PutUint64(id[:], l.rnd.Uint64())
	return id
}

// add enters a span of a service that starts at an offset from the base.
func (l *ledger) add(
	trace roll.TraceID, service string, kind roll.SpanKind, at, d time.Duration, change ...func(*entry),
) *entry {
	e := &entry{
		want: roll.Span{
			TraceID: trace, SpanID: l.spanID(), Kind: kind, Name: "Shop/Get",
			Start: l.base.Add(at).UTC(), Duration: d, Resource: &roll.Resource{},
		},
		res: []attribute{
			str("service.name", service), str("k8s.pod.name", service+"-0"), str("k8s.namespace.name", "shop"),
			str("k8s.pod.uid", "6f1e0b52-0000-4000-8000-000000000001"),
		},
		attrs: []attribute{str("rpc.system", "grpc"), num("rpc.grpc.status_code", 0)},
	}
	for _, f := range change {
		f(e)
	}
	l.traces[e.want.TraceID] = true
	l.entries = append(l.entries, e)
	return e
}

func under(parent *entry) func(*entry) {
	return func(e *entry) { e.want.ParentID = parent.want.SpanID }
}

func in(batch int) func(*entry) { return func(e *entry) { e.batch = batch } }

func failed(e *entry) {
	e.want.Status, e.want.StatusMessage = roll.StatusError, "connection reset"
	e.attrs = append(e.attrs, str("error.type", "14"))
	e.want.Events = []roll.SpanEvent{{
		Name: "exception", Time: e.want.Start.Add(e.want.Duration),
		Attributes: roll.Attributes{{Key: "exception.message", Value: "read: connection reset by peer"}},
	}}
}

func ok(e *entry) { e.want.Status = roll.StatusOK }

// calls is ordinary traffic: more traces than the 20 of a search without a limit.
func (l *ledger) calls() {
	for i := range 120 {
		at := time.Duration(i) * 450 * time.Millisecond
		var change []func(*entry)
		switch {
		case i%17 == 0:
			change = append(change, failed)
		case i%5 == 0:
			change = append(change, ok)
		}
		id := l.traceID()
		root := l.add(id, l.service("front"), roll.KindServer, at, 30*time.Millisecond)
		client := l.add(id, l.service("front"), roll.KindClient, at+time.Millisecond, 20*time.Millisecond,
			append(change, under(root))...)
		l.add(id, l.service("cart"), roll.KindServer, at+2*time.Millisecond, 10*time.Millisecond,
			append(change, under(client))...)
	}
}

// big is one trace of more spans than a span set may have (100).
func (l *ledger) big() {
	id := l.traceID()
	root := l.add(id, l.service("big"), roll.KindServer, 5*time.Second, 5*time.Second)
	for i := range 250 {
		at := 5*time.Second + time.Duration(i)*10*time.Millisecond
		e := l.add(id, l.service("big"), roll.KindClient, at, time.Millisecond, under(root))
		if i == 240 {
			failed(e)
		}
	}
}

// split are traces whose spans come in two batches, so that Tempo stores each in fragments (grafana/tempo#2513, #5370).
func (l *ledger) split() {
	for n := range 5 {
		id := l.traceID()
		for i := range 30 {
			// The second batch is the smaller: it is the one that Tempo drops.
			at := 15*time.Second + time.Duration(n*30+i)*time.Millisecond
			e := l.add(id, l.service("split"), roll.KindClient, at, time.Millisecond, in(i/20))
			if i%3 == 0 {
				failed(e)
			}
		}
	}
}

// edges are spans that touch the ends of a range.
func (l *ledger) edges() {
	for _, p := range [][2]time.Duration{
		{edgeFrom - 50, 49},                 // ends before
		{edgeFrom - 50, 50},                 // ends at the very start: one moment inside
		{edgeFrom, 0},                       // a moment at the start
		{edgeFrom + 1, 0},                   // one nanosecond on
		{edgeTo - 1, 0},                     // the last moment
		{edgeTo, 0},                         // the end is not inside
		{edgeTo, 100},                       // begins at the end
		{edgeFrom - 1, edgeTo - edgeFrom},   // covers but for the last
		{edgeFrom - 50, 2*time.Second + 99}, // covers
		{edgeFrom - 9*time.Second, 8 * time.Second},
	} {
		l.add(l.traceID(), l.service("edges"), roll.KindServer, p[0], p[1])
	}
}

// oddServices are names that break naive quoting.
func (l *ledger) oddServices() {
	for i, s := range []string{
		`we"ird`, `back\slash`, "back`tick", `C:\new\"x"`, "tab\there", "line\nfeed", "ünï ☃ 服务", `a && status = ok }`,
		`$1 %22 + &x=1`, `'single'`, "nul\x00l", "\u2028", " spaces ", `\`,
	} {
		name := l.service(s)
		l.odd = append(l.odd, name)
		at := 20*time.Second + time.Duration(i)*100*time.Millisecond
		root := l.add(l.traceID(), name, roll.KindServer, at, time.Millisecond)
		l.add(root.want.TraceID, name, roll.KindClient, at, time.Millisecond, under(root), failed)
	}
	// Names that mean something to some backend.
	for _, s := range []string{"nil", "true"} {
		l.odd = append(l.odd, s)
		l.add(l.traceID(), s, roll.KindServer, 22*time.Second, time.Millisecond, failed, func(e *entry) {
			e.res = append(e.res, str("service.namespace", l.service("odd")))
		})
	}
	l.add(l.traceID(), "", roll.KindServer, 23*time.Second, time.Millisecond, func(e *entry) { e.res = nil })
}

func (l *ledger) oddAttributes() {
	name := l.service("attributes")
	values := []*commonpb.AnyValue{str("", `a "b"`).value, str("", "☃").value}
	array := &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: values}}}
	l.add(l.traceID(), name, roll.KindClient, 30*time.Second, time.Millisecond, failed, func(e *entry) {
		e.attrs = append(e.attrs,
			str("quote\"d.key", `va"l\ue`), str("unicode.☃", "服务\n\t"), str("empty", ""), str("nil", "nil"),
			num("big", -1<<53-1), num("http.response.status_code", 503),
			attribute{"bool", &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: true}}, "true"},
			attribute{"double", &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: 0.25}}, "0.25"},
			attribute{"array", array, `["a \"b\"","☃"]`},
		)
		e.want.StatusMessage = "say \"no\"\nnow ☃"
		e.want.Name = `/a"b\c ☃`
		e.want.Events = append(e.want.Events, roll.SpanEvent{Name: "retry", Time: e.want.Start.Add(7)})
	})
	// The same key in both scopes: which is which?
	both := func(e *entry) {
		e.res = append(e.res, str("server.address", "resource"), str("error.type", "resource"))
		e.attrs = append(e.attrs, str("service.name", "span"), str("k8s.pod.name", "span"),
			str("server.address", "10.0.0.7"), str("host.name", "span"))
	}
	l.add(l.traceID(), name, roll.KindClient, 31*time.Second, time.Millisecond, both)
	l.add(l.traceID(), name, roll.KindClient, 32*time.Second, time.Millisecond, both, failed, func(e *entry) {
		e.attrs = slices.DeleteFunc(e.attrs, func(a attribute) bool { return a.key == "error.type" })
	})
	// Every attribute that is promised, at once.
	l.add(l.traceID(), name, roll.KindServer, 33*time.Second, time.Millisecond, ok, func(e *entry) {
		e.res, e.attrs = nil, nil
		for i, k := range query.ResourceKeys {
			e.res = append(e.res, str(k, fmt.Sprintf("r%d", i)))
		}
		e.res[0] = str("service.name", name)
		for i, k := range query.SpanKeys {
			if strings.HasSuffix(k, "status_code") || strings.HasSuffix(k, "count") {
				e.attrs = append(e.attrs, num(k, int64(i))) // Tempo has a column of integers for some of these
				continue
			}
			e.attrs = append(e.attrs, str(k, fmt.Sprintf("s%d", i)))
		}
	})
	// None at all but the name of the service.
	l.add(l.traceID(), name, roll.KindServer, 34*time.Second, 0, func(e *entry) { e.res, e.attrs = e.res[:1], nil })
}

func (l *ledger) rest() {
	// A span that covers everything and more.
	l.add(l.traceID(), l.service("long"), roll.KindServer, -20*time.Second, 75*time.Second)
	// A trace with spans before and after a range, and none inside.
	id := l.traceID()
	l.add(id, l.service("apart"), roll.KindServer, 25*time.Second, time.Millisecond)
	l.add(id, l.service("apart"), roll.KindServer, 35*time.Second, time.Millisecond)
	// Spans that were exported twice, in one batch and in two.
	for i := range 6 {
		at := 37*time.Second + time.Duration(i)*time.Millisecond
		l.add(l.traceID(), l.service("twice"), roll.KindServer, at, time.Millisecond,
			func(e *entry) { e.twice = true }, in(i%2))
	}
	// Ids with leading zeros (Tempo drops those of a trace id in a search).
	for i := range 8 {
		e := l.add(l.traceID(), l.service("zeros"), roll.KindServer, 38*time.Second, time.Millisecond, func(e *entry) {
			clear(e.want.TraceID[:i+1])
			clear(e.want.SpanID[:min(i, 6)])
		})
		l.add(e.want.TraceID, l.service("zeros"), roll.KindClient, 38*time.Second, time.Millisecond, under(e), failed)
	}
	// The other kinds are never asked for.
	for kind := roll.KindUnspecified; kind <= roll.KindConsumer; kind++ {
		l.add(l.traceID(), l.service("kinds"), kind, 39*time.Second, time.Millisecond)
	}
	l.add(l.traceID(), l.service("kinds"), roll.KindInternal, 39*time.Second, time.Millisecond, failed)
}

// batches is the ledger as it goes in.
func (l *ledger) batches() [][]*tracepb.ResourceSpans {
	out := make([][]*tracepb.ResourceSpans, 2)
	for _, e := range l.entries {
		rs := e.proto()
		out[e.batch] = append(out[e.batch], rs)
		if e.twice {
			out[e.batch] = append(out[e.batch], rs)
		}
	}
	return out
}

func keyValues(as []attribute) []*commonpb.KeyValue {
	var out []*commonpb.KeyValue
	for _, a := range as {
		out = append(out, &commonpb.KeyValue{Key: a.key, Value: a.value})
	}
	return out
}

func texts(as []attribute) (out roll.Attributes) {
	for _, a := range as {
		out = append(out, roll.Attribute{Key: a.key, Value: a.text})
	}
	return out
}

func (e *entry) proto() *tracepb.ResourceSpans {
	w := &e.want
	s := &tracepb.Span{
		TraceId: w.TraceID[:], SpanId: w.SpanID[:], Name: w.Name, Kind: tracepb.Span_SpanKind(w.Kind),
		StartTimeUnixNano: uint64(w.Start.UnixNano()), EndTimeUnixNano: uint64(w.End().UnixNano()),
		Attributes: keyValues(e.attrs),
		Status:     &tracepb.Status{Code: tracepb.Status_StatusCode(w.Status), Message: w.StatusMessage},
	}
	if !w.ParentID.IsZero() {
		s.ParentSpanId = w.ParentID[:]
	}
	for _, ev := range w.Events {
		pe := &tracepb.Span_Event{Name: ev.Name, TimeUnixNano: uint64(ev.Time.UnixNano())}
		for _, a := range ev.Attributes {
			pe.Attributes = append(pe.Attributes, &commonpb.KeyValue{Key: a.Key, Value: str("", a.Value).value})
		}
		s.Events = append(s.Events, pe)
	}
	return &tracepb.ResourceSpans{
		Resource:   &resourcepb.Resource{Attributes: keyValues(e.res)},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{s}}},
	}
}

// oracle looks at every span. It shares no code with any backend: not even the one that says what overlaps.
func (l *ledger) oracle(req query.Request) (out []roll.Span) {
	for _, e := range l.entries {
		w := e.want
		w.Events = slices.Clone(w.Events) // they come back in order of time
		slices.SortFunc(w.Events, func(a, b roll.SpanEvent) int { return a.Time.Compare(b.Time) })
		w.Attributes, w.Resource = texts(e.attrs), &roll.Resource{Attributes: texts(e.res)}
		if w.Kind != roll.KindClient && w.Kind != roll.KindServer {
			continue
		}
		if req.Selection.ErrorsOnly && w.Status != roll.StatusError {
			continue
		}
		name, _ := w.Resource.Attributes.Get("service.name")
		if services := req.Selection.Services; len(services) > 0 && !slices.Contains(services, name) {
			continue
		}
		first, last := w.Start.UnixNano(), w.Start.UnixNano()+int64(w.Duration)
		for _, r := range req.Ranges {
			if r.Start.Before(r.End) && first < r.End.UnixNano() && last >= r.Start.UnixNano() {
				out = append(out, w)
				break
			}
		}
	}
	return out
}
