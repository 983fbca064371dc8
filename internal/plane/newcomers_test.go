package plane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// awaitAwaited waits until the agent has the VIP and is told to wait for these machines.
func (a *fakeAgent) awaitAwaited(machines ...string) {
	a.t.Helper()
	a.await(fmt.Sprint("waits for ", machines), func() error {
		got, err := a.awaited()
		if err == nil && !slices.Equal(got, machines) {
			err = fmt.Errorf("it waits for %v", got)
		}
		return err
	})
}

// awaited are the machines for which the agent is to wait. The caller holds the lock.
func (a *fakeAgent) awaited() ([]string, error) {
	m := &agentv1.Vip{}
	err := a.get(agentv1.VipType, wire.VIPName(vip4), m)
	return m.GetAwaited(), err
}

// free says that the agent has had the VIP without having been told to wait.
func (a *fakeAgent) free() func() bool {
	var was bool
	a.mu.Lock()
	defer a.mu.Unlock()
	a.takes = func() {
		if list, err := a.awaited(); err == nil && len(list) == 0 {
			was = true
		}
	}
	return func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return was
	}
}

// awaitCarried waits until a machine is known to carry out all that concerns it.
func (p *running) awaitCarried(name string) {
	p.t.Helper()
	eventually(p.t, name+" carries out everything", func() error {
		if s, _ := p.server.Machine(name); s.Carried.Number == 0 || s.Carried != s.Wanted {
			return fmt.Errorf("it carries %v of %v", s.Carried, s.Wanted)
		}
		return nil
	})
}

// edgeComes has edge-2 come to the VIP of edge-1, which has this end for tunnels and whose kernel
// stays as it is. early says whether edge-2 was free to announce the VIP so far.
func edgeComes(t *testing.T, tunnel *agentv1.Tunnel) (r *rig, p *running, one, two *fakeAgent, early func() bool) {
	t.Helper()
	r = newRig(t)
	r.world()
	r.create(pool())
	p = r.plane("one", func(c *Config) { c.TTL = time.Minute }).awaitReady()
	address := p.AgentAddress().String()
	one = r.joined(p, "edge-1")
	one.tunnel = tunnel
	one.connect(address)
	one.awaitAwaited() // nobody is there
	one.awaitBackends(edge4, "edge-1=100/100 ready")
	p.awaitCarried("edge-1")

	one.with(func() { one.lags = true })
	two = r.joined(p, "edge-2")
	early = two.free()
	two.connect(address)
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready")
	p.awaitCarried("edge-2")
	two.awaitAwaited("edge-1")
	return r, p, one, two, early
}

// TestMachineThatComesWaitsForKernels has a machine that comes to a VIP announce it once the
// kernels of those that have it already know the machine, and get new flows once its own does.
func TestMachineThatComesWaitsForKernels(t *testing.T) {
	r, p, one, two, early := edgeComes(t, &agentv1.Tunnel{Mtu: 1500})
	if early() {
		t.Error("it was free to announce the VIP before the other kernel knew it")
	}
	one.with(func() { one.lags = false })
	two.awaitAwaited()
	one.awaitAwaited()

	three := r.joined(p, "edge-3")
	early = three.free()
	three.with(func() { three.lags = true })
	three.connect(p.AgentAddress().String())
	for _, a := range []*fakeAgent{one, two, three} {
		a.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=0/0 unready")
	}
	p.awaitCarried("edge-1")
	p.awaitCarried("edge-2")
	three.awaitAwaited("edge-3")
	if early() {
		t.Error("it was free to announce the VIP before its own kernel knew the others")
	}
	three.with(func() { three.lags = false })
	three.awaitAwaited()
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=100/100 ready")
}

// TestMachineThatComesWaitsForTunnels has the machine that has a VIP say in one report that it
// follows and that it takes packets out of tunnels now: the one that comes announces the VIP once
// its own kernel knows that. Until then it would pass nothing on, and reset connections.
func TestMachineThatComesWaitsForTunnels(t *testing.T) {
	_, _, one, two, early := edgeComes(t, nil)
	two.with(func() { two.lags = true })
	one.with(func() { one.lags, one.tunnel = false, &agentv1.Tunnel{Mtu: 1500} })
	two.awaitNodes("edge-1*", "edge-2*")
	two.awaitAwaited("edge-2")
	if early() {
		t.Error("it was free to announce the VIP before its own kernel knew that the other one takes what is passed on")
	}
	two.with(func() { two.lags = false })
	two.awaitAwaited()
}

