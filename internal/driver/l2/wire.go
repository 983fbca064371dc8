package l2

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// Frames are Ethernet II. All numbers are big-endian.

const (
	typeARP  = 0x0806
	typeIPv6 = 0x86dd
	// typeBeat is the first EtherType for local experiments (IEEE 802, 9.2.4). A host's
	// IP firewall cannot come between machines that could still hear each other's ARP.
	typeBeat = 0x88b5

	headerSize = 14
	arpSize    = 28

	arpRequest = 1
	arpReply   = 2

	solicitation  = 135 // RFC 4861, 4.3
	advertisement = 136 // RFC 4861, 4.4
	sourceOption  = 1   // RFC 4861, 4.6.1
	targetOption  = 2
)

var errFrame = errors.New("unknown frame")

func broadcast() hardware { return hardware{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }

// beatGroup is where heartbeats go: a locally administered group address.
func beatGroup() hardware { return hardware{0x03, 0x66, 0x6c, 0x00, 0x00, 0x01} }

func allNodes() netip.Addr { return netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 15: 1}) }

// solicited is the solicited-node multicast address of a (RFC 4291, 2.7.1).
func solicited(a netip.Addr) netip.Addr {
	b := a.As16()
	return netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
}

// group is the Ethernet address of an IPv6 multicast address (RFC 2464, 7).
func group(a netip.Addr) hardware {
	b := a.As16()
	return hardware{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

func header(to, from hardware, kind uint16) []byte {
	b := make([]byte, 0, 128)
	b = append(b, to[:]...)
	b = append(b, from[:]...)
	return binary.BigEndian.AppendUint16(b, kind)
}

// arp is an ARP packet for IPv4 over Ethernet (RFC 826).
type arp struct {
	op                 uint16
	senderMAC          hardware
	sender             netip.Addr
	targetMAC          hardware
	target             netip.Addr
	frameTo, frameFrom hardware
}

func (p arp) marshal() []byte {
	b := header(p.frameTo, p.frameFrom, typeARP)
	b = append(b, 0, 1, 8, 0, 6, 4)
	b = binary.BigEndian.AppendUint16(b, p.op)
	b = append(b, p.senderMAC[:]...)
	b = append(b, p.sender.AsSlice()...)
	b = append(b, p.targetMAC[:]...)
	return append(b, p.target.AsSlice()...)
}

func parseARP(b []byte) (arp, error) {
	if len(b) < headerSize+arpSize || binary.BigEndian.Uint16(b[12:]) != typeARP {
		return arp{}, errFrame
	}
	p := arp{frameTo: hardware(b[0:6]), frameFrom: hardware(b[6:12])}
	b = b[headerSize:]
	if [6]byte(b[:6]) != [6]byte{0, 1, 8, 0, 6, 4} {
		return arp{}, errFrame
	}
	p.op = binary.BigEndian.Uint16(b[6:])
	p.senderMAC, p.sender = hardware(b[8:14]), netip.AddrFrom4([4]byte(b[14:18]))
	p.targetMAC, p.target = hardware(b[18:24]), netip.AddrFrom4([4]byte(b[24:28]))
	return p, nil
}

// neighbour is a neighbour solicitation or advertisement with at most one option
// that counts: the hardware address of the source or of the target.
type neighbour struct {
	kind     uint8
	flags    uint8 // of an advertisement
	from, to netip.Addr
	target   netip.Addr
	mac      hardware
	hasMAC   bool
}

const (
	flagSolicited = 0x40
	flagOverride  = 0x20
)

// marshal builds the whole frame.
func (n neighbour) marshal(to, from hardware) []byte {
	b := header(to, from, typeIPv6)
	size := 24
	if n.hasMAC {
		size += 8
	}
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(size))
	b = append(b, 58, 255) // ICMPv6; a hop limit of 255 proves that no router was between
	b = append(b, n.from.AsSlice()...)
	b = append(b, n.to.AsSlice()...)
	start := len(b)
	b = append(b, n.kind, 0, 0, 0, n.flags, 0, 0, 0)
	b = append(b, n.target.AsSlice()...)
	if n.hasMAC {
		option := byte(sourceOption)
		if n.kind == advertisement {
			option = targetOption
		}
		b = append(b, option, 1)
		b = append(b, n.mac[:]...)
	}
	binary.BigEndian.PutUint16(b[start+2:], checksum(n.from, n.to, b[start:]))
	return b
}

// parseNeighbour parses an ICMPv6 message; its checksum has been verified.
func parseNeighbour(b []byte, from, to netip.Addr) (neighbour, error) {
	if len(b) < 24 || b[1] != 0 || b[0] != solicitation && b[0] != advertisement {
		return neighbour{}, errFrame
	}
	n := neighbour{kind: b[0], from: from, to: to, target: netip.AddrFrom16([16]byte(b[8:24]))}
	option := byte(sourceOption)
	if n.kind == advertisement {
		n.flags, option = b[4], targetOption
	}
	for b = b[24:]; len(b) >= 8; b = b[8*int(b[1]):] {
		if b[1] == 0 || len(b) < 8*int(b[1]) {
			return neighbour{}, errFrame // RFC 4861, 4.6: discard the packet
		}
		if b[0] == option && b[1] == 1 {
			n.mac, n.hasMAC = hardware(b[2:8]), true
		}
	}
	return n, nil
}

// checksum is ICMPv6's (RFC 4443, 2.3) over a message whose checksum field is zero.
func checksum(from, to netip.Addr, message []byte) uint16 {
	pseudo := append(from.AsSlice(), to.AsSlice()...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(message)))
	pseudo = append(pseudo, 0, 0, 0, 58)
	var sum uint32
	for _, b := range [][]byte{pseudo, message} {
		for ; len(b) >= 2; b = b[2:] {
			sum += uint32(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint32(b[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
