package roll

import (
	"slices"
	"strings"
	"time"
)

// GapReason says in one stable word why evidence is, or may be, missing.
type GapReason string

// The reasons. The set is part of the report format; each is documented in docs/assertions.md.
const (
	// Of the recording.
	GapWatch         GapReason = "watch-gap"          // a watch was interrupted and had to list again
	GapNoFooter      GapReason = "no-footer"          // the recorder did not end on purpose
	GapTornLine      GapReason = "torn-line"          // the last line of the file is not whole
	GapUnreadable    GapReason = "unreadable-line"    // a line in the middle of the file is not readable
	GapLate          GapReason = "recording-late"     // a roll or termination was under way before the recording began
	GapEndsEarly     GapReason = "recording-ends"     // a roll or termination was still under way when the recording ended
	GapNotRecorded   GapReason = "not-recorded"       // a resource that the question needs was never recorded
	GapNoReceiptTime GapReason = "no-receipt-time"    // the source does not say when its events were received
	GapExitUnknown   GapReason = "exit-unknown"       // a container's exit, or its code, was not observed
	GapSignalUnknown GapReason = "signal-unknown"     // when SIGTERM was sent could not be bounded
	GapLogs          GapReason = "log-gap"            // a container's log was not read to its end
	GapNoLogs        GapReason = "no-logs"            // no log of a container was recorded at all
	GapSeverity      GapReason = "severity-unknown"   // too many log lines carry no severity
	GapNoRolls       GapReason = "no-rolls"           // the recording holds no roll
	GapSource        GapReason = "source-contradicts" // a further source does not fit the recording
	GapHookUnknown   GapReason = "prestop-unobserved" // whether the preStop hook was honoured cannot be told
	// Of the span backend.
	GapNoSpans        GapReason = "no-spans"          // a window that must hold traffic holds no span
	GapSpanLimit      GapReason = "span-limit"        // a server limit cut the answer
	GapJobsUnfinished GapReason = "jobs-unfinished"   // the server stopped before it had looked everywhere
	GapPartialTrace   GapReason = "partial-trace"     // a trace came back partial
	GapNotCaughtUp    GapReason = "not-caught-up"     // the backend may not have stored the last spans yet
	GapUnstable       GapReason = "scans-differ"      // two scans of the same window disagreed
	GapCountMismatch  GapReason = "count-mismatch"    // the server's own count differs from what it returned
	GapDiscarded      GapReason = "spans-discarded"   // the backend says that it dropped spans
	GapBackendError   GapReason = "backend-error"     // a request failed for good
	GapStreamCut      GapReason = "stream-cut"        // an answer ended before its end
	GapDeadline       GapReason = "deadline"          // time ran out before everything was fetched
	GapUnattributed   GapReason = "unattributed"      // spans that touch no known pod
	GapMalformedSpan  GapReason = "malformed-span"    // a span that cannot be placed (no id, end before start, …)
	GapNoControl      GapReason = "no-control"        // a control that was asked for was not found
	GapClockSkew      GapReason = "clock-skew"        // clocks differ by more than the question can bear
	GapCheckFailed    GapReason = "check-failed"      // the check itself could not run
	GapUnsupported    GapReason = "unsupported"       // the server's version cannot answer this safely
	GapTooManyErrors  GapReason = "retries-exhausted" // the server kept refusing
)

