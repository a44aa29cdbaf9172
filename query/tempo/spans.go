package tempo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/query/otlpspan"
	"github.com/rolltrace/rolltrace/roll"
)

const (
	// sliceSpans is how many spans one search should return: some 600 bytes each, against the 16 MiB that a querier's job
	// may answer (modules/querier/config.go).
	sliceSpans = 8000
	// sliceTraces is the limit of a search that can still be halved.
	sliceTraces = 20000
	// bySpanCost is the sum of the squares of the traces' spans above which by(span:id) is too slow: about 1 µs each.
	bySpanCost = 5_000_000
	// fewSuspects is how many traces are fetched by id rather than searched again span by span.
	fewSuspects = 32
	// maxWindow is the longest range of one count (metrics.max_duration is 3 h before v3.0).
	maxWindow = 3600
	// liveStore is the age at which spans are found in the object store (query_backend_after is 15 min in
	// modules/frontend/config.go), less some for clocks.
	liveStore = 15*time.Minute - 10*time.Second
	// nearby is the distance in seconds at which two windows are asked as one.
	nearby = 15
	// looks is how often the spans are looked at again until two looks agree.
	looks = 4
	// maxFailures is how many failed requests are answered by asking for less before giving up on what is left.
	maxFailures = 64
)

// secs is a range of whole Unix seconds, both ends included, as Tempo compares them.
type secs struct{ from, to int64 }

func (w secs) times() (from, to time.Time) {
	return time.Unix(w.from, 0).UTC(), time.Unix(w.to, 0).UTC()
}

// session is one call of Spans.
type session struct {
	c      *Client
	sel    query.Selection
	ranges []roll.Range

	answered atomic.Bool  // something came back
	failures atomic.Int64 // requests that failed and were asked anew, smaller

	mu      sync.Mutex
	all     *found // everything that searches found
	byID    map[key]*roll.Span
	rawByID map[key]int // how often a span came in its trace
	fetched map[roll.TraceID]bool
	gaps    roll.Coverage
}

// Spans finds the spans in five steps, each range on its own:
//
//  1. a plain search with the attributes, sliced so that no limit bites, and halved where one does;
//  2. a search with each span as its own set, which the loss of fragments cannot touch, until two looks agree;
//  3. by id, every trace in which 1 and 2 differ, or that came back cut;
//  4. the server's own count by kind and status, against what was found;
//  5. a search for late spans: errors, and spans of more than a minute, that were stored up to Options.Late after.
//
// Traces with an error are then fetched by id, for all of their attributes and events.
func (c *Client) Spans(ctx context.Context, req query.Request) (*query.Answer, error) {
	var requests atomic.Int64
	ctx = context.WithValue(ctx, requestsKey{}, &requests)
	if err := c.Probe(ctx); err != nil {
		return nil, err
	}
	s := &session{
		c: c, sel: req.Selection, ranges: query.Merge(req.Ranges), all: newFound(req.Selection),
		byID: map[key]*roll.Span{}, rawByID: map[key]int{}, fetched: map[roll.TraceID]bool{},
	}
	err := s.run(ctx)
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		s.gap(roll.Gap{Reason: roll.GapDeadline, Detail: "time ran out before everything was fetched"})
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		return nil, c.describe(err)
	}
	s.gaps.Add(c.discardGaps(ctx)...)
	s.gaps.Add(c.versionGaps()...)
	a := &query.Answer{Query: filter(s.sel), Version: c.version}
	s.finish(a)
	a.Requests = int(requests.Load())
	return a, nil
}

func (s *session) run(ctx context.Context) error {
	windows := s.plan()
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.c.opts.Parallel)
	for _, w := range windows {
		g.Go(func() error { return s.window(gctx, w) })
	}
	for _, w := range s.lateWindows(windows) {
		g.Go(func() error { return s.late(gctx, w) })
	}
	if err := g.Wait(); err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	return s.errorTraces(ctx)
}

func (s *session) gap(g roll.Gap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps.Add(g)
}

