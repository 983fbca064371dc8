package address

import (
	"cmp"
	"net/netip"
	"slices"
)

// SortPrefixes sorts prefixes by address and length, and removes duplicates.
func SortPrefixes(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, comparePrefixes)
	return slices.Compact(list)
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// Nobody is a source that no client has.
var Nobody = netip.PrefixFrom(netip.IPv6Unspecified(), 128)

// BothSources are the clients that are in both lists; an empty list is everybody.
func BothSources(a, b []netip.Prefix) []netip.Prefix {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	var both []netip.Prefix
	for _, p := range a {
		for _, q := range b {
			switch {
			case !p.Overlaps(q):
			case p.Bits() > q.Bits():
				both = append(both, p)
			default:
				both = append(both, q)
			}
		}
	}
	if len(both) == 0 {
		return []netip.Prefix{Nobody}
	}
	return SortPrefixes(both)
}

// ParsePrefix reads an address or a CIDR.
func ParsePrefix(text string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		if p.Addr().Is4In6() {
			if p.Bits() < 96 {
				return netip.Prefix{}, false
			}
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		return p.Masked(), true
	}
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	return netip.Prefix{}, false
}
