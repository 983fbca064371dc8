package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/balance"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// awaitVIP waits until the agent has the IPv4 VIP, and its frontend for clients, or not.
func (a *fakeAgent) awaitVIP(has bool) {
	a.t.Helper()
	a.await(fmt.Sprint("has the VIP: ", has), func() error {
		if is := a.hasVIP(); is != has {
			return fmt.Errorf("it has it: %v", is)
		}
		return nil
	})
}

// hasVIP says that the agent has the IPv4 VIP, and its frontend for clients. The caller holds the
// lock.
func (a *fakeAgent) hasVIP() bool {
	f := &agentv1.Frontend{}
	return a.get(agentv1.VipType, wire.VIPName(vip4), &agentv1.Vip{}) == nil && a.get(agentv1.FrontendType, edge4.String(), f) == nil && slices.Contains(f.GetMachines(), a.name)
}

// movedPool is a pool that edge-1 announces, and that edge-2 is to announce now instead.
type movedPool struct {
	*rig
	*running
	clock    *clock
	pool     *v1alpha1.AddressPool
	one, two *fakeAgent
}

// newMovedPool moves the pool. edge-1 keeps the VIP; slow has its kernel not follow.
func newMovedPool(t *testing.T, slow bool) *movedPool {
	t.Helper()
	m := &movedPool{rig: newRig(t), clock: &clock{}, pool: pool()}
	m.world()
	m.running = m.plane("one", func(c *Config) { c.Now, c.TTL = m.clock.Now, time.Hour }).awaitReady()
	m.one, m.two = m.joined(m.running, "edge-1"), m.joined(m.running, "edge-2")
	for i, name := range []string{"edge-1", "edge-2"} {
		edit(m.rig, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(o *v1alpha1.Machine) { o.Labels = map[string]string{"site": []string{"old", "new"}[i]} })
	}
	m.pool.Spec.Machines = &metav1.LabelSelector{MatchLabels: map[string]string{"site": "old"}}
	m.create(m.pool)
	for _, a := range []*fakeAgent{m.one, m.two} {
		a.connect(m.AgentAddress().String())
	}
	m.one.sees(established, announced()...)
	m.two.sees(established)
	m.one.awaitVIP(true)
	m.awaitAnnounced("edge-1")
	m.awaitCarried("edge-1")
	m.one.with(func() { m.one.lags = slow })
	m.move("new")
	m.two.awaitVIP(true)
	if !slow {
		m.awaitCarried("edge-1") // all that followed from the edit
	}
	m.one.with(func() {
		if !m.one.hasVIP() {
			t.Fatal("nobody has announced the VIP for a moment")
		}
	})
	return m
}

var established = model.Session{State: model.SessionEstablished}

// move has the pool select the machines of another site.
func (m *movedPool) move(site string) {
	m.rig.t.Helper()
	edit(m.rig, m.pool, func(o *v1alpha1.AddressPool) { o.Spec.Machines.MatchLabels["site"] = site })
}

// TestLastMachineKeepsVIPUntilAnotherAnnounces moves a pool from one machine to another: the first
// announces, and has its frontends for clients, until the other announces.
func TestLastMachineKeepsVIPUntilAnotherAnnounces(t *testing.T) {
	m := newMovedPool(t, false)
	m.awaitVIP(vip4, vipAnnounced, "")
	m.awaitHandsOver("edge-1", true)
	m.two.sees(established, announced()...)
	m.one.awaitVIP(false)
	m.two.awaitVIP(true)
	m.awaitHandsOver("edge-1", false)
}

// awaitHandsOver waits until the status says that a machine hands the IPv4 VIP over, or not.
func (p *running) awaitHandsOver(machine string, does bool) {
	p.t.Helper()
	eventually(p.t, fmt.Sprintf("%s hands over: %v", machine, does), func() error {
		for _, v := range p.Status(context.Background()).VIPs {
			if v.Address != vip4 {
				continue
			}
			if is := slices.ContainsFunc(v.At, func(at model.VIPAt) bool { return at.Machine == machine && at.HandsOver }); is != does {
				return fmt.Errorf("it is shown at %+v", v.At)
			}
		}
		return nil
	})
}

