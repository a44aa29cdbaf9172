package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // clouds' credentials, as kubectl has them
	"k8s.io/client-go/rest"

	"github.com/rolltrace/rolltrace/record"
)

type recordOptions struct {
	kube          *genericclioptions.ConfigFlags
	objects       []string
	selector      string
	allNamespaces bool
	output        string
	overwrite     bool
	duration      time.Duration
	noLogs        bool
}

func (a *app) recordCmd() *cobra.Command {
	o := recordOptions{kube: genericclioptions.NewConfigFlags(true)}
	c := &cobra.Command{
		Use:   "record [TYPE/NAME...] -o rec.jsonl",
		Short: "Record what the Kubernetes API says of workloads, live",
		Long: `Record what the Kubernetes API says of workloads, live: their pods, ReplicaSets, revisions, Events and EndpointSlices,
and the pods' logs. Without TYPE/NAME and without a selector, everything in the namespace is recorded.

The recording goes on until it is interrupted or, with --for, until that time has passed. Both are its normal end: the
footer is written and the exit code is 0. A recorder that dies otherwise leaves a recording without a footer, which is
readable, and inconclusive.

Only fields that a verdict needs are kept: no env, args, volumes or secrets. Logs are kept as they are.`,
		Example: `  rolltrace record deployment/cart -n shop -o rec.jsonl
  rolltrace record -l app=cart -n shop -o rec.jsonl --for 10m`,
		RunE: func(c *cobra.Command, args []string) error {
			o.objects = args
			return a.runRecord(c.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVarP(&o.output, "output", "o", "", "the recording to write; - is standard output")
	f.BoolVar(&o.overwrite, "overwrite", false, "replace the recording if it exists")
	f.StringVarP(&o.selector, "selector", "l", "", "label selector of pods and pod templates, as in kubectl get -l")
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "record all namespaces")
	f.DurationVar(&o.duration, "for", 0, "end after this time; 0: when interrupted")
	f.BoolVar(&o.noLogs, "no-logs", false, "do not follow the pods' logs")
	o.kube.AddFlags(f)
	f.Lookup("cache-dir").DefValue = "$HOME/.kube/cache" // what the help says, whoever asks
	return c
}

func (a *app) runRecord(ctx context.Context, o recordOptions) error {
	opts, err := a.recordOptions(o)
	if err != nil {
		return err
	}
	if o.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.duration, record.Stop(record.StopFor))
		defer cancel()
	}
	out := &lazyFile{name: o.output, overwrite: o.overwrite, stdout: a.stdout}
	counts, err := record.Live(ctx, out, opts)
	if cerr := out.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("write %s: %w", o.output, pathless(cerr))
	}
	if err != nil {
		return recordHint(err, opts)
	}
	fmt.Fprintf(a.stderr, "rolltrace: recorded %s: %s\n", o.output, counts)
	return nil
}

// recordOptions checks the flags and turns them into what record wants.
func (a *app) recordOptions(o recordOptions) (opts record.Options, err error) {
	opts = record.Options{Tool: "rolltrace " + version(), Logs: !o.noLogs, Now: a.now}
	switch {
	case o.output == "":
		return opts, withHint(usageErrorf("no recording to write is named"), "add -o rec.jsonl, or -o - for standard output")
	case len(o.objects) > 0 && o.selector != "":
		return opts, usageErrorf("TYPE/NAME and --selector exclude each other")
	case o.duration < 0:
		return opts, usageErrorf("--for %s is negative", o.duration)
	}
	for _, s := range o.objects {
		ref, err := record.ParseRef(s)
		if err != nil {
			return opts, withHint(usageErrorf("%w", err), "for example deployment/cart")
		}
		opts.Objects = append(opts.Objects, ref)
	}
	if o.selector != "" {
		if opts.Selector, err = labels.Parse(o.selector); err != nil {
			return opts, usageErrorf("--selector: %w", err)
		}
	}
	if o.output != "-" {
		if err := mayCreate(o.output, o.overwrite); err != nil {
			return opts, err
		}
	}
	var namespace string
	if opts.Config, namespace, err = kubeConfig(o.kube); err != nil {
		return opts, err
	}
	if !o.allNamespaces {
		opts.Namespace = namespace
	}
	opts.Live = func() { fmt.Fprintf(a.stderr, "rolltrace: recording to %s\n", o.output) }
	opts.Note = func(s string) { fmt.Fprintln(a.stderr, "rolltrace: note:", oneLine(s)) }
	return opts, nil
}

