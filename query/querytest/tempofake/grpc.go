package tempofake

import (
	"context"
	"errors"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/rolltrace/rolltrace/query/tempo/tempopb"
)

type grpcQuerier struct {
	tempopb.UnimplementedStreamingQuerierServer
	s *Server
}

func orgID(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, "x-scope-orgid"); len(v) > 0 {
		return v[0]
	}
	return ""
}

// grpcError maps an error to the code that Tempo sends for it.
func grpcError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return status.FromContextError(err).Err()
	}
	api := asAPIError(err)
	switch {
	case api == errTimeout:
		return status.Error(codes.Internal, "context deadline exceeded")
	case api.org, api.uncoded:
		return status.Error(codes.Unknown, api.msg)
	case api.httpStatus == 429:
		return status.Error(codes.ResourceExhausted, api.msg)
	case api.httpStatus < 500:
		return status.Error(codes.InvalidArgument, api.msg)
	default:
		return status.Error(codes.Internal, api.msg)
	}
}

// begin does what all streams begin with.
func (q *grpcQuerier) begin(ctx context.Context, r Request) (_ []*tenant, f Fault, now time.Time, err error) {
	r.GRPC, r.Tenant = true, orgID(ctx)
	f = q.s.arrive(r)
	now = f.now(q.s.o.Now)
	tenants, err := q.s.tenantsOf(r.Tenant, now)
	if err != nil {
		return nil, f, now, err
	}
	if f.kind == faultRaw {
		return nil, f, now, status.Error(f.code, f.err.msg)
	}
	return tenants, f, now, f.before(ctx, q.s.ctx)
}

var errCut = status.Error(codes.Unavailable, "error reading from server: EOF")

func (q *grpcQuerier) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if q.s.o.APITimeout > 0 {
		return context.WithTimeout(ctx, q.s.o.APITimeout)
	}
	return ctx, func() {}
}

// Search implements tempopb.StreamingQuerierServer.
func (q *grpcQuerier) Search(
	req *tempopb.SearchRequest, stream grpc.ServerStreamingServer[tempopb.SearchResponse],
) error {
	tenants, f, now, err := q.begin(stream.Context(), Request{
		Endpoint: Search, Path: tempopb.StreamingQuerier_Search_FullMethodName, Query: req.GetQuery(),
		Start: unixOrZero(int64(req.GetStart())), End: unixOrZero(int64(req.GetEnd())),
		Limit: int(req.GetLimit()), SpansPerSpanSet: int(req.GetSpansPerSpanSet()),
	})
	if err != nil {
		return grpcError(err)
	}
	r, err := q.s.searchRequest(searchParams{
		query: req.GetQuery(), start: int64(req.GetStart()), end: int64(req.GetEnd()),
		hasStart: req.GetStart() != 0, hasEnd: req.GetEnd() != 0, grpc: true,
		limit: int(req.GetLimit()), spss: int(req.GetSpansPerSpanSet()),
	}, now)
	if err != nil {
		return grpcError(err)
	}
	ctx, cancel := q.withTimeout(stream.Context())
	defer cancel()
	sent := 0
	send := func(m *tempopb.SearchResponse) error {
		if f.kind == faultCut && sent >= f.n {
			return errCut
		}
		sent++
		return stream.Send(m)
	}
	err = q.s.search(ctx, tenants, r, now, func(c *combiner, m *tempopb.SearchMetrics, done bool) error {
		// While it is at work Tempo tells what it has; with most_recent it waits for the end.
		if c.mostRecent && !done {
			return nil
		}
		m = proto.CloneOf(m)
		traces := c.take(c.mostRecent)
		if done {
			traces = f.spoilSearch(traces, m)
		}
		for {
			n := q.s.messageTraces(traces)
			if err := send(&tempopb.SearchResponse{Traces: traces[:n], Metrics: m}); err != nil {
				return err
			}
			if traces = traces[n:]; len(traces) == 0 {
				return nil
			}
		}
	})
	if err == nil && f.kind == faultCut {
		err = errCut
	}
	return grpcError(err)
}

func unixOrZero(sec int64) time.Time {
	if sec == 0 {
		return time.Time{}
	}
	return time.Unix(sec, 0)
}

