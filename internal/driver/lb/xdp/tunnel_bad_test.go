package xdp

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Offsets of the outer headers in a frame.
func outerOffsets(out family) (ip, udp, geneve, option int) {
	udp = 14 + 20
	if out.v6() {
		udp = 14 + 40
	}
	return 14, udp, udp + 8, udp + 16
}

// checksum4 makes the checksum of an IPv4 header right.
func checksum4(h []byte) {
	h[10], h[11] = 0, 0
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(h[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(h[10:], ^uint16(sum))
}

func TestTunnelRefusesBadHeaders(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		_, udp, geneve, option := outerOffsets(out)
		good := tunnelled(t, out.peer, out.us, asked(idHere, idPeer, idThird), tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, "x"))
		none := bpfReasonREASON_NONE
		for _, c := range []struct {
			name   string
			change func(frame []byte)
			reason bpfReason // none: it is somebody else's and goes on untouched
		}{
			{"another port", func(f []byte) { f[udp+3]++ }, none},
			{"another option's class", func(f []byte) { f[option]-- }, none},
			{"another option's type", func(f []byte) { f[option+2] = 0x82 }, none},
			{"no options", func(f []byte) { f[geneve] = 0 }, none},
			{"a network of somebody's without our option", func(f []byte) { f[geneve+6], f[option+2] = 1, 0x82 }, none},
			{"a network of somebody's without options", func(f []byte) { f[geneve+4], f[geneve] = 1, 0 }, none},
			{"version 1", func(f []byte) { f[geneve] |= 0x40 }, bpfReasonREASON_BAD_TUNNEL},
			{"a control packet", func(f []byte) { f[geneve+1] |= 0x80 }, bpfReasonREASON_BAD_TUNNEL},
			{"no critical option", func(f []byte) { f[geneve+1] = 0 }, bpfReasonREASON_BAD_TUNNEL},
			{"Ethernet inside", func(f []byte) { f[geneve+2], f[geneve+3] = 0x65, 0x58 }, bpfReasonREASON_BAD_TUNNEL},
			{"a network of somebody's", func(f []byte) { f[geneve+6] = 1 }, bpfReasonREASON_BAD_TUNNEL},
			{"more options", func(f []byte) { f[geneve]++ }, bpfReasonREASON_BAD_TUNNEL},
			{"a shorter option", func(f []byte) { f[option+3]-- }, bpfReasonREASON_BAD_TUNNEL},
			{"a checksum", func(f []byte) { f[udp+6] = 1 }, bpfReasonREASON_BAD_TUNNEL},
			{"too many ids", func(f []byte) { f[option+5] = 4 }, bpfReasonREASON_BAD_TUNNEL},
			{"no ids", func(f []byte) { f[option+5] = 0 }, bpfReasonREASON_BAD_TUNNEL},
			{"an id after the last", func(f []byte) { f[option+4] = 3 }, bpfReasonREASON_BAD_TUNNEL},
			{"another length", func(f []byte) { f[udp+5]-- }, bpfReasonREASON_BAD_TUNNEL},
			{"the wrong protocol inside", func(f []byte) { f[geneve+2], f[geneve+3] = f[geneve+2]^0x8e, f[geneve+3]^0xdd }, bpfReasonREASON_BAD_HEADER},
		} {
			frame := bytes.Clone(good)
			c.change(frame)
			before := k.dropped(c.reason)
			verdict, after := k.run(k.TunnelIn, frame)
			switch {
			case c.reason == none && (verdict != verdictNext || !bytes.Equal(frame, after)):
				t.Errorf("%s: verdict %d, drops %v; want it left alone", c.name, int32(verdict), k.reasons())
			case c.reason != none && (verdict != verdictDrop || k.dropped(c.reason) != before+1):
				t.Errorf("%s: verdict %d, drops %v; want %s", c.name, int32(verdict), k.reasons(), reasons[c.reason])
			}
		}
		// Cut short: what is missing is noticed.
		for _, cut := range []int{1, 5, 30, 50} {
			if verdict, _ := k.run(k.TunnelIn, good[:len(good)-cut]); verdict != verdictDrop && cut < 45 {
				t.Errorf("%d bytes short: verdict %d", cut, int32(verdict))
			}
		}
	})
}

