package record_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// pipeNet is a network inside of a synctest bubble.
type pipeNet struct {
	conns chan net.Conn
	done  chan struct{}

	mu   sync.Mutex
	down bool
	open []net.Conn
}

func (n *pipeNet) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}
func (n *pipeNet) Close() error   { return nil }
func (n *pipeNet) Addr() net.Addr { return &net.TCPAddr{} }

func (n *pipeNet) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	down := n.down
	client, server := net.Pipe()
	n.open = append(n.open, client, server)
	n.mu.Unlock()
	if down {
		return nil, fmt.Errorf("connection refused")
	}
	select {
	case n.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// cut breaks every connection; down says whether new ones are refused from now on.
func (n *pipeNet) cut(down bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = down
	for _, c := range n.open {
		c.Close()
	}
	n.open = nil
}

type obj = map[string]any

// fakeAPI is an API server with one kubelet: it lists, watches with bookmarks and 410, and serves logs.
type fakeAPI struct {
	t   *testing.T
	net *pipeNet

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at every change
	rv        int
	oldest    int // watches from an older resourceVersion are expired
	store     map[string]map[string]obj
	history   []fakeEvent
	logs      map[string]*fakeLog // by container id
	forbidden map[string]bool     // "list pods", "watch nodes", "get pods/log"
	current   map[string]string   // pod → id of the run whose log the kubelet gives, when no status says so yet
	refuseLog int                 // status of log requests while the kubelet is away
	streams   int                 // generation of watch streams: raised, all end plainly
	logCuts   int                 // the same of log streams
	dateSkew  time.Duration
}

type fakeEvent struct {
	rv       int
	resource string
	typ      string
	object   obj
}

// fakeLog is the log of one run of one container.
type fakeLog struct {
	lines []fakeLine
	ended bool
	abort bool // a reading breaks after the last line
}

type fakeLine struct {
	at   time.Time
	text string
	raw  bool // without a stamp: the kubelet's own word
}

func newFakeAPI(t *testing.T) *fakeAPI {
	a := &fakeAPI{
		t: t, net: &pipeNet{conns: make(chan net.Conn), done: make(chan struct{})}, changed: make(chan struct{}), rv: 100,
		store: map[string]map[string]obj{}, logs: map[string]*fakeLog{}, forbidden: map[string]bool{}, current: map[string]string{},
	}
	srv := &http.Server{Handler: http.HandlerFunc(a.serve)}
	go srv.Serve(a.net)
	t.Cleanup(func() {
		close(a.net.done)
		srv.Close()
		a.net.cut(true)
		a.update(func() {})
	})
	return a
}

func (a *fakeAPI) config(t *testing.T) *rest.Config {
	tr := &http.Transport{DialContext: a.net.dial}
	t.Cleanup(tr.CloseIdleConnections)
	return &rest.Config{Host: "http://api", Transport: tr}
}

// update changes the server's state and wakes everything that waits for it.
func (a *fakeAPI) update(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	close(a.changed)
	a.changed = make(chan struct{})
}

// put adds or changes an object and returns its resourceVersion.
func (a *fakeAPI) put(resource string, o obj) {
	a.update(func() {
		a.rv++
		m := o["metadata"].(obj)
		m["resourceVersion"] = strconv.Itoa(a.rv)
		key := fmt.Sprint(m["namespace"], "/", m["name"])
		if a.store[resource] == nil {
			a.store[resource] = map[string]obj{}
		}
		typ := "MODIFIED"
		if a.store[resource][key] == nil {
			typ = "ADDED"
		}
		a.store[resource][key] = clone(o)
		a.history = append(a.history, fakeEvent{a.rv, resource, typ, clone(o)})
	})
}

// remove deletes an object.
func (a *fakeAPI) remove(resource, name string) {
	a.update(func() {
		key := "shop/" + name
		o := a.store[resource][key]
		if o == nil {
			panic("no " + resource + " " + key)
		}
		a.rv++
		o["metadata"].(obj)["resourceVersion"] = strconv.Itoa(a.rv)
		delete(a.store[resource], key)
		a.history = append(a.history, fakeEvent{a.rv, resource, "DELETED", o})
	})
}

// bookmark sends a bookmark on every watch of a resource.
func (a *fakeAPI) bookmark(resource, kind string) {
	a.update(func() {
		a.rv++
		o := obj{"kind": kind, "apiVersion": "v1", "metadata": obj{"resourceVersion": strconv.Itoa(a.rv)}, "spec": obj{"containers": nil}}
		a.history = append(a.history, fakeEvent{a.rv, resource, "BOOKMARK", o})
	})
}

// expire forgets the history: watches that go on from before are expired.
func (a *fakeAPI) expire() { a.update(func() { a.rv++; a.oldest = a.rv }) }

// endWatches ends every watch stream plainly.
func (a *fakeAPI) endWatches() { a.update(func() { a.streams++ }) }

// endLogs ends every log stream plainly, as a kubelet that stops does; status is the answer from now on, 0 for normal.
func (a *fakeAPI) endLogs(status int) { a.update(func() { a.logCuts++; a.refuseLog = status }) }

func (a *fakeAPI) log(id string, lines ...string) {
	a.update(func() {
		l := a.logOf(id)
		for _, s := range lines {
			l.lines = append(l.lines, fakeLine{at: time.Now(), text: s})
		}
	})
}

func (a *fakeAPI) logRaw(id, line string) {
	a.update(func() { a.logOf(id).lines = append(a.logOf(id).lines, fakeLine{text: line, raw: true}) })
}

func (a *fakeAPI) endLog(id string) { a.update(func() { a.logOf(id).ended = true }) }

func (a *fakeAPI) logOf(id string) *fakeLog {
	if a.logs[id] == nil {
		a.logs[id] = &fakeLog{}
	}
	return a.logs[id]
}

func clone(o obj) obj {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	var c obj
	if err := json.Unmarshal(b, &c); err != nil {
		panic(err)
	}
	return c
}

func status(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(obj{
		"kind": "Status", "apiVersion": "v1", "metadata": obj{}, "status": "Failure", "code": code, "reason": reason, "message": reason,
	})
}

func (a *fakeAPI) serve(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a.mu.Lock()
	w.Header().Set("Date", time.Now().Add(a.dateSkew).UTC().Format(http.TimeFormat))
	a.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		var review struct {
			Spec struct {
				ResourceAttributes struct{ Verb, Resource, Subresource string }
			}
		}
		json.NewDecoder(r.Body).Decode(&review)
		at := review.Spec.ResourceAttributes
		name := at.Verb + " " + at.Resource
		if at.Subresource != "" {
			name += "/" + at.Subresource
		}
		a.mu.Lock()
		denied := a.forbidden[name]
		a.mu.Unlock()
		w.WriteHeader(http.StatusCreated)
		json.NewEncoder(w).Encode(obj{"status": obj{"allowed": !denied}})
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		json.NewEncoder(w).Encode(obj{"metadata": obj{"uid": "cluster-uid"}})
	case r.URL.Path == "/version":
		fmt.Fprint(w, "{}")
	case strings.HasSuffix(r.URL.Path, "/log"):
		a.serveLog(w, r, parts[len(parts)-2])
	case q.Get("watch") == "true":
		a.serveWatch(w, r, parts[len(parts)-1])
	case len(parts) > 1 && parts[len(parts)-2] == "pods":
		a.mu.Lock()
		o := a.store["pods"]["shop/"+parts[len(parts)-1]]
		b, _ := json.Marshal(o)
		forbidden := a.forbidden["get pods"]
		a.mu.Unlock()
		if forbidden {
			status(w, 403, "Forbidden")
			return
		}
		if o == nil {
			status(w, 404, "NotFound")
			return
		}
		w.Write(b)
	default:
		a.serveList(w, r, parts[len(parts)-1])
	}
}

