package record

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rolltrace/rolltrace/roll"
)

// watcher watches one resource. It is no informer: an informer hides when it lists again, and what that may have lost.
type watcher struct {
	r        *recorder
	resource string
	opened   func() // called when the watch was opened for the first time

	mu     sync.Mutex
	rv     string
	last   time.Time // of receipt
	cut    time.Time // when the interruption that lasts was noticed; zero without one
	again  time.Time // when the latest stream was opened
	from   time.Time // of that interruption: last, as it was then
	reason string
}

// The words for what interrupted a watch.
const (
	reasonExpired    = "expired"          // the server does not know the resourceVersion any more
	reasonEnded      = "watch-ended"      // the server or the network ended the stream
	reasonError      = "watch-error"      // the server answered with an error, or did not answer
	reasonForbidden  = "forbidden"        // it may not be watched
	reasonUnreadable = "unreadable-event" // an event could not be read, so another list is needed
)

// steady is how long a watch without events lasts that is no sign of trouble when it ends.
const steady = 30 * time.Second

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	b := backoff{min: w.r.t.retryMin, max: w.r.t.retryMax}
	noted := false
	for ctx.Err() == nil {
		body, err := w.r.api.watch(ctx, w.resource, w.r.o.Namespace, w.rv)
		relist := false
		switch {
		case ctx.Err() != nil:
		case err == nil:
			w.opened()
			begin := w.r.now()
			w.mu.Lock()
			w.again = begin
			w.mu.Unlock()
			var events bool
			if events, relist = w.read(ctx, body); events || w.r.now().Sub(begin) > steady {
				b.reset()
			}
		case isExpired(err):
			w.interrupt(reasonExpired)
			relist = true
		case apierrors.IsForbidden(err):
			w.interrupt(reasonForbidden)
			if !noted {
				noted = true
				w.r.o.Note(fmt.Sprintf("not allowed to watch %s: what happens to them is not recorded", w.resource))
			}
			w.opened() // it never will be, and the gap says so
		default:
			w.interrupt(reasonError)
		}
		if relist && w.relist(ctx, &b) {
			continue
		}
		if ctx.Err() == nil && !sleep(ctx, b.next()) {
			return
		}
	}
}

// read reads one stream to its end. It reports whether anything but an error came, and whether a list is needed.
func (w *watcher) read(ctx context.Context, body io.ReadCloser) (events, relist bool) {
	defer body.Close()
	confirm := time.AfterFunc(w.r.t.confirmAfter, w.resumed)
	defer confirm.Stop()
	dec := json.NewDecoder(body)
	for {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		err := dec.Decode(&e)
		switch {
		case ctx.Err() != nil:
			return events, false
		case err != nil:
			w.interrupt(reasonEnded)
			return events, false
		case e.Type == "ERROR":
			reason := statusReason(e.Object)
			w.interrupt(reason)
			return events, reason == reasonExpired
		}
		o, err := prune(w.resource, e.Object)
		if e.Type == "BOOKMARK" && o == nil {
			o, err = bookmark(e.Object)
		}
		op := roll.Op(e.Type)
		if err != nil || op != roll.OpAdded && op != roll.OpModified && op != roll.OpDeleted && e.Type != "BOOKMARK" {
			w.interrupt(reasonUnreadable)
			return events, true
		}
		w.resumed()
		events = true
		at := w.r.now()
		w.mu.Lock()
		w.rv, w.last = o.Metadata.ResourceVersion, at
		w.mu.Unlock()
		if e.Type == "BOOKMARK" {
			continue
		}
		w.r.mu.Lock()
		w.r.handle(roll.Line{ReceivedAt: at, Resource: w.resource, Op: op, Object: o})
		w.r.mu.Unlock()
	}
}

// bookmark reads the object of a BOOKMARK, which has a resourceVersion and no name.
func bookmark(raw []byte) (*roll.Object, error) {
	o, err := roll.Prune("", raw)
	if err != nil {
		return nil, jsonError(err)
	}
	if o.Metadata.ResourceVersion == "" {
		return nil, fmt.Errorf("bookmark without resourceVersion")
	}
	return o, nil
}

// interrupt notes that nothing comes any more. The first reason stays, but that a list is needed outweighs others.
func (w *watcher) interrupt(reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut.IsZero() {
		w.cut, w.from, w.reason = w.r.now(), w.last, reason
	}
	if reason == reasonExpired || reason == reasonUnreadable {
		w.reason = reason
	}
}

// resumed ends an interruption that lost nothing: the server accepted the resourceVersion that was the last.
func (w *watcher) resumed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut.IsZero() {
		return
	}
	if at := w.r.now(); w.again.Sub(w.cut) >= w.r.t.lateAfter {
		w.r.writeLine(roll.Line{ReceivedAt: at, Gap: &roll.WatchGap{
			Resource: w.resource, Reason: w.reason, From: w.from, To: at, Lossless: true,
		}})
	}
	w.cut = time.Time{}
}

// relist lists until it succeeds, and writes the gap; it reports whether it did.
func (w *watcher) relist(ctx context.Context, b *backoff) bool {
	for {
		items, rv, err := w.r.api.list(ctx, w.resource, w.r.o.Namespace)
		if err == nil {
			at := w.r.now()
			w.mu.Lock()
			gap := roll.WatchGap{Resource: w.resource, Reason: w.reason, From: w.from, To: at}
			w.rv, w.last, w.cut = rv, at, time.Time{}
			w.mu.Unlock()
			w.r.relisted(gap, items)
			return true
		}
		if !sleep(ctx, b.next()) {
			return false
		}
	}
}

// finish writes the gap of an interruption that lasts to the recording's end.
func (w *watcher) finish(end time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut.IsZero() {
		return
	}
	w.r.writeLine(roll.Line{ReceivedAt: end, Gap: &roll.WatchGap{
		Resource: w.resource, Reason: w.reason, From: w.from, To: end,
	}})
	w.cut = time.Time{}
}
