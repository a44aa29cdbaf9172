package assertions

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// t0 is the start of the roll in every case; at is a moment after it.
var t0 = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return t0.Add(d) }

func instant(from, to time.Duration, s roll.Source) roll.Instant {
	return roll.Instant{Earliest: at(from), Latest: at(to), Source: s}
}

const s = time.Second

var (
	cart   = roll.Workload{Kind: "Deployment", Namespace: "shop", Name: "cart"}
	web    = roll.Workload{Kind: "Deployment", Namespace: "shop", Name: "web"}
	oldRef = roll.PodRef{Namespace: "shop", Name: "cart-7f", UID: "u-old"}
	newRef = roll.PodRef{Namespace: "shop", Name: "cart-9c", UID: "u-new"}
	webRef = roll.PodRef{Namespace: "shop", Name: "web-1", UID: "u-web"}
)

func pods() map[string]*roll.Pod {
	return map[string]*roll.Pod{
		"u-old": {
			PodRef: oldRef, Workload: cart, Deleted: true, Ready: instant(-60*s, -59*s, roll.SourceWatch),
			Requested: instant(2*s, 2*s, roll.SourceWatch), Signaled: instant(7*s, 7*s, roll.SourcePreStopSleep),
			Exited: instant(8*s, 8*s, roll.SourceContainerStatus),
		},
		"u-new": {PodRef: newRef, Workload: cart},
		"u-web": {PodRef: webRef, Workload: web, Ready: instant(-60*s, -59*s, roll.SourceWatch)},
	}
}

// clean is a container that was asked at 2 s, got SIGTERM after a sleep of 5 s at 7 s, and exited 0 at 7.4 s.
func clean() roll.Termination {
	zero, grace := 0, int64(30)
	return roll.Termination{
		Pod: oldRef, Container: "app", Cause: roll.CauseRollout, ExitCode: &zero, Reason: "Completed",
		GracePeriodSeconds: &grace,
		Requested:          instant(2*s, 3*s-1, roll.SourceDeletionTimestamp),
		PreStopStarted:     instant(2050*time.Millisecond, 2050*time.Millisecond, roll.SourceKillingEvent),
		Signaled:           instant(7050*time.Millisecond, 7250*time.Millisecond, roll.SourcePreStopSleep),
		Exited:             instant(7*s, 8*s-1, roll.SourceContainerStatus),
		PreStop:            roll.PreStop{Kind: roll.PreStopSleep, Sleep: 5 * s},
	}
}

func code(c int) *int { return &c }

func term(edit func(*roll.Termination)) func(*Evidence) {
	return func(ev *Evidence) { edit(&ev.Roll.Terminations[0]) }
}

// call is a client span of web to the old cart pod and its server span, from start for 100 ms.
func call(start time.Duration, id byte) []roll.Span {
	p := pods()
	client := roll.Span{
		TraceID: roll.TraceID{15: id}, SpanID: roll.SpanID{7: 1}, Kind: roll.KindClient, Name: "cart.v1.Cart/Get",
		Start: at(start), Duration: 100 * time.Millisecond,
		Resource: &roll.Resource{Attributes: roll.Attributes{{Key: "service.name", Value: "web"}}},
		Pod:      p["u-web"], Attribution: roll.AttributedByPodUID, Phase: roll.PhaseServing,
		EndPhase: roll.PhaseServing,
		Peer:     p["u-old"], PeerAttribution: roll.AttributedByParentChild, PeerPhase: roll.PhaseServing,
		PeerEndPhase: roll.PhaseServing,
		Outcome:      roll.OutcomeOK,
	}
	server := client
	server.Kind, server.SpanID, server.ParentID = roll.KindServer, roll.SpanID{7: 2}, client.SpanID
	server.Resource = &roll.Resource{Attributes: roll.Attributes{{Key: "service.name", Value: "cart"}}}
	server.Pod, server.Peer = client.Peer, client.Pod
	return []roll.Span{client, server}
}

