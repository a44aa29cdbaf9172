package correlate

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// Logs returns the recorded log lines in order of the kubelet's stamp, each with the severity and message that
// [ParseLog] reads. Lines of one moment keep the order of the recording.
//
// A line that continues a record, as those of a stack trace do, has the severity and the message of the record's first
// line, so that what accepts the record accepts all of it. A line without a stamp has that of the line before it in the
// same container; one with none before it keeps the zero time and comes first.
func Logs(rec *roll.Recording) []roll.LogLine {
	type container struct{ namespace, pod, uid, name, id string }
	states := map[container]*logState{}
	lines := make([]roll.LogLine, len(rec.Logs))
	for i := range rec.Logs {
		l := &rec.Logs[i]
		key := container{l.Namespace, l.Pod, l.UID, l.Container, l.ContainerID}
		st := states[key]
		if st == nil {
			st = &logState{}
			states[key] = st
		}
		t := l.Time.UTC()
		if l.Time.IsZero() {
			t = st.last
		}
		severity, message := st.read(l.Line, t)
		lines[i] = roll.LogLine{
			Pod:       roll.PodRef{Namespace: l.Namespace, Name: l.Pod, UID: l.UID},
			Container: l.Container, Time: t, Body: l.Line, Severity: severity, Message: message,
		}
	}
	slices.SortStableFunc(lines, func(a, b roll.LogLine) int { return a.Time.Compare(b.Time) })
	return lines
}

// WindowLogs returns the lines with a time in [start, end), a part of lines, which are in order of time.
func WindowLogs(lines []roll.LogLine, start, end time.Time) []roll.LogLine {
	at := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(lines, t, func(l roll.LogLine, t time.Time) int { return l.Time.Compare(t) })
		return i
	}
	from := at(start)
	return lines[from:max(at(end), from)]
}

// ParseLog reads the severity of one log line and the message in it. It knows JSON (zap, zerolog, slog, logrus, pino,
// bunyan, ECS, GELF, OpenTelemetry, Cloud Logging, …), logfmt, klog, and a level at the place where text formats have
// it: at the start of the line or after nothing but time stamps, bracketed groups and separators. A word in the
// message is never a level: then the severity is [roll.SeverityUnspecified]. So is it for a line that continues
// another one.
//
// A line that a runtime writes as it dies (a Go panic, an exception in a Java thread, a Python traceback) is an ERROR.
func ParseLog(line string) (roll.Severity, string) {
	r := readLine(line)
	return r.severity, r.message
}

// recordTime is how long after the line before it a line may come and still continue a record: records are written at
// once.
const recordTime = time.Second

// logState is what the next line of one container may continue.
type logState struct {
	severity roll.Severity
	message  string
	last     time.Time
	trace    trace
}

// trace is the kind of stack trace that is being written.
type trace int8

const (
	noTrace trace = iota
	goTrace
	pythonTrace
)

func (st *logState) read(line string, t time.Time) (roll.Severity, string) {
	r := readLine(line)
	near := t.Sub(st.last) <= recordTime
	st.last = t
	own := r.severity != roll.SeverityUnspecified
	if near && st.severity != roll.SeverityUnspecified {
		switch {
		case r.trace == pythonTrace && st.severity >= roll.SeverityWarn:
			own = false // logging.exception and exc_info; below WARN it is more likely an exception that nobody caught
		case r.indented && !r.stamped:
			own = false
		}
	}
	if own {
		st.severity, st.message, st.trace = r.severity, r.message, r.trace
		return r.severity, r.message
	}
	continues := r.continues || r.indented
	switch {
	case r.trace != noTrace:
		continues, st.trace = true, r.trace
	case st.trace == goTrace:
		continues = continues || strings.HasSuffix(r.message, ")") // a function with its arguments
	case st.trace == pythonTrace && !continues:
		continues, st.trace = true, noTrace // the exception itself is the last line
	}
	if !continues || !near {
		st.severity, st.message, st.trace = roll.SeverityUnspecified, "", noTrace
	}
	if st.severity == roll.SeverityUnspecified {
		return roll.SeverityUnspecified, r.message
	}
	return st.severity, st.message
}

