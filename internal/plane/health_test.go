package plane

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	elect "fairlead.dev/internal/verdict"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// checkedApp is an application of two backends whose health is checked.
func checkedApp() []client.Object {
	return []client.Object{service("app"), slice("app", "10.1.0.1", "10.1.0.2"), &contourv1beta1.IngressRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"},
		Spec: contourv1beta1.IngressRouteSpec{
			VirtualHost: &contourv1beta1.VirtualHost{Fqdn: "app.example"},
			Routes: []contourv1beta1.Route{{Match: "/", Services: []contourv1beta1.Service{{
				Name: "app", Port: 80, HealthCheck: &contourv1beta1.HealthCheck{Path: "/status"},
			}}}},
		},
	}}
}

// holdsHealth checks what the agent was told of a backend's health.
func (a *fakeAgent) holdsHealth(backend netip.Addr, want corev3.HealthStatus) func() error {
	return func() error {
		for name := range a.held[typeEndpoint] {
			m := &endpointv3.ClusterLoadAssignment{}
			if err := a.get(typeEndpoint, name, m); err != nil {
				return err
			}
			for _, l := range m.GetEndpoints() {
				for _, e := range l.GetLbEndpoints() {
					switch {
					case e.GetEndpoint().GetAddress().GetSocketAddress().GetAddress() != backend.String():
					case e.GetHealthStatus() != want:
						return fmt.Errorf("it is %s, want %s", e.GetHealthStatus(), want)
					default:
						return nil
					}
				}
			}
		}
		return errors.New("it has no load assignment")
	}
}

// TestHealthGoesToMachinesAndBack holds the whole way in a plane: three machines of four are
// asked to check a backend, two of them take it out for all four, and when one is lost the
// fourth takes its place. It logs how long a verdict takes from the report to the machines.
func TestHealthGoesToMachinesAndBack(t *testing.T) {
	r := newRig(t)
	r.create(checkedApp()...)
	p := r.plane("one").awaitReady()
	fleet := map[string]*fakeAgent{}
	leave := map[string]func(){}
	for _, name := range []string{"a", "b", "c", "d"} {
		fleet[name] = r.joined(p, name)
		leave[name] = fleet[name].connect(p.AgentAddress().String())
	}
	bad := netip.MustParseAddrPort("10.1.0.1:8080")
	// held is the check of a backend at a machine.
	held := func(a *fakeAgent, backend netip.AddrPort) string {
		for id := range a.held[agentv1.CheckType] {
			m := &agentv1.Check{}
			if err := a.get(agentv1.CheckType, id, m); err != nil {
				t.Error(err)
			} else if c, err := wire.CheckOf(id, m); err == nil && c.Target == backend && c.Path == "/status" {
				return id
			}
		}
		return ""
	}
	checkers := func() (names []string) {
		for _, name := range slices.Sorted(maps.Keys(fleet)) {
			a := fleet[name]
			a.mu.Lock()
			if held(a, bad) != "" {
				names = append(names, name)
			}
			a.mu.Unlock()
		}
		return names
	}
	// A machine that is slow is lost for a moment, and checks nothing then: it goes on to say
	// of the bad backend what it was told to.
	var about string
	says := func(name string, h model.Health) {
		fleet[name].with(func() {
			fleet[name].results = []model.CheckResult{{ID: about, Health: h}}
			for id := range fleet[name].held[agentv1.CheckType] {
				if id != about {
					fleet[name].results = append(fleet[name].results, model.CheckResult{ID: id, Health: model.Healthy})
				}
			}
		})
	}
	var names []string
	eventually(t, "three machines of the four check", func() error {
		now := checkers()
		if len(now) == 0 {
			return errors.New("nobody does")
		}
		fleet[now[0]].with(func() { about = held(fleet[now[0]], bad) })
		names = elect.Checkers(about, slices.Sorted(maps.Keys(fleet)), elect.Count)
		slices.Sort(names)
		if !slices.Equal(now, names) {
			return fmt.Errorf("%v do, want %v", now, names)
		}
		return nil
	})
	all := func(what string, want corev3.HealthStatus) {
		t.Helper()
		for _, name := range slices.Sorted(maps.Keys(fleet)) {
			fleet[name].await(what, fleet[name].holdsHealth(bad.Addr(), want))
		}
	}
	all("does not know", corev3.HealthStatus_UNKNOWN)
	for _, name := range names {
		says(name, model.Healthy)
	}
	all("hears that it is healthy", corev3.HealthStatus_HEALTHY)
	says(names[0], model.Unhealthy)
	sum, most := time.Duration(0), time.Duration(0)
	const rounds = 20
	for range rounds {
		began := time.Now()
		says(names[1], model.Unhealthy)
		for _, a := range fleet { // more often than all looks
			heard := func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				return a.holdsHealth(bad.Addr(), corev3.HealthStatus_UNHEALTHY)() == nil
			}
			for !heard() && time.Since(began) < patience {
				time.Sleep(100 * time.Microsecond)
			}
		}
		took := time.Since(began)
		sum, most = sum+took, max(most, took)
		all("hears that it is unhealthy", corev3.HealthStatus_UNHEALTHY)
		says(names[1], model.Healthy)
		all("hears that it is back", corev3.HealthStatus_HEALTHY)
	}
	t.Logf("from the report to the load assignment at four machines: %s on average, %s at most", sum/rounds, most)

	lost := names[2]
	leave[lost]()
	delete(fleet, lost)
	eventually(t, "the fourth takes the lost one's place", func() error {
		if now := checkers(); len(now) != 3 {
			return fmt.Errorf("%v check", now)
		}
		return nil
	})
}

// TestHealthOfFrontends holds that a frontend's backends follow the verdict, for the machine
// that balances it and by the checks of any.
func TestHealthOfFrontends(t *testing.T) {
	r := newRig(t)
	p := r.plane("one").awaitReady()
	edge, other := r.joined(p, "edge-1"), r.joined(p, "other-1")
	poolOf(r, "edge-1")
	r.create(balanced("app"), slice("app", "10.1.0.1", "10.1.0.2"), &v1alpha1.LoadBalancerPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"},
		Spec: v1alpha1.LoadBalancerPolicySpec{
			TargetRefs: []gatewayv1.LocalPolicyTargetReferenceWithSectionName{{
				LocalPolicyTargetReference: gatewayv1.LocalPolicyTargetReference{Kind: "Service", Name: "app"},
			}},
			HealthCheck: &v1alpha1.HealthCheck{Type: v1alpha1.CheckTCP},
		},
	})
	for _, a := range []*fakeAgent{edge, other} {
		a.connect(p.AgentAddress().String())
		a.await("is to check two backends", func() error {
			if n := len(a.held[agentv1.CheckType]); n != 2 {
				return fmt.Errorf("it checks %d", n)
			}
			return nil
		})
	}
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready, 10.1.0.2=100/100 ready")
	says := func(a *fakeAgent, ill string) {
		a.with(func() {
			a.results = nil
			for id := range a.held[agentv1.CheckType] {
				h := model.Healthy
				if ill != "" && strings.HasPrefix(id, ill+":") {
					h = model.Unhealthy
				}
				a.results = append(a.results, model.CheckResult{ID: id, Health: h, Message: "refused"})
			}
		})
	}
	says(edge, "")
	says(other, "10.1.0.2")
	says(edge, "10.1.0.2")
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready, 10.1.0.2=0/100 draining")
	says(edge, "")
	edge.awaitBackends(web4, "10.1.0.1=100/100 ready, 10.1.0.2=100/100 ready")
}
