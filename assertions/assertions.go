// Package assertions holds the checks, one file each, their list ([All]) and the verdict rule ([Judge]).
//
// A check returns findings and gaps, never a verdict: [Judge] decides, in one place, before anything is rendered.
package assertions

import (
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// Evidence is everything that a check may look at for one roll. Checks do not change it.
type Evidence struct {
	// Roll is nil for a check that is [Assertion.Global].
	Roll *roll.Roll
	// Window is the roll's window widened by the padding: what was asked of the backends.
	Window roll.Range
	// Pods are the pods of the timeline, by UID.
	Pods map[string]*roll.Pod
	// Spans are the selected client and server spans that overlap Window, correlated, in order of start.
	Spans []roll.Span
	// SpanGaps are the gaps of the span answer that concern Window.
	SpanGaps []roll.Gap
	// Logs are the lines of all recorded pods with a time in Window, with severity, in order of time.
	Logs []roll.LogLine
	// LogGaps are the gaps of the logs that concern the roll's own window, without its padding: a recording may end
	// with the roll. LogsRecorded says that logs were recorded at all.
	LogGaps      []roll.Gap
	LogsRecorded bool
	// Control is what the control query found; nil when none was made.
	Control *Control
}

// Control is the answer to the question whether the same query finds error spans where there should be some.
type Control struct {
	Required bool
	// Ranges is where it looked: outside the windows.
	Ranges []roll.Range
	Spans  []roll.Span
	Gaps   []roll.Gap
}

// Outcome is what a check found: what speaks against, what is missing, and one line of facts for a person.
type Outcome struct {
	Findings []roll.Finding
	Gaps     []roll.Gap
	Summary  string
}

// Assertion is one check. Its identity and documentation are part of the value, as in go/analysis.
type Assertion struct {
	// ID is stable: it names the assertion in policies and reports. Lower-case kebab.
	ID string
	// Title is one line, Doc a paragraph or more in Markdown: what it proves, what makes it fail, what makes it
	// inconclusive, what to do.
	Title, Doc string
	// Global says that the check looks at the whole and not at one roll: it runs once, with a nil Evidence.Roll.
	Global bool
	// Check does not change the evidence. A pass must say in Outcome.Summary what it saw.
	Check func(ev *Evidence, p Params) Outcome
}

// Params are the knobs of the checks; the zero value is not useful, see [DefaultParams].
type Params struct {
	// AcceptedExitCodes are the exit codes of a clean exit.
	AcceptedExitCodes []int
	// MaxUnknownSeverity is the share of log lines without a severity above which the log check is inconclusive.
	MaxUnknownSeverity float64
	// Skew is the greatest difference assumed between clocks when moments of two clocks are compared.
	Skew time.Duration
}

// DefaultParams are the defaults of a policy that says nothing.
func DefaultParams() Params {
	return Params{AcceptedExitCodes: []int{0}, MaxUnknownSeverity: 0.5, Skew: 0}
}
