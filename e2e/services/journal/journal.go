// Package journal is what the test services write down of themselves: when they started, got SIGTERM and exited, what
// they logged, and which calls they made and answered. It is the truth that rolltrace is held against.
package journal

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Event says what an entry is of.
type Event string

// The events.
const (
	Start        Event = "start"
	SIGTERM      Event = "sigterm"       // received; more than one is possible
	Exit         Event = "exit"          // right before the process ends itself
	PreStopStart Event = "prestop_start" // of an exec or httpGet hook
	PreStopEnd   Event = "prestop_end"
	Call         Event = "call"   // made by a client; written when it ended
	Answer       Event = "answer" // given by a server
)

// Entry is one line of a journal.
type Entry struct {
	At        int64  `json:"t"` // UnixNano, the node's clock
	Event     Event  `json:"ev"`
	Pod       string `json:"pod"`
	Container string `json:"ctr"`
	PID       int    `json:"pid"`
	// Code is an exit code (Exit, PreStopEnd), or that of a call: gRPC's or HTTP's.
	Code int `json:"code"`
	// LastLine is the last line that was logged, of Exit.
	LastLine string `json:"last_line,omitempty"`
	// Lines is how many lines were logged, of Exit.
	Lines int `json:"lines,omitempty"`
	// Of Call and Answer.
	Method   string `json:"method,omitempty"`
	TraceID  string `json:"trace_id,omitempty"`
	SpanID   string `json:"span_id,omitempty"`
	Peer     string `json:"peer,omitempty"`
	Duration int64  `json:"duration_ns,omitempty"`
}

// Time is At as a time, UTC.
func (e Entry) Time() time.Time { return time.Unix(0, e.At).UTC() }

// Writer appends to one container's journal; it is safe for concurrent use, and nil writes nothing.
type Writer struct {
	mu             sync.Mutex
	f              *os.File
	pod, container string
}

// Open opens the journal of a container in dir.
func Open(dir, pod, container string) (*Writer, error) {
	f, err := os.OpenFile(filepath.Join(dir, pod+"_"+container+".jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &Writer{f: f, pod: pod, container: container}, nil
}

// Write appends an entry; pod, container and PID are filled in.
func (w *Writer) Write(e Entry) error {
	if w == nil {
		return nil
	}
	e.Pod, e.Container, e.PID = w.pod, w.container, os.Getpid()
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err = w.f.Write(append(b, '\n'))
	return err
}

// Read reads every journal in dir, in order of time.
func Read(dir string) ([]Entry, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		entries, err := read(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read journal %s: %w", filepath.Base(name), err)
		}
		all = append(all, entries...)
	}
	slices.SortStableFunc(all, func(a, b Entry) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}

func read(r io.Reader) (entries []Entry, err error) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		var e Entry
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, s.Err()
}