// TestKeptVIPGoesWithTheRole: a machine that is an edge no longer keeps nothing.
func TestKeptVIPGoesWithTheRole(t *testing.T) {
	l := bareLoop()
	l.has("edge-1", false, true)
	one := model.VIPKey{Machine: "edge-1", Address: vip4}
	web := model.FrontendKey{VIP: vip4, Transport: model.TCP, Port: 80}
	l.network.assignments[vip4] = &model.Assignment{Address: vip4, Machines: []string{"edge-2"}}
	l.handover.kept[vip4] = &keptVIP{
		machines:   map[string]*deferral{"edge-1": {}, "edge-0": {}},
		translated: map[model.FrontendKey]*model.Frontend{web: {FrontendKey: web, Machines: []string{"edge-2"}}},
	}
	was := map[string]*model.Machine{"edge-1": {Name: "edge-1"}}
	l.machines["edge-1"].HostsOnly = true
	ch := translate.Changes{}
	l.keepVIPs(&ch, was)
	if v, is := ch.VIPs[one]; !is || v != nil || l.handover.keeps(one) {
		t.Errorf("its VIP becomes %v (changes: %v)", v, is)
	}
	if f := ch.Frontends[web]; f == nil || fmt.Sprint(f.Machines) != "[edge-0 edge-2]" || fmt.Sprint(l.handover.kept[vip4].translated[web].Machines) != "[edge-2]" {
		t.Errorf("its frontend becomes %+v", f)
	}
}

// TestHandoverOutlastsThoseThatWait: a machine that comes may wait for others for its whole time, and
// begins to announce then; the last one goes on until it does, or its own time is over.
func TestHandoverOutlastsThoseThatWait(t *testing.T) {
	m := newMovedPool(t, true)
	m.two.awaitAwaited("edge-1")
	m.clock.jump(newcomerTime - time.Second)
	m.two.awaitAwaited()
	m.one.with(func() {
		if !m.one.hasVIP() {
			t.Error("the last machine has gone, and the one that comes has not begun to announce")
		}
	})
	m.clock.jump(handoverTime - newcomerTime + 2*time.Second)
	m.one.awaitVIP(false)
}

// TestLastMachineIsCordonedOnceAnotherAnnounces: an agent hears that it is cordoned once another
// machine announces its VIPs; without another machine it hears so at once.
func TestLastMachineIsCordonedOnceAnotherAnnounces(t *testing.T) {
	r := newRig(t)
	r.world()
	r.create(pool())
	p := r.plane("one").awaitReady()
	one, two := r.joined(p, "edge-1"), r.joined(p, "edge-2")
	one.connect(p.AgentAddress().String())
	up := model.Session{State: model.SessionEstablished}
	one.sees(up, announced()...)
	one.awaitVIP(true)
	p.awaitAnnounced("edge-1")
	cordon := func(name string, is bool) {
		t.Helper()
		edit(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(m *v1alpha1.Machine) { m.Spec.Cordoned = is })
	}
	cordon("edge-1", true)
	one.awaitCordoned(true)
	cordon("edge-1", false)
	one.awaitCordoned(false)

	two.sees(up, withheld("it has just started")...)
	two.connect(p.AgentAddress().String())
	two.awaitVIP(true)
	p.awaitAnnounced("edge-2")
	cordon("edge-1", true)
	two.awaitBackends(edge4, "edge-1=0/100 draining, edge-2=100/100 ready")
	p.awaitCarried("edge-1")
	one.with(func() {
		if one.isCordoned() {
			t.Error("nobody has announced the VIP for a moment")
		}
	})
	p.awaitHandsOver("edge-1", true)
	two.sees(up, announced()...)
	one.awaitCordoned(true)
	p.awaitHandsOver("edge-1", false)
}

// awaitCordoned waits until the agent is told that its machine is cordoned, or that it is not.
func (a *fakeAgent) awaitCordoned(is bool) {
	a.t.Helper()
	a.await(fmt.Sprint("is cordoned: ", is), func() error {
		if a.isCordoned() != is {
			return fmt.Errorf("it is told: %v", !is)
		}
		return nil
	})
}

// isCordoned says whether the agent is told that its machine is cordoned. The caller holds the lock.
func (a *fakeAgent) isCordoned() bool {
	m := &agentv1.MachineConfig{}
	return a.get(typeMachine, a.name, m) == nil && m.GetCordoned()
}

