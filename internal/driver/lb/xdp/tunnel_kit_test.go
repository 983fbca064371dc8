package xdp

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// Verdicts of tcx programs.
const (
	verdictNext     = 0xffffffff
	verdictDrop     = 2
	verdictRedirect = 7
)

// needsRoot skips tests of programs where they cannot be loaded.
func needsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs and makes network namespaces")
	}
}

// programRig is programs and maps that a test has alone, and a network namespace with nothing in it.
type programRig struct {
	bpfObjects
	t testing.TB
}

// loadSmall gives the test programs with small, empty maps.
func loadSmall(t testing.TB) *programRig {
	t.Helper()
	return &programRig{bpfObjects: borrow(t), t: t}
}

// loadAlone is loadSmall on a thread in a network namespace of its own.
func loadAlone(t testing.TB) *programRig {
	t.Helper()
	needsRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	return loadSmall(t)
}

func put[K, V any](k *programRig, m *ebpf.Map, key K, value V) {
	k.t.Helper()
	must(k.t, m.Put(&key, &value))
}

// get returns the value of a key, and false if there is none.
func get[K, V any](k *programRig, m *ebpf.Map, key K) (v V, ok bool) {
	k.t.Helper()
	return v, m.Lookup(&key, &v) == nil
}

// dropped is how many packets were dropped for a reason.
func (k *programRig) dropped(reason bpfReason) uint64 {
	k.t.Helper()
	var counts []uint64
	must(k.t, k.Drops.Lookup(uint32(reason), &counts))
	var sum uint64
	for _, c := range counts {
		sum += c
	}
	return sum
}

// allDropped is how many packets were dropped.
func (k *programRig) allDropped() (sum uint64) {
	for r := range bpfReasonREASON_COUNT {
		sum += k.dropped(r)
	}
	return sum
}

// run gives a packet to a program.
func (k *programRig) run(p *ebpf.Program, packet []byte) (verdict uint32, out []byte) {
	k.t.Helper()
	options := ebpf.RunOptions{Data: packet, DataOut: make([]byte, len(packet)+256)}
	verdict, err := p.Run(&options)
	must(k.t, err)
	return verdict, options.DataOut
}

// family is IPv4 or IPv6 with the addresses that rows use.
type family struct {
	name                                         string
	vip, vip2, client, backend, backend2, router netip.Addr
	us, peer, third                              netip.Addr // tunnel endpoints
}

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

var families = []family{
	{"v4", ip("198.51.100.1"), ip("198.51.100.2"), ip("203.0.113.7"), ip("10.1.0.5"), ip("10.1.0.6"), ip("203.0.113.250"), ip("192.0.2.1"), ip("192.0.2.2"), ip("192.0.2.3")},
	{"v6", ip("2001:db8:1::1"), ip("2001:db8:1::2"), ip("2001:db8:c::7"), ip("fd00:1::5"), ip("fd00:1::6"), ip("2001:db8:c::250"), ip("2001:db8:2::1"), ip("2001:db8:2::2"), ip("2001:db8:2::3")},
}

func (f family) v6() bool { return f.vip.Is6() }

var testMACs = [2]net.HardwareAddr{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}

// header is an IP header from one address to another.
func header(from, to netip.Addr, protocol layers.IPProtocol) gopacket.SerializableLayer {
	if from.Is6() {
		return &layers.IPv6{Version: 6, NextHeader: protocol, HopLimit: 60, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	}
	return &layers.IPv4{Version: 4, TTL: 60, Protocol: protocol, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
}

func ethernet(v6 bool) *layers.Ethernet {
	e := &layers.Ethernet{SrcMAC: testMACs[1], DstMAC: testMACs[0], EthernetType: layers.EthernetTypeIPv4}
	if v6 {
		e.EthernetType = layers.EthernetTypeIPv6
	}
	return e
}

// serialized writes layers with lengths and checksums.
func serialized(t testing.TB, all ...gopacket.SerializableLayer) []byte {
	t.Helper()
	for i, l := range all {
		if i == 0 {
			continue
		}
		n, ok := all[i-1].(gopacket.NetworkLayer)
		if !ok {
			continue
		}
		switch l := l.(type) {
		case *layers.TCP:
			must(t, l.SetNetworkLayerForChecksum(n))
		case *layers.UDP:
			must(t, l.SetNetworkLayerForChecksum(n))
		case *layers.ICMPv6:
			must(t, l.SetNetworkLayerForChecksum(n))
		}
	}
	b := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...))
	return bytes.Clone(b.Bytes())
}

