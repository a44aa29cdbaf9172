// Package cluster brings up a real Kubernetes cluster of one node for tests: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler, kubelet and containerd, built from the Go module proxy, in mount, network, PID
// and IPC namespaces of its own. Nothing of it is seen outside but its processes, a temporary directory, a cgroup of its
// own name, and while it runs a listener on the loopback interface that leads to its API server. All of that is gone when
// [Cluster.Close] returns, and also when whoever called [Up] dies in any other way.
//
// It needs Linux, root, Go, and the packages runc, containernetworking-plugins and iproute2, which it installs where there
// is apt-get.
package cluster

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"github.com/rolltrace/rolltrace/e2e/cluster/internal/node"
)

// Addresses inside the cluster. Pods have addresses of 10.88.0.0/16 and reach both.
const (
	NodeName   = "node1"
	NodeIP     = "10.99.0.1" // also where pods reach what [Cluster.Expose] exposes
	serviceIP  = "10.96.0.1" // of the Service kubernetes: the API server listens there itself, so no kube-proxy is needed
	apiPort    = "443"
	etcdURL    = "http://127.0.0.1:2379"
	pauseImage = "e2e.local/pause:1"

	containerdSocket = "/run/containerd/containerd.sock"
)

// Component names one of the processes of the cluster.
type Component string

// The components.
const (
	Containerd        Component = "containerd"
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kubelet           Component = "kubelet"
)

// Options of [Up]. The zero value is fine.
type Options struct {
	// Images are imported; the image of pods' sandboxes always is.
	Images []Image
	// Logs is a directory for the logs, which stays. Empty: they go with the cluster.
	Logs string
	// Progress is told, a line each, what is being done and how long it took. Nil: nobody is.
	Progress io.Writer
}

// Cluster is a running cluster.
type Cluster struct {
	// Kubeconfig is the path of a kubeconfig for cluster-admin, good for any tool on this machine.
	Kubeconfig string
	// Dir is a directory that the node sees under the same path: for hostPath volumes. It goes with the cluster.
	Dir string
	// Logs is where the logs are: <component>.log, audit.log (the API server's, JSON lines) and containerd-events.log
	// (as ctr events prints them).
	Logs string
	// Bin holds the binaries: kubectl, ctr and the components.
	Bin string
	// Client and Config talk to the API server as cluster-admin.
	Client *kubernetes.Clientset
	Config *rest.Config

	node    *node.Node
	root    string // the node's directory
	ca      *authority
	admin   pair
	argv    map[Component][]string
	close   func() error
	mu      sync.Mutex
	closers []io.Closer
}

