package plane

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/xds"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func TestFromResourceToMachineAndBack(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	route := httpRoute("app", "", "")

	// Without a machine nothing is programmed, and that is said.
	await(r, route, "the route waits", routeIs(metav1.ConditionFalse, status.ReasonPending, "no machine serves this"))

	a := r.joined(p, "edge-1")
	a.with(func() { a.stuck = true })
	disconnect := a.connect(p.AgentAddress().String())
	a.await("has the route", a.holdsHost("app.example"))
	a.await("has its backends", a.holdsBackends(2))
	a.await("has everything", func() error {
		if n := len(a.held[typeScope]); n != xds.Shards("http-80")+1 {
			return fmt.Errorf("%d scopes", n)
		}
		if n := len(a.held[typeRoute]); n != xds.Shards("http-80")+1 {
			return fmt.Errorf("%d route configurations", n)
		}
		if a.point.Epoch != 1 {
			return fmt.Errorf("the checkpoint is %s", a.point)
		}
		config := &agentv1.MachineConfig{}
		if err := a.get(typeMachine, "edge-1", config); err != nil {
			return err
		}
		if config.GetTimeToLive().AsDuration() != 2*time.Second {
			return fmt.Errorf("the machine was told %v", config)
		}
		return nil
	})
	await(r, route, "the route waits for the machine", routeIs(metav1.ConditionFalse, status.ReasonPending, "waiting for edge-1"))

	// The machine applies it.
	a.with(func() { a.stuck = false })
	await(r, route, "the route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	await(r, gateway(), "the Gateway is programmed", func(g *gatewayv1.Gateway) error {
		if len(g.Status.Addresses) != 2 || len(g.Status.Listeners) != 1 {
			return fmt.Errorf("status is %+v", g.Status)
		}
		if err := conditionIs(g.Status.Conditions, "Programmed", metav1.ConditionTrue, "Programmed"); err != nil {
			return err
		}
		return conditionIs(g.Status.Listeners[0].Conditions, "Programmed", metav1.ConditionTrue, "Programmed")
	})
	await(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}, "the machine is ready", func(m *v1alpha1.Machine) error {
		if len(m.Status.Addresses) != 2 || m.Status.AgentVersion != "test" {
			return fmt.Errorf("status is %+v", m.Status)
		}
		return conditionIs(m.Status.Conditions, v1alpha1.MachineReady, metav1.ConditionTrue, v1alpha1.MachineReasonReady)
	})

	// One backend more is one load assignment more, and no status changes by it.
	a.counts()
	before := route.ResourceVersion
	edit(r, slice("app"), func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.0.3"}})
	})
	a.await("has the backend", a.holdsBackends(3))
	got := a.counts()
	delete(got, agentv1.CheckpointType)
	if len(got) != 1 || got[typeEndpoint] != 1 {
		t.Errorf("one backend more sent %v", got)
	}
	await(r, route, "the route is programmed still", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	if route.ResourceVersion != before {
		t.Errorf("a backend more wrote the route's status: %+v", route.Status)
	}

	// The proxy refuses the host: only its objects say so.
	r.create(httpRoute("other", "other.example", "app"))
	other := httpRoute("other", "", "")
	await(r, other, "the other route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	a.with(func() {
		a.problems = []*agentv1.Problem{{
			Kind: agentv1.Problem_KIND_REFUSED, TypeUrl: string(typeRoute), Name: shardOf("app.example") + "/app.example", Message: "regex is too large",
		}}
	})
	await(r, route, "the refusal is said", routeIs(metav1.ConditionFalse, status.ReasonRefused, "edge-1: regex is too large"))
	await(r, other, "the other route is left alone", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	shown := p.Status(context.Background())
	found := false
	for _, problem := range shown.Problems {
		found = found || problem.Subject == "HTTPRoute default/app" && strings.Contains(problem.Message, "regex is too large")
	}
	if !found || !shown.Plane.Leading || len(shown.Machines) != 1 || len(shown.Listeners) != 1 || len(shown.Routes) != 2 {
		t.Errorf("the status for people is %+v", shown)
	}
	a.with(func() { a.problems = nil })
	await(r, route, "the route is programmed again", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))

	// A lost machine is named and does not hold it false while another one has it.
	b := r.joined(p, "edge-2")
	b.connect(p.AgentAddress().String())
	b.await("has the route", b.holdsHost("app.example"))
	disconnect()
	await(r, route, "the lost machine is named", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, "lost: edge-1"))
	await(r, &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "edge-1"}}, "the machine is lost", func(m *v1alpha1.Machine) error {
		return conditionIs(m.Status.Conditions, v1alpha1.MachineReady, metav1.ConditionFalse, v1alpha1.MachineReasonLost)
	})
	eventually(t, "the metrics count the lost machine", func() error {
		if n := p.metric("fairlead_plane_machines", map[string]string{"state": machineLost}); n != 1 {
			return fmt.Errorf("%v machines are lost", n)
		}
		return nil
	})
}

