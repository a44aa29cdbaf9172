package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// runApp runs the program in this process, at a fixed time.
func runApp(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{
		stdin: strings.NewReader(""), stdout: &out, stderr: &errs, getenv: func(string) string { return "" },
		now: func() time.Time { return time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC) },
	}
	code = a.run(context.Background(), args)
	return code, out.String(), errs.String()
}

// The recorded rolls of a real cluster, with what is known to be true of each: the verdict of every roll, and what the
// report must say. The reports as a whole are golden files.
func TestScenarios(t *testing.T) {
	const standing = "testdata/policy.yaml"
	for name, c := range map[string]struct {
		code     int
		verdicts []roll.Verdict
		says     []string
	}{
		"seed-roll": {exitFail, []roll.Verdict{roll.Fail, roll.Pass, roll.Pass, roll.Pass}, []string{
			"code UNAVAILABLE, store not ready", "a waiver accepts 3 of them", "The same query finds",
		}},
		"seed-cut": {exitFail, []roll.Verdict{roll.Fail, roll.Fail}, []string{
			"in phase serving → drain failed",
			"EOF; no server span shows the call",
		}},
		"seed-drain-cut": {
			exitFail,
			[]roll.Verdict{roll.Fail, roll.Fail},
			[]string{"in phase serving → drain failed after 3.44s"},
		},
		"seed-close-nohook": {exitPass, []roll.Verdict{roll.Pass, roll.Pass}, []string{
			"there is no preStop", "none with error status",
		}},
		"seed-prestop-saves": {exitPass, []roll.Verdict{roll.Pass, roll.Pass}, []string{
			"the preStop sleeps 5 s",
			"A pod that was already being deleted served 31 calls (31 in its preStop, 0 in its drain)",
		}},
		"seed-no-traffic": {
			exitInconclusive,
			[]roll.Verdict{roll.Inconclusive, roll.Inconclusive},
			[]string{"no-spans"},
		},
		// kubernetes/kubernetes#104155: a forced delete takes the pod before its exit can be told.
		"seed-chaos-delete": {exitFail, []roll.Verdict{roll.Pass, roll.Pass, roll.Fail}, []string{
			"delete", "exit-unknown", "the exit code of 1 is not known",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("../../testdata/recordings", name)
			args := []string{
				"verify", "-q", filepath.Join(dir, "recording.jsonl.gz"), "--spans", filepath.Join(dir,
					"spans.otlp.jsonl.gz"), "-f", standing,
			}
			code, text, stderr := runApp(t, args...)
			if code != c.code || stderr != "" {
				t.Errorf("exit code %d, want %d; stderr %q", code, c.code, stderr)
			}
			for _, s := range c.says {
				if !strings.Contains(strings.Join(strings.Fields(text), " "), s) {
					t.Errorf("the report does not say %q", s)
				}
			}
			golden(t, filepath.Join("../../testdata/reports", name+".txt"), text)

			code, out, _ := runApp(t, append(args, "-o", "json")...)
			rep, err := roll.ReadReport(strings.NewReader(out))
			if err != nil || code != c.code {
				t.Fatalf("exit code %d, %v", code, err)
			}
			var got []roll.Verdict
			for _, r := range rep.Rolls {
				got = append(got, r.Verdict)
			}
			if !slices.Equal(got, c.verdicts) {
				t.Errorf("verdicts %v, want %v", got, c.verdicts)
			}
			for _, res := range rep.Results {
				for _, f := range res.Findings {
					if res.Assertion == "no-error-spans" && (f.Pod == "" || f.Peer == "" || f.TraceID == "" || f.SpanID == "" || f.Phase == "") {
						t.Errorf("a finding does not say whose it is: %+v", f)
					}
				}
			}
		})
	}
}

// Every recorded scenario of a real cluster without spans: none may pass, since nothing was seen of its calls.
func TestNoScenarioPassesWithoutSpans(t *testing.T) {
	recordings, err := filepath.Glob("../../testdata/recordings/*/recording.jsonl.gz")
	if err != nil || len(recordings) < 30 {
		t.Fatalf("%d recordings, %v", len(recordings), err)
	}
	empty := filepath.Join(t.TempDir(), "empty.jsonl")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, rec := range recordings {
		code, out, stderr := runApp(t, "verify", "-q", rec, "--spans", empty)
		if code != exitFail && code != exitInconclusive {
			t.Errorf("%s: exit code %d\n%s%s", rec, code, out, stderr)
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("%v (make it with -update)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; see the change with -update and git diff:\n%s", name, got)
	}
}
