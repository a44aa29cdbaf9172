package correlate

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

const (
	// signalSlack is how long after the moment that the kubelet may send the stop signal it is taken to have sent it at the
	// latest. On a busy node it took 8 to 175 ms after a Killing event and its sleep (n = 81).
	signalSlack = 1400 * time.Millisecond
	// sidecarSlack is the same for a native sidecar, after the last main container's exit: 140 to 510 ms were seen.
	sidecarSlack = 1200 * time.Millisecond
	// exitSlack is how much earlier than the runtime's stamp a process may have ended: the stamp is made when the exit has
	// been handled.
	exitSlack = 250 * time.Millisecond
	// warningBudget is how many warnings about a pod the kubelet is trusted to have sent: 25 at once are allowed.
	warningBudget = 20
	// siblingSlack is how far apart the Killing events of one pod's containers may be; they came within 1 ms.
	siblingSlack = 50 * time.Millisecond
	// hookLead is how much earlier than the end of a hook its FailedPreStopHook event may be stamped.
	hookLead = 10 * time.Millisecond
)

// pod is a pod while its lines are read.
type pod struct {
	roll.Pod
	spec     []*container
	runs     []*run // in order of first sight
	grace    *int64 // spec.terminationGracePeriodSeconds
	granted  *int64 // deletionGracePeriodSeconds of the first deletion seen
	shorter  []deletion
	final    roll.Instant // when the deletion's grace became 0 after a longer one
	forced   bool
	unseen   bool // known from events alone: the recording holds no object of it
	finished bool // phase Succeeded or Failed before the deletion was seen
	vanished bool // in a relist
	started  bool // some container was seen to have run
	lateSeen bool // first seen when it was already terminating

	in *building // the roll that ended it

	disruption string // reason of the DisruptionTarget condition
	ownerUID   string // its controller
	ownerKind  string
	firstSeen  time.Time // first receipt
	lastSeen   time.Time // last receipt
	askedSeen  time.Time // receipt at which its deletion was first seen
	goneSeen   time.Time // receipt at which it was seen gone
	readySeen  time.Time // receipt at which it was first seen Ready
	lastAlive  time.Time // last receipt without a deletionTimestamp
	readyNow   bool
	readies    []roll.Instant // each time it became Ready
}

// deletion is a later deletion that shortened the grace.
type deletion struct {
	grace int64
	at    time.Time
}

// container is what a pod's spec says of one container.
type container struct {
	name    string
	sidecar bool
	init    bool
	preStop roll.PreStop
	signal  string
}

// run is one run of a container: from a start to an exit.
type run struct {
	container *container
	id        string
	restarts  int32
	running   time.Time // receipt at which it was last seen running
	started   time.Time // state.running.startedAt, 1 s
	exited    roll.Instant
	logged    time.Time   // the kubelet's stamp of its last log line
	told      []time.Time // the kubelet's stamps of lines in which it says that it got the stop signal
	left      time.Time   // receipt at which it was first seen not running, without a known exit
	code      *int
	reason    string
}

func (c *cluster) addPod(o *roll.Object, op roll.Op) {
	m := &o.Metadata
	p := c.pods[m.UID]
	if p == nil {
		p = &pod{Pod: roll.Pod{PodRef: roll.PodRef{Namespace: m.Namespace, Name: m.Name, UID: m.UID}}}
		p.Created = roll.Second(m.CreationTimestamp, roll.SourceWatch)
		p.lateSeen, p.firstSeen = !m.DeletionTimestamp.IsZero(), c.at
		c.pods[m.UID] = p
		c.own(p, o)
	}
	p.observe(c, o)
	if op == roll.OpDeleted {
		p.goneSeen = c.at
		if g := m.DeletionGracePeriodSeconds; g != nil && *g == 0 && !m.DeletionTimestamp.IsZero() {
			p.Removed = roll.Second(m.DeletionTimestamp, roll.SourceFinalDelete)
		} else {
			p.Removed = roll.Instant{Earliest: p.lastSeen, Latest: c.at, Source: roll.SourceWatch}
		}
	}
	p.lastSeen = c.at
	if m.DeletionTimestamp.IsZero() {
		p.lastAlive = c.at
	}
	c.podSeen(p, op)
}

