package fleet

import (
	"cmp"
	"net/netip"

	"fairlead.dev/internal/memo"
)

// parseRouterID reads a BGP identifier, zero when it is none (RFC 6286, 2.1).
func parseRouterID(text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// keeper is the oldest machine with a router id; empty when there is none.
func (t *Tables) keeper(c *memo.Context, id netip.Addr) (string, bool) {
	keeper, oldest := "", int64(0)
	for machine, created := range t.routerIDs.Get(c, id).All() {
		if keeper == "" || cmp.Or(cmp.Compare(created, oldest), cmp.Compare(machine, keeper)) < 0 {
			keeper, oldest = machine, created
		}
	}
	return keeper, keeper != ""
}
