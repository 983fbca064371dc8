package main

import (
	"bytes"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// A registry takes each image under the name that the chart asks for, with the digest of the
// archive, and has its bill.
func TestRegistryTakesImages(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	in := testInputs(t)
	for _, s := range images {
		layers, err := s.files(in)
		if err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(t.TempDir(), s.archive)
		digest, err := write(archive, image{reference: s.reference("1"), user: s.user, entrypoint: []string{"/" + programPath}, layers: layers})
		if err != nil {
			t.Fatal(err)
		}
		if err := bill(s, "1", "1.2.3", layers, billOf(archive)); err != nil {
			t.Fatal(err)
		}
		pushed, err := push(t.Context(), archive, billOf(archive), host+"/mirror/"+s.reference("1"))
		if err != nil {
			t.Fatal(err)
		}
		if want := host + "/mirror/fairlead.dev/" + s.name + "@" + digest; pushed != want {
			t.Errorf("it was pushed as %s, want %s", pushed, want)
		}
		tag, err := name.NewTag(host + "/mirror/" + s.reference("1"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := remote.Image(tag)
		if err != nil {
			t.Fatal(err)
		}
		config, err := got.ConfigFile()
		if err != nil || config.Config.User != s.user || config.Config.Entrypoint[0] != "/"+programPath {
			t.Errorf("%v: the config is %+v", err, config)
		}
		pulled, err := got.Layers()
		if err != nil || len(pulled) != len(layers) {
			t.Fatalf("%v: %d layers, want %d", err, len(pulled), len(layers))
		}
		for _, l := range pulled {
			// Reading verifies the hash.
			r, err := l.Uncompressed()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, r); err != nil {
				t.Error(err)
			}
		}
		referrers, err := remote.Referrers(tag.Digest(digest))
		if err != nil {
			t.Fatal(err)
		}
		list, err := referrers.IndexManifest()
		if err != nil || len(list.Manifests) != 1 || list.Manifests[0].ArtifactType != typeBill {
			t.Fatalf("%v: what refers to it: %+v", err, list)
		}
		attached, err := remote.Image(tag.Digest(list.Manifests[0].Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := attached.Layers()
		if err != nil || len(layer) != 1 {
			t.Fatalf("%v: the bill has %d layers", err, len(layer))
		}
		r, err := layer[0].Compressed()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		want, errWant := os.ReadFile(billOf(archive))
		if err != nil || errWant != nil || !bytes.Equal(text, want) || !bytes.Contains(text, []byte(`"CycloneDX"`)) {
			t.Errorf("%v, %v: the bill is %s", err, errWant, text)
		}
		if s.name == "edge" && !bytes.Contains(text, []byte("pkg:github/envoyproxy/envoy@v1.2.3")) {
			t.Error("the bill of the edge's image lacks Envoy")
		}
	}
}
