package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/rolltrace/rolltrace/roll"
)

// Options say what to record live.
type Options struct {
	// Config reaches the API server.
	Config *rest.Config
	// Tool goes into the header: "rolltrace v1.2.3".
	Tool string
	// Namespace is the namespace to record, empty for all.
	Namespace string
	// Objects and Selector select workloads or pods, and with them what they own, their Events, EndpointSlices and Nodes.
	// Without either, everything in the namespace is selected. Selector is matched against the labels of pods and of pod
	// templates.
	Objects  []Ref
	Selector labels.Selector
	// Logs says to follow the logs of the selected pods.
	Logs bool
	// AllowEmpty records though nothing is selected yet.
	AllowEmpty bool

	// Now is the observer's clock.
	Now func() time.Time
	// Live, if not nil, is called once, when everything was listed and every watch is open: what happens from then on is
	// seen.
	Live func()
	// Note, if not nil, is told of what a person should know, in one line. It may be called from several goroutines.
	Note func(string)

	// tuning is zero outside tests.
	tuning tuning
}

// tuning holds the recorder's durations.
type tuning struct {
	retryMin, retryMax time.Duration // between attempts of the same request; doubled each time, with jitter
	logRetryMax        time.Duration // the same of logs: a pod's log can be read for a short time after its end
	confirmAfter       time.Duration // a watch that was opened again and says nothing for so long was accepted
	lateAfter          time.Duration // shorter interruptions that lost nothing are not worth a line
	settle             time.Duration // how long to wait for the watch to tell what a 404 of a log already told
	clockEvery         time.Duration
	clockProbes        int // requests a measurement of the API server's clock, spread over one second
	maxLine            int // bytes of a log line that are kept
}

func (t tuning) withDefaults() tuning {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&t.retryMin, 200*time.Millisecond)
	def(&t.retryMax, 2*time.Second)
	def(&t.logRetryMax, time.Second)
	def(&t.confirmAfter, 5*time.Second)
	def(&t.lateAfter, time.Second)
	def(&t.settle, 5*time.Second)
	def(&t.clockEvery, 10*time.Minute)
	if t.clockProbes == 0 {
		t.clockProbes = 25
	}
	if t.maxLine == 0 {
		t.maxLine = 1 << 20
	}
	return t
}

// The reasons of a footer, and of the [Stop] that asks for one.
const (
	StopInterrupted = "interrupted"
	StopFor         = "for"
)

// Stop is a cause for [context.WithCancelCause] and [context.WithTimeoutCause]: it ends a live recording with a footer of
// this reason. Any other end of the context gives [StopInterrupted].
type Stop string

func (s Stop) Error() string { return "recording stopped: " + string(s) }

// ErrNothingSelected says that there is nothing that the options select.
var ErrNothingSelected = errors.New("nothing is selected")

// AccessError says that the API server refused what the recording needs.
type AccessError struct {
	Verb, Resource, Namespace string // Resource as kubectl auth can-i wants it: "pods", "pods/log"
	Err                       error
}

func (e *AccessError) Error() string {
	where := "in all namespaces"
	if e.Namespace != "" {
		where = "in namespace " + e.Namespace
	}
	return fmt.Sprintf("not allowed to %s %s %s", e.Verb, e.Resource, where)
}

func (e *AccessError) Unwrap() error { return e.Err }

// recorder is one live recording.
type recorder struct {
	o     Options
	t     tuning
	api   *api
	clock *serverClock
	stop  context.CancelCauseFunc

	mu     sync.Mutex // holds the order of lines and all below
	wr     *roll.Writer
	counts Counts
	err    error
	sel    *selection
	alive  map[string]map[string]roll.ObjectReference // resource → UID → what was written and lives; no Events
	events map[string]string                          // UID → resourceVersion of those that were written
	follow *follows
}

