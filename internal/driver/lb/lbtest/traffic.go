package lbtest

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// Traffic is the second part of the contract: all of it, or the cases named.
func Traffic(t *testing.T, s Subject, only ...string) {
	for _, c := range []struct {
		name  string
		needs Feature
		run   func(*site)
	}{
		{"shares", "", shares},
		{"no-new-flows", "", noNewFlows},
		{"draining", "", draining},
		{"survive", "", survive},
		{"http", OtherPort, web},
		{"udp", "", datagrams},
		{"gone", "", gone},
		{"two-ports", "", twoPorts},
		{"any-route", AnyRoute, anyRoute},
		{"affinity", Affinity, sticky},
		{"affinity-over-ports", AffinityPorts, stickyPorts},
		{"sources", Sources, sources},
		{"new-flow-limit", NewFlows, limit},
		{"flows-per-backend", MaxFlows, maxFlows},
		{"figures", "", figures},
		{"watched", Watch, watched},
		{"listener", Listener, listener},
		{"bystanders", "", bystanders},
	} {
		if s.Cannot[c.needs] != "" || len(only) > 0 && !slices.Contains(only, c.name) {
			continue // State sees that it is refused
		}
		t.Run(c.name, func(t *testing.T) { c.run(newSite(t, s)) })
	}
}

// tcp are frontends of both families.
func (x *site) tcp(n int) []*model.Balanced {
	return []*model.Balanced{x.frontend(key(model.TCP, vips[0], 80), n), x.frontend(key(model.TCP, vips[1], 80), n)}
}

// within holds a count against a share of n: five standard deviations of chance, and 2 %
// of n for tables that are not perfect.
func (x *site) within(what string, got, n int, share float64) {
	x.t.Helper()
	want := float64(n) * share
	if room := 5*math.Sqrt(want*(1-share)) + 0.02*float64(n); math.Abs(float64(got)-want) > room {
		x.t.Errorf("%s got %d of %d flows, want %.0f within %.0f", what, got, n, want, room)
	}
}

func shares(x *site) {
	const flows = 2400
	weights := []uint32{100, 200, 300, 0}
	var set []*model.Balanced
	for _, f := range x.tcp(4) {
		set = append(set, changed(f, func(b []model.FrontendBackend) []model.FrontendBackend {
			for i := range b {
				b[i].Weight, b[i].HopWeight = weights[i], max(weights[i], 1)
			}
			return b
		}))
	}
	x.set(set...)
	for _, f := range set {
		k := f.Frontend.FrontendKey
		got := x.spread(k, flows, nil)
		for i, w := range weights {
			name := fmt.Sprintf("b%d", i+1)
			if w == 0 && got[name] != 0 {
				x.t.Errorf("%s: %s has weight 0 and got %d flows", k, name, got[name])
			} else if w > 0 {
				x.within(fmt.Sprint(k, " ", name), got[name], flows, float64(w)/600)
			}
		}
	}
}

func noNewFlows(x *site) {
	for _, f := range x.tcp(4) {
		k := f.Frontend.FrontendKey
		for what, change := range map[string]func([]model.FrontendBackend) []model.FrontendBackend{
			"removed": func(b []model.FrontendBackend) []model.FrontendBackend { return append(b[:1], b[2:]...) },
			"unready": with(model.BackendUnready, 1),
			"drained": with(model.BackendDraining, 1),
		} {
			x.set(f)
			if got := x.spread(k, 200, nil); len(got) != 4 {
				x.t.Errorf("%s: four backends got %v", k, got)
			}
			x.set(changed(f, change))
			if got := x.spread(k, 200, nil); len(got) != 3 || got["b2"] != 0 {
				x.t.Errorf("%s: b2 is %s, and the flows went %v", k, what, got)
			}
		}
	}
}

// open opens flows until each of n backends has some, at least least in all.
func (x *site) open(k model.FrontendKey, n, least int) map[net.Conn]string {
	x.t.Helper()
	flows, seen := map[net.Conn]string{}, map[string]bool{}
	for i := 0; len(seen) < n || len(flows) < least; i++ {
		if i > 400 {
			x.t.Fatalf("%s: 400 flows reached only %v", k, seen)
		}
		c, name := x.connect(netip.Addr{}, k)
		flows[c], seen[name] = name, true
	}
	return flows
}

