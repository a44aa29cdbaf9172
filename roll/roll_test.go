package roll

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"time"
)

func in(from, to time.Duration) Instant { return Instant{noon.Add(from), noon.Add(to), SourceLog} }

func TestBefore(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		a, b Instant
		skew time.Duration
		want Order
	}{
		{in(0, s), in(2*s, 3*s), 0, Yes},
		{in(2*s, 3*s), in(0, s), 0, No},
		{in(0, 2*s), in(s, 3*s), 0, Maybe},
		{in(0, s), in(s, 2*s), 0, Maybe}, // both may be at 1 s
		{in(s, 2*s), in(0, s), 0, No},    // at the earliest at the same moment
		{in(0, s), in(2*s, 3*s), s, Maybe},
		{in(0, s), in(2*s, 3*s), s / 2, Yes},
		{in(2*s, 3*s), in(0, s), s + 1, Maybe},
		{Instant{}, in(0, s), 0, Maybe},
		{in(0, s), Instant{}, 0, Maybe},
	} {
		if got := c.a.BeforeBy(c.b, c.skew); got != c.want {
			t.Errorf("[%v,%v] before [%v,%v] by %v: %v, want %v", c.a.Earliest, c.a.Latest, c.b.Earliest, c.b.Latest, c.skew, got, c.want)
		}
	}
	if i := Second(noon, SourceContainerStatus); !i.Contains(noon) || !i.Contains(noon.Add(s-1)) || i.Contains(noon.Add(s)) {
		t.Errorf("a second is half-open: %v", i)
	}
}

func TestInstantJSON(t *testing.T) {
	for _, i := range []Instant{{}, in(1, 2)} {
		b, err := json.Marshal(i)
		if err != nil {
			t.Fatal(err)
		}
		var back Instant
		if err := json.Unmarshal(b, &back); err != nil || back != i {
			t.Errorf("%s: %v, %v", b, back, err)
		}
		if i.IsZero() != (string(b) == "null") {
			t.Errorf("%s", b)
		}
	}
}

// TestWorst: nothing judged is nothing passed, and an undecided verdict is none.
func TestWorst(t *testing.T) {
	for _, c := range []struct {
		in   []Verdict
		want Verdict
	}{
		{nil, Inconclusive},
		{[]Verdict{Pass}, Pass},
		{[]Verdict{Pass, Inconclusive}, Inconclusive},
		{[]Verdict{Inconclusive, Fail, Pass}, Fail},
		{[]Verdict{Pass, 0}, Inconclusive},
		{[]Verdict{Pass, 17}, Inconclusive},
	} {
		if got := Worst(c.in...); got != c.want {
			t.Errorf("%v: %v, want %v", c.in, got, c.want)
		}
	}
	if _, err := json.Marshal(Verdict(0)); err == nil {
		t.Error("an undecided verdict was written")
	}
	var v Verdict
	for _, bad := range []string{`"undecided"`, `"PASS"`, `""`, `1`, `"ok"`} {
		if err := json.Unmarshal([]byte(bad), &v); err == nil {
			t.Errorf("%s was taken for a verdict", bad)
		}
	}
}

// TestIDs: Tempo's search drops leading zeros.
func TestIDs(t *testing.T) {
	id, err := ParseTraceID("bd10aa8f6dd3e0d5b9b1f8e0c2f1a37")
	if err != nil || id.String() != "0bd10aa8f6dd3e0d5b9b1f8e0c2f1a37" {
		t.Errorf("%v %v", id, err)
	}
	for _, bad := range []string{"", "xyz", strings.Repeat("0", 33)} {
		if _, err := ParseTraceID(bad); err == nil {
			t.Errorf("%q was taken for a trace id", bad)
		}
	}
	if s, err := ParseSpanID("1"); err != nil || s.String() != "0000000000000001" {
		t.Errorf("%v %v", s, err)
	}
}

func TestReadReport(t *testing.T) {
	for name, bad := range map[string]string{
		"not JSON": "PASS", "no verdict": `{"schema":1}`, "another schema": `{"schema":2,"verdict":"pass"}`, "empty": "",
		"a verdict that its results do not bear": `{"schema":1,"verdict":"pass","rolls":[],"results":[{"assertion":"a","verdict":"fail"}]}`,
		"a pass of nothing":                      `{"schema":1,"verdict":"pass","rolls":[],"results":[]}`,
	} {
		if rep, err := ReadReport(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: read as %v", name, rep.Verdict)
		}
	}
}

func TestGapOverlaps(t *testing.T) {
	const s = time.Second
	at := func(from, to time.Duration) Gap { return Gap{From: noon.Add(from), To: noon.Add(to)} }
	for _, c := range []struct {
		g    Gap
		want bool
	}{
		{Gap{}, true},
		{at(-2*s, -1), false},
		{at(-2*s, 0), true},
		{at(9*s, 20*s), true},
		{at(10*s, 20*s), false},
		{Gap{From: noon.Add(5 * s)}, true},
		{Gap{From: noon.Add(10 * s)}, false},
		{Gap{To: noon.Add(-s)}, false},
		{Gap{To: noon}, true},
	} {
		if got := c.g.Overlaps(noon, noon.Add(10*s)); got != c.want {
			t.Errorf("%v: %v", c.g, got)
		}
	}
}

// TestGapReasons: every reason is in the list, once, and says what it means.
func TestGapReasons(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "coverage.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]int{}
	for _, r := range GapReasons {
		listed[string(r.Reason)]++
		if r.Doc == "" {
			t.Errorf("%s says nothing", r.Reason)
		}
	}
	declared := 0
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Names) != 1 || len(v.Values) != 1 {
			return true
		}
		if id, ok := v.Type.(*ast.Ident); !ok || id.Name != "GapReason" {
			return true
		}
		declared++
		reason := strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`)
		if listed[reason] != 1 {
			t.Errorf("%s is listed %d times", reason, listed[reason])
		}
		return true
	})
	if declared != len(GapReasons) {
		t.Errorf("%d reasons are declared, %d listed", declared, len(GapReasons))
	}
}
