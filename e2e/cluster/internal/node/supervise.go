package node

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Prefix begins the name of every node's directory and cgroup.
const Prefix = "rolltrace-e2e-"

const (
	readyLine = "ready"
	goneLine  = "gone"
)

// Node is a supervised node, as seen by whoever started it.
type Node struct {
	Client
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Scanner
}

// Start starts a node in an empty directory: binary is rolltrace-node. Its standard error goes to log.
func Start(binary, dir string, c Config, log io.Writer) (*Node, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(dir) // before there is a configuration, which is what Sweep looks for
	if err != nil {
		return nil, err
	}
	defer lock.Close() // the supervisor has it by then
	if err := os.WriteFile(filepath.Join(dir, configFile), b, 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "supervise", dir)
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C is for us, not for it
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start node: %w", err)
	}
	n := &Node{Client{dir}, cmd, stdin, bufio.NewScanner(stdout)}
	if n.out.Scan() && n.out.Text() == readyLine {
		return n, nil
	}
	said := n.out.Text()
	if err := n.Stop(); said == "" {
		return nil, fmt.Errorf("start node: %w", err)
	}
	return nil, errors.New(said)
}

// Stop ends the node and waits until nothing of it is left. What could not be removed is the error.
func (n *Node) Stop() error {
	n.stdin.Close()
	said := ""
	for n.out.Scan() {
		said = n.out.Text()
	}
	err := n.cmd.Wait()
	if err == nil && said == goneLine {
		return nil
	}
	return fmt.Errorf("end node: %s (%v)", said, err)
}

// Supervise runs the node in dir until lifeline ends, the node does, or a signal comes; then it removes the node's cgroups
// and directory. It says on out, in one line each, that the node is there, or what is wrong, and at the end that it is gone.
func Supervise(dir string, lifeline io.Reader, out io.Writer) error {
	c, err := readConfig(dir)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(c.Name, Prefix) {
		return fmt.Errorf("a node's name begins with %s", Prefix)
	}
	// The lock came as the first extra file and goes with this process alone.
	syscall.CloseOnExec(3)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	signal.Ignore(syscall.SIGPIPE) // whoever listened may be gone; the work is not

	runErr := supervise(dir, c, lifeline, out, signals)
	if runErr != nil {
		fmt.Fprintln(out, runErr)
	}
	if err := errors.Join(removeCgroups(c.Name), removeDir(dir)); err != nil {
		fmt.Fprintln(out, err)
		return err
	}
	if runErr == nil {
		fmt.Fprintln(out, goneLine)
	}
	return runErr
}

func supervise(dir string, c Config, lifeline io.Reader, out io.Writer, signals <-chan os.Signal) error {
	if err := makeCgroups(c.Name); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", "init", dir)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC,
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("this machine cannot make namespaces: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		br := bufio.NewReader(stdout)
		line, _ := br.ReadString('\n')
		if line = strings.TrimSpace(line); line == readyLine {
			fmt.Fprintln(out, line)
			line = ""
		}
		err := cmd.Wait()
		if line != "" {
			err = errors.New(line)
		}
		ended <- err
	}()
	lost := make(chan struct{})
	go func() {
		io.Copy(io.Discard, lifeline)
		close(lost)
	}()
	select {
	case err := <-ended:
		if err == nil {
			err = errors.New("the node ended by itself")
		}
		return err
	case <-lost:
	case <-signals:
	}
	cmd.Process.Kill()
	<-ended
	return nil
}

// lockDir marks a node's directory as in use for as long as the returned file is open.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// Sweep removes what nodes in parent left whose supervisor was killed before it could: their processes, mounts and
// interfaces went with it. Nodes that run hold their lock.
func Sweep(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, Prefix+"*"))
	for _, dir := range dirs {
		c, err := readConfig(dir)
		if err != nil || !strings.HasPrefix(c.Name, Prefix) {
			continue // it is being made, or it is not a node's
		}
		lock, err := lockDir(dir)
		if err != nil {
			continue
		}
		removeCgroups(c.Name)
		removeDir(dir)
		lock.Close()
	}
}

// removeDir retries: the namespace's mounts go a moment after its last process.
func removeDir(dir string) (err error) {
	for range 50 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("remove %s: %w", dir, err)
}

// hierarchies returns where the machine's cgroups are: of version 1 each hierarchy that holds controllers or systemd's
// names, of version 2 the one.
func hierarchies() (v1, v2 []string, err error) {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, nil, err
	}
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) < 4 {
			continue
		}
		switch f[2] {
		case "cgroup":
			v1 = append(v1, f[1])
		case "cgroup2":
			v2 = append(v2, f[1])
		}
	}
	if len(v1)+len(v2) == 0 {
		return nil, nil, errors.New("this machine has no cgroups mounted")
	}
	return v1, v2, nil
}

// CgroupV1 reports whether the machine's controllers are in hierarchies of version 1.
func CgroupV1() (bool, error) {
	v1, _, err := hierarchies()
	return len(v1) > 0, err
}

// needs are the controllers that the kubelet asks for (pkg/kubelet/cm/cgroup_manager_linux.go).
var needs = []string{"cpu", "cpuset", "memory", "pids"}

// makeCgroups makes the node's own cgroup in each hierarchy; the kubelet's cgroupRoot must exist in all of them.
func makeCgroups(name string) error {
	v1, v2, err := hierarchies()
	if err != nil {
		return err
	}
	if len(v1) == 0 {
		b, err := os.ReadFile(filepath.Join(v2[0], "cgroup.subtree_control"))
		if err != nil {
			return fmt.Errorf("this machine has no usable cgroups: %w", err)
		}
		for _, c := range needs {
			if !slices.Contains(strings.Fields(string(b)), c) {
				return fmt.Errorf("this machine does not delegate the cgroup controller %s (%s)", c, v2[0])
			}
		}
		return mkdirCgroup(filepath.Join(v2[0], name))
	}
	for _, h := range v1 {
		dir := filepath.Join(h, name)
		if err := mkdirCgroup(dir); err != nil {
			return err
		}
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} { // empty in a new group, which then can hold no process
			b, err := os.ReadFile(filepath.Join(h, f))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, f), b, 0o644)
			}
			if err != nil {
				return fmt.Errorf("this machine cannot delegate cpusets: %w", err)
			}
		}
	}
	for _, c := range needs {
		if !slices.ContainsFunc(v1, func(h string) bool { return slices.Contains(strings.Split(filepath.Base(h), ","), c) }) {
			return fmt.Errorf("this machine lacks the cgroup controller %s", c)
		}
	}
	return nil
}

func mkdirCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("this machine cannot make cgroups: %w", err)
	}
	return nil
}

// removeCgroups removes the node's cgroups, deepest first; one is busy until its last process is reaped.
func removeCgroups(name string) error {
	v1, v2, err := hierarchies()
	if err != nil {
		return err
	}
	var left []string
	for range 100 {
		left = nil
		for _, h := range append(v1, v2...) {
			var dirs []string
			filepath.WalkDir(filepath.Join(h, name), func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			slices.Reverse(dirs)
			for _, d := range dirs {
				if err := syscall.Rmdir(d); err != nil && !errors.Is(err, syscall.ENOENT) {
					left = append(left, d)
				}
			}
		}
		if len(left) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("cgroups are left: %s", strings.Join(left, " "))
}
