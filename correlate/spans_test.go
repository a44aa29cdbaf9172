package correlate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

var epoch = time.Date(2026, 12, 1, 3, 45, 0, 0, time.UTC)

// sec is s seconds after epoch.
func sec(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }

// at is the moment from lo to hi seconds after epoch; with one argument a moment without width.
func at(bounds ...float64) roll.Instant {
	return roll.Instant{Earliest: sec(bounds[0]), Latest: sec(bounds[len(bounds)-1]), Source: roll.SourceWatch}
}

func testPod(name, uid string, ips ...string) *roll.Pod {
	return &roll.Pod{
		PodRef:   roll.PodRef{Namespace: "space", Name: name, UID: uid},
		Workload: roll.Workload{Kind: "Deployment", Namespace: "space", Name: "api"},
		IPs:      ips,
	}
}

func resource(kv ...string) *roll.Resource { return &roll.Resource{Attributes: attributes(kv...)} }

func attributes(kv ...string) (a roll.Attributes) {
	for i := 0; i < len(kv); i += 2 {
		a = append(a, roll.Attribute{Key: kv[i], Value: kv[i+1]})
	}
	return a
}

func spanID(n uint64) (id roll.SpanID) {
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

func traceID(n uint64) (id roll.TraceID) {
	binary.BigEndian.PutUint64(id[8:], n)
	return id
}

// testSpan is a span of trace 1 from start to end seconds after epoch.
func testSpan(kind roll.SpanKind, id, parent uint64, r *roll.Resource, start, end float64, kv ...string) roll.Span {
	return roll.Span{
		TraceID: traceID(1), SpanID: spanID(id), ParentID: spanID(parent), Kind: kind, Resource: r,
		Start: sec(start), Duration: sec(end).Sub(sec(start)), Attributes: attributes(kv...),
	}
}

// lived is a pod that was rolled away: Ready at 5, deletion requested at 20, signaled at 25, exited at 26.
func lived(name, uid string, ips ...string) *roll.Pod {
	p := testPod(name, uid, ips...)
	p.Created, p.Ready = at(1, 1.9), at(5)
	p.Requested, p.Signaled, p.Exited, p.Removed = at(20, 20.9), at(25, 25.1), at(26, 26.5), at(27)
	p.Deleted = true
	return p
}

func uidOf(p *roll.Pod) string {
	if p == nil {
		return ""
	}
	return p.UID
}

func TestPhase(t *testing.T) {
	before := testPod("before-the-recording", "1")
	before.Created = roll.Instant{Latest: sec(0), Source: roll.SourceWatch}
	neverReady := testPod("never-ready", "1")
	neverReady.Created = at(1, 1.9)
	unready := lived("deleted-before-ready", "1")
	unready.Ready = roll.Instant{}
	living := testPod("living", "1")
	living.Created, living.Ready = at(1, 1.9), at(5)
	unseen := lived("exit-not-observed", "1")
	unseen.Exited = roll.Instant{}
	forced := lived("forced", "1")
	forced.Signaled, forced.Exited = roll.Instant{}, roll.Instant{}
	unsignaled := lived("signal-not-observed", "1")
	unsignaled.Signaled = roll.Instant{}
	vanished := testPod("vanished", "1")
	vanished.Created, vanished.Ready, vanished.Removed = at(1, 1.9), at(5), at(10, 20)
	noHook := lived("no-hook", "1")
	noHook.Requested, noHook.Signaled = at(20, 20.999), at(20.1, 20.2)
	crashed := testPod("completed-and-not-deleted", "1")
	crashed.Created, crashed.Ready, crashed.Exited = at(1, 1.9), at(5), at(10, 10.9)

	type want map[float64]roll.Phase
	for _, c := range []struct {
		pod  *roll.Pod
		skew time.Duration
		want want
	}{
		{pod: lived("rolled", "1"), want: want{
			0.9: roll.PhaseBefore, 1: roll.PhaseUnsure, 1.5: roll.PhaseUnsure, 1.9: roll.PhaseStartup,
			4.999: roll.PhaseStartup, 5: roll.PhaseServing, 19.9: roll.PhaseServing, 20: roll.PhaseUnsure,
			20.9: roll.PhasePreStop, 24.9: roll.PhasePreStop, 25.05: roll.PhaseUnsure, 25.1: roll.PhaseDrain,
			25.9: roll.PhaseDrain, 26.2: roll.PhaseUnsure, 26.5: roll.PhaseAfterExit, 1e6: roll.PhaseAfterExit,
		}},
		{pod: lived("rolled, skewed clocks", "1"), skew: 100 * time.Millisecond, want: want{
			0.85: roll.PhaseBefore, 0.95: roll.PhaseUnsure, 1.95: roll.PhaseUnsure, 2: roll.PhaseStartup,
			4.95: roll.PhaseUnsure, 5.05: roll.PhaseUnsure, 5.1: roll.PhaseServing, 19.95: roll.PhaseUnsure,
			20.95: roll.PhaseUnsure, 21: roll.PhasePreStop, 24.95: roll.PhaseUnsure, 25.2: roll.PhaseDrain,
			25.95: roll.PhaseUnsure, 26.55: roll.PhaseUnsure, 26.6: roll.PhaseAfterExit,
		}},
		{pod: living, want: want{0: roll.PhaseBefore, 3: roll.PhaseStartup, 5: roll.PhaseServing, 1e6: roll.PhaseServing}},
		{pod: before, want: want{-1e9: roll.PhaseUnsure, 1: roll.PhaseUnsure, 1e6: roll.PhaseUnsure}},
		{pod: neverReady, want: want{0: roll.PhaseBefore, 3: roll.PhaseUnsure, 1e6: roll.PhaseUnsure}},
		{pod: unready, want: want{
			0: roll.PhaseBefore, 3: roll.PhaseUnsure, 20.5: roll.PhaseUnsure, 21: roll.PhasePreStop,
			25.5: roll.PhaseDrain, 27: roll.PhaseAfterExit,
		}},
		{pod: unseen, want: want{6: roll.PhaseServing, 21: roll.PhaseUnsure, 25.5: roll.PhaseUnsure, 1e6: roll.PhaseUnsure}},
		{pod: forced, want: want{6: roll.PhaseServing, 21: roll.PhaseUnsure, 1e6: roll.PhaseUnsure}},
		{pod: unsignaled, want: want{6: roll.PhaseServing, 21: roll.PhaseUnsure, 26.5: roll.PhaseAfterExit}},
		{pod: vanished, want: want{0: roll.PhaseBefore, 3: roll.PhaseUnsure, 6: roll.PhaseUnsure, 21: roll.PhaseUnsure}},
		{pod: noHook, want: want{19: roll.PhaseServing, 20.05: roll.PhaseUnsure, 20.5: roll.PhaseDrain}},
		{pod: crashed, want: want{6: roll.PhaseServing, 10.5: roll.PhaseUnsure, 11: roll.PhaseAfterExit}},
	} {
		x := NewIndex(&roll.Timeline{Pods: []*roll.Pod{c.pod}}, Options{Skew: c.skew})
		for s, want := range c.want {
			if got := x.Phase(c.pod, sec(s)); got != want {
				t.Errorf("%s at %g s: phase %q, want %q", c.pod.Name, s, got, want)
			}
		}
	}
	if got := NewIndex(&roll.Timeline{}, Options{}).Phase(living, sec(9)); got != roll.PhaseUnknown {
		t.Errorf("pod of another timeline: phase %q", got)
	}
}

// TestPhaseOfTruth draws a pod's true moments, widens them to bounds, leaves some out, and asks for the phase: it is the
// true one or unsure.
func TestPhaseOfTruth(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	sure := 0
	for range 2000 {
		truth := make([]float64, 5) // created, ready, requested, signaled, exited
		for i := range truth {
			truth[i] = 10 + 30*rng.Float64()
		}
		slices.Sort(truth)
		p := testPod("p", "1")
		p.Deleted = true
		bound := func(i int) roll.Instant {
			if rng.IntN(6) == 0 {
				return roll.Instant{}
			}
			return at(truth[i]-2*rng.Float64(), truth[i]+2*rng.Float64())
		}
		p.Created, p.Ready, p.Requested, p.Signaled, p.Exited = bound(0), bound(1), bound(2), bound(3), bound(4)
		skew := 4 * rng.Float64()
		x := NewIndex(&roll.Timeline{Pods: []*roll.Pod{p}}, Options{Skew: sec(skew).Sub(epoch) + time.Nanosecond})
		for range 20 {
			s := 50 * rng.Float64()
			k := 0
			for k < len(truth) && truth[k] <= s {
				k++
			}
			s += skew * (2*rng.Float64() - 1) // by the span's clock
			first, last := x.Phases(p, sec(s))
			if lo, hi := slices.Index(order[:], first), slices.Index(order[:], last); k < lo || k > hi {
				t.Fatalf("at %g s of %v: from %q to %q, in truth %q\n%+v", s, truth, first, last, order[k], p)
			}
			switch got := x.Phase(p, sec(s)); got {
			case order[k]:
				sure++
			case roll.PhaseUnsure:
			default:
				t.Fatalf("at %g s of %v: phase %q, in truth %q\n%+v", s, truth, got, order[k], p)
			}
		}
	}
	if sure < 4000 {
		t.Errorf("only %d of 40000 phases are sure", sure)
	}
}

func TestAttribution(t *testing.T) {
	a, b := lived("api-7c4-x2x4x", "uid-a", "10.0.0.1"), lived("api-7c4-y6y8y", "uid-b", "10.0.0.2", "fd00::2")
	// db-0 is used twice; so is 10.0.0.9.
	old, young := lived("db-0", "uid-old", "10.0.0.9"), testPod("db-0", "uid-young", "10.0.0.9")
	young.Created, young.Ready = at(30, 30.9), at(35)
	old.Workload.Kind, young.Workload.Kind = "StatefulSet", "StatefulSet"
	// db-1's first pod was deleted by force: its container may still run.
	lost, found := lived("db-1", "uid-lost"), testPod("db-1", "uid-found")
	lost.Exited = roll.Instant{}
	found.Created, found.Ready = at(30, 30.9), at(35)
	// Two pods with one IP at once.
	shared1, shared2 := lived("host-1", "uid-h1", "10.1.0.1"), lived("host-2", "uid-h2", "10.1.0.1")
	shared3 := testPod("host-3", "uid-h3", "10.1.0.1")
	shared3.Created, shared3.Ready = at(30), at(35)
	// db-2's first pod was deleted by force, and its exit was seen when the second was there already.
	slow, quick := lived("db-2", "uid-slow"), testPod("db-2", "uid-quick")
	slow.Exited = at(33, 34)
	quick.Created, quick.Ready = at(30, 30.9), at(35)
	// 10.0.0.8 goes to a pod that was created while the one before it was still there.
	leaving, waiting := lived("api-7c4-l2l4l", "uid-leaving", "10.0.0.8"), testPod("api-9d8-w2w4w", "uid-waiting", "10.0.0.8")
	waiting.Created, waiting.Ready = at(21, 21.9), at(35)
	x := NewIndex(&roll.Timeline{Pods: []*roll.Pod{
		a, b, old, young, lost, found, shared1, shared2, shared3, slow, quick, leaving, waiting,
	}}, Options{})
	space := func(name string) *roll.Resource { return resource("k8s.namespace.name", "space", "k8s.pod.name", name) }

	for _, c := range []struct {
		name       string
		resource   *roll.Resource
		start, end float64
		uid        string
		by         roll.Attribution
	}{
		{"uid", resource("k8s.pod.uid", "uid-a"), 6, 7, "uid-a", roll.AttributedByPodUID},
		{"uid wins over a name", resource("k8s.pod.name", b.Name, "k8s.namespace.name", "space", "k8s.pod.uid", "uid-a"), 6, 7, "uid-a", roll.AttributedByPodUID},
		{"uid of a pod that was not recorded", resource("k8s.pod.uid", "uid-z", "k8s.pod.name", a.Name, "k8s.namespace.name", "space", "k8s.pod.ip", "10.0.0.1"), 6, 7, "", roll.AttributedByNone},
		{"uid by a clock that is wrong", resource("k8s.pod.uid", "uid-a"), -9, 99, "uid-a", roll.AttributedByPodUID},
		{"name", space(a.Name), 6, 7, "uid-a", roll.AttributedByPodName},
		{"name in another namespace", resource("k8s.pod.name", a.Name, "k8s.namespace.name", "other", "host.name", a.Name), 6, 7, "", roll.AttributedByNone},
		{"generated name alone", resource("k8s.pod.name", a.Name), 6, 7, "uid-a", roll.AttributedByPodName},
		{"StatefulSet's name alone", resource("k8s.pod.name", "db-0"), 6, 7, "", roll.AttributedByNone},
		{"name before the pod", space(a.Name), 0, 0.5, "", roll.AttributedByNone},
		{"name after the pod, not used again", space(a.Name), 90, 91, "uid-a", roll.AttributedByPodName},
		{"used name, first pod", space("db-0"), 6, 7, "uid-old", roll.AttributedByPodName},
		{"used name, second pod", space("db-0"), 40, 41, "uid-young", roll.AttributedByPodName},
		{"used name, over both", space("db-0"), 25, 41, "", roll.AttributedByNone},
		{"forced name, before", space("db-1"), 6, 7, "uid-lost", roll.AttributedByPodName},
		{"forced name, old container may live", space("db-1"), 40, 41, "", roll.AttributedByNone},
		{"forced name, before the exit", space("db-2"), 31, 32, "", roll.AttributedByNone},
		{"forced name, after the exit", space("db-2"), 34, 36, "uid-quick", roll.AttributedByPodName},
		{"ip, another pod waits", resource("k8s.pod.ip", "10.0.0.8"), 24, 25, "uid-leaving", roll.AttributedByIP},
		{"ip, another pod may have it", resource("k8s.pod.ip", "10.0.0.8"), 27, 28, "", roll.AttributedByNone},
		{"instance id is the uid", resource("service.instance.id", "uid-a"), 6, 7, "uid-a", roll.AttributedByInstanceID},
		{"instance id is the name", resource("service.instance.id", a.Name), 6, 7, "uid-a", roll.AttributedByInstanceID},
		{"instance id is namespace.pod.container", resource("service.instance.id", "space.db-0.app"), 6, 7, "uid-old", roll.AttributedByInstanceID},
		{"instance id is random, host name", resource("service.instance.id", "627cc493-f310-47de-96bd-71410b7dec09", "host.name", b.Name), 6, 7, "uid-b", roll.AttributedByHostName},
		{"host name is a node", resource("host.name", "node1", "k8s.pod.ip", "10.0.0.2"), 6, 7, "uid-b", roll.AttributedByIP},
		{"ip", resource("k8s.pod.ip", "10.0.0.1"), 6, 7, "uid-a", roll.AttributedByIP},
		{"ip, v6", resource("k8s.pod.ip", "fd00:0::2"), 6, 7, "uid-b", roll.AttributedByIP},
		{"ip used twice, first", resource("k8s.pod.ip", "10.0.0.9"), 6, 7, "uid-old", roll.AttributedByIP},
		{"ip used twice, second", resource("k8s.pod.ip", "10.0.0.9"), 36, 37, "uid-young", roll.AttributedByIP},
		{"ip used twice, handover", resource("k8s.pod.ip", "10.0.0.9"), 32, 32.1, "", roll.AttributedByNone},
		{"ip shared", resource("k8s.pod.ip", "10.1.0.1"), 9, 10, "", roll.AttributedByNone},
		{"ip that was shared before", resource("k8s.pod.ip", "10.1.0.1"), 60, 61, "", roll.AttributedByNone},
		{"ip of nobody", resource("k8s.pod.ip", "10.9.9.9"), 9, 10, "", roll.AttributedByNone},
		{"ip that is none", resource("k8s.pod.ip", "<nil>"), 9, 10, "", roll.AttributedByNone},
		{"nothing", resource("service.name", "api"), 6, 7, "", roll.AttributedByNone},
		{"no resource", nil, 6, 7, "", roll.AttributedByNone},
	} {
		s := []roll.Span{testSpan(roll.KindServer, 1, 0, c.resource, c.start, c.end)}
		x.Correlate(s)
		if got := uidOf(s[0].Pod); got != c.uid || s[0].Attribution != c.by {
			t.Errorf("%s: pod %q by %q, want %q by %q", c.name, got, s[0].Attribution, c.uid, c.by)
		}
		if known := s[0].Phase != roll.PhaseUnknown && s[0].EndPhase != roll.PhaseUnknown; known != (c.uid != "") {
			t.Errorf("%s: phases %q and %q", c.name, s[0].Phase, s[0].EndPhase)
		}
	}
}

func TestPeer(t *testing.T) {
	srv, next := lived("api-7c4-x2x4x", "srv", "10.0.0.1"), testPod("api-9d8-z5z7z", "next", "10.0.0.1")
	next.Created, next.Ready = at(60, 60.9), at(65)
	srv2 := lived("api-7c4-y6y8y", "srv2", "10.0.0.2")
	cli := testPod("ctl-5f6-w4w6w", "cli", "10.0.0.3")
	cli.Created, cli.Ready = at(0), at(2)
	x := NewIndex(&roll.Timeline{Pods: []*roll.Pod{srv, srv2, cli, next}}, Options{})
	rs, rs2, rc := resource("k8s.pod.uid", "srv"), resource("k8s.pod.uid", "srv2"), resource("k8s.pod.uid", "cli")
	anonymous, foreign := resource("service.name", "api"), resource("k8s.pod.uid", "not-recorded")
	const client, server = roll.KindClient, roll.KindServer

	// A want is pod/attribution/phase/end phase, then the same of the peer; "" for none.
	for _, c := range []struct {
		name  string
		spans []roll.Span
		want  []string
	}{
		{
			"both sides known",
			[]roll.Span{testSpan(client, 1, 0, rc, 19, 22), testSpan(server, 2, 1, rs, 19.1, 21.9)},
			[]string{"cli/pod-uid/serving/serving srv/parent-child/serving/preStop", "srv/pod-uid/serving/preStop cli/parent-child/serving/serving"},
		},
		{
			"another trace with the same span id",
			[]roll.Span{
				testSpan(client, 1, 0, rc, 6, 8),
				func() roll.Span {
					s := testSpan(server, 2, 1, rs, 6, 8)
					s.TraceID = traceID(2)
					return s
				}(),
			},
			[]string{"cli/pod-uid/serving/serving /none//", "srv/pod-uid/serving/serving /none//"},
		},
		{
			"a parent that is a server span is no peer",
			[]roll.Span{testSpan(server, 1, 0, rs2, 6, 9), testSpan(server, 2, 1, rs, 7, 8)},
			[]string{"srv2/pod-uid/serving/serving /none//", "srv/pod-uid/serving/serving /none//"},
		},
		{
			"retried on another pod: no peer, and the address of the last attempt does not decide",
			[]roll.Span{
				testSpan(client, 1, 0, rc, 6, 9, "network.peer.address", "10.0.0.2"),
				testSpan(server, 2, 1, rs, 6.1, 7), testSpan(server, 3, 1, rs2, 7.1, 8),
			},
			[]string{
				"cli/pod-uid/serving/serving /none//",
				"srv/pod-uid/serving/serving cli/parent-child/serving/serving", "srv2/pod-uid/serving/serving cli/parent-child/serving/serving",
			},
		},
		{
			"retried on the same pod",
			[]roll.Span{testSpan(client, 1, 0, rc, 6, 9), testSpan(server, 2, 1, rs, 6.1, 7), testSpan(server, 3, 1, rs, 7.1, 8)},
			[]string{
				"cli/pod-uid/serving/serving srv/parent-child/serving/serving",
				"srv/pod-uid/serving/serving cli/parent-child/serving/serving", "srv/pod-uid/serving/serving cli/parent-child/serving/serving",
			},
		},
		{ // grpc/grpc-go#4650: refused by a pod that had exited.
			"address of an exited pod",
			[]roll.Span{testSpan(client, 1, 0, rc, 40, 41, "network.peer.address", "10.0.0.1")},
			[]string{"cli/pod-uid/serving/serving srv/peer-address/after-exit/after-exit"},
		},
		{
			"address used again",
			[]roll.Span{testSpan(client, 1, 0, rc, 70, 71, "server.address", "10.0.0.1")},
			[]string{"cli/pod-uid/serving/serving next/peer-address/serving/serving"},
		},
		{
			"address that may be another pod's already",
			[]roll.Span{testSpan(client, 1, 0, rc, 62, 63, "server.address", "10.0.0.1")},
			[]string{"cli/pod-uid/serving/serving /none//"},
		},
		{
			"address with a port, v4 in v6",
			[]roll.Span{testSpan(client, 1, 0, rc, 6, 7, "net.peer.ip", "[::ffff:10.0.0.1]:9443")},
			[]string{"cli/pod-uid/serving/serving srv/peer-address/serving/serving"},
		},
		{
			"a name is no address",
			[]roll.Span{testSpan(client, 1, 0, rc, 6, 7, "server.address", "api.space.svc")},
			[]string{"cli/pod-uid/serving/serving /none//"},
		},
		{
			"connected to a proxy, dialled a pod",
			[]roll.Span{testSpan(client, 1, 0, rc, 6, 7, "server.address", "10.0.0.1", "network.peer.address", "10.99.0.1")},
			[]string{"cli/pod-uid/serving/serving /none//"},
		},
		{
			"a server's own address is not its peer",
			[]roll.Span{testSpan(server, 1, 0, rs, 6, 7, "server.address", "10.0.0.3")},
			[]string{"srv/pod-uid/serving/serving /none//"},
		},
		{
			"server's peer by address",
			[]roll.Span{testSpan(server, 1, 0, rs, 6, 7, "net.sock.peer.addr", "10.0.0.3")},
			[]string{"srv/pod-uid/serving/serving cli/peer-address/serving/serving"},
		},
		{
			"server without a pod: the pod that its client called",
			[]roll.Span{testSpan(client, 1, 0, rc, 6, 9, "network.peer.address", "10.0.0.1"), testSpan(server, 2, 1, anonymous, 6.1, 8)},
			[]string{"cli/pod-uid/serving/serving srv/peer-address/serving/serving", "srv/parent-child/serving/serving cli/parent-child/serving/serving"},
		},
		{
			"server of a pod that was not recorded is not the pod that its client called",
			[]roll.Span{testSpan(client, 1, 0, rc, 6, 9, "network.peer.address", "10.0.0.1"), testSpan(server, 2, 1, foreign, 6.1, 8)},
			[]string{"cli/pod-uid/serving/serving srv/peer-address/serving/serving", "/none// cli/parent-child/serving/serving"},
		},
		{
			"two servers without a pod: which one was at the address is not known",
			[]roll.Span{
				testSpan(client, 1, 0, rc, 6, 9, "network.peer.address", "10.0.0.1"),
				testSpan(server, 2, 1, anonymous, 6.1, 7), testSpan(server, 3, 1, anonymous, 7.1, 8),
			},
			[]string{
				"cli/pod-uid/serving/serving srv/peer-address/serving/serving",
				"/none// cli/parent-child/serving/serving", "/none// cli/parent-child/serving/serving",
			},
		},
		{
			"client without a pod: the pod that called its server",
			[]roll.Span{testSpan(client, 1, 0, anonymous, 6, 9), testSpan(server, 2, 1, rs, 6.1, 8, "network.peer.address", "10.0.0.3")},
			[]string{"cli/parent-child/serving/serving srv/parent-child/serving/serving", "srv/pod-uid/serving/serving cli/peer-address/serving/serving"},
		},
		{
			"two clients with the same ids: no peer",
			[]roll.Span{testSpan(client, 1, 0, rc, 6, 9), testSpan(client, 1, 0, rs2, 6, 9), testSpan(server, 2, 1, rs, 6.1, 8)},
			[]string{"cli/pod-uid/serving/serving /none//", "srv2/pod-uid/serving/serving /none//", "srv/pod-uid/serving/serving /none//"},
		},
	} {
		perm := slices.Clone(c.spans)
		for range 2 { // again over its own result, and in another order
			for range 2 {
				x.Correlate(perm)
			}
			for i := range c.spans {
				k := slices.IndexFunc(perm, func(s roll.Span) bool {
					return s.SpanID == c.spans[i].SpanID && s.TraceID == c.spans[i].TraceID && s.Resource == c.spans[i].Resource
				})
				s := &perm[k]
				got := fmt.Sprintf("%s/%s/%s/%s %s/%s/%s/%s", uidOf(s.Pod), s.Attribution, s.Phase, s.EndPhase,
					uidOf(s.Peer), s.PeerAttribution, s.PeerPhase, s.PeerEndPhase)
				if got != c.want[i] {
					t.Errorf("%s: span %d: %s\nwant %s", c.name, i, got, c.want[i])
				}
			}
			slices.Reverse(perm)
		}
	}
}

// TestReuseOfAddresses draws pods that use a few IPs one after the other, widens their moments, and asks whose an IP was:
// never another pod's than in truth.
func TestReuseOfAddresses(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	known := 0
	for range 300 {
		tl := &roll.Timeline{}
		type tenure struct {
			pod      *roll.Pod
			from, to float64
		}
		var truth []tenure
		now := 0.0
		for i := range 1 + rng.IntN(6) {
			p := testPod(fmt.Sprintf("p%d", i), fmt.Sprint(i), "10.0.0.1")
			from := now + 5*rng.Float64()
			created := max(from-6*rng.Float64(), 0)
			ready := from + 3*rng.Float64()
			requested := ready + 10*rng.Float64()
			exited := requested + 5*rng.Float64()
			now = exited + 0.1
			p.Created, p.Ready = at(created-rng.Float64(), created+rng.Float64()), at(ready-rng.Float64(), ready+rng.Float64())
			p.Requested, p.Exited = at(requested-rng.Float64(), requested+rng.Float64()), at(exited-rng.Float64(), exited+rng.Float64())
			p.Deleted = true
			switch rng.IntN(6) {
			case 0:
				p.Ready = roll.Instant{}
			case 1:
				p.Exited = roll.Instant{}
			case 2:
				p.Exited, p.Requested = roll.Instant{}, roll.Instant{}
			}
			tl.Pods = append(tl.Pods, p)
			truth = append(truth, tenure{p, from, exited})
		}
		rng.Shuffle(len(tl.Pods), reflect.Swapper(tl.Pods))
		x := NewIndex(tl, Options{})
		for _, h := range truth {
			s := h.from + (h.to-h.from)*rng.Float64()
			spans := []roll.Span{testSpan(roll.KindClient, 1, 0, nil, s, s, "network.peer.address", "10.0.0.1")}
			x.Correlate(spans)
			switch spans[0].Peer {
			case h.pod:
				known++
			case nil:
			default:
				t.Fatalf("at %g s: the IP is %s's, in truth %s's: %+v", s, spans[0].Peer.Name, h.pod.Name, truth)
			}
		}
	}
	if known < 300 {
		t.Errorf("only %d addresses are known", known)
	}
}

func TestAssignWindows(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 200 {
		spans := make([]roll.Span, rng.IntN(70))
		for i := range spans {
			start := float64(rng.IntN(50))
			d := float64(rng.IntN(5))
			switch rng.IntN(8) {
			case 0:
				d = float64(rng.IntN(60)) // long
			case 1:
				d = -d // damaged
			}
			spans[i] = testSpan(roll.KindServer, uint64(i), 0, nil, start, start+d)
		}
		if round%4 != 0 {
			slices.SortStableFunc(spans, func(a, b roll.Span) int { return a.Start.Compare(b.Start) })
		}
		windows := make([]roll.Range, rng.IntN(9))
		for i := range windows {
			s := float64(rng.IntN(60) - 5)
			windows[i] = roll.Range{Start: sec(s), End: sec(s + float64(rng.IntN(12)-1))}
		}
		got := AssignWindows(spans, windows)
		if len(got) != len(windows) {
			t.Fatalf("%d results for %d windows", len(got), len(windows))
		}
		for w, r := range windows {
			var want []int32
			for i := range spans {
				if spans[i].Overlaps(r.Start, r.End) {
					want = append(want, int32(i))
				}
			}
			if !slices.Equal(got[w], want) {
				t.Fatalf("window %v: spans %v, want %v", r, got[w], want)
			}
		}
	}
}

func TestFarTimes(t *testing.T) {
	p := lived("api-7c4-x2x4x", "uid-a", "10.0.0.1")
	p.Created.Earliest = time.Time{}
	x := NewIndex(&roll.Timeline{Pods: []*roll.Pod{p}}, Options{Skew: time.Hour})
	spans := []roll.Span{
		{Kind: roll.KindServer, Resource: resource("k8s.pod.uid", "uid-a")},
		{Kind: roll.KindServer, Resource: resource("k8s.pod.uid", "uid-a"), Start: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), Duration: 1 << 62},
		{Kind: roll.KindServer, Resource: resource("k8s.pod.uid", "uid-a"), Start: sec(6), Duration: -time.Hour},
	}
	x.Correlate(spans)
	if got := [...]roll.Phase{spans[0].Phase, spans[1].Phase, spans[1].EndPhase}; got != [...]roll.Phase{roll.PhaseUnsure, roll.PhaseAfterExit, roll.PhaseAfterExit} {
		t.Errorf("phases %q", got)
	}
	AssignWindows(spans, []roll.Range{{Start: time.Time{}, End: sec(9)}})
}

