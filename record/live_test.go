package record_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/rolltrace/rolltrace/record"
	"github.com/rolltrace/rolltrace/roll"
)

// recording is a live recording under way.
type recording struct {
	t      *testing.T
	cancel context.CancelCauseFunc
	done   chan struct{}
	buf    bytes.Buffer
	notes  []string
	mu     sync.Mutex
	counts record.Counts
	err    error
}

// start records from a and returns when everything is watched.
func start(t *testing.T, a *fakeAPI, change func(*record.Options)) *recording {
	t.Helper()
	rec := &recording{t: t, done: make(chan struct{})}
	live := make(chan struct{})
	o := record.Options{
		Config: a.config(t), Tool: "rolltrace test", Namespace: "shop", Logs: true, Now: time.Now, AllowEmpty: true,
		Live: func() { close(live) },
		Note: func(s string) {
			rec.mu.Lock()
			defer rec.mu.Unlock()
			rec.notes = append(rec.notes, s)
		},
	}
	if change != nil {
		change(&o)
	}
	var ctx context.Context
	ctx, rec.cancel = context.WithCancelCause(t.Context())
	go func() {
		defer close(rec.done)
		rec.counts, rec.err = record.Live(ctx, &rec.buf, o)
	}()
	select {
	case <-live:
	case <-rec.done:
		t.Fatalf("the recording ended before it was live: %v", rec.err)
	}
	synctest.Wait()
	return rec
}

// stop ends the recording and reads it.
func (rec *recording) stop() *roll.Recording {
	rec.t.Helper()
	synctest.Wait()
	rec.cancel(nil)
	<-rec.done
	if rec.err != nil {
		rec.t.Fatalf("record: %v", rec.err)
	}
	r, err := roll.ReadRecording(bytes.NewReader(rec.buf.Bytes()))
	if err != nil {
		rec.t.Fatalf("read recording: %v", err)
	}
	if len(r.Gaps) > 0 {
		rec.t.Errorf("the file itself lacks something: %v", r.Gaps)
	}
	return r
}

// summary is one word a line: what a test compares.
func summary(r *roll.Recording, resources ...string) (out []string) {
	for _, l := range r.Lines {
		switch {
		case l.Object != nil && (len(resources) == 0 || slices.Contains(resources, l.Resource)):
			out = append(out, fmt.Sprintf("%s %s/%s", l.Op, l.Resource, l.Object.Metadata.Name))
		case l.Gap != nil && (len(resources) == 0 || slices.Contains(resources, l.Gap.Resource)):
			s := fmt.Sprintf("gap %s %s", l.Gap.Resource, l.Gap.Reason)
			if l.Gap.Lossless {
				s += " lossless"
			}
			for _, v := range l.Gap.Vanished {
				s += " -" + v.Name
			}
			out = append(out, s)
		}
	}
	return out
}

func texts(r *roll.Recording) (out []string) {
	for _, l := range r.Logs {
		out = append(out, fmt.Sprintf("%s %s: %s", l.UID, l.ContainerID, l.Line))
	}
	return out
}

func ends(r *roll.Recording) (out []string) {
	for _, e := range r.Ends {
		out = append(out, fmt.Sprintf("%s %s complete=%v %s", e.UID, e.ContainerID, e.Complete, e.Reason))
	}
	slices.Sort(out)
	return out
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got  %s\n want %s", what, strings.Join(got, "\n      "), strings.Join(want, "\n      "))
	}
}

func meta(name, uid string) obj {
	return obj{"name": name, "namespace": "shop", "uid": uid}
}

func owned(m obj, kind, name, uid string) obj {
	m["ownerReferences"] = []any{obj{"kind": kind, "name": name, "uid": uid, "controller": true}}
	return m
}

// pod is a running pod with one container, app, whose run is id; id empty: it does not run yet.
func pod(name, uid, id string) obj {
	st := obj{"name": "app", "state": obj{"waiting": obj{"reason": "ContainerCreating"}}}
	if id != "" {
		st = obj{"name": "app", "containerID": id, "ready": true, "state": obj{"running": obj{"startedAt": stamp()}}}
	}
	return obj{
		"kind": "Pod", "apiVersion": "v1", "metadata": meta(name, uid), "spec": obj{"nodeName": "node1"},
		"status": obj{"phase": "Running", "containerStatuses": []any{st}},
	}
}

// exited is the pod after its container ended now with code.
func exited(p obj, code int) obj {
	p = clone(p)
	s := p["status"].(obj)["containerStatuses"].([]any)[0].(obj)
	s["state"] = obj{"terminated": obj{"exitCode": code, "reason": "Completed", "finishedAt": stamp(), "containerID": s["containerID"]}}
	return p
}

// restarted is the pod after its container ended and runs again as id.
func restarted(p obj, code int, id string) obj {
	p = exited(p, code)
	s := p["status"].(obj)["containerStatuses"].([]any)[0].(obj)
	s["lastState"] = s["state"]
	s["state"], s["containerID"] = obj{"running": obj{"startedAt": stamp()}}, id
	return p
}

