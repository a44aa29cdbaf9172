package record

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/rolltrace/rolltrace/roll"
)

// selection decides which objects are written. The watches have no common order, so an object can come before what
// decides about it: then it waits.
type selection struct {
	objects  []Ref
	selector labels.Selector
	watched  map[string]bool // resources
	decided  map[string]bool // by UID: selected or not, of what was seen
	ended    []endedObject   // of decided, what was deleted, in order of time
	waiting  map[string][]roll.Line
	swept    time.Time
	nodes    map[string]roll.Line // by name: the latest state of nodes that have no selected pod
	hosts    map[string]bool      // names of nodes with a selected pod
}

// endedObject is an object that was deleted. Events about it may still come for as long as Events are kept.
type endedObject struct {
	uid string
	at  time.Time
}

// rememberFor is how long the API server keeps Events by default.
const rememberFor = time.Hour

// waitAtMost is how long an object waits for what decides about it. What is not there by then was gone before the
// recording began.
const waitAtMost = 10 * time.Minute

func newSelection(objects []Ref, selector labels.Selector, resources []string) *selection {
	s := &selection{
		objects: objects, selector: selector, watched: map[string]bool{}, decided: map[string]bool{},
		waiting: map[string][]roll.Line{}, nodes: map[string]roll.Line{}, hosts: map[string]bool{},
	}
	for _, r := range resources {
		s.watched[r] = true
	}
	return s
}

// all reports whether everything is selected.
func (s *selection) all() bool {
	return len(s.objects) == 0 && (s.selector == nil || s.selector.Empty())
}

// labelled reports whether the selector matches an object or the pods that it makes.
func (s *selection) labelled(o *roll.Object) bool {
	if s.selector == nil || s.selector.Empty() {
		return false
	}
	return s.selector.Matches(labels.Set(o.Metadata.Labels)) ||
		o.Spec != nil && o.Spec.Template != nil && s.selector.Matches(labels.Set(o.Spec.Template.Metadata.Labels))
}

// decide says whether the line's object is selected or, when that is not known yet, which UID it waits for.
func (s *selection) decide(l roll.Line) (yes bool, wait string) {
	o := l.Object
	if s.all() || s.decided[o.Metadata.UID] {
		return true, ""
	}
	switch l.Resource {
	case roll.ResourceNodes:
		if s.hosts[o.Metadata.Name] {
			return true, ""
		}
		s.nodes[o.Metadata.Name] = l
		return false, ""
	case roll.ResourceEvents:
		return s.about(o.InvolvedObject)
	case roll.ResourceEndpointSlices:
		for _, e := range o.Endpoints {
			y, w := s.about(e.TargetRef)
			if y {
				return true, ""
			}
			if w != "" {
				wait = w
			}
		}
		return false, wait
	}
	if len(s.objects) == 0 {
		return s.labelled(o), ""
	}
	if slices.Contains(s.objects, Ref{l.Resource, o.Metadata.Name}) {
		return true, ""
	}
	for _, owner := range o.Metadata.OwnerReferences {
		resource := roll.ResourceOfKind(owner.Kind)
		if !owner.Controller || resource == "" {
			continue
		}
		if slices.Contains(s.objects, Ref{resource, owner.Name}) {
			return true, ""
		}
		return s.known(resource, owner.UID)
	}
	return false, ""
}

// about decides by the object that an Event or an endpoint is about.
func (s *selection) about(ref *roll.ObjectReference) (yes bool, wait string) {
	if ref == nil || ref.UID == "" {
		return false, ""
	}
	return s.known(roll.ResourceOfKind(ref.Kind), ref.UID)
}

func (s *selection) known(resource, uid string) (yes bool, wait string) {
	if yes, ok := s.decided[uid]; ok || !s.watched[resource] || uid == "" {
		return yes, ""
	}
	return false, uid
}

// postpone keeps a line until uid is decided.
func (s *selection) postpone(uid string, l roll.Line) {
	s.waiting[uid] = append(s.waiting[uid], l)
	if l.ReceivedAt.Sub(s.swept) < time.Minute {
		return
	}
	s.swept = l.ReceivedAt
	for uid, lines := range s.waiting {
		if l.ReceivedAt.Sub(lines[len(lines)-1].ReceivedAt) > waitAtMost {
			delete(s.waiting, uid)
		}
	}
}

// resolved notes the decision about a line's object and returns the lines that waited for it.
func (s *selection) resolved(l roll.Line, yes bool) []roll.Line {
	if s.all() {
		return nil
	}
	uid := l.Object.Metadata.UID
	switch l.Resource {
	case roll.ResourceEvents, roll.ResourceNodes:
		return nil // nothing waits for them, and their own next line is decided anew
	case roll.ResourceEndpointSlices:
		if !yes {
			return nil
		}
	}
	s.decided[uid] = yes
	for len(s.ended) > 0 && l.ReceivedAt.Sub(s.ended[0].at) > rememberFor {
		delete(s.decided, s.ended[0].uid)
		s.ended = s.ended[1:]
	}
	if l.Op == roll.OpDeleted {
		s.ended = append(s.ended, endedObject{uid, l.ReceivedAt})
	}
	waiting := s.waiting[uid]
	delete(s.waiting, uid)
	if !yes || l.Resource != roll.ResourcePods || l.Object.Spec == nil || l.Object.Spec.NodeName == "" {
		return waiting
	}
	name := l.Object.Spec.NodeName
	s.hosts[name] = true
	if node, ok := s.nodes[name]; ok {
		node.Op, node.ReceivedAt = roll.OpListed, l.ReceivedAt
		delete(s.nodes, name)
		waiting = append(waiting, node)
	}
	return waiting
}
