package address

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Connections counts the TCP connections of the machine's sockets at each of some addresses and
// ports that are not over: half open, open, or ended here before the client has everything. The
// kernel lists all its sockets for it, once for each family of the addresses.
func Connections(at ...netip.AddrPort) (map[netip.AddrPort]int, error) {
	counts, families := make(map[netip.AddrPort]int, len(at)), map[uint8]bool{}
	for _, a := range at {
		counts[a] = 0
		families[familyOf(a.Addr())] = true
	}
	for family := range families {
		sockets, err := netlink.SocketDiagTCP(family)
		if err != nil {
			return nil, fmt.Errorf("list TCP connections: %w", err)
		}
		for _, s := range sockets {
			source, ok := netip.AddrFromSlice(s.ID.Source)
			if !ok || !isOpen(s.State) {
				continue
			}
			here := netip.AddrPortFrom(source.Unmap(), s.ID.SourcePort)
			if n, asked := counts[here]; asked {
				counts[here] = n + 1
			}
		}
	}
	return counts, nil
}

func familyOf(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func isOpen(state uint8) bool {
	switch state {
	case netlink.TCP_SYN_RECV, netlink.TCP_NEW_SYN_REC, netlink.TCP_ESTABLISHED, netlink.TCP_CLOSE_WAIT, netlink.TCP_FIN_WAIT1, netlink.TCP_CLOSING, netlink.TCP_LAST_ACK:
		return true
	}
	return false
}
