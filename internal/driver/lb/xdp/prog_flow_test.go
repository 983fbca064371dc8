package xdp

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

const both = bpfBackendFlagBACKEND_READY | bpfBackendFlagBACKEND_NEW

// is changes what may be sent to a backend.
func (w *lbRig) is(s *lbServer, flags bpfBackendFlag) {
	s.value.Flags = uint8(flags)
	w.putServer(s)
}

// rowsAre changes all rows of a frontend.
func (w *lbRig) rowsAre(f *lbFrontend, servers ...*lbServer) {
	var slots []uint32
	for _, s := range servers {
		slots = append(slots, s.slot)
	}
	for i := range uint32(lbRows) {
		w.setRow(f, i, slots...)
	}
}

// A flow stays where it began, whatever becomes of the rows, while its backend may have it.
func TestProgFlowStays(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1", "10.0.1.2", "10.0.1.3")
	first, second := f.servers[0], f.servers[1]
	client := netip.MustParseAddrPort(cli4)
	packet := func(flags string) []byte { return from(cli4, tcp4, flags).bytes() }
	state := func(settled bool, state bpfFlowState) {
		t.Helper()
		if v, s, known := w.flow(f, client); !known || s != settled || v.State != uint8(state) {
			t.Fatalf("flow %+v, settled %v, known %v; want state %d, settled %v", v, s, known, state, settled)
		}
	}
	w.goes(packet("S"), first)
	state(false, bpfFlowStateFLOW_NEW)
	w.goes(packet("S"), first)
	state(false, bpfFlowStateFLOW_NEW)
	w.rowsAre(f, second, first)
	w.goes(packet("A"), first)
	state(true, bpfFlowStateFLOW_ESTABLISHED)
	w.is(first, bpfBackendFlagBACKEND_READY) // draining
	w.goes(packet("A"), first)
	w.goes(packet("FA"), first)
	state(true, bpfFlowStateFLOW_CLOSING)
	w.goes(packet("A"), first)
	w.is(first, both)
	w.goes(packet("S"), second) // the port is used again
	state(false, bpfFlowStateFLOW_NEW)
	if n := w.sent(second).Flows; n != 1 {
		t.Errorf("%d flows of the second backend", n)
	}
	w.goes(packet("A"), second)
	w.is(second, bpfBackendFlagBACKEND_READY)
	w.goes(packet("S"), first) // a new connection is not for a backend that drains
	w.goes(packet("A"), first)
	w.is(first, 0)
	w.is(second, both)
	w.goes(packet("A"), second) // the backend is gone
	first.value.Generation++
	w.is(first, both)
	w.rowsAre(f, first)
	w.goes(packet("A"), second)
	second.value.Generation++ // the slot is another backend's
	w.is(second, both)
	w.goes(packet("A"), first)
}

// A flow that was closed may be followed by another one with its addresses, elsewhere: what
// is left of it leads to no machine that may be lost.
func TestProgClosedFlowAtLostMachine(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_GENEVE, "10.0.2.1", "10.0.2.2", "10.0.2.3")
	first, second, third := f.servers[0], f.servers[1], f.servers[2]
	for _, flags := range []string{"S", "A", "FA", "A"} {
		w.goes(from(cli4, tcp4, flags).bytes(), first)
	}
	w.rowsAre(f, second, first, third)
	w.goes(from(cli4, tcp4, "A").bytes(), first) // it may be the same flow
	w.is(first, bpfBackendFlagBACKEND_READY)
	if e := w.goes(from(cli4, tcp4, "A").bytes(), second); !slices.Equal(e.ids, []uint64{second.id, third.id, first.id}) {
		t.Errorf("hops %v", e.ids)
	}
}