func TestTunnelFromStranger(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		packet := tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, "")
		verdict, _ := k.run(k.TunnelIn, tunnelled(t, out.third, out.us, asked(idHere), packet))
		if verdict != verdictDrop || k.dropped(bpfReasonREASON_NOT_A_TUNNEL) != 1 {
			t.Fatalf("verdict %d, drops %v", int32(verdict), k.reasons())
		}
		// Of other endpoints' tunnels we know nothing.
		frame := tunnelled(t, out.peer, out.third, asked(idHere), packet)
		if verdict, after := k.run(k.TunnelIn, frame); verdict != verdictNext || !bytes.Equal(after, frame) {
			t.Fatalf("verdict %d, drops %v", int32(verdict), k.reasons())
		}
		// The load balancer at the same machine is no stranger, but what says that it is and comes
		// over a wire is (TestTunnelOfTheMachineItself has both).
		if verdict, _ := k.run(k.TunnelIn, tunnelled(t, out.us, out.us, asked(idHere), packet)); verdict != verdictDrop || k.dropped(bpfReasonREASON_OWN_TUNNEL) != 1 {
			t.Fatalf("verdict %d, drops %v", int32(verdict), k.reasons())
		}
		must(t, k.Unmarked.Set(uint32(1))) // a driver that has no room for the note
		if verdict, _ := k.run(k.TunnelIn, tunnelled(t, out.us, out.us, asked(idHere), packet)); verdict != verdictNext {
			t.Fatalf("verdict %d, drops %v", int32(verdict), k.reasons())
		}
	})
}

func TestTunnelLifetimeAndCongestion(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		at, _, _, _ := outerOffsets(out)
		ttl, tos := at+8, at+1
		if out.v6() {
			ttl = at + 7
		}
		frame := tunnelled(t, out.peer, out.us, asked(idGone, idPeer), tcpPacket(t, in.clientAddr(), in.vipAddr(), "A", nil, ""))
		frame[ttl] = 1
		if !out.v6() {
			checksum4(frame[at:])
		}
		if verdict, _ := k.run(k.TunnelIn, frame); verdict != verdictDrop || k.dropped(bpfReasonREASON_HOP_LIMIT) != 1 {
			t.Fatalf("at the end of its life: verdict %d, drops %v", int32(verdict), k.reasons())
		}
		congested := func(ecn byte) (uint32, []byte) {
			inner := tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, "")
			if in.v6() {
				inner[1] |= ecn << 4
			} else {
				inner[1] |= ecn
				checksum4(inner)
			}
			frame := tunnelled(t, out.peer, out.us, asked(idHere), inner)
			if out.v6() {
				frame[tos] |= 3 << 4
			} else {
				frame[tos] |= 3
				checksum4(frame[at:])
			}
			return k.run(k.TunnelIn, frame)
		}
		verdict, after := congested(2) // it can be told (RFC 3168)
		decode(t, after)
		got := after[15]
		if in.v6() {
			got >>= 4
		}
		if verdict != verdictNext || got&3 != 3 {
			t.Fatalf("congestion outside: verdict %d, ECN inside %d, want 3", int32(verdict), got&3)
		}
		if verdict, _ := congested(0); verdict != verdictDrop {
			t.Fatalf("congestion that cannot be told: verdict %d, want a loss", int32(verdict))
		}
	})
}

// fragmentsOf cuts an IP packet into fragments whose payloads have size bytes at most.
func fragmentsOf(t *testing.T, packet []byte, size int) (all [][]byte) {
	t.Helper()
	v6 := packet[0]>>4 == 6
	head := 20
	if v6 {
		head = 40
	}
	payload := packet[head:]
	for at := 0; at < len(payload); at += size {
		part := payload[at:min(at+size, len(payload))]
		more := at+size < len(payload)
		var f []byte
		if v6 {
			f = append(bytes.Clone(packet[:40]), packet[6], 0, 0, 0, 0, 0, 0, 77)
			f[6] = 44
			where := uint16(at)
			if more {
				where |= 1
			}
			binary.BigEndian.PutUint16(f[42:], where)
			binary.BigEndian.PutUint16(f[4:], uint16(8+len(part)))
		} else {
			f = bytes.Clone(packet[:20])
			binary.BigEndian.PutUint16(f[2:], uint16(20+len(part)))
			binary.BigEndian.PutUint16(f[4:], 77)
			where := uint16(at / 8)
			if more {
				where |= 0x2000
			}
			binary.BigEndian.PutUint16(f[6:], where)
			checksum4(f)
		}
		all = append(all, append(f, part...))
	}
	return all
}

