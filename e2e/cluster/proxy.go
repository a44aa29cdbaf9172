package cluster

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"

	"github.com/rolltrace/rolltrace/e2e/cluster/internal/node"
)

// Proxy is a way to the API server that can be cut: a listener on this machine's loopback interface.
type Proxy struct {
	// Kubeconfig is the path of a kubeconfig for cluster-admin that goes this way.
	Kubeconfig string

	listener net.Listener
	mu       sync.Mutex
	isCut    bool
	conns    map[net.Conn]bool
}

// Proxy makes another way to the API server. It goes with the cluster.
func (c *Cluster) Proxy(ctx context.Context) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("make way to the API server: %w", err)
	}
	p := &Proxy{listener: l, conns: map[net.Conn]bool{}}
	c.atEnd(p)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	p.Kubeconfig = filepath.Join(c.root, "proxy-"+port+".kubeconfig")
	go p.serve(ctx, c)
	return p, c.kubeconfig(p.Kubeconfig, c.admin, l.Addr().String())
}

func (p *Proxy) serve(ctx context.Context, c *Cluster) {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			if !p.enter(conn) {
				return
			}
			defer p.leave(conn)
			to, err := c.Dial(ctx, "127.0.0.1:"+apiPort)
			if err != nil {
				return
			}
			node.Join(conn, to)
		}()
	}
}

func (p *Proxy) enter(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isCut {
		return false
	}
	p.conns[conn] = true
	return true
}

func (p *Proxy) leave(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
}

// Cut closes every connection, and new ones at once, until [Proxy.Restore].
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for conn := range p.conns {
		conn.Close()
	}
}

// Restore lets connections through again.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}

// Close ends the way.
func (p *Proxy) Close() error {
	p.Cut()
	return p.listener.Close()
}
