package xdp

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
)

// TestSilentFlowsAreNone: of UDP nobody says when a flow ends, and the table forgets none
// while it has room; nor those that ended long ago, nor those of TCP that came to nothing.
func TestSilentFlowsAreNone(t *testing.T) {
	inMachine(t)
	dir := filepath.Join(t.TempDir(), "pins")
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	d := newPlane(t, dir)
	dns, web := frontendKey(t, "udp://203.0.113.1:53"), frontendKey(t, "tcp://203.0.113.1:80")
	want := model.Balancing{Machine: "m1", Nodes: nodes("m1"), Frontends: map[model.FrontendKey]*model.Balanced{dns: served(dns, 1), web: served(web, 1)}}
	must(t, d.Set(want))
	up, err := uptime()
	must(t, err)
	for key := range want.Frontends {
		f := d.state.frontends[key]
		for _, p := range f.table.slots {
			for port, silent := range []time.Duration{0, udpIdle - 30*time.Second, udpIdle + 2*time.Second} {
				must(t, d.k.maps.Flows.Put(
					bpfFlowKey{Client: wireAddress(netip.MustParseAddr("198.51.100.1")), Frontend: f.value.Index, Port: uint16(port)},
					bpfFlow{Backend: p.index, Generation: p.value.Generation, State: uint8(bpfFlowStateFLOW_ESTABLISHED), Seen: uint32((up - silent) / time.Second)}))
			}
			for i, silent := range []time.Duration{0, openingIdle + 2*time.Second} {
				must(t, d.k.maps.Fresh.Put(
					bpfFlowKey{Client: wireAddress(netip.MustParseAddr("198.51.100.3")), Frontend: f.value.Index, Port: uint16(i)},
					bpfFlow{Backend: p.index, Generation: p.value.Generation, State: uint8(bpfFlowStateFLOW_NEW), Seen: uint32((up - silent) / time.Second)}))
			}
			for i, silent := range []time.Duration{closingIdle - 30*time.Second, closingIdle + 2*time.Second} {
				must(t, d.k.maps.Flows.Put(
					bpfFlowKey{Client: wireAddress(netip.MustParseAddr("198.51.100.2")), Frontend: f.value.Index, Port: uint16(i)},
					bpfFlow{Backend: p.index, Generation: p.value.Generation, State: uint8(bpfFlowStateFLOW_CLOSING), Seen: uint32((up - silent) / time.Second)}))
			}
		}
	}
	flows, _, err := d.Flows(model.FlowQuery{})
	must(t, err)
	got := map[model.FrontendKey]uint64{}
	for _, f := range flows {
		got[f.Frontend]++
	}
	figures, _, err := d.Figures()
	must(t, err)
	for _, f := range figures {
		n := uint64(4)                                             // of TCP one of which only the first packet came is none, of UDP one that is silent for long
		if got[f.FrontendKey] != n+1 || f.Backends[0].Flows != n { // one that ends is listed, too
			t.Errorf("%s: %d flows are listed and %d counted, want %d and %d", f.FrontendKey, got[f.FrontendKey], f.Backends[0].Flows, n+1, n)
		}
	}
	d.counts.short = errTime
	if list, _, err := d.Figures(); !errors.Is(err, errTime) || len(list) != 2 {
		t.Errorf("of a count that was cut short: %d frontends, %v", len(list), err)
	}
	must(t, d.Close(false))
}

// TestNothingOfOthersIsAdopted: what a frontend left that has gone is not the next one's with
// its number.
func TestNothingOfOthersIsAdopted(t *testing.T) {
	inMachine(t)
	dir := filepath.Join(t.TempDir(), "pins")
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	d := newPlane(t, dir)
	key := frontendKey(t, "udp://203.0.113.1:53")
	b := served(key, 1)
	b.Frontend.Sources = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	b.Frontend.QUIC = &model.QUICServer{Length: 6}
	want := model.Balancing{Machine: "m1", Nodes: nodes("m1"), Frontends: map[model.FrontendKey]*model.Balanced{key: b}}
	must(t, d.Set(want))
	must(t, d.k.maps.Sources.Put(sourceKey(9, netip.MustParsePrefix("0.0.0.0/0")), uint32(1)))
	must(t, d.k.maps.QuicServers.Put(bpfQuicServerKey{Frontend: 9}, uint32(1)))
	must(t, d.Close(true))
	d = newPlane(t, dir)
	must(t, d.Set(want))
	var sources, servers int
	pairs(d.k.maps.Sources, func(k bpfSourceKey, _ uint32) {
		if sources++; k.Frontend == 9 {
			t.Error("a range of clients stayed whose frontend has gone")
		}
	})
	pairs(d.k.maps.QuicServers, func(bpfQuicServerKey, uint32) { servers++ })
	if sources != 3 || servers != 1 {
		t.Errorf("there are %d ranges of clients and %d servers of QUIC, want 3 and 1", sources, servers)
	}
	must(t, d.Close(false))
}
