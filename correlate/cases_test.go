package correlate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

var t0 = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// script is a recording written by hand: each step is seconds after t0, an op and an object in Kubernetes' own JSON.
type script struct {
	t   *testing.T
	rec *roll.Recording
}

func newScript(t *testing.T) *script {
	return &script{t, &roll.Recording{Header: roll.Header{StartedAt: t0}, Footer: &roll.Footer{}, Last: t0.Add(10 * time.Minute)}}
}

func (s *script) add(after float64, op roll.Op, object string) *script {
	s.t.Helper()
	var kind struct{ Kind string }
	if err := json.Unmarshal([]byte(object), &kind); err != nil {
		s.t.Fatal(err)
	}
	res := roll.ResourceOfKind(kind.Kind)
	o, err := roll.Prune(res, []byte(object))
	if err != nil {
		s.t.Fatal(err)
	}
	at := t0.Add(time.Duration(after * float64(time.Second)))
	s.rec.Lines = append(s.rec.Lines, roll.Line{Object: o, Op: op, Resource: res, ReceivedAt: at})
	return s
}

func (s *script) gap(from, to float64, vanished ...string) *script {
	sec := func(f float64) time.Time { return t0.Add(time.Duration(f * float64(time.Second))) }
	g := &roll.WatchGap{Resource: roll.ResourcePods, Reason: "expired", From: sec(from), To: sec(to)}
	for _, uid := range vanished {
		g.Vanished = append(g.Vanished, roll.ObjectReference{Kind: "Pod", Namespace: "shop", UID: uid})
	}
	s.rec.Lines = append(s.rec.Lines, roll.Line{Gap: g, ReceivedAt: sec(to)})
	return s
}

// podJSON is a pod of a ReplicaSet of Deployment web; deletion is "" or the JSON of the two fields, status the container's.
func podJSON(name, hash, deletion, status string) string {
	if deletion != "" {
		deletion += ","
	}
	return `{"kind":"Pod","metadata":{"name":"web-` + hash + `-` + name + `","namespace":"shop","uid":"` + name + `",` + deletion +
		`"creationTimestamp":"2026-12-01T11:00:00Z","labels":{"pod-template-hash":"` + hash + `"},
		"ownerReferences":[{"kind":"ReplicaSet","name":"web-` + hash + `","uid":"rs-` + hash + `","controller":true}]},
		"spec":{"nodeName":"n1","terminationGracePeriodSeconds":30,"containers":[{"name":"app","lifecycle":{"preStop":{"sleep":{"seconds":5}}}}]},
		"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-12-01T11:00:05Z"}],
		"containerStatuses":[` + status + `]}}`
}

const (
	running  = `{"name":"app","containerID":"c://1","restartCount":0,"state":{"running":{"startedAt":"2026-12-01T11:00:03Z"}},"lastState":{}}`
	exited0  = `{"name":"app","containerID":"c://1","restartCount":0,"state":{"terminated":{"exitCode":0,"reason":"Completed","startedAt":"2026-12-01T11:00:03Z","finishedAt":"2026-12-01T12:00:16Z","containerID":"c://1"}},"lastState":{}}`
	waiting  = `{"name":"app","restartCount":0,"state":{"waiting":{"reason":"ContainerCreating"}},"lastState":{}}`
	unknown  = `{"name":"app","restartCount":0,"state":{"waiting":{"reason":"ContainerCreating"}},"lastState":{"terminated":{"exitCode":137,"reason":"ContainerStatusUnknown","message":"The container could not be located when the pod was deleted","startedAt":null,"finishedAt":null}}}`
	deleting = `"deletionTimestamp":"2026-12-01T12:00:40Z","deletionGracePeriodSeconds":30` // asked for at 12:00:10
	final    = `"deletionTimestamp":"2026-12-01T12:00:17Z","deletionGracePeriodSeconds":0`
)

