package scenario

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rolltrace/rolltrace/e2e/services/journal"
)

// Ended is the truth about one run of one container that ended: what it wrote down itself, and what the runtime saw.
type Ended struct {
	Pod, Container, ContainerID string
	// SIGTERM is when the container received it first; zero: it did not, or did not look.
	SIGTERM time.Time
	// Exiting is right before the process ended itself, zero when it did not; Exited is when the runtime's shim saw its end.
	// The exit lies between the two.
	Exiting, Exited time.Time
	Code            int
	// LastLine is the last line of its log, empty when it was in no state to know.
	LastLine string
}

// truth joins the containers' journals with what the runtime told of them.
func truth(r *Run) ([]Ended, error) {
	entries, err := journal.Read(r.Dir)
	if err != nil {
		return nil, err
	}
	lives := map[[2]string][][]journal.Entry{} // by pod and container, one a run
	for _, e := range entries {
		k := [2]string{e.Pod, e.Container}
		switch {
		case e.Event == journal.Start:
			lives[k] = append(lives[k], []journal.Entry{e})
		case len(lives[k]) > 0:
			last := len(lives[k]) - 1
			lives[k][last] = append(lives[k][last], e)
		}
	}
	tasks, err := readTasks(filepath.Join(r.C.Logs, "containerd-events.log"))
	if err != nil {
		return nil, err
	}
	names := r.containers()
	nth := map[[2]string]int{}
	var all []Ended
	for _, id := range tasks.started {
		name, ours := names[id]
		if !ours {
			continue
		}
		k := [2]string{name.pod, name.container}
		n := nth[k]
		nth[k]++
		if n >= len(lives[k]) {
			return nil, fmt.Errorf("%s %s has no journal of its run %d", name.pod, name.container, n+1)
		}
		exit, ended := tasks.exits[id]
		if !ended {
			continue
		}
		e := Ended{Pod: name.pod, Container: name.container, ContainerID: id, Exited: exit.at, Code: exit.code}
		for _, j := range lives[k][n] {
			switch {
			case j.Event == journal.SIGTERM && e.SIGTERM.IsZero():
				e.SIGTERM = j.Time()
			case j.Event == journal.Exit:
				e.Exiting, e.LastLine = j.Time(), j.LastLine
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// tasks are what containerd tells of all containers, by ID.
type tasks struct {
	started []string // in order
	exits   map[string]taskExit
}

type taskExit struct {
	at   time.Time
	code int
}

// readTasks reads what ctr events prints: time, namespace, topic, and the event as JSON. The exit of a process that was
// executed in a container (a hook) has another id than the container's.
func readTasks(path string) (tasks, error) {
	t := tasks{exits: map[string]taskExit{}}
	f, err := os.Open(path)
	if err != nil {
		return t, err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		head, event, ok := strings.Cut(s.Text(), " {")
		topic := head[strings.LastIndexByte(head, ' ')+1:]
		if !ok || topic != "/tasks/start" && topic != "/tasks/exit" {
			continue
		}
		var e struct {
			ContainerID string `json:"container_id"`
			ID          string `json:"id"`
			ExitStatus  int    `json:"exit_status"`
			ExitedAt    struct {
				Seconds int64 `json:"seconds"`
				Nanos   int64 `json:"nanos"`
			} `json:"exited_at"`
		}
		if err := json.Unmarshal([]byte("{"+event), &e); err != nil {
			return t, fmt.Errorf("read containerd's events: %w: %s", err, s.Text())
		}
		if topic == "/tasks/start" {
			t.started = append(t.started, e.ContainerID)
		} else if e.ID == e.ContainerID {
			t.exits[e.ContainerID] = taskExit{time.Unix(e.ExitedAt.Seconds, e.ExitedAt.Nanos).UTC(), e.ExitStatus}
		}
	}
	return t, s.Err()
}
