package record

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// The files of a folder of raw streams.
const (
	RawWatchFile = "watch.jsonl"
	RawLogsFile  = "logs.jsonl"
)

// ErrEmpty is wrapped by the errors of a source that holds nothing to import.
var ErrEmpty = errors.New("there is nothing in it")

// Counts says what an import or a live recording wrote.
type Counts struct {
	Objects, Logs, LogEnds int
	// Gaps are interruptions in which something may be lost, Late those that went on where they had stopped.
	Gaps, Late int
	// Skipped are objects that are not selected, or of resources that a recording does not hold.
	Skipped int
}

// String is one line for a person.
func (c Counts) String() string {
	s := fmt.Sprintf("%d object lines, %d log lines, %d log ends, %d gaps", c.Objects, c.Logs, c.LogEnds, c.Gaps)
	if c.Late > 0 {
		s += fmt.Sprintf(", %d interruptions without loss", c.Late)
	}
	if c.Skipped > 0 {
		s += fmt.Sprintf(", %d other objects skipped", c.Skipped)
	}
	return s
}

func (c *Counts) add(l roll.Line) {
	switch {
	case l.Object != nil:
		c.Objects++
	case l.Log != nil:
		c.Logs++
	case l.LogEnd != nil:
		c.LogEnds++
	case l.Gap != nil && l.Gap.Lossless:
		c.Late++
	case l.Gap != nil:
		c.Gaps++
	}
}

// ImportRawFS imports a folder of raw streams: [RawWatchFile] and, when it is there, [RawLogsFile]. No other file of the
// folder is read.
func ImportRawFS(w io.Writer, tool string, folder fs.FS) (Counts, error) {
	watch, err := folder.Open(RawWatchFile)
	if err != nil {
		return Counts{}, fmt.Errorf("open %s: %w", RawWatchFile, err)
	}
	defer watch.Close()
	logs, err := folder.Open(RawLogsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return ImportRaw(w, tool, watch, nil)
	}
	if err != nil {
		return Counts{}, fmt.Errorf("open %s: %w", RawLogsFile, err)
	}
	defer logs.Close()
	return ImportRaw(w, tool, watch, logs)
}

// ImportRaw turns raw streams into a recording. watch holds one JSON object a line,
//
//	{"recv_ns", "resource", "type", "object", "rv", "err", "code"}
//
// with the watch's types and LIST (one line an object), LIST_ERROR, WATCH_END, WATCH_ERROR and BAD_LINE; logs, which may
// be nil, holds {"recv_ns", "pod", "ctr", "cid", "line"}, and FOLLOW_END or FOLLOW_ERROR as "type". recv_ns is the
// observer's clock, UnixNano. cid is the end of the container's id. Both are held in memory.
//
// A line that is not readable is an error that names it: such streams say nothing of what they lack.
func ImportRaw(w io.Writer, tool string, watch, logs io.Reader) (Counts, error) {
	var im rawImport
	if err := eachLine(watch, RawWatchFile, im.addWatch); err != nil {
		return Counts{}, err
	}
	if len(im.watch) == 0 {
		return Counts{}, fmt.Errorf("read %s: %w", RawWatchFile, ErrEmpty)
	}
	if logs != nil {
		if err := eachLine(logs, RawLogsFile, im.addLog); err != nil {
			return Counts{}, err
		}
	}
	byReceipt := func(a, b rawLine) int { return cmp.Compare(a.RecvNS, b.RecvNS) }
	slices.SortStableFunc(im.watch, byReceipt)
	slices.SortStableFunc(im.logs, byReceipt)
	im.end = im.watch[len(im.watch)-1].at()
	if n := len(im.logs); n > 0 && im.logs[n-1].at().After(im.end) {
		im.end = im.logs[n-1].at()
	}
	im.convertWatch()
	im.convertLogs()
	slices.SortStableFunc(im.out, func(a, b roll.Line) int { return a.ReceivedAt.Compare(b.ReceivedAt) })

	wr, err := roll.NewWriter(w, im.header(tool, logs != nil))
	if err != nil {
		return Counts{}, err
	}
	counts := Counts{Skipped: im.skipped}
	for _, l := range im.out {
		if err := wr.Write(l); err != nil {
			return counts, err
		}
		counts.add(l)
	}
	return counts, wr.Close("end-of-source", im.end)
}