// plan returns what to ask, in whole seconds, and notes what cannot be asked yet.
func (s *session) plan() []secs {
	now := s.c.now()
	last := now.Add(-endCutoff).Unix()
	var ws []secs
	for _, r := range s.ranges {
		if from := now.Add(-settle); r.End.After(from) {
			if r.Start.After(from) {
				from = r.Start
			}
			s.gap(roll.Gap{
				Reason: roll.GapNotCaughtUp, From: from, To: r.End,
				Detail: fmt.Sprintf("Tempo cannot be asked about the last %s yet", settle),
			})
		}
		w := secs{r.Start.Unix() - 1, r.End.Unix()}
		if r.End.Nanosecond() > 0 {
			w.to++
		}
		w.from, w.to = max(w.from, 0), min(w.to, last, math.MaxUint32)
		if w.from < w.to {
			ws = append(ws, w)
		}
	}
	var out []secs
	for _, w := range united(ws, nearby) {
		for ; w.to-w.from > maxWindow; w.from += maxWindow {
			out = append(out, secs{w.from, w.from + maxWindow})
		}
		out = append(out, w)
	}
	return out
}

// united returns the windows in order, those less than gap seconds apart as one.
func united(ws []secs, gap int64) []secs {
	slices.SortFunc(ws, func(a, b secs) int { return cmp.Compare(a.from, b.from) })
	var out []secs
	for _, w := range ws {
		if n := len(out); n > 0 && w.from-out[n-1].to <= gap {
			out[n-1].to = max(out[n-1].to, w.to)
			continue
		}
		out = append(out, w)
	}
	return out
}

// walk searches w, in halves where the whole is too much, and hands over each answer that is whole by its own signs.
func (s *session) walk(ctx context.Context, traceQL string, w secs, full bool, into *found) error {
	limit := uint32(sliceTraces)
	for {
		resp, used, err := s.c.search(ctx, traceQL, w, limit)
		one := w.to-w.from <= 1
		if err == nil {
			s.answered.Store(true)
			if len(resp.GetTraces()) < int(used) {
				into.add(resp, full)
				return nil
			}
			switch {
			case !one:
				return s.halves(ctx, traceQL, w, full, into)
			case used < s.c.maxLimit.Load():
				limit = s.c.maxLimit.Load()
				continue
			}
			into.add(resp, full)
			s.windowGap(roll.GapSpanLimit, w, fmt.Sprintf("one second holds more than %d traces, the server's limit", used))
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if fatal(err) {
			return err
		}
		kind := kindOf(err)
		if kind == failUnreachable && !s.answered.Load() {
			return err
		}
		if !one && s.failures.Add(1) <= maxFailures && kind != failBusy && kind != failUnreachable {
			return s.halves(ctx, traceQL, w, full, into)
		}
		reason := roll.GapBackendError
		switch {
		case kind == failJobs:
			reason = roll.GapJobsUnfinished
		case kind == failBusy:
			reason = roll.GapTooManyErrors
		case kind == failCut:
			reason = roll.GapStreamCut
		case kind == failTooLarge:
			reason = roll.GapSpanLimit
		}
		s.windowGap(reason, w, oneLine(err.Error()))
		return nil
	}
}

func (s *session) halves(ctx context.Context, traceQL string, w secs, full bool, into *found) error {
	mid := w.from + (w.to-w.from)/2
	if err := s.walk(ctx, traceQL, secs{w.from, mid}, full, into); err != nil {
		return err
	}
	return s.walk(ctx, traceQL, secs{mid, w.to}, full, into)
}

func (s *session) windowGap(reason roll.GapReason, w secs, detail string) {
	from, to := w.times()
	s.gap(roll.Gap{Reason: reason, From: from, To: to, Detail: detail})
}

// sweep searches w in slices that should each hold no more than sliceSpans of total.
func (s *session) sweep(ctx context.Context, traceQL string, w secs, full bool, total int) (*found, error) {
	f := newFound(s.sel)
	n := min(int64(total/sliceSpans+1), w.to-w.from)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.c.opts.Parallel)
	for i := range n {
		part := secs{w.from + (w.to-w.from)*i/n, w.from + (w.to-w.from)*(i+1)/n}
		g.Go(func() error { return s.walk(ctx, traceQL, part, full, f) })
	}
	return f, g.Wait()
}

