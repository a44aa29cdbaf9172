package correlate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/roll"
)

// Sources are what may be known of a roll beside its recording. Each narrows bounds that the recording gives, and none
// replaces them: a source that contradicts the recording is left out, and [roll.Timeline] has a gap that says so.
type Sources struct {
	// ShutdownLog matches a log line in which a process says that it got the stop signal; nil: what common servers write.
	ShutdownLog *regexp.Regexp
	// Audit are deletions as the API server took them.
	Audit []AuditedDelete
	// Exits are ends of containers as the container runtime saw them.
	Exits []RuntimeExit
	// Kills are the kubelet's own log lines before it has a container stopped.
	Kills []KubeletKill
}

// AuditedDelete is a request to delete or evict a pod, from an API server's audit log; its clock, µs.
type AuditedDelete struct {
	Namespace, Pod     string
	Received, Answered time.Time // the deletion happened between the two
}

// RuntimeExit is the end of a container's first process, from the runtime's events; the node's clock, ns.
type RuntimeExit struct {
	ContainerID string // without the runtime's name
	At          time.Time
	Status      int
}

// KubeletKill is the kubelet's line "Killing container with a grace period", which it writes when the preStop hook is over and
// before it has the runtime send the stop signal (pkg/kubelet/kuberuntime/kuberuntime_container.go, killContainer). Its
// clock, µs, without year and zone: UTC is assumed, and Year filled in from the recording.
type KubeletKill struct {
	PodUID, ContainerID string
	At                  time.Time // of year 0
}

// errNothingFound says that a file holds nothing of what it is read for.
var errNothingFound = errors.New("it holds none")

