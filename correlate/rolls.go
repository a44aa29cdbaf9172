package correlate

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
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
	byRev      map[string][]*pod
	newest     map[string]time.Time // revision → when its newest pod was created
	scaled     []time.Time          // moments at which fewer replicas were wanted
	steps      map[string][]step    // revision ("" for all) → how many pods were Ready
}

// step is how many pods were Ready from a moment on, at the earliest.
type step struct {
	at time.Time
	n  int
}

func (w *workload) add(p *pod) {
	w.pods, w.byRev[p.Revision] = append(w.pods, p), append(w.byRev[p.Revision], p)
	w.newest[p.Revision] = maxTime(w.newest[p.Revision], p.Created.Earliest)
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
	c.workload(p.Workload).add(p)
}

func (c *cluster) workload(k roll.Workload) *workload {
	w := c.workloads[k]
	if w == nil {
		w = &workload{Workload: k, newest: map[string]time.Time{}, byRev: map[string][]*pod{}}
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
	case p.Created.Earliest.After(w.newest[w.current]) || op == roll.OpAdded && !c.initial(p.Created.Earliest):
		w.turn(p.Revision, minTime(c.at, p.Created.Earliest), false)
	}
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
	byController := c.deleted[deletedEvent{p.Namespace, p.Name}]
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
	i := sort.Search(len(w.changes), func(i int) bool { return w.changes[i].at.After(t) })
	if i < len(w.changes) {
		return w.changes[i].from
	}
	return w.current
}

func (w *workload) rolledBefore(t time.Time) bool {
	return len(w.changes) > 0 && !w.changes[0].at.After(t)
}

// scaledAt reports whether fewer replicas were wanted about when a deletion was asked for.
func (w *workload) scaledAt(requested roll.Instant) bool {
	i := sort.Search(len(w.scaled), func(i int) bool { return !w.scaled[i].Before(requested.Earliest.Add(-2 * time.Second)) })
	return i < len(w.scaled) && !w.scaled[i].After(requested.Latest.Add(2*time.Second))
}

// wantedAt is how many pods were wanted at t; ok is false when it is not known.
func (w *workload) wantedAt(t time.Time) (n int, ok bool) {
	if len(w.wanted) == 0 {
		return 0, false
	}
	i := sort.Search(len(w.wanted), func(i int) bool { return w.wanted[i].at.After(t) })
	return w.wanted[max(0, i-1)].n, true
}

// readySteps is how many pods of a revision, "" for any, were Ready and not on their way out, over time.
func (w *workload) readySteps(rev string) []step {
	if s, ok := w.steps[rev]; ok {
		return s
	}
	var s []step
	for _, p := range w.pods {
		if p.Ready.IsZero() || rev != "" && p.Revision != rev {
			continue
		}
		ready := minTime(p.Ready.Latest, p.readySeen) // the next roll may begin within the same second
		s = append(s, step{ready, 1})
		if p.Deleted {
			s = append(s, step{maxTime(p.Requested.Earliest, ready), -1})
		} else if !p.Removed.IsZero() {
			s = append(s, step{maxTime(p.Removed.Earliest, ready), -1})
		}
	}
	slices.SortStableFunc(s, func(a, b step) int { return a.at.Compare(b.at) })
	for i := 1; i < len(s); i++ {
		s[i].n += s[i-1].n
	}
	if w.steps == nil {
		w.steps = map[string][]step{}
	}
	w.steps[rev] = s
	return s
}

