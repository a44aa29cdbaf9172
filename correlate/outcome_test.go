package correlate

import (
	"testing"

	"github.com/rolltrace/rolltrace/roll"
)

func TestRPCCode(t *testing.T) {
	for _, c := range []struct {
		attributes roll.Attributes
		code       int
		ok         bool
	}{
		{attributes(), 0, false},
		{attributes("rpc.grpc.status_code", "0"), 0, true},
		{attributes("rpc.grpc.status_code", "14"), 14, true},
		{attributes("rpc.grpc.status_code", "UNAVAILABLE"), 14, true},
		{attributes("rpc.grpc.status_code", ""), 0, false},
		{attributes("rpc.system.name", "grpc", "rpc.response.status_code", "OK"), 0, true},
		{attributes("rpc.system.name", "grpc", "rpc.response.status_code", "DEADLINE_EXCEEDED"), 4, true},
		{attributes("rpc.system.name", "grpc", "rpc.response.status_code", "DeadlineExceeded"), 4, true},
		{attributes("rpc.system", "grpc", "rpc.status_code", "Canceled"), 1, true},
		{attributes("rpc.status_code", "CANCELLED"), 1, true},
		{attributes("rpc.status_code", "16"), 16, true},
		{attributes("rpc.system", "connect_rpc", "rpc.connect_rpc.error_code", "not_found"), 5, true},
		{attributes("rpc.system.name", "connectrpc", "rpc.response.status_code", "data_loss"), 15, true},
		// Codes that gRPC does not know are UNKNOWN.
		{attributes("rpc.grpc.status_code", "17"), 2, true},
		{attributes("rpc.grpc.status_code", "-1"), 2, true},
		{attributes("rpc.response.status_code", "NO_SUCH_CODE"), 2, true},
		// Old and new names at once (OTEL_SEMCONV_STABILITY_OPT_IN=rpc/dup); an error is never hidden by the other.
		{attributes("rpc.grpc.status_code", "14", "rpc.response.status_code", "UNAVAILABLE"), 14, true},
		{attributes("rpc.grpc.status_code", "0", "rpc.response.status_code", "UNAVAILABLE"), 14, true},
		{attributes("rpc.response.status_code", "UNAVAILABLE", "rpc.grpc.status_code", "0"), 14, true},
		// In other systems a code means something else.
		{attributes("rpc.response.status_code", "20", "rpc.system.name", "dubbo"), 0, false},
		{attributes("rpc.system.name", "jsonrpc", "rpc.response.status_code", "-32602"), 0, false},
	} {
		code, ok := RPCCode(&roll.Span{Attributes: c.attributes})
		if code != c.code || ok != c.ok {
			t.Errorf("%v: %d, %t, want %d, %t", c.attributes, code, ok, c.code, c.ok)
		}
	}
}

func TestHTTPStatus(t *testing.T) {
	for _, c := range []struct {
		attributes roll.Attributes
		status     int
	}{
		{attributes(), 0},
		{attributes("http.status_code", "200"), 200},
		{attributes("http.response.status_code", "503"), 503},
		{attributes("http.response.status_code", "200", "http.status_code", "503"), 503},
		{attributes("http.response.status_code", "0"), 0},
		{attributes("http.response.status_code", "99999"), 0},
		{attributes("http.response.status_code", "OK"), 0},
	} {
		status, ok := HTTPStatus(&roll.Span{Attributes: c.attributes})
		if status != c.status || ok != (c.status != 0) {
			t.Errorf("%v: %d, %t, want %d", c.attributes, status, ok, c.status)
		}
	}
}