// eachLine calls f for every line of at most 4 MiB, longer ones are left out.
func eachLine(r io.Reader, f func([]byte)) error {
	br := bufio.NewReaderSize(r, 1<<16)
	var long []byte
	for skip := false; ; {
		b, err := br.ReadSlice('\n')
		if len(long)+len(b) > 4<<20 {
			skip, long = true, nil
		}
		if err == bufio.ErrBufferFull {
			if !skip {
				long = append(long, b...)
			}
			continue
		}
		if line := bytes.TrimSpace(append(long, b...)); !skip && len(line) > 0 {
			f(line)
		}
		skip, long = false, nil
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// ReadAudit reads an API server's audit log, JSON lines (audit.k8s.io/v1 Event): the deletions and evictions of pods that
// were granted. A file without any audit event is an error.
func ReadAudit(r io.Reader) ([]AuditedDelete, error) {
	var out []AuditedDelete
	events := 0
	err := eachLine(r, func(b []byte) {
		var e struct {
			Verb, Stage string
			ObjectRef   struct{ Resource, Subresource, Namespace, Name string }
			Status      struct{ Code int } `json:"responseStatus"`
			Received    time.Time          `json:"requestReceivedTimestamp"`
			Answered    time.Time          `json:"stageTimestamp"`
		}
		if json.Unmarshal(b, &e) != nil || e.Verb == "" || e.Received.IsZero() {
			return
		}
		events++
		del := e.Verb == "delete" && e.ObjectRef.Subresource == "" || e.Verb == "create" && e.ObjectRef.Subresource == "eviction"
		if !del || e.ObjectRef.Resource != "pods" || e.ObjectRef.Name == "" || e.Status.Code >= 300 || e.Status.Code == 0 || e.Answered.Before(e.Received) {
			return
		}
		if e.Stage != "" && e.Stage != "ResponseComplete" {
			return
		}
		out = append(out, AuditedDelete{e.ObjectRef.Namespace, e.ObjectRef.Name, e.Received.UTC(), e.Answered.UTC()})
	})
	if err == nil && events == 0 {
		err = errNothingFound
	}
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	return out, nil
}

// ReadRuntimeEvents reads containerd's task events as `ctr events` prints them, one a line: time, namespace, topic, JSON. A
// file without any task event is an error.
func ReadRuntimeEvents(r io.Reader) ([]RuntimeExit, error) {
	var out []RuntimeExit
	events := 0
	err := eachLine(r, func(b []byte) {
		if b[0] == '{' { // the same line as a JSON string
			var l struct{ Line string }
			if json.Unmarshal(b, &l) != nil {
				return
			}
			b = []byte(l.Line)
		}
		head, body, ok := bytes.Cut(b, []byte("{"))
		if !ok || !bytes.Contains(head, []byte("/tasks/")) {
			return
		}
		events++
		if !bytes.Contains(head, []byte("/tasks/exit ")) {
			return
		}
		var e struct {
			ContainerID string `json:"container_id"`
			ID          string `json:"id"`
			Status      int    `json:"exit_status"`
			ExitedAt    struct {
				Seconds int64 `json:"seconds"`
				Nanos   int64 `json:"nanos"`
			} `json:"exited_at"`
		}
		// Another id than the container's is that of a process that was executed in it.
		if json.Unmarshal(append([]byte("{"), body...), &e) != nil || e.ID != e.ContainerID || e.ID == "" || e.ExitedAt.Seconds <= 0 {
			return
		}
		out = append(out, RuntimeExit{e.ContainerID, time.Unix(e.ExitedAt.Seconds, e.ExitedAt.Nanos).UTC(), e.Status})
	})
	if err == nil && events == 0 {
		err = errNothingFound
	}
	if err != nil {
		return nil, fmt.Errorf("read runtime events: %w", err)
	}
	return out, nil
}

var kubeletLine = regexp.MustCompile(`^[IWEF](\d{2})(\d{2}) (\d{2}):(\d{2}):(\d{2})\.(\d{6}) `)

// ReadKubeletLog reads a kubelet's log in klog's text format, at verbosity 2 or more. A file without any klog line is an
// error.
func ReadKubeletLog(r io.Reader) ([]KubeletKill, error) {
	var out []KubeletKill
	lines := 0
	err := eachLine(r, func(b []byte) {
		m := kubeletLine.FindSubmatch(b)
		if m == nil {
			return
		}
		lines++
		s := string(b)
		if !strings.Contains(s, `"Killing container with a grace period"`) {
			return
		}
		var n [6]int
		for i := range n {
			n[i], _ = strconv.Atoi(string(m[i+1]))
		}
		k := KubeletKill{
			PodUID: klogValue(s, "podUID"), ContainerID: bareContainerID(klogValue(s, "containerID")),
			At: time.Date(0, time.Month(n[0]), n[1], n[2], n[3], n[4], n[5]*1000, time.UTC),
		}
		if k.PodUID != "" && k.ContainerID != "" {
			out = append(out, k)
		}
	})
	if err == nil && lines == 0 {
		err = errNothingFound
	}
	if err != nil {
		return nil, fmt.Errorf("read kubelet log: %w", err)
	}
	return out, nil
}

// klogValue returns the value of a structured field, key="value".
func klogValue(line, key string) string {
	_, rest, ok := strings.Cut(line, " "+key+`="`)
	if !ok {
		return ""
	}
	v, _, _ := strings.Cut(rest, `"`)
	return v
}

// bareContainerID is a container's id without the runtime's name.
func bareContainerID(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// sources are Sources by what they are about.
type sources struct {
	shutdown *regexp.Regexp
	audit    map[deletedEvent][]AuditedDelete
	exits    map[string]RuntimeExit
	kills    map[string][]time.Time // by container id; of year 0
	odd      int                    // that contradicted the recording
}

func newSources(s Sources) *sources {
	out := &sources{
		shutdown: s.ShutdownLog, audit: map[deletedEvent][]AuditedDelete{}, exits: map[string]RuntimeExit{}, kills: map[string][]time.Time{},
	}
	for _, a := range s.Audit {
		k := deletedEvent{a.Namespace, a.Pod}
		out.audit[k] = append(out.audit[k], a)
	}
	for _, e := range s.Exits {
		out.exits[e.ContainerID] = e
	}
	for _, k := range s.Kills {
		out.kills[k.ContainerID] = append(out.kills[k.ContainerID], k.At)
	}
	return out
}

// clip returns the part of i that lies in [from, to], and whether there is any.
func clip(i roll.Instant, from, to time.Time, src roll.Source) (roll.Instant, bool) {
	lo, hi := maxTime(i.Earliest, from), minTime(i.Latest, to)
	if i.IsZero() || hi.Before(lo) {
		return i, false
	}
	return roll.Instant{Earliest: lo, Latest: hi, Source: src}, true
}

// requested narrows when a pod's deletion was asked for: the first granted request whose handling falls into the second
// that deletionTimestamp names. Both are the API server's clock.
func (s *sources) requested(p *pod) {
	for _, a := range s.audit[deletedEvent{p.Namespace, p.Name}] {
		if got, ok := clip(p.Requested, a.Received, a.Answered, roll.SourceAudit); ok {
			p.Requested = got
			return
		}
	}
}

// exit narrows when a run ended, or says it where Kubernetes does not. Both are the node's clock.
func (s *sources) exit(r *run) {
	e, ok := s.exits[bareContainerID(r.id)]
	if !ok || r.id == "" {
		return
	}
	at := roll.Instant{Earliest: e.At.Add(-exitSlack), Latest: e.At, Source: roll.SourceRuntime}
	switch got, ok := clip(r.exited, at.Earliest, at.Latest, roll.SourceRuntime); {
	case r.exited.IsZero():
		r.exited = at
	case ok:
		r.exited = got
	default:
		s.odd++
		return
	}
	if r.code == nil {
		code := e.Status
		r.code = &code
	}
}

// signaled narrows when a container was signaled: right after the kubelet's line, which comes after the hook. Both are the
// node's clock.
func (s *sources) signaled(t *roll.Termination) {
	if t.Signaled.IsZero() {
		return
	}
	found := false
	for _, k := range s.kills[bareContainerID(t.ContainerID)] {
		at := k.AddDate(t.Signaled.Earliest.Year(), 0, 0)
		if got, ok := clip(t.Signaled, at, at.Add(signalSlack), roll.SourceKubeletLog); ok {
			t.Signaled, found = got, true
			break
		}
	}
	if !found && len(s.kills[bareContainerID(t.ContainerID)]) > 0 {
		s.odd++
	}
}
