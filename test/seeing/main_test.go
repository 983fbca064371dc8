package seeing

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

const root = "../.."

// scratch holds a binary that the tests had to build.
var scratch string

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	var err error
	if scratch, err = os.MkdirTemp("", "fairlead-seeing-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	if err := os.RemoveAll(scratch); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// programs are what the lab runs.
type programs struct{ binary, kubectl, envoy string }

// findPrograms looks for them once: the binary is FAIRLEAD_BINARY, else the one that `make build` made, else one
// that is built now.
var findPrograms = sync.OnceValues(func() (programs, error) {
	top, err := filepath.Abs(root)
	if err != nil {
		return programs{}, err
	}
	p := programs{binary: os.Getenv("FAIRLEAD_BINARY")}
	if p.binary == "" {
		p.binary = filepath.Join(top, "bin", "fairlead")
		if _, err := os.Stat(p.binary); err != nil {
			p.binary = filepath.Join(scratch, "fairlead")
			build := exec.Command("go", "build", "-o", p.binary, "./cmd/fairlead")
			build.Dir = top
			if out, err := build.CombinedOutput(); err != nil {
				return p, fmt.Errorf("build fairlead: %w: %s", err, out)
			}
		}
	}
	if local := filepath.Join(top, ".tools", "envoy"); os.Getenv("FAIRLEAD_ENVOY") == "" {
		if _, err := os.Stat(local); err == nil {
			p.envoy = local
		}
	}
	if p.envoy == "" {
		if p.envoy, err = rig.FindEnvoy(); err != nil {
			return p, err
		}
	}
	p.kubectl, err = rig.FindKubectl(filepath.Join(top, "bin", "fairlead"))
	return p, err
})
