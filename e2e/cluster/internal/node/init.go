package node

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Init is PID 1 of the node in dir: it makes the namespaces a node, says so on ready, and serves the control socket until
// lifeline ends. The kernel ends everything else with it.
func Init(dir string, lifeline io.Reader, ready io.Writer) error {
	c, err := readConfig(dir)
	if err != nil {
		return err
	}
	if err := setUp(dir, c); err != nil {
		return err
	}
	l, err := net.Listen("unix", filepath.Join(dir, controlFile))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s := &server{procs: map[int]*process{}, names: map[string]*process{}}
	go s.reap()
	go s.serve(l)
	fmt.Fprintln(ready, readyLine)
	_, err = io.Copy(io.Discard, lifeline)
	return err
}

// setUp makes mounts and network of fresh namespaces those of a node. Nothing of it is seen outside of them.
func setUp(dir string, c Config) error {
	type step struct {
		what string
		do   func() error
	}
	mount := func(source, target, kind string, flags uintptr) func() error {
		return func() error { return syscall.Mount(source, target, kind, flags, "") }
	}
	steps := []step{
		{"cut the mounts off from the machine's", mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE)},
		{"mount proc", mount("proc", "/proc", "proc", 0)},
		// the kubelet and containerd have mounts that must propagate into containers
		{"share the mounts", mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED)},
	}
	// paths that the components have built in, or that hold the machine's own containers
	for _, d := range []string{"/run", "/var/lib", "/var/log"} {
		steps = append(steps, step{"hide " + d, func() error { return hide(d, append(c.Keep, dir)) }})
	}
	for path, value := range kubeletSysctls {
		steps = append(steps, step{"shield " + path, func() error { return shield(filepath.Join(dir, "sysctl"), path, value) }})
	}
	ip := func(args ...string) {
		steps = append(steps, step{"ip " + strings.Join(args, " "), func() error {
			out, err := exec.Command("ip", args...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
			}
			return nil
		}})
	}
	ip("link", "set", "lo", "up")
	for _, a := range c.Addresses {
		ip("address", "add", a, "dev", "lo")
	}
	// what the CNI plugins need from the kernel, tried here so that its absence is said here
	ip("link", "add", "probe0", "type", "bridge")
	ip("link", "add", "probe1", "type", "veth", "peer", "name", "probe2")
	ip("link", "delete", "probe1")
	ip("link", "delete", "probe0")
	steps = append(steps, step{"forward packets", func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
	}})
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("this machine cannot %s: %w", s.what, err)
		}
	}
	return nil
}

// kubeletSysctls are those that the kubelet sets when they differ (pkg/kubelet/cm/container_manager_linux.go
// setupKernelTunables), and what it wants. They are the machine's, not the namespace's: it is shown files instead.
var kubeletSysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

func shield(dir, sysctl, value string) error {
	target := filepath.Join("/proc/sys", sysctl)
	if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	file := filepath.Join(dir, strings.ReplaceAll(sysctl, "/", "."))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
		return err
	}
	return syscall.Mount(file, target, "", syscall.MS_BIND, "")
}

// hide mounts an empty directory over dir and puts those of keep that lie in it back.
func hide(dir string, keep []string) error {
	kept := map[string]*os.File{}
	for _, k := range keep {
		if rel, err := filepath.Rel(dir, k); err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			continue
		}
		f, err := os.Open(k)
		if err != nil {
			return err
		}
		defer f.Close()
		kept[k] = f
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	for k, f := range kept {
		if err := os.MkdirAll(k, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), k, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// server serves the control socket.
type server struct {
	mu    sync.Mutex
	procs map[int]*process    // that run, by PID
	names map[string]*process // the last of each name
}

type process struct {
	pid    int
	ended  chan struct{} // closed once status is set
	status syscall.WaitStatus
}

func (p *process) response() Response {
	r := Response{Ended: true, Code: p.status.ExitStatus(), Status: fmt.Sprint("exit status ", p.status.ExitStatus())}
	if p.status.Signaled() {
		r.Status = "signal: " + p.status.Signal().String()
	}
	return r
}

// reap waits for every child, those that were handed to PID 1 among them. So nothing here may use [os.Process.Wait].
func (s *server) reap() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if err != nil {
			time.Sleep(20 * time.Millisecond) // ECHILD: there is none now
			continue
		}
		s.mu.Lock() // start holds it until the process is registered
		if p := s.procs[pid]; p != nil {
			delete(s.procs, pid)
			p.status = ws
			close(p.ended)
		}
		s.mu.Unlock()
	}
}

