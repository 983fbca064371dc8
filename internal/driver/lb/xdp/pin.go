package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// layout is LAYOUT of bpf/lib/layout.h.
const layout = 2

// systemPins is where systems mount a bpffs.
const systemPins = "/sys/fs/bpf"

func layoutDir(dir string) string { return filepath.Join(dir, "v"+strconv.Itoa(layout)) }

// left says whether an earlier agent left maps. It changes nothing.
func left(dir string) (bool, error) {
	pins := layoutDir(dir)
	on, err := onBPF(pins)
	if err != nil || !on {
		return false, err
	}
	_, err = os.Stat(filepath.Join(pins, bpfMapFrontends))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// pinDir makes the directory of our layout's pins, and mounts a bpffs if need be.
func pinDir(dir string, log *slog.Logger) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("directory of pins %s: want an absolute path", strconv.Quote(dir))
	}
	mountpoint := dir
	if within(dir, systemPins) {
		mountpoint = systemPins // sysfs has this one directory for it
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", noPins(dir, err)
	}
	pins := layoutDir(dir)
	on, err := onBPF(pins)
	if err != nil {
		return "", err
	}
	if !on {
		if err := unix.Mount("bpf", mountpoint, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=700"); err != nil {
			return "", fmt.Errorf("XDP data plane: %w: %s is not on a bpffs, and it cannot be mounted (%w): run `mount -t bpf bpf %s` before the agent, or name another directory by --bpf-dir",
				errors.ErrUnsupported, dir, err, mountpoint)
		}
		log.Info("mounted a bpffs for pins", "at", mountpoint)
	}
	if err := os.MkdirAll(pins, 0o700); err != nil {
		return "", noPins(dir, err)
	}
	return pins, nil
}

// noPins says that nothing can be pinned there, whatever comes.
func noPins(dir string, why error) error {
	return fmt.Errorf("XDP data plane: %w: nothing can be pinned in %s (%w): name another directory by --bpf-dir, on a bpffs or where one can be mounted", errors.ErrUnsupported, dir, why)
}

// onBPF reports whether path, or the nearest directory above that exists, is on a bpffs.
func onBPF(path string) (bool, error) {
	for {
		var s unix.Statfs_t
		err := unix.Statfs(path, &s)
		switch {
		case err == nil:
			return s.Type == unix.BPF_FS_MAGIC, nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) || path == "/":
			return false, fmt.Errorf("look at the directory of pins %s: %w", path, err)
		}
		path = filepath.Dir(path)
	}
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// pinned lists the names of pins with a prefix, without it.
func pinned(pins, prefix string) ([]string, error) {
	entries, err := os.ReadDir(pins)
	if err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ours := strings.CutPrefix(e.Name(), prefix); ours && !e.IsDir() {
			names = append(names, name)
		}
	}
	return names, nil
}
