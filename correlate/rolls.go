package correlate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// forcedTail is how long after its pod object a force-deleted container is taken to have run: the kubelet waits at most
// 1 s for the hook and then at least 2 s between the stop signal and SIGKILL.
const forcedTail = 5 * time.Second

// workload is a workload while its lines are read.
type workload struct {
	roll.Workload
	uid      string
	recorded bool // its own object was seen, not only pods

	revision   int64     // the highest revision number seen: a Deployment's ReplicaSets', a DaemonSet's ControllerRevisions'
	current    string    // the hash of that revision
	generation time.Time // moment of the last change of the spec that the controller had not acted on
	recreate   bool      // a Deployment that ends every old pod before it makes a new one
	wanted     []wanted
	changes    []change
	deleted    time.Time // moment at which its own deletion was seen
	pods       []*pod
	scaled     []time.Time // moments at which fewer replicas were wanted
}

// wanted is how many pods a workload wanted from a moment on.
type wanted struct {
	at time.Time
	n  int
}

// change is a new current revision.
type change struct {
	from, to string
	at       time.Time
	late     bool // it was under way when it was first seen
}

// own finds or makes the workload of a pod.
func (c *cluster) own(p *pod, o *roll.Object) {
	m := &o.Metadata
	p.Workload = roll.Workload{Kind: "Pod", Namespace: m.Namespace, Name: m.Name}
	p.Revision = m.Labels["controller-revision-hash"]
	for _, r := range m.OwnerReferences {
		if !r.Controller && len(m.OwnerReferences) > 1 {
			continue
		}
		p.ownerUID, p.ownerKind = r.UID, r.Kind
		p.Workload = roll.Workload{Kind: r.Kind, Namespace: m.Namespace, Name: r.Name}
		if r.Kind == "ReplicaSet" {
			hash := m.Labels["pod-template-hash"]
			p.Revision = hash
			// A Deployment's ReplicaSet is named after it and the hash (pkg/controller/deployment/sync.go).
			if base, ok := strings.CutSuffix(r.Name, "-"+hash); ok && hash != "" {
				p.Workload = roll.Workload{Kind: "Deployment", Namespace: m.Namespace, Name: base}
			} else {
				p.Revision = r.Name
			}
		}
	}
	w := c.workload(p.Workload)
	w.pods = append(w.pods, p)
}

func (c *cluster) workload(k roll.Workload) *workload {
	w := c.workloads[k]
	if w == nil {
		w = &workload{Workload: k}
		c.workloads[k] = w
	}
	return w
}

// podSeen notes a new revision where only the pods tell of it.
func (c *cluster) podSeen(p *pod, op roll.Op) {
	w := c.workload(p.Workload)
	if w.recorded || w.Kind == "Pod" || w.Kind == "Job" || p.Revision == "" || p.Deleted {
		return
	}
	switch {
	case w.current == "":
		w.current = p.Revision
	case w.current == p.Revision:
	case p.Created.Earliest.After(w.newest(w.current)) || op == roll.OpAdded && !c.initial(p.Created.Earliest):
		w.turn(p.Revision, minTime(c.at, p.Created.Earliest), false)
	}
}

// newest is when the newest pod of a revision was created.
func (w *workload) newest(rev string) (t time.Time) {
	for _, p := range w.pods {
		if p.Revision == rev {
			t = maxTime(t, p.Created.Earliest)
		}
	}
	return t
}

// initial reports whether something that was created at t was there before the recording began.
func (c *cluster) initial(t time.Time) bool {
	return !c.header.StartedAt.IsZero() && t.Before(c.header.StartedAt.Add(-2*time.Second))
}

// turn makes rev the current revision from t on.
func (w *workload) turn(rev string, t time.Time, late bool) {
	if rev == w.current || rev == "" {
		return
	}
	if w.current != "" {
		if g := w.generation; !g.IsZero() && g.Before(t) && t.Sub(g) < 2*time.Second {
			t = g // the template's change is the first signal
		}
		w.changes = append(w.changes, change{from: w.current, to: rev, at: t, late: late})
	}
	w.current = rev
}