func TestIngressRouteThatAProxyRefuses(t *testing.T) {
	r := newRig(t)
	r.create(service("app"), slice("app", "10.1.0.1"), &contourv1beta1.IngressRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "root"},
		Spec: contourv1beta1.IngressRouteSpec{
			VirtualHost: &contourv1beta1.VirtualHost{Fqdn: "root.example"},
			Routes:      []contourv1beta1.Route{{Match: "/", Services: []contourv1beta1.Service{{Name: "app", Port: 80}}}},
		},
	})
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	a.await("has the route", a.holdsHost("root.example"))
	root := &contourv1beta1.IngressRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "root"}}
	is := func(status, words string) func(*contourv1beta1.IngressRoute) error {
		return func(i *contourv1beta1.IngressRoute) error {
			if i.Status.CurrentStatus != status || !strings.Contains(i.Status.Description, words) {
				return fmt.Errorf("status is %+v", i.Status)
			}
			return nil
		}
	}
	await(r, root, "it is valid", is(contourv1beta1.StatusValid, ""))
	a.with(func() {
		a.problems = []*agentv1.Problem{{
			Kind: agentv1.Problem_KIND_REFUSED, TypeUrl: string(typeCluster), Name: onlyGroup(t, a), Message: "no such policy",
		}}
	})
	await(r, root, "it is refused", is(contourv1beta1.StatusInvalid, "refused by the proxy of edge-1: no such policy"))
	a.with(func() { a.problems = nil })
	await(r, root, "it is valid again", is(contourv1beta1.StatusValid, ""))
}

// onlyGroup names the one cluster that the agent holds. The caller holds the lock.
func onlyGroup(t *testing.T, a *fakeAgent) string {
	t.Helper()
	for name := range a.held[typeCluster] {
		return name
	}
	t.Error("there is no cluster")
	return ""
}

func TestRestartSendsDifferencesOnlyAndRaisesTheEpoch(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	route := httpRoute("app", "", "")
	await(r, route, "the route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	address := p.AgentAddress().String()
	since := meta.FindStatusCondition(route.Status.Parents[0].Conditions, status.RouteProgrammed).LastTransitionTime
	p.stop()

	// While no plane runs, a backend comes.
	edit(r, slice("app"), func(s *discoveryv1.EndpointSlice) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.1.0.3"}})
	})
	a.counts()
	p = r.plane("one", func(c *Config) { c.AgentAddress = address }).awaitReady()
	await(r, route, "nothing is taken back before the machine reported", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	a.connect(address)
	a.await("has the new backend", a.holdsBackends(3))
	a.await("has the new epoch", func() error {
		if a.point.Epoch != 2 {
			return fmt.Errorf("the checkpoint is %s", a.point)
		}
		return nil
	})
	got := a.counts()
	delete(got, agentv1.CheckpointType)
	if len(got) != 1 || got[typeEndpoint] != 1 {
		t.Errorf("after the restart it was sent %v, want the changed load assignment", got)
	}
	eventually(t, "the machine has applied it", func() error {
		m := p.Status(context.Background()).Machines
		if len(m) != 1 || m[0].Applied == 0 || m[0].Applied != m[0].Wanted {
			return fmt.Errorf("machines are %+v", m)
		}
		return nil
	})
	await(r, route, "the route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	if now := meta.FindStatusCondition(route.Status.Parents[0].Conditions, status.RouteProgrammed).LastTransitionTime; !now.Equal(&since) {
		t.Errorf("the condition changed at %s, though it was true since %s", now, since)
	}
}

func TestStandbyTakesOver(t *testing.T) {
	r := newRig(t)
	r.world()
	first := r.plane("first").awaitReady()
	second := r.plane("second").awaitStandby()
	a := r.joined(first, "edge-1")

	// The standby says who leads.
	a.connect(second.AgentAddress().String())
	a.await("is sent away", func() error {
		if a.ended == nil || !strings.Contains(a.ended.Error(), first.AgentAddress().String()) {
			return errors.Join(errors.New("the stream did not end so"), a.ended)
		}
		return nil
	})
	a.connect(first.AgentAddress().String())
	a.await("has the route", a.holdsHost("app.example"))
	await(r, httpRoute("app", "", ""), "the route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	eventually(t, "the standby knows everything but what machines do", func() error {
		s := second.Status(context.Background())
		if len(s.Machines) != 1 || len(s.Routes) != 1 || len(s.Problems) != 0 {
			return fmt.Errorf("it says %+v", s)
		}
		return nil
	})

	first.stop()
	second.awaitReady()
	eventually(t, "the standby leads", func() error {
		if s := second.Status(context.Background()); !s.Plane.Leading || s.Plane.Epoch != 2 {
			return fmt.Errorf("it is %+v", s.Plane)
		}
		return nil
	})
	a.counts()
	a.connect(second.AgentAddress().String())
	a.await("follows the new leader", func() error {
		if a.point.Epoch != 2 {
			return fmt.Errorf("the checkpoint is %s", a.point)
		}
		return nil
	})
	got := a.counts()
	delete(got, agentv1.CheckpointType)
	if len(got) != 0 {
		t.Errorf("the new leader sent %v, though nothing had changed", got)
	}
}

