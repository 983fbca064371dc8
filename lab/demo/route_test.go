package demo

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/lab/rig"
)

// Every weight that the demo expects is the one that its example asks for.
func TestRoutesAreThoseOfTheExamples(t *testing.T) {
	all, err := manifests()
	if err != nil {
		t.Fatal(err)
	}
	ingress, http := map[string]contourv1beta1.IngressRoute{}, map[string]gatewayv1.HTTPRoute{}
	namespaces := map[string]bool{"": true, "default": true}
	for doc := range strings.SplitSeq(all, "\n---\n") {
		var meta struct {
			Kind     string `json:"kind"`
			Metadata struct{ Name, Namespace string }
		}
		if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
			t.Fatal(err)
		}
		if meta.Kind == "Namespace" {
			namespaces[meta.Metadata.Name] = true
		}
		if !namespaces[meta.Metadata.Namespace] {
			t.Errorf("%s %s comes before its namespace %s", meta.Kind, meta.Metadata.Name, meta.Metadata.Namespace)
		}
		var i contourv1beta1.IngressRoute
		var h gatewayv1.HTTPRoute
		switch meta.Kind {
		case "IngressRoute":
			if err := yaml.UnmarshalStrict([]byte(doc), &i); err != nil {
				t.Errorf("%v:\n%s", err, doc)
			}
			ingress[i.Name] = i
		case "HTTPRoute":
			if err := yaml.UnmarshalStrict([]byte(doc), &h); err != nil {
				t.Errorf("%v:\n%s", err, doc)
			}
			http[h.Name] = h
		}
	}
	if len(namespaces) != 4 {
		t.Errorf("the namespaces are %v", namespaces)
	}
	for _, r := range demoRoutes() {
		got := map[string]float64{}
		if r.kind == "IngressRoute" {
			for _, s := range ingress[r.name].Spec.Routes[0].Services {
				got[r.services[s.Name]] = float64(*s.Weight)
			}
		} else {
			for _, b := range http[r.name].Spec.Rules[0].BackendRefs {
				got[r.services[string(b.Name)]] = float64(*b.Weight)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(r.weights) {
			t.Errorf("%s %s: the example's weights are %v, the demo's %v", r.kind, r.name, got, r.weights)
		}
	}
	if hc := ingress["team01-app"].Spec.Routes[0].HealthCheck; hc == nil || hc.Path != "/status.html" || hc.IntervalSeconds != 60 {
		t.Errorf("health check beside the services is %+v", hc)
	}
}

func TestReweighted(t *testing.T) {
	for _, r := range demoRoutes() {
		doc, err := r.reweighted(map[string]float64{"os1": 20, "k8s1": 80})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(doc, "name: "+r.name+"\n") || strings.Count(doc, "weight: 20\n") != 1 || strings.Count(doc, "weight: 80\n") != 1 || strings.Count(doc, "weight:") != 2 {
			t.Errorf("%s with new weights:\n%s", r.name, doc)
		}
	}
	if _, err := (&route{kind: "IngressRoute", name: "nobody", file: "news/ingressroute.yaml"}).reweighted(nil); err == nil {
		t.Error("a route that is in no example was reweighted")
	}
}

func TestEndpointsAreTheLabsBackends(t *testing.T) {
	st := &stage{backends: []rig.Backend{
		{Name: "k8s1-a", Cluster: "k8s1", Address: netip.MustParseAddrPort("[fd77::4:1]:8080")},
		{Name: "k8s1-b", Cluster: "k8s1", Address: netip.MustParseAddrPort("[fd77::4:2]:8080")},
		{Name: "os1-a", Cluster: "os1", Address: netip.MustParseAddrPort("10.77.5.1:80")},
	}}
	all, err := st.endpoints(demoRoutes())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for doc := range strings.SplitSeq(all, "---\n") {
		var s discoveryv1.EndpointSlice
		if err := yaml.UnmarshalStrict([]byte(doc), &s); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(s.Namespace, " ", s.Labels[discoveryv1.LabelServiceName], " ", s.AddressType, " ", *s.Ports[0].Name, " ", *s.Ports[0].Port, " ", len(s.Endpoints)))
	}
	want := []string{
		"news-team " + newsK8s1 + " IPv6 http 8080 2",
		"news-team " + newsOS1 + " IPv4 port-80 80 1",
		"team01 " + team01K8s1 + " IPv6 http 8080 2",
		"team01 " + team01OS1 + " IPv4 port-80 80 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("slices are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The estimate finds the moment of a change to within a few requests.
func TestChangePoint(t *testing.T) {
	dice := rand.New(rand.NewPCG(3, 4))
	t0 := time.Unix(1000, 0)
	for _, c := range []struct{ before, after float64 }{{0.6, 0.2}, {0.2, 0.5}} {
		for _, change := range []int{0, 700, 1900} {
			var samples []sample
			for i := range 2000 {
				p := c.before
				if i >= change {
					p = c.after
				}
				s := sample{start: t0.Add(time.Duration(i) * time.Millisecond), cluster: "k8s1", failed: i%50 == 7}
				if dice.Float64() < p {
					s.cluster = "os1"
				}
				samples = append(samples, s)
			}
			dice.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
			at := changePoint(samples, "os1", c.before, c.after)
			if off := at.Sub(t0).Milliseconds() - int64(change); off < -40 || off > 40 {
				t.Errorf("from %v to %v at %d ms: estimated %d ms off", c.before, c.after, change, off)
			}
		}
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 10000: "10,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) is %s", n, got)
		}
	}
}