func only1(t *testing.T, tl *roll.Timeline) roll.Termination {
	t.Helper()
	ts := terminations(tl)
	if len(ts) != 1 {
		t.Fatalf("%d terminations, want 1", len(ts))
	}
	return ts[0]
}

func within2(t *testing.T, what string, i roll.Instant, from, to float64) {
	t.Helper()
	sec := func(f float64) time.Time { return t0.Add(time.Duration(f * float64(time.Second))) }
	if i.IsZero() || i.Earliest.Before(sec(from)) || i.Latest.After(sec(to)) {
		t.Errorf("%s is [%s, %s] (%s), want within +%gs..+%gs", what, i.Earliest, i.Latest, i.Source, from, to)
	}
}

// TestExitMadeUp guards kubernetes/kubernetes#104107: 137 ContainerStatusUnknown without times says nothing; the exit is
// bracketed by the last sight of it running, and its code is unknown.
func TestExitMadeUp(t *testing.T) {
	x := only1(t, Derive(newScript(t).
		add(1, roll.OpAdded, podJSON("a", "1", "", running)).
		add(10.1, roll.OpModified, podJSON("a", "1", deleting, running)).
		add(17, roll.OpModified, podJSON("a", "1", deleting, unknown)).
		add(17.2, roll.OpDeleted, podJSON("a", "1", final, unknown)).rec))
	if x.ExitCode != nil {
		t.Errorf("exit code %d, want unknown", *x.ExitCode)
	}
	within2(t, "exit", x.Exited, 10.1, 17)
	within2(t, "request", x.Requested, 10, 11)
}

// TestExitNotReported guards kubernetes/kubernetes#104155 and kubernetes-client/python#1540: the container goes from
// running to ContainerCreating with an empty lastState, and the DELETED object says no more.
func TestExitNotReported(t *testing.T) {
	x := only1(t, Derive(newScript(t).
		add(1, roll.OpAdded, podJSON("a", "1", "", running)).
		add(10.1, roll.OpModified, podJSON("a", "1", deleting, running)).
		add(17.2, roll.OpDeleted, podJSON("a", "1", final, waiting)).rec))
	if x.ExitCode != nil {
		t.Errorf("exit code %d, want unknown", *x.ExitCode)
	}
	within2(t, "exit", x.Exited, 10.1, 17.2)
}

// TestMeasuredClock: with the API server's clock measured, the watch's own word bounds a deletion within its second; a
// clock that is far off is a gap.
func TestMeasuredClock(t *testing.T) {
	clocked := func(offset time.Duration) *roll.Timeline {
		s := newScript(t).
			add(1, roll.OpAdded, podJSON("a", "1", "", running)).
			add(10.1, roll.OpModified, podJSON("a", "1", deleting, running)).
			add(17.2, roll.OpDeleted, podJSON("a", "1", final, exited0))
		k := roll.Clock{Of: "apiserver", Earliest: offset - 5*time.Millisecond, Latest: offset + 5*time.Millisecond, Samples: 25}
		s.rec.Lines = append(s.rec.Lines, roll.Line{Clock: &k, ReceivedAt: t0.Add(18 * time.Second)})
		return Derive(s.rec)
	}
	tl := clocked(200 * time.Millisecond)
	within2(t, "request", only1(t, tl).Requested, 10, 10.305)
	if len(tl.Gaps) != 0 {
		t.Errorf("gaps %v", tl.Gaps)
	}
	tl = clocked(-3 * time.Second)
	within2(t, "request", only1(t, tl).Requested, 10, 11)
	if len(tl.Gaps) != 1 || tl.Gaps[0].Reason != roll.GapClockSkew || len(tl.Rolls[0].Gaps) == 0 {
		t.Errorf("gaps %v, of the roll %v", tl.Gaps, tl.Rolls[0].Gaps)
	}
}

