package xdp

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

const (
	tcp4 = "tcp://192.0.2.1:80"
	tcp6 = "tcp://[2001:db8::80]:80"
	udp4 = "udp://192.0.2.1:53"
	udp6 = "udp://[2001:db8::80]:53"
	cli4 = "198.51.100.7:40000"
	cli6 = "[2001:db8:c::7]:40000"
)

// Every family, transport and outer family, by both modes of tunnels.
func TestProgEncapsulates(t *testing.T) {
	w := newLB(t)
	for _, c := range []struct {
		name, to, client string
		mode             bpfMode
		remotes          []string
		source           string
		protocol         layers.IPProtocol
	}{
		{"4 in 4", "tcp://192.0.2.1:80", cli4, bpfModeMODE_IPIP, []string{"10.0.1.1"}, "10.0.0.1", layers.IPProtocolIPv4},
		{"6 in 4", "tcp://[2001:db8::80]:81", cli6, bpfModeMODE_IPIP, []string{"10.0.1.2"}, "10.0.0.1", layers.IPProtocolIPv6},
		{"4 in 6", "tcp://192.0.2.1:82", cli4, bpfModeMODE_IPIP, []string{"2001:db8:b::1"}, "2001:db8:a::1", layers.IPProtocolIPv4},
		{"6 in 6", "udp://[2001:db8::80]:83", cli6, bpfModeMODE_IPIP, []string{"2001:db8:b::2"}, "2001:db8:a::1", layers.IPProtocolIPv6},
		{"geneve 4 in 4", "udp://192.0.2.1:84", cli4, bpfModeMODE_GENEVE, []string{"10.0.1.3", "10.0.1.4"}, "10.0.0.1", layers.IPProtocolUDP},
		{"geneve 6 in 4", "tcp://[2001:db8::80]:85", cli6, bpfModeMODE_GENEVE, []string{"10.0.1.5", "10.0.1.6", "10.0.1.7"}, "10.0.0.1", layers.IPProtocolUDP},
		{"geneve 4 in 6", "tcp://192.0.2.1:86", cli4, bpfModeMODE_GENEVE, []string{"2001:db8:b::3"}, "2001:db8:a::1", layers.IPProtocolUDP},
		{"geneve 6 in 6", "tcp://[2001:db8::80]:87", cli6, bpfModeMODE_GENEVE, []string{"2001:db8:b::4", "2001:db8:b::5"}, "2001:db8:a::1", layers.IPProtocolUDP},
	} {
		f := w.serve(c.to, c.mode, c.remotes...)
		for _, tags := range [][]uint16{nil, {5}, {5, 6}} {
			for _, vlan := range []uint16{0, 9} {
				w.hop.Vlan = vlan
				w.setHop()
				p := from(c.client, c.to, "S")
				p.tags, p.tos = tags, 0xb9
				e := w.goes(p.bytes(), f.servers[0])
				if e.source.String() != c.source || e.insideProto != c.protocol || e.ttl != 64 || e.tos != 0xb9 {
					t.Errorf("%s: outer header %+v", c.name, e)
				}
				if want := slices.DeleteFunc([]uint16{vlan}, func(v uint16) bool { return v == 0 }); !slices.Equal(e.tags, want) {
					t.Errorf("%s: came with tags %v, left with %v, want %v", c.name, tags, e.tags, want)
				}
				if !e.geneve {
					continue
				}
				var ids []uint64
				for _, s := range f.servers {
					ids = append(ids, s.id)
				}
				if f.key.Transport == model.UDP {
					ids = ids[:1]
				}
				if !slices.Equal(e.ids, ids) || e.port < 0xc000 {
					t.Errorf("%s: hops %v from port %d, want %v", c.name, e.ids, e.port, ids)
				}
			}
		}
	}
}

func TestProgLeavesOnTheRightInterface(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1")
	for _, c := range []struct {
		device  uint32
		flags   bpfNextHopFlag
		verdict uint32
	}{
		{inDevice, 0, xdpTX},
		{inDevice, bpfNextHopFlagNEXT_HOP_REDIRECT, xdpRedirect},
		{otherDevice, 0, xdpRedirect},
	} {
		w.hop.Device, w.hop.Flags = c.device, uint8(c.flags)
		w.setHop()
		if verdict, _ := w.run(w.Balance, from(cli4, tcp4, "S").bytes()); verdict != c.verdict {
			t.Errorf("device %d, flags %d: verdict %d, want %d", c.device, c.flags, verdict, c.verdict)
		}
	}
	if n := w.sent(f.servers[0]).Flows; n != 1 {
		t.Errorf("one SYN, twice repeated, counts as %d flows", n)
	}
}

