package xdp

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
)

// Ids of the backends of the tests: two here, the others at peer and third. gone is at
// no machine that is known.
const (
	idHere   = 0x1111111111111111
	idHere2  = 0x2222222222222222
	idPeer   = 0x3333333333333333
	idThird  = 0x4444444444444444
	idGone   = 0x5555555555555555
	idProxy  = 0x6666666666666666
	idFrozen = 0x7777777777777777 // here, and serves nobody
)

const (
	frontendIndex = 9
	vipPort       = 80
	backendPort   = 8080
	clientPort    = 40000
)

// decapRig is a machine with backends of a frontend for each transport and family; of VIP
// 2 one of them has the same backend.
func decapRig(t *testing.T) *programRig {
	k := loadAlone(t)
	settings := bpfSettings{Tunnel4: wireAddress(families[0].us), Tunnel6: wireAddress(families[1].us)}
	put(k, k.Settings, uint32(0), settings)
	for i, f := range families {
		put(k, k.Machines, wireAddress(f.us), uint32(0))
		put(k, k.Machines, wireAddress(f.peer), uint32(1))
		for n, vip := range []netip.Addr{f.vip, f.vip2} {
			for j, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
				index := uint32(frontendIndex + 10*i + j + 2*n)
				put(k, k.Frontends, bpfFrontendKey{Vip: wireAddress(vip), Port: bpf.NetworkPort(vipPort), Protocol: protocol}, bpfFrontend{Index: index})
				usual := uint8(bpfBackendFlagBACKEND_HERE | bpfBackendFlagBACKEND_READY | bpfBackendFlagBACKEND_NEW)
				put(k, k.Locals, bpfLocalKey{Id: idHere, Frontend: index}, bpfLocal{Address: wireAddress(f.backend), Port: bpf.NetworkPort(backendPort), Flags: usual})
				put(k, k.Locals, bpfLocalKey{Id: idHere2, Frontend: index}, bpfLocal{Address: wireAddress(f.backend2), Port: bpf.NetworkPort(backendPort), Flags: usual})
				put(k, k.Locals, bpfLocalKey{Id: idFrozen, Frontend: index}, bpfLocal{Address: wireAddress(f.backend2), Port: bpf.NetworkPort(backendPort + 1)})
				put(k, k.Locals, bpfLocalKey{Id: idProxy, Frontend: index}, bpfLocal{Address: wireAddress(vip), Port: bpf.NetworkPort(vipPort), Flags: usual | uint8(bpfBackendFlagBACKEND_PROXY)})
			}
		}
	}
	// Hops lead over IPv4 unless a test says otherwise.
	put(k, k.NextHops, uint32(1), bpfNextHop{Device: 1, Mtu: 1500, To: [6]uint8{2, 0, 0, 0, 0, 9}, From: [6]uint8{2, 0, 0, 0, 0, 8}})
	put(k, k.Hops, uint64(idPeer), bpfHop{Remote: wireAddress(families[0].peer), NextHop: 1})
	put(k, k.Hops, uint64(idThird), bpfHop{Remote: wireAddress(families[1].third), NextHop: 1})
	return k
}

// outside calls f for every pair of a family inside and one outside.
func everyFamily(t *testing.T, f func(t *testing.T, k *programRig, in, out family)) {
	for _, in := range families {
		for _, out := range families {
			t.Run(in.name+"in"+out.name, func(t *testing.T) { f(t, decapRig(t), in, out) })
		}
	}
}

func (f family) clientAddr() netip.AddrPort { return netip.AddrPortFrom(f.client, clientPort) }
func (f family) vipAddr() netip.AddrPort    { return netip.AddrPortFrom(f.vip, vipPort) }

var mssOption = []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{0x05, 0xb4}}}

// give runs tunnel_in on a packet in a tunnel.
func (k *programRig) give(out family, h hopping, packet []byte) (uint32, []byte) {
	k.t.Helper()
	return k.run(k.TunnelIn, tunnelled(k.t, out.peer, out.us, h, packet))
}

