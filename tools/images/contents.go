package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// programPath is where our program is in every image.
const programPath = "usr/local/bin/fairlead"

// envoyPath is where Envoy is.
const envoyPath = "usr/local/bin/envoy"

// file is one file or directory of a layer.
type file struct {
	path string // without a leading slash; a directory ends with one
	mode fs.FileMode
	from string // the host's file with its contents
	text string // or the contents themselves
}

// layer is a part of an image that changes as a whole.
type layer []file

// base is what programs expect to be there.
func base() layer {
	return layer{
		{path: "etc/passwd", mode: 0o644, text: "root:x:0:0:root:/:/sbin/nologin\nfairlead:x:65532:65532:fairlead:/:/sbin/nologin\n"},
		{path: "etc/group", mode: 0o644, text: "root:x:0:\nfairlead:x:65532:\n"},
		{path: "etc/nsswitch.conf", mode: 0o644, text: "hosts: files dns\n"},
		{path: "run/fairlead/", mode: 0o700},
		{path: "tmp/", mode: 0o777 | fs.ModeSticky},
		{path: "var/lib/fairlead/", mode: 0o755},
	}
}

// static is our program, which must need nothing else.
func static(path string) (layer, error) {
	program, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { _ = program.Close() }()
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s needs a dynamic linker: build it with CGO_ENABLED=0 (make build)", path)
		}
	}
	return layer{{path: programPath, mode: 0o755, from: path}}, nil
}

// libraryDirs are where the dynamic linkers of Debian, Fedora and their kin look.
var libraryDirs = []string{
	"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// dynamic is a program with its dynamic linker and every library that it loads, each
// where this host has it: its linker looks there.
func dynamic(path string) (layer, error) {
	files := layer{{path: envoyPath, mode: 0o755, from: path}}
	have := map[string]bool{}
	var add func(path string) error
	add = func(path string) error {
		program, err := elf.Open(path)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		defer func() { _ = program.Close() }()
		interpreter, err := interpreterOf(program)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		needed, err := program.ImportedLibraries()
		if err != nil {
			return fmt.Errorf("read the libraries of %s: %w", path, err)
		}
		// The linker first, by the path that the program names: libraries may need it too.
		if interpreter != "" {
			needed = append([]string{interpreter}, needed...)
		}
		for _, name := range needed {
			base := filepath.Base(name)
			if have[base] {
				continue
			}
			have[base] = true
			at, err := findLibrary(name, program.Machine)
			if err != nil {
				return fmt.Errorf("%s needs %s: %w", path, name, err)
			}
			files = append(files, file{path: strings.TrimPrefix(at, "/"), mode: 0o755, from: at})
			if err := add(at); err != nil {
				return err
			}
		}
		return nil
	}
	if err := add(path); err != nil {
		return nil, err
	}
	return files, nil
}

// interpreterOf is the dynamic linker that a program names; none when it is static, or a
// library.
func interpreterOf(program *elf.File) (string, error) {
	for _, p := range program.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			return "", err
		}
		return strings.TrimRight(string(name), "\x00"), nil
	}
	return "", nil
}

var errNoLibrary = errors.New("it is in none of the usual directories of this host")

func findLibrary(name string, machine elf.Machine) (string, error) {
	candidates := []string{name}
	if !filepath.IsAbs(name) {
		candidates = candidates[:0]
		for _, dir := range libraryDirs {
			candidates = append(candidates, filepath.Join(dir, name))
		}
	}
	for _, path := range candidates {
		if _, err := os.Stat(path); err != nil {
			continue
		}
		library, err := elf.Open(path)
		if err != nil {
			continue
		}
		fits := library.Machine == machine
		_ = library.Close()
		if fits {
			return path, nil
		}
	}
	return "", errNoLibrary
}
