package lab

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
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

// TestLabsAreKeptInMemory: a directory on a disk is put into memory while it is empty, and
// nothing is left of that when it is removed.
func TestLabsAreKeptInMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a mount")
	}
	dir := filepath.Join(t.TempDir(), "labs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	type of struct{ typ, dev int64 }
	fileSystem := func(path string) of {
		t.Helper()
		var fs unix.Statfs_t
		var s unix.Stat_t
		if err := errors.Join(unix.Statfs(path, &fs), unix.Stat(path, &s)); err != nil {
			t.Fatal(err)
		}
		return of{fs.Type, int64(s.Dev)}
	}
	if fileSystem(dir).typ == unix.TMPFS_MAGIC {
		t.Log("the tests' directory is in memory")
	} else if !keepInMemory(dir) {
		t.Fatal("it stays on the disk")
	}
	if keepInMemory(dir) {
		t.Error("it is mounted twice")
	}
	if got := fileSystem(dir); got.typ != unix.TMPFS_MAGIC {
		t.Errorf("its file system is %#x", got.typ)
	}
	file := filepath.Join(dir, "lab")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	removeEmpty(dir)
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("a directory with something in it is gone: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	removeEmpty(dir)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is left: %v", err)
	}

	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if keepInMemory(dir) {
		t.Error("a directory with something in it is hidden")
	}
}