// good is evidence in which nothing is wrong and nothing is missing.
func good() *Evidence {
	ev := &Evidence{
		Roll: &roll.Roll{
			ID: "shop/deployment/cart#1", Workload: cart, Cause: roll.CauseRollout, Completed: true,
			Window: roll.Range{Start: t0, End: at(10 * s)},
			Old:    []roll.PodRef{oldRef}, New: []roll.PodRef{newRef},
			Terminations: []roll.Termination{clean()},
		},
		Window: roll.Range{Start: at(-s), End: at(11 * s)},
		Pods:   pods(), LogsRecorded: true,
		Logs: []roll.LogLine{
			{Pod: oldRef, Container: "app", Time: at(1 * s), Severity: roll.SeverityInfo, Message: "serving"},
			{Pod: webRef, Container: "app", Time: at(2 * s), Severity: roll.SeverityDebug, Message: "poll"},
		},
		Control: &Control{Ranges: []roll.Range{{Start: at(-60 * s), End: at(-s)}}},
	}
	ev.Spans = append(call(1*s, 1), call(4*s, 2)...)
	return ev
}

type testCase struct {
	name string
	edit func(*Evidence)
	want roll.Verdict
	// reasons are the gaps that must be named, says what the findings', gaps' and summary's text must hold.
	reasons []roll.GapReason
	says    string
}

func spanGap(r roll.GapReason) func(*Evidence) {
	return func(ev *Evidence) { ev.SpanGaps = append(ev.SpanGaps, roll.Gap{Reason: r, Detail: "cut"}) }
}

func logLines(lines ...roll.LogLine) func(*Evidence) {
	return func(ev *Evidence) {
		for _, l := range lines {
			l.Time = at(3 * s)
			ev.Logs = append(ev.Logs, l)
		}
	}
}

func errorOn(i int, edit func(*roll.Span)) func(*Evidence) {
	return func(ev *Evidence) {
		sp := &ev.Spans[i]
		sp.Status, sp.StatusMessage, sp.Outcome = roll.StatusError, "error reading from server: EOF", roll.OutcomeError
		if edit != nil {
			edit(sp)
		}
	}
}

func both(edits ...func(*Evidence)) func(*Evidence) {
	return func(ev *Evidence) {
		for _, e := range edits {
			e(ev)
		}
	}
}

