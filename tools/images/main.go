// Command images writes the images that Fairlead runs from in Kubernetes, as archives
// that `ctr images import`, `docker load` and `skopeo copy oci-archive:` read. It needs
// no registry, no daemon and no base image. Beside each archive it writes the SBOM, in the
// form of CycloneDX; both can be pushed to a registry.
//
// Equal inputs give equal archives, byte for byte: the programs, the libraries that they
// load, the host's list of authorities, and the version of Go that compresses.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// inputs are the files that images are made of.
type inputs struct {
	fairlead    string
	envoy       string
	authorities string // that Envoy may trust, PEM
}

// spec is one image.
type spec struct {
	name    string // without registry and tag
	archive string // name of its file
	purpose string
	user    string
	// files gives what is in its layers, from the one that changes least.
	files func(inputs) ([]layer, error)
}

// repository begins the names of all images.
const repository = "fairlead.dev"

// images are all that an installation needs.
var images = []spec{
	{
		name: "plane", archive: "fairlead-plane.tar", purpose: "the plane: a Deployment, a leader and its standby", user: "65532:65532",
		files: func(in inputs) ([]layer, error) {
			fairlead, err := static(in.fairlead)
			return []layer{base(), fairlead}, err
		},
	},
	{
		// As root, with few capabilities: it binds ports below 1024 and has VIPs.
		name: "edge", archive: "fairlead-edge.tar", purpose: "agent and Envoy: a DaemonSet, on every node that takes traffic", user: "0:0",
		files: func(in inputs) ([]layer, error) {
			fairlead, err := static(in.fairlead)
			if err != nil {
				return nil, err
			}
			envoy, err := dynamic(in.envoy)
			if err != nil {
				return nil, err
			}
			envoy = append(envoy, file{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, from: in.authorities})
			return []layer{base(), envoy, fairlead}, nil
		},
	},
}

func (s spec) reference(tag string) string { return repository + "/" + s.name + ":" + tag }

// list is deploy/images.txt: what a cluster without a registry must be given.
func list(tag string) string {
	text := "# The images of an installation: what `make images` writes into bin/images, and all that a cluster without a way to a registry needs.\n" +
		"# NAME  ARCHIVE  WHAT\n"
	for _, s := range images {
		text += fmt.Sprintf("%s  %s  %s\n", s.reference(tag), s.archive, s.purpose)
	}
	return text
}

var appVersion = regexp.MustCompile(`(?m)^appVersion: "?([0-9A-Za-z.+-]+)"?$`)

// tagOf reads the tag from the chart: images and chart go together.
func tagOf(chart string) (string, error) {
	data, err := os.ReadFile(chart)
	if err != nil {
		return "", fmt.Errorf("read the version of the images: %w", err)
	}
	m := appVersion.FindSubmatch(data)
	if m == nil {
		return "", fmt.Errorf("read the version of the images: %s has no appVersion", chart)
	}
	return string(m[1]), nil
}

func run() error {
	in := inputs{}
	flag.StringVar(&in.fairlead, "fairlead", "bin/fairlead", "our program, linked statically")
	flag.StringVar(&in.envoy, "envoy", ".tools/envoy", "Envoy; the libraries that it loads come from this host")
	flag.StringVar(&in.authorities, "authorities", "/etc/ssl/certs/ca-certificates.crt", "the authorities that Envoy may trust")
	chart := flag.String("chart", "deploy/chart/fairlead/Chart.yaml", "the chart whose appVersion is the images' tag")
	out := flag.String("out", "bin/images", "directory of the archives")
	registry := flag.String("push", "", "registry to push the archives in -out to, with a path if it wants one: registry.example.com/mirror")
	envoyVersion := flag.String("envoy-version", "", "version of Envoy, for the SBOM")
	onlyList := flag.Bool("list", false, "print the list of images and write none")
	flag.Parse()
	tag, err := tagOf(*chart)
	if err != nil {
		return err
	}
	if *onlyList {
		_, err := os.Stdout.WriteString(list(tag))
		return err
	}
	if *registry != "" {
		for _, s := range images {
			archive := filepath.Join(*out, s.archive)
			pushed, err := push(context.Background(), archive, billOf(archive), *registry+"/"+s.reference(tag))
			if err != nil {
				return err
			}
			fmt.Println(pushed)
		}
		return nil
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	for _, s := range images {
		layers, err := s.files(in)
		if err != nil {
			return fmt.Errorf("image %s: %w", s.name, err)
		}
		path := filepath.Join(*out, s.archive)
		digest, err := write(path, image{reference: s.reference(tag), user: s.user, entrypoint: []string{"/" + programPath}, layers: layers})
		if err != nil {
			return fmt.Errorf("image %s: %w", s.name, err)
		}
		if err := bill(s, tag, *envoyVersion, layers, billOf(path)); err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		fmt.Printf("%s  %s  %d MB  %s\n", s.reference(tag), path, (info.Size()+5e5)/1e6, digest)
	}
	return nil
}

func main() {
	if err := run(); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}
