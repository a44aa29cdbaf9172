package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/rolltrace/rolltrace/roll"
)

// ErrNotWatchOutput is wrapped by the errors of a source whose first document is no watch event and no object.
var ErrNotWatchOutput = errors.New("this is no output of kubectl get -o json")

// maxDocument bounds one document of kubectl's output, in bytes: a List of very many pods fits.
const maxDocument = 512 << 20

// ImportKubectl turns what kubectl get -o json wrote into a recording: watch events (-w --output-watch-events), single
// objects and Lists, one after the other, pretty-printed or not, with whatever byte order mark, line ends and "---" a
// shell put in. It reads as a stream, so that r may be a live pipe.
//
// now stamps every document when it has arrived; nil means that the source does not say when its events were received,
// and then every gap is one without times. A document that is cut off at the end becomes a gap, and so does a watch that
// had to begin again: kubectl does not say what happened meanwhile. Objects that came without a watch event do not say
// when they went, which is a gap too.
func ImportKubectl(w io.Writer, tool string, r io.Reader, now func() time.Time) (Counts, error) {
	im := kubectlImport{now: now, streams: map[string]*kubectlStream{}}
	if im.now == nil {
		im.now = func() time.Time { return time.Time{} }
	}
	docs := newDocuments(transform.NewReader(r, unicode.BOMOverride(transform.Nop)))
	for n := 1; ; n++ {
		doc, err := docs.next()
		at := im.now().UTC()
		switch {
		case err == io.EOF && n == 1:
			return im.counts, ErrEmpty
		case err == io.EOF:
			return im.counts, im.finish(at)
		case errors.Is(err, io.ErrUnexpectedEOF) && im.wr != nil:
			im.torn = true
			return im.counts, im.finish(at)
		case errors.Is(err, io.ErrUnexpectedEOF):
			return im.counts, fmt.Errorf("document 1 is cut off: %w", ErrNotWatchOutput)
		case err != nil && n == 1:
			return im.counts, fmt.Errorf("%w: %w", ErrNotWatchOutput, err)
		case err != nil:
			return im.counts, err
		}
		lines, err := im.document(doc, at)
		if err != nil && n == 1 {
			return im.counts, fmt.Errorf("%w: %w", ErrNotWatchOutput, err)
		}
		if err != nil {
			return im.counts, fmt.Errorf("line %d: %w", docs.start, err)
		}
		if im.wr == nil {
			h := roll.Header{Tool: tool, Source: "kubectl", StartedAt: at}
			if im.wr, err = roll.NewWriter(w, h); err != nil {
				return im.counts, err
			}
			if now == nil {
				lines = append([]roll.Line{{Gap: &roll.WatchGap{Reason: string(roll.GapNoReceiptTime)}}}, lines...)
			}
		}
		if err := im.write(lines...); err != nil {
			return im.counts, err
		}
	}
}

// kubectlImport is one import of kubectl's output.
type kubectlImport struct {
	now     func() time.Time
	wr      *roll.Writer
	counts  Counts
	streams map[string]*kubectlStream
	torn    bool // the last document is cut off
}

// kubectlStream is what is known of one resource.
type kubectlStream struct {
	last  time.Time       // of receipt
	alive map[string]bool // by UID: added and not deleted
	lost  string          // why events may be lacking from lostFrom on; empty: none
	from  time.Time
}

func (s *kubectlStream) lose(reason string) {
	if s.lost == "" {
		s.lost, s.from = reason, s.last
	}
}

func (im *kubectlImport) write(lines ...roll.Line) error {
	for _, l := range lines {
		if err := im.wr.Write(l); err != nil {
			return err
		}
		im.counts.add(l)
	}
	return nil
}

// finish writes the gaps and the footer.
func (im *kubectlImport) finish(at time.Time) error {
	if im.counts.Objects == 0 {
		return fmt.Errorf("%w that a recording holds", ErrEmpty)
	}
	for _, r := range roll.Resources {
		s := im.streams[r.Resource]
		if s == nil {
			continue
		}
		if im.torn {
			s.lose("torn")
		}
		if s.lost != "" {
			gap := &roll.WatchGap{Resource: r.Resource, Reason: s.lost, From: s.from}
			if err := im.write(roll.Line{ReceivedAt: at, Gap: gap}); err != nil {
				return err
			}
		}
	}
	return im.wr.Close("end-of-source", at)
}

