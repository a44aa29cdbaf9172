package main

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rolltrace/rolltrace/correlate"
	reports "github.com/rolltrace/rolltrace/report"
	"github.com/rolltrace/rolltrace/roll"
)

type windowsOptions struct {
	sources   sourceFlags
	recording string
	selection rollSelection
	format    string
}

func (a *app) windowsCmd() *cobra.Command {
	var o windowsOptions
	c := &cobra.Command{
		Use:   "windows REC [TYPE/NAME…]",
		Short: "Show the rolls of a recording and how each container ended",
		Long: `Show the rolls of a recording: why, from which revision to which, and when each container was asked to end, got SIGTERM
and exited. Every time is given with the bounds within which it certainly lies; what was not observed says unknown.

REC is a recording (gzipped ones are read too), - is standard input. No backend is asked.`,
		Example: `  rolltrace windows rec.jsonl
  rolltrace windows rec.jsonl -o json | jq '.rolls[].cause'`,
		Args: minArgs(1, "a recording"),
		RunE: func(c *cobra.Command, args []string) error {
			o.recording, o.selection.objects = args[0], args[1:]
			return a.runWindows(&o)
		},
	}
	o.selection.add(c.Flags())
	o.sources.add(c.Flags())
	c.Flags().StringVarP(&o.format, "output", "o", "text", "format: text, json")
	return c
}

func (a *app) runWindows(o *windowsOptions) error {
	render, ok := map[string]func(io.Writer, *roll.Timeline) error{"text": windowsText, "json": windowsJSON}[o.format]
	if !ok {
		return withHint(usageErrorf("format %q is not known", o.format), "-o takes one of text, json")
	}
	want, err := o.selection.matcher()
	if err != nil {
		return err
	}
	rec, err := a.readRecording(o.recording)
	if err != nil {
		return err
	}
	more, err := o.sources.read(a)
	if err != nil {
		return err
	}
	tl := correlate.DeriveWith(rec, more)
	if want != nil {
		var rolls []roll.Roll
		for i := range tl.Rolls {
			if want(&tl.Rolls[i]) {
				rolls = append(rolls, tl.Rolls[i])
			}
		}
		if len(rolls) == 0 {
			return withHint(usageErrorf("select rolls of %s: no roll is selected", o.recording),
				"'rolltrace windows %s' lists the rolls", o.recording)
		}
		tl.Rolls = rolls
	}
	return render(a.stdout, tl)
}

// The JSON of the windows: lists are never null, and what was not observed is.
type (
	windowsOutput struct {
		Rolls []rollOutput `json:"rolls"`
		Gaps  []roll.Gap   `json:"gaps"`
	}
	rollOutput struct {
		roll.Roll
		Terminations []roll.Termination `json:"terminations"`
		Windows      []windowOutput     `json:"windows"`
	}
	windowOutput struct {
		Kind  roll.WindowKind `json:"kind"`
		Pod   string          `json:"pod"` // empty for the roll's own
		Start time.Time       `json:"start"`
		End   time.Time       `json:"end"`
	}
)

func windowsJSON(w io.Writer, tl *roll.Timeline) error {
	out := windowsOutput{Rolls: []rollOutput{}, Gaps: append([]roll.Gap{}, tl.Gaps...)}
	for i := range tl.Rolls {
		r := rollOutput{Roll: tl.Rolls[i], Windows: []windowOutput{}}
		r.Terminations = append([]roll.Termination{}, tl.Rolls[i].Terminations...)
		for _, v := range tl.Rolls[i].Windows {
			r.Windows = append(r.Windows, windowOutput(v))
		}
		out.Rolls = append(out.Rolls, r)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

func windowsText(w io.Writer, tl *roll.Timeline) error {
	var b strings.Builder
	if len(tl.Rolls) == 0 {
		b.WriteString("no roll: no workload replaced a pod while the recording ran\n")
	}
	for i := range tl.Rolls {
		r := &tl.Rolls[i]
		if i > 0 {
			b.WriteByte('\n')
		}
		reports.RollHeader(&b, r)
		if len(r.Terminations) == 0 {
			b.WriteString("  no container ended\n")
			continue
		}
		reports.Terminations(&b, "  ", r.Terminations)
	}
	if len(tl.Gaps) > 0 {
		b.WriteString("\nWhat is missing:\n")
		reports.Gaps(&b, tl.Gaps)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
