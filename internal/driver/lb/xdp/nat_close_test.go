package xdp

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"fairlead.dev/internal/driver/bpf"
)

// natFlow is a flow of TCP through NAT, told by the client's port.
type natFlow struct {
	k      *programRig
	in     family
	client netip.AddrPort
	port   uint16
}

func (k *programRig) natFlow(in family, clientPort uint16) natFlow {
	k.t.Helper()
	f := natFlow{k: k, in: in, client: netip.AddrPortFrom(in.client, clientPort)}
	f.port = k.forwards(in, tcpPacket(k.t, f.client, in.vipAddr(), "S", nil, ""))
	return f
}

// sends a packet of the client, which must go where the flow is.
func (f natFlow) sends(flags string) {
	f.k.t.Helper()
	if port := f.k.forwards(f.in, tcpPacket(f.k.t, f.client, f.in.vipAddr(), flags, nil, "")); port != f.port {
		f.k.t.Fatalf("%s of the client's port %d: port %d became %d", flags, f.client.Port(), f.port, port)
	}
}

// hears a packet of the backend, which must reach the client.
func (f natFlow) hears(flags string) {
	f.k.t.Helper()
	packet := tcpPacket(f.k.t, netip.AddrPortFrom(f.in.backend, backendPort), netip.AddrPortFrom(f.in.us, f.port), flags, nil, "")
	if s := decode(f.k.t, f.k.answers(packet)); s.from != f.in.vipAddr() || s.to != f.client {
		f.k.t.Fatalf("%s of the backend at port %d goes to %s, want %s", flags, f.port, s.to, f.client)
	}
}

func (f natFlow) opens() {
	f.k.t.Helper()
	f.hears("SA")
	f.sends("A")
}

// silent makes everything that NAT knows so many seconds older.
func (k *programRig) silent(seconds uint32) {
	k.t.Helper()
	for _, m := range []*ebpf.Map{k.Nat, k.NatClosed} {
		old := map[bpfNatKey]bpfNat{}
		pairs(m, func(key bpfNatKey, value bpfNat) { old[key] = value })
		for key, value := range old {
			value.Seen -= seconds
			put(k, m, key, value)
		}
	}
}

// take opens flows of other clients until no port is left to be had, and returns the ports
// that they got.
func (k *programRig) take(in family, from uint16) map[uint16]bool {
	k.t.Helper()
	got := map[uint16]bool{}
	for i := range uint16(300) {
		client := netip.AddrPortFrom(in.client, from+i)
		if verdict, frame := k.run(k.Balance, framed(tcpPacket(k.t, client, in.vipAddr(), "S", nil, ""))); verdict == verdictXDPTX {
			port := decode(k.t, frame).from.Port()
			if got[port] {
				k.t.Fatalf("port %d was given twice", port)
			}
			got[port] = true
			// It goes on, so that nobody takes the port again.
			if verdict, _ := k.run(k.Balance, framed(tcpPacket(k.t, client, in.vipAddr(), "A", nil, ""))); verdict != verdictXDPTX {
				k.t.Fatalf("the second packet of client port %d: verdict %d, drops %v", client.Port(), verdict, k.reasons())
			}
		}
	}
	return got
}

// What a port's flow has seen decides whether another one gets it.
func TestNATPortsOfFlowsThatEnd(t *testing.T) {
	for _, c := range []struct {
		name    string
		course  func(f natFlow)
		silence uint32
		free    bool
	}{
		{"live", func(f natFlow) { f.opens() }, 3600, false},
		{"live for too long", func(f natFlow) { f.opens() }, 7500, true},
		{"half-open", func(natFlow) {}, 2, false},
		{"half-open, and the ports have run out", func(natFlow) {}, 10, true},
		{"answered, and the client silent", func(f natFlow) { f.hears("SA") }, 10, true},
		{"the client goes on without an acknowledgement, as who forges addresses", func(f natFlow) { f.hears("SA"); f.sends("P") }, 10, true},
		{"the client acknowledges what nobody said", func(f natFlow) { f.sends("A") }, 10, true},
		{"the client has ended", func(f natFlow) { f.opens(); f.sends("FA"); f.hears("A") }, 200, false},
		{"the client has ended long ago", func(f natFlow) { f.opens(); f.sends("FA"); f.hears("A") }, 300, true},
		{"the backend has ended", func(f natFlow) { f.opens(); f.hears("FA"); f.sends("A") }, 200, false},
		{"the backend has ended, the client goes on", func(f natFlow) { f.opens(); f.hears("FA"); f.sends("A"); f.hears("A"); f.sends("A") }, 200, false},
		{"both have ended just now", func(f natFlow) { f.opens(); f.sends("FA"); f.hears("FA"); f.sends("A") }, 1, false},
		{"both have ended", func(f natFlow) { f.opens(); f.sends("FA"); f.hears("FA"); f.sends("A") }, 5, true},
		{"both have ended, the backend first", func(f natFlow) { f.opens(); f.hears("FA"); f.sends("FA"); f.hears("A") }, 5, true},
		{"the backend has reset it", func(f natFlow) { f.opens(); f.hears("R") }, 5, true},
		{"the backend has refused it", func(f natFlow) { f.hears("RA") }, 5, true},
		{"the client has reset it just now", func(f natFlow) { f.opens(); f.sends("R") }, 10, false},
		{"the client has reset it", func(f natFlow) { f.opens(); f.sends("R") }, 60, true},
		{"a reset that was not the client's", func(f natFlow) { f.opens(); f.sends("R"); f.sends("A") }, 60, false},
		{"the backend has ended and the client reset it", func(f natFlow) { f.opens(); f.hears("FA"); f.sends("R") }, 5, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := families[0]
			k := natRig(t)
			f := k.natFlow(in, 40000)
			c.course(f)
			k.silent(c.silence)
			got := k.take(in, 2000)
			if got[f.port] != c.free {
				t.Errorf("another flow got the port: %t", got[f.port])
			}
			if want := natCount - 1; len(got) != want && !c.free || c.free && len(got) != want+1 {
				t.Errorf("%d of %d ports were given", len(got), natCount)
			}
			if !c.free {
				f.hears("A")
				f.sends("A")
			}
		})
	}
}

