package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	fixed "github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// typeBill is the media type of an SBOM in CycloneDX.
const typeBill = "application/vnd.cyclonedx+json"

// push gives a registry the image of an archive, unchanged, and its bill as what refers to it
// (OCI distribution specification 1.1, "Referrers"). Whoever has logged in with docker or
// podman need not do so again. It returns the reference by digest.
func push(ctx context.Context, archive, bill, reference string) (string, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "fairlead-push-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := unpack(archive, dir); err != nil {
		return "", fmt.Errorf("read %s: %w", archive, err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", archive, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return "", fmt.Errorf("read %s: %w", archive, err)
	}
	if len(manifest.Manifests) != 1 {
		return "", fmt.Errorf("read %s: it holds %d images", archive, len(manifest.Manifests))
	}
	i, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", archive, err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.Write(ref, i, options...); err != nil {
		return "", fmt.Errorf("push %s: %w", reference, err)
	}
	digest, err := i.Digest()
	if err != nil {
		return "", err
	}
	subject, err := partial.Descriptor(i)
	if err != nil {
		return "", err
	}
	attached, err := artifact(bill, *subject)
	if err != nil {
		return "", err
	}
	id, err := attached.Digest()
	if err != nil {
		return "", err
	}
	if err := remote.Write(ref.Context().Digest(id.String()), attached, options...); err != nil {
		return "", fmt.Errorf("push the bill of %s: %w", reference, err)
	}
	return ref.Context().Digest(digest.String()).String(), nil
}

// artifact is the bill as a registry has it.
func artifact(bill string, subject v1.Descriptor) (v1.Image, error) {
	text, err := os.ReadFile(bill)
	if err != nil {
		return nil, err
	}
	i, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), fixed.NewLayer(text, typeBill))
	if err != nil {
		return nil, err
	}
	i = mutate.ConfigMediaType(i, typeBill)
	return mutate.Subject(i, subject).(v1.Image), nil
}

// unpack writes the files of an archive of ours into a directory.
func unpack(archive, dir string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	root, err := os.OpenRoot(dir) // whatever an archive names stays below it
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
			return err
		}
		out, err := root.Create(h.Name)
		if err != nil {
			return err
		}
		if _, err = io.Copy(out, r); errors.Join(err, out.Close()) != nil { //nolint:gosec // our own archive
			return err
		}
	}
}
