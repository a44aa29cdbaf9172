package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/query/otlp"
	"github.com/rolltrace/rolltrace/query/tempo"
)

type flagSet = *pflag.FlagSet

const backendHelp = `Tempo is reached as logcli reaches Loki: each flag has a variable, and a flag wins over its variable.`

// backendFlags say where the spans are: in files, or in Tempo.
type backendFlags struct {
	spans []string

	addr, grpcAddr, pathPrefix string
	transport, metricsURL      string
	username, password         string
	bearerToken, tokenFile     string
	orgID                      string
	caCert, cert, key          string
	tlsSkipVerify              bool
	retries                    int
	headers                    []string
}

// setting is one flag of the backend with the variable that stands in for it.
type setting struct {
	flag, env, usage string
	value            any // *string, *bool or *int, holding the default
}

func (b *backendFlags) settings() []setting {
	return []setting{
		{"addr", "TEMPO_ADDR", "Tempo's HTTP address, http://host:3200", &b.addr},
		{"grpc-addr", "TEMPO_GRPC_ADDR", "Tempo's gRPC address, host:9095; default: that of --addr", &b.grpcAddr},
		{"transport", "TEMPO_TRANSPORT", "how searches travel: auto, grpc, http or json", &b.transport},
		{"metrics-url", "TEMPO_METRICS_URL", "Tempo's own /metrics, to see whether it discarded spans", &b.metricsURL},
		{"path-prefix", "TEMPO_PATH_PREFIX", "path in front of /api, for a proxy", &b.pathPrefix},
		{"username", "TEMPO_USERNAME", "user for HTTP basic auth", &b.username},
		{"password", "TEMPO_PASSWORD", "password for HTTP basic auth; prefer the variable", &b.password},
		{"bearer-token", "TEMPO_BEARER_TOKEN", "bearer token; prefer the variable or the file", &b.bearerToken},
		{"bearer-token-file", "TEMPO_BEARER_TOKEN_FILE", "file with the bearer token", &b.tokenFile},
		{"org-id", "TEMPO_ORG_ID", "tenant, sent as X-Scope-OrgID", &b.orgID},
		{"ca-cert", "TEMPO_CA_CERT_PATH", "file with the server's CA", &b.caCert},
		{"cert", "TEMPO_CLIENT_CERT_PATH", "file with the client's certificate", &b.cert},
		{"key", "TEMPO_CLIENT_KEY_PATH", "file with the client's key", &b.key},
		{"tls-skip-verify", "TEMPO_TLS_SKIP_VERIFY", "do not verify the server's certificate", &b.tlsSkipVerify},
		{"retries", "TEMPO_CLIENT_RETRIES", "how often a request that was refused for load is sent again", &b.retries},
	}
}

func (b *backendFlags) add(f flagSet) {
	b.retries, b.transport = 5, string(tempo.TransportAuto)
	f.StringArrayVar(&b.spans, "spans", nil,
		"read the spans from this file of OTLP JSON lines, not from Tempo; may be repeated")
	for _, s := range b.settings() {
		usage := s.usage + " [$" + s.env + "]"
		switch v := s.value.(type) {
		case *string:
			f.StringVar(v, s.flag, *v, usage)
		case *bool:
			f.BoolVar(v, s.flag, *v, usage)
		case *int:
			f.IntVar(v, s.flag, *v, usage)
		}
	}
	f.StringArrayVar(&b.headers, "header", nil, "further header k=v for each request; may be repeated")
}

