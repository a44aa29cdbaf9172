package roll

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// RecordingSchema is the version of the recording format that this package reads and writes.
const RecordingSchema = 1

// Op is a watch event's type.
type Op string

// The ops. OpListed marks an object that a LIST found: its state is of then, what came before is not known from it.
const (
	OpAdded    Op = "ADDED"
	OpModified Op = "MODIFIED"
	OpDeleted  Op = "DELETED"
	OpListed   Op = "LISTED"
)

// Line is one line of a recording. Exactly one of its pointer fields is set; the others are nil.
//
// ReceivedAt is the observer's clock, ns, and zero when the source does not say when it received the line.
type Line struct {
	Header *Header   `json:"header,omitempty"` // the first line
	Object *Object   `json:"object,omitempty"`
	Log    *Log      `json:"log,omitempty"`
	LogEnd *LogEnd   `json:"log_end,omitempty"`
	Gap    *WatchGap `json:"gap,omitempty"`
	Clock  *Clock    `json:"clock,omitempty"`
	Mark   *Mark     `json:"mark,omitempty"`
	Footer *Footer   `json:"footer,omitempty"` // the last line of a recording that ended on purpose

	Op         Op        `json:"op,omitempty"`       // of Object
	Resource   string    `json:"resource,omitempty"` // of Object
	ReceivedAt time.Time `json:"received_at,omitzero"`
}

// Header is the first line.
type Header struct {
	Schema    int       `json:"schema"`
	Tool      string    `json:"tool"`              // "rolltrace v1.2.3"
	Cluster   string    `json:"cluster,omitempty"` // UID of the kube-system namespace
	StartedAt time.Time `json:"started_at,omitzero"`
	Source    string    `json:"source"` // "watch", "raw-streams" or "kubectl"
	// Namespaces, Selector and Objects are what was selected; empty means everything.
	Namespaces []string `json:"namespaces,omitempty"`
	Selector   string   `json:"selector,omitempty"`
	Objects    []string `json:"objects,omitempty"` // TYPE/NAME
	// Resources are the resources that were watched; Logs says that the pods' logs were followed.
	Resources []string `json:"resources,omitempty"`
	Logs      bool     `json:"logs,omitempty"`
}

// Log is one line of a container's log.
type Log struct {
	Namespace   string    `json:"namespace"`
	Pod         string    `json:"pod"`
	UID         string    `json:"uid,omitempty"`
	Container   string    `json:"container"`
	ContainerID string    `json:"container_id,omitempty"`
	Time        time.Time `json:"time,omitzero"` // the kubelet's stamp, ns; zero when the line had none
	Line        string    `json:"line"`          // without the stamp and the end of line
	// Truncated says that the line was longer than the recorder keeps.
	Truncated bool `json:"truncated,omitempty"`
}

// LogEnd says how the following of one container's log ended.
type LogEnd struct {
	Namespace   string `json:"namespace"`
	Pod         string `json:"pod"`
	UID         string `json:"uid,omitempty"`
	Container   string `json:"container"`
	ContainerID string `json:"container_id,omitempty"`
	// Complete says that the log was read to its end: the stream ended and reading again found nothing more, or the pod was
	// gone. When it is false, Reason says why.
	Complete bool   `json:"complete"`
	Reason   string `json:"reason,omitempty"`
}

// The reasons of a log's end that is not complete. The line's ReceivedAt says from when on nothing is known.
const (
	LogEndRecordingEnded = "recording-ended" // the container may have run on after the recording's end
	LogEndCut            = "stream-cut"      // the connection, the API server or the kubelet went away, and it was not read again
	LogEndExitUnknown    = "exit-unknown"    // the stream ended as it does at a container's exit, but no exit before is known
	LogEndUnreadable     = "unreadable"      // the kubelet could not read the log to its end, and said so
	LogEndNotFollowed    = "not-followed"    // the log was asked for in vain
)

// WatchGap is a time about which one resource's watch says nothing, and what listing again found.
type WatchGap struct {
	Resource string    `json:"resource"`
	Reason   string    `json:"reason"`        // "expired", "watch-error", …: what interrupted
	From     time.Time `json:"from,omitzero"` // observer's clock: the last that was received before
	To       time.Time `json:"to,omitzero"`   // observer's clock: when the list that ended the gap was complete
	// Vanished are objects that were known and that the list did not hold: gone at some moment of [From, To].
	Vanished []ObjectReference `json:"vanished,omitempty"`
	// Lossless says that the watch went on where it had stopped (same resourceVersion accepted): late, nothing lost.
	Lossless bool `json:"lossless,omitempty"`
}

// Clock is one measurement of another clock against the observer's: other − observer lies in [Earliest, Latest].
type Clock struct {
	Of       string        `json:"of"` // "apiserver", "kubelet/<node>"
	Earliest time.Duration `json:"earliest_ns"`
	Latest   time.Duration `json:"latest_ns"`
	Method   string        `json:"method"`
	Samples  int           `json:"samples"`
}

// Mark is a user's note.
type Mark struct {
	Text string `json:"text"`
}

// Footer ends a recording that was stopped on purpose.
type Footer struct {
	Reason string `json:"reason"` // "interrupted", "for", "until-rolled", "end-of-source"
}

// maxLine bounds one line; a longer one is not a recording's.
const maxLine = 64 << 20

// ErrNotRecording is wrapped by the errors of a file that is no recording at all.
var ErrNotRecording = errors.New("not a rolltrace recording")

// SchemaError is a recording of a schema that this version does not know.
type SchemaError struct{ Schema int }

func (e *SchemaError) Error() string {
	return fmt.Sprintf("recording has schema %d, this rolltrace reads schema %d", e.Schema, RecordingSchema)
}

