package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
)

// fakePlane is a data plane as a test sets it. It writes into a log that several share.
type fakePlane struct {
	kind model.DataPlaneKind
	log  *[]string

	mu       sync.Mutex
	set      model.Balancing
	sets     int
	cannot   map[model.FrontendKey]string // what Supports says
	refuses  map[model.FrontendKey]string // what Observed says
	broken   error                        // what Set says
	mode     model.ForwardMode
	held     chan struct{} // Set waits for it
	entered  chan struct{} // Set tells that it waits
	mtu      uint32
	counted  []model.FrontendFigures
	dropped  map[string]uint64
	recorded []model.Flow
	asked    func() // Supports calls it
}

func (p *fakePlane) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (p *fakePlane) Set(b model.Balancing) error {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		p.entered <- struct{}{}
		<-held
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var keys []string
	for k := range b.Frontends {
		keys = append(keys, k.String())
	}
	slices.Sort(keys)
	if p.log != nil {
		*p.log = append(*p.log, string(p.kind)+"="+strings.Join(keys, ","))
	}
	p.sets++
	if p.broken != nil {
		return p.broken
	}
	p.set = b
	return nil
}

func (p *fakePlane) Observed() []model.FrontendObserved {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []model.FrontendObserved
	for k, f := range p.set.Frontends {
		o := model.FrontendObserved{FrontendKey: k, State: model.FrontendBalanced, Mode: cmp.Or(f.Frontend.Mode, p.mode)}
		if !slices.Contains(f.Frontend.Machines, p.set.Machine) {
			o.State = model.FrontendDecap
		}
		if why := p.refuses[k]; why != "" {
			o.State, o.Message = model.FrontendRefused, why
		}
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b model.FrontendObserved) int { return a.Compare(b.FrontendKey) })
	return list
}

func (p *fakePlane) Supports(f *model.Balanced) error {
	if p.asked != nil {
		p.asked()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if why := p.cannot[f.Frontend.FrontendKey]; why != "" {
		return errors.New(why)
	}
	return nil
}

func (p *fakePlane) Figures() ([]model.FrontendFigures, map[string]uint64, error) {
	return p.counted, p.dropped, p.broken
}

func (p *fakePlane) Flows(q model.FlowQuery) ([]model.Flow, bool, error) {
	return p.recorded[:min(q.Limit, len(p.recorded))], q.Limit < len(p.recorded), p.broken
}

func (p *fakePlane) has() model.Balancing {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.set
}

func (p *fakePlane) times() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sets
}

// tunneler is a fake that takes packets out of tunnels.
type tunneler struct{ *fakePlane }

func (p tunneler) Tunnel() (uint32, string, bool) { return p.mtu, "", p.mtu > 0 }

var (
	web    = model.FrontendKey{VIP: one, Transport: model.TCP, Port: 80}
	mail   = model.FrontendKey{VIP: one, Transport: model.TCP, Port: 25}
	domain = model.FrontendKey{VIP: two, Transport: model.UDP, Port: 53}
	pod    = netip.MustParseAddrPort("10.0.0.9:8080")
)

func frontendOn(k model.FrontendKey, machines ...string) model.Frontend {
	return model.Frontend{FrontendKey: k, Owner: model.Object{Kind: "Service", Namespace: "n", Name: "s"}, Machines: machines}
}

func ready(at netip.AddrPort, machine string, weight uint32) model.FrontendBackend {
	return model.FrontendBackend{Address: at, Machine: machine, Weight: weight, HopWeight: weight}
}

func frontendChanges(t *testing.T, f model.Frontend, backends ...model.FrontendBackend) []delta.Change {
	name := wire.FrontendName(f.FrontendKey)
	return []delta.Change{
		{Type: typeFrontendBackends, Name: name, Resource: gatetest.Pack(t, name, wire.FrontendBackends(backends))},
		{Type: typeFrontend, Name: name, Resource: gatetest.Pack(t, name, wire.Frontend(&f, func(id model.ListenerID) string { return string(id) }))},
	}
}

func nodeChange(t *testing.T, n model.Node) delta.Change {
	return delta.Change{Type: typeNode, Name: n.Name, Resource: gatetest.Pack(t, n.Name, wire.Node(n))}
}

func withoutFrontend(k model.FrontendKey) []delta.Change {
	return []delta.Change{{Type: typeFrontend, Name: k.String()}, {Type: typeFrontendBackends, Name: k.String()}}
}