// Live records until ctx ends or writing fails. It writes nothing and returns an error when the recording cannot begin:
// unreachable, refused, or nothing selected. Once it has begun nothing but a failure to write ends it early; what it
// cannot see meanwhile becomes gaps. When ctx ends it writes the footer and returns nil.
//
// Every line is one Write of w.
func Live(ctx context.Context, w io.Writer, o Options) (Counts, error) {
	r := &recorder{
		o: o, t: o.tuning.withDefaults(),
		alive: map[string]map[string]roll.ObjectReference{}, events: map[string]string{},
	}
	if r.o.Note == nil {
		r.o.Note = func(string) {}
	}
	if r.o.Live == nil {
		r.o.Live = func() {}
	}
	r.clock = &serverClock{now: o.Now}
	var err error
	if r.api, err = newAPI(o.Config, r.clock); err != nil {
		return Counts{}, err
	}
	started := o.Now().UTC()
	lists, err := r.listAll(ctx)
	if err != nil {
		return Counts{}, orDone(ctx, err)
	}
	header := roll.Header{
		Tool: o.Tool, Source: "watch", StartedAt: started, Logs: o.Logs, Cluster: r.api.clusterUID(ctx),
	}
	if o.Namespace != "" {
		header.Namespaces = []string{o.Namespace}
	}
	if o.Selector != nil && !o.Selector.Empty() {
		header.Selector = o.Selector.String()
	}
	for _, ref := range o.Objects {
		header.Objects = append(header.Objects, ref.String())
	}
	for _, l := range lists {
		header.Resources = append(header.Resources, l.resource)
	}
	r.sel = newSelection(o.Objects, o.Selector, header.Resources)
	if err := r.checkSelected(lists); err != nil {
		return Counts{}, err
	}
	if err := r.checkAccess(ctx); err != nil {
		return Counts{}, err
	}
	if err := ctx.Err(); err != nil {
		return Counts{}, err
	}
	if r.wr, err = roll.NewWriter(w, header); err != nil {
		return Counts{}, err
	}
	return r.run(ctx, lists, started)
}

// orDone prefers the end of the context to the errors that it causes.
func orDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// run records after the header was written.
func (r *recorder) run(ctx context.Context, lists []list, started time.Time) (Counts, error) {
	outer := ctx
	ctx, r.stop = context.WithCancelCause(ctx)
	defer r.stop(nil)
	if r.o.Logs {
		r.follow = newFollows(ctx, r, started.Add(-logLead))
	}
	var wg, opening sync.WaitGroup
	watchers := make([]*watcher, 0, len(lists))
	for _, l := range lists {
		r.mu.Lock()
		for _, o := range l.items {
			r.handle(roll.Line{ReceivedAt: l.at, Resource: l.resource, Op: roll.OpListed, Object: o})
		}
		r.mu.Unlock()
		watchers = append(watchers, &watcher{r: r, resource: l.resource, rv: l.rv, last: l.at})
	}
	for _, w := range watchers {
		opening.Add(1)
		w.opened = sync.OnceFunc(opening.Done)
		wg.Go(func() {
			defer w.opened()
			w.run(ctx)
		})
	}
	wg.Go(func() {
		opening.Wait()
		if ctx.Err() == nil {
			r.o.Live()
		}
	})
	wg.Go(func() { r.measureClock(ctx) })

	<-ctx.Done()
	wg.Wait()
	if r.follow != nil {
		r.follow.wg.Wait()
	}
	end := r.now()
	for _, w := range watchers {
		w.finish(end)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		reason := StopInterrupted
		var s Stop
		if errors.As(context.Cause(outer), &s) {
			reason = string(s)
		}
		r.err = r.wr.Close(reason, end)
	}
	return r.counts, r.err
}

func (r *recorder) now() time.Time { return r.o.Now().UTC() }

// list is the first list of one resource.
type list struct {
	resource, rv string
	items        []*roll.Object
	at           time.Time
}