// Up builds what is not built yet, brings a cluster up and returns when pods can run on it: the node is Ready and without
// taints and the default ServiceAccount exists. It takes 5 to 10 s when everything is built. The cluster ends with ctx.
func Up(ctx context.Context, o Options) (up *Cluster, err error) {
	progress := o.Progress
	if progress == nil {
		progress = io.Discard
	}
	m, err := checkMachine(ctx, progress)
	if err != nil {
		return nil, err
	}
	bin, err := Build(ctx, progress)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(progress, "%6.2fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}

	node.Sweep(os.TempDir())
	root, err := os.MkdirTemp("", node.Prefix)
	if err != nil {
		return nil, fmt.Errorf("make directory of cluster: %w", err)
	}
	c := &Cluster{Bin: bin, Dir: filepath.Join(root, "data"), Logs: o.Logs, Kubeconfig: filepath.Join(root, "admin.kubeconfig"), root: root}
	c.close = sync.OnceValue(c.end)
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.Logs == "" {
		c.Logs = filepath.Join(root, "logs")
	}
	for _, d := range []string{c.Dir, c.Logs, filepath.Join(root, "conf", "cni")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, err
		}
	}
	if c.Logs, err = filepath.Abs(c.Logs); err != nil {
		return nil, err
	}
	if err := c.configure(m); err != nil {
		return nil, fmt.Errorf("configure cluster: %w", err)
	}
	own, err := buildOwn(ctx, root)
	if err != nil {
		return nil, err
	}
	nodeLog, err := os.Create(filepath.Join(c.Logs, "node.log"))
	if err != nil {
		return nil, err
	}
	defer nodeLog.Close()
	if c.node, err = node.Start(own.node, root, node.Config{
		Name: filepath.Base(root), Keep: []string{bin, c.Logs, root}, Addresses: []string{NodeIP + "/32", serviceIP + "/32"},
	}, nodeLog); err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { c.Close() })
	say("namespaces made")

	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := c.Start(gctx, Containerd); err != nil {
			return err
		}
		images := append([]Image{{Ref: pauseImage, Binary: own.pause}}, o.Images...)
		for i, image := range images {
			if err := c.ImportImage(gctx, image); err != nil {
				return err
			}
			if i == 0 {
				say("containerd answers")
			}
		}
		say("%d images imported", len(images))
		return c.recordContainers(gctx)
	})
	g.Go(func() error {
		for _, k := range []Component{Etcd, APIServer} {
			if err := c.Start(gctx, k); err != nil {
				return err
			}
		}
		if err := c.WaitAPI(gctx); err != nil {
			return err
		}
		say("API server is ready")
		return errors.Join(c.Start(gctx, ControllerManager), c.Start(gctx, Scheduler))
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := c.Start(ctx, Kubelet); err != nil {
		return nil, err
	}
	if err := c.waitNode(ctx); err != nil {
		return nil, err
	}
	say("node is ready")
	return c, nil
}

// Close ends the cluster and returns when nothing of it is left. It may be called more than once.
func (c *Cluster) Close() error { return c.close() }

func (c *Cluster) end() error {
	c.mu.Lock()
	closers := c.closers
	c.mu.Unlock()
	for _, x := range closers {
		x.Close()
	}
	if c.node == nil {
		return os.RemoveAll(c.root)
	}
	return c.node.Stop()
}

// own are the binaries of this module that a node needs.
type own struct{ node, pause string }

func buildOwn(ctx context.Context, dir string) (own, error) {
	o := own{filepath.Join(dir, "rolltrace-node"), filepath.Join(dir, "pause")}
	return o, errors.Join(BuildPackage(ctx, "./cluster/rolltrace-node", o.node), BuildPackage(ctx, "./cluster/pause", o.pause))
}

//go:embed conf
var confFiles embed.FS

// configure writes the certificates, kubeconfigs and configuration files, and says how each component is called.
func (c *Cluster) configure(m machine) (err error) {
	if c.ca, err = newAuthority(); err != nil {
		return err
	}
	conf := filepath.Join(c.root, "conf")
	if err := os.WriteFile(filepath.Join(conf, "ca.crt"), c.ca.pem, 0o600); err != nil {
		return err
	}
	serving, err := c.ca.server([]string{"127.0.0.1", NodeIP, serviceIP}, "kubernetes", "kubernetes.default", "kubernetes.default.svc")
	if err != nil {
		return err
	}
	accounts, err := c.ca.client("service-accounts") // only its key is used
	if err != nil {
		return err
	}
	if err := errors.Join(serving.write(conf, "apiserver"), accounts.write(conf, "accounts")); err != nil {
		return err
	}
	// There is no Node authorizer: every component is an administrator of this cluster, under its own name.
	for component, user := range map[Component]string{
		Kubelet: "system:node:" + NodeName, ControllerManager: "system:kube-controller-manager", Scheduler: "system:kube-scheduler",
	} {
		p, err := c.ca.client(user, "system:masters", "system:nodes")
		if err != nil {
			return err
		}
		if err := c.kubeconfig(filepath.Join(conf, string(component)+".kubeconfig"), p, "127.0.0.1:"+apiPort); err != nil {
			return err
		}
	}
	if c.admin, err = c.ca.client("admin", "system:masters"); err != nil {
		return err
	}

	values := map[string]string{
		"Dir": c.root, "Name": filepath.Base(c.root), "ContainerdSocket": containerdSocket, "PauseImage": pauseImage,
		"Runc": m.runc, "CNIPlugins": m.plugins,
	}
	t, err := template.ParseFS(confFiles, "conf/*")
	if err != nil {
		return err
	}
	for name, file := range map[string]string{
		"kubelet.yaml": "kubelet.yaml", "containerd.toml": "containerd.toml", "audit.yaml": "audit.yaml", "cni.conflist": "cni/10-e2e.conflist",
	} {
		var b bytes.Buffer
		if err := t.ExecuteTemplate(&b, name, values); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(conf, file), b.Bytes(), 0o644); err != nil {
			return err
		}
	}

	in := func(name string) string { return filepath.Join(conf, name) }
	controller := func(k Component, args ...string) []string {
		return append([]string{
			string(k), "--kubeconfig=" + in(string(k)+".kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1",
			"--cert-dir=" + filepath.Join(c.root, string(k)),
		}, args...)
	}
	c.argv = map[Component][]string{
		Containerd: {"containerd", "-c", in("containerd.toml")},
		Etcd: {
			"etcd", "--data-dir=" + filepath.Join(c.root, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster=default=http://127.0.0.1:2380",
		},
		APIServer: {
			"kube-apiserver", "--etcd-servers=" + etcdURL,
			"--secure-port=" + apiPort, "--bind-address=0.0.0.0", "--advertise-address=" + NodeIP, "--endpoint-reconciler-type=none",
			"--service-cluster-ip-range=10.96.0.0/16", "--kubelet-preferred-address-types=InternalIP",
			"--client-ca-file=" + in("ca.crt"), "--tls-cert-file=" + in("apiserver.crt"), "--tls-private-key-file=" + in("apiserver.key"),
			"--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + in("accounts.crt"), "--service-account-signing-key-file=" + in("accounts.key"),
			"--audit-policy-file=" + in("audit.yaml"), "--audit-log-path=" + filepath.Join(c.Logs, "audit.log"), "--profiling=false",
		},
		ControllerManager: controller(ControllerManager, "--service-account-private-key-file="+in("accounts.key"), "--root-ca-file="+in("ca.crt")),
		Scheduler:         controller(Scheduler),
		Kubelet: {
			"kubelet", "--config=" + in("kubelet.yaml"), "--kubeconfig=" + in("kubelet.kubeconfig"), "--root-dir=" + filepath.Join(c.root, "kubelet"),
			"--cert-dir=" + filepath.Join(c.root, "kubelet", "pki"), "--hostname-override=" + NodeName, "--node-ip=" + NodeIP, "--v=2",
		},
	}
	for k, argv := range c.argv {
		argv[0] = filepath.Join(c.Bin, string(k))
	}
	return nil
}

// kubeconfig writes a kubeconfig for a server at host:port.
func (c *Cluster) kubeconfig(path string, p pair, server string) error {
	k := api.NewConfig()
	k.Clusters["e2e"] = &api.Cluster{Server: "https://" + server, CertificateAuthorityData: c.ca.pem}
	k.AuthInfos["e2e"] = &api.AuthInfo{ClientCertificateData: p.cert, ClientKeyData: p.key}
	k.Contexts["e2e"] = &api.Context{Cluster: "e2e", AuthInfo: "e2e"}
	k.CurrentContext = "e2e"
	return clientcmd.WriteToFile(*k, path)
}

// connect makes the way to the API server from outside, and the clients.
func (c *Cluster) connect(ctx context.Context) error {
	p, err := c.Proxy(ctx)
	if err != nil {
		return err
	}
	if err := os.Rename(p.Kubeconfig, c.Kubeconfig); err != nil {
		return err
	}
	p.Kubeconfig = c.Kubeconfig
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig); err != nil {
		return err
	}
	c.Config.QPS, c.Config.Burst = 200, 400
	c.Client, err = kubernetes.NewForConfig(c.Config)
	return err
}

// Start starts a component, after [Up] only one that [Cluster.Kill] ended.
func (c *Cluster) Start(ctx context.Context, k Component) error {
	_, err := c.node.Do(ctx, node.Request{Op: node.OpStart, Name: string(k), Argv: c.argv[k], Log: c.logFile(k)})
	return err
}

// Kill sends a signal to a component.
func (c *Cluster) Kill(ctx context.Context, k Component, s syscall.Signal) error {
	_, err := c.node.Do(ctx, node.Request{Op: node.OpSignal, Name: string(k), Signal: s})
	return err
}

// Wait waits until a component has ended.
func (c *Cluster) Wait(ctx context.Context, k Component) error {
	_, err := c.node.Do(ctx, node.Request{Op: node.OpWait, Name: string(k)})
	return err
}

func (c *Cluster) logFile(k Component) string { return filepath.Join(c.Logs, string(k)+".log") }

// alive returns an error that names a component that has ended, and what it said last.
func (c *Cluster) alive(ctx context.Context, components ...Component) error {
	for _, k := range components {
		r, err := c.node.Do(ctx, node.Request{Op: node.OpStatus, Name: string(k)})
		if err != nil {
			return err
		}
		if r.Ended {
			b, _ := os.ReadFile(c.logFile(k))
			return fmt.Errorf("%s ended (%s): %s", k, r.Status, lastLines(b, 3))
		}
	}
	return nil
}

// readyWithin bounds each wait of Up: a healthy cluster takes a tenth of it.
const readyWithin = 2 * time.Minute

// poll asks done until it says so, a component has ended, or time is up. The last error of done tells what was missing.
func (c *Cluster) poll(ctx context.Context, what string, done func(context.Context) error, components ...Component) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		if aerr := c.alive(ctx, components...); aerr != nil && ctx.Err() == nil {
			return aerr
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%w)", what, context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// WaitAPI waits until the API server is ready.
func (c *Cluster) WaitAPI(ctx context.Context) error {
	return c.poll(ctx, "the API server", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return c.Client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}, Etcd, APIServer)
}

