package address

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Connections counts the TCP connections of the machine's sockets at an address and port that
// are not over: half open, open, or ended here before the client has everything.
func Connections(at netip.AddrPort) (int, error) {
	family := uint8(unix.AF_INET6)
	if at.Addr().Is4() {
		family = unix.AF_INET
	}
	sockets, err := netlink.SocketDiagTCP(family)
	if err != nil {
		return 0, fmt.Errorf("list TCP connections: %w", err)
	}
	n := 0
	for _, s := range sockets {
		if a, ok := netip.AddrFromSlice(s.ID.Source); ok && isOpen(s.State) && netip.AddrPortFrom(a.Unmap(), s.ID.SourcePort) == at {
			n++
		}
	}
	return n, nil
}

func isOpen(state uint8) bool {
	switch state {
	case netlink.TCP_SYN_RECV, netlink.TCP_NEW_SYN_REC, netlink.TCP_ESTABLISHED, netlink.TCP_CLOSE_WAIT, netlink.TCP_FIN_WAIT1, netlink.TCP_CLOSING, netlink.TCP_LAST_ACK:
		return true
	}
	return false
}
