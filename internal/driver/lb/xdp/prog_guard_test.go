package xdp

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

// At a VIP that is guarded nothing but frontends is reached, whatever the machine serves.
func TestProgGuard(t *testing.T) {
	for _, c := range []struct{ tcp, udp, client string }{{tcp4, udp4, cli4}, {tcp6, udp6, cli6}} {
		w := newLB(t)
		web, dns := w.serve(c.tcp, bpfModeMODE_IPIP, "10.0.1.1"), w.serve(c.udp, bpfModeMODE_GENEVE, "10.0.1.2")
		at := func(k model.FrontendKey, port uint16) string {
			k.Port = port
			return k.String()
		}
		ssh, other := at(web.key, 22), at(web.key, 443)
		unguarded := [][]byte{from(c.client, ssh, "S").bytes(), from(c.client, ssh, "A").bytes(), from(c.client, at(dns.key, 123), "").bytes()}
		for _, p := range unguarded {
			w.leaves(p)
		}
		put(w.programRig, w.Vips, wireAddress(web.key.VIP), uint32(vipGuarded|2))
		for _, p := range unguarded {
			w.dropsAs(p, bpfReasonREASON_NO_FRONTEND)
		}
		w.goes(from(c.client, c.tcp, "S").bytes(), web.servers[0])
		w.goes(from(c.client, c.udp, "").bytes(), dns.servers[0])
		tagged := from(c.client, ssh, "S")
		tagged.tags = []uint16{5}
		w.dropsAs(tagged.bytes(), bpfReasonREASON_NO_FRONTEND)
		// The first fragment has the ports; the others have no first one that is known.
		for i, p := range pieces(fill(from(c.client, at(dns.key, 123), ""), 3000).bytes(), 1000) {
			w.dropsAs(p, []bpfReason{bpfReasonREASON_NO_FRONTEND, bpfReasonREASON_FRAGMENT}[min(i, 1)])
		}
		// What something else serves, or takes out of tunnels only, is not ours to refuse.
		key, err := model.ParseFrontend(other)
		must(t, err)
		w.dropsAs(from(c.client, other, "S").bytes(), bpfReasonREASON_NO_FRONTEND)
		put(w.programRig, w.Others, wireKey(key), uint32(1))
		w.leaves(from(c.client, other, "S").bytes())
		w.leaves(from(c.client, other, "A").bytes())
		must(t, w.Others.Delete(wireKey(key)))
		decap := w.serve(other, bpfModeMODE_GENEVE, "10.0.1.3")
		put(w.programRig, w.Vips, wireAddress(web.key.VIP), uint32(vipGuarded|2))
		decap.value.Flags = 0
		w.putFrontend(decap)
		w.leaves(from(c.client, other, "S").bytes())
		// Neither are echoes, and other protocols.
		p := from(c.client, c.tcp, "")
		if web.key.VIP.Is4() {
			ip, _ := p.network(layers.IPProtocolICMPv4)
			w.leaves(frame(append(p.link(), ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0)}, gopacket.Payload("ping"))...))
		} else {
			ip, over := p.network(layers.IPProtocolICMPv6)
			icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(128, 0)}
			must(t, icmp.SetNetworkLayerForChecksum(over))
			w.leaves(frame(append(p.link(), ip, icmp, gopacket.Payload("ping"))...))
		}
		ip, _ := p.network(layers.IPProtocolGRE)
		w.leaves(frame(append(p.link(), ip, gopacket.Payload(make([]byte, 20)))...))
	}
}

