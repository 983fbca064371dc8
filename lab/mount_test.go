package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// A process that writes to a path of the host writes to a directory of its own there.
func TestProcessWithMounts(t *testing.T) {
	l := up(t, Topology{Name: "mounts", Machines: []MachineSpec{{Name: "a"}}})
	shared, own := t.TempDir(), t.TempDir()
	p, err := l.Machine("a").Start(t.Context(), ProcessSpec{
		Name: "writer", Mounts: map[string]string{shared: own},
		Argv: []string{"sh", "-c", `readlink /proc/self/ns/net >"$0/here"`, shared},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(deadline(t)); err != nil {
		t.Fatal(err)
	}
	in, err := l.Machine("a").Command(t.Context(), "readlink", "/proc/self/ns/net").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(own, "here")); err != nil || string(got) != string(in) {
		t.Errorf("it wrote %q (%v), want the machine's namespace %q", got, err, in)
	}
	if entries, err := os.ReadDir(shared); err != nil || len(entries) > 0 {
		t.Errorf("it left %v (%v) in the host's directory", entries, err)
	}
	if points, err := mountsUnder(shared); err != nil || len(points) > 0 {
		t.Errorf("the host has the mounts %v (%v)", points, err)
	}
	if _, err := l.Machine("a").Start(t.Context(), ProcessSpec{Name: "x", Argv: []string{"true"}, Mounts: map[string]string{"/nowhere": own}}); err == nil {
		t.Error("a mount at a path that is not there was accepted")
	}
}
