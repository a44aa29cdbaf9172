package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// What the text shows of long lists; the JSON holds all of it.
const (
	maxFindings     = 10 // a result
	maxTerminations = 24 // a report
	maxGaps         = 30 // a report
	textWidth       = 100
)

// text writes the report for a person: the verdict, the story with its numbers, a row a roll, a row for each result
// that is not a plain pass, the findings, the gaps, what was asked.
func text(w io.Writer, rep *roll.Report) error {
	var b strings.Builder
	b.WriteString(verdictLine(rep) + "\n")
	if story := wrap(clean2(storyOf(rep)), textWidth); story != "" {
		b.WriteString("\n" + story + "\n")
	}
	writeRolls(&b, rep)
	writeTerminations(&b, rep)
	writeResults(&b, rep)
	writeFindings(&b, rep)
	writeWaivers(&b, rep)
	writeGaps(&b, rep)
	writeAsked(&b, rep)
	_, err := io.WriteString(w, b.String())
	return err
}

// clean2 cleans a text that was put together from cleaned parts and may be longer than one cell.
func clean2(parts []string) string {
	for i := range parts {
		parts[i] = clean(parts[i])
	}
	return strings.Join(parts, " ")
}

func verdictLine(rep *roll.Report) string {
	head := strings.ToUpper(rep.Verdict.String())
	if len(rep.Rolls) == 0 {
		return head + ": the recording holds no roll, so nothing was judged"
	}
	n := map[roll.Verdict]int{}
	for i := range rep.Rolls {
		n[rep.Rolls[i].Verdict]++
	}
	var parts []string
	for _, v := range []roll.Verdict{roll.Fail, roll.Inconclusive, roll.Pass} {
		if n[v] == 0 {
			continue
		}
		word := map[roll.Verdict][2]string{
			roll.Fail: {"fails", "fail"}, roll.Inconclusive: {"is inconclusive", "are inconclusive"},
			roll.Pass: {"passes", "pass"},
		}[v]
		if n[v] == 1 {
			parts = append(parts, "1 "+word[0])
		} else {
			parts = append(parts, fmt.Sprintf("%d %s", n[v], word[1]))
		}
	}
	line := fmt.Sprintf("%s: of %s %s", head, plural(len(rep.Rolls), "roll"), strings.Join(parts, ", "))
	for i := range rep.Results {
		if r := &rep.Results[i]; r.Roll == "" && r.Verdict != roll.Pass {
			line += fmt.Sprintf("; %s is %s", clean(r.Assertion), r.Verdict)
		}
	}
	return line
}

// storyOf is the paragraph: what happened to the pods, what the spans say, whether the query can find errors, what
// the logs say.
func storyOf(rep *roll.Report) []string {
	if len(rep.Rolls) == 0 {
		return nil
	}
	return slices.Concat(endsStory(rep), spansStory(rep), controlStory(rep), logsStory(rep))
}

