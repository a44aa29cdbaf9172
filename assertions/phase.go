package assertions

import (
	"slices"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// cutIn says in which phase of the pod p a failed call ended that ran on it from start to end, both the application's
// clock, when the phase at its end alone is unsure. It returns the phase, PhaseUnsure when more than one is possible,
// and those that are.
//
// Two things are known of a call that are not known of a moment. A call that was in flight before the exit ended at the
// exit at the latest, however long its caller took to see that: what cut it was the drain. And where no container has a
// preStop hook, nothing but the kubelet's own delay lies between the request and SIGTERM, so a call that failed then,
// once SIGTERM may have been sent, failed for the stop.
func cutIn(p *roll.Pod, start, end time.Time, skew time.Duration) (roll.Phase, []roll.Phase) {
	if p == nil || !p.Deleted || p.Requested.IsZero() {
		return roll.PhaseUnsure, nil
	}
	from := func(i roll.Instant) bool { return i.IsZero() || !end.Before(i.Earliest.Add(-skew)) } // end may lie after i
	until := func(i roll.Instant) bool { return i.IsZero() || !end.After(i.Latest.Add(skew)) }    // end may lie before i
	requested := p.Requested
	requested.Latest = askedBy(p)
	var possible []roll.Phase
	if until(requested) {
		possible = append(possible, roll.PhaseServing)
	}
	if from(p.Requested) && until(p.Signaled) {
		possible = append(possible, roll.PhasePreStop)
	}
	inFlight := false
	for _, i := range []roll.Instant{p.Requested, p.Signaled, p.Exited} { // each is no later than the exit
		inFlight = inFlight || !i.IsZero() && start.Before(i.Earliest.Add(-skew))
	}
	if from(p.Signaled) && (until(p.Exited) || inFlight) {
		possible = append(possible, roll.PhaseDrain)
	}
	if from(p.Exited) && !inFlight {
		possible = append(possible, roll.PhaseAfterExit)
	}
	if slices.Equal(possible, []roll.Phase{roll.PhasePreStop, roll.PhaseDrain}) && hookless(p) {
		possible = possible[1:]
	}
	if len(possible) == 1 {
		return possible[0], possible
	}
	return roll.PhaseUnsure, possible
}

// askedBy is the latest moment of the request: no later than when the watch told of it, and than when the kubelet
// began to stop a container for it, as far as its event is stamped finer than in whole seconds.
func askedBy(p *roll.Pod) time.Time {
	latest := p.Requested.Latest
	sooner := func(t time.Time) {
		if t.After(p.Requested.Earliest) && t.Before(latest) {
			latest = t
		}
	}
	sooner(p.DeletionSeen)
	for i := range p.Terminations {
		t := &p.Terminations[i]
		if t.PreStopStarted.Source == roll.SourceKillingEvent {
			sooner(t.PreStopStarted.Earliest)
		}
		if k := t.Signaled.Earliest; t.Signaled.Source == roll.SourceNoPreStop && k.Nanosecond() != 0 && !t.Requested.IsZero() {
			sooner(k)
		}
	}
	return latest
}

// hookless reports that the ends of the pod's containers are known and none of them had a preStop hook.
func hookless(p *roll.Pod) bool {
	for i := range p.Terminations {
		if p.Terminations[i].PreStop.Kind != roll.PreStopNone {
			return false
		}
	}
	return len(p.Terminations) > 0
}

// oneOf writes "preStop or drain".
func oneOf(ps []roll.Phase) string {
	parts := make([]string, len(ps))
	for i, p := range ps {
		parts[i] = string(p)
	}
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " or " + parts[n-1]
	}
	return strings.Join(parts, "")
}
