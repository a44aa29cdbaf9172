package tempofake

import (
	"bytes"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

type traceID [16]byte

// A span as it came, with what it hangs from.
type span struct {
	pb       *tracepb.Span
	resource *resourcepb.Resource
	scope    *commonpb.InstrumentationScope
	// group and sub say which ResourceSpans and ScopeSpans the span came in.
	group *tracepb.ResourceSpans
	sub   *tracepb.ScopeSpans
	size  int
}

func (s *span) start() uint64 { return s.pb.GetStartTimeUnixNano() }
func (s *span) end() uint64   { return max(s.pb.GetEndTimeUnixNano(), s.start()) }
func (s *span) hexID() string { return spanIDHex(s.pb.GetSpanId()) }

func (s *span) duration() uint64 { return s.end() - s.start() }

func (s *span) service() string { return lookup(s.resource.GetAttributes(), "service.name").text }

type serviceStats struct{ spans, errors uint32 }

// A fragment is what one block holds of one trace. It never changes.
type fragment struct {
	id                    traceID
	spans                 []*span
	start, end            uint64
	rootService, rootName string
	stats                 map[string]serviceStats
	size                  int

	nest     sync.Once
	nestSets map[*span]nestedSet
}

func newFragment(id traceID, spans []*span) *fragment {
	f := &fragment{id: id, spans: spans, stats: map[string]serviceStats{}}
	for i, sp := range spans {
		if i == 0 || sp.start() < f.start {
			f.start = sp.start()
		}
		f.end = max(f.end, sp.end())
		f.size += sp.size
		service := sp.service()
		st := f.stats[service]
		st.spans++
		if sp.pb.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			st.errors++
		}
		f.stats[service] = st
		if f.rootName == "" && len(bytes.Trim(sp.pb.GetParentSpanId(), "\x00")) == 0 {
			f.rootService, f.rootName = service, sp.pb.GetName()
		}
	}
	return f
}

// hexID is how search writes a trace id: without leading zeros.
func (f *fragment) hexID() string {
	s := strings.TrimLeft(hex.EncodeToString(f.id[:]), "0")
	if s == "" {
		return "0"
	}
	return s
}

// A nestedSet numbers the spans of a fragment by walking its tree: parent is the parent's left, -1 at a root, 0 when
// the parent is not in the fragment.
type nestedSet struct{ left, right, parent int64 }

func (f *fragment) nested(sp *span) nestedSet {
	f.nest.Do(func() {
		byID := map[string]*span{}
		for _, s := range f.spans {
			byID[string(s.pb.GetSpanId())] = s
		}
		children := map[*span][]*span{}
		var roots []*span
		f.nestSets = make(map[*span]nestedSet, len(f.spans))
		for _, s := range f.spans {
			switch parent := byID[string(s.pb.GetParentSpanId())]; {
			case len(bytes.Trim(s.pb.GetParentSpanId(), "\x00")) == 0:
				roots = append(roots, s)
			case parent != nil && parent != s:
				children[parent] = append(children[parent], s)
			}
		}
		type step struct {
			s       *span
			parent  int64
			leaving bool
		}
		var next int64
		var stack []step
		for _, s := range slices.Backward(roots) {
			stack = append(stack, step{s: s, parent: -1})
		}
		for len(stack) > 0 {
			st := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			next++
			n := f.nestSets[st.s]
			if st.leaving {
				n.right = next
				f.nestSets[st.s] = n
				continue
			}
			n.left, n.parent = next, st.parent
			f.nestSets[st.s] = n
			stack = append(stack, step{s: st.s, leaving: true})
			for _, c := range slices.Backward(children[st.s]) {
				stack = append(stack, step{s: c, parent: n.left})
			}
		}
	})
	return f.nestSets[sp]
}

// A block holds fragments. Search picks it by [start, end], Unix seconds, which ingestion_time_range_slack clamps.
type block struct {
	fragments  []*fragment
	start, end int64
	complete   bool
}

func (b *block) add(f *fragment, start, end int64) {
	if len(b.fragments) == 0 {
		b.start, b.end = start, end
	}
	b.fragments = append(b.fragments, f)
	b.start, b.end = min(b.start, start), max(b.end, end)
}