func (p *pod) observe(c *cluster, o *roll.Object) {
	m, spec, st := &o.Metadata, o.Spec, o.Status
	if spec != nil {
		if spec.NodeName != "" {
			p.Node = spec.NodeName
		}
		if p.grace == nil {
			p.grace = spec.TerminationGracePeriodSeconds
		}
		if p.spec == nil {
			p.readSpec(spec)
		}
	}
	p.observeDeletion(c, m, st)
	if st == nil {
		return
	}
	for _, ip := range st.PodIPs {
		if ip.IP != st.HostIP && !slices.Contains(p.IPs, ip.IP) { // a hostNetwork pod's address is not its own
			p.IPs = append(p.IPs, ip.IP)
		}
	}
	if st.PodIP != "" && st.PodIP != st.HostIP && !slices.Contains(p.IPs, st.PodIP) {
		p.IPs = append(p.IPs, st.PodIP)
	}
	if !p.Deleted && (st.Phase == "Succeeded" || st.Phase == "Failed") {
		p.finished = true
	}
	for i := range st.Conditions {
		p.observeCondition(c, &st.Conditions[i])
	}
	for i := range st.InitContainerStatuses {
		p.observeContainer(c, &st.InitContainerStatuses[i])
	}
	for i := range st.ContainerStatuses {
		p.observeContainer(c, &st.ContainerStatuses[i])
	}
}

func (p *pod) readSpec(s *roll.Spec) {
	add := func(cs []roll.Container, init bool) {
		for _, k := range cs {
			ct := &container{name: k.Name, init: init, sidecar: init && k.RestartPolicy == "Always"}
			if lc := k.Lifecycle; lc != nil {
				ct.signal = lc.StopSignal
				if h := lc.PreStop; h != nil {
					switch {
					case h.Sleep != nil:
						ct.preStop = roll.PreStop{Kind: roll.PreStopSleep, Sleep: time.Duration(h.Sleep.Seconds) * time.Second}
					case h.Exec != nil:
						ct.preStop.Kind = roll.PreStopExec
					case h.HTTPGet != nil:
						ct.preStop.Kind = roll.PreStopHTTPGet
					case h.TCPSocket != nil:
						ct.preStop.Kind = roll.PreStopTCP
					}
				}
			}
			p.spec = append(p.spec, ct)
		}
	}
	add(s.InitContainers, true)
	add(s.Containers, false)
}

// observeDeletion reads the deletion. deletionTimestamp is the request + the grace, in whole seconds, and the kubelet's
// final delete moves it to its own moment with grace 0 (apiserver pkg/registry/rest/delete.go): the first value counts.
func (p *pod) observeDeletion(c *cluster, m *roll.ObjectMeta, st *roll.Status) {
	if m.DeletionTimestamp.IsZero() || m.DeletionGracePeriodSeconds == nil {
		return
	}
	g := *m.DeletionGracePeriodSeconds
	at := m.DeletionTimestamp.Add(-time.Duration(g) * time.Second)
	if !p.Deleted {
		p.Deleted, p.granted, p.askedSeen, p.DeletionSeen = true, &g, c.at, c.received.UTC()
		p.Requested = roll.Second(at, roll.SourceDeletionTimestamp)
		over := p.finished || len(p.runs) == 0 || st != nil && allEnded(st)
		switch {
		case g > 0 || over:
		case p.lateSeen || c.missedSince(p.lastAlive):
			// The grace is 0 at first sight: the kubelet's final delete, or a forced one that came later. The request was some
			// time before.
			p.Requested.Earliest, p.Requested.Source = p.Created.Earliest, roll.SourceWatch
			if !p.lastAlive.IsZero() {
				p.Requested.Earliest = p.lastAlive
			}
			p.granted = nil
		default:
			p.forced = true
		}
		return
	}
	if p.granted == nil || g >= *p.granted || len(p.shorter) > 0 && g >= p.shorter[len(p.shorter)-1].grace {
		return
	}
	if g == 0 && st != nil && allEnded(st) {
		p.final = roll.Second(m.DeletionTimestamp, roll.SourceFinalDelete)
		return
	}
	// Somebody shortened the grace while containers still ran.
	p.shorter = append(p.shorter, deletion{g, m.DeletionTimestamp.Add(-time.Duration(g) * time.Second)})
	p.forced = p.forced || g == 0
}

// allEnded reports whether no container of the status runs.
func allEnded(st *roll.Status) bool {
	for _, cs := range [][]roll.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
		for i := range cs {
			if cs[i].State.Running != nil {
				return false
			}
		}
	}
	return true
}