// takes says that a packet is taken out and goes to a backend.
func (k *programRig) takes(in, out family, h hopping, packet []byte, to netip.AddrPort) {
	k.t.Helper()
	verdict, frame := k.give(out, h, packet)
	if verdict != verdictNext {
		k.t.Fatalf("verdict %d, drops %v; want the packet taken", int32(verdict), k.reasons())
	}
	s := decode(k.t, frame)
	if s.to != to || s.from.Addr() != in.client {
		k.t.Fatalf("%s -> %s came out, want it for %s", s.from, s.to, to)
	}
	if want := len(packet) + 14; len(frame) != want {
		k.t.Fatalf("%d bytes came out, want %d", len(frame), want)
	}
}

// passes says that a packet is sent to another machine, and returns what it is asked.
func (k *programRig) passes(out family, h hopping, packet []byte, to netip.Addr) hopping {
	k.t.Helper()
	verdict, frame := k.give(out, h, packet)
	if verdict != verdictRedirect {
		k.t.Fatalf("verdict %d, drops %v; want the packet passed on", int32(verdict), k.reasons())
	}
	from, got, ttl, asks, inner := tunnelOf(k.t, frame)
	us := families[0].us
	if to.Is6() {
		us = families[1].us
	}
	if got != to || from != us || ttl != 59 {
		k.t.Fatalf("passed on from %s to %s with ttl %d, want from %s to %s with 59", from, got, ttl, us, to)
	}
	if !bytes.Equal(inner[14:], packet) {
		k.t.Fatal("the packet in the tunnel changed")
	}
	return asks
}

func (k *programRig) drops(out family, h hopping, packet []byte, reason bpfReason) {
	k.t.Helper()
	before := k.dropped(reason)
	if verdict, _ := k.give(out, h, packet); verdict != verdictDrop || k.dropped(reason) != before+1 {
		k.t.Fatalf("verdict %d, drops %v; want it dropped for %s", int32(verdict), k.reasons(), reasons[reason])
	}
}

func (k *programRig) reasons() map[string]uint64 {
	all := map[string]uint64{}
	for r := range bpfReasonREASON_COUNT {
		if n := k.dropped(r); n > 0 {
			all[reasons[r]] = n
		}
	}
	return all
}

// flowKeyOf is the key of a flow of the frontend for a protocol (0 TCP, 1 UDP).
func flowKeyOf(f family, protocol int) bpfFlowKey {
	index := uint32(frontendIndex + protocol)
	if f.v6() {
		index += 10
	}
	return bpfFlowKey{Client: wireAddress(f.client), Frontend: index, Port: bpf.NetworkPort(clientPort)}
}

func restoreKeyOf(f family, backend netip.Addr, protocol uint8) bpfRestoreKey {
	return bpfRestoreKey{
		Backend: wireAddress(backend), Client: wireAddress(f.client), BackendPort: bpf.NetworkPort(backendPort), ClientPort: bpf.NetworkPort(clientPort), Protocol: protocol,
	}
}