func endsStory(rep *roll.Report) []string {
	var all, deleted []roll.Termination
	for i := range rep.Rolls {
		for _, t := range rep.Rolls[i].Terminations {
			all = append(all, t)
			if !t.Requested.IsZero() {
				deleted = append(deleted, t)
			}
		}
	}
	if len(all) == 0 {
		return []string{"No container ended in the rolls."}
	}
	var out []string
	signaled, sleeps := 0, map[time.Duration]bool{}
	hooks := 0
	var sig, exit spread
	zero, other, unknown := 0, 0, 0
	for i := range deleted {
		t := &deleted[i]
		if t.PreStop.Kind != roll.PreStopNone {
			hooks++
			if t.PreStop.Kind == roll.PreStopSleep {
				sleeps[t.PreStop.Sleep] = true
			}
		}
		if !t.Signaled.IsZero() {
			signaled++
			sig.add(t.Requested, t.Signaled)
			if !t.Exited.IsZero() {
				exit.add(t.Signaled, t.Exited)
			}
		}
	}
	for i := range all {
		switch t := &all[i]; {
		case t.ExitCode == nil:
			unknown++
		case *t.ExitCode == 0:
			zero++
		default:
			other++
		}
	}
	hook := ""
	switch n := len(deleted); {
	case n == 0:
	case hooks == 0:
		hook = " (there is no preStop)"
	case hooks == n && len(sleeps) == 1:
		for d := range sleeps {
			hook = fmt.Sprintf(" (the preStop sleeps %s)", seconds(d))
		}
	default:
		hook = fmt.Sprintf(" (%d of them with a preStop)", hooks)
	}
	subject, its := fmt.Sprintf("All %d old containers", len(deleted)), "their"
	switch len(deleted) {
	case 1:
		subject, its = "The old container", "its"
	case 2:
		subject = "Both old containers"
	}
	switch n := len(deleted); {
	case n == 0:
	case signaled == n && exit.n == n && zero == len(all) && n == len(all):
		return []string{fmt.Sprintf("%s got SIGTERM %s after %s deletion was asked for%s and exited 0, at most %s after SIGTERM.",
			subject, sig, its, hook, atMost(exit.hi))}
	case signaled == n:
		out = append(out, fmt.Sprintf("%s got SIGTERM %s after %s deletion was asked for%s.", subject, sig, its, hook))
	case signaled > 0:
		out = append(out,
			fmt.Sprintf("%d of %s got SIGTERM %s after the deletion was asked for%s; when the others did is not known.",
				signaled, plural(n, "old container"), sig, hook))
	default:
		out = append(out, fmt.Sprintf("When %s got SIGTERM is not known%s.", plural(n, "old container"), hook))
	}
	ended := fmt.Sprintf("Of %s that ended, %d exited 0", plural(len(all), "container"), zero)
	if other > 0 {
		ended += fmt.Sprintf(", %d with another code", other)
	}
	if unknown > 0 {
		ended += fmt.Sprintf(", and the exit code of %d is not known", unknown)
	}
	return append(out, ended+".")
}

// spread is the range in which the differences of pairs of instants certainly lie.
type spread struct {
	n      int
	lo, hi time.Duration
}

func (s *spread) add(from, to roll.Instant) {
	lo, hi := to.Earliest.Sub(from.Latest), to.Latest.Sub(from.Earliest)
	if s.n == 0 {
		s.lo, s.hi = lo, hi
	}
	s.lo, s.hi = min(s.lo, lo), max(s.hi, hi)
	s.n++
}

// String is the middle and the bounds: "about 5 s (4.1 to 6 s)". The bounds are rounded outwards.
func (s spread) String() string {
	lo := max(s.lo, 0)
	if s.hi-lo < 200*time.Millisecond {
		return seconds((lo + s.hi) / 2)
	}
	return fmt.Sprintf("about %s (%s to %s)",
		seconds((lo+s.hi)/2), strings.TrimSuffix(seconds(lo.Truncate(100*time.Millisecond)), " s"), atMost(s.hi))
}

// atMost is a duration in seconds, rounded up to 0.1 s.
func atMost(d time.Duration) string {
	return seconds((d + 100*time.Millisecond - 1).Truncate(100 * time.Millisecond))
}

func spansStory(rep *roll.Report) []string {
	var c roll.SpanCounts
	for i := range rep.Rolls {
		s := &rep.Rolls[i].Spans
		c.Client += s.Client
		c.Server += s.Server
		c.Errors += s.Errors
		c.Unattributed += s.Unattributed
		c.Elsewhere += s.Elsewhere
		c.TouchedTerminating += s.TouchedTerminating
		c.TouchedTerminatingErrors += s.TouchedTerminatingErrors
		c.ServedInPreStop += s.ServedInPreStop
		c.ServedInDrain += s.ServedInDrain
	}
	var out []string
	if n := c.TouchedTerminating; n > 0 {
		s := fmt.Sprintf("%s ran on, or called, a pod that was already being deleted", plural(n, "span"))
		if p, d := c.ServedInPreStop, c.ServedInDrain; p+d > 0 {
			s = fmt.Sprintf("A pod that was already being deleted served %s (%d in its preStop, %d in its drain); %s",
				plural(p+d, "call"), p, d, plural(n, "span")+" ran on, or called, such a pod")
		}
		if e := c.TouchedTerminatingErrors; e > 0 {
			s += fmt.Sprintf(", %d of them in error", e)
		} else {
			s += ", none of them in error"
		}
		out = append(out, s+".")
	} else if c.Client+c.Server > 0 {
		out = append(out, "No span certainly touched a pod that was already being deleted.")
	}
	errors := "none with error status"
	if c.Errors > 0 {
		errors = fmt.Sprintf("%d with error status", c.Errors)
	}
	across := "In the roll's window"
	if n := len(rep.Rolls); n > 1 {
		across = fmt.Sprintf("Across the %d rolls", n)
		if overlapping(rep) {
			across += ", whose windows overlap,"
		}
	}
	backend := rep.Backend.Name
	if backend == "" {
		backend = "the backend"
	}
	if backend == "tempo" {
		backend = "Tempo"
	}
	if c.Client+c.Server == 0 {
		return append(out, fmt.Sprintf("%s %s holds no client or server span.", across, backend))
	}
	s := fmt.Sprintf("%s %s holds %s and %s, %s", across, backend,
		plural(c.Client, "client span"), plural(c.Server, "server span"), errors)
	if c.Unattributed > 0 {
		s += fmt.Sprintf("; %d of no known pod", c.Unattributed)
	}
	if c.Elsewhere > 0 {
		s += fmt.Sprintf("; %d more, of namespaces that were not recorded, are left out", c.Elsewhere)
	}
	return append(out, s+".")
}

