// Benchrecord holds `rolltrace record` against a simulated API server: many pods, many watch events a second, many logs,
// streams that are slow and cut. It prints what was lost, how much memory and processor time the recorder took, and how
// late its lines were, beside `kubectl get pods -A -w -o json` on the same stream. It fails when an event is lost or
// memory passes the limit.
//
//	benchrecord -rolltrace BINARY [-kubectl BINARY] [FLAGS]
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/rolltrace/rolltrace/e2e/cluster"
	"github.com/rolltrace/rolltrace/roll"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "benchrecord:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	rolltrace := flag.String("rolltrace", "", "the rolltrace binary")
	kubectl := flag.String("kubectl", builtKubectl(), "the kubectl binary; empty: it is left out")
	pods := flag.Int("pods", 20000, "pods")
	rate := flag.Int("rate", 1000, "watch events a second")
	logs := flag.Int("logs", 500, "pods with a log")
	length := flag.Duration("for", 60*time.Second, "how long")
	limit := flag.Int("memory", 300, "MiB of resident memory that the recorder may take")
	flag.Parse()

	dir, err := os.MkdirTemp("", "benchrecord-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := newServer(*pods, *logs, time.Second)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{Handler: s}
	go web.Serve(l)
	defer web.Close()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: \"http://%s\"}}]\n"+
		"users: [{name: x}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n", l.Addr()), 0o600); err != nil {
		return err
	}

	path := filepath.Join(dir, "rec.jsonl")
	rec := &child{}
	if err := rec.start(ctx, *rolltrace, nil, "record", "-A", "--kubeconfig", kubeconfig, "-o", path); err != nil {
		return err
	}
	if err := rec.waitFor("recording to", 2*time.Minute); err != nil {
		return err
	}
	listed := time.Since(rec.began)
	kube := &child{}
	if *kubectl != "" {
		out, err := os.Create(filepath.Join(dir, "kubectl.json"))
		if err != nil {
			return err
		}
		defer out.Close()
		if err := kube.start(ctx, *kubectl, out, "--kubeconfig", kubeconfig, "--cache-dir", dir, "get", "pods", "-A", "-w", "-o", "json", "--output-watch-events"); err != nil {
			return err
		}
		time.Sleep(10 * time.Second) // it writes the list first
	}

	for tick, end := time.NewTicker(20*time.Millisecond), time.Now().Add(*length); time.Now().Before(end); <-tick.C {
		s.modify(*rate / 50)
	}
	time.Sleep(4 * time.Second) // the last ones on their way, past a cut and its wait
	recStat, kubeStat := rec.stat(), kube.stat()
	if err := rec.stop(); err != nil {
		return fmt.Errorf("rolltrace record: %w: %s", err, rec.said())
	}
	kubeSeen := 0
	if *kubectl != "" {
		kube.cmd.Process.Kill()
		kube.cmd.Wait()
		b, err := os.ReadFile(filepath.Join(dir, "kubectl.json"))
		if err != nil {
			return err
		}
		kubeSeen = bytes.Count(b, []byte(`"MODIFIED"`))
	}
	s.stop()

	lost, late, lines, err := check(path, s)
	if err != nil {
		return err
	}
	fmt.Printf("%d pods listed in %s; %d events in %s, %d watches cut, %d logs with %d lines\n",
		*pods, listed.Round(10*time.Millisecond), len(s.history), *length, s.cuts, s.started, s.lines)
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\tevents lost\tlag median\tp99\tmax\tpeak memory\tprocessor\tlog lines")
	q := func(p float64) time.Duration {
		return late[min(len(late)-1, int(p*float64(len(late))))].Round(100 * time.Microsecond)
	}
	fmt.Fprintf(tw, "rolltrace record\t%d\t%s\t%s\t%s\t%d MiB\t%s\t%d\n", lost, q(0.5), q(0.99), late[len(late)-1].Round(time.Millisecond), recStat.peak>>20, recStat.cpu, lines)
	if *kubectl != "" {
		fmt.Fprintf(tw, "kubectl get pods -A -w -o json\t%d\t\t\t\t%d MiB\t%s\t\n", len(s.history)-kubeSeen, kubeStat.peak>>20, kubeStat.cpu)
	} else {
		fmt.Println("kubectl is not built: make -C e2e components")
	}
	tw.Flush()
	switch {
	case lost > 0:
		return fmt.Errorf("%d events are not in the recording", lost)
	case recStat.peak>>20 > uint64(*limit):
		return fmt.Errorf("the recorder took %d MiB, %d are allowed", recStat.peak>>20, *limit)
	}
	return nil
}

