// Package verify is the pipeline: recording → rolls and windows → spans and logs → checks → report. Read it first: it
// is one function, [Run], in straight-line code, and each step names the package that does the work.
package verify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rolltrace/rolltrace/assertions"
	"github.com/rolltrace/rolltrace/correlate"
	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/roll"
)

// DefaultPadding is what windows are widened by on both sides. Kubernetes writes times in whole seconds and clocks
// differ, so a call that the roll broke may show up to about a second outside the window.
const DefaultPadding = time.Second

// ErrNoRollSelected is wrapped by the error of a selection that no roll of the recording meets.
var ErrNoRollSelected = errors.New("no roll is selected")

// Options are what a verification needs. Recording, Traces and Now are required.
type Options struct {
	Recording *roll.Recording
	Traces    query.Traces
	// Sources are what else is known of the rolls beside the recording; the zero value is nothing.
	Sources correlate.Sources
	// Selection narrows the spans; the zero value is all client and server spans.
	Selection query.Selection
	// Policy is nil for the defaults.
	Policy *assertions.Policy
	Params assertions.Params
	// Padding widens the roll windows on both sides.
	Padding time.Duration
	// Rolls selects rolls; nil selects all. A selection that none meets is an error, a recording without any is not.
	Rolls func(*roll.Roll) bool
	// ControlRequired makes it inconclusive that no error span is found outside the windows. ControlRange is where to
	// look; nil: everything that was recorded but the padded windows of all rolls.
	ControlRequired bool
	ControlRange    *roll.Range
	// NoWait does not wait for the backend to catch up: what may be missing for that is a gap.
	NoWait bool
	// Tool is the report's tool, "rolltrace v1.2.3".
	Tool string
	// Progress is told what happens, one line a step; nil for nobody.
	Progress func(line string)
	// Now is the observer's clock: it measures how long the wait took, and nothing else.
	Now func() time.Time
}

// Run judges a recording. An error means that there is no verdict.
func Run(ctx context.Context, o Options) (*roll.Report, error) {
	progress := o.Progress
	if progress == nil {
		progress = func(string) {}
	}

	// 1. The recording says which rolls there were.
	timeline := correlate.DeriveWith(o.Recording, o.Sources)
	rolls, err := selected(timeline, o.Rolls)
	if err != nil {
		return nil, err
	}
	windows, all := make([]roll.Range, len(rolls)), make([]roll.Range, len(timeline.Rolls))
	for i, r := range rolls {
		windows[i] = pad(r.Window, o.Padding)
	}
	for i := range timeline.Rolls {
		all[i] = pad(timeline.Rolls[i].Window, o.Padding)
	}
	progress(fmt.Sprintf("the recording holds %d rolls, %d are judged", len(timeline.Rolls), len(rolls)))

	rep := &roll.Report{
		Schema: roll.ReportSchema, Tool: o.Tool, Padding: o.Padding, Recorded: timeline.Recorded,
		Rolls: []roll.RollReport{}, Results: []roll.Result{},
		Backend: roll.BackendInfo{Name: o.Traces.Name(), Address: o.Traces.Address()},
	}
	if o.Policy != nil {
		rep.Policy = o.Policy.Name
	}
	gaps := roll.Coverage{}
	gaps.Add(timeline.Gaps...)

	// 2. The backend says which spans there were in their windows, once it can be expected to have them all.
	var answer query.Answer
	var control *assertions.Control
	if len(rolls) > 0 {
		var late []roll.Gap
		rep.Backend.Barrier, rep.Backend.Waited, late = wait(ctx, o, windows, progress)
		progress(fmt.Sprintf("asking %s at %s for the spans of %d windows", o.Traces.Name(), o.Traces.Address(),
			len(windows)))
		a, err := o.Traces.Spans(ctx, query.Request{Ranges: query.Merge(windows), Selection: o.Selection})
		if err != nil {
			return nil, fmt.Errorf("fetch spans: %w", err)
		}
		answer = *a
		answer.Coverage.Add(late...)
		rep.Backend.Query, rep.Backend.Version = answer.Query, answer.Version
		progress(fmt.Sprintf("%s, coverage %s", count(len(answer.Spans), "span"), answer.Coverage))
		gaps.Add(answer.Coverage.Gaps...)

		// 3. The same question outside the windows: does it find errors where there are some?
		if control, err = askControl(ctx, o, timeline.Recorded, all); err != nil {
			return nil, err
		}
		if o.ControlRequired {
			gaps.Add(control.Gaps...)
		}
		rep.Control = &roll.ControlReport{
			Required: o.ControlRequired, Ranges: control.Ranges,
			Errors: len(control.Spans),
		}
	}

	// A span that says that its process shuts down bounds SIGTERM. There may be none, and none is missed.
	if len(rolls) > 0 {
		if a, err := o.Traces.Spans(ctx, query.Request{Ranges: query.Merge(windows), Selection: query.Selection{Shutdown: true}}); err == nil {
			correlate.NarrowByShutdown(timeline, a.Spans, query.SaysShutdown, o.Params.Skew)
		} else if ctx.Err() != nil {
			return nil, fmt.Errorf("fetch spans: %w", err)
		}
	}

	// 4. Spans and log lines find their pods and phases.
	correlate.NewIndex(timeline, correlate.Options{Skew: o.Params.Skew}).Correlate(answer.Spans)
	logs, logGaps := correlate.Logs(o.Recording), correlate.LogGaps(o.Recording, timeline)
	logGaps = append(logGaps, unstamped(logs)...)
	gaps.Add(logGaps...)
	pods := map[string]*roll.Pod{}
	for _, p := range timeline.Pods {
		pods[p.UID] = p
	}

	// 5. Each roll is judged on the evidence of its own window.
	spansOf := correlate.AssignWindows(answer.Spans, windows)
	for i, r := range rolls {
		spans, others, unplaced := here(&o.Recording.Header, gather(answer.Spans, spansOf[i]))
		ev := &assertions.Evidence{
			Roll: r, Window: windows[i], Pods: pods, Control: control,
			Spans:    spans,
			SpanGaps: append(answer.Coverage.Within(windows[i].Start, windows[i].End), unplaced...),
			Logs:     correlate.WindowLogs(logs, windows[i].Start, windows[i].End),
			LogGaps:  (roll.Coverage{Gaps: logGaps}).Within(r.Window.Start, r.Window.End),

			LogsRecorded: o.Recording.Header.Logs || len(o.Recording.Logs) > 0,
		}
		var verdicts []roll.Verdict
		rr := rollReport(r, ev)
		rr.Spans.Elsewhere = others
		for _, a := range assertions.All {
			if a.Global {
				continue
			}
			res := assertions.Run(a, ev, o.Params, o.Policy)
			rep.Results = append(rep.Results, res)
			verdicts = append(verdicts, res.Verdict)
			if a == assertions.NoWarnLogs {
				for _, f := range res.Waived {
					rr.Logs.Waived += max(f.Count, 1)
				}
			}
		}
		rr.Verdict = roll.Worst(verdicts...)
		rep.Rolls = append(rep.Rolls, rr)
	}

	// 6. What concerns the whole.
	if len(rolls) == 0 {
		rep.Results = append(rep.Results, noRolls(timeline))
	} else {
		for _, a := range assertions.All {
			if a.Global {
				rep.Results = append(rep.Results, assertions.Run(a, &assertions.Evidence{
					Pods:    pods,
					Control: control,
				}, o.Params, o.Policy))
			}
		}
	}

	// 7. The worst of them is the verdict.
	var verdicts []roll.Verdict
	for _, res := range rep.Results {
		verdicts = append(verdicts, res.Verdict)
	}
	rep.Verdict = roll.Worst(verdicts...)
	rep.Waivers = o.Policy.Uses(rep.Results)
	rep.Gaps = gaps.Gaps
	return rep, nil
}

