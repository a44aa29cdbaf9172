package correlate

import (
	"strings"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// TestUnsettled walks through a recorded restart: settled before it, not while old pods terminate, which
// `rollout status` does not wait for (kubernetes/kubectl#1628), and settled again after.
func TestUnsettled(t *testing.T) {
	rec := load(t, "rollout-restart")
	first := Derive(rec).Rolls[0]
	at := func(when time.Time, minAge time.Duration) []string {
		cut := *rec
		cut.Lines = nil
		for _, l := range rec.Lines {
			if !l.ReceivedAt.After(when) {
				cut.Lines = append(cut.Lines, l)
			}
		}
		return Unsettled(&cut, minAge, when)
	}
	if why := at(first.Window.Start.Add(-20*time.Millisecond), 0); len(why) != 0 {
		t.Errorf("before the roll: %v", why)
	}
	if why := at(first.Window.Start.Add(-20*time.Millisecond), time.Minute); len(why) == 0 || !strings.Contains(why[0], "younger than") {
		t.Errorf("a ReplicaSet was made less than a minute ago: %v", why)
	}
	var last roll.Termination
	for _, x := range first.Terminations {
		if x.Exited.Latest.After(last.Exited.Latest) {
			last = x
		}
	}
	if why := at(last.Signaled.Latest, 0); len(why) == 0 || !strings.Contains(strings.Join(why, "\n"), "terminating") {
		t.Errorf("an old pod is terminating: %v", why)
	}
	if why := at(rec.Last, 0); len(why) != 0 {
		t.Errorf("at the end: %v", why)
	}
	stuck := load(t, "stuck")
	if why := Unsettled(stuck, 0, stuck.Last); len(why) != 0 {
		t.Errorf("stuck, then undone: %v", why)
	}
}
