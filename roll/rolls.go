package roll

import (
	"fmt"
	"strings"
	"time"
)

// PodRef names a pod. UID is its identity: names and IPs are used again.
type PodRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

func (p PodRef) String() string { return p.Namespace + "/" + p.Name }

// Workload names what owns pods. Kind is Kubernetes' (Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, Pod).
type Workload struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// String is namespace/kind/name, as in "shop/deployment/cart".
func (w Workload) String() string {
	return w.Namespace + "/" + strings.ToLower(w.Kind) + "/" + w.Name
}

// Cause says why a container was ended, or why a roll happened.
type Cause string

// The causes. Eviction, preemption and disruption have Kubernetes' meanings.
const (
	CauseRollout      Cause = "rollout"
	CauseScaleDown    Cause = "scale-down"
	CauseEviction     Cause = "eviction"
	CauseTaint        Cause = "taint"
	CausePreemption   Cause = "preemption"
	CauseDelete       Cause = "delete"       // somebody deleted the pod
	CauseOwnerDelete  Cause = "owner-delete" // its workload was deleted
	CauseNodeShutdown Cause = "node-shutdown"
	CauseLiveness     Cause = "liveness"
	CauseCrash        Cause = "crash"
	CauseOOM          Cause = "oom"
	CauseCompleted    Cause = "completed" // ended by itself with 0
	CauseUnknown      Cause = "unknown"
)

// PreStopKind is the kind of handler of a preStop hook.
type PreStopKind string

// The handlers; PreStopNone is the absence of a hook.
const (
	PreStopNone    PreStopKind = ""
	PreStopSleep   PreStopKind = "sleep"
	PreStopExec    PreStopKind = "exec"
	PreStopHTTPGet PreStopKind = "httpGet"
	PreStopTCP     PreStopKind = "tcpSocket"
	PreStopUnknown PreStopKind = "unknown" // the spec was not recorded
)

// PreStop is a container's hook. Sleep is the duration of a sleep handler, else 0.
type PreStop struct {
	Kind  PreStopKind   `json:"kind,omitempty"`
	Sleep time.Duration `json:"sleep_ns,omitempty"`
	// Failed says that the kubelet reported FailedPreStopHook.
	Failed bool `json:"failed,omitempty"`
	// Watched says that it would have been seen to report so: its Killing event came, and its budget of warnings about the
	// pod, 25 at once and then one in 5 minutes (client-go tools/record, events_cache.go), was not spent.
	Watched bool `json:"watched,omitempty"`
}

// Termination is the end of one run of one container.
type Termination struct {
	Pod         PodRef `json:"pod"`
	Container   string `json:"container"`
	ContainerID string `json:"container_id,omitempty"`
	// Sidecar says that the container is a native sidecar (an init container with restartPolicy Always).
	Sidecar bool `json:"sidecar,omitempty"`

	Requested      Instant `json:"requested"`        // the pod's deletion was asked for
	PreStopStarted Instant `json:"pre_stop_started"` // the kubelet began to stop the container
	Signaled       Instant `json:"signaled"`         // the stop signal was sent
	Exited         Instant `json:"exited"`
	Removed        Instant `json:"removed"` // the pod object was gone

	// ExitCode is nil when it was not observed, or when Kubernetes made it up (137 ContainerStatusUnknown without times).
	ExitCode *int `json:"exit_code"`
	// Reason is the kubelet's (Completed, Error, OOMKilled, …); empty when not observed.
	Reason string `json:"reason"`
	Cause  Cause  `json:"cause"`
	// GracePeriod in seconds, as granted by the first deletion seen; nil when the pod was not deleted.
	GracePeriodSeconds *int64  `json:"grace_period_seconds"`
	PreStop            PreStop `json:"pre_stop"`
	// StopSignal is the signal of the container's lifecycle.stopSignal; empty: the image's or SIGTERM.
	StopSignal string `json:"stop_signal,omitempty"`
	// Forced says that the deletion was forced (grace period 0): the object goes before the containers do.
	Forced bool `json:"forced,omitempty"`
}

