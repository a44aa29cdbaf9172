package assertions

import (
	"fmt"

	"github.com/rolltrace/rolltrace/roll"
)

// EvidenceComplete lists everything that is known to be missing for the roll.
var EvidenceComplete = &Assertion{
	ID:    "evidence-complete",
	Title: "the recording and the backend's answer lack nothing for the roll",
	Doc: `Collects every gap that may hide something of the roll: interrupted watches, a recording that began late, ended early or
has no end, logs that were not read to their end, and everything in which the backend's answer was cut.

**Fails** never: what is missing proves nothing.

**Inconclusive** on any gap, and when the roll was not seen to its end: the last old pod gone and as many new ones
Ready as were wanted.

**What to do:** each gap says what was cut and what to do about it.`,
	Check: checkEvidenceComplete,
}

func checkEvidenceComplete(ev *Evidence, _ Params) Outcome {
	var out Outcome
	addGaps(&out, ev.Roll.Gaps...)
	if !ev.Roll.Completed && !hasReason(out.Gaps, roll.GapEndsEarly) {
		addGaps(&out, roll.Gap{
			Reason: roll.GapEndsEarly, Object: ev.Roll.ID,
			Detail: "the roll was not seen to its end: the last old pod gone and as many new ones Ready as were wanted",
		})
	}
	addGaps(&out, ev.SpanGaps...)
	addGaps(&out, ev.LogGaps...)
	if out.Summary = "nothing is known to be missing"; len(out.Gaps) > 0 {
		out.Summary = fmt.Sprintf("%s in the evidence", plural(len(out.Gaps), "gap"))
	}
	return out
}

func hasReason(gaps []roll.Gap, r roll.GapReason) bool {
	for _, g := range gaps {
		if g.Reason == r {
			return true
		}
	}
	return false
}
