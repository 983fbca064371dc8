package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupRoot is where the host's control groups are mounted: one hierarchy, or one
// directory for each.
const cgroupRoot = "/sys/fs/cgroup"

var cgroupName = regexp.MustCompile(`^fairlead-[a-z0-9][-a-z0-9]*$`)

// MakeCgroup makes a control group of that name in every hierarchy of the host, for a
// program that keeps groups of its own below it. The name begins with "fairlead-". The
// lab removes it, with all groups below, when it goes.
func (l *Lab) MakeCgroup(name string) error {
	if !l.owner {
		return fmt.Errorf("make cgroup %s: %w", name, ErrNotOwner)
	}
	if !cgroupName.MatchString(name) {
		return fmt.Errorf("%w cgroup %q: want fairlead- and then lower-case letters, digits and dashes", ErrInvalid, name)
	}
	if err := l.update(func(s *State) { s.Cgroups = append(s.Cgroups, name) }); err != nil {
		return err
	}
	if unified() {
		return makeUnifiedCgroup(name)
	}
	for _, path := range cgroupPaths(name) {
		if err := os.Mkdir(path, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
		// A cpuset takes no process before it has processors and memory.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			have, err := os.ReadFile(filepath.Join(filepath.Dir(path), file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(path, file), have, 0)
			}
			if err != nil {
				return fmt.Errorf("make cgroup: %w", err)
			}
		}
	}
	return nil
}

// unified reports whether the host has the one hierarchy of cgroup v2.
func unified() bool {
	var st unix.Statfs_t
	return unix.Statfs(cgroupRoot, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// makeUnifiedCgroup makes a group that may hand every controller of the host on.
func makeUnifiedCgroup(name string) error {
	controllers, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	path := filepath.Join(cgroupRoot, name)
	if err := os.Mkdir(path, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	for _, group := range []string{cgroupRoot, path} {
		for _, c := range strings.Fields(string(controllers)) {
			// Some controllers cannot be handed on everywhere; who needs one says so.
			_ = os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+"+c), 0)
		}
	}
	return nil
}

// cgroupPaths returns where groups of that name are, or would be.
func cgroupPaths(name string) []string {
	if unified() {
		return []string{filepath.Join(cgroupRoot, name)}
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil
	}
	var paths []string
	for _, e := range entries {
		var st unix.Statfs_t
		dir := filepath.Join(cgroupRoot, e.Name())
		// Names of two controllers are links to one hierarchy.
		if e.IsDir() && unix.Statfs(dir, &st) == nil && (st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC) {
			paths = append(paths, filepath.Join(dir, name))
		}
	}
	return paths
}

// removeCgroups removes the lab's control groups and those below. It waits for the
// kernel to forget the processes that were in them.
func removeCgroups(s State) error {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTime)
	defer cancel()
	for _, name := range s.Cgroups {
		if !cgroupName.MatchString(name) {
			continue
		}
		for _, path := range cgroupPaths(name) {
			for {
				err := removeCgroup(path)
				if err == nil {
					break
				}
				select {
				case <-ctx.Done():
					return fmt.Errorf("remove cgroup %s: %w", path, err)
				case <-time.After(10 * time.Millisecond):
				}
			}
		}
	}
	return nil
}

// removeCgroup removes one group and those below it, which is a matter of directories:
// the files in them cannot be removed and need not be.
func removeCgroup(path string) error {
	var groups []string
	err := filepath.WalkDir(path, func(at string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && e.IsDir() {
			groups = append(groups, at)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, group := range slices.Backward(groups) {
		if err := unix.Rmdir(group); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}
