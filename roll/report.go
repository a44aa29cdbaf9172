package roll

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// ReportSchema is the version of the report format.
const ReportSchema = 1

// Report is the whole answer. It can be rendered again from its JSON, without any backend.
type Report struct {
	Schema  int     `json:"schema"`
	Tool    string  `json:"tool,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Policy is the name of the policy that was applied, "" for the defaults.
	Policy  string       `json:"policy,omitempty"`
	Rolls   []RollReport `json:"rolls"`
	Results []Result     `json:"results"`
	// Waivers says what each waiver of the policy did; one with Count 0 was not used.
	Waivers []WaiverUse `json:"waivers,omitempty"`
	Backend BackendInfo `json:"backend,omitzero"`
	// Recorded is the time that the recording covers.
	Recorded Range `json:"recorded,omitzero"`
	// Gaps are everything that is known to be missing, whichever check it concerned.
	Gaps []Gap `json:"gaps,omitempty"`
	// Control is what the control query found outside the windows; nil when none was made.
	Control *ControlReport `json:"control,omitempty"`
	// Padding is what windows were widened by on both sides for the queries.
	Padding time.Duration `json:"padding_ns,omitempty"`
}

// ControlReport is the answer to the question whether the same query finds error spans where there are some.
type ControlReport struct {
	Required bool `json:"required,omitempty"`
	// Ranges is where it looked, outside the padded windows; Errors counts the spans with status error found there.
	Ranges []Range `json:"ranges"`
	Errors int     `json:"errors"`
}

// BackendInfo says what was asked.
type BackendInfo struct {
	Name    string `json:"name"` // "tempo", "otlp-file"
	Address string `json:"address,omitempty"`
	Version string `json:"version,omitempty"`
	Query   string `json:"query,omitempty"`
	// Barrier says how it was made sure that the backend had caught up, Waited how long that took.
	Barrier string        `json:"barrier,omitempty"`
	Waited  time.Duration `json:"waited_ns,omitempty"`
	Scans   int           `json:"scans,omitempty"`
}

// RollReport is one roll's part.
type RollReport struct {
	ID           string        `json:"id"`
	Workload     Workload      `json:"workload"`
	From         string        `json:"from"`
	To           string        `json:"to"`
	Cause        Cause         `json:"cause"`
	Verdict      Verdict       `json:"verdict"`
	Window       Range         `json:"window"`
	Completed    bool          `json:"completed"`
	Terminations []Termination `json:"terminations"`
	Spans        SpanCounts    `json:"spans"`
	Logs         LogCounts     `json:"logs"`
}

// SpanCounts are the unique client and server spans that overlap a roll's padded window.
type SpanCounts struct {
	Client       int `json:"client"`
	Server       int `json:"server"`
	Errors       int `json:"errors"` // with span status error
	Unattributed int `json:"unattributed"`
	// Elsewhere are the spans of namespaces that were not recorded and that nothing ties to a recorded pod. They are in none
	// of the other counts.
	Elsewhere int `json:"elsewhere,omitempty"`
	// TouchedTerminating counts the spans that ran on, or called, a pod in preStop or drain for certain; of these Errors
	// have span status error. ByPhase counts server spans by the phase of their pod at their start.
	TouchedTerminating       int           `json:"touched_terminating"`
	TouchedTerminatingErrors int           `json:"touched_terminating_errors"`
	ServerByPhase            map[Phase]int `json:"server_by_phase,omitempty"`
	// ServedInPreStop and ServedInDrain count the server spans that a pod served, in whole or in part, while it was for
	// certain in that phase; one that saw both is counted as in preStop.
	ServedInPreStop int `json:"served_in_pre_stop"`
	ServedInDrain   int `json:"served_in_drain"`
}

// LogCounts are the log lines in a roll's window.
type LogCounts struct {
	Lines      int `json:"lines"`
	Warn       int `json:"warn"`  // WARN
	Error      int `json:"error"` // ERROR and FATAL
	NoSeverity int `json:"no_severity"`
	Waived     int `json:"waived"`
}

// Result is what one assertion says of one roll, or of the whole when Roll is "".
type Result struct {
	Assertion string  `json:"assertion"`
	Roll      string  `json:"roll"`
	Verdict   Verdict `json:"verdict"`
	// Summary is one line of facts, with numbers: also of a pass.
	Summary string `json:"summary,omitempty"`
	// Reasons are the distinct reasons of Gaps, for scripts.
	Reasons  []GapReason `json:"reasons"`
	Findings []Finding   `json:"findings"`
	Waived   []Finding   `json:"waived"`
	Gaps     []Gap       `json:"gaps,omitempty"`
}

// Finding is one fact that speaks against the assertion. Fields that do not apply are empty.
type Finding struct {
	Message string `json:"message"`
	// Severity is a log line's (WARN, ERROR, FATAL); Count is how many identical lines of one container the finding stands
	// for, 0 for one.
	Severity string    `json:"severity,omitempty"`
	Count    int       `json:"count,omitempty"`
	Time     time.Time `json:"time,omitzero"` // whose clock: the span's application or the kubelet's, by what it is about
	Pod      string    `json:"pod,omitempty"` // namespace/name
	// Container is the container's name, Phase the pod's phase when it happened (EndPhase: when it ended, if other).
	Container string `json:"container,omitempty"`
	Phase     Phase  `json:"phase,omitempty"`
	EndPhase  Phase  `json:"end_phase,omitempty"`
	// Peer is the other side of the call: namespace/name of the pod; PeerPhase its phase at the call's end.
	Peer      string `json:"peer,omitempty"`
	PeerPhase Phase  `json:"peer_phase,omitempty"`
	Service   string `json:"service,omitempty"`
	SpanName  string `json:"span_name,omitempty"`
	SpanKind  string `json:"span_kind,omitempty"`
	TraceID   string `json:"trace_id,omitempty"`
	SpanID    string `json:"span_id,omitempty"`
	// Attribution says how Pod (or Peer, for a client span) was found.
	Attribution Attribution `json:"attribution,omitempty"`
	// Waiver is the name of the waiver that accepts it; Reason and Link are the waiver's.
	Waiver string `json:"waiver,omitempty"`
	Reason string `json:"reason,omitempty"`
	Link   string `json:"link,omitempty"`
}

// WaiverUse is a waiver and how many findings it accepted.
type WaiverUse struct {
	Name      string `json:"name"`
	Assertion string `json:"assertion"`
	Reason    string `json:"reason"`
	Link      string `json:"link,omitempty"`
	Count     int    `json:"count"`
}

// ReadReport reads a report's JSON. A report of another schema, one that lacks a verdict, and one whose verdict is not the
// worst of its results' is an error.
func ReadReport(r io.Reader) (*Report, error) {
	var rep Report
	if err := json.NewDecoder(r).Decode(&rep); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if rep.Schema != ReportSchema {
		return nil, fmt.Errorf("read report: schema %d, this rolltrace reads schema %d", rep.Schema, ReportSchema)
	}
	if rep.Verdict < Pass || rep.Verdict > Fail {
		return nil, fmt.Errorf("read report: it holds no verdict")
	}
	verdicts := make([]Verdict, len(rep.Results))
	for i := range rep.Results {
		verdicts[i] = rep.Results[i].Verdict
	}
	if w := Worst(verdicts...); w != rep.Verdict {
		return nil, fmt.Errorf("read report: its verdict is %s, but that of its results is %s", rep.Verdict, w)
	}
	return &rep, nil
}
