package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rolltrace/rolltrace/correlate"
	"github.com/rolltrace/rolltrace/record"
	"github.com/rolltrace/rolltrace/roll"
)

type runOptions struct {
	record  recordOptions
	verify  verifyOptions
	target  string
	command []string

	restart                  bool
	times                    int
	settle, minAge           time.Duration
	gateTimeout, rollTimeout time.Duration
}

// rollBegins is how long after the act a roll may take to show.
const rollBegins = 30 * time.Second

func (a *app) runCmd() *cobra.Command {
	var o runOptions
	o.record.kube = genericclioptions.NewConfigFlags(true)
	c := &cobra.Command{
		Use:   "run TYPE/NAME --record rec.jsonl (--restart | -- COMMAND [ARG...])",
		Short: "Record, roll, wait until the last old pod is gone, and judge",
		Long: `Record, roll, wait until the last old pod is gone, and judge: what 'record', a rollout and 'verify' do one after the other.

It first waits until every workload of the namespace is settled, no ReplicaSet is younger than --min-age, the nodes are
Ready and the backend answers. Then it records the whole namespace, callers and all, and acts only once every watch is
open: it restarts the workload (--restart, as 'kubectl rollout restart'), or runs a command, whose output is passed
through. It waits until the last old pod is gone and the new ones are Ready, which is later than 'kubectl rollout status'
says, and judges the rolls of the workload.

A roll that does not end within --roll-timeout is inconclusive, and the report says what hung. A command that fails ends
the run without a verdict. Whatever happens, the recording is kept, whole up to there: 'rolltrace verify' can judge it.

` + backendHelp + `

` + exitCodesHelp,
		Example: `  rolltrace run deployment/cart -n shop --restart --times 3 --record rec.jsonl --addr http://tempo:3200
  rolltrace run deployment/cart -n shop --record rec.jsonl --addr http://tempo:3200 -- kubectl -n shop set image deployment/cart app=cart:2`,
		Args: minArgs(1, "TYPE/NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			switch dash := c.ArgsLenAtDash(); {
			case dash == 0, dash < 0 && len(args) != 1, dash > 1:
				return withHint(usageErrorf("%s wants one TYPE/NAME", c.CommandPath()), "a command to run comes after '--'")
			case dash == 1:
				o.command = args[1:]
			}
			o.target = args[0]
			if err := o.verify.backend.complete(c.Flags().Changed, a.getenv); err != nil {
				return err
			}
			return a.runRun(c.Context(), &o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.record.output, "record", "", "the recording to write")
	f.BoolVar(&o.record.overwrite, "overwrite", false, "replace the recording if it exists")
	f.BoolVar(&o.record.noLogs, "no-logs", false, "do not follow the pods' logs")
	f.BoolVar(&o.restart, "restart", false, "restart the workload, as 'kubectl rollout restart' does")
	f.IntVar(&o.times, "times", 1, "how often to act")
	f.DurationVar(&o.settle, "settle", 5*time.Second, "how long to record after each roll, before the next")
	f.DurationVar(&o.minAge, "min-age", time.Minute, "do not begin while a ReplicaSet is younger than this")
	f.DurationVar(&o.gateTimeout, "gate-timeout", 5*time.Minute, "give up when it is not settled after this")
	f.DurationVar(&o.rollTimeout, "roll-timeout", 15*time.Minute, "stop waiting for a roll after this")
	o.verify.add(f, "output")
	o.record.kube.AddFlags(f)
	f.Lookup("cache-dir").DefValue = "$HOME/.kube/cache"
	return c
}

func (a *app) runRun(ctx context.Context, o *runOptions) error {
	switch {
	case o.restart == (len(o.command) > 0):
		return withHint(usageErrorf("run wants --restart or a command"), "add --restart, or '-- COMMAND' at the end")
	case o.times < 1:
		return usageErrorf("--times %d is less than 1", o.times)
	case o.record.output == "" || o.record.output == "-":
		return withHint(usageErrorf("no recording to write is named"), "add --record rec.jsonl")
	}
	ref, err := record.ParseRef(o.target)
	if err != nil {
		return withHint(usageErrorf("%w", err), "for example deployment/cart")
	}
	opts, err := a.recordOptions(o.record)
	if err != nil {
		return err
	}
	target := roll.Workload{Kind: roll.KindOfResource(ref.Resource), Namespace: opts.Namespace, Name: ref.Name}
	o.verify.recording, o.verify.selection = o.record.output, rollSelection{objects: []string{o.target}, namespace: opts.Namespace}
	if _, err := o.verify.check(a); err != nil {
		return err
	}
	act, err := a.action(o, opts.Config, target)
	if err != nil {
		return err
	}
	if err := a.reachBackend(ctx, &o.verify); err != nil {
		return err
	}

	whole, err := a.recordRolls(ctx, o, opts, target, act)
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintf(a.stderr, "rolltrace: the recording %s is whole up to the interruption\n", o.record.output)
		return err
	case err != nil && whole:
		return withHint(err, "the recording is kept: 'rolltrace verify %s' judges what happened", o.record.output)
	case err != nil:
		return err
	}
	return a.runVerify(ctx, &o.verify)
}