// envelope is the part of a document that says what it is.
type envelope struct {
	Type       string            `json:"type"`
	Object     json.RawMessage   `json:"object"`
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

// document returns the lines of one document.
func (im *kubectlImport) document(doc []byte, at time.Time) ([]roll.Line, error) {
	var e envelope
	if err := json.Unmarshal(doc, &e); err != nil {
		return nil, jsonError(err)
	}
	switch {
	case len(e.Object) > 0 && e.Type == "ERROR":
		if im.wr == nil {
			return nil, errors.New("the watch began with an error")
		}
		for _, s := range im.streams { // it does not say which
			s.lose(statusReason(e.Object))
		}
		return nil, nil
	case len(e.Object) > 0 && e.Type == "BOOKMARK":
		return nil, nil
	case len(e.Object) > 0:
		op := roll.Op(e.Type)
		if op != roll.OpAdded && op != roll.OpModified && op != roll.OpDeleted {
			return nil, fmt.Errorf("unknown watch event type %q", e.Type)
		}
		return im.object(e.Object, op, at)
	case e.Items != nil:
		var lines []roll.Line
		for _, item := range e.Items {
			l, err := im.object(item, roll.OpListed, at)
			if err != nil {
				return nil, err
			}
			lines = append(lines, l...)
		}
		return lines, nil
	case e.Kind != "":
		if im.wr == nil && roll.ResourceOfKind(e.Kind) == "" {
			return nil, fmt.Errorf("it begins with an object of kind %q", e.Kind)
		}
		return im.object(doc, roll.OpListed, at)
	default:
		return nil, errors.New("neither a watch event nor an object")
	}
}

// object returns the line of one object; none for a resource that is not recorded.
func (im *kubectlImport) object(raw []byte, op roll.Op, at time.Time) ([]roll.Line, error) {
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, jsonError(err)
	}
	resource := recordedAs(e.APIVersion, e.Kind)
	if resource == "" {
		im.counts.Skipped++
		return nil, nil
	}
	o, err := prune(resource, raw)
	if err != nil {
		return nil, err
	}
	s := im.streams[resource]
	if s == nil {
		s = &kubectlStream{alive: map[string]bool{}, last: at}
		im.streams[resource] = s
	}
	uid := o.Metadata.UID
	switch {
	case op == roll.OpListed:
		s.lose("no-watch-events")
	case op == roll.OpAdded && s.alive[uid]:
		s.lose("watch-restarted")
	}
	s.alive[uid] = op != roll.OpDeleted
	s.last = at
	return []roll.Line{{ReceivedAt: at, Resource: resource, Op: op, Object: o}}, nil
}

// recordedAs returns the resource of a kind, "" for one that a recording does not hold. An apiVersion that is not there
// is no objection.
func recordedAs(apiVersion, kind string) string {
	for _, r := range roll.Resources {
		version := r.Version
		if r.Group != "" {
			version = r.Group + "/" + r.Version
		}
		if r.Kind == kind && (apiVersion == "" || apiVersion == version) {
			return r.Resource
		}
	}
	return ""
}

// documents splits a stream into JSON objects.
type documents struct {
	r     *bufio.Reader
	buf   bytes.Buffer
	line  int
	start int // line on which the latest document begins
}

func newDocuments(r io.Reader) *documents {
	return &documents{r: bufio.NewReaderSize(r, 1<<16), line: 1}
}

// next returns the next object, valid until the next call; io.EOF after the last one, and io.ErrUnexpectedEOF when it is
// cut off. It returns as soon as the object's last brace has arrived.
func (d *documents) next() ([]byte, error) {
	b, err := d.skip()
	if err != nil {
		return nil, err
	}
	d.start = d.line
	if b != '{' {
		return nil, fmt.Errorf("line %d: no JSON object begins here", d.line)
	}
	d.buf.Reset()
	depth, inString, escaped := 0, false, false
	for {
		d.buf.WriteByte(b)
		switch {
		case escaped:
			escaped = false
		case inString && b == '\\':
			escaped = true
		case b == '"':
			inString = !inString
		case inString:
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			if depth--; depth == 0 {
				return d.buf.Bytes(), nil
			}
		}
		if d.buf.Len() > maxDocument {
			return nil, fmt.Errorf("line %d: a document is longer than %d bytes", d.start, maxDocument)
		}
		if b, err = d.read(); err == io.EOF {
			return nil, io.ErrUnexpectedEOF
		} else if err != nil {
			return nil, err
		}
	}
}

func (d *documents) read() (byte, error) {
	b, err := d.r.ReadByte()
	if b == '\n' {
		d.line++
	}
	return b, err
}

// skip returns the first byte that is neither white space nor part of a line of dashes.
func (d *documents) skip() (byte, error) {
	for {
		b, err := d.read()
		if err != nil {
			return 0, err
		}
		switch b {
		case ' ', '\t', '\r', '\n':
		case '-':
			if rest, _ := d.r.Peek(2); string(rest) != "--" {
				return b, nil
			}
			d.r.Discard(2)
		default:
			return b, nil
		}
	}
}