// proxies are the backends of a listener's frontend.
func proxies(k model.FrontendKey, machines ...string) (list []model.FrontendBackend) {
	for _, m := range machines {
		list = append(list, ready(netip.AddrPortFrom(k.VIP, k.Port), m, 100))
	}
	return list
}

// newBalancing is an announcer whose balancer has these data planes.
func newBalancing(t *testing.T, planes ...*fakePlane) *announcing {
	t.Helper()
	a := newAnnouncing(t)
	for _, p := range planes {
		plane := BalancingPlane{p.kind, p}
		if p.mtu > 0 {
			plane.DataPlane = tunneler{p}
		}
		a.balancer.drivers.Planes = append(a.balancer.drivers.Planes, plane)
	}
	a.balancer.drives = make([]drive, len(planes))
	return a
}

// balances compares what is observed of frontends, a line each.
func (a *announcing) balances(want ...string) {
	a.t.Helper()
	a.balancer.apply()
	var got []string
	for _, o := range a.balancer.observed() {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s/%s %d %s", o.FrontendKey, o.State, o.Mode, o.DataPlane, o.Available, o.Message)))
	}
	if !slices.Equal(got, want) {
		a.t.Errorf("observed:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNothingIsBalancedBeforeTheWholeState(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP}
	a := newBalancing(t, xdp)
	a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100))...)
	a.balancer.apply()
	if xdp.times() != 0 {
		t.Error("a data plane was told before the state was whole: it forgets what an earlier agent left")
	}
	a.whole()
	a.balances("tcp://192.0.2.1:80 balanced /XDP 1")
	if got := xdp.has(); got.Machine != "edge-1" || len(got.Frontends) != 1 || got.Frontends[web].Backends[0].Address != pod {
		t.Errorf("the data plane was told %+v", got)
	}
	if a.balancer.apply(); xdp.times() != 1 {
		t.Errorf("nothing changed, and it was told %d times", xdp.times())
	}
}

// What did not change keeps its pointer, so that data planes need not look at it.
func TestUnchangedFrontendsKeepTheirPointers(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP}
	a := newBalancing(t, xdp)
	a.gives(slices.Concat(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100)), frontendChanges(t, frontendOn(domain, "edge-1"), ready(pod, "", 100)),
		[]delta.Change{nodeChange(t, model.Node{Name: "edge-2", Decaps: true})})...)
	a.whole()
	a.balancer.apply()
	was := xdp.has()
	a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 50))[:1]...)
	a.balancer.apply()
	is := xdp.has()
	if is.Frontends[domain] != was.Frontends[domain] || is.Nodes["edge-2"] != was.Nodes["edge-2"] {
		t.Error("what did not change has another pointer")
	}
	if is.Frontends[web] == was.Frontends[web] || is.Frontends[web].Frontend != was.Frontends[web].Frontend || was.Frontends[web].Backends[0].Weight != 100 {
		t.Error("what changed has the same pointer, or was changed in its place")
	}
}