// complete takes from the environment what no flag said, and refuses what does not go together.
func (b *backendFlags) complete(changed func(string) bool, getenv func(string) string) error {
	if len(b.spans) > 0 {
		if changed("addr") {
			return usageErrorf("--spans and --addr exclude each other: spans come from files or from Tempo")
		}
		return nil
	}
	for _, s := range b.settings() {
		env := getenv(s.env)
		if changed(s.flag) || env == "" {
			continue
		}
		var err error
		switch v := s.value.(type) {
		case *string:
			*v = env
		case *bool:
			*v, err = strconv.ParseBool(env)
		case *int:
			*v, err = strconv.Atoi(env)
		}
		if err != nil {
			return usageErrorf("%s: %q cannot be read", s.env, env)
		}
	}
	switch {
	case b.addr == "":
		return withHint(usageErrorf("no source of spans is named"),
			"add --addr http://tempo:3200 (or TEMPO_ADDR), or --spans FILE")
	case b.bearerToken != "" && b.tokenFile != "":
		return usageErrorf("--bearer-token and --bearer-token-file exclude each other")
	case (b.bearerToken != "" || b.tokenFile != "") && b.username != "":
		return usageErrorf("a bearer token and --username exclude each other")
	case (b.cert == "") != (b.key == ""):
		return usageErrorf("--cert and --key are given together")
	case b.retries < 0:
		return usageErrorf("--retries %d is negative", b.retries)
	}
	for _, h := range b.headers {
		if k, _, ok := strings.Cut(h, "="); !ok || k == "" {
			return usageErrorf("a --header has no name or no '=': want k=v") // its value may be a secret
		}
	}
	return nil
}

// open returns the backend and what closes it.
func (b *backendFlags) open(a *app) (query.Traces, func(), error) {
	if len(b.spans) > 0 {
		return b.openFiles(a)
	}
	headers := http.Header{}
	for _, h := range b.headers {
		k, v, _ := strings.Cut(h, "=")
		headers.Add(k, v)
	}
	retries := b.retries
	if retries == 0 {
		retries = -1 // never
	}
	addr := strings.TrimRight(b.addr, "/")
	if p := strings.Trim(b.pathPrefix, "/"); p != "" {
		addr += "/" + p
	}
	client, err := tempo.New(tempo.Options{
		Addr:            addr,
		GRPCAddr:        b.grpcAddr,
		Transport:       tempo.Transport(b.transport),
		OrgID:           b.orgID,
		Username:        b.username,
		Password:        b.password,
		BearerToken:     b.bearerToken,
		BearerTokenFile: b.tokenFile,
		Headers:         headers,
		UserAgent:       "rolltrace/" + version(),
		CACertPath:      b.caCert,
		CertPath:        b.cert,
		KeyPath:         b.key,
		TLSSkipVerify:   b.tlsSkipVerify,
		Retries:         retries,
		MetricsURL:      b.metricsURL,
		Now:             a.now,
	})
	if err != nil {
		return nil, nil, withHint(&codeError{err: err, code: exitUsage},
			"--addr wants http://host:port, as in http://tempo.monitoring:3200")
	}
	return client, func() { client.Close() }, nil
}

// openFiles returns the backend of files, each of which must be there; gzipped ones are unpacked.
func (b *backendFlags) openFiles(a *app) (query.Traces, func(), error) {
	var sources []otlp.Source
	for _, name := range b.spans {
		st, err := os.Stat(name)
		if err == nil && st.IsDir() {
			err = fmt.Errorf("%s is a folder", name)
		}
		if err != nil {
			return nil, nil, withHint(fmt.Errorf("open spans: %w", err),
				"--spans wants a file of OTLP JSON lines, as the OpenTelemetry Collector's file exporter writes it")
		}
		sources = append(sources, otlp.Source{Name: name, Open: func() (io.ReadCloser, error) {
			in, closeIn, err := a.open(name)
			if err != nil {
				return nil, err
			}
			return &readCloser{in, closeIn}, nil
		}})
	}
	return otlp.New(sources...), func() {}, nil
}

// hint is the next step when the backend could not be asked.
func (b *backendFlags) hint() string {
	if len(b.spans) > 0 {
		return "--spans wants files of OTLP JSON lines, as the OpenTelemetry Collector's file exporter writes them"
	}
	return "check --addr, --path-prefix, --org-id and the credentials; GET /ready below that address answers 'ready' on a Tempo"
}

// readCloser closes what a reader reads from.
type readCloser struct {
	io.Reader
	close func()
}

func (r *readCloser) Close() error { r.close(); return nil }
