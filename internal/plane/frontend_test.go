package plane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/console"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// TestServiceOnMachines follows a Service to the machines that have its VIP or its
// backends, and to no other, and back into its status.
func TestServiceOnMachines(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	address := p.AgentAddress().String()
	edge, host, other := r.joined(p, "edge-1"), r.joined(p, "host-1"), r.joined(p, "other-1")
	other.tunnel = nil
	poolOf(r, "edge-1")
	app := balanced("app")
	endpoints := on(slice("app", "10.1.0.1", "10.1.0.2"), "host-1", 0)
	r.create(app, endpoints)
	edge.observes = func(o *model.FrontendObserved) { o.State, o.Message = model.FrontendRefused, "no kernel does this" }
	for _, a := range []*fakeAgent{edge, host, other} {
		a.connect(address)
	}
	edge.awaitBackends(web4, "10.1.0.1@host-1=100/100 ready, 10.1.0.2=100/100 ready")
	host.awaitBackends(web4, "10.1.0.1@host-1=100/100 ready, 10.1.0.2=100/100 ready")
	edge.awaitNodes("edge-1*", "host-1*")
	host.awaitNodes("edge-1*", "host-1*")
	other.awaitNoFrontend()

	await(r, app, "a machine cannot", servedIs(metav1.ConditionFalse, status.ReasonRefused, "edge-1: no kernel does this"))
	edge.with(func() { edge.observes = func(o *model.FrontendObserved) { o.State = model.FrontendDecap } })
	await(r, app, "a machine does not yet", servedIs(metav1.ConditionFalse, v1alpha1.ReasonPending, "waiting for edge-1 (decap)"))
	const later = "the data plane has not applied it yet"
	edge.with(func() {
		edge.observes = func(o *model.FrontendObserved) { o.State, o.Message = model.FrontendPending, later }
	})
	await(r, app, "a data plane does not yet", servedIs(metav1.ConditionFalse, v1alpha1.ReasonPending, "waiting for edge-1 ("+later+")"))
	edge.with(func() { edge.observes = nil })
	await(r, app, "it is served", servedIs(metav1.ConditionTrue, v1alpha1.ReasonServed, "every machine concerned balances it"))
	if in := app.Status.LoadBalancer.Ingress; len(in) != 1 || in[0].IP != vip4.String() {
		t.Errorf("its addresses are %+v", in)
	}

	// An endpoint that moves takes its machine along; the one before drains.
	edge.counts()
	edit(r, endpoints, func(s *discoveryv1.EndpointSlice) {
		on(s, "other-1", 1)
		s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: ptr(false), Serving: ptr(true), Terminating: ptr(true)}
	})
	other.awaitBackends(web4, "10.1.0.1@host-1=0/100 draining, 10.1.0.2@other-1=100/100 ready")
	other.awaitNodes("edge-1*", "host-1*", "other-1")
	edge.awaitNodes("edge-1*", "host-1*", "other-1")
	if c := edge.counts(); c[agentv1.FrontendType] != 0 || c[agentv1.FrontendBackendsType] == 0 {
		t.Errorf("an endpoint's change sends %v", c)
	}
	other.with(func() { other.tunnel = &agentv1.Tunnel{Message: "small packets only"} })
	edge.awaitNodes("edge-1*", "host-1*", "other-1*")

	edit(r, endpoints, func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = s.Endpoints[1:]
		s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: ptr(false)}
	})
	await(r, app, "it has no backend", servedIs(metav1.ConditionFalse, status.ReasonNoBackends, "tcp://192.0.2.80:80"))
	if err := r.client.Delete(context.Background(), app); err != nil {
		t.Fatal(err)
	}
	for _, a := range []*fakeAgent{edge, host, other} {
		a.awaitNoFrontend()
		a.awaitNodes()
	}
}