// tcpPacket is an IP packet with a TCP segment; flags are letters: S, A, F, R.
func tcpPacket(t testing.TB, from, to netip.AddrPort, flags string, options []layers.TCPOption, payload string) []byte {
	t.Helper()
	has := func(f string) bool { return bytes.Contains([]byte(flags), []byte(f)) }
	return serialized(t, header(from.Addr(), to.Addr(), layers.IPProtocolTCP), &layers.TCP{
		SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()), Seq: 1000, Ack: 2000, Window: 64000,
		SYN: has("S"), ACK: has("A"), FIN: has("F"), RST: has("R"), Options: options,
	}, gopacket.Payload(payload))
}

func udpPacket(t testing.TB, from, to netip.AddrPort, payload string) []byte {
	t.Helper()
	return serialized(t, header(from.Addr(), to.Addr(), layers.IPProtocolUDP),
		&layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}, gopacket.Payload(payload))
}

// icmpError is an error of a router about a packet, sent to the packet's source.
func icmpError(t testing.TB, router, to netip.Addr, about []byte) []byte {
	t.Helper()
	if router.Is6() {
		return serialized(t, header(router, to, layers.IPProtocolICMPv6),
			&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypePacketTooBig, 0)},
			gopacket.Payload(append([]byte{0, 0, 5, 0}, about...)))
	}
	return serialized(t, header(router, to, layers.IPProtocolICMPv4),
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4), Seq: 1280}, gopacket.Payload(about))
}

// framed puts an IP packet into an Ethernet frame, without padding.
func framed(packet []byte) []byte {
	frame := append(bytes.Clone(testMACs[0]), testMACs[1]...)
	if packet[0]>>4 == 6 {
		return append(append(frame, 0x86, 0xdd), packet...)
	}
	return append(append(frame, 0x08, 0x00), packet...)
}

// hopping is what a tunnel's option says.
type hopping struct {
	at, count, flags uint8
	ids              []uint64 // one or three
}

func asked(ids ...uint64) hopping {
	h := hopping{count: uint8(len(ids)), ids: ids}
	if len(ids) == 2 {
		h.ids = append(h.ids, 0)
	}
	return h
}

func (h hopping) bytes() []byte {
	option := []byte{0, 0, hopType, byte(1 + 2*len(h.ids)), h.at, h.count, h.flags, 0}
	binary.BigEndian.PutUint16(option, hopClass)
	for _, id := range h.ids {
		option = binary.NativeEndian.AppendUint64(option, id)
	}
	return option
}

// tunnelled puts an IP packet into a tunnel.
func tunnelled(t testing.TB, from, to netip.Addr, h hopping, packet []byte) []byte {
	t.Helper()
	option := h.bytes()
	protocol := uint16(0x0800)
	if packet[0]>>4 == 6 {
		protocol = 0x86dd
	}
	geneve := []byte{byte(len(option) / 4), 0x40, byte(protocol >> 8), byte(protocol), 0, 0, 0, 0}
	geneve = append(append(geneve, option...), packet...)
	all := []gopacket.SerializableLayer{ethernet(from.Is6()), header(from, to, layers.IPProtocolUDP)}
	udp := make([]byte, 8, 8+len(geneve))
	binary.BigEndian.PutUint16(udp, 50000)
	binary.BigEndian.PutUint16(udp[2:], genevePort)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(geneve)))
	return serialized(t, append(all, gopacket.Payload(append(udp, geneve...)))...)
}

