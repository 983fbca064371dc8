package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// programs are what the tests run.
type programs struct{ binary, kubectl, envoy string }

// findPrograms looks for them once: the binary is FAIRLEAD_BINARY, else the one that
// `make build` made, else one that is built now.
var findPrograms = sync.OnceValues(func() (programs, error) {
	root, err := moduleRoot()
	if err != nil {
		return programs{}, err
	}
	var p programs
	if p.binary = os.Getenv("FAIRLEAD_BINARY"); p.binary == "" {
		p.binary = filepath.Join(root, "bin", "fairlead")
		if _, err := os.Stat(p.binary); err != nil {
			p.binary = filepath.Join(scratch, "fairlead")
			build := exec.Command("go", "build", "-o", p.binary, "./cmd/fairlead")
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				return p, fmt.Errorf("build fairlead: %w: %s", err, out)
			}
		}
	}
	if local := filepath.Join(root, ".tools", "envoy"); os.Getenv("FAIRLEAD_ENVOY") == "" {
		if _, err := os.Stat(local); err == nil {
			p.envoy = local
		}
	}
	if p.envoy == "" {
		if p.envoy, err = rig.FindEnvoy(); err != nil {
			return p, err
		}
	}
	if p.kubectl, err = rig.FindKubectl(filepath.Join(root, "bin", "fairlead")); err != nil {
		return p, err
	}
	return p, nil
})

// expressionLimit is the size of an expression that the shared lab's Envoys refuse. The plane knows what
// others refuse, and lets nothing pass that comes near.
const expressionLimit = 300

// smallEnvoy writes a script that starts Envoy with expressionLimit, so that there is something that
// Envoy alone refuses.
func smallEnvoy(envoy string) (string, error) {
	if err := os.Chmod(scratch, 0o711); err != nil { // Envoy is a user of its own
		return "", err
	}
	script := fmt.Sprintf(`#!/bin/bash
for argument in "$@"; do
	arguments+=("${argument/'"re2.max_program_size.error_level":4096'/'"re2.max_program_size.error_level":%d'}")
done
exec %q "${arguments[@]}"
`, expressionLimit, envoy)
	path := filepath.Join(scratch, "envoy")
	return path, os.WriteFile(path, []byte(script), 0o755)
}

// moduleRoot is the folder of go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, e := os.Stat(filepath.Join(dir, "go.mod")); e == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			err = errors.New("no go.mod above the tests")
		}
	}
	return "", err
}

// scratch holds a binary that the tests had to build.
var scratch string

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	var err error
	if scratch, err = os.MkdirTemp("", "fairlead-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	for _, s := range []*site{sharedSite, sharedRouted} {
		if s == nil {
			continue
		}
		state := s.Lab.State()
		if err := s.Lab.Down(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
		if left, err := lab.Leftovers(state); err != nil || len(left) > 0 {
			fmt.Fprintf(os.Stderr, "left over: %s (%v)\n", strings.Join(left, ", "), err)
			status = 1
		}
	}
	if err := os.RemoveAll(scratch); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}
