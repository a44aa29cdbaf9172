package correlate

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// synthetic writes a recording of n pods of which every second one is ended by one of n/100 rolls of 50 pods each, in
// n/1000 Deployments, with the lines that an API server would send of it.
func synthetic(tb testing.TB, n int) []byte {
	tb.Helper()
	start := time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)
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
	replicas, grace, final := int32(50), int64(30), int64(0)
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
	for dep := 0; pods < n; dep++ {
		d := fmt.Sprintf("web%d", dep)
		put(roll.ResourceDeployments, roll.OpAdded, &roll.Object{
			Kind: "Deployment", Metadata: roll.ObjectMeta{Name: d, Namespace: "shop", UID: d}, Spec: &roll.Spec{Replicas: &replicas},
		})
		var old []*roll.Object
		for rev := 1; rev <= 20 && pods < n; rev++ {
			rs := fmt.Sprintf("%x", 0xabc0000+rev)
			put(roll.ResourceReplicaSets, roll.OpAdded, &roll.Object{
				Kind: "ReplicaSet", Spec: &roll.Spec{Replicas: &replicas},
				Metadata: roll.ObjectMeta{
					Name: d + "-" + rs, Namespace: "shop", UID: d + rs, CreationTimestamp: at, Labels: map[string]string{"pod-template-hash": rs},
					Annotations:     map[string]string{"deployment.kubernetes.io/revision": strconv.Itoa(rev)},
					OwnerReferences: []roll.OwnerReference{{Kind: "Deployment", Name: d, UID: d, Controller: true}},
				},
			})
			var now []*roll.Object
			for i := range int(replicas) {
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
			if rev%2 == 0 {
				old = nil // every second revision's pods stay, so that half of all pods are ended
			}
		}
	}
	if err := w.Close("end-of-source", at); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// TestSyntheticIsWhatItSays guards the benchmark: what it measures is derived, not skipped.
func TestSyntheticIsWhatItSays(t *testing.T) {
	rec, err := roll.ReadRecording(bytes.NewReader(synthetic(t, 1000)))
	if err != nil {
		t.Fatal(err)
	}
	tl := Derive(rec)
	terms := terminations(tl)
	if len(tl.Pods) != 1000 || len(terms) != 500 {
		t.Errorf("%d pods and %d terminations, want 1000 and 500", len(tl.Pods), len(terms))
	}
	for _, x := range terms {
		if x.Signaled.IsZero() || x.ExitCode == nil || x.Cause != roll.CauseRollout {
			t.Fatalf("%+v", x)
		}
	}
}

// BenchmarkRecording reads and derives a recording of 10,000 pods with 5,000 terminations, and one twice as large.
func BenchmarkRecording(b *testing.B) {
	var once time.Duration
	for _, n := range []int{10000, 20000} {
		raw := synthetic(b, n)
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			var read, derive time.Duration
			for b.Loop() {
				t0 := time.Now()
				rec, err := roll.ReadRecording(bytes.NewReader(raw))
				if err != nil {
					b.Fatal(err)
				}
				t1 := time.Now()
				Derive(rec)
				read, derive = read+t1.Sub(t0), derive+time.Since(t1)
			}
			per := b.Elapsed() / time.Duration(b.N)
			b.ReportMetric(float64(read.Milliseconds())/float64(b.N), "read-ms/op")
			b.ReportMetric(float64(derive.Milliseconds())/float64(b.N), "derive-ms/op")
			if n == 10000 {
				once = per
			} else if once > 0 {
				b.ReportMetric(float64(per)/float64(once), "times-for-double")
			}
		})
	}
}
