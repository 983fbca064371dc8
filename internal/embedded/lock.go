package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrLocked is returned when another process runs on the data directory.
var ErrLocked = errors.New("data directory is in use")

// dirLock is an exclusive claim on a data directory. The kernel drops it with the process.
type dirLock struct{ f *os.File }

// lockDir claims dir for this process. An error that is ErrLocked names the holder.
func lockDir(dir string) (*dirLock, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		return nil, fmt.Errorf("%w: %s belongs to process %s (stop it, or give this one another --data-dir)", ErrLocked, dir, holder(path))
	}
	pid := strconv.Itoa(os.Getpid()) + "\n"
	if err := errors.Join(f.Truncate(0), writeAtStart(f, pid)); err != nil && !errors.Is(err, syscall.ENOSPC) {
		// A full disk must not keep anybody from starting: the lock holds without the number.
		f.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return &dirLock{f: f}, nil
}

func writeAtStart(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

// holder reads who wrote the lock; the holder may be between locking and writing.
func holder(path string) string {
	b, err := os.ReadFile(path)
	pid := strings.TrimSpace(string(b))
	if _, bad := strconv.Atoi(pid); err != nil || bad != nil {
		return "(unknown)"
	}
	return pid
}

// Close gives the claim up.
func (l *dirLock) Close() error { return l.f.Close() }