// selected returns the rolls to judge.
func selected(tl *roll.Timeline, want func(*roll.Roll) bool) ([]*roll.Roll, error) {
	var out []*roll.Roll
	for i := range tl.Rolls {
		if r := &tl.Rolls[i]; want == nil || want(r) {
			out = append(out, r)
		}
	}
	if len(out) == 0 && want != nil {
		return nil, fmt.Errorf("%w: the recording holds %s", ErrNoRollSelected, idsOf(tl.Rolls))
	}
	return out, nil
}

func idsOf(rolls []roll.Roll) string {
	if len(rolls) == 0 {
		return "none"
	}
	s := ""
	for i := range rolls {
		if i == 10 {
			return fmt.Sprintf("%s and %d more", s, len(rolls)-i)
		}
		if i > 0 {
			s += ", "
		}
		s += rolls[i].ID
	}
	return s
}

func pad(r roll.Range, by time.Duration) roll.Range {
	return roll.Range{Start: r.Start.Add(-by), End: r.End.Add(by)}
}

// wait makes sure that the backend has the spans of the windows, or says that it may not.
func wait(ctx context.Context, o Options, windows []roll.Range, progress func(string)) (barrier string,
	waited time.Duration, gaps []roll.Gap,
) {
	var end time.Time
	for _, w := range windows {
		if w.End.After(end) {
			end = w.End
		}
	}
	if o.NoWait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		cancel()
	} else {
		progress("waiting until the backend can be expected to have every span that ended before " + end.UTC().Format(time.RFC3339))
	}
	began := o.Now()
	barrier, gaps = o.Traces.CaughtUp(ctx, end)
	waited = o.Now().Sub(began)
	return barrier, waited, gaps
}