// reading is what one line says by itself.
type reading struct {
	severity  roll.Severity
	message   string
	indented  bool // starts with white space, or is empty
	stamped   bool // has a time stamp of its own
	continues bool // continues the line before
	trace     trace
}

var (
	// klog and glog: Lmmdd hh:mm:ss.uuuuuu threadid file:line] msg; glog may write the year as well.
	klogLine = regexp.MustCompile(`^([IWEF])(?:\d{4}|\d{8}) \d\d:\d\d:\d\d(?:\.\d+)?\s+(?:\d+\s+)?[^\s\]]+:\d+\] ?`)
	// Redis: pid:role dd Mon yyyy hh:mm:ss.mmm level msg.
	redisLine = regexp.MustCompile(`^\d+:[XCSM] \d{2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d\.\d+ ([.\-*#]) `)
	// Ruby's Logger: S, [time #pid] SEVERITY -- progname: msg.
	rubyLine = regexp.MustCompile(`^[DIWEFA], \[\S+ #\d+\]\s+([A-Z]+) -- [^:]*: `)
	// PHP's own errors.
	phpLine = regexp.MustCompile(
		`^(?:\[[^\]]*\] )?PHP (Notice|Deprecated|Warning|Parse error|Fatal error|Catchable fatal error): +`)
	// logrus and log15 on a terminal.
	logrusLine = regexp.MustCompile(`^(TRACE?|DEBUG?|DBUG|INFO|WARN|ERROR?|EROR|FATA|CRIT|PANI) ?\[[\d|:.\-+T]+\] ?`)
	// Dates and times in one token.
	stampToken = regexp.MustCompile(`^(?:` + dateRE + `|` + timeRE + `|` + dateRE + `[T_:|\-]` + timeRE +
		`|\d{10}(?:\.\d+)?|\d{13}(?:\.\d+)?|\d{16}|\d{19})[,:;]?$`)
	zoneToken = regexp.MustCompile(
		`^(?:Z|UTC|GMT|AM|PM|am|pm|CES?T|EES?T|WES?T|BST|IST|JST|MSK|[ECMP][SD]T|AE[SD]T|[+-]\d\d:?\d\d):?$`)
	dateWord = regexp.MustCompile(`^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|` +
		`Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|\d{1,2}|\d{4}|\d{6}),?$`)

	goroutineLine = regexp.MustCompile(`^goroutine \d+ (?:gp=\S+ m=\S+ (?:mp=\S+ )?)?\[`)
	javaException = regexp.MustCompile(`^[\w$]+(?:\.[\w$]+)+(?:Exception|Error|Throwable|Failure)(?::.*)?$`)
	rustPanic     = regexp.MustCompile(`^thread '[^']*' (?:\(\d+\) )?panicked at `)
	stackEllipsis = regexp.MustCompile(`^\.\.\. \d+ (?:more|common frames omitted)|^\.\.\.additional frames elided`)
)

const (
	dateRE = `(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|` +
		`\d{1,2}[-/](?:\d{1,2}|[A-Z][a-z]{2})[-/]\d{2,4}|\d{1,2}\.\d{1,2}\.\d{4}|\d\d-\d\d)`
	timeRE = `\d{1,2}:\d\d(?::\d\d(?:[.,:]\d{1,9})?)?(?:[AP]M|Z|[+-]\d\d:?\d\d)?`
)

// fatalStarts are how runtimes begin what they write when a program dies or a request is dropped.
var fatalStarts = []struct {
	text  string
	trace trace
}{
	{"panic: ", goTrace},
	{"fatal error: ", goTrace},
	{"Exception in thread ", noTrace},
	{"Traceback (most recent call last):", pythonTrace},
	{"Fatal Python error: ", noTrace},
	{"Unhandled exception. ", noTrace},
	{"terminate called after throwing an instance of ", noTrace},
	{"terminate called without an active exception", noTrace},
}

