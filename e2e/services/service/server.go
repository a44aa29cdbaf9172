package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/rolltrace/rolltrace/e2e/services/journal"
)

// The gRPC service: no generated code, Structs in and out.
const (
	serviceName = "rolltrace.e2e.v1.Shop"
	methodBuy   = "Buy"   // unary
	methodWatch = "Watch" // the server streams until it or the client ends
)

type server struct {
	process
	delay     time.Duration
	errorRate float64
	start     time.Time
	draining  atomic.Bool
	stopped   chan struct{} // closed at SIGTERM
}

func serve(fs *flag.FlagSet, args []string, j *journal.Writer) {
	httpAddr := fs.String("http", ":8080", "HTTP address: /readyz, /livez, /prestop?for=3s, /buy")
	grpcAddr := fs.String("grpc", "", "gRPC address; empty: none")
	format := fs.String("log", "json", "log format: json, klog, logfmt, plain")
	tick := fs.Duration("tick", 200*time.Millisecond, "a log line each; 0: none")
	delay := fs.Duration("delay", 20*time.Millisecond, "mean time that a call takes")
	errorRate := fs.Float64("error-rate", 0, "share of calls that fail")
	readyAfter := fs.Duration("ready-after", 0, "not Ready before")
	readyFlip := fs.Bool("ready-flip", false, "not Ready from SIGTERM on")
	liveFor := fs.Duration("live-for", 0, "the liveness probe fails after; 0: never")
	// how it ends
	drain := fs.Duration("drain", 0, "from SIGTERM to exit, at least, while calls are served")
	graceful := fs.Duration("graceful", 0, "after the drain, wait so long for open calls to end")
	closeAtOnce := fs.Bool("close", false, "at SIGTERM cut open calls, then drain")
	abrupt := fs.Bool("abrupt", false, "exit at SIGTERM at once, with nothing flushed")
	ignore := fs.Bool("ignore-sigterm", false, "SIGTERM is noted and has no effect")
	unhandled := fs.Bool("unhandled", false, "SIGTERM is not handled: Go's runtime ends the process")
	noFlush := fs.Bool("no-flush", false, "exit without flushing spans")
	exitCode := fs.Int("exit-code", 0, "exit code after SIGTERM")
	crashAfter := fs.Duration("crash-after", 0, "exit with 3 after; 0: never")
	oomAfter := fs.Duration("oom-after", 0, "use up all memory after; 0: never")
	doneAfter := fs.Duration("done-after", 0, "exit with 0 after, as a job does; 0: never")
	fs.Parse(args)

	signals := make(chan os.Signal, 8)
	if !*unhandled {
		signal.Notify(signals, syscall.SIGTERM)
	}
	now := time.Now()
	s := &server{
		process: process{journal: j, log: &logger{format: logFormats[*format]}, noFlush: *noFlush},
		delay:   *delay, errorRate: *errorRate, start: now, stopped: make(chan struct{}),
	}
	j.Write(journal.Entry{At: now.UnixNano(), Event: journal.Start})
	s.log.write(info, "started")
	var err error
	if s.traces, err = newTraces(context.Background(), "shop"); err != nil {
		s.log.write(fail, "set up traces", "err", err.Error())
	}

	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if s.draining.Load() && *readyFlip || time.Since(s.start) < *readyAfter {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		if *liveFor > 0 && time.Since(s.start) > *liveFor {
			http.Error(w, "dead", http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("/prestop", s.preStop)
	mux.Handle("/buy", otelhttp.NewHandler(http.HandlerFunc(s.buyHTTP), "/buy"))
	web := &http.Server{Addr: *httpAddr, Handler: mux}
	go func() {
		if err := web.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			s.log.write(warn, "HTTP ended", "err", err.Error())
		}
	}()
	var rpc *grpc.Server
	if *grpcAddr != "" {
		rpc = s.grpcServer(*grpcAddr)
	}
	if *tick > 0 {
		go func() {
			for range time.Tick(*tick) {
				s.log.write(info, "tick")
			}
		}()
	}

	crash, oom, done := after(*crashAfter), after(*oomAfter), after(*doneAfter)
	for {
		select {
		case <-crash:
			s.exit(3)
		case <-done:
			s.exit(0)
		case <-oom:
			useMemory()
		case <-signals:
			at := time.Now()
			j.Write(journal.Entry{At: at.UnixNano(), Event: journal.SIGTERM})
			s.log.write(info, "received SIGTERM")
			if *ignore {
				continue
			}
			if *abrupt {
				s.traces = nil
				s.exit(*exitCode)
			}
			if !s.draining.Swap(true) {
				go s.end(rpc, web, *closeAtOnce, at.Add(*drain), *graceful, *exitCode)
			}
		}
	}
}

// end drains and exits.
func (s *server) end(rpc *grpc.Server, web *http.Server, closeAtOnce bool, until time.Time, graceful time.Duration, code int) {
	close(s.stopped)
	if closeAtOnce {
		if rpc != nil {
			rpc.Stop()
		}
		web.Close()
	}
	time.Sleep(time.Until(until))
	if graceful > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), graceful)
		defer cancel()
		if rpc != nil {
			stop := context.AfterFunc(ctx, rpc.Stop)
			rpc.GracefulStop()
			stop()
		}
		web.Shutdown(ctx)
	}
	s.exit(code)
}