// One that was silent may be over, too, and its port another flow's that was balanced
// elsewhere. Who had it is asked last, whether the row knows it or not.
func TestProgSilentFlowAtLostMachine(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_GENEVE, "10.0.2.1", "10.0.2.2", "10.0.2.3", "10.0.2.4")
	first, second, third, fourth := f.servers[0], f.servers[1], f.servers[2], f.servers[3]
	packet := func(flags string) []byte { return from(cli4, tcp4, flags).bytes() }
	for _, flags := range []string{"S", "A"} {
		w.goes(packet(flags), first)
	}
	w.rowsAre(f, second, third, fourth)
	w.is(first, bpfBackendFlagBACKEND_READY)
	w.goes(packet("A"), first) // it drains
	w.silent(f, 5)
	for range 2 {
		if e := w.goes(packet("A"), second); !slices.Equal(e.ids, []uint64{second.id, third.id, first.id}) {
			t.Errorf("hops %v", e.ids)
		}
	}
	// Others that may be lost come after it.
	w.is(second, bpfBackendFlagBACKEND_READY)
	if e := w.goes(packet("A"), third); !slices.Equal(e.ids, []uint64{third.id, fourth.id, first.id}) {
		t.Errorf("hops %v", e.ids)
	}
	w.is(fourth, bpfBackendFlagBACKEND_READY)
	if e := w.goes(packet("A"), third); !slices.Equal(e.ids, []uint64{third.id, first.id, second.id}) {
		t.Errorf("hops %v", e.ids)
	}
	w.is(third, bpfBackendFlagBACKEND_READY)
	w.goes(packet("A"), first) // there is nobody to ask
	w.is(third, both)
	w.is(first, both)
	w.goes(packet("A"), first) // it asks its sockets
	// Its end is heard all the same.
	w.is(first, bpfBackendFlagBACKEND_READY)
	w.silent(f, 5)
	w.goes(packet("FA"), third)
	if v, _, _ := w.flow(f, netip.MustParseAddrPort(cli4)); v.State != uint8(bpfFlowStateFLOW_CLOSING) {
		t.Errorf("state %d", v.State)
	}
}

// A frontend that changes from tunnels to NAT finishes flows that were silent where they are:
// no other backend passes them on.
func TestProgSilentFlowOutlivesTunnels(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_GENEVE, "10.0.2.1", "10.0.2.2", "10.0.2.3")
	first := f.servers[0]
	for _, flags := range []string{"S", "A"} {
		w.goes(from(cli4, tcp4, flags).bytes(), first)
	}
	for _, s := range f.servers[1:] {
		s.value.Mode = uint8(bpfModeMODE_IPIP)
		w.putServer(s)
	}
	w.rowsAre(f, f.servers[1], f.servers[2])
	w.is(first, bpfBackendFlagBACKEND_READY)
	w.silent(f, 5)
	w.goes(from(cli4, tcp4, "A").bytes(), first)
	w.is(first, 0)
	w.goes(from(cli4, tcp4, "A").bytes(), f.servers[1])
}

// A SYN begins another flow where other load balancers will look for it, unless it repeats
// one.
func TestProgPortUsedAgain(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_GENEVE, "10.0.2.1", "10.0.2.2")
	first, second := f.servers[0], f.servers[1]
	packet := func(flags string) []byte { return from(cli4, tcp4, flags).bytes() }
	w.goes(packet("S"), first)
	w.rowsAre(f, second, first)
	w.goes(packet("S"), first)
	w.goes(packet("A"), first)
	w.goes(packet("S"), first) // it may be forged
	w.silent(f, 100)
	w.goes(packet("S"), second)
	w.goes(packet("A"), second)
}

// silent has the flow of cli4 not be heard of for so many seconds.
func (w *lbRig) silent(f *lbFrontend, seconds uint32) {
	w.t.Helper()
	key := bpfFlowKey{Client: wireAddress(netip.MustParseAddrPort(cli4).Addr()), Frontend: f.value.Index, Port: bpf.NetworkPort(40000)}
	for _, m := range []*ebpf.Map{w.Flows, w.Fresh} {
		if v, ok := get[bpfFlowKey, bpfFlow](w.programRig, m, key); ok {
			v.Seen -= seconds
			put(w.programRig, m, key, v)
			return
		}
	}
	w.t.Fatal("the flow has no entry")
}