// kubeConfig reads the kubeconfig and the flags over it.
func kubeConfig(flags *genericclioptions.ConfigFlags) (config *rest.Config, namespace string, err error) {
	const hint = "name a cluster with --kubeconfig, --context or KUBECONFIG; check it with 'kubectl config current-context'"
	loader := flags.ToRawKubeConfigLoader()
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, "", withHint(fmt.Errorf("read kubeconfig: %w", err), hint)
	}
	if _, inCluster := rest.InClusterConfig(); len(raw.Contexts) == 0 && *flags.APIServer == "" && inCluster != nil {
		return nil, "", withHint(errors.New("no cluster is configured"), hint)
	}
	if config, err = loader.ClientConfig(); err != nil {
		return nil, "", withHint(fmt.Errorf("read kubeconfig: %w", err), hint)
	}
	if namespace, _, err = loader.Namespace(); err != nil {
		return nil, "", withHint(fmt.Errorf("read kubeconfig: %w", err), hint)
	}
	return config, namespace, nil
}

// recordHint names the next step.
func recordHint(err error, opts record.Options) error {
	where := "-A"
	if opts.Namespace != "" {
		where = "-n " + opts.Namespace
	}
	var access *record.AccessError
	switch {
	case errors.As(err, &access):
		hint := fmt.Sprintf("check with 'kubectl auth can-i %s %s %s'", access.Verb, access.Resource, where)
		if access.Resource == "pods/log" {
			hint += ", or add --no-logs"
		}
		return withHint(err, "%s", hint)
	case apierrors.IsUnauthorized(err):
		return withHint(err, "the credentials are not accepted; check with 'kubectl auth whoami'")
	case errors.Is(err, record.ErrNothingSelected):
		return withHint(err, "see what there is with 'kubectl get pods,deployments,statefulsets,daemonsets %s --show-labels'",
			where)
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return withHint(errors.New("the time of --for passed before the recording began"),
			"is %s reachable? give it more time", opts.Config.Host)
	default:
		var write *writeError
		if errors.As(err, &write) {
			return err
		}
		return withHint(err, "is %s the right API server? check with 'kubectl cluster-info'", opts.Config.Host)
	}
}

// lazyFile creates its file when the first byte is written: a recording that cannot begin leaves none.
type lazyFile struct {
	name      string
	overwrite bool
	stdout    io.Writer
	f         *os.File
	looked    time.Time // when it was last seen to be where it was made
}

// writeError is a failure of the recording's file.
type writeError struct{ err error }

func (e *writeError) Error() string { return e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

func (l *lazyFile) Write(b []byte) (int, error) {
	if l.name == "-" {
		return l.stdout.Write(b)
	}
	if l.f == nil {
		flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
		if l.overwrite {
			flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
		}
		f, err := os.OpenFile(l.name, flags, 0o644)
		if err != nil {
			return 0, &writeError{err}
		}
		l.f = f
	}
	if now := time.Now(); now.Sub(l.looked) > time.Second {
		if l.looked = now; l.removed() {
			return 0, &writeError{fmt.Errorf("write %s: %w", l.name, errRemoved)}
		}
	}
	n, err := l.f.Write(b)
	if err != nil {
		return n, &writeError{err}
	}
	return n, nil
}

// errRemoved: what is written to a file that has no name any more is lost when it is closed, and no Write says so.
var errRemoved = errors.New("the file was removed or replaced while it was written")

// removed reports whether the name does not lead to the open file any more.
func (l *lazyFile) removed() bool {
	mine, err := l.f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(l.name)
	return errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(mine, named)
}

func (l *lazyFile) Close() error {
	if l.f == nil {
		return nil
	}
	removed := l.removed()
	if err := l.f.Close(); err != nil || !removed {
		return err
	}
	return errRemoved
}
