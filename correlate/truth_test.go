package correlate

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// recordings lists the recorded scenarios of a real cluster, one folder each.
func recordings(t testing.TB) []string {
	t.Helper()
	dirs, err := filepath.Glob("../testdata/recordings/*/recording.jsonl.gz")
	if err != nil || len(dirs) < 40 {
		t.Fatalf("found %d recordings (%v), want the whole set", len(dirs), err)
	}
	for i := range dirs {
		dirs[i] = filepath.Base(filepath.Dir(dirs[i]))
	}
	return dirs
}

func gunzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func load(t testing.TB, scenario string) *roll.Recording {
	t.Helper()
	rec, err := roll.ReadRecording(bytes.NewReader(gunzip(t, "../testdata/recordings/"+scenario+"/recording.jsonl.gz")))
	if err != nil {
		t.Fatalf("%s: %v", scenario, err)
	}
	return rec
}

// truthEvent is what a service wrote down itself, to the nanosecond, when it got SIGTERM and when it ended.
type truthEvent struct {
	pod, container, what string
	at                   time.Time
}

// truth reads the ground truth of a scenario: a journal, or lines of the services' logs.
func truth(t testing.TB, scenario string, rec *roll.Recording) []truthEvent {
	t.Helper()
	var out []truthEvent
	add := func(pod, container, what string, ns int64) {
		if (what == "received SIGTERM" || what == "exit") && ns != 0 {
			out = append(out, truthEvent{pod, container, what, time.Unix(0, ns).UTC()})
		}
	}
	if b, err := os.ReadFile("../testdata/recordings/" + scenario + "/truth.jsonl"); err == nil {
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			var e struct {
				Pod, Ctr, Ev string
				T            int64
			}
			if err := json.Unmarshal(s.Bytes(), &e); err != nil {
				t.Fatal(err)
			}
			add(e.Pod, e.Ctr, e.Ev, e.T)
		}
		return out
	}
	for _, l := range rec.Logs {
		var e struct {
			Msg string
			T   int64
		}
		if json.Unmarshal([]byte(l.Line), &e) == nil {
			add(l.Pod, l.Container, e.Msg, e.T)
		}
	}
	return out
}

// variants are ways in which less was recorded of the same events; the bounds get wider, never wrong.
var variants = map[string]func(*roll.Recording){
	"whole": func(*roll.Recording) {},
	// kubectl's watch output in a file: nothing says when it was received.
	"no receipt times": func(r *roll.Recording) {
		r.Header.StartedAt, r.Last = time.Time{}, time.Time{}
		for i := range r.Lines {
			r.Lines[i].ReceivedAt = time.Time{}
		}
	},
	// kubernetes/kubernetes#67887: no verdict may depend on an event being there.
	"no events": func(r *roll.Recording) { only(r, func(l *roll.Line) bool { return l.Resource != roll.ResourceEvents }) },
	// kubectl get pods -w
	"pods only": func(r *roll.Recording) { only(r, func(l *roll.Line) bool { return l.Resource == roll.ResourcePods }) },
}

func only(r *roll.Recording, keep func(*roll.Line) bool) {
	r.Lines = slices.DeleteFunc(r.Lines, func(l roll.Line) bool { return l.Object != nil && !keep(&l) })
}

// TestBoundsHoldTheTruth holds every printed bound against what the services wrote down: no true SIGTERM and no true exit
// may lie outside, and with a sleep hook or none the signal is known to 2.5 s.
func TestBoundsHoldTheTruth(t *testing.T) {
	for name, cut := range variants {
		t.Run(name, func(t *testing.T) {
			total, unknownExit, unknownSignal := 0, 0, 0
			for _, s := range recordings(t) {
				rec := load(t, s)
				events := truth(t, s, rec)
				cut(rec)
				terms := terminations(Derive(rec))
				held := hold(t, s, terms, events)
				total, unknownExit, unknownSignal = total+held.total, unknownExit+held.exit, unknownSignal+held.signal
				if name != "whole" {
					continue
				}
				for _, x := range terms {
					if k := x.PreStop.Kind; x.Signaled.IsZero() || k != roll.PreStopNone && k != roll.PreStopSleep {
						continue
					}
					if w := x.Signaled.Width(); w > 2500*time.Millisecond {
						t.Errorf("%s: %s %s: the signal is known to %s only (%s)", s, x.Pod.Name, x.Container, w, x.Signaled.Source)
					}
				}
			}
			t.Logf("%d moments, unknown: %d exits, %d signals", total, unknownExit, unknownSignal)
			// Two pods were force-deleted, so their exits were never seen, and the 15 pods of stats-sleep were not recorded.
			if name == "whole" && (total != 214 || unknownExit != 17 || unknownSignal != 0) {
				t.Errorf("of %d moments %d exits and %d signals are unknown", total, unknownExit, unknownSignal)
			}
		})
	}
}

func terminations(tl *roll.Timeline) (out []roll.Termination) {
	for _, r := range tl.Rolls {
		out = append(out, r.Terminations...)
	}
	return out
}

type held struct{ total, exit, signal int }

// hold finds for each true moment the termination whose bounds hold it, one each; a moment that is said to be unknown is
// counted.
func hold(t *testing.T, scenario string, terms []roll.Termination, events []truthEvent) (h held) {
	t.Helper()
	type key struct {
		i    int
		what string
	}
	used := map[key]bool{}
	for _, e := range events {
		h.total++
		found, unknown := false, len(terms) == 0
		for i, x := range terms {
			at := x.Exited
			if e.what == "received SIGTERM" {
				at = x.Signaled
			}
			if x.Pod.Name != e.pod || x.Container != e.container || used[key{i, e.what}] {
				continue
			}
			if at.Contains(e.at) {
				used[key{i, e.what}], found = true, true
				break
			}
			unknown = unknown || at.IsZero()
		}
		switch {
		case found:
		case !unknown:
			t.Errorf("%s: %s %s: %s at %s lies in no bound: %s", scenario, e.pod, e.container, e.what,
				e.at.Format(time.RFC3339Nano), dump(terms, e.pod, e.container))
		case e.what == "exit":
			h.exit++
		default:
			h.signal++
		}
	}
	return h
}

func dump(terms []roll.Termination, pod, container string) string {
	var b strings.Builder
	for _, x := range terms {
		if x.Pod.Name == pod && x.Container == container {
			j, _ := json.Marshal(x)
			b.WriteString("\n  ")
			b.Write(j)
		}
	}
	if b.Len() == 0 {
		return "no termination"
	}
	return b.String()
}
