package assertions

import (
	"fmt"
	"slices"

	"github.com/rolltrace/rolltrace/roll"
)

// CleanExit wants every container that the roll ended to exit by itself, with an accepted code, within its grace
// period.
var CleanExit = &Assertion{
	ID:    "clean-exit",
	Title: "every container that ended exited 0, within its grace period, not by SIGKILL",
	Doc: `Looks at the end of every container in the roll: exit code, reason, and the time against the grace period.

**Fails** on an exit code that is not accepted (by default only 0 is), on 137 or OOMKilled, and on an exit that
certainly came after the grace period was over. 143 means that SIGTERM was not handled, or raised again by the process
itself (kubernetes/kubernetes#80089). 137 means SIGKILL: the grace period ran out, or memory did.

**Inconclusive** when the exit or its code was not observed. Kubernetes makes up 137 with reason ContainerStatusUnknown
and no times for a container that it lost sight of (kubernetes/kubernetes#104107): that is unknown, not killed. A forced
delete removes the pod before its containers end, so its exits are unknown as well.

**What to do:** handle SIGTERM, drain, return 0, and keep preStop plus drain shorter than terminationGracePeriodSeconds.`,
	Check: checkCleanExit,
}

func checkCleanExit(ev *Evidence, p Params) Outcome {
	var out Outcome
	clean := 0
	seen := map[string]bool{}
	for i := range ev.Roll.Terminations {
		t := &ev.Roll.Terminations[i]
		seen[t.Pod.UID] = true
		finding, gap := judgeExit(t, p)
		switch {
		case finding != "":
			out.Findings = append(out.Findings, findingOf(t, finding))
		case gap != "":
			addGaps(&out, gapOf(t, roll.GapExitUnknown, gap))
		default:
			clean++
		}
	}
	addGaps(&out, lostPods(ev, seen)...)
	n := len(ev.Roll.Terminations)
	if out.Summary = fmt.Sprintf("%d of %s ended cleanly", clean, plural(n, "container")); n == 0 {
		out.Summary = "no container ended"
	}
	return out
}

// lostPods names the pods that ended in the roll and of whose containers nothing was seen, but those of which no container
// ever ran, as far as a watch without gaps tells.
func lostPods(ev *Evidence, seen map[string]bool) []roll.Gap {
	var gaps []roll.Gap
	whole := !slices.ContainsFunc(ev.Roll.Gaps, func(g roll.Gap) bool { return g.Resource == roll.ResourcePods || g.Reason == roll.GapLate })
	for _, pod := range ev.Roll.Old {
		if p := ev.Pods[pod.UID]; whole && p != nil && len(p.Containers) == 0 && !p.Created.IsZero() {
			continue
		}
		if !seen[pod.UID] {
			gaps = append(gaps, roll.Gap{
				Reason: roll.GapExitUnknown, Object: pod.String(),
				Detail: "the pod ended in this roll, and the end of none of its containers was observed",
			})
		}
	}
	return gaps
}

// judgeExit returns what speaks against an exit, or else what is not known of it.
func judgeExit(t *roll.Termination, p Params) (finding, gap string) {
	// The kubelet's own word for "I do not know", whatever code comes with it.
	madeUp := t.Reason == "ContainerStatusUnknown"
	switch {
	case t.Reason == "OOMKilled":
		return "killed for using more memory than its limit (OOMKilled)", ""
	case t.ExitCode == nil || madeUp:
		why := "its exit code was not observed"
		if t.Forced {
			why = "it was force-deleted: the pod was removed before its containers ended, so their exit was never reported"
		} else if madeUp {
			why = "the kubelet lost sight of it (ContainerStatusUnknown), so its exit code is not known"
		}
		return "", why
	}
	code := *t.ExitCode
	switch {
	case code == 137:
		return "exit code 137: killed by SIGKILL, at the end of the grace period or for memory", ""
	case slices.Contains(p.AcceptedExitCodes, code):
	case code == 143:
		return "exit code 143: ended by SIGTERM itself, which it did not handle or raised again", ""
	case t.Reason != "" && t.Reason != "Error":
		return fmt.Sprintf("exit code %d (%s)", code, t.Reason), ""
	default:
		return fmt.Sprintf("exit code %d", code), ""
	}

	// The grace period counts for a deleted pod alone; a grace of 0 asks for none.
	granted, known := grace(t)
	if !deleted(t) || known && granted == 0 {
		return "", ""
	}
	if t.Exited.IsZero() {
		return "", "when it exited was not observed, so whether that was within the grace period is not known"
	}
	if !known {
		return "", "the grace period that it was granted was not observed"
	}
	// The kubelet counts the grace period from the moment at which it begins to stop the container, which it may do
	// up to seconds after the API server took the request.
	begun, skew := t.PreStopStarted, p.Skew
	if begun.IsZero() {
		begun = t.Requested
	} else {
		skew = 0 // both are the kubelet's clock
	}
	if begun.IsZero() {
		return "", "when it was asked to stop was not observed"
	}
	deadline := begun.Add(granted, begun.Source)
	if deadline.BeforeBy(t.Exited, skew) == roll.Yes {
		return fmt.Sprintf("exit code %d, but at least %s after its grace period of %s was over",
			code, about(t.Exited.Earliest.Sub(deadline.Latest)), granted), ""
	}
	return "", ""
}