func stamp() string { return time.Now().UTC().Truncate(time.Second).Format(time.RFC3339) }

func deployment(name, uid string) obj {
	return obj{"kind": "Deployment", "apiVersion": "apps/v1", "metadata": meta(name, uid), "spec": obj{"replicas": 1}}
}

func replicaSet(name, uid, ownerName, ownerUID string) obj {
	return obj{"kind": "ReplicaSet", "apiVersion": "apps/v1", "metadata": owned(meta(name, uid), "Deployment", ownerName, ownerUID)}
}

func event(name, podName, podUID, reason string) obj {
	return obj{
		"kind": "Event", "apiVersion": "v1", "metadata": meta(name, "e-"+name), "reason": reason,
		"involvedObject": obj{"kind": "Pod", "name": podName, "namespace": "shop", "uid": podUID},
	}
}

func TestLiveRecordsARoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("deployments", deployment("web", "d1"))
		a.put("replicasets", replicaSet("web-1", "rs1", "web", "d1"))
		old := pod("web-1-a", "p1", "run-1")
		a.put("pods", old)
		a.log("run-1", "before")
		rec := start(t, a, nil)

		a.put("replicasets", replicaSet("web-2", "rs2", "web", "d1"))
		synctest.Wait()
		a.put("pods", pod("web-2-b", "p2", ""))
		time.Sleep(time.Second)
		a.put("pods", pod("web-2-b", "p2", "run-2"))
		a.log("run-2", "hello")
		a.log("run-1", "bye")
		synctest.Wait()
		time.Sleep(time.Second)
		old = exited(old, 0)
		a.put("pods", old)
		time.Sleep(500 * time.Millisecond)
		a.endLog("run-1")
		time.Sleep(time.Second)
		a.remove("pods", "web-1-a")
		time.Sleep(time.Second)
		r := rec.stop()

		equal(t, "lines", summary(r), []string{
			"LISTED deployments/web", "LISTED replicasets/web-1", "LISTED pods/web-1-a", "ADDED replicasets/web-2",
			"ADDED pods/web-2-b", "MODIFIED pods/web-2-b", "MODIFIED pods/web-1-a", "DELETED pods/web-1-a",
		})
		logs := texts(r)
		slices.Sort(logs)
		equal(t, "logs", logs, []string{"p1 run-1: before", "p1 run-1: bye", "p2 run-2: hello"})
		equal(t, "ends", ends(r), []string{"p1 run-1 complete=true ", "p2 run-2 complete=false recording-ended"})
		if r.Footer == nil || r.Footer.Reason != record.StopInterrupted {
			t.Errorf("footer %+v", r.Footer)
		}
		h := r.Header
		if h.Cluster != "cluster-uid" || h.Source != "watch" || !h.Logs || len(h.Resources) != len(roll.Resources) || !slices.Equal(h.Namespaces, []string{"shop"}) {
			t.Errorf("header %+v", h)
		}
		for _, l := range r.Lines {
			if l.ReceivedAt.IsZero() {
				t.Errorf("no time of receipt: %+v", l)
			}
		}
	})
}

func TestStopReasonIsInTheFooter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := start(t, newFakeAPI(t), nil)
		rec.cancel(record.Stop("until-rolled"))
		if r := rec.stop(); r.Footer.Reason != "until-rolled" {
			t.Errorf("footer %+v", r.Footer)
		}
	})
}

// A delete that crosses a relist never comes as an event (grafana/grafana-app-sdk#1352): it must be a gap that holds the
// true moment, and the pod among what vanished.
func TestDeleteAcrossRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("pods", pod("web-a", "p1", "run-1"))
		a.put("pods", pod("web-b", "p2", "run-2"))
		rec := start(t, a, nil)
		time.Sleep(3 * time.Second)
		a.put("pods", pod("web-a", "p1", "run-1"))
		synctest.Wait()
		last := time.Now()
		time.Sleep(time.Second)

		a.net.cut(true)
		time.Sleep(2 * time.Second)
		gone := time.Now()
		a.remove("pods", "web-b")
		a.put("pods", pod("web-c", "p3", "run-3"))
		a.expire()
		time.Sleep(2 * time.Second)
		a.net.cut(false)
		time.Sleep(10 * time.Second)
		r := rec.stop()

		equal(t, "lines", summary(r, "pods"), []string{
			"LISTED pods/web-a", "LISTED pods/web-b", "MODIFIED pods/web-a",
			"gap pods expired -web-b", "LISTED pods/web-a", "LISTED pods/web-c",
		})
		for _, l := range r.Lines {
			if g := l.Gap; g != nil && g.Resource == "pods" {
				if !g.From.Equal(last) || gone.After(g.To) || g.Vanished[0].UID != "p2" {
					t.Errorf("gap %+v does not begin at the last receipt %s and hold %s", g, last, gone)
				}
			}
		}
		for _, e := range r.Ends {
			if e.UID == "p2" && e.Complete {
				t.Errorf("the log of a pod that vanished is said to be complete: %+v", e)
			}
		}
		if len(rec.notes) == 0 {
			t.Error("nobody was told that the watch was interrupted")
		}
	})
}

