package tempo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Transport says how searches travel. Traces by id, counts and the version always come over HTTP.
type Transport string

// The transports. TransportAuto tries gRPC and, where no gRPC server answers, falls back to HTTP.
const (
	TransportAuto Transport = "auto"
	TransportGRPC Transport = "grpc" // tempopb.StreamingQuerier
	TransportHTTP Transport = "http" // /api/search, protobuf where the server can (2.10), else JSON
	TransportJSON Transport = "json" // /api/search, JSON always
)

// Options says where Tempo is and how to ask it. Only Addr and Now are needed.
type Options struct {
	// Addr is the HTTP address of Tempo or its query frontend: http(s)://host[:port][/prefix], or host:port for http.
	Addr string
	// GRPCAddr is host:port of the gRPC server. Empty: that of Addr, where Tempo serves gRPC as well when its
	// stream_over_http_enabled is true.
	GRPCAddr  string
	Transport Transport // empty: TransportAuto

	OrgID string // X-Scope-OrgID
	// Username and Password are for basic authentication; BearerToken, or the content of BearerTokenFile, which is read
	// for each request, for a token. No error ever holds them.
	Username, Password string
	BearerToken        string
	BearerTokenFile    string
	Headers            http.Header
	UserAgent          string

	CACertPath, CertPath, KeyPath string // PEM
	TLSSkipVerify                 bool

	// Retries is how often a refused or broken request is sent again; 0: 5, negative: never.
	Retries int
	// Timeout bounds each request; 0: 28 s, under the 30 s after which Tempo cuts the connection without a word
	// (server.http_server_write_timeout).
	Timeout time.Duration
	// Parallel bounds the requests in flight; 0: 4.
	Parallel int
	// Late is how long after the end of a range spans of it may still have been stored for the search that looks for late
	// spans; 0: 15 min.
	Late time.Duration
	// MaxTraces bounds the traces fetched by id in one request for spans; 0: 500. Each costs the server some 40 ms.
	MaxTraces int
	// MetricsURL is Tempo's own /metrics, where tempo_discarded_spans_total says that it dropped spans; empty: not read.
	MetricsURL string

	// Now is the clock; required. Waits use timers of package time.
	Now func() time.Time
	// Dial replaces the dialer in tests.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

func (o *Options) defaults() {
	if o.Transport == "" {
		o.Transport = TransportAuto
	}
	if o.Retries == 0 {
		o.Retries = 5
	}
	o.Retries = max(o.Retries, 0)
	if o.Timeout <= 0 {
		o.Timeout = 28 * time.Second
	}
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	if o.Late <= 0 {
		o.Late = 15 * time.Minute
	}
	if o.MaxTraces <= 0 {
		o.MaxTraces = 500
	}
	if o.UserAgent == "" {
		o.UserAgent = "rolltrace"
	}
}

// parseAddr reads Options.Addr into a URL without a trailing slash, and the address a gRPC server would have there.
func parseAddr(addr string) (base *url.URL, hostport string, err error) {
	if addr == "" {
		return nil, "", errors.New("the address of Tempo is empty")
	}
	s := addr
	if !strings.Contains(s, "://") {
		s = "http://" + s
	}
	u, err := url.Parse(s)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, "", fmt.Errorf("read the address of Tempo: %w", err)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, "", fmt.Errorf("read the address of Tempo: scheme %q, want http or https", u.Scheme)
	case u.Hostname() == "":
		return nil, "", errors.New("read the address of Tempo: no host")
	case u.User != nil:
		return nil, "", errors.New("read the address of Tempo: it holds a user name or password; give them on their own")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, "", errors.New("read the address of Tempo: it holds a query or fragment")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	return u, net.JoinHostPort(u.Hostname(), port), nil
}

func (o *Options) tlsConfig() (*tls.Config, error) {
	cfg := &tls.Config{InsecureSkipVerify: o.TLSSkipVerify}
	if o.CACertPath != "" {
		pem, err := os.ReadFile(o.CACertPath)
		if err != nil {
			return nil, fmt.Errorf("read CA certificate: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA certificate: %s holds no PEM certificate", o.CACertPath)
		}
	}
	if (o.CertPath == "") != (o.KeyPath == "") {
		return nil, errors.New("read client certificate: certificate and key are needed together")
	}
	if o.CertPath != "" {
		cert, err := tls.LoadX509KeyPair(o.CertPath, o.KeyPath)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

// auth returns the headers that identify us, read anew for each request.
func (o *Options) auth() (http.Header, error) {
	h := o.Headers.Clone()
	if h == nil {
		h = http.Header{}
	}
	if o.OrgID != "" {
		h.Set("X-Scope-OrgID", o.OrgID)
	}
	token := o.BearerToken
	if o.BearerTokenFile != "" {
		b, err := os.ReadFile(o.BearerTokenFile)
		if err != nil {
			return nil, fmt.Errorf("read bearer token: %w", err)
		}
		token = strings.TrimSpace(string(b))
	}
	switch {
	case token != "":
		h.Set("Authorization", "Bearer "+token)
	case o.Username != "":
		r := http.Request{Header: http.Header{}}
		r.SetBasicAuth(o.Username, o.Password)
		h.Set("Authorization", r.Header.Get("Authorization"))
	}
	return h, nil
}
