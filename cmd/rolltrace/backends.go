package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/query/otlp"
)

type flagSet = *pflag.FlagSet

const backendHelp = `Tempo is reached as logcli reaches Loki: each flag has a variable, and a flag wins over its variable.`

// backendFlags say where the spans are: in files, or in Tempo.
type backendFlags struct {
	spans []string

	addr, grpcAddr, pathPrefix string
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
		{"grpc-addr", "TEMPO_GRPC_ADDR", "Tempo's gRPC address, host:9095; default: HTTP alone", &b.grpcAddr},
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
	b.retries = 5
	f.StringArrayVar(&b.spans, "spans", nil, "read the spans from this file of OTLP JSON lines, not from Tempo; may be repeated")
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
		return withHint(usageErrorf("no source of spans is named"), "add --addr http://tempo:3200 (or TEMPO_ADDR), or --spans FILE")
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
func (b *backendFlags) open() (query.Traces, func(), error) {
	if len(b.spans) > 0 {
		files, err := otlp.Open(b.spans...)
		if err != nil {
			return nil, nil, withHint(err, "--spans wants a file of OTLP JSON lines, as the OpenTelemetry Collector's file exporter writes it")
		}
		return files, func() {}, nil
	}
	return nil, nil, fmt.Errorf("not there yet")
}