func TestTunnelTakesConnection(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		to := netip.AddrPortFrom(in.backend, backendPort)
		h := asked(idHere, idPeer, idThird)
		k.takes(in, out, h, tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", mssOption, ""), to)
		o, ok := get[bpfFlowKey, bpfOwned](k, k.OwnedFresh, flowKeyOf(in, 0))
		if !ok || o.Id != idHere || o.State != uint8(bpfFlowStateFLOW_NEW) {
			t.Fatalf("after the SYN owned_fresh has %+v %v", o, ok)
		}
		if _, ok := get[bpfFlowKey, bpfOwned](k, k.Owned, flowKeyOf(in, 0)); ok {
			t.Fatal("a SYN alone got into owned")
		}
		key := restoreKeyOf(in, in.backend, unix.IPPROTO_TCP)
		r, ok := get[bpfRestoreKey, bpfRestore](k, k.RestoresFresh, key)
		overhead := uint16(20 + 8 + 8 + 32 + 20 + 20)
		if in.v6() {
			overhead += 20
		}
		if out.v6() {
			overhead += 20
		}
		if !ok || r.Vip.address() != in.vip || r.Port != bpf.NetworkPort(vipPort) || r.Mss != 1500-overhead {
			t.Fatalf("after the SYN restores_fresh has %+v %v, want an MSS of %d", r, ok, 1500-overhead)
		}
		// Whoever is asked, and by whomever: it owns the flow now.
		for _, flags := range []string{"A", "A", "FA"} {
			k.takes(in, out, asked(idPeer, idThird, idGone), tcpPacket(t, in.clientAddr(), in.vipAddr(), flags, nil, "GET /"), to)
		}
		if _, ok := get[bpfFlowKey, bpfOwned](k, k.OwnedFresh, flowKeyOf(in, 0)); ok {
			t.Fatal("the flow is still in owned_fresh")
		}
		o, ok = get[bpfFlowKey, bpfOwned](k, k.Owned, flowKeyOf(in, 0))
		if !ok || o.Id != idHere || o.State != uint8(bpfFlowStateFLOW_CLOSING) {
			t.Fatalf("in the end owned has %+v %v", o, ok)
		}
		moved, ok := get[bpfRestoreKey, bpfRestore](k, k.Restores, key)
		if !ok || moved.Mss != r.Mss || moved.Vip != r.Vip {
			t.Fatalf("in the end restores has %+v %v", moved, ok)
		}
		// Closed: the next connection of the port goes where it is asked to go.
		k.takes(in, out, asked(idHere2), tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, ""), netip.AddrPortFrom(in.backend2, backendPort))
	})
}

func TestTunnelRepeatedSYNStays(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		syn := tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, "")
		to := netip.AddrPortFrom(in.backend, backendPort)
		k.takes(in, out, asked(idHere), syn, to)
		k.takes(in, out, asked(idHere2, idHere, idPeer), syn, to)
	})
}

func TestTunnelSecondChance(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		ack := tcpPacket(t, in.clientAddr(), in.vipAddr(), "A", nil, "more")
		to := netip.AddrPortFrom(in.backend, backendPort)
		h := k.passes(out, asked(idHere, idPeer, idThird), ack, families[0].peer)
		if h.at != 1 || h.flags != 0 || h.count != 3 {
			t.Fatalf("the second is asked %+v", h)
		}
		// Both that are here have nothing; the third is at another machine, over IPv6.
		h = k.passes(out, asked(idHere, idHere2, idThird), ack, families[1].third)
		if h.at != 2 || h.flags != 0 {
			t.Fatalf("the third is asked %+v", h)
		}
		// The last one: back to the first.
		h = k.passes(out, hopping{at: 2, count: 3, ids: []uint64{idPeer, idThird, idHere}}, ack, families[0].peer)
		if h.at != 0 || h.flags != uint8(bpfHopFlagHOP_FINAL) {
			t.Fatalf("in the end the first is asked %+v", h)
		}
		// In the end it is taken, and the kernel says what it thinks of it. That does not
		// make the flow one of this machine.
		k.takes(in, out, hopping{count: 3, flags: uint8(bpfHopFlagHOP_FINAL), ids: []uint64{idHere, idPeer, idThird}}, ack, to)
		k.takes(in, out, asked(idHere), ack, to)
		if _, ok := get[bpfFlowKey, bpfOwned](k, k.Owned, flowKeyOf(in, 0)); ok {
			t.Fatal("nobody's flow got an owner")
		}
		k.drops(out, hopping{count: 1, flags: uint8(bpfHopFlagHOP_FINAL), ids: []uint64{idPeer}}, ack, bpfReasonREASON_NOT_HERE)
		k.drops(out, asked(idGone), ack, bpfReasonREASON_NOT_HERE)
	})
}