// Without an entry: the row decides, and over Geneve nothing is remembered, since the
// machines behind know their flows.
func TestProgMidFlow(t *testing.T) {
	w := newLB(t)
	client := netip.MustParseAddrPort(cli4)
	ipip := w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1", "10.0.1.2")
	w.goes(from(cli4, tcp4, "A").bytes(), ipip.servers[0])
	if _, _, known := w.flow(ipip, client); !known {
		t.Error("IP in IP: not remembered")
	}
	if n := w.sent(ipip.servers[0]).Flows; n != 0 {
		t.Errorf("an old flow counts as %d new ones", n)
	}
	name := "tcp://192.0.2.1:81"
	geneve := w.serve(name, bpfModeMODE_GENEVE, "10.0.2.1", "10.0.2.2", "10.0.2.3")
	servers := geneve.servers
	if e := w.goes(from(cli4, name, "A").bytes(), servers[0]); !slices.Equal(e.ids, []uint64{servers[0].id, servers[1].id, servers[2].id}) {
		t.Errorf("hops %v", e.ids)
	}
	if _, _, known := w.flow(geneve, client); known {
		t.Error("Geneve: remembered")
	}
	// One that takes no new flow is asked last: nothing comes back from a machine that is lost.
	w.is(servers[1], bpfBackendFlagBACKEND_READY)
	if e := w.goes(from(cli4, name, "A").bytes(), servers[0]); !slices.Equal(e.ids, []uint64{servers[0].id, servers[2].id, servers[1].id}) {
		t.Errorf("hops %v", e.ids)
	}
	// Nor first, wherever it is in the row.
	w.rowsAre(geneve, servers[1], servers[0], servers[2])
	if e := w.goes(from(cli4, name, "A").bytes(), servers[0]); !slices.Equal(e.ids, []uint64{servers[0].id, servers[2].id, servers[1].id}) {
		t.Errorf("hops %v", e.ids)
	}
	// One that is not ready is not asked; a flow that is known is asked for there first.
	w.goes(from(cli4, name, "S").bytes(), servers[0])
	w.rowsAre(geneve, servers[1], servers[2], servers[0])
	w.is(servers[1], 0)
	if e := w.goes(from(cli4, name, "A").bytes(), servers[0]); !slices.Equal(e.ids, []uint64{servers[0].id, servers[2].id}) {
		t.Errorf("hops %v", e.ids)
	}
	if _, settled, _ := w.flow(geneve, client); !settled {
		t.Error("the second packet does not settle the flow")
	}
}

// Datagrams carry hops only while rows settle.
func TestProgDatagrams(t *testing.T) {
	w := newLB(t)
	f := w.serve(udp4, bpfModeMODE_GENEVE, "10.0.2.1", "10.0.2.2", "10.0.2.3")
	packet := from(cli4, udp4, "").bytes()
	if e := w.goes(packet, f.servers[0]); len(e.ids) != 1 {
		t.Errorf("hops %v", e.ids)
	}
	w.goes(packet, f.servers[0])
	if _, settled, _ := w.flow(f, netip.MustParseAddrPort(cli4)); !settled {
		t.Error("the second packet does not settle the flow")
	}
	f.value.Flags |= uint16(bpfFrontendFlagFRONTEND_SETTLING)
	w.putFrontend(f)
	w.rowsAre(f, f.servers[1], f.servers[2], f.servers[0])
	if e := w.goes(packet, f.servers[0]); len(e.ids) != 3 {
		t.Errorf("hops %v", e.ids)
	}
	// After a long silence it is another flow.
	key := bpfFlowKey{Client: wireAddress(netip.MustParseAddrPort(cli4).Addr()), Frontend: f.value.Index, Port: bpf.NetworkPort(40000)}
	v, ok := get[bpfFlowKey, bpfFlow](w.programRig, w.Flows, key)
	if !ok {
		t.Fatal("no entry")
	}
	v.Seen -= 1000
	put(w.programRig, w.Flows, key, v)
	w.goes(packet, f.servers[1])
}

