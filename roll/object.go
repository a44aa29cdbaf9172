package roll

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Resource names, as in the API and on a recording's object lines.
const (
	ResourcePods                = "pods"
	ResourceReplicaSets         = "replicasets"
	ResourceDeployments         = "deployments"
	ResourceStatefulSets        = "statefulsets"
	ResourceDaemonSets          = "daemonsets"
	ResourceControllerRevisions = "controllerrevisions"
	ResourceEvents              = "events"
	ResourceEndpointSlices      = "endpointslices"
	ResourceJobs                = "jobs"
	ResourceNodes               = "nodes"
)

// RecordedResource is one row of the table of what a recording may hold.
type RecordedResource struct{ Resource, Kind, Group, Version string }

// Resources is that table. Objects of other resources are not recorded.
var Resources = []RecordedResource{
	{ResourcePods, "Pod", "", "v1"},
	{ResourceReplicaSets, "ReplicaSet", "apps", "v1"},
	{ResourceDeployments, "Deployment", "apps", "v1"},
	{ResourceStatefulSets, "StatefulSet", "apps", "v1"},
	{ResourceDaemonSets, "DaemonSet", "apps", "v1"},
	{ResourceControllerRevisions, "ControllerRevision", "apps", "v1"},
	{ResourceEvents, "Event", "", "v1"},
	{ResourceEndpointSlices, "EndpointSlice", "discovery.k8s.io", "v1"},
	{ResourceJobs, "Job", "batch", "v1"},
	{ResourceNodes, "Node", "", "v1"},
}

// ResourceOfKind returns the resource of a kind, "" when it is not recorded.
func ResourceOfKind(kind string) string {
	for _, r := range Resources {
		if r.Kind == kind {
			return r.Resource
		}
	}
	return ""
}

// KindOfResource is the inverse of ResourceOfKind.
func KindOfResource(resource string) string {
	for _, r := range Resources {
		if r.Resource == resource {
			return r.Kind
		}
	}
	return ""
}

// AllowedAnnotations are the only annotations that a recording keeps.
var AllowedAnnotations = []string{
	"deployment.kubernetes.io/revision",
	"deployment.kubernetes.io/revision-history",
	"deployment.kubernetes.io/desired-replicas",
	"kubectl.kubernetes.io/restartedAt",
	"kubernetes.io/config.source", // static pods
	"kubernetes.io/config.mirror",
}

// eventsWithMessage are the event reasons whose message is made by Kubernetes of object names alone. The messages of
// others (probe output, image pull errors) may hold anything, so they are dropped.
var eventsWithMessage = []string{
	"Killing", "SuccessfulCreate", "SuccessfulDelete", "ScalingReplicaSet", "TaintManagerEviction", "Preempted",
	"Evicted", "Started", "Created", "Scheduled",
}

// Object is a Kubernetes object pruned by allow-list: only the fields declared here are ever read or written, with
// Kubernetes' own JSON names. No env, args, command, volume, probe target, termination message or unnamed annotation is
// among them. It is the union of the kinds in [Resources]; fields that a kind does not have stay zero.
type Object struct {
	APIVersion string     `json:"apiVersion,omitempty"`
	Kind       string     `json:"kind,omitempty"`
	Metadata   ObjectMeta `json:"metadata"`
	Spec       *Spec      `json:"spec,omitempty"`
	Status     *Status    `json:"status,omitempty"`

	// Event (core/v1). firstTimestamp and lastTimestamp: kubelet's clock, 1 s; eventTime: µs where the reporter sets it.
	InvolvedObject *ObjectReference `json:"involvedObject,omitempty"`
	Reason         string           `json:"reason,omitempty"`
	Type           string           `json:"type,omitempty"`
	Message        string           `json:"message,omitempty"` // only for reasons that are known to hold names alone
	Count          int32            `json:"count,omitempty"`
	FirstTimestamp time.Time        `json:"firstTimestamp,omitzero"`
	LastTimestamp  time.Time        `json:"lastTimestamp,omitzero"`
	EventTime      time.Time        `json:"eventTime,omitzero"`
	Source         *EventSource     `json:"source,omitempty"`

	// EndpointSlice (discovery.k8s.io/v1).
	AddressType string     `json:"addressType,omitempty"`
	Endpoints   []Endpoint `json:"endpoints,omitempty"`

	// ControllerRevision (apps/v1).
	Revision int64 `json:"revision,omitempty"`
}

