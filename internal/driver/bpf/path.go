package bpf

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/rtdump"
)

// Path is how the kernel would send to an address now.
type Path struct {
	device   int // 0: the neighbour is not known yet, or nothing leads there
	MTU      int // bytes, without the link header
	to, from [6]byte
	vlan     int
	source   netip.Addr
	redirect bool      // also where it came from
	Gateway  bool      // not on a segment of this machine
	here     bool      // an address of this machine
	Problem  string    // why nothing arrives; empty for none
	next     neighbour // whose link address is needed, if any's
}

// neighbour is one at a link.
type neighbour struct {
	link int
	ip   netip.Addr
}

// network is what the kernel knows, read once for many paths.
type network struct {
	links      map[int]netlink.Link
	neighbours map[neighbour][6]byte
}

// known are the states of neighbours whose link address may be used.
const known = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT

func readNetwork() (*network, error) {
	n := &network{links: map[int]netlink.Link{}, neighbours: map[neighbour][6]byte{}}
	links, err := rtdump.Whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, l := range links {
		n.links[l.Attrs().Index] = l
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		list, err := rtdump.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, family) })
		if err != nil {
			return nil, fmt.Errorf("list neighbours: %w", err)
		}
		for _, e := range list {
			if ip, ok := netip.AddrFromSlice(e.IP); ok && e.State&known != 0 && len(e.HardwareAddr) == 6 {
				n.neighbours[neighbour{e.LinkIndex, ip.Unmap()}] = [6]byte(e.HardwareAddr)
			}
		}
	}
	return n, nil
}

// path to an address.
func (n *network) path(to netip.Addr) Path {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return Path{Problem: fmt.Sprintf("no route leads to %s", to)}
	}
	r := routes[0]
	var p Path
	if source, ok := netip.AddrFromSlice(r.Src); ok {
		p.source = source.Unmap()
	}
	switch r.Type {
	case unix.RTN_UNICAST:
	case unix.RTN_LOCAL:
		p.here = true
		return p
	default:
		p.Problem = fmt.Sprintf("the route to %s is of type %s, not unicast", to, routeType(r.Type))
		return p
	}
	link := n.links[r.LinkIndex]
	if link == nil {
		p.Problem = fmt.Sprintf("the interface of the route to %s no longer exists", to)
		return p
	}
	next := to
	if gw, ok := netip.AddrFromSlice(r.Gw); ok && !gw.IsUnspecified() {
		next, p.Gateway = gw.Unmap(), true
	} else if via, ok := r.Via.(*netlink.Via); ok { // IPv4 over an IPv6 router
		if gw, ok := netip.AddrFromSlice(via.Addr); ok {
			next, p.Gateway = gw.Unmap(), true
		}
	}
	attrs := link.Attrs()
	p.MTU = attrs.MTU
	if r.MTU > 0 {
		p.MTU = min(p.MTU, r.MTU)
	}
	if attrs.EncapType != "ether" || len(attrs.HardwareAddr) != 6 {
		p.Problem = fmt.Sprintf("%s, which leads to %s, carries no Ethernet frames", attrs.Name, to)
		return p
	}
	p.from = [6]byte(attrs.HardwareAddr)
	carrier := link
	if vlan, ok := link.(*netlink.Vlan); ok {
		if parent := n.links[attrs.ParentIndex]; parent != nil {
			carrier, p.vlan = parent, vlan.VlanId
		}
	}
	p.redirect = carrier.Type() == "veth"
	p.next = neighbour{attrs.Index, next}
	if to, known := n.neighbours[p.next]; known {
		p.to, p.device = to, carrier.Attrs().Index
	}
	return p
}

func routeType(t int) string {
	switch t {
	case unix.RTN_BLACKHOLE:
		return "blackhole"
	case unix.RTN_UNREACHABLE:
		return "unreachable"
	case unix.RTN_PROHIBIT:
		return "prohibit"
	}
	return fmt.Sprintf("type %d", t)
}

// ask has the kernel ask for a neighbour's link address where it is not known, or ask
// again where it is old: packets of XDP are none that it would ask for by itself.
func (q neighbour) ask() error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_ACK)
	message := &netlink.Ndmsg{Family: unix.AF_INET, Index: uint32(q.link), State: unix.NUD_NONE, Flags: unix.NTF_USE}
	if q.ip.Is6() {
		message.Family = unix.AF_INET6
	}
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.NDA_DST, q.ip.AsSlice()))
	if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("ask for the link address of %s: %w", q.ip, err)
	}
	return nil
}

// Watch sends to news when links, addresses, routes or neighbours change, until done. A
// subscription that ends is said by its error.
func Watch(done <-chan struct{}, news chan<- struct{}, lost chan<- error) error {
	poke := func() {
		select {
		case news <- struct{}{}:
		default:
		}
	}
	fail := func(err error) {
		select {
		case lost <- err:
		default:
		}
	}
	links := make(chan netlink.LinkUpdate)
	addresses := make(chan netlink.AddrUpdate)
	routes := make(chan netlink.RouteUpdate)
	neighbours := make(chan netlink.NeighUpdate)
	err := errors.Join(
		follow(links, poke, netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ErrorCallback: fail})),
		follow(addresses, poke, netlink.AddrSubscribeWithOptions(addresses, done, netlink.AddrSubscribeOptions{ErrorCallback: fail})),
		follow(routes, poke, netlink.RouteSubscribeWithOptions(routes, done, netlink.RouteSubscribeOptions{ErrorCallback: fail})),
		follow(neighbours, poke, netlink.NeighSubscribeWithOptions(neighbours, done, netlink.NeighSubscribeOptions{ErrorCallback: fail})),
	)
	if err != nil {
		return fmt.Errorf("watch links, routes and neighbours: %w", err)
	}
	return nil
}

// follow calls f for all that comes, until the sender closes, unless the subscription failed.
func follow[T any](from <-chan T, f func(), failed error) error {
	if failed == nil {
		go func() {
			for range from {
				f()
			}
		}()
	}
	return failed
}