// An interruption after which the server accepts the old resourceVersion loses nothing; it is told when it was long.
func TestWatchResumes(t *testing.T) {
	for _, tt := range []struct {
		name string
		away time.Duration
		want []string
	}{
		{"long", 6 * time.Second, []string{"LISTED pods/web-a", "gap pods watch-ended lossless", "MODIFIED pods/web-a", "DELETED pods/web-a"}},
		{"short", 0, []string{"LISTED pods/web-a", "MODIFIED pods/web-a", "DELETED pods/web-a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newFakeAPI(t)
				p := pod("web-a", "p1", "")
				a.put("pods", p)
				rec := start(t, a, nil)
				if tt.away > 0 {
					a.net.cut(true)
					a.put("pods", p)
					time.Sleep(tt.away)
					a.net.cut(false)
				} else {
					a.endWatches()
					a.put("pods", p)
				}
				a.remove("pods", "web-a")
				time.Sleep(10 * time.Second)
				r := rec.stop()
				equal(t, "lines", summary(r, "pods"), tt.want)
			})
		})
	}
}

// A watch that was opened again and is silent was accepted: that must not end as a gap.
func TestQuietWatchResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		rec := start(t, a, nil)
		a.net.cut(true)
		time.Sleep(4 * time.Second)
		a.net.cut(false)
		time.Sleep(20 * time.Second)
		for _, s := range summary(rec.stop()) {
			if !strings.HasSuffix(s, "lossless") {
				t.Errorf("unexpected %s", s)
			}
		}
	})
}

func TestWatchThatNeverResumesIsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("pods", pod("web-a", "p1", ""))
		rec := start(t, a, nil)
		time.Sleep(time.Second)
		cut := time.Now()
		a.net.cut(true)
		time.Sleep(30 * time.Second)
		r := rec.stop()
		for _, resource := range []string{"pods", "events", "endpointslices"} {
			if got := summary(r, resource); len(got) == 0 || !strings.HasPrefix(got[len(got)-1], "gap "+resource) {
				t.Errorf("%s: no gap: %v", resource, got)
			}
		}
		for _, l := range r.Lines {
			if g := l.Gap; g != nil && (g.Lossless || g.From.After(cut) || !g.To.Equal(r.Last)) {
				t.Errorf("gap %+v does not reach from before %s to the end %s", g, cut, r.Last)
			}
		}
	})
}

// Bookmarks carry the resourceVersion of a quiet watch forward, so that it does not expire.
func TestBookmarksKeepAQuietWatchFromExpiring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("pods", pod("web-a", "p1", ""))
		rec := start(t, a, nil)
		a.expire()
		a.bookmark("pods", "Pod")
		synctest.Wait()
		a.endWatches()
		time.Sleep(10 * time.Second)
		r := rec.stop()
		equal(t, "pods", summary(r, "pods"), []string{"LISTED pods/web-a"})
		if got := summary(r, "jobs"); !slices.Equal(got, []string{"gap jobs expired"}) {
			t.Errorf("jobs, which had no bookmark: %v", got)
		}
	})
}

// An event that cannot be read is lost, and only another list tells what it was about.
func TestUnreadableEventListsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("pods", pod("web-a", "p1", ""))
		rec := start(t, a, nil)
		bad := pod("web-a", "p1", "")
		bad["status"] = "what?"
		a.put("pods", bad)
		a.put("pods", pod("web-a", "p1", ""))
		time.Sleep(10 * time.Second)
		equal(t, "pods", summary(rec.stop(), "pods"), []string{"LISTED pods/web-a", "gap pods unreadable-event", "LISTED pods/web-a"})
	})
}

// A pod can be deleted while its container's state says ContainerCreating (kubernetes-client/python#1540): the objects are
// recorded as they came, and its log is not said to be complete.
func TestDeletedWithoutExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("pods", pod("web-a", "p1", "run-1"))
		rec := start(t, a, nil)
		a.log("run-1", "working")
		synctest.Wait()
		a.put("pods", pod("web-a", "p1", ""))
		a.endLog("run-1")
		time.Sleep(50 * time.Millisecond)
		a.remove("pods", "web-a")
		time.Sleep(10 * time.Second)
		r := rec.stop()
		equal(t, "lines", summary(r, "pods"), []string{"LISTED pods/web-a", "MODIFIED pods/web-a", "DELETED pods/web-a"})
		equal(t, "ends", ends(r), []string{"p1 run-1 complete=false exit-unknown"})
		equal(t, "logs", texts(r), []string{"p1 run-1: working"})
	})
}

