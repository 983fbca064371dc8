package agent

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
)

func TestVIPsWithFrontends(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, listeners ...model.ListenerID) (*announcing, *fakePlane) {
		xdp := &fakePlane{kind: model.DataPlaneXDP, cannot: map[model.FrontendKey]string{}, refuses: map[model.FrontendKey]string{}}
		a := newBalancing(t, xdp)
		vip := bgpVIP(one, listeners...)
		vip.Frontends = []model.FrontendKey{mail}
		if len(listeners) > 0 {
			vip.Frontends = append(vip.Frontends, web)
			f := frontendOn(web, "edge-1", "edge-2")
			f.Listener = listeners[0]
			a.gives(frontendChanges(t, f, proxies(web, "edge-1", "edge-2")...)...)
		}
		a.gives(vipChange(t, vip))
		a.gives(frontendChanges(t, frontendOn(mail, "edge-1"), ready(pod, "", 100))...)
		a.whole()
		return a, xdp
	}
	t.Run("the data plane goes first", func(t *testing.T) {
		a, _ := begin(t)
		a.after(beginGrace)
		a.says()
		a.told(one, model.VIPWithheld, "frontend tcp://192.0.2.1:25 is not known here yet")
		a.balancer.apply()
		a.says(one.String())
	})
	t.Run("without a backend", func(t *testing.T) {
		a, _ := begin(t)
		a.balancer.apply()
		a.says(one.String())
		a.gives(frontendChanges(t, frontendOn(mail, "edge-1"), ready(pod, "", 0))...)
		a.balancer.apply()
		a.says()
		a.told(one, model.VIPWithheld, "frontend tcp://192.0.2.1:25 has no available backend")
	})
	t.Run("refused", func(t *testing.T) {
		a, xdp := begin(t)
		xdp.cannot[mail] = "no BPF"
		a.balancer.apply()
		a.after(beginGrace)
		a.says()
		a.told(one, model.VIPWithheld, "frontend tcp://192.0.2.1:25 is not balanced here: XDP: no BPF")
	})
	t.Run("the proxy does not matter", func(t *testing.T) {
		a, _ := begin(t)
		a.becomes("backoff", 3)
		a.balancer.apply()
		a.says(one.String())
	})
	t.Run("beside a listener", func(t *testing.T) {
		a, _ := begin(t, "http-80")
		a.listens("http-80")
		a.balancer.apply()
		a.says(one.String())
		a.carries(one)
		a.becomes("backoff", 3)
		a.says(one.String()) // other machines' proxies take what comes here
		a.told(one, model.VIPAnnounced, "the proxy is backoff: so it says")
		a.becomes(proxyReady, 3)
		a.gives(frontendChanges(t, frontendOn(mail, "edge-1"), ready(pod, "", 0))...)
		a.balancer.apply()
		a.says(one.String())
		a.told(one, model.VIPAnnounced, "frontend tcp://192.0.2.1:25 has no available backend")
		a.becomes("backoff", 3)
		a.says()
	})
}

// newServing is a machine whose proxy serves a listener, the VIP of which another one has, too.
func newServing(t *testing.T, plane *fakePlane) (*announcing, model.Frontend) {
	a := newBalancing(t, plane)
	a.becomes(proxyReady, 0)
	vip := bgpVIP(one, "http-80")
	vip.Frontends = []model.FrontendKey{web}
	f := frontendOn(web, "edge-1", "edge-2")
	f.Listener = "http-80"
	a.gives(append(frontendChanges(t, f, proxies(web, "edge-1", "edge-2")...), vipChange(t, vip))...)
	a.whole()
	a.listens("http-80")
	return a, f
}

// A listener's flows of other machines arrive with the VIP: the data plane must be there.
func TestListenersWaitForTheirDataPlane(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP}
	a, _ := newServing(t, xdp)
	answers := a.balancer.inquire(a.balancer.now())
	a.balancer.mu.Lock()
	a.balancer.join(a.balancer.now(), answers) // chosen, not told
	a.balancer.mu.Unlock()
	a.says("-")
	a.told(one, model.VIPWithheld, "tcp://192.0.2.1:80 is not balanced here yet")
	a.after(awaitTime - time.Second) // a busy kernel takes long to load programs
	a.says()
	a.told(one, model.VIPWithheld, "tcp://192.0.2.1:80 is not balanced here yet")
	xdp.broken = errors.New("out of memory")
	a.balancer.apply()
	a.says(one.String()) // the routers alone balance it, as they do without the tier
	xdp.broken = nil
	a.after(time.Hour)
	a.balances("tcp://192.0.2.1:80 balanced /XDP 2")
	a.says(one.String())
}