// alive fails unless all flows still reach the backend that they did.
func (x *site) alive(what string, flows map[net.Conn]string) {
	x.t.Helper()
	for c, name := range flows {
		if got, err := ask(c); err != nil || got != name {
			x.t.Errorf("%s: a flow of %s reaches %q: %v", what, name, got, err)
		}
	}
}

func draining(x *site) {
	for _, f := range x.tcp(3) {
		k := f.Frontend.FrontendKey
		x.set(f)
		flows := x.open(k, 3, 20)
		x.set(changed(f, with(model.BackendDraining, 0)))
		x.alive("draining", flows)
		if got := x.spread(k, 100, nil); got["b1"] != 0 {
			x.t.Errorf("%s: the draining backend got new flows: %v", k, got)
		}
		x.alive("after new flows", flows)
		x.set(f)
		x.alive("back again", flows)
	}
}

// survive: neither other weights nor other backends nor a restart touch what is open.
func survive(x *site) {
	set := x.tcp(3)
	x.set(set...)
	flows := map[net.Conn]string{}
	for _, f := range set {
		for c, name := range x.open(f.Frontend.FrontendKey, 3, 30) {
			flows[c] = name
		}
	}
	x.alive("at first", flows)
	var other []*model.Balanced
	for _, f := range set {
		other = append(other, changed(f, func(b []model.FrontendBackend) []model.FrontendBackend {
			b[0].Weight = 40
			return append(b, x.backend(f.Frontend.FrontendKey, 3, 400))
		}))
	}
	x.set(other...)
	x.alive("after other weights and one more backend", flows)
	x.plane.kill()
	x.alive("while the data plane's process is dead", flows)
	x.again()
	x.alive("before the next process was told anything", flows)
	x.set(other...)
	x.alive("after a restart", flows)
	x.plane.close(true)
	x.again()
	x.set(set...)
	x.alive("after a restart with other frontends", flows)
	if got := x.spread(set[0].Frontend.FrontendKey, 100, nil); got["b4"] != 0 {
		x.t.Errorf("a backend that went while nobody ran got new flows: %v", got)
	}
}

func web(x *site) {
	var set []*model.Balanced
	for _, f := range x.tcp(3) {
		set = append(set, changed(f, func(b []model.FrontendBackend) []model.FrontendBackend {
			for i := range b {
				b[i].Address = netip.AddrPortFrom(b[i].Address.Addr(), webPort)
			}
			return b
		}))
	}
	x.set(set...)
	for _, f := range set {
		k := f.Frontend.FrontendKey
		for _, keep := range []bool{true, false} {
			client := &http.Client{Timeout: patience, Transport: &http.Transport{
				DisableKeepAlives: !keep,
				DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
					return x.client.dial(ctx, netip.Addr{}, network, to)
				},
			}}
			got := map[string]int{}
			for range 60 {
				r, err := client.Get("http://" + netip.AddrPortFrom(k.VIP, k.Port).String() + "/")
				must(x.t, err)
				body, err := io.ReadAll(r.Body)
				must(x.t, err)
				_ = r.Body.Close()
				got[string(body)]++
			}
			client.CloseIdleConnections()
			if keep && len(got) != 1 || !keep && len(got) != 3 {
				x.t.Errorf("%s: requests with keepalive %t went %v", k, keep, got)
			}
		}
	}
}

// datagram sends one and waits for the answer, sending again now and then.
func (x *site) datagram(c net.Conn) string {
	x.t.Helper()
	buffer := make([]byte, 256)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		_, _ = c.Write([]byte("who"))
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := c.Read(buffer); err == nil {
			return string(buffer[:n])
		}
	}
	x.t.Fatalf("no answer to datagrams from %s to %s", c.LocalAddr(), c.RemoteAddr())
	return ""
}

func (x *site) packets(k model.FrontendKey) net.Conn {
	x.t.Helper()
	c, err := x.client.dial(x.t.Context(), netip.Addr{}, "udp", netip.AddrPortFrom(k.VIP, k.Port).String())
	must(x.t, err)
	x.t.Cleanup(func() { _ = c.Close() })
	return c
}