// cases are pass, fail and inconclusive evidence of each check. A comment names the public issue that a case guards.
var cases = map[string][]testCase{
	"no-error-spans": {
		{"clean", nil, roll.Pass, nil, "2 client spans and 2 server spans, 0 with error status"},
		{
			"client error", errorOn(0, nil), roll.Fail, nil,
			"client web's call cart.v1.Cart/Get to pod cart-7f in phase serving failed after 100ms: error reading from server: EOF",
		},
		{"server error", errorOn(1, nil), roll.Fail, nil, "server cart's answer to cart.v1.Cart/Get by pod cart-7f"},
		// grpc/grpc-go#4650: the call is the old pod's, whatever came of its server span.
		{
			"cut in drain, no server span", func(ev *Evidence) {
				errorOn(0, func(sp *roll.Span) { sp.PeerPhase, sp.PeerEndPhase = roll.PhasePreStop, roll.PhaseDrain })(ev)
				ev.Spans = slices.Delete(ev.Spans, 1, 2)
			}, roll.Fail, nil,
			"to pod cart-7f in phase preStop → drain failed after 100ms: error reading from server: EOF; no server span shows the call",
		},
		{
			"error by its code alone", func(ev *Evidence) { ev.Spans[0].Outcome = roll.OutcomeError }, roll.Fail, nil,
			"0 with error status, 1 more in error by the code",
		},
		// A proof of an error needs no complete evidence.
		{
			"error and a gap", both(errorOn(0, nil), spanGap(roll.GapSpanLimit)), roll.Fail,
			[]roll.GapReason{roll.GapSpanLimit},
			"",
		},
		{
			"error in the padding", errorOn(0, func(sp *roll.Span) { sp.Start = at(-900 * time.Millisecond) }),
			roll.Fail, nil, "just outside the roll, within its padding",
		},
		{"peer unknown", errorOn(0, func(sp *roll.Span) {
			sp.Peer = nil
			sp.Attributes = roll.Attributes{{Key: "server.address", Value: "10.0.0.9"}, {
				Key:   "rpc.grpc.status_code",
				Value: "14",
			}}
		}), roll.Fail, nil, "to 10.0.0.9 (no known pod) failed after 100ms: code 14, error reading"},
		{"nothing known of the span", errorOn(0, func(sp *roll.Span) {
			sp.Peer, sp.Pod, sp.Resource = nil, nil,
				&roll.Resource{}
		}), roll.Fail, nil, "client unknown's call cart.v1.Cart/Get to an unknown pod"},
		// grafana/tempo#3791: what a limit cut is no absence.
		{"answer cut", spanGap(roll.GapSpanLimit), roll.Inconclusive, []roll.GapReason{roll.GapSpanLimit}, ""},
		{"partial trace", spanGap(roll.GapPartialTrace), roll.Inconclusive, []roll.GapReason{roll.GapPartialTrace}, ""},
		// argoproj/argo-rollouts#1329: no measurement is no success.
		{
			"no spans", func(ev *Evidence) { ev.Spans = nil }, roll.Inconclusive,
			[]roll.GapReason{roll.GapNoSpans},
			"no client or server span",
		},
	},
	"no-warn-logs": {
		{"clean", nil, roll.Pass, nil, "2 log lines: 0 ERROR, 0 WARN"},
		{"no lines, logs recorded", func(ev *Evidence) { ev.Logs = nil }, roll.Pass, nil, "0 log lines"},
		// dapr/dapr#8602: the error is in the caller's log, not in the rolled workload's.
		{"warn in the caller", logLines(roll.LogLine{
			Pod: webRef, Container: "app", Severity: roll.SeverityWarn,
			Message: "retry: 2",
		}), roll.Fail, nil, "retry: 2"},
		{
			"error", logLines(roll.LogLine{Pod: oldRef, Severity: roll.SeverityError, Message: "boom"}), roll.Fail, nil,
			"1 ERROR",
		},
		{
			"fatal", logLines(roll.LogLine{Pod: oldRef, Severity: roll.SeverityFatal, Body: "raw body"}), roll.Fail, nil,
			"raw body",
		},
		{"error and a gap", both(logLines(roll.LogLine{Pod: oldRef, Severity: roll.SeverityError, Message: "boom"}),
			func(ev *Evidence) {
				ev.LogGaps = []roll.Gap{{Reason: roll.GapLogs}}
			}), roll.Fail, []roll.GapReason{roll.GapLogs}, "boom"},
		// kubernetes/kubernetes#127376: a pod takes its log with it.
		{
			"tail lost", func(ev *Evidence) { ev.LogGaps = []roll.Gap{{Reason: roll.GapLogs, Object: "shop/cart-7f"}} },
			roll.Inconclusive,
			[]roll.GapReason{roll.GapLogs},
			"",
		},
		{
			"not recorded", func(ev *Evidence) { ev.Logs, ev.LogsRecorded = nil, false }, roll.Inconclusive,
			[]roll.GapReason{roll.GapNoLogs},
			"no logs were recorded",
		},
		{
			"mostly without severity", logLines(roll.LogLine{Pod: oldRef, Message: "a"}, roll.LogLine{
				Pod:     oldRef,
				Message: "b",
			}, roll.LogLine{Pod: oldRef, Message: "c"}), roll.Inconclusive,
			[]roll.GapReason{roll.GapSeverity},
			"3 of 5",
		},
		{"half without severity", logLines(roll.LogLine{Pod: oldRef, Message: "a"}, roll.LogLine{
			Pod:     oldRef,
			Message: "b",
		}), roll.Pass, nil, "2 without a severity"},
	},
	"clean-exit": {
		{"clean", nil, roll.Pass, nil, "1 of 1 container ended cleanly"},
		// kubernetes/kubernetes#80089, GoogleCloudPlatform/cloud-sql-proxy-operator#355.
		{
			"143", term(func(t *roll.Termination) { t.ExitCode, t.Reason = code(143), "Error" }), roll.Fail, nil,
			"143: ended by SIGTERM itself",
		},
		{
			"137", term(func(t *roll.Termination) { t.ExitCode, t.Reason = code(137), "Error" }), roll.Fail, nil,
			"killed by SIGKILL",
		},
		{
			"OOM", term(func(t *roll.Termination) { t.ExitCode, t.Reason = code(137), "OOMKilled" }), roll.Fail, nil,
			"OOMKilled",
		},
		{
			"OOM without a code", term(func(t *roll.Termination) { t.ExitCode, t.Reason = nil, "OOMKilled" }), roll.Fail,
			nil, "OOMKilled",
		},
		{
			"42", term(func(t *roll.Termination) { t.ExitCode, t.Reason = code(42), "Error" }), roll.Fail, nil,
			"exit code 42",
		},
		{"crash", term(func(t *roll.Termination) {
			t.ExitCode, t.Cause, t.Requested, t.GracePeriodSeconds = code(3), roll.CauseCrash, roll.Instant{}, nil
		}), roll.Fail, nil, "exit code 3"},
		{"ended by itself", term(func(t *roll.Termination) {
			t.Cause, t.Requested, t.GracePeriodSeconds = roll.CauseCompleted, roll.Instant{}, nil
		}), roll.Pass, nil, ""},
		// kubernetes/kubernetes#104107: the 137 is made up.
		{"ContainerStatusUnknown", term(func(t *roll.Termination) {
			t.ExitCode, t.Reason, t.Exited = code(137), "ContainerStatusUnknown", roll.Instant{}
		}), roll.Inconclusive, []roll.GapReason{roll.GapExitUnknown}, "lost sight"},
		// kubernetes/kubernetes#104155: lastState {}.
		{
			"code not observed", term(func(t *roll.Termination) { t.ExitCode, t.Reason = nil, "" }), roll.Inconclusive,
			[]roll.GapReason{roll.GapExitUnknown},
			"not observed",
		},
		{"forced", term(func(t *roll.Termination) {
			zero := int64(0)
			t.ExitCode, t.Forced, t.Exited, t.GracePeriodSeconds = nil, true, roll.Instant{}, &zero
		}), roll.Inconclusive, []roll.GapReason{roll.GapExitUnknown}, "force-deleted"},
		{
			"exit time not observed", term(func(t *roll.Termination) { t.Exited = roll.Instant{} }), roll.Inconclusive,
			[]roll.GapReason{roll.GapExitUnknown},
			"when it exited",
		},
		{
			"grace not observed", term(func(t *roll.Termination) { t.GracePeriodSeconds = nil }), roll.Inconclusive,
			[]roll.GapReason{roll.GapExitUnknown},
			"grace period",
		},
		{"after the grace", term(func(t *roll.Termination) {
			t.Exited = instant(33*s, 34*s,
				roll.SourceContainerStatus)
		}), roll.Fail, nil, "950ms after its grace period of 30s"},
		// Bounds that only touch the deadline prove nothing: kubelets start to count up to seconds after the request.
		{"maybe after the grace", term(func(t *roll.Termination) {
			t.Exited = instant(32*s, 33*s,
				roll.SourceContainerStatus)
		}), roll.Pass, nil, ""},
		{
			"a pod unseen", func(ev *Evidence) { ev.Roll.Old = append(ev.Roll.Old, newRef) }, roll.Inconclusive,
			[]roll.GapReason{roll.GapExitUnknown},
			"",
		},
		{
			"nothing ended", func(ev *Evidence) { ev.Roll.Terminations, ev.Roll.Old = nil, nil }, roll.Pass, nil,
			"no container ended",
		},
	},
	"prestop-honoured": {
		{"sleep", nil, roll.Pass, nil, "1 of 1 preStop hook honoured"},
		{"none", term(func(t *roll.Termination) { t.PreStop = roll.PreStop{} }), roll.Pass, nil, "no preStop hook"},
		// kubernetes/kubernetes#39170: FailedPreStopHook.
		{"failed", term(func(t *roll.Termination) { t.PreStop.Failed = true }), roll.Fail, nil, "(sleep) failed"},
		{"cut by the grace", term(func(t *roll.Termination) {
			grace := int64(2)
			t.GracePeriodSeconds, t.Signaled = &grace, instant(4050*time.Millisecond, 4250*time.Millisecond,
				roll.SourcePreStopSleep)
		}), roll.Fail, nil, "at least 2.8s before its preStop sleep of 5s could end: the grace period is 2s"},
		{"cut by force", term(func(t *roll.Termination) {
			t.Forced, t.Signaled, t.Exited = true, instant(3050*time.Millisecond, 3250*time.Millisecond,
				roll.SourcePreStopSleep), roll.Instant{}
		}), roll.Fail, nil, "the delete was forced"},
		{"exited in the hook", term(func(t *roll.Termination) {
			t.Signaled, t.Exited = roll.Instant{}, instant(4*s, 5*s, roll.SourceContainerStatus)
		}), roll.Fail, nil, "exited at least 2.05s before"},
		{
			"signal unknown", term(func(t *roll.Termination) { t.Signaled = roll.Instant{} }), roll.Inconclusive,
			[]roll.GapReason{roll.GapSignalUnknown},
			"",
		},
		{
			"exit unknown", term(func(t *roll.Termination) { t.Exited = roll.Instant{} }), roll.Inconclusive,
			[]roll.GapReason{roll.GapHookUnknown},
			"",
		},
		{"start unknown", term(func(t *roll.Termination) {
			t.PreStopStarted, t.Requested = roll.Instant{},
				roll.Instant{}
		}), roll.Inconclusive, []roll.GapReason{roll.GapHookUnknown}, ""},
		{
			"exec", term(func(t *roll.Termination) { t.PreStop = roll.PreStop{Kind: roll.PreStopExec, Watched: true} }), roll.Pass, nil,
			"1 of 1",
		},
		// kubernetes/kubernetes#67887: the kubelet's budget of events may have swallowed that of a failure.
		{
			"exec, events swallowed", term(func(t *roll.Termination) { t.PreStop = roll.PreStop{Kind: roll.PreStopExec} }),
			roll.Inconclusive,
			[]roll.GapReason{roll.GapHookUnknown},
			"not all there",
		},
		// kubernetes/kubernetes#31902: a hook that times out leaves no event.
		{"exec, to the end of the grace", term(func(t *roll.Termination) {
			t.PreStop, t.Exited = roll.PreStop{Kind: roll.PreStopExec}, instant(32*s, 33*s, roll.SourceContainerStatus)
		}), roll.Inconclusive, []roll.GapReason{roll.GapHookUnknown}, "may have been cut"},
		{"http, exit unknown", term(func(t *roll.Termination) {
			t.PreStop, t.Exited = roll.PreStop{Kind: roll.PreStopHTTPGet}, roll.Instant{}
		}), roll.Inconclusive, []roll.GapReason{roll.GapHookUnknown}, ""},
		{
			"tcp, signal unknown", term(func(t *roll.Termination) {
				t.PreStop,
					t.Signaled = roll.PreStop{Kind: roll.PreStopTCP}, roll.Instant{}
			}), roll.Inconclusive,
			[]roll.GapReason{roll.GapSignalUnknown},
			"",
		},
		// kubernetes/kubernetes#67887: the event of a failure may be lost.
		{
			"exec, events lost",
			both(term(func(t *roll.Termination) { t.PreStop = roll.PreStop{Kind: roll.PreStopExec, Watched: true} }),
				func(ev *Evidence) {
					ev.Roll.Gaps = []roll.Gap{{Reason: roll.GapWatch, Resource: roll.ResourceEvents}}
				}), roll.Inconclusive,
			[]roll.GapReason{roll.GapHookUnknown},
			"events are missing",
		},
		{"crash runs no hook", term(func(t *roll.Termination) {
			t.Cause, t.Signaled = roll.CauseCrash,
				roll.Instant{}
		}), roll.Pass, nil, "no preStop hook"},
		{
			"a pod unseen", func(ev *Evidence) { ev.Roll.Old = append(ev.Roll.Old, newRef) }, roll.Inconclusive,
			[]roll.GapReason{roll.GapHookUnknown},
			"",
		},
	},
	"traffic-covered": {
		{
			"covered", nil, roll.Pass, nil,
			"2 client spans to cart, 2 server spans of it, 0 client spans by it; no span certainly touched",
		},
		// kubernetes/kubernetes#128479: traffic in preStop is told, and is no fault.
		{
			"served in preStop", func(ev *Evidence) {
				ev.Spans[3].Phase, ev.Spans[2].PeerPhase = roll.PhasePreStop,
					roll.PhasePreStop
			}, roll.Pass, nil,
			"2 spans touched a terminating pod (2 in preStop, 0 in drain), 0 in error",
		},
		{"unattributed", func(ev *Evidence) {
			x := call(5*s, 9)[0]
			x.Pod, x.Peer = nil, nil
			ev.Spans = append(ev.Spans, x)
		}, roll.Pass, nil, "1 span of no known pod"},
		{
			"no spans", func(ev *Evidence) { ev.Spans = nil }, roll.Inconclusive,
			[]roll.GapReason{roll.GapNoSpans},
			"no span in the roll's own window",
		},
		{
			"none while the pods were ended", func(ev *Evidence) { ev.Spans = append(call(s, 1), call(9*s, 2)...) },
			roll.Inconclusive,
			[]roll.GapReason{roll.GapNoSpans},
			"from the first request to end a pod to the last exit",
		},
		{
			"one while a pod of unknown exit was ended", both(
				term(func(t *roll.Termination) { t.Exited = roll.Instant{} }),
				func(ev *Evidence) { ev.Spans = append(call(s, 1), call(9*s, 2)...) }),
			roll.Pass,
			nil,
			"",
		},
		{
			"spans in the padding alone", func(ev *Evidence) { ev.Spans = call(-900*time.Millisecond, 1) },
			roll.Inconclusive,
			[]roll.GapReason{roll.GapNoSpans},
			"",
		},
		{"of others alone", func(ev *Evidence) {
			for i := range ev.Spans {
				ev.Spans[i].Pod, ev.Spans[i].Peer = ev.Pods["u-web"], nil
			}
		}, roll.Inconclusive, []roll.GapReason{roll.GapNoSpans}, "none is of or to a pod of shop/deployment/cart"},
		// A call that is cut leaves no server span (see no-error-spans): servers alone cannot show it.
		{"servers alone", func(ev *Evidence) {
			ev.Spans = slices.DeleteFunc(ev.Spans, func(sp roll.Span) bool { return sp.Kind == roll.KindClient })
		}, roll.Inconclusive, []roll.GapReason{roll.GapNoSpans}, "no client span that called it"},
		{"clients alone", func(ev *Evidence) {
			ev.Spans = slices.DeleteFunc(ev.Spans, func(sp roll.Span) bool { return sp.Kind == roll.KindServer })
		}, roll.Pass, nil, "2 client spans to cart, 0 server spans"},
	},
	"evidence-complete": {
		{"complete", nil, roll.Pass, nil, "nothing is known to be missing"},
		// grafana/grafana-app-sdk#1352: a relist hides what came between.
		{
			"watch gap", func(ev *Evidence) { ev.Roll.Gaps = []roll.Gap{{Reason: roll.GapWatch}} }, roll.Inconclusive,
			[]roll.GapReason{roll.GapWatch},
			"1 gap",
		},
		// kubernetes/kubectl#1628: done is when the last old pod is gone.
		{
			"not completed", func(ev *Evidence) { ev.Roll.Completed = false }, roll.Inconclusive,
			[]roll.GapReason{roll.GapEndsEarly},
			"not seen to its end",
		},
		{"span gap", spanGap(roll.GapNotCaughtUp), roll.Inconclusive, []roll.GapReason{roll.GapNotCaughtUp}, ""},
		{
			"log gap", func(ev *Evidence) { ev.LogGaps = []roll.Gap{{Reason: roll.GapLogs}} }, roll.Inconclusive,
			[]roll.GapReason{roll.GapLogs},
			"",
		},
	},
	"control": {
		{"none looked for", func(ev *Evidence) { ev.Control = nil }, roll.Pass, nil, "no control was looked for"},
		{
			"none found", nil, roll.Pass, nil,
			"finds no error span outside the windows (looked in 2026-12-01T11:59:00.000Z to 2026-12-01T11:59:59.000Z)",
		},
		{
			"found", func(ev *Evidence) { errorOn(0, nil)(ev); ev.Control.Spans = ev.Spans[:1] }, roll.Pass, nil,
			"finds 1 error span of 1 service",
		},
		{"found and required", func(ev *Evidence) {
			errorOn(0, nil)(ev)
			ev.Control.Spans, ev.Control.Required = ev.Spans[:1], true
		}, roll.Pass, nil, "finds 1 error span"},
		{
			"required, none found", func(ev *Evidence) { ev.Control.Required = true }, roll.Inconclusive,
			[]roll.GapReason{roll.GapNoControl},
			"",
		},
		{"required, only clean spans came back", func(ev *Evidence) {
			ev.Control.Required, ev.Control.Spans = true,
				ev.Spans
		}, roll.Inconclusive, []roll.GapReason{roll.GapNoControl}, ""},
		{
			"required, nowhere to look", func(ev *Evidence) { ev.Control.Required, ev.Control.Ranges = true, nil },
			roll.Inconclusive,
			[]roll.GapReason{roll.GapNoControl},
			"no time outside",
		},
		{"required, could not ask", func(ev *Evidence) {
			ev.Control.Required, ev.Control.Gaps = true, []roll.Gap{{Reason: roll.GapBackendError}}
		}, roll.Inconclusive, []roll.GapReason{roll.GapBackendError, roll.GapNoControl}, ""},
		{
			"could not ask, not required",
			func(ev *Evidence) { ev.Control.Gaps = []roll.Gap{{Reason: roll.GapBackendError}} }, roll.Pass, nil, "",
		},
	},
}

