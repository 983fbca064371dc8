package bpf

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

// Directories of pins beside ours: of agents with another layout, and those that could not
// be read.
var (
	layoutName = regexp.MustCompile(`^v\d+(_aside\d+)?$`)
	asideName  = "%s_aside%d"
)

// OtherLayouts are the directories of pins beside that of this layout, below dir.
func OtherLayouts(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list directories of pins: %w", err)
	}
	var list []string
	for _, e := range entries {
		if e.IsDir() && layoutName.MatchString(e.Name()) && e.Name() != filepath.Base(LayoutDir(dir)) {
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	return list, nil
}

// inherit moves the pins of maps here from other layouts.
func inherit(pins string, inherited []string) error {
	dirs, err := OtherLayouts(filepath.Dir(pins))
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
				return fmt.Errorf("take over the map %s: %w", name, err)
			}
		}
	}
	return nil
}

// SetAside renames the unreadable directory and creates it again. The pinned programs continue
// until they are taken over.
func (p *Pins) SetAside() error {
	pins := p.path
	for i := 1; ; i++ {
		to := fmt.Sprintf(asideName, pins, i)
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			if err := os.Rename(pins, to); err != nil {
				return fmt.Errorf("move aside unreadable pins: %w", err)
			}
			return os.Mkdir(pins, 0o700)
		} else if err != nil {
			return fmt.Errorf("move aside unreadable pins: %w", err)
		}
	}
}

// Unreadable reports whether an error is about the pinned objects, and not about this
// process or the kernel: a retry gives the same error.
func Unreadable(err error) bool {
	for _, passing := range []error{errors.ErrUnsupported, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EPERM, unix.EINTR, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS} {
		if errors.Is(err, passing) {
			return false
		}
	}
	return true
}

// findOlder notes the links that others pinned.
func (a *Attacher) findOlder() error {
	dirs, err := OtherLayouts(filepath.Dir(a.object.pins.path))
	if err != nil {
		return err
	}
	a.others = dirs
	for _, dir := range dirs {
		for h := range a.here {
			names, err := pinned(dir, LinkPrefix+string(h)+"_")
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
func (a *Attacher) takeOver(h Hook, d Device) bool {
	path := a.older[at{h, d.Index}]
	if path == "" {
		return false
	}
	delete(a.older, at{h, d.Index})
	l, err := link.LoadPinnedLink(path, nil)
	if err == nil {
		err = a.move(h, d, l)
	}
	if err != nil {
		if l != nil {
			_ = l.Close()
		}
		a.log.Warn("a link of an agent with another map layout cannot be used and is removed", "pin", path, "error", err)
		_ = os.Remove(path) // what hinders that shows when the next one is attached
		return false
	}
	a.log.Info("took over the attachment of a program from an agent with another map layout", "hook", h, "interface", d.Name)
	return true
}

func (a *Attacher) move(h Hook, d Device, l link.Link) error {
	where, err := Where(h, l)
	if err != nil {
		return err
	}
	if where != d.Index {
		return errors.New("its interface no longer exists")
	}
	if err := l.Update(a.programs[h]); err != nil {
		return fmt.Errorf("replace the program: %w", err)
	}
	if err := a.object.pins.remove(h.pin(d.Index)); err != nil {
		return err
	}
	if err := l.Pin(a.object.pins.join(h.pin(d.Index))); err != nil {
		return fmt.Errorf("move its pin: %w", err)
	}
	a.here[h][d.Index] = adopted(h, d.Name, d.Index, l)
	return nil
}

// DropOthers removes the pins of other layouts once none is used. If a program could not be
// attached, a program of another layout may still work there, and stays.
func (a *Attacher) DropOthers() {
	if len(a.others) == 0 || len(a.failed) > 0 {
		return
	}
	if dropDirs(a.others, a.log) {
		a.others, a.older = nil, map[at]string{}
	}
}

func dropDirs(dirs []string, log *slog.Logger) bool {
	done := true
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			log.Warn("cannot remove the leftovers of an earlier agent", "error", err)
			done = false
			continue
		}
		log.Info("removed the leftovers of an earlier agent", "pins", dir)
	}
	return done
}

// Forsake removes what other layouts left where nothing is to be loaded, and pins of ours without
// the key (Spec), which Left looks for: of an agent that was killed at its end, or of one that came
// after it and does not know them all.
func Forsake(dir, key string, log *slog.Logger) error {
	pins := LayoutDir(dir)
	on, err := onBPF(pins)
	if err != nil || !on {
		return err
	}
	dirs, err := OtherLayouts(dir)
	if err != nil {
		return err
	}
	if names, err := pinned(pins, ""); err == nil && len(names) > 0 && !slices.Contains(names, key) {
		dirs = append(dirs, pins)
	}
	if len(dirs) == 0 {
		return nil
	}
	lock, err := lockPins(dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	dropDirs(dirs, log)
	return nil
}
