package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
)

// leaving is a machine with a listener at a VIP that another one has too.
type leaving struct {
	*announcing
	xdp  *fakePlane
	open int
	slow bool // the balancer does not run
}

func newLeaving(t *testing.T) *leaving {
	t.Helper()
	xdp := &fakePlane{kind: model.DataPlaneXDP, mtu: 1500}
	l := &leaving{announcing: newBalancing(t, xdp), xdp: xdp}
	l.balancer.proxyDrain = 10 * time.Second
	l.balancer.drivers.Connections = func(keys ...model.FrontendKey) (map[model.FrontendKey]int, error) {
		if !slices.Equal(keys, []model.FrontendKey{web}) {
			t.Errorf("asked about %s", keys)
		}
		return map[model.FrontendKey]int{web: l.open}, nil
	}
	l.gives(gatetest.Listener(t, "http-80", "a"))
	l.listens("http-80")
	return l
}

// at has the VIP at machines, edge-1 a backend as it is told. drain is the frontend's.
func (l *leaving) at(drain time.Duration, own model.BackendState, machines ...string) {
	l.t.Helper()
	f := frontendOn(web, machines...)
	f.Listener, f.Drain = "http-80", drain
	list := proxies(web, "edge-1", "edge-2")
	if list[0].State = own; own != model.BackendReady {
		list[0].Weight = 0
	}
	vip := delta.Change{Type: typeVIP, Name: wire.VIPName(one)}
	if slices.Contains(machines, "edge-1") {
		v := bgpVIP(one, "http-80")
		v.Frontends = []model.FrontendKey{web}
		vip = vipChange(l.t, v)
	}
	l.gives(append(frontendChanges(l.t, f, list...), vip)...)
	if !l.slow {
		l.look()
	}
}

func (l *leaving) look() {
	l.balancer.apply()
	l.apply()
}

// renewed is by how many fields the proxy's listener differs from the plane's.
func (l *leaving) renewed() float64 {
	l.t.Helper()
	r, _ := l.relay.feed.Get(typeListener, "http-80")
	var m listenerv3.Listener
	if err := proto.Unmarshal(r.Body.GetValue(), &m); err != nil {
		l.t.Fatal(err)
	}
	return m.GetMetadata().GetFilterMetadata()["fairlead.dev/renewed"].GetFields()["number"].GetNumberValue()
}

func (l *leaving) holds(want ...netip.Addr) {
	l.t.Helper()
	l.with(func() {
		if !slices.Equal(l.held, want) {
			l.t.Errorf("held: %v, want %v", l.held, want)
		}
	})
}

func (l *leaving) said(line string) bool {
	said := false
	l.with(func() { said = strings.Contains(l.parts.said.String(), line) })
	return said
}

// A machine that leaves a pool withdraws, has its proxy end connections, holds what others
// pass on to it for the drain time, and says what was left.
func TestLeavingAPoolEndsConnectionsGently(t *testing.T) {
	t.Parallel()
	l := newLeaving(t)
	l.at(12*time.Second, model.BackendReady, "edge-1", "edge-2")
	l.whole()
	l.look()
	l.says(one.String())
	if l.renewed() != 0 {
		t.Fatal("a listener was renewed for nothing")
	}
	l.at(12*time.Second, model.BackendDraining, "edge-2")
	l.says()
	if !l.xdp.has().Unready[web] {
		t.Error("new flows still come while what is under way lingers")
	}
	if l.renewed() != 0 {
		t.Error("the proxy was told earlier than its drain time needs")
	}
	l.after(2 * time.Second)
	l.look()
	if l.renewed() == 0 {
		t.Error("the proxy does not end its connections")
	}
	l.listens("http-80")
	l.open = 3
	l.after(9 * time.Second)
	l.look()
	if !l.said("connections=3") || l.balancer.cut.Load() != 3 {
		t.Error("what is left was not counted")
	}
	l.holds(one)
	for _, c := range withoutFrontend(web) {
		l.gives(c)
	}
	l.look()
	if l.renewed() != 0 {
		t.Error("the listener stays another one than the plane's")
	}
	if l.balancer.cut.Load() != 3 {
		t.Error("what was left was counted twice")
	}
	l.holds(one)
	l.after(linger)
	l.look()
	l.holds()
}

// A drain time shorter than the proxy's ends with the plane's word.
func TestLeavingAPoolInAHurry(t *testing.T) {
	t.Parallel()
	l := newLeaving(t)
	l.at(time.Second, model.BackendReady, "edge-1", "edge-2")
	l.whole()
	l.look()
	l.at(time.Second, model.BackendDraining, "edge-2")
	if l.renewed() == 0 {
		t.Error("the proxy was not told at once")
	}
	l.open = 1
	for _, c := range withoutFrontend(web) {
		l.gives(c)
	}
	l.after(linger)
	l.look()
	if l.balancer.cut.Load() != 1 {
		t.Error("what was left was not counted")
	}
}

