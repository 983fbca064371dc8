package bpf

import (
	"encoding/binary"
	"net/netip"
)

// Wire is an address as programs have it: 16 bytes, IPv4 mapped; zero for none.
func Wire(a netip.Addr) [16]byte {
	if !a.IsValid() {
		return [16]byte{}
	}
	return a.As16()
}

// Address is the other way round.
func Address(wire [16]byte) netip.Addr {
	if wire == [16]byte{} {
		return netip.Addr{}
	}
	return netip.AddrFrom16(wire).Unmap()
}

// NetworkPort is a port in network byte order, as a number of this machine's order, and the
// other way round.
func NetworkPort(p uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, p))
}

// wire4 is an IPv4 address in network byte order; 0 for others.
func wire4(a netip.Addr) uint32 {
	if !a.Is4() {
		return 0
	}
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}
