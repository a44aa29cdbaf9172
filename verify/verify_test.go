package verify

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/assertions"
	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/roll"
)

var t0 = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

// fake is a backend that holds spans, and answers with gaps or errors as it is told.
type fake struct {
	spans    []roll.Span
	gaps     []roll.Gap
	err      error // of the question about the windows
	ctlErr   error // of the control
	late     []roll.Gap
	caughtUp []time.Time
	waited   bool // the context of CaughtUp was alive
	asked    []query.Request
}

func (f *fake) Name() string    { return "fake" }
func (f *fake) Address() string { return "nowhere" }

func (f *fake) CaughtUp(ctx context.Context, end time.Time) (string, []roll.Gap) {
	f.caughtUp = append(f.caughtUp, end)
	f.waited = ctx.Err() == nil
	return "asked", f.late
}

func (f *fake) Spans(ctx context.Context, req query.Request) (*query.Answer, error) {
	f.asked = append(f.asked, req)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := f.err; err != nil && !req.Selection.ErrorsOnly {
		return nil, err
	}
	if err := f.ctlErr; err != nil && req.Selection.ErrorsOnly {
		return nil, err
	}
	a := &query.Answer{Query: "q", Version: "1", Coverage: roll.Coverage{Gaps: f.gaps}}
	merged := query.Merge(req.Ranges)
	for i := range f.spans {
		if s := &f.spans[i]; req.Selection.Matches(s) && query.Clip(merged, s) {
			a.Spans = append(a.Spans, *s)
		}
	}
	query.SortSpans(a.Spans)
	return a, nil
}