// recordRolls records while it gates, acts and waits. whole says that a recording with a footer was written.
func (a *app) recordRolls(
	ctx context.Context, o *runOptions, opts record.Options, target roll.Workload, act func(context.Context) error,
) (whole bool, err error) {
	out := &lazyFile{name: o.record.output, overwrite: o.record.overwrite}
	track := newTracker(a.now)
	live := make(chan struct{})
	opts.Live = func() { close(live) }
	recording, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() {
		_, err := record.Live(recording, io.MultiWriter(out, track), opts)
		ended <- errors.Join(err, out.Close())
	}()
	select {
	case <-live:
		fmt.Fprintf(a.stderr, "rolltrace: recording to %s\n", o.record.output)
	case err := <-ended:
		return false, recordHint(err, opts)
	}

	r := &runner{app: a, o: o, target: target, track: track}
	errRun := make(chan error, 1)
	go func() { errRun <- r.rolls(recording, act) }()
	select {
	case err = <-errRun:
		stop(record.Stop("done"))
		if werr := <-ended; werr != nil {
			return false, recordHint(werr, opts)
		}
		return true, err
	case werr := <-ended: // the disk is full, or the run was interrupted
		stop(nil)
		<-errRun
		if ctx.Err() != nil {
			return true, context.Canceled
		}
		return false, recordHint(werr, opts)
	}
}

// runner gates, acts and waits.
type runner struct {
	app    *app
	o      *runOptions
	target roll.Workload
	track  *tracker
}

func (r *runner) rolls(ctx context.Context, act func(context.Context) error) error {
	if err := r.gate(ctx); err != nil {
		return err
	}
	for i := range r.o.times {
		if i > 0 {
			if why := r.wait(ctx, r.o.gateTimeout, func() []string { return r.track.unsettled(0) }); len(why) > 0 {
				return fmt.Errorf("before roll %d of %d: not settled after %s: %s", i+1, r.o.times, r.o.gateTimeout, few(why))
			}
		}
		before := r.track.rolls(r.target)
		r.app.say("roll %d of %d: %s", i+1, r.o.times, r.what())
		if err := act(ctx); err != nil {
			return err
		}
		begun := func() []string {
			if len(r.track.rolls(r.target)) > len(before) {
				return nil
			}
			return []string{"no roll of " + r.target.String() + " began"}
		}
		if why := r.wait(ctx, rollBegins, begun); len(why) > 0 {
			return fmt.Errorf("%s within %s of the act", why[0], rollBegins)
		}
		over := func() []string {
			rolls := r.track.rolls(r.target)
			if last := rolls[len(rolls)-1]; !last.Completed {
				return append([]string{last.ID + " is not over"}, r.track.unsettled(0)...)
			}
			return r.track.unsettled(0)
		}
		if why := r.wait(ctx, r.o.rollTimeout, over); len(why) > 0 {
			r.app.say("roll %d of %d hung: after %s: %s", i+1, r.o.times, r.o.rollTimeout, few(why))
			return nil // the verdict says the same
		}
		r.app.say("roll %d of %d is over: the last old pod is gone", i+1, r.o.times)
		if !sleep(ctx, max(r.o.settle, r.o.verify.padding+time.Second)) {
			return ctx.Err()
		}
	}
	return nil
}

