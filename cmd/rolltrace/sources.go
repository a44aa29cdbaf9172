package main

import (
	"fmt"
	"io"
	"regexp"

	"github.com/rolltrace/rolltrace/correlate"
)

// sourceFlags name what else is known of the rolls beside the recording.
type sourceFlags struct {
	audit, runtime, kubelet []string
	pattern                 string
}

func (s *sourceFlags) add(f flagSet) {
	f.StringArrayVar(&s.audit, "audit-log", nil, "an API server's audit log, JSON lines: deletions to the microsecond; may be repeated")
	f.StringArrayVar(&s.runtime, "runtime-events", nil, "what 'ctr -n k8s.io events' printed on a node: exits to the nanosecond; may be repeated")
	f.StringArrayVar(&s.kubelet, "kubelet-log", nil, "a kubelet's log at verbosity 2, in UTC: SIGTERM after any preStop hook; may be repeated")
	f.StringVar(&s.pattern, "shutdown-log-pattern", "",
		"regular expression of a log line in which a program says that it got the stop signal (default: what common servers write)")
}

// read reads them. A file that holds nothing of what it is named for is an error.
func (s *sourceFlags) read(a *app) (out correlate.Sources, err error) {
	if s.pattern != "" {
		if out.ShutdownLog, err = regexp.Compile(s.pattern); err != nil {
			return out, usageErrorf("--shutdown-log-pattern: %w", err)
		}
		if out.ShutdownLog.MatchString("") {
			return out, usageErrorf("--shutdown-log-pattern %q matches every line", s.pattern)
		}
	}
	if err := readAll(a, s.audit, correlate.ReadAudit, &out.Audit); err != nil {
		return out, err
	}
	if err := readAll(a, s.runtime, correlate.ReadRuntimeEvents, &out.Exits); err != nil {
		return out, err
	}
	return out, readAll(a, s.kubelet, correlate.ReadKubeletLog, &out.Kills)
}

// readAll reads files of one kind, gzipped or not.
func readAll[T any](a *app, names []string, read func(io.Reader) ([]T, error), to *[]T) error {
	for _, name := range names {
		r, closeFile, err := a.open(name)
		if err != nil {
			return err
		}
		got, err := read(r)
		closeFile()
		if err != nil {
			return withHint(fmt.Errorf("%s: %w", name, err), "is it the right file? see 'rolltrace verify --help'")
		}
		*to = append(*to, got...)
	}
	return nil
}
