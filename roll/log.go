package roll

import "time"

// Severity has OpenTelemetry's SeverityNumber ranges (logs data model): 1 TRACE, 5 DEBUG, 9 INFO, 13 WARN, 17 ERROR,
// 21 FATAL; 0 is unspecified.
type Severity int8

// The severities, each the first number of its range.
const (
	SeverityUnspecified Severity = 0
	SeverityTrace       Severity = 1
	SeverityDebug       Severity = 5
	SeverityInfo        Severity = 9
	SeverityWarn        Severity = 13
	SeverityError       Severity = 17
	SeverityFatal       Severity = 21
)

func (s Severity) String() string {
	switch {
	case s >= SeverityFatal:
		return "FATAL"
	case s >= SeverityError:
		return "ERROR"
	case s >= SeverityWarn:
		return "WARN"
	case s >= SeverityInfo:
		return "INFO"
	case s >= SeverityDebug:
		return "DEBUG"
	case s >= SeverityTrace:
		return "TRACE"
	default:
		return "UNSPECIFIED"
	}
}

// LogLine is one line of a container's log.
type LogLine struct {
	Pod       PodRef
	Container string
	Time      time.Time // the kubelet's stamp (CRI log), ns
	Body      string    // the line without the stamp and without the end of line
	Severity  Severity  // filled in by correlate
	Message   string    // the message inside Body when the format is known, else Body; filled in by correlate
}
