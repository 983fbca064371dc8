package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestMachineWithoutAProxy has an agent of role backend follow a plane, and go on from
// memory without one.
func TestMachineWithoutAProxy(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "node-1", p)
	xdp := &fakePlane{kind: model.DataPlaneXDP, mtu: 1500, counted: []model.FrontendFigures{{FrontendKey: web, Packets: 5}}, dropped: map[string]uint64{"loop": 2}}
	m.config.Proxy = NoProxy{}
	m.config.Balancing = Balancing{Planes: []BalancingPlane{{xdp.kind, tunneler{xdp}}}}
	a, stop := m.start()
	c, _ := p.call()
	for _, change := range append([]delta.Change{nodeChange(t, model.Node{Name: "edge-1", Decaps: true})}, frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "node-1", 100))...) {
		c.must(t, responseOf(t, at(1, 1), change))
	}
	if xdp.times() != 0 {
		t.Error("the data plane was told before the state was whole")
	}
	if err := a.Readyz(t.Context()); err == nil {
		t.Error("it is ready before the state is whole")
	}
	c.must(t, responseOf(t, at(1, 1), checkpointAt(t, at(1, 1))))
	eventually(t, "the data plane takes packets out of tunnels", func() bool { return xdp.has().Frontends[web] != nil && xdp.has().Nodes["edge-1"].Decaps })
	eventually(t, "it is ready", func() bool { return a.Readyz(t.Context()) == nil })
	eventually(t, "the revision is applied", func() bool { return a.Status().Applied == "1/1" })
	r := a.planeLink.report.report()
	if r.GetProxy().GetState() != agentv1.Proxy_STATE_OFF || r.GetTunnel().GetMtu() != 1500 || len(r.GetFrontends()) != 1 || r.GetFrontends()[0].GetState() != string(model.FrontendDecap) {
		t.Errorf("it reports %v", r)
	}
	if f := a.planeLink.report.figures(t.Context(), 3); f.GetAsked() != 3 || len(f.GetFrontends()) != 1 || f.GetDrops()["loop"] != 2 {
		t.Errorf("its figures are %v", f)
	}
	stop()

	p.stop()
	again := &fakePlane{kind: model.DataPlaneXDP, mtu: 1500}
	m.config.Balancing.Planes = []BalancingPlane{{again.kind, tunneler{again}}}
	a, stop = m.start()
	eventually(t, "another agent goes on without a plane", func() bool { return again.has().Frontends[web] != nil && a.Readyz(t.Context()) == nil })
	stop()
	if again.has().Frontends[web] == nil {
		t.Error("the end of an agent that leaves took everything out")
	}
	m.config.DrainOnStop = true
	a, stop = m.start()
	eventually(t, "a third one is told", func() bool { return again.times() > 1 })
	stop()
	if again.has().Frontends[web] == nil || !a.KernelStays() {
		t.Error("what others still send here, as no plane tells them, is not passed on any more")
	}

	p = newPlane(t, p.authority)
	p.notice = make(chan struct{})
	m.config.Planes = []string{p.address}
	a, stop = m.start()
	c, _ = p.call()
	c.must(t, responseOf(t, at(1, 2), checkpointAt(t, at(1, 2))))
	eventually(t, "it is connected", func() bool { return a.Status().Plane != "" })
	over := make(chan struct{})
	go func() {
		defer close(over)
		stop()
	}()
	eventually(t, "it says that it leaves", func() bool { return a.balancer.leavesAs() > 0 })
	if again.has().Frontends[web] == nil {
		t.Error("what others still send here is not passed on any more, and none has noticed that it leaves")
	}
	close(p.notice)
	<-over
	if again.has().Frontends[web] == nil || !a.KernelStays() {
		t.Error("flows that others send to its backend are not taken out of the tunnel any more")
	}

	a, stop = m.start()
	c, _ = p.call()
	end := make(chan struct{})
	var went chan struct{}
	for i, x := range []model.FrontendBackend{
		{Address: pod, Machine: "node-1", HopWeight: 100}, // taken out: it has the flows that it had
		{Address: pod, Machine: "node-1"},                 // its drain time is over
	} {
		list := frontendChanges(t, frontendOn(web, "edge-1"), x)[:1]
		rev := at(1, uint64(3+i))
		c.must(t, responseOf(t, rev, list...))
		c.must(t, responseOf(t, rev, checkpointAt(t, rev)))
		eventually(t, "the data plane is told", func() bool {
			w := again.has().Frontends[web]
			return w == nil || w.Backends[0].Weight == 0 && w.Backends[0].HopWeight == x.HopWeight
		})
		if went == nil {
			went = end
			go func() {
				defer close(end)
				stop()
			}()
			eventually(t, "it says that it leaves", func() bool { return a.balancer.isNoticed() })
			if again.has().Frontends[web] == nil {
				t.Error("flows that its backend still has are not taken out of the tunnel any more")
			}
		}
	}
	<-went
	if len(again.has().Frontends) != 0 || a.KernelStays() {
		t.Error("the end of an agent that drains left something, though its backend has no flow")
	}
}

