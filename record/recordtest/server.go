// Package recordtest simulates the API server of a large cluster, for tests of what records from it: lists with pages,
// watches with bookmarks, logs, and streams that stall, break and expire.
package recordtest

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Config sizes a Server. The zero value of a field that is not said to be needed switches off what it is about.
type Config struct {
	// Pods is how many pods live at any time. The first LogPods of them run, write logs and are never replaced; the others
	// ended before the clock began, so nobody follows their logs.
	Pods, LogPods int
	// CutEvery is the number of events after which a watch is cut: in turns by a plain end and in the middle of an event.
	CutEvery int
	// LogCutEvery is the number of lines after which a log's stream ends plainly.
	LogCutEvery int
	// StallEvery is the number of events after which a watch stalls for Stall.
	StallEvery int
	Stall      time.Duration
	// BookmarkEvery is the number of events between two bookmarks of a watch.
	BookmarkEvery int
	// ExpireToken is the page of the first list of pods whose continue token is answered by 410, as when a list lasts
	// longer than etcd keeps its revision.
	ExpireToken int
	// Now stamps events and log lines; needed.
	Now func() time.Time
}

// Sent is one watch event that the server made.
type Sent struct {
	ResourceVersion int
	Resource        string // pods or events
	Op              string // ADDED, MODIFIED or DELETED
	UID             string
}

// Server is a simulated API server. Its methods may be called from several goroutines.
type Server struct {
	c     Config
	start time.Time
	done  chan struct{}

	mu        sync.Mutex
	rv        int
	made      int // events, which decides what the next one is
	next      int // the pod that is changed next
	pods      []pod
	events    []event
	serial    int // of core Events
	history   map[string]*history
	snapshots map[string]snapshot
	logs      *logs
	oldest    int // a watch from before is expired
	cuts      int
	tokenDue  int
}

// pod is one state of one pod; the rest of it follows from its number.
type pod struct {
	index, incarnation int
	rv, changes        int
	at                 time.Time // of the change
}

// event is a core Event about a pod.
type event struct {
	serial, rv int
	about      pod
	at         time.Time
}

// history is what happened to one resource, for watches; changed is closed and replaced when it grows.
type history struct {
	changed chan struct{}
	items   []change
}

type change struct {
	rv    int
	op    string
	pod   pod
	event *event
}

// snapshot is the state that the pages of one list show.
type snapshot struct {
	pods   []pod
	events []event
}

// logs are the times of the lines; every pod that logs writes all of them.
type logs struct {
	changed chan struct{}
	stamps  []time.Time
}

// liveEvents is how many core Events there are at any time.
const liveEvents = 500

// New makes a server; it is an [http.Handler].
func New(c Config) *Server {
	s := &Server{
		c: c, start: c.Now(), done: make(chan struct{}), rv: 1000, next: c.LogPods, tokenDue: c.ExpireToken,
		history: map[string]*history{
			"pods": {changed: make(chan struct{})}, "events": {changed: make(chan struct{})}, "": {changed: make(chan struct{})},
		},
		snapshots: map[string]snapshot{}, logs: &logs{changed: make(chan struct{})},
	}
	for i := range c.Pods {
		s.rv++
		s.pods = append(s.pods, pod{index: i, rv: s.rv, at: s.start})
	}
	for range liveEvents {
		s.rv++
		s.serial++
		s.events = append(s.events, event{serial: s.serial, rv: s.rv, about: s.pods[s.serial%c.Pods], at: s.start})
	}
	return s
}

// Close ends every stream.
func (s *Server) Close() { close(s.done) }

// Emit makes n watch events and returns them: of ten, seven change a pod, one deletes one, one adds its successor, and in
// turns one adds a core Event and one deletes the oldest. So the number of live objects stays.
func (s *Server) Emit(n int) []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := make([]Sent, 0, n)
	for range n {
		sent = append(sent, s.emit())
	}
	for _, resource := range []string{"pods", "events"} {
		s.history[resource].wake()
	}
	return sent
}