// awaitAnnounced waits until the plane knows what a machine does about both VIPs.
func (p *running) awaitAnnounced(machine string) {
	p.t.Helper()
	eventually(p.t, "the plane knows what "+machine+" announces", func() error {
		if s, _ := p.server.Machine(machine); len(s.VIPs) != 2 {
			return fmt.Errorf("it knows %v", s.VIPs)
		}
		return nil
	})
}

// TestKeptVIPGoes: what a machine keeps goes with its announcement and with the pool.
func TestKeptVIPGoes(t *testing.T) {
	t.Run("it announces the VIP no more", func(t *testing.T) {
		m := newMovedPool(t, false)
		m.clock.jump(startTime)
		m.one.sees(model.Session{State: model.SessionIdle}, withheld("the session is down")...)
		m.one.awaitVIP(false)
	})
	t.Run("the pool is deleted", func(t *testing.T) {
		m := newMovedPool(t, false)
		if err := m.client.Delete(t.Context(), m.pool); err != nil {
			t.Fatal(err)
		}
		for _, a := range []*fakeAgent{m.one, m.two} {
			a.await("has no VIP", func() error {
				if a.get(agentv1.VipType, wire.VIPName(vip4), &agentv1.Vip{}) == nil {
					return errors.New("it has it")
				}
				return nil
			})
		}
	})
	t.Run("not where the pool is given back", func(t *testing.T) {
		m := newMovedPool(t, false)
		m.move("old")
		m.two.awaitVIP(false)
		m.one.awaitVIP(true)
		m.two.sees(established, announced()...) // a word that is late
		m.awaitAnnounced("edge-2")
		m.clock.jump(handoverTime)
		edit(m.rig, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}, func(o *v1alpha1.Machine) { o.Spec.RouterID = "192.0.2.77" })
		m.one.await("has heard of a later change", func() error {
			c := &agentv1.MachineConfig{}
			if err := m.one.get(typeMachine, "edge-1", c); err != nil || len(c.GetRouterId()) == 0 {
				return fmt.Errorf("it has %v (%w)", c, err)
			}
			return nil
		})
		m.awaitCarried("edge-1")
		m.one.with(func() {
			if !m.one.hasVIP() {
				t.Error("it does not have the VIP of its pool")
			}
		})
	})
}

// TestCordonedProxyServesUntilAnotherFollows: where the only other machine's kernel does not know the
// frontend yet, the machine that is cordoned goes on to take new flows.
func TestCordonedProxyServesUntilAnotherFollows(t *testing.T) {
	l, ours, theirs := bareLoop(), balance.Proxy{Machine: "edge-1", State: model.BackendDraining}, balance.Proxy{Machine: "edge-2", State: model.BackendReady}
	l.newcomers.at[web4] = map[string]*newcomer{"edge-2": {}}
	for _, c := range []struct {
		cordon, takes bool
		want          string
	}{
		{cordon: true, want: "ready unready"},
		{cordon: false, want: "draining ready"},
		{cordon: true, takes: true, want: "draining ready"},
	} {
		l.newcomers.at[web4]["edge-2"].takes = c.takes
		proxies := []balance.Proxy{ours, theirs}
		l.newcomers.withhold(web4, proxies, func(m string) bool { return c.cordon && m == "edge-1" })
		if got := fmt.Sprint(proxies[0].State, " ", proxies[1].State); got != c.want {
			t.Errorf("%+v: the proxies are %s", c, got)
		}
	}
}

// bareLoop is a loop that only looks at what machines report.
func bareLoop() *loop {
	return &loop{
		plane:   &Plane{config: Config{Now: time.Now, Log: slog.New(slog.DiscardHandler)}},
		network: newNetwork(), frontends: newFrontends(), newcomers: newNewcomers(), handover: newHandover(func(time.Duration) {}),
		machines: map[string]*model.Machine{}, peeked: map[string]southbound.MachineState{},
	}
}

// has notes a machine that has the VIP, and whether it announces it.
func (l *loop) has(name string, cordoned, announces bool) {
	l.machines[name] = &model.Machine{Name: name, Cordoned: cordoned}
	state := southbound.MachineState{LastReport: time.Now()}
	if announces {
		state.VIPs = announced()
	}
	l.peeked[name] = state
	l.network.vips[model.VIPKey{Machine: name, Address: vip4}] = &model.VIP{Address: vip4, Mode: model.AnnounceBGP}
}

