package translate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// refusalGround is one Service in use, with three endpoints.
const refusalGround = `
apiVersion: v1
kind: Service
metadata: {name: app, namespace: team}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: app, namespace: team, labels: {kubernetes.io/service-name: app}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.5]}, {addresses: [10.1.0.5]}, {addresses: [192.0.2.9]}]
ports: [{port: 6443}]
---
apiVersion: contour.heptio.com/v1beta1
kind: IngressRoute
metadata: {name: root, namespace: team}
spec: {virtualhost: {fqdn: www.example.com}, routes: [{match: /, services: [{name: app, port: 80}]}]}
`

func refusingPool(addresses string) string {
	return `
apiVersion: fairlead.dev/v1alpha1
kind: AddressPool
metadata: {name: edge}
spec: {assign: OnRequest, addresses: [` + addresses + `]}
`
}

func allowing(text string) string {
	return `
apiVersion: v1
kind: Namespace
metadata: {name: team, annotations: {fairlead.dev/allow-endpoints: "` + text + `"}}
`
}

func sliceIn(namespace, name, service, address string) string {
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s, namespace: %s, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
endpoints: [{addresses: [%s]}]
ports: [{port: 6443}]
`, name, namespace, service, address)
}

// TestRefusalsFollow holds that refusals follow pools, the API and Namespaces as these come, change and go,
// and that nobody but the API itself says where the API is.
func TestRefusalsFollow(t *testing.T) {
	const api, app, pooled = "10.0.0.5:6443", "10.1.0.5:6443", "192.0.2.9:6443"
	pool := snapshot.Key{Kind: snapshot.KindAddressPool, Name: snapshot.Name{Name: "edge"}}
	team := snapshot.Key{Kind: snapshot.KindNamespace, Name: snapshot.Name{Name: "team"}}
	slice := func(namespace, name string) snapshot.Key {
		return snapshot.Key{Kind: snapshot.KindEndpointSlice, Name: snapshot.Name{Namespace: namespace, Name: name}}
	}
	s := snapshot.New()
	readYAML(t, s, []byte(refusalGround))
	tr := full(input.Config{}, s)
	for i, step := range []struct {
		key  snapshot.Key
		yaml string // empty: it is deleted
		want []string
		says []string
	}{
		{slice("team", "app"), "", nil, nil},
		{slice("team", "app"), refusalGround, []string{api, app, pooled}, nil},
		{pool, refusingPool("192.0.2.0/28"), []string{api, app}, []string{"1 endpoint address is refused: 192.0.2.9 is in AddressPool edge"}},
		{pool, refusingPool("192.0.2.0/29"), []string{api, app, pooled}, nil},
		{pool, refusingPool("192.0.2.8-192.0.2.9"), []string{api, app}, []string{"AddressPool edge"}},
		{slice("default", "forged"), sliceIn("default", "forged", "kubernetes", "10.1.0.5"), []string{api, app}, []string{"1 endpoint address"}},
		{slice("default", "kubernetes"), sliceIn("default", "kubernetes", "other", "10.0.0.5"), []string{api, app}, []string{"1 endpoint address"}},
		{slice("default", "kubernetes"), sliceIn("default", "kubernetes", "kubernetes", "10.0.0.5"), []string{app}, []string{"2 endpoint addresses are refused: the first, 10.0.0.5:6443, is the Kubernetes API"}},
		{team, allowing("192.0.2.9"), []string{app, pooled}, []string{"1 endpoint address is refused: 10.0.0.5:6443", "of Namespace team can allow it"}},
		{team, allowing("192.0.2.0/24, 10.0.0.0/24"), []string{api, app, pooled}, nil},
		{team, allowing("192.0.2.9, x"), []string{app}, []string{"2 endpoint addresses are refused", `of Namespace team allows nothing: "x" is neither`}},
		{slice("team", "app"), sliceIn("team", "app", "other", "192.0.2.9"), nil, nil},
		{slice("team", "app"), sliceIn("team", "app", "app", "192.0.2.9"), nil, []string{"192.0.2.9"}},
		{slice("team", "app"), refusalGround, []string{app}, []string{"2 endpoint addresses"}},
		{slice("default", "kubernetes"), "", []string{api, app}, []string{"1 endpoint address"}},
		{team, "", []string{api, app}, []string{"can allow it"}},
		{pool, "", []string{api, app, pooled}, nil},
	} {
		if step.yaml == "" {
			s.Delete(step.key)
		} else {
			readYAML(t, s, []byte(step.yaml))
		}
		tr.Apply(s, []snapshot.Key{step.key})
		set := tr.result().Sets["team/app/80"]
		var got []string
		for _, b := range set.Backends {
			got = append(got, b.Address.String())
		}
		if !slices.Equal(got, step.want) || (set.Refusal == "") != (len(step.says) == 0) {
			t.Errorf("step %d: backends %q, want %q; refusal %q", i, got, step.want, set.Refusal)
		}
		root := tr.result().Statuses[input.Object(snapshot.KindIngressRoute, snapshot.Name{Namespace: "team", Name: "root"})].IngressRoute
		for _, says := range step.says {
			if !strings.Contains(set.Refusal, says) || !strings.Contains(root.Description, says) {
				t.Errorf("step %d: refusal %q, and the route says %q, want %q", i, set.Refusal, root.Description, says)
			}
		}
		if fresh := full(input.Config{}, s); text(fresh) != text(tr) {
			t.Fatalf("step %d: the incremental result is not the full one; %s", i, lineDiff(text(fresh), text(tr)))
		}
	}
}

// TestOwnEndpointsAreRefused holds that no edge leads to where agents call the plane, which would prove the
// edge's address to be another machine's, nor to the plane's own API; where these are may change.
func TestOwnEndpointsAreRefused(t *testing.T) {
	const first, second, third = "10.0.0.5:6443", "10.1.0.5:6443", "192.0.2.9:6443"
	at := netip.MustParseAddrPort
	s := snapshot.New()
	readYAML(t, s, []byte(refusalGround))
	tr := full(input.Config{}, s)
	for i, step := range []struct {
		own  snapshot.Own
		want []string
		says string
	}{
		{snapshot.Own{Agents: []netip.AddrPort{at(first), at("10.1.0.5:9000")}}, []string{second, third}, "10.0.0.5:6443 is where agents call the plane"},
		{snapshot.Own{Agents: []netip.AddrPort{at(third), at(second)}}, []string{first}, "the first, 10.1.0.5:6443, is where agents call the plane"},
		{snapshot.Own{API: []netip.AddrPort{at(third), at(third)}}, []string{first, second}, "192.0.2.9:6443 is the Kubernetes API"},
		{snapshot.Own{API: []netip.AddrPort{at(third)}, Agents: []netip.AddrPort{at(first)}}, []string{second}, "2 endpoint addresses are refused: the first, 10.0.0.5:6443, is where agents call"},
		{snapshot.Own{}, []string{first, second, third}, ""},
	} {
		s.Own = step.own
		tr.Apply(s, []snapshot.Key{{Kind: snapshot.KindOwn}})
		set := tr.result().Sets["team/app/80"]
		var got []string
		for _, b := range set.Backends {
			got = append(got, b.Address.String())
		}
		if !slices.Equal(got, step.want) || !strings.Contains(set.Refusal, step.says) || (step.says == "") != (set.Refusal == "") {
			t.Errorf("step %d: backends %q, want %q; refusal %q, want %q", i, got, step.want, set.Refusal, step.says)
		}
		if fresh := full(input.Config{}, s); text(fresh) != text(tr) {
			t.Fatalf("step %d: the incremental result is not the full one; %s", i, lineDiff(text(fresh), text(tr)))
		}
	}
}

// TestRefusalsConcernFew holds that a pool with other addresses makes those sets anew that have some of them.
func TestRefusalsConcernFew(t *testing.T) {
	tr, s := crowd(t, 50)
	pool := snapshot.Key{Kind: snapshot.KindAddressPool, Name: snapshot.Name{Name: "edge"}}
	for _, c := range []struct {
		addresses string
		sets      int
	}{{"192.0.2.0/28", 0}, {"192.0.2.0/28, 198.51.100.7", 0}, {"192.0.2.0/28, 10.0.0.2", 50}, {"10.0.0.2", 0}, {"10.0.0.0/29", 50}} {
		readYAML(t, s, []byte(refusingPool(c.addresses)))
		if changes := tr.Apply(s, []snapshot.Key{pool}); len(changes.Sets) != c.sets {
			t.Errorf("pool %s: %d sets changed, want %d", c.addresses, len(changes.Sets), c.sets)
		}
	}
}

// Worlds refuse for every reason, so that the properties of worlds mean something here.
func TestWorldsRefuse(t *testing.T) {
	seen := map[string]int{}
	reasons := []string{"is in AddressPool", "is the Kubernetes API", "is in a range that operators refuse", "allows nothing", "can allow"}
	for seed := range uint64(30) {
		w := newBalanceWorld(t, seed, "")
		for range 30 {
			w.change(4)
			for _, f := range w.tr.backend.Services.All() {
				for _, reason := range reasons {
					if strings.Contains(f.Refusal, reason) {
						seen[reason]++
					}
				}
			}
		}
	}
	haveAll(t, seen, reasons...)
}

// BenchmarkRefusals is the cost of a pool whose addresses change, among 100,000 endpoints that it does not
// concern: each is looked at.
func BenchmarkRefusals(b *testing.B) {
	s := snapshot.New()
	for i := range 10_000 {
		o := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: ptr(int32(8080))}}}
		o.Namespace, o.Name, o.Labels = "team", fmt.Sprintf("app-%d", i), map[string]string{field.LabelServiceName: fmt.Sprintf("app-%d", i)}
		for j := range 10 {
			o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i/256, i%256, j+1)}})
		}
		if _, err := s.Set(o); err != nil {
			b.Fatal(err)
		}
	}
	tr := full(input.Config{}, s)
	pools := []string{refusingPool("192.0.2.0/28"), refusingPool("192.0.2.0/29")}
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		readYAML(b, s, []byte(pools[i%2]))
		b.StartTimer()
		tr.Apply(s, []snapshot.Key{{Kind: snapshot.KindAddressPool, Name: snapshot.Name{Name: "edge"}}})
	}
}