// missedSince reports whether a watch of pods was interrupted after t.
func (c *cluster) missedSince(t time.Time) bool {
	g := c.relisted(roll.ResourcePods)
	return g != nil && !g.To.Before(t)
}

func (p *pod) observeCondition(c *cluster, k *roll.Condition) {
	switch k.Type {
	case "DisruptionTarget":
		if k.Status == "True" {
			p.disruption = k.Reason
		}
	case "Ready":
		ready := k.Status == "True"
		if ready && p.Ready.IsZero() {
			p.Ready, p.readySeen = roll.Second(k.LastTransitionTime, roll.SourceContainerStatus), c.at
		}
		if ready && !p.readyNow {
			p.readies = append(p.readies, roll.Second(k.LastTransitionTime, roll.SourceContainerStatus))
		}
		p.readyNow = ready
	}
}

func (p *pod) observeContainer(c *cluster, s *roll.ContainerStatus) {
	ct := p.container(s.Name)
	if ct == nil || ct.init && !ct.sidecar {
		return // an init container that runs to its end is no termination
	}
	if t := s.LastState.Terminated; t != nil {
		p.ended(c, ct, t, s.RestartCount-1, roll.SourceLastState)
	}
	switch {
	case s.State.Running != nil:
		r := p.run(ct, s.ContainerID, s.RestartCount)
		r.running, r.started = c.at, s.State.Running.StartedAt.UTC()
		p.started = true
	case s.State.Terminated != nil:
		p.ended(c, ct, s.State.Terminated, s.RestartCount, roll.SourceContainerStatus)
	default:
		// Waiting. A run of this count that was seen running runs no more, and nothing says how it ended
		// (kubernetes/kubernetes#104155).
		for _, r := range p.runs {
			if r.container == ct && r.exited.IsZero() && r.left.IsZero() && r.restarts == s.RestartCount && !r.running.IsZero() {
				r.left = c.at
			}
		}
	}
}

func (p *pod) container(name string) *container {
	for _, ct := range p.spec {
		if ct.name == name {
			return ct
		}
	}
	return nil
}

// run returns the run with a container id, or the one with a restart count where there is no id.
func (p *pod) run(ct *container, id string, restarts int32) *run {
	for _, r := range p.runs {
		if r.container == ct && (id != "" && r.id == id || r.restarts == restarts && (id == "" || r.id == "")) {
			if r.id == "" {
				r.id = id
			}
			return r
		}
	}
	r := &run{container: ct, id: id, restarts: restarts}
	p.runs = append(p.runs, r)
	return r
}

// ended notes an exit. 137 ContainerStatusUnknown without times is made up by the kubelet and says nothing
// (kubernetes/kubernetes#104107): for a container that never ran it is not even an exit.
func (p *pod) ended(c *cluster, ct *container, t *roll.StateTerminated, restarts int32, src roll.Source) {
	if t.FinishedAt.IsZero() || t.FinishedAt.Unix() <= 0 || t.Reason == "ContainerStatusUnknown" {
		for _, r := range p.runs {
			if r.container == ct && r.exited.IsZero() && (t.ContainerID == "" || r.id == t.ContainerID) && r.left.IsZero() {
				r.left, r.reason = c.at, t.Reason
			}
		}
		return
	}
	r := p.run(ct, t.ContainerID, restarts)
	p.started = true
	if !r.exited.IsZero() {
		return
	}
	if r.started.IsZero() {
		r.started = t.StartedAt.UTC()
	}
	r.exited = roll.Second(t.FinishedAt, src)
	r.exited.Earliest = r.exited.Earliest.Add(-exitSlack)
	code := t.ExitCode
	r.code, r.reason = &code, t.Reason
}

// addLog notes that a run lived when it wrote a line: the stamp is the kubelet's, as the exit's is.
func (c *cluster) addLog(l *roll.Log) {
	p := c.pods[l.UID]
	if p == nil || l.ContainerID == "" {
		return
	}
	for _, r := range p.runs {
		if r.id != l.ContainerID || l.Time.IsZero() {
			continue
		}
		r.logged = maxTime(r.logged, l.Time)
		if c.saysSignaled(l.Line) {
			r.told = append(r.told, l.Time.UTC())
		}
	}
}

