package record

import (
	"bufio"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rolltrace/rolltrace/roll"
)

// logLead is how much of the logs before the recording's beginning is recorded as well, kubelet's clock.
const logLead = 10 * time.Second

// follows follows the logs of the selected pods.
type follows struct {
	ctx   context.Context
	r     *recorder
	since time.Time // lines before it are of no interest, kubelet's clock
	wg    sync.WaitGroup

	mu   sync.Mutex
	pods map[string]*followedPod // by UID
	lag  map[string]time.Duration
}

// followedPod is what the watch told of a pod.
type followedPod struct {
	namespace, name, uid, node string

	gone    bool // deleted, or not in a list any more
	runs    map[string]*followedRun
	changed chan struct{} // closed and replaced when something of it changes
}

// followedRun is what the watch told of one run of one container.
type followedRun struct {
	container string
	place     place
	finished  time.Time // kubelet's clock, 1 s
	exitSeen  time.Time // observer's clock
}

// place says which of the two logs that the API gives of a container is a run's.
type place int

const (
	placeCurrent place = iota
	placePrevious
	placeNone
)

func newFollows(ctx context.Context, r *recorder, since time.Time) *follows {
	return &follows{ctx: ctx, r: r, since: since, pods: map[string]*followedPod{}, lag: map[string]time.Duration{}}
}

// update takes a pod's new state, and begins to follow what runs or ran.
func (f *follows) update(o *roll.Object, deleted bool, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pods[o.Metadata.UID]
	if p == nil {
		p = &followedPod{
			namespace: o.Metadata.Namespace, name: o.Metadata.Name, uid: o.Metadata.UID,
			runs: map[string]*followedRun{}, changed: make(chan struct{}),
		}
		f.pods[p.uid] = p
	}
	if o.Spec != nil {
		p.node = o.Spec.NodeName
	}
	p.gone = p.gone || deleted
	if o.Status != nil {
		for _, statuses := range [][]roll.ContainerStatus{
			o.Status.InitContainerStatuses, o.Status.ContainerStatuses, o.Status.EphemeralContainerStatuses,
		} {
			for i := range statuses {
				f.updateContainer(p, &statuses[i], at)
			}
		}
	}
	p.change()
	if p.gone {
		delete(f.pods, p.uid) // its followers still have it
	}
}

func (f *follows) updateContainer(p *followedPod, s *roll.ContainerStatus, at time.Time) {
	last := s.LastState.Terminated
	if s.ContainerID != "" {
		f.updateRun(p, s.Name, s.ContainerID, s.State.Running, s.State.Terminated, at)
	}
	if last != nil && last.ContainerID != "" {
		f.updateRun(p, s.Name, last.ContainerID, nil, last, at)
	}
	for id, r := range p.runs {
		switch {
		case r.container != s.Name:
		case id == s.ContainerID:
			r.place = placeCurrent
		case last != nil && id == last.ContainerID:
			r.place = placePrevious
		case s.ContainerID != "":
			r.place = placeNone
		}
	}
}

// updateRun notes the state of one run, and begins to follow it if that may bring lines of interest.
func (f *follows) updateRun(
	p *followedPod, container, id string, running *roll.StateRunning, ended *roll.StateTerminated, at time.Time,
) {
	r := p.runs[id]
	if r == nil {
		if running == nil && ended == nil || ended != nil && ended.FinishedAt.Before(f.since) {
			return
		}
		r = &followedRun{container: container}
		p.runs[id] = r
		fl := &follower{f: f, pod: p, run: r, container: container, id: id}
		if running == nil || running.StartedAt.Before(f.since) {
			fl.since = f.since
		}
		f.wg.Go(func() { fl.follow(f.ctx) })
	}
	r.exit(ended, at)
}

// exit notes an exit. One without a time is made up by the kubelet and is none (kubernetes/kubernetes#104107).
func (r *followedRun) exit(t *roll.StateTerminated, at time.Time) {
	if t != nil && !t.FinishedAt.IsZero() && r.exitSeen.IsZero() {
		r.finished, r.exitSeen = t.FinishedAt, at
	}
}

// gone notes that a pod was not in a list any more.
func (f *follows) gone(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pods[uid]; p != nil {
		p.gone = true
		p.change()
		delete(f.pods, uid)
	}
}

func (p *followedPod) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// follower reads the log of one run of one container, again and again, until nothing can be lacking or nothing can be
// read any more.
//
// A stream that ends says little: it ends in the same way when the container has ended and when the kubelet is
// restarted. So it is read again, from shortly before where it ended, and what is known is left out.
type follower struct {
	f         *follows
	pod       *followedPod
	run       *followedRun
	container string
	id        string
	since     time.Time // where the next reading begins

	recent     []stampCount // of the lines that the next reading may bring again
	opened     bool         // some stream was opened
	plainEnd   time.Time    // observer's clock: when a stream ended plainly after the last line; zero if none did
	unreadable bool         // a stream since then held an error of the kubelet's
	tail       *roll.Line   // a last line without an end
}

