package xdp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// reasons are the names of reasons by number.
var reasons = append([]string{"none"}, bpf.Reasons()...)

// Verdicts of XDP programs.
const (
	xdpAborted = iota
	xdpDrop
	xdpPass
	xdpTX
	xdpRedirect
)

// Link addresses of packets, and of next hops.
var (
	clientLink  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	machineLink = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	hopLink     = net.HardwareAddr{2, 0, 0, 0, 1, 3}
	outLink     = net.HardwareAddr{2, 0, 0, 0, 1, 2}
)

// lbRig is programs, and frontends that a test made.
type lbRig struct {
	*programRig
	frontends uint32
	backends  uint32
	hop       bpfNextHop // as next_hops[1] is
}

// lbServer is a backend in the maps.
type lbServer struct {
	slot   uint32
	id     uint64
	remote netip.Addr
	value  bpfBackend
}

// lbFrontend is a frontend in the maps.
type lbFrontend struct {
	key     model.FrontendKey
	value   bpfFrontend
	servers []*lbServer
}

const (
	lbRows = 16
	// Interfaces: packets come from the first, whatever it is; the second is never used.
	inDevice, otherDevice = 1, 2
)

func newLB(t testing.TB) *lbRig {
	t.Helper()
	needsRoot(t)
	w := &lbRig{programRig: loadSmall(t)}
	w.hop = bpfNextHop{Device: inDevice, Mtu: 1500, Source4: word4("10.0.0.1"), Source: wireAddress(netip.MustParseAddr("2001:db8:a::1"))}
	copy(w.hop.To[:], hopLink)
	copy(w.hop.From[:], outLink)
	w.setHop()
	put(w.programRig, w.Settings, uint32(0), bpfSettings{
		Tunnel4: wireAddress(netip.MustParseAddr("10.0.0.1")), Tunnel6: wireAddress(netip.MustParseAddr("2001:db8:a::1")), Capture: 1,
	})
	return w
}

func (w *lbRig) setHop() { put(w.programRig, w.NextHops, uint32(1), w.hop) }

func word4(a string) uint32 {
	four := netip.MustParseAddr(a).As4()
	return binary.NativeEndian.Uint32(four[:])
}

// serve makes a frontend like "tcp://192.0.2.1:80" with backends in a mode, of which the
// first three are in every row.
func (w *lbRig) serve(name string, mode bpfMode, remotes ...string) *lbFrontend {
	w.t.Helper()
	key, err := model.ParseFrontend(name)
	must(w.t, err)
	w.frontends++
	f := &lbFrontend{key: key, value: bpfFrontend{
		Index: w.frontends, Rows: w.frontends * lbRows, Mask: lbRows - 1, Flags: uint16(bpfFrontendFlagFRONTEND_BALANCED),
	}}
	for _, r := range remotes {
		w.backends++
		s := &lbServer{slot: w.backends, id: 1000 + uint64(w.backends), remote: netip.MustParseAddr(r)}
		s.value = bpfBackend{
			Id: s.id, Address: wireAddress(s.remote), Remote: wireAddress(s.remote), NextHop: 1, Port: bpf.NetworkPort(8080), Mode: uint8(mode), Generation: 1,
			Flags: uint8(bpfBackendFlagBACKEND_READY | bpfBackendFlagBACKEND_NEW),
		}
		f.servers = append(f.servers, s)
		w.putServer(s)
	}
	var slots []uint32
	for _, s := range f.servers[:min(3, len(f.servers))] {
		slots = append(slots, s.slot)
	}
	for i := range uint32(lbRows) {
		w.setRow(f, i, slots...)
	}
	w.putFrontend(f)
	put(w.programRig, w.Vips, wireAddress(key.VIP), uint32(1))
	return f
}

func (w *lbRig) putFrontend(f *lbFrontend) {
	w.t.Helper()
	put(w.programRig, w.Frontends, bpfFrontendKey{Vip: wireAddress(f.key.VIP), Port: bpf.NetworkPort(f.key.Port), Protocol: uint8(lookup.Number(f.key.Transport))}, f.value)
}

func (w *lbRig) putServer(s *lbServer) { put(w.programRig, w.Backends, s.slot, s.value) }

