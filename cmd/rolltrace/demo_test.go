package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rolltrace/rolltrace/roll"
)

func verifyRecording(t *testing.T, scenario string, more ...string) (int, *roll.Report) {
	t.Helper()
	dir := "../../testdata/recordings/" + scenario
	args := append([]string{"verify", dir + "/recording.jsonl.gz", "--spans", dir + "/spans.otlp.jsonl.gz", "-o", "json"}, more...)
	code, stdout, stderr := runApp(t, args...)
	rep, err := roll.ReadReport(strings.NewReader(stdout))
	if err != nil {
		t.Fatalf("%s: %v\n%s", scenario, err, stderr)
	}
	return code, rep
}

// TestCutCallsFindTheirPod: each call that was cut is attributed to the pod that cut it and to a phase in which it was
// terminating (kubernetes/kubernetes#43576; no server span shows the error, so the caller's is all there is).
func TestCutCallsFindTheirPod(t *testing.T) {
	for s, want := range map[string]int{"seed-cut": 28, "seed-drain-cut": 56} { // the services' own counts
		_, rep := verifyRecording(t, s)
		ended := map[string]string{}
		for _, r := range rep.Rolls {
			for _, x := range r.Terminations {
				ended[x.Pod.String()] = r.ID
			}
		}
		drained, cut := 0, 0
		for _, res := range rep.Results {
			if res.Assertion != "no-error-spans" {
				continue
			}
			for _, f := range res.Findings {
				cut++
				if ended[f.Peer] != res.Roll {
					t.Errorf("%s: the call %s is said to have been cut by %q, which this roll did not end", s, f.SpanID, f.Peer)
				}
				switch f.PeerPhase {
				case roll.PhaseDrain:
					drained++
				case roll.PhaseUnsure: // asked for, signaled and cut within one second
				default:
					t.Errorf("%s: the call %s was cut in phase %q", s, f.SpanID, f.PeerPhase)
				}
				if f.SpanKind != "client" || f.TraceID == "" || f.Pod == "" {
					t.Errorf("%s: finding without its span: %+v", s, f)
				}
			}
		}
		if cut != want || drained < 20 {
			t.Errorf("%s: %d calls were cut, %d in the drain for certain; want %d", s, cut, drained, want)
		}
	}
}

// TestStandingNotice: without its waiver the notice fails no-warn-logs; with it, it is shown and counted.
func TestStandingNotice(t *testing.T) {
	find := func(rep *roll.Report) (found, waived int) {
		for _, res := range rep.Results {
			if res.Assertion == "no-warn-logs" && res.Roll == rep.Rolls[2].ID {
				found, waived = len(res.Findings), len(res.Waived)
			}
		}
		return found, waived
	}
	_, rep := verifyRecording(t, "seed-roll")
	if found, waived := find(rep); found == 0 || waived != 0 || rep.Rolls[2].Verdict != roll.Fail {
		t.Errorf("without a waiver: %d found, %d waived, %v", found, waived, rep.Rolls[2].Verdict)
	}
	_, rep = verifyRecording(t, "seed-roll", "-f", "demo/policy.yaml")
	if found, waived := find(rep); found != 0 || waived == 0 || rep.Rolls[2].Verdict != roll.Pass {
		t.Errorf("with the waiver: %d found, %d waived, %v", found, waived, rep.Rolls[2].Verdict)
	}
	if len(rep.Waivers) != 1 || rep.Waivers[0].Count == 0 {
		t.Errorf("waivers %+v", rep.Waivers)
	}
}

// TestDemo runs the demo: the same verdicts through a Tempo look-alike over gRPC.
func TestDemo(t *testing.T) {
	code, stdout, stderr := runApp(t, "demo", "-o", "json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var fromTempo roll.Report
	if err := json.Unmarshal([]byte(stdout), &fromTempo); err != nil {
		t.Fatal(err)
	}
	_, fromFile := verifyRecording(t, "seed-roll", "-f", "demo/policy.yaml")
	for i, r := range fromTempo.Rolls {
		if f := fromFile.Rolls[i]; r.Spans.Client != f.Spans.Client || r.Spans.Server != f.Spans.Server || r.Spans.Errors != f.Spans.Errors {
			t.Errorf("%s: Tempo holds %+v, the file %+v", r.ID, r.Spans, f.Spans)
		}
	}
	touched := 0
	for _, r := range fromTempo.Rolls[1:] {
		touched += r.Spans.TouchedTerminating
	}
	if touched == 0 {
		t.Error("no call is shown that touched a pod already being deleted")
	}
}
