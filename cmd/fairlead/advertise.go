package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
)

// beyond are addresses of documentation (RFC 5737, RFC 3849): the way there is the
// default route. Nothing is sent.
var beyond = []string{"198.51.100.1:9", "[2001:db8::1]:9"}

// advertised is the address that the flag names, or this machine's own: the one from which
// it sends by its default route, else the first that is neither loopback nor link-local.
// Those of loopback interfaces are nobody's own: there the agent holds VIPs.
func (f *planeFlags) advertised(log *slog.Logger) (netip.Addr, error) {
	if f.advertiseAddress != "" {
		a, err := netip.ParseAddr(f.advertiseAddress)
		if err != nil {
			return a, usageError{err: fmt.Errorf("--advertise-address %q: want an IP address", f.advertiseAddress)}
		}
		return a, nil
	}
	own, err := ownAddresses()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find this machine's address (--advertise-address gives it): %w", err)
	}
	for _, there := range beyond {
		if a := sourceOf(there); slices.Contains(own, a) {
			return a, nil
		}
	}
	if len(own) > 0 {
		return own[0], nil
	}
	log.Warn("this machine has no address but loopback: no other machine can join (--advertise-address)")
	return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
}

// ownAddresses are the addresses of interfaces other than loopback's that others can reach.
func ownAddresses() ([]netip.Addr, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addresses, err := i.Addrs()
		if err != nil {
			continue // it went away meanwhile
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() {
				own = append(own, p.Addr())
			}
		}
	}
	return own, nil
}

// sourceOf is the address from which this machine sends to another one; none without a route.
func sourceOf(there string) netip.Addr {
	conn, err := net.Dial("udp", there)
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()
	local, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return local.Addr().Unmap()
}
