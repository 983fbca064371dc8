package translate

import (
	"fmt"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/internal/snapshot"
)

// crowd is a world of n HTTPRoutes, each with a host and a Service of its own, on
// one Gateway.
func crowd(t *testing.T, n int) (*Translator, *snapshot.Snapshot) {
	s := snapshot.New()
	readYAML(t, s, []byte(`
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: fairlead}
spec: {controllerName: fairlead.dev/gateway}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: team}
spec: {gatewayClassName: fairlead, listeners: [{name: http, port: 80, protocol: HTTP}]}
`))
	for i := range n {
		readYAML(t, s, fmt.Appendf(nil, `
apiVersion: v1
kind: Service
metadata: {name: app-%[1]d, namespace: team}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: app-%[1]d, namespace: team, labels: {kubernetes.io/service-name: app-%[1]d}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}]
ports: [{port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app-%[1]d, namespace: team}
spec:
  parentRefs: [{name: edge}]
  hostnames: [app-%[1]d.example.com]
  rules: [{matches: [{path: {value: /}}], backendRefs: [{name: app-%[1]d, port: 80}]}]
`, i))
	}
	tr, _ := Full(Config{}, s)
	return tr, s
}

// TestCostFollowsTheChange holds that the same change takes the same work in a
// small world and in a large one. Work is counted in allocations, which do not
// depend on the machine.
func TestCostFollowsTheChange(t *testing.T) {
	type cost struct{ endpoint, route, status float64 }
	measure := func(n int) cost {
		tr, s := crowd(t, n)
		app := snapshot.Name{Namespace: "team", Name: "app-1"}
		apply := func(kind snapshot.Kind, sets, hosts, statuses int, next func() metav1.Object) float64 {
			return testing.AllocsPerRun(50, func() {
				if _, err := s.Set(next()); err != nil {
					t.Fatal(err)
				}
				c := tr.Apply(s, []snapshot.Key{{Kind: kind, Name: app}})
				if len(c.Sets) != sets || len(c.VirtualHosts) != hosts || len(c.Statuses) != statuses {
					t.Fatalf("a change of one %s changed %d sets, %d hosts, %d statuses", kind, len(c.Sets), len(c.VirtualHosts), len(c.Statuses))
				}
			})
		}
		return cost{
			endpoint: apply(snapshot.KindEndpointSlice, 1, 0, 0, func() metav1.Object {
				o := s.EndpointSlices[app].DeepCopy()
				o.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: ptr(o.Endpoints[0].Conditions.Ready != nil && !*o.Endpoints[0].Conditions.Ready)}
				return o
			}),
			route: apply(snapshot.KindHTTPRoute, 0, 1, 1, func() metav1.Object {
				o := s.HTTPRoutes[app].DeepCopy()
				o.Generation++
				o.Spec.Rules[0].Matches[0].Path.Value = ptr(fmt.Sprintf("/%d", o.Generation%10))
				return o
			}),
			// A status that the plane wrote comes back as a change.
			status: apply(snapshot.KindHTTPRoute, 0, 0, 0, func() metav1.Object {
				o := s.HTTPRoutes[app].DeepCopy()
				o.ResourceVersion += "1"
				return o
			}),
		}
	}
	small, large := measure(20), measure(2_000)
	for name, pair := range map[string][2]float64{
		"endpoint": {small.endpoint, large.endpoint}, "route": {small.route, large.route}, "status": {small.status, large.status},
	} {
		if pair[0] == 0 || pair[1] > pair[0]*1.5+10 {
			t.Errorf("one %s costs %.0f allocations among 20 routes and %.0f among 2,000", name, pair[0], pair[1])
		}
	}
}

func ptr[T any](v T) *T { return &v }