// messageTraces is how many of the traces fit into the next message.
func (s *Server) messageTraces(traces []*tempopb.TraceSearchMetadata) int {
	size := 0
	for i, t := range traces {
		size += proto.Size(t)
		full := s.o.MessageTraces > 0 && i >= s.o.MessageTraces || s.o.MessageBytes > 0 && size > s.o.MessageBytes
		if i > 0 && full {
			return i
		}
	}
	return len(traces)
}

func (q *grpcQuerier) metrics(
	ctx context.Context, method, query string, start, end, step uint64, ranged bool,
) (*metricsRequest, []*series, *tempopb.SearchMetrics, Fault, error) {
	tenants, f, now, err := q.begin(ctx, Request{
		Endpoint: Metrics, Path: method, Query: query, Start: time.Unix(0, int64(start)), End: time.Unix(0, int64(end)),
	})
	if err != nil {
		return nil, nil, nil, f, err
	}
	if start == 0 {
		return nil, nil, nil, f, rejected("start required")
	}
	if end == 0 {
		return nil, nil, nil, f, rejected("end required")
	}
	r, err := q.s.metricsRequest(query, start, end, step, ranged, now)
	if err != nil {
		return nil, nil, nil, f, err
	}
	all, m := r.count(tenants, now)
	f.spoilCounts(all, m)
	if f.kind == faultCut && f.n == 0 {
		err = errCut
	}
	return r, all, m, f, err
}

// MetricsQueryInstant implements tempopb.StreamingQuerierServer.
func (q *grpcQuerier) MetricsQueryInstant(
	req *tempopb.QueryInstantRequest, stream grpc.ServerStreamingServer[tempopb.QueryInstantResponse],
) error {
	r, all, m, f, err := q.metrics(stream.Context(), tempopb.StreamingQuerier_MetricsQueryInstant_FullMethodName,
		req.GetQuery(), req.GetStart(), req.GetEnd(), 0, false)
	if err != nil {
		return grpcError(err)
	}
	if err := stream.Send(&tempopb.QueryInstantResponse{Series: r.instant(all), Metrics: m}); err != nil {
		return err
	}
	if f.kind == faultCut {
		return errCut
	}
	return nil
}

// MetricsQueryRange implements tempopb.StreamingQuerierServer.
func (q *grpcQuerier) MetricsQueryRange(
	req *tempopb.QueryRangeRequest, stream grpc.ServerStreamingServer[tempopb.QueryRangeResponse],
) error {
	r, all, m, f, err := q.metrics(stream.Context(), tempopb.StreamingQuerier_MetricsQueryRange_FullMethodName,
		req.GetQuery(), req.GetStart(), req.GetEnd(), req.GetStep(), true)
	if err != nil {
		return grpcError(err)
	}
	if err := stream.Send(&tempopb.QueryRangeResponse{Series: r.timeSeries(all), Metrics: m}); err != nil {
		return err
	}
	if f.kind == faultCut {
		return errCut
	}
	return nil
}

type otlpService struct {
	collectorpb.UnimplementedTraceServiceServer
	s *Server
}

// Export implements collectorpb.TraceServiceServer.
func (o *otlpService) Export(
	ctx context.Context, req *collectorpb.ExportTraceServiceRequest,
) (*collectorpb.ExportTraceServiceResponse, error) {
	now := o.s.o.Now()
	f := o.s.arrive(Request{
		Endpoint: Export, GRPC: true, Path: collectorpb.TraceService_Export_FullMethodName, Tenant: orgID(ctx),
	})
	tenants, err := o.s.tenantsOf(orgID(ctx), now)
	if err == nil {
		err = f.before(ctx, o.s.ctx)
	}
	if err != nil {
		api := asAPIError(err)
		switch {
		case api.org:
			return nil, status.Error(codes.Unavailable, api.msg)
		case api.httpStatus == 429:
			return nil, status.Error(codes.ResourceExhausted, "RATE_LIMITED: ingestion rate limit exceeded")
		}
		return nil, grpcError(err)
	}
	for _, t := range tenants {
		t.push(now, req.GetResourceSpans())
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}
