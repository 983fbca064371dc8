package xdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
)

const (
	verdictXDPDrop     = 1
	verdictXDPPass     = 2
	verdictXDPTX       = 3
	verdictXDPRedirect = 4

	// Ports are natFirst to natMiddle-1 and natMiddle+1000 to natLast.
	natFirst, natMiddle, natLast = 20000, 20020, 21063
	natCount                     = natLast - natFirst + 1 - 1000
)

// natRig is a load balancer with a frontend for each transport and family, in front of one
// backend each, and a way to clients.
func natRig(t *testing.T) *programRig {
	k := loadAlone(t)
	for path, value := range map[string]string{
		"ipv6/conf/default/disable_ipv6": "0", "ipv6/conf/all/disable_ipv6": "0", "ipv4/conf/lo/forwarding": "1", "ipv6/conf/lo/forwarding": "1",
	} {
		must(t, os.WriteFile("/proc/sys/net/"+path, []byte(value), 0))
	}
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far"}))
	eth0, err := netlink.LinkByName("eth0")
	must(t, err)
	far, err := netlink.LinkByName("far")
	must(t, err)
	must(t, netlink.LinkSetUp(far))
	must(t, netlink.LinkSetUp(eth0))
	put(k, k.Settings, uint32(0), bpfSettings{
		Tunnel4: wireAddress(families[0].us), Tunnel6: wireAddress(families[1].us), NatPorts: [2][2]uint16{{natFirst, natMiddle - 1}, {natMiddle + 1000, natLast}},
	})
	put(k, k.NextHops, uint32(1), bpfNextHop{Device: 1, Mtu: 1500, To: [6]uint8{2, 0, 0, 0, 0, 9}, From: [6]uint8{2, 0, 0, 0, 0, 8}})
	for i, f := range families {
		bits := 32
		if f.v6() {
			bits = 128
		}
		must(t, netlink.AddrAdd(eth0, &netlink.Addr{IPNet: &net.IPNet{IP: f.us.AsSlice(), Mask: net.CIDRMask(bits-8, bits)}, Flags: unix.IFA_F_NODAD}))
		must(t, netlink.NeighAdd(&netlink.Neigh{
			LinkIndex: eth0.Attrs().Index, IP: f.peer.AsSlice(), State: unix.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 7},
		}))
		must(t, netlink.RouteAdd(&netlink.Route{
			LinkIndex: eth0.Attrs().Index, Gw: f.peer.AsSlice(), Dst: &net.IPNet{IP: f.client.AsSlice(), Mask: net.CIDRMask(bits, bits)},
		}))
		put(k, k.Vips, wireAddress(f.vip), uint32(2))
		for j, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			index := uint32(1 + 2*i + j)
			put(k, k.Frontends, bpfFrontendKey{Vip: wireAddress(f.vip), Port: bpf.NetworkPort(vipPort), Protocol: protocol}, bpfFrontend{
				Index: index, Rows: index, Mask: 0, Flags: uint16(bpfFrontendFlagFRONTEND_BALANCED),
			})
			put(k, k.Rows, index, uint64(index))
			put(k, k.Backends, index, bpfBackend{
				Id: uint64(index), Address: wireAddress(f.backend), NextHop: 1, Port: bpf.NetworkPort(backendPort), Mode: uint8(bpfModeMODE_NAT), Generation: 1,
				Flags: uint8(bpfBackendFlagBACKEND_READY | bpfBackendFlagBACKEND_NEW),
			})
		}
	}
	return k
}

func everyNAT(t *testing.T, f func(t *testing.T, k *programRig, in family)) {
	for _, in := range families {
		t.Run(in.name, func(t *testing.T) { f(t, natRig(t), in) })
	}
}

