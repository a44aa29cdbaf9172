package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"
	"time"

	"github.com/rolltrace/rolltrace/record"
	"github.com/rolltrace/rolltrace/roll"
)

var epoch = time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)

// rawStreams builds the two files; times are seconds after epoch.
type rawStreams struct{ watch, logs bytes.Buffer }

func (s *rawStreams) event(sec float64, typ, resource string, o obj) {
	s.line(&s.watch, sec, obj{"type": typ, "resource": resource, "object": o})
}

func (s *rawStreams) ctl(sec float64, typ, resource string, more obj) {
	l := obj{"type": typ, "resource": resource}
	for k, v := range more {
		l[k] = v
	}
	s.line(&s.watch, sec, l)
}

func (s *rawStreams) log(sec float64, pod, cid, line string) {
	s.line(&s.logs, sec, obj{"pod": pod, "ctr": "app", "cid": cid, "line": line})
}

func (s *rawStreams) logEnd(sec float64, pod, cid, err string) {
	s.line(&s.logs, sec, obj{"pod": pod, "ctr": "app", "cid": cid, "type": "FOLLOW_END", "err": err})
}

func (s *rawStreams) line(w *bytes.Buffer, sec float64, l obj) {
	l["recv_ns"] = at(sec).UnixNano()
	b, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	w.Write(append(b, '\n'))
}

func at(sec float64) time.Time { return epoch.Add(time.Duration(sec * float64(time.Second))) }

func (s *rawStreams) convert(t *testing.T) *roll.Recording {
	t.Helper()
	var out bytes.Buffer
	if _, err := record.ImportRaw(&out, "rolltrace test", &s.watch, &s.logs); err != nil {
		t.Fatal(err)
	}
	return read(t, out.Bytes())
}

