package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// lag is an empty file that is there while the disk may hold an older state than
// Envoy runs. It is in the run directory, which is writable when the disk is full, and
// is gone after a reboot, as Envoy is. The zero lag is never there.
type lag struct {
	path string
	set  bool
}

func newLag(path string) lag {
	_, err := os.Stat(path)
	return lag{path, err == nil}
}

// mark makes or removes the file.
func (l *lag) mark(behind bool) error {
	if l.path == "" || l.set == behind {
		return nil
	}
	if !behind {
		if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the mark that the stored state is outdated: %w", err)
		}
		l.set = false
		return nil
	}
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("mark the stored state as outdated: %w", err)
	}
	l.set = true
	return f.Close()
}
