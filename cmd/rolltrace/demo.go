package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/rolltrace/rolltrace/assertions"
	"github.com/rolltrace/rolltrace/query/querytest/tempofake"
	"github.com/rolltrace/rolltrace/query/tempo"
	reports "github.com/rolltrace/rolltrace/report"
	"github.com/rolltrace/rolltrace/roll"
	"github.com/rolltrace/rolltrace/verify"
)

// demoFiles are a recording of a real cluster and the spans that its services exported.
//
//go:embed demo
var demoFiles embed.FS

func (a *app) demoCmd() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use:   "demo",
		Short: "Judge four recorded rolls of a real cluster against an embedded store",
		Long: `Judge four recorded rolls of a real cluster: a release that answered 30 % of its calls with an error is rolled to a clean
one, which is then restarted three times. The first roll fails, the restarts pass.

The spans that the services exported are pushed over OTLP into an embedded store that answers as Grafana Tempo does, with
its limits and faults, and are fetched over gRPC, as from a real one. Time in the store is that of the recording.

Exit codes: 0 when the verdicts are those, 1 when they are not.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if !reports.Known(format) {
				return withHint(usageErrorf("format %q is not known", format), "-o takes one of %s", reports.Names())
			}
			return a.runDemo(c.Context(), format)
		},
	}
	c.Flags().StringVarP(&format, "output", "o", reports.Formats[0].Name, "format of the report: "+reports.Names())
	return c
}

func (a *app) runDemo(ctx context.Context, format string) error {
	rec, exports, policy, err := readDemo()
	if err != nil {
		return fmt.Errorf("read the embedded recording: %w", err)
	}
	clock := tempofake.NewClock(rec.Header.StartedAt)
	store, err := tempofake.Start(ctx, tempofake.Options{Now: clock.Now})
	if err != nil {
		return fmt.Errorf("start the embedded store: %w", err)
	}
	defer store.Close()
	n, err := push(ctx, store.GRPCAddr(), clock, exports)
	if err != nil {
		return fmt.Errorf("push spans to the embedded store: %w", err)
	}
	fmt.Fprintf(a.stderr, "rolltrace: pushed %d spans over OTLP to the embedded store at %s\n", n, store.GRPCAddr())
	clock.Set(rec.Last.Add(5 * time.Minute)) // long after the rolls, as a check that comes later

	traces, err := tempo.New(tempo.Options{
		Addr: "http://" + store.HTTPAddr(), GRPCAddr: store.GRPCAddr(), Transport: tempo.TransportGRPC,
		UserAgent: "rolltrace/" + version(), Now: clock.Now,
	})
	if err != nil {
		return fmt.Errorf("reach the embedded store: %w", err)
	}
	defer traces.Close()
	rep, err := verify.Run(ctx, verify.Options{
		Recording: rec, Traces: traces, Policy: policy, Params: assertions.DefaultParams(), Padding: verify.DefaultPadding,
		ControlRequired: true, Tool: "rolltrace " + version(), Progress: a.progress(false), Now: a.now,
	})
	if err != nil {
		return fmt.Errorf("verify the embedded recording: %w", err)
	}
	if err := reports.Write(a.stdout, format, rep); err != nil {
		return err
	}
	got := make([]roll.Verdict, len(rep.Rolls))
	for i, r := range rep.Rolls {
		got[i] = r.Verdict
	}
	if want := []roll.Verdict{roll.Fail, roll.Pass, roll.Pass, roll.Pass}; !slices.Equal(got, want) {
		return fmt.Errorf("the demo's rolls are %v, want %v", got, want)
	}
	fmt.Fprintf(a.stderr, "rolltrace: as recorded: the bad release fails, its three restarts pass ('rolltrace verify' would exit %d)\n",
		verdictCode(rep.Verdict))
	return nil
}

func readDemo() (*roll.Recording, []*collectorpb.ExportTraceServiceRequest, *assertions.Policy, error) {
	raw, err := demoFile("demo/recording.jsonl.gz")
	if err != nil {
		return nil, nil, nil, err
	}
	rec, err := roll.ReadRecording(bytes.NewReader(raw))
	if err != nil {
		return nil, nil, nil, err
	}
	if raw, err = demoFile("demo/spans.otlp.jsonl.gz"); err != nil {
		return nil, nil, nil, err
	}
	exports, err := readExports(raw)
	if err != nil {
		return nil, nil, nil, err
	}
	if raw, err = demoFiles.ReadFile("demo/policy.yaml"); err != nil {
		return nil, nil, nil, err
	}
	policy, err := assertions.ParsePolicy("policy.yaml", raw)
	return rec, exports, policy, err
}

func demoFile(name string) ([]byte, error) {
	raw, err := demoFiles.ReadFile(name)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(z)
	return b.Bytes(), err
}

// readExports reads OTLP JSON lines as the requests that a service would send over gRPC, in the order in which it would
// have sent them: by the end of their last span.
func readExports(raw []byte) ([]*collectorpb.ExportTraceServiceRequest, error) {
	var out []*collectorpb.ExportTraceServiceRequest
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var doc any
		if err := json.Unmarshal(lines.Bytes(), &doc); err != nil {
			return nil, fmt.Errorf("read OTLP JSON: %w", err)
		}
		idsToBase64(doc)
		b, err := json.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("read OTLP JSON: %w", err)
		}
		req := &collectorpb.ExportTraceServiceRequest{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, req); err != nil {
			return nil, fmt.Errorf("read OTLP JSON: %w", err)
		}
		out = append(out, req)
	}
	slices.SortStableFunc(out, func(a, b *collectorpb.ExportTraceServiceRequest) int { return cmp.Compare(lastEnd(a), lastEnd(b)) })
	return out, lines.Err()
}

// idsToBase64 rewrites ids: OTLP's JSON has them in hex, protobuf's own JSON in base64 (OTLP specification, JSON Protobuf
// Encoding).
func idsToBase64(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			idsToBase64(e)
		}
	case map[string]any:
		for k, e := range v {
			s, ok := e.(string)
			if !ok {
				idsToBase64(e)
				continue
			}
			if k == "traceId" || k == "spanId" || k == "parentSpanId" {
				if b, err := hex.DecodeString(s); err == nil {
					v[k] = base64.StdEncoding.EncodeToString(b)
				}
			}
		}
	}
}

func lastEnd(req *collectorpb.ExportTraceServiceRequest) (end uint64) {
	for _, rs := range req.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				end = max(end, s.GetEndTimeUnixNano())
			}
		}
	}
	return end
}

// push sends the requests over OTLP/gRPC, each at the moment of the store's clock at which its last span had ended.
func push(ctx context.Context, addr string, clock *tempofake.Clock, reqs []*collectorpb.ExportTraceServiceRequest) (spans int, err error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	client := collectorpb.NewTraceServiceClient(conn)
	for _, req := range reqs {
		if end := time.Unix(0, int64(lastEnd(req))).UTC(); end.After(clock.Now()) {
			clock.Set(end)
		}
		if _, err := client.Export(ctx, req); err != nil {
			return spans, err
		}
		for _, rs := range req.GetResourceSpans() {
			for _, ss := range rs.GetScopeSpans() {
				spans += len(ss.GetSpans())
			}
		}
	}
	return spans, nil
}
