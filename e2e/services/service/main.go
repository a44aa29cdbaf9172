// Command service is the workload of the end-to-end scenarios: a gRPC and HTTP server, the client that calls it, and the
// command of an exec preStop hook, in one static binary.
//
//	service server [FLAGS]
//	service client [FLAGS]
//	service prestop -for 3s [-code 7]
//
// Its environment: POD, POD_UID, NAMESPACE, NODE and CONTAINER say who it is, JOURNAL is the directory of its journal, and
// OTEL_EXPORTER_OTLP_ENDPOINT is where spans go; without it there are none.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/rolltrace/rolltrace/e2e/services/journal"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: service server|client|prestop [FLAGS]")
		os.Exit(2)
	}
	var j *journal.Writer
	if dir := os.Getenv("JOURNAL"); dir != "" {
		var err error
		if j, err = journal.Open(dir, os.Getenv("POD"), os.Getenv("CONTAINER")); err != nil {
			fmt.Fprintln(os.Stderr, "service:", err)
			os.Exit(1)
		}
	}
	fs := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	switch args := os.Args[2:]; os.Args[1] {
	case "server":
		serve(fs, args, j)
	case "client":
		call(fs, args, j)
	case "prestop":
		preStop(fs, args, j)
	default:
		fmt.Fprintf(os.Stderr, "service: what is %q?\n", os.Args[1])
		os.Exit(2)
	}
}

// preStop is the command of an exec hook.
func preStop(fs *flag.FlagSet, args []string, j *journal.Writer) {
	d := fs.Duration("for", 0, "how long the hook takes")
	code := fs.Int("code", 0, "exit code")
	fs.Parse(args)
	j.Write(journal.Entry{At: time.Now().UnixNano(), Event: journal.PreStopStart})
	time.Sleep(*d)
	j.Write(journal.Entry{At: time.Now().UnixNano(), Event: journal.PreStopEnd, Code: *code})
	os.Exit(*code)
}

// process is what both services share: a journal, a log, and ways to end.
type process struct {
	journal *journal.Writer
	log     *logger
	traces  *traces
	noFlush bool
}

// exit ends the process as if nothing were left to do: the journal first, then the last line of the log.
func (p *process) exit(code int) {
	if p.traces != nil && !p.noFlush {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		p.traces.shutdown(ctx)
		cancel()
	}
	p.log.last(p.journal, code)
	os.Exit(code)
}