func (w *lbRig) setRow(f *lbFrontend, i uint32, slots ...uint32) {
	w.t.Helper()
	var row uint64
	for n, p := range slots {
		row |= uint64(p) << (21 * n)
	}
	put(w.programRig, w.Rows, f.value.Rows+i, row)
}

// sent is what was counted of packets that went to a backend.
func (w *lbRig) sent(s *lbServer) (sum bpfCounter) {
	w.t.Helper()
	var each []bpfCounter
	must(w.t, w.BackendCounters.Lookup(s.slot, &each))
	for _, c := range each {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
		sum.Flows += c.Flows
	}
	return sum
}

// flow looks a client up in flows, and in fresh.
func (w *lbRig) flow(f *lbFrontend, client netip.AddrPort) (v bpfFlow, settled, known bool) {
	k := bpfFlowKey{Client: wireAddress(client.Addr()), Frontend: f.value.Index, Port: bpf.NetworkPort(client.Port())}
	if v, known = get[bpfFlowKey, bpfFlow](w.programRig, w.Flows, k); known {
		return v, true, true
	}
	v, known = get[bpfFlowKey, bpfFlow](w.programRig, w.Fresh, k)
	return v, false, known
}

// shape is a packet of a client, to be changed by tests before it is made.
type shape struct {
	client  netip.AddrPort
	to      model.FrontendKey
	flags   string // of TCP: letters of S, A, F, R
	payload []byte
	tags    []uint16
	ttl     uint8
	tos     uint8
	options []layers.IPv4Option
	dst     net.HardwareAddr
}

func from(client, to string, flags string) shape {
	k, err := model.ParseFrontend(to)
	if err != nil {
		panic(err)
	}
	return shape{client: netip.MustParseAddrPort(client), to: k, flags: flags, payload: []byte("hello, world"), ttl: 61, dst: machineLink}
}

var fixAll = gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}

// link makes the layers below IP.
func (s shape) link() []gopacket.SerializableLayer {
	ip := layers.EthernetTypeIPv4
	if s.to.VIP.Is6() {
		ip = layers.EthernetTypeIPv6
	}
	if len(s.tags) == 0 {
		return []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: clientLink, DstMAC: s.dst, EthernetType: ip}}
	}
	out := []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: clientLink, DstMAC: s.dst, EthernetType: layers.EthernetTypeDot1Q}}
	for i, tag := range s.tags {
		next := layers.EthernetTypeDot1Q
		if i == len(s.tags)-1 {
			next = ip
		}
		out = append(out, &layers.Dot1Q{VLANIdentifier: tag, Type: next})
	}
	return out
}

// network makes the IP header, and hands it to who needs it for a checksum.
func (s shape) network(protocol layers.IPProtocol) (gopacket.SerializableLayer, gopacket.NetworkLayer) {
	if s.to.VIP.Is4() {
		ip := &layers.IPv4{
			Version: 4, TTL: s.ttl, TOS: s.tos, Protocol: protocol, Options: s.options,
			SrcIP: s.client.Addr().AsSlice(), DstIP: s.to.VIP.AsSlice(), Id: 7, Flags: layers.IPv4DontFragment,
		}
		return ip, ip
	}
	ip := &layers.IPv6{Version: 6, HopLimit: s.ttl, TrafficClass: s.tos, NextHeader: protocol, SrcIP: s.client.Addr().AsSlice(), DstIP: s.to.VIP.AsSlice()}
	return ip, ip
}

// transport makes the TCP or UDP header.
func (s shape) transport(over gopacket.NetworkLayer) (gopacket.SerializableLayer, layers.IPProtocol) {
	if s.to.Transport == model.UDP {
		udp := &layers.UDP{SrcPort: layers.UDPPort(s.client.Port()), DstPort: layers.UDPPort(s.to.Port)}
		_ = udp.SetNetworkLayerForChecksum(over)
		return udp, layers.IPProtocolUDP
	}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(s.client.Port()), DstPort: layers.TCPPort(s.to.Port), Seq: 1, Window: 1000}
	for _, f := range s.flags {
		switch f {
		case 'S':
			tcp.SYN = true
		case 'A':
			tcp.ACK = true
		case 'F':
			tcp.FIN = true
		case 'R':
			tcp.RST = true
		}
	}
	_ = tcp.SetNetworkLayerForChecksum(over)
	return tcp, layers.IPProtocolTCP
}