func (s *server) preStop(w http.ResponseWriter, r *http.Request) {
	d, err := time.ParseDuration(r.FormValue("for"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.journal.Write(journal.Entry{At: time.Now().UnixNano(), Event: journal.PreStopStart})
	time.Sleep(d)
	s.journal.Write(journal.Entry{At: time.Now().UnixNano(), Event: journal.PreStopEnd})
}

// work is a call's: it takes its time, and fails at the rate that was asked for.
func (s *server) work(ctx context.Context) error {
	d := s.delay/2 + rand.N(s.delay+1)
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-time.After(d):
	}
	if rand.Float64() < s.errorRate {
		s.log.write(warn, "buy failed")
		return status.Error(codes.Unavailable, "out of stock")
	}
	return nil
}

func (s *server) answered(ctx context.Context, method, from string, begin time.Time, code int) {
	traceID, spanID := ids(ctx)
	s.journal.Write(journal.Entry{
		At: time.Now().UnixNano(), Event: journal.Answer, Method: method, Code: code, Peer: from,
		TraceID: traceID, SpanID: spanID, Duration: int64(time.Since(begin)),
	})
}

func (s *server) buyHTTP(w http.ResponseWriter, r *http.Request) {
	begin, code := time.Now(), http.StatusOK
	if err := s.work(r.Context()); err != nil {
		code = http.StatusServiceUnavailable
		http.Error(w, err.Error(), code)
	}
	s.answered(r.Context(), r.URL.Path, r.RemoteAddr, begin, code)
}

func (s *server) grpcServer(addr string) *grpc.Server {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		s.log.write(fail, "listen", "err", err.Error())
		s.exit(1)
	}
	rpc := grpc.NewServer(grpc.StatsHandler(otelgrpc.NewServerHandler()))
	rpc.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: methodBuy, Handler: s.buyGRPC}},
		Streams: []grpc.StreamDesc{{StreamName: methodWatch, ServerStreams: true, Handler: s.watchGRPC}},
	}, s)
	go rpc.Serve(l)
	return rpc
}

func (s *server) buyGRPC(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	begin, in := time.Now(), new(structpb.Struct)
	err := decode(in)
	if err == nil {
		err = s.work(ctx)
	}
	s.answered(ctx, methodBuy, peerOf(ctx), begin, int(status.Code(err)))
	return in, err
}

// watchGRPC sends once a second until the client goes or the server is told to end.
func (s *server) watchGRPC(_ any, stream grpc.ServerStream) error {
	begin, in := time.Now(), new(structpb.Struct)
	err := stream.RecvMsg(in)
	for t := time.NewTicker(time.Second); err == nil; {
		select {
		case <-stream.Context().Done():
			err = status.FromContextError(stream.Context().Err()).Err()
		case <-s.stopped:
			s.answered(stream.Context(), methodWatch, peerOf(stream.Context()), begin, 0)
			return nil
		case <-t.C:
			err = stream.SendMsg(in)
		}
	}
	s.answered(stream.Context(), methodWatch, peerOf(stream.Context()), begin, int(status.Code(err)))
	return err
}

func peerOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return fmt.Sprint(p.Addr)
	}
	return ""
}

func after(d time.Duration) <-chan time.Time {
	if d <= 0 {
		return nil
	}
	return time.After(d)
}

// useMemory takes memory, and uses it, until the kernel ends the process.
func useMemory() {
	var keep [][]byte
	for {
		b := make([]byte, 4<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		keep = append(keep, b)
		runtime.KeepAlive(keep)
	}
}