// A kubelet that is restarted ends every stream as an exit does. What the container wrote meanwhile comes from reading
// again, once, and in order.
func TestLogAcrossKubeletRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		p := pod("web-a", "p1", "run-1")
		a.put("pods", p)
		rec := start(t, a, nil)
		a.log("run-1", "one", "one")
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		a.log("run-1", "two")
		synctest.Wait()
		a.endLogs(500)
		time.Sleep(3 * time.Second)
		a.log("run-1", "three")
		a.endLog("run-1")
		time.Sleep(2 * time.Second)
		a.endLogs(0)
		p = exited(p, 0)
		a.put("pods", p)
		time.Sleep(10 * time.Second)
		a.remove("pods", "web-a")
		time.Sleep(time.Second)
		r := rec.stop()
		equal(t, "logs", texts(r), []string{"p1 run-1: one", "p1 run-1: one", "p1 run-1: two", "p1 run-1: three"})
		equal(t, "ends", ends(r), []string{"p1 run-1 complete=true "})
	})
}

// The same, but the pod goes before its log can be read again: the tail is lost, and that is said.
func TestLogTailLostWithTheKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		p := pod("web-a", "p1", "run-1")
		a.put("pods", p)
		rec := start(t, a, nil)
		a.log("run-1", "one")
		synctest.Wait()
		a.endLogs(500)
		time.Sleep(3 * time.Second)
		a.log("run-1", "WARN lost")
		time.Sleep(5 * time.Second)
		a.put("pods", exited(p, 0))
		time.Sleep(50 * time.Millisecond)
		a.remove("pods", "web-a")
		time.Sleep(10 * time.Second)
		r := rec.stop()
		equal(t, "logs", texts(r), []string{"p1 run-1: one"})
		equal(t, "ends", ends(r), []string{"p1 run-1 complete=false exit-unknown"})
	})
}

// When the connection breaks and the pod is gone before the log could be opened again, the log is cut.
func TestLogCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		p := pod("web-a", "p1", "run-1")
		a.put("pods", p)
		rec := start(t, a, nil)
		a.log("run-1", "one")
		synctest.Wait()
		a.net.cut(true)
		a.put("pods", exited(p, 0))
		a.remove("pods", "web-a")
		time.Sleep(3 * time.Second)
		a.net.cut(false)
		time.Sleep(20 * time.Second)
		equal(t, "ends", ends(rec.stop()), []string{"p1 run-1 complete=false stream-cut"})
	})
}

// What the kubelet itself says into a stream is no line of the container's.
func TestKubeletsErrorIsNoLogLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		p := pod("web-a", "p1", "run-1")
		a.put("pods", p)
		rec := start(t, a, nil)
		a.log("run-1", "one")
		a.logRaw("run-1", `failed to try resolving symlinks in path "/var/log/pods/x"`)
		a.endLog("run-1")
		time.Sleep(time.Second)
		a.put("pods", exited(p, 0))
		time.Sleep(2 * time.Minute)
		r := rec.stop()
		equal(t, "logs", texts(r), []string{"p1 run-1: one"})
		equal(t, "ends", ends(r), []string{"p1 run-1 complete=false unreadable"})
	})
}

// A StatefulSet's new pod has the old one's name: its log is not the old one's.
func TestSameNameNewPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("pods", pod("web-0", "p1", "run-1"))
		rec := start(t, a, nil)
		a.log("run-1", "old")
		synctest.Wait()
		// The watch is away while the pod is replaced, so that only the API can tell.
		a.endLogs(500)
		a.update(func() { a.forbidden["watch pods"] = true; a.streams++ })
		time.Sleep(time.Second)
		a.remove("pods", "web-0")
		a.put("pods", pod("web-0", "p2", "run-2"))
		a.log("run-2", "new")
		a.endLogs(0)
		time.Sleep(20 * time.Second)
		a.update(func() { a.forbidden["watch pods"] = false })
		time.Sleep(20 * time.Second)
		r := rec.stop()
		equal(t, "logs", texts(r), []string{"p1 run-1: old", "p2 run-2: new"})
		equal(t, "ends", ends(r), []string{"p1 run-1 complete=false exit-unknown", "p2 run-2 complete=false recording-ended"})
	})
}

// A container that is restarted has two logs; the first one's tail is read as the previous one.
func TestContainerRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		p := pod("web-a", "p1", "run-1")
		a.put("pods", p)
		rec := start(t, a, nil)
		a.log("run-1", "one")
		synctest.Wait()
		a.endLogs(500)
		time.Sleep(2 * time.Second)
		a.log("run-1", "panic")
		a.endLog("run-1")
		time.Sleep(time.Second)
		a.put("pods", restarted(p, 2, "run-2"))
		time.Sleep(4 * time.Second)
		a.log("run-2", "again")
		a.endLogs(0)
		time.Sleep(20 * time.Second)
		r := rec.stop()
		got := texts(r)
		slices.Sort(got)
		equal(t, "logs", got, []string{"p1 run-1: one", "p1 run-1: panic", "p1 run-2: again"})
		equal(t, "ends", ends(r), []string{"p1 run-1 complete=true ", "p1 run-2 complete=false recording-ended"})
	})
}

func TestLongLogLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("pods", pod("web-a", "p1", "run-1"))
		rec := start(t, a, nil)
		whole, long := strings.Repeat("a", 1<<20-100), strings.Repeat("b", 3<<20)
		a.log("run-1", whole, long, "after")
		time.Sleep(time.Second)
		r := rec.stop()
		if len(r.Logs) != 3 {
			t.Fatalf("%d lines", len(r.Logs))
		}
		if l := r.Logs[0]; l.Line != whole || l.Truncated {
			t.Errorf("a line of %d bytes: %d bytes, truncated %v", len(whole), len(l.Line), l.Truncated)
		}
		if l := r.Logs[1]; len(l.Line) < 1<<20-50 || len(l.Line) > 1<<20 || !l.Truncated {
			t.Errorf("a line of %d bytes: %d bytes, truncated %v", len(long), len(l.Line), l.Truncated)
		}
		if r.Logs[2].Line != "after" {
			t.Errorf("the line after it: %.20q", r.Logs[2].Line)
		}
	})
}

// Logs of containers that ran long before are read from shortly before the recording on.
func TestOldLogsAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("pods", pod("web-a", "p1", "run-1"))
		done := exited(pod("job-a", "p2", "run-2"), 0)
		a.put("pods", done)
		a.log("run-1", "old")
		a.log("run-2", "done")
		a.endLog("run-2")
		time.Sleep(time.Hour)
		rec := start(t, a, nil)
		a.log("run-1", "new")
		time.Sleep(time.Second)
		r := rec.stop()
		equal(t, "logs", texts(r), []string{"p1 run-1: new"})
		equal(t, "ends", ends(r), []string{"p1 run-1 complete=false recording-ended"})
	})
}

// The watches have no common order: a pod may come before its ReplicaSet, an Event before its pod.
func TestSelectionByOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("nodes", obj{"metadata": obj{"name": "node1", "uid": "n1"}, "spec": obj{"unschedulable": false}})
		a.put("nodes", obj{"metadata": obj{"name": "node2", "uid": "n2"}})
		a.put("deployments", deployment("web", "d1"))
		a.put("deployments", deployment("other", "d9"))
		a.put("replicasets", replicaSet("other-1", "rs9", "other", "d9"))
		ofOther := pod("other-1-a", "p9", "run-9")
		owned(ofOther["metadata"].(obj), "ReplicaSet", "other-1", "rs9")
		a.put("pods", ofOther)
		rec := start(t, a, func(o *record.Options) {
			o.Objects = []record.Ref{{Resource: "deployments", Name: "web"}}
		})
		// in the wrong order
		a.put("events", event("web.1", "web-1-a", "p1", "Killing"))
		a.put("events", event("other.1", "other-1-a", "p9", "Killing"))
		a.put("endpointslices", obj{
			"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "metadata": meta("web-xyz", "s1"),
			"endpoints": []any{obj{"targetRef": obj{"kind": "Pod", "name": "web-1-a", "uid": "p1"}}},
		})
		p := pod("web-1-a", "p1", "run-1")
		owned(p["metadata"].(obj), "ReplicaSet", "web-1", "rs1")
		a.put("pods", p)
		time.Sleep(time.Second)
		a.put("replicasets", replicaSet("web-1", "rs1", "web", "d1"))
		a.log("run-1", "hello")
		a.log("run-9", "not selected")
		time.Sleep(time.Second)
		a.put("pods", ofOther)
		a.put("nodes", obj{"kind": "Node", "apiVersion": "v1", "metadata": obj{"name": "node1", "uid": "n1"}, "spec": obj{"unschedulable": true}})
		a.put("nodes", obj{"kind": "Node", "apiVersion": "v1", "metadata": obj{"name": "node2", "uid": "n2"}})
		time.Sleep(time.Second)
		r := rec.stop()
		got := summary(r)
		slices.Sort(got)
		equal(t, "lines", got, []string{
			"ADDED endpointslices/web-xyz", "ADDED events/web.1", "ADDED pods/web-1-a", "ADDED replicasets/web-1",
			"LISTED deployments/web", "LISTED nodes/node1", "MODIFIED nodes/node1",
		})
		equal(t, "logs", texts(r), []string{"p1 run-1: hello"})
		if !slices.Equal(r.Header.Objects, []string{"deployment/web"}) {
			t.Errorf("header %+v", r.Header)
		}
	})
}

func TestSelectionByLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		d := deployment("web", "d1")
		d["spec"].(obj)["template"] = obj{"metadata": obj{"labels": obj{"app": "web"}}}
		a.put("deployments", d)
		a.put("deployments", deployment("other", "d9"))
		p := pod("web-a", "p1", "run-1")
		p["metadata"].(obj)["labels"] = obj{"app": "web"}
		a.put("pods", p)
		a.put("pods", pod("other-a", "p9", "run-9"))
		a.log("run-9", "not selected")
		rec := start(t, a, func(o *record.Options) {
			o.Selector = labels.SelectorFromSet(labels.Set{"app": "web"})
			o.AllowEmpty = false
		})
		a.put("events", event("web.1", "web-a", "p1", "Killing"))
		a.put("events", event("other.1", "other-a", "p9", "Killing"))
		time.Sleep(time.Second)
		r := rec.stop()
		equal(t, "lines", summary(r), []string{"LISTED deployments/web", "LISTED pods/web-a", "ADDED events/web.1"})
		if len(r.Logs) != 0 || r.Header.Selector != "app=web" {
			t.Errorf("logs %v, header %+v", texts(r), r.Header)
		}
	})
}