// TestCordonsThatChangeAtOnce: one machine is cordoned in the change that takes back another's cordon.
func TestCordonsThatChangeAtOnce(t *testing.T) {
	l := bareLoop()
	l.has("edge-1", false, true)
	l.has("edge-2", true, false)
	idle := l.peeked["edge-2"]
	idle.Leaving = 7 // its agent has not heard yet
	l.peeked["edge-2"] = idle
	l.network.assignments[vip4] = &model.Assignment{Address: vip4, Machines: []string{"edge-1", "edge-2"}}
	was := l.machines["edge-1"]
	ch := translate.Changes{Machines: map[string]*model.Machine{"edge-1": {Name: "edge-1", Cordoned: true}, "edge-2": {Name: "edge-2"}}}
	merge(l.machines, ch.Machines)
	if l.told("edge-1", was, *ch.Machines["edge-1"], &ch).Cordoned {
		t.Error("it is told before the other one announces")
	}
}

// TestKeptVIPFollowsItsOwner: a kept VIP has the ports that it has elsewhere, and no other owner's.
func TestKeptVIPFollowsItsOwner(t *testing.T) {
	ours, theirs := model.Object{Kind: "Service", Namespace: "a", Name: "web"}, model.Object{Kind: "Service", Namespace: "b", Name: "web"}
	port := func(n uint16) model.FrontendKey { return model.FrontendKey{VIP: vip4, Transport: model.TCP, Port: n} }
	vip := func(n uint16) *model.VIP {
		return &model.VIP{Address: vip4, Mode: model.AnnounceBGP, Frontends: []model.FrontendKey{port(n)}}
	}
	one, two := model.VIPKey{Machine: "edge-1", Address: vip4}, model.VIPKey{Machine: "edge-2", Address: vip4}
	for owner, want := range map[model.Object]string{ours: "[edge-1 edge-2]", theirs: "[edge-2]"} {
		l := bareLoop()
		l.has("edge-1", false, true)
		l.has("edge-2", false, false)
		delete(l.network.vips, two)
		l.network.assignments[vip4] = &model.Assignment{Address: vip4, Owner: ours, Machines: []string{"edge-1"}}
		step := func(owner model.Object, vips map[model.VIPKey]*model.VIP, frontends map[model.FrontendKey]*model.Frontend) {
			ch := translate.Changes{
				Assignments: map[netip.Addr]*model.Assignment{vip4: {Address: vip4, Owner: owner, Machines: []string{"edge-2"}}},
				VIPs:        vips, Frontends: frontends,
			}
			l.keepVIPs(&ch, nil)
			merge(l.network.assignments, ch.Assignments)
			merge(l.network.vips, ch.VIPs)
			l.frontends.note(ch)
		}
		step(ours, map[model.VIPKey]*model.VIP{one: nil, two: vip(80)}, map[model.FrontendKey]*model.Frontend{port(80): {FrontendKey: port(80), Machines: []string{"edge-2"}}})
		if got := l.frontends.entries[port(80)].frontend.Machines; fmt.Sprint(got) != "[edge-1 edge-2]" || l.network.vips[one] == nil {
			t.Fatalf("edge-1 does not keep the VIP: the frontend is at %v", got)
		}
		step(owner, map[model.VIPKey]*model.VIP{two: vip(8080)}, map[model.FrontendKey]*model.Frontend{port(80): nil, port(8080): {FrontendKey: port(8080), Machines: []string{"edge-2"}}})
		if got := l.frontends.entries[port(8080)].frontend.Machines; fmt.Sprint(got) != want {
			t.Errorf("owner %v: the new port is at %v, want %s", owner, got, want)
		}
		if v := l.network.vips[one]; owner == ours && (v == nil || v.Frontends[0] != port(8080)) || owner == theirs && v != nil {
			t.Errorf("owner %v: edge-1 has %+v", owner, v)
		}
	}
}

