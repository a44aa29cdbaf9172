package roll

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// TraceID and SpanID are W3C ids. Their text is lower-case hex at full width; Tempo's search drops leading zeros, so
// reading pads (tempo-facts: 31 hex characters seen).
type (
	TraceID [16]byte
	SpanID  [8]byte
)

// IsZero reports whether the id is the invalid all-zero one.
func (t TraceID) IsZero() bool { return t == TraceID{} }

// IsZero reports whether the id is the invalid all-zero one; a zero parent means a root span.
func (s SpanID) IsZero() bool { return s == SpanID{} }

func (t TraceID) String() string { return hex.EncodeToString(t[:]) }
func (s SpanID) String() string  { return hex.EncodeToString(s[:]) }

// MarshalText writes full-width hex.
func (t TraceID) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// MarshalText writes full-width hex.
func (s SpanID) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads hex, padding on the left.
func (t *TraceID) UnmarshalText(b []byte) (err error) { *t, err = ParseTraceID(string(b)); return err }

// UnmarshalText reads hex, padding on the left.
func (s *SpanID) UnmarshalText(b []byte) (err error) { *s, err = ParseSpanID(string(b)); return err }

// ParseTraceID reads up to 32 hex characters, padding on the left.
func ParseTraceID(s string) (id TraceID, err error) {
	return id, parseHex(id[:], s, "trace id")
}

// ParseSpanID reads up to 16 hex characters, padding on the left.
func ParseSpanID(s string) (id SpanID, err error) {
	return id, parseHex(id[:], s, "span id")
}

func parseHex(dst []byte, s, what string) error {
	if len(s) > 2*len(dst) || s == "" {
		return fmt.Errorf("read %s: %q has %d characters, want 1 to %d", what, s, len(s), 2*len(dst))
	}
	if pad := 2*len(dst) - len(s); pad > 0 {
		s = strings.Repeat("0", pad) + s
	}
	if _, err := hex.Decode(dst, []byte(s)); err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}

// SpanKind has OTLP's numbers (trace.proto, Span.SpanKind).
type SpanKind int8

// The span kinds.
const (
	KindUnspecified SpanKind = iota
	KindInternal
	KindServer
	KindClient
	KindProducer
	KindConsumer
)

func (k SpanKind) String() string {
	switch k {
	case KindInternal:
		return "internal"
	case KindServer:
		return "server"
	case KindClient:
		return "client"
	case KindProducer:
		return "producer"
	case KindConsumer:
		return "consumer"
	default:
		return "unspecified"
	}
}

