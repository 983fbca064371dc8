package e2e

import (
	"io/fs"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
)

// TestMachineOfBackendsLeaves stops the agent of a machine with backends of a Service so that it
// drains. Flows that come to them through the tunnel go on, kept ones and new ones, until the
// backends are out; then the kernel is as it was before.
func TestMachineOfBackendsLeaves(t *testing.T) {
	s := newL4(t, "l4-leave")
	os1s, k8s1s := s.cluster(os1.Name), s.cluster(k8s1.Name)
	s.awaitFrontend(t, s.web, v1.ModeDSRGeneve, v1.DataPlaneXDP, uint32(len(os1s)), "edge-1", "edge-2")
	s.answer(t, vip4, os1s)
	a := s.agents[os1.Name]
	stop := func() {
		t.Helper()
		if err := a.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := a.Process.Wait(t.Context()); err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	}
	start := func() {
		t.Helper()
		if err := a.Start(t.Context(), "--on-stop=drain"); err != nil {
			t.Fatal(err)
		}
		if err := a.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	start()
	loads := s.loads(t)
	loads.more(t, 50)
	stop()
	if len(pins(t, a.Machine)) == 0 {
		t.Error("the tunnel's programs are gone while flows come through it")
	}
	loads.more(t, 200)
	start()
	loads.more(t, 50)
	loads.none(t)
	s.endpoints(t, nil, k8s1s)
	s.awaitWay(t, vip4)
	stop()
	if left := pins(t, a.Machine); len(left) > 0 {
		t.Errorf("no backend is left, and the kernel has %v", left)
	}
}

// pins are the programs, maps and links that a machine's agent has left in the kernel.
func pins(t *testing.T, m *lab.Machine) (list []string) {
	t.Helper()
	dir, err := m.Dir("bpf")
	if err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && filepath.Dir(path) != dir { // the kernel's own files are at the top
			list = append(list, filepath.Base(path))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return list
}
