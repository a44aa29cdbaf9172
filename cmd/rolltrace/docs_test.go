package main

import (
	"os"
	"strings"
	"testing"
)

// TestReferences: the references in docs/ are what the program says of itself.
func TestReferences(t *testing.T) {
	for file, args := range map[string][]string{
		"../../docs/cli.md":        {"docs"},
		"../../docs/assertions.md": {"assertions", "--markdown"},
	} {
		code, got, stderr := runApp(t, args...)
		want, err := os.ReadFile(file)
		if err != nil || code != 0 {
			t.Fatalf("%v; exit %d: %s", err, code, stderr)
		}
		if got != string(want) {
			t.Errorf("%s is not what the program says: run 'make generate'", file)
		}
	}
}

// TestExitCodesInREADME: the README's table of exit codes is that of the help.
func TestExitCodesInREADME(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range strings.Split(exitCodesHelp, "\n")[1:] {
		code, meaning, _ := strings.Cut(strings.TrimSpace(l), " ")
		row := "| " + code + " | " + strings.TrimSpace(meaning) + " |"
		if !strings.Contains(string(readme), row) {
			t.Errorf("the README lacks the row %q", row)
		}
	}
}