// joined puts fragments together, addresses and ports from the headers of the first, and
// returns the IP packet.
func joined(t *testing.T, frames [][]byte) []byte {
	t.Helper()
	var packet []byte
	for _, frame := range frames {
		p := frame[14:]
		if p[0]>>4 == 6 {
			if packet == nil {
				packet = append(packet, p[:40]...)
				packet[6] = p[40]
			}
			packet = append(packet, p[48:]...)
			binary.BigEndian.PutUint16(packet[4:], uint16(len(packet)-40))
			continue
		}
		decode(t, frame) // the header's checksum
		if packet == nil {
			packet = append(packet, p[:20]...)
			packet[6], packet[7] = 0, 0
		}
		packet = append(packet, p[20:]...)
		binary.BigEndian.PutUint16(packet[2:], uint16(len(packet)))
		checksum4(packet)
	}
	return packet
}

func TestTunnelFragments(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		whole := udpPacket(t, in.clientAddr(), in.vipAddr(), string(bytes.Repeat([]byte("a long question "), 200)))
		parts := fragmentsOf(t, whole, 1200)
		k.drops(out, asked(idHere), parts[1], bpfReasonREASON_FRAGMENT)
		var frames [][]byte
		for i, part := range parts {
			verdict, frame := k.give(out, asked(idHere), part)
			if verdict != verdictNext {
				t.Fatalf("fragment %d: verdict %d, drops %v", i, int32(verdict), k.reasons())
			}
			frames = append(frames, frame)
		}
		s := decode(t, framed(joined(t, frames)))
		if want := netip.AddrPortFrom(in.backend, backendPort); s.to != want || s.from != in.clientAddr() {
			t.Fatalf("%s -> %s, want it for %s", s.from, s.to, want)
		}
		// Answers in fragments, too.
		answer := udpPacket(t, netip.AddrPortFrom(in.backend, backendPort), in.clientAddr(), string(bytes.Repeat([]byte("a long answer "), 200)))
		frames = nil
		for i, part := range fragmentsOf(t, answer, 1200) {
			verdict, frame := k.run(k.TunnelOut, framed(part))
			if verdict != verdictNext {
				t.Fatalf("fragment %d of the answer: verdict %d, drops %v", i, int32(verdict), k.reasons())
			}
			frames = append(frames, frame)
		}
		if s := decode(t, framed(joined(t, frames))); s.from != in.vipAddr() || s.to != in.clientAddr() {
			t.Fatalf("the answer goes from %s to %s", s.from, s.to)
		}
	})
}

func TestTunnelEcho(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		var ping []byte
		if in.v6() {
			ping = serialized(t, header(in.peer, in.vip, layers.IPProtocolICMPv6),
				&layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoRequest, 0)}, gopacket.Payload("\x12\x34\x00\x01are you there"))
		} else {
			ping = serialized(t, header(in.peer, in.vip, layers.IPProtocolICMPv4),
				&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 0x1234, Seq: 1}, gopacket.Payload("are you there"))
		}
		h := hopping{flags: uint8(bpfHopFlagHOP_ECHO), ids: []uint64{0}}
		verdict, frame := k.give(out, h, ping)
		if verdict != verdictRedirect {
			t.Fatalf("verdict %d, drops %v", int32(verdict), k.reasons())
		}
		s := decode(t, frame)
		if s.from.Addr() != in.vip || s.to.Addr() != in.peer || !bytes.HasSuffix(frame, []byte("are you there")) {
			t.Fatalf("the answer goes from %s to %s", s.from, s.to)
		}
		kind := byte(0)
		at := 14 + 20
		if in.v6() {
			kind, at = 129, 14+40
		}
		if frame[at] != kind {
			t.Fatalf("the answer's type is %d, want %d", frame[at], kind)
		}
		k.drops(out, h, tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, ""), bpfReasonREASON_BAD_TUNNEL)
	})
}

