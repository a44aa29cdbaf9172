package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// server is an API server that holds pods and nothing else, as far as a recorder and kubectl look: lists in pages, watches
// with bookmarks that are cut now and then and are slow now and then, and logs.
type server struct {
	pods, logs int
	lineEvery  time.Duration

	mu      sync.Mutex
	change  *sync.Cond
	names   []string // of pods, by index
	rv      int
	current []int   // resourceVersion of each pod
	history []event // every event that was sent, in order of resourceVersion
	cuts    int
	started int // log streams
	lines   int
	stopped bool
}

type event struct {
	rv, pod int
	at      time.Time
}

func newServer(pods, logs int, lineEvery time.Duration) *server {
	s := &server{pods: pods, logs: logs, lineEvery: lineEvery}
	s.change = sync.NewCond(&s.mu)
	for i := range pods {
		s.rv++
		s.names = append(s.names, fmt.Sprintf("web-%04d-7c9d8f6b5-%05d", i/100, i))
		s.current = append(s.current, s.rv)
	}
	return s
}

// modify sends n events for pods of the caller's choice.
func (s *server) modify(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		p := rand.IntN(s.pods)
		s.rv++
		s.current[p] = s.rv
		s.history = append(s.history, event{s.rv, p, time.Now()})
	}
	s.change.Broadcast()
}

func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.change.Broadcast()
}

// podJSON is about as long as a pod of a real cluster is.
func (s *server) podJSON(i, rv int) string {
	name := s.names[i]
	state := `"waiting":{"reason":"ContainerCreating"}`
	if i < s.logs {
		state = `"running":{"startedAt":"2026-12-01T11:00:03Z"}`
	}
	pad := strings.Repeat(`{"name":"SETTING_OF_THE_SERVICE","value":"a value of some length that a recording must not hold"},`, 12)
	return `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"` + name + `","generateName":"` + name[:18] + `","namespace":"ns` + strconv.Itoa(i%20) + `","uid":"` +
		fmt.Sprintf("%08d-0000-4000-8000-000000000000", i) + `","resourceVersion":"` + strconv.Itoa(rv) + `","creationTimestamp":"2026-12-01T11:00:00Z",
"labels":{"app":"web","pod-template-hash":"7c9d8f6b5"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-7c9d8f6b5","uid":"rs","controller":true}],
"managedFields":[{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"2026-12-01T11:00:03Z","fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{}}}}]},
"spec":{"nodeName":"node` + strconv.Itoa(i%200) + `","terminationGracePeriodSeconds":30,"containers":[{"name":"app","image":"registry.example/app:1","env":[` + strings.TrimSuffix(pad, ",") + `],
"lifecycle":{"preStop":{"sleep":{"seconds":5}}},"volumeMounts":[{"name":"kube-api-access","mountPath":"/var/run/secrets"}]}],"volumes":[{"name":"kube-api-access","projected":{"defaultMode":420}}]},
"status":{"phase":"Running","podIP":"10.1.` + strconv.Itoa(i/250) + `.` + strconv.Itoa(i%250) + `","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-12-01T11:00:05Z"}],
"containerStatuses":[{"name":"app","containerID":"containerd://` + fmt.Sprintf("%064d", i) + `","ready":true,"restartCount":0,"state":{` + state + `},"lastState":{}}]}}`
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	path := r.URL.Path
	switch {
	case path == "/version":
		fmt.Fprint(w, `{"major":"1","minor":"37","gitVersion":"v1.37.2"}`)
	case path == "/api":
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case path == "/apis":
		fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	case path == "/api/v1":
		fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"]}]}`)
	case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`)
	case strings.HasSuffix(path, "/log"):
		s.serveLog(w, r)
	case path == "/api/v1/pods" && r.URL.Query().Get("watch") != "":
		s.serveWatch(w, r)
	case path == "/api/v1/pods":
		s.serveList(w, r)
	case r.URL.Query().Get("watch") != "":
		s.serveQuiet(w, r)
	case strings.HasPrefix(path, "/api/v1/namespaces/"):
		http.Error(w, `{"kind":"Status","status":"Failure","reason":"NotFound","code":404}`, http.StatusNotFound)
	default: // an empty list of some other resource
		fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
	}
}

func (s *server) serveList(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	to := s.pods
	if limit > 0 {
		to = min(to, from+limit)
	}
	next := ""
	if to < s.pods {
		next = strconv.Itoa(to)
	}
	s.mu.Lock()
	rv, versions := s.rv, append([]int(nil), s.current[from:to]...)
	s.mu.Unlock()
	if next != "" || from > 0 {
		rv = s.pods // all pages are of one moment: that before any event
		for i := range versions {
			versions[i] = from + i + 1
		}
	}
	fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d","continue":"%s"},"items":[`, rv, next)
	for i := from; i < to; i++ {
		if i > from {
			fmt.Fprint(w, ",")
		}
		fmt.Fprint(w, s.podJSON(i, versions[i-from]))
	}
	fmt.Fprint(w, "]}")
}

