package main

import "github.com/spf13/cobra"

// commands is the list of commands, in the order of the help. One file a command: a.xCmd in x.go.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		a.runCmd(),
		a.recordCmd(),
		a.importCmd(),
		a.verifyCmd(),
		a.windowsCmd(),
		a.reportCmd(),
		a.assertionsCmd(),
		a.demoCmd(),
		a.docsCmd(),
	}
}