func (s shape) bytes() []byte {
	_, protocol := s.transport(&layers.IPv4{})
	ip, over := s.network(protocol)
	transport, _ := s.transport(over)
	return frame(append(s.link(), ip, transport, gopacket.Payload(s.payload))...)
}

func frame(parts ...gopacket.SerializableLayer) []byte {
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, fixAll, parts...); err != nil {
		panic(err)
	}
	return bytes.Clone(b.Bytes())
}

// inner is the IP packet of a frame.
func inner(packet []byte) []byte {
	at := 12
	for binary.BigEndian.Uint16(packet[at:]) == 0x8100 || binary.BigEndian.Uint16(packet[at:]) == 0x88a8 {
		at += 4
	}
	return trim(packet[at+2:])
}

// trim cuts what is behind an IP packet off.
func trim(ip []byte) []byte {
	if ip[0]>>4 == 4 {
		return ip[:binary.BigEndian.Uint16(ip[2:])]
	}
	return ip[:40+int(binary.BigEndian.Uint16(ip[4:]))]
}

// hopped is an IP packet after one more hop.
func hopped(ip []byte) []byte {
	ip = bytes.Clone(ip)
	if ip[0]>>4 == 6 {
		ip[7]--
		return ip
	}
	ip[8]--
	header := ip[:int(ip[0]&15)*4]
	header[10], header[11] = 0, 0
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(header[10:], ^uint16(sum))
	return ip
}

// envelope is what an independent decoder sees around a packet.
type envelope struct {
	link        *layers.Ethernet
	tags        []uint16
	source, to  netip.Addr
	ttl, tos    uint8
	port        uint16 // source port of UDP
	ids         []uint64
	geneve      bool
	inside      []byte // the packet, without what is behind it
	insideProto layers.IPProtocol
}

// unwrap decodes an encapsulated frame. Everything about it must be right.
func unwrap(packet []byte) (e envelope, err error) {
	p := gopacket.NewPacket(packet, layers.LayerTypeEthernet, gopacket.DecodeStreamsAsDatagrams)
	e.link, _ = p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	if e.link == nil {
		return e, fmt.Errorf("no Ethernet header")
	}
	var payload []byte
	protocol := layers.IPProtocol(0)
	for _, l := range p.Layers() {
		if tag, ok := l.(*layers.Dot1Q); ok {
			e.tags = append(e.tags, tag.VLANIdentifier)
		}
	}
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		e.source, _ = netip.AddrFromSlice(ip.SrcIP)
		e.to, _ = netip.AddrFromSlice(ip.DstIP)
		e.ttl, e.tos, payload, protocol = ip.TTL, ip.TOS, ip.Payload, ip.Protocol
		if bad, result := ip.VerifyChecksum(); bad != nil || !result.Valid {
			return e, fmt.Errorf("outer checksum %#x, want %#x", result.Actual, result.Correct)
		}
		if ip.Flags != layers.IPv4DontFragment || ip.FragOffset != 0 {
			return e, fmt.Errorf("outer flags %v, offset %d", ip.Flags, ip.FragOffset)
		}
	case *layers.IPv6:
		e.source, _ = netip.AddrFromSlice(ip.SrcIP)
		e.to, _ = netip.AddrFromSlice(ip.DstIP)
		e.ttl, e.tos, payload, protocol = ip.HopLimit, ip.TrafficClass, ip.Payload, ip.NextHeader
	default:
		return e, fmt.Errorf("no IP header: %v", p)
	}
	e.insideProto = protocol
	switch protocol {
	case layers.IPProtocolUDP:
		udp, _ := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
		g, _ := p.Layer(layers.LayerTypeGeneve).(*layers.Geneve)
		if udp == nil || g == nil || udp.DstPort != 6081 || udp.Checksum != 0 || int(udp.Length) != len(payload) {
			return e, fmt.Errorf("bad UDP or Geneve header: %v", p)
		}
		if len(g.Options) != 1 || !g.CriticalOption || g.Options[0].Class != 0xff0f || g.Options[0].Type != 0x81 {
			return e, fmt.Errorf("bad Geneve options: %+v", g)
		}
		o := g.Options[0].Data
		e.geneve, e.port = true, uint16(udp.SrcPort)
		if len(o) < 12 || o[0] != 0 || o[2] != 0 || int(o[1]) > (len(o)-4)/8 {
			return e, fmt.Errorf("bad option %x", o)
		}
		for i := range int(o[1]) {
			e.ids = append(e.ids, binary.NativeEndian.Uint64(o[4+8*i:]))
		}
		e.inside = g.Payload
		if version := e.inside[0] >> 4; version == 4 && g.Protocol != layers.EthernetTypeIPv4 || version == 6 && g.Protocol != layers.EthernetTypeIPv6 {
			return e, fmt.Errorf("Geneve says %v around version %d", g.Protocol, version)
		}
	case layers.IPProtocolIPv4, layers.IPProtocolIPv6:
		e.inside = payload
		if (e.inside[0]>>4 == 4) != (protocol == layers.IPProtocolIPv4) {
			return e, fmt.Errorf("protocol %v around version %d", protocol, e.inside[0]>>4)
		}
	default:
		return e, fmt.Errorf("not encapsulated: protocol %v", protocol)
	}
	if n := len(trim(e.inside)); n != len(e.inside) {
		return e, fmt.Errorf("%d bytes inside, of which %d are the packet", len(e.inside), n)
	}
	return e, nil
}

