package scenario

import (
	"fmt"
	"net/url"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ServiceImage is the image of e2e/services/service.
const ServiceImage = "e2e.local/service:1"

const web = "web" // the name of the workload, its label and its Service

func ptr[T any](v T) *T { return &v }

// container is a server with flags; port is its HTTP port, and what its probes ask.
func container(name string, port int, args ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: ServiceImage, ImagePullPolicy: corev1.PullNever,
		Args: append([]string{"server", "-http", fmt.Sprint(":", port)}, args...),
		Env: []corev1.EnvVar{
			{Name: "JOURNAL", Value: "/journal"},
			{Name: "CONTAINER", Value: name},
			field("POD", "metadata.name"), field("POD_UID", "metadata.uid"), field("NAMESPACE", "metadata.namespace"), field("NODE", "spec.nodeName"),
		},
		VolumeMounts:   []corev1.VolumeMount{{Name: "journal", MountPath: "/journal"}},
		ReadinessProbe: probe("/readyz", port, 1),
	}
}

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func probe(path string, port int, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(port)}},
		PeriodSeconds: 1, FailureThreshold: failures,
	}
}

// withPreStop gives a container a hook.
func withPreStop(c corev1.Container, h *corev1.LifecycleHandler) corev1.Container {
	c.Lifecycle = &corev1.Lifecycle{PreStop: h}
	return c
}

func sleepHook(seconds int64) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}
}

func execHook(command ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
}

func httpHook(port int, sleep string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{
		Path: "/prestop?" + url.Values{"for": {sleep}}.Encode(), Port: intstr.FromInt(port),
	}}
}

// standard is the container of most scenarios: a sleep hook, then a drain while not Ready.
func standard(args ...string) corev1.Container {
	return withPreStop(container("app", 8080, append([]string{"-drain", "1500ms", "-ready-flip"}, args...)...), sleepHook(5))
}

// pod makes a pod template of containers.
func (r *Run) pod(grace int64, containers ...corev1.Container) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": web}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: ptr(false), Containers: containers,
			Volumes: []corev1.Volume{{Name: "journal", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: r.Dir, Type: ptr(corev1.HostPathDirectory)},
			}}},
		},
	}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": web}}
}

func deployment(replicas int32, t corev1.PodTemplateSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: web},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector(), Template: t},
	}
}

func statefulSet(replicas int32, t corev1.PodTemplateSpec) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: web},
		Spec:       appsv1.StatefulSetSpec{Replicas: &replicas, Selector: selector(), Template: t, ServiceName: web},
	}
}

func daemonSet(t corev1.PodTemplateSpec) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: web}, Spec: appsv1.DaemonSetSpec{Selector: selector(), Template: t}}
}

func job(t corev1.PodTemplateSpec) *batchv1.Job {
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: web}, Spec: batchv1.JobSpec{BackoffLimit: ptr(int32(0)), Template: t}}
}

// service is a headless Service of the workload: with it come EndpointSlices.
func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: web},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": web},
			Ports: []corev1.ServicePort{{Name: "http", Port: 8080}},
		},
	}
}

func withMemory(c corev1.Container, limit string) corev1.Container {
	c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
	return c
}

func withLiveness(c corev1.Container) corev1.Container {
	c.LivenessProbe = probe("/livez", 8080, 2)
	return c
}
