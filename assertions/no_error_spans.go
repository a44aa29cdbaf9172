package assertions

import (
	"fmt"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// NoErrorSpans finds every client or server span of the roll's window that ended in error.
var NoErrorSpans = &Assertion{
	ID:    "no-error-spans",
	Title: "no client or server span of the roll's window has status error",
	Doc: `Looks at every client and server span any moment of which lies in the roll's padded window, of whatever service:
a roll's errors show in its callers, and a call that began before the roll can be cut by it. Only spans that say that they
ran in a namespace which was not recorded, and that nothing ties to a recorded pod, are left out.

**Fails** on each span with status error, or with an outcome of error. The finding names the pod that emitted the span
and its phase, the pod on the other side of the call and its phase, the trace and the span. A call that was cut at the
server's exit often leaves a client span alone: the server's own span was never exported.

**Inconclusive** when the backend's answer may lack spans of the window, or when there is no span at all.

**What to do:** compare the peer's phase. An error in ` + "`drain`" + ` is a call that was cut at SIGTERM or at the exit: lengthen the
preStop or drain longer. One in ` + "`after-exit`" + ` was routed to a pod that was gone. One in ` + "`serving`" + ` is not of the roll, but it is
in its window.`,
	Check: checkNoErrorSpans,
}

func checkNoErrorSpans(ev *Evidence, p Params) Outcome {
	var out Outcome
	addGaps(&out, ev.SpanGaps...)
	if len(ev.Spans) == 0 {
		addGaps(&out, noSpans(ev, "there is no client or server span in the roll's window"))
		out.Summary = "no client or server span"
		return out
	}
	var client, server, byStatus int
	failed := map[rpcCall]bool{} // the failed calls of clients → whether a server span shows them
	for i := range ev.Spans {
		s := &ev.Spans[i]
		switch s.Kind {
		case roll.KindServer:
			server++
		case roll.KindClient:
			client++
			if isError(s) {
				failed[rpcCall{s.TraceID, s.SpanID}] = false
			}
		}
	}
	if len(failed) > 0 {
		for i := range ev.Spans {
			s := &ev.Spans[i]
			if c := (rpcCall{s.TraceID, s.ParentID}); s.Kind == roll.KindServer {
				if _, ok := failed[c]; ok {
					failed[c] = true
				}
			}
		}
	}
	for i := range ev.Spans {
		s := &ev.Spans[i]
		if !isError(s) {
			continue
		}
		if s.Status == roll.StatusError {
			byStatus++
		}
		out.Findings = append(out.Findings, spanFinding(ev, s, failed[rpcCall{s.TraceID, s.SpanID}], p.Skew))
	}
	out.Summary = fmt.Sprintf("%s and %s, %d with error status",
		plural(client, "client span"), plural(server, "server span"), byStatus)
	if n := len(out.Findings) - byStatus; n > 0 {
		out.Summary += fmt.Sprintf(", %d more in error by the code of the call", n)
	}
	return out
}

// rpcCall is one call: its client span, or the parent of its server span.
type rpcCall struct {
	trace roll.TraceID
	span  roll.SpanID
}

func isError(s *roll.Span) bool {
	return s.Status == roll.StatusError || s.Outcome == roll.OutcomeError
}

func noSpans(ev *Evidence, detail string) roll.Gap {
	g := roll.Gap{Reason: roll.GapNoSpans, Detail: detail, From: ev.Window.Start, To: ev.Window.End}
	if ev.Roll != nil {
		g.Object = ev.Roll.ID
	}
	return g
}

// spanFinding tells one failed call; served says that the other side's span of a client span is there.
func spanFinding(ev *Evidence, s *roll.Span, served bool, skew time.Duration) roll.Finding {
	// The pod that served the call is the one that may have cut it.
	server, from, to := s.Peer, s.PeerPhase, s.PeerEndPhase
	if s.Kind == roll.KindServer {
		server, from, to = s.Pod, s.Phase, s.EndPhase
	}
	doubt := ""
	if to == roll.PhaseUnsure {
		var possible []roll.Phase
		if to, possible = cutIn(server, s.Start, s.End(), skew); len(possible) > 1 {
			doubt = " (" + oneOf(possible) + ")"
		}
	}

	f := roll.Finding{
		Time:     s.Start,
		Phase:    s.Phase,
		EndPhase: s.EndPhase,
		Service:  s.Resource.Service(),
		SpanName: s.Name,
		SpanKind: s.Kind.String(),
		TraceID:  s.TraceID.String(),
		SpanID:   s.SpanID.String(),
		// For a client span it is the other side that matters.
		Attribution: s.Attribution,
	}
	if s.Kind == roll.KindServer {
		f.EndPhase = to
	}
	if f.EndPhase == f.Phase {
		f.EndPhase = ""
	}
	if s.Pod != nil {
		f.Pod = s.Pod.String()
	}
	if s.Peer != nil {
		f.Peer, f.PeerPhase = s.Peer.String(), s.PeerEndPhase
	}
	if s.Kind == roll.KindClient {
		f.Attribution = s.PeerAttribution
		if s.Peer != nil {
			f.PeerPhase = to
		}
	}

	who := f.Service
	if who == "" {
		who = f.Pod
	}
	if who == "" {
		who = "unknown"
	}
	var b strings.Builder
	if s.Kind == roll.KindClient {
		fmt.Fprintf(&b, "client %s's call %s", who, s.Name)
		if s.Peer != nil {
			fmt.Fprintf(&b, " to pod %s in phase %s%s", s.Peer.Name, phases(from, to), doubt)
		} else if to := s.Attributes.First("network.peer.address", "server.address", "net.peer.name"); to != "" {
			fmt.Fprintf(&b, " to %s (no known pod)", to)
		} else {
			b.WriteString(" to an unknown pod")
		}
	} else {
		fmt.Fprintf(&b, "server %s's answer to %s", who, s.Name)
		if s.Pod != nil {
			fmt.Fprintf(&b, " by pod %s in phase %s%s", s.Pod.Name, phases(from, to), doubt)
		} else {
			b.WriteString(" by an unknown pod")
		}
		if s.Peer != nil {
			fmt.Fprintf(&b, ", called by pod %s", s.Peer.Name)
		}
	}
	fmt.Fprintf(&b, " failed after %s", about(s.Duration))
	if why := reasonOf(s); why != "" {
		b.WriteString(": " + why)
	}
	if s.Kind == roll.KindClient && !served {
		b.WriteString("; no server span shows the call")
	}
	if ev.Roll != nil && !s.Overlaps(ev.Roll.Window.Start, ev.Roll.Window.End) {
		b.WriteString("; just outside the roll, within its padding")
	}
	f.Message = b.String()
	return f
}

// reasonOf is the code and the message that a span gives for its failure. The attributes are those of the OpenTelemetry
// semantic conventions, newest names first (docs/rpc/rpc-spans.md, docs/http/http-spans.md and their changelogs).
func reasonOf(s *roll.Span) string {
	code := s.Attributes.First(
		"rpc.response.status_code", "rpc.status_code", "rpc.grpc.status_code",
		"http.response.status_code", "http.status_code", "error.type")
	switch {
	case code == "":
		return s.StatusMessage
	case s.StatusMessage == "":
		return "code " + code
	default:
		return "code " + code + ", " + s.StatusMessage
	}
}
