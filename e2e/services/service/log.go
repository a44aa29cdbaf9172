package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rolltrace/rolltrace/e2e/services/journal"
)

// level is the severity of a log line.
type level int

const (
	info level = iota
	warn
	fail
)

// logFormats are the formats that services are found to log in. Each gets a level, a message and pairs of key and value.
var logFormats = map[string]func(time.Time, level, string, []any) string{
	"json":   logJSON,   // log/slog's JSON handler
	"klog":   logKlog,   // k8s.io/klog
	"logfmt": logLogfmt, // log/slog's text handler
	"plain":  logPlain,  // package log: no severity at all
}

// logger writes numbered lines to stdout, one Write each, and knows what it wrote last.
type logger struct {
	mu     sync.Mutex
	format func(time.Time, level, string, []any) string
	lines  int
	ended  bool
}

func (l *logger) write(lv level, msg string, kv ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line(lv, msg, kv)
}

func (l *logger) line(lv level, msg string, kv []any) string {
	if l.ended {
		return ""
	}
	l.lines++
	line := l.format(time.Now(), lv, msg, append([]any{"seq", l.lines}, kv...))
	os.Stdout.WriteString(line + "\n")
	return line
}

// last writes the last line of all and the journal's entry that says so.
func (l *logger) last(j *journal.Writer, code int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.line(info, "exit", []any{"code", code})
	l.ended = true
	j.Write(journal.Entry{At: time.Now().UnixNano(), Event: journal.Exit, Code: code, LastLine: line, Lines: l.lines})
}

func logJSON(t time.Time, lv level, msg string, kv []any) string {
	var b strings.Builder
	level := []string{"INFO", "WARN", "ERROR"}[lv]
	fmt.Fprintf(&b, `{"time":%q,"level":%q,"msg":%q`, t.UTC().Format(time.RFC3339Nano), level, msg)
	for i := 0; i+1 < len(kv); i += 2 {
		v, err := json.Marshal(kv[i+1])
		if err != nil {
			v = []byte(`null`)
		}
		fmt.Fprintf(&b, `,%q:%s`, kv[i], v)
	}
	b.WriteByte('}')
	return b.String()
}

func logKlog(t time.Time, lv level, msg string, kv []any) string {
	return fmt.Sprintf("%c%s %7d service.go:1] %q%s", "IWE"[lv], t.UTC().Format("0102 15:04:05.000000"), os.Getpid(), msg, pairs(kv))
}

func logLogfmt(t time.Time, lv level, msg string, kv []any) string {
	return fmt.Sprintf("time=%s level=%s msg=%q%s", t.UTC().Format(time.RFC3339Nano), []string{"INFO", "WARN", "ERROR"}[lv], msg, pairs(kv))
}

func logPlain(t time.Time, _ level, msg string, kv []any) string {
	return t.UTC().Format("2006/01/02 15:04:05 ") + msg + pairs(kv)
}

func pairs(kv []any) string {
	var b strings.Builder
	for i := 0; i+1 < len(kv); i += 2 {
		v := fmt.Sprint(kv[i+1])
		if strings.ContainsAny(v, " \"=") {
			v = fmt.Sprintf("%q", v)
		}
		fmt.Fprintf(&b, " %s=%s", kv[i], v)
	}
	return b.String()
}