// builtKubectl is the kubectl of the end-to-end bench, "" when it is not built.
func builtKubectl() string {
	dir, err := cluster.CacheDir()
	if err != nil {
		return ""
	}
	if found, _ := filepath.Glob(filepath.Join(dir, "*", "kubectl")); len(found) > 0 {
		return found[0]
	}
	return ""
}

// check reads the recording and says which events are not in it and how late the others came.
func check(path string, s *server) (lost int, late []time.Duration, lines int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, nil, 0, err
	}
	defer f.Close()
	rd, err := roll.NewReader(f)
	if err != nil {
		return 0, nil, 0, err
	}
	seen := map[int]time.Time{}
	footer := false
	for {
		l, err := rd.Next()
		if err != nil {
			break
		}
		switch {
		case l.Object != nil && l.Resource == roll.ResourcePods && l.Op == roll.OpModified:
			rv, err := strconv.Atoi(l.Object.Metadata.ResourceVersion)
			if err != nil {
				return 0, nil, 0, err
			}
			seen[rv] = l.ReceivedAt
		case l.Log != nil:
			lines++
		case l.Gap != nil && !l.Gap.Lossless:
			return 0, nil, 0, fmt.Errorf("the recording has a gap: %+v", *l.Gap)
		case l.Footer != nil:
			footer = true
		}
	}
	if !footer || len(rd.Gaps()) > 0 {
		return 0, nil, 0, fmt.Errorf("the recording is not whole: %v", rd.Gaps())
	}
	for _, e := range s.history {
		at, ok := seen[e.rv]
		if !ok {
			lost++
			continue
		}
		late = append(late, at.Sub(e.at))
	}
	if len(late) == 0 {
		return lost, nil, lines, errors.New("no event was recorded")
	}
	slices.Sort(late)
	return lost, late, lines, nil
}

// child is a program under measurement.
type child struct {
	cmd   *exec.Cmd
	began time.Time
	lines chan string
	text  []string
}

func (c *child) start(ctx context.Context, name string, stdout *os.File, args ...string) error {
	c.cmd = exec.CommandContext(ctx, name, args...)
	if stdout != nil {
		c.cmd.Stdout = stdout
	}
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		return err
	}
	c.began, c.lines = time.Now(), make(chan string, 1000)
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(c.lines)
		for in := bufio.NewScanner(stderr); in.Scan(); {
			select {
			case c.lines <- in.Text():
			default:
			}
		}
	}()
	return nil
}

func (c *child) waitFor(what string, atMost time.Duration) error {
	deadline := time.After(atMost)
	for {
		select {
		case l, ok := <-c.lines:
			c.text = append(c.text, l)
			if strings.Contains(l, what) {
				return nil
			}
			if !ok {
				return fmt.Errorf("%s ended: %s", c.cmd.Path, c.said())
			}
		case <-deadline:
			return fmt.Errorf("%s does not say %q after %s", c.cmd.Path, what, atMost)
		}
	}
}

func (c *child) said() string { return strings.Join(c.text, "; ") }

func (c *child) stop() error {
	c.cmd.Process.Signal(syscall.SIGINT)
	for l := range c.lines {
		c.text = append(c.text, l)
	}
	return c.cmd.Wait()
}

type usage struct {
	peak uint64 // bytes
	cpu  time.Duration
}

var peak = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// stat reads /proc: the peak of resident memory, and the processor time of user and kernel in ticks of 10 ms.
func (c *child) stat() (u usage) {
	if c.cmd == nil {
		return u
	}
	dir := fmt.Sprintf("/proc/%d/", c.cmd.Process.Pid)
	if b, err := os.ReadFile(dir + "status"); err == nil {
		if m := peak.FindSubmatch(b); m != nil {
			kb, _ := strconv.ParseUint(string(m[1]), 10, 64)
			u.peak = kb << 10
		}
	}
	if b, err := os.ReadFile(dir + "stat"); err == nil {
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		user, _ := strconv.Atoi(f[11])
		system, _ := strconv.Atoi(f[12])
		u.cpu = time.Duration(user+system) * 10 * time.Millisecond
	}
	return u
}
