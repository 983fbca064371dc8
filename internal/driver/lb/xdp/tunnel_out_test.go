package xdp

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// leaves gives a packet of this machine to tunnel_out, and decodes what goes out.
func (k *programRig) leaves(packet []byte) seen {
	k.t.Helper()
	verdict, frame := k.run(k.TunnelOut, framed(packet))
	if verdict != verdictNext {
		k.t.Fatalf("verdict %d, drops %v", int32(verdict), k.reasons())
	}
	return decode(k.t, frame)
}

func everyFamilyOut(t *testing.T, f func(t *testing.T, k *programRig, in family)) {
	for _, in := range families {
		t.Run(in.name, func(t *testing.T) { f(t, decapRig(t), in) })
	}
}

// begun is a rig whose backend has had a SYN and its ACK, and a datagram, of the client.
func begun(t *testing.T, k *programRig, in family) {
	t.Helper()
	to := netip.AddrPortFrom(in.backend, backendPort)
	for _, flags := range []string{"S", "A"} {
		k.takes(in, families[0], asked(idHere), tcpPacket(t, in.clientAddr(), in.vipAddr(), flags, mssOption, ""), to)
	}
	k.takes(in, families[0], asked(idHere), udpPacket(t, in.clientAddr(), in.vipAddr(), "question"), to)
}

func TestTunnelAnswersComeFromVIP(t *testing.T) {
	everyFamilyOut(t, func(t *testing.T, k *programRig, in family) {
		backend := netip.AddrPortFrom(in.backend, backendPort)
		begun(t, k, in)
		for name, packet := range map[string][]byte{
			"a segment":  tcpPacket(t, backend, in.clientAddr(), "A", nil, "answer"),
			"a reset":    tcpPacket(t, backend, in.clientAddr(), "R", nil, ""),
			"a datagram": udpPacket(t, backend, in.clientAddr(), "answer"),
		} {
			if s := k.leaves(packet); s.from != in.vipAddr() || s.to != in.clientAddr() || s.ttl != 60 {
				t.Fatalf("%s goes from %s to %s with ttl %d", name, s.from, s.to, s.ttl)
			}
		}
		// It closes: a new connection of the port need not go to the same backend.
		if o, _ := get[bpfFlowKey, bpfOwned](k, k.Owned, flowKeyOf(in, 0)); o.State != uint8(bpfFlowStateFLOW_CLOSING) {
			t.Fatalf("after the backend's reset owned has %+v", o)
		}
		// What is nobody's answer stays as it is.
		for name, packet := range map[string][]byte{
			"another backend's": tcpPacket(t, netip.AddrPortFrom(in.backend2, backendPort), in.clientAddr(), "A", nil, "x"),
			"another client's":  tcpPacket(t, backend, netip.AddrPortFrom(in.client, 1), "A", nil, "x"),
			"another port's":    udpPacket(t, netip.AddrPortFrom(in.backend, 53), in.clientAddr(), "x"),
		} {
			if verdict, out := k.run(k.TunnelOut, framed(packet)); verdict != verdictNext || !bytes.Equal(out, framed(packet)) {
				t.Errorf("%s packet: verdict %d, and it changed", name, int32(verdict))
			}
		}
	})
}

func TestTunnelFirstAnswerOfManyFirstPackets(t *testing.T) {
	everyFamilyOut(t, func(t *testing.T, k *programRig, in family) {
		begun(t, k, in)
		to := netip.AddrPortFrom(in.backend, backendPort)
		for port := range uint16(6000) { // more than the map of first packets has room for
			syn := tcpPacket(t, netip.AddrPortFrom(in.client, 1024+port), in.vipAddr(), "S", nil, "")
			if verdict, _ := k.give(families[0], asked(idHere), syn); verdict != verdictNext {
				t.Fatalf("SYN %d: verdict %d", port, int32(verdict))
			}
		}
		k.takes(in, families[0], asked(idPeer), tcpPacket(t, in.clientAddr(), in.vipAddr(), "A", nil, ""), to)
		if s := k.leaves(tcpPacket(t, to, in.clientAddr(), "A", nil, "still here")); s.from != in.vipAddr() {
			t.Fatalf("after a flood of SYNs the answer comes from %s", s.from)
		}
	})
}