func TestChecks(t *testing.T) {
	// A check without a failing case must say so: it is about evidence.
	neverFails := []string{"traffic-covered", "evidence-complete", "control"}
	for id, list := range cases {
		a := ByID(id)
		if a == nil {
			t.Errorf("cases of %s, which is no assertion", id)
			continue
		}
		seen := map[roll.Verdict]bool{}
		for _, c := range list {
			t.Run(id+"/"+c.name, func(t *testing.T) {
				ev := good()
				if c.edit != nil {
					c.edit(ev)
				}
				res := Run(a, ev, DefaultParams(), nil)
				seen[res.Verdict] = true
				if res.Verdict != c.want {
					t.Errorf("verdict %s, want %s: %s %v %v", res.Verdict, c.want, res.Summary, res.Findings, res.Gaps)
				}
				if !slices.Equal(res.Reasons, append([]roll.GapReason{}, c.reasons...)) {
					t.Errorf("reasons %v, want %v", res.Reasons, c.reasons)
				}
				said := res.Summary
				for _, f := range res.Findings {
					said += "\n" + f.Message
				}
				for _, g := range res.Gaps {
					said += "\n" + g.Detail
				}
				if !strings.Contains(said, c.says) {
					t.Errorf("it says\n%s\nand not %q", said, c.says)
				}
				if res.Roll != "shop/deployment/cart#1" {
					t.Errorf("result is of roll %q", res.Roll)
				}
			})
		}
		for _, v := range []roll.Verdict{roll.Pass, roll.Fail, roll.Inconclusive} {
			if !seen[v] && (v != roll.Fail || !slices.Contains(neverFails, id)) {
				t.Errorf("no case of %s is %s", id, v)
			}
		}
	}
}