// reading is what one stream brought.
type reading struct {
	err        error // io.EOF: the plain end
	fresh      int   // lines that were not known
	foreign    bool  // it is not the log that was read before: the container runs again, or its log was rotated
	unreadable bool  // it held an error of the kubelet's
}

// whole reports whether the log was read up to where it then ended.
func (r reading) whole() bool { return r.err == io.EOF && !r.foreign && !r.unreadable }

// stampCount counts the lines of one stamp.
type stampCount struct {
	stamp time.Time
	n     int
}

// overlap is how far before the last stamp a log is read again: the two streams of a container are not stamped in
// strict order.
const overlap = 2 * time.Second

// runState is a copy of what the watch told of a run.
type runState struct {
	gone     bool
	place    place
	exitSeen time.Time
	finished time.Time
	changed  <-chan struct{}
}

func (fl *follower) state() runState {
	fl.f.mu.Lock()
	defer fl.f.mu.Unlock()
	return runState{fl.pod.gone, fl.run.place, fl.run.exitSeen, fl.run.finished, fl.pod.changed}
}

// giveUp is after how many vain readings in a row the log of a container that has ended is given up.
const giveUp = 30

func (fl *follower) follow(ctx context.Context) {
	b := backoff{min: fl.f.r.t.retryMin, max: fl.f.r.t.logRetryMax}
	failed := 0
loop:
	for ctx.Err() == nil {
		st := fl.state()
		if st.gone || st.place == placeNone {
			break // what is read now would be another pod's or run's
		}
		exited := !st.exitSeen.IsZero()
		got := fl.read(ctx, st)
		if ctx.Err() != nil {
			break
		}
		if got.fresh > 0 {
			fl.plainEnd = time.Time{}
		}
		fl.unreadable = fl.unreadable || got.unreadable
		switch {
		case got.whole():
			fl.plainEnd, fl.unreadable, failed = fl.f.r.now(), false, 0
			if exited {
				fl.end("")
				return
			}
		case apierrors.IsNotFound(got.err), errors.Is(got.err, errOtherPod):
			fl.settle(ctx)
			break loop
		case apierrors.IsForbidden(got.err):
			break loop
		default:
			if failed++; exited && failed >= giveUp {
				break loop
			}
		}
		if got.fresh > 0 {
			b.reset()
		}
		if now := fl.state(); exited == !now.exitSeen.IsZero() && st.gone == now.gone && st.place == now.place {
			fl.wait(ctx, now.changed, b.next())
		}
	}
	if ctx.Err() != nil {
		fl.end(roll.LogEndRecordingEnded)
		return
	}
	fl.end(fl.incomplete())
}

// wait waits for d, for a change or for the end of ctx.
func (fl *follower) wait(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-t.C:
	}
}

// settle waits for the watch to tell of the exit or of the pod's end, which the log already told.
func (fl *follower) settle(ctx context.Context) {
	t := time.NewTimer(fl.f.r.t.settle)
	defer t.Stop()
	for {
		st := fl.state()
		if st.gone || !st.exitSeen.IsZero() {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			return
		case <-st.changed:
		}
	}
}

// incomplete says why the log may lack lines after the last reading; empty when it does not. The stream that a kubelet
// ends with the container holds everything; that it was such a stream is known when the exit was known before it ended,
// or when its end certainly came after the exit.
func (fl *follower) incomplete() string {
	st := fl.state()
	unproven := roll.LogEndExitUnknown
	if fl.unreadable {
		unproven = roll.LogEndUnreadable // what a later reading said; it takes nothing from a stream that had ended whole
	}
	switch {
	case !fl.opened:
		return roll.LogEndNotFollowed
	case fl.plainEnd.IsZero() && !fl.unreadable:
		return roll.LogEndCut
	case fl.plainEnd.IsZero(), st.exitSeen.IsZero():
		return unproven
	case !st.exitSeen.After(fl.plainEnd):
		return ""
	}
	lag, known := fl.f.lagOf(fl.pod)
	end := fl.plainEnd.Add(-lag)
	prompt := !st.exitSeen.After(fl.plainEnd.Add(time.Second)) // no kubelet restarts so fast
	if known && (!end.Before(st.finished.Add(time.Second)) || prompt && !end.Before(st.finished)) {
		return ""
	}
	return unproven
}

// lagOf returns the shortest way that a line of the pod's node took: the kubelet's clock is behind by that at most.
func (f *follows) lagOf(p *followedPod) (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lag, ok := f.lag[p.node]
	return lag, ok
}