// The recording does not need Events, Jobs or Nodes (Events are dropped at times: kubernetes/kubernetes#67887): where
// they may not be read it goes on without them, and says so.
func TestOptionalResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		for _, r := range []string{"nodes", "jobs", "events"} {
			a.forbidden["list "+r] = true
		}
		a.put("pods", pod("web-a", "p1", ""))
		rec := start(t, a, nil)
		r := rec.stop()
		equal(t, "lines", summary(r), []string{"LISTED pods/web-a"})
		if !slices.Equal(rec.notes, []string{"not allowed to list jobs, events, nodes: recording without them"}) || slices.Contains(r.Header.Resources, "events") || !slices.Contains(r.Header.Resources, "pods") {
			t.Errorf("notes %q, resources %v", rec.notes, r.Header.Resources)
		}
	})
}

func TestCannotBegin(t *testing.T) {
	for _, tt := range []struct {
		name      string
		forbidden string
		options   func(*record.Options)
		down      bool
		access    string // verb and resource of the AccessError
		want      string
	}{
		{name: "no rights on pods", forbidden: "list pods", access: "list pods", want: "not allowed to list pods in namespace shop"},
		{name: "no watch of pods", forbidden: "watch pods", access: "watch pods", want: "not allowed to watch pods in namespace shop"},
		{name: "no logs", forbidden: "get pods/log", access: "get pods/log", want: "not allowed to get pods/log in namespace shop"},
		{
			name: "no rights on what is named", forbidden: "list replicasets", access: "list replicasets",
			options: func(o *record.Options) { o.Objects = []record.Ref{{Resource: "deployments", Name: "web"}} },
			want:    "not allowed to list replicasets in namespace shop",
		},
		{
			name:    "not there",
			options: func(o *record.Options) { o.Objects = []record.Ref{{Resource: "deployments", Name: "wbe"}} },
			want:    "deployment/wbe not found in namespace shop: nothing is selected",
		},
		{
			name:    "no match",
			options: func(o *record.Options) { o.Selector = labels.SelectorFromSet(labels.Set{"app": "wbe"}) },
			want:    `no pod and no workload matches "app=wbe" in namespace shop: nothing is selected`,
		},
		{name: "unreachable", down: true, want: "connection refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newFakeAPI(t)
				a.put("deployments", deployment("web", "d1"))
				a.forbidden[tt.forbidden] = true
				a.net.cut(tt.down)
				o := record.Options{Config: a.config(t), Namespace: "shop", Logs: true, Now: time.Now}
				if tt.options != nil {
					tt.options(&o)
				}
				var buf bytes.Buffer
				_, err := record.Live(t.Context(), &buf, o)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
				var access *record.AccessError
				if errors.As(err, &access) && access.Verb+" "+access.Resource != tt.access || access == nil && tt.access != "" {
					t.Errorf("access error %+v, want %q", access, tt.access)
				}
				if buf.Len() > 0 {
					t.Errorf("something was written: %s", buf.String())
				}
			})
		})
	}
}

// A namespace with nothing in it is most likely a wrong name.
func TestEmptyNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		_, err := record.Live(t.Context(), &bytes.Buffer{}, record.Options{Config: a.config(t), Namespace: "shop", Now: time.Now})
		if !errors.Is(err, record.ErrNothingSelected) {
			t.Errorf("error %v", err)
		}
	})
}

type failingWriter struct{ left int }

func (w *failingWriter) Write(b []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(b), nil
}

func TestDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("pods", pod("web-a", "p1", "run-1"))
		a.log("run-1", "one", "two", "three")
		_, err := record.Live(t.Context(), &failingWriter{3}, record.Options{Config: a.config(t), Namespace: "shop", Logs: true, Now: time.Now})
		if err == nil || !strings.Contains(err.Error(), "write recording: no space left on device") {
			t.Errorf("error %v", err)
		}
	})
}

func TestInterruptedBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("pods", pod("web-a", "p1", ""))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var buf bytes.Buffer
		_, err := record.Live(ctx, &buf, record.Options{Config: a.config(t), Namespace: "shop", Now: time.Now})
		if !errors.Is(err, context.Canceled) || buf.Len() > 0 {
			t.Errorf("error %v, wrote %q", err, buf.String())
		}
	})
}

func TestServerClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const skew = 3500 * time.Millisecond
		a := newFakeAPI(t)
		a.dateSkew = skew
		rec := start(t, a, nil)
		time.Sleep(5 * time.Second)
		var clocks []*roll.Clock
		for _, l := range rec.stop().Lines {
			if l.Clock != nil {
				clocks = append(clocks, l.Clock)
			}
		}
		if len(clocks) != 1 {
			t.Fatalf("%d clock lines", len(clocks))
		}
		if c := clocks[0]; c.Of != "apiserver" || c.Earliest > skew || c.Latest < skew || c.Latest-c.Earliest > 50*time.Millisecond || c.Samples < 20 {
			t.Errorf("clock %+v does not hold %s closely", c, skew)
		}
	})
}

func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		for i := range 1201 {
			a.put("pods", pod(fmt.Sprintf("web-%04d", i), fmt.Sprintf("p%d", i), ""))
		}
		if got := summary(start(t, a, nil).stop(), "pods"); len(got) != 1201 {
			t.Errorf("%d pods", len(got))
		}
	})
}

func TestParseRef(t *testing.T) {
	for in, want := range map[string]string{
		"deployment/web": "deployments web", "deploy/web": "deployments web", "deployments.apps/web": "deployments web",
		"Deployment/web": "deployments web", "sts/db": "statefulsets db", "ds/agent": "daemonsets agent", "po/x": "pods x",
		"pods/x": "pods x", "rs/x": "replicasets x", "job/x": "jobs x",
		"web": "", "deployment/": "", "/web": "", "cm/x": "", "deployment/a/b": "", "": "",
	} {
		got, err := record.ParseRef(in)
		if s := got.Resource + " " + got.Name; (err == nil) != (want != "") || err == nil && s != want {
			t.Errorf("%q: %q, %v; want %q", in, s, err, want)
		}
	}
}

func TestNoSecretsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.put("pods", compact(secretPod))
		a.put("deployments", compact(secretDeployment))
		rec := start(t, a, nil)
		a.put("events", compact(secretEvent))
		a.put("pods", compact(secretPod))
		a.expire()
		a.endWatches()
		time.Sleep(time.Minute)
		rec.stop()
		noSecrets(t, rec.buf.String())
	})
}

// Events expire: those that a list does not hold are no news, nor are those that were written when they came.
func TestEventsAcrossRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		for _, name := range []string{"same", "counted", "old"} {
			a.put("events", event(name, "web-a", "p1", "Killing"))
		}
		rec := start(t, a, nil)
		a.net.cut(true)
		a.remove("events", "old")
		a.put("events", event("counted", "web-a", "p1", "Killing"))
		a.put("events", event("new", "web-a", "p1", "Killing"))
		a.expire()
		time.Sleep(2 * time.Second)
		a.net.cut(false)
		time.Sleep(10 * time.Second)
		equal(t, "events", summary(rec.stop(), "events"), []string{
			"LISTED events/counted", "LISTED events/old", "LISTED events/same", "gap events expired", "LISTED events/counted", "LISTED events/new",
		})
	})
}

// The log tells of a pod's end before the watch does: the exit that the watch tells of a moment later counts.
func TestLogEndsBeforeTheWatchTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		p := pod("web-a", "p1", "run-1")
		a.put("pods", p)
		rec := start(t, a, nil)
		a.log("run-1", "one")
		synctest.Wait()
		a.update(func() { a.forbidden["watch pods"] = true; a.streams++ })
		a.put("pods", exited(p, 0))
		time.Sleep(1500 * time.Millisecond)
		a.remove("pods", "web-a")
		a.endLog("run-1")
		time.Sleep(2 * time.Second)
		a.update(func() { a.forbidden["watch pods"] = false })
		time.Sleep(10 * time.Second)
		equal(t, "ends", ends(rec.stop()), []string{"p1 run-1 complete=true "})
	})
}

// Reading again brought a line that the first stream lacked, and broke: the first stream's plain end says nothing.
func TestSecondReadingBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		p := pod("web-a", "p1", "run-1")
		a.put("pods", p)
		rec := start(t, a, nil)
		a.log("run-1", "one")
		synctest.Wait()
		a.put("pods", exited(p, 0))
		synctest.Wait()
		a.update(func() {
			a.logOf("run-1").abort = true
			a.logCuts++
			a.refuseLog = 500
		})
		synctest.Wait()
		a.update(func() {
			l := a.logOf("run-1")
			l.lines = append(l.lines, fakeLine{at: time.Now(), text: "two"})
			a.refuseLog = 0
		})
		time.Sleep(time.Second)
		a.remove("pods", "web-a")
		time.Sleep(10 * time.Second)
		r := rec.stop()
		equal(t, "logs", texts(r), []string{"p1 run-1: one", "p1 run-1: two"})
		equal(t, "ends", ends(r), []string{"p1 run-1 complete=false stream-cut"})
	})
}

