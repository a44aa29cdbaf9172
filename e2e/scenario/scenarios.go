// Package scenario is a table of things that happen to pods, each done to real ones on a cluster while rolltrace records,
// and what is true of each: which rolls there were, why each container ended, when it got its signal and when it exited.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rolltrace/rolltrace/e2e/cluster"
	"github.com/rolltrace/rolltrace/roll"
)

// Scenario is one thing that happens, and the truth about it that only the one who makes it happen knows.
type Scenario struct {
	Name string
	// What happens, in a few words.
	What string
	// Objects are made before the recorder starts.
	Objects func(r *Run) []runtime.Object
	// Pods is how many are Ready before Act.
	Pods int
	// Act does it, and returns when it is over.
	Act func(ctx context.Context, r *Run) error
	// Rolls are those that there are, in order: kind/name, cause, number of pods that ended.
	Rolls []string
	// Causes are why containers ended, each at least once.
	Causes []roll.Cause
	// Gaps are what the recording must own up to; MayGap what it may as well. Any other gap is a false alarm.
	Gaps, MayGap []roll.GapReason
	// ExitUnknown says that an exit may be unknown though it happened.
	ExitUnknown bool
	// LogsCut says that the last lines of a log may be missing.
	LogsCut bool
	// Alone says that what is done concerns more than the namespace: the node, the kubelet or the API server.
	Alone bool
}

// one returns a func for a single object, with the workload's Service.
func one(make func(r *Run) runtime.Object) func(*Run) []runtime.Object {
	return func(r *Run) []runtime.Object { return []runtime.Object{service(), make(r)} }
}

// web2 is a Deployment of two pods of these containers.
func web2(grace int64, containers ...corev1.Container) func(*Run) []runtime.Object {
	return webN(2, grace, containers...)
}

func webN(n int32, grace int64, containers ...corev1.Container) func(*Run) []runtime.Object {
	return one(func(r *Run) runtime.Object { return deployment(n, r.pod(grace, containers...)) })
}

// restarts restarts the Deployment n times.
func restarts(n int) func(context.Context, *Run) error {
	return func(ctx context.Context, r *Run) error {
		for range n {
			if err := r.Restart(ctx, "deployment/web", 2); err != nil {
				return err
			}
		}
		return nil
	}
}

// rollout is the truth of n restarts of two pods.
func rollout(n int) (rolls []string) {
	for range n {
		rolls = append(rolls, "deployment/web rollout 2")
	}
	return rolls
}

// a scenario of one restart of two pods.
func restart(name, what string, grace int64, containers ...corev1.Container) Scenario {
	return Scenario{
		Name: name, What: what, Objects: web2(grace, containers...), Pods: 2, Act: restarts(1),
		Rolls: rollout(1), Causes: []roll.Cause{roll.CauseRollout},
	}
}

// firstPod names a pod that is not ending.
func firstPod(ctx context.Context, r *Run) (*corev1.Pod, error) {
	pods, err := r.Pods(ctx)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		if pods[i].DeletionTimestamp == nil {
			return &pods[i], nil
		}
	}
	return nil, errors.New("there is no pod")
}

// deleteOne deletes a pod and waits until it is replaced.
func deleteOne(times int, grace *int64, pods int) func(context.Context, *Run) error {
	return func(ctx context.Context, r *Run) error {
		for range times {
			p, err := firstPod(ctx, r)
			if err != nil {
				return err
			}
			if err := r.DeletePod(ctx, p.Name, grace); err != nil {
				return err
			}
			if err := r.Settled(ctx, pods); err != nil {
				return err
			}
		}
		return nil
	}
}