// signaledLine matches what common servers log when they get the stop signal: Go's signal.Notify idioms, nginx ("signal
// 15 (SIGTERM) received"), Redis, gunicorn ("Handling signal: term"), Envoy, PostgreSQL, Spring Boot.
var signaledLine = regexp.MustCompile(`(?i)\b(?:received|caught|got|handling)\b[^a-z]{0,4}(?:` +
	`(?:(?:os|shutdown|stop|termination|terminate|a|exit)[ _-]){0,2}signal\b[^a-z0-9]{0,4}(?:(?:envoy_)?sigterm|terminated|term\b|15\b)|` +
	`(?:envoy_)?sigterm\b|(?:fast|smart|immediate) shutdown request)|` +
	`\b(?:received|caught)\b[^a-z]{1,4}terminated\b|` +
	`\bsignal 15 \(sigterm\) received|\bsigterm\b[^a-z]{0,4}(?:received|caught)|commencing graceful shutdown`)

// saysSignaled reports whether a log line says that the process got the stop signal.
func saysSignaled(line string) bool {
	if len(line) > 4096 {
		line = line[:4096]
	}
	if !strings.Contains(line, "erm") && !strings.Contains(line, "ERM") && !strings.Contains(line, "hutdown") {
		return false // most lines, without the cost of a match
	}
	return signaledLine.MatchString(line)
}

func (c *cluster) saysSignaled(line string) bool {
	if c.more.shutdown != nil {
		return c.more.shutdown.MatchString(line)
	}
	return saysSignaled(line)
}

// narrow ends the bounds of a signal where the process itself says that it has it: the first such line within them.
func narrow(i roll.Instant, told []time.Time) roll.Instant {
	for _, t := range told {
		if !i.IsZero() && t.After(i.Earliest) && t.Before(i.Latest) {
			return roll.Instant{Earliest: i.Earliest, Latest: t, Source: roll.SourceLog}
		}
	}
	return i
}

