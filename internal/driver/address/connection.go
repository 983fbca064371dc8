package address

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Connections counts the established TCP connections of the machine's sockets at an address
// and port.
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
		if a, ok := netip.AddrFromSlice(s.ID.Source); ok && s.State == netlink.TCP_ESTABLISHED && netip.AddrPortFrom(a.Unmap(), s.ID.SourcePort) == at {
			n++
		}
	}
	return n, nil
}