// ObjectMeta is the kept part of metadata. Its times are the API server's clock, truncated to the second.
type ObjectMeta struct {
	Name                       string            `json:"name"`
	Namespace                  string            `json:"namespace,omitempty"`
	UID                        string            `json:"uid,omitempty"`
	ResourceVersion            string            `json:"resourceVersion,omitempty"`
	Generation                 int64             `json:"generation,omitempty"`
	CreationTimestamp          time.Time         `json:"creationTimestamp,omitzero"`
	DeletionTimestamp          time.Time         `json:"deletionTimestamp,omitzero"` // request + grace (rest/delete.go)
	DeletionGracePeriodSeconds *int64            `json:"deletionGracePeriodSeconds,omitempty"`
	Labels                     map[string]string `json:"labels,omitempty"`
	Annotations                map[string]string `json:"annotations,omitempty"` // AllowedAnnotations only
	OwnerReferences            []OwnerReference  `json:"ownerReferences,omitempty"`
}

// OwnerReference names an owner.
type OwnerReference struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller,omitempty"`
}

// ObjectReference is what an Event or an endpoint is about.
type ObjectReference struct {
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	FieldPath string `json:"fieldPath,omitempty"` // spec.containers{NAME}
}

// EventSource is who reported an Event.
type EventSource struct {
	Component string `json:"component,omitempty"`
	Host      string `json:"host,omitempty"`
}

// Spec is the kept part of a pod's or workload's spec.
type Spec struct {
	// Pod.
	NodeName                      string      `json:"nodeName,omitempty"`
	Containers                    []Container `json:"containers,omitempty"`
	InitContainers                []Container `json:"initContainers,omitempty"`
	RestartPolicy                 string      `json:"restartPolicy,omitempty"`
	TerminationGracePeriodSeconds *int64      `json:"terminationGracePeriodSeconds,omitempty"`
	// Workloads.
	Replicas                *int32       `json:"replicas,omitempty"`
	Paused                  bool         `json:"paused,omitempty"`
	MinReadySeconds         int32        `json:"minReadySeconds,omitempty"`
	ProgressDeadlineSeconds *int32       `json:"progressDeadlineSeconds,omitempty"`
	Selector                *Selector    `json:"selector,omitempty"`
	Strategy                *Strategy    `json:"strategy,omitempty"`
	UpdateStrategy          *Strategy    `json:"updateStrategy,omitempty"`
	Template                *PodTemplate `json:"template,omitempty"`
	// Node.
	Unschedulable bool    `json:"unschedulable,omitempty"`
	Taints        []Taint `json:"taints,omitempty"`
}

