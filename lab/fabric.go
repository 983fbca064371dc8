package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// fabricName is the name of the namespace that holds a lab's bridges.
const fabricName = "fabric"

// machineSettings make a machine's addresses usable at once and keep the kernel
// from adding any of its own.
func machineSettings(role Role) map[string]string {
	settings := map[string]string{
		"ipv6/conf/all/disable_ipv6":     "0",
		"ipv6/conf/default/disable_ipv6": "0",
		"ipv6/conf/all/accept_dad":       "0",
		"ipv6/conf/default/accept_dad":   "0",
		"ipv6/conf/default/accept_ra":    "0",
		// The host's is inherited otherwise. Reno (RFC 5681) is the one that every kernel has and
		// gives a namespace. BBR takes a wire with a rate for a policer: a connection may crawl for
		// half a minute when the wire has long been free.
		"ipv4/tcp_congestion_control": "reno",
	}
	if role == RoleRouter {
		settings["ipv4/ip_forward"] = "1"
		settings["ipv6/conf/all/forwarding"] = "1"
		settings["ipv6/conf/default/forwarding"] = "1"
		// By addresses, protocol and ports, so that connections of one client spread
		// (see forgetHash).
		settings["ipv4/fib_multipath_hash_policy"] = "1"
		settings["ipv6/fib_multipath_hash_policy"] = "1"
		// The host's setting is inherited and might drop what comes back another way.
		settings["ipv4/conf/all/rp_filter"] = "0"
		settings["ipv4/conf/default/rp_filter"] = "0"
	}
	return settings
}

// buildFabric makes the namespace with the bridges. No bridge has an address:
// nothing but the machines is on a segment.
func buildFabric(path string, segments []Segment, mtu int) error {
	return makeNamespace(path, func() error {
		if err := sysctls(map[string]string{"ipv6/conf/default/disable_ipv6": "1"}); err != nil {
			return err
		}
		if err := lookAway(); err != nil {
			return err
		}
		for _, s := range segments {
			bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: s.bridge(), MTU: mtu, TxQLen: 1000}}
			// Without an IGMP or MLD querier, snooping would drop neighbour solicitations.
			off := false
			bridge.MulticastSnooping = &off
			if err := netlink.LinkAdd(bridge); err != nil {
				return fmt.Errorf("make bridge %s: %w", s.bridge(), err)
			}
			if err := netlink.LinkSetUp(bridge); err != nil {
				return fmt.Errorf("bring bridge %s up: %w", s.bridge(), err)
			}
		}
		return nil
	})
}

