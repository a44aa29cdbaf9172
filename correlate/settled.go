package correlate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// Unsettled says what of a recording's last state speaks against starting a roll at now, the observer's clock: a workload
// whose controller has not caught up, pods that are missing, not Ready or terminating, a ReplicaSet younger than minAge
// (somebody has just rolled it), a node that is not Ready. One line each, in order; none when all is settled.
//
// Ages compare the observer's clock with the API server's, to the second.
func Unsettled(rec *roll.Recording, minAge time.Duration, now time.Time) []string {
	last := map[string]*roll.Object{}
	for i := range rec.Lines {
		l := &rec.Lines[i]
		switch {
		case l.Gap != nil:
			for _, v := range l.Gap.Vanished {
				delete(last, v.UID)
			}
		case l.Object == nil || l.Resource == roll.ResourceEvents:
		case l.Op == roll.OpDeleted:
			delete(last, l.Object.Metadata.UID)
		default:
			last[l.Object.Metadata.UID] = l.Object
		}
	}
	var out []string
	for _, o := range last {
		if why := unsettled(o, minAge, now); why != "" {
			out = append(out, strings.ToLower(o.Kind)+"/"+o.Metadata.Name+": "+why)
		}
	}
	slices.Sort(out)
	return out
}

func unsettled(o *roll.Object, minAge time.Duration, now time.Time) string {
	spec, st := o.Spec, o.Status
	if spec == nil {
		spec = &roll.Spec{}
	}
	if st == nil {
		st = &roll.Status{}
	}
	replicas, updated, ready := st.Replicas, st.UpdatedReplicas, st.ReadyReplicas
	want := int32(1)
	if spec.Replicas != nil {
		want = *spec.Replicas
	}
	switch o.Kind {
	case "Deployment", "StatefulSet", "DaemonSet":
		if o.Kind == "DaemonSet" {
			want, updated, ready = st.DesiredNumberScheduled, st.UpdatedNumberScheduled, st.NumberReady
			replicas = want
		}
		switch {
		case st.ObservedGeneration < o.Metadata.Generation:
			return "its controller has not acted on its last change"
		case spec.Paused:
			return "it is paused"
		case st.TerminatingReplicas != nil && *st.TerminatingReplicas > 0:
			return fmt.Sprintf("%d pods are terminating", *st.TerminatingReplicas)
		case replicas > want:
			return fmt.Sprintf("%d pods, %d are wanted", replicas, want)
		case o.Kind != "StatefulSet" && updated < want,
			o.Kind == "StatefulSet" && st.UpdateRevision != st.CurrentRevision && st.CurrentRevision != "":
			return fmt.Sprintf("%d of %d pods are of its last revision", updated, want)
		case ready < want:
			return fmt.Sprintf("%d of %d pods are Ready", ready, want)
		}
	case "ReplicaSet":
		if age := now.Sub(o.Metadata.CreationTimestamp); want > 0 && age < minAge {
			return fmt.Sprintf("it is %s old, younger than %s", max(age, 0).Round(time.Second), minAge)
		}
	case "Pod":
		switch {
		case !o.Metadata.DeletionTimestamp.IsZero():
			return "it is terminating"
		case st.Phase == "Succeeded" || st.Phase == "Failed":
		case !is(st, "Ready"):
			return "it is not Ready"
		}
	case "Node":
		if !is(st, "Ready") {
			return "it is not Ready"
		}
	}
	return ""
}

func is(st *roll.Status, condition string) bool {
	return slices.ContainsFunc(st.Conditions, func(c roll.Condition) bool { return c.Type == condition && c.Status == "True" })
}
