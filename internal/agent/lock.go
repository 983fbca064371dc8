package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// errLocked says that another agent uses a directory.
var errLocked = errors.New("another agent uses the directory")

// lockDirectory locks a directory for this process until the returned function is
// called or the process ends, however that happens.
func lockDirectory(dir string) (release func(), err error) {
	path := filepath.Join(dir, "agent.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		who := "with an unknown process ID"
		if data, e := os.ReadFile(path); e == nil && strings.TrimSpace(string(data)) != "" {
			who = "process " + strings.TrimSpace(string(data))
		}
		return nil, fmt.Errorf("lock %s: %w: %s: stop that agent, or choose other directories", dir, errLocked, who)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil && !errors.Is(err, syscall.ENOSPC) { // the lock holds without the number
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