// TestNeverStarted: a container that never ran did not end (kubernetes-client/python#1540, the other shape).
func TestNeverStarted(t *testing.T) {
	tl := Derive(newScript(t).
		add(1, roll.OpAdded, podJSON("a", "1", "", waiting)).
		add(10.1, roll.OpModified, podJSON("a", "1", deleting, waiting)).
		add(12, roll.OpDeleted, podJSON("a", "1", final, unknown)).rec)
	if ts := terminations(tl); len(ts) != 0 {
		t.Errorf("%d terminations of a container that never ran", len(ts))
	}
	if len(tl.Rolls) != 1 {
		t.Errorf("%d rolls, want 1", len(tl.Rolls))
	}
}

// TestDeletedAcrossRelist guards grafana/grafana-app-sdk#1352: a pod that vanished in a relist was removed within the gap,
// and its exit code is unknown.
func TestDeletedAcrossRelist(t *testing.T) {
	tl := Derive(newScript(t).
		add(1, roll.OpAdded, podJSON("a", "1", "", running)).
		add(10.1, roll.OpModified, podJSON("a", "1", deleting, running)).
		gap(11, 20, "a").rec)
	x := only1(t, tl)
	within2(t, "removal", x.Removed, 11, 20)
	within2(t, "exit", x.Exited, 10, 20)
	if x.ExitCode != nil {
		t.Errorf("exit code %d, want unknown", *x.ExitCode)
	}
	if r := tl.Rolls[0]; !slices.ContainsFunc(r.Gaps, func(g roll.Gap) bool { return g.Reason == roll.GapWatch }) {
		t.Errorf("the roll does not say that the watch had a gap: %v", r.Gaps)
	}

	// The deletion itself fell into the gap: somebody may have forced it, so the exit may have come after the removal.
	x = only1(t, Derive(newScript(t).
		add(1, roll.OpAdded, podJSON("a", "1", "", running)).
		gap(11, 20, "a").rec))
	within2(t, "removal", x.Removed, 11, 20)
	if !x.Exited.IsZero() || x.ExitCode != nil {
		t.Errorf("exit %v with code %v, want both unknown", x.Exited, x.ExitCode)
	}
}

// TestRollLastsUntilGone guards kubernetes/kubectl#1628: a Deployment is complete long before its last old pod is gone,
// and the window lasts until then.
func TestRollLastsUntilGone(t *testing.T) {
	rs := func(hash, rev string) string {
		return `{"kind":"ReplicaSet","metadata":{"name":"web-` + hash + `","namespace":"shop","uid":"rs-` + hash + `","creationTimestamp":"2026-12-01T12:00:08Z",
			"labels":{"pod-template-hash":"` + hash + `"},"annotations":{"deployment.kubernetes.io/revision":"` + rev + `"},
			"ownerReferences":[{"kind":"Deployment","name":"web","uid":"d","controller":true}]},"spec":{"replicas":1}}`
	}
	s := newScript(t).
		add(0, roll.OpAdded, `{"kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"d"},"spec":{"replicas":1}}`).
		add(0, roll.OpAdded, rs("1", "1")).
		add(1, roll.OpAdded, podJSON("a", "1", "", running)).
		add(8, roll.OpAdded, rs("2", "2")).
		add(9, roll.OpAdded, strings.ReplaceAll(podJSON("b", "2", "", running), "11:00:", "12:00:")).
		add(10.1, roll.OpModified, podJSON("a", "1", deleting, running))
	tl := Derive(s.rec)
	if len(tl.Rolls) != 1 || tl.Rolls[0].Completed || !slices.ContainsFunc(tl.Rolls[0].Gaps, func(g roll.Gap) bool { return g.Reason == roll.GapEndsEarly }) {
		t.Fatalf("the old pod is not gone, and yet: %+v", tl.Rolls)
	}
	tl = Derive(s.add(500, roll.OpDeleted, podJSON("a", "1", `"deletionTimestamp":"2026-12-01T12:08:20Z","deletionGracePeriodSeconds":0`, exited0)).rec)
	r := tl.Rolls[0]
	if !r.Completed || r.Window.End.Before(t0.Add(500*time.Second)) || r.From != "1" || r.To != "2" || r.Cause != roll.CauseRollout {
		t.Errorf("%+v", r)
	}
}

