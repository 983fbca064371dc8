package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Hook is a point of an interface to which a program can be attached.
type Hook string

// The hooks.
const (
	XDP     Hook = "xdp"
	Ingress Hook = "ingress" // of tcx
	Egress  Hook = "egress"
)

// LinkPrefix begins the names of pins of links; the hook and the interface's index follow: names on
// a bpffs have no dots, and those of interfaces may.
const LinkPrefix = "link_"

func (h Hook) pin(device int) string { return LinkPrefix + string(h) + "_" + strconv.Itoa(device) }

// Attachment is a program that is attached to an interface.
type Attachment struct {
	Link    link.Link
	Name    string // of the interface
	Generic bool   // XDP: after the kernel has made its own form of the packet
	gro     bool   // the interface merged segments before
}

// Attacher attaches an object's programs to interfaces. It is not safe for use by several
// goroutines at once.
type Attacher struct {
	object   *Object
	programs map[Hook]*ebpf.Program
	log      *slog.Logger
	here     map[Hook]map[int]*Attachment
	// failed is why a hook is not at an interface, by its index.
	failed map[int]error
	// older are the pins of links of agents with another layout, others their directories.
	older  map[at]string
	others []string
}

// at is a hook of an interface.
type at struct {
	Hook
	device int
}

// NewAttacher adopts the links that are pinned: their programs are replaced by ours, each at
// once. programs are the names of those that belong to the hooks.
func NewAttacher(o *Object, programs map[Hook]string, log *slog.Logger) (*Attacher, error) {
	a := &Attacher{object: o, log: log, programs: map[Hook]*ebpf.Program{}, here: map[Hook]map[int]*Attachment{XDP: {}, Ingress: {}, Egress: {}}, older: map[at]string{}}
	for h, name := range programs {
		a.programs[h] = o.Program(name)
	}
	if err := a.findOlder(); err != nil {
		return nil, err
	}
	for h := range a.here {
		names, err := pinned(o.pins.path, LinkPrefix+string(h)+"_")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			device, err := strconv.Atoi(name)
			if err != nil {
				continue
			}
			if err := a.adopt(h, device); err != nil {
				log.Warn("a link of an earlier agent cannot be used and is removed", "hook", h, "device", device, "error", err)
				if err := o.pins.remove(h.pin(device)); err != nil {
					return nil, fmt.Errorf("remove the pin of a link: %w", err)
				}
			}
		}
	}
	return a, o.DropPrograms(true)
}

func (a *Attacher) adopt(h Hook, device int) error {
	l, err := link.LoadPinnedLink(a.object.pins.join(h.pin(device)), nil)
	if err != nil {
		return err
	}
	dev, err := netlink.LinkByIndex(device)
	if err == nil {
		var at int
		if at, err = Where(h, l); err == nil && at != device {
			err = errors.New("its interface no longer exists")
		}
	}
	if err == nil {
		if program := a.programs[h]; program == nil {
			err = errors.New("no program belongs to it")
		} else if err = l.Update(program); err != nil {
			err = fmt.Errorf("replace the program: %w", err)
		}
	}
	if err != nil {
		_ = l.Close()
		return err
	}
	a.here[h][device] = adopted(h, dev.Attrs().Name, device, l)
	return nil
}

// adopted is what an earlier agent attached.
func adopted(h Hook, name string, device int, l link.Link) *Attachment {
	at := &Attachment{Link: l, Name: name, gro: true}
	if dev, err := netlink.LinkByIndex(device); err == nil {
		if x := dev.Attrs().Xdp; h == XDP && x != nil && x.AttachMode == nl.XDP_ATTACHED_SKB {
			at.Generic = true
		}
	}
	return at
}

// Where returns the index of a link's interface; 0 if the interface no longer exists.
func Where(h Hook, l link.Link) (int, error) {
	info, err := l.Info()
	if err != nil {
		return 0, fmt.Errorf("ask about the link: %w", err)
	}
	if h == XDP {
		if x := info.XDP(); x != nil {
			return int(x.Ifindex), nil
		}
	} else if x := info.TCX(); x != nil {
		return int(x.Ifindex), nil
	}
	return 0, fmt.Errorf("the link is of another kind (%v)", info.Type)
}

// At are the interfaces that a hook's program is at, by their indices. The map is the attacher's.
func (a *Attacher) At(h Hook) map[int]*Attachment { return a.here[h] }

// Failed returns the reason why a program is not attached to an interface as the last Set
// required; nil if all are attached.
func (a *Attacher) Failed(device int) error { return a.failed[device] }

// TakesOver says whether links of another layout wait to run our programs.
func (a *Attacher) TakesOver() bool { return len(a.older) > 0 }