// building is a roll while it is put together.
type building struct {
	roll.Roll
	w      *workload
	start  time.Time
	end    time.Time
	until  time.Time // when the next roll of the workload began; zero: none did
	old    []*pod
	asked  time.Time          // when the last of old was asked to end, at the earliest
	goneBy time.Time          // receipt at which the last of old was seen gone; zero: one never was
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
	rollouts, last := out, map[roll.Cause]*building{}
	for _, p := range w.pods {
		if !p.Deleted && p.Removed.IsZero() {
			continue
		}
		cause := c.cause(p)
		b := c.rollout(rollouts, p)
		if b != nil && (cause == roll.CauseScaleDown || cause == roll.CauseDelete || cause == roll.CauseUnknown) {
			cause = roll.CauseRollout // the new revision was not seen yet when its deletion was
		}
		if b == nil {
			if b = recreated(rollouts, p, cause); b != nil {
				cause = roll.CauseRollout
				b.start = minTime(b.start, p.Requested.Earliest)
			}
		}
		if b == nil {
			if b = last[cause]; b == nil || !b.overlaps(p) {
				b = begin(w, p, cause)
				last[cause] = b
				out = append(out, b)
			}
		}
		b.add(p)
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
	slices.SortFunc(w.pods, func(a, b *pod) int {
		return cmp.Or(a.Created.Earliest.Compare(b.Created.Earliest), cmp.Compare(a.Name, b.Name))
	})
	for _, b := range out {
		b.fill()
	}
	return out
}

// add makes p one of the pods that the roll ended.
func (b *building) add(p *pod) {
	if len(b.old) == 0 || !b.goneBy.IsZero() {
		b.goneBy = maxTime(b.goneBy, p.goneSeen)
		if p.goneSeen.IsZero() {
			b.goneBy = time.Time{}
		}
	}
	b.old, p.in = append(b.old, p), b
	b.asked = maxTime(b.asked, p.Requested.Earliest)
}

// overlaps reports whether a pod's deletion was asked for before the last of the others was gone. Both are moments of
// receipt, which have an order even within one second. A pod that was made to replace one of them and never got Ready
// belongs to them as well.
func (b *building) overlaps(p *pod) bool {
	if p.Ready.IsZero() && p.Created.Latest.After(b.start) {
		return true
	}
	return b.goneBy.IsZero() || p.askedSeen.IsZero() || p.askedSeen.Before(b.goneBy)
}

// begin makes a roll of a pod that was deleted for another cause than a new revision.
func begin(w *workload, p *pod, cause roll.Cause) *building {
	b := &building{w: w, start: p.Requested.Earliest}
	if b.start.IsZero() {
		b.start = maxTime(p.Removed.Earliest, p.Signaled.Earliest)
	}
	b.Roll = roll.Roll{Workload: w.Workload, From: p.Revision, To: w.revisionAt(requestedBy(p)), Cause: cause}
	if b.To == "" {
		b.To = p.Revision
	}
	return b
}

// rollout returns the rollout that a deleted pod belongs to: the last one that had begun when its deletion was asked for
// and that does not keep its revision.
func (c *cluster) rollout(rolls []*building, p *pod) *building {
	asked := requestedBy(p)
	n := sort.Search(len(rolls), func(i int) bool { return rolls[i].start.After(asked) })
	// The streams have no common order: the new revision may be received after the deletion that it led to, the more so
	// when the controller says that the deletion was its own.
	tolerance := 500 * time.Millisecond
	if c.deleted[deletedEvent{p.Namespace, p.Name}] {
		tolerance = 2 * time.Second
	}
	if n < len(rolls) && p.Revision == rolls[n].From && !rolls[n].start.After(asked.Add(tolerance)) {
		rolls[n].start = asked
		return rolls[n]
	}
	if n == 0 || p.Revision == rolls[n-1].To {
		return nil // it was of the revision that was current: something else ended it
	}
	return rolls[n-1]
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

// requestedBy is a moment by which the pod's deletion had been asked for, on the observer's clock if possible.
func requestedBy(p *pod) time.Time {
	if !p.askedSeen.IsZero() {
		return p.askedSeen
	}
	return maxTime(p.Removed.Latest, p.Signaled.Latest)
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
	var hung []string // what speaks against the roll's being over
	if b.change {
		// Old pods that nobody had asked to end when the recording ended or the next roll began.
		for _, p := range w.byRev[b.From] {
			switch {
			case b.until.IsZero() && !p.Deleted && p.Removed.IsZero():
				b.add(p)
			case !b.until.IsZero() && p.in != b && requestedBy(p).After(b.until) && p.Created.Earliest.Before(b.until):
				hung = append(hung, "old pod "+p.Name+" was not asked to end")
			}
		}
	}
	b.start, b.end = maxTime(b.start), maxTime(b.start)
	for _, p := range b.old {
		b.end = maxTime(b.end, endOf(p))
		switch {
		case !p.Removed.IsZero():
		case p.Deleted:
			hung = append(hung, "old pod "+p.Name+" is not gone")
		default:
			hung = append(hung, "old pod "+p.Name+" was not asked to end")
		}
	}
	ready, at, lack := c.ready(b)
	if !ready {
		hung = append(hung, lack)
	}
	complete := len(hung) == 0
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
		if n := len(hung); n > 4 {
			hung = append(hung[:3], fmt.Sprintf("and %d more", n-3))
		}
		detail += ": " + strings.Join(hung, ", ")
		b.Gaps = append(b.Gaps, roll.Gap{Reason: roll.GapEndsEarly, From: b.end, To: b.end, Object: w.Workload.String(), Detail: detail})
	}
}

// ready reports whether as many pods as were wanted are, or became, Ready after the roll's start, and when; or what lacks.
func (c *cluster) ready(b *building) (ok bool, at time.Time, lack string) {
	w := b.w
	if w.Kind == "Pod" || w.Kind == "Job" || b.Cause == roll.CauseOwnerDelete || b.Cause == roll.CauseScaleDown {
		return true, b.start, "" // nothing is to replace them
	}
	rev := ""
	if b.change {
		rev = b.To
	}
	steps := w.readySteps(rev)
	from := maxTime(b.start, b.asked)
	want, known := w.wantedAt(maxTime(gone(b.old), b.start))
	i := sort.Search(len(steps), func(i int) bool { return steps[i].at.After(from) })
	before := 0
	if i > 0 {
		before = steps[i-1].n
	}
	if !known {
		// Without the workload's own object: as many new ones as went.
		want = len(b.old)
		if !b.change {
			want += before
		}
	}
	if before >= want {
		return true, from, ""
	}
	for _, s := range steps[i:] {
		if !b.until.IsZero() && s.at.After(b.until) {
			break
		}
		if before = s.n; s.n >= want {
			return true, s.at, ""
		}
	}
	return false, time.Time{}, fmt.Sprintf("%d of %d new pods are Ready", before, want)
}

// restarts adds what was restarted in place: to the roll in whose window it fell, else as a roll of its own.
func (c *cluster) restarts(out []*building, w *workload, recorded roll.Range) []*building {
	n, last := len(out), map[roll.Cause]*building{}
	type ended struct {
		p          *pod
		t          roll.Termination
		start, end time.Time
	}
	var all []ended
	for _, p := range w.pods {
		for _, t := range p.Terminations {
			switch {
			case !t.Requested.IsZero(), p.unseen && p.Deleted:
				continue // of the pod's deletion
			case t.Exited.IsZero() && t.Cause == roll.CauseUnknown, t.Exited.Latest.Before(p.firstSeen):
				continue // it had ended before the pod was first seen, or never
			case p.in != nil && p.in.contains(t):
				p.in.loose = append(p.in.loose, t)
				continue
			}
			start, end := p.restart(&t, recorded)
			all = append(all, ended{p, t, start, end})
		}
	}
	slices.SortStableFunc(all, func(a, b ended) int { return a.start.Compare(b.start) })
	order := slices.Clone(out)
	slices.SortFunc(order, func(a, b *building) int { return a.Window.Start.Compare(b.Window.Start) })
	for _, e := range all {
		if b := within(order, e.start); b != nil {
			b.loose = append(b.loose, e.t)
			continue
		}
		b := last[e.t.Cause]
		if b == nil || e.start.After(b.end) {
			b = &building{w: w, start: e.start}
			b.Roll = roll.Roll{Workload: w.Workload, From: e.p.Revision, To: e.p.Revision, Cause: e.t.Cause, Completed: true}
			last[e.t.Cause] = b
			out = append(out, b)
		}
		b.loose, b.end = append(b.loose, e.t), maxTime(b.end, e.end)
	}
	for _, b := range out[n:] {
		b.end = b.end.Add(time.Nanosecond)
		b.Window = roll.Range{Start: maxTime(b.start), End: b.end}
		slices.SortFunc(b.loose, func(x, y roll.Termination) int { return moment(x).Compare(moment(y)) })
	}
	return out
}

// contains reports whether a container's end belongs to the roll that ended its pod: it fell into the window, or the
// pod had finished, as a Job's does.
func (b *building) contains(t roll.Termination) bool {
	return !moment(t).Before(b.Window.Start) || t.Cause == roll.CauseCompleted
}

// within finds a roll whose window holds t; the rolls are in order of start, and hardly overlap.
func within(rolls []*building, t time.Time) *building {
	n := sort.Search(len(rolls), func(i int) bool { return rolls[i].Window.Start.After(t) })
	for _, b := range slices.Backward(rolls[max(0, n-8):n]) {
		if b.Window.Contains(t) {
			return b
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
	first := sort.Search(len(b.w.pods), func(i int) bool { return !b.w.pods[i].Created.Latest.Before(r.Window.Start) })
	for _, p := range b.w.pods[first:] {
		if !p.Created.Earliest.Before(r.Window.End) {
			break
		}
		if p.in == b {
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
