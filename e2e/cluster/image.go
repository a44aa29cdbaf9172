package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
)

// Image is an image that holds one static binary and runs it.
type Image struct {
	Ref    string // with registry and tag: "e2e.local/server:1"
	Binary string // the file
	Path   string // where it is in the image; "" is "/" and the name of the file
}

// Write writes the image as docker save does, which containerd imports (moby/docker-image-spec v1.2).
func (i Image) Write(w io.Writer) error {
	binary, err := os.ReadFile(i.Binary)
	if err != nil {
		return fmt.Errorf("write image %s: %w", i.Ref, err)
	}
	in := i.path()
	var layer bytes.Buffer
	lw := tar.NewWriter(&layer)
	if err := lw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return err
	}
	if err := addFile(lw, in[1:], 0o755, binary); err != nil {
		return err
	}
	if err := lw.Close(); err != nil {
		return err
	}
	layerSum := sum(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{in}, "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layerSum}},
	})
	if err != nil {
		return err
	}
	configName, layerName := sum(config)+".json", layerSum+"/layer.tar"
	manifest, err := json.Marshal([]any{map[string]any{"Config": configName, "RepoTags": []string{i.Ref}, "Layers": []string{layerName}}})
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{{configName, config}, {layerName, layer.Bytes()}, {"manifest.json", manifest}} {
		if err := addFile(tw, f.name, 0o644, f.data); err != nil {
			return fmt.Errorf("write image %s: %w", i.Ref, err)
		}
	}
	return tw.Close()
}

func (i Image) path() string {
	if i.Path != "" {
		return path.Clean("/" + i.Path)
	}
	return "/" + path.Base(i.Binary)
}

func addFile(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