// recording is of a Deployment cart of one replica whose pod old was deleted at each of the times and replaced.
func recording(deletes ...time.Duration) *roll.Recording {
	rec := &roll.Recording{
		Header: roll.Header{
			Schema: 1, Source: "watch", StartedAt: at(-time.Minute), Logs: true,
			Resources: []string{"pods", "replicasets", "deployments", "events"},
		},
		Footer: &roll.Footer{Reason: "for"}, Last: at(time.Hour),
	}
	add := func(op roll.Op, resource string, received time.Time, o roll.Object) {
		rec.Lines = append(rec.Lines, roll.Line{Op: op, Resource: resource, ReceivedAt: received, Object: &o})
	}
	one := int32(1)
	owner := func(kind, name string) []roll.OwnerReference {
		return []roll.OwnerReference{{Kind: kind, Name: name, UID: "uid-" + name, Controller: true}}
	}
	labels := map[string]string{"pod-template-hash": "abc"}
	add(roll.OpListed, "deployments", at(-time.Minute), roll.Object{
		Kind: "Deployment", Metadata: roll.ObjectMeta{
			Namespace: "shop", Name: "cart", UID: "uid-cart", Generation: 1,
			CreationTimestamp: at(-time.Hour),
		},
		Spec: &roll.Spec{Replicas: &one}, Status: &roll.Status{ObservedGeneration: 1, Replicas: 1, ReadyReplicas: 1},
	})
	add(roll.OpListed, "replicasets", at(-time.Minute), roll.Object{
		Kind: "ReplicaSet", Metadata: roll.ObjectMeta{
			Namespace: "shop", Name: "cart-abc", UID: "uid-cart-abc", CreationTimestamp: at(-time.Hour), Labels: labels,
			OwnerReferences: owner("Deployment", "cart"),
			Annotations:     map[string]string{"deployment.kubernetes.io/revision": "1"},
		},
		Spec: &roll.Spec{Replicas: &one}, Status: &roll.Status{Replicas: 1, ReadyReplicas: 1},
	})
	grace := int64(30)
	zero := int64(0)
	pod := func(n int, created time.Time, edit func(*roll.Object)) roll.Object {
		o := roll.Object{
			Kind: "Pod", Metadata: roll.ObjectMeta{
				Namespace: "shop", Name: fmt.Sprintf("cart-abc-p%d", n), UID: fmt.Sprintf("uid-p%d", n),
				CreationTimestamp: created,
				Labels:            labels, OwnerReferences: owner("ReplicaSet", "cart-abc"),
			},
			Spec: &roll.Spec{
				NodeName: "n1", Containers: []roll.Container{{Name: "app"}},
				TerminationGracePeriodSeconds: &grace,
			},
			Status: &roll.Status{
				Phase: "Running", PodIP: fmt.Sprintf("10.0.0.%d", n+1),
				Conditions: []roll.Condition{{
					Type: "Ready", Status: "True",
					LastTransitionTime: created.Add(time.Second),
				}},
				ContainerStatuses: []roll.ContainerStatus{{
					Name: "app", ContainerID: fmt.Sprintf("containerd://c%d", n), Ready: true,
					State: roll.ContainerState{Running: &roll.StateRunning{StartedAt: created.Add(time.Second)}},
				}},
			},
		}
		if edit != nil {
			edit(&o)
		}
		return o
	}
	created := at(-30 * time.Minute)
	add(roll.OpListed, "pods", at(-time.Minute), pod(0, created, nil))
	for i, d := range deletes {
		gone, exit := at(d+2*time.Second), at(d+time.Second)
		terminated := func(o *roll.Object) {
			o.Metadata.DeletionTimestamp, o.Metadata.DeletionGracePeriodSeconds = at(d+30*time.Second), &grace
			o.Status.ContainerStatuses[0].State = roll.ContainerState{Terminated: &roll.StateTerminated{
				Reason: "Completed", StartedAt: created.Add(time.Second), FinishedAt: exit,
				ContainerID: fmt.Sprintf("containerd://c%d", i),
			}}
			o.Status.ContainerStatuses[0].Ready = false
			o.Status.Phase = "Succeeded"
		}
		add(roll.OpModified, "pods", at(d+10*time.Millisecond), pod(i, created, func(o *roll.Object) {
			o.Metadata.DeletionTimestamp, o.Metadata.DeletionGracePeriodSeconds = at(d+30*time.Second), &grace
		}))
		add(roll.OpAdded, "events", at(d+30*time.Millisecond), roll.Object{
			Kind: "Event", Metadata: roll.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("cart-abc-p%d.%x", i,
				at(d+20*time.Millisecond).UnixNano())},
			InvolvedObject: &roll.ObjectReference{Kind: "Pod", Namespace: "shop", Name: fmt.Sprintf("cart-abc-p%d",
				i), UID: fmt.Sprintf("uid-p%d", i), FieldPath: "spec.containers{app}"},
			Reason: "Killing", Message: "Stopping container app", Count: 1, FirstTimestamp: at(d),
			LastTimestamp: at(d),
		})
		add(roll.OpAdded, "pods", at(d+50*time.Millisecond), pod(i+1, at(d), func(o *roll.Object) {
			o.Status = &roll.Status{Phase: "Pending"}
		}))
		add(roll.OpModified, "pods", at(d+1500*time.Millisecond), pod(i+1, at(d), nil))
		add(roll.OpModified, "pods", at(d+1600*time.Millisecond), pod(i, created, terminated))
		add(roll.OpModified, "pods", gone, pod(i, created, func(o *roll.Object) {
			terminated(o)
			o.Metadata.DeletionTimestamp, o.Metadata.DeletionGracePeriodSeconds = gone, &zero
		}))
		add(roll.OpDeleted, "pods", gone.Add(10*time.Millisecond), pod(i, created, func(o *roll.Object) {
			terminated(o)
			o.Metadata.DeletionTimestamp, o.Metadata.DeletionGracePeriodSeconds = gone, &zero
		}))
		rec.Ends = append(rec.Ends, roll.EndOfLog{LogEnd: roll.LogEnd{
			Namespace: "shop",
			Pod:       fmt.Sprintf("cart-abc-p%d", i), UID: fmt.Sprintf("uid-p%d", i), Container: "app", Complete: true,
		}})
		created = at(d)
	}
	rec.Ends = append(rec.Ends, roll.EndOfLog{LogEnd: roll.LogEnd{Namespace: "shop", Pod: fmt.Sprintf("cart-abc-p%d",
		len(deletes)), UID: fmt.Sprintf("uid-p%d", len(deletes)), Container: "app", Complete: true}})
	return rec
}

// call is a client span and the server span of pod n for it.
func call(id byte, n int, start, took time.Duration) []roll.Span {
	client := roll.Span{
		TraceID: roll.TraceID{15: id}, SpanID: roll.SpanID{7: 1}, Kind: roll.KindClient, Name: "Get",
		Start: at(start), Duration: took,
		Resource: &roll.Resource{Attributes: roll.Attributes{{Key: "service.name", Value: "web"}}},
	}
	server := client
	server.Kind, server.SpanID, server.ParentID = roll.KindServer, roll.SpanID{7: 2}, client.SpanID
	server.Resource = &roll.Resource{Attributes: roll.Attributes{
		{Key: "service.name", Value: "cart"},
		{Key: "k8s.pod.uid", Value: fmt.Sprintf("uid-p%d", n)},
	}}
	return []roll.Span{client, server}
}

