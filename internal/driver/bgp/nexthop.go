package bgp

import (
	"net/netip"
	"slices"

	"fairlead.dev/internal/model"
)

// nextHop returns the next hop for prefixes of a family (v6 or not) to a peer, on a session from the address local:
// the peer's explicit one, else the session's own, else an address of that family on the session's interface. It
// returns zero if there is none. VIPs are never next hops.
func nextHop(c model.Peer, v6 bool, local netip.Addr, addrs []localAddr, prefixes []Advertisement) netip.Addr {
	explicit := c.NextHop4
	if v6 {
		explicit = c.NextHop6
	}
	switch {
	case explicit.IsSingleIP():
		return explicit.Addr()
	case explicit.IsValid():
		return within(explicit, addrs, prefixes)
	}
	if c.Interface != "" && v6 {
		// Nothing but the link itself is known to reach the machine (RFC 2545, 3, where there is no other address).
		return local.WithZone("")
	}
	fits := func(a netip.Addr) bool { return a.Is4() != v6 && !covered(a, prefixes) }
	if fits(local) && !local.IsLinkLocalUnicast() {
		return local.WithZone("")
	}
	i := slices.IndexFunc(addrs, func(a localAddr) bool { return a.addr == local })
	if i < 0 {
		return netip.Addr{}
	}
	var best netip.Addr
	for _, a := range addrs {
		if a.link == addrs[i].link && a.stable && fits(a.addr) && a.addr.IsGlobalUnicast() && (!best.IsValid() || a.addr.Less(best)) {
			best = a.addr
		}
	}
	if !best.IsValid() && fits(local) {
		best = local.WithZone("") // link-local, on a link without global addresses
	}
	return best
}
