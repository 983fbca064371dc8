package xdp

import (
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
)

// TestDirectConnectionsAreLeftAlone: a client that had flows by the VIP, long ago, turns to
// the backend itself from the same port.
func TestDirectConnectionsAreLeftAlone(t *testing.T) {
	everyFamilyOut(t, func(t *testing.T, k *programRig, in family) {
		begun(t, k, in)
		backend := netip.AddrPortFrom(in.backend, backendPort)
		direct := tcpPacket(t, in.clientAddr(), backend, "S", mssOption, "")
		if verdict, _ := k.run(k.TunnelIn, framed(direct)); verdict != verdictNext {
			t.Fatalf("a direct SYN: verdict %d", int32(verdict))
		}
		if s := k.leaves(tcpPacket(t, backend, in.clientAddr(), "A", nil, "answer")); s.from != in.vipAddr() {
			t.Errorf("while the flow by the VIP lasts, its answers come from %s", s.from)
		}
		for _, m := range []*ebpf.Map{k.Restores, k.RestoresFresh} { // an hour passes
			aged := map[bpfRestoreKey]bpfRestore{}
			pairs(m, func(key bpfRestoreKey, v bpfRestore) { aged[key] = v })
			for key, v := range aged {
				v.Seen -= 3600
				put(k, m, key, v)
			}
		}
		if verdict, _ := k.run(k.TunnelIn, framed(direct)); verdict != verdictNext {
			t.Fatalf("a direct SYN: verdict %d", int32(verdict))
		}
		if s := k.leaves(tcpPacket(t, backend, in.clientAddr(), "SA", mssOption, "")); s.from != backend {
			t.Errorf("the answer to a direct connection comes from %s", s.from)
		}
		if s := k.leaves(udpPacket(t, backend, in.clientAddr(), "answer")); s.from != backend {
			t.Errorf("the answer to a direct datagram comes from %s", s.from)
		}
	})
}
