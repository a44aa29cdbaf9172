// Package report renders a [roll.Report]: one file a format, listed in [Formats]. A format decides nothing. The
// verdicts are in the report, and the same report gives the same bytes.
package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/rolltrace/rolltrace/roll"
)

// Format is one way to render a report.
type Format struct {
	// Name is what -o takes.
	Name string
	// Doc is half a line for the help.
	Doc string
	// render writes the whole report.
	render func(io.Writer, *roll.Report) error
}

// Formats is the list, in the order of the help; the first is the default.
var Formats = []Format{
	{"text", "for a person", text},
	{"json", "schema v1, can be rendered again", jsonFormat},
	{"junit", "JUnit XML: fail is a failure, inconclusive an error", junit},
}

// Names returns the formats' names, joined for the help and for errors.
func Names() string {
	names := make([]string, len(Formats))
	for i, f := range Formats {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// Known reports whether there is a format of that name.
func Known(name string) bool {
	for _, f := range Formats {
		if f.Name == name {
			return true
		}
	}
	return false
}

// Write renders the report in the named format, in one call of w.Write, so that a report that cannot be rendered
// leaves no part of itself behind. A name that is not in [Formats] is an error.
func Write(w io.Writer, name string, rep *roll.Report) error {
	for _, f := range Formats {
		if f.Name != name {
			continue
		}
		var b bytes.Buffer
		if err := f.render(&b, rep); err != nil {
			return fmt.Errorf("render report as %s: %w", name, err)
		}
		if _, err := w.Write(b.Bytes()); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
		return nil
	}
	return fmt.Errorf("format %q is not known: one of %s", name, Names())
}
