package translate

import (
	"fmt"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

// crowd is a world of n HTTPRoutes, each with a host and a Service of its own, on
// one Gateway.
func crowd(t *testing.T, n int) (*Translator, *snapshot.Snapshot) {
	s := snapshot.New()
	readYAML(t, s, []byte(ourClass+`
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
	tr := full(input.Config{}, s)
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
				setAll(t, s, next())
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

// entrance is a world of n root IngressRoutes that share a VIP and n Gateways with one
// each, out of one pool.
func entrance(t testing.TB, roots, gateways int) (*Translator, *snapshot.Snapshot) {
	s := snapshot.New()
	readYAML(t, s, []byte(ourClass+`
apiVersion: fairlead.dev/v1alpha1
kind: Machine
metadata: {name: a}
status: {addresses: [10.0.0.1]}
---
apiVersion: fairlead.dev/v1alpha1
kind: AddressPool
metadata: {name: edge}
spec: {addresses: [192.0.2.0/24, 198.51.96.0/20, "2001:db8::/64"]}
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: team}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: app, namespace: team, labels: {kubernetes.io/service-name: app}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2]}]
ports: [{port: 80}]
`))
	for i := range roots {
		o := &contourv1beta1.IngressRoute{}
		o.Name, o.Namespace = fmt.Sprintf("app-%d", i), "team"
		o.Spec.VirtualHost = &contourv1beta1.VirtualHost{Fqdn: fmt.Sprintf("app-%d.example.com", i)}
		o.Spec.Routes = []contourv1beta1.Route{{Match: "/", Services: []contourv1beta1.Service{{Name: "app", Port: 80}}}}
		setAll(t, s, o)
	}
	for i := range gateways {
		o := &gatewayv1.Gateway{}
		o.Name, o.Namespace = fmt.Sprintf("edge-%d", i), "team"
		o.Spec.GatewayClassName = "fairlead"
		o.Spec.Listeners = []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}}
		setAll(t, s, o)
	}
	return Converge(input.Config{}, s), s
}

// TestAssignmentCost holds that neither endpoints nor routes nor roots that share a VIP
// ask for the assignments to be made anew, however many there are.
func TestAssignmentCost(t *testing.T) {
	type cost struct{ endpoint, route, come float64 }
	measure := func(roots, gateways int) cost {
		tr, s := entrance(t, roots, gateways)
		if want := 2 + 2*gateways; len(tr.result().Assignments) != want || len(tr.result().VIPs) != want {
			t.Fatalf("%d assignments, %d VIPs, want %d", len(tr.result().Assignments), len(tr.result().VIPs), want)
		}
		app := snapshot.Name{Namespace: "team", Name: "app"}
		apply := func(k snapshot.Key, o metav1.Object, changes func(Changes) bool) {
			if o == nil {
				s.Delete(k)
			} else if _, err := s.Set(o); err != nil {
				t.Fatal(err)
			}
			if c := tr.Apply(s, []snapshot.Key{k}); !changes(c) {
				t.Fatalf("%s changed %d sets, %d hosts, %d VIPs, %d statuses", k, len(c.Sets), len(c.VirtualHosts), len(c.VIPs), len(c.Statuses))
			}
		}
		root := snapshot.Name{Namespace: "team", Name: "app-1"}
		return cost{
			endpoint: testing.AllocsPerRun(50, func() {
				o := s.EndpointSlices[app].DeepCopy()
				o.Endpoints[0].Conditions.Ready = ptr(o.Endpoints[0].Conditions.Ready != nil && !*o.Endpoints[0].Conditions.Ready)
				apply(snapshot.Key{Kind: snapshot.KindEndpointSlice, Name: app}, o, func(c Changes) bool { return len(c.Sets) == 1 && len(c.Statuses) == 0 })
			}),
			route: testing.AllocsPerRun(50, func() {
				o := s.IngressRoutes[root].DeepCopy()
				o.Generation++
				o.Spec.Routes[0].PrefixRewrite = fmt.Sprintf("/%d", o.Generation%10)
				apply(snapshot.Key{Kind: snapshot.KindIngressRoute, Name: root}, o, func(c Changes) bool { return len(c.VirtualHosts) == 1 && len(c.Statuses) == 1 })
			}),
			// A root that shares comes and goes: the others are not asked.
			come: testing.AllocsPerRun(50, func() {
				k := snapshot.Key{Kind: snapshot.KindIngressRoute, Name: snapshot.Name{Namespace: "team", Name: "new"}}
				o := s.IngressRoutes[root].DeepCopy()
				o.Name, o.Spec.VirtualHost.Fqdn = "new", "new.example.com"
				one := func(c Changes) bool { return len(c.VirtualHosts) == 1 && len(c.Statuses) == 1 && len(c.VIPs) == 0 }
				apply(k, o, one)
				apply(k, nil, one)
			}),
		}
	}
	small, large := measure(20, 5), measure(5_000, 500)
	for name, pair := range map[string][2]float64{
		"endpoint": {small.endpoint, large.endpoint}, "route": {small.route, large.route}, "new root": {small.come, large.come},
	} {
		if pair[0] == 0 || pair[1] > pair[0]*1.5+10 {
			t.Errorf("one %s costs %.0f allocations among 20 roots and %.0f among 5,000", name, pair[0], pair[1])
		}
	}
}

// BenchmarkGateway is the cost of one more Gateway: assignments are made anew, twice,
// since the record comes back as a change.
func BenchmarkGateway(b *testing.B) {
	for _, n := range []int{10, 1_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tr, s := entrance(b, 20_000, n)
			k := snapshot.Key{Kind: snapshot.KindGateway, Name: snapshot.Name{Namespace: "team", Name: "new"}}
			o := s.Gateways[snapshot.Name{Namespace: "team", Name: "edge-1"}].DeepCopy()
			o.Name = "new"
			for b.Loop() {
				if _, err := s.Set(o); err != nil {
					b.Fatal(err)
				}
				tr.Apply(s, []snapshot.Key{k})
				tr.Apply(s, tr.record(s))
				s.Delete(k)
				tr.Apply(s, []snapshot.Key{k})
				tr.Apply(s, tr.record(s))
			}
		})
	}
}

// BenchmarkCordon is the cost of cordoning one of n machines that may own 1,000 VIPs: each
// of them has a new order of candidates, at each machine.
func BenchmarkCordon(b *testing.B) {
	for _, n := range []int{10, 200} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tr, s := entrance(b, 0, 500)
			edge := snapshot.Name{Name: "edge"}
			pool := s.AddressPools[edge].DeepCopy()
			pool.Spec.Announce = v1alpha1.AnnounceL2
			keys := []snapshot.Key{{Kind: snapshot.KindAddressPool, Name: edge}}
			s.AddressPools[edge] = pool
			for i := range n {
				m := snapshot.Name{Name: fmt.Sprintf("machine-%d", i)}
				o := &v1alpha1.Machine{}
				o.Name = m.Name
				s.Machines[m] = o
				keys = append(keys, snapshot.Key{Kind: snapshot.KindMachine, Name: m})
			}
			tr.Apply(s, keys)
			m := snapshot.Name{Name: "machine-1"}
			for b.Loop() {
				o := s.Machines[m].DeepCopy()
				o.Spec.Cordoned = !o.Spec.Cordoned
				s.Machines[m] = o
				if c := tr.Apply(s, []snapshot.Key{{Kind: snapshot.KindMachine, Name: m}}); len(c.VIPs) < 1000 {
					b.Fatalf("%d VIPs changed", len(c.VIPs))
				}
			}
		})
	}
}

// BenchmarkSharedRoot is the cost of a change of one of 20,000 roots that share a VIP.
func BenchmarkSharedRoot(b *testing.B) {
	tr, s := entrance(b, 20_000, 10)
	n := snapshot.Name{Namespace: "team", Name: "app-1"}
	for b.Loop() {
		o := s.IngressRoutes[n].DeepCopy()
		o.Generation++
		o.Spec.Routes[0].PrefixRewrite = fmt.Sprintf("/%d", o.Generation%10)
		if _, err := s.Set(o); err != nil {
			b.Fatal(err)
		}
		tr.Apply(s, []snapshot.Key{{Kind: snapshot.KindIngressRoute, Name: n}})
	}
}

func ptr[T any](v T) *T { return &v }

// One change of a route costs the same whether or not the Gateways that it names carry as many
// annotations of our domain as the API takes (256 KiB each).
func TestManyUnknownAnnotationsCostNothing(t *testing.T) {
	cost := func(annotations int) float64 {
		tr, s := crowd(t, 1)
		k := snapshot.Key{Kind: snapshot.KindHTTPRoute, Name: snapshot.Name{Namespace: "team", Name: "app-0"}}
		plain := s.HTTPRoutes[k.Name].DeepCopy()
		all := plain.DeepCopy()
		for i := range 31 {
			g := s.Gateways[snapshot.Name{Namespace: "team", Name: "edge"}].DeepCopy()
			g.Name, g.Annotations = fmt.Sprintf("junk-%d", i), map[string]string{}
			for n := range annotations {
				g.Annotations[fmt.Sprintf("fairlead.dev/%x", n)] = ""
			}
			setAll(t, s, g)
			tr.Apply(s, []snapshot.Key{{Kind: snapshot.KindGateway, Name: snapshot.Name{Namespace: "team", Name: g.Name}}})
			all.Spec.ParentRefs = append(all.Spec.ParentRefs, gatewayv1.ParentReference{Name: gatewayv1.ObjectName(g.Name)})
		}
		flip := false
		return testing.AllocsPerRun(3, func() {
			o := plain
			if flip = !flip; flip {
				o = all
			}
			setAll(t, s, o.DeepCopy())
			tr.Apply(s, []snapshot.Key{k})
		})
	}
	if few, many := cost(10), cost(3000); many > 2*few+1000 {
		t.Errorf("one change of a route costs %.0f allocations, and %.0f where its Gateways have many annotations", few, many)
	}
}