func (c *cluster) addReplicaSet(o *roll.Object, op roll.Op) {
	m := &o.Metadata
	hash := m.Labels["pod-template-hash"]
	for _, r := range m.OwnerReferences {
		if r.Kind != "Deployment" {
			continue
		}
		if op == roll.OpDeleted {
			return
		}
		w := c.workload(roll.Workload{Kind: "Deployment", Namespace: m.Namespace, Name: r.Name})
		if o.Spec != nil && o.Spec.Template != nil && o.Spec.Template.Spec != nil {
			c.templates[m.Namespace+"/"+m.Name] = template{w.Workload, hash, o.Spec.Template.Spec}
		}
		var rev int64
		fmt.Sscan(m.Annotations["deployment.kubernetes.io/revision"], &rev)
		replicas := o.Spec != nil && o.Spec.Replicas != nil && *o.Spec.Replicas > 0
		switch {
		case rev <= w.revision:
			return
		case w.current == "":
			w.current = hash
		case op == roll.OpListed && c.relisted(roll.ResourceReplicaSets) == nil,
			op != roll.OpModified && !replicas && c.initial(m.CreationTimestamp):
			w.current = hash // the list of those that were there before
		default:
			at := c.at
			if g := c.relisted(roll.ResourceReplicaSets); op == roll.OpListed && g != nil {
				at = minTime(at, g.From) // at some moment of the gap
			}
			w.turn(hash, at, false)
		}
		w.recorded, w.revision = true, rev
		return
	}
}

func (c *cluster) addWorkload(o *roll.Object, op roll.Op) {
	m := &o.Metadata
	w := c.workload(roll.Workload{Kind: o.Kind, Namespace: m.Namespace, Name: m.Name})
	first := w.uid == ""
	w.uid = m.UID
	if (op == roll.OpDeleted || !m.DeletionTimestamp.IsZero()) && w.deleted.IsZero() {
		w.deleted = c.at
	}
	if op == roll.OpDeleted {
		return
	}
	if s := o.Spec; s != nil && s.Replicas != nil {
		w.want(c.at, int(*s.Replicas))
	}
	if s := o.Spec; s != nil && s.Strategy != nil {
		w.recreate = s.Strategy.Type == "Recreate"
	}
	if st := o.Status; st != nil {
		if o.Kind == "DaemonSet" {
			w.want(c.at, int(st.DesiredNumberScheduled))
		}
		if o.Kind == "StatefulSet" && st.UpdateRevision != "" {
			if w.current == "" && st.CurrentRevision != "" && st.CurrentRevision != st.UpdateRevision {
				w.current = st.CurrentRevision
				w.turn(st.UpdateRevision, c.at, true)
			} else if w.current == "" {
				w.current = st.UpdateRevision
			} else {
				w.turn(st.UpdateRevision, c.at, false)
			}
			w.recorded = true
		}
		if !first && st.ObservedGeneration < m.Generation {
			w.generation = c.at // the controller has not acted on it yet
		}
	}
}

func (w *workload) want(at time.Time, n int) {
	if k := len(w.wanted); k > 0 && w.wanted[k-1].n == n {
		return
	} else if k > 0 && n < w.wanted[k-1].n {
		w.scaled = append(w.scaled, at)
	}
	w.wanted = append(w.wanted, wanted{at, n})
}

func (c *cluster) addControllerRevision(o *roll.Object, op roll.Op) {
	m := &o.Metadata
	for _, r := range m.OwnerReferences {
		if r.Kind != "DaemonSet" || op == roll.OpDeleted {
			continue
		}
		w := c.workload(roll.Workload{Kind: "DaemonSet", Namespace: m.Namespace, Name: r.Name})
		hash := m.Labels["controller-revision-hash"]
		switch {
		case hash == "" || o.Revision <= w.revision:
			return
		case w.current == "" || op == roll.OpListed && c.relisted(roll.ResourceControllerRevisions) == nil || c.initial(m.CreationTimestamp) && op != roll.OpModified:
			w.current = hash
		default:
			w.turn(hash, c.at, false)
		}
		w.recorded, w.revision = true, o.Revision
	}
}