// What is for nobody here must not be touched, whatever it is.
func TestProgLeavesOthersAlone(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1")
	other := from(cli4, "tcp://192.0.2.9:80", "S").bytes()
	broken := bytes.Clone(other)
	broken[24]++ // IPv4 checksum
	echo := from("198.51.100.7:0", tcp4, "")
	ip, _ := echo.network(layers.IPProtocolICMPv4)
	for name, packet := range map[string][]byte{
		"other address":         other,
		"other port":            from(cli4, "tcp://192.0.2.1:81", "S").bytes(),
		"other transport":       from(cli4, "udp://192.0.2.1:80", "").bytes(),
		"broken, other address": broken,
		"short, other address":  other[:40],
		"ARP":                   frame(&layers.Ethernet{SrcMAC: clientLink, DstMAC: machineLink, EthernetType: layers.EthernetTypeARP}, gopacket.Payload(make([]byte, 46))),
		"a tag and no more":     frame(&layers.Ethernet{SrcMAC: clientLink, DstMAC: machineLink, EthernetType: layers.EthernetTypeDot1Q}, gopacket.Payload([]byte{0, 1})),
		"link header alone":     other[:14],
		"ping":                  frame(append(echo.link(), ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}, gopacket.Payload("ping"))...),
		"other address, IPv6":   from(cli6, tcp6, "S").bytes(),
		"to a group": func() []byte {
			p := from(cli4, tcp4, "S")
			p.dst = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
			return p.bytes()
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.leaves(packet)
		})
	}
	f.value.Flags = 0 // the machine only has backends of it
	w.putFrontend(f)
	w.t = t
	w.leaves(from(cli4, tcp4, "S").bytes())
}