// forwards gives a packet of a client to the load balancer and returns the port it gets.
func (k *programRig) forwards(in family, packet []byte) uint16 {
	k.t.Helper()
	verdict, frame := k.run(k.Balance, framed(packet))
	if verdict != verdictXDPTX {
		k.t.Fatalf("verdict %d, drops %v; want it sent to the backend", verdict, k.reasons())
	}
	s := decode(k.t, frame)
	port := s.from.Port()
	if s.to != netip.AddrPortFrom(in.backend, backendPort) || s.from.Addr() != in.us || port < natFirst || port > natLast || s.ttl != 59 {
		k.t.Fatalf("%s -> %s with ttl %d", s.from, s.to, s.ttl)
	}
	if !bytes.Equal(frame[:6], []byte{2, 0, 0, 0, 0, 9}) || !bytes.Equal(frame[6:12], []byte{2, 0, 0, 0, 0, 8}) {
		k.t.Fatalf("link header %x", frame[:14])
	}
	return port
}

// answers gives a packet of a backend to the load balancer.
func (k *programRig) answers(packet []byte) []byte {
	k.t.Helper()
	verdict, frame := k.run(k.Balance, framed(packet))
	if verdict != verdictXDPRedirect {
		k.t.Fatalf("verdict %d, drops %v; want it sent to the client", verdict, k.reasons())
	}
	if !bytes.Equal(frame[:6], []byte{2, 0, 0, 0, 0, 7}) {
		k.t.Fatalf("link header %x", frame[:14])
	}
	return frame
}

