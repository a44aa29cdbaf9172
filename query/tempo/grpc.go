package tempo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
)

func (c *Client) dialGRPC(addr string, tlsCfg *tls.Config) error {
	creds := insecure.NewCredentials()
	if tlsCfg != nil {
		creds = credentials.NewTLS(tlsCfg)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithUserAgent(c.opts.UserAgent),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxBody)),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
	}
	target := "dns:///" + addr
	if c.opts.Dial != nil {
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return c.opts.Dial(ctx, "tcp", addr)
		}))
		target = "passthrough:///" + addr
	}
	cc, err := grpc.NewClient(target, opts...)
	if err != nil {
		return fmt.Errorf("read the gRPC address of Tempo: %w", err)
	}
	c.conn = cc
	c.streams = tempopb.NewStreamingQuerierClient(cc)
	return nil
}

// searchGRPC gathers a stream into one answer. Messages hold what changed by trace: a trace that comes again replaces
// what was sent of it before (modules/frontend/combiner). Only EOF ends an answer; whatever came before another end is
// dropped.
func (c *Client) searchGRPC(parent context.Context, r *tempopb.SearchRequest) (*tempopb.SearchResponse, error) {
	if err := c.acquire(parent); err != nil {
		return nil, err
	}
	defer c.release()
	ctx, cancel := context.WithTimeout(parent, c.opts.Timeout)
	defer cancel()
	h, err := c.opts.auth()
	if err != nil {
		return nil, &requestError{kind: failConfig, msg: err.Error()}
	}
	for k, vs := range h {
		for _, v := range vs {
			ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(k), v)
		}
	}
	fail := func(err error) error {
		if cause := parent.Err(); cause != nil {
			return cause
		}
		return grpcError(err, ctx.Err() != nil)
	}
	stream, err := c.streams.Search(ctx, r)
	if err != nil {
		return nil, fail(err)
	}
	out := &tempopb.SearchResponse{Metrics: &tempopb.SearchMetrics{}}
	at := map[string]int{}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fail(err)
		}
		for _, t := range m.GetTraces() {
			if i, ok := at[t.GetTraceID()]; ok {
				out.Traces[i] = t
				continue
			}
			at[t.GetTraceID()] = len(out.Traces)
			out.Traces = append(out.Traces, t)
		}
		out.Metrics.CompletedJobs = max(out.Metrics.CompletedJobs, m.GetMetrics().GetCompletedJobs())
		out.Metrics.TotalJobs = max(out.Metrics.TotalJobs, m.GetMetrics().GetTotalJobs())
	}
}