// Rows have room for three. When nobody in one has a flow, all other proxies are asked before
// somebody takes it in the end.
func TestTunnelAsksThoseThatAreNotInTheRow(t *testing.T) {
	needsRoot(t)
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		segment := tcpPacket(t, in.clientAddr(), in.vipAddr(), "A", nil, "")
		row := hopping{at: 1, count: 2, ids: []uint64{idPeer, idHere, 0}}
		want := func(got, want hopping) {
			t.Helper()
			if got.at != want.at || got.count != want.count || got.flags != want.flags || !slices.Equal(got.ids, want.ids) {
				t.Errorf("the next is asked %+v, want %+v", got, want)
			}
		}
		final := uint8(bpfHopFlagHOP_FINAL)
		want(k.passes(out, row, segment, families[0].peer), hopping{count: 2, flags: final, ids: row.ids}) // the row has room for all

		index := flowKeyOf(in, 0).Frontend
		ring := []uint64{idHere, idGone, idPeer, idThird}
		for i, id := range ring {
			put(k, k.Circle, bpfLocalKey{Id: id, Frontend: index}, ring[(i+1)%len(ring)])
		}
		around := uint8(bpfHopFlagHOP_SEARCH)
		// The one that nobody knows the way to is left out, and so is the one that was asked.
		want(k.passes(out, row, segment, families[1].third), hopping{at: 1, count: 3, flags: around, ids: []uint64{idPeer, idThird, idHere}})
		// Here the circle closes: the first takes it in the end.
		search := hopping{at: 1, count: 3, flags: around, ids: []uint64{idPeer, idHere, idThird}}
		want(k.passes(out, search, segment, families[0].peer), hopping{count: 3, flags: around | final, ids: search.ids})
		// A program that does not know of the search sends it back to who began.
		search = hopping{at: 2, count: 3, flags: around, ids: []uint64{idPeer, idThird, idHere}}
		want(k.passes(out, search, segment, families[0].peer), hopping{count: 3, flags: around | final, ids: search.ids})
		// A new flow is not searched for.
		syn := tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, "")
		k.takes(in, out, hopping{at: 1, count: 3, flags: around, ids: []uint64{idPeer, idHere, idThird}}, syn, netip.AddrPortFrom(in.backend, backendPort))
		// Now the flow is here.
		k.takes(in, out, hopping{at: 1, count: 3, flags: around, ids: []uint64{idPeer, idHere, idThird}}, segment, netip.AddrPortFrom(in.backend, backendPort))
	})
}

func TestTunnelSYNGoesOnWhenUnready(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		syn := tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, "")
		ack := tcpPacket(t, in.clientAddr(), in.vipAddr(), "A", nil, "")
		h := k.passes(out, asked(idFrozen, idPeer), syn, families[0].peer)
		if h.at != 1 {
			t.Fatalf("the second is asked %+v", h)
		}
		// A load balancer that only knows the one it chose is led to who took it.
		h = k.passes(out, asked(idFrozen), ack, families[0].peer)
		if h.flags != uint8(bpfHopFlagHOP_MOVED) || h.at != 0 || h.count != 1 || h.ids[0] != idPeer {
			t.Fatalf("who has it is asked %+v", h)
		}
		h = k.passes(out, hopping{count: 1, flags: h.flags, ids: []uint64{idFrozen}}, ack, families[0].peer)
		if h.flags != uint8(bpfHopFlagHOP_MOVED|bpfHopFlagHOP_AGAIN) {
			t.Fatalf("the second time it is asked %+v", h)
		}
		// Who has it comes before those that are left to ask; last is who was to take it in the end.
		h = k.passes(out, hopping{at: 1, count: 3, ids: []uint64{idGone, idFrozen, idThird}}, ack, families[0].peer)
		if h.flags != uint8(bpfHopFlagHOP_MOVED) || h.at != 0 || h.count != 3 || h.ids[0] != idPeer || h.ids[1] != idThird || h.ids[2] != idGone {
			t.Fatalf("among others it is asked %+v", h)
		}
		h = k.passes(out, hopping{at: 2, count: 3, flags: uint8(bpfHopFlagHOP_FINAL), ids: []uint64{idFrozen, idThird, idFrozen}}, ack, families[0].peer)
		if h.flags != uint8(bpfHopFlagHOP_MOVED|bpfHopFlagHOP_FINAL) || h.count != 1 || h.ids[0] != idPeer {
			t.Fatalf("in the end it is asked %+v", h)
		}
		// One that asks it anyway is not led: the flow that was passed on may be another one's
		// past, of the same client port.
		if h := k.passes(out, asked(idFrozen, idThird, idPeer), ack, families[1].third); h.flags != 0 || h.at != 1 || h.count != 3 || h.ids[0] != idFrozen {
			t.Fatalf("the second is asked %+v", h)
		}
		// A third time would be a loop.
		k.takes(in, out, hopping{count: 1, flags: uint8(bpfHopFlagHOP_MOVED | bpfHopFlagHOP_AGAIN), ids: []uint64{idHere}}, ack, netip.AddrPortFrom(in.backend, backendPort))
	})
}