// Selector is a label selector.
type Selector struct {
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// Strategy is an update strategy; maxSurge and maxUnavailable are a number or a percentage, as JSON.
type Strategy struct {
	Type          string         `json:"type,omitempty"`
	RollingUpdate *RollingUpdate `json:"rollingUpdate,omitempty"`
}

// RollingUpdate holds the bounds of a rolling update.
type RollingUpdate struct {
	MaxSurge       json.RawMessage `json:"maxSurge,omitempty"`
	MaxUnavailable json.RawMessage `json:"maxUnavailable,omitempty"`
}

// PodTemplate is the kept part of a pod template.
type PodTemplate struct {
	Metadata struct {
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec *Spec `json:"spec,omitempty"`
}

// Taint is a node's taint.
type Taint struct {
	Key       string    `json:"key"`
	Effect    string    `json:"effect,omitempty"`
	TimeAdded time.Time `json:"timeAdded,omitzero"`
}

// Container is the kept part of a container's spec.
type Container struct {
	Name          string     `json:"name"`
	Image         string     `json:"image,omitempty"`
	RestartPolicy string     `json:"restartPolicy,omitempty"` // Always on an init container: a native sidecar
	Lifecycle     *Lifecycle `json:"lifecycle,omitempty"`
}

// Lifecycle is a container's lifecycle without what its hooks run.
type Lifecycle struct {
	PreStop    *Handler `json:"preStop,omitempty"`
	StopSignal string   `json:"stopSignal,omitempty"`
}

// Handler says which kind a hook is; the command, path and headers are not kept.
type Handler struct {
	Sleep     *SleepAction `json:"sleep,omitempty"`
	Exec      *struct{}    `json:"exec,omitempty"`
	HTTPGet   *struct{}    `json:"httpGet,omitempty"`
	TCPSocket *struct{}    `json:"tcpSocket,omitempty"`
}

// SleepAction is the sleep handler.
type SleepAction struct {
	Seconds int64 `json:"seconds"`
}

// Status is the kept part of a pod's or workload's status. Its times have a resolution of 1 s.
type Status struct {
	// Pod: the kubelet's clock.
	Phase                      string            `json:"phase,omitempty"`
	Reason                     string            `json:"reason,omitempty"`
	PodIP                      string            `json:"podIP,omitempty"`
	PodIPs                     []PodIP           `json:"podIPs,omitempty"`
	HostIP                     string            `json:"hostIP,omitempty"`
	StartTime                  time.Time         `json:"startTime,omitzero"`
	ContainerStatuses          []ContainerStatus `json:"containerStatuses,omitempty"`
	InitContainerStatuses      []ContainerStatus `json:"initContainerStatuses,omitempty"`
	EphemeralContainerStatuses []ContainerStatus `json:"ephemeralContainerStatuses,omitempty"`
	// Both.
	Conditions []Condition `json:"conditions,omitempty"`
	// Workloads.
	ObservedGeneration     int64  `json:"observedGeneration,omitempty"`
	Replicas               int32  `json:"replicas,omitempty"`
	UpdatedReplicas        int32  `json:"updatedReplicas,omitempty"`
	ReadyReplicas          int32  `json:"readyReplicas,omitempty"`
	AvailableReplicas      int32  `json:"availableReplicas,omitempty"`
	TerminatingReplicas    *int32 `json:"terminatingReplicas,omitempty"`
	CurrentRevision        string `json:"currentRevision,omitempty"`
	UpdateRevision         string `json:"updateRevision,omitempty"`
	DesiredNumberScheduled int32  `json:"desiredNumberScheduled,omitempty"`
	UpdatedNumberScheduled int32  `json:"updatedNumberScheduled,omitempty"`
	NumberReady            int32  `json:"numberReady,omitempty"`
}

// PodIP is one of a pod's addresses.
type PodIP struct {
	IP string `json:"ip"`
}

// Condition is a condition without its message.
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	Reason             string    `json:"reason,omitempty"`
	LastTransitionTime time.Time `json:"lastTransitionTime,omitzero"`
}

// ContainerStatus is the kept part of a container's status.
type ContainerStatus struct {
	Name         string         `json:"name"`
	ContainerID  string         `json:"containerID,omitempty"`
	Image        string         `json:"image,omitempty"`
	ImageID      string         `json:"imageID,omitempty"`
	Ready        bool           `json:"ready,omitempty"`
	Started      *bool          `json:"started,omitempty"`
	RestartCount int32          `json:"restartCount,omitempty"`
	State        ContainerState `json:"state,omitzero"`
	LastState    ContainerState `json:"lastState,omitzero"`
}

// ContainerState has at most one of its fields set.
type ContainerState struct {
	Waiting    *StateWaiting    `json:"waiting,omitempty"`
	Running    *StateRunning    `json:"running,omitempty"`
	Terminated *StateTerminated `json:"terminated,omitempty"`
}

// StateWaiting is a container that does not run yet, or not any more for all the kubelet knows.
type StateWaiting struct {
	Reason string `json:"reason,omitempty"`
}

// StateRunning is a container that runs.
type StateRunning struct {
	StartedAt time.Time `json:"startedAt,omitzero"`
}

// StateTerminated is a container that ended. Exit code 137 with reason ContainerStatusUnknown and zero times is made up
// by the kubelet (kubernetes/kubernetes#104107) and says nothing.
type StateTerminated struct {
	ExitCode    int       `json:"exitCode"`
	Signal      int       `json:"signal,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	StartedAt   time.Time `json:"startedAt,omitzero"`
	FinishedAt  time.Time `json:"finishedAt,omitzero"`
	ContainerID string    `json:"containerID,omitempty"`
}

// Endpoint is one endpoint of a slice.
type Endpoint struct {
	Addresses  []string           `json:"addresses,omitempty"`
	Conditions EndpointConditions `json:"conditions,omitzero"`
	TargetRef  *ObjectReference   `json:"targetRef,omitempty"`
	NodeName   string             `json:"nodeName,omitempty"`
}

// EndpointConditions are nil where the API server sent nothing.
type EndpointConditions struct {
	Ready       *bool `json:"ready,omitempty"`
	Serving     *bool `json:"serving,omitempty"`
	Terminating *bool `json:"terminating,omitempty"`
}

// Prune reads a Kubernetes object as JSON and keeps what [Object] declares. resource may be empty: then the object's own
// kind decides. An object of a kind that is not recorded is an error.
func Prune(resource string, raw []byte) (*Object, error) {
	var o Object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("read object: %w", err)
	}
	if o.Kind == "" {
		o.Kind = KindOfResource(resource) // items of a list carry none
	}
	if ResourceOfKind(o.Kind) == "" || resource != "" && ResourceOfKind(o.Kind) != resource {
		return nil, fmt.Errorf("read object: kind %q is not recorded as %q", o.Kind, resource)
	}
	o.prune()
	return &o, nil
}

func (o *Object) prune() {
	keep(o.Metadata.Annotations)
	if o.Spec != nil && o.Spec.Template != nil {
		keep(o.Spec.Template.Metadata.Annotations)
	}
	if o.Kind != "Event" || !slices.Contains(eventsWithMessage, o.Reason) {
		o.Message = ""
	}
}

func keep(annotations map[string]string) {
	for k := range annotations {
		if !slices.Contains(AllowedAnnotations, k) {
			delete(annotations, k)
		}
	}
}
