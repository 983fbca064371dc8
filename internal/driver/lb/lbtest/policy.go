package lbtest

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	"fairlead.dev/internal/model"
)

func sticky(x *site) {
	for _, f := range x.tcp(4) {
		f = altered(f, func(g *model.Frontend) { g.Affinity = time.Hour })
		k := f.Frontend.FrontendKey
		x.set(f)
		chosen, seen := map[int]string{}, map[string]bool{}
		for i := range clientsCount {
			got := x.spread(k, 8, func(int) netip.Addr { return clientAddr(k.VIP.Is4(), i) })
			if len(got) != 1 {
				x.t.Errorf("%s: a client reached %v", k, got)
			}
			for name := range got {
				chosen[i], seen[name] = name, true
			}
		}
		if len(seen) < 2 {
			x.t.Errorf("%s: %d clients reached only %v", k, clientsCount, seen)
		}
		x.plane.kill()
		x.again()
		weighted := changed(f, func(b []model.FrontendBackend) []model.FrontendBackend {
			b[0].Weight, b[1].Weight = 20, 70
			return b
		})
		x.set(weighted)
		for i, name := range chosen {
			if got := x.spread(k, 2, func(int) netip.Addr { return clientAddr(k.VIP.Is4(), i) }); got[name] != 2 {
				x.t.Errorf("%s: after other weights and a restart a client of %s reached %v", k, name, got)
			}
		}
		if x.subject.Cannot[StickyDrain] != "" {
			continue
		}
		// A client of a draining backend moves once, while its old flow goes on.
		for i := range 3 {
			x.set(weighted)
			from := clientAddr(k.VIP.Is4(), i)
			c, name := x.connect(from, k)
			n, _ := strconv.Atoi(name[1:])
			x.set(changed(weighted, with(model.BackendDraining, n-1)))
			got := x.spread(k, 6, func(int) netip.Addr { return from })
			if got[name] != 0 || len(got) != 1 {
				x.t.Errorf("%s: a client of the draining %s reached %v", k, name, got)
			}
			if still, err := ask(c); err != nil || still != name {
				x.t.Errorf("%s: its old flow reached %q: %v", k, still, err)
			}
		}
	}
}

// stickyPorts: all ports of a VIP and owner are one to a client.
func stickyPorts(x *site) {
	for _, vip := range vips[:2] {
		var set []*model.Balanced
		for _, port := range []uint16{80, 81} {
			f := x.frontend(key(model.TCP, vip, port), 4)
			f.Frontend.Affinity = time.Hour
			for i := range f.Backends {
				f.Backends[i].Address = netip.AddrPortFrom(f.Backends[i].Address.Addr(), port)
			}
			set = append(set, f)
		}
		seen := map[string]bool{}
		check := func(what string, among ...*model.Balanced) {
			x.t.Helper()
			for i := range clientsCount {
				got := map[string]int{}
				for _, f := range among {
					from := func(int) netip.Addr { return clientAddr(f.Frontend.VIP.Is4(), i) }
					for name, n := range x.spread(f.Frontend.FrontendKey, 2, from) {
						got[name] += n
						seen[name] = true
					}
				}
				if len(got) != 1 {
					x.t.Errorf("%s: %s: a client reached %v", vip, what, got)
				}
			}
		}
		x.set(set[0])
		check("one port", set[0])
		flows := x.open(set[0].Frontend.FrontendKey, 1, 4)
		x.set(set...)
		x.alive("one more port", flows)
		check("two ports", set...)
		if len(seen) < 2 {
			x.t.Errorf("%s: %d clients reached only %v", vip, clientsCount, seen)
		}
		eventually(x.t, "figures tell of the flows to both ports", func() bool {
			all, _ := x.plane.figures()
			return all[set[0].Frontend.FrontendKey].NewFlows+all[set[1].Frontend.FrontendKey].NewFlows >= 6*clientsCount
		})
		list, _ := x.plane.flows(model.FlowQuery{Frontend: set[0].Frontend.FrontendKey})
		for _, y := range list {
			if y.Backend.Port() != 80 || x.own[y.Backend] == "" {
				x.t.Errorf("%s: a flow is %+v", vip, y)
			}
		}
		x.set(set[0])
		x.alive("one port less", flows)
	}
}

// dropped is the sum of what was dropped.
func (x *site) dropped() uint64 {
	x.t.Helper()
	_, drops := x.plane.figures()
	var sum uint64
	for _, n := range drops {
		sum += n
	}
	return sum
}

func sources(x *site) {
	for _, f := range x.tcp(2) {
		k := f.Frontend.FrontendKey
		in, out := clientAddr(k.VIP.Is4(), 0), clientAddr(k.VIP.Is4(), 1)
		before := x.dropped()
		allowed := []netip.Prefix{netip.PrefixFrom(in, in.BitLen()), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:ff::/48")}
		x.set(altered(f, func(g *model.Frontend) { g.Sources = allowed }))
		x.connect(in, k)
		ctx, cancel := context.WithCancel(x.t.Context())
		result := make(chan error, 1)
		go func() {
			c, err := x.client.dial(ctx, out, "tcp", netip.AddrPortFrom(k.VIP, k.Port).String())
			if err == nil {
				_ = c.Close()
			}
			result <- err
		}()
		eventually(x.t, "a packet of a source that is not allowed is dropped and counted", func() bool { return x.dropped() > before })
		cancel()
		if err := <-result; err == nil {
			x.t.Errorf("%s: %s is not allowed and connected", k, out)
		}
		x.set(altered(f, func(g *model.Frontend) { g.Sources = append(allowed, netip.PrefixFrom(out, out.BitLen())) }))
		x.connect(out, k)
	}
}

func limit(x *site) {
	f := altered(x.frontend(key(model.UDP, vips[0], 53), 2), func(g *model.Frontend) { g.NewFlows = 5 })
	k := f.Frontend.FrontendKey
	x.set(f)
	for range 400 {
		_, err := x.packets(k).Write([]byte("who"))
		must(x.t, err)
	}
	eventually(x.t, "new flows beyond the limit are dropped and counted", func() bool { return x.dropped() > 0 })
	// Whoever tries again gets in at last.
	x.datagram(x.packets(k))
	figures, _ := x.plane.figures()
	if n := figures[k].NewFlows; n == 0 || n >= 400 {
		x.t.Errorf("%d of 400 simultaneous new flows were accepted, at a limit of 5 a second", n)
	}
	x.set(altered(f, func(g *model.Frontend) { g.NewFlows = 0 }))
	before := x.dropped()
	for range 100 {
		_, err := x.packets(k).Write([]byte("who"))
		must(x.t, err)
	}
	x.datagram(x.packets(k))
	if after := x.dropped(); after != before {
		x.t.Errorf("%d packets were dropped without a limit", after-before)
	}
}

func maxFlows(x *site) {
	f := altered(x.frontend(key(model.TCP, vips[0], 80), 2), func(g *model.Frontend) { g.MaxFlows = 10 })
	x.set(f)
	flows := map[string]int{}
	for range 16 {
		_, name := x.connect(netip.Addr{}, f.Frontend.FrontendKey)
		flows[name]++
	}
	for name, n := range flows {
		if n > 10 {
			x.t.Errorf("%s got %d flows, its limit is 10", name, n)
		}
	}
}