func (r *runner) gate(ctx context.Context) error {
	first := true
	why := r.wait(ctx, r.o.gateTimeout, func() []string {
		why := r.track.unsettled(r.o.minAge)
		if first && len(why) > 0 {
			first = false
			r.app.say("waiting until it is settled: %s", few(why))
		}
		return why
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(why) > 0 {
		return withHint(fmt.Errorf("not settled after %s: %s", r.o.gateTimeout, few(why)), "wait longer with --gate-timeout, or take younger ReplicaSets with --min-age")
	}
	return nil
}

// wait asks until nothing speaks against going on, or time is up: then it returns what does.
func (r *runner) wait(ctx context.Context, atMost time.Duration, against func() []string) []string {
	deadline := r.app.now().Add(atMost)
	for {
		began := r.app.now()
		why := against()
		if len(why) == 0 || ctx.Err() != nil || r.app.now().After(deadline) {
			return why
		}
		if !sleep(ctx, max(300*time.Millisecond, 10*r.app.now().Sub(began))) { // asking must not become the load
			return why
		}
	}
}

func (r *runner) what() string {
	if r.o.restart {
		return "restarting " + r.target.String()
	}
	return "running " + r.o.command[0]
}

func few(why []string) string {
	if len(why) > 5 {
		return strings.Join(why[:5], "; ") + fmt.Sprintf("; and %d more", len(why)-5)
	}
	return strings.Join(why, "; ")
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (a *app) say(format string, args ...any) {
	fmt.Fprintln(a.stderr, "rolltrace:", oneLine(fmt.Sprintf(format, args...)))
}

// reachBackend is the gate's part about the backend.
func (a *app) reachBackend(ctx context.Context, o *verifyOptions) error {
	traces, closeTraces, err := o.backend.open(a)
	if err != nil {
		return err
	}
	defer closeTraces()
	if p, ok := traces.(interface{ Probe(context.Context) error }); ok {
		if err := p.Probe(ctx); err != nil {
			return withHint(fmt.Errorf("reach %s: %w", traces.Name(), err), "check the address and the credentials")
		}
	}
	return nil
}

// action is what --restart or the command does.
func (a *app) action(o *runOptions, config *rest.Config, target roll.Workload) (func(context.Context) error, error) {
	if !o.restart {
		return func(ctx context.Context) error { return a.command(ctx, o.command) }, nil
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	apps := client.AppsV1()
	patch := func(ctx context.Context) error {
		body, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{
			"annotations": map[string]string{"kubectl.kubernetes.io/restartedAt": a.now().UTC().Format(time.RFC3339)},
		}}}})
		if err != nil {
			return err
		}
		opts := metav1.PatchOptions{FieldManager: "rolltrace"}
		switch target.Kind {
		case "Deployment":
			_, err = apps.Deployments(target.Namespace).Patch(ctx, target.Name, types.StrategicMergePatchType, body, opts)
		case "StatefulSet":
			_, err = apps.StatefulSets(target.Namespace).Patch(ctx, target.Name, types.StrategicMergePatchType, body, opts)
		case "DaemonSet":
			_, err = apps.DaemonSets(target.Namespace).Patch(ctx, target.Name, types.StrategicMergePatchType, body, opts)
		}
		if err != nil {
			return withHint(fmt.Errorf("restart %s: %w", target, err), "check with 'kubectl auth can-i patch %ss -n %s'", strings.ToLower(target.Kind), target.Namespace)
		}
		return nil
	}
	if !slices.Contains([]string{"Deployment", "StatefulSet", "DaemonSet"}, target.Kind) {
		return nil, usageErrorf("--restart takes a deployment, statefulset or daemonset, not %s", o.target)
	}
	return patch, nil
}

// command runs the user's command with its output passed through: both streams to standard error, for standard output is
// the report's.
func (a *app) command(ctx context.Context, argv []string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = a.stderr, a.stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &exit):
		return fmt.Errorf("the command %s exited %d", argv[0], exit.ExitCode())
	case err != nil:
		return fmt.Errorf("run the command %s: %w", argv[0], errors.Unwrap(err))
	}
	return nil
}

// tracker keeps what was recorded so far, for the gate and the waits. The recorder writes one line a Write.
type tracker struct {
	now func() time.Time

	mu  sync.Mutex
	rec roll.Recording
}

func newTracker(now func() time.Time) *tracker { return &tracker{now: now} }

func (t *tracker) Write(b []byte) (int, error) {
	var l roll.Line
	if err := json.Unmarshal(bytes.TrimSpace(b), &l); err != nil {
		return 0, fmt.Errorf("follow the recording: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case l.Header != nil:
		t.rec.Header = *l.Header
	case l.Object != nil, l.Gap != nil:
		t.rec.Lines = append(t.rec.Lines, l)
	}
	if l.ReceivedAt.After(t.rec.Last) {
		t.rec.Last = l.ReceivedAt
	}
	return len(b), nil
}

func (t *tracker) snapshot() *roll.Recording {
	t.mu.Lock()
	defer t.mu.Unlock()
	rec := t.rec
	rec.Lines = slices.Clip(rec.Lines)
	return &rec
}

func (t *tracker) unsettled(minAge time.Duration) []string {
	return correlate.Unsettled(t.snapshot(), minAge, t.now())
}

// rolls returns the rolls of a workload so far.
func (t *tracker) rolls(w roll.Workload) []roll.Roll {
	return slices.DeleteFunc(correlate.Derive(t.snapshot()).Rolls, func(r roll.Roll) bool { return r.Workload != w })
}
