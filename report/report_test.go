package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rolltrace/rolltrace/roll"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var t0 = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

const s = time.Second

func termination(pod string, edit func(*roll.Termination)) roll.Termination {
	zero, grace := 0, int64(30)
	t := roll.Termination{
		Pod: roll.PodRef{Namespace: "shop", Name: pod, UID: "uid-" + pod}, Container: "app", Cause: roll.CauseRollout,
		Requested:      roll.Second(at(2*s), roll.SourceDeletionTimestamp),
		PreStopStarted: roll.At(at(2100*time.Millisecond), roll.SourceKillingEvent),
		Signaled: roll.Instant{
			Earliest: at(7100 * time.Millisecond), Latest: at(7300 * time.Millisecond),
			Source: roll.SourcePreStopSleep,
		},
		Exited:   roll.Second(at(7*s), roll.SourceContainerStatus),
		Removed:  roll.At(at(9*s), roll.SourceWatch),
		ExitCode: &zero, Reason: "Completed", GracePeriodSeconds: &grace,
		PreStop: roll.PreStop{Kind: roll.PreStopSleep, Sleep: 5 * s},
	}
	if edit != nil {
		edit(&t)
	}
	return t
}

func passing() *roll.Report {
	return &roll.Report{
		Schema: 1, Tool: "rolltrace test", Verdict: roll.Pass, Policy: "space",
		Rolls: []roll.RollReport{{
			ID: "shop/deployment/cart#1", Workload: roll.Workload{Kind: "Deployment", Namespace: "shop", Name: "cart"},
			From: "5d9", To: "7c4", Cause: roll.CauseRollout, Verdict: roll.Pass, Completed: true,
			Window:       roll.Range{Start: at(0), End: at(10 * s)},
			Terminations: []roll.Termination{termination("cart-5d9-a", nil), termination("cart-5d9-b", nil)},
			Spans: roll.SpanCounts{
				Client: 216, Server: 436, TouchedTerminating: 4, ServedInPreStop: 2,
				ServerByPhase: map[roll.Phase]int{roll.PhaseServing: 434, roll.PhasePreStop: 2},
			},
			Logs: roll.LogCounts{Lines: 120, Warn: 3, Waived: 3},
		}},
		Results: []roll.Result{
			{
				Assertion: "no-error-spans", Roll: "shop/deployment/cart#1", Verdict: roll.Pass,
				Summary: "216 client spans and 436 server spans, 0 with error status",
			},
			{
				Assertion: "no-warn-logs", Roll: "shop/deployment/cart#1", Verdict: roll.Pass,
				Summary: "120 log lines: 0 ERROR, 3 WARN, 0 without a severity",
				Waived: []roll.Finding{{
					Message: "orphan inventory is read-only", Severity: "WARN", Count: 3, Time: at(4 * s),
					Pod: "shop/web-1", Container: "app",
					Waiver: "orphan", Reason: "standing notice", Link: "https://example.com/1",
				}},
			},
			{
				Assertion: "control", Verdict: roll.Pass,
				Summary: "the same query finds 12 error spans of 2 services outside the windows",
			},
		},
		Waivers: []roll.WaiverUse{
			{
				Name: "orphan", Assertion: "no-warn-logs", Reason: "standing notice", Link: "https://example.com/1",
				Count: 1,
			},
			{Name: "stale", Assertion: "clean-exit", Reason: "old JVM"},
		},
		Backend: roll.BackendInfo{
			Name: "tempo", Address: "http://tempo:3200", Version: "3.0.3",
			Query: "{ kind = client }", Barrier: "two counts agree", Waited: 3 * s,
		},
		Control:  &roll.ControlReport{Ranges: []roll.Range{{Start: at(-60 * s), End: at(-s)}}, Errors: 12},
		Recorded: roll.Range{Start: at(-60 * s), End: at(60 * s)}, Padding: s,
	}
}

func finding(i int) roll.Finding {
	return roll.Finding{
		Message: fmt.Sprintf("client web's call %d to pod cart-5d9-a in phase preStop → drain failed", i),
		Time:    at(3 * s),
		Pod:     "shop/web-1", Phase: roll.PhaseServing, Peer: "shop/cart-5d9-a", PeerPhase: roll.PhaseDrain,
		Service: "web",
		TraceID: "0102", SpanID: "03", SpanKind: "client",
	}
}