// continuations are how lines of a record begin that is not the first, white space apart.
var continuations = []string{
	"Caused by: ", "Suppressed: ", "created by ", "[signal SIG", "During handling of the above exception, ",
	"The above exception was the direct cause of ",
}

func readLine(line string) reading {
	s := strings.TrimRight(stripANSI(line), " \t\r\n")
	r := reading{message: s}
	if s == "" {
		r.indented = true
		return r
	}
	r.indented = s[0] == ' ' || s[0] == '\t'
	s = strings.TrimLeft(s, " \t")

	for _, f := range fatalStarts {
		if !r.indented && strings.HasPrefix(s, f.text) {
			r.severity, r.trace = roll.SeverityError, f.trace
			return r
		}
	}
	switch {
	case r.indented, s[0] == '{':
	case rustPanic.MatchString(s):
		r.severity = roll.SeverityError
		return r
	case goroutineLine.MatchString(s):
		r.continues, r.trace = true, goTrace
		return r
	case javaException.MatchString(s), stackEllipsis.MatchString(s),
		slices.ContainsFunc(continuations, func(p string) bool { return strings.HasPrefix(s, p) }):
		r.continues = true
		return r
	}
	switch s[0] {
	case 'I', 'W', 'E', 'F', 'D', 'A', 'T', 'C', 'P':
		if m := klogLine.FindStringSubmatch(s); m != nil {
			r.severity, r.stamped, r.message = letters[m[1][0]], true, s[len(m[0]):]
			return r
		}
		if m := rubyLine.FindStringSubmatch(s); m != nil {
			r.severity, r.stamped, r.message = levels[strings.ToLower(m[1])], true, s[len(m[0]):]
			return r
		}
		if m := logrusLine.FindStringSubmatch(s); m != nil {
			r.severity, r.stamped, r.message = levels[strings.ToLower(m[1])], true, s[len(m[0]):]
			return r
		}
	}
	if m := phpLine.FindStringSubmatch(s); m != nil {
		r.severity, r.message = phpLevels[m[1]], s[len(m[0]):]
		return r
	}
	if m := redisLine.FindStringSubmatch(s); m != nil {
		r.severity, r.stamped, r.message = redisLevels[m[1][0]], true, s[len(m[0]):]
		return r
	}
	r.position(s)
	return r
}

// position looks for a level where text formats have it: after time stamps, bracketed groups and separators only.
func (r *reading) position(s string) {
	if severity, rest, ok := piped(s); ok {
		r.severity, r.message, r.stamped = severity, rest, true
		return
	}
	if severity, rest, ok := syslogPriority(s); ok {
		r.severity, r.message = severity, rest
		return
	}
	var grouped, numbered, dashed, tabbed bool
	for range 10 {
		before := len(s)
		t := strings.TrimLeft(s, " \t")
		tabbed = strings.Contains(s[:before-len(t)], "\t")
		s = t
		if s == "" {
			return
		}
		switch s[0] {
		case '{':
			if severity, message, ok := jsonLine(s); ok {
				r.severity, r.message = severity, message
			}
			return
		case '[', '(', '<':
			content, rest, ok := group(s)
			if !ok {
				return
			}
			severity, stamp := bracketed(content, r.stamped)
			if severity != roll.SeverityUnspecified && s[0] != '(' {
				r.severity, r.message, r.stamped = severity, messageOf(rest), r.stamped || stamp
				return
			}
			r.stamped = r.stamped || stamp
			grouped, dashed = true, false
			s = rest
			continue
		}
		token, rest := s, ""
		if i := strings.IndexAny(s, " \t"); i >= 0 {
			token, rest = s[:i], s[i:]
		}
		switch {
		case s[0] >= '0' && s[0] <= '9' && stampToken.MatchString(token):
			r.stamped, numbered = true, false
		case isSeparator(token):
			dashed = token == "-"
			s = rest
			continue
		case (r.stamped || grouped) && isNumber(token):
			numbered = true
		case r.stamped && zoneToken.MatchString(token):
		case r.stamped && grouped && strings.Contains(token, "@"): // PostgreSQL's user@database
		default:
			if severity, message, ok := logfmtLine(s); ok {
				r.severity, r.message = severity, message
				return
			}
			if r.stamped && dashed {
				if severity, message, ok := namedLevel(rest); ok { // Python: time - name - LEVEL - message
					r.severity, r.message = severity, message
					return
				}
			}
			if strings.HasPrefix(s, "http: panic serving ") { // net/http: a handler's panic, a request is lost
				r.severity, r.message, r.trace = roll.SeverityError, s, goTrace
				return
			}
			if r.stamped && slices.Contains(postgresDetails, token) {
				r.continues = true
				return
			}
			tab := r.stamped && tabbed && strings.HasPrefix(rest, "\t")
			if severity, message, ok := bareLevel(token, rest, r.stamped, numbered, tab); ok {
				r.severity, r.message = severity, message
			}
			return
		}
		dashed = false
		s = rest
	}
}