// Answers to what the machine began itself, from a VIP, come in; what is for a socket that
// only listens does not.
func TestProgGuardLetsAnswersIn(t *testing.T) {
	needsRoot(t)
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	for _, name := range []string{"all", "default", "lo"} {
		must(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("0"), 0))
	}
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	for _, c := range []struct{ tcp, udp, far string }{{tcp4, udp4, "198.51.100.7"}, {tcp6, udp6, "2001:db8:c::7"}} {
		w := newLB(t)
		web := w.serve(c.tcp, bpfModeMODE_IPIP, "10.0.1.1")
		vip, far := web.key.VIP, netip.MustParseAddr(c.far)
		put(w.programRig, w.Vips, wireAddress(vip), uint32(vipGuarded|1))
		for _, a := range []netip.Addr{vip, far} {
			must(t, netlink.AddrAdd(lo, &netlink.Addr{IPNet: host(a), Flags: unix.IFA_F_NODAD}))
		}
		server, err := net.Listen("tcp", netip.AddrPortFrom(far, 81).String())
		must(t, err)
		defer server.Close()
		wide, err := net.Listen("tcp", ":22")
		must(t, err)
		own, err := (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(vip, 0))}).Dial("tcp", server.Addr().String())
		for ctx := deadline(t); err != nil; { // routes of IPv6 come a moment after addresses
			pause(ctx, t, "connect: %v", err)
			own, err = (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(vip, 0))}).Dial("tcp", server.Addr().String())
		}
		asks, err := (&net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(vip, 0))}).Dial("udp", netip.AddrPortFrom(far, 53).String())
		must(t, err)
		unconnected, err := net.ListenPacket("udp", ":123")
		must(t, err)
		key := func(at net.Addr, transport model.Transport) string {
			return model.FrontendKey{VIP: vip, Transport: transport, Port: netip.MustParseAddrPort(at.String()).Port()}.String()
		}
		answer := func(port uint16, to, flags string) []byte {
			return from(netip.AddrPortFrom(far, port).String(), to, flags).bytes()
		}
		w.leaves(answer(81, key(own.LocalAddr(), model.TCP), "A"))
		w.dropsAs(answer(82, key(own.LocalAddr(), model.TCP), "A"), bpfReasonREASON_NO_FRONTEND)
		w.dropsAs(answer(81, key(own.LocalAddr(), model.TCP), "S"), bpfReasonREASON_NO_FRONTEND)
		w.dropsAs(answer(81, key(wide.Addr(), model.TCP), "A"), bpfReasonREASON_NO_FRONTEND)
		w.leaves(answer(53, key(asks.LocalAddr(), model.UDP), ""))
		w.dropsAs(answer(54, key(asks.LocalAddr(), model.UDP), ""), bpfReasonREASON_NO_FRONTEND)
		w.dropsAs(answer(53, key(unconnected.LocalAddr(), model.UDP), ""), bpfReasonREASON_NO_FRONTEND)
		for _, x := range []interface{ Close() error }{own, asks, unconnected, wide} {
			must(t, x.Close())
		}
	}
}

// Frames for other machines, which promiscuous interfaces see, are theirs.
func TestProgOthersFrames(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1")
	put(w.programRig, w.Vips, wireAddress(f.key.VIP), uint32(vipGuarded|1))
	own := []net.HardwareAddr{machineLink, {2, 0, 0, 0, 0, 0x10}, {2, 0, 0, 0, 0, 0x11}, {2, 0, 0, 0, 0, 0x12}, {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff}}
	to := func(a net.HardwareAddr, name string, tags ...uint16) []byte {
		p := from(cli4, name, "S")
		p.dst, p.tags = a, tags
		return p.bytes()
	}
	other := net.HardwareAddr{2, 0, 0, 0, 0, 0x20}
	w.goes(to(other, tcp4), f.servers[0]) // until it is known which are ours
	var links []uint64
	for _, a := range own {
		links = append(links, bpf.WireLink(a))
	}
	put(w.programRig, w.Links, uint32(0), bpfLinks{At: bpf.WireLinks(links)})
	for _, a := range own {
		w.goes(to(a, tcp4), f.servers[0])
		w.goes(to(a, tcp4, 5), f.servers[0])
	}
	for _, a := range []net.HardwareAddr{other, {0, 0, 0, 0, 0, 0}, {3, 0, 0, 0, 0, 2}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
		for _, name := range []string{tcp4, "tcp://192.0.2.1:22"} {
			w.leaves(to(a, name))
			w.leaves(to(a, name, 5))
		}
	}
}