// askControl looks for error spans outside the windows. That it could not be asked is a gap, not an error: only a
// user who requires a control is held up by it.
func askControl(ctx context.Context, o Options, recorded roll.Range, windows []roll.Range) (*assertions.Control,
	error,
) {
	c := &assertions.Control{Required: o.ControlRequired, Ranges: outside(recorded, windows)}
	if o.ControlRange != nil {
		c.Ranges = []roll.Range{*o.ControlRange}
	}
	if len(c.Ranges) == 0 {
		return c, nil
	}
	sel := o.Selection
	sel.ErrorsOnly = true
	a, err := o.Traces.Spans(ctx, query.Request{Ranges: c.Ranges, Selection: sel})
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("fetch control spans: %w", err)
	case err != nil:
		c.Gaps = []roll.Gap{{
			Reason: roll.GapBackendError,
			Detail: "the control could not be asked for: " + err.Error(),
		}}
	default:
		c.Spans, c.Gaps = a.Spans, a.Coverage.Gaps
	}
	return c, nil
}

// outside returns what is left of r without the cuts, in order.
func outside(r roll.Range, cuts []roll.Range) []roll.Range {
	var out []roll.Range
	at := r.Start
	for _, c := range query.Merge(cuts) {
		if end := minTime(c.Start, r.End); at.Before(end) {
			out = append(out, roll.Range{Start: at, End: end})
		}
		if c.End.After(at) {
			at = c.End
		}
	}
	if at.Before(r.End) {
		out = append(out, roll.Range{Start: at, End: r.End})
	}
	return out
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// gather returns the spans of one window, and nothing else: as a part of all spans where they lie side by side, which
// they do unless windows overlap or a span is long, else as a copy.
func gather(spans []roll.Span, indices []int32) []roll.Span {
	n := len(indices)
	if n == 0 {
		return nil
	}
	if first, last := int(indices[0]), int(indices[n-1]); last-first == n-1 {
		return spans[first : last+1 : last+1]
	}
	out := make([]roll.Span, n)
	for i, k := range indices {
		out[i] = spans[k]
	}
	return out
}

// unstamped says how many log lines have no time: they may be of any window, and are looked at in none.
func unstamped(logs []roll.LogLine) []roll.Gap {
	n := 0
	for n < len(logs) && logs[n].Time.IsZero() {
		n++
	}
	if n == 0 {
		return nil
	}
	return []roll.Gap{{Reason: roll.GapLogs, Detail: count(n,
		"log line") + " without a time stamp cannot be placed in a window; record logs with time stamps"}}
}

func rollReport(r *roll.Roll, ev *assertions.Evidence) roll.RollReport {
	rr := roll.RollReport{
		ID: r.ID, Workload: r.Workload, From: r.From, To: r.To, Cause: r.Cause, Window: r.Window,
		Completed:    r.Completed,
		Terminations: r.Terminations,
	}
	if rr.Terminations == nil {
		rr.Terminations = []roll.Termination{}
	}
	c := &rr.Spans
	for i := range ev.Spans {
		s := &ev.Spans[i]
		failed := s.Status == roll.StatusError
		switch s.Kind {
		case roll.KindClient:
			c.Client++
		case roll.KindServer:
			c.Server++
			if s.Phase != roll.PhaseUnknown {
				if c.ServerByPhase == nil {
					c.ServerByPhase = map[roll.Phase]int{}
				}
				c.ServerByPhase[s.Phase]++
			}
			switch {
			case s.Phase == roll.PhasePreStop || s.EndPhase == roll.PhasePreStop:
				c.ServedInPreStop++
			case s.Phase == roll.PhaseDrain || s.EndPhase == roll.PhaseDrain:
				c.ServedInDrain++
			}
		}
		if failed {
			c.Errors++
		}
		if s.Pod == nil && s.Peer == nil {
			c.Unattributed++
		}
		if _, ok := assertions.TouchedTerminating(s); ok {
			c.TouchedTerminating++
			if failed {
				c.TouchedTerminatingErrors++
			}
		}
	}
	l := &rr.Logs
	l.Lines = len(ev.Logs)
	for i := range ev.Logs {
		switch s := ev.Logs[i].Severity; {
		case s >= roll.SeverityError:
			l.Error++
		case s >= roll.SeverityWarn:
			l.Warn++
		case s == roll.SeverityUnspecified:
			l.NoSeverity++
		}
	}
	return rr
}

// noRolls is the result of a recording without a roll: nothing was judged, so nothing passed.
func noRolls(tl *roll.Timeline) roll.Result {
	return assertions.Run(&assertions.Assertion{
		ID: assertions.EvidenceComplete.ID,
		Check: func(*assertions.Evidence, assertions.Params) assertions.Outcome {
			out := assertions.Outcome{Summary: "the recording holds no roll"}
			out.Gaps = append(out.Gaps, roll.Gap{
				Reason: roll.GapNoRolls, From: tl.Recorded.Start, To: tl.Recorded.End,
				Detail: "no workload replaced a pod while the recording ran, so there is nothing to judge",
			})
			out.Gaps = append(out.Gaps, tl.Gaps...)
			return out
		},
	}, &assertions.Evidence{}, assertions.Params{}, nil)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