// syntheticSpans is n spans, client and server in turn, of pods pods that are rolled all the time, and 200 windows.
func syntheticSpans(n, pods int) (*roll.Timeline, []roll.Span, []roll.Range) {
	rng := rand.New(rand.NewPCG(7, 8))
	tl := &roll.Timeline{}
	resources := make([]*roll.Resource, pods)
	for i := range pods {
		p := lived(fmt.Sprintf("api-7c4-%05d", i), fmt.Sprintf("uid-%d", i), fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255))
		shift := time.Duration(i) * 100 * time.Millisecond
		for _, m := range []*roll.Instant{&p.Created, &p.Ready, &p.Requested, &p.Signaled, &p.Exited, &p.Removed} {
			*m = m.Add(shift, m.Source)
		}
		tl.Pods = append(tl.Pods, p)
		switch i % 4 {
		case 0:
			resources[i] = resource("service.name", "api", "k8s.namespace.name", "space", "k8s.pod.name", p.Name)
		case 1:
			resources[i] = resource("service.name", "api", "k8s.pod.ip", p.IPs[0])
		default:
			resources[i] = resource("service.name", "api", "k8s.namespace.name", "space", "k8s.pod.uid", p.UID)
		}
	}
	total := 100 * time.Millisecond * time.Duration(pods)
	spans := make([]roll.Span, n)
	for i := range spans {
		call := uint64(i / 2)
		start := epoch.Add(total / time.Duration(n) * time.Duration(i))
		s := roll.Span{
			Kind: roll.KindClient, Name: "space.v1.ClusterApi/Heartbeat",
			Start: start, Duration: time.Duration(rng.IntN(1e8)), Resource: resources[rng.IntN(pods)],
			Attributes: attributes("rpc.method", "space.v1.ClusterApi/Heartbeat", "rpc.system.name", "grpc",
				"server.address", tl.Pods[rng.IntN(pods)].IPs[0], "server.port", "9443", "rpc.response.status_code", "OK"),
		}
		binary.LittleEndian.PutUint64(s.TraceID[:], call*0x9e3779b97f4a7c15)
		s.SpanID = spanID(uint64(i) + 1)
		if i%2 == 1 {
			s.Kind, s.ParentID = roll.KindServer, spanID(uint64(i))
		}
		if rng.IntN(1000) == 0 {
			s.Duration = time.Hour
		}
		spans[i] = s
	}
	slices.SortStableFunc(spans, func(a, b roll.Span) int { return cmp.Compare(nanos(a.Start), nanos(b.Start)) })
	windows := make([]roll.Range, 200)
	for i := range windows {
		s := epoch.Add(total / 200 * time.Duration(i))
		windows[i] = roll.Range{Start: s, End: s.Add(total / 250)}
	}
	return tl, spans, windows
}