// What has come too far is dropped, and its sender is told by the machine itself: so it is
// seen on the way to a VIP, as any router.
func TestProgTimeExceeded(t *testing.T) {
	w := newLB(t)
	for _, c := range []struct {
		to, client, router string
		mode               bpfMode
		quoted             int // of an empty packet
	}{
		{tcp4, cli4, "10.0.0.1", bpfModeMODE_IPIP, 40},
		{udp4, cli4, "10.0.0.1", bpfModeMODE_GENEVE, 28},
		{tcp6, cli6, "2001:db8:a::1", bpfModeMODE_GENEVE, 60},
		{udp6, cli6, "2001:db8:a::1", bpfModeMODE_IPIP, 48},
		{"tcp://192.0.2.1:99", cli4, "10.0.0.1", bpfModeMODE_L2, 40},
		{"tcp://192.0.2.1:98", cli4, "10.0.0.1", bpfModeMODE_NAT, 40},
	} {
		f := w.serve(c.to, c.mode, "10.0.1.1")
		client := netip.MustParseAddrPort(c.client).Addr()
		for _, ttl := range []uint8{0, 1} {
			for _, tags := range [][]uint16{nil, {5}} {
				for _, size := range []int{c.quoted, c.quoted + 1, c.quoted + 7, 100, 128, 129, 1200} {
					p := from(c.client, c.to, "S")
					p.ttl, p.tags = ttl, tags
					packet := fill(p, size).bytes()
					answer := w.answers(packet, bpfReasonREASON_LOOP, netip.MustParseAddr(c.router), client)
					var quoted []byte
					if icmp, ok := answer.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); ok && icmp.TypeCode == layers.CreateICMPv4TypeCode(11, 0) {
						quoted = icmp.Payload
					}
					if icmp, ok := answer.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); ok && icmp.TypeCode == layers.CreateICMPv6TypeCode(3, 0) {
						quoted = icmp.Payload[4:]
					}
					if want := min(size, 128) &^ 3; len(quoted) != want || !bytes.HasPrefix(inner(packet), quoted) {
						t.Errorf("%s: quotes %d bytes of %d, want %d\n%v", c.to, len(quoted), size, want, answer)
					}
				}
			}
		}
		// Nobody is told about errors, later fragments, and what has a source that cannot be.
		p := from(c.client, c.to, "S")
		p.ttl = 1
		if f.key.VIP.Is4() {
			quoted := from(f.key.VIP.String()+":80", model.FrontendKey{VIP: client, Transport: f.key.Transport, Port: 40000}.String(), "A").bytes()
			binary.BigEndian.PutUint16(quoted[34:], f.key.Port)
			ip, _ := p.network(layers.IPProtocolICMPv4)
			w.dropsAs(frame(append(p.link(), ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4)}, gopacket.Payload(inner(quoted)))...), bpfReasonREASON_LOOP)
			all := pieces(fill(p, 3000).bytes(), 1000)
			w.answers(all[0], bpfReasonREASON_LOOP, netip.MustParseAddr(c.router), client)
			w.dropsAs(all[1], bpfReasonREASON_LOOP)
			loop := from("127.0.0.1:40000", c.to, "S")
			loop.ttl = 1
			w.dropsAs(loop.bytes(), bpfReasonREASON_MARTIAN)
		}
		here := w.serve("tcp://192.0.2.3:80", bpfModeMODE_LOCAL, "192.0.2.3")
		p.to, p.client = here.key, netip.MustParseAddrPort(cli4)
		w.leaves(p.bytes()) // where it was to come
	}
}

// Who asks for answers without end takes those of its own network, and of nobody else.
func TestProgAnswersByNetwork(t *testing.T) {
	w := newLB(t)
	for _, c := range []struct{ to, client, same, other string }{
		{tcp4, cli4, "198.51.100.200:40000", "203.0.113.7:40000"},
		{tcp6, cli6, "[2001:db8:c:0:1::7]:40000", "[2001:db8:c:100::7]:40000"},
	} {
		w.serve(c.to, bpfModeMODE_IPIP, "10.0.1.1")
		answered := func(client string) bool {
			p := from(client, c.to, "S")
			p.ttl = 1
			verdict, _ := w.run(w.Balance, p.bytes())
			return verdict == xdpRedirect
		}
		const most = 100_000 // the bucket has 200, and gets another in 5 ms
		asked := 0
		for asked < most && answered(c.client) {
			asked++
		}
		if asked < 200 || asked == most {
			t.Errorf("%s: %d answers before the first refusal", c.client, asked)
		}
		// Another client of the network shares the bucket, which is refilled meanwhile.
		for asked = 0; asked < most && answered(c.same); asked++ {
			answered(c.client)
		}
		if asked == most {
			t.Errorf("%s has answers of its own", c.same)
		}
		if !answered(c.other) {
			t.Errorf("%s gets no answer", c.other)
		}
	}
}