// postgresDetails are the fields of a PostgreSQL message that come on lines of their own after it.
var postgresDetails = []string{"DETAIL:", "HINT:", "STATEMENT:", "CONTEXT:", "QUERY:", "LOCATION:"}

// bareLevel reads a level that stands alone: in capitals, or in any case when a colon ends it or tabs enclose it.
func bareLevel(token, rest string, stamped, numbered, tabbed bool) (roll.Severity, string, bool) {
	word, after, colon := strings.Cut(token, ":")
	severity, known := levels[strings.ToLower(word)]
	if !known {
		if stamped && token == "LOG:" { // PostgreSQL
			return roll.SeverityInfo, messageOf(rest), true
		}
		if token == "LOG" && stamped && !numbered { // Nest
			return roll.SeverityInfo, messageOf(rest), true
		}
		return 0, "", false
	}
	upper := word == strings.ToUpper(word)
	switch {
	case colon && after == "" && (upper || colonLevels[word] || colonLevels[strings.ToLower(word)]):
		return severity, messageOf(rest), true
	case colon && upper && !strings.HasPrefix(after, "/") && len(word) > 3: // Python: LEVEL:name:message
		return severity, after + rest, true
	case colon, numbered:
		return 0, "", false
	case upper && (stamped || plainLevels[word]), tabbed:
		return severity, messageOf(rest), true
	}
	return 0, "", false
}

// namedLevel reads "- LEVEL - message" or "- LEVEL message".
func namedLevel(s string) (roll.Severity, string, bool) {
	s = strings.TrimLeft(s, " ")
	if !strings.HasPrefix(s, "- ") {
		return 0, "", false
	}
	s = strings.TrimLeft(s[2:], " ")
	word, rest, _ := strings.Cut(s, " ")
	word = strings.TrimSuffix(word, ":")
	severity, ok := levels[strings.ToLower(word)]
	if !ok || word != strings.ToUpper(word) {
		return 0, "", false
	}
	return severity, messageOf(rest), true
}

// group cuts s, which starts with an opening bracket, behind the closing one.
func group(s string) (content, rest string, ok bool) {
	closing := map[byte]byte{'[': ']', '(': ')', '<': '>'}[s[0]]
	i := strings.IndexByte(s, closing)
	if i < 0 || i > 120 {
		return "", "", false
	}
	return s[1:i], s[i+1:], true
}