// The kernel has its time whenever it is waited for, not once for a VIP.
func TestKernelsHaveTheirTimeAgain(t *testing.T) {
	t.Parallel()
	a, f := newServing(t, &fakePlane{kind: model.DataPlaneXDP})
	a.balancer.apply()
	a.says(one.String())
	a.after(2 * awaitTime)
	a.becomes("backoff", 1)
	a.says()
	a.gives(frontendChanges(t, f, proxies(web, "edge-1", "edge-2", "edge-3")...)...)
	a.becomes(proxyReady, 1)
	a.says()
	a.told(one, model.VIPWithheld, "tcp://192.0.2.1:80 is not balanced here yet")
	a.after(awaitTime - time.Second)
	a.says()
	a.balancer.apply()
	a.says(one.String())
}

// Whoever answers for a VIP on a segment passes flows on to the proxies of the others, with
// the VIP as their destination: they hold it, and say nothing of it to anybody.
func TestVIPsOfASegmentAreHeldForFlowsThatTheirOwnerPassesOn(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP, mtu: 1500}
	a := newBalancing(t, xdp)
	vip := model.VIP{
		Address: one, Pool: "p", Mode: model.AnnounceL2, Candidates: []string{"edge-2", "edge-1"},
		Listeners: []model.ListenerID{"http-80"}, Frontends: []model.FrontendKey{web},
	}
	f := frontendOn(web, "edge-1", "edge-2")
	f.Listener = "http-80"
	has := func(what string, held []netip.Addr) {
		t.Helper()
		a.balancer.apply()
		a.says()
		a.with(func() {
			if !slices.Equal(a.held, held) || !slices.Equal(a.kept, []netip.Addr{one}) {
				t.Errorf("%s: held %v, want %v; kept %v", what, a.held, held, a.kept)
			}
			if candidacies := a.candidacies[len(a.candidacies)-1]; len(candidacies) != 1 || !candidacies[0].Ready {
				t.Errorf("%s: the segment was told %+v", what, candidacies)
			}
		})
	}
	a.gives(append(frontendChanges(t, f, proxies(web, "edge-1", "edge-2")...), vipChange(t, vip))...)
	a.listens("http-80")
	a.whole()
	has("a backend", []netip.Addr{one})

	list := proxies(web, "edge-1", "edge-2")
	list[0].State, list[0].Weight = model.BackendDraining, 0
	a.gives(frontendChanges(t, f, list...)...)
	has("draining", []netip.Addr{one})

	list[0].State = model.BackendUnready
	a.gives(frontendChanges(t, f, list...)...)
	has("unready, a moment ago", []netip.Addr{one})
	a.after(linger)
	has("unready", nil) // the segment alone says who has it

	a.gives(frontendChanges(t, f, proxies(web, "edge-1", "edge-2")...)...)
	has("again", []netip.Addr{one})
	xdp.cannot = map[model.FrontendKey]string{web: "no BPF"} // nobody can pass anything on to here
	f.NewFlows = 1
	a.gives(frontendChanges(t, f, proxies(web, "edge-1", "edge-2")...)...)
	a.balancer.apply()
	a.after(linger)
	a.apply()
	a.after(linger)
	a.apply()
	a.with(func() {
		if len(a.held) != 0 {
			t.Errorf("without a data plane: held %v", a.held)
		}
	})
}

// A machine that leaves the pool still has flows: others pass them on to it, with the VIP
// as their destination.
func TestVIPsAreHeldForFlowsThatOthersPassOn(t *testing.T) {
	t.Parallel()
	xdp := &fakePlane{kind: model.DataPlaneXDP, mtu: 1500}
	a := newBalancing(t, xdp)
	held := func(want ...netip.Addr) {
		t.Helper()
		a.balancer.apply()
		a.apply()
		a.with(func() {
			if !slices.Equal(a.held, want) {
				t.Errorf("held: %v, want %v", a.held, want)
			}
		})
	}
	gives := func(own model.BackendState, machines ...string) {
		f := frontendOn(web, machines...)
		f.Listener = "http-80"
		list := proxies(web, "edge-1", "edge-2")
		list[0].State = own
		if own != model.BackendReady {
			list[0].Weight = 0
		}
		a.gives(frontendChanges(t, f, list...)...)
	}
	vip := bgpVIP(one, "http-80")
	vip.Frontends = []model.FrontendKey{web}
	a.gives(vipChange(t, vip))
	gives(model.BackendReady, "edge-1", "edge-2")
	a.listens("http-80")
	a.whole()
	held(one)
	gives(model.BackendDraining, "edge-2")
	a.gives(delta.Change{Type: typeVIP, Name: wire.VIPName(one)})
	held(one)
	for range 5 { // the drain time is the plane's to say
		a.after(linger)
		held(one)
	}
	name := wire.FrontendName(web)
	a.gives(delta.Change{Type: typeFrontend, Name: name}, delta.Change{Type: typeFrontendBackends, Name: name})
	held(one)
	a.after(linger)
	held()
}