func (h *history) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (s *Server) emit() Sent {
	s.rv++
	kind := s.made % 10
	turn := s.made / 10
	s.made++
	at := s.c.Now()
	switch kind {
	case 9:
		if turn%2 == 0 {
			s.serial++
			e := event{serial: s.serial, rv: s.rv, about: s.pods[s.next%s.c.Pods], at: at}
			s.events = append(s.events, e)
			return s.note("events", change{rv: s.rv, op: "ADDED", event: &e}, e.uid())
		}
		e := s.events[0]
		s.events = slices.Clone(s.events[1:])
		e.rv, e.at = s.rv, at
		return s.note("events", change{rv: s.rv, op: "DELETED", event: &e}, e.uid())
	case 7, 8: // the same pod: its end, and its successor
		i := s.c.LogPods + turn%(s.c.Pods-s.c.LogPods)
		p := &s.pods[i]
		op := "DELETED"
		if kind == 8 {
			op = "ADDED"
			p.incarnation, p.changes = p.incarnation+1, 0
		}
		p.rv, p.at = s.rv, at
		return s.note("pods", change{rv: s.rv, op: op, pod: *p}, p.uid())
	}
	s.next = (s.next + 7) % s.c.Pods
	p := &s.pods[s.next]
	p.rv, p.at, p.changes = s.rv, at, p.changes+1
	return s.note("pods", change{rv: s.rv, op: "MODIFIED", pod: *p}, p.uid())
}

func (s *Server) note(resource string, c change, uid string) Sent {
	h := s.history[resource]
	h.items = append(h.items, c)
	return Sent{ResourceVersion: c.rv, Resource: resource, Op: c.op, UID: uid}
}

// Log makes every pod that logs write n lines: "line 1", "line 2" and so on, with some padding.
func (s *Server) Log(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.logs.stamps = append(s.logs.stamps, s.c.Now())
	}
	close(s.logs.changed)
	s.logs.changed = make(chan struct{})
}

// Expire forgets the history and cuts every watch: only a new list tells the present.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	s.oldest = s.rv
	for _, h := range s.history {
		h.wake()
	}
}

// Cuts returns how many watches and log streams were cut.
func (s *Server) Cuts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cuts
}

func (s *Server) noteCut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts++
}

// ServeHTTP answers as an API server does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	last := parts[len(parts)-1]
	w.Header().Set("Content-Type", "application/json")
	switch {
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"status":{"allowed":true}}`)
	case last == "log":
		s.serveLog(w, r, parts[len(parts)-2])
	case q.Get("watch") != "":
		s.serveWatch(w, r, last)
	case len(parts) > 1 && parts[len(parts)-2] == "pods":
		s.servePod(w, last)
	case discovery[r.URL.Path] != "":
		fmt.Fprint(w, discovery[r.URL.Path])
	case last == "kube-system":
		fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"recordtest"}}`)
	default:
		s.serveList(w, r, last)
	}
}

// discovery is as much of it as kubectl needs to know what pods are.
var discovery = map[string]string{
	"/version": `{"major":"1","minor":"37","gitVersion":"v1.37.0"}`,
	"/api":     `{"kind":"APIVersions","versions":["v1"]}`,
	"/apis":    `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
	"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod",` +
		`"namespaced":true,"kind":"Pod","verbs":["get","list","watch"],"shortNames":["po"]}]}`,
}

func fail(w http.ResponseWriter, code int, reason string) {
	w.WriteHeader(code)
	fmt.Fprint(w, status(code, reason))
}

func status(code int, reason string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":%d,"reason":%q,"message":%q}`,
		code, reason, reason)
}

func (s *Server) servePod(w http.ResponseWriter, name string) {
	s.mu.Lock()
	i := slices.IndexFunc(s.pods[:s.c.LogPods], func(p pod) bool { return p.name() == name })
	var p pod
	if i >= 0 {
		p = s.pods[i]
	}
	s.mu.Unlock()
	if i < 0 {
		fail(w, http.StatusNotFound, "NotFound")
		return
	}
	w.Write(s.appendPod(nil, p))
}

// serveList writes a list, or the page of it that the request asks for.
func (s *Server) serveList(w http.ResponseWriter, r *http.Request, resource string) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	rv, from, page := "", 0, 1
	s.mu.Lock()
	if token := q.Get("continue"); token != "" {
		rv, _, _ = strings.Cut(token, "/")
		fmt.Sscanf(token, rv+"/%d/%d", &from, &page)
	} else {
		rv = strconv.Itoa(s.rv)
		s.snapshots[resource+rv] = snapshot{pods: slices.Clone(s.pods), events: slices.Clone(s.events)}
	}
	snap, ok := s.snapshots[resource+rv]
	if resource == "pods" && s.tokenDue > 0 && page == s.tokenDue {
		s.tokenDue, ok = 0, false
	}
	s.mu.Unlock()
	if !ok {
		fail(w, http.StatusGone, "Expired")
		return
	}
	n, render := s.items(resource, snap)
	to := n
	token := ""
	if limit > 0 && from+limit < n {
		to = from + limit
		token = fmt.Sprintf("%s/%d/%d", rv, to, page+1)
	} else {
		s.mu.Lock()
		delete(s.snapshots, resource+rv)
		s.mu.Unlock()
	}
	var b []byte
	b = fmt.Appendf(b, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":%q,"continue":%q},"items":[`, rv, token)
	for i := from; i < to; i++ {
		if i > from {
			b = append(b, ',')
		}
		b = render(b, i)
		if len(b) > 1<<20 {
			w.Write(b)
			b = b[:0]
		}
	}
	w.Write(append(b, "]}"...))
}