// The container runs again, and no status says so yet: the kubelet gives the new run's log under the old one's name.
func TestRestartBeforeTheStatusTells(t *testing.T) {
	for _, tt := range []struct {
		first string
		early bool // the second run writes before the status tells of it
	}{{"one", true}, {"", true}, {"one", false}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newFakeAPI(t)
				p := pod("web-a", "p1", "run-1")
				a.put("pods", p)
				rec := start(t, a, nil)
				var want []string
				if tt.first != "" {
					a.log("run-1", tt.first)
					want = append(want, "p1 run-1: one")
				}
				synctest.Wait()
				a.endLogs(500)
				a.log("run-1", "panic")
				a.endLog("run-1")
				time.Sleep(time.Second)
				a.put("pods", exited(p, 2))
				time.Sleep(5 * time.Second)
				if tt.early {
					a.log("run-2", "again")
				}
				a.update(func() { a.current["web-a"] = "run-2" })
				a.endLogs(0)
				time.Sleep(2 * time.Second)
				a.update(func() { delete(a.current, "web-a") })
				a.put("pods", restarted(p, 2, "run-2"))
				if !tt.early {
					a.log("run-2", "again")
				}
				time.Sleep(20 * time.Second)
				r := rec.stop()
				got := texts(r)
				slices.Sort(got)
				equal(t, "logs", got, append(want, "p1 run-1: panic", "p1 run-2: again"))
				equal(t, "ends", ends(r), []string{"p1 run-1 complete=true ", "p1 run-2 complete=false recording-ended"})
			})
		})
	}
}

// Without the right to get a pod, what the watch told of the old pod's end still keeps the new one's log apart.
func TestSameNameNewPodWithoutGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		a.forbidden["get pods"] = true
		a.put("pods", pod("web-0", "p1", "run-1"))
		rec := start(t, a, nil)
		a.log("run-1", "old")
		synctest.Wait()
		a.endLogs(500)
		time.Sleep(time.Second)
		a.remove("pods", "web-0")
		a.put("pods", pod("web-0", "p2", "run-2"))
		a.log("run-2", "new")
		a.endLogs(0)
		time.Sleep(20 * time.Second)
		equal(t, "logs", texts(rec.stop()), []string{"p1 run-1: old", "p2 run-2: new"})
	})
}

// The two streams of a container are not stamped in strict order: what comes after the last line may be stamped before it.
func TestReadAgainOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newFakeAPI(t)
		p := pod("web-a", "p1", "run-1")
		a.put("pods", p)
		rec := start(t, a, nil)
		time.Sleep(3*time.Second - time.Duration(time.Now().Nanosecond())) // at the turn of a second
		a.log("run-1", "stdout")
		synctest.Wait()
		a.endLogs(500)
		a.update(func() {
			l := a.logOf("run-1")
			l.lines = append(l.lines, fakeLine{at: time.Now().Add(-time.Millisecond), text: "stderr"})
		})
		time.Sleep(time.Second)
		a.endLogs(0)
		time.Sleep(10 * time.Second)
		equal(t, "logs", texts(rec.stop()), []string{"p1 run-1: stdout", "p1 run-1: stderr"})
	})
}

// A stream ends, and the pod is gone before its log can be read again.
func TestLogEndWithoutSecondReading(t *testing.T) {
	for _, tt := range []struct {
		name         string
		line         bool
		told, exited time.Duration // after the stream's end
		want         string
	}{
		{"the exit was known", false, -100 * time.Millisecond, -200 * time.Millisecond, "complete=true "},
		{"told at once", true, 200 * time.Millisecond, -200 * time.Millisecond, "complete=true "},
		{"told late, exited long before", true, 3 * time.Second, -1500 * time.Millisecond, "complete=true "},
		{"told late", true, 3 * time.Second, -200 * time.Millisecond, "complete=false exit-unknown"},
		{"told at once, clocks not compared", false, 200 * time.Millisecond, -200 * time.Millisecond, "complete=false exit-unknown"},
		{"exited after", true, 3 * time.Second, 1500 * time.Millisecond, "complete=false exit-unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newFakeAPI(t)
				p := pod("web-a", "p1", "run-1")
				a.put("pods", p)
				rec := start(t, a, nil)
				if tt.line {
					a.log("run-1", "one")
				}
				begin := time.Now().Truncate(time.Second).Add(5 * time.Second)
				end := begin.Add(500 * time.Millisecond)
				var ended obj
				type step struct {
					at time.Time
					do func()
				}
				steps := []step{
					{end, func() { a.endLogs(500) }},
					{end.Add(tt.exited), func() { ended = exited(p, 0) }},
					{end.Add(tt.told), func() { a.put("pods", ended) }},
					{end.Add(max(tt.told, 0) + 10*time.Millisecond), func() { a.remove("pods", "web-a") }},
				}
				slices.SortStableFunc(steps, func(x, y step) int { return x.at.Compare(y.at) })
				for _, s := range steps {
					time.Sleep(time.Until(s.at))
					s.do()
					synctest.Wait()
				}
				time.Sleep(20 * time.Second)
				equal(t, "ends", ends(rec.stop()), []string{"p1 run-1 " + tt.want})
			})
		})
	}
}
