package plane

import (
	"context"
	"fmt"
	"strings"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
)

func ptr[T any](v T) *T { return &v }

func labels() map[string]string { return map[string]string{"test": "yes"} }

func gatewayClass() *gatewayv1.GatewayClass {
	return &gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fairlead"},
		Spec:       gatewayv1.GatewayClassSpec{ControllerName: translate.ControllerName},
	}
}

func gateway() *gatewayv1.Gateway {
	return &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "edge"},
		Spec: gatewayv1.GatewaySpec{
			GatewayClassName: "fairlead",
			Listeners:        []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
		},
	}
}

func httpRoute(name, host, service string) *gatewayv1.HTTPRoute {
	return &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "edge"}}},
			Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname(host)},
			Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
				BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(service), Port: ptr(gatewayv1.PortNumber(80))},
			}}}}},
		},
	}
}

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels()},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

func slice(service string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: service + "-1", Labels: labels()},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr(""), Port: ptr(int32(8080)), Protocol: ptr(corev1.ProtocolTCP)}},
	}
	s.Labels[discoveryv1.LabelServiceName] = service
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true)}})
	}
	return s
}

// world applies a class, a Gateway, a Service with two backends and a route.
func (r *rig) world() {
	r.t.Helper()
	r.create(gatewayClass(), gateway(), service("app"), slice("app", "10.1.0.1", "10.1.0.2"), httpRoute("app", "app.example", "app"))
}

// joined makes a machine that has joined.
func (r *rig) joined(p *running, name string) *fakeAgent {
	r.t.Helper()
	a := newFakeAgent(r.t, name)
	if err := a.join(p.AgentAddress().String(), r.token(name, time.Hour)); err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *rig) token(machine string, ttl time.Duration) string {
	r.t.Helper()
	printed, err := CreateToken(context.Background(), r.client, TokenRequest{Machine: machine, TTL: ttl, Now: time.Now()})
	if err != nil {
		r.t.Fatal(err)
	}
	return printed
}

// shardOf names the route configuration of a host.
func shardOf(host string) string {
	return xds.RouteConfigurationName("http-80", xds.Shard("http-80", host))
}

// holdsHost checks that the agent has the routes of a host.
func (a *fakeAgent) holdsHost(host string) func() error {
	return func() error {
		rc := &routev3.RouteConfiguration{}
		if err := a.get(typeRoute, shardOf(host), rc); err != nil {
			return err
		}
		for _, v := range rc.GetVirtualHosts() {
			if v.GetName() == host {
				return nil
			}
		}
		return fmt.Errorf("%s has no %s", rc.GetName(), host)
	}
}

// holdsBackends checks how many backends the agent has of the only group.
func (a *fakeAgent) holdsBackends(n int) func() error {
	return func() error {
		if len(a.held[typeEndpoint]) != 1 {
			return fmt.Errorf("it has %d load assignments", len(a.held[typeEndpoint]))
		}
		for name := range a.held[typeEndpoint] {
			assignment := &endpointv3.ClusterLoadAssignment{}
			if err := a.get(typeEndpoint, name, assignment); err != nil {
				return err
			}
			got := 0
			for _, l := range assignment.GetEndpoints() {
				got += len(l.GetLbEndpoints())
			}
			if got != n {
				return fmt.Errorf("it has %d backends, want %d", got, n)
			}
		}
		return nil
	}
}

// routeIs checks RouteProgrammed of a route's first parent.
func routeIs(want metav1.ConditionStatus, reason, words string) func(*gatewayv1.HTTPRoute) error {
	return func(h *gatewayv1.HTTPRoute) error {
		if len(h.Status.Parents) == 0 {
			return fmt.Errorf("route %s has no parents", h.Name)
		}
		conditions := h.Status.Parents[0].Conditions
		if err := conditionIs(conditions, status.RouteProgrammed, want, reason); err != nil {
			return err
		}
		c := meta.FindStatusCondition(conditions, status.RouteProgrammed)
		if !strings.Contains(c.Message, words) {
			return fmt.Errorf("the message is %q, want %q in it", c.Message, words)
		}
		if c.ObservedGeneration != h.Generation {
			return fmt.Errorf("generation %d was observed, %d is", c.ObservedGeneration, h.Generation)
		}
		return nil
	}
}