// listAll lists every resource, owners before what they own. A resource that may not be read is left out with a note,
// unless the recording is nothing without it.
func (r *recorder) listAll(ctx context.Context) ([]list, error) {
	required := map[string]bool{roll.ResourcePods: true}
	for _, ref := range r.o.Objects {
		required[ref.Resource] = true
		if ref.Resource == roll.ResourceDeployments {
			required[roll.ResourceReplicaSets] = true
		}
	}
	var lists []list
	var without []string
	for _, resource := range listOrder {
		items, rv, err := r.api.list(ctx, resource, r.o.Namespace)
		switch {
		case err == nil:
			lists = append(lists, list{resource: resource, rv: rv, items: items, at: r.now()})
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case apierrors.IsForbidden(err) && required[resource]:
			return nil, &AccessError{Verb: "list", Resource: resource, Namespace: r.o.Namespace, Err: err}
		case !required[resource] && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)):
			without = append(without, resource)
		default:
			return nil, fmt.Errorf("list %s: %w", resource, err)
		}
	}
	if len(without) > 0 {
		r.o.Note(fmt.Sprintf("not allowed to list %s: recording without them", strings.Join(without, ", ")))
	}
	return lists, nil
}

// listOrder is owners first, and last what only speaks of others.
var listOrder = []string{
	roll.ResourceDeployments, roll.ResourceStatefulSets, roll.ResourceDaemonSets, roll.ResourceJobs,
	roll.ResourceReplicaSets, roll.ResourceControllerRevisions, roll.ResourcePods,
	roll.ResourceEndpointSlices, roll.ResourceEvents, roll.ResourceNodes,
}

// checkSelected refuses a selection that holds nothing: it is most likely a wrong name.
func (r *recorder) checkSelected(lists []list) error {
	if r.o.AllowEmpty {
		return nil
	}
	where := "in all namespaces"
	if r.o.Namespace != "" {
		where = "in namespace " + r.o.Namespace
	}
	for _, ref := range r.o.Objects {
		found := slices.ContainsFunc(lists, func(l list) bool {
			named := func(o *roll.Object) bool { return o.Metadata.Name == ref.Name }
			return l.resource == ref.Resource && slices.ContainsFunc(l.items, named)
		})
		if !found {
			return fmt.Errorf("%s not found %s: %w", ref, where, ErrNothingSelected)
		}
	}
	for _, l := range lists {
		if l.resource == roll.ResourceNodes || l.resource == roll.ResourceEvents {
			continue
		}
		for _, o := range l.items {
			if len(r.o.Objects) > 0 || r.sel.all() || r.sel.labelled(o) {
				return nil
			}
		}
	}
	if r.sel.all() {
		return fmt.Errorf("there is no pod and no workload %s: %w", where, ErrNothingSelected)
	}
	return fmt.Errorf("no pod and no workload matches %q %s: %w", r.o.Selector, where, ErrNothingSelected)
}

// checkAccess asks whether pods may be watched and logs read: their lists do not say. An API server that does not answer
// is believed to allow it.
func (r *recorder) checkAccess(ctx context.Context) error {
	ask := []AccessError{{Verb: "watch", Resource: "pods", Namespace: r.o.Namespace}}
	if r.o.Logs {
		ask = append(ask, AccessError{Verb: "get", Resource: "pods/log", Namespace: r.o.Namespace})
	}
	for _, a := range ask {
		if allowed, err := r.api.mayI(ctx, a.Verb, a.Resource, a.Namespace); err == nil && !allowed {
			return &a
		}
	}
	return nil
}

// write appends one line; r.mu is held. The first failure ends the recording.
func (r *recorder) write(l roll.Line) {
	if r.err != nil {
		return
	}
	if r.err = r.wr.Write(l); r.err != nil {
		r.stop(r.err)
		return
	}
	r.counts.add(l)
}

// writeLine is write for those that do not hold r.mu.
func (r *recorder) writeLine(l roll.Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.write(l)
}