// TestWhatDrainsEnds has an endpoint that is gone leave the frontend after its drain time.
func TestWhatDrainsEnds(t *testing.T) {
	r := newRig(t)
	now := &clock{}
	p := r.plane("one", func(c *Config) { c.Now, c.TTL = now.Now, time.Hour }).awaitReady()
	edge, host := r.joined(p, "edge-1"), r.joined(p, "host-1")
	poolOf(r, "edge-1")
	endpoints := on(slice("app", "10.1.0.1", "10.1.0.2"), "host-1", 1)
	r.create(balanced("app"), endpoints)
	edge.connect(p.AgentAddress().String())
	host.connect(p.AgentAddress().String())
	host.awaitBackends(web4, "10.1.0.1=100/100 ready, 10.1.0.2@host-1=100/100 ready")
	edit(r, endpoints, func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[:1] })
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready, 10.1.0.2@host-1=0/100 draining")
	now.jump(30 * time.Second)
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready")
	host.awaitNoFrontend()
}

// TestProxiesAsBackends follows the machines of a Gateway's VIP: each is a backend of it
// for the others.
func TestProxiesAsBackends(t *testing.T) {
	r := newRig(t)
	r.world()
	r.create(pool())
	p := r.plane("one").awaitReady()
	address := p.AgentAddress().String()
	var agents []*fakeAgent
	var hangUp []func()
	for i := range 3 {
		a := r.joined(p, fmt.Sprint("edge-", i+1))
		agents, hangUp = append(agents, a), append(hangUp, a.connect(address))
	}
	one, two := agents[0], agents[1]
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=100/100 ready")
	one.awaitNodes("edge-1*", "edge-2*", "edge-3*")
	// A VIP that is withheld says nothing of the proxy.
	two.with(func() { two.proxy, two.vips = agentv1.Proxy_STATE_BACKOFF, withheld("the proxy is not ready") })
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=0/100 unready, edge-3=100/100 ready")
	two.with(func() { two.proxy = agentv1.Proxy_STATE_READY })
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=100/100 ready")
	// One that starts may be an agent that starts: its proxy keeps what it has.
	two.with(func() { two.proxy = agentv1.Proxy_STATE_STARTING })
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=0/100 draining, edge-3=100/100 ready")
	two.with(func() { two.proxy = agentv1.Proxy_STATE_READY })
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=100/100 ready")
	edit(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-2"}}, func(m *v1alpha1.Machine) { m.Spec.Cordoned = true })
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=0/100 draining, edge-3=100/100 ready")
	edit(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-2"}}, func(m *v1alpha1.Machine) { m.Spec.Cordoned = false })
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=100/100 ready")

	// One that is lost is not asked; when most are, it is not they who are broken.
	hangUp[2]()
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=0/100 draining")
	hangUp[1]()
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=100/100 ready")

	// A new plane takes nothing away before it has heard of the machines.
	p.stop()
	now := &clock{}
	next := r.plane("two", func(c *Config) { c.Now, c.TTL = now.Now, time.Minute }).awaitReady()
	one.connect(next.AgentAddress().String())
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=100/100 ready")
	one.awaitNodes("edge-1*", "edge-2*", "edge-3*")
	eventually(t, "the plane has published", func() error {
		if next.Status(context.Background()).Plane.Revision == 0 {
			return errors.New("nothing yet")
		}
		return nil
	})
}

// awaitReports waits until the plane has heard of what machines do.
func (p *running) awaitReports(machines ...string) {
	p.t.Helper()
	for _, name := range machines {
		eventually(p.t, "the plane has a report of "+name, func() error {
			if s, _ := p.server.Machine(name); s.LastReport.IsZero() {
				return errors.New("it has none")
			}
			return nil
		})
	}
}

// TestLostMachinesTakeTheirBackends holds that what is on a machine that is lost gets no new
// flow, unless others find it well, and that losing most machines empties nothing.
func TestLostMachinesTakeTheirBackends(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	edge := r.joined(p, "edge-1")
	poolOf(r, "edge-1")
	hosts := []*fakeAgent{r.joined(p, "host-1"), r.joined(p, "host-2"), r.joined(p, "host-3")}
	endpoints := slice("app", "10.1.0.1", "10.1.0.2", "10.1.0.3")
	for i := range hosts {
		on(endpoints, fmt.Sprint("host-", i+1), i)
	}
	r.create(balanced("app"), endpoints)
	address := p.AgentAddress().String()
	edge.connect(address)
	var hangUp []func()
	for _, a := range hosts {
		hangUp = append(hangUp, a.connect(address))
	}
	edge.awaitBackends(web4, "10.1.0.1@host-1=100/100 ready, 10.1.0.2@host-2=100/100 ready, 10.1.0.3@host-3=100/100 ready")
	p.awaitReports("host-1", "host-2", "host-3") // one that never reported is not lost
	hangUp[0]()
	edge.awaitBackends(web4, "10.1.0.1@host-1=0/100 draining, 10.1.0.2@host-2=100/100 ready, 10.1.0.3@host-3=100/100 ready")
	rows, err := p.Backends(context.Background(), web4.String())
	if err != nil || len(rows) != 3 || len(rows[0].Says) != 1 || rows[0].Says[0].Machine != "host-1" || !strings.Contains(rows[0].Says[0].Message, "lost") || len(rows[1].Says) != 0 {
		t.Errorf("it is said of them: %+v, %v", rows, err)
	}
	// The one that is there finds it well: it is the agent alone that is away.
	says := func(a *fakeAgent, of string, h model.Health) {
		a.with(func() {
			a.results = nil
			for id := range a.held[agentv1.CheckType] {
				if strings.HasPrefix(id, of+":") {
					a.results = append(a.results, model.CheckResult{ID: id, Health: h, Message: "refused"})
				}
			}
		})
	}
	edge.await("is to check it", func() error {
		for id := range edge.held[agentv1.CheckType] {
			if strings.HasPrefix(id, "10.1.0.1:") {
				return nil
			}
		}
		return fmt.Errorf("it checks %v", slices.Collect(maps.Keys(edge.held[agentv1.CheckType])))
	})
	says(edge, "10.1.0.1", model.Healthy)
	edge.awaitBackends(web4, "10.1.0.1@host-1=100/100 ready, 10.1.0.2@host-2=100/100 ready, 10.1.0.3@host-3=100/100 ready")
	says(edge, "10.1.0.1", model.Unhealthy)
	edge.awaitBackends(web4, "10.1.0.1@host-1=0/100 draining, 10.1.0.2@host-2=100/100 ready, 10.1.0.3@host-3=100/100 ready")
	hangUp[1]()
	edge.awaitBackends(web4, "10.1.0.1@host-1=0/100 draining, 10.1.0.2@host-2=0/100 draining, 10.1.0.3@host-3=100/100 ready")
	// Three of four are gone: it is the plane that lost them.
	hangUp[2]()
	edge.awaitBackends(web4, "10.1.0.1@host-1=0/100 draining, 10.1.0.2@host-2=100/100 ready, 10.1.0.3@host-3=100/100 ready")
}

// TestPresumedChecks holds that backends of TCP are checked where no policy says anything, by
// others than their own machine; that it can be switched off; and that it never takes all.
func TestPresumedChecks(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	edge, host := r.joined(p, "edge-1"), r.joined(p, "host-1")
	poolOf(r, "edge-1")
	r.create(balanced("app"), on(slice("app", "10.1.0.1", "10.1.0.2"), "host-1", 1))
	checks := func(want ...string) func(*fakeAgent) {
		return func(a *fakeAgent) {
			t.Helper()
			a.await("checks "+strings.Join(want, " and "), func() error {
				var got []string
				for id := range a.held[agentv1.CheckType] {
					target, _, _ := strings.Cut(id, "/")
					got = append(got, target)
				}
				if slices.Sort(got); !slices.Equal(got, want) {
					return fmt.Errorf("it checks %v", got)
				}
				return nil
			})
		}
	}
	edge.connect(p.AgentAddress().String())
	host.connect(p.AgentAddress().String())
	checks("10.1.0.1:8080", "10.1.0.2:8080")(edge)
	checks("10.1.0.1:8080")(host)
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready, 10.1.0.2@host-1=100/100 ready")
	says := func(ill ...string) {
		edge.with(func() {
			edge.results = nil
			for id := range edge.held[agentv1.CheckType] {
				target, _, _ := strings.Cut(id, "/")
				h := model.Healthy
				if slices.Contains(ill, target) {
					h = model.Unhealthy
				}
				edge.results = append(edge.results, model.CheckResult{ID: id, Health: h, Message: "refused"})
			}
		})
	}
	says("10.1.0.2:8080")
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready, 10.1.0.2@host-1=0/100 draining")
	says("10.1.0.1:8080", "10.1.0.2:8080")
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready, 10.1.0.2@host-1=100/100 ready")
	r.create(&v1alpha1.LoadBalancerPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"},
		Spec: v1alpha1.LoadBalancerPolicySpec{
			TargetRefs: []gatewayv1.LocalPolicyTargetReferenceWithSectionName{{
				LocalPolicyTargetReference: gatewayv1.LocalPolicyTargetReference{Kind: "Service", Name: "app"},
			}},
			HealthCheck: &v1alpha1.HealthCheck{Type: v1alpha1.CheckNone},
		},
	})
	checks()(edge)
	checks()(host)
}

func TestFrontendsGoOnWhileRoutingIsFrozen(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	edge := r.joined(p, "edge-1")
	poolOf(r, "edge-1")
	edge.connect(p.AgentAddress().String())
	r.create(&v1alpha1.Freeze{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.FreezeName}})
	eventually(t, "routing is frozen", func() error {
		if p.Status(context.Background()).Plane.Freeze == nil {
			return errors.New("it is not")
		}
		return nil
	})
	r.create(balanced("app"), slice("app", "10.1.0.1"))
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready")
}

