package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Media types of the OCI image specification, 1.0.
const (
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
	typeIndex    = "application/vnd.oci.image.index.v1+json"
)

// epoch is the time of everything in an image.
var epoch = time.Unix(0, 0).UTC()

// image is what an archive holds.
type image struct {
	reference  string // with registry and tag
	user       string
	entrypoint []string
	layers     []layer
}

// descriptor names a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// blob is a file of an archive that is named by its hash.
type blob struct {
	digest string
	size   int64
	path   string // of the host's file that holds it
	data   []byte // or the blob itself
}

func blobOf(data []byte) blob {
	sum := sha256.Sum256(data)
	return blob{digest: "sha256:" + hex.EncodeToString(sum[:]), size: int64(len(data)), data: data}
}

func (b blob) describe(mediaType string) descriptor {
	return descriptor{MediaType: mediaType, Digest: b.digest, Size: b.size}
}

// member is where the archive has the blob.
func (b blob) member() string { return "blobs/sha256/" + strings.TrimPrefix(b.digest, "sha256:") }

// write makes the archive and returns the digest of the image. It is an OCI layout with
// the index of `docker save` beside its own, so that old and new programs read it.
func write(to string, i image) (string, error) {
	scratch, err := os.MkdirTemp("", "fairlead-image-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	var blobs []blob
	var diffs, members []string
	var described []descriptor
	for n, l := range i.layers {
		compressed, diff, err := pack(path.Join(scratch, fmt.Sprint(n)), l)
		if err != nil {
			return "", err
		}
		blobs, diffs = append(blobs, compressed), append(diffs, diff)
		described, members = append(described, compressed.describe(typeLayer)), append(members, compressed.member())
	}
	history := make([]any, len(i.layers))
	for n := range history {
		history[n] = map[string]any{"created": epoch, "created_by": "fairlead tools/images"}
	}
	config, err := encode(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "created": epoch,
		"config": map[string]any{
			"User": i.user, "Entrypoint": i.entrypoint, "WorkingDir": "/", "Env": []string{"PATH=/usr/local/bin"},
			"Labels": map[string]string{"org.opencontainers.image.title": i.reference, "org.opencontainers.image.licenses": "Apache-2.0"},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": diffs},
		"history": history,
	})
	if err != nil {
		return "", err
	}
	manifest, err := encode(map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config.describe(typeConfig), "layers": described,
	})
	if err != nil {
		return "", err
	}
	named := manifest.describe(typeManifest)
	named.Annotations = map[string]string{
		"io.containerd.image.name":          i.reference,
		"org.opencontainers.image.ref.name": i.reference[strings.LastIndexByte(i.reference, ':')+1:],
	}
	index, err := encode(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []descriptor{named}})
	if err != nil {
		return "", err
	}
	docker, err := encode([]any{map[string]any{"Config": config.member(), "RepoTags": []string{i.reference}, "Layers": members}})
	if err != nil {
		return "", err
	}
	blobs = append(blobs, config, manifest)
	return manifest.digest, bundle(to, blobs, index, docker)
}

// bundle writes the archive itself, and puts it in place when it is whole.
func bundle(to string, blobs []blob, index, docker blob) error {
	out, err := os.CreateTemp(path.Dir(to), ".image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(out.Name()) }()
	w := tar.NewWriter(out)
	slices.SortFunc(blobs, func(a, b blob) int { return strings.Compare(a.digest, b.digest) })
	blobs = slices.CompactFunc(blobs, func(a, b blob) bool { return a.digest == b.digest })
	var members []member
	for _, b := range blobs {
		members = append(members, member{b.member(), b})
	}
	members = append(members,
		member{"index.json", index}, member{"manifest.json", docker}, member{"oci-layout", blobOf([]byte(`{"imageLayoutVersion":"1.0.0"}`))})
	for _, m := range members {
		if err := m.add(w); err != nil {
			return fmt.Errorf("write %s: %w", to, err)
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	if err := out.Chmod(0o644); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(out.Name(), to)
}

// member is one file of the archive.
type member struct {
	name string
	blob blob
}

func (m member) add(w *tar.Writer) error {
	if err := w.WriteHeader(header(m.name, tar.TypeReg, 0o644, m.blob.size)); err != nil {
		return err
	}
	if m.blob.path == "" {
		_, err := w.Write(m.blob.data)
		return err
	}
	in, err := os.Open(m.blob.path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	_, err = io.Copy(w, in)
	return err
}

// pack writes a layer, compressed, and returns the hash of what was compressed too.
func pack(to string, l layer) (blob, string, error) {
	out, err := os.Create(to)
	if err != nil {
		return blob{}, "", err
	}
	defer func() { _ = out.Close() }()
	compressed, plain := sha256.New(), sha256.New()
	z, err := gzip.NewWriterLevel(io.MultiWriter(out, compressed), gzip.BestSpeed)
	if err != nil {
		return blob{}, "", err
	}
	w := tar.NewWriter(io.MultiWriter(z, plain))
	files, err := whole(l)
	if err != nil {
		return blob{}, "", err
	}
	for _, f := range files {
		if err := f.add(w); err != nil {
			return blob{}, "", fmt.Errorf("add /%s: %w", f.path, err)
		}
	}
	if err := w.Close(); err != nil {
		return blob{}, "", err
	}
	if err := z.Close(); err != nil {
		return blob{}, "", err
	}
	info, err := out.Stat()
	if err != nil {
		return blob{}, "", err
	}
	digest := func(sum []byte) string { return "sha256:" + hex.EncodeToString(sum) }
	return blob{digest: digest(compressed.Sum(nil)), size: info.Size(), path: to}, digest(plain.Sum(nil)), nil
}

// whole adds the directories that the files are in, and sorts.
func whole(l layer) (layer, error) {
	byPath := map[string]file{}
	for _, f := range l {
		if _, twice := byPath[f.path]; twice {
			return nil, fmt.Errorf("/%s is in a layer twice", f.path)
		}
		byPath[f.path] = f
	}
	for _, f := range l {
		for dir := path.Dir(strings.TrimSuffix(f.path, "/")); dir != "."; dir = path.Dir(dir) {
			if _, ok := byPath[dir+"/"]; !ok {
				byPath[dir+"/"] = file{path: dir + "/", mode: 0o755}
			}
		}
	}
	files := make(layer, 0, len(byPath))
	for _, f := range byPath {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	return files, nil
}

func (f file) add(w *tar.Writer) error {
	mode := int64(f.mode.Perm())
	if f.mode&fs.ModeSticky != 0 {
		mode |= 0o1000
	}
	if strings.HasSuffix(f.path, "/") {
		return w.WriteHeader(header(f.path, tar.TypeDir, mode, 0))
	}
	var in io.Reader = strings.NewReader(f.text)
	size := int64(len(f.text))
	if f.from != "" {
		source, err := os.Open(f.from)
		if err != nil {
			return err
		}
		defer func() { _ = source.Close() }()
		info, err := source.Stat()
		if err != nil {
			return err
		}
		in, size = source, info.Size()
	}
	if err := w.WriteHeader(header(f.path, tar.TypeReg, mode, size)); err != nil {
		return err
	}
	_, err := io.Copy(w, in)
	return err
}

// header has nothing in it of the host or of the hour.
func header(name string, kind byte, mode, size int64) *tar.Header {
	return &tar.Header{Name: name, Typeflag: kind, Mode: mode, Size: size, ModTime: epoch, Format: tar.FormatUSTAR}
}

func encode(v any) (blob, error) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		return blob{}, err
	}
	return blobOf(bytes.TrimRight(b.Bytes(), "\n")), nil
}
