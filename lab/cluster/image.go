package cluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// pauseImage is what holds the namespaces of a pod.
const pauseImage = "localhost/pause:1"

// Image is an image of one static program.
type Image struct {
	// Names are the references that the image answers to: "registry/repository:tag".
	Names []string
	// Program is the file that it runs, at / and as its entry point.
	Program string
}

// Write writes the image to a file as `docker save` would. Equal programs give equal files.
func (i Image) Write(path string) error {
	layer, err := i.layer()
	if err != nil {
		return fmt.Errorf("make image %v: %w", i.Names, err)
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "created": time.Unix(0, 0).UTC(),
		"config":  map[string]any{"Entrypoint": []string{"/" + filepath.Base(i.Program)}, "WorkingDir": "/", "Env": []string{"PATH=/"}},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
		"history": []any{map[string]any{"created": time.Unix(0, 0).UTC()}},
	})
	if err != nil {
		return fmt.Errorf("make image %v: %w", i.Names, err)
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": i.Names, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return fmt.Errorf("make image %v: %w", i.Names, err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		name string
		data []byte
	}{{"manifest.json", manifest}, {"config.json", config}, {"layer.tar", layer}} {
		if err := add(w, &tar.Header{Name: f.name, Mode: 0o644}, f.data); err != nil {
			return fmt.Errorf("make image %v: %w", i.Names, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("make image %v: %w", i.Names, err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		return fmt.Errorf("make image %v: %w", i.Names, err)
	}
	return nil
}

// layer is the image's one layer: the program and what most programs expect.
func (i Image) layer() ([]byte, error) {
	program, err := os.ReadFile(i.Program)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range []struct {
		header tar.Header
		data   []byte
	}{
		{tar.Header{Name: "etc/", Typeflag: tar.TypeDir, Mode: 0o755}, nil},
		{tar.Header{Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0::/:/\nnobody:x:65534:65534::/:/\n")},
		{tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}, nil},
		{tar.Header{Name: filepath.Base(i.Program), Mode: 0o755}, program},
	} {
		if err := add(w, &f.header, f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func add(w *tar.Writer, h *tar.Header, data []byte) error {
	h.Size, h.ModTime = int64(len(data)), time.Unix(0, 0)
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// makePause writes the image of the pause program.
func (c *Cluster) makePause() (string, error) {
	path := filepath.Join(c.dir, "pause.tar")
	return path, Image{Names: []string{pauseImage}, Program: c.Program("pause")}.Write(path)
}
