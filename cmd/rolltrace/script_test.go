package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/rolltrace/rolltrace/roll"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"rolltrace": main})
}

// The scripts drive the program as a user does. Beside testscript's own commands there are
//
//	exit N CMD ARG…   runs the command and wants exactly this exit code
//	noverdict         wants the last command's stdout to be empty and its stderr to be one error and at most one hint
//	serve MODE        starts a server that answers in one way, and sets TEMPO_ADDR to it
//
// and the variables RECORDINGS, the folder of the recordings, and NOBODY, an address at which nothing listens.
func TestScripts(t *testing.T) {
	recordings, err := filepath.Abs("../../testdata/recordings")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			gone := httptest.NewServer(http.NotFoundHandler())
			gone.Close() // nothing listens there any more
			env.Setenv("RECORDINGS", recordings)
			env.Setenv("NOBODY", gone.URL)
			env.Setenv("NO_COLOR", "1")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exit":      exitCmd,
			"noverdict": noVerdictCmd,
			"serve":     serveCmd,
		},
	})
}

func exitCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit N CMD ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var ee *exec.ExitError
	switch {
	case errors.As(err, &ee):
		got = ee.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d\n%s", got, want, ts.ReadFile("stderr"))
	}
}

// No error may print what reads like a verdict: nothing on stdout, and on stderr one line of error and one of hint.
func noVerdictCmd(ts *testscript.TestScript, _ bool, _ []string) {
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("stdout is not empty:\n%s", out)
	}
	var said []string
	for line := range strings.Lines(ts.ReadFile("stderr")) {
		if strings.HasPrefix(line, "rolltrace: error: ") || strings.HasPrefix(line, "rolltrace: hint: ") {
			said = append(said, line)
		}
		for _, v := range []roll.Verdict{roll.Pass, roll.Fail, roll.Inconclusive} {
			if strings.Contains(line, strings.ToUpper(v.String())) {
				ts.Fatalf("stderr reads like a verdict: %s", line)
			}
		}
	}
	errorsSaid := slices.DeleteFunc(slices.Clone(said), func(l string) bool { return !strings.Contains(l, "error: ") })
	if len(errorsSaid) != 1 || len(said) > 2 {
		ts.Fatalf("want one line of error and at most one of hint, got\n%s", strings.Join(said, ""))
	}
}

func serveCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve MODE")
	}
	answer, ok := map[string]http.HandlerFunc{
		"unauthorized": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no org id",
				http.StatusUnauthorized)
		},
		"notfound": func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) },
		"login": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<!doctype html><title>log in</title>")
		},
		"badquery": func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/api/status/buildinfo") {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"version":"3.0.3"}`)
				return
			}
			http.Error(w, "invalid TraceQL query: parse error at line 1, col 18: syntax error", http.StatusBadRequest)
		},
	}[args[0]]
	if !ok {
		ts.Fatalf("no mode %q", args[0])
	}
	s := httptest.NewServer(answer)
	ts.Defer(s.Close)
	ts.Setenv("TEMPO_ADDR", s.URL)
}
