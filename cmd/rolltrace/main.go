// Rolltrace proves or refutes that a roll lost no request, from the Kubernetes watch and the spans in Grafana Tempo.
//
// This package is the only one that touches the process: streams, environment, clock, signals, files by name.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, now: time.Now}
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// app is the process as the commands see it. Tests make their own.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	now            func() time.Time
}

// run is the program: arguments in, exit code out.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.rootCmd()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	return report(a.stderr, err)
}

func (a *app) rootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "rolltrace",
		Short: "Prove or refute that a roll lost no request",
		Long: "rolltrace records what the Kubernetes API says of a roll, asks Grafana Tempo for every client and server span\n" +
			"of it, and says pass, fail or inconclusive, with the evidence.\n\n" + exitCodesHelp,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              noArgs,
		Version:           version(),
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return withHint(usageErrorf("%w", err), "see '%s --help'", c.CommandPath())
	})
	root.AddCommand(a.commands()...)
	return root
}

// noArgs refuses arguments with a usage error.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasSubCommands() {
		return withHint(usageErrorf("unknown command %q", args[0]), "see '%s --help'", c.CommandPath())
	}
	return withHint(usageErrorf("unexpected argument %q", args[0]), "see '%s --help'", c.CommandPath())
}

// exactArgs wants n arguments, named in what.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return withHint(usageErrorf("%s wants %s, got %d arguments", c.CommandPath(), what, len(args)), "see '%s --help'", c.CommandPath())
	}
}

// oneLine keeps an error on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// version is the module's version as the build recorded it.
func version() string {
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" && bi.Main.Version != "(devel)" {
		return bi.Main.Version
	}
	return "devel"
}