// Set attaches the programs to exactly these interfaces, and returns the errors. It attaches XDP
// last, and detaches it first: XDP puts packets for this machine into tunnels, out of which the
// others take them.
func (a *Attacher) Set(want map[Hook][]Device) (errs []error) {
	a.failed = map[int]error{}
	order := []Hook{Ingress, Egress, XDP}
	if len(want[XDP]) == 0 {
		slices.Reverse(order)
	}
	for _, h := range order {
		for index, err := range a.set(h, want[h]) {
			errs = append(errs, err)
			a.failed[index] = err
		}
	}
	return errs
}

// set has the program of a hook at exactly these interfaces, and returns what is wrong with
// each that it is not at.
func (a *Attacher) set(h Hook, devices []Device) map[int]error {
	failed := map[int]error{}
	want := map[int]Device{}
	for _, d := range devices {
		want[d.Index] = d
	}
	for index, at := range a.here[h] {
		// A link whose interface has gone is at none, also when another got the number.
		where, err := Where(h, at.Link)
		if d, wanted := want[index]; wanted && err == nil && where == index {
			at.Name = d.Name
			continue
		}
		if err := a.detach(h, index, at); err != nil {
			failed[index] = err
		}
	}
	for _, d := range devices {
		if a.here[h][d.Index] != nil {
			continue
		}
		if a.takeOver(h, d) {
			continue
		}
		if err := a.attach(h, d); err != nil {
			failed[d.Index] = err
		}
	}
	return failed
}

func (a *Attacher) attach(h Hook, d Device) error {
	program := a.programs[h]
	if program == nil {
		return nil
	}
	at := &Attachment{Name: d.Name, gro: true}
	var err error
	switch h {
	case XDP:
		at.Link, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: d.Index, Flags: link.XDPDriverMode})
		if err != nil && !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EPERM) {
			native := err
			at.Link, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: d.Index, Flags: link.XDPGenericMode})
			if err == nil {
				at.Generic = true
				at.plain(d, native, a.log)
			}
		}
	case Ingress:
		at.Link, err = link.AttachTCX(link.TCXOptions{Program: program, Interface: d.Index, Attach: ebpf.AttachTCXIngress, Anchor: link.Head()})
	case Egress:
		at.Link, err = link.AttachTCX(link.TCXOptions{Program: program, Interface: d.Index, Attach: ebpf.AttachTCXEgress, Anchor: link.Tail()})
	}
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) {
		return errOccupied(h, d.Name, err)
	}
	if err != nil {
		return fmt.Errorf("attach %s to %s: %w", h, d.Name, err)
	}
	if err := a.object.pins.remove(h.pin(d.Index)); err != nil {
		_ = at.Link.Close()
		return fmt.Errorf("remove an old pin of %s: %w", d.Name, err)
	}
	if err := at.Link.Pin(a.object.pins.join(h.pin(d.Index))); err != nil {
		_ = at.Link.Close()
		return fmt.Errorf("pin the program of %s: %w", d.Name, err)
	}
	a.here[h][d.Index] = at
	a.log.Info("attached a program", "hook", h, "interface", d.Name, "generic", at.Generic)
	return nil
}

// plain keeps the kernel from merging segments before a generic program sees them: it would
// take many for one packet that is too big.
func (at *Attachment) plain(d Device, native error, log *slog.Logger) {
	was, err := SetGRO(d.Name, false)
	at.gro = was
	log.Warn("the driver of an interface does not support XDP; packets are balanced in generic mode, which costs more CPU, with GRO off",
		"interface", d.Name, "native", native, "gro", errorOrNil(err))
}

func errorOrNil(err error) any {
	if err == nil {
		return "off"
	}
	return err
}

func (a *Attacher) detach(h Hook, index int, at *Attachment) error {
	delete(a.here[h], index)
	err := errors.Join(at.Link.Unpin(), at.Link.Close())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // somebody removed the pin
	}
	if at.Generic && at.gro {
		if _, gro := SetGRO(at.Name, true); gro != nil && !errors.Is(gro, unix.ENODEV) {
			err = errors.Join(err, gro)
		}
	}
	if err != nil {
		return fmt.Errorf("detach %s from %s: %w", h, at.Name, err)
	}
	a.log.Info("detached a program", "hook", h, "interface", at.Name)
	return nil
}

// Close releases the links; with leave the programs stay attached. XDP is detached first, as
// always.
func (a *Attacher) Close(leave bool) error {
	var errs []error
	for _, h := range []Hook{XDP, Egress, Ingress} {
		for index, at := range a.here[h] {
			if leave {
				errs = append(errs, at.Link.Close())
			} else {
				errs = append(errs, a.detach(h, index, at))
			}
		}
	}
	return errors.Join(errs...)
}

// Generic names the interfaces whose drivers do not support XDP.
func (a *Attacher) Generic() []string {
	var names []string
	for _, at := range a.here[XDP] {
		if at.Generic {
			names = append(names, at.Name)
		}
	}
	return names
}
