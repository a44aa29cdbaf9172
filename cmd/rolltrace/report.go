package main

import (
	"github.com/spf13/cobra"

	reports "github.com/rolltrace/rolltrace/report"
	"github.com/rolltrace/rolltrace/roll"
)

func (a *app) reportCmd() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "report FILE",
		Short: "Render a saved report again, in another format",
		Long: `Render a report that was saved with 'rolltrace verify -o json' again, in another format. No backend is asked, and nothing is
judged anew: the command ends with the code of the report's verdict, as verify did.

FILE is the report (gzipped ones are read too), - is standard input.

` + exitCodesHelp,
		Example: `  rolltrace report report.json
  rolltrace report report.json -o junit > junit.xml`,
		Args: exactArgs(1, "one report"),
		RunE: func(c *cobra.Command, args []string) error {
			if !reports.Known(format) {
				return withHint(usageErrorf("format %q is not known", format), "-o takes one of %s", reports.Names())
			}
			in, closeIn, err := a.open(args[0])
			if err != nil {
				return withHint(err, "FILE is what 'rolltrace verify -o json' wrote")
			}
			defer closeIn()
			rep, err := roll.ReadReport(in)
			if err != nil {
				return withHint(err, "%s is not what 'rolltrace verify -o json' wrote", args[0])
			}
			return a.writeReport(format, rep)
		},
	}
	c.Flags().StringVarP(&format, "output", "o", reports.Formats[0].Name, "format of the report: "+reports.Names())
	return c
}