// Reader reads a recording line by line. Damage at the end is a gap; damage at the start is an error.
type Reader struct {
	r      *bufio.Reader
	header Header
	line   int
	last   time.Time
	footer bool
	done   bool
	gaps   []Gap
}

// NewReader reads the header. An empty file, one that is no recording, and one of another schema are errors.
func NewReader(r io.Reader) (*Reader, error) {
	rd := &Reader{r: bufio.NewReaderSize(r, 1<<20)}
	b, err := rd.read()
	if err == io.EOF && len(b) == 0 {
		return nil, fmt.Errorf("%w: the file is empty", ErrNotRecording)
	}
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	var l Line
	if jerr := json.Unmarshal(b, &l); jerr != nil || l.Header == nil {
		return nil, fmt.Errorf("%w: the first line is no header", ErrNotRecording)
	}
	if l.Header.Schema != RecordingSchema {
		return nil, &SchemaError{l.Header.Schema}
	}
	rd.header, rd.last = *l.Header, l.Header.StartedAt
	return rd, nil
}

// read returns the next line without its end; io.EOF with the bytes of a last line that has no end.
func (rd *Reader) read() ([]byte, error) {
	var long []byte
	for {
		b, err := rd.r.ReadSlice('\n')
		if err == nil && long == nil {
			rd.line++
			return bytes.TrimRight(b, "\r\n"), nil
		}
		long = append(long, b...)
		if len(long) > maxLine {
			return nil, fmt.Errorf("line %d is longer than %d bytes", rd.line+1, maxLine)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		rd.line++
		return bytes.TrimRight(long, "\r\n"), err
	}
}

// Header returns the header.
func (rd *Reader) Header() Header { return rd.header }

// Next returns the next line, io.EOF after the last one. After io.EOF, Gaps says what the end of the file lacked.
func (rd *Reader) Next() (Line, error) {
	for !rd.done {
		b, err := rd.read()
		if err != nil && err != io.EOF {
			return Line{}, fmt.Errorf("read recording: %w", err)
		}
		torn := err == io.EOF
		if len(bytes.TrimSpace(b)) == 0 {
			if torn {
				break
			}
			continue
		}
		var l Line
		if jerr := json.Unmarshal(b, &l); jerr != nil {
			g := Gap{Reason: GapUnreadable, Detail: fmt.Sprintf("line %d is not readable and was dropped", rd.line), From: rd.last}
			if torn {
				g = Gap{Reason: GapTornLine, Detail: fmt.Sprintf("line %d is cut off and was dropped", rd.line), From: rd.last}
			}
			rd.gaps = append(rd.gaps, g)
			if torn {
				break
			}
			continue
		}
		if l.Header != nil {
			return Line{}, fmt.Errorf("read recording: line %d is a second header: two recordings in one file are not one recording", rd.line)
		}
		if l.ReceivedAt.After(rd.last) {
			rd.last = l.ReceivedAt
		}
		rd.footer = l.Footer != nil
		return l, nil
	}
	if !rd.done {
		rd.done = true
		if !rd.footer {
			rd.gaps = append(rd.gaps, Gap{
				// Of no time: what its recorder had seen and not written is not known.
				Reason: GapNoFooter,
				Detail: "the recording has no footer: its recorder did not end on purpose",
			})
		}
	}
	return Line{}, io.EOF
}

// Gaps returns what is known to be missing from the file itself; complete only after Next returned io.EOF.
func (rd *Reader) Gaps() []Gap { return rd.gaps }

// Recording is a whole recording in memory. Lines holds everything but header, logs and footer, in file order.
type Recording struct {
	Header Header
	Lines  []Line
	Logs   []Log
	Ends   []EndOfLog
	Footer *Footer
	Gaps   []Gap // of the file itself
	// Last is the last time of receipt, observer's clock.
	Last time.Time
}

// EndOfLog is a LogEnd and the time of its line's receipt, observer's clock: from then on nothing is known when it is not
// complete.
type EndOfLog struct {
	LogEnd
	At time.Time
}

// ReadRecording reads a recording to its end.
func ReadRecording(r io.Reader) (*Recording, error) {
	rd, err := NewReader(r)
	if err != nil {
		return nil, err
	}
	rec := &Recording{Header: rd.Header()}
	for {
		l, err := rd.Next()
		if err == io.EOF {
			rec.Gaps, rec.Last = rd.Gaps(), rd.last
			return rec, nil
		}
		if err != nil {
			return nil, err
		}
		switch {
		case l.Log != nil:
			rec.Logs = append(rec.Logs, *l.Log)
		case l.LogEnd != nil:
			rec.Ends = append(rec.Ends, EndOfLog{*l.LogEnd, l.ReceivedAt})
		case l.Footer != nil:
			rec.Footer = l.Footer
		default:
			rec.Lines = append(rec.Lines, l)
		}
	}
}

// Writer writes a recording: one Write call a line, so that what was written is readable whatever happens after. It is
// safe for concurrent use. After the first error every call returns it.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	buf bytes.Buffer
	err error
}

// NewWriter writes the header, with this package's schema.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	wr := &Writer{w: w}
	h.Schema = RecordingSchema
	return wr, wr.Write(Line{Header: &h})
}

// Write appends one line. The caller does not change what l points to until it returns.
func (w *Writer) Write(l Line) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	w.buf.Reset()
	enc := json.NewEncoder(&w.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		w.err = fmt.Errorf("write recording: %w", err)
		return w.err
	}
	if _, err := w.w.Write(w.buf.Bytes()); err != nil {
		w.err = fmt.Errorf("write recording: %w", err)
	}
	return w.err
}

// Close writes the footer; it does not close the underlying writer.
func (w *Writer) Close(reason string, at time.Time) error {
	return w.Write(Line{Footer: &Footer{Reason: reason}, ReceivedAt: at})
}
