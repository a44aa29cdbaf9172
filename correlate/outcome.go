package correlate

import (
	"strconv"
	"strings"

	"github.com/rolltrace/rolltrace/roll"
)

// OutcomePolicy names the only policy there is for now: OpenTelemetry's semantic conventions (docs/rpc/grpc.md,
// docs/http/http-spans.md), applied also to spans whose instrumentation did not set the status by them.
//
//   - A span whose status is error is an error.
//   - A gRPC client span whose code is not OK is an error, and a gRPC server span whose code is UNKNOWN,
//     DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE or DATA_LOSS.
//   - A span with an HTTP status of 500 or more is an error.
//   - A client span that is an error is cancelled instead, when the evidence is plain that its own side gave up: its
//     code is CANCELLED, it was not reset by the other end, its pod was not being terminated, and its one server span
//     has no error and went on after the client's had ended (open-telemetry/opentelemetry-go-contrib#2644).
const OutcomePolicy = "semconv"

// gRPC's codes (grpc/grpc doc/statuscodes.md).
const (
	codeOK        = 0
	codeCancelled = 1
	codeUnknown   = 2
)

// grpcCodes are the names by code, without underscores: gRPC's own, Go's (DeadlineExceeded) and Connect's (canceled)
// are the same then.
var grpcCodes = map[string]int{
	"OK": 0, "CANCELLED": 1, "CANCELED": 1, "UNKNOWN": 2, "INVALIDARGUMENT": 3, "DEADLINEEXCEEDED": 4, "NOTFOUND": 5,
	"ALREADYEXISTS": 6, "PERMISSIONDENIED": 7, "RESOURCEEXHAUSTED": 8, "FAILEDPRECONDITION": 9, "ABORTED": 10,
	"OUTOFRANGE": 11, "UNIMPLEMENTED": 12, "INTERNAL": 13, "UNAVAILABLE": 14, "DATALOSS": 15, "UNAUTHENTICATED": 16,
}

// RPCCode returns the gRPC status code of a span, and whether it says one. It reads rpc.grpc.status_code,
// rpc.response.status_code, rpc.status_code and rpc.connect_rpc.error_code, as a number or a name; of several it
// takes the first that is not OK. A code that gRPC does not know counts as UNKNOWN (2), as in gRPC itself. A span of
// another RPC system (Dubbo's 20 is a success) has none.
func RPCCode(s *roll.Span) (code int, ok bool) {
	f := scan(s.Attributes)
	return f.rpcCode, f.hasRPC
}

// HTTPStatus returns the HTTP status of a span, and whether it says one: http.response.status_code or http.status_code,
// 100 to 599.
func HTTPStatus(s *roll.Span) (status int, ok bool) {
	f := scan(s.Attributes)
	return f.httpStatus, f.httpStatus != 0
}

// facts are what correlate reads from a span's attributes.
type facts struct {
	rpcCode    int
	hasRPC     bool
	httpStatus int    // 0: none
	peer       string // the connection's other end
	peerRank   int8
	server     string // what was dialled
	serverRank int8
}

// scan reads the attributes once.
func scan(attributes roll.Attributes) (f facts) {
	foreign := false
	for i := range attributes {
		v := attributes[i].Value
		if v == "" {
			continue
		}
		switch attributes[i].Key {
		case "rpc.response.status_code", "rpc.grpc.status_code", "rpc.status_code", "rpc.connect_rpc.error_code":
			if c := grpcCode(v); !f.hasRPC || f.rpcCode == codeOK {
				f.rpcCode, f.hasRPC = c, true
			}
		case "rpc.system.name", "rpc.system":
			switch v {
			case "grpc", "connectrpc", "connect_rpc":
			default:
				foreign = true
			}
		case "http.response.status_code", "http.status_code":
			if n, err := strconv.Atoi(v); err == nil && n >= 100 && n <= 599 && n > f.httpStatus {
				f.httpStatus = n
			}
		case "network.peer.address":
			f.peer, f.peerRank = v, 3
		case "net.sock.peer.addr":
			if f.peerRank < 2 {
				f.peer, f.peerRank = v, 2
			}
		case "net.peer.ip":
			if f.peerRank < 1 {
				f.peer, f.peerRank = v, 1
			}
		case "server.address":
			f.server, f.serverRank = v, 2
		case "net.peer.name":
			if f.serverRank < 1 {
				f.server, f.serverRank = v, 1
			}
		}
	}
	if foreign {
		f.rpcCode, f.hasRPC = 0, false
	}
	return f
}

func grpcCode(v string) int {
	switch v { // the two that nearly all spans have
	case "OK", "0":
		return codeOK
	}
	if n, err := strconv.Atoi(v); err == nil {
		if n < 0 || n > 16 {
			return codeUnknown
		}
		return n
	}
	if c, ok := grpcCodes[strings.ToUpper(strings.ReplaceAll(v, "_", ""))]; ok {
		return c
	}
	return codeUnknown
}

// serverError reports whether a code is an error of the server (docs/rpc/grpc.md, table of status codes).
func serverError(code int) bool {
	switch code {
	case codeUnknown, 4, 12, 13, 14, 15:
		return true
	}
	return false
}

func outcome(s *roll.Span, f *facts) roll.Outcome {
	switch {
	case s.Status == roll.StatusError,
		f.httpStatus >= 500,
		f.hasRPC && s.Kind == roll.KindClient && f.rpcCode != codeOK,
		f.hasRPC && s.Kind == roll.KindServer && serverError(f.rpcCode):
		return roll.OutcomeError
	}
	return roll.OutcomeOK
}

// cancelledByClient reports whether it is plain that the client gave up by itself. A server that cancels its own work,
// because it is told to stop, sends the same code, and then its span ends first.
func (x *Index) cancelledByClient(client, server *roll.Span) bool {
	code, ok := RPCCode(client)
	if !ok || code != codeCancelled || strings.Contains(client.StatusMessage, "RST_STREAM") {
		return false
	}
	if client.EndPhase != roll.PhaseServing && client.EndPhase != roll.PhaseStartup {
		return false
	}
	if server.Outcome != roll.OutcomeOK {
		return false
	}
	_, clientEnd := spanNanos(client)
	_, serverEnd := spanNanos(server)
	return serverEnd > plus(clientEnd, x.skew)
}
