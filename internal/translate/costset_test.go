package translate

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

// manySets is a world of one Gateway and n ListenerSets of eight listeners each, with a
// route on every listener.
func manySets(t testing.TB, n int) (*Translator, *snapshot.Snapshot) {
	t.Helper()
	s := snapshot.New()
	readYAML(t, s, []byte(ourClass+`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: team}
spec:
  gatewayClassName: fairlead
  allowedListeners: {namespaces: {from: All}}
  listeners: [{name: http, port: 80, protocol: HTTP}, {name: wild, port: 80, protocol: HTTP, hostname: "*.wild.example.com"}]
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: team}
spec: {ports: [{port: 80}]}
`))
	const listeners = 8
	for i := range n {
		set := &gatewayv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("set-%d", i)}}
		set.Spec.ParentRef.Name = "edge"
		for j := range listeners {
			host := gatewayv1.Hostname(fmt.Sprintf("app-%d-%d.example.com", i, j))
			set.Spec.Listeners = append(set.Spec.Listeners, gatewayv1.ListenerEntry{Name: gatewayv1.SectionName(fmt.Sprintf("l%d", j)), Port: 80, Protocol: gatewayv1.HTTPProtocolType, Hostname: &host})
			setAll(t, s, routeOnSet(i, j))
		}
		setAll(t, s, set)
	}
	tr := full(input.Config{}, s)
	return tr, s
}

func routeOnSet(i, j int) *gatewayv1.HTTPRoute {
	o := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("app-%d-%d", i, j)}}
	section := gatewayv1.SectionName(fmt.Sprintf("l%d", j))
	o.Spec.ParentRefs = []gatewayv1.ParentReference{{Kind: ptr(gatewayv1.Kind("ListenerSet")), Name: gatewayv1.ObjectName(fmt.Sprintf("set-%d", i)), SectionName: &section}}
	ref := gatewayv1.HTTPBackendRef{}
	ref.Name, ref.Port = "app", ptr(gatewayv1.PortNumber(80))
	o.Spec.Rules = []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{ref}}}
	return o
}

// TestCostOfListenerSets holds that a route that comes or goes at one of many ListenerSets
// takes the same work as at one of few, and that a set that changes leaves the routes of
// others alone.
func TestCostOfListenerSets(t *testing.T) {
	type cost struct{ route, wild float64 }
	measure := func(n int) cost {
		tr, s := manySets(t, n)
		for i := range n {
			set := tr.statusOf(model.Object{Kind: string(snapshot.KindListenerSet), Namespace: "team", Name: fmt.Sprintf("set-%d", i)}).ListenerSet
			for _, l := range set.Listeners {
				if len(set.Listeners) != 8 || l.AttachedRoutes != 1 {
					t.Fatalf("set %d has %d listeners, and %d routes attached to %s", i, len(set.Listeners), l.AttachedRoutes, l.Name)
				}
			}
		}
		toggle := func(o *gatewayv1.HTTPRoute) float64 {
			k := snapshot.Key{Kind: snapshot.KindHTTPRoute, Name: snapshot.Name{Namespace: o.Namespace, Name: o.Name}}
			on := s.HTTPRoutes[k.Name] != nil
			return testing.AllocsPerRun(20, func() {
				if on = !on; on {
					setAll(t, s, o)
				} else {
					s.Delete(k)
				}
				if c := tr.Apply(s, []snapshot.Key{k}); len(c.VirtualHosts) != 1 || len(c.Statuses) != 2 {
					t.Fatalf("a route that comes or goes changed %d hosts and %d statuses", len(c.VirtualHosts), len(c.Statuses))
				}
			})
		}
		wild := routeOnSet(0, 0)
		wild.Name = "wild"
		section := gatewayv1.SectionName("wild")
		wild.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "edge", SectionName: &section}}
		wild.Spec.Hostnames = []gatewayv1.Hostname{"a.b.wild.example.com"}
		result := cost{route: toggle(routeOnSet(0, 0)), wild: toggle(wild)}

		set := s.ListenerSets[snapshot.Name{Namespace: "team", Name: "set-1"}].DeepCopy()
		set.Spec.Listeners[0].Hostname = ptr(gatewayv1.Hostname("new.example.com"))
		setAll(t, s, set)
		c := tr.Apply(s, []snapshot.Key{{Kind: snapshot.KindListenerSet, Name: snapshot.Name{Namespace: "team", Name: "set-1"}}})
		moved := map[string]bool{}
		for k := range c.VirtualHosts {
			moved[k.Host] = true
		}
		if len(moved) != 2 || !moved["new.example.com"] || !moved["app-1-0.example.com"] || len(c.Statuses) != 1 {
			t.Errorf("a hostname that changed at one set changed the hosts %v and %d statuses", moved, len(c.Statuses))
		}
		return result
	}
	small, large := measure(2), measure(200)
	if large.route > small.route*1.5+10 || large.wild > small.wild*1.5+10 {
		t.Errorf("a route costs %.0f allocations among 2 sets and %.0f among 200; below a wildcard %.0f and %.0f", small.route, large.route, small.wild, large.wild)
	}
	if small.route == 0 {
		t.Error("nothing was measured")
	}
}
