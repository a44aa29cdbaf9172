package cluster_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolltrace/rolltrace/e2e/cluster"
)

// TestBesideEachOther brings two clusters up at once: each has a node and pods of its own, and closing one leaves the other
// as it is.
func TestBesideEachOther(t *testing.T) {
	ctx := t.Context()
	up := make(chan *cluster.Cluster, 2)
	for range 2 {
		go func() {
			c, err := cluster.Up(ctx, cluster.Options{Progress: t.Output()})
			if err != nil {
				t.Error(err)
			}
			up <- c
		}()
	}
	a, b := <-up, <-up
	if a == nil || b == nil {
		t.FailNow()
	}
	for _, c := range []*cluster.Cluster{a, b} {
		runPod(t, c)
	}
	if a.Dir == b.Dir || a.Config.Host == b.Config.Host {
		t.Errorf("both clusters are in %s, at %s", a.Dir, b.Config.Host)
	}
	end(t, a)
	if _, err := b.Client.CoreV1().Pods("default").Get(ctx, "pause", metav1.GetOptions{}); err != nil {
		t.Errorf("the other cluster's pod: %v", err)
	}
	end(t, b)
	if err := b.Close(); err != nil {
		t.Errorf("close again: %v", err)
	}
}

// runPod runs a pod of the image that every cluster has, and reaches the node from a proxy that can be cut.
func runPod(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx := t.Context()
	pods := c.Client.CoreV1().Pods("default")
	if _, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pause"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "pause", Image: "e2e.local/pause:1", ImagePullPolicy: corev1.PullNever,
		}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		p, err := pods.Get(ctx, "pause", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Status.Phase == corev1.PodRunning && strings.HasPrefix(p.Status.PodIP, "10.88.") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the pod does not run: %+v", p.Status)
		}
	}
}

func end(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	root := filepath.Dir(c.Dir)
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	for _, l := range left(t, root) {
		t.Errorf("left after Close: %s", l)
	}
}

// left lists what is there of a cluster: processes, mounts, cgroups, interfaces and its directory.
func left(t *testing.T, root string) (what []string) {
	t.Helper()
	name := filepath.Base(root)
	for _, p := range glob(t, "/proc/[0-9]*") {
		cmdline, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		cgroup, _ := os.ReadFile(filepath.Join(p, "cgroup"))
		if bytes.Contains(cmdline, []byte(name)) || bytes.Contains(cgroup, []byte(name)) {
			what = append(what, "process "+string(bytes.ReplaceAll(cmdline, []byte{0}, []byte(" "))))
		}
	}
	for _, file := range []string{"/proc/self/mounts", "/proc/net/dev"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, name) || strings.HasPrefix(strings.TrimSpace(line), "cni0:") {
				what = append(what, file+" "+strings.TrimSpace(line))
			}
		}
	}
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name, root} {
		what = append(what, glob(t, pattern)...)
	}
	return what
}

// TestEndsWithItsOwner ends the process that brought a cluster up in every way there is. Nothing is left soon after, and
// the machine's sysctls are as they were.
func TestEndsWithItsOwner(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "cluster")
	if err := cluster.BuildPackage(t.Context(), "./cmd/cluster", bin); err != nil {
		t.Fatal(err)
	}
	before := sysctls(t)
	for name, signal := range map[string]syscall.Signal{
		"SIGINT": syscall.SIGINT, "SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL,
		"panic": syscall.SIGQUIT, // Go's runtime ends the process as a panic does: no deferred function, no Cleanup runs
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), bin)
			cmd.Stderr = io.Discard
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			root := rootOf(t, stdout)
			if len(left(t, root)) == 0 {
				t.Fatalf("nothing is there of the cluster in %s", root)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			var what []string
			for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
				if what = left(t, root); len(what) == 0 {
					break
				}
			}
			for _, l := range what {
				t.Errorf("left: %s", l)
			}
		})
	}
	if after := sysctls(t); after != before {
		t.Errorf("the machine's sysctls were %s and are %s", before, after)
	}
}

// rootOf reads the line that says where the kubeconfig is.
func rootOf(t *testing.T, stdout io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	_, path, ok := strings.Cut(line, "KUBECONFIG=")
	if err != nil || !ok {
		t.Fatalf("the cluster did not come up: %q (%v)", line, err)
	}
	path, _, _ = strings.Cut(path, " ")
	return filepath.Dir(path)
}

func sysctls(t *testing.T) string {
	t.Helper()
	var all []string
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"} {
		b, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, name+"="+strings.TrimSpace(string(b)))
	}
	return strings.Join(all, " ")
}

// TestEndsWithItsContext ends the context of a cluster, and that of one which is still coming up.
func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, err := cluster.Up(ctx, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	end(t, c) // Close waits for what the context began

	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if c, err := cluster.Up(ctx, cluster.Options{}); err == nil {
		c.Close()
		t.Error("came up after its context had ended")
	}
	for _, d := range glob(t, filepath.Join(temp, "*")) {
		for _, l := range left(t, d) {
			t.Errorf("left: %s", l)
		}
	}
}

// TestSupervisorKilled kills what tidies up: the cluster ends all the same, and the next Up removes what it left.
func TestSupervisorKilled(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	c, err := cluster.Up(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Dir(c.Dir)
	killed := 0
	for _, p := range glob(t, "/proc/[0-9]*") {
		b, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		if args := strings.Split(string(b), "\x00"); len(args) > 2 && args[1] == "supervise" && args[2] == root {
			pid, err := strconv.Atoi(filepath.Base(p))
			if err != nil {
				t.Fatal(err)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed++
		}
	}
	if killed != 1 {
		t.Fatalf("%d supervisors", killed)
	}
	if err := c.Close(); err == nil {
		t.Error("Close says that all is well")
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		processes := slices.DeleteFunc(left(t, root), func(l string) bool { return !strings.HasPrefix(l, "process") })
		if len(processes) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %s", processes)
		}
	}
	next, err := cluster.Up(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range left(t, root) {
		t.Errorf("left: %s", l)
	}
	end(t, next)
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