// finish unites the fragments of each trace that ended up in the block.
func (b *block) finish() {
	b.fragments = unite(b.fragments)
	b.complete = true
}

func unite(fragments []*fragment) []*fragment {
	first := map[traceID]int{}
	var out []*fragment
	for _, f := range fragments {
		i, ok := first[f.id]
		if !ok {
			first[f.id] = len(out)
			out = append(out, f)
			continue
		}
		out[i] = newFragment(f.id, append(slices.Clip(out[i].spans), f.spans...))
	}
	return out
}

// A liveTrace is not seen by search or metrics, only by id.
type liveTrace struct {
	spans               []*span
	created, lastAppend time.Time
}

// A traceSize outlives the live trace, until a block is cut and nothing came for the trace since the one before.
type traceSize struct {
	bytes int
	last  time.Time
}

// A tenant is one tenant's store. Time passes in it when it is used: there is no goroutine.
type tenant struct {
	o Options

	mu        sync.Mutex
	live      map[traceID]*liveTrace
	order     []traceID // of live, by creation
	sizes     map[traceID]traceSize
	head      *block
	blocks    []*block
	nextTick  time.Time
	lastCut   time.Time
	discarded map[string]int
}

func newTenant(o Options, now time.Time) *tenant {
	return &tenant{
		o: o, live: map[traceID]*liveTrace{}, sizes: map[traceID]traceSize{}, discarded: map[string]int{},
		nextTick: now.Add(o.FlushPeriod), lastCut: now,
	}
}

// pass lets time pass until now: every FlushPeriod, idle and old live traces are cut, and the
// head block is when the last was cut BlockDuration ago.
func (t *tenant) pass(now time.Time) {
	for !t.nextTick.After(now) {
		t.tick(t.nextTick)
		t.nextTick = t.nextTick.Add(t.o.FlushPeriod)
		if len(t.live) == 0 && t.head == nil {
			behind := now.Sub(t.nextTick)
			if behind > 0 {
				t.nextTick = t.nextTick.Add(behind.Truncate(t.o.FlushPeriod))
			}
		}
	}
}

func (t *tenant) tick(at time.Time) {
	kept := t.order[:0]
	for _, id := range t.order {
		lt := t.live[id]
		if at.Sub(lt.lastAppend) < t.o.TraceIdle && at.Sub(lt.created) < t.o.TraceLive {
			kept = append(kept, id)
			continue
		}
		t.cutTrace(id)
	}
	t.order = kept
	if t.head != nil && at.Sub(t.lastCut) >= t.o.BlockDuration {
		t.cutBlock(at)
	}
}

// cutTrace moves a live trace to the head block.
func (t *tenant) cutTrace(id traceID) {
	lt := t.live[id]
	delete(t.live, id)
	f := newFragment(id, lt.spans)
	start, end := int64(f.start/uint64(time.Second)), int64(f.end/uint64(time.Second))
	if !t.o.NoLateSpanClamp {
		start = max(start, lt.created.Add(-t.o.TimeRangeSlack).Unix())
		end = min(end, lt.lastAppend.Add(t.o.TimeRangeSlack).Unix())
	}
	if t.head == nil {
		t.head = &block{}
	}
	t.head.add(f, start, end)
}

func (t *tenant) cutBlock(at time.Time) {
	maps.DeleteFunc(t.sizes, func(_ traceID, s traceSize) bool { return s.last.Before(t.lastCut) })
	t.lastCut = at
	t.head.finish()
	t.blocks = append(t.blocks, t.head)
	t.head = nil
	if t.o.NoFragments {
		t.compact()
	}
}

// flush cuts everything at once.
func (t *tenant) flush(now time.Time) {
	for _, id := range t.order {
		t.cutTrace(id)
	}
	t.order = nil
	if t.head != nil {
		t.cutBlock(now)
	}
}

// compact makes one block of all: the fragments of each trace are united.
func (t *tenant) compact() {
	if len(t.blocks) < 2 {
		return
	}
	one := &block{}
	for _, b := range t.blocks {
		for _, f := range b.fragments {
			one.add(f, b.start, b.end)
		}
	}
	one.finish()
	t.blocks = []*block{one}
}