// end writes the log's end.
func (fl *follower) end(reason string) {
	if fl.tail != nil {
		fl.tail.Log.Truncated = reason != ""
		fl.f.r.writeLine(*fl.tail)
	}
	fl.f.r.writeLine(roll.Line{ReceivedAt: fl.f.r.now(), LogEnd: &roll.LogEnd{
		Namespace: fl.pod.namespace, Pod: fl.pod.name, UID: fl.pod.uid, Container: fl.container, ContainerID: fl.id,
		Complete: reason == "", Reason: reason,
	}})
}

// errOtherPod says that the name is another pod's now.
var errOtherPod = errors.New("the pod's name is used again")

// read reads one stream to its end.
func (fl *follower) read(ctx context.Context, st runState) reading {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	follow := st.exitSeen.IsZero() && st.place == placeCurrent
	previous := st.place == placePrevious
	body, err := fl.f.r.api.log(ctx, fl.pod.namespace, fl.pod.name, fl.container, fl.since, follow, previous)
	if err != nil {
		return reading{err: err}
	}
	defer body.Close()
	// A log is asked for by the pod's name. Now that it is open, the pod that has the name is the one that it is of.
	if o, err := fl.f.r.api.pod(ctx, fl.pod.namespace, fl.pod.name); err == nil && o.Metadata.UID != fl.pod.uid {
		return reading{err: errOtherPod}
	}
	fl.opened = true
	return fl.lines(body, fl.since.Truncate(time.Second))
}

// lines writes the lines of a stream that are not known yet. The stream holds what is stamped since or later.
func (fl *follower) lines(body io.Reader, since time.Time) (got reading) {
	missing := map[int64]int{}
	for _, k := range fl.recent {
		if !k.stamp.Before(since) {
			missing[k.stamp.UnixNano()] += k.n
		}
	}
	br := bufio.NewReaderSize(body, 1<<16)
	for {
		text, cut, err := readLine(br, fl.f.r.t.maxLine)
		got.err = err
		if err != nil && err != io.EOF {
			return got // a line that a broken stream cut is read again
		}
		if text == "" && err == io.EOF {
			for _, n := range missing {
				got.foreign = got.foreign || n > 0
			}
			return got
		}
		fl.line(text, cut, err == io.EOF, missing, &got)
	}
}

// line takes one line; last says that the stream ended with it and without its end.
func (fl *follower) line(text string, cut, last bool, missing map[int64]int, got *reading) {
	at := fl.f.r.now()
	stamp, text, ok := splitStamp(text)
	if !ok {
		got.unreadable = true
		return
	}
	if missing[stamp.UnixNano()] > 0 {
		missing[stamp.UnixNano()]--
		return
	}
	if st := fl.state(); !st.exitSeen.IsZero() && stamp.After(st.finished.Add(2*time.Second)) {
		got.foreign = true // of the container's next run, which has a follower of its own
		return
	}
	l := roll.Line{ReceivedAt: at, Log: &roll.Log{
		Namespace: fl.pod.namespace, Pod: fl.pod.name, UID: fl.pod.uid, Container: fl.container, ContainerID: fl.id,
		Time: stamp, Line: text, Truncated: cut,
	}}
	if last {
		fl.tail = &l // perhaps the next reading has it whole
		return
	}
	if fl.tail != nil && fl.tail.Log.Time.Equal(stamp) {
		fl.tail = nil
	}
	got.fresh++
	fl.f.r.writeLine(l)
	fl.remember(stamp)
	fl.f.noteLag(fl.pod, at.Sub(stamp))
}

// remember keeps the stamps of the last lines, and where the next reading begins.
func (fl *follower) remember(stamp time.Time) {
	if n := len(fl.recent); n > 0 && fl.recent[n-1].stamp.Equal(stamp) {
		fl.recent[n-1].n++
	} else {
		fl.recent = append(fl.recent, stampCount{stamp, 1})
	}
	if from := stamp.Add(-overlap); from.After(fl.since) {
		fl.since = from
	}
	// The API truncates sinceTime to the second.
	if old := fl.since.Add(-time.Second); len(fl.recent) > 64 && fl.recent[len(fl.recent)/2].stamp.Before(old) {
		fl.recent = slices.DeleteFunc(fl.recent, func(s stampCount) bool { return s.stamp.Before(old) })
	}
}

func (f *follows) noteLag(p *followedPod, lag time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.lag[p.node]; !ok || lag < known {
		f.lag[p.node] = lag
	}
}

// readLine returns a line without its end and at most limit bytes of it; io.EOF with the last line when it has no end.
func readLine(br *bufio.Reader, limit int) (line string, cut bool, err error) {
	var long []byte
	for {
		b, err := br.ReadSlice('\n')
		if err == nil {
			b = b[:len(b)-1]
		}
		if long == nil && err == nil && len(b) <= limit {
			return string(b), false, nil
		}
		if room := limit - len(long); len(b) > room {
			b, cut = b[:room], true
		}
		long = append(long, b...)
		if err != bufio.ErrBufferFull {
			return string(long), cut, err
		}
	}
}