func (c *Cluster) waitNode(ctx context.Context) error {
	return c.poll(ctx, "the node", func(ctx context.Context) error {
		n, err := c.Client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(n.Spec.Taints) > 0 {
			return fmt.Errorf("node has taint %s", n.Spec.Taints[0].Key)
		}
		ready := false
		for _, cond := range n.Status.Conditions {
			ready = ready || cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue
		}
		if !ready {
			return errors.New("node is not Ready")
		}
		_, err = c.Client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	}, Containerd, Etcd, APIServer, ControllerManager, Scheduler, Kubelet)
}

// Namespace makes a namespace and waits until pods can be made in it.
func (c *Cluster) Namespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.Client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	return c.poll(ctx, "namespace "+name, func(ctx context.Context) error {
		_, err := c.Client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	}, ControllerManager)
}

// ImportImage gives the node an image.
func (c *Cluster) ImportImage(ctx context.Context, image Image) error {
	f, err := os.CreateTemp(c.root, "image-*.tar")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(image.Write(f), f.Close()); err != nil {
		return err
	}
	return c.poll(ctx, "containerd", func(ctx context.Context) error {
		_, err := c.Ctr(ctx, "images", "import", f.Name())
		return err
	}, Containerd)
}

// recordContainers has what containerd tells of containers written down, in containerd-events.log.
func (c *Cluster) recordContainers(ctx context.Context) error {
	argv := []string{filepath.Join(c.Bin, "ctr"), "-a", containerdSocket, "-n", "k8s.io", "events"}
	_, err := c.node.Do(ctx, node.Request{Op: node.OpStart, Name: "events", Argv: argv, Log: filepath.Join(c.Logs, "containerd-events.log")})
	return err
}