func TestNATBothWays(t *testing.T) {
	everyNAT(t, func(t *testing.T, k *programRig, in family) {
		backend := netip.AddrPortFrom(in.backend, backendPort)
		port := k.forwards(in, tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", mssOption, ""))
		for _, flags := range []string{"A", "A", "FA"} {
			if again := k.forwards(in, tcpPacket(t, in.clientAddr(), in.vipAddr(), flags, nil, "odd")); again != port {
				t.Fatalf("port %d became %d", port, again)
			}
			s := decode(t, k.answers(tcpPacket(t, backend, netip.AddrPortFrom(in.us, port), flags, nil, "answer")))
			if s.from != in.vipAddr() || s.to != in.clientAddr() || s.ttl != 59 {
				t.Fatalf("the answer goes from %s to %s with ttl %d", s.from, s.to, s.ttl)
			}
		}
		// The flow table forgot it: the port is found again.
		key := bpfFlowKey{Client: wireAddress(in.client), Frontend: 1, Port: bpf.NetworkPort(clientPort)}
		if in.v6() {
			key.Frontend = 3
		}
		if f, ok := get[bpfFlowKey, bpfFlow](k, k.Flows, key); !ok || f.NatPort != bpf.NetworkPort(port) || f.State != uint8(bpfFlowStateFLOW_CLOSING) {
			t.Fatalf("flows has %+v %v", f, ok)
		}
		must(t, k.Flows.Delete(&key))
		if again := k.forwards(in, tcpPacket(t, in.clientAddr(), in.vipAddr(), "A", nil, "x")); again != port {
			t.Fatalf("port %d became %d when the flow table forgot it", port, again)
		}
		other := k.forwards(in, tcpPacket(t, netip.AddrPortFrom(in.client, clientPort+1), in.vipAddr(), "S", nil, ""))
		if other == port {
			t.Fatalf("two flows have port %d", port)
		}
		// What comes to those ports from elsewhere is the kernel's.
		for _, packet := range [][]byte{
			tcpPacket(t, netip.AddrPortFrom(in.backend, backendPort+1), netip.AddrPortFrom(in.us, port), "A", nil, "x"),
			tcpPacket(t, backend, netip.AddrPortFrom(in.us, natLast+1), "A", nil, "x"),
			udpPacket(t, backend, netip.AddrPortFrom(in.us, port), "x"),
			icmpError(t, in.router, in.us, udpPacket(t, netip.AddrPortFrom(in.us, port), backend, "x")),
		} {
			if verdict, frame := k.run(k.Balance, framed(packet)); verdict != verdictXDPPass || !bytes.Equal(frame, framed(packet)) {
				t.Errorf("verdict %d of what is no answer", verdict)
			}
		}
		dying := tcpPacket(t, backend, netip.AddrPortFrom(in.us, port), "A", nil, "x")
		if in.v6() {
			dying[7] = 1
		} else {
			dying[8] = 1
			checksum4(dying)
		}
		if verdict, _ := k.run(k.Balance, framed(dying)); verdict != verdictXDPDrop || k.dropped(bpfReasonREASON_LOOP) != 1 {
			t.Fatalf("at the end of its life: verdict %d, drops %v", verdict, k.reasons())
		}
	})
}

func TestNATDatagrams(t *testing.T) {
	everyNAT(t, func(t *testing.T, k *programRig, in family) {
		port := k.forwards(in, udpPacket(t, in.clientAddr(), in.vipAddr(), "question"))
		answer := udpPacket(t, netip.AddrPortFrom(in.backend, backendPort), netip.AddrPortFrom(in.us, port), "answer")
		if s := decode(t, k.answers(answer)); s.from != in.vipAddr() || s.to != in.clientAddr() {
			t.Fatalf("the answer goes from %s to %s", s.from, s.to)
		}
		if !in.v6() { // no checksum stays none
			answer[26], answer[27] = 0, 0
			if frame := k.answers(answer); frame[40] != 0 || frame[41] != 0 {
				t.Fatalf("a checksum of %x came from nowhere", frame[40:42])
			}
		}
		long := string(bytes.Repeat([]byte("a long question "), 200))
		var frames [][]byte
		for i, part := range fragmentsOf(t, udpPacket(t, in.clientAddr(), in.vipAddr(), long), 1200) {
			verdict, frame := k.run(k.Balance, framed(part))
			if verdict != verdictXDPTX {
				t.Fatalf("fragment %d: verdict %d, drops %v", i, verdict, k.reasons())
			}
			frames = append(frames, frame)
		}
		if s := decode(t, framed(joined(t, frames))); s.to != netip.AddrPortFrom(in.backend, backendPort) || s.from != netip.AddrPortFrom(in.us, port) {
			t.Fatalf("in fragments: %s -> %s", s.from, s.to)
		}
		frames = nil
		for _, part := range fragmentsOf(t, udpPacket(t, netip.AddrPortFrom(in.backend, backendPort), netip.AddrPortFrom(in.us, port), long), 1200) {
			frames = append(frames, k.answers(part))
		}
		if s := decode(t, framed(joined(t, frames))); s.from != in.vipAddr() || s.to != in.clientAddr() {
			t.Fatalf("the answer in fragments goes from %s to %s", s.from, s.to)
		}
	})
}

func TestNATErrorsBothWays(t *testing.T) {
	everyNAT(t, func(t *testing.T, k *programRig, in family) {
		backend := netip.AddrPortFrom(in.backend, backendPort)
		at := 14 + 20 + 8
		if in.v6() {
			at = 14 + 40 + 8
		}
		packets := func(kind string, from, to netip.AddrPort) []byte {
			if kind == "tcp" {
				return tcpPacket(t, from, to, "A", nil, "what is quoted")
			}
			return udpPacket(t, from, to, "what is quoted")
		}
		for _, kind := range []string{"tcp", "udp"} {
			verdict, _ := k.run(k.Balance, framed(icmpError(t, in.router, in.vip, packets(kind, in.vipAddr(), in.clientAddr()))))
			if verdict != verdictXDPDrop {
				t.Fatalf("%s: an error about no flow: verdict %d", kind, verdict)
			}
			var port uint16
			if kind == "tcp" {
				port = k.forwards(in, tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, ""))
			} else {
				port = k.forwards(in, udpPacket(t, in.clientAddr(), in.vipAddr(), "question"))
			}
			us := netip.AddrPortFrom(in.us, port)
			// A router on the way to the client.
			verdict, frame := k.run(k.Balance, framed(icmpError(t, in.router, in.vip, packets(kind, in.vipAddr(), in.clientAddr()))))
			if verdict != verdictXDPTX {
				t.Fatalf("%s: verdict %d, drops %v", kind, verdict, k.reasons())
			}
			s := decode(t, frame)
			if s.from.Addr() != in.us || s.to.Addr() != in.backend || !bytes.Equal(frame[at:], packets(kind, backend, us)) {
				t.Fatalf("%s: from %s to %s it quotes\n%x, want\n%x", kind, s.from, s.to, frame[at:], packets(kind, backend, us))
			}
			// The backend.
			frame = k.answers(icmpError(t, in.backend, in.us, packets(kind, us, backend)))
			s = decode(t, frame)
			if s.from.Addr() != in.vip || s.to.Addr() != in.client || !bytes.Equal(frame[at:], packets(kind, in.clientAddr(), in.vipAddr())) {
				t.Fatalf("%s: from %s to %s it quotes\n%x, want\n%x", kind, s.from, s.to, frame[at:], packets(kind, in.clientAddr(), in.vipAddr()))
			}
		}
	})
}