// addEvent keeps the kubelet's events about containers and the controllers' deletes.
func (c *cluster) addEvent(o *roll.Object) {
	if o.InvolvedObject == nil {
		return
	}
	if o.Type == "Warning" {
		c.countWarning(o)
	}
	switch o.Reason {
	case "Killing", "FailedPreStopHook":
		ref := o.InvolvedObject
		e := event{reason: o.Reason, container: fieldContainer(ref.FieldPath)}
		e.pod = roll.PodRef{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
		e.liveness = strings.Contains(o.Message, "liveness probe") || strings.Contains(o.Message, "startup probe")
		e.at = eventInstant(o)
		if !e.at.IsZero() && !slices.Contains(c.events[ref.UID], e) {
			c.events[ref.UID] = append(c.events[ref.UID], e)
		}
	case "SuccessfulDelete":
		// "Deleted pod: NAME", and for a StatefulSet "Delete Pod NAME in StatefulSet SET successful".
		f := strings.Fields(o.Message)
		name := ""
		switch {
		case len(f) >= 3 && f[0] == "Deleted":
			name = f[2]
		case len(f) >= 3 && strings.EqualFold(f[0], "delete"):
			name = f[2]
		}
		if name != "" {
			c.deleted[deletedEvent{o.InvolvedObject.Namespace, name}] = true
		}
	}
}

// countWarning counts the warnings about a pod; a repetition moves the count of the same event.
func (c *cluster) countWarning(o *roll.Object) {
	n := max(1, int(o.Count))
	if before := c.counted[o.Metadata.UID]; n > before {
		c.warnings[o.InvolvedObject.UID] += n - before
		c.counted[o.Metadata.UID] = n
	}
}

// addUnseen makes pods of those that only Killing events tell of, because the recording holds no object of them. What
// their spec said is known as far as their ReplicaSet's template is recorded; their exits are not known.
func (c *cluster) addUnseen() {
	for _, uid := range slices.Sorted(maps.Keys(c.events)) {
		if c.pods[uid] != nil {
			continue
		}
		var p *pod
		for _, e := range c.events[uid] {
			if e.reason != "Killing" || e.pod.Name == "" || e.at.Latest.Before(c.first) {
				continue // an event outlives its pod by an hour
			}
			if p == nil {
				p = c.unseen(e.pod)
			}
			p.Deleted = p.Deleted || !e.liveness
			ct := p.container(e.container)
			if ct == nil {
				// Whether it had a hook is not known: it is taken to have had one.
				ct = &container{name: e.container, preStop: roll.PreStop{Kind: roll.PreStopUnknown}}
				p.spec = append(p.spec, ct)
			}
			if !ct.init || ct.sidecar {
				p.run(ct, "", 0)
			}
		}
	}
}

func (c *cluster) unseen(ref roll.PodRef) *pod {
	p := &pod{Pod: roll.Pod{PodRef: ref}, unseen: true}
	p.Workload = roll.Workload{Kind: "Pod", Namespace: ref.Namespace, Name: ref.Name}
	if i := strings.LastIndexByte(ref.Name, '-'); i > 0 {
		if t, ok := c.templates[ref.Namespace+"/"+ref.Name[:i]]; ok {
			p.Workload, p.Revision, p.grace = t.workload, t.hash, t.spec.TerminationGracePeriodSeconds
			p.readSpec(t.spec)
		}
	}
	c.pods[ref.UID] = p
	c.workload(p.Workload).add(p)
	return p
}

// fieldContainer reads spec.containers{NAME} or spec.initContainers{NAME}.
func fieldContainer(path string) string {
	i := strings.IndexByte(path, '{')
	if i < 0 || !strings.HasSuffix(path, "}") {
		return ""
	}
	return path[i+1 : len(path)-1]
}

// eventInstant says when an event happened, on its reporter's clock. The name ends in the UnixNano of the first one
// (client-go tools/record makeEvent); a repetition moves only lastTimestamp, in whole seconds.
func eventInstant(o *roll.Object) roll.Instant {
	last := o.LastTimestamp
	if last.IsZero() {
		last = o.EventTime
	}
	if o.Count <= 1 || last.IsZero() || last.Equal(o.FirstTimestamp) {
		if i := strings.LastIndexByte(o.Metadata.Name, '.'); i >= 0 {
			if n, err := strconv.ParseUint(o.Metadata.Name[i+1:], 16, 63); err == nil {
				t := time.Unix(0, int64(n)).UTC()
				// A name that does not agree with the event's own second is not that stamp.
				if f := o.FirstTimestamp; f.IsZero() && last.IsZero() || sameSecond(t, f) || sameSecond(t, last) {
					return roll.At(t, roll.SourceKillingEvent)
				}
			}
		}
	}
	if last.IsZero() {
		last = o.FirstTimestamp
	}
	if last.IsZero() {
		return roll.Instant{}
	}
	return roll.Second(last, roll.SourceEventTime)
}

func sameSecond(a, b time.Time) bool { return !b.IsZero() && a.Unix() == b.Unix() }

// finish derives the pod's terminations once everything was read.
func (p *pod) finish(c *cluster) {
	events := c.eventsOf(p.UID)
	c.more.requested(p)
	for _, r := range p.runs {
		c.more.exit(r)
	}
	if k := c.apiClock; k != nil && !p.DeletionSeen.IsZero() {
		// By the API server's clock the deletion had been asked for when the watch told of it.
		if seen := p.DeletionSeen.Add(k.Latest); seen.After(p.Requested.Earliest) && seen.Before(p.Requested.Latest) {
			p.Requested.Latest = seen
		}
	}
	var mains, sidecars []roll.Termination
	var told [][]time.Time // of sidecars
	for _, r := range p.runs {
		if !slices.Contains(p.Containers, r.container.name) {
			p.Containers = append(p.Containers, r.container.name)
		}
		t := p.termination(c, r, events)
		if t == nil {
			continue
		}
		if r.container.sidecar {
			sidecars, told = append(sidecars, *t), append(told, r.told)
		} else {
			mains = append(mains, *t)
		}
	}
	for i := range sidecars {
		p.orderSidecar(&sidecars[i], mains, len(sidecars) == 1)
		c.more.signaled(&sidecars[i])
		sidecars[i].Signaled = narrow(sidecars[i].Signaled, told[i])
	}
	p.Terminations = append(mains, sidecars...)
	slices.SortStableFunc(p.Terminations, func(a, b roll.Termination) int { return moment(a).Compare(moment(b)) })

	known := true
	for i := range mains {
		t := &mains[i]
		if !p.Deleted || t.Requested.IsZero() && !p.unseen {
			continue
		}
		if !t.Signaled.IsZero() && (p.Signaled.IsZero() || t.Signaled.Earliest.Before(p.Signaled.Earliest)) {
			p.Signaled = t.Signaled
		}
		switch {
		case t.Exited.IsZero():
			known = false
		case p.Exited.IsZero() || t.Exited.Latest.After(p.Exited.Latest):
			p.Exited = t.Exited
		}
	}
	if !known {
		p.Exited = roll.Instant{}
	}
}

// moment orders terminations: by exit, else by signal, else by request.
func moment(t roll.Termination) time.Time {
	switch {
	case !t.Exited.IsZero():
		return t.Exited.Earliest
	case !t.Signaled.IsZero():
		return t.Signaled.Earliest
	default:
		return t.Requested.Earliest
	}
}

// eventsOf returns the events of a pod's containers in order of time.
func (c *cluster) eventsOf(uid string) []event {
	out := c.events[uid]
	slices.SortStableFunc(out, func(a, b event) int { return a.at.Earliest.Compare(b.at.Earliest) })
	return out
}

// termination says how one run ended; nil if it did not end, as far as the recording goes.
func (p *pod) termination(c *cluster, r *run, events []event) *roll.Termination {
	t := &roll.Termination{
		Pod: p.PodRef, Container: r.container.name, ContainerID: r.id, Sidecar: r.container.sidecar,
		Exited: r.exited, ExitCode: r.code, Reason: r.reason, PreStop: r.container.preStop, StopSignal: r.container.signal,
	}
	if alive := r.logged.Add(-exitSlack); alive.After(t.Exited.Earliest) && !alive.After(t.Exited.Latest) {
		t.Exited.Earliest = alive // what it wrote is stamped when it is read, which may be after its exit
	}
	last := r == p.lastRun(r.container)
	switch {
	case p.Deleted && last && !p.endedBefore(r):
		t.Requested, t.Removed, t.GracePeriodSeconds, t.Forced = p.Requested, p.Removed, p.granted, p.forced
	case p.Deleted && last, !p.Removed.IsZero() && last:
		t.Removed = p.Removed
	}
	if t.Exited.IsZero() {
		switch {
		case p.unseen:
		case t.Removed.IsZero() && r.left.IsZero() && t.Requested.IsZero():
			return nil // it runs
		case !r.left.IsZero():
			// Seen running, then not: it ended in between, or before the pod was gone.
			t.Exited = roll.Instant{Earliest: r.running, Latest: r.left, Source: roll.SourceWatch}
		case p.vanished && !p.forced && !t.Requested.IsZero() && !t.Removed.IsZero():
			// The kubelet removes a pod only when its containers have ended.
			t.Exited = roll.Instant{Earliest: maxTime(r.running, t.Requested.Earliest), Latest: t.Removed.Latest, Source: roll.SourceRelist}
		}
	}
	p.signal(c, t, r, events)
	return t
}

// lastRun returns the run of a container that a deletion of the pod ends.
func (p *pod) lastRun(ct *container) *run {
	var l *run
	for _, r := range p.runs {
		if r.container == ct && (l == nil || r.restarts >= l.restarts) {
			l = r
		}
	}
	return l
}

// endedBefore reports whether the run had certainly ended before the deletion was asked for.
func (p *pod) endedBefore(r *run) bool {
	return !r.exited.IsZero() && r.exited.Latest.Before(p.Requested.Earliest)
}

// graceOf returns the grace that the deletion began with, at least 1 s as the kubelet has it.
func (p *pod) graceOf() time.Duration {
	s := int64(30)
	switch {
	case p.granted != nil:
		s = *p.granted
	case p.grace != nil:
		s = *p.grace
	}
	return time.Duration(max(1, s)) * time.Second
}

// signal derives when the stop signal was sent.
//
// The kubelet emits Killing, runs the preStop hook, then has the runtime send the stop signal (kubernetes
// pkg/kubelet/kuberuntime/kuberuntime_container.go, killContainer). So with a sleep hook or none, Killing + sleep is the
// moment; with another hook it is bounded by the grace and the exit.
func (p *pod) signal(c *cluster, t *roll.Termination, r *run, events []event) {
	deletion := !t.Requested.IsZero() || p.unseen && p.Deleted
	kills, sibling := killsOf(events, r, deletion, p.Requested)
	if !deletion && len(kills) == 0 {
		t.Cause = ownCause(r)
		return // it ended by itself: no signal was sent
	}
	t.Cause = roll.CauseUnknown // a deletion's cause is filled in with the rolls
	if !deletion {
		t.Cause = roll.CauseLiveness
	}
	grace := p.graceOf()
	if !deletion {
		grace = 30 * time.Second
		if p.grace != nil {
			grace = time.Duration(max(1, *p.grace)) * time.Second
		}
	}
	if len(kills) == 0 {
		p.signalWithoutEvent(t, grace)
		return
	}
	t.PreStop.Watched = t.PreStop.Kind != roll.PreStopNone && !sibling && c.warnings[p.UID] < warningBudget
	k := kills[0].at
	if sibling {
		k.Earliest, k.Latest = k.Earliest.Add(-siblingSlack), k.Latest.Add(siblingSlack)
	}
	if t.PreStop.Kind != roll.PreStopNone {
		t.PreStopStarted = roll.Instant{Earliest: k.Earliest, Latest: k.Latest.Add(signalSlack), Source: k.Source}
	}
	switch t.PreStop.Kind {
	case roll.PreStopNone, roll.PreStopSleep:
		t.Signaled = afterSleep(kills, sibling, min(t.PreStop.Sleep, grace), t.PreStop.Kind, t.Exited)
	default:
		t.Signaled = p.afterHook(t, kills, events, grace)
	}
	// A later deletion with a shorter grace may have cut the hook short, if it came before the hook was over.
	for _, d := range p.shorter {
		if deletion && !t.Signaled.IsZero() && d.at.Before(t.Signaled.Latest) {
			t.Signaled.Earliest = minTime(t.Signaled.Earliest, maxTime(k.Earliest, d.at))
			t.Signaled.Latest = maxTime(t.Signaled.Latest, d.at.Add(time.Second+signalSlack))
		}
	}
	p.settle(t)
	if !t.Sidecar { // what is known of a sidecar comes once the others' ends are
		c.more.signaled(t)
		t.Signaled = narrow(t.Signaled, r.told)
	}
}

// settle holds the signal and the exit against each other: both are the kubelet's clock.
func (p *pod) settle(t *roll.Termination) {
	if t.Exited.IsZero() || t.Signaled.IsZero() {
		return
	}
	if t.Exited.Latest.Before(t.Signaled.Earliest) {
		t.Signaled = roll.Instant{} // it had ended by itself before the signal was due
		if !t.PreStopStarted.IsZero() && t.Exited.Latest.Before(t.PreStopStarted.Earliest) {
			t.PreStopStarted = roll.Instant{}
		}
		return
	}
	if t.Exited.Source == roll.SourceContainerStatus || t.Exited.Source == roll.SourceLastState {
		t.Signaled.Latest = minTime(t.Signaled.Latest, t.Exited.Latest)
	}
	if !t.PreStopStarted.IsZero() {
		t.PreStopStarted.Latest = minTime(t.PreStopStarted.Latest, t.Signaled.Latest)
	}
}

// ownCause says why a run ended that nothing killed.
func ownCause(r *run) roll.Cause {
	switch {
	case r.reason == "OOMKilled":
		return roll.CauseOOM
	case r.code == nil:
		return roll.CauseUnknown
	case *r.code == 0:
		return roll.CauseCompleted
	default:
		return roll.CauseCrash
	}
}

// killsOf returns the Killing events of one run, in order; those of another container of the pod when the kubelet's
// event budget swallowed its own (kubernetes/kubernetes#67887), and then sibling is true.
func killsOf(events []event, r *run, deletion bool, requested roll.Instant) (kills []event, sibling bool) {
	var others []event
	for _, e := range events {
		if e.reason != "Killing" || e.liveness == deletion {
			continue
		}
		if !r.started.IsZero() && e.at.Latest.Before(r.started) {
			continue // of an earlier run
		}
		if !r.exited.IsZero() && e.at.Earliest.After(r.exited.Latest) {
			continue // of a later run, or the kubelet tidying up
		}
		if deletion && e.at.Latest.Before(requested.Earliest) {
			continue
		}
		if e.container == r.container.name {
			kills = append(kills, e)
		} else {
			others = append(others, e)
		}
	}
	if len(kills) > 0 || !deletion || len(others) == 0 {
		return kills, false
	}
	return others[:1], true
}

// afterSleep bounds the signal after a sleep hook, or after none, by the Killing events in order. A later Killing event
// means that the kubelet was restarted: when it comes before the hook was over, the hook began anew with it; when it
// comes after, either the signal had been sent, or the hook ended while the kubelet was away. The exit may tell.
func afterSleep(kills []event, sibling bool, sleep time.Duration, kind roll.PreStopKind, exited roll.Instant) roll.Instant {
	src := roll.SourcePreStopSleep
	if kind == roll.PreStopNone {
		src = roll.SourceNoPreStop
	}
	slack := time.Duration(0)
	if sibling {
		slack = siblingSlack
	}
	var out roll.Instant
	for i, k := range kills {
		cand := roll.Instant{
			Earliest: k.at.Earliest.Add(sleep - slack), Latest: k.at.Latest.Add(sleep + slack + signalSlack), Source: src,
		}
		if i+1 < len(kills) && kills[i+1].at.Latest.Before(cand.Earliest) {
			continue // interrupted
		}
		if out.IsZero() {
			out = cand
			if kind == roll.PreStopNone {
				break // nothing was left that a restart could have interrupted
			}
			continue
		}
		if !exited.IsZero() && exited.Latest.Before(cand.Earliest) {
			break // it had ended before this one: the signal was the earlier one
		}
		out.Latest = cand.Latest
	}
	return out
}

// afterHook bounds the signal after an exec or http hook, which runs for a time that the API does not say.
func (p *pod) afterHook(t *roll.Termination, kills, events []event, grace time.Duration) roll.Instant {
	first, last := kills[0].at, kills[len(kills)-1].at
	out := roll.Instant{Earliest: first.Earliest, Latest: last.Latest.Add(grace + signalSlack), Source: roll.SourcePreStopBound}
	for _, e := range events {
		if e.reason != "FailedPreStopHook" || e.container != t.Container || e.at.Latest.Before(first.Earliest) {
			continue
		}
		t.PreStop.Failed = true
		if len(kills) > 1 {
			break // of which of the hook's runs it speaks is not known
		}
		if e.at.Earliest.Sub(first.Latest) < grace-hookLead {
			out.Earliest = e.at.Earliest.Add(-hookLead)
			out.Latest = minTime(out.Latest, e.at.Latest.Add(signalSlack))
			out.Source = roll.SourcePreStopFailed
		} else {
			// The hook outlived the grace: the event tells of the container's end, the signal came at the grace's end.
			out.Earliest, out.Source = first.Earliest.Add(grace-hookLead), roll.SourcePreStopBound
		}
		break
	}
	return out
}

// signalWithoutEvent bounds the signal of a deletion whose Killing event is not there.
func (p *pod) signalWithoutEvent(t *roll.Termination, grace time.Duration) {
	if t.Exited.IsZero() || p.Requested.IsZero() {
		return
	}
	sleep := min(t.PreStop.Sleep, grace)
	t.Signaled = roll.Instant{Earliest: p.Requested.Earliest.Add(sleep), Latest: t.Exited.Latest, Source: roll.SourceGraceBound}
	if !t.Signaled.Earliest.Before(t.Signaled.Latest) {
		t.Signaled = roll.Instant{}
	}
}

// orderSidecar bounds a native sidecar's signal: it comes after the last main container's exit, whatever its own Killing
// event says, and not before its own hook is over (kubernetes pkg/kubelet/kuberuntime, termination order).
func (p *pod) orderSidecar(t *roll.Termination, mains []roll.Termination, only bool) {
	if t.Requested.IsZero() || t.Signaled.IsZero() && t.Exited.IsZero() {
		return
	}
	own := t.Signaled
	t.Signaled = roll.Instant{}
	var last roll.Instant
	for i := range mains {
		m := &mains[i]
		if m.Requested.IsZero() {
			continue
		}
		if m.Exited.IsZero() {
			return // not known when the last one ended
		}
		if m.Exited.Latest.After(last.Latest) {
			last = m.Exited
		}
	}
	if last.IsZero() {
		t.Signaled = own
		return
	}
	s := roll.Instant{Earliest: last.Earliest, Latest: last.Latest.Add(sidecarSlack), Source: roll.SourceSidecarOrder}
	if t.PreStop.Kind != roll.PreStopNone && !own.IsZero() {
		s.Earliest, s.Latest = maxTime(s.Earliest, own.Earliest), maxTime(s.Latest, own.Latest)
	}
	if !only && !t.Exited.IsZero() {
		s.Latest = maxTime(s.Latest, t.Exited.Latest) // sidecars end one after the other
	}
	if !t.Exited.IsZero() {
		if t.Exited.Latest.Before(s.Earliest) {
			return // it had ended before
		}
		s.Latest = minTime(s.Latest, t.Exited.Latest)
	}
	t.Signaled = s
}