// cause says why a pod was deleted.
func (c *cluster) cause(p *pod) roll.Cause {
	switch p.disruption {
	case "EvictionByEvictionAPI":
		return roll.CauseEviction
	case "DeletionByTaintManager":
		return roll.CauseTaint
	case "PreemptionByScheduler":
		return roll.CausePreemption
	case "TerminationByKubelet":
		return roll.CauseNodeShutdown
	}
	w := c.workloads[p.Workload]
	byController := slices.Contains(c.deleted, deletedEvent{p.Namespace, p.Name})
	at := requestedBy(p)
	if !w.deleted.IsZero() && !at.Before(w.deleted.Add(-time.Second)) && !byController {
		return roll.CauseOwnerDelete
	}
	rev := w.revisionAt(at)
	old := rev != "" && p.Revision != rev
	switch {
	case old && (byController || w.recorded || w.rolledBefore(at)):
		return roll.CauseRollout
	case byController:
		return roll.CauseScaleDown
	case w.scaledAt(p.Requested) && w.Kind != "Pod":
		return roll.CauseScaleDown
	case w.Kind == "Pod" || p.Deleted:
		return roll.CauseDelete
	default:
		return roll.CauseUnknown
	}
}

// revisionAt is the current revision at t.
func (w *workload) revisionAt(t time.Time) string {
	rev := w.current
	for _, ch := range slices.Backward(w.changes) {
		if ch.at.After(t) {
			rev = ch.from
		}
	}
	return rev
}

func (w *workload) rolledBefore(t time.Time) bool {
	return len(w.changes) > 0 && !w.changes[0].at.After(t)
}

// scaledAt reports whether fewer replicas were wanted about when a deletion was asked for.
func (w *workload) scaledAt(requested roll.Instant) bool {
	for _, t := range w.scaled {
		if !t.Before(requested.Earliest.Add(-2*time.Second)) && !t.After(requested.Latest.Add(2*time.Second)) {
			return true
		}
	}
	return false
}

// wantedAt is how many pods were wanted at t; ok is false when it is not known.
func (w *workload) wantedAt(t time.Time) (n int, ok bool) {
	for _, x := range w.wanted {
		if !ok || !x.at.After(t) {
			n, ok = x.n, true
		}
	}
	return n, ok
}

// building is a roll while it is put together.
type building struct {
	roll.Roll
	w      *workload
	start  time.Time
	end    time.Time
	until  time.Time // when the next roll of the workload began; zero: none did
	old    []*pod
	loose  []roll.Termination // of containers that were restarted in place
	late   bool
	change bool
}

// rolls groups what ended into rolls.
func (c *cluster) rolls(recorded roll.Range) []roll.Roll {
	var all []*building
	for _, w := range sortedWorkloads(c.workloads) {
		all = append(all, c.rollsOf(w, recorded)...)
	}
	slices.SortStableFunc(all, func(a, b *building) int {
		return cmp.Or(a.start.Compare(b.start), strings.Compare(a.Workload.String(), b.Workload.String()))
	})
	n := map[roll.Workload]int{}
	out := make([]roll.Roll, 0, len(all))
	for _, b := range all {
		n[b.Workload]++
		b.ID = fmt.Sprintf("%s#%d", b.Workload, n[b.Workload])
		out = append(out, b.Roll)
	}
	return out
}

