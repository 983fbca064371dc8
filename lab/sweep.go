package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sweepTime is how long killed processes have to be gone.
const sweepTime = 10 * time.Second

// sweep takes away everything that the state names: processes first, since they
// hold the rest. It needs no cooperation of anything, may be called again after
// it failed, and leaves the state file until everything else is gone. The caller
// holds the directory's lock.
func sweep(s State) error {
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := killAll(s); err != nil {
		return err
	}
	var problems []error
	for _, path := range s.Pins {
		if strings.HasPrefix(filepath.Clean(path), pinRoot) {
			problems = append(problems, os.RemoveAll(path))
		}
	}
	problems = append(problems, unmountAll(s), removeCgroups(s))
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("sweep lab %s: %w", s.Name, err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("sweep lab %s: %w", s.Name, err)
	}
	for _, e := range entries {
		if e.Name() != "state.json" {
			problems = append(problems, os.RemoveAll(filepath.Join(s.dir, e.Name())))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("sweep lab %s: %w", s.Name, err)
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("sweep lab %s: %w", s.Name, err)
	}
	return nil
}

// members returns the lab's live processes: those on record and those in its
// namespaces.
func members(s State) ([]Pid, error) {
	inside, err := residents(s.namespaces())
	if err != nil {
		return nil, err
	}
	if s.Boot == bootID() {
		for _, p := range s.Processes {
			if p.Pid.ID != os.Getpid() && p.Pid.Alive() && !slices.Contains(inside, p.Pid) {
				inside = append(inside, p.Pid)
			}
		}
	}
	return slices.DeleteFunc(inside, func(p Pid) bool { return !p.Alive() }), nil
}

// killAll kills the lab's processes and returns once they are gone. It looks
// again until it finds none: one that was just being started is found too.
func killAll(s State) error {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	for {
		found, err := members(s)
		if err != nil {
			return fmt.Errorf("sweep lab %s: %w", s.Name, err)
		}
		if len(found) == 0 {
			return nil
		}
		for _, p := range found {
			_ = p.signal(unix.SIGKILL) // it may have ended by itself
		}
		for _, p := range found {
			if err := p.wait(ctx); err != nil {
				return fmt.Errorf("sweep lab %s: %w", s.Name, err)
			}
		}
	}
}

// unmountAll unmounts what the lab recorded and all that is mounted in its
// directory, the last mounted first.
func unmountAll(s State) error {
	paths, err := mountsUnder(s.dir)
	if err != nil {
		return err
	}
	for _, path := range s.Mounts {
		more, err := mountsUnder(path)
		if err != nil {
			return err
		}
		paths = append(paths, more...)
	}
	var problems []error
	for _, path := range slices.Backward(paths) {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			problems = append(problems, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	return errors.Join(problems...)
}

// mountsUnder returns the mount points at and below the path in the order in
// which they were mounted.
func mountsUnder(path string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer func() { _ = f.Close() }()
	var points []string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		point := unescapeMount(fields[4])
		if point == path || strings.HasPrefix(point, path+"/") {
			points = append(points, point)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	return points, nil
}

// unescapeMount undoes mountinfo's \ooo (proc_pid_mountinfo(5)).
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Leftovers names what is still there of a lab that should be gone: its live
// processes (the janitor among them), mounts, pins and directory. Empty means
// that nothing is.
func Leftovers(s State) ([]string, error) {
	var left []string
	live, err := members(s)
	if err != nil {
		return nil, err
	}
	if s.Boot == bootID() && s.Janitor.Alive() {
		live = append(live, s.Janitor)
	}
	for _, p := range live {
		left = append(left, fmt.Sprintf("process %d (%s)", p.ID, commandLine(p.ID)))
	}
	for _, path := range append([]string{s.dir}, s.Mounts...) {
		points, err := mountsUnder(path)
		if err != nil {
			return nil, err
		}
		for _, point := range points {
			left = append(left, "mount "+point)
		}
	}
	for _, path := range append([]string{s.dir}, s.Pins...) {
		if _, err := os.Lstat(path); err == nil {
			left = append(left, "file "+path)
		}
	}
	for _, name := range s.Cgroups {
		for _, path := range cgroupPaths(name) {
			if _, err := os.Lstat(path); err == nil {
				left = append(left, "cgroup "+path)
			}
		}
	}
	return left, nil
}

// commandLine returns a process's arguments, or its name if it has none.
func commandLine(id int) string {
	dir := filepath.Join("/proc", strconv.Itoa(id))
	if raw, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && len(raw) > 0 {
		return strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " "))
	}
	raw, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return "gone"
	}
	return strings.TrimSpace(string(raw))
}