// goes says that a packet was sent to a backend, encapsulated and otherwise as it was.
func (w *lbRig) goes(packet []byte, to *lbServer) (e envelope) {
	w.t.Helper()
	before, drops := w.sent(to), w.allDropped()
	verdict, out := w.run(w.Balance, packet)
	if verdict != xdpTX && verdict != xdpRedirect {
		w.t.Fatalf("verdict %d, want it sent; dropped: %v", verdict, w.reasons())
	}
	e, err := unwrap(out)
	if err != nil {
		w.t.Fatalf("%v\n%x", err, out)
	}
	if e.to != to.remote {
		w.t.Fatalf("sent to %v, want %v", e.to, to.remote)
	}
	if want := hopped(inner(packet)); !bytes.Equal(e.inside, want) {
		w.t.Fatalf("inside is\n%x, want\n%x", e.inside, want)
	}
	if !bytes.Equal(e.link.DstMAC, hopLink) || !bytes.Equal(e.link.SrcMAC, outLink) {
		w.t.Fatalf("link addresses %v -> %v", e.link.SrcMAC, e.link.DstMAC)
	}
	if got := w.sent(to); got.Packets != before.Packets+1 || got.Bytes != before.Bytes+uint64(len(inner(packet))) {
		w.t.Fatalf("counted %+v, before %+v", got, before)
	}
	if w.allDropped() != drops {
		w.t.Fatalf("sent, and counted as dropped: %v", w.reasons())
	}
	return e
}

// noted takes off what the program notes for tunnel_in before a packet of its own.
func noted(out []byte) (packet []byte, is bool) {
	const magic = 0x4661696c // RESEND of bpf/lib/route.h
	if len(out) < 8 || binary.NativeEndian.Uint32(out) != magic || binary.NativeEndian.Uint32(out[4:]) != 0 {
		return out, false
	}
	return out[8:], true
}

// dropsAs says that a packet was dropped for a reason.
func (w *lbRig) dropsAs(packet []byte, reason bpfReason) {
	w.t.Helper()
	before, all := w.dropped(reason), w.allDropped()
	verdict, _ := w.run(w.Balance, packet)
	if verdict != xdpDrop || w.dropped(reason) != before+1 || w.allDropped() != all+1 {
		w.t.Fatalf("verdict %d, want dropped as %s; dropped in all: %v", verdict, reasons[reason], w.reasons())
	}
}

// leaves says that a packet was left to the kernel as it is.
func (w *lbRig) leaves(packet []byte) {
	w.t.Helper()
	all := w.allDropped()
	verdict, out := w.run(w.Balance, packet)
	if verdict != xdpPass || !bytes.Equal(out, packet) || w.allDropped() != all {
		w.t.Fatalf("verdict %d, want it left as it is; dropped: %v\n%x\n%x", verdict, w.reasons(), packet, out)
	}
}

// openCaptures reads one packet that was captured.
func openCaptures(t *testing.T, w *lbRig) (c bpfCapture) {
	t.Helper()
	r, err := ringbuf.NewReader(w.Captures)
	must(t, err)
	defer r.Close()
	r.SetDeadline(time.Now().Add(30 * time.Second))
	record, err := r.Read()
	must(t, err)
	must(t, binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian, &c))
	return c
}