func sortedWorkloads(m map[roll.Workload]*workload) []*workload {
	out := make([]*workload, 0, len(m))
	for _, w := range m {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b *workload) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func (c *cluster) rollsOf(w *workload, recorded roll.Range) []*building {
	var out []*building
	for i, ch := range w.changes {
		b := &building{w: w, start: ch.at, late: ch.late, change: true}
		b.Roll = roll.Roll{Workload: w.Workload, From: ch.from, To: ch.to, Cause: roll.CauseRollout}
		if i+1 < len(w.changes) {
			b.until = w.changes[i+1].at
		}
		out = append(out, b)
	}
	slices.SortFunc(w.pods, func(a, b *pod) int {
		return cmp.Or(a.Requested.Earliest.Compare(b.Requested.Earliest), cmp.Compare(a.Name, b.Name))
	})
	// Deleted pods: those of a revision that is being replaced belong to that roll; others make one of their own, joined
	// while they overlap.
	for _, p := range w.pods {
		if !p.Deleted && p.Removed.IsZero() {
			continue
		}
		cause := c.cause(p)
		if b := rollout(out, p); b != nil {
			b.old = append(b.old, p)
		} else if b := recreated(out, p, cause); b != nil {
			b.old, cause = append(b.old, p), roll.CauseRollout
			b.start = minTime(b.start, p.Requested.Earliest)
		} else {
			out = c.join(out, w, p, cause)
		}
		for i := range p.Terminations {
			if t := &p.Terminations[i]; t.Cause == roll.CauseUnknown && (!t.Requested.IsZero() || t.Exited.IsZero()) {
				t.Cause = cause
			}
		}
	}
	for _, b := range out {
		c.close(b, recorded)
	}
	out = c.restarts(out, w, recorded)
	for _, b := range out {
		b.fill()
	}
	return out
}

// rollout returns the rollout that a deleted pod belongs to: the last one that had begun when its deletion was asked for
// and that does not keep its revision.
func rollout(rolls []*building, p *pod) *building {
	var found *building
	for _, b := range rolls {
		if b.change && !b.start.After(requestedBy(p)) && p.Revision != b.To && p.Created.Earliest.Before(maxTime(b.start, requestedBy(p))) {
			found = b
		}
	}
	if found != nil && p.Revision == found.To {
		return nil
	}
	return found
}

// recreated returns the rollout that ended a pod before its own first ReplicaSet: a Recreate strategy's.
func recreated(rolls []*building, p *pod, cause roll.Cause) *building {
	for _, b := range rolls {
		if b.change && b.w.recreate && cause == roll.CauseScaleDown && p.Revision == b.From && !b.w.scaledAt(p.Requested) &&
			b.start.After(p.Requested.Earliest) {
			return b
		}
	}
	return nil
}

// requestedBy is a moment by which the pod's deletion had been asked for.
func requestedBy(p *pod) time.Time {
	if !p.Requested.IsZero() {
		return p.Requested.Latest
	}
	return maxTime(p.Removed.Latest, p.Signaled.Latest)
}

// join adds a deleted pod to a roll of its cause that it overlaps, or begins one.
func (c *cluster) join(out []*building, w *workload, p *pod, cause roll.Cause) []*building {
	start := p.Requested.Earliest
	if start.IsZero() {
		start = maxTime(p.Removed.Earliest, p.Signaled.Earliest)
	}
	for _, b := range out {
		if b.Cause == cause && !b.change && len(b.old) > 0 && overlaps(b.old, p) {
			b.old = append(b.old, p)
			return out
		}
	}
	b := &building{w: w, start: start, old: []*pod{p}}
	b.Roll = roll.Roll{Workload: w.Workload, From: p.Revision, To: w.revisionAt(requestedBy(p)), Cause: cause}
	if b.To == "" {
		b.To = p.Revision
	}
	return append(out, b)
}

// overlaps reports whether a pod's deletion was asked for before the last of the others was gone. Both are moments of
// receipt, which have an order even within one second.
func overlaps(pods []*pod, p *pod) bool {
	for _, o := range pods {
		if o.goneSeen.IsZero() || p.askedSeen.IsZero() || p.askedSeen.Before(o.goneSeen) {
			return true
		}
	}
	return false
}

// gone is when the last of the pods was gone, as far as it is known.
func gone(pods []*pod) (t time.Time) {
	for _, p := range pods {
		t = maxTime(t, endOf(p))
	}
	return t
}

// endOf is the latest moment at which a terminating pod may still have done something.
func endOf(p *pod) time.Time {
	t := maxTime(p.Removed.Latest, p.Exited.Latest, p.Signaled.Latest, p.Requested.Latest)
	if p.forced && p.Exited.IsZero() {
		t = t.Add(forcedTail)
	}
	return t
}

// close finds a roll's end: the last old pod is gone and as many of its revision are Ready as are wanted.
func (c *cluster) close(b *building, recorded roll.Range) {
	w := b.w
	for _, p := range b.old {
		b.late = b.late || p.lateSeen
	}
	if b.change {
		// Old pods that still live when the recording ends, or when the next roll begins.
		for _, p := range w.pods {
			if p.Revision == b.From && !p.Deleted && p.Removed.IsZero() && b.until.IsZero() {
				b.old = append(b.old, p)
			}
		}
	}
	b.start, b.end = maxTime(b.start), maxTime(b.start)
	complete := true
	for _, p := range b.old {
		b.end = maxTime(b.end, endOf(p))
		complete = complete && !p.Removed.IsZero()
	}
	ready, at := c.ready(b)
	complete = complete && ready
	b.end = maxTime(b.end, at)
	if !complete && b.until.IsZero() {
		b.end = maxTime(b.end, recorded.End)
	} else if !complete {
		b.end = maxTime(b.end, b.until)
	}
	b.end = b.end.Add(time.Nanosecond) // the window is half-open, the bounds are not
	b.Completed = complete
	b.Window = roll.Range{Start: b.start, End: b.end}
	if b.late {
		b.Gaps = append(b.Gaps, roll.Gap{
			Reason: roll.GapLate, From: recorded.Start, To: recorded.Start, Object: w.Workload.String(),
			Detail: "it was under way when the recording began",
		})
	}
	if !complete {
		detail := "it was not over when the recording ended"
		if !b.until.IsZero() {
			detail = "the next roll of the workload began before this one was over"
		}
		b.Gaps = append(b.Gaps, roll.Gap{Reason: roll.GapEndsEarly, From: b.end, To: b.end, Object: w.Workload.String(), Detail: detail})
	}
}

// ready reports whether as many pods as were wanted are, or became, Ready after the roll's start, and when.
func (c *cluster) ready(b *building) (bool, time.Time) {
	w := b.w
	if w.Kind == "Pod" || w.Kind == "Job" || b.Cause == roll.CauseOwnerDelete || b.Cause == roll.CauseScaleDown {
		return true, b.start // nothing is to replace them
	}
	limit := b.until
	want, known := w.wantedAt(maxTime(gone(b.old), b.start))
	if !known {
		want = len(b.old)
	}
	var since []time.Time
	for _, p := range w.pods {
		if b.change && p.Revision != b.To || p.Ready.IsZero() || slices.Contains(b.old, p) {
			continue
		}
		if !limit.IsZero() && p.Ready.Earliest.After(limit) {
			continue
		}
		if p.Deleted && !p.Requested.Latest.After(b.start) {
			continue // was on its way out
		}
		since = append(since, p.Ready.Latest)
	}
	if !known && !b.change {
		// Without the workload's own object: as many new ones as went.
		since = slices.DeleteFunc(since, func(t time.Time) bool { return t.Before(b.start) })
	}
	slices.SortFunc(since, time.Time.Compare)
	if len(since) < want {
		return false, time.Time{}
	}
	if want == 0 {
		return true, b.start
	}
	return true, maxTime(since[want-1], b.start)
}

// restarts adds what was restarted in place: to the roll in whose window it fell, else as a roll of its own.
func (c *cluster) restarts(out []*building, w *workload, recorded roll.Range) []*building {
	n := len(out)
	for _, p := range w.pods {
		for _, t := range p.Terminations {
			if !t.Requested.IsZero() || p.unseen && p.Deleted || t.Cause == roll.CauseUnknown && t.Exited.IsZero() {
				continue
			}
			if t.Cause == roll.CauseRollout || t.Cause == roll.CauseDelete {
				continue
			}
			if t.Exited.Latest.Before(p.firstSeen) {
				continue // it had ended before the pod was first seen
			}
			start, end := p.restart(&t, recorded)
			if b := within(out[:n], p, start); b != nil {
				b.loose = append(b.loose, t)
				continue
			}
			joined := false
			for _, b := range out[n:] {
				if b.Cause == t.Cause && !start.After(b.end) && !end.Before(b.start) {
					b.loose, b.start, b.end, joined = append(b.loose, t), minTime(b.start, start), maxTime(b.end, end), true
					break
				}
			}
			if !joined {
				b := &building{w: w, start: start, end: end, loose: []roll.Termination{t}}
				b.Roll = roll.Roll{Workload: w.Workload, From: p.Revision, To: p.Revision, Cause: t.Cause, Completed: true}
				out = append(out, b)
			}
		}
	}
	for _, b := range out[n:] {
		b.end = b.end.Add(time.Nanosecond)
		b.Window = roll.Range{Start: maxTime(b.start), End: b.end}
		slices.SortFunc(b.loose, func(x, y roll.Termination) int { return moment(x).Compare(moment(y)) })
	}
	return out
}

// within finds the roll that a restart at t belongs to: that of the pod itself, else one whose window holds it.
func within(rolls []*building, p *pod, t time.Time) *building {
	for _, b := range rolls {
		if slices.Contains(b.old, p) && !t.Before(b.Window.Start) {
			return b
		}
	}
	for _, b := range rolls {
		if b.Window.Contains(t) {
			return b
		}
	}
	for _, b := range rolls {
		if slices.Contains(b.old, p) && p.finished {
			return b // a Job's pod: its containers had ended when it was deleted
		}
	}
	return nil
}

// restart is from when a container was asked to end, or ended, until the pod was Ready again or the next run began.
func (p *pod) restart(t *roll.Termination, recorded roll.Range) (start, end time.Time) {
	start, end = moment(*t), maxTime(t.Exited.Latest, t.Signaled.Latest)
	if !t.PreStopStarted.IsZero() {
		start = minTime(start, t.PreStopStarted.Earliest)
	}
	if !t.Signaled.IsZero() {
		start = minTime(start, t.Signaled.Earliest)
	}
	next := time.Time{}
	for _, r := range p.runs {
		if r.container.name == t.Container && !r.started.IsZero() && !r.started.Add(time.Second).Before(end) && (next.IsZero() || r.started.Before(next)) {
			next = r.started
		}
	}
	end = maxTime(end, next)
	for _, r := range p.readies {
		if r.Latest.After(end) {
			end = r.Latest
			break
		}
	}
	if recorded.End.After(start) {
		end = minTime(end, maxTime(recorded.End, t.Exited.Latest))
	}
	return start.UTC(), end.UTC()
}

// fill writes the roll's pods, terminations and windows.
func (b *building) fill() {
	r := &b.Roll
	r.Windows = append(r.Windows, roll.Window{Kind: roll.WindowRoll, Start: r.Window.Start, End: r.Window.End})
	slices.SortFunc(b.old, func(x, y *pod) int { return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID)) })
	for _, p := range b.old {
		if p.Deleted || !p.Removed.IsZero() {
			r.Old = append(r.Old, p.PodRef)
		}
		for _, t := range p.Terminations {
			if !t.Requested.IsZero() || !t.Removed.IsZero() && t.Exited.IsZero() || p.unseen {
				r.Terminations = append(r.Terminations, t)
			}
		}
		b.windowsOf(p)
	}
	r.Terminations = append(r.Terminations, b.loose...)
	slices.SortStableFunc(r.Terminations, func(x, y roll.Termination) int {
		return cmp.Or(requestOf(x).Compare(requestOf(y)), cmp.Compare(x.Pod.Name, y.Pod.Name), moment(x).Compare(moment(y)))
	})
	if !b.change && len(b.old) == 0 {
		return // containers restarted in place: no new pods
	}
	for _, p := range b.w.pods {
		if p.Created.Latest.Before(r.Window.Start) || !p.Created.Earliest.Before(r.Window.End) || slices.Contains(b.old, p) {
			continue
		}
		if b.change && p.Revision != r.To {
			continue
		}
		r.New = append(r.New, p.PodRef)
		if !p.Ready.IsZero() {
			r.Windows = append(r.Windows, window(roll.WindowStartup, p, p.Created.Earliest, p.Ready.Latest))
		}
	}
	slices.SortFunc(r.New, func(x, y roll.PodRef) int { return cmp.Compare(x.Name, y.Name) })
}

