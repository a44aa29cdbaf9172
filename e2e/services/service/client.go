package main

import (
	"context"
	"flag"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rolltrace/rolltrace/e2e/services/journal"
)

type client struct {
	process
	conn      *grpc.ClientConn
	http      *http.Client
	endpoints atomic.Pointer[[]string] // addresses of Ready pods
	httpPort  string
	timeout   time.Duration
}

// tracer makes the spans of what the client does that calls for: their trace ids go into the journal.
var tracer = otel.Tracer("service")

func call(fs *flag.FlagSet, args []string, j *journal.Writer) {
	service := fs.String("service", "web", "the Service whose Ready endpoints are called")
	grpcPort := fs.String("grpc-port", "9090", "")
	httpPort := fs.String("http-port", "8080", "")
	grpcEvery := fs.Duration("grpc-every", 100*time.Millisecond, "a unary call each; 0: none")
	httpEvery := fs.Duration("http-every", 0, "a GET each; 0: none")
	streams := fs.Int("streams", 0, "long-lived streams that are kept open")
	retry := fs.Bool("retry", false, "gRPC's transparent retries")
	timeout := fs.Duration("timeout", 30*time.Second, "of a call")
	format := fs.String("log", "json", "log format: json, klog, logfmt, plain")
	noFlush := fs.Bool("no-flush", false, "exit without flushing spans")
	fs.Parse(args)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c := &client{
		process:  process{journal: j, log: &logger{format: logFormats[*format]}, noFlush: *noFlush},
		http:     &http.Client{Transport: otelhttp.NewTransport(http.DefaultTransport)},
		httpPort: *httpPort, timeout: *timeout,
	}
	j.Write(journal.Entry{At: time.Now().UnixNano(), Event: journal.Start})
	var err error
	if c.traces, err = newTraces(ctx, "shop-client"); err != nil {
		c.log.write(fail, "set up traces", "err", err.Error())
	}
	r := manual.NewBuilderWithScheme("endpoints")
	r.InitialState(resolver.State{})
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithResolvers(r),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`), grpc.WithStatsHandler(otelgrpc.NewClientHandler()),
	}
	if !*retry {
		opts = append(opts, grpc.WithDisableRetry())
	}
	if c.conn, err = grpc.NewClient("endpoints:///"+*service, opts...); err != nil {
		c.log.write(fail, "connect", "err", err.Error())
		c.exit(1)
	}
	if err := c.follow(ctx, *service, func(ips []string) {
		var s resolver.State
		for _, ip := range ips {
			s.Endpoints = append(s.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: ip + ":" + *grpcPort}}})
		}
		r.UpdateState(s)
	}); err != nil {
		c.log.write(fail, "find endpoints", "err", err.Error())
		c.exit(1)
	}
	c.log.write(info, "started")

	for range *streams {
		go func() {
			for ctx.Err() == nil {
				c.stream(ctx)
				time.Sleep(100 * time.Millisecond)
			}
		}()
	}
	n := 0
	grpcTick, httpTick := ticks(*grpcEvery), ticks(*httpEvery)
	for {
		select {
		case <-ctx.Done():
			j.Write(journal.Entry{At: time.Now().UnixNano(), Event: journal.SIGTERM})
			c.log.write(info, "received SIGTERM")
			c.exit(0)
		case <-grpcTick:
			go c.buyGRPC(ctx)
		case <-httpTick:
			n++
			go c.buyHTTP(ctx, n)
		}
	}
}

func ticks(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.Tick(d)
}

// follow keeps the Ready endpoints of a Service; it returns when it knows some.
func (c *client) follow(ctx context.Context, service string, changed func([]string)) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	some := make(chan struct{})
	go func() {
		for ctx.Err() == nil {
			w, err := k.DiscoveryV1().EndpointSlices(os.Getenv("NAMESPACE")).Watch(ctx, metav1.ListOptions{LabelSelector: discovery.LabelServiceName + "=" + service})
			if err != nil {
				time.Sleep(300 * time.Millisecond)
				continue
			}
			for e := range w.ResultChan() {
				slice, ok := e.Object.(*discovery.EndpointSlice)
				if !ok {
					break
				}
				ips := []string{}
				for _, ep := range slice.Endpoints {
					if ep.Conditions.Ready != nil && *ep.Conditions.Ready {
						ips = append(ips, ep.Addresses...)
					}
				}
				if len(ips) == 0 {
					continue
				}
				changed(ips)
				if c.endpoints.Swap(&ips) == nil {
					close(some)
				}
			}
			w.Stop()
		}
	}()
	select {
	case <-some:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// called writes a call down.
func (c *client) called(ctx context.Context, method, to string, begin time.Time, code int, err error) {
	traceID, spanID := ids(ctx)
	c.journal.Write(journal.Entry{
		At: time.Now().UnixNano(), Event: journal.Call, Method: method, Code: code, Peer: to,
		TraceID: traceID, SpanID: spanID, Duration: int64(time.Since(begin)),
	})
	if err != nil {
		c.log.write(warn, "call failed", "method", method, "err", err.Error())
	}
}

func (c *client) buyGRPC(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	defer cancel()
	ctx, span := tracer.Start(ctx, "order")
	defer span.End()
	var p peer.Peer
	begin := time.Now()
	err := c.conn.Invoke(ctx, "/"+serviceName+"/"+methodBuy, &structpb.Struct{}, &structpb.Struct{}, grpc.Peer(&p))
	to := ""
	if p.Addr != nil {
		to = p.Addr.String()
	}
	c.called(ctx, methodBuy, to, begin, int(status.Code(err)), err)
}

func (c *client) buyHTTP(ctx context.Context, n int) {
	ips := *c.endpoints.Load()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	defer cancel()
	ctx, span := tracer.Start(ctx, "order")
	defer span.End()
	to := ""
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { to = i.Conn.RemoteAddr().String() }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ips[n%len(ips)]+":"+c.httpPort+"/buy", nil)
	if err != nil {
		return
	}
	begin, code := time.Now(), 0
	resp, err := c.http.Do(req)
	if err == nil {
		code = resp.StatusCode
		resp.Body.Close()
	}
	c.called(ctx, "/buy", to, begin, code, err)
}

// stream opens one long-lived stream and reads it to its end.
func (c *client) stream(ctx context.Context) {
	ctx, span := tracer.Start(ctx, "watch orders")
	defer span.End()
	begin := time.Now()
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+serviceName+"/"+methodWatch)
	if err == nil {
		err = s.SendMsg(&structpb.Struct{})
	}
	if err == nil {
		err = s.CloseSend()
	}
	for err == nil {
		err = s.RecvMsg(&structpb.Struct{})
	}
	if err.Error() == "EOF" {
		err = nil
	}
	c.called(ctx, methodWatch, "", begin, int(status.Code(err)), err)
}