func overlapping(rep *roll.Report) bool {
	for i := range rep.Rolls {
		for j := range rep.Rolls[:i] {
			a, b := rep.Rolls[i].Window, rep.Rolls[j].Window
			if a.Start.Before(b.End.Add(2*rep.Padding)) && b.Start.Before(a.End.Add(2*rep.Padding)) {
				return true
			}
		}
	}
	return false
}

func controlStory(rep *roll.Report) []string {
	for i := range rep.Results {
		if r := &rep.Results[i]; r.Assertion == "control" && r.Roll == "" && r.Summary != "" {
			return []string{strings.ToUpper(r.Summary[:1]) + r.Summary[1:] + "."}
		}
	}
	return nil
}

func logsStory(rep *roll.Report) []string {
	var c roll.LogCounts
	for i := range rep.Rolls {
		l := &rep.Rolls[i].Logs
		c.Lines += l.Lines
		c.Warn += l.Warn
		c.Error += l.Error
		c.NoSeverity += l.NoSeverity
		c.Waived += l.Waived
	}
	missing := false
	for i := range rep.Results {
		missing = missing || slices.Contains(rep.Results[i].Reasons, roll.GapNoLogs)
	}
	windows := "any roll window"
	if len(rep.Rolls) == 1 {
		windows = "the roll window"
	}
	switch {
	case c.Lines == 0 && missing:
		return []string{"No logs were recorded."}
	case c.Warn+c.Error == 0:
		return []string{fmt.Sprintf("No WARN or ERROR among %s of %s.", plural(c.Lines, "log line"), windows)}
	case c.Waived == c.Warn+c.Error:
		return []string{fmt.Sprintf("No WARN or ERROR among %s of %s, apart from %s that a waiver accepts.",
			plural(c.Lines, "log line"), windows, plural(c.Waived, "line"))}
	case c.Waived > 0:
		return []string{fmt.Sprintf("%d WARN and %d ERROR among %s of %s; a waiver accepts %d of them.",
			c.Warn, c.Error, plural(c.Lines, "log line"), windows, c.Waived)}
	default:
		return []string{fmt.Sprintf("%d WARN and %d ERROR among %s of %s.", c.Warn, c.Error, plural(c.Lines,
			"log line"), windows)}
	}
}

func writeRolls(b *strings.Builder, rep *roll.Report) {
	if len(rep.Rolls) == 0 {
		return
	}
	rows := [][]string{{"ROLL", "CAUSE", "VERDICT", "CLIENT", "SERVER", "ERRORS", "START", "TOOK"}}
	for i := range rep.Rolls {
		r := &rep.Rolls[i]
		rows = append(rows, []string{
			r.ID, string(r.Cause), r.Verdict.String(),
			fmt.Sprint(r.Spans.Client), fmt.Sprint(r.Spans.Server), fmt.Sprint(r.Spans.Errors),
			stamp(r.Window.Start), seconds(r.Window.Duration()),
		})
	}
	b.WriteByte('\n')
	table(b, "", rows)
}