// lookAway keeps bridges of this namespace from reading the packets in frames: where the
// kernel has br_netfilter, they drop those whose IP header is wrong, which no switch does.
func lookAway() error {
	for _, name := range []string{"iptables", "ip6tables", "arptables"} {
		err := sysctls(map[string]string{"bridge/bridge-nf-call-" + name: "0"})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// buildMachine makes a machine's namespace and plugs it into the fabric.
func buildMachine(s State, m MachineState) error {
	if err := makeNamespace(m.Namespace, func() error {
		if err := sysctls(machineSettings(m.Role)); err != nil {
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
	if err := inFabric(s, func(h *netlink.Handle) error {
		for wire := range m.Wires {
			if err := plug(h, s, m, wire, own); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	h, err := netlink.NewHandleAt(netns.NsHandle(own))
	if err != nil {
		return fmt.Errorf("open netlink in the machine: %w", err)
	}
	defer h.Close()
	if err := plainWires(s, m, own); err != nil {
		return err
	}
	for wire := range m.Wires {
		if err := address(h, s, m, wire); err != nil {
			return err
		}
		if m.Role == RoleRouter {
			if err := forgetHash(h, m.device(wire)); err != nil {
				return err
			}
		}
	}
	if v4, v6, ok := s.gateway(m); ok {
		return errors.Join(addDefault(h, v4), addDefault(h, v6))
	}
	return nil
}

// inFabric runs f with a netlink handle in the namespace of the bridges.
func inFabric(s State, f func(*netlink.Handle) error) error {
	fd, err := openNamespace(s.Fabric)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	h, err := netlink.NewHandleAt(netns.NsHandle(fd))
	if err != nil {
		return fmt.Errorf("open netlink in the fabric: %w", err)
	}
	defer h.Close()
	return f(h)
}

// plug makes the veth pair between the fabric and a machine. Both ends come into
// being where they belong; neither is ever in the host's namespace.
func plug(h *netlink.Handle, s State, m MachineState, wire, own int) error {
	port := &netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: m.port(wire), MTU: s.MTU, TxQLen: 1000},
		PeerName:         m.device(wire),
		PeerNamespace:    netlink.NsFd(own),
		PeerHardwareAddr: net.HardwareAddr{0x02, 0x77, 0, byte(wire), byte((m.Index + 1) >> 8), byte(m.Index + 1)},
	}
	if err := h.LinkAdd(port); err != nil {
		return fmt.Errorf("make the wire: %w", err)
	}
	if err := join(h, s, m, wire); err != nil {
		return err
	}
	if err := h.LinkSetUp(port); err != nil {
		return fmt.Errorf("bring the wire up: %w", err)
	}
	return nil
}

// join puts the fabric's end of a wire on its segment.
func join(h *netlink.Handle, s State, m MachineState, wire int) error {
	port, err := h.LinkByName(m.port(wire))
	if err != nil {
		return fmt.Errorf("find the wire %s: %w", m.port(wire), err)
	}
	name := s.segment(m.Wires[wire].Segment).bridge()
	bridge, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", name, err)
	}
	if err := h.LinkSetMaster(port, bridge); err != nil {
		return fmt.Errorf("plug the wire in: %w", err)
	}
	return nil
}

// address gives a machine's interface its addresses and brings it up.
func address(h *netlink.Handle, s State, m MachineState, wire int) error {
	name, w := m.device(wire), m.Wires[wire]
	segment := s.segment(w.Segment)
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	if err := h.LinkSetMTU(link, s.MTU); err != nil {
		return fmt.Errorf("set mtu of %s: %w", name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	for i := range w.Addr4 {
		for _, a := range []struct {
			addr  netip.Addr
			bits  int
			flags int
		}{
			{w.Addr4[i], segment.Net4.Bits(), 0},
			{w.Addr6[i], segment.Net6.Bits(), unix.IFA_F_NODAD},
		} {
			ip := &net.IPNet{IP: a.addr.AsSlice(), Mask: net.CIDRMask(a.bits, a.addr.BitLen())}
			if err := h.AddrAdd(link, &netlink.Addr{IPNet: ip, Flags: a.flags}); err != nil {
				return fmt.Errorf("add address %s: %w", a.addr, err)
			}
		}
	}
	return nil
}

// addDefault adds the default route of the gateway's family.
func addDefault(h *netlink.Handle, gateway netip.Addr) error {
	everything := net.IPNet{IP: make(net.IP, gateway.BitLen()/8), Mask: net.CIDRMask(0, gateway.BitLen())}
	if err := h.RouteAdd(&netlink.Route{Dst: &everything, Gw: gateway.AsSlice()}); err != nil {
		return fmt.Errorf("add the default route through %s: %w", gateway, err)
	}
	return nil
}

// awaitLink returns once an interface carries packets and none of its addresses
// is tentative: the kernel reports a carrier a moment after the link is up.
func awaitLink(ctx context.Context, h *netlink.Handle, name string) error {
	for {
		link, err := h.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		ready := link.Attrs().OperState == netlink.OperUp
		addrs, err := h.AddrList(link, netlink.FAMILY_V6)
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
			return fmt.Errorf("wait for the wire %s: %w", name, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}