func TestNATPortsRunOut(t *testing.T) {
	everyNAT(t, func(t *testing.T, k *programRig, in family) {
		given := map[uint16]uint16{}
		refused := 0
		for port := range uint16(400) {
			verdict, frame := k.run(k.Balance, framed(tcpPacket(t, netip.AddrPortFrom(in.client, 1024+port), in.vipAddr(), "S", nil, "")))
			if verdict != verdictXDPTX {
				refused++
				continue
			}
			got := decode(t, frame).from.Port()
			if other, ok := given[got]; ok {
				t.Fatalf("clients %d and %d both have port %d", other, port, got)
			}
			given[got] = port
		}
		if len(given) != natCount || k.dropped(bpfReasonREASON_NO_PORT) != uint64(refused) {
			t.Fatalf("%d of %d ports were given, drops %v", len(given), natCount, k.reasons())
		}
		// One of them is silent for long enough.
		var key, idle bpfNatKey
		var value bpfNat
		for i := k.Nat.Iterate(); i.Next(&key, &value); {
			idle = key
		}
		must(t, k.Nat.Lookup(&idle, &value))
		value.Seen -= 300
		put(k, k.Nat, idle, value)
		got := 0
		for port := range uint16(100) {
			verdict, frame := k.run(k.Balance, framed(tcpPacket(t, netip.AddrPortFrom(in.client, 50000+port), in.vipAddr(), "S", nil, "")))
			if verdict == verdictXDPTX {
				got++
				if p := decode(t, frame).from.Port(); p != bpf.NetworkPort(idle.SourcePort) {
					t.Fatalf("port %d was given, but %d is idle", p, bpf.NetworkPort(idle.SourcePort))
				}
			}
		}
		if got != 1 {
			t.Fatalf("%d flows got the idle port", got)
		}
	})
}

// Nobody knows the client's neighbour, or the machine does not forward: the kernel is asked
// to send it, by what stands before the packet.
func TestNATLeavesUnknownNeighbourToKernel(t *testing.T) {
	everyNAT(t, func(t *testing.T, k *programRig, in family) {
		port := k.forwards(in, tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, ""))
		answer := tcpPacket(t, netip.AddrPortFrom(in.backend, backendPort), netip.AddrPortFrom(in.us, port), "SA", nil, "")
		version := "ipv4"
		if in.v6() {
			version = "ipv6"
		}
		must(t, os.WriteFile("/proc/sys/net/"+version+"/conf/lo/forwarding", []byte("0"), 0))
		verdict, frame := k.run(k.Balance, framed(answer))
		if verdict != verdictXDPPass {
			t.Fatalf("verdict %d, drops %v", verdict, k.reasons())
		}
		want := binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, 0x4661696c), 1) // struct resend
		if !bytes.HasPrefix(frame, want) {
			t.Fatalf("before the packet is %x, want %x", frame[:8], want)
		}
		if s := decode(t, frame[8:]); s.from != in.vipAddr() || s.to != in.clientAddr() {
			t.Fatalf("left to the kernel: %s -> %s", s.from, s.to)
		}
	})
}

// forwardLoopback sets whether the kernel answers where packets of others would go.
func forwardLoopback(value string) error {
	return errors.Join(os.WriteFile("/proc/sys/net/ipv4/conf/lo/forwarding", []byte(value), 0), os.WriteFile("/proc/sys/net/ipv6/conf/lo/forwarding", []byte(value), 0))
}