// A flood of SYNs, twice what there is room for, costs no flow its entry.
func TestProgFlood(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1", "10.0.1.2")
	const flows = 500
	client := func(i int) string { return fmt.Sprintf("198.51.100.%d:%d", 1+i%200, 10000+i) }
	for i := range flows {
		w.goes(from(client(i), tcp4, "S").bytes(), f.servers[0])
		w.goes(from(client(i), tcp4, "A").bytes(), f.servers[0])
	}
	for i := range 2 * int(w.Fresh.MaxEntries()) {
		packet := from(fmt.Sprintf("203.0.%d.%d:%d", i>>8&0xff, i&0xff, 1024+i>>4), tcp4, "S").bytes()
		for range 2 { // repeated, too
			if verdict, _ := w.run(w.Balance, packet); verdict != xdpTX {
				t.Fatalf("SYN %d: verdict %d", i, verdict)
			}
		}
	}
	w.rowsAre(f, f.servers[1])
	for i := range flows {
		w.goes(from(client(i), tcp4, "A").bytes(), f.servers[0])
	}
}

func TestProgAffinity(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1", "10.0.1.2")
	f.value.Flags |= uint16(bpfFrontendFlagFRONTEND_AFFINITY)
	f.value.Affinity = 1000
	w.putFrontend(f)
	open := func(port int, s *lbServer) {
		t.Helper()
		at := fmt.Sprintf("198.51.100.7:%d", port)
		w.goes(from(at, tcp4, "S").bytes(), s)
		w.goes(from(at, tcp4, "A").bytes(), s)
	}
	open(1000, f.servers[0])
	w.rowsAre(f, f.servers[1], f.servers[0])
	open(1001, f.servers[0])
	w.goes(from("198.51.100.8:1000", tcp4, "S").bytes(), f.servers[1]) // another client
	// One who was silent for too long is forgotten.
	k := bpfAffinityKey{Client: wireAddress(netip.MustParseAddr("198.51.100.7")), Frontend: f.value.Index}
	v, ok := get[bpfAffinityKey, bpfAffinity](w.programRig, w.Affinities, k)
	if !ok {
		t.Fatal("not remembered")
	}
	v.Seen -= 2000
	put(w.programRig, w.Affinities, k, v)
	open(1002, f.servers[1])
	w.is(f.servers[1], bpfBackendFlagBACKEND_READY)
	open(1003, f.servers[0]) // not to one that drains
}

func TestProgLimit(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1")
	f.value.Flags |= uint16(bpfFrontendFlagFRONTEND_LIMITED)
	f.value.Limit = 50
	w.putFrontend(f)
	begin := time.Now()
	taken := 0
	for i := range 1000 {
		packet := from(fmt.Sprintf("198.51.100.7:%d", 1024+i), tcp4, "S").bytes()
		if verdict, _ := w.run(w.Balance, packet); verdict == xdpTX {
			taken++
			w.goes(packet, f.servers[0]) // what is in goes on
		}
	}
	// The bucket, and what ran into it meanwhile.
	most := 50 + 1 + int(50*time.Since(begin).Seconds()) + 1
	if taken < 50 || taken > most {
		t.Errorf("%d flows in %v at 50 a second, want 50 to %d", taken, time.Since(begin), most)
	}
	if n := w.dropped(bpfReasonREASON_NEW_FLOW_LIMIT); n != uint64(1000-taken) {
		t.Errorf("%d taken and %d refused of 1000", taken, n)
	}
	w.goes(from("198.51.100.7:9", tcp4, "A").bytes(), f.servers[0]) // not new
}

