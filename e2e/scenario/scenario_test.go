package scenario

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolltrace/rolltrace/e2e/cluster"
	"github.com/rolltrace/rolltrace/roll"
)

var (
	report    = flag.String("report", "", "write the results to this file, as docs/e2e.md is")
	keep      = flag.String("keep", "", "keep recordings and logs in this directory")
	only      = flag.String("only", "", "run the scenarios whose name matches this regular expression")
	atOnce    = flag.Int("at-once", 3, "scenarios at once")
	recordFor = 5 * time.Minute // bounds one scenario
)

// TestScenarios does what each scenario says to real pods while rolltrace records, and holds the recording against the
// truth.
func TestScenarios(t *testing.T) {
	match, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	dir := *keep
	if dir == "" {
		dir = t.TempDir()
	}
	if dir, err = filepath.Abs(dir); err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	rolltrace := buildRolltrace(t, bin)
	service := filepath.Join(bin, "service")
	if err := cluster.BuildPackage(t.Context(), "./services/service", service); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	c, err := cluster.Up(t.Context(), cluster.Options{
		Images: []cluster.Image{{Ref: ServiceImage, Binary: service}}, Logs: filepath.Join(dir, "logs"), Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("the cluster is up after %s", time.Since(start).Round(100*time.Millisecond))

	results := make([]*Result, len(Scenarios))
	one := func(t *testing.T, i int) {
		s := Scenarios[i]
		rec, ended := live(t, c, rolltrace, filepath.Join(dir, s.Name+".jsonl"), s)
		res := check(s, rec, ended)
		res.narrow(c, rec, ended)
		results[i] = &res
		for _, w := range res.Wrong {
			t.Error(w)
		}
	}
	slots := make(chan struct{}, *atOnce)
	t.Run("beside each other", func(t *testing.T) {
		for i, s := range Scenarios {
			if s.Alone || !match.MatchString(s.Name) {
				continue
			}
			t.Run(s.Name, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				one(t, i)
			})
		}
	})
	for i, s := range Scenarios {
		if s.Alone && match.MatchString(s.Name) {
			t.Run(s.Name, func(t *testing.T) { one(t, i) })
		}
	}
	if *report == "" {
		return
	}
	var ran []Result
	for _, r := range results {
		if r != nil {
			ran = append(ran, *r)
		}
	}
	f, err := os.Create(*report)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(WriteReport(f, ran), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// live runs one scenario with a recorder next to it.
func live(t *testing.T, c *cluster.Cluster, rolltrace, path string, s Scenario) (*roll.Recording, []Ended) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), recordFor)
	defer cancel()
	r, err := newRun(ctx, c, s.Name, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { // the next ones should not have to share the node with what is left
		err := c.Client.CoreV1().Namespaces().Delete(context.WithoutCancel(ctx), s.Name, metav1.DeleteOptions{})
		if err != nil {
			t.Log(err)
		}
	}()
	if err := r.Create(ctx, s.Objects(r)...); err != nil {
		t.Fatal(err)
	}
	rec := startRecorder(t, ctx, rolltrace, "record", "-n", s.Name, "--kubeconfig", r.Way.Kubeconfig, "-o", path, "--overwrite")
	if s.Pods > 0 {
		err = r.Settled(ctx, s.Pods)
	}
	if err == nil {
		err = s.Act(ctx, r)
	}
	if err != nil {
		rec.stop()
		t.Fatalf("the scenario failed, not rolltrace: %v", err)
	}
	r.Sleep(ctx, 3*time.Second)
	r.Pods(ctx)
	if err := rec.stop(); err != nil {
		t.Errorf("rolltrace record: %v", err)
	}
	ended, err := truth(r)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	recording, err := roll.ReadRecording(f)
	if err != nil {
		t.Fatal(err)
	}
	return recording, ended
}

// recorder is a running rolltrace record.
type recorder struct {
	cmd  *exec.Cmd
	read sync.WaitGroup
	said strings.Builder
}

// startRecorder starts rolltrace record and waits until it says that it records.
func startRecorder(t *testing.T, ctx context.Context, rolltrace string, args ...string) *recorder {
	t.Helper()
	r := &recorder{cmd: exec.CommandContext(ctx, rolltrace, args...)}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	live := make(chan struct{})
	r.read.Go(func() {
		told := false
		for s := bufio.NewScanner(stderr); s.Scan(); {
			fmt.Fprintln(&r.said, s.Text())
			if !told && strings.Contains(s.Text(), "recording to") {
				told = true
				close(live)
			}
		}
		if !told {
			close(live)
		}
		io.Copy(io.Discard, stderr)
	})
	select {
	case <-live:
	case <-ctx.Done():
		r.stop()
		t.Fatalf("rolltrace record does not say that it records: %s", r.said.String())
	}
	return r
}

// stop interrupts the recorder, as a person does, and waits for its end.
func (r *recorder) stop() error {
	r.cmd.Process.Signal(syscall.SIGINT)
	r.read.Wait()
	if err := r.cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, r.said.String())
	}
	return nil
}

// buildRolltrace builds the product, in its own module.
func buildRolltrace(t *testing.T, dir string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/rolltrace/rolltrace").Output()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "rolltrace")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./cmd/rolltrace")
	cmd.Dir = strings.TrimSpace(string(out))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build rolltrace: %v: %s", err, out)
	}
	return path
}
