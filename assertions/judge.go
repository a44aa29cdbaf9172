package assertions

import (
	"fmt"
	"slices"

	"github.com/rolltrace/rolltrace/roll"
)

// All is the list of checks, in the order of the report.
var All = []*Assertion{
	NoErrorSpans,
	NoWarnLogs,
	CleanExit,
	PreStopHonoured,
	TrafficCovered,
	EvidenceComplete,
	ControlFound,
}

// ByID returns the check of that id, nil when there is none.
func ByID(id string) *Assertion {
	for _, a := range All {
		if a.ID == id {
			return a
		}
	}
	return nil
}

// Judge is the verdict rule, and the only place that holds it:
//
//   - a finding that no waiver accepts is a fail, whatever else is missing: a proof of an error needs no complete evidence;
//   - else a gap in what the check needs is inconclusive, and so is a check that does not say what it saw;
//   - else it is a pass.
//
// The findings of out are those that are left after waivers.
func Judge(out Outcome) roll.Verdict {
	switch {
	case len(out.Findings) > 0:
		return roll.Fail
	case len(out.Gaps) > 0 || out.Summary == "":
		return roll.Inconclusive
	default:
		return roll.Pass
	}
}

// Run runs one check, applies the waivers of the policy and judges. A check that panics, or that says nothing, is
// inconclusive with a check-failed gap. A nil policy has no waivers.
func Run(a *Assertion, ev *Evidence, p Params, policy *Policy) roll.Result {
	out := attempt(a, ev, p)
	out.Findings, out.Gaps = slices.Clip(out.Findings), slices.Clip(out.Gaps)
	if out.Summary == "" && len(out.Findings) == 0 && len(out.Gaps) == 0 {
		out.Gaps = append(out.Gaps, checkFailed(a, "it did not say what it saw"))
	}
	open, waived := policy.waive(a.ID, out.Findings)
	out.Findings = open

	res := roll.Result{
		Assertion: a.ID,
		Verdict:   Judge(out),
		Summary:   out.Summary,
		Reasons:   []roll.GapReason{},
		Findings:  open,
		Waived:    waived,
		Gaps:      out.Gaps,
	}
	if ev.Roll != nil {
		res.Roll = ev.Roll.ID
	}
	for _, g := range out.Gaps {
		if !slices.Contains(res.Reasons, g.Reason) {
			res.Reasons = append(res.Reasons, g.Reason)
		}
	}
	return res
}

// attempt runs the check and turns a panic into a gap: a bug in a check is never a pass.
func attempt(a *Assertion, ev *Evidence, p Params) (out Outcome) {
	defer func() {
		if r := recover(); r != nil {
			out = Outcome{Gaps: []roll.Gap{checkFailed(a, fmt.Sprint(r))}}
		}
	}()
	return a.Check(ev, p)
}

func checkFailed(a *Assertion, why string) roll.Gap {
	return roll.Gap{
		Reason: roll.GapCheckFailed,
		Object: a.ID,
		Detail: "the check could not run: " + why + "; this is a defect of rolltrace, please report it",
	}
}