// A machine that says tunnel and no tunnel in turn holds nobody up with it: those that come follow
// its first words. They follow other machines all the same.
func TestMachineThatMovesOnAndOnIsFollowedNoMore(t *testing.T) {
	l := &loop{newcomers: newNewcomers(), frontends: newFrontends()}
	l.frontends.entries[web4] = &frontendEntry{at: []string{"edge-1", "edge-2", "edge-3"}}
	n := &newcomer{}
	l.newcomers.at[web4] = map[string]*newcomer{"edge-3": n}
	for i := range uint64(100) {
		l.moved("edge-1", delta.Revision{Number: 1 + i})
	}
	if n.rev.Number != movesFollowed {
		t.Errorf("it follows revision %d", n.rev.Number)
	}
	for i, name := range []string{"edge-2", "edge-4", "edge-3"} {
		l.moved(name, delta.Revision{Number: 201 + uint64(i)})
		if want := []uint64{201, 201, 203}[i]; n.rev.Number != want {
			t.Errorf("%s moved, and it follows revision %d, want %d", name, n.rev.Number, want)
		}
	}
}

// TestNobodyIsAwaitedForEver has a machine announce a VIP when the one that it waits for is
// lost, or does not follow in time; then status names that one until it follows.
func TestNobodyIsAwaitedForEver(t *testing.T) {
	r := newRig(t)
	r.world()
	r.create(pool())
	now := &clock{}
	p := r.plane("one", func(c *Config) { c.Now, c.TTL = now.Now, 20*time.Second }).awaitReady()
	address := p.AgentAddress().String()
	one, two := r.joined(p, "edge-1"), r.joined(p, "edge-2")
	hangUp := one.connect(address)
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=0/0 unready")
	two.connect(address)
	two.awaitAwaited()
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready")
	p.awaitCarried("edge-2")

	three := r.joined(p, "edge-3")
	two.with(func() { two.lags = true })
	three.with(func() { three.vips = announced() })
	three.connect(address)
	p.awaitCarried("edge-3")
	three.awaitAwaited("edge-2")
	for range 2 { // nobody is lost meanwhile
		now.jump(newcomerTime / 2)
		for _, name := range []string{"edge-1", "edge-2", "edge-3"} {
			eventually(t, name+" is heard of", func() error {
				if s, _ := p.server.Machine(name); s.Lost || p.config.Now().Sub(s.LastReport) > 5*time.Second {
					return errors.New("it is not")
				}
				return nil
			})
		}
	}
	three.awaitAwaited()
	p.awaitVIP(vip4, vipAnnounced, "edge-3: it announces the VIP though flows that it passes on may break at edge-2, which did not follow within 30s")
	two.with(func() { two.lags = false })
	p.awaitVIP(vip4, vipAnnounced, "")

	hangUp()
	eventually(t, "the machine is gone", func() error {
		if s, _ := p.server.Machine("edge-1"); s.Connected {
			return errors.New("it is not")
		}
		return nil
	})
	four := r.joined(p, "edge-4")
	four.connect(address)
	p.awaitCarried("edge-4")
	four.awaitAwaited("edge-1")
	now.jump(21 * time.Second)
	four.awaitAwaited()
	for _, problem := range p.Status(context.Background()).Problems {
		if problem.Reason == "NotEverywhere" {
			t.Errorf("a machine that is lost is missed: %+v", problem)
		}
	}
}

// TestNextPlaneHoldsNothingBack has another plane hold back nothing that serves.
func TestNextPlaneHoldsNothingBack(t *testing.T) {
	r := newRig(t)
	r.world()
	r.create(pool())
	p := r.plane("one").awaitReady()
	one, two := r.joined(p, "edge-1"), r.joined(p, "edge-2")
	hangUp := one.connect(p.AgentAddress().String())
	hangUpToo := two.connect(p.AgentAddress().String())
	two.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready")
	two.awaitAwaited()
	for _, name := range []string{"edge-1", "edge-2"} { // the next plane knows them by that
		await(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}, "it stands in the API that the machine was heard", func(m *v1alpha1.Machine) error {
			if m.Status.AgentVersion == "" {
				return errors.New("it does not")
			}
			return nil
		})
	}
	hangUp()
	hangUpToo()
	p.stop()

	q := r.plane("two").awaitReady()
	one.with(func() { one.lags = true })
	two.with(func() {
		two.lags = true
		two.takes = func() {
			if list, err := two.awaited(); err == nil && len(list) > 0 {
				t.Errorf("it is to wait for %v", list)
			}
			if got, err := two.backendsOf(edge4); err == nil && got != "edge-1=100/100 ready, edge-2=100/100 ready" {
				t.Errorf("it is told of %s", got)
			}
		}
	})
	one.connect(q.AgentAddress().String())
	two.connect(q.AgentAddress().String())
	eventually(t, "the next plane knows both", func() error {
		for _, name := range []string{"edge-1", "edge-2"} {
			if s, _ := q.server.Machine(name); s.Delivered != s.Wanted || s.Delivered.Number == 0 || s.LastReport.IsZero() {
				return fmt.Errorf("%s holds %v of %v", name, s.Delivered, s.Wanted)
			}
		}
		return nil
	})
}