func read(t *testing.T, b []byte) *roll.Recording {
	t.Helper()
	r, err := roll.ReadRecording(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rawPod is a pod on a node whose container ran as id, began at 1 s and, if exit ≥ 0, finished at exit.
func rawPod(name, uid, id string, exit float64) obj {
	st := obj{"name": "app", "containerID": "containerd://" + id}
	if exit < 0 {
		st["state"] = obj{"running": obj{"startedAt": at(1).Format(time.RFC3339)}}
	} else {
		st["state"] = obj{"terminated": obj{
			"exitCode": 0, "finishedAt": at(exit).Truncate(time.Second).Format(time.RFC3339), "containerID": "containerd://" + id,
		}}
	}
	return obj{
		"kind": "Pod", "apiVersion": "v1", "metadata": meta(name, uid), "spec": obj{"nodeName": "node1"},
		"status": obj{"containerStatuses": []any{st}},
	}
}

func stamped(sec float64, text string) string { return at(sec).Format(time.RFC3339Nano) + " " + text }

func gaps(r *roll.Recording) (out []string) {
	for _, l := range r.Lines {
		if g := l.Gap; g != nil {
			s := fmt.Sprintf("%s %s %.1f–%.1f", g.Resource, g.Reason, g.From.Sub(epoch).Seconds(), g.To.Sub(epoch).Seconds())
			if g.Lossless {
				s += " lossless"
			}
			for _, v := range g.Vanished {
				s += " -" + v.UID
			}
			out = append(out, s)
		}
	}
	return out
}

func TestRawMergesByReceipt(t *testing.T) {
	var s rawStreams
	s.event(1, "LIST", "deployments", obj{"metadata": meta("web", "d1")})
	s.event(2, "ADDED", "pods", rawPod("web-a", "p1", "aaaabbbbcccc", -1))
	s.event(3, "ADDED", "pdbs", obj{"kind": "PodDisruptionBudget", "metadata": meta("web", "x")})
	s.event(6, "MODIFIED", "pods", rawPod("web-a", "p1", "aaaabbbbcccc", 5))
	s.event(8, "DELETED", "pods", rawPod("web-a", "p1", "aaaabbbbcccc", 5))
	s.log(4, "web-a", "bbbbcccc", stamped(3.9, "hello world"))
	s.logEnd(6.5, "web-a", "bbbbcccc", "EOF")
	r := s.convert(t)
	equal(t, "lines", summary(r), []string{"LISTED deployments/web", "ADDED pods/web-a", "MODIFIED pods/web-a", "DELETED pods/web-a"})
	equal(t, "logs", texts(r), []string{"p1 containerd://aaaabbbbcccc: hello world"})
	equal(t, "ends", ends(r), []string{"p1 containerd://aaaabbbbcccc complete=true "})
	h := r.Header
	if !h.StartedAt.Equal(at(1)) || h.Source != "raw-streams" || !h.Logs || h.Cluster != "" ||
		!slices.Equal(h.Resources, []string{"pods", "deployments"}) || !slices.Equal(h.Namespaces, []string{"shop"}) {
		t.Errorf("header %+v", h)
	}
	if r.Footer == nil || r.Footer.Reason != "end-of-source" || !r.Last.Equal(at(8)) {
		t.Errorf("footer %+v, last %s", r.Footer, r.Last)
	}
	if !r.Logs[0].Time.Equal(at(3.9)) {
		t.Errorf("stamp %s", r.Logs[0].Time)
	}
}

func TestRawInterruptions(t *testing.T) {
	a, b := rawPod("web-a", "p1", "a", -1), rawPod("web-b", "p2", "b", -1)
	expired := obj{"kind": "Status", "code": 410, "reason": "Expired"}
	begin := func(s *rawStreams) {
		s.event(1, "ADDED", "pods", a)
		s.event(2, "ADDED", "pods", b)
		s.ctl(20, "BOOKMARK", "nodes", obj{"rv": "1"}) // the recording's end
	}
	for _, tt := range []struct {
		name  string
		lines func(s *rawStreams)
		want  []string
	}{
		{"none", func(*rawStreams) {}, nil},
		{"resumed by an event", func(s *rawStreams) {
			s.ctl(5, "WATCH_END", "pods", obj{"err": "unexpected EOF"})
			s.ctl(6, "WATCH_ERROR", "pods", obj{"err": "connection refused"})
			s.event(8, "MODIFIED", "pods", a)
		}, []string{"pods watch-ended 2.0–8.0 lossless"}},
		{"resumed by a bookmark", func(s *rawStreams) {
			s.ctl(5, "WATCH_END", "pods", obj{"err": "EOF"})
			s.ctl(8, "BOOKMARK", "pods", obj{"rv": "1"})
		}, []string{"pods watch-ended 2.0–8.0 lossless"}},
		{"never resumed", func(s *rawStreams) {
			s.ctl(5, "WATCH_END", "pods", obj{"err": "unexpected EOF"})
		}, []string{"pods watch-ended 2.0–20.0"}},
		{"listed again", func(s *rawStreams) { // grafana/grafana-app-sdk#1352
			s.ctl(5, "WATCH_END", "pods", obj{"err": "unexpected EOF"})
			s.event(6, "ERROR", "pods", expired)
			s.ctl(6, "WATCH_END", "pods", obj{"err": "EOF"})
			s.event(7, "LIST", "pods", b)
			s.event(7.5, "LIST", "pods", rawPod("web-c", "p3", "c", -1))
			s.event(9, "MODIFIED", "pods", b)
		}, []string{"pods expired 2.0–7.5 -p1"}},
		{"listed again after a refusal", func(s *rawStreams) {
			s.ctl(5, "WATCH_ERROR", "pods", obj{"code": 410, "err": "Gone"})
			s.event(7, "LIST", "pods", b)
		}, []string{"pods watch-refused 2.0–7.0 -p1"}},
		{"the list was empty", func(s *rawStreams) {
			s.event(5, "ERROR", "pods", expired)
			s.event(9, "ADDED", "pods", rawPod("web-c", "p3", "c", -1))
		}, []string{"pods expired 2.0–9.0 -p1 -p2"}},
		{"expired and nothing more", func(s *rawStreams) {
			s.event(5, "ERROR", "pods", expired)
		}, []string{"pods expired 2.0–20.0"}},
		{"an event is lost", func(s *rawStreams) {
			s.ctl(5, "BAD_LINE", "pods", obj{"err": "unexpected end"})
			s.event(8, "MODIFIED", "pods", a)
		}, []string{"pods unreadable-event 2.0–20.0"}},
		{"a list out of the blue", func(s *rawStreams) {
			s.event(5, "LIST", "pods", a)
		}, []string{"pods relist 2.0–5.0 -p2"}},
		{"twice", func(s *rawStreams) {
			s.event(5, "ERROR", "pods", expired)
			s.event(6, "LIST", "pods", a)
			s.event(7, "ERROR", "pods", expired)
			s.event(8, "LIST", "pods", b)
		}, []string{"pods expired 2.0–6.0 -p2", "pods expired 6.0–8.0 -p1"}},
		{"before the first event", func(s *rawStreams) {
			s.ctl(5, "WATCH_END", "jobs", obj{"err": "EOF"})
			s.ctl(6, "BOOKMARK", "jobs", obj{"rv": "1"})
		}, []string{"jobs watch-ended 1.0–6.0 lossless"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s rawStreams
			begin(&s)
			tt.lines(&s)
			r := s.convert(t)
			equal(t, "gaps", gaps(r), tt.want)
			for i, l := range r.Lines {
				if l.Gap != nil && !l.Gap.Lossless && i+1 < len(r.Lines) {
					if n := r.Lines[i+1]; n.Op == roll.OpListed && n.ReceivedAt.Before(l.ReceivedAt) {
						t.Error("the list comes before its gap")
					}
				}
			}
		})
	}
}

// A stream ends plainly when its container ends and when its kubelet does: it is complete only in the first case.
func TestRawLogEnds(t *testing.T) {
	running := func(s *rawStreams, exit, seen float64) {
		s.event(1, "ADDED", "pods", rawPod("web-a", "p1", "run-aaaa", -1))
		s.event(1, "ADDED", "pods", rawPod("web-b", "p2", "run-bbbb", -1))
		if exit > 0 {
			s.event(seen, "MODIFIED", "pods", rawPod("web-a", "p1", "run-aaaa", exit))
		}
		s.log(2, "web-a", "aaaa", stamped(1.999, "one"))
		s.event(30, "MODIFIED", "pods", rawPod("web-b", "p2", "run-bbbb", -1))
	}
	for _, tt := range []struct {
		name       string
		exit, seen float64
		lines      func(s *rawStreams)
		want       string
	}{
		{"after the exit", 5, 5.6, func(s *rawStreams) { s.logEnd(6.1, "web-a", "aaaa", "EOF") }, "complete=true "},
		{"before the exit, the kubelet went", 9, 14, func(s *rawStreams) { s.logEnd(6.1, "web-a", "aaaa", "EOF") }, "complete=false exit-unknown"},
		{"no exit is known", 0, 0, func(s *rawStreams) { s.logEnd(6.1, "web-a", "aaaa", "EOF") }, "complete=false exit-unknown"},
		{"within the second of the exit, told at once", 5, 6, func(s *rawStreams) { s.logEnd(5.7, "web-a", "aaaa", "EOF") }, "complete=true "},
		{"within the second of the exit, told late", 5, 9, func(s *rawStreams) { s.logEnd(5.7, "web-a", "aaaa", "EOF") }, "complete=false exit-unknown"},
		{"told late, but the node's other stream goes on", 5, 9, func(s *rawStreams) {
			s.log(2, "web-b", "bbbb", stamped(1.999, "x"))
			s.logEnd(5.7, "web-a", "aaaa", "EOF")
			s.log(8, "web-b", "bbbb", stamped(7.999, "y"))
		}, "complete=true "},
		{"after the exit, but the node's other stream ended with it", 5, 5.6, func(s *rawStreams) {
			s.log(2, "web-b", "bbbb", stamped(1.999, "x"))
			s.logEnd(6.1, "web-a", "aaaa", "EOF")
			s.logEnd(6.1, "web-b", "bbbb", "EOF")
		}, "complete=false stream-cut"},
		{"cut", 5, 5.6, func(s *rawStreams) { s.logEnd(6.1, "web-a", "aaaa", "unexpected EOF") }, "complete=false stream-cut"},
		{"recorder ended", 5, 5.6, func(s *rawStreams) { s.logEnd(5.1, "web-a", "aaaa", "context canceled") }, "complete=false recording-ended"},
		{"no end", 5, 5.6, func(*rawStreams) {}, "complete=false recording-ended"},
		{"kubelet's error", 5, 5.6, func(s *rawStreams) {
			s.log(6, "web-a", "aaaa", "failed to try resolving symlinks in path")
			s.logEnd(6.1, "web-a", "aaaa", "EOF")
		}, "complete=false unreadable"},
		{"the node's clock is behind", 5, 5.6, func(s *rawStreams) {
			// every line takes a second at least, so that 6.1 s here is 5.1 s there
			s.logs.Reset()
			s.log(3, "web-a", "aaaa", stamped(2, "one"))
			s.logEnd(5.7, "web-a", "aaaa", "EOF")
		}, "complete=false exit-unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var s rawStreams
			running(&s, tt.exit, tt.seen)
			tt.lines(&s)
			r := s.convert(t)
			if got := ends(r)[0]; got != "p1 containerd://run-aaaa "+tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			for _, l := range r.Logs {
				if strings.Contains(l.Line, "symlinks") {
					t.Error("the kubelet's error is a line of the log")
				}
			}
		})
	}
}

// A StatefulSet's pods have their predecessors' names.
func TestRawLogOfANameUsedAgain(t *testing.T) {
	var s rawStreams
	s.event(1, "ADDED", "pods", rawPod("web-0", "p1", "run-aaaa", -1))
	s.event(5, "DELETED", "pods", rawPod("web-0", "p1", "run-aaaa", 4))
	s.event(6, "ADDED", "pods", rawPod("web-0", "p2", "run-bbbb", -1))
	s.log(7, "web-0", "aaaa", stamped(4, "late line of the first"))
	s.log(8, "web-0", "bbbb", stamped(8, "second"))
	s.log(2, "web-0", "????", stamped(2, "by the time: first"))
	s.log(9, "web-0", "!!!!", stamped(9, "by the time: second"))
	equal(t, "logs", texts(s.convert(t)), []string{
		"p1 : by the time: first", "p1 containerd://run-aaaa: late line of the first", "p2 containerd://run-bbbb: second", "p2 : by the time: second",
	})
}

func TestRawFollowErrorThenFollowed(t *testing.T) {
	var s rawStreams
	s.event(1, "ADDED", "pods", rawPod("web-a", "p1", "run-aaaabbbb", -1))
	s.line(&s.logs, 2, obj{"pod": "web-a", "ctr": "app", "cid": "containerd://run-aaaabbbb", "type": "FOLLOW_ERROR", "code": 400})
	s.log(3, "web-a", "aaaabbbb", stamped(3, "one"))
	s.line(&s.logs, 4, obj{"pod": "web-z", "ctr": "app", "cid": "zzzz", "type": "FOLLOW_ERROR", "code": 400})
	equal(t, "ends", ends(s.convert(t)), []string{"  complete=false not-followed", "p1 containerd://run-aaaabbbb complete=false recording-ended"})
}

func TestRawErrors(t *testing.T) {
	ok := `{"recv_ns":1,"type":"BOOKMARK","resource":"pods"}` + "\n"
	for _, tt := range []struct{ name, watch, logs, want string }{
		{"empty", "", "", "read watch.jsonl: there is nothing in it"},
		{"blank", "\n\n", "", "read watch.jsonl: there is nothing in it"},
		{"no JSON", ok + "\n<html>\n", "", "read watch.jsonl: line 3 is not readable"},
		{"cut off", ok + `{"recv_ns":1,"ty`, "", "read watch.jsonl: line 2 is not readable"},
		{"no time", `{"type":"BOOKMARK"}`, "", "read watch.jsonl: line 1 has no recv_ns"},
		{"unknown type", `{"recv_ns":1,"type":"NEW","resource":"pods"}`, "", `read watch.jsonl: line 1: unknown type "NEW"`},
		{"no object", `{"recv_ns":1,"type":"ADDED","resource":"pods"}`, "", "read watch.jsonl: line 1: there is no object"},
		{"no name", `{"recv_ns":1,"type":"ADDED","resource":"pods","object":{"kind":"Pod"}}`, "", "read watch.jsonl: line 1: the object has no name"},
		{"bad log", ok, "{}\n", "read logs.jsonl: line 1 has no recv_ns"},
		{"nameless log", ok, `{"recv_ns":1,"line":"x"}`, "read logs.jsonl: line 1: no pod or no container is named"},
		{"secret", `{"recv_ns":1,"type":"ADDED","resource":"pods","object":{"metadata":{"creationTimestamp":"hunter2"}}}`, "", "a time is not in RFC 3339"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			_, err := record.ImportRaw(&out, "", strings.NewReader(tt.watch), strings.NewReader(tt.logs))
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if out.Len() > 0 {
				t.Error("something was written")
			}
		})
	}
	_, err := record.ImportRaw(&bytes.Buffer{}, "", iotest.ErrReader(errors.New("bad disk")), nil)
	if err == nil || !strings.Contains(err.Error(), "bad disk") {
		t.Errorf("error %v", err)
	}
}