func failing(spans []roll.Span) []roll.Span {
	for i := range spans {
		spans[i].Status = roll.StatusError
	}
	return spans
}

func options(f *fake, rec *roll.Recording) Options {
	return Options{
		Recording: rec, Traces: f, Params: assertions.DefaultParams(), Padding: DefaultPadding, Tool: "test",
		Now: func() time.Time { return t0 },
	}
}

func mustRun(t *testing.T, o Options) *roll.Report {
	t.Helper()
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func result(t *testing.T, rep *roll.Report, assertion, id string) roll.Result {
	t.Helper()
	for _, r := range rep.Results {
		if r.Assertion == assertion && r.Roll == id {
			return r
		}
	}
	t.Fatalf("no result of %s for %q", assertion, id)
	return roll.Result{}
}

const minute = time.Minute

func TestPass(t *testing.T) {
	f := &fake{spans: slices.Concat(call(1, 0, 500*time.Millisecond, 20*time.Millisecond), failing(call(2, 0,
		-30*time.Second, time.Millisecond)))}
	rep := mustRun(t, options(f, recording(0)))
	if rep.Verdict != roll.Pass {
		t.Fatalf("verdict %s: %+v", rep.Verdict, rep.Results)
	}
	if len(rep.Rolls) != 1 || rep.Rolls[0].Cause != roll.CauseDelete || rep.Rolls[0].Spans.Client != 1 || rep.Rolls[0].Spans.Server != 1 {
		t.Errorf("rolls %+v", rep.Rolls)
	}
	if rep.Control == nil || rep.Control.Errors != 2 || len(rep.Control.Ranges) != 2 {
		t.Errorf("control %+v", rep.Control)
	}
	if rep.Backend != (roll.BackendInfo{Name: "fake", Address: "nowhere", Version: "1", Query: "q", Barrier: "asked"}) {
		t.Errorf("backend %+v", rep.Backend)
	}
	// The windows are padded, the backend was given the time to catch up with the latest, and the control looked
	// elsewhere.
	w := rep.Rolls[0].Window
	if want := []roll.Range{{
		Start: w.Start.Add(-DefaultPadding),
		End:   w.End.Add(DefaultPadding),
	}}; !slices.Equal(f.asked[0].Ranges, want) {
		t.Errorf("asked for %v, want %v", f.asked[0].Ranges, want)
	}
	if !f.waited || len(f.caughtUp) != 1 || !f.caughtUp[0].Equal(w.End.Add(DefaultPadding)) {
		t.Errorf("waited for %v", f.caughtUp)
	}
	if ctl := f.asked[1]; !ctl.Selection.ErrorsOnly {
		t.Errorf("control asked for %+v", ctl)
	}
}

// Each roll is judged on its own window: the error of one does not fail the other.
func TestRollsAreJudgedApart(t *testing.T) {
	f := &fake{spans: slices.Concat(
		call(1, 0, 500*time.Millisecond, time.Millisecond), failing(call(2, 0, 600*time.Millisecond, time.Millisecond)),
		call(3, 1, 10*minute+500*time.Millisecond, time.Millisecond),
	)}
	rep := mustRun(t, options(f, recording(0, 10*minute)))
	var got []roll.Verdict
	for _, r := range rep.Rolls {
		got = append(got, r.Verdict)
	}
	if !slices.Equal(got, []roll.Verdict{roll.Fail, roll.Pass}) || rep.Verdict != roll.Fail {
		t.Errorf("rolls %v, report %s", got, rep.Verdict)
	}
	if n := len(result(t, rep, "no-error-spans", rep.Rolls[0].ID).Findings); n != 2 {
		t.Errorf("%d findings", n)
	}

	second := rep.Rolls[1].ID
	o := options(f, recording(0, 10*minute))
	o.Rolls = func(r *roll.Roll) bool { return r.ID == second }
	if rep := mustRun(t, o); rep.Verdict != roll.Pass || len(rep.Rolls) != 1 {
		t.Errorf("the second roll alone: %s with %d rolls", rep.Verdict, len(rep.Rolls))
	}
	o.Rolls = func(*roll.Roll) bool { return false }
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrNoRollSelected) || !strings.Contains(err.Error(), second) {
		t.Errorf("nothing selected: %v", err)
	}
}