// seen is a packet as an independent decoder reads it.
type seen struct {
	gopacket.Packet
	from, to netip.AddrPort // of TCP or UDP
	ttl      uint8
}

// verifySums fails when a checksum in a packet is wrong. None (of UDP) is right.
func verifySums(t testing.TB, p gopacket.Packet) {
	t.Helper()
	var network gopacket.NetworkLayer
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.IPv4:
			network = l
		case *layers.IPv6:
			network = l
		case *layers.TCP:
			must(t, l.SetNetworkLayerForChecksum(network))
		case *layers.UDP:
			must(t, l.SetNetworkLayerForChecksum(network))
		case *layers.ICMPv6:
			must(t, l.SetNetworkLayerForChecksum(network))
		}
		c, ok := l.(gopacket.LayerWithChecksum)
		if !ok {
			continue
		}
		err, r := c.VerifyChecksum()
		if err != nil || !r.Valid {
			t.Fatalf("checksum of %v is %#x, want %#x (%v)\n%v", l.LayerType(), r.Actual, r.Correct, err, p.Dump())
		}
	}
}

// decode reads a frame. Every checksum must be right.
func decode(t testing.TB, frame []byte) seen {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	if e := p.ErrorLayer(); e != nil {
		t.Fatalf("what came out cannot be decoded: %v\n%v", e.Error(), p.Dump())
	}
	verifySums(t, p)
	s := seen{Packet: p}
	var from, to netip.Addr
	for _, l := range p.Layers() { // the innermost
		switch l := l.(type) {
		case *layers.IPv4:
			from, to, s.ttl = mustAddr(l.SrcIP), mustAddr(l.DstIP), l.TTL
		case *layers.IPv6:
			from, to, s.ttl = mustAddr(l.SrcIP), mustAddr(l.DstIP), l.HopLimit
		case *layers.TCP:
			s.from, s.to = netip.AddrPortFrom(from, uint16(l.SrcPort)), netip.AddrPortFrom(to, uint16(l.DstPort))
		case *layers.UDP:
			s.from, s.to = netip.AddrPortFrom(from, uint16(l.SrcPort)), netip.AddrPortFrom(to, uint16(l.DstPort))
		}
	}
	if !s.from.IsValid() {
		s.from, s.to = netip.AddrPortFrom(from, 0), netip.AddrPortFrom(to, 0)
	}
	return s
}

func mustAddr(b []byte) netip.Addr {
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		panic("no address")
	}
	return a.Unmap()
}

// tunnelOf reads the outer headers of a frame and returns what is inside as a frame.
func tunnelOf(t testing.TB, frame []byte) (from, to netip.Addr, ttl uint8, h hopping, inner []byte) {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	verifySums(t, p)
	switch l := p.NetworkLayer().(type) {
	case *layers.IPv4:
		from, to, ttl = mustAddr(l.SrcIP), mustAddr(l.DstIP), l.TTL
	case *layers.IPv6:
		from, to, ttl = mustAddr(l.SrcIP), mustAddr(l.DstIP), l.HopLimit
	default:
		t.Fatalf("no tunnel: %v", p)
	}
	g, ok := p.Layer(layers.LayerTypeGeneve).(*layers.Geneve)
	if !ok || len(g.Options) != 1 || g.Options[0].Class != hopClass {
		t.Fatalf("no tunnel of ours: %v", p)
	}
	d := g.Options[0].Data
	h = hopping{at: d[0], count: d[1], flags: d[2]}
	for d = d[4:]; len(d) >= 8; d = d[8:] {
		h.ids = append(h.ids, binary.NativeEndian.Uint64(d))
	}
	return from, to, ttl, h, framed(g.Payload)
}