// Ctr runs containerd's ctr in the namespace of Kubernetes' containers and returns what it says.
func (c *Cluster) Ctr(ctx context.Context, args ...string) (string, error) {
	f, err := os.CreateTemp(c.root, "ctr-*.out")
	if err != nil {
		return "", err
	}
	f.Close()
	defer os.Remove(f.Name())
	argv := append([]string{filepath.Join(c.Bin, "ctr"), "-a", containerdSocket, "-n", "k8s.io"}, args...)
	r, err := c.node.Do(ctx, node.Request{Op: node.OpRun, Argv: argv, Log: f.Name()})
	if err != nil {
		return "", err
	}
	out, err := os.ReadFile(f.Name())
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("ctr %s: %s: %s", args[0], r.Status, lastLines(out, 1))
	}
	return string(out), err
}

// Kubectl runs kubectl as cluster-admin, with stdin if it is not nil, and returns what it wrote on stdout.
func (c *Cluster) Kubectl(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin, "kubectl"), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "HOME="+c.root) // its cache as well
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, lastLines(stderr.Bytes(), 3))
	}
	return stdout.String(), nil
}

// Dial connects to a TCP address as the node sees it: a pod's, say.
func (c *Cluster) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return c.node.Dial(ctx, addr)
}

// Expose makes what listens at outside ("127.0.0.1:4317" of this machine) reachable for pods at inside
// ([NodeIP]+":4317").
func (c *Cluster) Expose(ctx context.Context, inside, outside string) error {
	path := filepath.Join(c.root, "expose-"+strings.ReplaceAll(inside, ":", "-")+".sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("expose %s: %w", outside, err)
	}
	c.atEnd(l)
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				var d net.Dialer
				to, err := d.DialContext(ctx, "tcp", outside)
				if err != nil {
					from.Close()
					return
				}
				node.Join(from, to)
			}()
		}
	}()
	if _, err := c.node.Do(ctx, node.Request{Op: node.OpListen, Addr: inside, Path: path}); err != nil {
		return fmt.Errorf("expose %s: %w", outside, err)
	}
	return nil
}

func (c *Cluster) atEnd(x io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closers = append(c.closers, x)
}

// CompactHistory drops the history of etcd: the API server cannot tell any more what was before.
func (c *Cluster) CompactHistory(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) },
	}}
	post := func(path, body string, into any) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, etcdURL+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("etcd %s: %s", path, resp.Status)
		}
		return json.NewDecoder(resp.Body).Decode(into)
	}
	var now struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := post("/v3/kv/range", `{"key":"AA=="}`, &now); err != nil {
		return fmt.Errorf("read etcd's revision: %w", err)
	}
	var done struct{}
	if err := post("/v3/kv/compaction", `{"revision":"`+now.Header.Revision+`","physical":true}`, &done); err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}
