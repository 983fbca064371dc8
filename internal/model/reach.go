package model

import (
	"net/netip"
	"slices"
)

// Reachable reports whether anybody's traffic may be sent to an address that a user names: one
// loopback or link-local would mean another server on each machine, and what clouds tell their
// machines, keys among it, is for no client.
func Reachable(a netip.Addr) bool {
	if inner, is := Embedded(a); is && !Reachable(inner) {
		return false
	}
	return a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() &&
		!a.IsLinkLocalUnicast() && a.Zone() == "" && a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) && !slices.Contains(metadata, a)
}

// Embedded is the IPv4 address to which a translator (RFC 6052, 2.1) or a relay (RFC 3056) would send
// what goes to an IPv6 one.
func Embedded(a netip.Addr) (netip.Addr, bool) {
	b := a.As16()
	switch {
	case !a.Is6():
		return netip.Addr{}, false
	case nat64.Contains(a), localNAT64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:])), true
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48") // RFC 8215; where its prefixes are of 96 bits
	sixToFour  = netip.MustParsePrefix("2002::/16")
)

// metadata are where clouds answer their machines, beside the link-local 169.254.169.254: EC2 and Google's
// by IPv6, Azure, Alibaba and Oracle.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("fd00:ec2::23"), netip.MustParseAddr("fd20:ce::254"), netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("100.100.100.200"), netip.MustParseAddr("192.0.0.192"),
}