// window does steps 1 to 4 for one window.
func (s *session) window(ctx context.Context, w secs) error {
	want := filter(s.sel)
	counted, countErr := s.counts(ctx, w)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	total := sum(counted)
	f, err := s.sweep(ctx, want+s.full(), w, !s.c.noFull.Load(), total)
	if kindOf(err) == failQuery && !s.c.noFull.Load() {
		if again, perr := s.sweep(ctx, want+plain, w, false, total); perr == nil {
			s.c.noFull.Store(true)
			f, err = again, nil
		}
	}
	if err != nil {
		return err
	}
	suspects := map[roll.TraceID]string{}
	// bySpan: fragments cannot be lost. Without it, what was cut is fetched by id, and the count must agree exactly.
	bySpan := f.cost() <= bySpanCost && !s.c.noBySpan.Load()
	again := want + light
	if bySpan {
		again = want + bySpanID + light
	}
	// seen is what searches have returned; f gets what is fetched on account of it as well.
	seen := maps.Clone(f.spans)
	for look := 1; ; look++ {
		o, err := s.sweep(ctx, again, w, false, total)
		if kindOf(err) == failQuery && bySpan {
			s.c.noBySpan.Store(true)
			bySpan, again = false, want+light
			continue
		}
		if err != nil {
			return err
		}
		fresh, lost := missing(o.spans, seen), missing(seen, o.spans)
		if !bySpan {
			// Which spans of a long trace come, and which fragment of one, is chance: those go by id.
			maps.Copy(suspects, fresh)
			maps.Copy(suspects, lost)
			dropSeen(fresh, seen)
			dropSeen(lost, o.spans)
		}
		if len(fresh) > fewSuspects && bySpan && !s.c.noFull.Load() {
			more, err := s.sweep(ctx, want+bySpanID+full, w, true, total)
			if err != nil {
				return err
			}
			f.merge(more)
			maps.Copy(suspects, more.suspects)
			maps.Copy(seen, more.spans)
		}
		maps.Copy(seen, o.spans)
		f.merge(o)
		maps.Copy(suspects, o.suspects)
		if len(fresh) == 0 && len(lost) == 0 {
			break
		}
		if look == looks {
			s.windowGap(roll.GapUnstable, w, fmt.Sprintf("%d looks at the same window found different spans each time", looks+1))
			break
		}
		if look > 1 || len(lost) > 0 {
			if err := sleep(ctx, s.c.pause); err != nil {
				return err
			}
		}
	}
	for k := range f.spans {
		if !f.known[k] {
			suspects[k.trace] = "its attributes are not known"
		}
	}
	if !bySpan {
		maps.Copy(suspects, f.suspects)
	}
	if err := s.fetch(ctx, suspects, true); err != nil {
		return err
	}
	if s.c.noBySpan.Load() {
		// Fragments may be lost, and the count may be of the same opinion: only by id is each trace whole.
		traces := f.traces("this Tempo cannot search span by span")
		if fit, err := s.fetchAll(ctx, traces); err != nil {
			return err
		} else if !fit {
			s.windowGap(roll.GapUnsupported, w, fmt.Sprintf(
				"this Tempo cannot search span by span (by(span:id)), and %d traces are too many to look at one by one",
				len(traces)))
		}
	}
	s.mu.Lock()
	s.all.merge(f)
	s.mu.Unlock()
	return s.check(ctx, w, f, seen, bySpan, counted, countErr)
}

// full is the select() of a first search.
func (s *session) full() string {
	if s.c.noFull.Load() {
		return plain
	}
	return full
}

func (s *session) counts(ctx context.Context, w secs) (n map[class]int, err error) {
	err = s.c.retry(ctx, func() error {
		n, err = s.c.countHTTP(ctx, filter(s.sel)+count, w.from, w.to)
		return err
	})
	return n, err
}

