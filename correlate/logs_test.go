package correlate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

const (
	none_ = roll.SeverityUnspecified
	trc   = roll.SeverityTrace
	dbg   = roll.SeverityDebug
	inf   = roll.SeverityInfo
	wrn   = roll.SeverityWarn
	errs  = roll.SeverityError
	ftl   = roll.SeverityFatal
)

// logLines are lines as the named software writes them; an empty message is the whole line.
var logLines = []struct {
	format   string
	line     string
	severity roll.Severity
	message  string
}{
	// JSON.
	{"slog", `{"time":"2026-12-01T03:44:57.793248029Z","level":"INFO","msg":"serving","version":"v1"}`, inf, "serving"},
	{"slog, between levels", `{"time":"2026-12-01T03:44:57Z","level":"WARN+1","msg":"m"}`, wrn, "m"},
	{"slog, below debug", `{"time":"2026-12-01T03:44:57Z","level":"DEBUG-4","msg":"m"}`, dbg, "m"},
	{"zap", `{"level":"error","ts":1796096697.79,"caller":"a/b.go:1","msg":"lost","stacktrace":"main.main\n\t/a/b.go:1"}`, errs, "lost"},
	{"zap, unnamed level", `{"level":"Level(-2)","ts":1796096697.79,"msg":"m"}`, dbg, "m"},
	{"zap, dpanic", `{"level":"dpanic","ts":1796096697.79,"msg":"m"}`, ftl, "m"},
	{"zerolog", `{"level":"warn","time":1796096697,"message":"slow"}`, wrn, "slow"},
	{"zerolog, a field of the same name after it", `{"level":"info","alert":1,"level":"error","message":"m"}`, inf, "m"},
	{"zerolog, no level", `{"time":1796096697,"message":"error: no level"}`, none_, "error: no level"},
	{"logrus", `{"level":"warning","msg":"m","time":"2026-12-01T03:45:00Z"}`, wrn, "m"},
	{"pino", `{"level":30,"time":1796096697793,"pid":1,"hostname":"p","msg":"m"}`, inf, "m"},
	{"pino, warn", `{"level":40,"time":1796096697793,"pid":1,"hostname":"p","msg":"m"}`, wrn, "m"},
	{"bunyan", `{"name":"a","hostname":"p","pid":1,"level":50,"msg":"m","time":"2026-12-01T03:45:00Z","v":0}`, errs, "m"},
	{"winston", `{"level":"warn","message":"m","timestamp":"2026-12-01T03:45:00Z"}`, wrn, "m"},
	{"logback, logstash encoder", `{"@timestamp":"2026-12-01T03:45:00Z","@version":"1","message":"m","logger_name":"x","level":"WARN","level_value":30000}`, wrn, "m"},
	{"log4j2, ECS", `{"@timestamp":"2026-12-01T03:45:00Z","log.level":"ERROR","message":"m","ecs.version":"1.2.0"}`, errs, "m"},
	{"ECS, nested", `{"@timestamp":"2026-12-01T03:45:00Z","log":{"level":"warn","logger":"x"},"message":"m"}`, wrn, "m"},
	{"OpenTelemetry", `{"timestamp":"1","severityText":"WARN2","severityNumber":14,"body":"m"}`, wrn, "m"},
	{"OpenTelemetry, number alone", `{"timestamp":"1","severityNumber":14,"body":"m"}`, 14, "m"},
	{"Cloud Logging", `{"severity":"CRITICAL","message":"m"}`, errs, "m"},
	{"Cloud Logging, number", `{"severity":400,"message":"m"}`, wrn, "m"},
	{"python-json-logger", `{"asctime":"2026-12-01 03:45:00,412","levelname":"CRITICAL","message":"m"}`, errs, "m"},
	{"Python, number", `{"levelno":30,"message":"m"}`, wrn, "m"},
	{"structlog", `{"event":"m","level":"warning","timestamp":"2026-12-01T03:45:00Z"}`, wrn, "m"},
	{"Serilog", `{"@t":"2026-12-01T03:45:00Z","@mt":"m","@l":"Warning"}`, wrn, "m"},
	{"ASP.NET", `{"EventId":1,"LogLevel":"Error","Category":"x","Message":"m"}`, errs, "m"},
	{"hclog", `{"@level":"warn","@message":"m","@timestamp":"2026-12-01T03:45:00Z"}`, wrn, "m"},
	{"GELF", `{"version":"1.1","host":"p","short_message":"m","level":3}`, errs, "m"},
	{"Monolog", `{"message":"m","context":{},"level":300,"level_name":"WARNING","channel":"app"}`, wrn, "m"},
	{"MongoDB", `{"t":{"$date":"2026-12-01T03:45:00.412+00:00"},"s":"W","c":"NETWORK","id":22943,"ctx":"l","msg":"m"}`, wrn, "m"},
	{"klog JSON", `{"ts":1796096697793.1,"caller":"a.go:1","msg":"m","v":0}`, inf, "m"},
	{"klog JSON, error", `{"ts":1796096697793.1,"caller":"a.go:1","msg":"m","err":"boom"}`, errs, "m"},
	{"funcr", `{"logger":"x","level":0,"msg":"m"}`, inf, "m"},
	{"funcr, error", `{"logger":"x","msg":"m","error":"boom"}`, errs, "m"},
	{"keys in another case", `{"Level":"Warn","Msg":"m"}`, wrn, "m"},
	{"cut off", `{"level":"error","msg":"m","payload":"aaaaaaaa`, errs, "m"},
	{"stamp before it", `2026-12-01T03:45:00Z {"level":"warn","msg":"m"}`, wrn, "m"},
	{"a record about an alert", `{"level":"info","msg":"alert received","severity":"critical"}`, inf, "alert received"},
	{"a game's level", `{"player":"x","level":7,"msg":"m"}`, none_, "m"},
	{"a level that is no level", `{"level":"basic","msg":"m"}`, none_, "m"},
	{"error in the message", `{"msg":"level=error ERROR [error]","n":1}`, none_, "level=error ERROR [error]"},
	{"error in a nested object", `{"msg":"m","request":{"level":"error"}}`, none_, "m"},
	{"no JSON", `{level: error}`, none_, ""},
	{"array", `["error"]`, none_, ""},

	// logfmt.
	{"slog text", `time=2026-12-01T03:45:00.412Z level=WARN msg="slow down" n=1`, wrn, "slow down"},
	{"logrus text", `time="2026-12-01T03:45:00Z" level=warning msg="it \"is\"" err=x`, wrn, `it "is"`},
	{"go-kit", `level=error ts=2026-12-01T03:45:00.412Z caller=a.go:1 msg=m`, errs, "m"},
	{"Grafana", `logger=x t=2026-12-01T03:45:00.412Z level=info msg="Request error" status=500`, inf, "Request error"},
	{"log15", `t=2026-12-01T03:45:00+0000 lvl=eror msg=m`, errs, "m"},
	{"severity", `ts=1 severity=notice msg=m`, inf, "m"},
	{"stamp before it", `2026-12-01T03:45:00Z level=debug msg=m`, dbg, "m"},
	{"a message that speaks of levels", `time=1 level=info msg="level=error"`, inf, "level=error"},
	{"no level", `time=1 msg="level=error" url=/x?level=error`, none_, ""},
	{"a word before it", `request failed level=error`, none_, ""},
	{"a level of something else", `level=7 hp=error msg=m`, none_, ""},

	// klog and glog.
	{"klog, of the seed's clients", "E1201 03:45:00.412264       1 config.go:565] Expected to load root CA config from /var/run/secrets/x/ca.crt, but got err: y", errs, "Expected to load root CA config from /var/run/secrets/x/ca.crt, but got err: y"},
	{"klog, info about an error", `I1201 03:45:00.412264       1 a.go:5] "Sync" err="error: boom"`, inf, `"Sync" err="error: boom"`},
	{"klog, warning", "W1201 03:45:00.412264   12345 warnings.go:70] v1 Endpoints is deprecated", wrn, "v1 Endpoints is deprecated"},
	{"klog, fatal", "F1201 03:45:00.412264       1 a.go:5] m", ftl, "m"},
	{"glog with the year", "E20261201 03:45:00.412264     1 a.cc:5] m", errs, "m"},
	{"no klog", "E1201 is an error code", none_, ""},

	// A level in its place.
	{"logback", `03:45:00.412 [main] WARN  com.x.Foo - slow`, wrn, "com.x.Foo - slow"},
	{"logback, a thread with spaces", `2026-12-01 03:45:00.412 [pool-1 thread 1] ERROR com.x.Foo - m`, errs, "com.x.Foo - m"},
	{"Spring Boot", `2026-12-01T03:45:00.412Z  WARN 1 --- [app] [           main] c.x.Foo : m`, wrn, `1 --- [app] [           main] c.x.Foo : m`},
	{"log4j", `2026-12-01 03:45:00,412 ERROR [main] com.x: m`, errs, "[main] com.x: m"},
	{"log4j, thread first", `[main] INFO com.x.Foo - error`, inf, "com.x.Foo - error"},
	{"Quarkus", `2026-12-01 03:45:00,412 WARN  [io.quarkus] (main) m`, wrn, "[io.quarkus] (main) m"},
	{"ZooKeeper", `2026-12-01 03:45:00,412 [myid:1] - WARN  [main:X@1] - m`, wrn, "[main:X@1] - m"},
	{"Kafka", `[2026-12-01 03:45:00,412] WARN m (kafka.server.X)`, wrn, "m (kafka.server.X)"},
	{"Elasticsearch", `[2026-12-01T03:45:00,412][WARN ][o.e.x] [node] m`, wrn, "[o.e.x] [node] m"},
	{"Cassandra", `WARN  [main] 2026-12-01 03:45:00,412 Foo.java:1 - m`, wrn, "[main] 2026-12-01 03:45:00,412 Foo.java:1 - m"},
	{"java.util.logging", `WARNING: m`, wrn, "m"},
	{"java.util.logging, severe", `SEVERE: m`, errs, "m"},
	{"JVM", `[0.005s][info][gc] Using G1`, inf, "[gc] Using G1"},
	{"JVM, warning", `[0.105s][warning][os,thread] m`, wrn, "[os,thread] m"},
	{"Python, basicConfig", `WARNING:root:error`, wrn, "root:error"},
	{"Python, dashes", `2026-12-01 03:45:00,412 - my.logger - WARNING - m - n`, wrn, "m - n"},
	{"Python, level first", `2026-12-01 03:45:00,412 ERROR my.logger: m`, errs, "my.logger: m"},
	{"gunicorn", `[2026-12-01 03:45:00 +0000] [1] [INFO] Worker error`, inf, "Worker error"},
	{"gunicorn, error", `[2026-12-01 03:45:00 +0000] [1] [ERROR] Worker (pid:7) was sent SIGKILL!`, errs, "Worker (pid:7) was sent SIGKILL!"},
	{"uvicorn", `INFO:     10.88.0.1:1234 - "GET /error HTTP/1.1" 500 Internal Server Error`, inf, `10.88.0.1:1234 - "GET /error HTTP/1.1" 500 Internal Server Error`},
	{"Celery", `[2026-12-01 03:45:00,412: WARNING/MainProcess] m`, wrn, "m"},
	{"Tornado", `[W 261201 03:45:00 web:1] 404 GET /error`, wrn, "404 GET /error"},
	{"Jupyter", `[I 2026-12-01 03:45:00.412 ServerApp] m`, inf, "m"},
	{"loguru", `2026-12-01 03:45:00.412 | WARNING  | mod:f:1 - m`, wrn, "mod:f:1 - m"},
	{"Rust tracing", `2026-12-01T03:45:00.412Z  WARN app::mod: m`, wrn, "app::mod: m"},
	{"Rust tracing, with colours", "\x1b[2m2026-12-01T03:45:00.412Z\x1b[0m \x1b[31mERROR\x1b[0m \x1b[2mapp\x1b[0m: m", errs, "app: m"},
	{"env_logger", `[2026-12-01T03:45:00Z WARN  app::mod] m`, wrn, "m"},
	{"nginx", `2026/12/01 03:45:00 [error] 123#0: *1 connect() failed`, errs, "123#0: *1 connect() failed"},
	{"nginx, notice", `2026/12/01 03:45:00 [notice] 1#1: signal 15 (SIGTERM) received, exiting`, inf, "1#1: signal 15 (SIGTERM) received, exiting"},
	{"nginx, access", `10.88.0.1 - - [01/Dec/2026:03:45:00 +0000] "GET /error HTTP/1.1" 500 0 "-" "WARN"`, none_, ""},
	{"Apache", `[Tue Dec 01 03:45:00.412345 2026] [core:error] [pid 1] m`, errs, "[pid 1] m"},
	{"Envoy", `[2026-12-01 03:45:00.412][1][warning][config] [source/a.cc:1] m`, wrn, "[config] [source/a.cc:1] m"},
	{"Envoy, access", `[2026-12-01T03:45:00.412Z] "GET /error HTTP/1.1" 503 UF upstream_reset_before_response_started - "-" error`, none_, ""},
	{"zap console, Istio", "2026-12-01T03:45:00.412Z\twarn\tads\terror", wrn, "ads\terror"},
	{"zap console, development", "2026-12-01T03:45:00.412Z\tINFO\ta/b.go:1\tm\t{\"error\": \"x\"}", inf, "a/b.go:1\tm\t{\"error\": \"x\"}"},
	{"zerolog console", "\x1b[90m3:45AM\x1b[0m \x1b[31mERR\x1b[0m m error=x", errs, "m error=x"},
	{"logrus on a terminal", "\x1b[33mWARN\x1b[0m[0012] m  n=1", wrn, "m  n=1"},
	{"geth", `ERROR[12-01|03:45:00.000] m`, errs, "m"},
	{"log15 on a terminal", `WARN [12-01|03:45:00.000] m  n=1`, wrn, "m  n=1"},
	{"hclog", `2026-12-01T03:45:00.412Z [WARN]  agent: m`, wrn, "agent: m"},
	{"NATS", `[1] 2026/12/01 03:45:00.412 [WRN] m`, wrn, "m"},
	{"CoreDNS", `[ERROR] plugin/errors: 2 x. A: read udp`, errs, "plugin/errors: 2 x. A: read udp"},
	{"HAProxy", `[WARNING]  (1) : m`, wrn, "(1) : m"},
	{"Fluentd", `2026-12-01 03:45:00 +0000 [warn]: #0 m`, wrn, "#0 m"},
	{"Fluent Bit", `[2026/12/01 03:45:00] [ warn] [output:es] m`, wrn, "[output:es] m"},
	{"RabbitMQ", `2026-12-01 03:45:00.412+00:00 [warning] <0.1.0> m`, wrn, "<0.1.0> m"},
	{"PostgreSQL", `2026-12-01 03:45:00.412 UTC [1] ERROR:  relation "x" does not exist`, errs, `relation "x" does not exist`},
	{"PostgreSQL, log", `2026-12-01 03:45:00.412 UTC [1] LOG:  checkpoint starting: error`, inf, "checkpoint starting: error"},
	{"PostgreSQL, with user", `2026-12-01 03:45:00.412 UTC [1] app@db FATAL:  m`, ftl, "m"},
	{"MySQL", `2026-12-01T03:45:00.412Z 0 [Warning] [MY-010055] [Server] m`, wrn, "[MY-010055] [Server] m"},
	{"MySQL, note", `2026-12-01T03:45:00.412Z 0 [Note] m`, inf, "m"},
	{"Redis", `1:M 01 Dec 2026 03:45:00.412 # WARNING overcommit_memory is set to 0`, wrn, "WARNING overcommit_memory is set to 0"},
	{"Redis, notice", `1:M 01 Dec 2026 03:45:00.412 * Ready to accept connections`, inf, "Ready to accept connections"},
	{"Ruby", `E, [2026-12-01T03:45:00.412345 #1] ERROR -- : m`, errs, "m"},
	{"PHP", `PHP Warning:  m in /a.php on line 1`, wrn, "m in /a.php on line 1"},
	{"PHP, fatal", `[01-Dec-2026 03:45:00 UTC] PHP Fatal error:  Uncaught x`, errs, "Uncaught x"},
	{"php-fpm", `[01-Dec-2026 03:45:00] WARNING: [pool www] m`, wrn, "[pool www] m"},
	{"Nest", `[Nest] 1  - 12/01/2026, 3:45:00 AM   ERROR [Ctx] m`, errs, "[Ctx] m"},
	{"Nest, log", `[Nest] 1  - 12/01/2026, 3:45:00 AM     LOG [Ctx] m`, inf, "[Ctx] m"},
	{"Node", `(node:1) Warning: m`, wrn, "m"},
	{"winston", `warn: m`, wrn, "m"},
	{".NET", `fail: Microsoft.AspNetCore.Server.Kestrel[13]`, errs, "Microsoft.AspNetCore.Server.Kestrel[13]"},
	{".NET, critical", `crit: x[0]`, errs, "x[0]"},
	{"Serilog", `[03:45:00 WRN] m`, wrn, "m"},
	{"NLog", `2026-12-01 03:45:00.4120|WARN|My.Logger|m|ERROR`, wrn, "My.Logger|m|ERROR"},
	{"Open vSwitch", `2026-12-01T03:45:00.412Z|00001|fatal_signal|WARN|terminating`, wrn, "terminating"},
	{"slog's default handler", `2026/12/01 03:45:00 WARN m n=1`, wrn, "m n=1"},
	{"grpc-go", `2026/12/01 03:45:00 WARNING: [core] m`, wrn, "[core] m"},
	{"Go with a prefix", `2026/12/01 03:45:00 [ERROR] m`, errs, "m"},
	{"brackets alone", `[WARN] m`, wrn, "m"},
	{"NetworkManager", `<warn>  [1796096697.7] m`, wrn, "[1796096697.7] m"},
	{"syslog", `<11>1 2026-12-01T03:45:00Z host app 1 - - m`, errs, "1 2026-12-01T03:45:00Z host app 1 - - m"},
	{"syslog, info", `<14>Dec  1 03:45:00 host app[1]: error`, inf, "Dec  1 03:45:00 host app[1]: error"},
	{"verbose", `[2026-12-01 03:45:00] [trace] m`, trc, "m"},

	// Runtimes that die.
	{"Go panic", `panic: runtime error: index out of range [1] with length 1`, errs, ""},
	{"Go fatal error", `fatal error: all goroutines are asleep - deadlock!`, errs, ""},
	{"net/http", `2026/12/01 03:45:00 http: panic serving 10.88.0.1:1234: boom`, errs, "http: panic serving 10.88.0.1:1234: boom"},
	{"Java", `Exception in thread "main" java.lang.OutOfMemoryError: Java heap space`, errs, ""},
	{"Python", `Traceback (most recent call last):`, errs, ""},
	{"Rust", `thread 'main' panicked at src/main.rs:2:5:`, errs, ""},
	{"C++", `terminate called after throwing an instance of 'std::runtime_error'`, errs, ""},
	{".NET", `Unhandled exception. System.InvalidOperationException: m`, errs, ""},

	// Words that are no level.
	{"truth", `tick seq=1 t=1796096697`, none_, ""},
	{"a sentence", `an ERROR is not here, WARN neither`, none_, ""},
	{"a word in small letters", `error connecting to the database`, none_, ""},
	{"a word in small letters behind a stamp", `2026-12-01T03:45:00Z error connecting to the database`, none_, ""},
	{"a name before it", `2026-12-01T03:45:00Z db ERROR connecting`, none_, ""},
	{"a number before it", `2026-12-01T03:45:00Z 404 ERROR page`, none_, ""},
	{"a URL", `GET http://x/error?level=error 200`, none_, ""},
	{"an address", `10.0.0.1:8080 ERROR`, none_, ""},
	{"an OpenSSL error", `error:0A000086:SSL routines::certificate verify failed`, none_, ""},
	{"a panic in a sentence", `do not panic: it works`, none_, ""},
	{"brackets with a sentence", `[error reading config] using defaults`, none_, ""},
	{"brackets with a stamp and a sentence", `[2026-12-01 03:45:00 ERROR in the name] m`, none_, ""},
	{"brackets with a stamp and a word", `[2026-12-01 error handler] m`, none_, ""},
	{"parentheses", `(error) m`, none_, ""},
	{"brackets with a colon, no stamp", `[core:error] m`, none_, ""},
	{"bars in small letters", `2026-12-01 03:45:00.4120|a|error|m`, none_, ""},
	{"capitals that are no usual level", `ALERT the operator`, none_, ""},
	{"no closing bracket", `[error`, none_, ""},
	{"nothing", ``, none_, ""},
	{"blanks", "   \t ", none_, ""},
	{"an escape alone", "\x1b", none_, ""},
}