// bracketed reads what stands in brackets: a level, module:level, or a time stamp with a level behind or before it.
func bracketed(content string, stamped bool) (severity roll.Severity, stamp bool) {
	fields := strings.Fields(content)
	if len(fields) == 0 {
		return 0, false
	}
	if len(fields) == 1 {
		f := fields[0]
		if s, ok := levels[strings.ToLower(f)]; ok {
			return s, false
		}
		if len(f) == 1 && stamped {
			return letters[f[0]], false
		}
		if i := strings.LastIndexByte(f, ':'); stamped && i > 0 {
			if s, ok := levels[f[i+1:]]; ok { // Apache: [core:error]
				return s, false
			}
		}
		return 0, stampToken.MatchString(f)
	}
	isStamp := func(f string) bool { return f[0] >= '0' && f[0] <= '9' && stampToken.MatchString(f) }
	letter, ok := letters[fields[0][0]]
	if ok && len(fields[0]) == 1 && (isStamp(fields[1]) || dateWord.MatchString(fields[1])) {
		return letter, true // Tornado: [W 261201 03:45:00 web:1]
	}
	for i, f := range fields {
		if isStamp(f) {
			stamp = true
			continue
		}
		if dateWord.MatchString(f) || stamp && (zoneToken.MatchString(f) || isSeparator(f)) {
			continue
		}
		if !stamp || len(fields)-i > 3 {
			return 0, stamp
		}
		word, _, _ := strings.Cut(f, "/") // Celery: [time: WARNING/MainProcess]
		if s, ok := levels[strings.ToLower(word)]; ok && (word == strings.ToUpper(word) || i == len(fields)-1) {
			return s, true
		}
		return 0, stamp
	}
	return 0, stamp
}

// piped reads fields between bars, the first a time stamp and one of the next few a level in capitals: NLog, Open
// vSwitch.
func piped(s string) (roll.Severity, string, bool) {
	first, rest, ok := strings.Cut(s, "|")
	if !ok || len(first) > 40 || first == "" || first[0] < '0' || first[0] > '9' {
		return 0, "", false
	}
	for _, f := range strings.Fields(first) {
		if !stampToken.MatchString(f) && !zoneToken.MatchString(f) {
			return 0, "", false
		}
	}
	for range 4 {
		var f string
		if f, rest, ok = strings.Cut(rest, "|"); !ok {
			return 0, "", false
		}
		f = strings.TrimSpace(f)
		if s, known := levels[strings.ToLower(f)]; known && f == strings.ToUpper(f) {
			return s, messageOf(rest), true
		}
		if strings.ContainsAny(f, " \t") {
			return 0, "", false
		}
	}
	return 0, "", false
}

// syslogPriority reads <PRI> as RFC 5424 and RFC 3164 have it: facility × 8 + severity.
func syslogPriority(s string) (roll.Severity, string, bool) {
	if s[0] != '<' {
		return 0, "", false
	}
	i := strings.IndexByte(s, '>')
	if i < 2 || i > 4 {
		return 0, "", false
	}
	pri, err := strconv.ParseUint(s[1:i], 10, 8)
	if err != nil || pri > 191 {
		return 0, "", false
	}
	return syslogLevels[pri%8], messageOf(s[i+1:]), true
}

// jsonLine reads the top-level fields of a JSON object, also of one whose end was cut off.
func jsonLine(s string) (roll.Severity, string, bool) {
	dec := json.NewDecoder(strings.NewReader(s))
	if _, err := dec.Token(); err != nil {
		return 0, "", false
	}
	fields := map[string]json.RawMessage{} // the first of each name, in lower case
	for dec.More() {
		key, err := dec.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			break
		}
		var v json.RawMessage
		if dec.Decode(&v) != nil {
			break
		}
		name = strings.ToLower(name)
		if _, again := fields[name]; !again {
			fields[name] = v
		}
	}
	if len(fields) == 0 {
		return 0, "", false
	}
	message := s
	for _, k := range messageKeys {
		if v, ok := fields[k]; ok {
			if m, ok := jsonText(v); ok && m != "" {
				message = m
				break
			}
		}
	}
	for _, k := range levelKeys {
		if v, ok := fields[k]; ok {
			if severity := jsonLevel(k, v, fields); severity != roll.SeverityUnspecified {
				return severity, message, true
			}
		}
	}
	return jsonImplied(fields), message, true
}