// tally counts spans that start in w, by class. Whether Tempo counts a span that starts at the very second that begins
// or ends w depends on its version (v3.0 counts the end, not the beginning): those are counted when edges is set.
func tally(w secs, spans map[key]*roll.Span, edges bool, times func(key) int) map[class]int {
	from, to := w.times()
	out := map[class]int{}
	for k, sp := range spans {
		at, end := sp.Start.Compare(from), sp.Start.Compare(to)
		if at > 0 && end < 0 || edges && (at == 0 || end == 0) {
			out[class{sp.Kind, sp.Status}] += times(k)
		}
	}
	return out
}

func once(key) int { return 1 }

// check holds what was found in w against the server's own count. seen is what searches found, f that and more.
func (s *session) check(
	ctx context.Context, w secs, f *found, seen map[key]*roll.Span, bySpan bool, counted map[class]int, countErr error,
) error {
	agrees := func() bool {
		lo := tally(w, seen, false, once)
		have := maps.Clone(f.spans)
		s.mu.Lock()
		for k, sp := range s.byID {
			if s.sel.Matches(sp) {
				have[k] = sp
			}
		}
		hi := tally(w, have, true, func(k key) int { return max(1+f.extra[k], s.rawByID[k]) })
		if !bySpan {
			lo = tally(w, have, false, once) // searches may have lost fragments; by id nothing is
		}
		s.mu.Unlock()
		for _, k := range []roll.SpanKind{roll.KindClient, roll.KindServer} {
			for c := roll.StatusUnset; c <= roll.StatusError; c++ {
				if n := counted[class{k, c}]; n < lo[class{k, c}] || n > hi[class{k, c}] {
					return false
				}
			}
		}
		return true
	}
	if countErr == nil {
		if agrees() {
			return nil
		}
		if err := sleep(ctx, s.c.pause); err != nil {
			return err
		}
		if counted, countErr = s.counts(ctx, w); ctx.Err() != nil {
			return ctx.Err()
		}
		if countErr == nil && agrees() {
			return nil
		}
	}
	// Without a count, or against one that differs, every trace is looked at by id: that shows what was lost of each, and
	// which spans are stored twice and counted twice.
	traces := f.traces("the server's count could not be matched")
	fit, err := s.fetchAll(ctx, traces)
	if err != nil {
		return err
	}
	if countErr == nil {
		if !agrees() {
			s.windowGap(roll.GapCountMismatch, w, fmt.Sprintf(
				"the server counts %d spans, %d were found", sum(counted), sum(tally(w, f.spans, false, once))))
		}
		return nil
	}
	switch kindOf(countErr) {
	case failQuery, failNotTempo:
		if !fit {
			s.windowGap(roll.GapUnsupported, w, fmt.Sprintf(
				"this Tempo cannot count spans (TraceQL metrics), and %d traces are too many to look at one by one: %s",
				len(traces), oneLine(countErr.Error())))
		}
	default:
		s.windowGap(roll.GapBackendError, w, "the server's own count could not be had: "+oneLine(countErr.Error()))
	}
	return nil
}