func TestParseLog(t *testing.T) {
	for _, c := range logLines {
		severity, message := ParseLog(c.line)
		want := c.message
		if want == "" {
			want = strings.TrimRight(stripANSI(c.line), " \t")
		}
		if severity != c.severity || message != want {
			t.Errorf("%s: %s\n%s, message %q\nwant %s, %q", c.format, c.line, severity, message, c.severity, want)
		}
	}
}

func TestLogs(t *testing.T) {
	type in struct {
		at   float64
		text string
	}
	for _, c := range []struct {
		name  string
		lines []in
		want  []string // severity and message
	}{
		{
			"Java stack trace",
			[]in{
				{0, "2026-12-01 03:45:00,412 WARN [main] com.x: retry"},
				{0, "java.lang.IllegalStateException: boom"},
				{0, "\tat com.x.Foo.bar(Foo.java:1)"},
				{0, "Caused by: java.io.IOException: reset"},
				{0, "\t... 23 more"},
				{0.1, "2026-12-01 03:45:00,512 INFO [main] com.x: on"},
			},
			[]string{"WARN [main] com.x: retry", "WARN [main] com.x: retry", "WARN [main] com.x: retry", "WARN [main] com.x: retry", "WARN [main] com.x: retry", "INFO [main] com.x: on"},
		},
		{
			"Go panic",
			[]in{
				{0, `{"level":"INFO","msg":"on"}`},
				{1, "panic: boom"},
				{1, ""},
				{1, "goroutine 1 [running]:"},
				{1, "main.main()"},
				{1, "\t/a/main.go:5 +0x25"},
				{1, "exit status 2"},
			},
			[]string{"INFO on", "ERROR panic: boom", "ERROR panic: boom", "ERROR panic: boom", "ERROR panic: boom", "ERROR panic: boom", "UNSPECIFIED exit status 2"},
		},
		{
			"debug.PrintStack",
			[]in{{0, `{"level":"INFO","msg":"here"}`}, {0, "goroutine 1 [running]:"}, {0, "main.main()"}, {0, "created by x in goroutine 1"}, {0, "done"}},
			[]string{"INFO here", "INFO here", "INFO here", "INFO here", "UNSPECIFIED done"},
		},
		{
			"logging.exception",
			[]in{
				{0, "WARNING:root:retry"},
				{0, "Traceback (most recent call last):"},
				{0, `  File "a.py", line 1, in <module>`},
				{0, "ValueError: boom"},
				{0, ""},
				{0, "During handling of the above exception, another exception occurred:"},
				{0, ""},
				{0, "Traceback (most recent call last):"},
				{0, `  File "a.py", line 2, in <module>`},
				{0, "KeyError: 'x'"},
				{0, "plain"},
			},
			append(slices.Repeat([]string{"WARN root:retry"}, 10), "UNSPECIFIED plain"),
		},
		{
			"an exception that nobody caught",
			[]in{{0, "INFO:root:on"}, {0.2, "Traceback (most recent call last):"}, {0.2, `  File "a.py", line 1, in <module>`}, {0.2, "ValueError: boom"}, {0.2, "plain"}},
			[]string{"INFO root:on", "ERROR Traceback (most recent call last):", "ERROR Traceback (most recent call last):", "ERROR Traceback (most recent call last):", "UNSPECIFIED plain"},
		},
		{
			"an exception that nobody caught, long after a warning",
			[]in{{0, "WARNING:root:standing notice"}, {9, "Traceback (most recent call last):"}, {9, "  x"}},
			[]string{"WARN root:standing notice", "ERROR Traceback (most recent call last):", "ERROR Traceback (most recent call last):"},
		},
		{
			".NET",
			[]in{{0, "warn: x[0]"}, {0, "      error: it is slow"}, {0, "info: y[0]"}, {0, "      fine"}},
			[]string{"WARN x[0]", "WARN x[0]", "INFO y[0]", "INFO y[0]"},
		},
		{
			"Rust's pretty format has stamps behind blanks",
			[]in{{0, "  2026-12-01T03:45:00.412Z  INFO app: on"}, {0, "    at src/main.rs:1"}, {0, "  2026-12-01T03:45:00.412Z ERROR app: off"}},
			[]string{"INFO app: on", "INFO app: on", "ERROR app: off"},
		},
		{
			"PostgreSQL",
			[]in{{0, "2026-12-01 03:45:00.412 UTC [1] ERROR:  m"}, {0, "2026-12-01 03:45:00.412 UTC [1] STATEMENT:  SELECT 1"}},
			[]string{"ERROR m", "ERROR m"},
		},
		{
			"a line without a severity is nobody's continuation",
			[]in{{0, "ERROR: m"}, {0, "plain"}, {0, "  indented"}},
			[]string{"ERROR m", "UNSPECIFIED plain", "UNSPECIFIED   indented"},
		},
		{
			"indented long after",
			[]in{{0, "ERROR: m"}, {5, "  indented"}},
			[]string{"ERROR m", "UNSPECIFIED   indented"},
		},
	} {
		rec := &roll.Recording{}
		for _, l := range c.lines {
			rec.Logs = append(
				rec.Logs, roll.Log{Namespace: "space", Pod: "p", UID: "1", Container: "app", ContainerID: "a", Time: sec(l.at), Line: l.text},
				// Another container's lines between them change nothing.
				roll.Log{Namespace: "space", Pod: "p", UID: "1", Container: "other", ContainerID: "b", Time: sec(l.at), Line: "FATAL: x"})
		}
		var got []string
		for _, l := range Logs(rec) {
			if l.Container == "app" {
				got = append(got, l.Severity.String()+" "+l.Message)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestLogsAreSorted(t *testing.T) {
	rec := &roll.Recording{Logs: []roll.Log{
		{Pod: "a", Time: sec(2), Line: "INFO: a2"},
		{Pod: "b", Line: "INFO: b, no stamp"},
		{Pod: "b", Time: sec(1), Line: "INFO: b1"},
		{Pod: "a", Line: "INFO: a, no stamp"},
		{Pod: "b", Time: sec(2), Line: "INFO: b2"},
		{Pod: "a", Time: sec(3), Line: "INFO: a3"},
	}}
	for i := range 40 { // many of one moment
		rec.Logs = append(rec.Logs, roll.Log{Pod: "c", Time: sec(100), Line: fmt.Sprintf("INFO: %02d", i)})
	}
	lines := Logs(rec)
	many := lines[6:]
	if !slices.IsSortedFunc(many, func(a, b roll.LogLine) int { return strings.Compare(a.Message, b.Message) }) {
		t.Error("lines of one moment are not in the recording's order")
	}
	lines = lines[:6]
	var got []string
	for _, l := range lines {
		got = append(got, l.Message)
	}
	want := []string{"b, no stamp", "b1", "a2", "a, no stamp", "b2", "a3"}
	if !slices.Equal(got, want) {
		t.Fatalf("order %q, want %q", got, want)
	}
	if !lines[0].Time.IsZero() || !lines[3].Time.Equal(sec(2)) {
		t.Errorf("times of lines without a stamp: %v, %v", lines[0].Time, lines[3].Time)
	}
	for _, c := range []struct {
		start, end float64
		want       []string
	}{
		{1, 2, want[1:2]},
		{2, 3, want[2:5]},
		{2, 2, nil},
		{3, 1, nil},
		{0, 99, want[1:]},
		{3.5, 99, nil},
	} {
		var got []string
		for _, l := range WindowLogs(lines, sec(c.start), sec(c.end)) {
			got = append(got, l.Message)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("window [%g, %g): %q, want %q", c.start, c.end, got, c.want)
		}
	}
	if WindowLogs(nil, time.Time{}, sec(1)) != nil {
		t.Error("lines of none")
	}
}

// FuzzParseLog holds that nothing that is written in a message is taken for the severity of its line, and that no line
// is too strange to be read.
func FuzzParseLog(f *testing.F) {
	for _, c := range logLines {
		f.Add(c.line)
	}
	f.Fuzz(func(t *testing.T, s string) {
		severity, _ := ParseLog(s)
		if severity < 0 || severity > 24 {
			t.Errorf("severity %d of %q", severity, s)
		}
		var st logState
		for i, l := range strings.Split(s, "\n") {
			st.read(l, epoch.Add(time.Duration(i)))
		}

		s = strings.Map(func(r rune) rune {
			if r == '\n' || r == '\r' {
				return ' '
			}
			return r
		}, s)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			line string
			want roll.Severity
		}{
			{fmt.Sprintf(`{"level":"info","msg":%s}`, text), inf},
			{fmt.Sprintf(`{"msg":%s,"n":1}`, text), none_},
			{"level=info msg=" + strconv.Quote(s), inf},
			{"2026-12-01T03:45:00Z INFO " + s, inf},
			{"2026-12-01 03:45:00,412 [main] INFO com.x - " + s, inf},
			{"[2026-12-01 03:45:00 +0000] [1] [INFO] " + s, inf},
			{"I1201 03:45:00.412264       1 a.go:5] " + s, inf},
			{"2026-12-01T03:45:00Z handled " + s, none_},
			{"handled " + s, none_},
			{`10.88.0.1 - - [01/Dec/2026:03:45:00 +0000] "GET ` + s, none_},
		} {
			if severity, _ := ParseLog(c.line); severity != c.want {
				t.Errorf("%q: %s, want %s", c.line, severity, c.want)
			}
		}
	})
}

func BenchmarkParseLog(b *testing.B) {
	for b.Loop() {
		for _, c := range logLines {
			ParseLog(c.line)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(logLines)), "ns/line")
}