func (a *fakeAPI) serveList(w http.ResponseWriter, r *http.Request, resource string) {
	a.mu.Lock()
	if a.forbidden["list "+resource] {
		a.mu.Unlock()
		status(w, 403, "Forbidden")
		return
	}
	var keys []string
	for k := range a.store[resource] {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	items := []obj{}
	meta := obj{"resourceVersion": strconv.Itoa(a.rv)}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	for i, k := range keys[from:] {
		if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && i == limit {
			meta["continue"] = strconv.Itoa(from + i)
			break
		}
		o := clone(a.store[resource][k])
		delete(o, "kind") // items of a list carry none
		delete(o, "apiVersion")
		items = append(items, o)
	}
	a.mu.Unlock()
	json.NewEncoder(w).Encode(obj{"kind": "List", "metadata": meta, "items": items})
}

func (a *fakeAPI) serveWatch(w http.ResponseWriter, r *http.Request, resource string) {
	rv, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	a.mu.Lock()
	generation, oldest, forbidden := a.streams, a.oldest, a.forbidden["watch "+resource]
	a.mu.Unlock()
	switch {
	case forbidden:
		status(w, 403, "Forbidden")
		return
	case err != nil:
		status(w, 400, "BadRequest")
		return
	}
	enc := json.NewEncoder(w)
	rc := http.NewResponseController(w)
	if rv < oldest {
		enc.Encode(obj{"type": "ERROR", "object": obj{"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired"}})
		return
	}
	w.WriteHeader(200)
	rc.Flush()
	for {
		a.mu.Lock()
		var send []fakeEvent
		for _, e := range a.history {
			if e.resource == resource && e.rv > rv {
				send = append(send, e)
			}
		}
		ended, changed := a.streams != generation, a.changed
		a.mu.Unlock()
		if ended {
			return
		}
		for _, e := range send {
			rv = e.rv
			if enc.Encode(obj{"type": e.typ, "object": e.object}) != nil {
				return
			}
		}
		if rc.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		case <-a.net.done:
			return
		}
	}
}

