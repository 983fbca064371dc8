package install

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrOthers is for a program that somebody else than root may replace: a unit would run it as root.
var ErrOthers = errors.New("other users than root may write there, and systemd would run their program as root: copy the program, for example to /usr/local/bin, and install with that copy")

// rootsAlone says why a file, or a directory above it, is not root's alone to change. A sticky bit does not help: a
// directory like /tmp is emptied, and is anybody's then.
func rootsAlone(path string) error {
	at := "/"
	for _, name := range append([]string{""}, strings.Split(strings.Trim(filepath.Clean(path), "/"), "/")...) {
		at = filepath.Join(at, name)
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		const others = 0o022 // of the group, and of all
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 0 || info.Mode()&os.ModeSymlink == 0 && info.Mode().Perm()&others != 0 {
			return fmt.Errorf("%s of %s: %w", at, path, ErrOthers)
		}
	}
	return nil
}
