package plane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

var (
	web4  = model.FrontendKey{VIP: vip4, Transport: model.TCP, Port: 80}
	edge4 = model.FrontendKey{VIP: vip4, Transport: model.TCP, Port: 80}
)

// balanced is a Service of our class with IPv4.
func balanced(name string) *corev1.Service {
	s := service(name)
	s.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: ptr(v1alpha1.LoadBalancerClass), AllocateLoadBalancerNodePorts: ptr(false),
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Port: 80}},
	}
	return s
}

// on places endpoints of a slice on a node.
func on(s *discoveryv1.EndpointSlice, node string, which ...int) *discoveryv1.EndpointSlice {
	for _, i := range which {
		s.Endpoints[i].NodeName = &node
	}
	return s
}

// backendsOf says what the agent was told of a frontend's backends: "10.1.0.1=100/100
// ready" or, of proxies, "edge-1=...". The caller holds the lock.
func (a *fakeAgent) backendsOf(key model.FrontendKey) (string, error) {
	m := &agentv1.FrontendBackends{}
	if err := a.get(agentv1.FrontendBackendsType, key.String(), m); err != nil {
		return "", err
	}
	if err := a.get(agentv1.FrontendType, key.String(), &agentv1.Frontend{}); err != nil {
		return "", err
	}
	list, err := wire.FrontendBackendsOf(key.String(), m)
	var out []string
	for _, b := range list {
		name := b.Address.Addr().String()
		if b.Proxy(key) {
			name = b.Machine
		} else if b.Machine != "" {
			name += "@" + b.Machine
		}
		out = append(out, fmt.Sprintf("%s=%d/%d %s", name, b.Weight, b.HopWeight, b.State))
	}
	return strings.Join(out, ", "), err
}

func (a *fakeAgent) awaitBackends(key model.FrontendKey, want string) {
	a.t.Helper()
	a.await("is told of "+key.String()+": "+want, func() error {
		got, err := a.backendsOf(key)
		if err == nil && got != want {
			err = fmt.Errorf("it is told: %s", got)
		}
		return err
	})
}

// awaitNodes waits until the agent knows these machines: "edge-1" with an asterisk for one
// that takes packets out of tunnels.
func (a *fakeAgent) awaitNodes(want ...string) {
	a.t.Helper()
	a.await(fmt.Sprint("knows the machines ", want), func() error {
		var got []string
		for name := range a.held[agentv1.NodeType] {
			m := &agentv1.Node{}
			if err := a.get(agentv1.NodeType, name, m); err != nil {
				return err
			}
			if m.GetDecaps() {
				name += "*"
			}
			got = append(got, name)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("it knows %v", got)
		}
		return nil
	})
}

func (a *fakeAgent) awaitNoFrontend() {
	a.t.Helper()
	a.await("has no frontend", func() error {
		if n := len(a.held[agentv1.FrontendType]) + len(a.held[agentv1.FrontendBackendsType]); n > 0 {
			return fmt.Errorf("it has %d resources", n)
		}
		return nil
	})
}

func servedIs(status metav1.ConditionStatus, reason, words string) func(*corev1.Service) error {
	return func(s *corev1.Service) error {
		if err := conditionIs(s.Status.Conditions, v1alpha1.ConditionServed, status, reason); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionServed); !strings.Contains(c.Message, words) || c.ObservedGeneration != s.Generation {
			return fmt.Errorf("the message is %q of generation %d", c.Message, c.ObservedGeneration)
		}
		return nil
	}
}

// poolOf gives addresses to machines with a label.
func poolOf(r *rig, machines ...string) {
	r.t.Helper()
	public := pool()
	public.Spec.Machines = &metav1.LabelSelector{MatchLabels: map[string]string{"edge": "yes"}}
	r.create(public)
	for _, name := range machines {
		edit(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(m *v1alpha1.Machine) { m.Labels = map[string]string{"edge": "yes"} })
	}
}

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

	await(r, app, "a machine cannot", servedIs(metav1.ConditionFalse, ReasonRefused, "edge-1: no kernel does this"))
	edge.with(func() { edge.observes = func(o *model.FrontendObserved) { o.State = model.FrontendDecap } })
	await(r, app, "a machine does not yet", servedIs(metav1.ConditionFalse, v1alpha1.ReasonPending, "waiting for edge-1 (decap)"))
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
	await(r, app, "it has no backend", servedIs(metav1.ConditionFalse, ReasonNoBackends, "tcp://192.0.2.80:80"))
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
	edit(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-2"}}, func(m *v1alpha1.Machine) { m.Spec.Cordoned = true })
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=0/100 draining, edge-3=100/100 ready")
	edit(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-2"}}, func(m *v1alpha1.Machine) { m.Spec.Cordoned = false })
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=100/100 ready")

	// One that is lost is not asked; when most are, it is not they who are broken.
	hangUp[2]()
	one.awaitBackends(edge4, "edge-1=100/100 ready, edge-2=100/100 ready, edge-3=0/100 unready")
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