// push stores spans as they are: one that comes twice is kept twice. What is over a limit is dropped without a word.
func (t *tenant) push(now time.Time, batches []*tracepb.ResourceSpans) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass(now)
	var order []traceID
	spans := map[traceID][]*span{}
	for _, rs := range batches {
		for _, ss := range rs.GetScopeSpans() {
			for _, pb := range ss.GetSpans() {
				if len(pb.GetTraceId()) != len(traceID{}) {
					t.discarded["invalid_trace_id"]++
					continue
				}
				id := traceID(pb.GetTraceId())
				if spans[id] == nil {
					order = append(order, id)
				}
				spans[id] = append(spans[id], &span{
					pb: pb, resource: rs.GetResource(), scope: ss.GetScope(), group: rs, sub: ss, size: proto.Size(pb) + 64,
				})
			}
		}
	}
	for _, id := range order {
		t.pushTrace(now, id, spans[id])
	}
}

func (t *tenant) pushTrace(now time.Time, id traceID, spans []*span) {
	size := 0
	for _, sp := range spans {
		size += sp.size
	}
	if t.o.MaxBytesPerTrace > 0 && t.sizes[id].bytes+size > t.o.MaxBytesPerTrace {
		t.discarded["trace_too_large"] += len(spans)
		return
	}
	lt := t.live[id]
	if lt == nil {
		if t.o.MaxLiveTraces > 0 && len(t.live) >= t.o.MaxLiveTraces {
			t.discarded["live_traces_exceeded"] += len(spans)
			return
		}
		lt = &liveTrace{created: now}
		t.live[id] = lt
		t.order = append(t.order, id)
	}
	t.sizes[id] = traceSize{t.sizes[id].bytes + size, now}
	lt.spans = append(lt.spans, spans...)
	lt.lastAppend = now
}

// searchable is a snapshot of the blocks, the head block last.
func (t *tenant) searchable(now time.Time) []block {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass(now)
	out := make([]block, 0, len(t.blocks)+1)
	for _, b := range t.blocks {
		out = append(out, *b)
	}
	if t.head != nil {
		head := *t.head
		head.fragments = slices.Clone(head.fragments)
		if t.o.NoFragments {
			// Without fragments the head is one with what came before.
			for _, b := range t.blocks {
				head.fragments = append(slices.Clone(b.fragments), head.fragments...)
				head.start, head.end = min(head.start, b.start), max(head.end, b.end)
			}
			head.fragments = unite(head.fragments)
			out = nil
		}
		out = append(out, head)
	}
	return out
}

// trace is all that is stored of a trace, live or not: nil when nothing is.
func (t *tenant) trace(now time.Time, id traceID) []*span {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pass(now)
	var spans []*span
	blocks := t.blocks
	if t.head != nil {
		blocks = append(slices.Clip(blocks), t.head)
	}
	for _, b := range blocks {
		for _, f := range b.fragments {
			if f.id == id {
				spans = append(spans, f.spans...)
			}
		}
	}
	if lt := t.live[id]; lt != nil {
		spans = append(spans, lt.spans...)
	}
	return spans
}

func (t *tenant) discards() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.discarded)
}

// resourceSpans puts spans back into OTLP's shape, each in a batch like the one that it came in.
func resourceSpans(spans []*span) []*tracepb.ResourceSpans {
	groups := map[*tracepb.ResourceSpans]*tracepb.ResourceSpans{}
	subs := map[*tracepb.ScopeSpans]*tracepb.ScopeSpans{}
	var out []*tracepb.ResourceSpans
	for _, sp := range spans {
		rs := groups[sp.group]
		if rs == nil {
			rs = &tracepb.ResourceSpans{Resource: sp.resource, SchemaUrl: sp.group.GetSchemaUrl()}
			groups[sp.group] = rs
			out = append(out, rs)
		}
		ss := subs[sp.sub]
		if ss == nil {
			ss = &tracepb.ScopeSpans{Scope: sp.scope, SchemaUrl: sp.sub.GetSchemaUrl()}
			subs[sp.sub] = ss
			rs.ScopeSpans = append(rs.ScopeSpans, ss)
		}
		ss.Spans = append(ss.Spans, sp.pb)
	}
	return out
}