func TestTunnelDatagrams(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		packet := udpPacket(t, in.clientAddr(), in.vipAddr(), "question")
		to := netip.AddrPortFrom(in.backend, backendPort)
		// While backends change the others are asked first.
		k.passes(out, asked(idHere, idPeer), packet, families[0].peer)
		k.takes(in, out, asked(idHere), packet, to)
		k.takes(in, out, asked(idHere2), packet, to) // it began at the first
		k.takes(in, out, asked(idPeer, idThird, idGone), packet, to)
		if o, ok := get[bpfFlowKey, bpfOwned](k, k.Owned, flowKeyOf(in, 1)); !ok || o.Id != idHere {
			t.Fatalf("owned has %+v %v", o, ok)
		}
		if _, ok := get[bpfRestoreKey, bpfRestore](k, k.Restores, restoreKeyOf(in, in.backend, unix.IPPROTO_UDP)); !ok {
			t.Fatal("nothing to restore")
		}
		if !in.v6() { // no checksum stays no checksum (RFC 768)
			packet[26], packet[27] = 0, 0
			verdict, frame := k.give(out, asked(idHere), packet)
			if verdict != verdictNext || frame[14+26] != 0 || frame[14+27] != 0 {
				t.Fatalf("verdict %d, checksum %x", int32(verdict), frame[40:42])
			}
		}
	})
}

func TestTunnelProxyKeepsVIP(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		k.takes(in, out, asked(idProxy), tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, ""), in.vipAddr())
		key := restoreKeyOf(in, in.vip, unix.IPPROTO_TCP)
		key.BackendPort = bpf.NetworkPort(vipPort)
		if r, ok := get[bpfRestoreKey, bpfRestore](k, k.RestoresFresh, key); !ok || r.Mss == 0 {
			t.Fatalf("restores_fresh has %+v %v", r, ok)
		}
		k.takes(in, out, asked(idPeer), tcpPacket(t, in.clientAddr(), in.vipAddr(), "A", nil, ""), in.vipAddr())
		// Nobody listens: the next is asked. While the agent says so, whoever listens.
		third := netip.AddrPortFrom(in.client, clientPort+2)
		k.passes(out, asked(idProxy, idPeer), tcpPacket(t, third, in.vipAddr(), "S", nil, ""), families[0].peer)
		must(t, os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("0"), 0))
		lo, err := netlink.LinkByName("lo")
		must(t, err)
		must(t, netlink.LinkSetUp(lo))
		must(t, netlink.AddrAdd(lo, &netlink.Addr{IPNet: single(in.vip), Flags: unix.IFA_F_NODAD}))
		l, err := net.Listen("tcp", in.vipAddr().String())
		must(t, err)
		defer func() { _ = l.Close() }()
		fourth := netip.AddrPortFrom(in.client, clientPort+3)
		k.takes(in, out, asked(idProxy, idPeer), tcpPacket(t, fourth, in.vipAddr(), "S", nil, ""), in.vipAddr())
		f := bpfFrontendKey{Vip: wireAddress(in.vip), Port: bpf.NetworkPort(vipPort), Protocol: unix.IPPROTO_TCP}
		v, _ := get[bpfFrontendKey, bpfFrontend](k, k.Frontends, f)
		v.Flags |= uint16(bpfFrontendFlagFRONTEND_UNREADY)
		put(k, k.Frontends, f, v)
		other := netip.AddrPortFrom(in.client, clientPort+1)
		k.passes(out, asked(idProxy, idPeer), tcpPacket(t, other, in.vipAddr(), "S", nil, ""), families[0].peer)
	})
}

