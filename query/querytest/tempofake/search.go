package tempofake

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
)

const (
	// queryBackendAfter splits a range between the live store and the backend (modules/frontend/config.go).
	queryBackendAfter = 15 * time.Minute
	// The live store's part of a range is searched in at most liveShards pieces of at least minLiveShard
	// (modules/frontend/search_sharder.go).
	liveShards   = 3
	minLiveShard = 60
	noRootYet    = "<root span not yet received>"
)

// A searchRequest has its defaults filled in and its range clamped.
type searchRequest struct {
	query      *query // nil: no query, traces without span sets
	start, end int64  // Unix seconds
	limit      int
	spss       int
}

// A job is one request of the frontend to a querier.
type job struct {
	blocks     []block
	start, end int64 // fragments must overlap, Unix seconds, both inclusive
}

// jobs plans a search over one tenant's blocks.
func (r *searchRequest) jobs(blocks []block, now time.Time) []job {
	var jobs []job
	liveFrom := now.Add(-queryBackendAfter).Unix()
	if start := max(r.start, liveFrom); r.end >= liveFrom && start != r.end {
		interval := max((r.end-start)/liveShards, minLiveShard)
		for i := range int64(liveShards) {
			from := start + i*interval
			if from >= r.end {
				break
			}
			to := from + interval
			if to >= r.end || i == liveShards-1 {
				to = r.end
			}
			jobs = append(jobs, job{overlapping(blocks, from, to), from, to})
		}
	}
	if start, end := min(r.start, liveFrom), min(r.end, liveFrom); start != end {
		for _, b := range overlapping(blocks, start, end) {
			if b.complete {
				jobs = append(jobs, job{[]block{b}, r.start, r.end})
			}
		}
	}
	return jobs
}

func overlapping(blocks []block, start, end int64) []block {
	var out []block
	for _, b := range blocks {
		if b.start <= end && b.end >= start {
			out = append(out, b)
		}
	}
	return out
}

// A combiner unites the answers about a trace, as pkg/traceql/combine.go does: by the identity of its span sets,
// which is what by() said of them. Of two with one identity the one with more matches stays, the other is lost.
type combiner struct {
	limit      int
	mostRecent bool
	traces     map[string]*tempopb.TraceSearchMetadata
	changed    map[string]bool
}

func newCombiner(limit int, mostRecent bool) *combiner {
	return &combiner{
		limit: limit, mostRecent: mostRecent, traces: map[string]*tempopb.TraceSearchMetadata{}, changed: map[string]bool{},
	}
}

func (c *combiner) full() bool { return !c.mostRecent && len(c.traces) >= c.limit }

func (c *combiner) add(in *tempopb.TraceSearchMetadata) {
	have := c.traces[in.GetTraceID()]
	if have == nil {
		if c.full() {
			return
		}
		c.traces[in.GetTraceID()] = in
		c.changed[in.GetTraceID()] = true
		return
	}
	c.changed[in.GetTraceID()] = true
	have.RootServiceName = cmp.Or(have.GetRootServiceName(), in.GetRootServiceName())
	have.RootTraceName = cmp.Or(have.GetRootTraceName(), in.GetRootTraceName())
	have.StartTimeUnixNano = min(have.GetStartTimeUnixNano(), in.GetStartTimeUnixNano())
	have.DurationMs = max(have.GetDurationMs(), in.GetDurationMs())
	for service, st := range in.GetServiceStats() {
		h := have.ServiceStats[service]
		if h == nil {
			have.ServiceStats[service] = st
			continue
		}
		h.SpanCount = max(h.GetSpanCount(), st.GetSpanCount())
		h.ErrorCount = max(h.GetErrorCount(), st.GetErrorCount())
	}
	index := make(map[string]*tempopb.SpanSet, len(have.GetSpanSets()))
	for _, set := range have.GetSpanSets() {
		index[identity(set)] = set
	}
	for _, set := range in.GetSpanSets() {
		h := index[identity(set)]
		if h == nil {
			have.SpanSets = append(have.SpanSets, set)
			continue
		}
		if set.GetMatched() > h.GetMatched() {
			h.Matched, h.Attributes, h.Spans = set.GetMatched(), set.GetAttributes(), set.GetSpans()
		}
	}
}

func identity(set *tempopb.SpanSet) string {
	var b strings.Builder
	for _, kv := range set.GetAttributes() {
		if strings.HasPrefix(kv.GetKey(), "by") {
			fmt.Fprintf(&b, "%s=%v;", kv.GetKey(), kv.GetValue().GetValue())
		}
	}
	return b.String()
}