// GapReasons is every reason with what it means, in the order of the documentation.
var GapReasons = []struct {
	Reason GapReason
	Doc    string
}{
	{GapWatch, "a watch was interrupted and had to list again"},
	{GapNoFooter, "the recorder did not end on purpose"},
	{GapTornLine, "the last line of the file is not whole"},
	{GapUnreadable, "a line in the middle of the file is not readable"},
	{GapLate, "a roll or termination was under way before the recording began"},
	{GapEndsEarly, "a roll or termination was still under way when the recording ended"},
	{GapNotRecorded, "a resource that the question needs was never recorded"},
	{GapNoReceiptTime, "the source does not say when its events were received"},
	{GapExitUnknown, "a container's exit, or its code, was not observed"},
	{GapSignalUnknown, "when SIGTERM was sent could not be bounded"},
	{GapLogs, "a container's log was not read to its end"},
	{GapNoLogs, "no log of a container was recorded at all"},
	{GapSeverity, "too many log lines carry no severity"},
	{GapNoRolls, "the recording holds no roll"},
	{GapSource, "a further source does not fit the recording"},
	{GapHookUnknown, "whether the preStop hook was honoured cannot be told"},
	{GapNoSpans, "a window that must hold traffic holds no span"},
	{GapSpanLimit, "a server limit cut the answer"},
	{GapJobsUnfinished, "the server stopped before it had looked everywhere"},
	{GapPartialTrace, "a trace came back partial"},
	{GapNotCaughtUp, "the backend may not have stored the last spans yet"},
	{GapUnstable, "two scans of the same window disagreed"},
	{GapCountMismatch, "the server's own count differs from what it returned"},
	{GapDiscarded, "the backend says that it dropped spans"},
	{GapBackendError, "a request failed for good"},
	{GapStreamCut, "an answer ended before its end"},
	{GapDeadline, "time ran out before everything was fetched"},
	{GapUnattributed, "spans that touch no known pod"},
	{GapMalformedSpan, "a span that cannot be placed (no id, end before start, …)"},
	{GapNoControl, "a control that was asked for was not found"},
	{GapClockSkew, "clocks differ by more than the question can bear"},
	{GapCheckFailed, "the check itself could not run"},
	{GapUnsupported, "the server's version cannot answer this safely"},
	{GapTooManyErrors, "the server kept refusing"},
}

// Gap is one piece of evidence that is, or may be, missing, and from where.
type Gap struct {
	Reason GapReason `json:"reason"`
	// Detail is one line for a person: what was cut and what to do about it. It never holds a secret.
	Detail string `json:"detail,omitempty"`
	// From and To bound the time about which nothing is known; zero when the gap is not one of time.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Resource is the Kubernetes resource ("pods") for a gap of the watch, else empty.
	Resource string `json:"resource,omitempty"`
	// Object is what the gap is about: a pod, a container, a trace id; empty when it is about everything.
	Object string `json:"object,omitempty"`
}

func (g Gap) String() string {
	s := string(g.Reason)
	if g.Object != "" {
		s += " " + g.Object
	}
	if g.Detail != "" {
		s += ": " + g.Detail
	}
	return s
}

// Overlaps reports whether the gap may hide something in [start, end). A gap without times always does.
func (g Gap) Overlaps(start, end time.Time) bool {
	if g.From.IsZero() && g.To.IsZero() {
		return true
	}
	return (g.From.IsZero() || g.From.Before(end)) && (g.To.IsZero() || !g.To.Before(start))
}

// Coverage says how complete an answer is: complete exactly when it has no gap.
type Coverage struct {
	Gaps []Gap `json:"gaps,omitempty"`
}

// Complete reports whether nothing is known to be missing.
func (c Coverage) Complete() bool { return len(c.Gaps) == 0 }

// Add appends gaps, dropping exact repetitions.
func (c *Coverage) Add(gaps ...Gap) {
	for _, g := range gaps {
		if !slices.Contains(c.Gaps, g) {
			c.Gaps = append(c.Gaps, g)
		}
	}
}

// Within returns the gaps that may hide something in [start, end).
func (c Coverage) Within(start, end time.Time) []Gap {
	var out []Gap
	for _, g := range c.Gaps {
		if g.Overlaps(start, end) {
			out = append(out, g)
		}
	}
	return out
}

func (c Coverage) String() string {
	if c.Complete() {
		return "complete"
	}
	parts := make([]string, len(c.Gaps))
	for i, g := range c.Gaps {
		parts[i] = g.String()
	}
	return strings.Join(parts, "; ")
}