func TestTunnelTwoVIPsOneClientPort(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		to := netip.AddrPortFrom(in.backend, backendPort)
		vip2 := netip.AddrPortFrom(in.vip2, vipPort)
		k.takes(in, out, asked(idHere), tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, ""), to)
		k.takes(in, out, asked(idHere), tcpPacket(t, in.clientAddr(), in.vipAddr(), "A", nil, ""), to)
		k.drops(out, asked(idHere), tcpPacket(t, in.clientAddr(), vip2, "S", nil, ""), bpfReasonREASON_AMBIGUOUS)
		k.takes(in, out, asked(idHere), tcpPacket(t, in.clientAddr(), in.vipAddr(), "A", nil, ""), to)
		k.takes(in, out, asked(idHere2), tcpPacket(t, in.clientAddr(), vip2, "S", nil, ""), netip.AddrPortFrom(in.backend2, backendPort))
	})
}

func TestTunnelErrorsFollowTheirFlow(t *testing.T) {
	everyFamily(t, func(t *testing.T, k *programRig, in, out family) {
		for j, kind := range []string{"tcp", "udp"} {
			var begin, answer []byte
			if kind == "tcp" {
				begin = tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, "")
				answer = tcpPacket(t, in.vipAddr(), in.clientAddr(), "A", nil, "an answer that is too long for somebody")
			} else {
				begin = udpPacket(t, in.clientAddr(), in.vipAddr(), "question")
				answer = udpPacket(t, in.vipAddr(), in.clientAddr(), "an answer that is too long for somebody")
			}
			packet := icmpError(t, in.router, in.vip, answer)
			h := asked(idHere, idPeer, idThird)
			if kind == "tcp" {
				k.passes(out, h, packet, families[0].peer)
				k.drops(out, hopping{count: 3, flags: uint8(bpfHopFlagHOP_FINAL), ids: h.ids}, packet, bpfReasonREASON_ICMP_UNKNOWN)
			}
			k.takes(in, out, asked(idHere), begin, netip.AddrPortFrom(in.backend, backendPort))
			verdict, frame := k.give(out, asked(idPeer, idHere, idThird), packet)
			if verdict != verdictNext {
				t.Fatalf("%s: verdict %d, drops %v", kind, int32(verdict), k.reasons())
			}
			s := decode(t, frame) // its own checksum
			if s.to.Addr() != in.backend || s.from.Addr() != in.router {
				t.Fatalf("%s: the error goes from %s to %s", kind, s.from, s.to)
			}
			at := 14 + 20 + 8
			if in.v6() {
				at = 14 + 40 + 8
			}
			// What is quoted is the packet as the backend sent it, byte for byte.
			want := tcpPacket(t, netip.AddrPortFrom(in.backend, backendPort), in.clientAddr(), "A", nil, "an answer that is too long for somebody")
			if j == 1 {
				want = udpPacket(t, netip.AddrPortFrom(in.backend, backendPort), in.clientAddr(), "an answer that is too long for somebody")
			}
			if !bytes.Equal(frame[at:], want) {
				t.Fatalf("%s: the error quotes\n%x, want\n%x", kind, frame[at:], want)
			}
			// Eight bytes of the packet's payload are enough (RFC 792), and no padding counts.
			short := icmpError(t, in.router, in.vip, answer[:at-14-8+8])
			if verdict, frame = k.give(out, asked(idHere), short); verdict != verdictNext {
				t.Fatalf("%s: short: verdict %d, drops %v", kind, int32(verdict), k.reasons())
			}
			decode(t, frame)
		}
		k.drops(out, asked(idHere), icmpError(t, in.router, in.vip, []byte("nonsense, and not a packet at all, is quoted here")), bpfReasonREASON_ICMP_UNKNOWN)
	})
}