func TestDataPlaneIsChosen(t *testing.T) {
	t.Parallel()
	t.Run("the first that can", func(t *testing.T) {
		xdp := &fakePlane{kind: model.DataPlaneXDP, cannot: map[model.FrontendKey]string{web: "no BPF"}}
		nft := &fakePlane{kind: model.DataPlaneNFTables, mode: model.ModeNAT, cannot: map[model.FrontendKey]string{domain: "no UDP today"}}
		a := newBalancing(t, xdp, nft)
		a.gives(slices.Concat(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100)), frontendChanges(t, frontendOn(domain, "edge-1"), ready(pod, "", 100)))...)
		a.whole()
		a.balances("tcp://192.0.2.1:80 balanced NAT/NFTables 1 XDP: no BPF", "udp://[2001:db8::2]:53 balanced /XDP 1")
	})
	t.Run("the one that was asked for", func(t *testing.T) {
		xdp, nft := &fakePlane{kind: model.DataPlaneXDP}, &fakePlane{kind: model.DataPlaneNFTables, cannot: map[model.FrontendKey]string{mail: "no nf_tables"}}
		a := newBalancing(t, xdp, nft)
		for _, k := range []model.FrontendKey{web, mail} {
			f := frontendOn(k, "edge-1")
			f.DataPlane = model.DataPlaneNFTables
			a.gives(frontendChanges(t, f, ready(pod, "", 100))...)
		}
		f := frontendOn(domain, "edge-1")
		f.DataPlane = model.DataPlaneIPVS
		a.gives(frontendChanges(t, f, ready(pod, "", 100))...)
		a.whole()
		a.balances("tcp://192.0.2.1:25 refused / 1 NFTables: no nf_tables", "tcp://192.0.2.1:80 balanced /NFTables 1",
			"udp://[2001:db8::2]:53 refused / 1 this machine's agent does not run the data plane IPVS (--data-plane)")
	})
	t.Run("none", func(t *testing.T) {
		a := newBalancing(t)
		l7 := frontendOn(mail, "edge-1", "edge-2")
		l7.Listener = "http-25"
		a.gives(slices.Concat(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100)), frontendChanges(t, l7, proxies(mail, "edge-1", "edge-2")...))...)
		a.whole()
		a.balances("tcp://192.0.2.1:25 balanced Local/ 2 connections end when routers move them to another machine: this machine's agent runs no data plane (--data-plane)",
			"tcp://192.0.2.1:80 refused / 1 this machine's agent runs no data plane (--data-plane)")
	})
	t.Run("one that says yes and then no", func(t *testing.T) {
		xdp, nft := &fakePlane{kind: model.DataPlaneXDP, refuses: map[model.FrontendKey]string{web: "eth0 takes no program"}}, &fakePlane{kind: model.DataPlaneNFTables}
		a := newBalancing(t, xdp, nft)
		a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100))...)
		a.whole()
		a.balances("tcp://192.0.2.1:80 balanced /NFTables 1 XDP: eth0 takes no program")
		if len(xdp.has().Frontends) != 0 {
			t.Error("both have it")
		}
		a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 50))[:1]...) // not asked again for every change of a weight
		before := xdp.times()
		a.balances("tcp://192.0.2.1:80 balanced /NFTables 1 XDP: eth0 takes no program")
		if xdp.times() != before {
			t.Error("the one that could not was told again")
		}
		xdp.refuses = nil
		a.after(askAgain)
		a.balances("tcp://192.0.2.1:80 balanced /XDP 1")
	})
	t.Run("one that finds that it cannot", func(t *testing.T) {
		xdp := &fakePlane{kind: model.DataPlaneXDP, broken: fmt.Errorf("%w: nothing can be pinned", errors.ErrUnsupported)}
		nft := &fakePlane{kind: model.DataPlaneNFTables}
		a := newBalancing(t, xdp, nft)
		a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100))...)
		a.whole()
		a.balances("tcp://192.0.2.1:80 balanced /NFTables 1 XDP: unsupported operation: nothing can be pinned")
		xdp.broken = nil
		a.after(askAgain)
		a.balances("tcp://192.0.2.1:80 balanced /XDP 1")
	})
}

// A proxy that is alone needs no data plane; with a second one flows must find their owner.
func TestListenerOfOneMachineIsLocal(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP, mode: model.ModeDSRGeneve}
	a := newBalancing(t, xdp)
	f := frontendOn(web, "edge-1")
	f.Listener = "http-80"
	a.gives(frontendChanges(t, f, proxies(web, "edge-1")...)...)
	a.whole()
	a.listens("http-80")
	a.balances("tcp://192.0.2.1:80 balanced Local/ 1")
	f.Machines = []string{"edge-1", "edge-2"}
	a.gives(frontendChanges(t, f, proxies(web, "edge-1", "edge-2")...)...)
	a.balances("tcp://192.0.2.1:80 balanced DSRGeneve/XDP 2")
	f.Sources = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Machines = f.Machines[:1]
	a.gives(frontendChanges(t, f, proxies(web, "edge-1")...)...)
	a.balances("tcp://192.0.2.1:80 balanced DSRGeneve/XDP 1") // somebody must look at the sources
	xdp.cannot = map[model.FrontendKey]string{web: "no BPF"}
	f.NewFlows = 1
	a.gives(frontendChanges(t, f, proxies(web, "edge-1")...)...)
	a.balances("tcp://192.0.2.1:80 refused / 1 XDP: no BPF") // and not nobody
}