func TestImportRawFS(t *testing.T) {
	var s rawStreams
	s.event(1, "ADDED", "pods", rawPod("web-a", "p1", "a", -1))
	folder := fstest.MapFS{
		"watch.jsonl": {Data: s.watch.Bytes()}, "truth.jsonl": {Data: []byte("not to be read")}, "logpoll.jsonl": {Data: []byte("{")},
	}
	var out bytes.Buffer
	counts, err := record.ImportRawFS(&out, "", folder)
	if err != nil || counts.Objects != 1 {
		t.Fatalf("%+v, %v", counts, err)
	}
	if read(t, out.Bytes()).Header.Logs {
		t.Error("a folder without logs is said to hold some")
	}
	if _, err := record.ImportRawFS(&out, "", fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// clockFrom returns a clock that goes on by a second a call.
func clockFrom(t time.Time) func() time.Time {
	return func() time.Time { t = t.Add(time.Second); return t }
}

func importKubectl(t *testing.T, in string, now func() time.Time) *roll.Recording {
	t.Helper()
	var out bytes.Buffer
	// one byte at a time, as a slow pipe does
	if _, err := record.ImportKubectl(&out, "rolltrace test", iotest.OneByteReader(strings.NewReader(in)), now); err != nil {
		t.Fatal(err)
	}
	return read(t, out.Bytes())
}

const podEvent = `{"type":"%s","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s","namespace":"shop","uid":"%[2]s"}}}` + "\n"

func TestKubectl(t *testing.T) {
	added, deleted := fmt.Sprintf(podEvent, "ADDED", "a"), fmt.Sprintf(podEvent, "DELETED", "a")
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, []byte(added), "", "    "); err != nil {
		t.Fatal(err)
	}
	utf16 := []byte{0xff, 0xfe}
	for _, b := range []byte(added + deleted) {
		utf16 = append(utf16, b, 0)
	}
	list := `{"kind":"List","apiVersion":"v1","items":[{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","uid":"a"}},
		{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"d","uid":"d"}}]}`
	for _, tt := range []struct {
		name, in string
		want     []string
		gaps     []string
	}{
		{"lines", added + deleted, []string{"ADDED pods/a", "DELETED pods/a"}, nil},
		{"pretty", pretty.String() + deleted, []string{"ADDED pods/a", "DELETED pods/a"}, nil},
		{"one after the other", strings.ReplaceAll(added+deleted, "\n", ""), []string{"ADDED pods/a", "DELETED pods/a"}, nil},
		{"CRLF", strings.ReplaceAll(pretty.String()+deleted, "\n", "\r\n"), []string{"ADDED pods/a", "DELETED pods/a"}, nil},
		{"BOM", "\ufeff" + added, []string{"ADDED pods/a"}, nil},
		{"PowerShell's UTF-16", string(utf16), []string{"ADDED pods/a", "DELETED pods/a"}, nil},
		{"dashes", "---\n" + added + "---\n" + deleted + "---\n", []string{"ADDED pods/a", "DELETED pods/a"}, nil},
		{"braces in strings", added + `{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"name":"a","uid":"a","labels":{"x":"}\"{\\"}}}}`, []string{"ADDED pods/a", "MODIFIED pods/a"}, nil},
		{"bookmark", added + `{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7"}}}`, []string{"ADDED pods/a"}, nil},
		{"other kinds", added + `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c"}}}`, []string{"ADDED pods/a"}, nil},
		{
			"events of the other API", added + `{"type":"ADDED","object":{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":"e"}}}`,
			[]string{"ADDED pods/a"},
			nil,
		},
		{"list", list, []string{"LISTED pods/a", "LISTED deployments/d", "gap pods no-watch-events", "gap deployments no-watch-events"}, []string{"pods no-watch-events", "deployments no-watch-events"}},
		{"object", `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","uid":"a"}}`, []string{"LISTED pods/a", "gap pods no-watch-events"}, []string{"pods no-watch-events"}},
		{"cut off", added + deleted[:40], []string{"ADDED pods/a", "gap pods torn"}, []string{"pods torn"}},
		{
			"expired", added + `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`,
			[]string{"ADDED pods/a", "gap pods expired"},
			[]string{"pods expired"},
		},
		{"begun again", added + added, []string{"ADDED pods/a", "ADDED pods/a", "gap pods watch-restarted"}, []string{"pods watch-restarted"}},
		{"added again after its deletion", added + deleted + added, []string{"ADDED pods/a", "DELETED pods/a", "ADDED pods/a"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := importKubectl(t, tt.in, clockFrom(epoch))
			equal(t, "lines", summary(r), tt.want)
			if r.Footer == nil || r.Header.Source != "kubectl" || r.Header.Logs || r.Header.StartedAt.IsZero() {
				t.Errorf("header %+v, footer %+v", r.Header, r.Footer)
			}
			for _, l := range r.Lines {
				if l.ReceivedAt.IsZero() {
					t.Errorf("no time of receipt: %+v", l)
				}
				if g := l.Gap; g != nil && (g.From.IsZero() || !g.To.IsZero() || g.Lossless) {
					t.Errorf("gap %+v", g)
				}
			}
			// A file does not say when its events were received.
			file := importKubectl(t, tt.in, nil)
			equal(t, "lines of the file", summary(file)[1:], tt.want)
			if file.Lines[0].Gap == nil || file.Lines[0].Gap.Reason != string(roll.GapNoReceiptTime) {
				t.Errorf("first line %+v", file.Lines[0])
			}
			for _, l := range file.Lines {
				if !l.ReceivedAt.IsZero() || l.Gap != nil && !(l.Gap.From.IsZero() && l.Gap.To.IsZero()) {
					t.Errorf("a time of receipt was made up: %+v", l)
				}
			}
		})
	}
}

func TestKubectlErrors(t *testing.T) {
	added := fmt.Sprintf(podEvent, "ADDED", "a")
	for _, tt := range []struct {
		name, in string
		is       error
		want     string
	}{
		{"empty", "", record.ErrEmpty, "there is nothing in it"},
		{"white space", " \n---\n", record.ErrEmpty, "there is nothing in it"},
		{"empty list", `{"kind":"List","items":[]}`, record.ErrEmpty, "there is nothing in it that a recording holds"},
		{"a table", "NAME   READY   STATUS\nweb    1/1     Running\n", record.ErrNotWatchOutput, "line 1: no JSON object begins here"},
		{"an array", "[]", record.ErrNotWatchOutput, "line 1: no JSON object begins here"},
		{"another document", `{"hello":"world"}`, record.ErrNotWatchOutput, "neither a watch event nor an object"},
		{"another kind", `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"}}`, record.ErrNotWatchOutput, `an object of kind "Secret"`},
		{"a recording", `{"header":{"schema":1}}`, record.ErrNotWatchOutput, "neither a watch event nor an object"},
		{"cut off at once", `{"type":`, record.ErrNotWatchOutput, "document 1 is cut off"},
		{"an error at once", `{"type":"ERROR","object":{"code":410}}`, record.ErrNotWatchOutput, "began with an error"},
		{"bad JSON later", added + "\n{\"type\":}\n", nil, "line 3: invalid character"},
		{"garbage later", added + "error: connection lost\n", nil, "line 2: no JSON object begins here"},
		{"unknown type", added + `{"type":"NEW","object":{"kind":"Pod"}}`, nil, `line 2: unknown watch event type "NEW"`},
		{"nameless", added + `{"type":"ADDED","object":{"kind":"Pod"}}`, nil, "line 2: the object has no name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := record.ImportKubectl(&bytes.Buffer{}, "", strings.NewReader(tt.in), nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// secretPod holds what must never reach a recording: everything that is called SECRET.
const secretPod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"a",
	"labels":{"app":"kept-label"},
	"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"SECRET-1","deployment.kubernetes.io/revision":"kept-revision","x":"SECRET-2"},
	"managedFields":[{"manager":"SECRET-3"}]},
	"spec":{"nodeName":"kept-node","serviceAccountName":"SECRET-4","imagePullSecrets":[{"name":"SECRET-5"}],
	"volumes":[{"name":"SECRET-6","secret":{"secretName":"SECRET-7"}}],
	"containers":[{"name":"app","image":"kept-image","command":["SECRET-8"],"args":["SECRET-9"],
	"env":[{"name":"SECRET-10","value":"SECRET-11"}],"envFrom":[{"secretRef":{"name":"SECRET-12"}}],
	"volumeMounts":[{"name":"SECRET-13"}],"livenessProbe":{"exec":{"command":["SECRET-14"]}},
	"lifecycle":{"preStop":{"exec":{"command":["SECRET-15"]},"httpGet":{"path":"SECRET-16","httpHeaders":[{"name":"SECRET-17","value":"SECRET-18"}]}},
	"postStart":{"exec":{"command":["SECRET-19"]}}}}]},
	"status":{"message":"SECRET-20","conditions":[{"type":"Ready","status":"True","message":"SECRET-21"}],
	"containerStatuses":[{"name":"app","state":{"terminated":{"exitCode":42,"message":"SECRET-22","reason":"kept-reason"}},
	"lastState":{"waiting":{"reason":"x","message":"SECRET-23"}}}]}}`

const secretDeployment = `{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"d","namespace":"shop","uid":"d"},
	"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"kept-restart","vault":"SECRET-24"}},
	"spec":{"containers":[{"name":"app","env":[{"name":"A","value":"SECRET-25"}],"args":["SECRET-26"]}]}}}}`

const secretEvent = `{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"shop","uid":"e"},"reason":"Unhealthy",
	"message":"SECRET-27","involvedObject":{"kind":"Pod","name":"a","uid":"a"}}`

func noSecrets(t *testing.T, recording string) {
	t.Helper()
	for line := range strings.Lines(recording) {
		if strings.Contains(line, "SECRET") {
			t.Errorf("a secret is recorded: %s", line)
		}
	}
	for _, kept := range []string{"kept-label", "kept-revision", "kept-node", "kept-image", "kept-reason", "kept-restart"} {
		if !strings.Contains(recording, kept) {
			t.Errorf("%s is missing: is anything recorded at all?", kept)
		}
	}
}

func compact(s string) obj {
	var o obj
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		panic(err)
	}
	return o
}

func TestNoSecretsImported(t *testing.T) {
	var s rawStreams
	s.event(1, "ADDED", "pods", compact(secretPod))
	s.event(2, "LIST", "deployments", compact(secretDeployment))
	s.event(3, "ADDED", "events", compact(secretEvent))
	s.event(4, "ADDED", "pdbs", compact(secretPod))
	s.ctl(5, "WATCH_ERROR", "pods", obj{"err": "Get https://SECRET-28"})
	s.log(6, "a", "x", "failed to read SECRET-29")
	var raw bytes.Buffer
	if _, err := record.ImportRaw(&raw, "", &s.watch, &s.logs); err != nil {
		t.Fatal(err)
	}
	noSecrets(t, raw.String())

	var out bytes.Buffer
	in := secretPod + `{"type":"ADDED","object":` + secretDeployment + `}{"kind":"List","items":[` + secretEvent +
		`,{"kind":"Secret","apiVersion":"v1","metadata":{"name":"SECRET-30"},"data":{"a":"SECRET-31"}}]}` +
		`{"type":"ERROR","object":{"kind":"Status","message":"SECRET-32"}}`
	if _, err := record.ImportKubectl(&out, "", strings.NewReader(in), nil); err != nil {
		t.Fatal(err)
	}
	noSecrets(t, out.String())
}

func FuzzImportRaw(f *testing.F) {
	var s rawStreams
	s.event(1, "ADDED", "pods", rawPod("web-a", "p1", "aaaabbbb", -1))
	s.ctl(2, "WATCH_END", "pods", obj{"err": "EOF"})
	s.event(3, "LIST", "pods", rawPod("web-b", "p2", "b", 2))
	s.log(2, "web-a", "bbbb", stamped(2, "x"))
	s.logEnd(3, "web-a", "bbbb", "EOF")
	f.Add(s.watch.Bytes(), s.logs.Bytes())
	f.Add([]byte(`{"recv_ns":1,"type":"ERROR","resource":"pods"}`), []byte(`{"recv_ns":1,"pod":"a","ctr":"b","line":""}`))
	f.Fuzz(func(t *testing.T, watch, logs []byte) {
		var out bytes.Buffer
		if _, err := record.ImportRaw(&out, "", bytes.NewReader(watch), bytes.NewReader(logs)); err == nil {
			whole(t, out.Bytes())
		}
	})
}

func FuzzImportKubectl(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(podEvent, "ADDED", "a") + "---\n" + fmt.Sprintf(podEvent, "DELETED", "a")))
	f.Add([]byte(`{"kind":"List","items":[{"kind":"Pod","metadata":{"name":"a"}}]}{"type":"ERR`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		if _, err := record.ImportKubectl(&out, "", bytes.NewReader(in), clockFrom(epoch)); err == nil {
			whole(t, out.Bytes())
		}
	})
}

// whole fails unless b is a recording with a footer and without damage.
func whole(t *testing.T, b []byte) {
	t.Helper()
	r := read(t, b)
	if r.Footer == nil || len(r.Gaps) > 0 {
		t.Errorf("footer %v, gaps %v", r.Footer, r.Gaps)
	}
}
