package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rolltrace/rolltrace/record"
)

type importOptions struct {
	source, output string
	overwrite      bool
}

func (a *app) importCmd() *cobra.Command {
	var o importOptions
	c := &cobra.Command{
		Use:   "import SOURCE -o rec.jsonl",
		Short: "Turn another tool's watch output into a recording",
		Long: `Turn another tool's watch output into a recording.

SOURCE is one of
  a folder   with raw streams: watch.jsonl and, if there, logs.jsonl
  a file     with the output of 'kubectl get TYPE -w -o json --output-watch-events'
  -          the same on standard input; its events are stamped when they arrive

A file does not say when its events were received, so what it proves is less than what a live recording does.
Prefer 'rolltrace record'. Only fields that a verdict needs are kept: no env, args, volumes or secrets.`,
		Example: `  kubectl get pods -n shop -w -o json --output-watch-events | rolltrace import - -o rec.jsonl
  rolltrace import events.json -o rec.jsonl`,
		Args: exactArgs(1, "one SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			o.source = args[0]
			return a.runImport(c.Context(), o)
		},
	}
	c.Flags().StringVarP(&o.output, "output", "o", "", "the recording to write; - is standard output")
	c.Flags().BoolVar(&o.overwrite, "overwrite", false, "replace the recording if it exists")
	return c
}

func (a *app) runImport(ctx context.Context, o importOptions) error {
	if o.output == "" {
		return withHint(usageErrorf("no recording to write is named"), "add -o rec.jsonl, or -o - for standard output")
	}
	convert, closeSource, err := a.importSource(ctx, o.source)
	if err != nil {
		return err
	}
	defer closeSource()
	var counts record.Counts
	err = a.writeWhole(o.output, o.overwrite, func(w io.Writer) (err error) {
		counts, err = convert(w)
		return err
	})
	switch {
	case errors.Is(err, record.ErrEmpty), errors.Is(err, record.ErrNotWatchOutput):
		return withHint(fmt.Errorf("import %s: %w", o.source, err),
			"a SOURCE is a folder with watch.jsonl or the output of 'kubectl get TYPE -w -o json --output-watch-events'")
	case err != nil:
		return fmt.Errorf("import %s: %w", o.source, err)
	}
	fmt.Fprintf(a.stderr, "rolltrace: imported %s: %s\n", o.source, counts)
	return nil
}

// importSource opens a SOURCE. The function that it returns reads it and writes a recording.
func (a *app) importSource(
	ctx context.Context, source string,
) (convert func(io.Writer) (record.Counts, error), closeSource func(), err error) {
	tool := "rolltrace " + version()
	if source == "-" {
		return func(w io.Writer) (record.Counts, error) {
			return record.ImportKubectl(w, tool, readUntil(ctx, a.stdin), a.now)
		}, func() {}, nil
	}
	st, err := os.Stat(source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, withHint(fmt.Errorf("import %s: no such file or folder", source),
			"name a folder, a file, or - for standard input")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("import %s: %w", source, err)
	}
	if st.IsDir() {
		if _, err := os.Stat(filepath.Join(source, record.RawWatchFile)); errors.Is(err, fs.ErrNotExist) {
			return nil, nil, withHint(fmt.Errorf("import %s: the folder has no %s", source, record.RawWatchFile),
				"name the folder that holds %s", record.RawWatchFile)
		}
		return func(w io.Writer) (record.Counts, error) {
			return record.ImportRawFS(w, tool, os.DirFS(source))
		}, func() {}, nil
	}
	f, err := os.Open(source)
	if err != nil {
		return nil, nil, fmt.Errorf("import %s: %w", source, err)
	}
	return func(w io.Writer) (record.Counts, error) {
		return record.ImportKubectl(w, tool, f, nil)
	}, func() { f.Close() }, nil
}

// writeWhole calls write with a writer of a file that gets its name only when all of it was written. "-" is standard
// output.
func (a *app) writeWhole(name string, overwrite bool, write func(io.Writer) error) (err error) {
	if name == "-" {
		bw := bufio.NewWriter(a.stdout)
		if err := write(bw); err != nil {
			return err
		}
		return bw.Flush()
	}
	if err := mayCreate(name, overwrite); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return fmt.Errorf("create %s: %w", name, pathless(err))
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	bw := bufio.NewWriterSize(f, 1<<16)
	if err := write(bw); err != nil {
		return err
	}
	if err := errors.Join(bw.Flush(), f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, pathless(err))
	}
	if err := mayCreate(name, overwrite); err != nil { // somebody may have made it meanwhile
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return fmt.Errorf("write %s: %w", name, pathless(err))
	}
	return nil
}

// mayCreate refuses a name that exists, unless it may be replaced.
func mayCreate(name string, overwrite bool) error {
	st, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("create %s: %w", name, pathless(err))
	case st.IsDir():
		return usageErrorf("create %s: it is a folder", name)
	case !overwrite:
		return withHint(fmt.Errorf("create %s: it exists", name), "name another file, or add --overwrite")
	}
	return nil
}

// pathless drops the path from a file error: the message names the file that was asked for, not a temporary one.
func pathless(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	return err
}

// readUntil is r that ends when ctx does, even while r blocks.
func readUntil(ctx context.Context, r io.Reader) io.Reader {
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, r)
		pw.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { pw.Close() })
	return pr
}