// Scenarios is the table.
var Scenarios = []Scenario{
	{
		Name: "three-restarts", What: "a Deployment restarted three times; preStop sleep 5 s",
		Objects: web2(50, standard()), Pods: 2, Act: restarts(3),
		Rolls: rollout(3), Causes: []roll.Cause{roll.CauseRollout},
	},
	{
		Name: "delete", What: "a pod deleted, twice",
		Objects: web2(50, standard()), Pods: 2, Act: deleteOne(2, nil, 2),
		Rolls: []string{"deployment/web delete 1", "deployment/web delete 1"}, Causes: []roll.Cause{roll.CauseDelete},
	},
	{
		Name: "eviction", What: "a pod evicted under a budget that refuses the second",
		Objects: func(r *Run) []runtime.Object {
			return append(web2(50, standard())(r), budget(&policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr(intstr.FromInt(1))}))
		},
		Pods: 2, Act: evict,
		Rolls: []string{"deployment/web eviction 1"}, Causes: []roll.Cause{roll.CauseEviction},
	},
	{
		Name: "drain", What: "the node drained and uncordoned",
		Objects: func(r *Run) []runtime.Object {
			return append(web2(50, standard())(r), budget(&policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr(intstr.FromInt(2))}))
		},
		Pods: 2, Alone: true,
		Act: func(ctx context.Context, r *Run) error {
			return errors.Join(
				r.Kubectl(ctx, "drain", cluster.NodeName, "--ignore-daemonsets", "--force", "--timeout=60s", "--pod-selector=app="+web),
				r.Kubectl(ctx, "uncordon", cluster.NodeName), r.Settled(ctx, 2))
		},
		Rolls: []string{"deployment/web eviction 2"}, Causes: []roll.Cause{roll.CauseEviction},
	},
	{
		Name: "taint", What: "the node tainted NoExecute for a while",
		Objects: webN(1, 50, standard()), Pods: 1, Alone: true,
		Act: func(ctx context.Context, r *Run) error {
			p, err := firstPod(ctx, r)
			if err != nil {
				return err
			}
			return errors.Join(
				r.Kubectl(ctx, "taint", "node", cluster.NodeName, "e2e=x:NoExecute"), r.Gone(ctx, p),
				r.Kubectl(ctx, "taint", "node", cluster.NodeName, "e2e-"), r.Settled(ctx, 1))
		},
		Rolls: []string{"deployment/web taint 1"}, Causes: []roll.Cause{roll.CauseTaint},
	},
	{
		Name: "scale-down", What: "a Deployment scaled from 3 to 1",
		Objects: webN(3, 50, standard()), Pods: 3,
		Act: func(ctx context.Context, r *Run) error {
			return errors.Join(r.Kubectl(ctx, "scale", "deployment/web", "--replicas=1"), r.Settled(ctx, 1))
		},
		Rolls: []string{"deployment/web scale-down 2"}, Causes: []roll.Cause{roll.CauseScaleDown},
	},
	restart("prestop-exec", "preStop exec of 3.3 s", 50,
		withPreStop(container("app", 8080, "-drain", "800ms", "-log", "klog"), execHook("/service", "prestop", "-for", "3300ms"))),
	restart("prestop-httpget", "preStop httpGet of 2.7 s", 50,
		withPreStop(container("app", 8080, "-drain", "800ms", "-log", "logfmt"), httpHook(8080, "2700ms"))),
	restart("prestop-fails", "preStop exec that fails after 1.2 s", 20,
		withPreStop(container("app", 8080, "-drain", "800ms"), execHook("/service", "prestop", "-for", "1200ms", "-code", "7"))),
	restart("prestop-refused", "preStop httpGet that nobody answers", 20,
		withPreStop(container("app", 8080, "-drain", "800ms"), httpHook(9999, "1s"))),
	restart("prestop-missing", "preStop exec of a program that is not in the image", 20,
		withPreStop(container("app", 8080, "-drain", "800ms"), execHook("/bin/sleep", "5"))),
	restart("prestop-outlives", "preStop exec of 60 s, grace period 6 s", 6,
		withPreStop(container("app", 8080, "-drain", "800ms"), execHook("/service", "prestop", "-for", "60s"))),
	restart("prestop-sleep-outlives", "preStop sleep as long as the grace period of 6 s", 6,
		withPreStop(container("app", 8080, "-drain", "800ms"), sleepHook(6))),
	{
		Name: "no-prestop", What: "no preStop hook, restarted twice",
		Objects: web2(50, container("app", 8080, "-drain", "1500ms", "-log", "plain")), Pods: 2, Act: restarts(2),
		Rolls: rollout(2), Causes: []roll.Cause{roll.CauseRollout},
	},
	restart("sigkill", "SIGTERM ignored, grace period 5 s", 5, container("app", 8080, "-ignore-sigterm")),
	restart("sigterm-unhandled", "SIGTERM not handled by the program", 20, container("app", 8080, "-unhandled")),
	restart("abrupt", "exit at SIGTERM, nothing flushed", 20, container("app", 8080, "-abrupt")),
	restart("exit-code", "exit with 42 after the drain", 20, container("app", 8080, "-drain", "500ms", "-exit-code", "42")),
	restart("drain-outlives", "preStop 5 s and a drain of 10 s, grace period 8 s", 8, standard("-drain", "10s")),
	{
		Name: "crash", What: "the container exits with 3 by itself",
		Objects: webN(1, 30, withPreStop(container("app", 8080, "-crash-after", "8s"), sleepHook(5))), Pods: 1,
		Act:   func(ctx context.Context, r *Run) error { return errors.Join(r.Restarts(ctx, 1), r.Settled(ctx, 1)) },
		Rolls: []string{"deployment/web crash 0"}, Causes: []roll.Cause{roll.CauseCrash},
	},
	{
		Name: "oom", What: "the container uses more memory than it may",
		Objects: webN(1, 30, withMemory(withPreStop(container("app", 8080, "-oom-after", "8s"), sleepHook(5)), "64Mi")), Pods: 1,
		Act:   func(ctx context.Context, r *Run) error { return errors.Join(r.Restarts(ctx, 1), r.Settled(ctx, 1)) },
		Rolls: []string{"deployment/web oom 0"}, Causes: []roll.Cause{roll.CauseOOM},
	},
	{
		Name: "liveness", What: "the liveness probe fails; preStop sleep 5 s",
		Objects: webN(1, 30, withLiveness(standard("-live-for", "8s"))), Pods: 1,
		Act:   func(ctx context.Context, r *Run) error { return errors.Join(r.Restarts(ctx, 1), r.Settled(ctx, 1)) },
		Rolls: []string{"deployment/web liveness 0"}, Causes: []roll.Cause{roll.CauseLiveness},
	},
	{
		Name: "native-sidecar", What: "with a sidecar that is an init container, restarted",
		Objects: one(func(r *Run) runtime.Object {
			t := r.pod(50, standard())
			sidecar := container("proxy", 9090, "-drain", "400ms")
			sidecar.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways)
			t.Spec.InitContainers = []corev1.Container{sidecar}
			return deployment(2, t)
		}),
		Pods: 2, Act: restarts(1), Rolls: rollout(1), Causes: []roll.Cause{roll.CauseRollout},
	},
	restart("several-containers", "three containers with hooks and drains of their own", 50, standard(),
		container("helper", 9090, "-drain", "300ms"),
		withPreStop(container("slow", 9091, "-drain", "4s"), sleepHook(2))),
	{
		Name: "statefulset", What: "a StatefulSet of two restarted",
		Objects: one(func(r *Run) runtime.Object { return statefulSet(2, r.pod(50, standard())) }), Pods: 2,
		Act:   func(ctx context.Context, r *Run) error { return r.Restart(ctx, "statefulset/web", 2) },
		Rolls: []string{"statefulset/web rollout 2"}, Causes: []roll.Cause{roll.CauseRollout},
	},
	{
		Name: "daemonset", What: "a DaemonSet restarted twice",
		Objects: one(func(r *Run) runtime.Object { return daemonSet(r.pod(50, standard())) }), Pods: 1,
		Act: func(ctx context.Context, r *Run) error {
			return errors.Join(r.Restart(ctx, "daemonset/web", 1), r.Restart(ctx, "daemonset/web", 1))
		},
		Rolls: []string{"daemonset/web rollout 1", "daemonset/web rollout 1"}, Causes: []roll.Cause{roll.CauseRollout},
	},
	{
		Name: "recreate", What: "strategy Recreate, restarted",
		Objects: one(func(r *Run) runtime.Object {
			d := deployment(2, r.pod(50, standard()))
			d.Spec.Strategy.Type = "Recreate"
			return d
		}),
		Pods: 2, Act: restarts(1), Rolls: rollout(1), Causes: []roll.Cause{roll.CauseRollout},
	},
	{
		Name: "job", What: "a Job completes and is deleted",
		Objects: func(r *Run) []runtime.Object {
			c := container("app", 8080, "-done-after", "6s")
			c.ReadinessProbe = nil
			return []runtime.Object{job(r.pod(30, c))}
		},
		Act: func(ctx context.Context, r *Run) error {
			return errors.Join(
				r.Kubectl(ctx, "wait", "--for=condition=complete", "job/web", "--timeout=60s"), r.Sleep(ctx, 2*time.Second),
				r.Kubectl(ctx, "delete", "job/web"), r.Settled(ctx, 0))
		},
		Rolls: []string{"job/web owner-delete 1"}, Causes: []roll.Cause{roll.CauseCompleted},
	},
	{
		Name: "paused", What: "paused, changed, resumed, paused in the middle, resumed",
		Objects: web2(50, standard()), Pods: 2,
		Act: func(ctx context.Context, r *Run) error {
			return errors.Join(
				r.Kubectl(ctx, "rollout", "pause", "deployment/web"), r.Kubectl(ctx, "set", "env", "deployment/web", "REVISION=2"),
				r.Sleep(ctx, 3*time.Second), r.Kubectl(ctx, "rollout", "resume", "deployment/web"),
				r.Sleep(ctx, 3*time.Second), r.Kubectl(ctx, "rollout", "pause", "deployment/web"),
				r.Sleep(ctx, 6*time.Second), r.Kubectl(ctx, "rollout", "resume", "deployment/web"), r.Rolled(ctx, "deployment/web", 2))
		},
		Rolls: rollout(1), Causes: []roll.Cause{roll.CauseRollout},
	},
	{
		Name: "stuck", What: "a roll that cannot go on (no such image), undone after its deadline",
		Objects: one(func(r *Run) runtime.Object {
			d := deployment(2, r.pod(50, standard()))
			d.Spec.ProgressDeadlineSeconds = ptr(int32(15))
			return d
		}),
		Pods: 2,
		Act: func(ctx context.Context, r *Run) error {
			if err := r.Kubectl(ctx, "set", "image", "deployment/web", "app=e2e.local/none:1"); err != nil {
				return err
			}
			if err := r.Kubectl(ctx, "rollout", "status", "deployment/web", "--timeout=60s"); err == nil {
				return errors.New("the roll went on")
			}
			return errors.Join(r.Kubectl(ctx, "rollout", "undo", "deployment/web"), r.Rolled(ctx, "deployment/web", 2))
		},
		Rolls: []string{"deployment/web rollout 0 unfinished", "deployment/web rollout 1"},
	},
	{
		Name: "undo", What: "changed, then undone",
		Objects: web2(50, standard()), Pods: 2,
		Act: func(ctx context.Context, r *Run) error {
			return errors.Join(
				r.Kubectl(ctx, "set", "env", "deployment/web", "REVISION=2"), r.Rolled(ctx, "deployment/web", 2),
				r.Kubectl(ctx, "rollout", "undo", "deployment/web"), r.Rolled(ctx, "deployment/web", 2))
		},
		Rolls: rollout(2), Causes: []roll.Cause{roll.CauseRollout},
	},
	{
		Name: "force-delete", What: "a pod deleted with grace period 0",
		Objects: web2(50, standard()), Pods: 2,
		Act: func(ctx context.Context, r *Run) error {
			// the pod's containers go on after the object is gone
			return errors.Join(deleteOne(1, ptr(int64(0)), 2)(ctx, r), r.Sleep(ctx, 5*time.Second))
		},
		Rolls: []string{"deployment/web delete 1"}, Causes: []roll.Cause{roll.CauseDelete},
		ExitUnknown: true, MayGap: []roll.GapReason{roll.GapExitUnknown},
	},
	{
		Name: "delete-grace-1", What: "a pod deleted with grace period 1",
		Objects: web2(50, standard()), Pods: 2, Act: deleteOne(1, ptr(int64(1)), 2),
		Rolls: []string{"deployment/web delete 1"}, Causes: []roll.Cause{roll.CauseDelete},
	},
	{
		Name: "delete-deployment", What: "the Deployment deleted",
		Objects: web2(50, standard()), Pods: 2,
		Act: func(ctx context.Context, r *Run) error {
			return errors.Join(r.Kubectl(ctx, "delete", "deployment/web"), r.Settled(ctx, 0))
		},
		Rolls: []string{"deployment/web owner-delete 2"}, Causes: []roll.Cause{roll.CauseOwnerDelete},
	},
	kubeletRestart("kubelet-restart-prestop", "the kubelet killed in a preStop sleep", syscall.SIGKILL, 2500*time.Millisecond, 2*time.Second, standard()),
	kubeletRestart("kubelet-restart-drain", "the kubelet killed in the drain", syscall.SIGKILL, 2500*time.Millisecond, 2*time.Second,
		container("app", 8080, "-drain", "9s")),
	kubeletRestart("kubelet-down-exit", "no kubelet when the container exits", syscall.SIGKILL, 2*time.Second, 6*time.Second,
		container("app", 8080, "-drain", "4s")),
	{
		Name: "apiserver-restart", What: "the API server killed in a roll, away for 6 s",
		Objects: web2(50, standard()), Pods: 2, Alone: true,
		Act: func(ctx context.Context, r *Run) error {
			return errors.Join(
				r.Kubectl(ctx, "rollout", "restart", "deployment/web"), r.Sleep(ctx, 5*time.Second),
				restartAPIServer(ctx, r, 6*time.Second), r.Rolled(ctx, "deployment/web", 2))
		},
		Rolls: rollout(1), Causes: []roll.Cause{roll.CauseRollout},
		MayGap: []roll.GapReason{roll.GapWatch, roll.GapLogs}, LogsCut: true,
	},
	{
		Name: "watch-cut", What: "the recorder cut off for a roll, the API server alive",
		Objects: web2(50, standard()), Pods: 2,
		Act: func(ctx context.Context, r *Run) error {
			if err := errors.Join(r.Kubectl(ctx, "rollout", "restart", "deployment/web"), r.Sleep(ctx, 3*time.Second)); err != nil {
				return err
			}
			r.Way.Cut()
			err := r.Rolled(ctx, "deployment/web", 2)
			r.Way.Restore()
			return errors.Join(err, r.Sleep(ctx, 12*time.Second)) // the recorder waits between attempts
		},
		Rolls: rollout(1), Causes: []roll.Cause{roll.CauseRollout},
		MayGap: []roll.GapReason{roll.GapWatch, roll.GapLogs}, LogsCut: true,
	},
	{
		Name: "expired", What: "the recorder cut off for a roll, then 410 Gone: the API server restarted meanwhile",
		Objects: web2(50, standard()), Pods: 2, Alone: true,
		Act:   cutAnd(func(context.Context, *Run) error { return nil }),
		Rolls: rollout(1), Causes: []roll.Cause{roll.CauseRollout},
		Gaps: []roll.GapReason{roll.GapWatch}, MayGap: []roll.GapReason{roll.GapLogs, roll.GapExitUnknown, roll.GapSignalUnknown},
		ExitUnknown: true, LogsCut: true,
	},
	{
		Name: "compacted", What: "the same with etcd's history compacted",
		Objects: web2(50, standard()), Pods: 2, Alone: true,
		Act:   cutAnd(func(ctx context.Context, r *Run) error { return r.C.CompactHistory(ctx) }),
		Rolls: rollout(1), Causes: []roll.Cause{roll.CauseRollout},
		Gaps: []roll.GapReason{roll.GapWatch}, MayGap: []roll.GapReason{roll.GapLogs, roll.GapExitUnknown, roll.GapSignalUnknown},
		ExitUnknown: true, LogsCut: true,
	},
}