// Everything that is wrong with a packet for a frontend has a name.
func TestProgDropsByReason(t *testing.T) {
	w := newLB(t)
	w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1")
	w.serve(tcp6, bpfModeMODE_IPIP, "10.0.1.1")
	w.serve(udp4, bpfModeMODE_IPIP, "10.0.1.1")
	w.serve("tcp://192.0.2.77:80", bpfModeMODE_NONE)
	syn4, syn6, dns := from(cli4, tcp4, "S").bytes(), from(cli6, tcp6, "S").bytes(), from(cli4, udp4, "").bytes()
	edit := func(packet []byte, change func(p []byte)) []byte {
		p := bytes.Clone(packet)
		change(p)
		if p[14]>>4 == 4 {
			copy(p[14:], hoppedBack(p[14:]))
		}
		return p
	}
	source := func(a string) []byte {
		return from(netip.AddrPortFrom(netip.MustParseAddr(a), 40000).String(), tcp4, "S").bytes()
	}
	source6 := func(a string) []byte {
		return from(netip.AddrPortFrom(netip.MustParseAddr(a), 40000).String(), tcp6, "S").bytes()
	}
	extended := func(header ...byte) []byte {
		p := append(bytes.Clone(syn6[:54]), header...)
		p = append(p, syn6[54:]...)
		binary.BigEndian.PutUint16(p[18:], uint16(len(p)-54))
		return p
	}
	for _, c := range []struct {
		name   string
		packet []byte
		reason bpfReason
	}{
		{"no TCP header", edit(syn4[:34], func(p []byte) { p[17] = 20 }), bpfReasonREASON_TRUNCATED},
		{"half a TCP header", edit(syn4[:44], func(p []byte) { p[17] = 30 }), bpfReasonREASON_TRUNCATED},
		{"less than it says", syn4[:60], bpfReasonREASON_TRUNCATED},
		{"less than it says, IPv6", syn6[:80], bpfReasonREASON_TRUNCATED},
		{"TCP header longer than the packet", edit(syn4, func(p []byte) { p[46] = 0xf0 }), bpfReasonREASON_TRUNCATED},
		{"TCP header too short", edit(syn4, func(p []byte) { p[46] = 0x40 }), bpfReasonREASON_BAD_HEADER},
		{"UDP length too small", edit(dns, func(p []byte) { p[39] = 7 }), bpfReasonREASON_BAD_HEADER},
		{"UDP length too large", edit(dns, func(p []byte) { p[38] = 7 }), bpfReasonREASON_TRUNCATED},
		{"IP header too short", edit(syn4, func(p []byte) { p[14] = 0x44 }), bpfReasonREASON_BAD_HEADER},
		{"IP length below its header", edit(syn4, func(p []byte) { p[16], p[17] = 0, 19 }), bpfReasonREASON_BAD_HEADER},
		{"version 5", edit(syn4, func(p []byte) { p[14] = 0x55 }), bpfReasonREASON_BAD_HEADER},
		{"version 4 as IPv6", func() []byte { p := bytes.Clone(syn6); p[14] = 0x40; return p }(), bpfReasonREASON_BAD_HEADER},
		{"wrong checksum", func() []byte { p := bytes.Clone(syn4); p[24]++; return p }(), bpfReasonREASON_BAD_CHECKSUM},
		{"reserved bit", edit(syn4, func(p []byte) { p[20] |= 0x80 }), bpfReasonREASON_BAD_HEADER},
		{"from loopback", source("127.0.0.1"), bpfReasonREASON_MARTIAN},
		{"from this network", source("0.0.0.0"), bpfReasonREASON_MARTIAN},
		{"from a group", source("224.0.0.1"), bpfReasonREASON_MARTIAN},
		{"from broadcast", source("255.255.255.255"), bpfReasonREASON_MARTIAN},
		{"from itself", source("192.0.2.1"), bpfReasonREASON_MARTIAN},
		{"from another VIP", source("192.0.2.77"), bpfReasonREASON_MARTIAN},
		{"from loopback, IPv6", source6("::1"), bpfReasonREASON_MARTIAN},
		{"from nobody, IPv6", source6("::"), bpfReasonREASON_MARTIAN},
		{"from a group, IPv6", source6("ff02::1"), bpfReasonREASON_MARTIAN},
		{"from a mapped address", func() []byte {
			p := bytes.Clone(syn6)
			copy(p[22:], []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, 7})
			return p
		}(), bpfReasonREASON_MARTIAN},
		{"no backend", from(cli4, "tcp://192.0.2.77:80", "S").bytes(), bpfReasonREASON_NO_BACKEND},
		{"source routing", func() []byte { p := extended(6, 0, 0, 1, 0, 0, 0, 0); p[20] = 43; return p }(), bpfReasonREASON_BAD_EXTENSION},
		{"seven headers", func() []byte {
			var all []byte
			for range 7 {
				all = append(all, 60, 0, 1, 4, 0, 0, 0, 0)
			}
			all[len(all)-8] = 6
			p := extended(all...)
			p[20] = 60
			return p
		}(), bpfReasonREASON_BAD_EXTENSION},
		{"header beyond the end", func() []byte { p := extended(6, 200, 1, 4, 0, 0, 0, 0); p[20] = 60; return p }(), bpfReasonREASON_BAD_EXTENSION},
		{"header a bit beyond the end", func() []byte { p := extended(6, 9, 1, 4, 0, 0, 0, 0); p[20] = 60; return p }(), bpfReasonREASON_TRUNCATED},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			w.dropsAs(c.packet, c.reason)
		})
	}
}

// hoppedBack is an IPv4 packet with the right checksum.
func hoppedBack(ip []byte) []byte {
	ip = bytes.Clone(ip)
	n := min(int(ip[0]&15)*4, len(ip))
	ip[8]++
	copy(ip, hopped(ip[:n]))
	return ip
}

// Options and extension headers are stepped over, and travel along.
func TestProgStepsOverHeaders(t *testing.T) {
	w := newLB(t)
	f4, f6 := w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1"), w.serve(tcp6, bpfModeMODE_GENEVE, "10.0.1.2")
	p := from(cli4, tcp4, "S")
	for n := 1; n <= 10; n++ {
		p.options = append(p.options, layers.IPv4Option{OptionType: 1}, layers.IPv4Option{OptionType: 1}, layers.IPv4Option{OptionType: 1}, layers.IPv4Option{OptionType: 1})
		w.goes(p.bytes(), f4.servers[0])
	}
	syn := from(cli6, tcp6, "S").bytes()
	for n := 1; n <= 6; n++ {
		var headers []byte
		for range n {
			headers = append(headers, 60, 0, 1, 4, 0, 0, 0, 0)
		}
		headers[len(headers)-8] = 6
		packet := slices.Concat(syn[:54], headers, syn[54:])
		packet[20] = 60
		binary.BigEndian.PutUint16(packet[18:], uint16(len(packet)-54))
		w.goes(packet, f6.servers[0])
	}
	atomic := slices.Concat(syn[:54], []byte{6, 0, 0, 0, 1, 2, 3, 4}, syn[54:]) // RFC 6946
	atomic[20] = 44
	binary.BigEndian.PutUint16(atomic[18:], uint16(len(atomic)-54))
	w.goes(atomic, f6.servers[0])
}

