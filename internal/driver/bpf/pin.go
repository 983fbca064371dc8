package bpf

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

// Layout is LAYOUT of bpf/lib/layout.h.
const Layout = 2

// systemPins is where systems mount a bpffs.
const systemPins = "/sys/fs/bpf"

// LayoutDir is where the pins of this layout are, below the directory of pins.
func LayoutDir(dir string) string { return filepath.Join(dir, "v"+strconv.Itoa(Layout)) }

// Left reports whether an earlier agent left a map. It changes nothing.
func Left(dir, name string) (bool, error) {
	pins := LayoutDir(dir)
	on, err := onBPF(pins)
	if err != nil || !on {
		return false, err
	}
	_, err = os.Stat(filepath.Join(pins, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// ErrPinsInUse says that another agent has the directory of pins.
var ErrPinsInUse = errors.New("another agent uses the directory of pins")

// Pins is the directory of this layout's pins, which this process has alone.
type Pins struct {
	path string
	lock *os.File
}

// OpenPins is MakePins, and locks dir, whatever its layouts, until Close or until the process ends, however that happens.
func OpenPins(dir string, log *slog.Logger) (*Pins, error) {
	path, err := MakePins(dir, log)
	if err != nil {
		return nil, err
	}
	lock, err := lockPins(dir)
	if err != nil {
		return nil, err
	}
	return &Pins{path: path, lock: lock}, nil
}

// Path is the directory.
func (p *Pins) Path() string { return p.path }

// Close lets another agent have the directory.
func (p *Pins) Close() error { return p.lock.Close() }

func (p *Pins) join(name string) string { return filepath.Join(p.path, name) }

// remove takes a pin away, if it is there.
func (p *Pins) remove(name string) error {
	if err := os.Remove(p.join(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// MakePins makes the directory of this layout's pins below dir, and mounts a bpffs if need be.
func MakePins(dir string, log *slog.Logger) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("directory of pins %s: want an absolute path", strconv.Quote(dir))
	}
	mountpoint := dir
	if within(dir, systemPins) {
		mountpoint = systemPins // sysfs has this one directory for it
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", noPins(dir, err)
	}
	pins := LayoutDir(dir)
	on, err := onBPF(pins)
	if err != nil {
		return "", err
	}
	if !on {
		if err := unix.Mount("bpf", mountpoint, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=700"); err != nil {
			return "", fmt.Errorf("%w: %s is not on a bpffs, and it cannot be mounted (%w): run `mount -t bpf bpf %s` before the agent starts, or choose another directory with --bpf-dir",
				errors.ErrUnsupported, dir, err, mountpoint)
		}
		log.Info("mounted a bpffs for pins", "at", mountpoint)
	}
	if err := os.MkdirAll(pins, 0o700); err != nil {
		return "", noPins(dir, err)
	}
	return pins, nil
}

func lockPins(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock the directory of pins: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w %s: stop that agent, or choose another directory with --bpf-dir", ErrPinsInUse, dir)
		}
		return nil, fmt.Errorf("lock the directory of pins %s: %w", dir, err)
	}
	return f, nil
}

// noPins says that nothing can be pinned there, whatever comes.
func noPins(dir string, why error) error {
	return fmt.Errorf("%w: nothing can be pinned in %s (%w): choose another directory with --bpf-dir, on a bpffs or where one can be mounted", errors.ErrUnsupported, dir, why)
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
			return false, fmt.Errorf("inspect the directory of pins %s: %w", path, err)
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
