package roll

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// whole is a recording with one line of each kind.
func whole(t testing.TB) string {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Tool: "rolltrace test", Source: "watch", StartedAt: noon})
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range []Line{
		{Object: &Object{Kind: "Pod", Metadata: ObjectMeta{Name: "a", UID: "1"}}, Op: OpAdded, Resource: ResourcePods},
		{Log: &Log{Namespace: "shop", Pod: "a", UID: "1", Container: "app", Time: noon, Line: `{"msg":"<hello>"}`}},
		{LogEnd: &LogEnd{Pod: "a", UID: "1", Container: "app", Complete: true}},
		{Gap: &WatchGap{Resource: ResourcePods, Reason: "expired", From: noon, To: noon.Add(time.Second)}},
		{Clock: &Clock{Of: "apiserver", Latest: time.Millisecond, Samples: 1}},
		{Mark: &Mark{Text: "chaos begins"}},
	} {
		l.ReceivedAt = noon.Add(time.Duration(i) * time.Second)
		if err := w.Write(l); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close("interrupted", noon.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func read(t testing.TB, s string) *Recording {
	t.Helper()
	rec, err := ReadRecording(strings.NewReader(s))
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func reasons(gaps []Gap) (out []GapReason) {
	for _, g := range gaps {
		out = append(out, g.Reason)
	}
	return out
}

func TestRecordingRoundTrip(t *testing.T) {
	s := whole(t)
	rec := read(t, s)
	if len(rec.Gaps) != 0 || rec.Footer == nil || len(rec.Lines) != 4 || len(rec.Logs) != 1 || len(rec.Ends) != 1 {
		t.Fatalf("%+v", rec)
	}
	if !rec.Last.Equal(noon.Add(time.Minute)) || !rec.Ends[0].At.Equal(noon.Add(2*time.Second)) {
		t.Errorf("last %s, end of log at %s", rec.Last, rec.Ends[0].At)
	}
	for _, l := range strings.Split(strings.TrimSpace(s), "\n") {
		var keys map[string]json.RawMessage
		if err := json.Unmarshal([]byte(l), &keys); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, k := range []string{"header", "object", "log", "log_end", "gap", "clock", "mark", "footer"} {
			if _, ok := keys[k]; ok {
				n++
			}
		}
		if n != 1 {
			t.Errorf("a line says %d things: %s", n, l)
		}
	}
}

// TestDamage: what a file lacks is a gap, and never silence; what is no recording is an error.
func TestDamage(t *testing.T) {
	s := whole(t)
	lines := strings.SplitAfter(s, "\n")
	noFooter := strings.Join(lines[:len(lines)-2], "")
	for name, c := range map[string]struct {
		in   string
		want []GapReason
	}{
		"no footer":             {noFooter, []GapReason{GapNoFooter}},
		"torn last line":        {noFooter + `{"log":{"namespace":"shop","po`, []GapReason{GapTornLine, GapNoFooter}},
		"torn footer":           {s[:len(s)-20], []GapReason{GapTornLine, GapNoFooter}},
		"no end of line":        {strings.TrimSuffix(s, "\n"), nil},
		"damage in the middle":  {lines[0] + lines[1] + "\x00\x00 rubbish\n" + strings.Join(lines[2:], ""), []GapReason{GapUnreadable}},
		"empty lines":           {strings.ReplaceAll(s, "\n", "\n\n"), nil},
		"lines after a footer":  {s + lines[1], []GapReason{GapNoFooter}},
		"carriage returns":      {strings.ReplaceAll(s, "\n", "\r\n"), nil},
		"header alone":          {lines[0], []GapReason{GapNoFooter}},
		"unknown kinds of line": {lines[0] + `{"weather":"fine"}` + "\n" + lines[len(lines)-2], nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reasons(read(t, c.in).Gaps); !reflect.DeepEqual(got, c.want) {
				t.Errorf("gaps %v, want %v", got, c.want)
			}
		})
	}
	for name, in := range map[string]string{
		"empty": "", "blank": "\n", "text": "hello\n", "other JSON": `{"kind":"Pod"}` + "\n", "binary": "\x1f\x8b\x08\x00",
		"torn header": lines[0][:30],
	} {
		if _, err := ReadRecording(strings.NewReader(in)); !errors.Is(err, ErrNotRecording) {
			t.Errorf("%s: %v, want that it is no recording", name, err)
		}
	}
	var schema *SchemaError
	if _, err := ReadRecording(strings.NewReader(`{"header":{"schema":2}}` + "\n")); !errors.As(err, &schema) || schema.Schema != 2 {
		t.Errorf("schema 2: %v", err)
	}
	if _, err := ReadRecording(strings.NewReader(s + s)); err == nil || !strings.Contains(err.Error(), "a second header") {
		t.Errorf("two recordings in one file: %v", err)
	}
	broken := io.MultiReader(strings.NewReader(lines[0]+lines[1]), errReader{})
	if _, err := ReadRecording(broken); err == nil || !strings.Contains(err.Error(), "disk on fire") {
		t.Errorf("a read error: %v", err)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

// fullDisk takes n bytes, then nothing.
type fullDisk struct{ n int }

func (d *fullDisk) Write(b []byte) (int, error) {
	if d.n -= len(b); d.n < 0 {
		return 0, errors.New("no space left on device")
	}
	return len(b), nil
}

// TestWriterStops: after the first failure every call fails, so that no line follows a torn one.
func TestWriterStops(t *testing.T) {
	w, err := NewWriter(&fullDisk{120}, Header{})
	if err != nil {
		t.Fatal(err)
	}
	big := Line{Mark: &Mark{Text: strings.Repeat("x", 200)}}
	if err := w.Write(big); err == nil {
		t.Fatal("the disk is full")
	}
	if err := w.Write(Line{Mark: &Mark{Text: "y"}}); err == nil {
		t.Error("a line after a failure was taken")
	}
	if err := w.Close("interrupted", noon); err == nil {
		t.Error("a footer after a failure was taken")
	}
}

// TestPruneKeepsNoSecrets plants a secret in every place that an object has for one.
func TestPruneKeepsNoSecrets(t *testing.T) {
	const raw = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"SECRET","deployment.kubernetes.io/revision":"3"},
		"managedFields":[{"manager":"SECRET"}]},
		"spec":{"volumes":[{"name":"SECRET"}],"containers":[{"name":"app","image":"app:1","command":["SECRET"],"args":["SECRET"],"env":[{"name":"A","value":"SECRET"}],
		"envFrom":[{"secretRef":{"name":"SECRET"}}],"lifecycle":{"preStop":{"exec":{"command":["SECRET"]},"httpGet":{"path":"/SECRET","httpHeaders":[{"name":"x","value":"SECRET"}]}}},
		"livenessProbe":{"exec":{"command":["SECRET"]}}}]},
		"status":{"message":"SECRET","conditions":[{"type":"Ready","status":"True","message":"SECRET"}],
		"containerStatuses":[{"name":"app","state":{"terminated":{"exitCode":1,"message":"SECRET"}},"lastState":{"waiting":{"message":"SECRET"}}}]}}`
	o, err := Prune(ResourcePods, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("SECRET")) {
		t.Errorf("a secret was kept: %s", b)
	}
	if o.Metadata.Annotations["deployment.kubernetes.io/revision"] != "3" || o.Spec.Containers[0].Lifecycle.PreStop.Exec == nil {
		t.Errorf("what is needed was lost: %s", b)
	}
	ev, err := Prune(ResourceEvents, []byte(`{"kind":"Event","reason":"Unhealthy","message":"probe said SECRET","metadata":{"name":"e"}}`))
	if err != nil || ev.Message != "" {
		t.Errorf("the message of a probe was kept: %v %v", ev, err)
	}
	for _, bad := range []string{`{`, `{"kind":"Secret"}`, `[]`, `{"kind":"Event"}`} {
		if _, err := Prune(ResourcePods, []byte(bad)); err == nil {
			t.Errorf("%s was taken for a pod", bad)
		}
	}
}

// FuzzReadRecording: whatever the bytes, a recording is read or refused, and a whole one survives being written again.
func FuzzReadRecording(f *testing.F) {
	f.Add([]byte(whole(f)))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		rec, err := ReadRecording(bytes.NewReader(b))
		if err != nil {
			return
		}
		var out bytes.Buffer
		w, err := NewWriter(&out, rec.Header)
		if err != nil {
			return // a time that JSON cannot hold
		}
		for _, l := range rec.Lines {
			if err := w.Write(l); err != nil {
				return
			}
		}
		again, err := ReadRecording(&out)
		if err != nil || len(again.Lines) != len(rec.Lines) {
			t.Fatalf("%d lines written, %v", len(rec.Lines), err)
		}
	})
}

// TestCutAnywhere: a recorder that is killed, or whose disk is full, leaves a prefix of its file, for each line is one write
// and may be torn. Whatever the prefix, what is whole in it is read, and that it is a prefix is said.
func TestCutAnywhere(t *testing.T) {
	s := whole(t)
	lines := strings.SplitAfter(s, "\n")
	for n := range len(s) - 1 { // without its last byte, the end of line, it is still whole
		rec, err := ReadRecording(strings.NewReader(s[:n]))
		if n < len(lines[0])-1 {
			if !errors.Is(err, ErrNotRecording) {
				t.Fatalf("%d bytes of the header: %v", n, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		want := strings.Count(s[:n], "\n") - 1
		got := len(rec.Lines) + len(rec.Logs) + len(rec.Ends)
		if rec.Footer != nil || got < want || got > want+1 || !reflect.DeepEqual(reasons(rec.Gaps)[len(rec.Gaps)-1:], []GapReason{GapNoFooter}) {
			t.Fatalf("%d bytes: %d lines of %d, footer %v, gaps %v", n, got, want, rec.Footer, rec.Gaps)
		}
	}
}
