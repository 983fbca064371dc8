package xdp

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
)

// segment is a wire to the machine at whose other end the test is.
type segment struct {
	t  *testing.T
	fd int
}

// openSegment makes eth0, with the backends' addresses, in the test's namespace.
func openSegment(t *testing.T) segment {
	t.Helper()
	for _, s := range []string{"all", "default"} {
		must(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+s+"/disable_ipv6", []byte("0"), 0))
	}
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", HardwareAddr: testMACs[0]}, PeerName: "far"}))
	var eth0 netlink.Link
	for _, name := range []string{"lo", "far", "eth0"} {
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
		eth0 = l
	}
	for _, f := range families {
		must(t, netlink.AddrAdd(eth0, &netlink.Addr{IPNet: single(f.backend), Flags: unix.IFA_F_NODAD}))
		must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: single(f.client), Scope: netlink.SCOPE_LINK}))
		must(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: eth0.Attrs().Index, IP: f.client.AsSlice(), State: unix.NUD_PERMANENT, HardwareAddr: testMACs[1]}))
	}
	far, err := net.InterfaceByName("far")
	must(t, err)
	all := uint16(unix.ETH_P_ALL)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(bpf.NetworkPort(all)))
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bpf.NetworkPort(all), Ifindex: far.Index}))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}))
	return segment{t, fd}
}

// handshake sends a SYN and returns the number that the machine answers with.
func (s segment) handshake(from, to netip.AddrPort) uint32 {
	s.t.Helper()
	b := make([]byte, 4096)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		_, err := unix.Write(s.fd, framed(tcpPacket(s.t, from, to, "S", mssOption, "")))
		must(s.t, err)
		for {
			n, err := unix.Read(s.fd, b)
			if err != nil {
				break // the time is over
			}
			p := gopacket.NewPacket(b[:n], layers.LayerTypeEthernet, gopacket.Default)
			if tcp, ok := p.TransportLayer().(*layers.TCP); ok && tcp.SYN && tcp.ACK && tcp.DstPort == layers.TCPPort(from.Port()) {
				return tcp.Seq
			}
		}
	}
	s.t.Fatal("the machine does not answer a SYN")
	return 0
}