func writeTerminations(b *strings.Builder, rep *roll.Report) {
	var all []roll.Termination
	for i := range rep.Rolls {
		all = append(all, rep.Rolls[i].Terminations...)
	}
	if len(all) == 0 {
		return
	}
	b.WriteByte('\n')
	Terminations(b, "", all[:min(len(all), maxTerminations)])
	if n := len(all) - maxTerminations; n > 0 {
		fmt.Fprintf(b, "… and %d more (-o json lists all)\n", n)
	}
}

// Terminations writes a row a container: when its deletion was asked for, SIGTERM and exit after that with their
// bounds, exit code and cause. What was not observed is "unknown".
func Terminations(b *strings.Builder, indent string, ts []roll.Termination) {
	rows := [][]string{{"POD", "CONTAINER", "REQUESTED", "SIGTERM", "EXIT", "CODE", "CAUSE"}}
	for i := range ts {
		t := &ts[i]
		from, requested := t.Requested, "-"
		if !from.IsZero() {
			if requested = clock(from.Earliest); from.Width() >= time.Second-time.Nanosecond {
				requested = from.Earliest.UTC().Format("15:04:05Z") // truncated: it lies within that second
			}
		}
		code := "unknown"
		if t.ExitCode != nil {
			code = fmt.Sprint(*t.ExitCode)
			if t.Reason != "" && t.Reason != "Completed" && t.Reason != "Error" {
				code += " " + t.Reason
			}
		}
		rows = append(rows, []string{
			t.Pod.Name, t.Container, requested, after(from, t.Signaled), after(from, t.Exited), code, string(t.Cause),
		})
	}
	table(b, indent, rows)
}

// after writes an instant as an offset with its reach, "+5.2 s ±0.5"; without a beginning it is a time of day.
func after(from, at roll.Instant) string {
	if at.IsZero() {
		return "unknown"
	}
	if from.IsZero() {
		return clock(at.Earliest) + reach(at.Width())
	}
	lo, hi := at.Earliest.Sub(from.Latest), at.Latest.Sub(from.Earliest)
	lo = max(lo, 0) // nothing of it comes before the request
	hi = max(hi, lo)
	return "+" + seconds((lo+hi)/2) + reach(hi-lo)
}

func reach(width time.Duration) string {
	if width < 100*time.Millisecond {
		return ""
	}
	return fmt.Sprintf(" ±%.1f", width.Seconds()/2)
}

func writeResults(b *strings.Builder, rep *roll.Report) {
	rows := [][]string{{"ASSERTION", "ROLL", "VERDICT", "WHAT WAS SEEN"}}
	for i := range rep.Results {
		r := &rep.Results[i]
		if r.Verdict == roll.Pass && len(r.Waived) == 0 {
			continue
		}
		seen := r.Summary
		if len(r.Waived) > 0 {
			seen += fmt.Sprintf("; %s waived", plural(len(r.Waived), "finding"))
		}
		if len(r.Reasons) > 0 {
			seen += "; gaps: " + reasons(r.Reasons)
		}
		rows = append(rows, []string{r.Assertion, rollName(r.Roll), r.Verdict.String(), seen})
	}
	if len(rows) == 1 {
		return
	}
	b.WriteByte('\n')
	table(b, "", rows)
}

func rollName(id string) string {
	if id == "" {
		return "(all)"
	}
	return id
}

func writeFindings(b *strings.Builder, rep *roll.Report) {
	for i := range rep.Results {
		r := &rep.Results[i]
		if len(r.Findings) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n%s, %s: %s\n", clean(r.Assertion), clean(rollName(r.Roll)), plural(len(r.Findings),
			"finding"))
		for j := range r.Findings[:min(len(r.Findings), maxFindings)] {
			b.WriteString("  " + findingLine(&r.Findings[j]) + "\n")
		}
		if n := len(r.Findings) - maxFindings; n > 0 {
			fmt.Fprintf(b, "  … and %d more (-o json lists all)\n", n)
		}
	}
}