// TestScaleDownInARoll guards kubernetes/kubernetes#98914 and #90461: while a roll goes on, a pod of the new revision is
// removed by a scale-down of it.
func TestScaleDownInARoll(t *testing.T) {
	rec := load(t, "rollout-restart")
	tl := Derive(rec)
	first := tl.Rolls[0]
	// Pretend that somebody scaled down: delete a new pod in the middle of its own roll, by its controller.
	victim := first.New[0]
	at := first.Window.Start.Add(6 * time.Second)
	var lines []roll.Line
	for _, l := range rec.Lines {
		if l.Object != nil && l.Object.Metadata.UID == victim.UID && l.ReceivedAt.After(at) {
			continue
		}
		lines = append(lines, l)
	}
	i := slices.IndexFunc(lines, func(l roll.Line) bool { return l.ReceivedAt.After(at) })
	last := slices.IndexFunc(lines, func(l roll.Line) bool { return l.Object != nil && l.Object.Metadata.UID == victim.UID })
	gone := *lines[last].Object
	grace := int64(50)
	gone.Metadata.DeletionTimestamp, gone.Metadata.DeletionGracePeriodSeconds = at.Truncate(time.Second).Add(50*time.Second), &grace
	rec.Lines = slices.Insert(lines, i,
		roll.Line{Op: roll.OpModified, Resource: roll.ResourcePods, Object: &gone, ReceivedAt: at},
		roll.Line{Op: roll.OpAdded, Resource: roll.ResourceEvents, ReceivedAt: at, Object: &roll.Object{
			Kind: "Event", Reason: "SuccessfulDelete", Message: "Deleted pod: " + victim.Name,
			InvolvedObject: &roll.ObjectReference{Kind: "ReplicaSet", Namespace: victim.Namespace},
		}})
	for _, r := range Derive(rec).Rolls {
		for _, o := range r.Old {
			if o == victim && r.Cause != roll.CauseScaleDown {
				t.Errorf("a pod of the current revision went for %s, want scale-down", r.Cause)
			}
			if o == victim {
				return
			}
		}
	}
	t.Error("the pod that was scaled down is in no roll")
}

// TestForcedLater: a deletion that is forced after it was asked for gracefully leaves the exit unknown.
func TestForcedLater(t *testing.T) {
	x := only1(t, Derive(newScript(t).
		add(1, roll.OpAdded, podJSON("a", "1", "", running)).
		add(10.1, roll.OpModified, podJSON("a", "1", deleting, running)).
		add(17.2, roll.OpDeleted, podJSON("a", "1", final, running)).rec))
	if !x.Forced || !x.Exited.IsZero() || x.ExitCode != nil {
		t.Errorf("forced %v, exit %v, code %v", x.Forced, x.Exited, x.ExitCode)
	}
	within2(t, "request", x.Requested, 10, 11)
}

// TestForcedLaterKeepsTheHook: a deletion that is forced after the hook was over did not cut it; one that comes while it runs
// may have.
func TestForcedLaterKeepsTheHook(t *testing.T) {
	const killing = `{"kind":"Event","reason":"Killing","message":"Stopping container app","count":1,"metadata":{"name":"web-1-a.%x","uid":"e"},
		"firstTimestamp":"2026-12-01T12:00:10Z","lastTimestamp":"2026-12-01T12:00:10Z","involvedObject":{"kind":"Pod","namespace":"shop","name":"web-1-a","uid":"a","fieldPath":"spec.containers{app}"}}`
	k := t0.Add(10500 * time.Millisecond)
	forced := func(at int) roll.Termination {
		deleted := fmt.Sprintf(`"deletionTimestamp":"2026-12-01T12:00:%dZ","deletionGracePeriodSeconds":0`, at)
		return only1(t, Derive(newScript(t).
			add(1, roll.OpAdded, podJSON("a", "1", "", running)).
			add(10.1, roll.OpModified, podJSON("a", "1", deleting, running)).
			add(10.6, roll.OpAdded, fmt.Sprintf(killing, k.UnixNano())).
			add(float64(at)+0.1, roll.OpDeleted, podJSON("a", "1", deleted, running)).rec))
	}
	within2(t, "signal", forced(40).Signaled, 15.49, 17)
	if s := forced(12).Signaled; !s.Contains(t0.Add(13500*time.Millisecond)) || !s.Contains(t0.Add(15600*time.Millisecond)) || s.Earliest.Before(k) {
		t.Errorf("%+v: the hook may have been cut at 12 s, or have ended", s)
	}
}

