package tempofake

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strings"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
)

// A tri is a condition's outcome; a comparison with a missing attribute is unknown, and so is its negation: neither
// {span.x != "a"} nor {!(span.x = "a")} finds the spans without x.
type tri int8

const (
	no tri = iota
	yes
	unknown
)

func truth(b bool) tri {
	if b {
		return yes
	}
	return no
}

// eval evaluates a filter on a span of a fragment.
func eval(e expr, fr *fragment, sp *span) tri {
	switch e := e.(type) {
	case static:
		return truth(e.value.typ == typeBool && e.n != 0)
	case attribute:
		v := e.value(fr, sp)
		if v.typ != typeBool {
			return unknown
		}
		return truth(v.n != 0)
	case not:
		switch eval(e.e, fr, sp) {
		case yes:
			return no
		case no:
			return yes
		}
		return unknown
	case exists:
		return truth((e.attr.value(fr, sp).typ == typeNil) == e.missing)
	case *binary:
		return e.eval(fr, sp)
	}
	return unknown
}

func (b *binary) eval(fr *fragment, sp *span) tri {
	switch b.op {
	case "&&":
		l := eval(b.l, fr, sp)
		if l == no {
			return no
		}
		if r := eval(b.r, fr, sp); r != yes {
			return r
		}
		return l
	case "||":
		l := eval(b.l, fr, sp)
		if l == yes {
			return yes
		}
		if r := eval(b.r, fr, sp); r != no {
			return r
		}
		return l
	}
	r := operandValue(b.r, fr, sp)
	if attr, ok := b.l.(attribute); ok && attr.many() {
		out := unknown
		for v := range attr.values(fr, sp) {
			if out = b.compare(v, r); out == yes {
				break
			}
		}
		return out
	}
	return b.compare(operandValue(b.l, fr, sp), r)
}

func operandValue(e expr, fr *fragment, sp *span) value {
	switch e := e.(type) {
	case static:
		return e.value
	case attribute:
		return e.value(fr, sp)
	default:
		switch eval(e, fr, sp) {
		case yes:
			return boolean(true)
		case no:
			return boolean(false)
		}
		return value{}
	}
}

// compare compares values of the same type; an integer is no float, as in Tempo's typed columns.
func (b *binary) compare(l, r value) tri {
	if l.typ == typeNil || r.typ == typeNil {
		return unknown
	}
	if b.re != nil {
		return truth(l.typ == typeString && b.re.MatchString(l.text) == (b.op == "=~"))
	}
	var c int
	switch {
	case l.typ == typeFloat && r.typ == typeFloat:
		c = cmp.Compare(l.f, r.f)
	case l.typ == typeDuration && r.typ == typeFloat:
		c = cmp.Compare(float64(l.n), r.f)
	case l.typ == r.typ && (l.typ == typeString || l.typ == typeStatus || l.typ == typeKind):
		c = strings.Compare(l.text, r.text)
	case l.typ == r.typ && l.typ != typeOther,
		l.typ == typeDuration && r.typ == typeInt, l.typ == typeInt && r.typ == typeDuration:
		c = cmp.Compare(l.n, r.n)
	default:
		return no
	}
	return truth(holds(b.op, c))
}

func holds(op string, c int) bool {
	switch op {
	case "=":
		return c == 0
	case "!=":
		return c != 0
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	default:
		return c >= 0
	}
}

// many reports whether a span can have several values of the attribute, one an event.
func (a attribute) many() bool {
	return a.scope == scopeEvent || a.scope == scopeIntrinsic && strings.HasPrefix(a.name, "event:")
}

// values yields the values of an event attribute, in the order of the events.
func (a attribute) values(fr *fragment, sp *span) func(func(value) bool) {
	return func(yield func(value) bool) {
		for _, e := range sp.pb.GetEvents() {
			var v value
			switch {
			case a.scope == scopeEvent:
				v = lookup(e.GetAttributes(), a.name)
			case a.name == "event:name":
				v = value{typ: typeString, text: e.GetName()}
			default:
				v = value{typ: typeDuration, n: int64(e.GetTimeUnixNano() - sp.pb.GetStartTimeUnixNano())}
			}
			if v.typ != typeNil && !yield(v) {
				return
			}
		}
	}
}