func TestProgLocalAndHere(t *testing.T) {
	w := newLB(t)
	local := w.serve(tcp4, bpfModeMODE_LOCAL, "192.0.2.1")
	w.leaves(from(cli4, tcp4, "S").bytes())
	if n := w.sent(local.servers[0]); n.Packets != 1 || n.Flows != 1 {
		t.Errorf("counted %+v", n)
	}
	for _, mode := range []bpfMode{bpfModeMODE_IPIP, bpfModeMODE_L2} {
		f := w.serve(tcp6, mode, "10.0.1.1")
		f.servers[0].value.Flags |= uint8(bpfBackendFlagBACKEND_HERE)
		w.putServer(f.servers[0])
		w.leaves(from(cli6, tcp6, "S").bytes())

	}
	// Through its own tunnel: as if it had come over the wire.
	for i, remote := range []string{"10.0.0.1", "2001:db8:a::1"} {
		for _, tags := range [][]uint16{nil, {5}, {5, 6}} {
			name := "tcp://192.0.2.1:" + []string{"90", "91"}[i]
			f := w.serve(name, bpfModeMODE_GENEVE, remote, "10.0.1.9")
			f.servers[0].value.Flags |= uint8(bpfBackendFlagBACKEND_HERE)
			w.putServer(f.servers[0])
			p := from(cli4, name, "S")
			p.tags = tags
			packet := p.bytes()
			verdict, out := w.run(w.Balance, packet)
			out, noted := noted(out)
			e, err := unwrap(out)
			if verdict != xdpPass || !noted || err != nil || e.to.String() != remote || e.source.String() != remote {
				t.Fatalf("verdict %d, %v, %+v", verdict, err, e)
			}
			if !bytes.Equal(e.inside, hopped(inner(packet))) || !slices.Equal(e.tags, tags) || !bytes.Equal(e.link.DstMAC, machineLink) || len(e.ids) != 2 {
				t.Errorf("inside %x, tags %v to %v, hops %v", e.inside, e.tags, e.link.DstMAC, e.ids)
			}
		}
	}
}

func TestProgSegment(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_L2, "10.0.1.1")
	p := from(cli4, tcp4, "S")
	p.tags = []uint16{5}
	packet := p.bytes()
	verdict, out := w.run(w.Balance, packet)
	if verdict != xdpTX || !bytes.Equal(out[14:], hopped(inner(packet))) || !bytes.Equal(out[:6], hopLink) || !bytes.Equal(out[6:12], outLink) {
		t.Fatalf("verdict %d\n%x\n%x", verdict, packet, out)
	}
	if n := w.sent(f.servers[0]); n.Packets != 1 {
		t.Errorf("counted %+v", n)
	}
}

