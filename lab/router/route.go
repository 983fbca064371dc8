package router

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
)

// watchBuffer is how many bytes of notifications the kernel keeps for a watch.
const watchBuffer = 4 << 20

// Route is what the kernel of a machine does with packets for a prefix.
type Route struct {
	Prefix   netip.Prefix `json:"prefix"`
	NextHops []netip.Addr `json:"next_hops"` // in the order of their addresses
}

// RouteEvent says that the next hops of a prefix have changed. None means that the
// prefix has no route any more.
type RouteEvent struct {
	// When the kernel's notification was read, the last one if there were several at once.
	When time.Time
	Route
}

// Routes returns the next hops of exactly that prefix in the machine's kernel, in
// the order of their addresses. None is no error.
func (r *Router) Routes(ctx context.Context, prefix netip.Prefix) ([]netip.Addr, error) {
	return NextHops(ctx, r.machine, prefix)
}

// Table returns the routes in the machine's kernel that a routing daemon put there.
func (r *Router) Table(ctx context.Context) ([]Route, error) {
	return Table(ctx, r.machine)
}

// Watch is the function Watch for the router's machine.
func (r *Router) Watch(ctx context.Context) (<-chan RouteEvent, error) {
	return Watch(ctx, r.machine)
}

// NextHops is Routes for any machine.
func NextHops(ctx context.Context, m *lab.Machine, prefix netip.Prefix) ([]netip.Addr, error) {
	h, err := m.Netlink()
	if err != nil {
		return nil, fmt.Errorf("next hops of %s: %w", prefix, err)
	}
	defer h.Close()
	hops, err := nextHops(ctx, h, prefix)
	if err != nil {
		return nil, fmt.Errorf("next hops of %s in machine %s: %w", prefix, m.Name(), err)
	}
	return hops, nil
}

// Table is Router.Table for any machine.
func Table(ctx context.Context, m *lab.Machine) ([]Route, error) {
	h, err := m.Netlink()
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	defer h.Close()
	routes, err := list(ctx, h, netlink.FAMILY_ALL, nil)
	if err != nil {
		return nil, fmt.Errorf("routes of machine %s: %w", m.Name(), err)
	}
	var table []Route
	for prefix, of := range group(routes) {
		if of[0].Protocol == unix.RTPROT_BIRD || of[0].Protocol == unix.RTPROT_BGP || of[0].Protocol == unix.RTPROT_ZEBRA {
			table = append(table, Route{Prefix: prefix, NextHops: best(of)})
		}
	}
	slices.SortFunc(table, func(a, b Route) int { return a.Prefix.Compare(b.Prefix) })
	return table, nil
}

// Watch sends what changes in the routes of the machine's kernel from its return on
// until ctx ends, and then closes the channel. An event's next hops are those when it
// was sent: of changes that follow each other at once, the first may be missing. It
// keeps events for a slow reader.
func Watch(ctx context.Context, m *lab.Machine) (<-chan RouteEvent, error) {
	events, err := watch(ctx, m)
	if err != nil {
		return nil, fmt.Errorf("watch the routes of machine %s: %w", m.Name(), err)
	}
	return events, nil
}

func watch(ctx context.Context, m *lab.Machine) (<-chan RouteEvent, error) {
	heard, err := listen(ctx, m)
	if err != nil {
		return nil, err
	}
	h, err := m.Netlink()
	if err != nil {
		return nil, err
	}
	// What there is now, after the subscription: no change falls between.
	known, err := scan(ctx, h)
	if err != nil {
		h.Close()
		return nil, err
	}
	changes := make(chan RouteEvent)
	go func() {
		defer close(changes)
		defer h.Close()
		for when := range heard {
			now, err := scan(ctx, h)
			if err != nil {
				return
			}
			for _, r := range difference(known, now) {
				select {
				case changes <- RouteEvent{When: when, Route: r}:
				case <-ctx.Done():
					return
				}
			}
			known = now
		}
	}()
	return keep(ctx, changes), nil
}

// listen sends the times of the notifications that may mean another next hop, the
// last one if there were several since the receiver asked. Links and nexthop objects
// count: with them, the kernel drops IPv4 routes without a word about the routes.
func listen(ctx context.Context, m *lab.Machine) (<-chan time.Time, error) {
	ns, err := netns.GetFromPath(m.Namespace())
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	socket, err := nl.SubscribeAt(ns, netns.None(), unix.NETLINK_ROUTE,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEXTHOP)
	if err != nil {
		return nil, err
	}
	if err := socket.SetReceiveBufferSize(watchBuffer, true); err != nil {
		socket.Close()
		return nil, err
	}
	heard := make(chan time.Time, 1)
	stop := context.AfterFunc(ctx, socket.Close) // which ends Receive
	go func() {
		defer close(heard)
		defer func() {
			if stop() {
				socket.Close()
			}
		}()
		for {
			// An overrun says that something has changed, too.
			if _, _, err := socket.Receive(); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return
			}
			now := time.Now()
			select {
			case heard <- now:
			default:
				select {
				case <-heard: // nobody has taken it: the later one stands for both
				default:
				}
				heard <- now // this is the only sender
			}
		}
	}()
	return heard, nil
}

