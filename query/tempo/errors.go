package tempo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// failure is why a request did not work, by what can be done about it.
type failure int

const (
	failOther       failure = iota // the server failed: try again
	failBusy                       // 429, 503: back off
	failCut                        // the answer ended early: discard it, try again
	failTooLarge                   // too large or too slow for the server: ask for less
	failQuery                      // 400: the question is not understood
	failAuth                       // 401, 403
	failNotTempo                   // no Tempo API at this address
	failUnreachable                // no connection
	failNoGRPC                     // no gRPC server at this address
	failConfig                     // a file of ours cannot be read
	failJobs                       // the server stopped before it had looked everywhere
)

// requestError is a failed request. Its text names the cause and never a secret.
type requestError struct {
	kind       failure
	status     int // HTTP
	msg        string
	retryAfter time.Duration
}

func (e *requestError) Error() string { return e.msg }

func kindOf(err error) failure {
	var e *requestError
	if errors.As(err, &e) {
		return e.kind
	}
	return failOther
}

// fatal reports whether nothing can be said at all after this error: no smaller or later question would be answered.
func fatal(err error) bool {
	switch kindOf(err) {
	case failQuery, failAuth, failNotTempo, failConfig:
		return true
	}
	return false
}

// oneLine keeps what a server said short and on one line.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 300 {
		s = string(r[:300]) + "…"
	}
	return s
}

// httpError classifies an answer that is not 200.
func httpError(resp *http.Response, body []byte) *requestError {
	text := oneLine(string(body))
	e := &requestError{status: resp.StatusCode, msg: fmt.Sprintf("HTTP %d: %s", resp.StatusCode, text)}
	if text == "" {
		e.msg = "HTTP " + strconv.Itoa(resp.StatusCode)
	}
	switch code := resp.StatusCode; {
	case code == http.StatusBadRequest && strings.Contains(text, "range specified by start and end"):
		e.kind = failTooLarge
	case code == http.StatusBadRequest:
		e.kind = failQuery
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		e.kind = failAuth
	case code == http.StatusNotFound || code == http.StatusMethodNotAllowed:
		e.kind = failNotTempo
	case code >= 300 && code < 400:
		e.kind = failNotTempo
		e.msg = fmt.Sprintf("HTTP %d: redirected, is a login in front of it?", code)
		return e
	case code == http.StatusServiceUnavailable && strings.Contains(text, "timeout"),
		code == http.StatusGatewayTimeout,
		strings.Contains(text, "larger than the max"):
		e.kind = failTooLarge
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		e.kind = failBusy
	}
	if isHTML(resp, body) {
		e.msg = fmt.Sprintf("HTTP %d with an HTML page", resp.StatusCode)
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s >= 0 {
		e.retryAfter = time.Duration(s) * time.Second
	}
	return e
}

func isHTML(resp *http.Response, body []byte) bool {
	return strings.Contains(resp.Header.Get("Content-Type"), "text/html") ||
		strings.HasPrefix(strings.ToLower(strings.TrimSpace(string(body[:min(len(body), 64)]))), "<")
}

// netError classifies an error of the network. own says that our own deadline for the request ended it.
func netError(err error, own bool) error {
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // without the URL: long, and it may hold more than it should
	}
	e := &requestError{kind: failCut, msg: oneLine(err.Error())}
	var op *net.OpError
	var dns *net.DNSError
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var cert *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case own || errors.Is(err, context.DeadlineExceeded):
		e.kind, e.msg = failTooLarge, "no answer within the deadline of one request"
	case errors.As(err, &cert), errors.As(err, &unknown), errors.As(err, &host), errors.As(err, &record),
		strings.Contains(err.Error(), "tls: "), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		e.kind, e.msg = failConfig, "TLS: "+e.msg
	case errors.As(err, &dns), errors.As(err, &op) && op.Op == "dial":
		e.kind = failUnreachable
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		e.msg = "the connection was closed before the answer ended"
	}
	return e
}

// grpcError classifies an error of a stream.
func grpcError(err error, own bool) error {
	st, _ := status.FromError(err)
	text := oneLine(st.Message())
	e := &requestError{msg: fmt.Sprintf("gRPC %s: %s", st.Code(), text)}
	switch st.Code() {
	case codes.InvalidArgument:
		e.kind = failQuery
		if strings.Contains(text, "range specified by start and end") {
			e.kind = failTooLarge
		}
	case codes.Unauthenticated, codes.PermissionDenied:
		e.kind = failAuth
	case codes.Unimplemented:
		e.kind = failNoGRPC
	case codes.DeadlineExceeded:
		e.kind = failTooLarge
		if own {
			e.msg = "no answer within the deadline of one request"
		}
	case codes.ResourceExhausted:
		e.kind = failBusy
		if strings.Contains(text, "larger than max") {
			e.kind = failTooLarge
		}
	case codes.Unavailable:
		e.kind = failCut
		switch {
		case strings.Contains(text, "tls: "), strings.Contains(text, "x509: "):
			e.kind, e.msg = failConfig, "TLS: "+text
		case strings.Contains(text, "preface"), strings.Contains(text, "http2"), strings.Contains(text, "HTTP"),
			strings.Contains(text, "connection error"), strings.Contains(text, "name resolver"):
			e.kind = failNoGRPC
		}
	case codes.Unknown, codes.Internal:
		switch {
		case strings.Contains(text, "no org id"):
			e.kind = failAuth
		case strings.Contains(text, "larger than the max"), strings.Contains(text, "deadline exceeded"),
			strings.Contains(text, "timeout"):
			e.kind = failTooLarge
		case strings.Contains(text, "unexpected HTTP status code received from server: 40"):
			e.kind = failNoGRPC
		case strings.Contains(text, "unexpected EOF"), strings.Contains(text, "RST_STREAM"),
			strings.Contains(text, "without trailers"), strings.Contains(text, "malformed"):
			e.kind = failCut
		}
	}
	return e
}
