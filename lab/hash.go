package lab

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forgetHash makes an interface take packets as if they came off a wire. Those off a
// veth bear the hash of their sender's socket, a random number that the sender draws
// again when it sends again (net.core.txrehash). A kernel that spreads over next hops
// takes it for the hash of addresses and ports: connections would wander.
func forgetHash(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.FnSetHashInvalid.Call(), asm.Mov.Imm(asm.R0, actUnspec), asm.Return()}, // r1 holds the packet
	})
	if err != nil {
		return fmt.Errorf("forget the hashes of packets of %s: %w", name, err)
	}
	defer func() { _ = program.Close() }() // the interface holds it
	at := link.Attrs().Index
	if err := h.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: at, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0)}}); err != nil {
		return fmt.Errorf("forget the hashes of packets of %s: add clsact: %w", name, err)
	}
	if err := h.FilterAdd(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: at, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd:          program.FD(), Name: "forget_hash", DirectAction: true,
	}); err != nil {
		return fmt.Errorf("forget the hashes of packets of %s: add the filter: %w", name, err)
	}
	return nil
}

// actUnspec is TC_ACT_UNSPEC, which the unix package lacks: whoever is next decides.
const actUnspec = -1
