package correlate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rolltrace/rolltrace/roll"
)

// TestRolls says what rolls each recorded scenario holds: workload, cause, how many pods went, and whether it was over.
func TestRolls(t *testing.T) {
	want := map[string]string{
		"apiserver-410":           "deployment/web rollout 2",
		"apiserver-down-liveness": "deployment/web liveness 0",
		"apiserver-restart":       "deployment/web rollout 2",
		"crash":                   "deployment/web crash 0, deployment/web crash 0, deployment/web crash 0",
		"daemonset":               "daemonset/web rollout 1, daemonset/web rollout 1",
		"delete-deployment":       "deployment/web owner-delete 2",
		"delete-grace1":           "deployment/web delete 1",
		"drain":                   "deployment/web eviction 2",
		"eviction-pdb":            "deployment/web eviction 1",
		"exit-code":               "deployment/web rollout 2",
		"force-delete":            "deployment/web delete 1",
		"ignore-term":             "deployment/web rollout 2",
		"job":                     "job/j owner-delete 1",
		"kubelet-down-exit":       "deployment/web delete 1",
		"kubelet-restart-drain":   "deployment/web delete 1",
		"kubelet-restart-prestop": "deployment/web delete 1",
		"kubelet-term-prestop":    "deployment/web delete 1",
		"liveness":                "deployment/web liveness 0, deployment/web liveness 0",
		"multi-container":         "deployment/web rollout 2",
		"native-sidecar":          "deployment/web rollout 2",
		"no-prestop":              "deployment/web rollout 2, deployment/web rollout 2",
		"oom":                     "deployment/web oom 0, deployment/web oom 0, deployment/web oom 0",
		"paused":                  "deployment/web rollout 2",
		"pod-delete":              "deployment/web delete 1, deployment/web delete 1",
		"prestop-exec":            "deployment/web rollout 2, deployment/web rollout 2",
		"prestop-fails":           "deployment/web rollout 2",
		"prestop-http":            "deployment/web rollout 2, deployment/web rollout 2",
		"prestop-http-refused":    "deployment/web rollout 2",
		"prestop-missing-bin":     "deployment/web rollout 2",
		"prestop-outlives":        "deployment/web rollout 2",
		"recreate":                "deployment/web rollout 2",
		"rollout-restart":         "deployment/web rollout 2, deployment/web rollout 2, deployment/web rollout 2",
		"scale-down":              "deployment/web scale-down 2",
		"seed-chaos-delete":       "deployment/internal-api delete 1, deployment/internal-api delete 1, deployment/internal-api delete 1",
		"seed-close-nohook":       "deployment/internal-api rollout 2, deployment/internal-api rollout 2",
		"seed-cut":                "deployment/internal-api rollout 2, deployment/internal-api rollout 2",
		"seed-drain-cut":          "deployment/internal-api rollout 2, deployment/internal-api rollout 2",
		"seed-no-traffic":         "deployment/internal-api rollout 2, deployment/internal-api rollout 2",
		"seed-prestop-saves":      "deployment/internal-api rollout 2, deployment/internal-api rollout 2",
		"seed-roll":               "deployment/internal-api rollout 2, deployment/internal-api rollout 2, deployment/internal-api rollout 2, deployment/internal-api rollout 2",
		"statefulset":             "statefulset/web rollout 2",
		"stats-sleep":             "deployment/web rollout 3 unfinished, deployment/web rollout 3 unfinished, deployment/web rollout 3 unfinished, deployment/web rollout 3 unfinished, deployment/web rollout 3 unfinished",
		"stuck":                   "deployment/web rollout 0 unfinished, deployment/web rollout 1",
	}
	for _, s := range recordings(t) {
		t.Run(s, func(t *testing.T) {
			tl := Derive(load(t, s))
			if got := describe(tl); got != want[s] {
				t.Errorf("got  %s\nwant %s", got, want[s])
			}
			for _, r := range tl.Rolls {
				if !r.Window.Start.Before(r.Window.End) || r.Window.Start.Before(tl.Recorded.Start) {
					t.Errorf("%s: window %v of a recording of %v", r.ID, r.Window, tl.Recorded)
				}
				for _, x := range r.Terminations {
					if x.Cause == roll.CauseUnknown || x.Cause == "" {
						t.Errorf("%s: %s %s ended for no cause", r.ID, x.Pod.Name, x.Container)
					}
				}
				for _, w := range r.Windows {
					if !w.Start.Before(w.End) {
						t.Errorf("%s: window %s of %s is empty: %v", r.ID, w.Kind, w.Pod, w)
					}
				}
			}
		})
	}
}

func describe(tl *roll.Timeline) string {
	var out []string
	for _, r := range tl.Rolls {
		s := fmt.Sprintf("%s/%s %s %d", strings.ToLower(r.Workload.Kind), r.Workload.Name, r.Cause, len(r.Old))
		if !r.Completed {
			s += " unfinished"
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// TestExitCodes holds codes against what the scenarios did.
func TestExitCodes(t *testing.T) {
	for s, want := range map[string]int{"exit-code": 42, "ignore-term": 137, "crash": 3, "oom": 137, "rollout-restart": 0} {
		n := 0
		for _, x := range terminations(Derive(load(t, s))) {
			n++
			if x.ExitCode == nil || *x.ExitCode != want {
				t.Errorf("%s: %s exited with %v, want %d", s, x.Pod.Name, x.ExitCode, want)
			}
		}
		if n == 0 {
			t.Errorf("%s: no termination", s)
		}
	}
	// The code of a force-deleted pod's container is never seen.
	for _, s := range []string{"force-delete", "seed-chaos-delete"} {
		forced := 0
		for _, x := range terminations(Derive(load(t, s))) {
			if x.Forced {
				forced++
				if x.ExitCode != nil || !x.Exited.IsZero() {
					t.Errorf("%s: %s: forced, and yet it exited with %v at %v", s, x.Pod.Name, x.ExitCode, x.Exited)
				}
			}
		}
		if forced != 1 {
			t.Errorf("%s: %d forced, want 1", s, forced)
		}
	}
}
