package tempo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/query/otlpspan"
	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
	"github.com/rolltrace/rolltrace/roll"
)

// key identifies a span. Client and server share a span id in Zipkin's model.
type key struct {
	trace roll.TraceID
	span  roll.SpanID
	kind  roll.SpanKind
}

// found gathers the answers of searches. It is safe for concurrent use.
type found struct {
	mu sync.Mutex
	// spans are the spans by identity; those of a light search have no attributes.
	spans map[key]*roll.Span
	// known are those whose attributes were asked for.
	known map[key]bool
	// suspects are the traces of which the answer did not hold everything, and why.
	suspects map[roll.TraceID]string
	// size is the greatest number of spans that matched in one fragment of a trace.
	size map[roll.TraceID]int
	// extra is how often a span came more than once in one set: stored more than once.
	extra map[key]int
	// malformed are the spans that cannot be placed, by their ids.
	malformed map[string]roll.Gap
	resources map[string]*roll.Resource
	// services are the selected ones: "nil" among them is a name, else the absence of one.
	services []string
}

func newFound(sel query.Selection) *found {
	return &found{
		spans: map[key]*roll.Span{}, known: map[key]bool{}, suspects: map[roll.TraceID]string{}, size: map[roll.TraceID]int{},
		extra: map[key]int{}, malformed: map[string]roll.Gap{}, resources: map[string]*roll.Resource{},
		services: sel.Services,
	}
}

// cost grows as the server's work for by(span:id) does.
func (f *found) cost() (n int) {
	for _, s := range f.size {
		n += s * s
	}
	return n
}

// add takes in one answer. full says that it was asked for attributes.
func (f *found) add(resp *tempopb.SearchResponse, full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range resp.GetTraces() {
		id, err := roll.ParseTraceID(t.GetTraceID())
		if err != nil || id.IsZero() {
			f.malformed[t.GetTraceID()] = roll.Gap{
				Reason: roll.GapMalformedSpan, Object: oneLine(t.GetTraceID()), Detail: "a trace id that is none",
			}
			continue
		}
		sets := t.GetSpanSets()
		if len(sets) == 0 && t.GetSpanSet() != nil {
			sets = []*tempopb.SpanSet{t.GetSpanSet()} // before 2.3
		}
		if len(sets) == 0 {
			f.suspects[id] = "came without spans"
		}
		seen := map[key]int{}
		for _, set := range sets {
			if n := len(set.GetSpans()); int(set.GetMatched()) > n {
				f.suspects[id] = fmt.Sprintf("%d of %d spans came", n, set.GetMatched())
			}
			f.size[id] = max(f.size[id], int(set.GetMatched()), len(set.GetSpans()))
			for _, s := range set.GetSpans() {
				k, ok := f.addSpan(id, s, full)
				if !ok {
					continue
				}
				if seen[k]++; seen[k] > 1 {
					f.extra[k] = max(f.extra[k], seen[k]-1)
				}
			}
		}
	}
}

var (
	resourceAt = index(query.ResourceKeys)
	spanAt     = index(query.SpanKeys)
)

func index(keys []string) map[string]int {
	m := map[string]int{}
	for i, k := range keys {
		m[k] = i
	}
	return m
}

