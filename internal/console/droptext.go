package console

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	v1 "fairlead.dev/internal/console/v1"
)

// DropText is a line about a dropped packet: when, why, where from, its addresses as far
// as they can be read, its length.
func DropText(d v1.Drop) string {
	return fmt.Sprintf("%s  %s  %s  %s  %d bytes", d.At.Format("15:04:05.000"), d.Reason, d.Interface, frameText(d.Data), d.Length)
}

// frameText is "tcp 192.0.2.1:80 > 192.0.2.2:4000" of an Ethernet frame. What it cannot
// read it leaves out: the packet may have been dropped for that.
func frameText(frame []byte) string {
	if len(frame) < 14 {
		return "no frame"
	}
	kind, packet := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	for (kind == 0x8100 || kind == 0x88a8) && len(packet) >= 4 { // VLAN tags
		kind, packet = binary.BigEndian.Uint16(packet[2:]), packet[4:]
	}
	switch {
	case kind == 0x0800 && len(packet) >= 20:
		from, to := netip.AddrFrom4([4]byte(packet[12:16])), netip.AddrFrom4([4]byte(packet[16:20]))
		header := int(packet[0]&15) * 4
		first := binary.BigEndian.Uint16(packet[6:])&0x1fff == 0
		return packetText(packet[9], from, to, rest(packet, header), first)
	case kind == 0x86dd && len(packet) >= 40:
		from, to := netip.AddrFrom16([16]byte(packet[8:24])), netip.AddrFrom16([16]byte(packet[24:40]))
		return packetText(packet[6], from, to, packet[40:], true)
	}
	return fmt.Sprintf("ethertype 0x%04x", kind)
}

func rest(b []byte, from int) []byte { return b[min(from, len(b)):] }

// packetText names ports where there are any; first says that the payload begins with them.
func packetText(protocol byte, from, to netip.Addr, payload []byte, first bool) string {
	names := map[byte]string{1: "icmp", 4: "ip-in-ip", 6: "tcp", 17: "udp", 41: "ip-in-ip", 44: "fragment", 58: "icmp6"}
	name, known := names[protocol]
	if !known {
		name = fmt.Sprintf("protocol %d", protocol)
	}
	if (protocol == 6 || protocol == 17) && first && len(payload) >= 4 {
		return fmt.Sprintf("%s %s > %s", name, netip.AddrPortFrom(from, binary.BigEndian.Uint16(payload)), netip.AddrPortFrom(to, binary.BigEndian.Uint16(payload[2:])))
	}
	return fmt.Sprintf("%s %s > %s", name, from, to)
}