func sum(m map[class]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// lateWindows are the ranges where spans of the windows may be stored that were exported late. A block's time range is
// cut to 2 min before and after its making (modules/livestore/instance.go, ingestion_time_range_slack), and searches
// choose blocks by it, so a span that came more than 2 min after its start is not found at its start.
//
// What is younger than 15 min is in the live store, which is asked in three parts of the range: a late span is found
// only when its own time and that of its block are in the same part (ingesterRequests in
// modules/frontend/search_sharder.go). So the youngest windows are asked once more, as the last third of a range.
func (s *session) lateWindows(windows []secs) []secs {
	now := s.c.now()
	last := now.Add(-endCutoff).Unix()
	live := now.Add(-liveStore).Unix()
	var ws []secs
	for _, w := range windows {
		ws = append(ws, secs{w.from, min(w.to+int64(s.c.opts.Late/time.Second), last)})
	}
	var out []secs
	for _, w := range united(ws, 0) {
		for ; w.to-w.from > maxWindow; w.from += maxWindow {
			out = append(out, secs{w.from, w.from + maxWindow})
		}
		out = append(out, w)
	}
	for _, w := range windows { // in order: the first that fits covers the others
		if start := last - 3*(last-w.from); start >= live && start < last {
			return append(out, secs{start, last})
		}
	}
	return out
}

// lateQuestions are the filters of spans that matter when they are late: errors, and calls so long that being late is
// their nature.
func (s *session) lateQuestions() []string {
	if s.sel.ErrorsOnly {
		return []string{filter(s.sel)}
	}
	errs := s.sel
	errs.ErrorsOnly = true
	return []string{filter(errs), filter(s.sel, "duration > 1m")}
}

// late does step 5 for one range.
func (s *session) late(ctx context.Context, w secs) error {
	for _, q := range s.lateQuestions() {
		err := s.lateSearch(ctx, q, func(q string, full bool) (*found, error) { return s.sweep(ctx, q, w, full, 0) })
		if err != nil {
			return err
		}
	}
	return nil
}

// lateSearch runs a search for late spans, with what the server understands, and keeps what lies in the ranges.
func (s *session) lateSearch(
	ctx context.Context, filter string, search func(q string, full bool) (*found, error),
) error {
	f, err := search(filter+s.bySpan()+s.full(), !s.c.noFull.Load())
	if kindOf(err) == failQuery {
		// An old server: the windows find out what it understands, or end with the same error.
		f, err = search(filter+plain, false)
	}
	if err != nil {
		return err
	}
	suspects := map[roll.TraceID]string{}
	for k, sp := range f.spans {
		if !query.Clip(s.ranges, sp) {
			delete(f.spans, k)
			continue
		}
		if why, ok := f.suspects[k.trace]; ok {
			suspects[k.trace] = why
		}
		if !f.known[k] {
			suspects[k.trace] = "its attributes are not known"
		}
	}
	s.mu.Lock()
	s.all.merge(f)
	s.mu.Unlock()
	return s.fetch(ctx, suspects, true)
}

func (s *session) bySpan() string {
	if s.c.noBySpan.Load() {
		return ""
	}
	return bySpanID
}

// errorTraces fetches the traces with an error in a range, for their attributes and events.
func (s *session) errorTraces(ctx context.Context) error {
	ids := map[roll.TraceID]string{}
	for k, sp := range s.all.spans {
		if sp.Status == roll.StatusError && s.sel.Matches(sp) && query.Clip(s.ranges, sp) {
			ids[k.trace] = "it has an error"
		}
	}
	return s.fetch(ctx, ids, false)
}

// fetchAll fetches traces by id when all of them fit into what is left of MaxTraces.
func (s *session) fetchAll(ctx context.Context, ids map[roll.TraceID]string) (fit bool, err error) {
	s.mu.Lock()
	n := len(s.fetched)
	for id := range ids {
		if !s.fetched[id] {
			n++
		}
	}
	s.mu.Unlock()
	if n > s.c.opts.MaxTraces {
		return false, nil
	}
	return true, s.fetch(ctx, ids, true)
}

// fetch gets traces by id, each once. When needed, a trace over MaxTraces is a gap; else it is left out.
func (s *session) fetch(ctx context.Context, ids map[roll.TraceID]string, needed bool) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.c.opts.Parallel)
	over, example := 0, ""
	inOrder := func(a, b roll.TraceID) int { return slices.Compare(a[:], b[:]) }
	for _, id := range slices.SortedFunc(maps.Keys(ids), inOrder) {
		s.mu.Lock()
		done, full := s.fetched[id], len(s.fetched) >= s.c.opts.MaxTraces
		if !done && !full {
			s.fetched[id] = true
		}
		s.mu.Unlock()
		switch {
		case done:
		case full:
			over, example = over+1, ids[id]
		default:
			g.Go(func() error { return s.fetchOne(ctx, id, ids[id]) })
		}
	}
	if over > 0 && needed {
		s.gap(roll.Gap{Reason: roll.GapPartialTrace, Detail: fmt.Sprintf(
			"%d traces that may be cut were not fetched by id, the most is %d (e.g. %s)", over, s.c.opts.MaxTraces, example)})
	}
	return g.Wait()
}

