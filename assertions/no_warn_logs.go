package assertions

import (
	"fmt"

	"github.com/rolltrace/rolltrace/roll"
)

// NoWarnLogs finds every log line of the roll's window that is WARN or worse.
var NoWarnLogs = &Assertion{
	ID:    "no-warn-logs",
	Title: "no container logs WARN or worse in the roll's window",
	Doc: `Looks at the log lines of every recorded pod, also of the callers, with a kubelet stamp in the roll's padded window.

**Fails** on each line of severity WARN, ERROR or FATAL. Identical messages of one container are one finding with their
count and the first one's time. The severity is read from the line's own format, never guessed from words in it.

**Inconclusive** when no logs were recorded, when a log was not read to its end, or when more than half of the lines
carry no severity.

**What to do:** a notice that always stands there is accepted by name, with a waiver in the policy. Its ` + "`match`" + ` is a regular
expression that is searched in the line's message.`,
	Check: checkNoWarnLogs,
}

func checkNoWarnLogs(ev *Evidence, p Params) Outcome {
	var out Outcome
	addGaps(&out, ev.LogGaps...)
	if !ev.LogsRecorded {
		addGaps(&out, roll.Gap{
			Reason: roll.GapNoLogs,
			Detail: "the recording holds no logs; record them, or judge without this check",
		})
	}
	type line struct {
		pod                string
		container, message string
		severity           string
	}
	first := map[line]int{} // index into out.Findings
	var warn, bad, unknown int
	for i := range ev.Logs {
		l := &ev.Logs[i]
		switch {
		case l.Severity == roll.SeverityUnspecified:
			unknown++
			continue
		case l.Severity < roll.SeverityWarn:
			continue
		case l.Severity < roll.SeverityError:
			warn++
		default:
			bad++
		}
		message := l.Message
		if message == "" {
			message = l.Body
		}
		key := line{l.Pod.UID + "/" + l.Pod.String(), l.Container, message, l.Severity.String()}
		if n, ok := first[key]; ok {
			out.Findings[n].Count++
			continue
		}
		first[key] = len(out.Findings)
		out.Findings = append(out.Findings, roll.Finding{
			Message: message, Severity: key.severity, Count: 1,
			Time: l.Time, Pod: l.Pod.String(), Container: l.Container,
			Phase: phaseAt(ev.Pods[l.Pod.UID], l),
		})
	}
	if n := len(ev.Logs); n > 0 && float64(unknown) > p.MaxUnknownSeverity*float64(n) {
		addGaps(&out, roll.Gap{
			Reason: roll.GapSeverity, From: ev.Window.Start, To: ev.Window.End,
			Detail: fmt.Sprintf("%d of %d log lines carry no severity that can be read, more than %.0f %%", unknown,
				n, 100*p.MaxUnknownSeverity),
		})
	}
	out.Summary = fmt.Sprintf("%s: %d ERROR, %d WARN, %d without a severity", plural(len(ev.Logs), "log line"), bad,
		warn, unknown)
	if !ev.LogsRecorded {
		out.Summary = "no logs were recorded"
	}
	return out
}

// phaseAt is what the pod was doing when it wrote the line, when the bounds leave no doubt; both clocks are the
// kubelet's but for the request.
func phaseAt(p *roll.Pod, l *roll.LogLine) roll.Phase {
	if p == nil || l.Time.IsZero() {
		return roll.PhaseUnknown
	}
	at := roll.At(l.Time, roll.SourceLog)
	switch {
	case at.Before(p.Requested) == roll.Yes, !p.Deleted:
		if at.Before(p.Ready) == roll.No {
			return roll.PhaseServing
		}
		if at.Before(p.Ready) == roll.Yes {
			return roll.PhaseStartup
		}
	case p.Requested.Before(at) == roll.Yes && at.Before(p.Signaled) == roll.Yes:
		return roll.PhasePreStop
	case p.Signaled.Before(at) == roll.Yes && at.Before(p.Exited) == roll.Yes:
		return roll.PhaseDrain
	}
	return roll.PhaseUnsure
}