func budget(spec *policyv1.PodDisruptionBudgetSpec) *policyv1.PodDisruptionBudget {
	spec.Selector = selector()
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: web}, Spec: *spec}
}

// evict evicts both pods; the second eviction must be refused.
func evict(ctx context.Context, r *Run) error {
	if err := until(ctx, "the budget allows a disruption", time.Minute, func(ctx context.Context) error {
		b, err := r.C.Client.PolicyV1().PodDisruptionBudgets(r.NS).Get(ctx, web, metav1.GetOptions{})
		if err == nil && b.Status.DisruptionsAllowed != 1 {
			err = fmt.Errorf("it allows %d", b.Status.DisruptionsAllowed)
		}
		return err
	}); err != nil {
		return err
	}
	pods, err := r.Pods(ctx)
	if err != nil {
		return err
	}
	for i, p := range pods {
		err := r.C.Client.PolicyV1().Evictions(r.NS).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: r.NS}})
		if i == 0 && err != nil {
			return err
		}
		if i == 1 && !apierrors.IsTooManyRequests(err) {
			return fmt.Errorf("the second eviction was not refused: %w", err)
		}
	}
	return errors.Join(r.Gone(ctx, &pods[0]), r.Settled(ctx, 2))
}

// kubeletRestart deletes a pod, ends the kubelet after a while, and starts it again after another.
func kubeletRestart(name, what string, signal syscall.Signal, after, down time.Duration, c corev1.Container) Scenario {
	return Scenario{
		Name: name, What: what, Objects: webN(1, 50, c), Pods: 1, Alone: true,
		Act: func(ctx context.Context, r *Run) error {
			p, err := firstPod(ctx, r)
			if err != nil {
				return err
			}
			if err := r.C.Client.CoreV1().Pods(r.NS).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			return errors.Join(
				r.Sleep(ctx, after), r.C.Kill(ctx, cluster.Kubelet, signal), r.C.Wait(ctx, cluster.Kubelet),
				r.Sleep(ctx, down), r.C.Start(ctx, cluster.Kubelet), r.Gone(ctx, p), r.Settled(ctx, 1))
		},
		Rolls: []string{"deployment/web delete 1"}, Causes: []roll.Cause{roll.CauseDelete},
		MayGap: []roll.GapReason{roll.GapLogs}, LogsCut: true,
	}
}

func restartAPIServer(ctx context.Context, r *Run, down time.Duration) error {
	return errors.Join(
		r.C.Kill(ctx, cluster.APIServer, syscall.SIGKILL), r.C.Wait(ctx, cluster.APIServer),
		r.Sleep(ctx, down), r.C.Start(ctx, cluster.APIServer), r.C.WaitAPI(ctx))
}

// cutAnd cuts the recorder off for a roll, does something more, and restarts the API server, which then knows nothing of
// what was before.
func cutAnd(more func(context.Context, *Run) error) func(context.Context, *Run) error {
	return func(ctx context.Context, r *Run) error {
		if err := errors.Join(r.Kubectl(ctx, "rollout", "restart", "deployment/web"), r.Sleep(ctx, 3*time.Second)); err != nil {
			return err
		}
		r.Way.Cut()
		err := errors.Join(r.Rolled(ctx, "deployment/web", 2), more(ctx, r), restartAPIServer(ctx, r, 0))
		r.Way.Restore()
		return errors.Join(err, r.Sleep(ctx, 12*time.Second)) // the recorder waits between attempts
	}
}
