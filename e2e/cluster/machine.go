package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// machine is what of the machine's own a cluster uses.
type machine struct{ runc, plugins string }

// packages are Debian's names of what has to be there; the rest is built.
var packages = []string{"runc", "containernetworking-plugins", "iproute2"}

// checkMachine finds what a cluster needs of the machine. Where apt-get is, missing packages are installed. What is
// lacking is one line.
func checkMachine(ctx context.Context, log io.Writer) (machine, error) {
	if os.Geteuid() != 0 {
		return machine{}, errors.New("this machine cannot run a cluster for this user: it needs root")
	}
	m, err := findPrograms()
	if err != nil {
		apt, aptErr := exec.LookPath("apt-get")
		if aptErr != nil {
			return machine{}, fmt.Errorf("%w (Debian's packages: %s)", err, strings.Join(packages, " "))
		}
		fmt.Fprintf(log, "installing %s\n", strings.Join(packages, " "))
		if err := install(ctx, apt); err != nil {
			return machine{}, fmt.Errorf("this machine cannot install %s: %w", strings.Join(packages, " "), err)
		}
		if m, err = findPrograms(); err != nil {
			return machine{}, err
		}
	}
	b, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return machine{}, err
	}
	if !bytes.Contains(b, []byte("\toverlay\n")) {
		// a module that is not loaded yet is loaded by the first mount; without modprobe there is no other way to ask
		if err := exec.CommandContext(ctx, "modprobe", "overlay").Run(); err != nil {
			return machine{}, errors.New("this machine lacks the overlay file system")
		}
	}
	return m, nil
}

func findPrograms() (m machine, err error) {
	for _, name := range []string{"runc", "ip"} {
		path, err := exec.LookPath(name)
		if err != nil {
			return m, fmt.Errorf("this machine lacks %s", name)
		}
		if name == "runc" {
			m.runc = path
		}
	}
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			m.plugins = dir
			return m, nil
		}
	}
	return m, errors.New("this machine lacks the CNI plugins")
}

func install(ctx context.Context, apt string) error {
	args := append([]string{"install", "-y", "--no-install-recommends"}, packages...)
	get := func(args ...string) error {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		return run(cmd)
	}
	if get(args...) == nil {
		return nil
	}
	if err := get("update"); err != nil { // the lists may be missing or old
		return err
	}
	return get(args...)
}