// take returns the changed traces (all: all of them), the newest first.
func (c *combiner) take(all bool) []*tempopb.TraceSearchMetadata {
	var out []*tempopb.TraceSearchMetadata
	for id, t := range c.traces {
		if all || c.changed[id] {
			out = append(out, t)
		}
	}
	clear(c.changed)
	slices.SortFunc(out, func(a, b *tempopb.TraceSearchMetadata) int {
		return cmp.Or(
			cmp.Compare(b.GetStartTimeUnixNano(), a.GetStartTimeUnixNano()),
			strings.Compare(a.GetTraceID(), b.GetTraceID()),
		)
	})
	if c.mostRecent && len(out) > c.limit {
		out = out[:c.limit]
	}
	for _, t := range out {
		if t.GetRootServiceName() == "" && t.GetRootTraceName() == "" {
			t.RootServiceName = noRootYet
		}
		if len(t.GetSpanSets()) > 0 {
			t.SpanSet = t.GetSpanSets()[0]
		}
	}
	return out
}

// run evaluates a job; it fails when its answer is larger than a querier may send.
func (j job) run(r *searchRequest, maxBytes int) ([]*tempopb.TraceSearchMetadata, int, error) {
	mostRecent := r.query != nil && r.query.mostRecent
	c := newCombiner(r.limit, mostRecent)
	inspected := 0
	start, end := uint64(max(j.start, 0))*uint64(time.Second), uint64(max(j.end, 0))*uint64(time.Second)
	for _, b := range j.blocks {
		for _, f := range b.fragments {
			if f.start > end || f.end < start {
				continue
			}
			inspected += f.size
			if c.full() && c.traces[f.hexID()] == nil {
				continue
			}
			if m := r.match(f); m != nil {
				c.add(m)
			}
		}
	}
	traces := c.take(true)
	size := 0
	for _, t := range traces {
		size += proto.Size(t)
	}
	if maxBytes > 0 && size > maxBytes {
		return nil, inspected, fmt.Errorf("response larger than the max (%d vs %d)", size, maxBytes)
	}
	return traces, inspected, nil
}

// match is what a search says of a fragment, nil when it does not match.
func (r *searchRequest) match(f *fragment) *tempopb.TraceSearchMetadata {
	m := &tempopb.TraceSearchMetadata{
		TraceID: f.hexID(), RootServiceName: f.rootService, RootTraceName: f.rootName,
		StartTimeUnixNano: f.start, DurationMs: uint32((f.end - f.start) / uint64(time.Millisecond)),
	}
	if r.query == nil {
		return m
	}
	sets := r.query.run(f)
	if len(sets) == 0 {
		return nil
	}
	m.ServiceStats = make(map[string]*tempopb.ServiceStats, len(f.stats))
	for service, st := range f.stats {
		m.ServiceStats[service] = &tempopb.ServiceStats{SpanCount: st.spans, ErrorCount: st.errors}
	}
	for _, set := range sets {
		out := &tempopb.SpanSet{Matched: uint32(len(set.spans)), Attributes: set.attrs}
		for _, sp := range set.spans[:min(len(set.spans), r.spss)] {
			name, attrs := r.query.describe(f, sp)
			out.Spans = append(out.Spans, &tempopb.Span{
				SpanID: sp.hexID(), Name: name, StartTimeUnixNano: sp.start(), DurationNanos: sp.duration(), Attributes: attrs,
			})
		}
		m.SpanSets = append(m.SpanSets, out)
	}
	return m
}

// search runs the jobs of all tenants in order. After each, emit gets the traces that changed; in the last call done is
// set. The metrics are those up to then.
func (s *Server) search(
	ctx context.Context, tenants []*tenant, r *searchRequest, now time.Time,
	emit func(c *combiner, m *tempopb.SearchMetrics, done bool) error,
) error {
	var jobs []job
	m := &tempopb.SearchMetrics{}
	for _, t := range tenants {
		blocks := t.searchable(now)
		jobs = append(jobs, r.jobs(blocks, now)...)
		for _, b := range blocks {
			if b.complete && b.start <= r.end && b.end >= r.start {
				m.TotalBlocks++
			}
		}
	}
	m.TotalJobs = uint32(len(jobs))
	c := newCombiner(r.limit, r.query != nil && r.query.mostRecent)
	for i, j := range jobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		traces, inspected, err := j.run(r, s.o.MaxResponseBytes)
		if err != nil {
			return &apiError{httpStatus: 500, msg: err.Error()}
		}
		for _, t := range traces {
			c.add(t)
		}
		m.CompletedJobs++
		m.InspectedBytes += uint64(inspected)
		last := i == len(jobs)-1 || c.full()
		if err := emit(c, m, last); err != nil || last {
			return err
		}
	}
	return emit(c, m, true)
}

// A metricsRequest counts the spans that start in [start, end), Unix nanoseconds; step 0 is an instant query.
type metricsRequest struct {
	query            *query
	start, end, step uint64
}