// TestWhatPeopleSeeOfFrontends shows states, backends with the sum of what machines have
// counted, and flows.
func TestWhatPeopleSeeOfFrontends(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	one, two := r.joined(p, "edge-1"), r.joined(p, "edge-2")
	poolOf(r, "edge-1", "edge-2")
	r.create(balanced("app"), slice("app", "10.1.0.1", "10.1.0.2"))
	at := func(i int) netip.AddrPort { return netip.MustParseAddrPort(fmt.Sprintf("10.1.0.%d:8080", i)) }
	flow := model.Flow{Frontend: web4, Client: netip.MustParseAddrPort("198.51.100.7:4000"), Backend: at(1), State: "established"}
	for i, a := range []*fakeAgent{one, two} {
		a.flows = []model.Flow{flow}
		a.counted = []model.FrontendFigures{{FrontendKey: web4, Backends: []model.BackendFigures{
			{Address: at(1), Packets: 10, Flows: uint64(i + 1), Rows: 30}, {Address: at(2), Rows: 10, Flows: 4, Tunnelled: 3, Owns: i == 0, Owned: uint64(2 * (1 - i))},
		}}}
		a.connect(p.AgentAddress().String())
	}
	two.with(func() {
		two.observes = func(o *model.FrontendObserved) { o.Message = "mode NAT is used: the way back is closed" }
	})
	eventually(t, "the frontend is balanced", func() error {
		s := p.Status(context.Background())
		if len(s.Frontends) != 1 || s.Frontends[0].State != shownBalanced || len(s.Frontends[0].At) != 2 {
			return fmt.Errorf("the frontends are %+v", s.Frontends)
		}
		f := s.Frontends[0]
		if f.Message != "edge-2: mode NAT is used: the way back is closed" || f.Backends != 2 || f.Available != 2 || f.Owner.Name != "app" {
			return fmt.Errorf("it is %+v", f)
		}
		if len(s.VIPs) == 0 || !slices.Equal(s.VIPs[0].Frontends, []model.FrontendKey{web4}) {
			return fmt.Errorf("the VIPs are %+v", s.VIPs)
		}
		return nil
	})
	for _, of := range []string{"", "default/app", "Service default/app", web4.String(), vip4.String()} {
		rows, err := p.Backends(context.Background(), of)
		if err != nil || len(rows) != 2 {
			t.Fatalf("backends of %q: %+v, %v", of, rows, err)
		}
		// Of the eight entries six are of flows that came out of tunnels as two.
		if rows[1].Flows != 4 || rows[1].Drain != 30*time.Second {
			t.Errorf("backends of %q: %+v", of, rows[1])
		}
		if b := rows[0]; !b.Known || b.Flows != 3 || b.Packets != 20 || b.RowsPercent != 75 || b.Percent != 50 || b.Weight != 100 {
			t.Errorf("backends of %q: %+v", of, b)
		}
	}
	if _, err := p.Backends(context.Background(), "default/other"); !errors.Is(err, console.ErrNone) {
		t.Errorf("backends of nobody: %v", err)
	}
	list, err := p.Flows(context.Background(), "", model.FlowQuery{})
	if err != nil || !slices.Equal(list.Answered, []string{"edge-1", "edge-2"}) || len(list.Flows) != 2 || list.Flows[1] != (model.FlowAt{At: "edge-2", Flow: flow}) {
		t.Errorf("flows: %+v, %v", list, err)
	}
	if list, err = p.Flows(context.Background(), "edge-1", model.FlowQuery{}); err != nil || len(list.Flows) != 1 || list.Flows[0].At != "edge-1" {
		t.Errorf("flows of one: %+v, %v", list, err)
	}
	eventually(t, "it is counted", func() error {
		if n := p.metric("fairlead_plane_frontends", map[string]string{"state": shownBalanced}); n != 1 {
			return fmt.Errorf("%g frontends are balanced", n)
		}
		if n := p.metric("fairlead_plane_frontend_backends", map[string]string{"state": "available"}); n != 2 {
			return fmt.Errorf("%g backends are available", n)
		}
		return nil
	})

	// Without a backend there is a problem.
	edit(r, slice("app"), func(s *discoveryv1.EndpointSlice) {
		for i := range s.Endpoints {
			s.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: ptr(false)}
		}
	})
	eventually(t, "it is told that nobody is there", func() error {
		problems := p.Status(context.Background()).Problems
		if !slices.Contains(problems, model.Problem{
			Severity: model.SeverityError, Subject: "Frontend tcp://192.0.2.80:80", Reason: status.ReasonNoBackends, Message: "no backend takes new flows (Service default/app)",
		}) {
			return fmt.Errorf("the problems are %+v", problems)
		}
		return nil
	})
}