// TestTunnelSurvivesAnything changes packets in tunnels at random. Whatever comes, the verdict is one of
// ours, and what is taken out goes to a backend of this machine.
func TestTunnelSurvivesAnything(t *testing.T) {
	k := decapRig(t)
	random := rand.New(rand.NewPCG(5, 6))
	local := map[netip.AddrPort]bool{}
	for _, f := range families {
		for _, a := range []netip.AddrPort{
			netip.AddrPortFrom(f.backend, backendPort), netip.AddrPortFrom(f.backend2, backendPort), netip.AddrPortFrom(f.backend2, backendPort+1),
			f.vipAddr(), netip.AddrPortFrom(f.vip2, vipPort),
		} {
			local[a] = true
			local[netip.AddrPortFrom(a.Addr(), 0)] = true // of errors and later fragments the decoder sees no ports
		}
	}
	ids := []uint64{idHere, idHere2, idPeer, idThird, idGone, idProxy, idFrozen}
	taken, passed := 0, 0
	for range 60000 {
		in, out := families[random.IntN(2)], families[random.IntN(2)]
		from := netip.AddrPortFrom(in.client, uint16(random.IntN(200)+1024))
		var packet []byte
		switch random.IntN(4) {
		case 0:
			packet = udpPacket(t, from, in.vipAddr(), "datagram")
		case 1:
			packet = icmpError(t, in.router, in.vip, tcpPacket(t, in.vipAddr(), from, "A", nil, "an answer"))
		case 2:
			packet = fragmentsOf(t, udpPacket(t, from, in.vipAddr(), "a datagram in fragments"), 16)[random.IntN(2)]
		default:
			packet = tcpPacket(t, from, in.vipAddr(), []string{"S", "A", "FA", "R"}[random.IntN(4)], nil, "segment")
		}
		var h hopping
		for range 1 + 2*random.IntN(2) {
			h.ids = append(h.ids, ids[random.IntN(len(ids))])
		}
		h.count = uint8(1 + random.IntN(len(h.ids)))
		h.at = uint8(random.IntN(int(h.count)))
		if random.IntN(4) == 0 {
			h.flags = uint8(random.IntN(16))
		}
		frame := tunnelled(t, out.peer, out.us, h, packet)
		for range random.IntN(4) {
			i := 14 + random.IntN(len(frame)-14)
			if random.IntN(2) == 0 {
				frame[i] ^= 1 << random.IntN(8)
			} else {
				frame[i] = byte(random.IntN(256))
			}
		}
		if random.IntN(10) == 0 {
			frame = frame[:60+random.IntN(len(frame)-60)] // the kernel runs programs on whole IP headers only
		}
		before := k.allDropped()
		verdict, after := k.run(k.TunnelIn, frame)
		switch verdict {
		case verdictDrop:
			if k.allDropped() != before+1 {
				t.Fatalf("a drop is not counted: %x", frame)
			}
		case verdictRedirect:
			passed++
		case verdictNext:
			if bytes.Equal(after, frame) {
				continue // nobody's
			}
			taken++
			s := gopacket.NewPacket(after, layers.LayerTypeEthernet, gopacket.NoCopy)
			if to, ok := destination(s); ok && !local[to] {
				t.Fatalf("taken for %s, which is not of this machine:\n%x\n%x", to, frame, after)
			}
		default:
			t.Fatalf("verdict %d of %x", int32(verdict), frame)
		}
	}
	t.Logf("%d taken, %d passed on, drops %v", taken, passed, k.reasons())
	if taken < 1000 || passed < 1000 {
		t.Fatal("the packets are too bad to try anything")
	}
}

// destination of a packet as the decoder reads it.
func destination(p gopacket.Packet) (netip.AddrPort, bool) {
	if p.NetworkLayer() == nil {
		return netip.AddrPort{}, false
	}
	to, ok := netip.AddrFromSlice(p.NetworkLayer().NetworkFlow().Dst().Raw())
	if !ok {
		return netip.AddrPort{}, false // it begins like one
	}
	switch l := p.TransportLayer().(type) {
	case *layers.TCP:
		return netip.AddrPortFrom(to, uint16(l.DstPort)), true
	case *layers.UDP:
		return netip.AddrPortFrom(to, uint16(l.DstPort)), true
	}
	return netip.AddrPortFrom(to, 0), true
}