func TestFrontendsMoveWithoutAGap(t *testing.T) {
	t.Parallel()
	var log []string
	xdp, nft := &fakePlane{kind: model.DataPlaneXDP, log: &log}, &fakePlane{kind: model.DataPlaneNFTables, log: &log}
	a := newBalancing(t, xdp, nft)
	f := frontendOn(web, "edge-1")
	a.gives(frontendChanges(t, f, ready(pod, "", 100))...)
	a.whole()
	a.balancer.apply()
	for _, to := range []model.DataPlaneKind{model.DataPlaneNFTables, model.DataPlaneXDP} {
		log = nil
		f.DataPlane = to
		a.gives(frontendChanges(t, f, ready(pod, "", 100))...)
		a.balancer.apply()
		from := model.DataPlaneXDP
		if to == from {
			from = model.DataPlaneNFTables
		}
		if want := []string{string(to) + "=tcp://192.0.2.1:80", string(from) + "="}; !slices.Equal(log, want) {
			t.Errorf("to %s: %q, want %q", to, log, want)
		}
	}
	// One that cannot take it leaves it where it is.
	log, nft.broken = nil, errors.New("the kernel says no")
	f.DataPlane = model.DataPlaneNFTables
	a.gives(frontendChanges(t, f, ready(pod, "", 100))...)
	a.balances("tcp://192.0.2.1:80 refused /NFTables 1 NFTables: the kernel says no")
	if _, has := xdp.has().Frontends[web]; !has {
		t.Errorf("nobody has it: %q", log)
	}
	nft.broken = nil
	a.after(driveMost)
	a.balances("tcp://192.0.2.1:80 balanced /NFTables 1")
	if _, has := xdp.has().Frontends[web]; has {
		t.Error("both have it")
	}
}

// Only who takes packets out of tunnels is told of frontends whose VIP is elsewhere.
func TestMachineWithBackendsOnly(t *testing.T) {
	t.Parallel()
	nft, xdp := &fakePlane{kind: model.DataPlaneNFTables}, &fakePlane{kind: model.DataPlaneXDP, mtu: 1500}
	a := newBalancing(t, nft, xdp)
	// Who has not been asked has not said that it has none.
	if got, unknown := a.balancer.tunnel(); got != nil || !unknown {
		t.Errorf("before the data planes were asked the tunnel is %v", got)
	}
	a.balancer.ask()
	close(a.balancer.known)
	if got, unknown := a.balancer.tunnel(); got.GetMtu() != 1500 || unknown {
		t.Errorf("the tunnel is %v", got)
	}
	a.gives(frontendChanges(t, frontendOn(web, "edge-2"), ready(pod, "edge-1", 100))...)
	a.whole()
	a.balances("tcp://192.0.2.1:80 decap /XDP 1")
	if len(nft.has().Frontends) != 0 {
		t.Error("a data plane without tunnels was told of it")
	}
	a.gives(withoutFrontend(web)...)
	a.balances()
	if len(xdp.has().Frontends) != 0 {
		t.Error("it is still there")
	}
	b := newBalancing(t, nft)
	b.gives(frontendChanges(t, frontendOn(web, "edge-2"), ready(pod, "edge-1", 100))...)
	b.whole()
	b.balances()
	close(b.balancer.known)
	if got, unknown := b.balancer.tunnel(); got != nil || unknown {
		t.Errorf("without a tunnel there is %v", got)
	}
}

// Routers follow a withdrawal after a moment, in which packets still come.
func TestWhatIsNotWantedLingers(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP, mtu: 1500}
	a := newBalancing(t, xdp)
	vip := bgpVIP(one)
	vip.Frontends = []model.FrontendKey{web}
	a.gives(append(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "edge-1", 100)), vipChange(t, vip))...)
	a.whole()
	a.balancer.apply()
	a.says(one.String())
	was := xdp.has().Frontends[web]
	// The machine loses the VIP, and keeps a backend.
	a.gives(frontendChanges(t, frontendOn(web, "edge-2"), ready(pod, "edge-1", 100))...)
	if again := a.balancer.apply(); again <= 0 || again > linger {
		t.Errorf("it looks again after %s", again)
	}
	if xdp.has().Frontends[web] != was {
		t.Error("packets on their way are lost")
	}
	a.says()
	a.told(one, model.VIPWithheld, "frontend tcp://192.0.2.1:80 is not known here yet")
	a.after(linger)
	a.balances("tcp://192.0.2.1:80 decap /XDP 1")
}

