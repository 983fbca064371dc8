package explain

import (
	"net/netip"
	"strings"

	"fairlead.dev/internal/model"
)

const forwardedFor = "x-forwarded-for"

// trustedHops is how many proxies a listener takes to stand in front of the edge.
func trustedHops(l *model.Listener, w World) int {
	if l != nil && l.Clients != nil && l.Clients.TrustedHops != nil {
		return int(*l.Clients.TrustedHops)
	}
	return int(w.TrustedHops)
}

// clientAddress is the client's: the peer's, or what the trusted proxies in front of the
// edge say. Where they say too little, it is the peer's.
func clientAddress(peer netip.Addr, hops int, headers map[string][]string) netip.Addr {
	if hops == 0 {
		return peer
	}
	list := strings.Split(strings.Join(headers[forwardedFor], ","), ",")
	if len(list) < hops {
		return peer
	}
	address, err := netip.ParseAddr(strings.TrimSpace(list[len(list)-hops]))
	if err != nil {
		return peer
	}
	return address.Unmap()
}

// clientNotes say what a listener wants of clients that not every client does.
func clientNotes(c *model.ClientSettings) []string {
	if c == nil {
		return nil
	}
	var notes []string
	if c.AcceptProxyProtocol {
		notes = append(notes, "every connection must begin with a PROXY header, which says the client's address; others are closed")
	}
	if c.HTTP3 {
		notes = append(notes, "HTTP/3 is served at the same port over UDP, and clients are told so")
	}
	return notes
}
