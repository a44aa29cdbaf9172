package main

import (
	"go/parser"
	"go/token"
	"testing"
)

func TestCheckFile(t *testing.T) {
	for name, c := range map[string]struct {
		src  string
		want int
	}{
		"clean":   {"package p\nimport \"time\"\nvar x time.Duration", 0},
		"clock":   {"package p\nimport \"time\"\nvar x = time.Now", 1},
		"renamed": {"package p\nimport t \"time\"\nvar x = t.Since(t.Now())", 2},
		"streams": {"package p\nimport (\"fmt\"; \"os\")\nfunc f() { fmt.Println(os.Stdout, os.Getenv(\"X\")) }", 3},
		"writer":  {"package p\nimport (\"fmt\"; \"io\")\nfunc f(w io.Writer) { fmt.Fprintln(w) }", 0},
		"any":     {"package p\nimport \"os/signal\"\nvar x = signal.Notify", 1},
	} {
		t.Run(name, func(t *testing.T) {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, "x.go", c.src, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := checkFile(fset, f, "x.go"); len(got) != c.want {
				t.Errorf("got %q, want %d", got, c.want)
			}
		})
	}
}