func requestOf(t roll.Termination) time.Time {
	if t.Requested.IsZero() {
		return moment(t)
	}
	return t.Requested.Earliest
}

// windowsOf adds the windows of a terminating pod, each as wide as its bounds allow.
func (b *building) windowsOf(p *pod) {
	if p.Requested.IsZero() {
		return
	}
	end := p.Exited.Latest
	if end.IsZero() {
		end = endOf(p)
	}
	start := maxTime(p.Requested.Earliest, b.Window.Start) // the roll is why it was asked for
	b.Windows = append(b.Windows, window(roll.WindowTerminating, p, start, end))
	if p.Signaled.IsZero() {
		return
	}
	if p.hasPreStop() {
		b.Windows = append(b.Windows, window(roll.WindowPreStop, p, start, p.Signaled.Latest))
	}
	b.Windows = append(b.Windows, window(roll.WindowDrain, p, p.Signaled.Earliest, end))
}

func (p *pod) hasPreStop() bool {
	return slices.ContainsFunc(p.spec, func(c *container) bool { return !c.init && c.preStop.Kind != roll.PreStopNone })
}

func window(k roll.WindowKind, p *pod, start, end time.Time) roll.Window {
	return roll.Window{Kind: k, Pod: p.Name, Start: start.UTC(), End: end.UTC().Add(time.Nanosecond)}
}
