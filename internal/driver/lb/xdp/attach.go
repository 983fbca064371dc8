package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// hook is a place of an interface where one of our programs can be.
type hook string

// The hooks. Pins of links are "link_", the hook and the interface's index: names on a bpffs
// have no dots, and those of interfaces may.
const (
	hookXDP     hook = "xdp"
	hookIngress hook = "ingress"
	hookEgress  hook = "egress"
)

const linkPrefix = "link_"

func (h hook) pin(device int) string { return linkPrefix + string(h) + "_" + strconv.Itoa(device) }

// attachment is a program at an interface.
type attachment struct {
	link    link.Link
	name    string // of the interface
	generic bool   // XDP: after the kernel has made its own form of the packet
	gro     bool   // the interface merged segments before
}

// attacher has our programs at interfaces.
type attacher struct {
	k    *kernel
	log  *slog.Logger
	here map[hook]map[int]*attachment
	// failed is why a hook is not at an interface, by its index.
	failed map[int]error
	// older are the pins of links of agents with another layout, others their directories.
	older  map[at]string
	others []string
}

// at is a hook of an interface.
type at struct {
	hook
	device int
}

// newAttacher adopts the links that are pinned: their programs are replaced by ours, each at
// once.
func newAttacher(k *kernel, log *slog.Logger) (*attacher, error) {
	a := &attacher{k: k, log: log, here: map[hook]map[int]*attachment{hookXDP: {}, hookIngress: {}, hookEgress: {}}, older: map[at]string{}}
	if err := a.findOlder(); err != nil {
		return nil, err
	}
	for h := range a.here {
		names, err := pinned(k.pins, linkPrefix+string(h)+"_")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			device, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			if err := a.adopt(h, device); err != nil {
				log.Warn("a link of an earlier agent is of no use and goes", "hook", h, "device", device, "error", err)
				if err := os.Remove(filepath.Join(k.pins, h.pin(device))); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return nil, fmt.Errorf("remove the pin of a link: %w", err)
				}
			}
		}
	}
	return a, k.dropPrograms(true)
}

func (a *attacher) adopt(h hook, device int) error {
	l, err := link.LoadPinnedLink(filepath.Join(a.k.pins, h.pin(device)), nil)
	if err != nil {
		return err
	}
	dev, err := netlink.LinkByIndex(device)
	if err == nil {
		var at int
		if at, err = whereIs(h, l); err == nil && at != device {
			err = errors.New("the interface that it was at has gone")
		}
	}
	if err == nil {
		if program := a.program(h); program == nil {
			err = errors.New("there is no program for it")
		} else if err = l.Update(program); err != nil {
			err = fmt.Errorf("replace the program: %w", err)
		}
	}
	if err != nil {
		_ = l.Close()
		return err
	}
	a.here[h][device] = a.adopted(h, dev.Attrs().Name, device, l)
	return nil
}

// adopted is what an earlier agent attached.
func (a *attacher) adopted(h hook, name string, device int, l link.Link) *attachment {
	at := &attachment{link: l, name: name, gro: true}
	if dev, err := netlink.LinkByIndex(device); err == nil {
		if x := dev.Attrs().Xdp; h == hookXDP && x != nil && x.AttachMode == nl.XDP_ATTACHED_SKB {
			at.generic = true
		}
	}
	return at
}

// whereIs is the index of the interface that a link is at; 0 if it has gone.
func whereIs(h hook, l link.Link) (int, error) {
	info, err := l.Info()
	if err != nil {
		return 0, fmt.Errorf("ask about the link: %w", err)
	}
	if h == hookXDP {
		if x := info.XDP(); x != nil {
			return int(x.Ifindex), nil
		}
	} else if x := info.TCX(); x != nil {
		return int(x.Ifindex), nil
	}
	return 0, fmt.Errorf("the link is of another kind (%v)", info.Type)
}

func (a *attacher) program(h hook) *ebpf.Program {
	switch h {
	case hookXDP:
		return a.k.balance
	case hookIngress:
		return a.k.ingress
	}
	return a.k.egress
}