// MarshalText writes TraceQL's word for the kind.
func (k SpanKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads TraceQL's word; an unknown one is KindUnspecified.
func (k *SpanKind) UnmarshalText(b []byte) error {
	*k = KindUnspecified
	for c := KindInternal; c <= KindConsumer; c++ {
		if c.String() == string(b) {
			*k = c
		}
	}
	return nil
}

// StatusCode has OTLP's numbers (trace.proto, Status.StatusCode). A success leaves it unset.
type StatusCode int8

// The status codes.
const (
	StatusUnset StatusCode = iota
	StatusOK
	StatusError
)

func (c StatusCode) String() string {
	switch c {
	case StatusOK:
		return "ok"
	case StatusError:
		return "error"
	default:
		return "unset"
	}
}

// MarshalText writes TraceQL's word for the status.
func (c StatusCode) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads TraceQL's word; an unknown one is unset.
func (c *StatusCode) UnmarshalText(b []byte) error {
	switch string(b) {
	case "ok":
		*c = StatusOK
	case "error":
		*c = StatusError
	default:
		*c = StatusUnset
	}
	return nil
}

// Attribute is one OpenTelemetry attribute. Value is the value as text: a number in decimal, a bool as true or false,
// an array or map as JSON.
type Attribute struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Attributes is a list of attributes with unique keys.
type Attributes []Attribute

// Get returns the value of key, and whether it is there.
func (a Attributes) Get(key string) (string, bool) {
	for i := range a {
		if a[i].Key == key {
			return a[i].Value, true
		}
	}
	return "", false
}

// First returns the value of the first of the keys that is there and not empty.
func (a Attributes) First(keys ...string) string {
	for _, k := range keys {
		if v, ok := a.Get(k); ok && v != "" {
			return v
		}
	}
	return ""
}

// Resource is what emitted a span. Backends share one *Resource among its spans; it is not changed after that.
type Resource struct {
	Attributes Attributes
}

// Service returns service.name, or "".
func (r *Resource) Service() string {
	if r == nil {
		return ""
	}
	return r.Attributes.First("service.name")
}

// SpanEvent is a span event, such as an exception.
type SpanEvent struct {
	Name       string
	Time       time.Time // the application's clock
	Attributes Attributes
}

// Span is one client or server span. Start is the application's clock, ns; so is the end, Start + Duration.
//
// The fields down to Events come from a backend; the others are filled in by correlate.
type Span struct {
	TraceID       TraceID
	SpanID        SpanID
	ParentID      SpanID // zero: a root span
	Kind          SpanKind
	Status        StatusCode
	Name          string
	Start         time.Time
	Duration      time.Duration
	StatusMessage string
	Resource      *Resource // never nil
	Attributes    Attributes
	Events        []SpanEvent // in order of time

	// Pod is the pod that emitted the span, nil when it is not known; Attribution says how it was found.
	Pod         *Pod
	Attribution Attribution
	// Phase is the phase of Pod when the span started, EndPhase when it ended.
	Phase    Phase
	EndPhase Phase
	// Peer is, for a client span, the pod that was called; for a server span, the pod that called. Nil when not known.
	// PeerAttribution says how it was found, PeerPhase and PeerEndPhase what phase it was in when this span started
	// and ended.
	Peer            *Pod
	PeerAttribution Attribution
	PeerPhase       Phase
	PeerEndPhase    Phase
	Outcome         Outcome
}

// End is Start + Duration.
func (s *Span) End() time.Time { return s.Start.Add(s.Duration) }

// Overlaps reports whether any moment of the span, its end included, lies in [start, end).
func (s *Span) Overlaps(start, end time.Time) bool {
	return s.Start.Before(end) && !s.End().Before(start)
}

// Attribution says how a span's pod was found, strongest first.
type Attribution string

// The attributions.
const (
	AttributedByPodUID      Attribution = "pod-uid"         // resource k8s.pod.uid
	AttributedByPodName     Attribution = "pod-name"        // resource k8s.pod.name (+ k8s.namespace.name)
	AttributedByInstanceID  Attribution = "instance-id"     // resource service.instance.id
	AttributedByHostName    Attribution = "host-name"       // resource host.name
	AttributedByIP          Attribution = "ip-at-that-time" // a pod IP, valid when the span ran: k8s.pod.ip
	AttributedByPeerAddress Attribution = "peer-address"    // network.peer.address or server.address when it is an IP
	AttributedByParentChild Attribution = "parent-child"    // the other side of the same call
	AttributedByNone        Attribution = "none"
)

// Phase is what a pod was doing at a moment.
type Phase string

// The phases, in order of a pod's life. PhaseUnsure: the bounds allow more than one.
const (
	PhaseBefore    Phase = "before"     // the pod did not exist yet
	PhaseStartup   Phase = "startup"    // created, not Ready yet
	PhaseServing   Phase = "serving"    // Ready, its deletion not requested
	PhasePreStop   Phase = "preStop"    // deletion requested, SIGTERM not sent yet
	PhaseDrain     Phase = "drain"      // SIGTERM sent, not exited
	PhaseAfterExit Phase = "after-exit" // exited
	PhaseUnsure    Phase = "unsure"
	PhaseUnknown   Phase = "" // no pod
)

// Terminating reports whether the phase lies between the request of the deletion and the exit for certain.
func (p Phase) Terminating() bool { return p == PhasePreStop || p == PhaseDrain }

// Outcome is what became of a call by a named policy.
type Outcome string

// The outcomes.
const (
	OutcomeOK        Outcome = "ok"
	OutcomeError     Outcome = "error"
	OutcomeCancelled Outcome = "cancelled"
)