// TestMachineWithoutAProxyIsNoHeir: a VIP that leads to proxies alone waits for no machine that runs none.
func TestMachineWithoutAProxyIsNoHeir(t *testing.T) {
	l := bareLoop()
	l.has("edge-1", false, true)
	l.has("edge-2", false, false)
	state := l.peeked["edge-2"]
	state.Proxy = &agentv1.Proxy{State: agentv1.Proxy_STATE_NONE}
	l.peeked["edge-2"] = state
	l.network.assignments[vip4] = &model.Assignment{Address: vip4, Machines: []string{"edge-1", "edge-2"}}
	http := model.FrontendKey{VIP: vip4, Transport: model.TCP, Port: 80}
	for listener, heir := range map[model.ListenerID]bool{"http-80": false, "": true} {
		l.frontends.note(translate.Changes{Frontends: map[model.FrontendKey]*model.Frontend{http: {FrontendKey: http, Listener: listener}}})
		v := &model.VIP{Address: vip4, Mode: model.AnnounceBGP, Listeners: []model.ListenerID{"http-80"}, Frontends: []model.FrontendKey{http}}
		if got := l.isLast(model.VIPKey{Machine: "edge-1", Address: vip4}, v, nil, forHeard); got != heir {
			t.Errorf("a frontend of listener %q: edge-1 waits for edge-2: %v", listener, got)
		}
	}
}

// TestWhoIsWaitedFor: a machine that is cordoned waits for those that are to announce its VIP and may be
// there, and once it waits also for one that is lost meanwhile; one whose VIP is taken away waits for
// all, since nobody else serves. An agent that has just started may say that it
// announces nothing while routers have its routes.
func TestWhoIsWaitedFor(t *testing.T) {
	now := time.Now()
	long := now.Add(-time.Hour)
	announcing := southbound.MachineState{LastReport: now, VIPs: announced()}
	restarted := southbound.MachineState{LastReport: now, VIPs: withheld("the agent has just started"), Connected: true, Since: now}
	idle := southbound.MachineState{LastReport: now, VIPs: withheld("the session is down"), Connected: true, Since: long}
	ended, ahead := restarted, restarted
	ended.Connected, ahead.Since = false, now.Add(time.Hour)
	one := model.VIPKey{Machine: "edge-1", Address: vip4}
	for name, c := range map[string]struct {
		one, two southbound.MachineState
		// grace: the plane has just begun; before: edge-2 has reported to another one; leaves: its agent
		// is about to withdraw.
		grace, before, leaves bool
		wait                  heirs
		want                  bool
	}{
		"it reports":                         {one: announcing, two: idle, want: true},
		"it announces":                       {one: announcing, two: announcing},
		"it announces, and leaves":           {one: announcing, two: announcing, leaves: true, want: true},
		"it is lost":                         {one: announcing, two: southbound.MachineState{LastReport: long, Lost: true}},
		"it is lost now":                     {one: announcing, two: southbound.MachineState{LastReport: long, Lost: true}, wait: forKnown, before: true, want: true},
		"it is lost, and all are waited for": {one: announcing, two: southbound.MachineState{LastReport: long, Lost: true}, wait: forAll, want: true},
		"it never reported":                  {one: announcing},
		"it never reported, and the plane has just begun":  {one: announcing, grace: true},
		"it never reported, and known ones are waited for": {one: announcing, wait: forKnown},
		"it never reported, and all are waited for":        {one: announcing, wait: forAll, want: true},
		"the plane has just begun":                         {one: announcing, grace: true, before: true, want: true},
		"the agent of the last has restarted":              {one: restarted, two: idle, want: true},
		"the last announces nothing":                       {one: idle, two: idle},
		"its stream has ended":                             {one: ended, two: idle},
		"its stream began in the future":                   {one: ahead, two: idle},
	} {
		l := bareLoop()
		l.plane.serving.Store(1)
		l.inGrace, l.leadSince = c.grace, now.Add(-time.Second)
		l.snapshot = snapshot.New()
		if c.before {
			l.snapshot.Machines[snapshot.Name{Name: "edge-2"}] = &v1alpha1.Machine{Status: v1alpha1.MachineStatus{AgentVersion: "v1"}}
		}
		if c.leaves {
			c.two.Leaving = 7
		}
		l.has("edge-1", false, false)
		l.has("edge-2", false, false)
		l.peeked["edge-1"], l.peeked["edge-2"] = c.one, c.two
		l.network.assignments[vip4] = &model.Assignment{Address: vip4, Machines: []string{"edge-1", "edge-2"}}
		if got := l.isLast(one, l.network.vips[one], nil, c.wait); got != c.want {
			t.Errorf("%s: edge-1 waits for edge-2: %v", name, got)
		}
	}
}

