package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"github.com/rolltrace/rolltrace/roll"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Errors     int             `xml:"errors,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Timestamp  string          `xml:"timestamp,attr,omitempty"`
	Time       string          `xml:"time,attr"`
	Properties *junitProps     `xml:"properties,omitempty"`
	Cases      []junitTestCase `xml:"testcase"`
}

type junitProps struct {
	Property []junitProp `xml:"property"`
}

type junitProp struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitTestCase struct {
	Name      string        `xml:"name,attr"`
	Class     string        `xml:"classname,attr"`
	Time      string        `xml:"time,attr"`
	Failure   *junitProblem `xml:"failure,omitempty"`
	Error     *junitProblem `xml:"error,omitempty"`
	SystemOut string        `xml:"system-out,omitempty"`
}

type junitProblem struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// junit writes one test suite a roll, one more for what concerns the whole, and one test case an assertion. A fail is
// a failure, an inconclusive result an error: neither is ever skipped or left out, so that a report that is not a
// pass is red.
func junit(w io.Writer, rep *roll.Report) error {
	out := junitSuites{Name: "rolltrace"}
	for i := range rep.Rolls {
		r := &rep.Rolls[i]
		s := junitSuite{
			Name:      clean(r.ID),
			Timestamp: r.Window.Start.UTC().Format("2006-01-02T15:04:05"),
			Time:      fmt.Sprintf("%.3f", r.Window.Duration().Seconds()),
			Properties: &junitProps{[]junitProp{
				{"workload", clean(r.Workload.String())},
				{"cause", clean(string(r.Cause))},
				{"verdict", r.Verdict.String()},
				{"client_spans", fmt.Sprint(r.Spans.Client)},
				{"server_spans", fmt.Sprint(r.Spans.Server)},
				{"error_spans", fmt.Sprint(r.Spans.Errors)},
			}},
		}
		out.add(s, rep.Results, r.ID)
	}
	out.add(junitSuite{Name: "recording", Time: "0"}, rep.Results, "")
	if rep.Verdict != roll.Pass && out.Failures+out.Errors == 0 {
		out.add(junitSuite{Name: "verdict", Time: "0"}, []roll.Result{{
			Assertion: "verdict", Roll: "verdict",
			Verdict: rep.Verdict,
		}}, "verdict")
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(&out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// add appends the suite with the results of one roll; a suite without any is left out.
func (o *junitSuites) add(s junitSuite, results []roll.Result, id string) {
	for i := range results {
		r := &results[i]
		if r.Roll != id {
			continue
		}
		c := junitTestCase{
			Name: clean(r.Assertion), Class: "rolltrace." + s.Name, Time: "0",
			SystemOut: clean(r.Summary),
		}
		if n := len(r.Waived); n > 0 {
			c.SystemOut += "\nwaived: " + plural(n, "finding") + "\n" + findingLines(r.Waived)
		}
		switch r.Verdict {
		case roll.Pass:
		case roll.Fail:
			s.Failures++
			c.Failure = &junitProblem{
				Message: plural(len(r.Findings), "finding") + ": " + clean(r.Summary), Type: "finding",
				Text: findingLines(r.Findings) + gapLines(r.Gaps),
			}
		default:
			s.Errors++
			c.Error = &junitProblem{
				Message: "inconclusive (" + clean(reasons(r.Reasons)) + "): " + clean(r.Summary), Type: "inconclusive",
				Text: gapLines(r.Gaps),
			}
		}
		s.Cases = append(s.Cases, c)
	}
	if s.Tests = len(s.Cases); s.Tests == 0 {
		return
	}
	o.Tests, o.Failures, o.Errors = o.Tests+s.Tests, o.Failures+s.Failures, o.Errors+s.Errors
	o.Suites = append(o.Suites, s)
}

// maxJUnitFindings bounds what one test case lists: CI systems refuse files of hundreds of megabytes.
const maxJUnitFindings = 100

func findingLines(fs []roll.Finding) string {
	var b strings.Builder
	for i := range fs[:min(len(fs), maxJUnitFindings)] {
		b.WriteString(findingLine(&fs[i]) + "\n")
	}
	if n := len(fs) - maxJUnitFindings; n > 0 {
		fmt.Fprintf(&b, "… and %d more (-o json lists all)\n", n)
	}
	return b.String()
}

func gapLines(gs []roll.Gap) string {
	var b strings.Builder
	for _, g := range gs {
		b.WriteString("gap: " + clean(g.String()) + "\n")
	}
	return b.String()
}

func reasons(rs []roll.GapReason) string {
	parts := make([]string, len(rs))
	for i, r := range rs {
		parts[i] = string(r)
	}
	return strings.Join(parts, ", ")
}