// value is the span's value of the attribute; of several, the last event's.
func (a attribute) value(fr *fragment, sp *span) value {
	switch a.scope {
	case scopeSpan:
		return lookup(sp.pb.GetAttributes(), a.name)
	case scopeResource:
		return lookup(sp.resource.GetAttributes(), a.name)
	case scopeInstrumentation:
		return lookup(sp.scope.GetAttributes(), a.name)
	case scopeNone:
		if v := lookup(sp.pb.GetAttributes(), a.name); v.typ != typeNil {
			return v
		}
		return lookup(sp.resource.GetAttributes(), a.name)
	}
	if a.many() {
		var last value
		for v := range a.values(fr, sp) {
			last = v
		}
		if last.typ == typeNil && a.name == "event:name" && a.scope == scopeIntrinsic {
			last.typ = typeString
		}
		if last.typ == typeNil && a.name == "event:timeSinceStart" && a.scope == scopeIntrinsic {
			last.typ = typeDuration
		}
		return last
	}
	return a.intrinsic(fr, sp)
}

func (a attribute) intrinsic(fr *fragment, sp *span) value {
	switch a.name {
	case "name":
		return value{typ: typeString, text: sp.pb.GetName()}
	case "status":
		return value{typ: typeStatus, text: nameOf(statusNames, int(sp.pb.GetStatus().GetCode()))}
	case "statusMessage":
		return value{typ: typeString, text: sp.pb.GetStatus().GetMessage()}
	case "kind":
		return value{typ: typeKind, text: nameOf(kindNames, int(sp.pb.GetKind()))}
	case "duration":
		return value{typ: typeDuration, n: int64(sp.duration())}
	case "span:id":
		return value{typ: typeString, text: sp.hexID()}
	case "span:parentID":
		return value{typ: typeString, text: spanIDHex(sp.pb.GetParentSpanId())}
	case "trace:id":
		return value{typ: typeString, text: fr.hexID()}
	case "traceDuration":
		return value{typ: typeDuration, n: int64(fr.end - fr.start)}
	case "rootName":
		return value{typ: typeString, text: fr.rootName}
	case "rootServiceName":
		return value{typ: typeString, text: fr.rootService}
	case "instrumentation:name":
		return value{typ: typeString, text: sp.scope.GetName()}
	case "instrumentation:version":
		return value{typ: typeString, text: sp.scope.GetVersion()}
	case "nestedSetLeft":
		return value{typ: typeInt, n: fr.nested(sp).left}
	case "nestedSetRight":
		return value{typ: typeInt, n: fr.nested(sp).right}
	case "nestedSetParent":
		return value{typ: typeInt, n: fr.nested(sp).parent}
	}
	return value{}
}

func nameOf(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return names[0]
	}
	return names[i]
}

func spanIDHex(id []byte) string {
	var b [8]byte
	copy(b[:], id)
	return hex.EncodeToString(b[:])
}

func lookup(attrs []*commonpb.KeyValue, name string) value {
	for _, kv := range attrs {
		if kv.GetKey() == name {
			return fromProto(kv.GetValue())
		}
	}
	return value{}
}

func fromProto(a *commonpb.AnyValue) value {
	switch v := a.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return value{typ: typeString, text: v.StringValue, any: a}
	case *commonpb.AnyValue_IntValue:
		return value{typ: typeInt, n: v.IntValue, any: a}
	case *commonpb.AnyValue_DoubleValue:
		return value{typ: typeFloat, f: v.DoubleValue, any: a}
	case *commonpb.AnyValue_BoolValue:
		b := boolean(v.BoolValue)
		b.any = a
		return b
	case nil:
		return value{}
	default:
		return value{typ: typeOther, any: a}
	}
}

// A spanset is what flows through the pipeline: spans of one fragment, and what by() and count() said of them.
type spanset struct {
	spans []*span
	attrs []*commonpb.KeyValue
}

// run sends a fragment through the pipeline.
func (q *query) run(fr *fragment) []spanset {
	sets := []spanset{{spans: fr.spans}}
	for _, s := range q.stages {
		var out []spanset
		for _, set := range sets {
			out = append(out, s.apply(fr, set)...)
		}
		if sets = out; len(sets) == 0 {
			return nil
		}
	}
	return sets
}

func (s stage) apply(fr *fragment, set spanset) []spanset {
	switch {
	case s.filter != nil:
		set.spans = filter(s.filter, fr, set.spans)
	case s.spansets != nil:
		set.spans = s.spansets.apply(fr, set.spans)
	case s.by != nil:
		return group(*s.by, fr, set)
	default:
		n := int64(len(set.spans))
		if !holds(s.countOp, cmp.Compare(n, s.countN)) {
			return nil
		}
		kv := &commonpb.KeyValue{Key: "count()", Value: value{typ: typeInt, n: n}.proto()}
		set.attrs = append(slices.Clip(set.attrs), kv)
	}
	if len(set.spans) == 0 {
		return nil
	}
	return []spanset{set}
}

