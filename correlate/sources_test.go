package correlate

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

var update = flag.Bool("update", false, "rewrite docs/bounds.md")

// further reads what there is beside a recorded scenario.
func further(t testing.TB, scenario string) Sources {
	t.Helper()
	dir := "../testdata/recordings/" + scenario
	var s Sources
	var err error
	if b := gunzip(t, dir+"/audit.jsonl.gz"); len(b) > 0 {
		if s.Audit, err = ReadAudit(bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	if b := gunzip(t, dir+"/runtime-events.txt.gz"); len(b) > 0 {
		if s.Exits, err = ReadRuntimeEvents(bytes.NewReader(b)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// never matches no line: without the processes' own word.
var never = regexp.MustCompile(`a\bb`)

// TestFurtherSourcesHoldTheTruth: whatever is known beside the recording, no bound may miss what the services wrote down,
// and nothing gets wider.
func TestFurtherSourcesHoldTheTruth(t *testing.T) {
	for name, pick := range map[string]func(Sources) Sources{
		"all":            func(s Sources) Sources { return s },
		"audit log":      func(s Sources) Sources { return Sources{Audit: s.Audit} },
		"runtime events": func(s Sources) Sources { return Sources{Exits: s.Exits} },
		"no log lines":   func(Sources) Sources { return Sources{ShutdownLog: never} },
	} {
		t.Run(name, func(t *testing.T) {
			exits := 0
			for _, s := range recordings(t) {
				rec := load(t, s)
				events := truth(t, s, rec)
				tl := DeriveWith(rec, pick(further(t, s)))
				h := hold(t, s, terminations(tl), events)
				exits += h.exit
				for _, g := range tl.Gaps {
					if g.Reason == roll.GapSource {
						t.Errorf("%s: %s", s, g)
					}
				}
				// How restarts in place are grouped depends on how closely their ends are known.
				if got, want := describe(tl), describe(Derive(rec)); got != want && s != "liveness" {
					t.Errorf("%s: further sources change the rolls to %s", s, got)
				}
			}
			// The 15 pods of stats-sleep were not recorded, so that no container's id is known.
			if (name == "all" || name == "runtime events") && exits != 15 {
				t.Errorf("%d exits are unknown, though the runtime saw all but 15", exits)
			}
		})
	}
}

// TestForcedDeleteWithRuntimeEvents: the exit of a force-deleted container, which Kubernetes never tells.
func TestForcedDeleteWithRuntimeEvents(t *testing.T) {
	for _, x := range terminations(DeriveWith(load(t, "force-delete"), further(t, "force-delete"))) {
		if x.Forced && (x.ExitCode == nil || *x.ExitCode != 0 || x.Exited.Source != roll.SourceRuntime) {
			t.Errorf("code %v, exit %v", x.ExitCode, x.Exited)
		}
	}
}

// TestContradiction: the sources of another cluster narrow nothing, and that is said.
func TestContradiction(t *testing.T) {
	more := further(t, "rollout-restart")
	for i := range more.Exits {
		more.Exits[i].At = more.Exits[i].At.Add(time.Hour)
	}
	for i := range more.Audit {
		more.Audit[i].Received, more.Audit[i].Answered = more.Audit[i].Received.Add(time.Hour), more.Audit[i].Answered.Add(time.Hour)
	}
	rec := load(t, "rollout-restart")
	tl := DeriveWith(rec, more)
	hold(t, "rollout-restart", terminations(tl), truth(t, "rollout-restart", rec))
	if !slices.ContainsFunc(tl.Gaps, func(g roll.Gap) bool { return g.Reason == roll.GapSource }) {
		t.Errorf("gaps %v", tl.Gaps)
	}
}

// TestKubeletLog: the line is written after the hook and before the signal. Lines of a real kubelet.
func TestKubeletLog(t *testing.T) {
	const log = `I1201 06:53:40.000100      72 kubelet.go:2776] "SyncLoop DELETE" source="api" pods=["x/web-1"]
I1201 06:53:46.250062      72 kuberuntime_container.go:912] "Killing container with a grace period" pod="x/web-1" podUID="u1" containerName="app" containerID="containerd://e72e" gracePeriod=45
W1201 06:53:47.000000      72 other.go:1] "Killing container with a grace period" without="its fields"
`
	kills, err := ReadKubeletLog(strings.NewReader(log))
	if err != nil || len(kills) != 1 || kills[0].PodUID != "u1" || kills[0].ContainerID != "e72e" {
		t.Fatalf("%+v, %v", kills, err)
	}
	at := time.Date(2026, 12, 1, 6, 53, 46, 250062000, time.UTC)
	x := roll.Termination{ContainerID: "containerd://e72e", Signaled: roll.Instant{Earliest: at.Add(-6 * time.Second), Latest: at.Add(30 * time.Second)}}
	newSources(Sources{Kills: kills}).signaled(&x)
	if !x.Signaled.Earliest.Equal(at) || x.Signaled.Width() != signalSlack || x.Signaled.Source != roll.SourceKubeletLog {
		t.Errorf("%+v", x.Signaled)
	}
}

func TestFurtherSourcesRefused(t *testing.T) {
	for name, read := range map[string]func(string) error{
		"audit":   func(s string) error { _, err := ReadAudit(strings.NewReader(s)); return err },
		"runtime": func(s string) error { _, err := ReadRuntimeEvents(strings.NewReader(s)); return err },
		"kubelet": func(s string) error { _, err := ReadKubeletLog(strings.NewReader(s)); return err },
	} {
		for _, s := range []string{"", "hello\n", "{}\n", "\x00\xff"} {
			if err := read(s); err == nil {
				t.Errorf("%s: %q was read", name, s)
			}
		}
	}
}

func FuzzSources(f *testing.F) {
	f.Add([]byte(`{"verb":"delete","objectRef":{"resource":"pods","name":"a"},"requestReceivedTimestamp":"2026-12-01T03:04:38Z"}`))
	f.Add([]byte(`2026-12-01 02:58:26 +0000 UTC k8s.io /tasks/exit {"container_id":"a","id":"a","exited_at":{"seconds":1}}`))
	f.Add([]byte(`I1201 06:53:46.250062 72 x.go:912] "Killing container with a grace period" podUID="u" containerID="c://e"`))
	f.Fuzz(func(t *testing.T, b []byte) {
		audit, err1 := ReadAudit(bytes.NewReader(b))
		exits, err2 := ReadRuntimeEvents(bytes.NewReader(b))
		kills, err3 := ReadKubeletLog(bytes.NewReader(b))
		if err1 != nil && audit != nil || err2 != nil && exits != nil || err3 != nil && kills != nil {
			t.Fatal("an error and a result")
		}
	})
}

// widths are widths of bounds, and how many moments are not known at all.
type widths struct {
	known   []time.Duration
	unknown int
}

func (w *widths) add(i roll.Instant) {
	if i.IsZero() {
		w.unknown++
		return
	}
	w.known = append(w.known, i.Width())
}

func (w *widths) String() string {
	slices.Sort(w.known)
	at := func(p float64) string {
		return w.known[min(len(w.known)-1, int(p*float64(len(w.known))))].Round(time.Millisecond).String()
	}
	return fmt.Sprintf("%d | %d | %s | %s | %s", len(w.known), w.unknown, at(0.5), at(0.95), w.known[len(w.known)-1].Round(time.Millisecond))
}

// TestBoundsTable writes how far each source narrows, over all recorded scenarios, and holds docs/bounds.md against it.
func TestBoundsTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("# How far each source narrows\n\nWritten by `go test ./correlate -update` over the recordings in testdata/: how many moments are known, how many are not,\n" +
		"and how wide their bounds are (median, 95th percentile, maximum), with more and more sources. Every true SIGTERM and exit lies\nwithin its bounds in each row.\n\n" +
		"| moment | sources | known | unknown | median | p95 | max |\n|---|---|---|---|---|---|---|\n")
	row := func(moment, sources string, prepare func(*roll.Recording), more func(string) Sources, pick func(*roll.Termination) (roll.Instant, bool)) {
		var w widths
		for _, s := range recordings(t) {
			rec := load(t, s)
			prepare(rec)
			for _, x := range terminations(DeriveWith(rec, more(s))) {
				if i, ok := pick(&x); ok {
					w.add(i)
				}
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", moment, sources, &w)
	}
	whole := func(*roll.Recording) {}
	noEvents := variants["no events"]
	none := func(string) Sources { return Sources{ShutdownLog: never} }
	logged := func(string) Sources { return Sources{} }
	all := func(s string) Sources { return further(t, s) }
	requested := func(x *roll.Termination) (roll.Instant, bool) { return x.Requested, x.GracePeriodSeconds != nil }
	signaled := func(x *roll.Termination) (roll.Instant, bool) {
		return x.Signaled, x.GracePeriodSeconds != nil || x.Cause == roll.CauseLiveness
	}
	hooked := func(x *roll.Termination) (roll.Instant, bool) {
		return x.Signaled, x.PreStop.Kind == roll.PreStopExec || x.PreStop.Kind == roll.PreStopHTTPGet
	}
	exited := func(x *roll.Termination) (roll.Instant, bool) { return x.Exited, true }
	row("requested", "deletionTimestamp", whole, none, requested)
	row("requested", "+ the API server's audit log", whole, all, requested)
	row("SIGTERM", "deletionTimestamp, hook, exit", noEvents, none, signaled)
	row("SIGTERM", "+ the kubelet's events", whole, none, signaled)
	row("SIGTERM", "+ the process's own log line", whole, logged, signaled)
	row("SIGTERM", "+ audit log and runtime events", whole, all, signaled)
	row("SIGTERM after an exec or HTTP hook", "deletionTimestamp, hook, exit", noEvents, none, hooked)
	row("SIGTERM after an exec or HTTP hook", "+ the kubelet's events", whole, none, hooked)
	row("SIGTERM after an exec or HTTP hook", "+ the process's own log line", whole, logged, hooked)
	row("exited", "container status, last log line", whole, logged, exited)
	row("exited", "+ the runtime's events", whole, all, exited)
	b.WriteString(`
What each is, and whose clock stamps it, is in ` + "`roll/instant.go`" + `. The kubelet's own log (` + "`--kubelet-log`" + `, verbosity 2) has a line after the hook
and right before the signal, so it narrows SIGTERM after any hook to 1.4 s from below; no recording in testdata/ has one,
docs/e2e.md says what it did on a live cluster.

A span, or a span event, that is named for a shutdown (` + "`query.ShutdownName`" + `) ends the bounds of SIGTERM as a log line does; no
recording in testdata/ has one.

Not used to bound SIGTERM: readiness and the endpoints of a Service. A pod's endpoint is terminating from the deletion on,
10 ms after it, whatever the hook does; readiness turns false when the program or its probe likes, in the hook as well as
after the signal.
`)
	const path = "../docs/bounds.md"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != b.String() {
		t.Errorf("docs/bounds.md is not what the recordings say: run 'go test ./correlate -update'\n%s", b.String())
	}
}