func (s *session) fetchOne(ctx context.Context, id roll.TraceID, why string) error {
	var spans []roll.Span
	partial := ""
	err := s.c.retry(ctx, func() error {
		spans, partial = spans[:0], ""
		rss, err := s.c.trace(ctx, id)
		var pe *errPartial
		if errors.As(err, &pe) {
			partial, err = cmp.Or(pe.msg, "the server returns a part of it"), nil
		}
		for _, rs := range rss {
			otlpspan.Each(rs, func(sp *roll.Span, bad error) {
				if bad != nil {
					s.malformed(id, sp, bad)
					return
				}
				spans = append(spans, *sp)
			})
		}
		return err
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errNotFound):
		partial = "found by a search, but not by its id"
	case fatal(err):
		return err
	default:
		s.gap(roll.Gap{
			Reason: roll.GapBackendError, Object: id.String(),
			Detail: "fetch by id because " + why + ": " + oneLine(err.Error()),
		})
		return nil
	}
	if partial != "" {
		s.gap(roll.Gap{Reason: roll.GapPartialTrace, Object: id.String(), Detail: partial})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range spans {
		sp := &spans[i]
		if sp.TraceID != id {
			s.gaps.Add(roll.Gap{
				Reason: roll.GapBackendError, Object: id.String(), Detail: "the server answered with another trace",
			})
			return nil
		}
		k := key{id, sp.SpanID, sp.Kind}
		s.rawByID[k]++
		if old, ok := s.byID[k]; !ok || old.Status != roll.StatusError {
			s.byID[k] = sp
		}
	}
	return nil
}

func (s *session) malformed(id roll.TraceID, sp *roll.Span, bad error) {
	if !s.sel.Matches(sp) {
		return
	}
	g := roll.Gap{
		Reason: roll.GapMalformedSpan, Object: id.String(),
		Detail: "span " + sp.SpanID.String() + ": " + oneLine(bad.Error()),
	}
	if !sp.Start.IsZero() {
		g.From, g.To = sp.Start, sp.End()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.malformed[g.Object+sp.SpanID.String()] = g
}

// finish puts the answer together: by id where that was fetched, clipped to the ranges at the nanosecond.
func (s *session) finish(a *query.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, sp := range s.all.spans {
		if _, ok := s.byID[k]; !ok && s.fetched[k.trace] && s.sel.Matches(sp) && s.byIDHas(k.trace) {
			s.gaps.Add(roll.Gap{
				Reason: roll.GapPartialTrace, Object: k.trace.String(),
				Detail: "by its id it lacks span " + k.span.String() + ", which a search returned",
			})
		}
	}
	spans := s.all.spans
	maps.Copy(spans, s.byID)
	for k, sp := range spans {
		if s.sel.Matches(sp) && query.Clip(s.ranges, sp) {
			a.Spans = append(a.Spans, *sp)
			a.Duplicates += max(s.all.extra[k], s.rawByID[k]-1, 0)
		}
	}
	var folded int
	a.Spans, folded = query.Fold(a.Spans)
	a.Duplicates += folded
	for _, id := range slices.Sorted(maps.Keys(s.all.malformed)) {
		s.gaps.Add(s.all.malformed[id])
		a.Malformed++
	}
	slices.SortFunc(s.gaps.Gaps, func(a, b roll.Gap) int {
		return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.Reason, b.Reason),
			cmp.Compare(a.Object, b.Object), cmp.Compare(a.Detail, b.Detail))
	})
	a.Coverage = s.gaps
}

// byIDHas reports whether anything of the trace came by id.
func (s *session) byIDHas(id roll.TraceID) bool {
	for k := range s.byID {
		if k.trace == id {
			return true
		}
	}
	return false
}