var (
	messageKeys = []string{"msg", "message", "@message", "@m", "@mt", "short_message", "event", "body", "text"}
	// levelKeys are in order of trust: an alert that is logged may carry its own severity beside the record's level.
	levelKeys = []string{
		"level", "lvl", "log.level", "severity_text", "severitytext", "severity", "levelname", "level_name", "loglevel",
		"log_level", "@l", "@level", "log", "severitynumber", "severity_number", "levelno", "s",
	}
)

func jsonText(v json.RawMessage) (string, bool) {
	if len(v) == 0 || v[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(v, &s)
	return s, err == nil
}

func jsonLevel(key string, v json.RawMessage, fields map[string]json.RawMessage) roll.Severity {
	if key == "log" { // Elastic Common Schema, nested
		var log struct {
			Level string `json:"level"`
		}
		if json.Unmarshal(v, &log) != nil {
			return roll.SeverityUnspecified
		}
		return levelText(log.Level)
	}
	s, text := jsonText(v)
	if !text {
		s = string(v)
	}
	if key == "s" { // MongoDB: one letter
		_, c := fields["c"]
		_, id := fields["id"]
		if !text || s == "" || len(s) > 2 || !c || !id {
			return roll.SeverityUnspecified
		}
		return letters[s[0]]
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		if !text {
			return roll.SeverityUnspecified
		}
		return levelText(s)
	}
	switch key {
	case "severitynumber", "severity_number": // OpenTelemetry
		if n >= 1 && n <= 24 && n == float64(int(n)) {
			return roll.Severity(n)
		}
		return roll.SeverityUnspecified
	case "severity": // Cloud Logging
		return numbered(n, cloudLevels)
	case "levelno":
		return numbered(n, pythonLevels)
	}
	if _, gelf := fields["short_message"]; gelf && n >= 0 && n <= 7 {
		return syslogLevels[int(n)]
	}
	if s := numbered(n, pinoLevels); s != roll.SeverityUnspecified {
		return s
	}
	if s := numbered(n, monologLevels); s != roll.SeverityUnspecified {
		return s
	}
	if _, logr := fields["logger"]; logr && n >= 0 && n <= 9 { // go-logr's funcr: a verbosity, and errors have none
		return roll.SeverityInfo
	}
	return roll.SeverityUnspecified
}

// jsonImplied reads the formats that write no level: klog's and go-logr's JSON have v or level on every record but
// errors, which have err or error instead.
func jsonImplied(fields map[string]json.RawMessage) roll.Severity {
	has := func(k string) bool { _, ok := fields[k]; return ok }
	switch {
	case has("ts") && has("msg") && has("v"):
		return roll.SeverityInfo
	case has("ts") && has("msg") && has("caller") && has("err"),
		has("logger") && has("msg") && has("error") && !has("level"):
		return roll.SeverityError
	}
	return roll.SeverityUnspecified
}

func numbered(n float64, table map[int]roll.Severity) roll.Severity {
	if n < 0 || n > 1000 || n != float64(int(n)) {
		return roll.SeverityUnspecified
	}
	return table[int(n)]
}

// levelText reads a level that a field is known to hold: also slog's INFO+2, OpenTelemetry's WARN2, zap's Level(-2).
func levelText(s string) roll.Severity {
	s = strings.ToLower(strings.TrimSpace(s))
	if severity, ok := levels[s]; ok {
		return severity
	}
	if strings.HasPrefix(s, "level(-") {
		return roll.SeverityDebug
	}
	if i := strings.IndexAny(s, "+-123456789"); i > 0 {
		if _, err := strconv.Atoi(s[i:]); err == nil {
			return levels[s[:i]]
		}
	}
	return roll.SeverityUnspecified
}

// logfmtLine reads key=value pairs from the start of s until something that is none, and the first level among them.
func logfmtLine(s string) (severity roll.Severity, message string, ok bool) {
	message = s
	found := false
	for s = strings.TrimLeft(s, " \t"); s != ""; s = strings.TrimLeft(s, " \t") {
		i := 0
		for i < len(s) && isKeyByte(s[i], i == 0) {
			i++
		}
		if i == 0 || i == len(s) || s[i] != '=' {
			break
		}
		key, value := s[:i], ""
		s = s[i+1:]
		if strings.HasPrefix(s, `"`) {
			end := 1
			for end < len(s) && s[end] != '"' {
				if s[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(s))
			value, s = s[:end], s[end:]
			if u, err := strconv.Unquote(value); err == nil {
				value = u
			} else {
				value = strings.Trim(value, `"`)
			}
		} else {
			end := strings.IndexAny(s, " \t")
			if end < 0 {
				end = len(s)
			}
			value, s = s[:end], s[end:]
		}
		switch strings.ToLower(key) {
		case "level", "lvl", "severity", "log.level", "loglevel", "log_level", "levelname", "severity_text":
			if severity == roll.SeverityUnspecified {
				severity = levelText(value)
				ok = ok || severity != roll.SeverityUnspecified
			}
		case "msg", "message", "event":
			if !found && value != "" {
				message, found = value, true
			}
		}
	}
	return severity, message, ok
}

func isKeyByte(c byte, first bool) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '@':
		return true
	case c >= '0' && c <= '9', c == '.', c == '-', c == '/':
		return !first
	}
	return false
}