// complete ends a handshake in which the machine answered with a number, and returns the connection.
func (s segment) complete(l net.Listener, from netip.AddrPort, number uint32) net.Conn {
	s.t.Helper()
	to, err := netip.ParseAddrPort(l.Addr().String())
	must(s.t, err)
	_, err = unix.Write(s.fd, framed(ackOf(s.t, from, to, number)))
	must(s.t, err)
	c, err := l.Accept()
	must(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// serverAt listens at a backend's address.
func serverAt(t *testing.T, at netip.AddrPort) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", at.String())
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// ackOf is the segment that completes a handshake, or would if number were right.
func ackOf(t *testing.T, from, to netip.AddrPort, number uint32) []byte {
	t.Helper()
	return answerTo(t, from, to, number, false)
}

// answerTo acknowledges what has a number, and ends the connection if fin says so.
func answerTo(t *testing.T, from, to netip.AddrPort, number uint32, fin bool) []byte {
	t.Helper()
	packet := tcpPacket(t, from, to, "A", nil, "")
	head := 20
	if from.Addr().Is6() {
		head = 40
	}
	tcp := &layers.TCP{SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()), Seq: 1001, Ack: number + 1, Window: 64000, ACK: true, FIN: fin}
	p := gopacket.NewPacket(framed(packet), layers.LayerTypeEthernet, gopacket.Default)
	must(t, tcp.SetNetworkLayerForChecksum(p.NetworkLayer()))
	b := gopacket.NewSerializeBuffer()
	must(t, tcp.SerializeTo(b, gopacket.SerializeOptions{ComputeChecksums: true, FixLengths: true}))
	return append(packet[:head:head], b.Bytes()...)
}

// Flows that no map knows are found by the machine's sockets, at every stage of a
// connection; a listener alone is none.
func TestTunnelAsksSockets(t *testing.T) {
	everyFamilyOut(t, func(t *testing.T, k *programRig, in family) {
		s := openSegment(t)
		backend := netip.AddrPortFrom(in.backend, backendPort)
		l := serverAt(t, backend)
		out := families[0]
		h := asked(idHere, idPeer)
		forget := func() {
			empty[bpfFlowKey, bpfOwned](t, k.Owned)
			empty[bpfFlowKey, bpfOwned](t, k.OwnedFresh)
		}
		segment := func() []byte { return tcpPacket(t, in.clientAddr(), in.vipAddr(), "A", nil, "x") }

		k.passes(out, h, segment(), families[0].peer)
		number := s.handshake(in.clientAddr(), backend)
		k.takes(in, out, h, segment(), backend) // half open
		forget()
		c := s.complete(l, in.clientAddr(), number)
		fits := ackOf(t, in.clientAddr(), in.vipAddr(), number)
		k.takes(in, out, h, fits, backend) // established
		forget()
		// An answer is sent before the kernel counts it as sent; with BIG TCP it has up to 512 KiB.
		for _, ahead := range []uint32{1000, 1 << 19} {
			k.takes(in, out, h, ackOf(t, in.clientAddr(), in.vipAddr(), number+ahead), backend)
			forget()
		}
		must(t, c.Close())                 // FIN_WAIT1: the test does not answer
		k.takes(in, out, h, fits, backend) // closing
		forget()
		k.takes(in, out, h, icmpError(t, in.client, in.vip, segmentFrom(t, in)), netip.AddrPortFrom(in.backend, 0))

		// Without room for half-open connections the machine answers with cookies.
		must(t, os.WriteFile("/proc/sys/net/ipv4/tcp_syncookies", []byte("2"), 0))
		other := netip.AddrPortFrom(in.client, clientPort+1)
		number = s.handshake(other, backend)
		k.passes(out, h, tcpPacket(t, other, in.vipAddr(), "A", nil, ""), families[0].peer)
		k.passes(out, h, ackOf(t, other, in.vipAddr(), number^0x10000), families[0].peer)
		k.passes(out, h, ackOf(t, netip.AddrPortFrom(in.client, clientPort+2), in.vipAddr(), number), families[0].peer)
		k.takes(in, out, h, ackOf(t, other, in.vipAddr(), number), backend)
	})
}

// A machine that has a VIP alone runs no programs, and notes nothing of the connections that
// begin. What was noted before of one from the same client's port, that it went to another
// machine, leads none of them away that a socket here has.
func TestTunnelFindsWhatBeganUnnoticed(t *testing.T) {
	everyFamilyOut(t, func(t *testing.T, k *programRig, in family) {
		s := openSegment(t)
		backend := netip.AddrPortFrom(in.backend, backendPort)
		l := serverAt(t, backend)
		out := families[0]
		k.passes(out, asked(idFrozen, idPeer), tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, ""), out.peer)
		number := s.handshake(in.clientAddr(), backend)
		s.complete(l, in.clientAddr(), number)
		segment := ackOf(t, in.clientAddr(), in.vipAddr(), number)
		k.takes(in, out, hopping{at: 1, count: 3, ids: []uint64{idPeer, idHere, idThird}}, segment, backend)
		if o, ok := get[bpfFlowKey, bpfOwned](k, k.Owned, flowKeyOf(in, 0)); !ok || o.Id != idHere {
			t.Errorf("owned has %+v %v", o, ok)
		}
	})
}

