package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rolltrace/rolltrace/roll"
)

// The exit codes. No flag and no format changes what a code means.
const (
	exitPass         = 0   // pass, or done
	exitError        = 1   // could not do it: no verdict
	exitUsage        = 2   // a usage or policy error: no verdict
	exitFail         = 3   // fail
	exitInconclusive = 4   // inconclusive
	exitInterrupted  = 130 // interrupted
)

// exitCodesHelp is printed under every command that gives a verdict; a test holds it against the README.
const exitCodesHelp = `Exit codes:
  0    pass (or done)
  1    could not do it: no verdict
  2    usage or policy error: no verdict
  3    fail
  4    inconclusive
  130  interrupted`

// verdictCode is the one place that turns a verdict into an exit code.
func verdictCode(v roll.Verdict) int {
	switch v {
	case roll.Pass:
		return exitPass
	case roll.Fail:
		return exitFail
	default:
		return exitInconclusive
	}
}

// codeError carries an exit code and an optional hint with an error.
type codeError struct {
	err  error
	code int
	hint string
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// usageErrorf is an error of usage: exit code 2.
func usageErrorf(format string, args ...any) error {
	return &codeError{err: fmt.Errorf(format, args...), code: exitUsage}
}

// withHint adds the next step to an error. The innermost exit code wins.
func withHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	e := &codeError{err: err, code: exitError, hint: fmt.Sprintf(format, args...)}
	var in *codeError
	if errors.As(err, &in) {
		e.code = in.code
		if in.hint != "" {
			e.hint = in.hint
		}
	}
	return e
}

// verdictError ends a command with a verdict's code and prints nothing more.
type verdictError struct{ verdict roll.Verdict }

func (e *verdictError) Error() string { return "verdict: " + e.verdict.String() }

// report prints an error as one line (and one of hint) and returns the exit code.
func report(stderr io.Writer, err error) int {
	var v *verdictError
	switch {
	case err == nil:
		return exitPass
	case errors.As(err, &v):
		return verdictCode(v.verdict)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "rolltrace: interrupted")
		return exitInterrupted
	}
	fmt.Fprintln(stderr, "rolltrace: error:", oneLine(err.Error()))
	var c *codeError
	if errors.As(err, &c) {
		if c.hint != "" {
			fmt.Fprintln(stderr, "rolltrace: hint:", oneLine(c.hint))
		}
		return c.code
	}
	return exitError
}
