package nft

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// Registers of 32 bits. Those of a rule of IPv6 just fit.
const (
	reg32   = unix.NFT_REG32_00
	regLast = unix.NFT_REG32_15
)

// family is what differs between IPv4 and IPv6.
type family struct {
	suffix   string
	proto    byte   // NFPROTO_*
	words    uint32 // of an address
	source   uint32 // offsets in the IP header
	target   uint32
	address  nftables.SetDatatype
	frontend nftables.SetDatatype // VIP, transport, port
	backend  nftables.SetDatatype // address, port
	pair     nftables.SetDatatype // frontend, backend
}

var (
	ipv4 = newFamily("4", unix.NFPROTO_IPV4, 1, 12, 16, nftables.TypeIPAddr)
	ipv6 = newFamily("6", unix.NFPROTO_IPV6, 4, 8, 24, nftables.TypeIP6Addr)
	both = []*family{ipv4, ipv6}
)

func newFamily(suffix string, proto byte, words, source, target uint32, a nftables.SetDatatype) *family {
	service, transport := nftables.TypeInetService, nftables.TypeInetProto
	return &family{
		suffix: suffix, proto: proto, words: words, source: source, target: target, address: a,
		frontend: nftables.MustConcatSetType(a, transport, service),
		backend:  nftables.MustConcatSetType(a, service),
		pair:     nftables.MustConcatSetType(a, transport, service, a, service),
	}
}

func familyOf(a netip.Addr) *family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// Places of values in the registers: a frontend, the backend right behind it, and what is
// hashed at the end.
func (f *family) vip() uint32     { return reg32 }
func (f *family) chosen() uint32  { return reg32 + f.words + 2 }
func (f *family) scratch() uint32 { return regLast - f.words }

// frontendKey is the key of a frontend in maps: fields padded to four bytes, network order.
func frontendKey(k model.FrontendKey) string {
	b := append(k.VIP.AsSlice(), lookup.Number(k.Transport), 0, 0, 0)
	return string(append(binary.BigEndian.AppendUint16(b, k.Port), 0, 0))
}

func backendKey(b netip.AddrPort) string {
	return string(append(binary.BigEndian.AppendUint16(b.Addr().AsSlice(), b.Port()), 0, 0))
}

func pairKey(k model.FrontendKey, b netip.AddrPort) string { return frontendKey(k) + backendKey(b) }

// parseFrontend reads what frontendKey writes, and returns what is behind it.
func (f *family) parseFrontend(key string) (k model.FrontendKey, rest string, ok bool) {
	n := int(f.words * 4)
	if len(key) < n+8 {
		return k, "", false
	}
	k.VIP, _ = netip.AddrFromSlice([]byte(key[:n]))
	k.Transport = model.TCP
	if key[n] == lookup.Number(model.UDP) {
		k.Transport = model.UDP
	}
	k.Port = binary.BigEndian.Uint16([]byte(key[n+4:]))
	return k, key[n+8:], true
}

func (f *family) parseBackend(key string) (b netip.AddrPort, ok bool) {
	n := int(f.words * 4)
	if len(key) < n+2 {
		return b, false
	}
	a, _ := netip.AddrFromSlice([]byte(key[:n]))
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16([]byte(key[n:]))), true
}