// A server that ends connections leaves their ports to the client, whose next connection
// may begin at another machine: neither the socket that waits nor the map may keep it here.
func TestTunnelLetsGoOfPortsThatAreUsedAgain(t *testing.T) {
	everyFamilyOut(t, func(t *testing.T, k *programRig, in family) {
		s := openSegment(t)
		backend := netip.AddrPortFrom(in.backend, backendPort)
		l := serverAt(t, backend)
		out := families[0]
		k.takes(in, out, asked(idHere, idPeer), tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, ""), backend)
		number := s.handshake(in.clientAddr(), backend)
		segment := func(flags string) []byte { return answerTo(t, in.clientAddr(), in.vipAddr(), number, flags == "FA") }
		c := s.complete(l, in.clientAddr(), number)
		k.takes(in, out, asked(idHere, idPeer), segment("A"), backend)
		must(t, c.Close())
		k.takes(in, out, asked(idHere, idPeer), segment("FA"), backend) // and is closing from now on
		k.takes(in, out, asked(idHere, idPeer), segment("A"), backend)  // the server has not heard
		_, err := unix.Write(s.fd, framed(answerTo(t, in.clientAddr(), backend, number+1, true)))
		must(t, err)
		for deadline := time.Now().Add(30 * time.Second); !waits(t, in.clientAddr()); {
			if time.Now().After(deadline) {
				t.Fatal("the socket does not wait")
			}
			time.Sleep(time.Millisecond)
		}
		ends := func() {
			t.Helper()
			h := k.passes(families[1], hopping{at: 1, count: 3, ids: []uint64{idPeer, idHere, idThird}}, segment("A"), families[1].third)
			if h.at != 2 || h.ids[0] != idHere {
				t.Errorf("who has it then is asked %+v, want this machine to be asked in the end", h)
			}
		}
		k.passes(out, asked(idHere, idPeer), segment("A"), out.peer)
		ends()
		empty[bpfFlowKey, bpfOwned](t, k.Owned)
		empty[bpfFlowKey, bpfOwned](t, k.OwnedFresh)
		k.passes(out, asked(idHere, idPeer), segment("A"), out.peer)
		ends()
		// Nobody else has it: what is late is for the socket that waits.
		k.takes(in, out, asked(idHere), segment("FA"), backend)
	})
}

// A client that was cut off gives its connection up, and the next one with its addresses may
// begin at another machine: neither the map nor the socket that was left behind may keep it
// here.
func TestTunnelLetsGoOfFlowsThatWereGivenUp(t *testing.T) {
	everyFamilyOut(t, func(t *testing.T, k *programRig, in family) {
		s := openSegment(t)
		backend := netip.AddrPortFrom(in.backend, backendPort)
		out, h := families[0], asked(idHere, idPeer)
		fits := func(number uint32) []byte { return ackOf(t, in.clientAddr(), in.vipAddr(), number) }
		// later has the flow be heard of some seconds earlier, or later, than it was: the clock
		// of a busy machine must not decide which.
		later := func(seconds int) {
			t.Helper()
			key := flowKeyOf(in, 0)
			o, ok := get[bpfFlowKey, bpfOwned](k, k.Owned, key)
			if !ok {
				t.Fatal("nobody owns the flow")
			}
			o.Seen += uint32(seconds)
			put(k, k.Owned, key, o)
		}
		silent := func() { t.Helper(); later(-5) }
		k.takes(in, out, h, tcpPacket(t, in.clientAddr(), in.vipAddr(), "S", nil, ""), backend)
		k.takes(in, out, h, fits(77), backend)
		silent()
		k.takes(in, out, h, fits(78), backend) // no socket is seen: it may be a container's

		l := serverAt(t, backend)
		number := s.handshake(in.clientAddr(), backend)
		s.complete(l, in.clientAddr(), number)
		later(1000)
		k.takes(in, out, h, fits(number+1<<30), backend) // just heard of: not asked again
		silent()
		if asks := k.passes(out, h, fits(number+1<<30), out.peer); asks.at != 1 || asks.ids[0] != idHere {
			t.Errorf("the next is asked %+v, want this machine to be asked in the end", asks)
		}
		k.passes(out, h, fits(number+1<<21), out.peer) // acknowledges what was never sent
		k.passes(out, h, fits(number-1<<25), out.peer)
		k.takes(in, out, hopping{count: 2, flags: uint8(bpfHopFlagHOP_FINAL), ids: h.ids}, fits(number+1<<30), backend) // nobody has it
		k.takes(in, out, h, fits(number), backend)
		k.takes(in, out, h, fits(number-1<<20), backend) // late, or repeated
		empty[bpfFlowKey, bpfOwned](t, k.Owned)
		k.passes(out, h, fits(number+1<<30), out.peer)
		k.takes(in, out, h, fits(number), backend)
	})
}

// waits says whether a socket of the test's namespace is in TIME_WAIT with a client.
func waits(t *testing.T, client netip.AddrPort) bool {
	t.Helper()
	file := "/proc/thread-self/net/tcp"
	if client.Addr().Is6() {
		file += "6"
	}
	b, err := os.ReadFile(file)
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 3 && f[3] == "06" && strings.HasSuffix(f[2], fmt.Sprintf(":%04X", client.Port())) {
			return true
		}
	}
	return false
}

