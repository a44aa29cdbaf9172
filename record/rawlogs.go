package record

import (
	"slices"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// run is one run of one container, as the pods' statuses told of it.
type run struct {
	namespace, pod, uid, container, id, node string

	finished time.Time // kubelet's clock, 1 s; zero when not observed
	exitSeen time.Time // observer's clock: the first status that told of the exit
	running  time.Time // observer's clock: the last status that told that it runs
}

// life is how long a pod's object was seen.
type life struct {
	namespace, uid string
	first, deleted time.Time
}

// podIndex finds the pod and the run that a line of log belongs to.
type podIndex struct {
	runs  map[string][]*run // by the pod's name
	lives map[string][]*life
	byID  map[string]*run
}

func newPodIndex() *podIndex {
	return &podIndex{runs: map[string][]*run{}, lives: map[string][]*life{}, byID: map[string]*run{}}
}

func (x *podIndex) add(o *roll.Object, deleted bool, at time.Time) {
	m := &o.Metadata
	i := slices.IndexFunc(x.lives[m.Name], func(l *life) bool { return l.uid == m.UID })
	if i < 0 {
		i = len(x.lives[m.Name])
		x.lives[m.Name] = append(x.lives[m.Name], &life{namespace: m.Namespace, uid: m.UID, first: at})
	}
	if deleted {
		x.lives[m.Name][i].deleted = at
	}
	if o.Status == nil {
		return
	}
	for _, list := range [][]roll.ContainerStatus{
		o.Status.ContainerStatuses, o.Status.InitContainerStatuses, o.Status.EphemeralContainerStatuses,
	} {
		for i := range list {
			s := &list[i]
			r := x.run(o, s.Name, s.ContainerID)
			r.ended(s.State.Terminated, at)
			if s.State.Running != nil && !deleted {
				r.running = at
			}
			if t := s.LastState.Terminated; t != nil {
				x.run(o, s.Name, t.ContainerID).ended(t, at)
			}
		}
	}
}

// run returns the run of that id; without an id, one that is in no index.
func (x *podIndex) run(o *roll.Object, container, id string) *run {
	r := x.byID[id]
	if r == nil {
		r = &run{namespace: o.Metadata.Namespace, pod: o.Metadata.Name, uid: o.Metadata.UID, container: container, id: id}
		if o.Spec != nil {
			r.node = o.Spec.NodeName
		}
		if id != "" {
			x.byID[id] = r
			x.runs[r.pod] = append(x.runs[r.pod], r)
		}
	}
	return r
}

// ended notes an exit. One without a time is made up by the kubelet and is none (kubernetes/kubernetes#104107).
func (r *run) ended(t *roll.StateTerminated, at time.Time) {
	if t == nil || t.FinishedAt.IsZero() || t.ContainerID != "" && t.ContainerID != r.id || !r.exitSeen.IsZero() {
		return
	}
	r.finished, r.exitSeen = t.FinishedAt, at
}

// find returns whose log it is: the run whose id ends in cid or, when no status ever told of it, the pod of that name
// that lived at the moment. Fields that are not known stay empty.
func (x *podIndex) find(pod, container, cid string, at time.Time) run {
	if cid != "" {
		for _, r := range x.runs[pod] {
			if r.container == container && strings.HasSuffix(r.id, cid) {
				return *r
			}
		}
	}
	found := run{pod: pod, container: container}
	for _, l := range x.lives[pod] {
		if !l.first.After(at) && (l.deleted.IsZero() || !l.deleted.Before(at)) || len(x.lives[pod]) == 1 {
			found.namespace, found.uid = l.namespace, l.uid
		}
	}
	return found
}

// followed is the state of one container's log while its lines are read.
type followed struct {
	run
	first time.Time // of receipt
	line  roll.Line // the latest end, not written yet
	bad   bool      // the kubelet wrote an error into the stream
}

func (im *rawImport) convertLogs() {
	index := newPodIndex()
	for i := range im.watch {
		if l := &im.watch[i]; l.Resource == roll.ResourcePods && l.pruned != nil {
			index.add(l.pruned, l.Type == "DELETED", l.at())
		}
	}
	type key struct{ pod, container, cid string }
	logs := map[key]*followed{}
	var order []*followed
	lag := time.Duration(1<<63 - 1)

	end := func(f *followed, at time.Time, reason string) {
		f.line = roll.Line{ReceivedAt: at, LogEnd: &roll.LogEnd{
			Namespace: f.namespace, Pod: f.pod, UID: f.uid, Container: f.container, ContainerID: f.id, Reason: reason,
		}}
	}
	for i := range im.logs {
		l := &im.logs[i]
		k := key{l.Pod, l.Ctr, l.CID[max(0, len(l.CID)-8):]}
		f := logs[k]
		if f == nil {
			f = &followed{run: index.find(l.Pod, l.Ctr, k.cid, l.at()), first: l.at()}
			logs[k] = f
			order = append(order, f)
		}
		switch {
		case l.Type == "FOLLOW_ERROR":
			if f.line.LogEnd == nil { // it may be followed again
				end(f, l.at(), roll.LogEndNotFollowed)
			}
			continue
		case l.Type == "FOLLOW_END":
			if !f.bad {
				end(f, l.at(), endReason(l.Err))
			}
			continue
		}
		if f.line.LogEnd != nil && !f.bad {
			// Followed again. What the first stream lacked may or may not be in the second: its end stands, unless there was no
			// first stream at all.
			if f.line.LogEnd.Reason != roll.LogEndNotFollowed {
				im.emit(f.line)
			}
			f.line = roll.Line{}
		}
		stamp, text, ok := splitStamp(*l.Line)
		if !ok {
			f.bad = true
			end(f, l.at(), roll.LogEndUnreadable)
			continue
		}
		lag = min(lag, l.at().Sub(stamp))
		im.emit(roll.Line{ReceivedAt: l.at(), Log: &roll.Log{
			Namespace: f.namespace, Pod: f.pod, UID: f.uid, Container: f.container, ContainerID: f.id, Time: stamp, Line: text,
		}})
	}
	for _, f := range order {
		if f.line.LogEnd == nil {
			end(f, im.end, roll.LogEndRecordingEnded)
		}
	}
	for _, f := range order {
		if f.line.LogEnd.Reason == "" { // the plain end of a stream
			f.line.LogEnd.Reason = incomplete(f, order, lag)
			f.line.LogEnd.Complete = f.line.LogEnd.Reason == ""
		}
	}
	for _, f := range order {
		im.emit(f.line)
	}
}

// incomplete says why a stream that ended plainly may lack lines; empty when it does not.
//
// A container's exit ends its stream 0.2 s to 1 s later, with everything in it. A kubelet that stops ends all of its
// streams at once, with the same plain end, wherever each had got to, and nobody reads on. So an end counts only when it
// came after the exit, and when no stream of another container that ran on ended with it. finishedAt is truncated to the
// second: an end within that second counts if the kubelet was there afterwards, which it shows by telling of the exit
// within a second, or by a stream of the same node that goes on.
func incomplete(f *followed, all []*followed, lag time.Duration) string {
	end := f.line.ReceivedAt
	if f.exitSeen.IsZero() || end.Add(-lag).Before(f.finished) {
		return roll.LogEndExitUnknown
	}
	alive := !f.exitSeen.After(end.Add(time.Second))
	for _, o := range all {
		at := o.line.ReceivedAt
		if o == f || o.node != f.node {
			continue
		}
		ranOn := o.running.After(at.Add(time.Second)) || !o.exitSeen.IsZero() && at.Before(o.finished)
		if o.line.LogEnd.Reason != roll.LogEndRecordingEnded && ranOn && at.Sub(end).Abs() < 1500*time.Millisecond {
			return roll.LogEndCut
		}
		alive = alive || o.first.Before(end) && at.After(end.Add(time.Second))
	}
	if !alive && end.Add(-lag).Before(f.finished.Add(time.Second)) {
		return roll.LogEndExitUnknown
	}
	return ""
}

// endReason turns the error that ended a stream into the reason of a LogEnd; empty for the plain end.
func endReason(err string) string {
	switch err {
	case "EOF":
		return ""
	case "context canceled":
		return roll.LogEndRecordingEnded
	default:
		return roll.LogEndCut
	}
}

// splitStamp splits the stamp from a line of a log that was asked for with timestamps=true: RFC 3339 with nanoseconds and
// one space (kubernetes pkg/kubelet/kuberuntime/logs/logs.go). A line without one is the kubelet's own word.
func splitStamp(line string) (stamp time.Time, text string, ok bool) {
	line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
	s, text, _ := strings.Cut(line, " ")
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, "", false
	}
	return t.UTC(), text, true
}
