package plane

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
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
func movedPool(t *testing.T) (r *rig, public *v1alpha1.AddressPool, one, two *fakeAgent) {
	t.Helper()
	r = newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	one, two = r.joined(p, "edge-1"), r.joined(p, "edge-2")
	for i, name := range []string{"edge-1", "edge-2"} {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		edit(r, m, func(m *v1alpha1.Machine) { m.Labels = map[string]string{"site": []string{"old", "new"}[i]} })
	}
	public = pool()
	public.Spec.Machines = &metav1.LabelSelector{MatchLabels: map[string]string{"site": "old"}}
	r.create(public)
	one.connect(p.AgentAddress().String())
	two.connect(p.AgentAddress().String())
	up := model.Session{State: model.SessionEstablished}
	one.sees(up, announced()...)
	two.sees(up)
	one.awaitVIP(true)
	p.awaitAnnounced("edge-1")
	edit(r, public, func(o *v1alpha1.AddressPool) { o.Spec.Machines.MatchLabels["site"] = "new" })
	two.awaitVIP(true)
	p.awaitCarried("edge-1") // all that followed from the edit
	return r, public, one, two
}

// TestLastMachineKeepsVIPUntilAnotherAnnounces moves a pool from one machine to another: the first
// announces, and has its frontends for clients, until the other announces.
func TestLastMachineKeepsVIPUntilAnotherAnnounces(t *testing.T) {
	_, _, one, two := movedPool(t)
	one.with(func() {
		if !one.hasVIP() {
			t.Error("nobody has announced the VIP for a moment")
		}
	})
	two.sees(model.Session{State: model.SessionEstablished}, announced()...)
	one.awaitVIP(false)
	two.awaitVIP(true)
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
	two.sees(up, announced()...)
	one.awaitCordoned(true)
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

// TestKeptVIPGoes: what a machine keeps goes at once with its owner or its announcement, and comes
// back with the pool.
func TestKeptVIPGoes(t *testing.T) {
	for name, end := range map[string]func(r *rig, public *v1alpha1.AddressPool, one *fakeAgent){
		"it announces the VIP no more": func(_ *rig, _ *v1alpha1.AddressPool, one *fakeAgent) {
			one.sees(model.Session{State: model.SessionIdle}, withheld("the session is down")...)
		},
		"the pool is deleted": func(r *rig, public *v1alpha1.AddressPool, _ *fakeAgent) {
			if err := r.client.Delete(t.Context(), public); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, public, one, _ := movedPool(t)
			end(r, public, one)
			one.awaitVIP(false)
		})
	}
	t.Run("not where the pool is given back", func(t *testing.T) {
		r, public, one, two := movedPool(t)
		edit(r, public, func(o *v1alpha1.AddressPool) { o.Spec.Machines.MatchLabels["site"] = "old" })
		two.awaitVIP(false)
		one.awaitVIP(true)
		two.sees(model.Session{State: model.SessionEstablished}, announced()...) // a word that is late
		one.with(func() {
			if !one.hasVIP() {
				t.Error("it does not have the VIP of its pool")
			}
		})
	})
}
