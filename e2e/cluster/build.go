package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// KubernetesVersion and ContainerdVersion are what runs; the modules under e2e/tools pin them and etcd's.
const (
	KubernetesVersion = "v1.37.2"
	ContainerdVersion = "v2.4.2"
)

// kall is the binary that is etcd, every Kubernetes component and kubectl, by the name that it is called as.
const kall = "kall"

var kallNames = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"}

// tool is one binary to build: its module under e2e/tools, and what to give to go build.
type tool struct {
	name, module, pkg string
	flags             []string
}

var tools = []tool{
	{kall, "k8s", "./kall", []string{"-ldflags", "-s -w -X k8s.io/component-base/version.gitVersion=" + KubernetesVersion}},
	containerdTool("containerd"),
	containerdTool("containerd-shim-runc-v2"),
	containerdTool("ctr"),
}

func containerdTool(name string) tool {
	const path = "github.com/containerd/containerd/v2/"
	return tool{name, "containerd", path + "cmd/" + name, []string{
		"-tags", "no_btrfs no_devmapper no_zfs",
		"-ldflags", "-s -w -X " + path + "version.Version=" + ContainerdVersion,
	}}
}

// CacheDir is where what is built is kept from one run to the next: $ROLLTRACE_E2E_CACHE, else rolltrace-e2e in the
// user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("ROLLTRACE_E2E_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "rolltrace-e2e"), err
}

// Build makes the components and returns the directory that holds them, one file a name. What was built before from the
// same go.sum, sources, flags and Go is found in the cache; else this takes about 20 minutes of processor time. Two Builds
// at once, in whatever processes, share one.
func Build(ctx context.Context, log io.Writer) (string, error) {
	root, err := moduleDir(ctx)
	if err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w", err)
	}
	key, err := buildKey(root)
	if err != nil {
		return "", fmt.Errorf("read e2e/tools: %w", err)
	}
	dir := filepath.Join(cache, key)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("make cache: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(cache, "lock"))
	if err != nil {
		return "", fmt.Errorf("lock cache: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil // somebody else built it meanwhile
	}

	temp := dir + ".part"
	if err := os.RemoveAll(temp); err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	for _, t := range tools {
		start := time.Now()
		fmt.Fprintf(log, "building %s (the first time takes long; kept in %s)\n", t.name, cache)
		args := append(t.flags, "-o", filepath.Join(temp, t.name), t.pkg)
		if err := goBuild(ctx, filepath.Join(root, "tools", t.module), args...); err != nil {
			return "", fmt.Errorf("build %s: %w", t.name, err)
		}
		fmt.Fprintf(log, "built %s in %s\n", t.name, time.Since(start).Round(time.Second))
	}
	for _, name := range kallNames {
		if err := os.Symlink(kall, filepath.Join(temp, name)); err != nil {
			return "", err
		}
	}
	return dir, os.Rename(temp, dir)
}

// BuildPackage builds a package of the e2e module, static, into out.
func BuildPackage(ctx context.Context, pkg, out string) error {
	root, err := moduleDir(ctx)
	if err != nil {
		return err
	}
	if err := goBuild(ctx, root, "-ldflags", "-s -w", "-o", out, pkg); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	return nil
}

// goBuild runs go build as the components have to be built: without cgo, so that the binaries run in an empty image.
func goBuild(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-buildvcs=false"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	return run(cmd)
}

// run runs a command and puts the end of what it said into the error.
func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if said := lastLines(out, 20); said != "" {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, said)
	}
	return fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
}

func lastLines(b []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// moduleDir finds the sources of the e2e module. They are not embedded: a go.mod makes a directory another module's, and
// the tools' have their own.
func moduleDir(ctx context.Context) (string, error) {
	const path = "github.com/rolltrace/rolltrace/e2e"
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w: %s", path, err, lastLines(stderr.Bytes(), 1))
	}
	return strings.TrimSpace(string(out)), nil
}

// buildKey names a build by everything that it is made of.
func buildKey(root string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), runtime.GOOS, runtime.GOARCH, tools)
	for _, pattern := range []string{"*/go.mod", "*/go.sum", "*/*/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, "tools", pattern))
		if err != nil {
			return "", err
		}
		if len(files) == 0 {
			return "", fmt.Errorf("no %s in %s/tools", pattern, root)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return "", err
			}
			fmt.Fprintln(h, len(b))
			h.Write(b)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// lock takes an exclusive lock on a file, waiting for it until ctx ends. It goes with the process, however that ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}