func TestTunnelClampsSegments(t *testing.T) {
	mss := func(value uint16) layers.TCPOption {
		return layers.TCPOption{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: binary.BigEndian.AppendUint16(nil, value)}
	}
	nop := layers.TCPOption{OptionType: layers.TCPOptionKindNop, OptionLength: 1}
	scale := layers.TCPOption{OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{7}}
	everyFamilyOut(t, func(t *testing.T, k *programRig, in family) {
		begun(t, k, in)
		fits := uint16(1500 - 68 - 40)
		if in.v6() {
			fits -= 20
		}
		for name, c := range map[string]struct {
			options    []layers.TCPOption
			sent, want uint16
		}{
			"the first option":           {[]layers.TCPOption{mss(1460), nop, nop}, 1460, fits},
			"at an odd place":            {[]layers.TCPOption{nop, mss(8960), nop, nop, nop}, 8960, fits},
			"after another":              {[]layers.TCPOption{scale, mss(1461), nop}, 1461, fits},
			"small enough":               {[]layers.TCPOption{mss(536)}, 536, 536},
			"exactly what fits":          {[]layers.TCPOption{mss(fits)}, fits, fits},
			"none (the client uses 536)": {[]layers.TCPOption{scale, nop}, 0, 0},
		} {
			for _, from := range []netip.AddrPort{netip.AddrPortFrom(in.backend, backendPort)} {
				s := k.leaves(tcpPacket(t, from, in.clientAddr(), "SA", c.options, ""))
				got := uint16(0)
				for _, o := range s.Layer(layers.LayerTypeTCP).(*layers.TCP).Options {
					if o.OptionType == layers.TCPOptionKindMSS {
						got = binary.BigEndian.Uint16(o.OptionData)
					}
				}
				if got != c.want || s.from != in.vipAddr() {
					t.Errorf("%s: from %s, MSS %d, want %d", name, s.from, got, c.want)
				}
			}
		}
		// A proxy answers as the VIP itself, through the same tunnel.
		other := netip.AddrPortFrom(in.client, clientPort+5)
		k.takes(in, families[0], asked(idProxy), tcpPacket(t, other, in.vipAddr(), "S", nil, ""), in.vipAddr())
		s := k.leaves(tcpPacket(t, in.vipAddr(), other, "SA", []layers.TCPOption{mss(1460)}, ""))
		if o := s.Layer(layers.LayerTypeTCP).(*layers.TCP).Options[0]; binary.BigEndian.Uint16(o.OptionData) != fits || s.from != in.vipAddr() {
			t.Fatalf("the proxy's answer from %s has %s, want %d", s.from, o, fits)
		}
	})
}

func TestTunnelErrorsOfTheMachineSpeakOfVIP(t *testing.T) {
	everyFamilyOut(t, func(t *testing.T, k *programRig, in family) {
		begun(t, k, in)
		backend := netip.AddrPortFrom(in.backend, backendPort)
		for name, c := range map[string]struct {
			quoted, want []byte
			from, seen   netip.Addr
		}{
			"a closed port":      {udpPacket(t, in.clientAddr(), backend, "question"), udpPacket(t, in.clientAddr(), in.vipAddr(), "question"), in.backend, in.vip},
			"a router behind us": {tcpPacket(t, in.clientAddr(), backend, "A", nil, "x"), tcpPacket(t, in.clientAddr(), in.vipAddr(), "A", nil, "x"), in.router, in.router},
		} {
			packet := icmpError(t, c.from, in.client, c.quoted)
			verdict, frame := k.run(k.TunnelOut, framed(packet))
			if verdict != verdictNext {
				t.Fatalf("%s: verdict %d", name, int32(verdict))
			}
			s := decode(t, frame)
			if s.from.Addr() != c.seen || s.to.Addr() != in.client || !bytes.HasSuffix(frame, c.want) {
				t.Errorf("%s: an error from %s to %s quotes\n%x, want\n%x", name, s.from, s.to, frame[len(frame)-len(c.want):], c.want)
			}
		}
		for _, foreign := range [][]byte{
			icmpError(t, in.backend, in.client, udpPacket(t, in.clientAddr(), netip.AddrPortFrom(in.backend, 53), "x")),
			icmpError(t, in.backend, in.client, []byte("short")),
		} {
			if verdict, frame := k.run(k.TunnelOut, framed(foreign)); verdict != verdictNext || !bytes.Equal(frame, framed(foreign)) {
				t.Errorf("an error about nobody's flow: verdict %d, and it changed", int32(verdict))
			}
		}
		if _, ok := get[bpfRestoreKey, bpfRestore](k, k.RestoresFresh, restoreKeyOf(in, in.backend, unix.IPPROTO_UDP)); !ok {
			t.Error("one datagram alone is known to be real")
		}
	})
}
