package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// fabricName is the name of the namespace that holds a lab's bridge.
const fabricName = "fabric"

// machineSettings make a machine's addresses usable at once and keep the kernel
// from adding any of its own.
func machineSettings() map[string]string {
	return map[string]string{
		"ipv6/conf/all/disable_ipv6":     "0",
		"ipv6/conf/default/disable_ipv6": "0",
		"ipv6/conf/all/accept_dad":       "0",
		"ipv6/conf/default/accept_dad":   "0",
		"ipv6/conf/default/accept_ra":    "0",
	}
}

// buildFabric makes the namespace with the bridge. The bridge has no address:
// nothing but the machines is on the segment.
func buildFabric(path string, mtu int) error {
	return makeNamespace(path, func() error {
		if err := sysctls(map[string]string{"ipv6/conf/default/disable_ipv6": "1"}); err != nil {
			return err
		}
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "segment", MTU: mtu, TxQLen: 1000}}
		// Without an IGMP or MLD querier, snooping would drop neighbour solicitations.
		off := false
		bridge.MulticastSnooping = &off
		if err := netlink.LinkAdd(bridge); err != nil {
			return fmt.Errorf("make bridge: %w", err)
		}
		if err := netlink.LinkSetUp(bridge); err != nil {
			return fmt.Errorf("bring bridge up: %w", err)
		}
		return nil
	})
}

// buildMachine makes a machine's namespace and plugs it into the fabric.
func buildMachine(t Topology, index int, m MachineState, fabric int) error {
	if err := makeNamespace(m.Namespace, func() error {
		if err := sysctls(machineSettings()); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo: %w", err)
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("bring lo up: %w", err)
		}
		return nil
	}); err != nil {
		return err
	}
	own, err := openNamespace(m.Namespace)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(own) }()
	if err := plug(t, index, m.Name, fabric, own); err != nil {
		return err
	}
	return address(t, m, own)
}

// plug makes the veth pair between the fabric and a machine. Both ends come into
// being where they belong; neither is ever in the host's namespace.
func plug(t Topology, index int, name string, fabric, own int) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(fabric))
	if err != nil {
		return fmt.Errorf("open netlink in the fabric: %w", err)
	}
	defer h.Close()
	port := &netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: name, MTU: t.MTU, TxQLen: 1000},
		PeerName:         "eth0",
		PeerNamespace:    netlink.NsFd(own),
		PeerHardwareAddr: net.HardwareAddr{0x02, 0x77, 0, 0, byte((index + 1) >> 8), byte(index + 1)},
	}
	if err := h.LinkAdd(port); err != nil {
		return fmt.Errorf("make the wire: %w", err)
	}
	bridge, err := h.LinkByName("segment")
	if err != nil {
		return fmt.Errorf("find bridge: %w", err)
	}
	if err := h.LinkSetMaster(port, bridge); err != nil {
		return fmt.Errorf("plug the wire in: %w", err)
	}
	if err := h.LinkSetUp(port); err != nil {
		return fmt.Errorf("bring the wire up: %w", err)
	}
	return nil
}

// address gives a machine's eth0 its addresses and brings it up.
func address(t Topology, m MachineState, own int) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(own))
	if err != nil {
		return fmt.Errorf("open netlink in the machine: %w", err)
	}
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0: %w", err)
	}
	if err := h.LinkSetMTU(eth0, t.MTU); err != nil {
		return fmt.Errorf("set mtu of eth0: %w", err)
	}
	if err := h.LinkSetUp(eth0); err != nil {
		return fmt.Errorf("bring eth0 up: %w", err)
	}
	for i := range m.Addr4 {
		for _, a := range []struct {
			addr  netip.Addr
			bits  int
			flags int
		}{
			{m.Addr4[i], t.Net4.Bits(), 0},
			{m.Addr6[i], t.Net6.Bits(), unix.IFA_F_NODAD},
		} {
			ip := &net.IPNet{IP: a.addr.AsSlice(), Mask: net.CIDRMask(a.bits, a.addr.BitLen())}
			if err := h.AddrAdd(eth0, &netlink.Addr{IPNet: ip, Flags: a.flags}); err != nil {
				return fmt.Errorf("add address %s: %w", a.addr, err)
			}
		}
	}
	return nil
}

// awaitLink returns once a machine's eth0 carries packets and none of its
// addresses is tentative: the kernel reports a carrier a moment after the link is up.
func awaitLink(ctx context.Context, own int) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(own))
	if err != nil {
		return fmt.Errorf("open netlink in the machine: %w", err)
	}
	defer h.Close()
	for {
		eth0, err := h.LinkByName("eth0")
		if err != nil {
			return fmt.Errorf("find eth0: %w", err)
		}
		ready := eth0.Attrs().OperState == netlink.OperUp
		addrs, err := h.AddrList(eth0, netlink.FAMILY_V6)
		if err != nil {
			return fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range addrs {
			ready = ready && a.Flags&unix.IFA_F_TENTATIVE == 0
		}
		if ready {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the wire: %w", ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}