// Identical lines are one finding of one pod, with their count and the first one's time.
func TestLogFindingsAreGrouped(t *testing.T) {
	ev := good()
	for i := range 3 {
		ev.Logs = append(ev.Logs,
			roll.LogLine{
				Pod: webRef, Container: "app", Time: at(time.Duration(3+i) * s), Severity: roll.SeverityWarn,
				Message: "same",
			},
			roll.LogLine{
				Pod: oldRef, Container: "app", Time: at(time.Duration(3+i) * s), Severity: roll.SeverityWarn,
				Message: "same",
			})
	}
	res := Run(NoWarnLogs, ev, DefaultParams(), nil)
	if len(res.Findings) != 2 {
		t.Fatalf("%d findings, want one a pod: %+v", len(res.Findings), res.Findings)
	}
	web, old := res.Findings[0], res.Findings[1]
	if web.Pod != "shop/web-1" || web.Count != 3 || !web.Time.Equal(at(3*s)) || web.Severity != "WARN" || web.Phase != roll.PhaseServing {
		t.Errorf("web: %+v", web)
	}
	if old.Pod != "shop/cart-7f" || old.Count != 3 || old.Phase != roll.PhasePreStop {
		t.Errorf("old: %+v", old)
	}
}

// The finding of a cut call says who, where, in which phase, and which span.
func TestSpanFindingFields(t *testing.T) {
	ev := good()
	errorOn(2, func(sp *roll.Span) { sp.PeerPhase, sp.PeerEndPhase = roll.PhasePreStop, roll.PhaseDrain })(ev)
	res := Run(NoErrorSpans, ev, DefaultParams(), nil)
	f := res.Findings[0]
	f.Message = ""
	want := roll.Finding{
		Time: at(4 * s), Pod: "shop/web-1", Phase: roll.PhaseServing, Peer: "shop/cart-7f", PeerPhase: roll.PhaseDrain,
		Service: "web", SpanName: "cart.v1.Cart/Get", SpanKind: "client",
		TraceID: "00000000000000000000000000000002", SpanID: "0000000000000001",
		Attribution: roll.AttributedByParentChild,
	}
	if f != want {
		t.Errorf("finding\n%+v\nwant\n%+v", f, want)
	}
}