func TestLocalOnlyTakesBackendsOfTheMachine(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP}
	a := newBalancing(t, xdp)
	f := frontendOn(web, "edge-1")
	f.LocalOnly = true
	vip := bgpVIP(one)
	vip.Frontends = []model.FrontendKey{web}
	a.gives(append(frontendChanges(t, f, ready(pod, "edge-2", 100)), vipChange(t, vip))...)
	a.whole()
	a.balances("tcp://192.0.2.1:80 balanced /XDP 0")
	a.says()
	a.told(one, model.VIPWithheld, "frontend tcp://192.0.2.1:80 has no available backend on this machine (externalTrafficPolicy: Local)")
	if b := xdp.has().Frontends[web].Backends[0]; b.Weight != 0 || b.HopWeight != 100 {
		t.Errorf("the other machine's backend is %+v: it takes no new flow, and keeps what it has", b)
	}
	a.gives(frontendChanges(t, f, ready(pod, "edge-2", 100), ready(netip.MustParseAddrPort("10.0.0.1:80"), "edge-1", 100))...)
	a.balances("tcp://192.0.2.1:80 balanced /XDP 1")
	a.says(one.String())
}

func TestUnreadyIsWhatTheProxyDoesNotServe(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP}
	a := newBalancing(t, xdp)
	l7 := frontendOn(web, "edge-1", "edge-2")
	l7.Listener = "http-80"
	a.gives(slices.Concat(frontendChanges(t, l7, proxies(web, "edge-1", "edge-2")...), frontendChanges(t, frontendOn(domain, "edge-1"), ready(pod, "", 100)))...)
	a.whole()
	unready := func(want ...model.FrontendKey) {
		t.Helper()
		a.apply()
		a.balancer.apply()
		if got := slices.Collect(maps.Keys(xdp.has().Unready)); !slices.Equal(got, want) {
			t.Errorf("unready are %v, want %v", got, want)
		}
	}
	unready(web)
	a.listens("http-80")
	unready()
	a.becomes("backoff", 2)
	unready(web)
	a.becomes(proxyReady, 2)
	unready()
	a.balancer.leave(true)
	unready(web)
	a.balancer.leave(false)
	unready()
}

// A data plane that is slow, or broken, holds up neither the stream nor the agent.
func TestSlowDataPlaneHoldsUpNothing(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP, held: make(chan struct{}), entered: make(chan struct{}, 100)}
	a := newBalancing(t, xdp)
	a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 1))...)
	a.whole()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.balancer.run(ctx)
	}()
	<-xdp.entered
	for i := range uint32(100) {
		a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 2+i))...)
	}
	a.balancer.observed()
	a.says()
	close(xdp.held)
	eventually(t, "the last comes", func() bool {
		f := xdp.has().Frontends[web]
		return f != nil && f.Backends[0].Weight == 101
	})
	if n := xdp.times(); n > 10 {
		t.Errorf("100 changes while it was busy were %d more", n)
	}
	cancel()
	<-done
}

func TestBrokenDataPlaneIsTriedAgain(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP, broken: errors.New("out of memory")}
	a := newBalancing(t, xdp)
	a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 1))...)
	a.whole()
	a.balances("tcp://192.0.2.1:80 refused /XDP 1 XDP: out of memory")
	if again := a.balancer.apply(); again != driveAgain || xdp.times() != 1 {
		t.Errorf("it is tried again after %s, was %d times", again, xdp.times())
	}
	a.after(driveAgain)
	if again := a.balancer.apply(); again != 2*driveAgain || xdp.times() != 2 {
		t.Errorf("it is tried again after %s, was %d times", again, xdp.times())
	}
	xdp.broken = nil
	a.after(2 * driveAgain)
	a.balances("tcp://192.0.2.1:80 balanced /XDP 1")
	if said := a.said.String(); strings.Count(said, "out of memory") != 1 || !strings.Contains(said, "works again") {
		t.Errorf("it said:\n%s", said)
	}
}

func TestReleaseTakesEverythingOut(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP}
	a := newBalancing(t, xdp)
	a.gives(frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 1))...)
	a.whole()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.balancer.run(ctx)
	}()
	eventually(t, "it balances", func() bool { return len(xdp.has().Frontends) == 1 })
	a.balancer.release(context.Background(), releaseTime)
	if got := xdp.has(); len(got.Frontends) != 0 || got.Machine == "" {
		t.Errorf("left are %v", got.Frontends)
	}
	cancel()
	<-done
}
