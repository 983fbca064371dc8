package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Pid names one process for good: a process id together with the time the
// process started (in clock ticks since boot, field 22 of /proc/pid/stat), since
// the kernel gives ids out again.
type Pid struct {
	ID    int    `json:"id"`
	Start uint64 `json:"start"`
}

// PidOf names the process that has the id now.
func PidOf(id int) (Pid, error) {
	start, _, err := stat(id)
	if err != nil {
		return Pid{}, err
	}
	return Pid{ID: id, Start: start}, nil
}

// Alive reports whether that very process still runs. A zombie does not.
func (p Pid) Alive() bool {
	if p.ID <= 0 {
		return false
	}
	start, state, err := stat(p.ID)
	return err == nil && start == p.Start && state != 'Z' && state != 'X'
}

// signal sends a signal to that very process and to no other.
func (p Pid) signal(sig unix.Signal) error {
	fd, err := p.open()
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return fmt.Errorf("signal process %d: %w", p.ID, err)
	}
	return nil
}

// open returns a pidfd of that very process.
func (p Pid) open() (int, error) {
	fd, err := unix.PidfdOpen(p.ID, 0)
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", p.ID, err)
	}
	// The pidfd stands for one process; that it is ours is known after it is open.
	if !p.Alive() {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("open process %d: %w", p.ID, os.ErrProcessDone)
	}
	return fd, nil
}

// wait blocks until the process is gone. It need not be a child.
func (p Pid) wait(ctx context.Context) error {
	fd, err := p.open()
	if err != nil {
		if errors.Is(err, os.ErrProcessDone) || errors.Is(err, unix.ESRCH) {
			return nil
		}
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int((100 * time.Millisecond).Milliseconds()))
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("wait for process %d: %w", p.ID, err)
		case n > 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("wait for process %d: %w", p.ID, ctx.Err())
		}
	}
}

// stat returns start time and state of a process.
func stat(id int) (start uint64, state byte, err error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(id), "stat"))
	if err != nil {
		return 0, 0, fmt.Errorf("look at process %d: %w", id, err)
	}
	// The second field is the command in parentheses and may hold anything.
	_, rest, ok := strings.Cut(string(raw), ") ")
	if i := strings.LastIndex(string(raw), ") "); i >= 0 {
		rest, ok = string(raw[i+2:]), true
	}
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return 0, 0, fmt.Errorf("look at process %d: unexpected stat %q", id, raw)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("look at process %d: %w", id, err)
	}
	return start, fields[0][0], nil
}

// allPids returns the ids of all processes.
func allPids() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var ids []int
	for _, e := range entries {
		if id, err := strconv.Atoi(e.Name()); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// residents returns the processes whose network namespace is one of those at the
// paths, without this process. Paths that are no namespace (yet or any more) do not count.
func residents(paths []string) ([]Pid, error) {
	type inode struct{ dev, ino uint64 }
	ours := map[inode]bool{}
	for _, p := range paths {
		if ino, ok := namespaceInode(p); ok {
			ours[inode{ino.Dev, ino.Ino}] = true
		}
	}
	if len(ours) == 0 {
		return nil, nil
	}
	ids, err := allPids()
	if err != nil {
		return nil, err
	}
	var found []Pid
	for _, id := range ids {
		var st unix.Stat_t
		if id == os.Getpid() || unix.Stat(filepath.Join("/proc", strconv.Itoa(id), "ns/net"), &st) != nil || !ours[inode{st.Dev, st.Ino}] {
			continue
		}
		if p, err := PidOf(id); err == nil {
			found = append(found, p)
		}
	}
	return found, nil
}

// namespaceInode returns the inode of the namespace mounted at the path, and
// false when no namespace is mounted there.
func namespaceInode(path string) (unix.Stat_t, bool) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Statfs(path, &fs) != nil || fs.Type != unix.NSFS_MAGIC || unix.Stat(path, &st) != nil {
		return st, false
	}
	return st, true
}