func (a *fakeAPI) serveLog(w http.ResponseWriter, r *http.Request, pod string) {
	q := r.URL.Query()
	since, _ := time.Parse(time.RFC3339, q.Get("sinceTime"))
	a.mu.Lock()
	generation, refuse := a.logCuts, a.refuseLog
	o := a.store["pods"]["shop/"+pod]
	id := ""
	if o != nil {
		id = containerID(o, q.Get("container"), q.Get("previous") == "true")
		if c := a.current[pod]; c != "" && q.Get("previous") != "true" {
			id = c
		}
	}
	a.mu.Unlock()
	switch {
	case o == nil:
		status(w, 404, "NotFound")
		return
	case refuse != 0:
		status(w, refuse, "InternalError")
		return
	case id == "":
		status(w, 400, "BadRequest")
		return
	}
	rc := http.NewResponseController(w)
	w.WriteHeader(200)
	rc.Flush()
	for sent := 0; ; {
		a.mu.Lock()
		l := a.logOf(id)
		lines, ended, abort, cut, changed := slices.Clone(l.lines[sent:]), l.ended, l.abort, a.logCuts != generation, a.changed
		a.mu.Unlock()
		if cut {
			return
		}
		sent += len(lines)
		for _, line := range lines {
			switch {
			case line.raw:
				fmt.Fprintln(w, line.text)
			case !line.at.Before(since):
				fmt.Fprintf(w, "%s %s\n", line.at.UTC().Format(time.RFC3339Nano), line.text)
			}
		}
		if err := rc.Flush(); err == nil && abort {
			panic(http.ErrAbortHandler)
		} else if err != nil || ended || q.Get("follow") != "true" {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		case <-a.net.done:
			return
		}
	}
}

func containerID(pod obj, container string, previous bool) string {
	st, _ := pod["status"].(obj)
	list, _ := st["containerStatuses"].([]any)
	for _, e := range list {
		s := e.(obj)
		if s["name"] != container {
			continue
		}
		if previous {
			last, _ := s["lastState"].(obj)
			t, _ := last["terminated"].(obj)
			id, _ := t["containerID"].(string)
			return id
		}
		id, _ := s["containerID"].(string)
		return id
	}
	return ""
}
