package assertions

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rolltrace/rolltrace/roll"
)

// The rule, exhaustively: every combination of what an outcome can hold.
func TestJudge(t *testing.T) {
	finding, gap := []roll.Finding{{Message: "x"}}, []roll.Gap{{Reason: roll.GapNoSpans}}
	for _, c := range []struct {
		findings []roll.Finding
		gaps     []roll.Gap
		summary  string
		want     roll.Verdict
	}{
		{nil, nil, "", roll.Inconclusive},
		{nil, nil, "seen", roll.Pass},
		{nil, gap, "", roll.Inconclusive},
		{nil, gap, "seen", roll.Inconclusive},
		{finding, nil, "", roll.Fail},
		{finding, nil, "seen", roll.Fail},
		{finding, gap, "", roll.Fail},
		{finding, gap, "seen", roll.Fail},
	} {
		if got := Judge(Outcome{c.findings, c.gaps, c.summary}); got != c.want {
			t.Errorf("findings %d, gaps %d, summary %q: %s, want %s", len(c.findings), len(c.gaps), c.summary, got,
				c.want)
		}
	}
}

func check(out Outcome) *Assertion {
	return &Assertion{ID: "no-warn-logs", Check: func(*Evidence, Params) Outcome { return out }}
}

// argoproj/argo-rollouts#1329, #4393: a check that measured nothing, or that crashed, is never a success.
func TestRunNeverPassesOnNothing(t *testing.T) {
	for name, a := range map[string]*Assertion{
		"says nothing": check(Outcome{}),
		"panics":       {ID: "x", Check: func(*Evidence, Params) Outcome { panic("boom") }},
		"nil map": {ID: "x", Check: func(ev *Evidence,
			_ Params,
		) Outcome {
			ev.Pods["a"] = nil
			return Outcome{Summary: "fine"}
		}},
		"dereferences": {ID: "x", Check: func(ev *Evidence, _ Params) Outcome { return Outcome{Summary: ev.Roll.ID} }},
	} {
		res := Run(a, &Evidence{}, DefaultParams(), nil)
		if res.Verdict != roll.Inconclusive || !slices.Equal(res.Reasons, []roll.GapReason{roll.GapCheckFailed}) {
			t.Errorf("%s: %s %v, want inconclusive [check-failed]", name, res.Verdict, res.Reasons)
		}
	}
}

// A panic after findings were made must not turn them into anything better than inconclusive.
func TestRunPanicKeepsNothing(t *testing.T) {
	a := &Assertion{ID: "x", Check: func(*Evidence, Params) (out Outcome) {
		out.Summary = "fine so far"
		panic("late")
	}}
	if res := Run(a, &Evidence{}, DefaultParams(), nil); res.Verdict != roll.Inconclusive {
		t.Errorf("verdict %s", res.Verdict)
	}
}

func TestRunWaivers(t *testing.T) {
	pol := &Policy{Waivers: []Waiver{
		{Name: "a", Assertion: "no-warn-logs", Match: regexp.MustCompile("standing"), Reason: "r", Link: "l"},
		{Name: "other", Assertion: "clean-exit", Match: regexp.MustCompile("."), Reason: "r"},
		{Name: "unused", Assertion: "no-warn-logs", Match: regexp.MustCompile("^never$"), Reason: "r"},
	}}
	standing, bad := roll.Finding{Message: "a standing notice"}, roll.Finding{Message: "bad"}
	for _, c := range []struct {
		name         string
		out          Outcome
		want         roll.Verdict
		open, waived int
	}{
		{"all waived", Outcome{Findings: []roll.Finding{standing, standing}, Summary: "s"}, roll.Pass, 0, 2},
		{"one stands", Outcome{Findings: []roll.Finding{standing, bad}, Summary: "s"}, roll.Fail, 1, 1},
		{"waived but a gap", Outcome{
			Findings: []roll.Finding{standing}, Gaps: []roll.Gap{{Reason: roll.GapLogs}},
			Summary: "s",
		}, roll.Inconclusive, 0, 1},
		{"waived, nothing said", Outcome{Findings: []roll.Finding{standing}}, roll.Inconclusive, 0, 1},
		{"none", Outcome{Summary: "s"}, roll.Pass, 0, 0},
	} {
		res := Run(check(c.out), &Evidence{}, DefaultParams(), pol)
		if res.Verdict != c.want || len(res.Findings) != c.open || len(res.Waived) != c.waived {
			t.Errorf("%s: %s with %d open, %d waived; want %s, %d, %d", c.name, res.Verdict, len(res.Findings),
				len(res.Waived), c.want, c.open, c.waived)
		}
		if res.Findings == nil || res.Waived == nil || res.Reasons == nil {
			t.Errorf("%s: a list is nil", c.name)
		}
		for _, f := range res.Waived {
			if f.Waiver != "a" || f.Reason != "r" || f.Link != "l" {
				t.Errorf("%s: waived finding does not name its waiver: %+v", c.name, f)
			}
		}
		want := []int{c.waived, 0, 0}
		for i, u := range pol.Uses([]roll.Result{res}) {
			if u.Count != want[i] {
				t.Errorf("%s: waiver %s counts %d, want %d", c.name, u.Name, u.Count, want[i])
			}
		}
	}
	if standing.Waiver != "" {
		t.Error("the check's own finding was changed")
	}
}

// Every assertion that is declared in this package is in All, once, and each is documented and tested.
func TestAll(t *testing.T) {
	var declared []string // file names that declare an Assertion
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				v, ok := s.(*ast.ValueSpec)
				if !ok {
					continue
				}
				for _, x := range v.Values {
					if u, ok := x.(*ast.UnaryExpr); ok {
						if l, ok := u.X.(*ast.CompositeLit); ok && fmt.Sprint(l.Type) == "Assertion" {
							declared = append(declared, name)
						}
					}
				}
			}
		}
	}
	if len(declared) != len(All) || len(declared) == 0 {
		t.Errorf("%d assertions are declared in %v, All lists %d", len(declared), declared, len(All))
	}
	seen := map[string]bool{}
	for _, a := range All {
		if seen[a.ID] {
			t.Errorf("%s is listed twice", a.ID)
		}
		seen[a.ID] = true
		if !regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`).MatchString(a.ID) {
			t.Errorf("%q is no lower-case kebab id", a.ID)
		}
		if file := strings.ReplaceAll(a.ID, "-", "_") + ".go"; !slices.Contains(declared, file) {
			t.Errorf("%s is not in its own file %s", a.ID, file)
		}
		if a.Title == "" || a.Check == nil {
			t.Errorf("%s has no title or no check", a.ID)
		}
		for _, word := range []string{"**Fails**", "**Inconclusive**", "**What to do:**"} {
			if !strings.Contains(a.Doc, word) {
				t.Errorf("the doc of %s does not say %s", a.ID, word)
			}
		}
		if ByID(a.ID) != a {
			t.Errorf("ByID(%s) is another", a.ID)
		}
		if _, ok := cases[a.ID]; !ok {
			t.Errorf("%s has no cases", a.ID)
		}
	}
}