func failing() *roll.Report {
	rep := passing()
	rep.Verdict, rep.Rolls[0].Verdict, rep.Results[0].Verdict = roll.Fail, roll.Fail, roll.Fail
	rep.Rolls[0].Spans.Errors, rep.Rolls[0].Spans.TouchedTerminatingErrors = 13, 4
	for i := range 13 {
		rep.Results[0].Findings = append(rep.Results[0].Findings, finding(i))
	}
	rep.Rolls[0].Terminations[1] = termination("cart-5d9-b", func(t *roll.Termination) {
		code := 137
		t.ExitCode, t.Reason, t.Cause = &code, "OOMKilled", roll.CauseOOM
	})
	return rep
}

func inconclusive() *roll.Report {
	rep := passing()
	rep.Verdict, rep.Rolls[0].Verdict = roll.Inconclusive, roll.Inconclusive
	r := &rep.Results[0]
	r.Verdict, r.Summary, r.Reasons = roll.Inconclusive, "no client or server span", []roll.GapReason{roll.GapNoSpans}
	r.Gaps = []roll.Gap{{
		Reason: roll.GapNoSpans, Object: "shop/deployment/cart#1", Detail: "there is no span",
		From: at(-s), To: at(11 * s),
	}}
	rep.Rolls[0].Spans, rep.Rolls[0].Logs = roll.SpanCounts{}, roll.LogCounts{}
	rep.Rolls[0].Terminations = []roll.Termination{termination("cart-5d9-a", func(t *roll.Termination) {
		t.Forced, t.ExitCode, t.Reason, t.Exited, t.Signaled = true, nil, "", roll.Instant{}, roll.Instant{}
	})}
	rep.Results[1].Verdict, rep.Results[1].Waived = roll.Inconclusive, nil
	rep.Results[1].Reasons = []roll.GapReason{roll.GapNoLogs}
	rep.Results[1].Gaps = []roll.Gap{{Reason: roll.GapNoLogs, Detail: "the recording holds no logs"}}
	rep.Gaps = []roll.Gap{r.Gaps[0], {Reason: roll.GapWatch, Resource: "pods", From: at(-50 * s)}}
	rep.Policy, rep.Waivers, rep.Control = "", nil, nil
	return rep
}

func noRolls() *roll.Report {
	return &roll.Report{
		Schema: 1, Verdict: roll.Inconclusive, Rolls: []roll.RollReport{},
		Results: []roll.Result{{
			Assertion: "evidence-complete", Verdict: roll.Inconclusive, Summary: "the recording holds no roll",
			Reasons: []roll.GapReason{roll.GapNoRolls}, Gaps: []roll.Gap{{
				Reason: roll.GapNoRolls,
				Detail: "no workload replaced a pod",
			}},
		}},
		Backend: roll.BackendInfo{Name: "otlp-file", Address: "spans.jsonl"},
	}
}

// hostile holds in every text from outside what a terminal or an XML reader would act on, or what would fake a line.
func hostile() *roll.Report {
	const evil = "a\x1b[2J\x1b]0;x\a\nPASS: of 1 roll 1 passes\r\u202e\u2028\x00\xff</failure>]]>&<b>"
	rep := failing()
	rep.Policy, rep.Backend.Query, rep.Backend.Address = evil, evil, evil
	r := &rep.Rolls[0]
	r.ID, r.Workload.Name = evil, evil
	r.Terminations[0].Pod.Name, r.Terminations[0].Container = evil, evil
	for i := range rep.Results[:2] {
		rep.Results[i].Roll, rep.Results[i].Summary = evil, evil
	}
	f := finding(0)
	f.Message, f.Pod, f.Container, f.Peer, f.TraceID, f.SpanName = evil, evil, evil, evil, evil, evil
	rep.Results[0].Findings = []roll.Finding{f, {Message: strings.Repeat("long ", 400)}}
	rep.Results[0].Gaps = []roll.Gap{{Reason: roll.GapLogs, Object: evil, Detail: evil}}
	rep.Results[2].Summary = evil
	rep.Waivers[0].Name, rep.Waivers[0].Reason, rep.Waivers[0].Link = evil, evil, evil
	return rep
}

var reports = map[string]func() *roll.Report{
	"pass": passing, "fail": failing, "inconclusive": inconclusive, "norolls": noRolls, "hostile": hostile,
}

