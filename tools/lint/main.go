// Lint holds the rule that only cmd/ touches the process: outside it no package may use the standard streams, the
// environment, the clock, or print. Test files are free.
//
//	go run ./tools/lint DIR
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// forbidden maps an import path to the names of it that only cmd/ may use; "*" is any.
var forbidden = map[string]map[string]string{
	"os": {
		"Stdin": "streams", "Stdout": "streams", "Stderr": "streams", "Args": "arguments", "Exit": "the process",
		"Getenv": "the environment", "LookupEnv": "the environment", "Environ": "the environment", "Setenv": "the environment",
		"Getwd": "the process", "Chdir": "the process", "Hostname": "the machine",
	},
	"os/signal": {"*": "signals"},
	"time":      {"Now": "the clock", "Since": "the clock", "Until": "the clock"},
	"fmt":       {"Print": "streams", "Printf": "streams", "Println": "streams"},
	"log":       {"*": "streams"},
	"flag":      {"*": "arguments"},
}

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	bad, err := check(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(2)
	}
	for _, b := range bad {
		fmt.Println(b)
	}
	if len(bad) > 0 {
		os.Exit(1)
	}
}

// check returns one line a violation, in order of file.
func check(root string) (bad []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if top := strings.Split(filepath.ToSlash(rel), "/")[0]; top == "cmd" || top == "tools" || top == "e2e" || strings.HasPrefix(top, ".") && top != "." || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		bad = append(bad, checkFile(fset, f, rel)...)
		return nil
	})
	return bad, err
}

func checkFile(fset *token.FileSet, f *ast.File, rel string) (bad []string) {
	names := map[string]string{} // local name → path
	for _, imp := range f.Imports {
		path, _ := strconv.Unquote(imp.Path.Value)
		if forbidden[path] == nil {
			continue
		}
		name := path[strings.LastIndexByte(path, '/')+1:]
		if imp.Name != nil {
			name = imp.Name.Name
		}
		names[name] = path
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok || names[x.Name] == "" {
			return true
		}
		rules := forbidden[names[x.Name]]
		what := rules[sel.Sel.Name]
		if what == "" {
			what = rules["*"]
		}
		if what != "" {
			p := fset.Position(sel.Pos())
			bad = append(bad, fmt.Sprintf("%s:%d:%d: %s.%s: only cmd/ touches %s", rel, p.Line, p.Column, x.Name, sel.Sel.Name, what))
		}
		return true
	})
	return bad
}
