package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rolltrace/rolltrace/assertions"
	"github.com/rolltrace/rolltrace/correlate"
	"github.com/rolltrace/rolltrace/query"
	reports "github.com/rolltrace/rolltrace/report"
	"github.com/rolltrace/rolltrace/roll"
	"github.com/rolltrace/rolltrace/verify"
)

type verifyOptions struct {
	recording string
	selection rollSelection
	policy    string
	format    string
	services  []string
	backend   backendFlags
	sources   sourceFlags

	controlRequired        bool
	controlFrom, controlTo string
	padding, timeout       time.Duration
	noWait, quiet          bool
}

func (a *app) verifyCmd() *cobra.Command {
	var o verifyOptions
	c := &cobra.Command{
		Use:   "verify REC [TYPE/NAME…]",
		Short: "Judge the rolls of a recording",
		Long: `Judge the rolls of a recording: fetch every client and server span of their windows, correlate them with the pods, and say
pass, fail or inconclusive, with the evidence.

REC is a recording (gzipped ones are read too), - is standard input. All its rolls are judged unless TYPE/NAME or --roll
names some. The spans come from Tempo (--addr) or, offline, from files of OTLP JSON lines (--spans). The report goes to
standard output, progress to standard error.

A policy (-f) accepts findings by name; without one nothing is accepted.

` + backendHelp + `

` + exitCodesHelp,
		Example: `  rolltrace verify rec.jsonl --addr http://tempo.monitoring:3200
  rolltrace verify rec.jsonl.gz --spans spans.otlp.jsonl -f policy.yaml -o json
  rolltrace verify rec.jsonl deployment/cart -n shop --control-required`,
		Args: minArgs(1, "a recording"),
		RunE: func(c *cobra.Command, args []string) error {
			o.recording, o.selection.objects = args[0], args[1:]
			if err := o.backend.complete(c.Flags().Changed, a.getenv); err != nil {
				return err
			}
			return a.runVerify(c.Context(), &o)
		},
	}
	f := c.Flags()
	o.selection.add(f)
	o.add(f, "output")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress on standard error")
	return c
}

// add declares the flags that say how to judge; format is the name of the report's format among them.
func (o *verifyOptions) add(f flagSet, format string) {
	o.sources.add(f)
	f.StringVarP(&o.policy, "filename", "f", "", "policy file: RolloutPolicy of rolltrace/v1alpha1")
	f.StringVarP(&o.format, format, "o", reports.Formats[0].Name, "format of the report: "+reports.Names())
	f.StringSliceVar(&o.services, "service", nil,
		"ask only for spans of these service.name values; leave the callers in, they see the cut calls")
	f.BoolVar(&o.controlRequired, "control-required", false,
		"inconclusive unless the same query finds error spans outside the windows")
	f.StringVar(&o.controlFrom, "control-from", "",
		"look for control spans from this time on, RFC 3339 (default: all that was recorded but the windows)")
	f.StringVar(&o.controlTo, "control-to", "", "look for control spans before this time, RFC 3339")
	f.DurationVar(&o.padding, "padding", verify.DefaultPadding, "widen the roll windows on both sides by this")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "give up after this, without a verdict")
	f.BoolVar(&o.noWait, "no-wait", false,
		"do not wait for the backend to catch up; what may be missing for that is a gap")
	o.backend.add(f)
}

func (a *app) runVerify(ctx context.Context, o *verifyOptions) error {
	// Everything that can be refused is refused before anything is asked.
	chk, err := o.check(a)
	if err != nil {
		return err
	}
	traces, closeTraces, err := o.backend.open(a)
	if err != nil {
		return err
	}
	defer closeTraces()
	rec, err := a.readRecording(o.recording)
	if err != nil {
		return err
	}

	errTimeout := fmt.Errorf("no verdict within %s", o.timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimeout)
	defer cancel()
	rep, err := verify.Run(ctx, verify.Options{
		Recording:       rec,
		Traces:          traces,
		Selection:       query.Selection{Services: o.services},
		Sources:         chk.sources,
		Policy:          chk.policy,
		Params:          assertions.DefaultParams(),
		Padding:         o.padding,
		Rolls:           chk.rolls,
		ControlRequired: o.controlRequired,
		ControlRange:    chk.control,
		NoWait:          o.noWait,
		Tool:            "rolltrace " + version(),
		Progress:        a.progress(o.quiet),
		Now:             a.now,
	})
	switch {
	case errors.Is(err, verify.ErrNoRollSelected):
		return withHint(&codeError{err: fmt.Errorf("select rolls of %s: %w", o.recording, err), code: exitUsage},
			"'rolltrace windows %s' lists the rolls", o.recording)
	case err != nil && errors.Is(context.Cause(ctx), errTimeout):
		return withHint(fmt.Errorf("verify %s: %w", o.recording, errTimeout),
			"give it more time with --timeout, or check that %s answers", traces.Address())
	case err != nil:
		return withHint(fmt.Errorf("verify %s: %w", o.recording, err), "%s", o.backend.hint())
	}
	return a.writeReport(o.format, rep)
}

// checked is what the flags of verifyOptions mean.
type checked struct {
	rolls   func(*roll.Roll) bool
	control *roll.Range
	policy  *assertions.Policy
	sources correlate.Sources
}

// check refuses what can be refused without asking anybody.
func (o *verifyOptions) check(a *app) (c checked, err error) {
	if !reports.Known(o.format) {
		return c, withHint(usageErrorf("format %q is not known", o.format), "-o takes one of %s", reports.Names())
	}
	if o.padding < 0 {
		return c, usageErrorf("--padding %s is negative", o.padding)
	}
	if c.rolls, err = o.selection.matcher(); err != nil {
		return c, err
	}
	if c.control, err = controlRange(o.controlFrom, o.controlTo); err != nil {
		return c, err
	}
	if c.policy, err = readPolicy(o.policy); err != nil {
		return c, err
	}
	c.sources, err = o.sources.read(a)
	return c, err
}