func BenchmarkCorrelate(b *testing.B) {
	for _, n := range []int{500_000, 1_000_000, 2_000_000} {
		b.Run(fmt.Sprintf("spans=%d", n), func(b *testing.B) {
			tl, spans, windows := syntheticSpans(n, 5000)
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				NewIndex(tl, Options{Skew: time.Millisecond}).Correlate(spans)
				AssignWindows(spans, windows)
			}
			perSpan := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / float64(n)
			b.ReportMetric(1e9/perSpan, "spans/s")
			b.ReportMetric(perSpan, "ns/span")
		})
	}
}

// BenchmarkCorrelateUnshared is the worst case of resources: one a span.
func BenchmarkCorrelateUnshared(b *testing.B) {
	const n = 1_000_000
	tl, spans, _ := syntheticSpans(n, 5000)
	for i := range spans {
		r := *spans[i].Resource
		spans[i].Resource = &r
	}
	x := NewIndex(tl, Options{})
	b.ResetTimer()
	for b.Loop() {
		x.Correlate(spans)
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "spans/s")
}

func BenchmarkNewIndex(b *testing.B) {
	for _, pods := range []int{5_000, 10_000, 20_000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			tl, _, _ := syntheticSpans(0, pods)
			for b.Loop() {
				NewIndex(tl, Options{})
			}
		})
	}
}

func BenchmarkAssignWindows(b *testing.B) {
	_, spans, windows := syntheticSpans(1_000_000, 5000)
	for b.Loop() {
		AssignWindows(spans, windows)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(spans)), "ns/span")
}

// TestCorrelateAllocates holds Correlate to a number of allocations that does not depend on the number of spans: what is
// allocated for each span is what makes it slow.
func TestCorrelateAllocates(t *testing.T) {
	allocs := func(n int) float64 {
		tl, spans, _ := syntheticSpans(n, 50)
		x := NewIndex(tl, Options{})
		return testing.AllocsPerRun(3, func() { x.Correlate(spans) })
	}
	if small, large := allocs(2_000), allocs(64_000); large > small+8 {
		t.Errorf("%g allocations for 2,000 spans, %g for 64,000", small, large)
	}
}