// Window is a half-open span of time [Start, End), UTC, of the roll or of one of its pods.
type Window struct {
	Kind  WindowKind `json:"kind"`
	Pod   string     `json:"pod,omitempty"` // the pod's name; empty for the roll's own
	Start time.Time  `json:"start"`
	End   time.Time  `json:"end"`
}

// WindowKind says what a window is of.
type WindowKind string

// The window kinds.
const (
	WindowRoll        WindowKind = "roll"
	WindowTerminating WindowKind = "terminating" // requested → exited
	WindowPreStop     WindowKind = "preStop"     // requested → signaled
	WindowDrain       WindowKind = "drain"       // signaled → exited
	WindowStartup     WindowKind = "startup"     // created → Ready
	WindowCustom      WindowKind = "custom"
)

// Range is a half-open span of time [Start, End), UTC.
type Range struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// Contains reports whether t lies in the range.
func (r Range) Contains(t time.Time) bool { return !t.Before(r.Start) && t.Before(r.End) }

// Duration is End − Start.
func (r Range) Duration() time.Duration { return r.End.Sub(r.Start) }

// Roll is one workload replacing its pods: from the first signal of a new revision until the last old pod is gone and
// the new ones are Ready. A delete, eviction, drain or container restart makes one too, with its cause.
type Roll struct {
	// ID is stable for one recording: namespace/kind/name#N, N from 1 in order of start.
	ID       string   `json:"id"`
	Workload Workload `json:"workload"`
	From     string   `json:"from"` // the old revision (pod-template-hash or controller-revision-hash)
	To       string   `json:"to"`   // the new one; equal to From when the pods were only replaced
	Cause    Cause    `json:"cause"`
	// Window is the roll's own, unpadded.
	Window       Range         `json:"window"`
	Terminations []Termination `json:"terminations"`
	Windows      []Window      `json:"windows"`
	// Old are the pods that ended, New those that began in the roll, in order of name.
	Old []PodRef `json:"old,omitempty"`
	New []PodRef `json:"new,omitempty"`
	// Completed says that the last old pod was seen gone and as many new ones Ready as were wanted.
	Completed bool `json:"completed"`
	// Gaps are those of the recording that may hide something of this roll.
	Gaps []Gap `json:"gaps,omitempty"`
}

// Pod is what the recording says of one pod's life.
type Pod struct {
	PodRef
	Workload Workload `json:"workload"`
	Revision string   `json:"revision,omitempty"`
	Node     string   `json:"node,omitempty"`
	IPs      []string `json:"ips,omitempty"`

	Created   Instant `json:"created"`
	Ready     Instant `json:"ready"`     // Ready for the first time in the recording
	Requested Instant `json:"requested"` // deletion asked for
	// DeletionSeen is when the watch first said so, observer's clock: asked for by then. Zero when nothing says when.
	DeletionSeen time.Time `json:"deletion_seen,omitzero"`
	// Signaled is the first stop signal to a main container because of the pod's deletion, Exited the last exit of its main
	// containers. Both are zero for a pod that lives, and for one where they were not observed.
	Signaled Instant `json:"signaled"`
	Exited   Instant `json:"exited"`
	Removed  Instant `json:"removed"`
	// Containers are the names of its main containers and native sidecars that were seen to have run.
	Containers []string `json:"containers,omitempty"`
	// Terminations are all ends of its containers, in order of time; also restarts.
	Terminations []Termination `json:"-"`
	// Deleted says that the deletion was requested, whether or not the moment is known.
	Deleted bool `json:"deleted"`
}

// Timeline is everything that correlate derives from a recording.
type Timeline struct {
	Header Header
	// Recorded is from the recording's first to its last moment, observer's clock.
	Recorded Range
	Rolls    []Roll
	Pods     []*Pod // in order of creation, then name
	Gaps     []Gap
}

func (r Roll) String() string {
	return fmt.Sprintf("%s %s→%s (%s)", r.ID, r.From, r.To, r.Cause)
}