func filter(e expr, fr *fragment, spans []*span) []*span {
	if s, ok := e.(static); ok && s.n != 0 {
		return spans
	}
	var out []*span
	for _, sp := range spans {
		if eval(e, fr, sp) == yes {
			out = append(out, sp)
		}
	}
	return out
}

func (s *spansetExpr) apply(fr *fragment, spans []*span) []*span {
	if s.op == "" {
		return filter(s.leaf, fr, spans)
	}
	l, r := s.l.apply(fr, spans), s.r.apply(fr, spans)
	if s.op == "&&" && (len(l) == 0 || len(r) == 0) {
		return nil
	}
	seen := make(map[*span]bool, len(l)+len(r))
	var out []*span
	for _, sp := range append(slices.Clip(l), r...) {
		if !seen[sp] {
			seen[sp] = true
			out = append(out, sp)
		}
	}
	return out
}

func group(by attribute, fr *fragment, set spanset) []spanset {
	index := map[string]int{}
	var out []spanset
	for _, sp := range set.spans {
		v := by.value(fr, sp)
		key := v.String()
		i, ok := index[key]
		if !ok {
			i = len(out)
			index[key] = i
			kv := &commonpb.KeyValue{Key: "by(" + by.String() + ")", Value: v.proto()}
			out = append(out, spanset{attrs: append(slices.Clip(set.attrs), kv)})
		}
		out[i].spans = append(out[i].spans, sp)
	}
	return out
}

// dedicated are the attributes that have a column of their own (tempodb/backend/block_meta.go): when one of these is
// selected and missing, the answer holds the string "nil"; any other is left out.
var dedicated = map[attribute]bool{
	{scopeResource, "k8s.cluster.name"}:      true,
	{scopeResource, "k8s.namespace.name"}:    true,
	{scopeResource, "k8s.pod.name"}:          true,
	{scopeResource, "k8s.container.name"}:    true,
	{scopeSpan, "http.request.method"}:       true,
	{scopeSpan, "http.response.status_code"}: true,
	{scopeSpan, "url.path"}:                  true,
	{scopeSpan, "url.route"}:                 true,
	{scopeSpan, "server.address"}:            true,
	{scopeSpan, "server.port"}:               true,
	{scopeSpan, "http.method"}:               true,
	{scopeSpan, "http.url"}:                  true,
	{scopeSpan, "http.route"}:                true,
	{scopeSpan, "http.status_code"}:          true,
}

// hidden are selected in vain: they are fields of the answer, or not answered at all.
var hidden = map[string]bool{
	"duration": true, "traceDuration": true, "rootServiceName": true, "rootName": true, "trace:id": true, "span:id": true,
	"span:childCount": true,
}

// describe is a span's name (when wanted) and its attributes. Keys lose their scope: resource.x and span.x are both x.
func (q *query) describe(fr *fragment, sp *span) (name string, attrs []*commonpb.KeyValue) {
	seen := make([]*commonpb.AnyValue, 0, 8)
	for _, w := range q.wanted {
		for _, v := range w.pick(fr, sp) {
			if v.any != nil {
				// Both .x and span.x may lead to one attribute.
				if slices.Contains(seen, v.any) {
					continue
				}
				seen = append(seen, v.any)
			}
			switch {
			case w.attr.scope != scopeIntrinsic:
			case w.attr.name == "name":
				name = v.text
				continue
			case hidden[w.attr.name]:
				continue
			}
			attrs = append(attrs, &commonpb.KeyValue{Key: w.attr.name, Value: v.proto()})
		}
	}
	return name, attrs
}

// pick is the wanted attribute's values: for .x both the resource's and the span's.
func (w *wantedAttribute) pick(fr *fragment, sp *span) []value {
	var vs []value
	switch {
	case w.attr.scope == scopeNone:
		vs = append(vs, lookup(sp.pb.GetAttributes(), w.attr.name), lookup(sp.resource.GetAttributes(), w.attr.name))
	case w.attr.many() && !w.selected:
		for v := range w.attr.values(fr, sp) {
			if w.satisfied(v) {
				vs = []value{v}
			}
		}
	default:
		vs = append(vs, w.attr.value(fr, sp))
	}
	nilWanted := w.selected && dedicated[w.attr] || !w.selected && w.satisfied(value{})
	return slices.DeleteFunc(vs, func(v value) bool {
		if v.typ == typeNil {
			return !nilWanted
		}
		return !w.selected && !w.satisfied(v)
	})
}

func (w *wantedAttribute) satisfied(v value) bool {
	return slices.ContainsFunc(w.conditions, func(c func(value) bool) bool { return c(v) })
}
