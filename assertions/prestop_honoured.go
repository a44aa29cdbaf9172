package assertions

import (
	"fmt"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// PreStopHonoured wants every preStop hook to run to its end before SIGTERM.
var PreStopHonoured = &Assertion{
	ID:    "prestop-honoured",
	Title: "every preStop hook ran to its end before SIGTERM",
	Doc: `Looks at every container with a preStop hook that the kubelet stopped. No field of the API says when SIGTERM was sent;
the bounds come from the Killing event, the hook, and the exit.

**Fails** when the kubelet reported FailedPreStopHook, and when SIGTERM or the exit certainly came before a sleep hook
could have ended: the hook was cut by the grace period or a forced delete, or the process ended while it ran.

**Inconclusive** when the bounds of SIGTERM or of the exit are not known, and for an exec, HTTP or TCP hook when it
cannot be ruled out that the end of the grace period cut it, or that the event of its failure was lost.

**What to do:** keep the hook shorter than terminationGracePeriodSeconds, with room for the drain; prefer ` + "`preStop.sleep`" + `, which
needs no shell in the image.`,
	Check: checkPreStopHonoured,
}

func checkPreStopHonoured(ev *Evidence, p Params) Outcome {
	var out Outcome
	hooks, honoured := 0, 0
	seen := map[string]bool{}
	for i := range ev.Roll.Terminations {
		t := &ev.Roll.Terminations[i]
		seen[t.Pod.UID] = true
		if t.PreStop.Kind == roll.PreStopNone || endedByItself(t) {
			continue
		}
		hooks++
		finding, gap := judgeHook(ev, t, p)
		switch {
		case finding != "":
			f := findingOf(t, finding)
			if !t.Signaled.IsZero() {
				f.Time = t.Signaled.Earliest
			}
			f.Phase = roll.PhasePreStop
			out.Findings = append(out.Findings, f)
		case gap.Reason != "":
			addGaps(&out, gap)
		default:
			honoured++
		}
	}
	for _, g := range lostPods(ev, seen) {
		g.Reason = roll.GapHookUnknown
		addGaps(&out, g)
	}
	if out.Summary = fmt.Sprintf("%d of %s honoured", honoured, plural(hooks, "preStop hook")); hooks == 0 {
		out.Summary = "no preStop hook in the containers that were stopped"
	}
	return out
}

// endedByItself reports that nobody stopped the container, so that no hook is run.
func endedByItself(t *roll.Termination) bool {
	return t.Cause == roll.CauseCrash || t.Cause == roll.CauseOOM || t.Cause == roll.CauseCompleted
}

// judgeHook returns what speaks against the hook, or else what is not known of it.
func judgeHook(ev *Evidence, t *roll.Termination, p Params) (finding string, gap roll.Gap) {
	if t.PreStop.Failed {
		return fmt.Sprintf("the kubelet reported that its preStop hook (%s) failed", t.PreStop.Kind), gap
	}
	unknown := func(reason roll.GapReason, format string, args ...any) (string, roll.Gap) {
		return "", gapOf(t, reason, fmt.Sprintf(format, args...))
	}
	// The hook cannot start before the request. The kubelet's own start is the closer bound when it is known.
	begun, skew := t.PreStopStarted, time.Duration(0)
	if begun.IsZero() {
		begun, skew = t.Requested, p.Skew
	}
	if begun.IsZero() {
		return unknown(roll.GapHookUnknown, "when its preStop hook began was not observed")
	}

	if t.PreStop.Kind == roll.PreStopSleep {
		end := begun.Add(t.PreStop.Sleep, roll.SourcePreStopSleep)
		if t.Signaled.BeforeBy(end, skew) == roll.Yes {
			return fmt.Sprintf("SIGTERM came at least %s before its preStop sleep of %s could end%s",
				about(end.Earliest.Sub(t.Signaled.Latest)), t.PreStop.Sleep, cutBy(t)), gap
		}
		if t.Exited.BeforeBy(end, skew) == roll.Yes {
			return fmt.Sprintf("it exited at least %s before its preStop sleep of %s could end",
				about(end.Earliest.Sub(t.Exited.Latest)), t.PreStop.Sleep), gap
		}
		switch {
		case t.Signaled.IsZero():
			return unknown(roll.GapSignalUnknown,
				"when SIGTERM was sent could not be bounded, so whether it waited for the preStop sleep of %s is not known", t.PreStop.Sleep)
		case t.Exited.IsZero():
			return unknown(roll.GapHookUnknown,
				"its exit was not observed, so whether it lived to the end of its preStop sleep of %s is not known",
				t.PreStop.Sleep)
		}
		return "", gap
	}

	// What an exec, HTTP or TCP hook took is in no API. It ended by itself when the container was gone before the grace
	// period could cut it, and it succeeded when the kubelet reported no failure.
	switch {
	case t.Signaled.IsZero():
		return unknown(roll.GapSignalUnknown,
			"when SIGTERM was sent could not be bounded, so whether it waited for the preStop hook (%s) is not known",
			t.PreStop.Kind)
	case t.Exited.IsZero():
		return unknown(roll.GapHookUnknown,
			"its exit was not observed, so whether its preStop hook (%s) was cut is not known", t.PreStop.Kind)
	}
	granted, known := grace(t)
	if deadline := begun.Add(granted, begun.Source); !known || t.Exited.BeforeBy(deadline, skew) != roll.Yes {
		return unknown(roll.GapHookUnknown, "its preStop hook (%s) may have been cut by the end of the grace period",
			t.PreStop.Kind)
	}
	if !t.PreStop.Watched {
		return unknown(roll.GapHookUnknown, "the kubelet's events about it are not all there, so whether its preStop hook (%s) failed is not known", t.PreStop.Kind)
	}
	for _, g := range ev.Roll.Gaps {
		if g.Resource == roll.ResourceEvents {
			return unknown(roll.GapHookUnknown,
				"events are missing from the recording, so whether its preStop hook (%s) failed is not known",
				t.PreStop.Kind)
		}
	}
	return "", gap
}

// cutBy says what cut a hook, where that is plain.
func cutBy(t *roll.Termination) string {
	switch granted, known := grace(t); {
	case t.Forced:
		return ": the delete was forced"
	case known && granted < t.PreStop.Sleep:
		return fmt.Sprintf(": the grace period is %s", granted)
	default:
		return ""
	}
}