func TestProgSources(t *testing.T) {
	w := newLB(t)
	allow := func(f *lbFrontend, prefix string) {
		p := netip.MustParsePrefix(prefix)
		bits := p.Bits()
		if p.Addr().Is4() {
			bits += 96
		}
		put(w.programRig, w.Sources, bpfSourceKey{Prefix: uint32(32 + bits), Frontend: f.value.Index, Client: wireAddress(p.Addr())}, uint32(1))
	}
	f, f6, other := w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1"), w.serve(tcp6, bpfModeMODE_IPIP, "10.0.1.2"), w.serve(udp4, bpfModeMODE_IPIP, "10.0.1.3")
	for _, f := range []*lbFrontend{f, f6, other} {
		f.value.Flags |= uint16(bpfFrontendFlagFRONTEND_SOURCES)
		w.putFrontend(f)
	}
	allow(f, "198.51.100.0/25")
	allow(f6, "2001:db8:c::/48")
	w.goes(from("198.51.100.127:1", tcp4, "S").bytes(), f.servers[0])
	w.dropsAs(from("198.51.100.128:1", tcp4, "S").bytes(), bpfReasonREASON_SOURCE_DENIED)
	w.goes(from(cli6, tcp6, "S").bytes(), f6.servers[0])
	w.dropsAs(from("[2001:db8:d::1]:1", tcp6, "S").bytes(), bpfReasonREASON_SOURCE_DENIED)
	w.dropsAs(from("198.51.100.1:1", udp4, "").bytes(), bpfReasonREASON_SOURCE_DENIED)
}

// Errors about packets of a flow go where the flow goes, over the same tunnel.
func TestProgErrorsFollowTheirFlow(t *testing.T) {
	for _, c := range []struct{ to, client, router string }{
		{tcp4, cli4, "203.0.113.1"}, {tcp6, cli6, "2001:db8:f::1"}, {udp4, cli4, "203.0.113.1"}, {udp6, cli6, "2001:db8:f::1"},
	} {
		for _, mode := range []bpfMode{bpfModeMODE_IPIP, bpfModeMODE_GENEVE} {
			w := newLB(t)
			f := w.serve(c.to, mode, "10.0.1.1", "10.0.1.2")
			client := netip.MustParseAddrPort(c.client)
			flags := "S"
			w.goes(from(c.client, c.to, flags).bytes(), f.servers[0])
			w.rowsAre(f, f.servers[1], f.servers[0])
			about := func(client netip.AddrPort, vip model.FrontendKey) []byte {
				quoted := from(netip.AddrPortFrom(vip.VIP, vip.Port).String(), model.FrontendKey{VIP: client.Addr(), Transport: vip.Transport, Port: client.Port()}.String(), "A").bytes()
				p := from(netip.AddrPortFrom(netip.MustParseAddr(c.router), 0).String(), c.to, "")
				if vip.VIP.Is4() {
					ip, _ := p.network(layers.IPProtocolICMPv4)
					return frame(append(p.link(), ip, &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(3, 4), Seq: 1280}, gopacket.Payload(inner(quoted)[:28]))...)
				}
				ip, over := p.network(layers.IPProtocolICMPv6)
				icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(2, 0)}
				must(t, icmp.SetNetworkLayerForChecksum(over))
				return frame(append(p.link(), ip, icmp, gopacket.Payload(append([]byte{0, 0, 5, 0}, inner(quoted)[:48]...)))...)
			}
			w.goes(about(client, f.key), f.servers[0])
			// No entry: where a packet of the flow would go.
			w.goes(about(netip.AddrPortFrom(client.Addr(), 9), f.key), f.servers[1])
			// About a packet that no frontend sent.
			other := f.key
			other.Port++
			w.leaves(about(client, other))
			// Not the VIP's packet.
			other = f.key
			other.VIP = other.VIP.Next()
			w.dropsAs(about(client, other), bpfReasonREASON_ICMP_UNKNOWN)
			w.is(f.servers[0], 0)
			w.is(f.servers[1], 0)
			w.dropsAs(about(client, f.key), bpfReasonREASON_ICMP_UNKNOWN)
			short := about(client, f.key)
			w.dropsAs(short[:len(short)-10], bpfReasonREASON_TRUNCATED)
		}
	}
}