// segmentFrom is what the VIP sent to the client, as errors quote it.
func segmentFrom(t *testing.T, in family) []byte {
	t.Helper()
	return tcpPacket(t, in.vipAddr(), in.clientAddr(), "A", nil, "an answer")
}

// Machines that know different things about flows and each other never pass a packet round
// and round.
func TestTunnelHopsEnd(t *testing.T) {
	needsRoot(t)
	f := families[0]
	endpoints := []netip.Addr{f.us, f.peer, f.third}
	ids := []uint64{idHere, idPeer, idThird, idGone}
	var machines []*programRig
	for range endpoints {
		machines = append(machines, loadSmall(t))
	}
	longest := 0
	for world := range uint64(60) {
		// A small generator instead of math/rand: the worlds must be the same for ever.
		state := world*0x9E3779B97F4A7C15 + 1
		pick := func(n int) int {
			state ^= state << 13
			state ^= state >> 7
			state ^= state << 17
			return int(state % uint64(n))
		}
		makeWorld(machines, f, endpoints, ids, pick)
		for range 200 {
			h := hopping{count: 3, ids: []uint64{ids[pick(4)], ids[pick(4)], ids[pick(4)]}}
			if pick(2) == 0 {
				h = asked(ids[pick(4)])
			}
			from := netip.AddrPortFrom(f.client, uint16(clientPort+pick(8)))
			at := pick(3)
			frame := tunnelled(t, endpoints[(at+1)%3], endpoints[at], h, tcpPacket(t, from, f.vipAddr(), []string{"S", "A"}[pick(2)], nil, ""))
			for steps := 1; ; steps++ {
				verdict, out := machines[at].run(machines[at].TunnelIn, frame)
				if verdict != verdictRedirect {
					longest = max(longest, steps)
					break
				}
				if steps == 32 { // a row three times over, where somebody is told of another, and a search
					t.Fatalf("world %d: a packet that asked %+v is passed on and on", world, h)
				}
				_, to, _, _, _ := tunnelOf(t, out)
				frame, at = out, -1
				for i, e := range endpoints {
					if e == to {
						at = i
					}
				}
				if at < 0 {
					t.Fatalf("passed on to %s, which is nobody", to)
				}
			}
		}
	}
	t.Logf("the longest way had %d machines", longest)
	if longest < 4 {
		t.Error("no packet went far: this tries nothing")
	}
}

// makeWorld gives machines arbitrary ideas about who has which backend. What they believe
// about flows is left of earlier worlds.
func makeWorld(machines []*programRig, f family, endpoints []netip.Addr, ids []uint64, pick func(int) int) {
	for i, k := range machines {
		put(k, k.Settings, uint32(0), bpfSettings{Tunnel4: wireAddress(endpoints[i])})
		put(k, k.NextHops, uint32(1), bpfNextHop{Device: 1, Mtu: 1500})
		put(k, k.Frontends, bpfFrontendKey{Vip: wireAddress(f.vip), Port: bpf.NetworkPort(vipPort), Protocol: unix.IPPROTO_TCP}, bpfFrontend{Index: 1})
		for _, e := range endpoints {
			put(k, k.Machines, wireAddress(e), uint32(1))
		}
		empty[bpfLocalKey, bpfLocal](k.t, k.Locals)
		empty[uint64, bpfHop](k.t, k.Hops)
		empty[bpfLocalKey, uint64](k.t, k.Circle)
		for _, id := range ids {
			if pick(3) == 0 { // here, serving or not
				put(k, k.Locals, bpfLocalKey{Id: id, Frontend: 1}, bpfLocal{
					Address: wireAddress(f.backend), Port: bpf.NetworkPort(backendPort), Flags: uint8(pick(2) * int(bpfBackendFlagBACKEND_READY|bpfBackendFlagBACKEND_NEW)),
				})
			}
			if pick(3) > 0 {
				put(k, k.Circle, bpfLocalKey{Id: id, Frontend: 1}, ids[pick(len(ids))])
			}
			if pick(4) > 0 {
				put(k, k.Hops, id, bpfHop{Remote: wireAddress(endpoints[pick(len(endpoints))]), NextHop: 1})
			}
		}
	}
}