// podsAWorkload is how many pods a Deployment has.
const podsAWorkload = 20

// items returns how many items a list has, and what appends one of them.
func (s *Server) items(resource string, snap snapshot) (n int, render func(b []byte, i int) []byte) {
	workloads := (len(snap.pods) + podsAWorkload - 1) / podsAWorkload
	switch resource {
	case "pods":
		return len(snap.pods), func(b []byte, i int) []byte { return s.appendPod(b, snap.pods[i]) }
	case "events":
		return len(snap.events), func(b []byte, i int) []byte { return s.appendEvent(b, snap.events[i]) }
	case "deployments", "replicasets":
		return workloads, func(b []byte, i int) []byte { return appendWorkload(b, resource, i) }
	case "endpointslices":
		return workloads, func(b []byte, i int) []byte {
			return appendSlice(b, i, snap.pods[i*podsAWorkload:min(len(snap.pods), (i+1)*podsAWorkload)])
		}
	case "nodes":
		return (len(snap.pods) + podsANode - 1) / podsANode, appendNode
	}
	return 0, nil
}

// serveWatch writes what happens to a resource after the resourceVersion that the request names.
func (s *Server) serveWatch(w http.ResponseWriter, r *http.Request, resource string) {
	q := r.URL.Query()
	rv, err := strconv.Atoi(q.Get("resourceVersion"))
	if err != nil {
		fail(w, http.StatusBadRequest, "BadRequest")
		return
	}
	s.mu.Lock()
	h := s.history[resource]
	if h == nil {
		h = s.history[""]
	}
	begun := s.oldest
	from, _ := slices.BinarySearchFunc(h.items, rv+1, func(c change, rv int) int { return c.rv - rv })
	s.mu.Unlock()
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	if rv < begun {
		fmt.Fprintf(w, `{"type":"ERROR","object":%s}`+"\n", status(http.StatusGone, "Expired"))
		return
	}
	var b []byte
	for sent := 0; ; {
		if rc.Flush() != nil {
			return
		}
		s.mu.Lock()
		changed, fresh, expired := h.changed, h.items[from:], s.oldest != begun
		s.mu.Unlock()
		if expired {
			return
		}
		for _, c := range fresh {
			from++
			sent++
			b = s.appendChange(b[:0], c)
			if every := s.c.CutEvery; every > 0 && sent == every {
				s.noteCut()
				if c.rv%2 == 0 {
					w.Write(b[:len(b)/2])
					rc.Flush()
					panic(http.ErrAbortHandler)
				}
				return
			}
			if every := s.c.StallEvery; every > 0 && sent%every == 0 && !s.sleep(r, s.c.Stall) {
				return
			}
			if _, err := w.Write(b); err != nil {
				return
			}
			if every := s.c.BookmarkEvery; every > 0 && sent%every == 0 && q.Get("allowWatchBookmarks") == "true" {
				fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`+"\n",
					map[string]string{"pods": "Pod", "events": "Event"}[resource], c.rv)
			}
		}
		if len(fresh) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-s.done:
			return
		}
	}
}

func (s *Server) sleep(r *http.Request, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
	case <-s.done:
	}
	return false
}

// serveLog writes the log of the pod of this name.
func (s *Server) serveLog(w http.ResponseWriter, r *http.Request, name string) {
	q := r.URL.Query()
	since, _ := time.Parse(time.RFC3339, q.Get("sinceTime"))
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	var b bytes.Buffer
	written := 0
	for sent := 0; ; {
		if rc.Flush() != nil {
			return
		}
		s.mu.Lock()
		changed, fresh := s.logs.changed, s.logs.stamps[sent:]
		s.mu.Unlock()
		b.Reset()
		for _, at := range fresh {
			sent++
			if at.Before(since) {
				continue
			}
			fmt.Fprintf(&b, "%s line %d of %s: GET /cart/items 200 in 12ms, trace 0af7651916cd43dd8448eb211c80319c\n",
				at.UTC().Format(time.RFC3339Nano), sent, name)
			written++
			if s.c.LogCutEvery > 0 && written == s.c.LogCutEvery {
				w.Write(b.Bytes())
				s.noteCut()
				return
			}
		}
		if _, err := w.Write(b.Bytes()); err != nil || q.Get("follow") != "true" {
			return
		}
		if len(fresh) > 0 {
			continue
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-s.done:
			return
		}
	}
}