// rawLine is one line of either file.
type rawLine struct {
	Type     string          `json:"type"`
	Resource string          `json:"resource"`
	RecvNS   int64           `json:"recv_ns"`
	Err      string          `json:"err"`
	Code     int             `json:"code"`
	Object   json.RawMessage `json:"object"`
	Pod      string          `json:"pod"`
	Ctr      string          `json:"ctr"`
	CID      string          `json:"cid"`
	Line     *string         `json:"line"`

	pruned *roll.Object
}

func (l *rawLine) at() time.Time { return time.Unix(0, l.RecvNS).UTC() }

// eachLine calls f for every line of r that is not blank; errors name the file and the line.
func eachLine(r io.Reader, file string, f func(rawLine) error) error {
	br := bufio.NewReaderSize(r, 1<<16)
	for n := 1; ; n++ {
		b, err := br.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return fmt.Errorf("read %s: line %d: %w", file, n, err)
		}
		if len(bytes.TrimSpace(b)) > 0 {
			var l rawLine
			if jerr := json.Unmarshal(b, &l); jerr != nil {
				return fmt.Errorf("read %s: line %d is not readable: %w", file, n, jsonError(jerr))
			}
			if l.RecvNS <= 0 {
				return fmt.Errorf("read %s: line %d has no recv_ns", file, n)
			}
			if ferr := f(l); ferr != nil {
				return fmt.Errorf("read %s: line %d: %w", file, n, ferr)
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// jsonError drops what an error of encoding/json quotes of its input beyond one character or a type.
func jsonError(err error) error {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return fmt.Errorf("%q is no %s", t.Field, t.Type)
	}
	var p *time.ParseError
	if errors.As(err, &p) {
		return errors.New("a time is not in RFC 3339")
	}
	return err
}

// rawImport is one import of raw streams.
type rawImport struct {
	watch, logs []rawLine
	end         time.Time
	skipped     int
	out         []roll.Line
}

func (im *rawImport) addWatch(l rawLine) error {
	switch l.Type {
	case "ADDED", "MODIFIED", "DELETED", "LIST":
		if roll.KindOfResource(l.Resource) == "" {
			im.skipped++
			return nil
		}
		o, err := prune(l.Resource, l.Object)
		if err != nil {
			return err
		}
		l.pruned, l.Object = o, nil
	case "ERROR", "BOOKMARK", "LIST_ERROR", "WATCH_END", "WATCH_ERROR", "BAD_LINE":
		if roll.KindOfResource(l.Resource) == "" {
			return nil
		}
	default:
		return fmt.Errorf("unknown type %q", l.Type)
	}
	im.watch = append(im.watch, l)
	return nil
}

// prune is roll.Prune with errors that quote nothing of the object.
func prune(resource string, raw []byte) (*roll.Object, error) {
	if len(raw) == 0 {
		return nil, errors.New("there is no object")
	}
	o, err := roll.Prune(resource, raw)
	if err != nil {
		return nil, jsonError(err)
	}
	if o.Metadata.Name == "" {
		return nil, errors.New("the object has no name")
	}
	return o, nil
}

func (im *rawImport) addLog(l rawLine) error {
	switch {
	case l.Line != nil && l.Type == "", l.Type == "FOLLOW_END", l.Type == "FOLLOW_ERROR":
	default:
		return fmt.Errorf("unknown type %q", l.Type)
	}
	if l.Pod == "" || l.Ctr == "" {
		return errors.New("no pod or no container is named")
	}
	im.logs = append(im.logs, l)
	return nil
}

func (im *rawImport) header(tool string, logs bool) roll.Header {
	h := roll.Header{Tool: tool, Source: "raw-streams", Logs: logs, StartedAt: im.watch[0].at()}
	if len(im.logs) > 0 && im.logs[0].at().Before(h.StartedAt) {
		h.StartedAt = im.logs[0].at()
	}
	for _, r := range roll.Resources {
		if slices.ContainsFunc(im.watch, func(l rawLine) bool { return l.Resource == r.Resource }) {
			h.Resources = append(h.Resources, r.Resource)
		}
	}
	for _, l := range im.watch {
		if l.pruned == nil {
			continue
		}
		if ns := l.pruned.Metadata.Namespace; ns != "" && !slices.Contains(h.Namespaces, ns) {
			h.Namespaces = append(h.Namespaces, ns)
		}
	}
	slices.Sort(h.Namespaces)
	return h
}

func (im *rawImport) emit(l roll.Line) { im.out = append(im.out, l) }

// convertWatch replays the watch lines stream by stream.
func (im *rawImport) convertWatch() {
	streams := map[string][]*rawLine{}
	for i := range im.watch {
		l := &im.watch[i]
		streams[l.Resource] = append(streams[l.Resource], l)
	}
	for _, r := range roll.Resources {
		im.convertStream(r.Resource, streams[r.Resource])
	}
}

// streamState is what is known of a watch while its lines are read.
type streamState int

const (
	streamNew     streamState = iota // nothing but a first list yet
	streamOpen                       // events come
	streamCut                        // ended, and to go on at the same resourceVersion
	streamExpired                    // must list again
	streamDamaged                    // goes on, but an event is lost
)

func (im *rawImport) convertStream(resource string, lines []*rawLine) {
	var (
		state  streamState
		reason string
		last   = im.watch[0].at() // of this stream's events; the recording's begin before the first
		from   time.Time
		known  = map[string]roll.ObjectReference{}
	)
	interrupt := func(to streamState, why string) {
		if from.IsZero() {
			from = last
		}
		if to > state || state == streamDamaged && to == streamExpired {
			state, reason = to, why
		}
	}
	gap := func(at, to time.Time, vanished []roll.ObjectReference, lossless bool) {
		im.emit(roll.Line{ReceivedAt: at, Gap: &roll.WatchGap{
			Resource: resource, Reason: reason, From: from, To: to, Vanished: vanished, Lossless: lossless,
		}})
		state, from = streamOpen, time.Time{}
	}
	object := func(l *rawLine, op roll.Op) {
		im.emit(roll.Line{ReceivedAt: l.at(), Resource: resource, Op: op, Object: l.pruned})
		last = l.at()
		if op == roll.OpDeleted {
			delete(known, l.pruned.Metadata.UID)
		} else {
			known[l.pruned.Metadata.UID] = reference(l.pruned)
		}
	}
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		switch l.Type {
		case "LIST":
			n := i
			listed := map[string]bool{}
			for n < len(lines) && lines[n].Type == "LIST" {
				listed[lines[n].pruned.Metadata.UID] = true
				n++
			}
			if state == streamOpen {
				interrupt(streamExpired, "relist")
			}
			if state != streamNew {
				gap(l.at(), lines[n-1].at(), vanished(known, listed), false)
			}
			for ; i < n; i++ {
				object(lines[i], roll.OpListed)
			}
			i-- // the loop's own
		case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
			switch state {
			case streamCut:
				gap(l.at(), l.at(), nil, true)
			case streamExpired: // a watch begins after a list, so that list was empty
				gap(l.at(), l.at(), vanished(known, nil), false)
			case streamNew:
				state = streamOpen
			}
			if l.Type != "BOOKMARK" {
				object(l, roll.Op(l.Type))
			}
			last = l.at()
		case "ERROR":
			interrupt(streamExpired, statusReason(l.Object))
		case "LIST_ERROR":
			interrupt(streamExpired, "list-error")
		case "WATCH_ERROR":
			if l.Code != 0 {
				interrupt(streamExpired, "watch-refused")
			} else {
				interrupt(streamCut, "watch-error")
			}
		case "WATCH_END":
			interrupt(streamCut, "watch-ended")
		case "BAD_LINE":
			interrupt(streamDamaged, "unreadable-event")
		}
	}
	if !from.IsZero() { // nothing shows that it ever went on
		gap(im.end, im.end, nil, false)
	}
}

// statusReason returns the reason of a Status in an ERROR event, as one of the words of [roll.WatchGap].
func statusReason(raw []byte) string {
	var s struct {
		Code int `json:"code"`
	}
	if json.Unmarshal(raw, &s) == nil && s.Code == 410 {
		return "expired"
	}
	return "watch-error"
}

func reference(o *roll.Object) roll.ObjectReference {
	return roll.ObjectReference{Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, UID: o.Metadata.UID}
}

// vanished takes from known what listed does not hold, and returns it in order of name.
func vanished(known map[string]roll.ObjectReference, listed map[string]bool) []roll.ObjectReference {
	var out []roll.ObjectReference
	for uid, ref := range known {
		if !listed[uid] {
			out = append(out, ref)
			delete(known, uid)
		}
	}
	slices.SortFunc(out, func(a, b roll.ObjectReference) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return out
}