// TestDeletedBeforeTheRevisionIsSeen: the streams have no common order, so that of the StatefulSet may tell of a new revision
// after that of the pods has told of the first deletion.
func TestDeletedBeforeTheRevisionIsSeen(t *testing.T) {
	for name, keep := range map[string]bool{"the controller's event": true, "no events": false} {
		rec := load(t, "statefulset")
		if !keep {
			variants["no events"](rec)
		}
		change := Derive(rec).Rolls[0].Window.Start
		delay := 400 * time.Millisecond
		if keep {
			delay = 1500 * time.Millisecond
		}
		first := time.Time{} // receipt of the first deletion
		for _, l := range rec.Lines {
			if l.Resource == roll.ResourcePods && !l.Object.Metadata.DeletionTimestamp.IsZero() {
				first = l.ReceivedAt
				break
			}
		}
		for i, l := range rec.Lines {
			if l.Resource == roll.ResourceStatefulSets && !l.ReceivedAt.Before(change) && l.ReceivedAt.Before(first.Add(delay)) {
				rec.Lines[i].ReceivedAt = first.Add(delay)
			}
		}
		slices.SortStableFunc(rec.Lines, func(a, b roll.Line) int { return a.ReceivedAt.Compare(b.ReceivedAt) })
		tl := Derive(rec)
		if got := describe(tl); got != "statefulset/web rollout 2" {
			t.Errorf("%s: %s", name, got)
		}
		for _, x := range terminations(tl) {
			if x.Cause != roll.CauseRollout {
				t.Errorf("%s: %s ended because of %s", name, x.Pod.Name, x.Cause)
			}
		}
	}
}

// TestOrderAndRepetition: the streams of a watch have no common order, and a watch may repeat itself. Neither changes
// what is said.
func TestOrderAndRepetition(t *testing.T) {
	for _, s := range []string{"rollout-restart", "multi-container", "kubelet-restart-prestop", "liveness", "statefulset", "seed-roll"} {
		want, _ := json.Marshal(Derive(load(t, s)).Rolls)
		rec := load(t, s)
		for i := range rec.Lines {
			rec.Lines = append(rec.Lines[:2*i+1], append([]roll.Line{rec.Lines[2*i]}, rec.Lines[2*i+1:]...)...)
		}
		if got, _ := json.Marshal(Derive(rec).Rolls); string(got) != string(want) {
			t.Errorf("%s: every line twice changes the rolls", s)
		}
		// Swap neighbours of different resources that were received within 50 ms.
		rec = load(t, s)
		r := rand.New(rand.NewPCG(1, 2))
		for range 5 * len(rec.Lines) {
			i := r.IntN(len(rec.Lines) - 1)
			a, b := &rec.Lines[i], &rec.Lines[i+1]
			if a.Resource != b.Resource && b.ReceivedAt.Sub(a.ReceivedAt).Abs() < 50*time.Millisecond {
				*a, *b = *b, *a
			}
		}
		got := Derive(rec)
		if describe(got) != describe(Derive(load(t, s))) {
			t.Errorf("%s: another order between streams changes the rolls to %s", s, describe(got))
		}
		hold(t, s, terminations(got), truth(t, s, rec))
	}
}
