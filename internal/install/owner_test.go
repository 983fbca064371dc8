package install

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestProgramsOfOthersAreNotRunAsRoot holds that no unit starts what somebody else than root can replace.
func TestProgramsOfOthersAreNotRunAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := rootsAlone(shell); err != nil {
		t.Errorf("a program of the system: %v", err)
	}
	base, err := os.MkdirTemp("/var/lib", "fairlead-owner-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	dir := filepath.Join(base, "bin")
	program := filepath.Join(dir, "fairlead")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(program, nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := rootsAlone(program); err != nil {
		t.Errorf("root's own: %v", err)
	}
	for what, change := range map[string]struct{ do, undo func() error }{
		"a file of all":          {func() error { return os.Chmod(program, 0o757) }, func() error { return os.Chmod(program, 0o755) }},
		"a file of another":      {func() error { return os.Chown(program, 1000, 0) }, func() error { return os.Chown(program, 0, 0) }},
		"a directory of a group": {func() error { return os.Chmod(dir, 0o775) }, func() error { return os.Chmod(dir, 0o755) }},
		"a directory like /tmp":  {func() error { return os.Chmod(base, 0o777|os.ModeSticky) }, func() error { return os.Chmod(base, 0o755) }},
		"a home":                 {func() error { return os.Chown(base, 1000, 1000) }, func() error { return os.Chown(base, 0, 0) }},
	} {
		if err := change.do(); err != nil {
			t.Fatal(err)
		}
		if err := rootsAlone(program); !errors.Is(err, ErrOthers) {
			t.Errorf("%s: %v", what, err)
		}
		if err := change.undo(); err != nil {
			t.Fatal(err)
		}
	}
	// It is asked before anything is written.
	if _, err := (Machine{Root: "/", Binary: filepath.Join(t.TempDir(), "fairlead")}).Install(Agent, nil, nil); err == nil {
		t.Error("a program in a directory of all was installed")
	}
}

// TestImagesAreReadable holds that directories of an image which are made on the way are as anywhere.
func TestImagesAreReadable(t *testing.T) {
	m := machine(t)
	if _, err := m.Install(Plane, nil, nil); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]os.FileMode{"etc": 0o755, "etc/fairlead": 0o700, "etc/systemd/system": 0o755} {
		info, err := os.Stat(m.at(dir))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has %o, want %o", dir, info.Mode().Perm(), want)
		}
	}
}