func datagrams(x *site) {
	for _, vip := range vips[:2] {
		f := x.frontend(key(model.UDP, vip, 53), 3)
		k := f.Frontend.FrontendKey
		x.set(f)
		names := map[string]net.Conn{}
		for i := 0; len(names) < 3; i++ {
			if i > 200 {
				x.t.Fatalf("%s: 200 clients reached only %d backends", k, len(names))
			}
			c := x.packets(k)
			name := x.datagram(c)
			names[name] = c
			for range 3 {
				if again := x.datagram(c); again != name {
					x.t.Errorf("%s: one flow reached %s, then %s", k, name, again)
				}
			}
		}
		x.set(changed(f, with(model.BackendDraining, 0)))
		if got := x.datagram(names["b1"]); got != "b1" {
			x.t.Errorf("%s: a flow of a draining backend reached %s", k, got)
		}
		for range 30 {
			if got := x.datagram(x.packets(k)); got == "b1" {
				x.t.Errorf("%s: a new flow reached the draining backend", k)
			}
		}
	}
}

// gone: a client that goes on sending when its backend is unready or gone finds another.
func gone(x *site) {
	for _, vip := range vips[:2] {
		f := x.frontend(key(model.UDP, vip, 53), 2)
		k := f.Frontend.FrontendKey
		for what, change := range map[string]func([]model.FrontendBackend) []model.FrontendBackend{
			"removed": func(b []model.FrontendBackend) []model.FrontendBackend { return b[1:] },
			"unready": with(model.BackendUnready, 0),
		} {
			x.set(f)
			flows := map[net.Conn]bool{}
			for i := 0; len(flows) < 3; i++ {
				if i > 200 {
					x.t.Fatalf("%s: 200 clients did not reach b1 three times", k)
				}
				if c := x.packets(k); x.datagram(c) == "b1" {
					flows[c] = true
				}
			}
			x.set(changed(f, change))
			for c := range flows {
				eventually(x.t, fmt.Sprintf("%s: a flow of b1, which is %s, reaches b2", k, what), func() bool { return x.datagram(c) == "b2" })
			}
		}
	}
}

// anyRoute: answers come back from backends that have another way to the client.
func anyRoute(x *site) {
	set := x.tcp(2)
	x.set(set...)
	for _, b := range x.backends {
		b.route(x.t, clients4.String(), "10.92.0.9")
		b.route(x.t, clients6.String(), "fd92::9")
	}
	for _, f := range set {
		k := f.Frontend.FrontendKey
		x.alive("with another route", x.open(k, 2, 4))
	}
}

func twoPorts(x *site) {
	a, b := x.frontend(key(model.TCP, vips[0], 80), 4), x.frontend(key(model.TCP, vips[0], 81), 4)
	a.Backends, b.Backends = a.Backends[:2], b.Backends[2:]
	x.set(a, b)
	if got := x.spread(a.Frontend.FrontendKey, 60, nil); got["b1"]+got["b2"] != 60 || len(got) != 2 {
		x.t.Errorf("port 80 reached %v", got)
	}
	if got := x.spread(b.Frontend.FrontendKey, 60, nil); got["b3"]+got["b4"] != 60 || len(got) != 2 {
		x.t.Errorf("port 81 reached %v", got)
	}
	x.set(a)
	if got := x.spread(a.Frontend.FrontendKey, 60, nil); got["b1"]+got["b2"] != 60 {
		x.t.Errorf("port 80 reached %v after port 81 had gone", got)
	}
}

