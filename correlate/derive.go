// Package correlate derives, purely, what a recording and the answers of backends mean: which rolls there were, when
// each container was asked to end and ended, which span touched which pod in which phase, how severe a log line is.
//
// Nothing here reads a clock, a file or the network: the same recording always gives the same timeline.
package correlate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// Derive reads a recording's lines in order and returns its timeline.
func Derive(rec *roll.Recording) *roll.Timeline { return DeriveWith(rec, Sources{}) }

// DeriveWith is [Derive] with further sources.
func DeriveWith(rec *roll.Recording, more Sources) *roll.Timeline {
	c := newCluster(rec.Header)
	c.more = newSources(more)
	for i := range rec.Lines {
		c.add(&rec.Lines[i])
	}
	last := rec.Last
	if last.IsZero() {
		last = c.now // the source has no times of receipt: the latest time that an object speaks of
	}
	tl := &roll.Timeline{Header: rec.Header, Recorded: roll.Range{Start: rec.Header.StartedAt, End: last}}
	if tl.Recorded.Start.IsZero() {
		tl.Recorded.Start = c.first
	}
	tl.Gaps = append(tl.Gaps, rec.Gaps...)
	tl.Gaps = append(tl.Gaps, c.gaps...)
	if k := c.apiClock; k != nil && (k.Earliest > maxSkew || k.Latest < -maxSkew) {
		tl.Gaps = append(tl.Gaps, roll.Gap{
			Reason: roll.GapClockSkew, Detail: fmt.Sprintf("the API server's clock is %s to %s off the recorder's: windows may miss what belongs to them", k.Earliest, k.Latest),
		})
	}
	if len(rec.Lines) > 0 && len(c.pods) == 0 {
		tl.Gaps = append(tl.Gaps, roll.Gap{
			Reason: roll.GapNotRecorded, Resource: roll.ResourcePods,
			Detail: "the recording holds no pod: exits are not known, and of the rest only what events tell",
		})
	}

	for i := range rec.Logs {
		c.addLog(&rec.Logs[i])
	}
	c.addUnseen()
	for _, p := range c.pods {
		p.finish(c)
		tl.Pods = append(tl.Pods, &p.Pod)
	}
	if n := c.more.odd; n > 0 {
		tl.Gaps = append(tl.Gaps, roll.Gap{
			Reason: roll.GapSource,
			Detail: fmt.Sprintf("%d entries of further sources contradict the recording and were left out: is it the same cluster, and the same clock?", n),
		})
	}
	slices.SortFunc(tl.Pods, func(a, b *roll.Pod) int {
		return cmp.Or(a.Created.Earliest.Compare(b.Created.Earliest), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	tl.Rolls = c.rolls(tl.Recorded)
	for i := range tl.Rolls {
		r := &tl.Rolls[i]
		for _, g := range tl.Gaps {
			if g.Overlaps(r.Window.Start, r.Window.End) && concerns(g.Resource, r.Workload.Kind) {
				r.Gaps = append(r.Gaps, g)
			}
		}
	}
	return tl
}

// concerns reports whether what is not known of a resource may change what is said of a roll of a kind of workload.
func concerns(resource, kind string) bool {
	switch resource {
	case "", roll.ResourcePods, roll.ResourceEvents:
		return true
	case roll.ResourceDeployments, roll.ResourceReplicaSets:
		return kind == "Deployment" || kind == "ReplicaSet"
	case roll.ResourceStatefulSets:
		return kind == "StatefulSet"
	case roll.ResourceDaemonSets:
		return kind == "DaemonSet"
	case roll.ResourceControllerRevisions:
		return kind == "StatefulSet" || kind == "DaemonSet"
	default:
		return false
	}
}

// cluster is the state of the recorded part of a cluster while its lines are read.
type cluster struct {
	header roll.Header
	// at is the moment of the line being read: the time of receipt or, without one, now. now is the latest moment that any
	// object has spoken of so far, first the earliest receipt or such moment.
	at, now, first time.Time
	received       time.Time // of the line being read; zero when it does not say

	pods      map[string]*pod // by UID
	workloads map[roll.Workload]*workload
	templates map[string]template // by namespace/name of a ReplicaSet
	events    map[string][]event  // of a pod's containers, by its UID, in the order of receipt
	gaps      []roll.Gap
	watchGaps []*roll.WatchGap
	more      *sources
	apiClock  *roll.Clock // what is known of the API server's clock for the whole recording
	deleted   map[deletedEvent]bool
	warnings  map[string]int // by UID of what they are about
	counted   map[string]int // by UID of the event
}

// template is what a ReplicaSet says of its pods.
type template struct {
	workload roll.Workload
	hash     string
	spec     *roll.Spec
}

// event is a kubelet event about a container.
type event struct {
	pod       roll.PodRef
	container string
	reason    string
	liveness  bool // a Killing because of a failed liveness or startup probe
	at        roll.Instant
}

// deletedEvent is a controller's SuccessfulDelete.
type deletedEvent struct{ namespace, pod string }

func newCluster(h roll.Header) *cluster {
	return &cluster{
		header: h, pods: map[string]*pod{}, workloads: map[roll.Workload]*workload{}, templates: map[string]template{},
		events: map[string][]event{}, deleted: map[deletedEvent]bool{},
		warnings: map[string]int{}, counted: map[string]int{},
		first: h.StartedAt,
	}
}

func (c *cluster) add(l *roll.Line) {
	switch {
	case l.Gap != nil:
		c.addGap(l.Gap)
		return
	case l.Clock != nil:
		c.addClock(l.Clock)
		return
	case l.Object == nil:
		return
	}
	o := l.Object
	c.tick(o, l.ReceivedAt)
	switch o.Kind {
	case "Pod":
		c.addPod(o, l.Op)
	case "Event":
		c.addEvent(o)
	case "ReplicaSet":
		c.addReplicaSet(o, l.Op)
	case "Deployment", "StatefulSet", "DaemonSet", "Job":
		c.addWorkload(o, l.Op)
	case "ControllerRevision":
		c.addControllerRevision(o, l.Op)
	}
}

// tick advances the moment of reading.
func (c *cluster) tick(o *roll.Object, received time.Time) {
	c.now = maxTime(c.now, o.Metadata.CreationTimestamp, o.LastTimestamp, o.EventTime)
	if d := o.Metadata.DeletionTimestamp; !d.IsZero() && o.Metadata.DeletionGracePeriodSeconds != nil {
		c.now = maxTime(c.now, d.Add(-time.Duration(*o.Metadata.DeletionGracePeriodSeconds)*time.Second))
	}
	if s := o.Status; s != nil {
		for i := range s.Conditions {
			c.now = maxTime(c.now, s.Conditions[i].LastTransitionTime)
		}
		for i := range s.ContainerStatuses {
			if t := s.ContainerStatuses[i].State.Terminated; t != nil {
				c.now = maxTime(c.now, t.FinishedAt)
			}
		}
	}
	c.at, c.received = received, received
	if c.at.IsZero() {
		c.at = c.now
	}
	if c.first.IsZero() || c.at.Before(c.first) {
		c.first = c.at
	}
}

func (c *cluster) addGap(g *roll.WatchGap) {
	if g.Lossless {
		return // late, but nothing was lost
	}
	if g.Reason == string(roll.GapNoReceiptTime) {
		c.gaps = append(c.gaps, roll.Gap{
			Reason: roll.GapNoReceiptTime,
			Detail: "the source does not say when its events were received: what was going on between them is known less closely, and whether it was whole is not known",
		})
		return
	}
	detail := "the watch was interrupted (" + g.Reason + ") and what happened until the next list is known only from its result"
	c.gaps = append(c.gaps, roll.Gap{Reason: roll.GapWatch, Resource: g.Resource, From: g.From, To: g.To, Detail: detail})
	c.watchGaps = append(c.watchGaps, g)
	if g.Resource != roll.ResourcePods {
		return
	}
	for _, v := range g.Vanished {
		if p := c.pods[v.UID]; p != nil && p.Removed.IsZero() {
			p.Removed = roll.Instant{Earliest: g.From, Latest: g.To, Source: roll.SourceRelist}
			p.vanished, p.goneSeen = true, g.To
		}
	}
}

// maxSkew is how far the API server's clock may be off the recorder's: half of the padding of windows, which hold both.
const maxSkew = 500 * time.Millisecond

// addClock widens what is known of the API server's clock by one more measurement: clocks drift and are set.
func (c *cluster) addClock(k *roll.Clock) {
	if k.Of != "apiserver" || k.Samples == 0 || k.Earliest > k.Latest {
		return
	}
	if c.apiClock == nil {
		copied := *k
		c.apiClock = &copied
		return
	}
	c.apiClock.Earliest, c.apiClock.Latest = min(c.apiClock.Earliest, k.Earliest), max(c.apiClock.Latest, k.Latest)
}

// relisted returns the gap of a resource that ended at the moment of reading, if any: an object that a list found may
// have come to be at any moment of it.
func (c *cluster) relisted(resource string) *roll.WatchGap {
	for _, g := range slices.Backward(c.watchGaps) {
		if g.Resource == resource {
			return g
		}
	}
	return nil
}

func maxTime(ts ...time.Time) (m time.Time) {
	for _, t := range ts {
		if t.After(m) {
			m = t
		}
	}
	return m.UTC()
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