// set has the program of a hook at exactly these interfaces, and returns what is wrong with
// each that it is not at.
func (a *attacher) set(h hook, devices []device) map[int]error {
	failed := map[int]error{}
	want := map[int]device{}
	for _, d := range devices {
		want[d.index] = d
	}
	for index, at := range a.here[h] {
		// A link whose interface has gone is at none, also when another got the number.
		where, err := whereIs(h, at.link)
		if d, wanted := want[index]; wanted && err == nil && where == index {
			at.name = d.name
			continue
		}
		if err := a.detach(h, index, at); err != nil {
			failed[index] = err
		}
	}
	for _, d := range devices {
		if a.here[h][d.index] != nil {
			continue
		}
		if a.takeOver(h, d) {
			continue
		}
		if err := a.attach(h, d); err != nil {
			failed[d.index] = err
		}
	}
	return failed
}

func (a *attacher) attach(h hook, d device) error {
	program := a.program(h)
	if program == nil {
		return nil
	}
	at := &attachment{name: d.name, gro: true}
	var err error
	switch h {
	case hookXDP:
		at.link, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: d.index, Flags: link.XDPDriverMode})
		if err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EPERM) {
			native := err
			at.link, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: d.index, Flags: link.XDPGenericMode})
			if err == nil {
				at.generic = true
				at.plain(d, native, a.log)
			}
		}
	case hookIngress:
		at.link, err = link.AttachTCX(link.TCXOptions{Program: program, Interface: d.index, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	case hookEgress:
		at.link, err = link.AttachTCX(link.TCXOptions{Program: program, Interface: d.index, Attach: ebpf.AttachTCXEgress, Anchor: link.Tail()})
	}
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		return errOccupied(h, d.name, err)
	}
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", h, d.name, err)
	}
	path := filepath.Join(a.k.pins, h.pin(d.index))
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		_ = at.link.Close()
		return fmt.Errorf("remove an old pin of %s: %w", d.name, err)
	}
	if err := at.link.Pin(path); err != nil {
		_ = at.link.Close()
		return fmt.Errorf("pin the program of %s: %w", d.name, err)
	}
	a.here[h][d.index] = at
	a.log.Info("attached a program", "hook", h, "interface", d.name, "generic", at.generic)
	return nil
}

// plain keeps the kernel from merging segments before a generic program sees them: it would
// take many for one packet that is too big.
func (at *attachment) plain(d device, native error, log *slog.Logger) {
	was, err := setGRO(d.name, false)
	at.gro = was
	log.Warn("the driver of an interface runs no XDP programs; packets are balanced after the kernel has made its own form of each, which costs more, and segments are not merged there (GRO off)",
		"interface", d.name, "native", native, "gro", errorOrNil(err))
}

func errorOrNil(err error) any {
	if err == nil {
		return "off"
	}
	return err
}

func (a *attacher) detach(h hook, index int, at *attachment) error {
	delete(a.here[h], index)
	err := errors.Join(at.link.Unpin(), at.link.Close())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // somebody removed the pin
	}
	if at.generic && at.gro {
		if _, gro := setGRO(at.name, true); gro != nil && !errors.Is(gro, unix.ENODEV) {
			err = errors.Join(err, gro)
		}
	}
	if err != nil {
		return fmt.Errorf("detach %s from %s: %w", h, at.name, err)
	}
	a.log.Info("detached a program", "hook", h, "interface", at.name)
	return nil
}

// close lets go of the links; with leave they stay where they are. XDP goes first, as always.
func (a *attacher) close(leave bool) error {
	var errs []error
	for _, h := range []hook{hookXDP, hookEgress, hookIngress} {
		for index, at := range a.here[h] {
			if leave {
				errs = append(errs, at.link.Close())
			} else {
				errs = append(errs, a.detach(h, index, at))
			}
		}
	}
	return errors.Join(errs...)
}

// generic names the interfaces whose drivers run no XDP programs.
func (a *attacher) generic() []string {
	var names []string
	for _, at := range a.here[hookXDP] {
		if at.generic {
			names = append(names, at.name)
		}
	}
	return names
}