func isSeparator(token string) bool {
	switch token {
	case "-", "--", "---", "|", ":", "::", "–":
		return true
	}
	return false
}

// isNumber reports whether a token is a process, thread or connection number: 1, 1:, 123#0:, *7.
func isNumber(token string) bool {
	token = strings.TrimSuffix(strings.TrimPrefix(token, "*"), ":")
	digits := false
	for i := range len(token) {
		switch c := token[i]; {
		case c >= '0' && c <= '9':
			digits = true
		case c == '#' && digits:
		default:
			return false
		}
	}
	return digits && len(token) <= 20
}

// messageOf trims what separates a level from its message.
func messageOf(s string) string {
	s = strings.TrimLeft(s, " \t")
	for _, p := range []string{": ", "- ", "| ", "-- "} {
		if t, ok := strings.CutPrefix(s, p); ok {
			return strings.TrimLeft(t, " \t")
		}
	}
	return s
}

// stripANSI removes terminal escape sequences (ECMA-48 CSI, and OSC up to its end).
func stripANSI(s string) string {
	const esc = 0x1b
	if strings.IndexByte(s, esc) < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != esc {
			b = append(b, s[i])
			continue
		}
		if i++; i >= len(s) {
			break
		}
		switch s[i] {
		case '[':
			for i++; i < len(s) && (s[i] < 0x40 || s[i] > 0x7e); i++ {
			}
		case ']':
			for i++; i < len(s) && s[i] != 0x07 && s[i] != esc; i++ {
			}
			if i+1 < len(s) && s[i] == esc && s[i+1] == '\\' {
				i++
			}
		}
	}
	return string(b)
}

// levels are the words for levels, in lower case. Syslog's three above error and Python's CRITICAL are errors as
// OpenTelemetry's data model maps them (specification/logs/data-model-appendix.md), an emergency is fatal.
var levels = map[string]roll.Severity{
	"trace": roll.SeverityTrace, "trc": roll.SeverityTrace, "trce": roll.SeverityTrace, "trac": roll.SeverityTrace,
	"finest": roll.SeverityTrace, "finer": roll.SeverityTrace, "verbose": roll.SeverityTrace, "vrb": roll.SeverityTrace,
	"debug": roll.SeverityDebug, "dbg": roll.SeverityDebug, "dbug": roll.SeverityDebug, "debu": roll.SeverityDebug,
	"fine": roll.SeverityDebug, "config": roll.SeverityDebug,
	"info": roll.SeverityInfo, "inf": roll.SeverityInfo, "information": roll.SeverityInfo,
	"informational": roll.SeverityInfo, "notice": roll.SeverityInfo, "note": roll.SeverityInfo,
	"warn": roll.SeverityWarn, "warning": roll.SeverityWarn, "wrn": roll.SeverityWarn,
	"error": roll.SeverityError, "err": roll.SeverityError, "erro": roll.SeverityError, "eror": roll.SeverityError,
	"fail": roll.SeverityError, "severe": roll.SeverityError, "crit": roll.SeverityError, "critical": roll.SeverityError,
	"alert": roll.SeverityError,
	"fatal": roll.SeverityFatal, "ftl": roll.SeverityFatal, "fata": roll.SeverityFatal, "panic": roll.SeverityFatal,
	"pani": roll.SeverityFatal, "pnc": roll.SeverityFatal, "dpanic": roll.SeverityFatal, "emerg": roll.SeverityFatal,
	"emergency": roll.SeverityFatal,
}

