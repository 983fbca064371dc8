package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// machineAddresses are those by which others reach the machine: first those that it sends from
// itself, then the others, sorted. The first of a family is where tunnels end, and a container
// network's bridge, say, may have an address that sorts before the one that others know the
// machine by. An error says that they, or their order, are not known now.
func machineAddresses(reachable func() ([]netip.Addr, error)) ([]string, error) {
	addresses, err := reachable()
	list := make([]string, 0, len(addresses))
	for _, a := range addresses {
		list = append(list, a.String())
	}
	slices.Sort(list)
	first, unknown := outward()
	return preferred(slices.Compact(list), first), errors.Join(err, unknown)
}

// preferred returns list with those of first that it has at its beginning.
func preferred(list, first []string) []string {
	ordered := slices.DeleteFunc(slices.Clone(first), func(a string) bool { return !slices.Contains(list, a) })
	return append(ordered, slices.DeleteFunc(list, func(a string) bool { return slices.Contains(ordered, a) })...)
}

// outward returns the addresses that the machine sends from by its default routes, of each
// family that has one. Nothing is sent: connecting a datagram socket only chooses them.
func outward() ([]string, error) {
	var list []string
	// Documentation's addresses (RFC 5737, RFC 3849): nobody has a route of its own to them.
	for _, to := range []string{"192.0.2.1", "2001:db8::1"} {
		c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(to), Port: 9})
		switch {
		case exhausted(err):
			return list, fmt.Errorf("find the address that the machine sends from: %w", err)
		case err != nil:
			continue // no route
		}
		if from, ok := c.LocalAddr().(*net.UDPAddr); ok {
			list = append(list, from.IP.String())
		}
		_ = c.Close()
	}
	return list, nil
}

// exhausted says that an error is for want of descriptors or memory.
func exhausted(err error) bool {
	return slices.ContainsFunc([]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM}, func(e error) bool { return errors.Is(err, e) })
}