func TestComingBackToAPool(t *testing.T) {
	t.Parallel()
	l := newLeaving(t)
	l.at(0, model.BackendReady, "edge-1", "edge-2")
	l.whole()
	l.look()
	l.open = 7
	l.at(20*time.Second, model.BackendDraining, "edge-2")
	l.after(time.Second)
	l.look()
	l.at(20*time.Second, model.BackendReady, "edge-1", "edge-2")
	l.says(one.String())
	l.holds(one)
	l.after(time.Hour)
	l.look()
	if l.renewed() != 0 || l.balancer.cut.Load() != 0 || l.xdp.has().Unready[web] {
		t.Error("it ends connections though it is back")
	}
}

// An agent that starts within the drain time did not see the VIP go.
func TestLeavingAPoolOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	l := newLeaving(t)
	f := frontendOn(web, "edge-2")
	f.Listener = "http-80"
	list := proxies(web, "edge-1", "edge-2")
	list[0].State, list[0].Weight = model.BackendDraining, 0
	l.gives(frontendChanges(t, f, list...)...)
	l.whole()
	l.apply() // before the balancer has looked
	l.holds(one)
	l.look()
	l.holds(one)
	l.after(20 * time.Second) // 30 of the frontend, 10 of the proxy
	l.look()
	if l.renewed() == 0 {
		t.Error("the proxy does not end its connections")
	}
	for _, c := range withoutFrontend(web) {
		l.gives(c)
	}
	l.look()
	l.after(linger)
	l.look()
	l.holds()
}

// A VIP that comes back is announced once the data plane has it for clients again: until then
// it holds it for other machines alone, and the kernel would end what routers bring.
func TestComingBackWaitsForTheDataPlane(t *testing.T) {
	t.Parallel()
	l := newLeaving(t)
	l.at(0, model.BackendReady, "edge-1", "edge-2")
	l.whole()
	l.look()
	l.at(20*time.Second, model.BackendDraining, "edge-2")
	l.after(linger)
	l.look()
	l.says()
	l.slow = true
	l.at(20*time.Second, model.BackendReady, "edge-1", "edge-2")
	l.apply()
	l.says()
	l.look()
	l.says(one.String())
}

// The plane is told how many connections are left at a VIP that the machine has no longer,
// until they have ended or their time is over.
func TestLeavingAPoolSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	l := newLeaving(t)
	left := func(want uint32) {
		t.Helper()
		for _, o := range l.balancer.observed() {
			if o.FrontendKey == web && o.Parting != want {
				t.Errorf("%d connections are left, want %d", o.Parting, want)
			}
		}
	}
	l.at(12*time.Second, model.BackendReady, "edge-1", "edge-2")
	l.whole()
	l.look()
	l.open = 5
	left(0)
	l.slow = true
	l.at(12*time.Second, model.BackendDraining, "edge-2")
	left(1) // nobody has counted
	l.look()
	left(5)
	l.after(2 * time.Second)
	l.look()
	l.after(10 * time.Second) // the proxy's time is over, and it is busy
	l.look()
	left(5)
	l.open = 0
	l.after(time.Second)
	l.look()
	left(0)
	l.open = 2
	l.after(cutGrace)
	l.look()
	left(0)
}

// TestFlowsThatEndedUnseen has flow tables with flows of this machine's proxy that its sockets do
// not have: they are left out once it is to get no new one, so that a drain does not wait for them.
func TestFlowsThatEndedUnseen(t *testing.T) {
	t.Parallel()
	l := newLeaving(t)
	for _, step := range []struct {
		own         model.BackendState
		open        int
		flows, owns uint64
	}{
		{model.BackendReady, 0, 5, 3}, // nobody waits for the last
		{model.BackendDraining, 9, 5, 3},
		{model.BackendDraining, 2, 3, 2},
		{model.BackendDraining, 0, 1, 0},
	} {
		l.open = step.open
		l.at(0, step.own, "edge-1", "edge-2")
		l.xdp.counted = []model.FrontendFigures{{FrontendKey: web, Backends: []model.BackendFigures{
			{Address: proxies(web, "edge-1")[0].Address, Machine: "edge-1", Flows: 5, Tunnelled: 1, Owned: 3, Owns: true},
			{Address: proxies(web, "edge-2")[0].Address, Machine: "edge-2", Flows: 7, Tunnelled: 7},
		}}}
		frontends, _, _, err := l.balancer.figures()
		if err != nil || len(frontends) != 1 {
			t.Fatalf("%v, %v", frontends, err)
		}
		own, other := frontends[0].Backends[0], frontends[0].Backends[1]
		if own.Flows != step.flows || own.Owned != step.owns || other.Flows != 7 {
			t.Errorf("%s with %d connections: %+v and %+v, want %d flows and %d that it owns", step.own, step.open, own, other, step.flows, step.owns)
		}
	}
}