// TestStoppedRightAfterItsStart: an agent that is told to leave before it has had its data plane
// do anything takes out of the kernel what others still send there as little as any other.
func TestStoppedRightAfterItsStart(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "node-1", p)
	xdp := &fakePlane{kind: model.DataPlaneXDP, mtu: 1500}
	m.config.Proxy = NoProxy{}
	m.config.Balancing = Balancing{Planes: []BalancingPlane{{xdp.kind, tunneler{xdp}}}}
	_, stop := m.start()
	c, _ := p.call()
	for _, change := range append([]delta.Change{nodeChange(t, model.Node{Name: "edge-1", Decaps: true})}, frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "node-1", 100))...) {
		c.must(t, responseOf(t, at(1, 1), change))
	}
	c.must(t, responseOf(t, at(1, 1), checkpointAt(t, at(1, 1))))
	eventually(t, "the kernel has the backend", func() bool { return xdp.has().Frontends[web] != nil })
	stop()
	p.stop()

	p = newPlane(t, p.authority)
	p.notice = make(chan struct{})
	hold := make(chan struct{})
	again := &fakePlane{kind: model.DataPlaneXDP, mtu: 1500, set: xdp.has(), asked: func() { <-hold }}
	m.config.Planes, m.config.DrainOnStop = []string{p.address}, true
	m.config.Balancing.Planes = []BalancingPlane{{again.kind, tunneler{again}}}
	a, stop := m.start()
	c, _ = p.call()
	c.must(t, responseOf(t, at(1, 2), checkpointAt(t, at(1, 2))))
	eventually(t, "it is connected", func() bool { return a.Status().Plane != "" })
	over := make(chan struct{})
	go func() {
		defer close(over)
		stop()
	}()
	eventually(t, "it says that it leaves", func() bool { return a.balancer.leavesAs() > 0 })
	time.Sleep(2 * lookEvery) // it is at what it does next, or still waits
	close(hold)
	eventually(t, "the data plane is told", func() bool { return again.times() > 0 })
	if again.has().Frontends[web] == nil {
		t.Error("what others still send here is not passed on any more, and none has noticed that it leaves")
	}
	close(p.notice)
	<-over
	if again.has().Frontends[web] == nil || !a.KernelStays() {
		t.Error("flows that others send to its backend are not taken out of the tunnel any more")
	}
}