// pieces cuts an IP packet's frame into fragments of so many bytes of payload.
func pieces(packet []byte, size int) (out [][]byte) {
	p := gopacket.NewPacket(packet, layers.LayerTypeEthernet, gopacket.Default)
	eth := p.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	payload := p.NetworkLayer().LayerPayload()
	for at := 0; at < len(payload); at += size {
		end := min(at+size, len(payload))
		if ip, ok := p.NetworkLayer().(*layers.IPv4); ok {
			part := *ip
			part.Flags, part.FragOffset, part.Id = 0, uint16(at/8), 4711
			if end < len(payload) {
				part.Flags = layers.IPv4MoreFragments
			}
			out = append(out, frame(eth, &part, gopacket.Payload(payload[at:end])))
			continue
		}
		ip := *p.NetworkLayer().(*layers.IPv6)
		next := ip.NextHeader
		ip.NextHeader = layers.IPProtocolIPv6Fragment
		where := uint16(at)
		if end < len(payload) {
			where |= 1
		}
		header := []byte{byte(next), 0, byte(where >> 8), byte(where), 0, 0, 18, 103}
		out = append(out, frame(eth, &ip, gopacket.Payload(append(header, payload[at:end]...))))
	}
	return out
}

// All fragments of a datagram go to one backend, though only the first has ports.
func TestProgFragments(t *testing.T) {
	for _, c := range []struct{ to, client string }{{udp4, cli4}, {udp6, cli6}, {tcp4, cli4}} {
		for _, mode := range []bpfMode{bpfModeMODE_IPIP, bpfModeMODE_GENEVE} {
			w := newLB(t)
			f := w.serve(c.to, mode, "10.0.1.1", "10.0.1.2")
			all := pieces(fill(from(c.client, c.to, "S"), 3000).bytes(), 1000)
			if len(all) < 3 {
				t.Fatal(len(all))
			}
			w.dropsAs(all[1], bpfReasonREASON_FRAGMENT)
			for i, p := range all {
				w.goes(p, f.servers[0])
				if i == 0 {
					w.rowsAre(f, f.servers[1], f.servers[0])
				}
			}
			// After a minute the identification may be another datagram's.
			var key bpfFragmentKey
			var value bpfFragment
			if entries := w.Fragments.Iterate(); !entries.Next(&key, &value) {
				t.Fatal("no entry", entries.Err())
			}
			value.Seen -= 61
			put(w.programRig, w.Fragments, key, value)
			w.dropsAs(all[1], bpfReasonREASON_FRAGMENT)
			value.Seen += 61
			put(w.programRig, w.Fragments, key, value)
			// Whole packets of the flow too.
			w.goes(from(c.client, c.to, "A").bytes(), f.servers[0])
			w.is(f.servers[0], 0)
			w.dropsAs(all[2], bpfReasonREASON_FRAGMENT)
		}
	}
	// Those of nobody here are left alone, all of them.
	w := newLB(t)
	w.serve(udp4, bpfModeMODE_IPIP, "10.0.1.1")
	for _, p := range pieces(fill(from(cli4, "udp://192.0.2.1:5353", ""), 3000).bytes(), 1000) {
		w.leaves(p)
	}
	for _, p := range pieces(fill(from(cli4, "udp://192.0.2.9:53", ""), 3000).bytes(), 1000) {
		w.leaves(p)
	}
	// A first fragment without ports, and one that ends beyond the largest packet.
	whole := fill(from(cli4, udp4, ""), 3000).bytes()
	w.dropsAs(pieces(whole, 4)[0], bpfReasonREASON_BAD_HEADER)
	last := pieces(whole, 1000)[2]
	last[20], last[21] = 0x1f, 0xff
	copy(last[14:], hoppedBack(last[14:34]))
	w.dropsAs(last, bpfReasonREASON_BAD_HEADER)
}

