package router

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
)

// Paths asks the kernel of a router's machine which next hop it chooses for the packets
// of TCP connections. Its methods may be called concurrently.
type Paths struct {
	machine string
	in      int // index of the interface that packets come from

	mu     sync.Mutex
	socket *nl.SocketHandle
}

// Paths returns what answers for packets that come from the segment.
func (r *Router) Paths(segment string) (*Paths, error) {
	p, err := pathsFrom(r.machine, segment)
	if err != nil {
		return nil, fmt.Errorf("paths through machine %s: %w", r.machine.Name(), err)
	}
	return p, nil
}

func pathsFrom(m *lab.Machine, segment string) (*Paths, error) {
	own, _, ok := m.On(segment)
	if !ok {
		return nil, fmt.Errorf("it is not on segment %s", segment)
	}
	h, err := m.Netlink()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	addrs, err := h.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	i := slices.IndexFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(own.AsSlice()) })
	if i < 0 {
		return nil, fmt.Errorf("no interface has %s", own)
	}
	ns, err := netns.GetFromPath(m.Namespace())
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	socket, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &Paths{machine: m.Name(), in: addrs[i].LinkIndex, socket: &nl.SocketHandle{Socket: socket}}, nil
}

// Close ends it.
func (p *Paths) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.socket.Close()
}

// Next returns the next hop that the kernel chooses now for a connection's packets:
// the same that it chooses while the routes stay as they are. It is invalid when no
// next hop is needed or no route is there.
func (p *Paths) Next(ctx context.Context, from, to netip.AddrPort) (netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return netip.Addr{}, err
	}
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	bits := uint8(to.Addr().BitLen())
	// The kernel hashes what `ip route get` names: addresses, protocol and ports.
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_REQUEST)
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family), Dst_len: bits, Src_len: bits}})
	request.AddData(nl.NewRtAttr(unix.RTA_DST, to.Addr().AsSlice()))
	request.AddData(nl.NewRtAttr(unix.RTA_SRC, from.Addr().AsSlice()))
	request.AddData(nl.NewRtAttr(unix.RTA_IIF, nl.Uint32Attr(uint32(p.in))))
	request.AddData(nl.NewRtAttr(unix.RTA_IP_PROTO, []byte{unix.IPPROTO_TCP}))
	request.AddData(nl.NewRtAttr(unix.RTA_SPORT, binary.BigEndian.AppendUint16(nil, from.Port())))
	request.AddData(nl.NewRtAttr(unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, to.Port())))
	request.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: p.socket}
	p.mu.Lock()
	defer p.mu.Unlock()
	answers, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return netip.Addr{}, nil
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("path of %s to %s through machine %s: %w", from, to, p.machine, err)
	}
	for _, a := range answers {
		if len(a) < unix.SizeofRtMsg {
			continue
		}
		attributes, err := nl.ParseRouteAttr(a[unix.SizeofRtMsg:])
		if err != nil {
			return netip.Addr{}, fmt.Errorf("path of %s to %s through machine %s: %w", from, to, p.machine, err)
		}
		for _, at := range attributes {
			if at.Attr.Type == unix.RTA_GATEWAY {
				gateway, _ := netip.AddrFromSlice(at.Value)
				return gateway, nil
			}
		}
	}
	return netip.Addr{}, nil
}