// serveWatch sends what came after the resourceVersion; after 5 to 15 s it ends, in one of two cases without a clean end,
// and every few seconds it holds everything back for half a second.
func (s *server) serveWatch(w http.ResponseWriter, r *http.Request) {
	rv, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	flush := w.(http.Flusher)
	flush.Flush()
	end, slow := time.Now().Add(time.Duration(5+rand.IntN(10))*time.Second), time.Now().Add(3*time.Second)
	keep := r.Header.Get("User-Agent") != "" && strings.HasPrefix(r.Header.Get("User-Agent"), "kubectl") // kubectl does not resume
	for r.Context().Err() == nil {
		s.mu.Lock()
		for s.rv <= rv && !s.stopped && (keep || time.Now().Before(end)) {
			s.change.Wait()
		}
		if s.stopped && s.rv <= rv {
			s.mu.Unlock()
			return
		}
		next := s.history[max(0, rv-s.pods):]
		next = append([]event(nil), next[:min(len(next), 200)]...)
		cut := !keep && !time.Now().Before(end)
		if cut {
			s.cuts++
		}
		s.mu.Unlock()
		for _, e := range next {
			fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", s.podJSON(e.pod, e.rv))
			rv = e.rv
		}
		flush.Flush()
		if cut {
			if rand.IntN(2) == 0 {
				panic(http.ErrAbortHandler)
			}
			return
		}
		if !keep && time.Now().After(slow) {
			slow = time.Now().Add(3 * time.Second)
			time.Sleep(500 * time.Millisecond)
		}
	}
}

// serveQuiet is a watch on which nothing happens.
func (s *server) serveQuiet(w http.ResponseWriter, r *http.Request) {
	kind := roll.KindOfResource(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:])
	w.(http.Flusher).Flush()
	for t := time.NewTicker(time.Second); ; {
		select {
		case <-r.Context().Done():
			return
		case <-t.C:
			s.mu.Lock()
			stopped := s.stopped
			s.mu.Unlock()
			if stopped {
				return
			}
			fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":"%s","metadata":{"resourceVersion":"1"}}}`+"\n", kind)
			w.(http.Flusher).Flush()
		}
	}
}

func (s *server) serveLog(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.(http.Flusher).Flush()
	if r.URL.Query().Get("follow") != "true" {
		return
	}
	s.mu.Lock()
	s.started++
	s.mu.Unlock()
	t := time.NewTicker(s.lineEvery)
	defer t.Stop()
	for n := 0; ; n++ {
		select {
		case <-r.Context().Done():
			return
		case <-t.C:
		}
		s.mu.Lock()
		stopped := s.stopped
		s.lines++
		s.mu.Unlock()
		if stopped {
			return
		}
		line, _ := json.Marshal(map[string]any{"level": "INFO", "msg": "a line of an ordinary length, as services write them", "n": n})
		fmt.Fprintf(w, "%s %s\n", time.Now().UTC().Format(time.RFC3339Nano), line)
		w.(http.Flusher).Flush()
	}
}
