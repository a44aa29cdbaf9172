// Protogen writes the Go files of a .proto, without protoc:
//
//	cd tools && go run ./protogen ../query/tempo/tempopb/tempo.proto
//
// The file is compiled by protocompile; its imports are resolved from the Go packages that are linked into this program
// (OTLP's) and from protobuf's own. The plugins are the tools of this module. The files land beside the .proto.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/bufbuild/protocompile"
	_ "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugins are run in order, each with its parameter.
var plugins = []struct{ name, parameter string }{
	{"protoc-gen-go", "paths=source_relative"},
	{"protoc-gen-go-grpc", "paths=source_relative"},
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: protogen FILE.proto...")
		os.Exit(2)
	}
	for _, path := range os.Args[1:] {
		if err := generate(context.Background(), path); err != nil {
			fmt.Fprintf(os.Stderr, "protogen: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func generate(ctx context.Context, path string) error {
	dir, base := filepath.Split(path)
	compiler := protocompile.Compiler{
		Resolver: protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: []string{dir}},
			protocompile.WithStandardImports(protocompile.ResolverFunc(linked)),
		},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, base)
	if err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: []string{base}}
	for _, f := range files {
		request.ProtoFile = appendWithImports(request.ProtoFile, f)
	}
	for _, p := range plugins {
		request.Parameter = proto.String(p.parameter)
		if err := run(ctx, p.name, request, dir); err != nil {
			return fmt.Errorf("run %s: %w", p.name, err)
		}
	}
	return nil
}

// linked resolves an import from the descriptors of the linked Go packages.
func linked(path string) (protocompile.SearchResult, error) {
	fd, err := protoregistry.GlobalFiles.FindFileByPath(path)
	if err != nil {
		return protocompile.SearchResult{}, err
	}
	return protocompile.SearchResult{Proto: protodesc.ToFileDescriptorProto(fd)}, nil
}

// appendWithImports appends a file after the files that it imports, as the plugin protocol demands.
func appendWithImports(
	files []*descriptorpb.FileDescriptorProto, fd protoreflect.FileDescriptor,
) []*descriptorpb.FileDescriptorProto {
	done := func(f *descriptorpb.FileDescriptorProto) bool { return f.GetName() == fd.Path() }
	if slices.ContainsFunc(files, done) {
		return files
	}
	imports := fd.Imports()
	for i := range imports.Len() {
		files = appendWithImports(files, imports.Get(i).FileDescriptor)
	}
	return append(files, protoDescriptor(fd))
}

// protoDescriptor keeps the comments, which become the generated code's.
func protoDescriptor(fd protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	if r, ok := fd.(interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	}); ok {
		return r.FileDescriptorProto()
	}
	return protodesc.ToFileDescriptorProto(fd)
}

func run(ctx context.Context, plugin string, request *pluginpb.CodeGeneratorRequest, dir string) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return fmt.Errorf("read the plugin's answer: %w", err)
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, f := range response.GetFile() {
		if err := os.WriteFile(filepath.Join(dir, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