// TestNodesAreTheMachinesAround a machine, however frontends come and go.
func TestNodesAreTheMachinesAround(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "b", "c", "d", "e"}
	around, held := newNeighbours(), map[string]map[string]*delta.Resource{}
	decaps := map[string]bool{}
	at := make([][]string, 12)
	for range 2000 {
		if i := random.IntN(len(at) + 2); i < len(at) {
			var next []string
			for _, n := range names {
				if random.IntN(3) == 0 {
					next = append(next, n)
				}
			}
			around.regroup(at[i], next)
			at[i] = next
		} else {
			n := names[random.IntN(len(names))]
			decaps[n] = !decaps[n]
			around.stale[n] = true
		}
		update := southbound.Update{Machine: map[string][]delta.Change{}}
		if err := around.tell(&update, func(name string) *agentv1.Node { return &agentv1.Node{Decaps: decaps[name], Tunnel4: []byte(name)} }, func(string) {}); err != nil {
			t.Fatal(err)
		}
		for m, changes := range update.Machine {
			for _, c := range changes {
				if held[m] == nil {
					held[m] = map[string]*delta.Resource{}
				}
				if c.Resource == nil {
					if held[m][c.Name] == nil {
						t.Fatalf("%s loses %s, which it did not have", m, c.Name)
					}
					delete(held[m], c.Name)
				} else {
					held[m][c.Name] = c.Resource
				}
			}
		}
		for _, m := range names {
			want := map[string]bool{}
			for _, members := range at {
				if slices.Contains(members, m) {
					for _, n := range members {
						want[n] = true
					}
				}
			}
			if len(want) != len(held[m]) {
				t.Fatalf("%s has %v, want %v", m, held[m], want)
			}
			for n := range want {
				is := &agentv1.Node{}
				if r := held[m][n]; r == nil || r.Body.UnmarshalTo(is) != nil || is.GetDecaps() != decaps[n] || string(is.GetTunnel4()) != n {
					t.Fatalf("%s has of %s: %+v", m, n, is)
				}
			}
		}
	}
}