// figures are what happened.
func figures(x *site) {
	set := x.tcp(3)
	x.set(set...)
	for _, f := range set {
		k := f.Frontend.FrontendKey
		const rounds = 30
		opened := x.open(k, 3, 12)
		got := x.spread(k, rounds, nil)
		for _, name := range opened {
			got[name]++
		}
		total := len(opened) + rounds
		var g model.FrontendFigures
		eventually(x.t, fmt.Sprintf("the figures of %s tell of %d flows", k, total), func() bool { // IPVS adds up every two seconds
			all, _ := x.plane.figures()
			g = all[k]
			return g.NewFlows >= uint64(total)
		})
		if g.NewFlows != uint64(total) || g.Packets < uint64(3*total) || g.Bytes < 40*g.Packets {
			x.t.Errorf("%s: after %d flows the figures are %d packets, %d bytes, %d flows", k, total, g.Packets, g.Bytes, g.NewFlows)
		}
		for _, b := range f.Backends {
			name := x.own[b.Address]
			y := backendFigures(g, b.Address)
			if y.NewFlows != uint64(got[name]) || y.Packets < uint64(3*got[name]) {
				x.t.Errorf("%s: %s took %d flows, its figures are %+v", k, name, got[name], y)
			}
		}
		flows, truncated := x.plane.flows(model.FlowQuery{Frontend: k})
		if truncated {
			x.t.Error("truncated without need")
		}
		by := map[netip.AddrPort]model.Flow{}
		for _, y := range flows {
			if y.Frontend != k {
				x.t.Errorf("asked for %s, and got %+v", k, y)
			}
			by[y.Client] = y
		}
		for c, name := range opened {
			at := c.LocalAddr().(*net.TCPAddr).AddrPort()
			y := by[netip.AddrPortFrom(at.Addr().Unmap(), at.Port())]
			if y.State != "established" || x.own[y.Backend] != name || y.Idle < 0 || y.Idle > time.Hour {
				x.t.Errorf("%s: the flow of %s with %s is %+v", k, at, name, y)
			}
		}
		if some, more := x.plane.flows(model.FlowQuery{Frontend: k, Limit: 3}); len(some) != 3 || !more {
			x.t.Errorf("with a limit of 3 there are %d flows, more %t", len(some), more)
		}
		if none, _ := x.plane.flows(model.FlowQuery{Client: netip.MustParsePrefix("203.0.113.0/24")}); len(none) != 0 {
			x.t.Errorf("flows of a client that has none: %v", none)
		}
		one, _ := x.plane.flows(model.FlowQuery{Frontend: k, Backend: f.Backends[0].Address.Addr()})
		for _, y := range one {
			if y.Backend != f.Backends[0].Address {
				x.t.Errorf("asked for flows of %s, and got %+v", f.Backends[0].Address, y)
			}
		}
	}
}

// listener: what goes to the machine's own proxy.
func listener(x *site) {
	l := make([]net.Listener, 2)
	for i, vip := range vips[:2] {
		must(x.t, x.lb.in(func() (err error) {
			l[i], err = net.Listen("tcp", net.JoinHostPort(vip, "443"))
			return err
		}))
		defer func() { _ = l[i].Close() }()
		go func() {
			for {
				c, err := l[i].Accept()
				if err != nil {
					return
				}
				go greet(c, "proxy")
			}
		}()
		k := key(model.TCP, vip, 443)
		f := x.frontend(k, 0)
		f.Frontend.Listener, f.Frontend.Mode = "https-443", model.ModeAuto
		f.Backends = []model.FrontendBackend{{Address: netip.AddrPortFrom(k.VIP, 443), Machine: machine, Weight: 100, HopWeight: 100}}
		x.set(f)
		if o := x.plane.observed()[k]; o.Mode != model.ModeLocal || o.Available != 1 {
			x.t.Errorf("observed %s", text(o))
		}
		c, name := x.connect(netip.Addr{}, k)
		if name != "proxy" {
			x.t.Errorf("%s reached %s", k, name)
		}
		x.set()
		x.alive("no longer balanced", map[net.Conn]string{c: "proxy"})
	}
}

// bystanders: other traffic through the machine is as before.
func bystanders(x *site) {
	set := x.tcp(2)
	if x.subject.Direct {
		return // the backends' way back does not lead through the load balancer
	}
	direct := key(model.TCP, backendAddr(true, 2).String(), backendPort)
	c, name := x.connect(netip.Addr{}, direct)
	x.set(set...)
	open := map[net.Conn]string{c: name}
	x.alive("set", open)
	x.connect(netip.Addr{}, direct)
	if name != "b3" {
		x.t.Errorf("the backend itself is %s", name)
	}
	x.set()
	x.alive("nothing set", open)
	x.plane.close(false)
	x.alive("closed", open)
}
