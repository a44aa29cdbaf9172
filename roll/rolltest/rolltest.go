// Package rolltest makes recordings for tests and benchmarks.
package rolltest

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// Start is when synthetic recordings start.
var Start = time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)

// Synthetic returns a recording of Deployments web0, web1, … of namespace shop, each of which is rolled revisions − 1
// times, one after the other, with the lines that an API server would send of it. Each roll takes 8 s and a little: its
// pods sleep 5 s in preStop and exit 0. A pod's UID is its number, %08d-0000-4000-8000-000000000000, in order of creation.
func Synthetic(tb testing.TB, deployments, revisions, replicas int) []byte {
	tb.Helper()
	start := Start
	var b bytes.Buffer
	w, err := roll.NewWriter(&b, roll.Header{Source: "raw-streams", StartedAt: start})
	if err != nil {
		tb.Fatal(err)
	}
	at := start
	put := func(resource string, op roll.Op, o *roll.Object) {
		at = at.Add(time.Millisecond)
		if err := w.Write(roll.Line{Object: o, Op: op, Resource: resource, ReceivedAt: at}); err != nil {
			tb.Fatal(err)
		}
	}
	want, grace, final := int32(replicas), int64(30), int64(0)
	pods := 0
	pod := func(d, rs string, i int) *roll.Object {
		pods++
		name := fmt.Sprintf("%s-%s-%05d", d, rs, i)
		return &roll.Object{
			Kind: "Pod",
			Metadata: roll.ObjectMeta{
				Name: name, Namespace: "shop", UID: fmt.Sprintf("%08d-0000-4000-8000-000000000000", pods),
				CreationTimestamp: at.Truncate(time.Second), Labels: map[string]string{"pod-template-hash": rs},
				OwnerReferences: []roll.OwnerReference{{Kind: "ReplicaSet", Name: d + "-" + rs, UID: d + rs, Controller: true}},
			},
			Spec: &roll.Spec{NodeName: "node1", TerminationGracePeriodSeconds: &grace, Containers: []roll.Container{
				{Name: "app", Image: "app:1", Lifecycle: &roll.Lifecycle{PreStop: &roll.Handler{Sleep: &roll.SleepAction{Seconds: 5}}}},
			}},
			Status: &roll.Status{
				Phase: "Running", PodIP: "10.0." + strconv.Itoa(pods/250%250) + "." + strconv.Itoa(pods%250),
				Conditions: []roll.Condition{{Type: "Ready", Status: "True", LastTransitionTime: at.Truncate(time.Second)}},
				ContainerStatuses: []roll.ContainerStatus{{
					Name: "app", ContainerID: "containerd://" + name, Ready: true,
					State: roll.ContainerState{Running: &roll.StateRunning{StartedAt: at.Truncate(time.Second)}},
				}},
			},
		}
	}
	clone := func(o *roll.Object) *roll.Object {
		c, st := *o, *o.Status
		st.ContainerStatuses = append([]roll.ContainerStatus(nil), st.ContainerStatuses...)
		c.Status = &st
		return &c
	}
	for dep := range deployments {
		d := fmt.Sprintf("web%d", dep)
		put(roll.ResourceDeployments, roll.OpAdded, &roll.Object{
			Kind: "Deployment", Metadata: roll.ObjectMeta{Name: d, Namespace: "shop", UID: d}, Spec: &roll.Spec{Replicas: &want},
		})
		var old []*roll.Object
		for rev := 1; rev <= revisions; rev++ {
			rs := fmt.Sprintf("%x", 0xabc0000+rev)
			put(roll.ResourceReplicaSets, roll.OpAdded, &roll.Object{
				Kind: "ReplicaSet", Spec: &roll.Spec{Replicas: &want},
				Metadata: roll.ObjectMeta{
					Name: d + "-" + rs, Namespace: "shop", UID: d + rs, CreationTimestamp: at, Labels: map[string]string{"pod-template-hash": rs},
					Annotations:     map[string]string{"deployment.kubernetes.io/revision": strconv.Itoa(rev)},
					OwnerReferences: []roll.OwnerReference{{Kind: "Deployment", Name: d, UID: d, Controller: true}},
				},
			})
			var now []*roll.Object
			for i := range replicas {
				p := pod(d, rs, i)
				put(roll.ResourcePods, roll.OpAdded, p)
				now = append(now, p)
			}
			at = at.Add(time.Second)
			for _, p := range old {
				q := clone(p)
				q.Metadata.DeletionTimestamp, q.Metadata.DeletionGracePeriodSeconds = at.Truncate(time.Second).Add(30*time.Second), &grace
				put(roll.ResourcePods, roll.OpModified, q)
				put(roll.ResourceEvents, roll.OpAdded, &roll.Object{
					Kind: "Event", Reason: "Killing", Message: "Stopping container app", FirstTimestamp: at.Truncate(time.Second), LastTimestamp: at.Truncate(time.Second), Count: 1,
					Metadata:       roll.ObjectMeta{Name: fmt.Sprintf("%s.%x", p.Metadata.Name, at.UnixNano()), Namespace: "shop"},
					InvolvedObject: &roll.ObjectReference{Kind: "Pod", Namespace: "shop", Name: p.Metadata.Name, UID: p.Metadata.UID, FieldPath: "spec.containers{app}"},
				})
			}
			at = at.Add(6 * time.Second)
			for _, p := range old {
				q := clone(p)
				q.Metadata.DeletionTimestamp, q.Metadata.DeletionGracePeriodSeconds = at.Truncate(time.Second).Add(30*time.Second), &grace
				q.Status.ContainerStatuses[0].State = roll.ContainerState{Terminated: &roll.StateTerminated{
					Reason: "Completed", FinishedAt: at.Truncate(time.Second), ContainerID: "containerd://" + p.Metadata.Name,
				}}
				put(roll.ResourcePods, roll.OpModified, q)
				q = clone(q)
				q.Metadata.DeletionTimestamp, q.Metadata.DeletionGracePeriodSeconds = at.Truncate(time.Second), &final
				put(roll.ResourcePods, roll.OpDeleted, q)
			}
			at = at.Add(time.Second)
			old = now
		}
	}
	if err := w.Close("end-of-source", at); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}
