package lookup

import (
	"encoding/binary"
	"net/netip"

	"fairlead.dev/internal/model"
)

// ID is what a backend of a frontend is called in tables and tunnels: a hash of where it
// answers, of a proxy one of its machine. It is never 0. The hash is no secret: whoever
// chooses IPv6 addresses can choose two that have one ID.
func ID(k model.FrontendKey, b model.FrontendBackend) uint64 {
	h := uint64(0x13198a2e03707344)
	word := func(x uint64) { h = mix(h ^ x) }
	if b.Proxy(k) {
		for i := 0; i < len(b.Machine); i += 8 {
			var w [8]byte
			copy(w[:], b.Machine[i:])
			word(binary.BigEndian.Uint64(w[:]))
		}
		word(uint64(len(b.Machine)))
	} else {
		hi, lo := halves(b.Address.Addr())
		word(hi)
		word(lo)
		word(uint64(b.Address.Port()))
	}
	if h == 0 {
		return 1
	}
	return h
}

// Hash chooses the row of a flow, whose client is at that address and port, at a frontend:
// the row is its remainder by the number of rows. The data plane computes the same
// (bpf/lb/row.h).
func Hash(by model.FlowHash, client netip.AddrPort, k model.FrontendKey) uint64 {
	h := uint64(0x243f6a8885a308d3)
	word := func(x uint64) {
		h = (h ^ x) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	hi, lo := halves(client.Addr())
	word(hi)
	word(lo)
	if by != model.HashSource {
		hi, lo = halves(k.VIP)
		word(hi)
		word(lo)
		var ports uint64
		if by == model.HashFiveTuple {
			ports = uint64(client.Port())<<32 | uint64(k.Port)<<16
		}
		word(ports | uint64(Number(k.Transport)))
	}
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return h ^ h>>32
}

// Number is a transport's IP protocol number.
func Number(t model.Transport) uint8 {
	if t == model.UDP {
		return 17
	}
	return 6
}

// halves are the two halves of an address, IPv4 mapped (RFC 4291, 2.5.5.2).
func halves(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}
