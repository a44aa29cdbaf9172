// Package otlp reads spans from files of OTLP JSON lines, one ExportTraceServiceRequest a line, as the OpenTelemetry
// Collector's file exporter writes them: the backend that needs no server.
//
// A file holds what it holds: there is nothing to wait for, and what was never written to it cannot be missed. What is
// in it and cannot be read is a gap with its line number.
package otlp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/roll"
)

// Source is one file, opened anew for each request.
type Source struct {
	// Name is for a person: the path.
	Name string
	Open func() (io.ReadCloser, error)
}

// Files is a [query.Traces] over files of OTLP JSON lines.
type Files struct {
	sources []Source
}

var _ query.Traces = (*Files)(nil)

// New returns the backend that reads the sources, in order.
func New(sources ...Source) *Files { return &Files{sources: sources} }

// Open returns the backend that reads the files, each of which must be there.
func Open(paths ...string) (*Files, error) {
	f := &Files{}
	for _, p := range paths {
		st, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("open spans: %w", err)
		}
		if st.IsDir() {
			return nil, fmt.Errorf("open spans: %s is a folder, want a file of OTLP JSON lines", p)
		}
		f.sources = append(f.sources, Source{Name: p, Open: func() (io.ReadCloser, error) { return os.Open(p) }})
	}
	return f, nil
}

// Name returns "otlp-file".
func (f *Files) Name() string { return "otlp-file" }

// Address returns the files' names.
func (f *Files) Address() string {
	names := make([]string, len(f.sources))
	for i, s := range f.sources {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

// CaughtUp returns at once.
func (f *Files) CaughtUp(context.Context, time.Time) (string, []roll.Gap) {
	return "a file holds what it holds", nil
}

// Spans streams the files; memory grows with the spans that are kept and the longest line. A line that cannot be read
// to its end adds none of its spans.
func (f *Files) Spans(ctx context.Context, req query.Request) (*query.Answer, error) {
	r := &reader{ranges: query.Merge(req.Ranges), sel: req.Selection, dec: newDecoder(), answer: &query.Answer{}}
	r.dec.want, r.dec.got = r.want, r.got
	for _, s := range f.sources {
		if err := r.file(ctx, s); err != nil {
			return nil, fmt.Errorf("read spans from %s: %w", s.Name, err)
		}
	}
	spans, dup := query.Fold(r.spans)
	r.answer.Spans, r.answer.Duplicates = spans, dup
	r.answer.Query = describe(req)
	return r.answer, nil
}

func describe(req query.Request) string {
	var b strings.Builder
	if req.Selection.Shutdown {
		b.WriteString("name =~ " + query.ShutdownName)
	} else {
		b.WriteString("kind=client||kind=server")
	}
	if req.Selection.ErrorsOnly {
		b.WriteString(" && status=error")
	}
	for i, s := range req.Selection.Services {
		if i == 0 {
			b.WriteString(" && service.name in ")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", s)
	}
	return b.String()
}

// maxLine bounds one line; a longer one is named and passed over.
const maxLine = 256 << 20

// maxNamed is how many gaps of one reason a file gets one by one; the rest are counted in one more.
const maxNamed = 10

type reader struct {
	ranges []roll.Range
	sel    query.Selection
	dec    *decoder
	answer *query.Answer
	spans  []roll.Span

	// Of the file being read.
	name  string
	n     int // line, from 1
	named map[roll.GapReason]int
	// Of the line being read: what to undo when it turns out unreadable.
	malformed []roll.Gap
}

func (r *reader) file(ctx context.Context, s Source) error {
	rc, err := s.Open()
	if err != nil {
		return err
	}
	defer rc.Close()
	r.name, r.n, r.named = s.Name, 0, map[roll.GapReason]int{}
	in := bufio.NewReaderSize(rc, 1<<20)
	var long []byte
	good, firstBad := 0, error(nil)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, tooLong, err := readLine(in, &long)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		last := err != nil // no newline: the file ends here
		r.n++
		switch line = bytes.TrimSpace(line); {
		case tooLong:
			r.gap(roll.GapUnreadable, fmt.Sprintf("the line is longer than %d MiB", maxLine>>20), roll.Gap{})
		case len(line) == 0:
		default:
			was := len(r.spans)
			r.malformed = r.malformed[:0]
			err := r.dec.line(line)
			if err == nil {
				good++
				for _, g := range r.malformed {
					r.answer.Malformed++
					r.gap(roll.GapMalformedSpan, g.Detail, g)
				}
				break
			}
			clear(r.spans[was:])
			r.spans = r.spans[:was]
			if last && torn(line, err) {
				r.gap(roll.GapTornLine, "the file ends in the middle of this line; its spans are not known", roll.Gap{})
				good++
				break
			}
			if firstBad == nil {
				firstBad = fmt.Errorf("line %d: %w", r.n, clean(err))
			}
			r.gap(roll.GapUnreadable, clean(err).Error()+"; its spans are not known", roll.Gap{})
		}
		if last {
			break
		}
	}
	if good == 0 && firstBad != nil {
		return fmt.Errorf("not OTLP JSON lines: %w", firstBad)
	}
	for reason, n := range r.named {
		if n > maxNamed {
			r.answer.Coverage.Add(roll.Gap{
				Reason: reason, Object: r.name, Detail: fmt.Sprintf("and %d more", n-maxNamed),
			})
		}
	}
	return nil
}

// torn reports whether the line is the beginning of an OTLP trace request.
func torn(line []byte, err error) bool {
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		return false
	}
	for _, name := range []string{"resourceSpans", "resource_spans"} {
		if i := min(len(line), len(name)+2); i > 0 && strings.HasPrefix(`{"`+name, string(line[:i])) {
			return true
		}
	}
	return false
}

// clean drops the text of the JSON from a syntax error: one line is enough, and what it says may be long.
func clean(err error) error {
	var s *jsontext.SyntacticError
	if errors.As(err, &s) {
		return fmt.Errorf("not JSON at byte %d: %w", s.ByteOffset, s.Err)
	}
	return err
}

// readLine returns the next line with its newline, and io.EOF with what is left when there is none. The line is valid
// until the next call.
func readLine(in *bufio.Reader, long *[]byte) (line []byte, tooLong bool, err error) {
	line, err = in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, false, err
	}
	*long = append((*long)[:0], line...)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = in.ReadSlice('\n')
		if tooLong = tooLong || len(*long)+len(line) > maxLine; !tooLong {
			*long = append(*long, line...)
		}
	}
	return *long, tooLong, err
}

// want decides by what is known before the attributes; it also notes the spans that cannot be placed.
func (r *reader) want(sp *roll.Span, bad error) bool {
	if !r.sel.Matches(sp) {
		return false
	}
	if bad == nil {
		return query.Clip(r.ranges, sp)
	}
	g := roll.Gap{Detail: bad.Error()}
	if !sp.Start.IsZero() {
		g.From, g.To = sp.Start, sp.End()
	}
	r.malformed = append(r.malformed, g)
	return false
}

func (r *reader) got(sp *roll.Span) {
	if len(r.spans) == cap(r.spans) {
		r.spans = slices.Grow(r.spans, max(len(r.spans), 1024)) // append grows large slices by a quarter: twice the copying
	}
	r.spans = append(r.spans, *sp)
}

func (r *reader) gap(reason roll.GapReason, detail string, g roll.Gap) {
	if r.named[reason]++; r.named[reason] > maxNamed {
		return
	}
	g.Reason, g.Object, g.Detail = reason, fmt.Sprintf("%s:%d", r.name, r.n), detail
	r.answer.Coverage.Add(g)
}
