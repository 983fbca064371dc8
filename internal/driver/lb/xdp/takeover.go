package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// ErrPinsInUse says that another agent has the directory of pins.
var ErrPinsInUse = errors.New("another agent uses the directory of pins")

// lockPins takes a directory of pins, whatever its layouts, for this process until the file
// is closed or the process ends, however that happens.
func lockPins(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock the directory of pins: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w %s: stop it, or give this one another by --bpf-dir", ErrPinsInUse, dir)
		}
		return nil, fmt.Errorf("lock the directory of pins %s: %w", dir, err)
	}
	return f, nil
}

// Directories of pins beside ours: of agents with another layout, and those that could not
// be read.
var (
	layoutName = regexp.MustCompile(`^v\d+(_aside\d+)?$`)
	asideName  = "%s_aside%d"
)

func others(pins string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(pins))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list directories of pins: %w", err)
	}
	var list []string
	for _, e := range entries {
		if e.IsDir() && layoutName.MatchString(e.Name()) && e.Name() != filepath.Base(pins) {
			list = append(list, filepath.Join(filepath.Dir(pins), e.Name()))
		}
	}
	return list, nil
}

// inherited are maps that say the same whatever the layout: they name addresses and no
// numbers. Both programs use them while one takes over from the other, or the answers of
// backends would leave with the wrong source for a moment, and break their connections.
var inherited = []string{bpfMapRestores, bpfMapRestoresFresh}

// inherit moves the pins of such maps here from other layouts.
func inherit(pins string) error {
	dirs, err := others(pins)
	if err != nil {
		return err
	}
	for _, name := range inherited {
		for _, dir := range dirs {
			to := filepath.Join(pins, name)
			if _, err := os.Lstat(to); err == nil {
				break
			}
			m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil)
			if err != nil {
				continue // there is none, or something else
			}
			if err := errors.Join(m.Pin(to), m.Close()); err != nil {
				return fmt.Errorf("take the map %s over: %w", name, err)
			}
		}
	}
	return nil
}

// setAside renames a directory of pins that cannot be read. What is pinned there works on
// until it is taken over.
func setAside(pins string) error {
	for i := 1; ; i++ {
		to := fmt.Sprintf(asideName, pins, i)
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			if err := os.Rename(pins, to); err != nil {
				return fmt.Errorf("set pins aside that cannot be read: %w", err)
			}
			return os.Mkdir(pins, 0o700)
		} else if err != nil {
			return fmt.Errorf("set pins aside that cannot be read: %w", err)
		}
	}
}

// unreadable says that an error is about what is pinned, and not about this process or the
// kernel: trying again brings the same.
func unreadable(err error) bool {
	for _, passing := range []error{errors.ErrUnsupported, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EPERM, unix.EINTR, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS} {
		if errors.Is(err, passing) {
			return false
		}
	}
	return true
}

// findOlder notes the links that others pinned.
func (a *attacher) findOlder() error {
	dirs, err := others(a.k.pins)
	if err != nil {
		return err
	}
	a.others = dirs
	for _, dir := range dirs {
		for h := range a.here {
			names, err := pinned(dir, linkPrefix+string(h)+"_")
			if err != nil {
				return err
			}
			for _, name := range names {
				if device, err := strconv.Atoi(name); err == nil {
					a.older[at{h, device}] = filepath.Join(dir, h.pin(device))
				}
			}
		}
	}
	return nil
}

// takeOver has a link of another layout run our program, in one step, and moves its pin. It
// says whether it did: a link that is of no use is attached anew.
func (a *attacher) takeOver(h hook, d device) bool {
	path := a.older[at{h, d.index}]
	if path == "" {
		return false
	}
	delete(a.older, at{h, d.index})
	l, err := link.LoadPinnedLink(path, nil)
	if err == nil {
		err = a.move(h, d, l)
	}
	if err != nil {
		if l != nil {
			_ = l.Close()
		}
		a.log.Warn("a link of an agent with other tables is of no use and goes", "pin", path, "error", err)
		_ = os.Remove(path) // what hinders that shows when the next one is attached
		return false
	}
	a.log.Info("took a program's place over from an agent with other tables", "hook", h, "interface", d.name)
	return true
}

func (a *attacher) move(h hook, d device, l link.Link) error {
	where, err := whereIs(h, l)
	if err != nil {
		return err
	}
	if where != d.index {
		return errors.New("the interface that it was at has gone")
	}
	if err := l.Update(a.program(h)); err != nil {
		return fmt.Errorf("replace the program: %w", err)
	}
	pin := filepath.Join(a.k.pins, h.pin(d.index))
	if err := os.Remove(pin); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := l.Pin(pin); err != nil {
		return fmt.Errorf("move its pin: %w", err)
	}
	a.here[h][d.index] = a.adopted(h, d.name, d.index, l)
	return nil
}

// dropOthers removes what other layouts left, once nothing of it is used.
func (a *attacher) dropOthers() {
	if len(a.failed) > 0 {
		return // it may be what still balances
	}
	if dropDirs(a.others, a.log) {
		a.others, a.older = nil, map[at]string{}
	}
}

func dropDirs(dirs []string, log *slog.Logger) bool {
	done := true
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			log.Warn("what an earlier agent left is not removed", "error", err)
			done = false
			continue
		}
		log.Info("removed what an earlier agent left", "pins", dir)
	}
	return done
}

// forsake removes what other layouts left where nothing is to be balanced, and pins of ours
// without the map of frontends, which New looks for: of an agent that was killed at its end, or
// of one that came after it and does not know them all.
func (d *DataPlane) forsake() error {
	if d.why != nil {
		return nil
	}
	pins := layoutDir(d.c.Dir)
	on, err := onBPF(pins)
	if err != nil || !on {
		return err
	}
	dirs, err := others(pins)
	if err != nil {
		return err
	}
	if names, err := pinned(pins, ""); err == nil && len(names) > 0 && !slices.Contains(names, bpfMapFrontends) {
		dirs = append(dirs, pins)
	}
	if len(dirs) == 0 {
		return nil
	}
	lock, err := lockPins(d.c.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	dropDirs(dirs, d.c.Log)
	return nil
}
