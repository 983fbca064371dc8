package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The list says what `make images` writes, under the names that the chart asks for.
func TestListIsTrue(t *testing.T) {
	root := filepath.Join("..", "..")
	tag, err := tagOf(filepath.Join(root, "deploy", "chart", "fairlead", "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	stored, err := os.ReadFile(filepath.Join(root, "deploy", "images.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if want := list(tag); string(stored) != want {
		t.Errorf("deploy/images.txt is stale (go run ./tools/images -list > deploy/images.txt):\n%s\nwant\n%s", stored, want)
	}
}

// testInputs are small programs of the same kinds: this one, which is static, and one
// of the host's that loads libraries.
func testInputs(t *testing.T) inputs {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	authorities := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authorities, []byte("authorities"), 0o600); err != nil {
		t.Fatal(err)
	}
	return inputs{fairlead: self, envoy: shell, authorities: authorities}
}

func (s spec) build(t *testing.T, in inputs) []byte {
	t.Helper()
	layers, err := s.files(in)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), s.archive)
	if _, err := write(path, image{reference: s.reference("1"), user: s.user, entrypoint: []string{"/" + programPath}, layers: layers}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestImages(t *testing.T) {
	in := testInputs(t)
	for _, s := range images {
		t.Run(s.name, func(t *testing.T) {
			archive := s.build(t, in)
			if !bytes.Equal(archive, s.build(t, in)) {
				t.Error("equal inputs gave two archives")
			}
			members := untar(t, bytes.NewReader(archive))
			for name, data := range members {
				if digest, ok := strings.CutPrefix(name, "blobs/sha256/"); ok && hash(data) != digest {
					t.Errorf("%s holds %s", name, hash(data))
				}
			}
			var index struct{ Manifests []descriptor }
			decode(t, members["index.json"], &index)
			var manifest struct {
				Config descriptor
				Layers []descriptor
			}
			read := func(d descriptor) []byte {
				data, ok := members["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
				if !ok || int64(len(data)) != d.Size {
					t.Fatalf("blob %s has %d bytes, want %d", d.Digest, len(data), d.Size)
				}
				return data
			}
			if name := index.Manifests[0].Annotations["io.containerd.image.name"]; name != "fairlead.dev/"+s.name+":1" {
				t.Errorf("the image is called %q", name)
			}
			decode(t, read(index.Manifests[0]), &manifest)
			var config struct {
				Config struct{ User string }
				Rootfs struct {
					DiffIDs []string `json:"diff_ids"`
				}
			}
			decode(t, read(manifest.Config), &config)
			if config.Config.User != s.user {
				t.Errorf("it runs as %q", config.Config.User)
			}
			var docker []struct {
				Config   string
				RepoTags []string
				Layers   []string
			}
			decode(t, members["manifest.json"], &docker)
			if len(docker) != 1 || members[docker[0].Config] == nil || len(docker[0].Layers) != len(manifest.Layers) {
				t.Errorf("docker load would read %+v", docker)
			}
			root := t.TempDir()
			for i, d := range manifest.Layers {
				z, err := gzip.NewReader(bytes.NewReader(read(d)))
				if err != nil {
					t.Fatal(err)
				}
				plain, err := io.ReadAll(z)
				if err != nil {
					t.Fatal(err)
				}
				if "sha256:"+hash(plain) != config.Rootfs.DiffIDs[i] {
					t.Errorf("layer %d is not the one of the config", i)
				}
				for name, data := range untar(t, bytes.NewReader(plain)) {
					path := filepath.Join(root, name)
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, data, 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
			if _, err := os.Stat(filepath.Join(root, programPath)); err != nil {
				t.Error(err)
			}
			if s.name == "edge" {
				runAlone(t, root)
			}
		})
	}
}

// runAlone runs the dynamic program with what is in the image and nothing else.
func runAlone(t *testing.T, root string) {
	t.Helper()
	linkers, err := filepath.Glob(filepath.Join(root, "lib*", "ld-*"))
	if err != nil || len(linkers) != 1 {
		t.Fatalf("dynamic linkers: %v, %v", linkers, err)
	}
	var dirs []string
	for _, dir := range libraryDirs {
		dirs = append(dirs, filepath.Join(root, dir))
	}
	program := filepath.Join(root, "usr", "local", "bin", "envoy")
	listed, err := exec.CommandContext(t.Context(), linkers[0], "--inhibit-cache", "--library-path", strings.Join(dirs, ":"), "--list", program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, listed)
	}
	for line := range strings.Lines(string(listed)) {
		if at := strings.Fields(line); slices.Contains(at, "=>") && !strings.Contains(line, root) {
			t.Errorf("the image lacks a library: %s", line)
		}
	}
	out, err := exec.CommandContext(t.Context(), linkers[0], "--inhibit-cache", "--library-path", strings.Join(dirs, ":"), program, "-c", "echo it runs").CombinedOutput()
	if err != nil || string(out) != "it runs\n" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestRefusedInputs(t *testing.T) {
	in := testInputs(t)
	if _, err := static(in.envoy); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("a dynamic program as ours: %v", err)
	}
	if _, err := dynamic(in.authorities); err == nil {
		t.Error("a text file as Envoy")
	}
	if _, err := findLibrary("libnone.so.1", 0); err == nil {
		t.Error("a library that is nowhere")
	}
}

func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(epoch) {
			t.Errorf("%s tells of the host: %+v", h.Name, h)
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if files[h.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
}