func (s *server) start(r Request) (*process, error) {
	if len(r.Argv) == 0 {
		return nil, errors.New("nothing to start")
	}
	path, err := exec.LookPath(r.Argv[0])
	if err != nil {
		return nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	log, err := os.OpenFile(r.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.names[r.Name]; old != nil && r.Name != "" && s.procs[old.pid] == old {
		return nil, errors.New("runs already")
	}
	proc, err := os.StartProcess(path, r.Argv, &os.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []*os.File{null, log, log},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, err
	}
	p := &process{pid: proc.Pid, ended: make(chan struct{})}
	s.procs[p.pid] = p
	if r.Name != "" {
		s.names[r.Name] = p
	}
	return p, proc.Release()
}

func (s *server) named(name string) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.names[name]; p != nil {
		return p, nil
	}
	return nil, errors.New("was never started")
}

func (s *server) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go s.handle(conn)
	}
}

func (s *server) handle(conn net.Conn) {
	defer conn.Close()
	br := bufio.NewReader(conn)
	line, err := br.ReadBytes('\n')
	if err != nil {
		return
	}
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		reply(conn, Response{}, err)
		return
	}
	if r.Op == OpDial {
		to, err := net.Dial("tcp", r.Addr)
		reply(conn, Response{}, err)
		if err == nil {
			Join(&bufferedConn{conn, br}, to)
		}
		return
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		io.Copy(io.Discard, br)
	}()
	resp, err := s.do(r, gone)
	reply(conn, resp, err)
}

func reply(conn net.Conn, resp Response, err error) {
	if err != nil {
		resp.Error = err.Error()
	}
	json.NewEncoder(conn).Encode(resp)
}

func (s *server) do(r Request, gone <-chan struct{}) (Response, error) {
	switch r.Op {
	case OpStart:
		_, err := s.start(r)
		return Response{}, err
	case OpRun:
		p, err := s.start(r)
		if err != nil {
			return Response{}, err
		}
		select {
		case <-p.ended:
		case <-gone:
			syscall.Kill(-p.pid, syscall.SIGKILL) // start made it the leader of its process group
			<-p.ended
		}
		return p.response(), nil
	case OpSignal:
		s.mu.Lock()
		defer s.mu.Unlock()
		p := s.names[r.Name]
		if p == nil || s.procs[p.pid] != p {
			return Response{}, errors.New("does not run")
		}
		return Response{}, syscall.Kill(p.pid, r.Signal)
	case OpWait:
		p, err := s.named(r.Name)
		if err != nil {
			return Response{}, err
		}
		select {
		case <-p.ended:
			return p.response(), nil
		case <-gone:
			return Response{}, nil
		}
	case OpStatus:
		p, err := s.named(r.Name)
		if err != nil {
			return Response{}, err
		}
		select {
		case <-p.ended:
			return p.response(), nil
		default:
			return Response{}, nil
		}
	case OpListen:
		l, err := net.Listen("tcp", r.Addr)
		if err != nil {
			return Response{}, err
		}
		go forward(l, r.Path)
		return Response{}, nil
	default:
		return Response{}, fmt.Errorf("op %q is not known", r.Op)
	}
}

func forward(l net.Listener, path string) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			to, err := net.Dial("unix", path)
			if err != nil {
				from.Close()
				return
			}
			Join(from, to)
		}()
	}
}

// Join copies between two connections until both directions have ended, and closes them.
func Join(a, b net.Conn) {
	var wg sync.WaitGroup
	defer a.Close()
	defer b.Close()
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			if _, err := io.Copy(way[0], way[1]); err != nil {
				a.Close()
				b.Close()
				return
			}
			if h, ok := way[0].(interface{ CloseWrite() error }); ok {
				h.CloseWrite()
			}
		})
	}
	wg.Wait()
}

func readConfig(dir string) (c Config, err error) {
	b, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(b, &c)
}