func TestLeaderThatIsCutOff(t *testing.T) {
	r := newRig(t)
	r.world()
	first := r.plane("first").awaitReady()
	second := r.plane("second", func(c *Config) { c.REST = shared.server.RESTConfig() }).awaitStandby() // not over the wire tap
	a := r.joined(first, "edge-1")
	a.connect(first.AgentAddress().String())
	a.await("has the route", a.holdsHost("app.example"))

	r.wire.set(true)
	eventually(t, "the other plane leads", func() error {
		if s := second.Status(context.Background()); !s.Plane.Leading || s.Plane.Epoch != 2 {
			return fmt.Errorf("it is %+v", s.Plane)
		}
		return nil
	})
	// The plane that is cut off is told so by the one that leads, and sends its machines there.
	r.create(httpRoute("late", "late.example", "app"))
	a.await("is sent to the leader", func() error {
		if a.ended == nil || !strings.Contains(a.ended.Error(), second.AgentAddress().String()) {
			return errors.Join(errors.New("the stream did not end so"), a.ended)
		}
		return nil
	})
	a.connect(second.AgentAddress().String())
	a.await("has the late route", a.holdsHost("late.example"))
	await(r, httpRoute("late", "", ""), "the late route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	for _, cut := range []bool{true, false} {
		r.wire.set(cut)
		if s := first.awaitStandby().Status(context.Background()); s.Plane.Leading || s.Plane.Leader != second.AgentAddress().String() {
			t.Errorf("the first plane is %+v, cut off is %t", s.Plane, cut)
		}
	}
}

func TestRouteThatLeavesKeepsTheParentsOfOthers(t *testing.T) {
	r := newRig(t)
	r.world()
	route := httpRoute("app", "", "")
	if err := reread(r, route); err != nil {
		t.Fatal(err)
	}
	theirs := gatewayv1.RouteParentStatus{
		ParentRef: gatewayv1.ParentReference{Name: "theirs"}, ControllerName: "example.com/other",
		Conditions: []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", LastTransitionTime: metav1.Now()}},
	}
	route.Status.Parents = []gatewayv1.RouteParentStatus{theirs}
	if err := r.client.Status().Update(context.Background(), route); err != nil {
		t.Fatal(err)
	}
	r.plane("one").awaitReady()
	parents := func(want ...string) func(*gatewayv1.HTTPRoute) error {
		return func(h *gatewayv1.HTTPRoute) error {
			var got []string
			for _, p := range h.Status.Parents {
				got = append(got, string(p.ParentRef.Name))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("parents are %v, want %v", got, want)
			}
			return nil
		}
	}
	await(r, route, "both have a status", parents("theirs", "edge"))
	edit(r, route, func(h *gatewayv1.HTTPRoute) { h.Spec.ParentRefs[0].Name = "theirs" })
	await(r, route, "ours is gone", parents("theirs"))
	edit(r, route, func(h *gatewayv1.HTTPRoute) { h.Spec.ParentRefs[0].Name = "edge" })
	await(r, route, "ours is back", parents("theirs", "edge"))
}

func TestAnOlderLeaseIsExceeded(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	// The machine has seen a later plane: this API came out of a backup.
	a.with(func() { a.rev = delta.Revision{Epoch: 41, Number: 7} })
	a.connect(p.AgentAddress().String())
	a.await("is served in a larger epoch", func() error {
		if a.point.Epoch != 42 {
			return fmt.Errorf("the checkpoint is %s", a.point)
		}
		return a.holdsHost("app.example")()
	})
	if s := p.Status(context.Background()); s.Plane.Epoch != 42 {
		t.Errorf("the plane is %+v", s.Plane)
	}
}