// A series is one combination of the values that the query groups by.
type series struct {
	labels []value
	counts []float64
}

// count evaluates a metrics query. Blocks are picked by their range and counted within it: late spans are not seen.
func (r *metricsRequest) count(tenants []*tenant, now time.Time) ([]*series, *tempopb.SearchMetrics) {
	m := &tempopb.SearchMetrics{CompletedJobs: 1, TotalJobs: 1}
	index := map[string]*series{}
	first, end := r.start, r.end
	if r.step > 0 {
		// The sample at T counts (T-step, T], and so does the first.
		first, end = r.start-min(r.start, r.step)+1, r.end+1
	}
	for _, t := range tenants {
		for _, b := range t.searchable(now) {
			from := max(first, uint64(max(b.start, 0))*uint64(time.Second))
			to := min(end, uint64(max(b.end+1, 0))*uint64(time.Second))
			if from >= to {
				continue
			}
			for _, f := range b.fragments {
				m.InspectedSpans += uint64(len(f.spans))
				m.InspectedBytes += uint64(f.size)
				if f.start >= to || f.end < from {
					continue
				}
				for _, set := range r.query.run(f) {
					for _, sp := range set.spans {
						if st := sp.start(); st >= from && st < to {
							r.observe(index, f, sp)
						}
					}
				}
			}
		}
	}
	if len(index) == 0 && len(r.query.metricBy) == 0 {
		index[""] = &series{counts: make([]float64, r.samples())}
	}
	var out []*series
	for _, s := range index {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *series) int {
		return slices.CompareFunc(a.labels, b.labels, compareValues)
	})
	return out, m
}

func (r *metricsRequest) samples() int {
	if r.step == 0 {
		return 1
	}
	if r.end < r.start {
		return 0
	}
	return int((r.end-r.start)/r.step) + 1
}

func (r *metricsRequest) observe(index map[string]*series, f *fragment, sp *span) {
	labels := make([]value, len(r.query.metricBy))
	var key strings.Builder
	for i, a := range r.query.metricBy {
		labels[i] = a.value(f, sp)
		fmt.Fprintf(&key, "%d%s\x00", labels[i].typ, labels[i])
	}
	s := index[key.String()]
	if s == nil {
		s = &series{labels: labels, counts: make([]float64, r.samples())}
		index[key.String()] = s
	}
	i := 0
	if r.step > 0 && sp.start() > r.start {
		i = int((sp.start() - r.start + r.step - 1) / r.step)
	}
	if i < len(s.counts) {
		s.counts[i]++
	}
}

func compareValues(a, b value) int {
	if c := cmp.Compare(a.typ, b.typ); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.text, b.text), cmp.Compare(a.n, b.n), cmp.Compare(a.f, b.f))
}

// labelsOf are a series' labels: a missing value has none, unless all are missing, then the first is "nil".
func (r *metricsRequest) labelsOf(s *series) []*commonpb.KeyValue {
	if len(r.query.metricBy) == 0 {
		return []*commonpb.KeyValue{{Key: "__name__", Value: stringValue(r.query.metric)}}
	}
	var out []*commonpb.KeyValue
	for i, a := range r.query.metricBy {
		if v := s.labels[i]; v.typ != typeNil {
			out = append(out, &commonpb.KeyValue{Key: a.String(), Value: v.proto()})
		}
	}
	if len(out) == 0 {
		out = append(out, &commonpb.KeyValue{Key: r.query.metricBy[0].String(), Value: stringValue("nil")})
	}
	return out
}

// scale makes rates of counts.
func (r *metricsRequest) scale(n float64) float64 {
	if r.query.metric != "rate" {
		return n
	}
	if r.step > 0 {
		return n / time.Duration(r.step).Seconds()
	}
	return n / time.Duration(r.end-r.start).Seconds()
}

func (r *metricsRequest) instant(all []*series) []*tempopb.InstantSeries {
	var out []*tempopb.InstantSeries
	for _, s := range all {
		out = append(out, &tempopb.InstantSeries{Labels: r.labelsOf(s), Value: r.scale(s.counts[0])})
	}
	return out
}

func (r *metricsRequest) timeSeries(all []*series) []*tempopb.TimeSeries {
	var out []*tempopb.TimeSeries
	for _, s := range all {
		ts := &tempopb.TimeSeries{Labels: r.labelsOf(s)}
		for i, n := range s.counts {
			at := r.start + uint64(i)*r.step
			sample := &tempopb.Sample{TimestampMs: int64(at / uint64(time.Millisecond)), Value: r.scale(n)}
			ts.Samples = append(ts.Samples, sample)
		}
		out = append(out, ts)
	}
	return out
}