// writeReport writes the report to standard output and ends with its verdict's code.
func (a *app) writeReport(format string, rep *roll.Report) error {
	if err := reports.Write(a.stdout, format, rep); err != nil {
		return err
	}
	return &verdictError{rep.Verdict}
}

func (a *app) progress(quiet bool) func(string) {
	if quiet {
		return nil
	}
	return func(line string) { fmt.Fprintln(a.stderr, "rolltrace:", oneLine(line)) }
}

// readRecording reads a recording from a file or, for "-", from standard input; gzipped or not.
func (a *app) readRecording(name string) (*roll.Recording, error) {
	in, closeIn, err := a.open(name)
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	defer closeIn()
	rec, err := roll.ReadRecording(in)
	var schema *roll.SchemaError
	switch {
	case errors.Is(err, roll.ErrNotRecording):
		return nil, withHint(fmt.Errorf("read %s: %w", name, err),
			"make one with 'rolltrace record', or of kubectl's watch output with 'rolltrace import'")
	case errors.As(err, &schema):
		return nil, withHint(fmt.Errorf("read %s: %w", name, err),
			"read it with the rolltrace that wrote it, or record again")
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return rec, nil
}

// open opens a file, "-" for standard input, and unpacks gzip, which is told by its first two bytes (RFC 1952).
func (a *app) open(name string) (io.Reader, func(), error) {
	in, closeIn := a.stdin, func() {}
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, nil, err
		}
		in, closeIn = f, func() { f.Close() }
	}
	buf := bufio.NewReaderSize(in, 1<<16)
	if magic, _ := buf.Peek(2); string(magic) != "\x1f\x8b" {
		return buf, closeIn, nil
	}
	z, err := gzip.NewReader(buf)
	if err != nil {
		closeIn()
		return nil, nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	return z, closeIn, nil
}

func readPolicy(name string) (*assertions.Policy, error) {
	if name == "" {
		return nil, nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, usageErrorf("read policy: %w", err)
	}
	p, err := assertions.ParsePolicy(name, b)
	if err != nil {
		return nil, withHint(&codeError{err: err, code: exitUsage},
			"'rolltrace assertions' lists what can be named in a policy")
	}
	return p, nil
}

func controlRange(from, to string) (*roll.Range, error) {
	if from == "" && to == "" {
		return nil, nil
	}
	if from == "" || to == "" {
		return nil, usageErrorf("--control-from and --control-to are given together")
	}
	var r roll.Range
	for _, t := range []struct {
		flag, value string
		to          *time.Time
	}{{"--control-from", from, &r.Start}, {"--control-to", to, &r.End}} {
		v, err := time.Parse(time.RFC3339Nano, t.value)
		if err != nil {
			return nil, withHint(usageErrorf("%s %q is no time", t.flag, t.value),
				"write it as RFC 3339, for example 2026-12-01T03:45:00Z")
		}
		*t.to = v.UTC()
	}
	if !r.Start.Before(r.End) {
		return nil, usageErrorf("--control-from %s is not before --control-to %s", from, to)
	}
	return &r, nil
}

// rollSelection selects rolls of a recording.
type rollSelection struct {
	objects   []string // TYPE/NAME
	ids       []string
	namespace string
}

func (s *rollSelection) add(f flagSet) {
	f.StringSliceVar(&s.ids, "roll", nil, "only these rolls, by id as 'rolltrace windows' prints it")
	f.StringVarP(&s.namespace, "namespace", "n", "", "only rolls of this namespace")
}

// kinds are the words for TYPE, as kubectl takes them.
var kinds = map[string]string{
	"deployment": "Deployment", "deployments": "Deployment", "deploy": "Deployment",
	"statefulset": "StatefulSet", "statefulsets": "StatefulSet", "sts": "StatefulSet",
	"daemonset": "DaemonSet", "daemonsets": "DaemonSet", "ds": "DaemonSet",
	"replicaset": "ReplicaSet", "replicasets": "ReplicaSet", "rs": "ReplicaSet",
	"job": "Job", "jobs": "Job",
	"pod": "Pod", "pods": "Pod", "po": "Pod",
}

// matcher returns nil when all rolls are selected.
func (s *rollSelection) matcher() (func(*roll.Roll) bool, error) {
	type object struct{ kind, name string }
	var objects []object
	for _, o := range s.objects {
		typ, name, ok := strings.Cut(o, "/")
		typ, _, _ = strings.Cut(strings.ToLower(typ), ".") // deployment.apps
		kind := kinds[typ]
		if !ok || name == "" || kind == "" {
			return nil, withHint(usageErrorf("%q is no TYPE/NAME of a workload", o), "for example deployment/cart")
		}
		objects = append(objects, object{kind, name})
	}
	if len(objects) == 0 && len(s.ids) == 0 && s.namespace == "" {
		return nil, nil
	}
	return func(r *roll.Roll) bool {
		w := r.Workload
		return (s.namespace == "" || w.Namespace == s.namespace) &&
			(len(s.ids) == 0 || slices.Contains(s.ids, r.ID)) &&
			(len(objects) == 0 || slices.Contains(objects, object{w.Kind, w.Name}))
	}, nil
}

// minArgs wants n arguments or more, the first of which is what.
func minArgs(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) >= n {
			return nil
		}
		return withHint(usageErrorf("%s wants %s", c.CommandPath(), what), "see '%s --help'", c.CommandPath())
	}
}
