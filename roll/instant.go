package roll

import (
	"encoding/json"
	"fmt"
	"time"
)

// Source names the signal that bounds an [Instant], and with it the clock that stamped it.
type Source string

// The sources. "API server", "kubelet" and "observer" name the clock.
const (
	SourceDeletionTimestamp Source = "deletion-timestamp"  // API server, 1 s: deletionTimestamp − deletionGracePeriodSeconds
	SourceFinalDelete       Source = "final-delete"        // API server, 1 s: deletionTimestamp once the grace is 0
	SourceWatch             Source = "watch"               // observer, ns: between two receipts of the watch
	SourceRelist            Source = "relist"              // observer, ns: vanished between the last sight and a relist
	SourceKillingEvent      Source = "killing-event"       // kubelet, ns: UnixNano in the Killing event's name (client-go makeEvent)
	SourceEventTime         Source = "event-time"          // kubelet, 1 s: lastTimestamp of an event
	SourcePreStopSleep      Source = "prestop-sleep"       // kubelet: Killing + the sleep that the spec asks for
	SourceNoPreStop         Source = "no-prestop"          // kubelet: Killing, no hook to wait for
	SourcePreStopFailed     Source = "prestop-failed"      // kubelet: the FailedPreStopHook event
	SourcePreStopBound      Source = "prestop-bound"       // kubelet: between Killing and the grace's end or the exit
	SourceSidecarOrder      Source = "sidecar-order"       // kubelet: after the last main container's exit
	SourceGraceBound        Source = "grace-bound"         // API server: between the request and the grace's end or the exit
	SourceContainerStatus   Source = "container-status"    // kubelet, 1 s: state.terminated.finishedAt
	SourceLastState         Source = "container-lastState" // kubelet, 1 s: lastState.terminated.finishedAt
	SourceLog               Source = "log"                 // kubelet, ns: a log line of the container
	SourceAudit             Source = "audit-log"           // API server, µs: a request in its audit log
	SourceRuntime           Source = "runtime-event"       // node, ns: the container runtime's own event
	SourceKubeletLog        Source = "kubelet-log"         // kubelet, µs: its line before it has the signal sent
	SourceSpan              Source = "span"                // application, ns: a span or span event of its shutdown
)

// Instant is a moment known to lie in [Earliest, Latest]. Both are UTC. The zero Instant means "not observed".
// Compare two with [Instant.Before]; never compare midpoints.
type Instant struct {
	Earliest time.Time // inclusive
	Latest   time.Time // inclusive
	Source   Source
}

// At returns the Instant [t, t].
func At(t time.Time, s Source) Instant { return Instant{t.UTC(), t.UTC(), s} }

// Second returns the Instant of a metav1.Time, which is truncated: [t, t+1s).
func Second(t time.Time, s Source) Instant {
	return Instant{t.UTC(), t.UTC().Add(time.Second - time.Nanosecond), s}
}

// IsZero reports whether the moment was not observed.
func (i Instant) IsZero() bool { return i.Earliest.IsZero() && i.Latest.IsZero() }

// Width is Latest − Earliest.
func (i Instant) Width() time.Duration { return i.Latest.Sub(i.Earliest) }

// Contains reports whether t lies within the bounds.
func (i Instant) Contains(t time.Time) bool {
	return !i.IsZero() && !t.Before(i.Earliest) && !t.After(i.Latest)
}

// Add shifts both bounds by d and names the new source.
func (i Instant) Add(d time.Duration, s Source) Instant {
	if i.IsZero() {
		return Instant{}
	}
	return Instant{i.Earliest.Add(d), i.Latest.Add(d), s}
}

// Order answers whether one moment came before another.
type Order int

// Maybe is the zero value: bounds that overlap, or a moment that was not observed, decide nothing.
const (
	Maybe Order = iota
	Yes
	No
)

func (o Order) String() string {
	switch o {
	case Yes:
		return "yes"
	case No:
		return "no"
	default:
		return "maybe"
	}
}

// Before reports whether i came before j: Yes only if all of i lies before all of j, No only if none of it does.
func (i Instant) Before(j Instant) Order { return i.BeforeBy(j, 0) }

// BeforeBy is [Instant.Before] for two moments stamped by different clocks that may differ by up to skew either way.
func (i Instant) BeforeBy(j Instant, skew time.Duration) Order {
	switch {
	case i.IsZero() || j.IsZero():
		return Maybe
	case i.Latest.Add(skew).Before(j.Earliest):
		return Yes
	case !i.Earliest.Add(-skew).Before(j.Latest):
		return No
	default:
		return Maybe
	}
}

type instantJSON struct {
	Earliest time.Time `json:"earliest"`
	Latest   time.Time `json:"latest"`
	Source   Source    `json:"source"`
}

// MarshalJSON writes {"earliest","latest","source"} with RFC 3339 nanoseconds, or null when not observed.
func (i Instant) MarshalJSON() ([]byte, error) {
	if i.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(instantJSON(i))
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (i *Instant) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*i = Instant{}
		return nil
	}
	var j instantJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("read instant: %w", err)
	}
	*i = Instant{j.Earliest.UTC(), j.Latest.UTC(), j.Source}
	return nil
}