func render(t *testing.T, format string, rep *roll.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, format, rep); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGolden(t *testing.T) {
	for name, make := range reports {
		for _, f := range Formats {
			t.Run(name+"/"+f.Name, func(t *testing.T) {
				got := render(t, f.Name, make())
				file := filepath.Join("testdata", name+"."+f.Name)
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatalf("%v (make it with -update)", err)
				}
				if got != string(want) {
					t.Errorf("%s differs:\n%s", file, got)
				}
			})
		}
	}
}

// What JSON holds is the whole report: read again, every format renders the same bytes.
func TestRenderAgain(t *testing.T) {
	for name, make := range reports {
		again, err := roll.ReadReport(strings.NewReader(render(t, "json", make())))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, f := range Formats {
			want := render(t, f.Name, make())
			if f.Name == "json" {
				want = strings.ReplaceAll(want, `\ufffd`,
					"\ufffd") // JSON holds no invalid byte: what stood for one is itself now
			}
			if got := render(t, f.Name, again); got != want {
				t.Errorf("%s as %s differs:\n%s\nwant\n%s", name, f.Name, got, want)
			}
		}
	}
}

// The verdict is the report's in every format: none is green in one and red in another.
func TestFormatsAgree(t *testing.T) {
	for name, make := range reports {
		rep := make()
		head, _, _ := strings.Cut(render(t, "text", rep), ":")
		if head != strings.ToUpper(rep.Verdict.String()) {
			t.Errorf("%s: the text begins with %q", name, head)
		}
		var suites junitSuites
		dec := xml.NewDecoder(strings.NewReader(render(t, "junit", rep)))
		if err := dec.Decode(&suites); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var tests, failures, problems int
		for _, s := range suites.Suites {
			for _, c := range s.Cases {
				tests++
				if c.Failure != nil {
					failures++
				}
				if c.Error != nil {
					problems++
				}
			}
		}
		if tests != len(rep.Results) || suites.Tests != tests || suites.Failures != failures || suites.Errors != problems {
			t.Errorf("%s: %d cases of %d results, counted %+v", name, tests, len(rep.Results), suites)
		}
		if red := failures+problems > 0; red != (rep.Verdict != roll.Pass) || (failures > 0) != (rep.Verdict == roll.Fail) {
			t.Errorf("%s: verdict %s with %d failures and %d errors", name, rep.Verdict, failures, problems)
		}
	}
}

// A report that is not a pass is red even when no result says why.
func TestJUnitIsNeverGreenByAccident(t *testing.T) {
	for _, v := range []roll.Verdict{roll.Fail, roll.Inconclusive} {
		out := render(t, "junit", &roll.Report{Schema: 1, Verdict: v})
		if !strings.Contains(out, "<failure") && !strings.Contains(out, "<error") {
			t.Errorf("%s without results:\n%s", v, out)
		}
	}
}

func TestTextIsClean(t *testing.T) {
	out := render(t, "text", hostile())
	for i, r := range out {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			t.Errorf("character %U at %d", r, i)
		}
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "PASS") {
			t.Errorf("a text from outside made a line of its own: %q", line)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, "yaml", passing()); err == nil || b.Len() > 0 || !strings.Contains(err.Error(),
		"text, json, junit") {
		t.Errorf("error %v, wrote %q", err, b.String())
	}
	if Known("yaml") || !Known("text") {
		t.Error("Known is wrong")
	}
}

// A report that cannot be rendered leaves no part of itself behind, and a failed write is told.
func TestWriteErrors(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, "json", &roll.Report{Schema: 1}); err == nil || b.Len() > 0 {
		t.Errorf("an undecided verdict: error %v, wrote %q", err, b.String())
	}
	full := errors.New("disk full")
	for _, f := range Formats {
		if err := Write(writerFunc(func([]byte) (int, error) { return 0, full }), f.Name, passing()); !errors.Is(err,
			full) {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

var _ io.Writer = writerFunc(nil)

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[0mb\n\u202e\xff")
	f.Fuzz(func(t *testing.T, in string) {
		out := clean(in)
		if !utf8.ValidString(out) || utf8.RuneCountInString(out) > maxCell+1 {
			t.Fatalf("%q: %q", in, out)
		}
		for _, r := range out {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029' {
				t.Fatalf("%q keeps %U", in, r)
			}
		}
	})
}
