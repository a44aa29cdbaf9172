package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/rolltrace/rolltrace/e2e/cluster"
	"github.com/rolltrace/rolltrace/e2e/services/journal"
	"github.com/rolltrace/rolltrace/query/querytest/tempofake"
	"github.com/rolltrace/rolltrace/roll"
)

// otlpPort is where the pods find the store.
const otlpPort = "4317"

// clientRBAC lets the client follow its Service's endpoints.
const clientRBAC = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: endpoints}
rules: [{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: endpoints}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: endpoints}
subjects: [{kind: ServiceAccount, name: default}]
`

// bench is a cluster whose pods send their spans to a store, and the program under test.
type bench struct {
	c         *cluster.Cluster
	rolltrace string
	dir       string
	store     []string // flags that reach the store
}

// newBench brings it up. The store is the embedded one, or the Tempo that ROLLTRACE_TEMPO_ADDR, ROLLTRACE_TEMPO_GRPC_ADDR and
// ROLLTRACE_TEMPO_OTLP_ADDR name.
func newBench(t *testing.T) *bench {
	t.Helper()
	bin := t.TempDir()
	b := &bench{rolltrace: buildRolltrace(t, bin), dir: *keep}
	if b.dir == "" {
		b.dir = t.TempDir()
	}
	service := filepath.Join(bin, "service")
	if err := cluster.BuildPackage(t.Context(), "./services/service", service); err != nil {
		t.Fatal(err)
	}
	var err error
	b.c, err = cluster.Up(t.Context(), cluster.Options{Images: []cluster.Image{{Ref: ServiceImage, Binary: service}}, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.c.Close(); err != nil {
			t.Error(err)
		}
	})
	otlp := os.Getenv("ROLLTRACE_TEMPO_OTLP_ADDR")
	if addr := os.Getenv("ROLLTRACE_TEMPO_ADDR"); addr != "" {
		b.store = []string{"--addr", addr, "--grpc-addr", os.Getenv("ROLLTRACE_TEMPO_GRPC_ADDR")}
	} else {
		store, err := tempofake.Start(t.Context(), tempofake.Options{Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		otlp = store.GRPCAddr()
		b.store = []string{"--addr", "http://" + store.HTTPAddr(), "--grpc-addr", store.GRPCAddr()}
	}
	if err := b.c.Expose(t.Context(), cluster.NodeIP+":"+otlpPort, otlp); err != nil {
		t.Fatal(err)
	}
	return b
}

// traced gives a container a way to the store.
func traced(c corev1.Container) corev1.Container {
	c.Env = append(c.Env, corev1.EnvVar{Name: "OTEL_EXPORTER_OTLP_ENDPOINT", Value: "http://" + cluster.NodeIP + ":" + otlpPort})
	return c
}

// traffic makes a namespace with a server of two pods, whose container this is, and two callers, and waits until all are Ready.
func (b *bench) traffic(t *testing.T, name string, server corev1.Container) *Run {
	t.Helper()
	ctx := t.Context()
	r, err := newRun(ctx, b.c, name, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.c.Client.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	if out, err := b.c.Kubectl(ctx, strings.NewReader(clientRBAC), "-n", name, "apply", "-f", "-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	web := deployment(2, r.pod(50, traced(server)))
	callers := r.pod(10, traced(container("client", 8080)))
	callers.Labels = map[string]string{"app": "shop"}
	callers.Spec.AutomountServiceAccountToken = ptr(true)
	c := &callers.Spec.Containers[0]
	c.Args, c.ReadinessProbe = []string{"client", "-grpc-every", "150ms"}, nil
	shop := deployment(2, callers)
	shop.Name, shop.Spec.Selector = "shop", &metav1.LabelSelector{MatchLabels: callers.Labels}
	if err := r.Create(ctx, []runtime.Object{service(), web, shop}...); err != nil {
		t.Fatal(err)
	}
	if err := r.Settled(ctx, 4); err != nil {
		t.Fatal(err)
	}
	return r
}

// invocation is one run of the program.
type invocation struct {
	code           int
	stdout, stderr string
	report         *roll.Report
	recording      *roll.Recording
}

// run runs `rolltrace run deployment/web`. when is called with each line of standard error, if it is not nil.
func (b *bench) run(t *testing.T, r *Run, when func(line string, p *os.Process), args ...string) invocation {
	t.Helper()
	path := filepath.Join(b.dir, r.NS+".jsonl")
	all := []string{"run", "deployment/web", "-n", r.NS, "--kubeconfig", b.c.Kubeconfig, "--record", path, "--overwrite", "-o", "json", "--settle", "2s"}
	all = append(append(all, b.store...), args...)
	cmd := exec.CommandContext(t.Context(), b.rolltrace, all...)
	var out bytes.Buffer
	errs := &lines{when: when, cmd: cmd}
	cmd.Stdout, cmd.Stderr = &out, errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	inv := invocation{code: cmd.ProcessState.ExitCode(), stdout: out.String(), stderr: errs.String()}
	t.Logf("exit %d:\n%s", inv.code, inv.stderr)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if inv.recording, err = roll.ReadRecording(f); err != nil {
		t.Fatal(err)
	}
	if inv.stdout != "" {
		if inv.report, err = roll.ReadReport(strings.NewReader(inv.stdout)); err != nil {
			t.Fatal(err)
		}
	}
	return inv
}

// lines is standard error, seen line by line.
type lines struct {
	when func(string, *os.Process)
	cmd  *exec.Cmd

	mu   sync.Mutex
	all  bytes.Buffer
	rest []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(b)
	l.rest = append(l.rest, b...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		if l.rest = rest; l.when != nil {
			l.when(string(line), l.cmd.Process)
		}
	}
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// failedCalls counts the calls that the callers wrote down as failed.
func failedCalls(t *testing.T, r *Run) (failed, all int) {
	t.Helper()
	entries, err := journal.Read(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Event == journal.Call {
			if all++; e.Code != 0 {
				failed++
			}
		}
	}
	return failed, all
}

// TestRun is `rolltrace run` on a real cluster with services that export over OTLP.
func TestRun(t *testing.T) {
	b := newBench(t)
	orderly := func() corev1.Container { return standard("-grpc", ":9090", "-graceful", "5s") }

	t.Run("commands", func(t *testing.T) {
		t.Run("run-passes", func(t *testing.T) {
			t.Parallel()
			r := b.traffic(t, "run-passes", orderly())
			inv := b.run(t, r, nil, "--restart", "--times", "2", "--min-age", "3s")
			if inv.code != 0 || inv.report == nil || inv.report.Verdict != roll.Pass || len(inv.report.Rolls) != 2 {
				t.Fatalf("exit %d, want a pass of 2 rolls: %s", inv.code, inv.stdout)
			}
			if failed, all := failedCalls(t, r); failed != 0 || all < 50 {
				t.Errorf("the callers counted %d failed of %d calls", failed, all)
			}
			for _, x := range inv.report.Rolls {
				if x.Spans.Client < 20 || x.Spans.Server < 20 || x.Spans.Errors != 0 || len(x.Terminations) != 2 {
					t.Errorf("%s: %+v, %d terminations", x.ID, x.Spans, len(x.Terminations))
				}
			}
			if inv.recording.Footer == nil || inv.recording.Footer.Reason != "done" {
				t.Errorf("footer %+v", inv.recording.Footer)
			}
		})
		t.Run("run-hangs", func(t *testing.T) {
			t.Parallel()
			r := b.traffic(t, "run-hangs", orderly())
			inv := b.run(t, r, nil, "--min-age", "3s", "--roll-timeout", "15s", "--", filepath.Join(b.c.Bin, "kubectl"), "--kubeconfig", b.c.Kubeconfig, "-n", r.NS, "set", "image", "deployment/web", "app=e2e.local/nope:1")
			if inv.code != 4 || !strings.Contains(inv.stderr, "hung") {
				t.Fatalf("exit %d, want 4 and what hung", inv.code)
			}
			ends := slices.ContainsFunc(inv.report.Gaps, func(g roll.Gap) bool {
				return g.Reason == roll.GapEndsEarly && strings.Contains(g.Detail, "new pods are Ready")
			})
			if inv.report.Verdict != roll.Inconclusive || !ends && !strings.Contains(inv.stdout, "new pods are Ready") {
				t.Errorf("%s", inv.stdout)
			}
		})
		t.Run("run-command-fails", func(t *testing.T) {
			t.Parallel()
			r := b.traffic(t, "run-command-fails", orderly())
			inv := b.run(t, r, nil, "--min-age", "0s", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
			if inv.code != 1 || inv.stdout != "" || !strings.Contains(inv.stderr, "exited 7") || !strings.Contains(inv.stderr, "out\n") || !strings.Contains(inv.stderr, "err\n") {
				t.Errorf("exit %d, stdout %q", inv.code, inv.stdout)
			}
			if inv.recording.Footer == nil {
				t.Error("the recording has no footer")
			}
		})
		t.Run("run-not-settled", func(t *testing.T) {
			t.Parallel()
			r := b.traffic(t, "run-not-settled", orderly())
			inv := b.run(t, r, nil, "--restart", "--min-age", "1h", "--gate-timeout", "2s")
			if inv.code != 1 || inv.stdout != "" || !strings.Contains(inv.stderr, "younger than 1h0m0s") {
				t.Errorf("exit %d, stdout %q", inv.code, inv.stdout)
			}
		})
		t.Run("run-interrupted", func(t *testing.T) {
			t.Parallel()
			r := b.traffic(t, "run-interrupted", orderly())
			var once sync.Once
			inv := b.run(t, r, func(line string, p *os.Process) {
				if strings.Contains(line, "roll 1 of 1") {
					once.Do(func() { p.Signal(syscall.SIGINT) })
				}
			}, "--restart", "--min-age", "0s")
			if inv.code != 130 || inv.stdout != "" {
				t.Errorf("exit %d, stdout %q", inv.code, inv.stdout)
			}
			if f := inv.recording.Footer; f == nil || f.Reason != "interrupted" || len(inv.recording.Gaps) != 0 {
				t.Errorf("footer %+v, gaps %v", f, inv.recording.Gaps)
			}
		})
	})
	// By itself: in a store that is shared, failed calls of callers that were not recorded, which lead nowhere, make others
	// inconclusive.
	t.Run("run-fails", func(t *testing.T) {
		r := b.traffic(t, "run-fails", container("app", 8080, "-grpc", ":9090", "-close", "-delay", "500ms"))
		inv := b.run(t, r, nil, "--min-age", "3s", "--", filepath.Join(b.c.Bin, "kubectl"), "--kubeconfig", b.c.Kubeconfig, "-n", r.NS, "rollout", "restart", "deployment/web")
		if inv.code != 3 || inv.report == nil || inv.report.Verdict != roll.Fail {
			t.Fatalf("exit %d, want a fail: %s", inv.code, inv.stdout)
		}
		found := map[string]bool{}
		for _, res := range inv.report.Results {
			for _, f := range res.Findings {
				if res.Assertion == "no-error-spans" && f.SpanKind == "client" {
					found[f.SpanID] = true
				}
			}
		}
		failed, all := failedCalls(t, r)
		if failed == 0 || len(found) != failed {
			t.Errorf("the callers counted %d failed of %d calls, the report %d", failed, all, len(found))
		}
	})
	if t.Failed() {
		fmt.Println("logs of the cluster:", b.c.Logs)
	}
}