func TestAPIAway(t *testing.T) {
	r := newRig(t)
	r.world()
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	await(r, httpRoute("app", "", ""), "the route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	before := p.Status(context.Background()).Plane

	r.wire.set(true)
	eventually(t, "the plane notices", func() error {
		s := p.Status(context.Background())
		for _, problem := range s.Problems {
			if problem.Reason == "LeaseNotRenewed" {
				return nil
			}
		}
		return fmt.Errorf("problems are %v", s.Problems)
	})
	// Streams stay up, and a machine that reconnects is served what is known.
	a.await("stays connected", func() error {
		if a.streams != 1 || a.ended != nil {
			return errors.Join(fmt.Errorf("%d streams", a.streams), a.ended)
		}
		return nil
	})
	b := &fakeAgent{t: t, name: "edge-1", key: a.key, cert: a.cert, root: a.root, held: map[delta.Type]map[string]*discoveryv3.Resource{}, received: map[delta.Type]int{}, proxy: a.proxy, changed: make(chan struct{}, 1), report: make(chan struct{}, 1)}
	b.connect(p.AgentAddress().String())
	b.await("is served without the API", b.holdsHost("app.example"))

	r.wire.set(false)
	r.create(httpRoute("late", "late.example", "app"))
	b.await("has what came later", b.holdsHost("late.example"))
	await(r, httpRoute("late", "", ""), "the late route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	if after := p.Status(context.Background()).Plane; after.Epoch != before.Epoch {
		t.Errorf("the epoch went from %d to %d, though nobody else led", before.Epoch, after.Epoch)
	}
}

func TestClockStep(t *testing.T) {
	r := newRig(t)
	r.world()
	c := &clock{}
	p := r.plane("one", func(config *Config) { config.Now = c.Now }).awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	route := httpRoute("app", "", "")
	await(r, route, "the route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
	for _, step := range []time.Duration{time.Hour, -90 * time.Minute} {
		c.jump(step)
		eventually(t, "the machine is not lost after a step of "+step.String(), func() error {
			s := p.Status(context.Background())
			if len(s.Machines) != 1 || !s.Machines[0].Connected || s.Machines[0].LastReport.Before(c.Now().Add(-time.Minute)) || s.Machines[0].LastReport.After(c.Now()) {
				return fmt.Errorf("machines are %+v", s.Machines)
			}
			return nil
		})
	}
	edit(r, route, func(h *gatewayv1.HTTPRoute) { h.Spec.Hostnames = []gatewayv1.Hostname{"moved.example"} })
	a.await("has the moved route", a.holdsHost("moved.example"))
	await(r, route, "the moved route is programmed", routeIs(metav1.ConditionTrue, status.ReasonProgrammed, ""))
}

func TestManyStatuses(t *testing.T) {
	const routes = 1000
	r := newRig(t)
	r.create(gatewayClass(), gateway(), service("app"), slice("app", "10.1.0.1"))
	var creators errgroup.Group
	creators.SetLimit(8)
	for i := range routes {
		creators.Go(func() error {
			return r.client.Create(context.Background(), httpRoute(fmt.Sprintf("r-%d", i), fmt.Sprintf("h-%d.example", i), "app"))
		})
	}
	if err := creators.Wait(); err != nil {
		t.Fatal(err)
	}
	p := r.plane("one").awaitReady()
	a := r.joined(p, "edge-1")
	a.connect(p.AgentAddress().String())
	a.await("has the last route", a.holdsHost(fmt.Sprintf("h-%d.example", routes-1)))
	eventually(t, "the statuses are written", func() error {
		if n := p.metric("fairlead_plane_status_writes_total", map[string]string{"kind": "HTTPRoute", "result": "written"}); n < routes {
			return fmt.Errorf("%v are written", n)
		}
		return nil
	})
	eventually(t, "every route shows that it is programmed", func() error {
		var list gatewayv1.HTTPRouteList
		if err := r.client.List(context.Background(), &list); err != nil {
			return err
		}
		for i := range list.Items {
			if err := routeIs(metav1.ConditionTrue, status.ReasonProgrammed, "")(&list.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
	written := p.metric("fairlead_plane_status_writes_total", map[string]string{"kind": "HTTPRoute", "result": "written"})
	conflicts := p.metric("fairlead_plane_status_writes_total", map[string]string{"kind": "HTTPRoute", "result": "conflict"})
	if written < routes || written > 3*routes {
		t.Errorf("%v writes for %d routes", written, routes)
	}
	if conflicts > routes/20 {
		t.Errorf("%v conflicts for %d routes", conflicts, routes)
	}
	if got := p.Status(context.Background()); len(got.Routes) != routes || got.Listeners[0].Hosts != routes {
		t.Errorf("%d routes, listeners %+v", len(got.Routes), got.Listeners)
	}
}
