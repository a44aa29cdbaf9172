package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// cluster serves a namespace, shop, with one pod.
func cluster(t *testing.T, forbidden string) *httptest.Server {
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, forbidden):
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
		case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
			w.WriteHeader(http.StatusCreated)
			io.WriteString(w, `{"status":{"allowed":true}}`)
		case r.URL.Query().Get("watch") == "true":
			w.WriteHeader(http.StatusOK)
			http.NewResponseController(w).Flush()
			select {
			case <-done:
			case <-r.Context().Done():
			}
		case r.URL.Path == "/api/v1/namespaces/shop/pods":
			io.WriteString(w, `{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a","namespace":"shop","uid":"u1"}}]}`)
		default:
			io.WriteString(w, `{"metadata":{"resourceVersion":"7","uid":"c1"},"items":[]}`)
		}
	}))
	t.Cleanup(func() { close(done); s.Close() })
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	return s
}

// runRecord runs rolltrace record until it says that it records and then interrupts it.
func runRecord(t *testing.T, args ...string) (code int, stdout, stderr string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out bytes.Buffer
	errs := &interrupter{cancel: cancel}
	a := &app{
		stdin: strings.NewReader(""), stdout: &out, stderr: errs, getenv: func(string) string { return "" }, now: time.Now,
	}
	code = a.run(ctx, append([]string{"record"}, args...))
	return code, out.String(), errs.String()
}

// interrupter is standard error, and somebody who presses Ctrl-C when it says that the recording goes.
type interrupter struct {
	bytes.Buffer
	cancel func()
}

func (i *interrupter) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "recording to") {
		i.cancel()
	}
	return i.Buffer.Write(b)
}

func TestRecordUntilInterrupted(t *testing.T) {
	s := cluster(t, "/nodes")
	file := filepath.Join(t.TempDir(), "rec.jsonl")
	code, stdout, stderr := runRecord(t, "-o", file, "--server", s.URL, "-n", "shop")
	if code != exitPass || stdout != "" {
		t.Fatalf("exit %d, stdout %q, stderr %s", code, stdout, stderr)
	}
	for _, want := range []string{
		"rolltrace: note: not allowed to list nodes: recording without them\n",
		"rolltrace: recording to " + file + "\n", fmt.Sprintf("rolltrace: recorded %s: 1 object lines, 0 log lines", file),
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr lacks %q: %s", want, stderr)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := roll.ReadRecording(bytes.NewReader(b))
	if err != nil || r.Footer == nil || r.Footer.Reason != "interrupted" || len(r.Gaps) > 0 {
		t.Errorf("%v, footer %+v, gaps %v", err, r.Footer, r.Gaps)
	}
}

// TestRecordFileRemoved: a recording whose file is removed under it is a failure, not a success without a file.
func TestRecordFileRemoved(t *testing.T) {
	s := cluster(t, "/none")
	file := filepath.Join(t.TempDir(), "rec.jsonl")
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := &interrupter{cancel: func() {
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
		cancel()
	}}
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: errs, getenv: func(string) string { return "" }, now: time.Now}
	code := a.run(ctx, []string{"record", "-o", file, "--server", s.URL, "-n", "shop"})
	if code != exitError || !strings.Contains(errs.String(), "rolltrace: error: write "+file+": the file was removed") {
		t.Errorf("exit %d, stderr %s", code, errs.String())
	}
}

// TestRecordDiskFull: one line and exit code 1; /dev/full is a disk without room.
func TestRecordDiskFull(t *testing.T) {
	s := cluster(t, "/none")
	code, stdout, stderr := runApp(t, "record", "-o", "/dev/full", "--overwrite", "--server", s.URL, "-n", "shop", "--for", "300ms")
	if code != exitError || stdout != "" || !strings.Contains(stderr, "no space left on device") || strings.Contains(stderr, "recorded") {
		t.Errorf("exit %d, stdout %s, stderr %s", code, stdout, stderr)
	}
}

func TestRecordFor(t *testing.T) {
	s := cluster(t, "/none")
	code, stdout, stderr := runApp(t, "record", "-o", "-", "--server", s.URL, "-n", "shop", "--for", "300ms")
	if code != exitPass || !strings.Contains(stdout, `"footer":{"reason":"for"}`) {
		t.Errorf("exit %d, stdout %s, stderr %s", code, stdout, stderr)
	}
}

func TestRecordWithoutRights(t *testing.T) {
	s := cluster(t, "/pods")
	file := filepath.Join(t.TempDir(), "rec.jsonl")
	code, stdout, stderr := runApp(t, "record", "-o", file, "--server", s.URL, "-n", "shop")
	want := "rolltrace: error: not allowed to list pods in namespace shop\n" +
		"rolltrace: hint: check with 'kubectl auth can-i list pods -n shop'\n"
	if code != exitError || stdout != "" || stderr != want {
		t.Errorf("exit %d, stdout %q, stderr %s", code, stdout, stderr)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a file was left")
	}
}

func TestRecordNothingSelected(t *testing.T) {
	s := cluster(t, "/none")
	code, _, stderr := runApp(t, "record", "deploy/wbe", "-o", "-", "--server", s.URL, "-n", "shop")
	if code != exitError || !strings.Contains(stderr, "error: deployment/wbe not found in namespace shop") || !strings.Contains(stderr, "hint:") {
		t.Errorf("exit %d, stderr %s", code, stderr)
	}
}