// findingLine is a finding on one line: when, what, and where to look.
func findingLine(f *roll.Finding) string {
	var b strings.Builder
	if !f.Time.IsZero() {
		b.WriteString(stamp(f.Time) + " ")
	}
	if f.Severity != "" {
		b.WriteString(clean(f.Severity) + " ")
	}
	b.WriteString(clean(f.Message))
	if f.Count > 1 {
		fmt.Fprintf(&b, " (%d times)", f.Count)
	}
	var where []string
	add := func(name, value string) {
		if value != "" {
			where = append(where, name+" "+clean(value))
		}
	}
	pod := f.Pod
	if pod != "" && f.Container != "" {
		pod += "/" + f.Container
	}
	add("pod", pod)
	phase := string(f.Phase)
	if f.EndPhase != "" && f.EndPhase != f.Phase {
		phase += " → " + string(f.EndPhase)
	}
	add("phase", phase)
	add("peer", f.Peer)
	add("peer phase", string(f.PeerPhase))
	add("trace", f.TraceID)
	add("span", f.SpanID)
	add("waiver", f.Waiver)
	if len(where) > 0 {
		b.WriteString(" [" + strings.Join(where, ", ") + "]")
	}
	return b.String()
}

func writeWaivers(b *strings.Builder, rep *roll.Report) {
	if len(rep.Waivers) == 0 {
		return
	}
	rows := [][]string{{"WAIVER", "ASSERTION", "ACCEPTED", "REASON"}}
	for _, w := range rep.Waivers {
		accepted := plural(w.Count, "finding")
		if w.Count == 0 {
			accepted = "not used"
		}
		reason := w.Reason
		if w.Link != "" {
			reason += " (" + w.Link + ")"
		}
		rows = append(rows, []string{w.Name, w.Assertion, accepted, reason})
	}
	b.WriteByte('\n')
	table(b, "", rows)
}

// writeGaps writes every gap that a result names, once, and counts the report's others.
func writeGaps(b *strings.Builder, rep *roll.Report) {
	var c roll.Coverage
	for i := range rep.Results {
		c.Add(rep.Results[i].Gaps...)
	}
	if len(c.Gaps) > 0 {
		b.WriteString("\nWhat is missing:\n")
		Gaps(b, c.Gaps[:min(len(c.Gaps), maxGaps)])
		if n := len(c.Gaps) - maxGaps; n > 0 {
			fmt.Fprintf(b, "  … and %d more (-o json lists all)\n", n)
		}
	}
	others := 0
	for _, g := range rep.Gaps {
		if !slices.Contains(c.Gaps, g) {
			others++
		}
	}
	if others > 0 {
		fmt.Fprintf(b, "\n%s outside of what was judged (-o json lists them)\n", plural(others, "further gap"))
	}
}

// Gaps writes a line a gap: reason, object, detail, and the time about which nothing is known.
func Gaps(b *strings.Builder, gaps []roll.Gap) {
	for _, g := range gaps {
		line := "  " + clean(g.String())
		switch {
		case !g.From.IsZero() && !g.To.IsZero():
			line += fmt.Sprintf(" (%s to %s)", stamp(g.From), stamp(g.To))
		case !g.From.IsZero():
			line += fmt.Sprintf(" (from %s on)", stamp(g.From))
		case !g.To.IsZero():
			line += fmt.Sprintf(" (up to %s)", stamp(g.To))
		}
		b.WriteString(line + "\n")
	}
}

func writeAsked(b *strings.Builder, rep *roll.Report) {
	be := &rep.Backend
	b.WriteByte('\n')
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "%-9s %s\n", name, clean(value))
		}
	}
	if !rep.Recorded.Start.IsZero() {
		line("recorded", fmt.Sprintf("%s to %s; roll windows are padded by %s on both sides",
			stamp(rep.Recorded.Start), stamp(rep.Recorded.End), seconds(rep.Padding)))
	}
	who := be.Name
	if be.Version != "" {
		who += " " + be.Version
	}
	if be.Address != "" {
		who += " at " + be.Address
	}
	line("backend", who)
	line("asked", be.Query)
	if be.Barrier != "" {
		line("barrier", fmt.Sprintf("%s; waited %s", be.Barrier, seconds(be.Waited)))
	}
	line("policy", rep.Policy)
}

// RollHeader writes one line that says which roll it is: id, revisions, cause, window.
func RollHeader(b *strings.Builder, r *roll.Roll) {
	revisions := r.From + " → " + r.To
	if r.From == r.To {
		revisions = r.From
	}
	line := fmt.Sprintf("%s  %s  %s  %s to %s, %s", clean(r.ID), r.Cause, clean(revisions),
		stamp(r.Window.Start), stamp(r.Window.End), seconds(r.Window.Duration()))
	if !r.Completed {
		line += ", not seen to its end"
	}
	b.WriteString(line + "\n")
}