func (f *found) addSpan(trace roll.TraceID, s *tempopb.Span, full bool) (key, bool) {
	sp := &roll.Span{TraceID: trace, Name: s.GetName()}
	malformed := func(why string) (key, bool) {
		g := roll.Gap{
			Reason: roll.GapMalformedSpan, Object: trace.String(), Detail: "span " + oneLine(s.GetSpanID()) + ": " + why,
		}
		if !sp.Start.IsZero() {
			g.From, g.To = sp.Start, sp.End()
		}
		f.malformed[g.Object+s.GetSpanID()] = g
		return key{}, false
	}
	var err error
	if sp.SpanID, err = roll.ParseSpanID(s.GetSpanID()); err != nil || sp.SpanID.IsZero() {
		return malformed("no span id")
	}
	if err := otlpspan.Place(sp, s.GetStartTimeUnixNano(), s.GetStartTimeUnixNano()+s.GetDurationNanos()); err != nil {
		return malformed(err.Error())
	}
	var resource, attrs values
	kind, status := false, false
	for _, a := range s.GetAttributes() {
		v := otlpspan.Text(a.GetValue())
		switch a.GetKey() {
		case "kind":
			kind = sp.Kind.UnmarshalText([]byte(v)) == nil && sp.Kind != roll.KindUnspecified
		case "status":
			status = v == "ok" || v == "error" || v == "unset"
			_ = sp.Status.UnmarshalText([]byte(v))
		case "statusMessage":
			sp.StatusMessage = v
		case "span:parentID", "parentID":
			if v != "" && v != "nil" {
				if sp.ParentID, err = roll.ParseSpanID(v); err != nil {
					f.suspects[trace] = "a parent id that is none"
				}
			}
		default:
			if i, ok := resourceAt[a.GetKey()]; ok {
				service := a.GetKey() == "service.name"
				resource.set(i, v, a.GetValue(), service, service && slices.Contains(f.services, "nil"))
			} else if i, ok := spanAt[a.GetKey()]; ok {
				attrs.set(i, v, a.GetValue(), false, false)
			}
		}
	}
	if !kind || !status {
		f.suspects[trace] = "a span came without kind or status"
	}
	sp.Resource = f.resource(resource.list(query.ResourceKeys))
	sp.Attributes = attrs.list(query.SpanKeys)
	k := key{trace, sp.SpanID, sp.Kind}
	if _, ok := f.spans[k]; !ok || full && !f.known[k] {
		f.spans[k] = sp
	}
	f.known[k] = f.known[k] || full
	return k, true
}

// values are attributes by their place in a list of keys.
type values struct {
	have uint64
	text [32]string
}

// set notes a value. Tempo writes an absent attribute as the string "nil", and an absent service.name as "": service
// says that it is that one, and keepNil that "nil" is taken for a name.
func (v *values) set(i int, text string, any *commonpb.AnyValue, service, keepNil bool) {
	if _, ok := any.GetValue().(*commonpb.AnyValue_StringValue); ok && (text == "nil" && !keepNil || text == "" && service) {
		return
	}
	v.have |= 1 << i
	v.text[i] = text
}

func (v *values) list(keys []string) roll.Attributes {
	var out roll.Attributes
	for i, k := range keys {
		if v.have&(1<<i) != 0 {
			out = append(out, roll.Attribute{Key: k, Value: v.text[i]})
		}
	}
	return out
}

// resource returns the one resource that has these attributes.
func (f *found) resource(as roll.Attributes) *roll.Resource {
	var b strings.Builder
	for _, a := range as {
		fmt.Fprintf(&b, "%s\x00%d\x00%s", a.Key, len(a.Value), a.Value)
	}
	r, ok := f.resources[b.String()]
	if !ok {
		r = &roll.Resource{Attributes: as}
		f.resources[b.String()] = r
	}
	return r
}

// merge takes in another's spans and notes; what f knows in full stays.
func (f *found) merge(o *found) {
	for k, sp := range o.spans {
		if _, ok := f.spans[k]; !ok || o.known[k] && !f.known[k] {
			f.spans[k] = sp
		}
		f.known[k] = f.known[k] || o.known[k]
	}
	maps.Copy(f.malformed, o.malformed)
	for k, n := range o.extra {
		f.extra[k] = max(f.extra[k], n)
	}
	for id, n := range o.size {
		f.size[id] = max(f.size[id], n)
	}
}

// traces are the traces of all spans.
func (f *found) traces(why string) map[roll.TraceID]string {
	out := map[roll.TraceID]string{}
	for k := range f.spans {
		out[k.trace] = why
	}
	return out
}

// dropSeen drops the traces that have a span in spans.
func dropSeen(traces map[roll.TraceID]string, spans map[key]*roll.Span) {
	for k := range spans {
		delete(traces, k.trace)
	}
}

// missing returns the traces that have a span in a which is not in b.
func missing(a, b map[key]*roll.Span) map[roll.TraceID]string {
	out := map[roll.TraceID]string{}
	for k := range a {
		if _, ok := b[k]; !ok {
			out[k.trace] = "two searches differ in its spans"
		}
	}
	return out
}
