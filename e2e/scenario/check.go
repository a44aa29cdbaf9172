package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/correlate"
	"github.com/rolltrace/rolltrace/e2e/cluster"
	"github.com/rolltrace/rolltrace/roll"
)

// Result is how a recording and what was derived from it stand up to the truth.
type Result struct {
	Scenario Scenario
	// Wrong is what was not true, in one line each; nothing may be there.
	Wrong []string
	// Ended is how many containers ended, Signals how many of them received SIGTERM.
	Ended, Signals int
	// SignalWidths and ExitWidths are the widths of the bounds that held the truth; what was said to be unknown is missing.
	SignalWidths, ExitWidths []time.Duration
	// Codes is how many exit codes were known, LastLines how many logs were recorded to the last line, of Logs.
	Codes, LastLines, Logs int
	Sources                map[roll.Source]int // of the signal's bounds
	Gaps                   []roll.Gap
	// Narrowed are the widths of the signal's and the exit's bounds with other sources, by their names.
	Narrowed map[string]*widths
}

type widths struct{ signal, exit []time.Duration }

// variants are sources beside the recording, in the order of the table; the logs are the cluster's own.
var variants = []struct {
	name  string
	logs  bool // the programs' own log lines count
	files []string
}{
	{"recording, without the programs' log lines", false, nil},
	{"+ kubelet's log", false, []string{"kubelet"}},
	{"+ audit log and runtime events", false, []string{"kubelet", "audit", "events"}},
	{"+ the programs' log lines", true, []string{"kubelet", "audit", "events"}},
}

// never matches no line.
var never = regexp.MustCompile(`a\bb`)

// readSources reads what the cluster wrote itself.
func readSources(c *cluster.Cluster, what []string, logs bool) (more correlate.Sources, err error) {
	if !logs {
		more.ShutdownLog = never
	}
	for _, w := range what {
		name := map[string]string{"kubelet": "kubelet.log", "audit": "audit.log", "events": "containerd-events.log"}[w]
		f, err := os.Open(filepath.Join(c.Logs, name))
		if err != nil {
			return more, err
		}
		switch w {
		case "kubelet":
			more.Kills, err = correlate.ReadKubeletLog(f)
		case "audit":
			more.Audit, err = correlate.ReadAudit(f)
		case "events":
			more.Exits, err = correlate.ReadRuntimeEvents(f)
		}
		f.Close()
		if err != nil {
			return more, fmt.Errorf("%s: %w", name, err)
		}
	}
	return more, nil
}

// narrow holds the bounds with further sources against the truth.
func (res *Result) narrow(c *cluster.Cluster, rec *roll.Recording, ended []Ended) {
	res.Narrowed = map[string]*widths{}
	for _, v := range variants {
		wrong := func(format string, args ...any) {
			res.Wrong = append(res.Wrong, v.name+": "+fmt.Sprintf(format, args...))
		}
		more, err := readSources(c, v.files, v.logs)
		if err != nil {
			wrong("%v", err)
			continue
		}
		tl := correlate.DeriveWith(rec, more)
		found := map[string]*roll.Termination{}
		for i := range tl.Rolls {
			for j := range tl.Rolls[i].Terminations {
				t := &tl.Rolls[i].Terminations[j]
				found[bareID(t.ContainerID)] = t
			}
		}
		part := Result{Sources: map[roll.Source]int{}}
		for _, e := range ended {
			if t := found[e.ContainerID]; t != nil && !(rec.Footer != nil && e.Exited.After(rec.Last)) {
				checkSignal(&part, t, e, wrong)
				checkExit(&part, t, e, res.Scenario.ExitUnknown, wrong)
			}
		}
		for _, g := range tl.Gaps {
			if g.Reason == roll.GapSource {
				wrong("%s", g)
			}
		}
		res.Narrowed[v.name] = &widths{part.SignalWidths, part.ExitWidths}
	}
}

