// Package node is the machine that a cluster runs on: a process of its own, PID 1 of new mount, network and PID
// namespaces, and a supervisor outside of them that ends it and removes what the kernel does not.
//
// Two things end it whatever happens to whoever started it. The supervisor's standard input is a pipe that nobody writes
// to: when its other end is gone, by Close, panic or SIGKILL, the supervisor kills PID 1, and with it the kernel ends every
// process of the namespace and drops its mounts and interfaces. PID 1 holds such a pipe of the supervisor.
package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
)

// Op is what PID 1 is asked to do.
type Op string

// The ops. Each connection to the control socket carries one request and one response.
const (
	OpStart  Op = "start"  // start Argv as Name
	OpRun    Op = "run"    // start Argv, answer when it has ended; ends it when the connection does
	OpSignal Op = "signal" // send Signal to Name
	OpWait   Op = "wait"   // answer when Name has ended
	OpStatus Op = "status" // answer at once: how Name is
	OpDial   Op = "dial"   // connect to Addr (TCP); after the response the connection is that one
	OpListen Op = "listen" // accept connections to Addr (TCP), each forwarded to the unix socket Path
)

// Request is one request.
type Request struct {
	Op     Op             `json:"op"`
	Name   string         `json:"name,omitempty"`
	Argv   []string       `json:"argv,omitempty"`
	Log    string         `json:"log,omitempty"` // stdout and stderr are appended to this file
	Signal syscall.Signal `json:"signal,omitempty"`
	Addr   string         `json:"addr,omitempty"`
	Path   string         `json:"path,omitempty"`
}

// Response is the answer to one request.
type Response struct {
	Error  string `json:"error,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
	Status string `json:"status,omitempty"` // of an ended process: "exit status 1", "signal: killed"
	Code   int    `json:"code,omitempty"`   // of an ended process: -1 when a signal ended it
}

// Config is what the supervisor and PID 1 are told, in CONFIG of the node's directory.
type Config struct {
	// Name names the node's cgroups; nothing else on the machine bears it.
	Name string `json:"name"`
	// Keep are directories that stay visible where the node hides those of the machine.
	Keep []string `json:"keep"`
	// Addresses (CIDR) are the node's own, on its loopback interface.
	Addresses []string `json:"addresses"`
}

// The files of a node's directory.
const (
	configFile  = "node.json"
	controlFile = "control.sock"
	lockFile    = "lock"
)

// Client talks to the PID 1 of the node in Dir.
type Client struct{ Dir string }

// Do sends one request and waits for the answer, or until ctx ends.
func (c Client) Do(ctx context.Context, r Request) (Response, error) {
	conn, resp, err := c.do(ctx, r)
	if err != nil {
		return resp, err
	}
	return resp, conn.Close()
}

// Dial connects to a TCP address as the node sees it.
func (c Client) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, _, err := c.do(ctx, Request{Op: OpDial, Addr: addr})
	return conn, err
}

func (c Client) do(ctx context.Context, r Request) (net.Conn, Response, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", filepath.Join(c.Dir, controlFile))
	if err != nil {
		return nil, Response{}, fmt.Errorf("reach node: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	resp, br, err := roundTrip(conn, r)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, resp, fmt.Errorf("%s %s%s: %w", r.Op, r.Name, r.Addr, err)
	}
	return &bufferedConn{conn, br}, resp, nil
}

func roundTrip(conn net.Conn, r Request) (Response, *bufio.Reader, error) {
	var resp Response
	br := bufio.NewReader(conn)
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return resp, br, err
	}
	line, err := br.ReadBytes('\n')
	if err != nil {
		return resp, br, err
	}
	if err := json.Unmarshal(line, &resp); err != nil {
		return resp, br, err
	}
	if resp.Error != "" {
		return resp, br, errors.New(resp.Error)
	}
	return resp, br, nil
}

// bufferedConn is a connection some of whose bytes were read already.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// CloseWrite passes a half-close on.
func (c *bufferedConn) CloseWrite() error { return c.Conn.(*net.UnixConn).CloseWrite() }