// handle writes an object's line if the object is selected, now or when its owner is known; r.mu is held.
func (r *recorder) handle(l roll.Line) {
	uid := l.Object.Metadata.UID
	yes, wait := r.sel.decide(l)
	switch {
	case wait != "":
		r.sel.postpone(wait, l)
		return
	case !yes:
		r.counts.Skipped++
	default:
		r.write(l)
		r.track(l)
	}
	if uid == "" {
		return
	}
	for _, waiting := range r.sel.resolved(l, yes) {
		r.handle(waiting)
	}
}

// track keeps what is alive and tells the logs of pods.
func (r *recorder) track(l roll.Line) {
	m := r.alive[l.Resource]
	if m == nil {
		m = map[string]roll.ObjectReference{}
		r.alive[l.Resource] = m
	}
	uid := l.Object.Metadata.UID
	switch {
	case l.Op == roll.OpDeleted:
		delete(m, uid)
		delete(r.events, uid)
	case l.Resource == roll.ResourceEvents:
		r.events[uid] = l.Object.Metadata.ResourceVersion
	default:
		m[uid] = reference(l.Object)
	}
	if l.Resource == roll.ResourcePods && r.follow != nil {
		r.follow.update(l.Object, l.Op == roll.OpDeleted, l.ReceivedAt)
	}
}

// relisted writes a gap that ended in a list, and the list.
func (r *recorder) relisted(gap roll.WatchGap, items []*roll.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	listed := map[string]bool{}
	for _, o := range items {
		listed[o.Metadata.UID] = true
	}
	gap.Vanished = vanished(r.alive[gap.Resource], listed)
	for _, ref := range gap.Vanished {
		if gap.Resource == roll.ResourcePods && r.follow != nil {
			r.follow.gone(ref.UID)
		}
	}
	r.write(roll.Line{ReceivedAt: gap.To, Gap: &gap})
	r.o.Note(fmt.Sprintf("the watch of %s was interrupted (%s) and listed again: what happened in between is a gap",
		gap.Resource, gap.Reason))
	for _, o := range items {
		if gap.Resource == roll.ResourceEvents && r.events[o.Metadata.UID] == o.Metadata.ResourceVersion {
			continue // it was written when it came
		}
		r.handle(roll.Line{ReceivedAt: gap.To, Resource: gap.Resource, Op: roll.OpListed, Object: o})
	}
}

// Ref names an object by resource and name.
type Ref struct{ Resource, Name string }

func (r Ref) String() string {
	return strings.ToLower(roll.KindOfResource(r.Resource)) + "/" + r.Name
}

// refTypes are the TYPEs of a Ref with kubectl's short names.
var refTypes = map[string]string{
	"po": roll.ResourcePods, "deploy": roll.ResourceDeployments, "sts": roll.ResourceStatefulSets,
	"ds": roll.ResourceDaemonSets, "rs": roll.ResourceReplicaSets,
}

// ParseRef reads TYPE/NAME as kubectl does: deployment/cart, deploy/cart, deployments.apps/cart.
func ParseRef(s string) (Ref, error) {
	typ, name, ok := strings.Cut(s, "/")
	if !ok || typ == "" || name == "" || strings.Contains(name, "/") {
		return Ref{}, fmt.Errorf("%q is not TYPE/NAME", s)
	}
	typ, _, _ = strings.Cut(strings.ToLower(typ), ".")
	for _, resource := range []string{
		roll.ResourcePods, roll.ResourceDeployments, roll.ResourceStatefulSets, roll.ResourceDaemonSets,
		roll.ResourceReplicaSets, roll.ResourceJobs,
	} {
		if typ == resource || typ+"s" == resource || refTypes[typ] == resource {
			return Ref{Resource: resource, Name: name}, nil
		}
	}
	return Ref{}, fmt.Errorf("%q: TYPE must be pod, deployment, statefulset, daemonset, replicaset or job", s)
}