// TestStoppedBeforeTheState: an agent that never had a whole state, neither remembered nor of a
// plane, takes nothing out of the kernel.
func TestStoppedBeforeTheState(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "node-1", p)
	m.config.Proxy, m.config.DrainOnStop = NoProxy{}, true
	left := model.Balancing{Frontends: map[model.FrontendKey]*model.Balanced{web: {Frontend: &model.Frontend{FrontendKey: web}}}}
	edge := responseOf(t, at(1, 1), nodeChange(t, model.Node{Name: "edge-1", Decaps: true}))
	stopped := func(what string, planes ...*fakePlane) (a *Agent, said string) {
		var log lockedLog
		m.config.Log, m.config.Balancing.Planes = slog.New(slog.NewTextHandler(&log, nil)), nil
		for _, plane := range planes {
			m.config.Balancing.Planes = append(m.config.Balancing.Planes, BalancingPlane{plane.kind, tunneler{plane}})
		}
		a, stop := m.start()
		if what == "the plane still sends" {
			c, _ := p.call()
			c.must(t, edge)
		}
		eventually(t, "it has started", func() bool { return a.Healthz(t.Context()) == nil })
		stop()
		return a, log.String()
	}
	const says = "no complete state was received"
	for _, what := range []string{"the plane still sends", "no plane"} {
		if what == "no plane" {
			p.stop()
		}
		xdp := &fakePlane{kind: model.DataPlaneXDP, mtu: 1500, set: left}
		a, said := stopped(what, xdp)
		if xdp.times() != 0 || !a.KernelStays() {
			t.Errorf("%s: what an agent before balanced is taken out of the kernel (%d calls of Set; it says that it stays: %v)", what, xdp.times(), a.KernelStays())
		}
		if !strings.Contains(said, says) {
			t.Errorf("%s: it does not say what it leaves, but\n%s", what, said)
		}
	}
	if a, said := stopped("no data plane"); a.KernelStays() || strings.Contains(said, says) {
		t.Errorf("without a data plane something stays (%v), or it says:\n%s", a.KernelStays(), said)
	}
}

// TestEdgeWithoutAProxy: listeners for a proxy, of a plane that sends them all the same, hold up
// nothing where there is to be none, and are not announced; their keys are not asked for.
func TestEdgeWithoutAProxy(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "edge-1", p)
	m.config.Proxy = NoProxy{Edge: true}
	m.config.Network = Network{Speaker: fakeSpeaker{&parts{}}}
	xdp := &fakePlane{kind: model.DataPlaneXDP}
	m.config.Balancing = Balancing{Planes: []BalancingPlane{{xdp.kind, xdp}}}
	a, _ := m.start()
	c, asked := p.call()
	if asked[typeSecret] != nil || asked[typeListener] != nil || asked[typeFrontend] == nil {
		t.Errorf("it asks for %v", slices.Sorted(maps.Keys(asked)))
	}
	proxied, balanced := bgpVIP(two, "http-80"), bgpVIP(one)
	balanced.Frontends = []model.FrontendKey{web}
	changes := []delta.Change{gatetest.Listener(t, "http-80", "x"), vipChange(t, proxied), vipChange(t, balanced)}
	for _, change := range append(changes, frontendChanges(t, frontendOn(web, "edge-1"), ready(pod, "", 100))...) {
		c.must(t, responseOf(t, at(1, 1), change))
	}
	c.must(t, responseOf(t, at(1, 1), checkpointAt(t, at(1, 1))))
	eventually(t, "it is ready", func() bool { return a.Readyz(t.Context()) == nil })
	eventually(t, "the revision is applied", func() bool { return a.Status().Applied == "1/1" })
	eventually(t, "it balances", func() bool { return xdp.has().Frontends[web] != nil })
	if r := a.planeLink.report.report(); r.GetProxy().GetState() != agentv1.Proxy_STATE_NONE || len(r.GetApplied().GetProblems()) != 0 {
		t.Errorf("it reports %v", r)
	}
	said := map[netip.Addr]string{}
	t.Cleanup(func() { t.Log(said) })
	eventually(t, "it says why it does not announce what a proxy would serve, and nothing is wrong with the rest", func() bool {
		for _, o := range a.announcer.observed() {
			said[o.Address] = o.Message
		}
		return said[two] == unproxied && strings.HasPrefix(said[one], "no BGPPeer")
	})
}

// TestDataPlaneThatEnds: an agent outlives its data planes.
func TestDataPlaneThatEnds(t *testing.T) {
	t.Parallel()
	p := newPlane(t, newAuthority(t))
	m := newMachine(t, "node-1", p)
	m.config.Proxy = NoProxy{}
	xdp := &fakePlane{kind: model.DataPlaneXDP}
	m.config.Balancing = Balancing{Planes: []BalancingPlane{{xdp.kind, endingPlane{xdp}}}}
	a, _ := m.start()
	c, _ := p.call()
	c.must(t, responseOf(t, at(1, 1), checkpointAt(t, at(1, 1))))
	eventually(t, "it is ready", func() bool { return a.Readyz(t.Context()) == nil })
}

type endingPlane struct{ *fakePlane }

func (endingPlane) Run(context.Context) error { return errors.New("no BPF") }
