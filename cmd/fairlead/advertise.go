package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"fairlead.dev/internal/rtdump"
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
	machine, err := rtdump.NewAddresses()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find this machine's address (--advertise-address gives it): %w", err)
	}
	own, _ := machine.Reachable() // at worst those of a moment ago
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