// TestWhenWaitingIsOver: routers have some time to use another path, and nobody waits for ever.
func TestWhenWaitingIsOver(t *testing.T) {
	l, clock := bareLoop(), &clock{}
	l.plane.config.Now = clock.Now
	woken := 0
	l.handover.wake = func(time.Duration) { woken++ }
	d := &deferral{since: clock.Now()}
	for i, step := range []struct {
		after      time.Duration
		last, over bool
	}{
		{0, true, false},
		{0, false, false},
		{installTime / 2, false, false},
		{0, true, false}, // the other one announces no more
		{0, false, false},
		{installTime, false, true},
		{0, true, false},
		{-time.Minute, true, false},
		{handoverTime, true, true},
	} {
		clock.jump(step.after)
		var heirs []string
		if step.last {
			heirs = []string{"edge-2"}
		}
		if got := l.isOver(d, heirs); got != step.over {
			t.Fatalf("step %d: it is over: %v", i, got)
		}
	}
	if woken != 2 {
		t.Errorf("the loop is woken %d times, want once for each time that another one begins to announce", woken)
	}
}

// TestCordonConcernsAllFrontends: what was put off with a cordon ends at frontends of other VIPs, too.
func TestCordonConcernsAllFrontends(t *testing.T) {
	l := bareLoop()
	l.has("edge-1", true, true)
	l.has("edge-2", false, true)
	l.network.assignments[vip4] = &model.Assignment{Address: vip4, Machines: []string{"edge-1", "edge-2"}}
	other := model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.99"), Transport: model.TCP, Port: 80}
	l.frontends.note(translate.Changes{Frontends: map[model.FrontendKey]*model.Frontend{other: {FrontendKey: other, Listener: "http-80", Machines: []string{"edge-1"}}}})
	clear(l.frontends.stale)
	began := time.Now().Add(-2 * installTime)
	l.handover.cordons["edge-1"] = &cordon{deferral{since: began, relieved: began}, []model.VIPKey{{Machine: "edge-1", Address: vip4}}}
	update := southbound.Update{Machine: map[string][]delta.Change{}}
	l.releaseVIPs(&update)
	if l.handover.cordons["edge-1"] != nil || len(update.Machine["edge-1"]) != 1 {
		t.Errorf("the machine is told %v", update.Machine)
	}
	if !l.frontends.stale[other] {
		t.Error("a frontend of another VIP is not made anew")
	}
}

// BenchmarkHandover is what one turn of the loop costs while 4,000 VIPs move from four machines to
// four others.
func BenchmarkHandover(b *testing.B) {
	l := bareLoop()
	assignment := &model.Assignment{}
	var observed []model.VIPObserved
	for i := range 4000 {
		address := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		observed = append(observed, model.VIPObserved{Address: address, State: model.VIPAnnounced})
		l.network.assignments[address] = assignment
		l.handover.kept[address] = &keptVIP{machines: map[string]*deferral{}}
		for m := range 4 {
			k := model.VIPKey{Machine: fmt.Sprint("old-", m), Address: address}
			l.handover.kept[address].machines[k.Machine] = &deferral{since: time.Now()}
			l.network.vips[k] = &model.VIP{Address: address, Mode: model.AnnounceBGP}
		}
	}
	for m := range 4 {
		assignment.Machines = append(assignment.Machines, fmt.Sprint("new-", m))
		for _, name := range []string{fmt.Sprint("old-", m), fmt.Sprint("new-", m)} {
			l.machines[name] = &model.Machine{Name: name}
			l.peeked[name] = southbound.MachineState{LastReport: time.Now()}
		}
		l.peeked[fmt.Sprint("old-", m)] = southbound.MachineState{LastReport: time.Now(), VIPs: observed}
	}
	for b.Loop() {
		l.releaseVIPs(&southbound.Update{Machine: map[string][]delta.Change{}})
	}
	if len(l.handover.kept) != 4000 {
		b.Fatalf("%d VIPs are kept", len(l.handover.kept))
	}
}