// argoproj/argo-rollouts#4479, #4535: none of these may pass, and an answer that could not be had is no verdict at all.
func TestNeverPassesWithoutEvidence(t *testing.T) {
	good := call(1, 0, 500*time.Millisecond, time.Millisecond)
	gap := func(r roll.GapReason) []roll.Gap { return []roll.Gap{{Reason: r, Detail: "cut"}} }
	for name, c := range map[string]struct {
		fake   fake
		edit   func(*Options)
		reason roll.GapReason
	}{
		"no spans":        {fake: fake{}, reason: roll.GapNoSpans},
		"spans elsewhere": {fake: fake{spans: call(1, 0, minute, time.Millisecond)}, reason: roll.GapNoSpans},
		"answer cut":      {fake: fake{spans: good, gaps: gap(roll.GapSpanLimit)}, reason: roll.GapSpanLimit},
		"not caught up":   {fake: fake{spans: good, late: gap(roll.GapNotCaughtUp)}, reason: roll.GapNotCaughtUp},
		"no footer": {
			fake: fake{spans: good},
			edit: func(o *Options) { o.Recording.Gaps = gap(roll.GapNoFooter) }, reason: roll.GapNoFooter,
		},
		"a log not followed": {
			fake: fake{spans: good},
			edit: func(o *Options) { o.Recording.Ends = o.Recording.Ends[1:] }, reason: roll.GapNoLogs,
		},
		"logs not recorded": {
			fake: fake{spans: good}, edit: func(o *Options) { o.Recording.Header.Logs = false },
			reason: roll.GapNoLogs,
		},
		"unstamped log lines": {fake: fake{spans: good}, edit: func(o *Options) {
			o.Recording.Logs = []roll.Log{{
				Namespace: "shop", Pod: "cart-abc-p0", UID: "uid-p0", Container: "app",
				Line: `{"level":"info"}`,
			}}
		}, reason: roll.GapLogs},
		"no roll": {
			fake: fake{spans: good}, edit: func(o *Options) { o.Recording = recording() },
			reason: roll.GapNoRolls,
		},
		"control required": {
			fake: fake{spans: good}, edit: func(o *Options) { o.ControlRequired = true },
			reason: roll.GapNoControl,
		},
		"control not to be had": {
			fake: fake{spans: good, ctlErr: errors.New("boom")}, edit: func(o *Options) { o.ControlRequired = true },
			reason: roll.GapBackendError,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(&c.fake, recording(0))
			if c.edit != nil {
				c.edit(&o)
			}
			rep := mustRun(t, o)
			if rep.Verdict != roll.Inconclusive {
				t.Errorf("verdict %s", rep.Verdict)
			}
			named := false
			for _, r := range rep.Results {
				named = named || slices.Contains(r.Reasons, c.reason)
			}
			if !named {
				t.Errorf("no result names %s: %+v", c.reason, rep.Results)
			}
			if !slices.ContainsFunc(rep.Gaps,
				func(g roll.Gap) bool { return g.Reason == c.reason }) && c.reason != roll.GapNoSpans &&
				c.reason != roll.GapNoRolls && c.reason != roll.GapNoControl {
				t.Errorf("the report's gaps do not hold %s: %v", c.reason, rep.Gaps)
			}
		})
	}

	boom := errors.New("boom")
	if rep, err := Run(t.Context(), options(&fake{err: boom}, recording(0))); !errors.Is(err, boom) || rep != nil {
		t.Errorf("backend error: report %v, error %v", rep, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if rep, err := Run(ctx, options(&fake{}, recording(0))); !errors.Is(err, context.Canceled) || rep != nil {
		t.Errorf("interrupted: report %v, error %v", rep, err)
	}
}

// A control that was not asked for holds nobody up, and its range is the user's when there is one.
func TestControl(t *testing.T) {
	spans := slices.Concat(call(1, 0, 500*time.Millisecond, time.Millisecond), failing(call(2, 0, 20*minute,
		time.Millisecond)))
	o := options(&fake{spans: spans, ctlErr: errors.New("boom")}, recording(0))
	if rep := mustRun(t, o); rep.Verdict != roll.Pass {
		t.Errorf("control failed, not required: %s", rep.Verdict)
	}
	for d, want := range map[time.Duration]roll.Verdict{20 * minute: roll.Pass, 30 * minute: roll.Inconclusive} {
		f := &fake{spans: spans}
		o = options(f, recording(0))
		o.ControlRequired, o.ControlRange = true, &roll.Range{Start: at(d), End: at(d + minute)}
		if rep := mustRun(t, o); rep.Verdict != want {
			t.Errorf("control in minute %s: %s, want %s", d, rep.Verdict, want)
		}
		if !slices.Equal(f.asked[1].Ranges, []roll.Range{*o.ControlRange}) {
			t.Errorf("control asked for %v", f.asked[1].Ranges)
		}
	}
}

func TestNoWait(t *testing.T) {
	f := &fake{spans: call(1, 0, 500*time.Millisecond, time.Millisecond)}
	o := options(f, recording(0))
	o.NoWait = true
	mustRun(t, o)
	if f.waited || len(f.caughtUp) != 1 {
		t.Errorf("waited %v, asked %d times", f.waited, len(f.caughtUp))
	}
}

func TestWaivers(t *testing.T) {
	pol, err := assertions.ParsePolicy("p",
		[]byte("apiVersion: rolltrace/v1alpha1\nkind: RolloutPolicy\nmetadata: {name: space}\n"+
			"spec: {waivers: [{name: notice, assertion: no-warn-logs, match: standing, reason: known}, {name: idle, assertion: clean-exit, match: x, reason: r}]}"))
	if err != nil {
		t.Fatal(err)
	}
	rec := recording(0)
	for i := range 3 {
		rec.Logs = append(rec.Logs, roll.Log{
			Namespace: "shop", Pod: "cart-abc-p0", UID: "uid-p0", Container: "app",
			Time: at(time.Duration(100+i) * time.Millisecond),
			Line: `{"level":"warn","msg":"a standing notice"}`,
		})
	}
	f := &fake{spans: call(1, 0, 500*time.Millisecond, time.Millisecond)}
	if rep := mustRun(t, options(f, rec)); rep.Verdict != roll.Fail || rep.Waivers != nil || rep.Policy != "" {
		t.Errorf("without a policy: %s", rep.Verdict)
	}
	o := options(f, rec)
	o.Policy = pol
	rep := mustRun(t, o)
	if rep.Verdict != roll.Pass || rep.Policy != "space" {
		t.Errorf("with the policy: %s", rep.Verdict)
	}
	if l := rep.Rolls[0].Logs; l.Lines != 3 || l.Warn != 3 || l.Waived != 3 {
		t.Errorf("logs %+v", l)
	}
	if len(rep.Waivers) != 2 || rep.Waivers[0].Count != 1 || rep.Waivers[1].Count != 0 {
		t.Errorf("waivers %+v", rep.Waivers)
	}
}

func TestOutside(t *testing.T) {
	r := func(a, b int) roll.Range {
		return roll.Range{Start: at(time.Duration(a) * time.Second), End: at(time.Duration(b) * time.Second)}
	}
	for name, c := range map[string]struct {
		in   roll.Range
		cuts []roll.Range
		want []roll.Range
	}{
		"none":         {r(0, 10), nil, []roll.Range{r(0, 10)}},
		"middle":       {r(0, 10), []roll.Range{r(3, 5)}, []roll.Range{r(0, 3), r(5, 10)}},
		"both ends":    {r(0, 10), []roll.Range{r(-5, 2), r(8, 20)}, []roll.Range{r(2, 8)}},
		"overlapping":  {r(0, 10), []roll.Range{r(5, 7), r(1, 6)}, []roll.Range{r(0, 1), r(7, 10)}},
		"everything":   {r(0, 10), []roll.Range{r(-1, 11)}, nil},
		"beyond":       {r(0, 10), []roll.Range{r(20, 30)}, []roll.Range{r(0, 10)}},
		"before":       {r(0, 10), []roll.Range{r(-9, -5)}, []roll.Range{r(0, 10)}},
		"nothing":      {r(0, 0), []roll.Range{r(0, 1)}, nil},
		"touches ends": {r(0, 10), []roll.Range{r(0, 1), r(9, 10)}, []roll.Range{r(1, 9)}},
	} {
		if got := outside(c.in, c.cuts); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
