package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rolltrace/rolltrace/e2e/cluster"
)

// Run is one scenario under way: a namespace of a cluster, and what is known of its containers.
type Run struct {
	C    *cluster.Cluster
	NS   string
	Dir  string         // of the services' journals
	Way  *cluster.Proxy // the recorder's way to the API server
	Logf func(format string, args ...any)

	mu   sync.Mutex
	seen map[string]containerRef // by container ID
}

type containerRef struct{ pod, uid, container string }

// newRun makes the namespace and begins to note which container is whose.
func newRun(ctx context.Context, c *cluster.Cluster, name string, logf func(string, ...any)) (*Run, error) {
	r := &Run{C: c, NS: name, Dir: filepath.Join(c.Dir, name), Logf: logf, seen: map[string]containerRef{}}
	if err := os.MkdirAll(r.Dir, 0o777); err != nil {
		return nil, err
	}
	if err := c.Namespace(ctx, name); err != nil {
		return nil, err
	}
	var err error
	if r.Way, err = c.Proxy(ctx); err != nil {
		return nil, err
	}
	go func() { // by asking again and again, which no restart of the API server and no cut disturbs
		for ctx.Err() == nil {
			r.Pods(ctx)
			time.Sleep(250 * time.Millisecond)
		}
	}()
	return r, nil
}

// note remembers which container is whose.
func (r *Run) note(pods []corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range pods {
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			ref := containerRef{p.Name, string(p.UID), s.Name}
			for _, id := range []string{s.ContainerID, terminatedID(s.State), terminatedID(s.LastTerminationState)} {
				if id != "" {
					r.seen[bareID(id)] = ref
				}
			}
		}
	}
}

func terminatedID(s corev1.ContainerState) string {
	if s.Terminated == nil {
		return ""
	}
	return s.Terminated.ContainerID
}

// bareID is a container ID without the runtime's name.
func bareID(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

func (r *Run) containers() map[string]containerRef {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.seen)
}

// Create makes objects in the namespace.
func (r *Run) Create(ctx context.Context, objects ...runtime.Object) error {
	k, opts := r.C.Client, metav1.CreateOptions{}
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *appsv1.Deployment:
			_, err = k.AppsV1().Deployments(r.NS).Create(ctx, o, opts)
		case *appsv1.StatefulSet:
			_, err = k.AppsV1().StatefulSets(r.NS).Create(ctx, o, opts)
		case *appsv1.DaemonSet:
			_, err = k.AppsV1().DaemonSets(r.NS).Create(ctx, o, opts)
		case *batchv1.Job:
			_, err = k.BatchV1().Jobs(r.NS).Create(ctx, o, opts)
		case *corev1.Service:
			_, err = k.CoreV1().Services(r.NS).Create(ctx, o, opts)
		case *policyv1.PodDisruptionBudget:
			_, err = k.PolicyV1().PodDisruptionBudgets(r.NS).Create(ctx, o, opts)
		default:
			err = fmt.Errorf("no way to create %T", o)
		}
		if err != nil {
			return fmt.Errorf("create: %w", err)
		}
	}
	return nil
}

// Pods lists the namespace's pods.
func (r *Run) Pods(ctx context.Context) ([]corev1.Pod, error) {
	l, err := r.C.Client.CoreV1().Pods(r.NS).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	r.note(l.Items)
	return l.Items, nil
}

// Kubectl runs kubectl in the namespace.
func (r *Run) Kubectl(ctx context.Context, args ...string) error {
	out, err := r.C.Kubectl(ctx, nil, append([]string{"-n", r.NS}, args...)...)
	out = strings.TrimSpace(out)
	r.Logf("kubectl %s: %s", strings.Join(args, " "), out[strings.LastIndexByte(out, '\n')+1:])
	return err
}

// until polls done until it holds. Errors of done are what was missing.
func until(ctx context.Context, what string, limit time.Duration, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Settled waits until there are n pods, all of them Ready and none of them ending. Containers that ended for good are
// not waited for.
func (r *Run) Settled(ctx context.Context, n int) error {
	return until(ctx, fmt.Sprintf("%d pods are Ready", n), 2*time.Minute, func(ctx context.Context) error {
		pods, err := r.Pods(ctx)
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range pods {
			if p.DeletionTimestamp != nil {
				return fmt.Errorf("%s is ending", p.Name)
			}
			if podReady(p) {
				ready++
			}
		}
		if ready != n || len(pods) != n {
			return fmt.Errorf("%d of %d pods are Ready", ready, len(pods))
		}
		return nil
	})
}

func podReady(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Rolled waits until a Deployment, StatefulSet or DaemonSet ("deployment/web") has rolled, and its pods have settled.
func (r *Run) Rolled(ctx context.Context, what string, n int) error {
	if err := r.Kubectl(ctx, "rollout", "status", what, "--timeout=120s"); err != nil {
		return err
	}
	return r.Settled(ctx, n)
}

// Restart restarts and waits until that is over.
func (r *Run) Restart(ctx context.Context, what string, n int) error {
	if err := r.Kubectl(ctx, "rollout", "restart", what); err != nil {
		return err
	}
	return r.Rolled(ctx, what, n)
}

// DeletePod deletes a pod and waits until it is gone; grace is nil for the pod's own.
func (r *Run) DeletePod(ctx context.Context, name string, grace *int64) error {
	p, err := r.C.Client.CoreV1().Pods(r.NS).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	r.Logf("delete pod %s", name)
	if err := r.C.Client.CoreV1().Pods(r.NS).Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: grace}); err != nil {
		return err
	}
	return r.Gone(ctx, p)
}

// Gone waits until a pod, by UID, is gone.
func (r *Run) Gone(ctx context.Context, p *corev1.Pod) error {
	return until(ctx, p.Name+" is gone", 2*time.Minute, func(ctx context.Context) error {
		now, err := r.C.Client.CoreV1().Pods(r.NS).Get(ctx, p.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.UID != p.UID {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.New("it is there")
	})
}

// Restarts waits until the pods' containers have been restarted n times in all.
func (r *Run) Restarts(ctx context.Context, n int32) error {
	return until(ctx, fmt.Sprintf("%d restarts", n), 3*time.Minute, func(ctx context.Context) error {
		pods, err := r.Pods(ctx)
		if err != nil {
			return err
		}
		var sum int32
		for _, p := range pods {
			for _, s := range p.Status.ContainerStatuses {
				sum += s.RestartCount
			}
		}
		if sum < n {
			return fmt.Errorf("%d restarts", sum)
		}
		return nil
	})
}

// Sleep waits, or until ctx ends.
func (r *Run) Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
