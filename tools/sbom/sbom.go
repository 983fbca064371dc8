// Package sbom says what programs are made of, as a software bill of materials in the form
// of CycloneDX. For a Go program it is read from the program itself, which knows the
// modules that are linked in; of Envoy and of libraries it is name, version and hash.
//
// Equal inputs give equal bytes: a bill has no serial number and no time.
package sbom

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// A Bill grows by what is added, and is written once.
type Bill struct {
	bom        *cyclonedx.BOM
	components []cyclonedx.Component
}

// New returns the bill of a package or an image.
func New(name, version string, kind cyclonedx.ComponentType) *Bill {
	b := &Bill{bom: cyclonedx.NewBOM()}
	b.bom.SerialNumber = ""
	b.bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: name, Type: kind, Name: name, Version: version,
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}}
	return b
}

// AddProgram adds the Go program at path, Go's own library and every module in it.
func (b *Bill) AddProgram(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read what %s is made of: %w", path, err)
	}
	if err := b.AddFile(cyclonedx.ComponentTypeApplication, "fairlead", "", path); err != nil {
		return err
	}
	b.add(library("std", strings.TrimPrefix(info.GoVersion, "go")))
	for _, m := range info.Deps {
		b.add(module(m))
	}
	return nil
}

func module(m *debug.Module) cyclonedx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	return library(m.Path, m.Version)
}

func library(path, version string) cyclonedx.Component {
	purl := "pkg:golang/" + path + "@" + version
	return cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
}

// AddEnvoy adds Envoy in this version.
func (b *Bill) AddEnvoy(path, version string) error {
	if err := b.AddFile(cyclonedx.ComponentTypeApplication, "envoy", version, path); err != nil {
		return err
	}
	b.components[len(b.components)-1].PackageURL = "pkg:github/envoyproxy/envoy@v" + version
	return nil
}

// AddFile adds a file by its hash.
func (b *Bill) AddFile(kind cyclonedx.ComponentType, name, version, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	b.add(cyclonedx.Component{
		BOMRef: name + "@sha256:" + digest, Type: kind, Name: name, Version: version,
		Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: digest}},
	})
	return nil
}

func (b *Bill) add(c cyclonedx.Component) { b.components = append(b.components, c) }

// JSON is the bill. It is for one call, after everything is added.
func (b *Bill) JSON() ([]byte, error) {
	b.bom.Components = &b.components
	var out bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(b.bom); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Libc is the oldest version of the GNU C library that a program runs with.
func Libc(path string) (string, error) {
	program, err := elf.Open(path)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { _ = program.Close() }()
	symbols, err := program.ImportedSymbols()
	if err != nil {
		return "", fmt.Errorf("read the symbols of %s: %w", path, err)
	}
	var least []int
	for _, s := range symbols {
		text, ok := strings.CutPrefix(s.Version, "GLIBC_")
		if !ok {
			continue
		}
		var version []int
		for _, part := range strings.Split(text, ".") {
			n, err := strconv.Atoi(part)
			if err != nil {
				return "", fmt.Errorf("%s needs %s of version %s", path, s.Name, s.Version)
			}
			version = append(version, n)
		}
		if slices.Compare(version, least) > 0 {
			least = version
		}
	}
	if least == nil {
		return "", fmt.Errorf("%s does not load the GNU C library", path)
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(least), " ", "."), "[]"), nil
}