// scan returns the next hops of all prefixes.
func scan(ctx context.Context, h *netlink.Handle) (map[netip.Prefix][]netip.Addr, error) {
	routes, err := list(ctx, h, netlink.FAMILY_ALL, nil)
	if err != nil {
		return nil, err
	}
	hops := map[netip.Prefix][]netip.Addr{}
	for prefix, of := range group(routes) {
		hops[prefix] = best(of)
	}
	return hops, nil
}

// difference returns the routes of now that are not as before, in their order.
func difference(before, now map[netip.Prefix][]netip.Addr) []Route {
	var changed []Route
	for prefix, hops := range now {
		if !slices.Equal(hops, before[prefix]) {
			changed = append(changed, Route{Prefix: prefix, NextHops: hops})
		}
	}
	for prefix, hops := range before {
		if _, ok := now[prefix]; !ok && len(hops) > 0 {
			changed = append(changed, Route{Prefix: prefix})
		}
	}
	slices.SortFunc(changed, func(a, b Route) int { return a.Prefix.Compare(b.Prefix) })
	return changed
}

// keep passes on what comes in, however slow the reader is, until ctx ends.
func keep(ctx context.Context, in <-chan RouteEvent) <-chan RouteEvent {
	out := make(chan RouteEvent)
	go func() {
		defer close(out)
		var kept []RouteEvent
		for in != nil || len(kept) > 0 {
			var first RouteEvent
			var to chan<- RouteEvent // nil, on which nothing is sent, while there is nothing
			if len(kept) > 0 {
				first, to = kept[0], out
			}
			select {
			case e, ok := <-in:
				if !ok {
					in = nil
					continue
				}
				kept = append(kept, e)
			case to <- first:
				kept = kept[1:]
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func nextHops(ctx context.Context, h *netlink.Handle, prefix netip.Prefix) ([]netip.Addr, error) {
	family := netlink.FAMILY_V4
	if prefix.Addr().Is6() {
		family = netlink.FAMILY_V6
	}
	prefix = prefix.Masked()
	routes, err := list(ctx, h, family, &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())})
	if err != nil {
		return nil, err
	}
	return best(group(routes)[prefix]), nil
}

// list returns the unicast routes of the main table, those of one destination or all.
// FRR's routes name nexthop objects; the kernel writes out what is in them, and tells
// of a route when its object changes (net.ipv4.nexthop_compat_mode, on by default).
func list(ctx context.Context, h *netlink.Handle, family int, dst *net.IPNet) ([]netlink.Route, error) {
	filter, mask := &netlink.Route{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE
	if dst != nil {
		filter.Dst, mask = dst, mask|netlink.RT_FILTER_DST
	}
	for {
		routes, err := h.RouteListFiltered(family, filter, mask)
		if err == nil {
			return routes, nil
		}
		// They changed while they were read.
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// group sorts routes by prefix; routes without one and of other tables are left out.
func group(routes []netlink.Route) map[netip.Prefix][]netlink.Route {
	groups := map[netip.Prefix][]netlink.Route{}
	for _, r := range routes {
		if prefix, ok := prefixOf(r); ok {
			groups[prefix] = append(groups[prefix], r)
		}
	}
	return groups
}

func prefixOf(r netlink.Route) (netip.Prefix, bool) {
	if r.Dst == nil || r.Table != unix.RT_TABLE_MAIN {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(r.Dst.IP)
	addr = addr.Unmap()
	bits, _ := r.Dst.Mask.Size()
	return netip.PrefixFrom(addr, bits).Masked(), ok && !addr.IsLinkLocalUnicast() && !addr.IsMulticast()
}

// best returns the next hops of those of a prefix's routes that have the lowest metric.
// Those whose link is gone do not count: the kernel does not use them.
func best(routes []netlink.Route) []netip.Addr {
	var hops []netip.Addr
	add := func(gw net.IP, other netlink.Destination, flags int) {
		if via, ok := other.(*netlink.Via); ok { // of the other family (RFC 8950)
			gw = via.Addr
		}
		if a, ok := netip.AddrFromSlice(gw); ok && flags&unix.RTNH_F_DEAD == 0 {
			hops = append(hops, a.Unmap())
		}
	}
	lowest := 0
	for i, r := range routes {
		if i == 0 || r.Priority < lowest {
			lowest = r.Priority
		}
	}
	for _, r := range routes {
		if r.Priority != lowest {
			continue
		}
		add(r.Gw, r.Via, r.Flags)
		for _, n := range r.MultiPath {
			add(n.Gw, n.Via, n.Flags)
		}
	}
	slices.SortFunc(hops, netip.Addr.Compare)
	return slices.Compact(hops)
}
