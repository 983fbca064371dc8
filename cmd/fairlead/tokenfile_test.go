package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A token that is written to a file is its owner's, whatever the umask.
func TestTokenFilesAreTheirOwners(t *testing.T) {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "token"), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Chmod(0o644); err != nil {
		t.Fatal(err)
	}
	keepPrivate(f)
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, %v", info.Mode(), err)
	}
	keepPrivate(os.Stderr) // no file, or somebody else's business
}