// TestOutcomeOfCodes is the table of code and kind for spans whose status was not set (connectrpc/otelconnect-go#122).
func TestOutcomeOfCodes(t *testing.T) {
	x := NewIndex(&roll.Timeline{}, Options{})
	names := []string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
		"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
		"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
	}
	server := map[string]bool{
		"UNKNOWN": true, "DEADLINE_EXCEEDED": true, "UNIMPLEMENTED": true, "INTERNAL": true, "UNAVAILABLE": true,
		"DATA_LOSS": true,
	}
	for code, name := range names {
		for _, kind := range []roll.SpanKind{roll.KindClient, roll.KindServer} {
			want := roll.OutcomeOK
			if kind == roll.KindClient && name != "OK" || server[name] {
				want = roll.OutcomeError
			}
			s := []roll.Span{testSpan(kind, 1, 0, nil, 1, 2, "rpc.response.status_code", name)}
			x.Correlate(s)
			if s[0].Outcome != want {
				t.Errorf("%s span with %s: %s, want %s", kind, name, s[0].Outcome, want)
			}
			if got, ok := RPCCode(&s[0]); got != code || !ok {
				t.Errorf("%s is %d, want %d", name, got, code)
			}
			s[0].Status = roll.StatusError
			x.Correlate(s)
			if s[0].Outcome != roll.OutcomeError {
				t.Errorf("%s span with %s and status error: %s", kind, name, s[0].Outcome)
			}
		}
	}
	for status, want := range map[string]roll.Outcome{"200": roll.OutcomeOK, "404": roll.OutcomeOK, "503": roll.OutcomeError} {
		s := []roll.Span{testSpan(roll.KindServer, 1, 0, nil, 1, 2, "http.response.status_code", status)}
		if x.Correlate(s); s[0].Outcome != want {
			t.Errorf("status %s: %s, want %s", status, s[0].Outcome, want)
		}
	}
}

// TestCancelledByClient guards open-telemetry/opentelemetry-go-contrib#2644: a call that its own client gave up is no
// error, but only then.
func TestCancelledByClient(t *testing.T) {
	cli, srv := lived("ctl-5f6-w4w6w", "cli"), lived("api-7c4-x2x4x", "srv")
	x := NewIndex(&roll.Timeline{Pods: []*roll.Pod{cli, srv}}, Options{})
	pair := func() []roll.Span {
		c := testSpan(roll.KindClient, 1, 0, resource("k8s.pod.uid", "cli"), 6, 7, "rpc.response.status_code", "CANCELLED")
		c.Status, c.StatusMessage = roll.StatusError, "context canceled"
		s := testSpan(roll.KindServer, 2, 1, resource("k8s.pod.uid", "srv"), 6.1, 7.1, "rpc.response.status_code", "CANCELLED")
		return []roll.Span{c, s}
	}
	for _, c := range []struct {
		name   string
		change func(s []roll.Span) []roll.Span
		want   roll.Outcome
	}{
		{"given up", func(s []roll.Span) []roll.Span { return s }, roll.OutcomeCancelled},
		{"the server was not seen", func(s []roll.Span) []roll.Span { return s[:1] }, roll.OutcomeError},
		{"the server ended first: it may have cancelled", func(s []roll.Span) []roll.Span {
			s[1].Duration /= 2
			return s
		}, roll.OutcomeError},
		{"the server has an error", func(s []roll.Span) []roll.Span {
			s[1].Status = roll.StatusError
			return s
		}, roll.OutcomeError},
		{"another code", func(s []roll.Span) []roll.Span {
			s[0].Attributes = attributes("rpc.response.status_code", "UNAVAILABLE")
			return s
		}, roll.OutcomeError},
		{"no code", func(s []roll.Span) []roll.Span {
			s[0].Attributes = nil
			return s
		}, roll.OutcomeError},
		{"reset by the other end", func(s []roll.Span) []roll.Span {
			s[0].StatusMessage = "stream terminated by RST_STREAM with error code: CANCEL"
			return s
		}, roll.OutcomeError},
		{"the client's pod was told to stop", func(s []roll.Span) []roll.Span {
			s[0].Start, s[1].Start = sec(22), sec(22.1)
			return s
		}, roll.OutcomeError},
		{"the client's pod is not known", func(s []roll.Span) []roll.Span {
			s[0].Resource = resource("service.name", "ctl")
			return s
		}, roll.OutcomeError},
		{"a second attempt", func(s []roll.Span) []roll.Span {
			return append(s, testSpan(roll.KindServer, 3, 1, resource("k8s.pod.uid", "srv"), 6.1, 7.1))
		}, roll.OutcomeError},
	} {
		s := c.change(pair())
		x.Correlate(s)
		if s[0].Outcome != c.want {
			t.Errorf("%s: %s, want %s", c.name, s[0].Outcome, c.want)
		}
	}
	s := pair()
	NewIndex(&roll.Timeline{Pods: []*roll.Pod{cli, srv}}, Options{Skew: 200 * 1e6}).Correlate(s)
	if s[0].Outcome != roll.OutcomeError {
		t.Errorf("by clocks that may differ by more than the server went on: %s", s[0].Outcome)
	}
}
