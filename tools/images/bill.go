package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"

	"fairlead.dev/tools/sbom"
)

// bill writes what an image is made of beside its archive.
func bill(s spec, tag, envoyVersion string, layers []layer, to string) error {
	b := sbom.New(s.reference(tag), tag, cyclonedx.ComponentTypeContainer)
	for _, l := range layers {
		for _, f := range l {
			var err error
			switch {
			case f.from == "": // a directory, or a text of ours
			case f.path == programPath:
				err = b.AddProgram(f.from)
			case f.path == envoyPath:
				err = b.AddEnvoy(f.from, envoyVersion)
			default:
				err = b.AddFile(cyclonedx.ComponentTypeFile, "/"+f.path, "", f.from)
			}
			if err != nil {
				return fmt.Errorf("bill of image %s: %w", s.name, err)
			}
		}
	}
	text, err := b.JSON()
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// billOf is the path of an archive's bill.
func billOf(archive string) string { return strings.TrimSuffix(archive, ".tar") + ".cdx.json" }