// check holds a recording against the truth.
func check(s Scenario, rec *roll.Recording, ended []Ended) Result {
	tl := correlate.Derive(rec)
	res := Result{Scenario: s, Gaps: tl.Gaps, Sources: map[roll.Source]int{}}
	wrong := func(format string, args ...any) { res.Wrong = append(res.Wrong, fmt.Sprintf(format, args...)) }

	var rolls []string
	terminations := map[string]*roll.Termination{}
	causes := map[roll.Cause]bool{}
	for i := range tl.Rolls {
		r := &tl.Rolls[i]
		line := fmt.Sprintf("%s/%s %s %d", strings.ToLower(r.Workload.Kind), r.Workload.Name, r.Cause, len(r.Old))
		if !r.Completed {
			line += " unfinished"
		}
		rolls = append(rolls, line)
		for j := range r.Terminations {
			t := &r.Terminations[j]
			causes[t.Cause] = true
			if !slices.Contains(s.Causes, t.Cause) && s.Causes != nil {
				wrong("%s %s ended because of %s", t.Pod.Name, t.Container, t.Cause)
			}
			if t.ContainerID != "" {
				terminations[bareID(t.ContainerID)] = t
			}
		}
	}
	if !slices.Equal(rolls, s.Rolls) {
		wrong("rolls are %q, were %q", rolls, s.Rolls)
	}
	for _, c := range s.Causes {
		if !causes[c] {
			wrong("nothing ended because of %s", c)
		}
	}
	last := lastLines(rec)
	for _, e := range ended {
		if rec.Footer != nil && e.Exited.After(rec.Last) {
			continue // after the recording
		}
		res.Ended++
		id, name := e.ContainerID, e.Pod+" "+e.Container
		t := terminations[id]
		delete(terminations, id)
		if t == nil {
			wrong("%s ended at %s, and there is no termination of %.12s", name, clock(e.Exited), id)
			continue
		}
		checkSignal(&res, t, e, wrong)
		checkExit(&res, t, e, s.ExitUnknown, wrong)
		if e.LastLine != "" {
			res.Logs++
			if last[id] == e.LastLine {
				res.LastLines++
			} else if !s.LogsCut {
				wrong("%s: the last line of the log was %q, recorded is %q", name, e.LastLine, last[id])
			}
		}
	}
	for id, t := range terminations {
		wrong("%s %s is said to have ended (%.12s), which it did not", t.Pod.Name, t.Container, id)
	}
	checkGaps(s, tl.Gaps, wrong)
	return res
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

func bounds(i roll.Instant) string {
	return fmt.Sprintf("[%s, %s] (%s)", clock(i.Earliest), clock(i.Latest), i.Source)
}

func checkSignal(res *Result, t *roll.Termination, e Ended, wrong func(string, ...any)) {
	if e.SIGTERM.IsZero() {
		if e.Exiting.IsZero() || t.Signaled.IsZero() {
			return // it could not have noted a signal, or there was none and none is told
		}
		wrong("%s %s got no SIGTERM, and is said to have at %s", e.Pod, e.Container, bounds(t.Signaled))
		return
	}
	res.Signals++
	switch {
	case t.Signaled.IsZero():
	case !t.Signaled.Contains(e.SIGTERM):
		wrong("%s %s got SIGTERM at %s, not within %s", e.Pod, e.Container, clock(e.SIGTERM), bounds(t.Signaled))
	default:
		res.SignalWidths = append(res.SignalWidths, t.Signaled.Width())
		res.Sources[t.Signaled.Source]++
	}
}

func checkExit(res *Result, t *roll.Termination, e Ended, mayBeUnknown bool, wrong func(string, ...any)) {
	from := e.Exiting
	if from.IsZero() {
		from = e.Exited
	}
	switch {
	case t.Exited.IsZero():
		if !mayBeUnknown {
			wrong("%s %s exited at %s, which is not known", e.Pod, e.Container, clock(e.Exited))
		}
	case t.Exited.Latest.Before(from) || t.Exited.Earliest.After(e.Exited):
		wrong("%s %s exited at %s–%s, not within %s", e.Pod, e.Container, clock(from), clock(e.Exited), bounds(t.Exited))
	default:
		res.ExitWidths = append(res.ExitWidths, t.Exited.Width())
	}
	switch {
	case t.ExitCode == nil:
		if !mayBeUnknown {
			wrong("%s %s exited with %d, which is not known", e.Pod, e.Container, e.Code)
		}
	case *t.ExitCode != e.Code:
		wrong("%s %s exited with %d, not with %d", e.Pod, e.Container, e.Code, *t.ExitCode)
	default:
		res.Codes++
	}
}

func checkGaps(s Scenario, gaps []roll.Gap, wrong func(string, ...any)) {
	seen := map[roll.GapReason]bool{}
	for _, g := range gaps {
		seen[g.Reason] = true
		if !slices.Contains(s.Gaps, g.Reason) && !slices.Contains(s.MayGap, g.Reason) {
			wrong("a gap that was not made: %s", g)
		}
	}
	for _, g := range s.Gaps {
		if !seen[g] {
			wrong("a gap was made and is not told: %s", g)
		}
	}
}

// lastLines is the last line of each container's log, by container ID.
func lastLines(rec *roll.Recording) map[string]string {
	last := map[string]string{}
	for _, l := range rec.Logs {
		last[bareID(l.ContainerID)] = l.Line
	}
	return last
}
