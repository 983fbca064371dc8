package bpf

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// WireLink is a link address as programs have it: zero for none.
func WireLink(a net.HardwareAddr) uint64 {
	if len(a) != 6 {
		return 0
	}
	var first [8]byte // of a frame
	copy(first[:], a)
	return binary.LittleEndian.Uint64(first[:]) << 16
}

// WireLinks are link addresses as programs have them. What is left of the room has the first
// one again.
func WireLinks(all []uint64) (at [8]uint64) {
	n := 0
	for _, a := range all {
		if slices.Contains(at[:n], a) {
			continue
		}
		if a == 0 || n == len(at) {
			return [8]uint64{}
		}
		at[n] = a
		n++
	}
	for i := n; i < len(at); i++ {
		at[i] = at[0]
	}
	return at
}

// linkAddresses are those at which frames that arrive at an interface are for the machine:
// its own, and those of what is on top of it: bridges and bonds that it is part of, and
// interfaces of the machine that share it (VLANs, macvlans). The interface's own is first.
func linkAddresses(l netlink.Link, all []netlink.Link) []uint64 {
	stack := map[int]bool{l.Attrs().Index: true}
	addresses := []uint64{WireLink(l.Attrs().HardwareAddr)}
	masters := map[int]bool{l.Attrs().MasterIndex: true}
	for grown := true; grown; {
		grown = false
		for _, x := range all {
			a := x.Attrs()
			// The parent of a veth is its other end, and that number may be of another namespace.
			above := masters[a.Index] || a.ParentIndex != 0 && stack[a.ParentIndex] && x.Type() != "veth" && a.NetNsID < 0
			if stack[a.Index] || !above {
				continue
			}
			stack[a.Index], masters[a.MasterIndex], grown = true, true, true
			addresses = append(addresses, WireLink(a.HardwareAddr))
		}
	}
	return addresses
}

// WriteLinks writes the link addresses of this machine to the map links. If there are more than
// programs have room for, or an interface has none, frames to all link addresses count as ours.
func WriteLinks(m *ebpf.Map, found []Device) error {
	var all []uint64
	for _, dev := range found {
		all = append(all, dev.links...)
	}
	v := libLinks{At: WireLinks(all)}
	var now libLinks
	if err := m.Lookup(uint32(0), &now); err != nil {
		return fmt.Errorf("read the link addresses: %w", err)
	}
	if now == v {
		return nil
	}
	if err := m.Put(uint32(0), v); err != nil {
		return fmt.Errorf("write the link addresses: %w", err)
	}
	return nil
}