// The phase at the end of a failed call, from the bounds of its pod's end and from the call having been in flight.
func TestCutIn(t *testing.T) {
	ms := time.Millisecond
	// Asked at 2 s, SIGTERM within [2.1, 3.5] s, exit within [3, 4) s.
	base := roll.Pod{
		Deleted: true, Requested: instant(2*s, 2100*ms, roll.SourceWatch), Signaled: instant(2100*ms, 3500*ms,
			roll.SourceNoPreStop),
		Exited: instant(3*s, 4*s-1, roll.SourceContainerStatus), Terminations: []roll.Termination{{}},
	}
	hooked := base
	hooked.Terminations = []roll.Termination{{PreStop: roll.PreStop{Kind: roll.PreStopExec}}}
	alive := base
	alive.Deleted, alive.Requested = false, roll.Instant{}
	// The deletion within a second; the watch told of it 0.3 s, the kubelet began at 0.1 s after the second's begin.
	second := base
	second.Requested = instant(2*s, 3*s-1, roll.SourceDeletionTimestamp)
	told, begun := second, second
	told.DeletionSeen = at(2300 * ms)
	begun.Terminations = []roll.Termination{{
		Requested: second.Requested, Signaled: instant(2100*ms, 3500*ms, roll.SourceNoPreStop),
	}}
	unseen := base
	unseen.Exited = roll.Instant{}
	for name, c := range map[string]struct {
		pod        *roll.Pod
		start, end time.Duration
		skew       time.Duration
		want       roll.Phase
		possible   string
	}{
		"before the request":                {&base, 1 * s, 1500 * ms, 0, roll.PhaseServing, "serving"},
		"around the request":                {&base, 1 * s, 2050 * ms, 0, roll.PhaseUnsure, "serving or preStop"},
		"after the request, no hook":        {&base, 1 * s, 2500 * ms, 0, roll.PhaseDrain, "drain"},
		"after the request, a hook":         {&hooked, 1 * s, 2500 * ms, 0, roll.PhaseUnsure, "preStop or drain"},
		"around the exit, in flight before": {&base, 1 * s, 3900 * ms, 0, roll.PhaseDrain, "drain"},
		"after the exit, in flight before":  {&base, 1 * s, 9 * s, 0, roll.PhaseDrain, "drain"},
		"around the exit, begun there":      {&base, 3100 * ms, 3900 * ms, 0, roll.PhaseUnsure, "drain or after-exit"},
		"after the exit, begun there":       {&base, 5 * s, 6 * s, 0, roll.PhaseAfterExit, "after-exit"},
		"clocks a second apart": {
			&base, 1 * s, 2500 * ms, s, roll.PhaseUnsure,
			"serving, preStop or drain",
		},
		"exit not observed, begun late": {&unseen, 5 * s, 6 * s, 0, roll.PhaseUnsure, "drain or after-exit"},
		"within the second": {
			&second, 1 * s, 2400 * ms, 0, roll.PhaseUnsure,
			"serving, preStop or drain",
		},
		"within it, told before": {&told, 1 * s, 2400 * ms, 0, roll.PhaseDrain, "drain"},
		"within it, told after": {
			&told, 1 * s, 2200 * ms, 0, roll.PhaseUnsure,
			"serving, preStop or drain",
		},
		"within it, begun before": {&begun, 1 * s, 2200 * ms, 0, roll.PhaseDrain, "drain"},
		"not deleted":             {&alive, 1 * s, 2 * s, 0, roll.PhaseUnsure, ""},
		"no pod":                  {nil, 1 * s, 2 * s, 0, roll.PhaseUnsure, ""},
	} {
		got, possible := cutIn(c.pod, at(c.start), at(c.end), c.skew)
		if got != c.want || oneOf(possible) != c.possible {
			t.Errorf("%s: %s of %s, want %s of %s", name, got, oneOf(possible), c.want, c.possible)
		}
	}
}