// TestStreamRouteIsProgrammed by the data planes of the machines that have the Gateway's
// address, as is its listener.
func TestStreamRouteIsProgrammed(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	edge := r.joined(p, "edge-1")
	poolOf(r, "edge-1")
	g := gateway()
	g.Spec.Listeners = []gatewayv1.Listener{{Name: "tcp", Port: 80, Protocol: gatewayv1.TCPProtocolType}}
	route := &gatewayv1.TCPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"},
		Spec: gatewayv1.TCPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "edge"}}},
			Rules: []gatewayv1.TCPRouteRule{{BackendRefs: []gatewayv1.BackendRef{{
				BackendObjectReference: gatewayv1.BackendObjectReference{Name: "app", Port: ptr(gatewayv1.PortNumber(80))},
			}}}},
		},
	}
	t.Cleanup(func() { _ = r.client.Delete(context.Background(), route) })
	r.create(gatewayClass(), g, service("app"), slice("app", "10.1.0.1"), route)
	edge.observes = func(o *model.FrontendObserved) { o.State, o.Message = model.FrontendRefused, "no kernel does this" }
	edge.connect(p.AgentAddress().String())
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready")
	programmed := func(want metav1.ConditionStatus, reason, words string) {
		t.Helper()
		is := func(conditions []metav1.Condition, conditionType, reason string) error {
			if err := conditionIs(conditions, conditionType, want, reason); err != nil {
				return err
			}
			if c := meta.FindStatusCondition(conditions, conditionType); !strings.Contains(c.Message, words) {
				return fmt.Errorf("the message is %q", c.Message)
			}
			return nil
		}
		await(r, route, "the route says "+words, func(o *gatewayv1.TCPRoute) error {
			if len(o.Status.Parents) != 1 {
				return fmt.Errorf("it has the parents %+v", o.Status.Parents)
			}
			return is(o.Status.Parents[0].Conditions, status.RouteProgrammed, reason)
		})
		if reason == status.ReasonRefused {
			reason = string(gatewayv1.ListenerReasonInvalid)
		}
		await(r, g, "the listener says "+words, func(o *gatewayv1.Gateway) error {
			if len(o.Status.Listeners) != 1 {
				return fmt.Errorf("it has the listeners %+v", o.Status.Listeners)
			}
			return is(o.Status.Listeners[0].Conditions, status.ConditionProgrammed, reason)
		})
	}
	programmed(metav1.ConditionFalse, status.ReasonRefused, "no kernel does this")
	edge.with(func() { edge.observes = nil })
	programmed(metav1.ConditionTrue, status.ReasonProgrammed, "every machine concerned balances it")
	edit(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}, func(m *v1alpha1.Machine) { m.Spec.Cordoned = true })
	programmed(metav1.ConditionFalse, status.ReasonPending, "no machine has its address")
}