// Too large for the way: the client is told how large it may be, by what it can verify.
func TestProgTooBig(t *testing.T) {
	w := newLB(t)
	w.hop.Mtu = 1400
	w.setHop()
	for _, c := range []struct {
		to, client string
		mode       bpfMode
		largest    int
		mtu        uint32 // that clients are told: as if all hops were in every packet
	}{
		{tcp4, cli4, bpfModeMODE_IPIP, 1380, 1380},
		{udp4, cli4, bpfModeMODE_GENEVE, 1400 - 20 - 8 - 8 - 16, 1400 - 20 - 8 - 8 - 32},
		{tcp6, cli6, bpfModeMODE_IPIP, 1380, 1380},
		{udp6, cli6, bpfModeMODE_GENEVE, 1400 - 20 - 8 - 8 - 16, 1400 - 20 - 8 - 8 - 32},
		{"tcp://192.0.2.1:99", cli4, bpfModeMODE_L2, 1400, 1400},
	} {
		f := w.serve(c.to, c.mode, "10.0.1.1")
		for _, tags := range [][]uint16{nil, {5}, {5, 6}} {
			p := from(c.client, c.to, "A")
			p.tags = tags
			if c.mode != bpfModeMODE_L2 {
				w.goes(fill(p, c.largest).bytes(), f.servers[0])
			}
			packet := fill(p, c.largest+1).bytes()
			answer := w.answers(packet, bpfReasonREASON_TOO_BIG, f.key.VIP, netip.MustParseAddrPort(c.client).Addr())
			var mtu uint32
			var quoted []byte
			if icmp, ok := answer.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok && icmp.TypeCode == layers.CreateICMPv4TypeCode(3, 4) {
				mtu, quoted = uint32(icmp.Seq), icmp.Payload
			}
			if icmp, ok := answer.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok && icmp.TypeCode == layers.CreateICMPv6TypeCode(2, 0) {
				mtu, quoted = binary.BigEndian.Uint32(icmp.Payload), icmp.Payload[4:]
			}
			if mtu != c.mtu || len(quoted) < 48 || !bytes.HasPrefix(inner(packet), quoted) {
				t.Errorf("%s: says %d of %x, want %d\n%v", c.to, mtu, quoted, c.mtu, answer)
			}
		}
	}
}

// answers says that a packet was dropped for a reason and that its sender was told, by whom.
func (w *lbRig) answers(packet []byte, reason bpfReason, from, to netip.Addr) gopacket.Packet {
	w.t.Helper()
	before, all := w.dropped(reason), w.allDropped()
	verdict, out := w.run(w.Balance, packet)
	if verdict != xdpRedirect || w.dropped(reason) != before+1 || w.allDropped() != all+1 {
		w.t.Fatalf("verdict %d, want it answered as %s; dropped: %v", verdict, reasons[reason], w.reasons())
	}
	answer := gopacket.NewPacket(out, layers.LayerTypeEthernet, gopacket.Default)
	if icmp, ok := answer.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok {
		must(w.t, icmp.SetNetworkLayerForChecksum(answer.NetworkLayer()))
	}
	if bad, wrong := answer.VerifyChecksums(); bad != nil || len(wrong) > 0 {
		w.t.Fatalf("checksums: %v %+v\n%v", bad, wrong, answer)
	}
	eth := answer.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	flow := answer.NetworkLayer().NetworkFlow()
	if !bytes.Equal(eth.DstMAC, clientLink) || flow.Src().String() != from.String() || flow.Dst().String() != to.String() {
		w.t.Errorf("answered %v to %v, want from %v to %v", flow, eth.DstMAC, from, to)
	}
	return answer
}

// fill gives a packet so many bytes.
func fill(p shape, size int) shape {
	p.payload = nil
	p.payload = make([]byte, size-len(inner(p.bytes())))
	return p
}

// The kernel's hash is lookup's, and the row is the hash's rest.
func TestProgRowIsLookups(t *testing.T) {
	w := newLB(t)
	random := rand.New(rand.NewPCG(1, 2))
	for i, by := range []model.FlowHash{model.HashFiveTuple, model.HashThreeTuple, model.HashSource} {
		for _, name := range []string{"tcp://192.0.2.1:8000", "udp://192.0.2.1:53", "udp://[2001:db8::80]:53", "tcp://[2001:db8::80]:443"} {
			var remotes []string
			for n := range lbRows {
				remotes = append(remotes, netip.AddrFrom4([4]byte{10, 0, 2, byte(n + 1)}).String())
			}
			f := w.serve(name, bpfModeMODE_IPIP, remotes...)
			f.value.Hash = uint8(i)
			w.putFrontend(f)
			for n := range uint32(lbRows) {
				w.setRow(f, n, f.servers[n].slot)
			}
			for range 200 {
				a := netip.MustParseAddrPort(cli6).Addr().As16()
				client := netip.AddrFrom4([4]byte{198, 51, byte(random.Uint32()), byte(random.Uint32())})
				if f.key.VIP.Is6() {
					binary.BigEndian.PutUint64(a[8:], random.Uint64())
					client = netip.AddrFrom16(a)
				}
				at := netip.AddrPortFrom(client, uint16(random.Uint32()))
				w.goes(from(at.String(), name, "S").bytes(), f.servers[lookup.Hash(by, at, f.key)&(lbRows-1)])
			}
		}
	}
}