// QUIC packets go where the connection ID says, also from a new address.
func TestProgQUIC(t *testing.T) {
	w := newLB(t)
	name := "udp://192.0.2.1:443"
	f := w.serve(name, bpfModeMODE_IPIP, "10.0.1.1", "10.0.1.2")
	f.value.Flags |= uint16(bpfFrontendFlagFRONTEND_QUIC)
	f.value.Quic = 1<<4 | 2
	w.putFrontend(f)
	put(w.programRig, w.QuicServers, bpfQuicServerKey{Frontend: f.value.Index, Id: [8]uint8{0xab, 0xcd}}, f.servers[1].slot)
	ids := map[string][]byte{"named": {9, 0xab, 0xcd, 1, 2, 3, 4, 5}, "unknown": {9, 0xab, 0xce, 1, 2, 3, 4, 5}}
	long := func(kind byte, version uint32, id []byte) []byte {
		out := []byte{0xc0 | kind<<4, byte(version >> 24), byte(version >> 16), byte(version >> 8), byte(version), byte(len(id))}
		return append(append(out, id...), make([]byte, 40)...)
	}
	short := func(id []byte) []byte { return append(append([]byte{0x40}, id...), make([]byte, 40)...) }
	for i, c := range []struct {
		name    string
		payload []byte
		server  int
	}{
		{"short", short(ids["named"]), 1},
		{"short, unknown", short(ids["unknown"]), 0},
		{"initial", long(0, 1, ids["named"]), 0},
		{"0-RTT", long(1, 1, ids["named"]), 0},
		{"handshake", long(2, 1, ids["named"]), 1},
		{"handshake, id too short", long(2, 1, ids["named"][:2]), 0},
		{"initial, version 2", long(1, 0x6b3343cf, ids["named"]), 0},
		{"handshake, version 2", long(3, 0x6b3343cf, ids["named"]), 1},
		{"version negotiation", long(2, 0, ids["named"]), 0},
		{"cut off", short(ids["named"])[:3], 0},
		{"empty", nil, 0},
	} {
		p := from(fmt.Sprintf("198.51.100.7:%d", 1000+i), name, "")
		p.payload = c.payload
		t.Run(c.name, func(t *testing.T) {
			w.t = t
			w.goes(p.bytes(), f.servers[c.server])
		})
	}
	w.t = t
	// The connection moves to another address, and back to one that has a flow elsewhere.
	p := from("198.51.100.9:1", name, "")
	w.goes(p.bytes(), f.servers[0])
	p.payload = short(ids["named"])
	w.goes(p.bytes(), f.servers[1])
}

// Hashes that leave ports out: all of a client's flows are one.
func TestProgThreeTuple(t *testing.T) {
	w := newLB(t)
	f := w.serve(tcp4, bpfModeMODE_IPIP, "10.0.1.1", "10.0.1.2")
	f.value.Hash = uint8(bpfFlowHashHASH_THREE_TUPLE)
	w.putFrontend(f)
	w.goes(from("198.51.100.7:1", tcp4, "S").bytes(), f.servers[0])
	w.goes(from("198.51.100.7:1", tcp4, "A").bytes(), f.servers[0])
	w.rowsAre(f, f.servers[1])
	w.goes(from("198.51.100.7:1", tcp4, "FA").bytes(), f.servers[0])
	w.goes(from("198.51.100.7:2", tcp4, "S").bytes(), f.servers[0])
	w.goes(from("198.51.100.8:2", tcp4, "S").bytes(), f.servers[1])
}

// What is dropped can be looked at.
func TestProgCaptures(t *testing.T) {
	w := newLB(t)
	w.serve(tcp4, bpfModeMODE_IPIP)
	packet := fill(from(cli4, tcp4, "S"), 300).bytes()
	w.dropsAs(packet, bpfReasonREASON_NO_BACKEND)
	r := openCaptures(t, w)
	if r.Reason != uint32(bpfReasonREASON_NO_BACKEND) || r.Length != uint32(len(packet)) || r.Bytes != uint32(len(r.Data)) || !slices.Equal(r.Data[:], packet[:len(r.Data)]) || r.Device == 0 || r.At == 0 {
		t.Errorf("captured %+v of %x", r, packet)
	}
}
