package assertions

import (
	"fmt"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// addGaps appends the gaps that are not there yet.
func addGaps(out *Outcome, gaps ...roll.Gap) {
	c := roll.Coverage{Gaps: out.Gaps}
	c.Add(gaps...)
	out.Gaps = c.Gaps
}

// plural writes "1 span", "2 spans".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// about rounds a duration for a person: to 1 ms below 1 s, to 10 ms below 10 s, to 100 ms above.
func about(d time.Duration) string {
	switch abs := d.Abs(); {
	case abs < time.Second:
		return d.Round(time.Millisecond).String()
	case abs < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	default:
		return d.Round(100 * time.Millisecond).String()
	}
}

// phases names a pod's phase, and the one at the end when it is another.
func phases(start, end roll.Phase) string {
	if start == roll.PhaseUnknown && end == roll.PhaseUnknown {
		return "phase unknown"
	}
	name := func(p roll.Phase) string {
		if p == roll.PhaseUnknown {
			return "unknown"
		}
		return string(p)
	}
	if end == roll.PhaseUnknown || start == end {
		return name(start)
	}
	return name(start) + " → " + name(end)
}

// findingOf fills in the fields of a finding that say whose termination it is about.
func findingOf(t *roll.Termination, message string) roll.Finding {
	f := roll.Finding{Message: message, Pod: t.Pod.String(), Container: t.Container}
	if !t.Exited.IsZero() {
		f.Time = t.Exited.Earliest
	}
	return f
}

func gapOf(t *roll.Termination, reason roll.GapReason, detail string) roll.Gap {
	return roll.Gap{Reason: reason, Object: t.Pod.String() + "/" + t.Container, Detail: detail}
}

// deleted reports whether the termination is one of a pod whose deletion was requested.
func deleted(t *roll.Termination) bool {
	return !t.Requested.IsZero() || t.GracePeriodSeconds != nil || t.Forced
}

// grace is the grace period that was granted, and whether it is known.
func grace(t *roll.Termination) (time.Duration, bool) {
	if t.GracePeriodSeconds == nil {
		return 0, false
	}
	return time.Duration(*t.GracePeriodSeconds) * time.Second, true
}