// TestOneEndpointCostsOneFrontend has one of two Services change: of the other nothing is
// sent again.
func TestOneEndpointCostsOneFrontend(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	edge := r.joined(p, "edge-1")
	public := pool()
	public.Spec.Addresses = []string{"192.0.2.80/31"}
	r.create(public)
	endpoints := slice("app", "10.1.0.1")
	r.create(balanced("app"), endpoints, balanced("other"), slice("other", "10.1.0.2"))
	edge.connect(p.AgentAddress().String())
	both := func() error {
		if n := len(edge.held[agentv1.FrontendBackendsType]); n != 2 {
			return fmt.Errorf("it has %d frontends", n)
		}
		for name := range edge.held[agentv1.FrontendBackendsType] { // the endpoints may be read after the Services
			key, err := model.ParseFrontend(name)
			if err != nil {
				return err
			}
			if text, _ := edge.backendsOf(key); text == "" {
				return fmt.Errorf("%s has no backend", name)
			}
		}
		return nil
	}
	edge.await("has both", both)
	edge.counts()
	edit(r, endpoints, func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"10.1.0.3"} })
	edge.await("has the new one", func() error {
		for name := range edge.held[agentv1.FrontendBackendsType] {
			key, err := model.ParseFrontend(name)
			if err != nil {
				return err
			}
			if text, err := edge.backendsOf(key); err == nil && text == "10.1.0.1=0/100 draining, 10.1.0.3=100/100 ready" {
				return nil
			}
		}
		return errors.New("it does not")
	})
	if c := edge.counts(); c[agentv1.FrontendBackendsType] != 1 || c[agentv1.FrontendType] != 0 {
		t.Errorf("it was sent %v", c)
	}
}