// Datagrams of which nobody is heard again hold no ports; who is answered and goes on keeps its port.
func TestNATPortsOfDatagrams(t *testing.T) {
	everyNAT(t, func(t *testing.T, k *programRig, in family) {
		live := netip.AddrPortFrom(in.client, 40000)
		port := k.forwards(in, udpPacket(t, live, in.vipAddr(), "question"))
		k.answers(udpPacket(t, netip.AddrPortFrom(in.backend, backendPort), netip.AddrPortFrom(in.us, port), "answer"))
		k.forwards(in, udpPacket(t, live, in.vipAddr(), "more"))
		flood := func(from uint16) (got int) {
			for i := range uint16(300) {
				client := netip.AddrPortFrom(in.client, from+i)
				verdict, frame := k.run(k.Balance, framed(udpPacket(t, client, in.vipAddr(), "question")))
				if verdict != verdictXDPTX {
					continue
				}
				if got++; decode(t, frame).from.Port() == port {
					t.Fatal("a flow that goes on lost its port")
				}
			}
			return got
		}
		if got := flood(2000); got != natCount-1 {
			t.Fatalf("%d of %d ports were given", got, natCount-1)
		}
		if got := flood(3000); got != 0 {
			t.Errorf("%d ports of flows that began just now were taken", got)
		}
		k.silent(10)
		if got := flood(4000); got < natCount/2 { // each looks at half of the ports
			t.Errorf("%d of %d ports of datagrams that nobody answered were given", got, natCount-1)
		}
		if again := k.forwards(in, udpPacket(t, live, in.vipAddr(), "more")); again != port {
			t.Errorf("port %d became %d", port, again)
		}
	})
}

// A client that uses its port again finds the translation that it had, whatever else ended,
// and so does what comes late.
func TestNATPortIsFoundAgain(t *testing.T) {
	everyNAT(t, func(t *testing.T, k *programRig, in family) {
		var flows []natFlow
		for i := range uint16(10) {
			f := k.natFlow(in, 40000+i)
			f.opens()
			f.hears("FA")
			f.sends("FA")
			f.hears("A")
			flows = append(flows, f)
		}
		var key bpfNatKey
		var value bpfNat
		if k.Nat.Iterate().Next(&key, &value) {
			t.Errorf("a flow that ended is among those that are kept: %+v", value)
		}
		for _, f := range flows {
			f.hears("FA") // again: the last acknowledgement was lost
			f.sends("A")
		}
		k.silent(5)
		for _, f := range flows {
			f.sends("S")
			f.opens()
		}
		if got := k.take(in, 2000); len(got) != natCount-len(flows) {
			t.Errorf("%d ports were given beside %d live ones of %d", len(got), len(flows), natCount)
		}
		for _, f := range flows {
			f.hears("A")
		}
		// What is forgotten is made anew with the port that the flow table has.
		f := flows[0]
		at := bpfNatKey{Backend: wireAddress(in.backend), Source: wireAddress(in.us), BackendPort: bpf.NetworkPort(backendPort), SourcePort: bpf.NetworkPort(f.port), Protocol: 6}
		must(t, k.Nat.Delete(&at))
		_ = k.NatClosed.Delete(&at)
		f.sends("A")
		f.hears("A")
	})
}

// Ports that nobody had come before those of flows that ended, and of these the oldest first.
func TestNATPrefersOldPorts(t *testing.T) {
	in := families[0]
	k := natRig(t)
	had := map[uint16]bool{}
	for i := range uint16(20) {
		f := k.natFlow(in, 40000+i)
		f.opens()
		f.hears("R")
		had[f.port] = true
		k.silent(3)
	}
	if len(had) != 20 {
		t.Fatalf("20 flows had %d ports, though others were never used", len(had))
	}
	for i := range uint16(natCount - 20) {
		f := k.natFlow(in, 50000+i)
		f.opens()
		if had[f.port] {
			t.Logf("after %d flows port %d is used again", i, f.port)
			if i < natCount-20-24 { // a flow looks at half of the ports
				t.Errorf("too early")
			}
			break
		}
	}
}

func TestNATPorts(t *testing.T) {
	for _, c := range []struct {
		local    portRange
		reserved []portRange
		want     [2]portRange
	}{
		{portRange{32768, 60999}, nil, [2]portRange{{1024, 32767}, {61000, 65535}}},
		{portRange{32768, 60999}, []portRange{{30000, 32767}}, [2]portRange{{1024, 29999}, {61000, 65535}}},
		{portRange{32768, 60999}, []portRange{{8080, 8080}, {9000, 9000}, {65535, 65535}}, [2]portRange{{9001, 32767}, {1024, 8079}}},
		{portRange{15000, 65535}, nil, [2]portRange{{1024, 14999}}},
		{portRange{100, 9999}, []portRange{{9000, 19999}}, [2]portRange{{20000, 65535}}},
		{portRange{}, nil, [2]portRange{{1024, 65535}}},
		{portRange{1024, 65535}, nil, anyway},
		{portRange{2000, 65000}, nil, anyway},
	} {
		if got := natPorts(c.local, c.reserved); got != c.want {
			t.Errorf("local %v, reserved %v: got %v, want %v", c.local, c.reserved, got, c.want)
		}
	}
}
