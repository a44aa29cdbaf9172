// Command cluster brings a test cluster up, says where its kubeconfig and logs are, and ends it at Ctrl-C:
//
//	go run ./cmd/cluster [-logs DIR]
//	go run ./cmd/cluster -build
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rolltrace/rolltrace/e2e/cluster"
)

func main() {
	logs := flag.String("logs", "", "directory for the components' logs, which stays")
	build := flag.Bool("build", false, "only build the components")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	do := func() error { return run(ctx, *logs) }
	if *build {
		do = func() error { _, err := cluster.Build(ctx, os.Stderr); return err }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, logs string) error {
	c, err := cluster.Up(ctx, cluster.Options{Logs: logs, Progress: os.Stderr})
	if err != nil {
		return err
	}
	fmt.Printf("export KUBECONFIG=%s PATH=%s:$PATH\n", c.Kubeconfig, c.Bin)
	<-ctx.Done()
	return c.Close()
}
