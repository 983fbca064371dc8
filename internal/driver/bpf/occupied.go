package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// occupant says which program has the XDP hook of an interface, and the command that takes it
// out there. A program that is attached by a link goes with that link only: `ip link` finds it
// busy. One that is attached by netlink goes by the mode in which it is there.
func occupant(device string) string {
	const unknown = "another program is attached there; stop the program that attached it, or detach it (`bpftool link` shows the link, `bpftool link detach id ID` ends it; without one, `ip link set dev %s xdp off`)"
	dev, err := netlink.LinkByName(device)
	if err != nil || dev.Attrs().Xdp == nil || !dev.Attrs().Xdp.Attached {
		return fmt.Sprintf(unknown, device)
	}
	x := dev.Attrs().Xdp
	by, err := linkOf(ebpf.ProgramID(x.ProgId), dev.Attrs().Index)
	if err != nil { // links are shown to CAP_SYS_ADMIN alone
		return fmt.Sprintf(unknown, device)
	}
	command := fmt.Sprintf("bpftool link detach id %d", by)
	if by == 0 {
		mode := map[uint32]string{nl.XDP_ATTACHED_DRV: "xdpdrv", nl.XDP_ATTACHED_SKB: "xdpgeneric", nl.XDP_ATTACHED_HW: "xdpoffload"}[x.AttachMode]
		if mode == "" {
			mode = "xdp"
		}
		command = fmt.Sprintf("ip link set dev %s %s off", device, mode)
	}
	return fmt.Sprintf("another program is attached there (%s); stop the program that attached it, or detach it (`%s`)", programName(ebpf.ProgramID(x.ProgId)), command)
}

// linkOf is the XDP link by which a program is at an interface; 0 if it is there by netlink.
func linkOf(program ebpf.ProgramID, device int) (link.ID, error) {
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil {
			continue // it went meanwhile
		}
		// Interfaces of other network namespaces may have the same index.
		if x := info.XDP(); x != nil && info.Program == program && x.Ifindex == uint32(device) {
			return info.ID, nil
		}
	}
	return 0, it.Err()
}

// programName is a program's id, with its name if that can be known.
func programName(id ebpf.ProgramID) string {
	text := fmt.Sprintf("program %d", id)
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return text
	}
	defer p.Close()
	if info, err := p.Info(); err == nil && info.Name != "" {
		text += ", " + info.Name
	}
	return text
}

// errOccupied wraps what the kernel says where a hook has a program.
func errOccupied(h Hook, device string, err error) error {
	if h != XDP { // of those there can be many
		return fmt.Errorf("attach %s to %s: %w", h, device, err)
	}
	return fmt.Errorf("attach %s to %s: %s: %w", h, device, occupant(device), err)
}