// colonLevels are levels also in lower or mixed case when a colon ends them at the start of a message.
var colonLevels = map[string]bool{
	"trace": true, "trce": true, "debug": true, "dbug": true, "info": true, "warn": true, "warning": true, "error": true,
	"fail": true, "crit": true, "critical": true, "fatal": true, "severe": true, "notice": true,
}

// plainLevels are levels in capitals at the very start of a line.
var plainLevels = map[string]bool{
	"TRACE": true, "DEBUG": true, "INFO": true, "NOTICE": true, "WARN": true, "WARNING": true, "ERROR": true,
	"CRITICAL": true, "FATAL": true, "SEVERE": true,
}

var letters = map[byte]roll.Severity{
	'T': roll.SeverityTrace, 'D': roll.SeverityDebug, 'I': roll.SeverityInfo, 'W': roll.SeverityWarn,
	'E': roll.SeverityError, 'F': roll.SeverityFatal,
}

var redisLevels = map[byte]roll.Severity{
	'.': roll.SeverityDebug, '-': roll.SeverityDebug, '*': roll.SeverityInfo, '#': roll.SeverityWarn,
}

var phpLevels = map[string]roll.Severity{
	"Notice": roll.SeverityInfo, "Deprecated": roll.SeverityInfo, "Warning": roll.SeverityWarn,
	"Parse error": roll.SeverityError, "Fatal error": roll.SeverityError, "Catchable fatal error": roll.SeverityError,
}

// syslogLevels are RFC 5424's severities, 0 emergency to 7 debug.
var syslogLevels = [8]roll.Severity{
	roll.SeverityFatal, roll.SeverityError, roll.SeverityError, roll.SeverityError, roll.SeverityWarn, roll.SeverityInfo,
	roll.SeverityInfo, roll.SeverityDebug,
}

// pinoLevels are pino's and bunyan's.
var pinoLevels = map[int]roll.Severity{
	10: roll.SeverityTrace, 20: roll.SeverityDebug, 30: roll.SeverityInfo, 40: roll.SeverityWarn, 50: roll.SeverityError,
	60: roll.SeverityFatal,
}

var pythonLevels = map[int]roll.Severity{
	10: roll.SeverityDebug, 20: roll.SeverityInfo, 30: roll.SeverityWarn, 40: roll.SeverityError, 50: roll.SeverityError,
}

// monologLevels are PHP's Monolog's.
var monologLevels = map[int]roll.Severity{
	100: roll.SeverityDebug, 200: roll.SeverityInfo, 250: roll.SeverityInfo, 300: roll.SeverityWarn,
	400: roll.SeverityError, 500: roll.SeverityError, 550: roll.SeverityError, 600: roll.SeverityFatal,
}

// cloudLevels are Cloud Logging's LogSeverity.
var cloudLevels = map[int]roll.Severity{
	100: roll.SeverityDebug, 200: roll.SeverityInfo, 300: roll.SeverityInfo, 400: roll.SeverityWarn,
	500: roll.SeverityError, 600: roll.SeverityError, 700: roll.SeverityError, 800: roll.SeverityFatal,
}
