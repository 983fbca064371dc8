package xdp

import (
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// TestClosedWays: a way is closed while one of the targets that show it is, and no longer
// than there is such a target.
func TestClosedWays(t *testing.T) {
	p := newProber(slog.New(slog.DiscardHandler), func() {})
	now := time.Now()
	p.now = func() time.Time { return now }
	vip := netip.MustParseAddr("203.0.113.1")
	to := func(remote string) target {
		return target{machine: "m2", vip: vip, remote: netip.MustParseAddr(remote), source: netip.MustParseAddr("192.0.2.1"), back: netip.MustParseAddr("192.0.2.1")}
	}
	one, two := to("192.0.2.2"), to("192.0.2.3")
	silent := func(list ...target) {
		for range probeMisses + 1 {
			p.due()
			for _, x := range list {
				p.answered(p.targets[x].number, x.remote)
			}
			now = now.Add(probeEvery)
		}
		p.due()
	}
	is := func(when string, want bool) {
		t.Helper()
		if got := p.closed("m2", vip); got != want {
			t.Errorf("%s: closed is %t", when, got)
		}
		if p.closed("m3", vip) || p.closed("m2", netip.MustParseAddr("203.0.113.2")) {
			t.Errorf("%s: another way is closed", when)
		}
	}
	p.set([]target{one, two})
	is("nothing is known", false)
	silent(one, two)
	is("both are silent", true)
	epoch := p.age()
	p.answered(p.targets[one].number, vip)
	is("one answers", true)
	p.set([]target{one})
	is("the other has gone", false)
	p.set([]target{one, two})
	silent(two)
	is("it is silent again", true)
	p.answered(p.targets[two].number, vip)
	is("it answers", false)
	if len(p.shut) > 0 || p.age() == epoch {
		t.Errorf("left are %v", p.shut)
	}
}

// BenchmarkPlan is what a change of the machines costs: all frontends are planned anew.
func BenchmarkPlan(b *testing.B) {
	const frontends, machines = 1000, 20
	all := model.Balancing{Machine: "m1", Nodes: map[string]*model.Node{}, Frontends: map[model.FrontendKey]*model.Balanced{}}
	for i := range machines {
		name := fmt.Sprintf("m%d", i+1)
		all.Nodes[name] = &model.Node{Name: name, Tunnel4: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), Decaps: true}
	}
	for i := range frontends {
		f := &model.Balanced{Frontend: &model.Frontend{
			FrontendKey: model.FrontendKey{VIP: netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}), Transport: model.TCP, Port: 80}, Machines: []string{"m1"},
		}}
		for j := range machines {
			f.Backends = append(f.Backends, model.FrontendBackend{
				Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), byte(j)}), 80), Machine: fmt.Sprintf("m%d", j+1), Weight: 100, HopWeight: 100,
			})
		}
		all.Frontends[f.Frontend.FrontendKey] = f
	}
	p := newProber(slog.New(slog.DiscardHandler), func() {})
	p.set(targets(all))
	around := quiet()
	around.nodes, around.closed = all.Nodes, p.closed
	for b.Loop() {
		for _, f := range all.Frontends {
			plan(f, around)
		}
	}
}
