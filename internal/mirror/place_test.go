package mirror

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

func limits(services, endpoints int32) func(*v1alpha1.Upstream) {
	return func(u *v1alpha1.Upstream) {
		u.Spec.Limits = v1alpha1.UpstreamLimits{Services: services, Endpoints: endpoints}
	}
}

func TestLimits(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up", limits(3, 5), threshold(100))
	w.list("up", four()...)
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app0: 10.0.0.1 10.0.0.2", "team/up-app1: 10.0.1.1 10.0.1.2", "team/up-app2: 10.0.2.1")
	expect(t, "refusals", w.refusals("up"),
		"Limit Service team/app2: 1 endpoint is beyond spec.limits.endpoints",
		"Limit Service team/app3: the upstream has more services than spec.limits.services")
	if s, _ := w.m.State("up", 1); !s.OverLimit || s.Refused != 2 || len(s.Refusals) != 1 {
		t.Errorf("its state is %+v", s)
	}
	expect(t, "counts", w.counts("up"), "seen 4/8 replicated 3/5 held 0/0")

	// There is room again.
	w.m.Remove("up", w.now, model.UpstreamKey{Scope: "team", Name: "app0"})
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app1: 10.0.1.1 10.0.1.2", "team/up-app2: 10.0.2.1 10.0.2.2", "team/up-app3: 10.0.3.1")
	w.m.Put("up", w.now, app("team/app1", "10.0.1.1"))
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app1: 10.0.1.1", "team/up-app2: 10.0.2.1 10.0.2.2", "team/up-app3: 10.0.3.1 10.0.3.2")
	if s, _ := w.m.State("up", 1); s.OverLimit || s.Refused != 0 {
		t.Errorf("its state is %+v", s)
	}

	// Lower limits are for the first ones, too.
	w.set("up", limits(2, 2))
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app1: 10.0.1.1", "team/up-app2: 10.0.2.1")
	w.set("up", limits(1, 2))
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app1: 10.0.1.1")
	w.set("up")
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app1: 10.0.1.1", "team/up-app2: 10.0.2.1 10.0.2.2", "team/up-app3: 10.0.3.1 10.0.3.2")
	expect(t, "stored", w.stored(), w.inEffect())
}

// A service without room for its endpoints is there all the same, and a route to it answers 503, not 500.
func TestNoRoomForEndpoints(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up", limits(1, 2), threshold(100))
	w.list("up", four()[:2]...)
	w.m.Put("up", w.now, bare("team/app0"))
	w.set("up", limits(2, 1))
	w.m.Put("up", w.now, four()[0])
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app0:", "team/up-app1: 10.0.1.1")
}

func TestAddresses(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up", func(u *v1alpha1.Upstream) {
		u.Spec.Addresses = []string{"10.0.0.0/8", "fd00::/8", "fe80::/10", "127.0.0.0/8", "0.0.0.0/0"}[:4]
	})
	w.list("up", app("team/app", "10.0.0.1", "192.0.2.1", "fd00::1", "2001:db8::1", "::ffff:10.0.0.2", "127.0.0.1", "fe80::1", "::1", "0.0.0.0", "224.0.0.1"),
		app("team/ok", "10.0.0.3"), app("team/out", "192.0.2.7"))
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app: 10.0.0.1 10.0.0.2 fd00::1", "team/up-ok: 10.0.0.3", "team/up-out:")
	expect(t, "refusals", w.refusals("up"),
		"Address Service team/app: 7 endpoints are outside of spec.addresses, or of no machine, the first of them 192.0.2.1",
		"Address Service team/out: 1 endpoint is outside of spec.addresses, or of no machine, the first of them 192.0.2.7")
	for k, o := range w.effect {
		if s, is := o.(*discoveryv1.EndpointSlice); is && (s.AddressType == discoveryv1.AddressTypeIPv4) != strings.Contains(s.Endpoints[0].Addresses[0], ".") {
			t.Errorf("%v has %v", k, s.Endpoints)
		}
	}
	w.set("up")
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app: 10.0.0.1 10.0.0.2 192.0.2.1 2001:db8::1 fd00::1", "team/up-ok: 10.0.0.3", "team/up-out: 192.0.2.7")
	w.list("up", &model.UpstreamService{
		Key: model.UpstreamKey{Scope: "team", Name: "app"}, Object: "load balancer 1", Ports: app("/").Ports,
		Slices: []model.UpstreamSlice{{Endpoints: make([]model.UpstreamEndpoint, 2)}}, // without an address
	})
	w.settle()
}

func TestParts(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up", threshold(100))
	v6 := make([]string, 501)
	for i, a := range addresses("10.1", 501) {
		v6[i] = "64:ff9b::" + a
	}
	w.list("up", app("team/app", append(addresses("10.0", 1200), v6...)...))
	w.settle()
	sizes := map[discoveryv1.AddressType]map[int]int{discoveryv1.AddressTypeIPv4: {}, discoveryv1.AddressTypeIPv6: {}}
	for _, o := range w.api {
		if s, is := o.(*discoveryv1.EndpointSlice); is {
			sizes[s.AddressType][len(s.Endpoints)]++
		}
	}
	if have := sizes[discoveryv1.AddressTypeIPv4]; have[500] != 2 || have[200] != 1 || len(have) != 2 {
		t.Errorf("the parts of IPv4 are %v", have)
	}
	if have := sizes[discoveryv1.AddressTypeIPv6]; have[500] != 1 || have[1] != 1 || len(have) != 2 {
		t.Errorf("the parts of IPv6 are %v", have)
	}
	// The parts are one slice again after a start.
	w.restart(anUpstream("up"))
	w.list("up", app("team/app", append(addresses("10.0", 1200), v6...)...))
	if changed := w.settle(); len(changed) > 0 {
		t.Errorf("after a start it wrote %v", changed)
	}
	// Parts that nothing is in go.
	w.list("up", app("team/app", append(addresses("10.0", 1000), v6[:100]...)...))
	if changed := w.settle(); len(changed) != 3 {
		t.Errorf("it wrote %v", changed)
	}
}

func TestPortsAndProtocols(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up")
	ports := []model.UpstreamPort{
		{Name: "dns", Port: 53, Protocol: "UDP"},
		{Name: "sig", Port: 3868, Protocol: "SCTP"},
		{Name: "web", Port: 443, Protocol: "TCP", AppProtocol: "kubernetes.io/h2c"},
	}
	s := app("team/app", "10.0.0.1")
	s.Ports, s.Slices[0].Ports = ports, ports
	refused := app("team/none")
	refused.Ports, refused.Refused = nil, []model.UpstreamRefusal{
		{Object: "listener 1", Reason: model.RefusedProtocol, Message: "PROXYV2 is no protocol"}, {Object: "listener 2", Reason: model.RefusedPort, Message: "port 0"},
	}
	noPort := app("team/noport")
	noPort.Ports = nil
	w.list("up", s, refused, noPort)
	w.settle()
	svc := w.api[snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Namespace: "team", Name: "up-app"}}].(*corev1.Service)
	var have []string
	for _, p := range svc.Spec.Ports {
		text := p.Name + " " + string(p.Protocol) + " " + p.TargetPort.String()
		if p.AppProtocol != nil {
			text += " " + *p.AppProtocol
		}
		have = append(have, text)
	}
	expect(t, "ports", strings.Join(have, "\n"), "dns UDP 53", "sig SCTP 3868", "web TCP 443 kubernetes.io/h2c")
	if svc.Spec.ClusterIP != corev1.ClusterIPNone || svc.Spec.Selector != nil || svc.Labels[v1alpha1.LabelUpstream] != "up" {
		t.Errorf("the Service is %+v", svc)
	}
	expect(t, "refusals", w.refusals("up"),
		"Protocol Service team/none: PROXYV2 is no protocol", "Port listener 2: port 0", "NoPorts Service team/noport: it has no port")
	if got := portsOf(svc); len(got) != 3 || got[0] != ports[0] || got[1] != ports[1] || got[2] != ports[2] {
		t.Errorf("read again they are %v", got)
	}
}

func TestListedTwice(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up")
	w.list("up", app("team/app", "10.0.0.1"), app("team/app", "10.0.0.2"))
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app: 10.0.0.1")
	expect(t, "refusals", w.refusals("up"), "Answer Service team/app: the upstream lists it twice; the first counts")
	expect(t, "counts", w.counts("up"), "seen 1/1 replicated 1/1 held 0/0")
}

func TestNamespaces(t *testing.T) {
	w := newWorld(t, "team")
	key := snapshot.Key{Kind: snapshot.KindNamespace, Name: snapshot.Name{Name: "team"}}
	for name, going := range map[string]func(*corev1.Namespace){
		"a time of deletion": func(n *corev1.Namespace) { n.DeletionTimestamp = &metav1.Time{Time: w.now} },
		"the phase":          func(n *corev1.Namespace) { n.Status.Phase = corev1.NamespaceTerminating },
	} {
		w.set("up", keepFor(0))
		w.list("up", four()[0])
		w.settle()
		expect(t, "in effect", w.inEffect(), "team/up-app0: 10.0.0.1 10.0.0.2")
		n := namespace("team")
		going(n)
		w.store(n)
		w.settle()
		expect(t, "in effect while it goes, "+name, w.inEffect())
		expect(t, "refusals", w.refusals("up"), "Namespace Service team/app0: namespace team is being deleted")
		w.erase(key)
		w.settle()
		expect(t, "refusals", w.refusals("up"), "Namespace Service team/app0: namespace team does not exist: create it, or map another one in spec.namespaces.map")
		expect(t, "stored", w.stored())
		w.store(namespace("team"))
		w.settle()
		expect(t, "in effect when it is there again", w.inEffect(), "team/up-app0: 10.0.0.1 10.0.0.2")
		expect(t, "stored", w.stored(), w.inEffect())
	}
}

func TestUnselected(t *testing.T) {
	w := newWorld(t, "team", "other")
	w.set("up")
	w.list("up", four()[0], app("other/app", "10.0.9.1"))
	w.set("up", func(u *v1alpha1.Upstream) { u.Spec.Namespaces.Include = []string{"o*"} })
	w.settle()
	expect(t, "in effect", w.inEffect(), "other/up-app: 10.0.9.1")
	expect(t, "refusals", w.refusals("up"))
	w.set("up", mapped("team", "other"), mapped("other", "team"))
	w.settle()
	expect(t, "in effect", w.inEffect(), "other/up-app0: 10.0.0.1 10.0.0.2", "team/up-app: 10.0.9.1")
	expect(t, "stored", w.stored(), w.inEffect())
}

// A Service that somebody else has made keeps its name and is in effect. Ours takes another one.
func TestForeignService(t *testing.T) {
	foreign := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{"by": "team"}}}
	}
	w := newWorld(t, "team")
	w.set("up")
	w.list("up", four()[0])
	w.settle()
	hashed := "up-app0-" + digest("up", "team", "app0")

	// It is ours until somebody deletes it and writes another one.
	n := snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Namespace: "team", Name: "up-app0"}}
	w.erase(n)
	w.store(foreign("up-app0"))
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app0:", "team/"+hashed+": 10.0.0.1 10.0.0.2")
	expect(t, "stored", w.stored(), w.inEffect())

	w.store(foreign(hashed))
	w.settle()
	w.erase(snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Namespace: "team", Name: hashed}})
	w.store(foreign(hashed))
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app0:", "team/"+hashed+":")
	expect(t, "refusals", w.refusals("up"), "NameTaken Service team/app0: Service team/up-app0 exists and was not created by Fairlead: rename or delete it")
	if o := w.api[n]; o.GetLabels()["by"] != "team" || len(o.GetLabels()) != 1 {
		t.Errorf("the foreign Service is %v", o)
	}
	w.erase(n)
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app0: 10.0.0.1 10.0.0.2", "team/"+hashed+":")
	expect(t, "stored", w.stored(), w.inEffect())
}

// Ports and hints that no API accepts are left out, and said.
func TestInvalidPorts(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up")
	s := app("team/app", "10.0.0.1")
	s.Ports = []model.UpstreamPort{
		{Name: "web", Port: 80, Protocol: "TCP"},
		{Name: "", Port: 81, Protocol: "TCP"},
		{Name: "web", Port: 82, Protocol: "TCP"},
		{Name: "again", Port: 80, Protocol: "TCP"},
		{Name: "Not A Name", Port: 83, Protocol: "TCP"},
		{Name: "udp", Port: 80, Protocol: "UDP"},
	}
	s.Slices[0].Ports = []model.UpstreamPort{{Name: "web", Port: 8080, Protocol: "TCP"}, {Name: "", Port: 8081, Protocol: "TCP"}}
	s.Slices[0].Endpoints[0].ForZones = []string{"z", "z", "not a zone"}
	w.list("up", s)
	w.settle()
	for _, o := range w.api {
		switch o := o.(type) {
		case *corev1.Service:
			if len(o.Spec.Ports) != 2 {
				t.Errorf("the ports are %v", o.Spec.Ports)
			}
		case *discoveryv1.EndpointSlice:
			if len(o.Ports) != 1 || len(o.Endpoints[0].Hints.ForZones) != 1 {
				t.Errorf("the ports are %v, the hints %v", o.Ports, o.Endpoints[0].Hints)
			}
		}
	}
	if state, _ := w.m.State("up", 10); state.RefusedBy[model.RefusedPort] != 4 {
		t.Errorf("refused are %v", state.Refusals)
	}
}

// Whoever has very many services in a namespace whose name comes first takes nothing away from others that are stored.
func TestManyServicesOfOneNamespace(t *testing.T) {
	w := newWorld(t, "aaa", "team")
	w.set("up", limits(10, 100))
	w.list("up", four()...)
	w.settle()
	all := four()
	for i := range 1100 {
		all = append(all, app(fmt.Sprintf("aaa/a%04d", i), "10.9.0.1", "10.9.0.2", "10.9.0.3"))
	}
	w.list("up", all...)
	w.settle()
	ours := func() string {
		var lines []string
		for _, l := range strings.Split(w.inEffect(), "\n") {
			if strings.HasPrefix(l, "team/") {
				lines = append(lines, l)
			}
		}
		return strings.Join(lines, "\n")
	}
	expect(t, "in effect", ours(), fourInEffect)
	w.restart(anUpstream("up", limits(10, 100)))
	w.list("up", all...)
	w.settle()
	expect(t, "in effect after a restart", ours(), fourInEffect)
	w.set("up", limits(10, 100), threshold(40))
	w.settle()
	expect(t, "in effect after another spec", ours(), fourInEffect)
}

// manySlices is a service of many slices with an endpoint each, of which the last is ready or not.
func manySlices(n int, isReady bool) *model.UpstreamService {
	s := app("team/big")
	for i := range n {
		s.Slices = append(s.Slices, model.UpstreamSlice{
			Name: fmt.Sprint(i), Ports: []model.UpstreamPort{{Name: "http", Port: 80, Protocol: "TCP"}},
			Endpoints: []model.UpstreamEndpoint{{Address: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), Ready: i < n-1 || isReady}},
		})
	}
	return s
}

// A service of very many slices, which anyone in a cluster can make, does not hold up the others: the time of a change grows
// with their number, not with its square.
func TestManySlicesOfOneService(t *testing.T) {
	change := func(n int) time.Duration {
		w := newWorld(t, "team")
		w.set("up")
		w.list("up", manySlices(n, true))
		w.take()
		least := time.Hour
		for i := range 4 {
			begin := time.Now()
			w.m.Put("up", w.now, manySlices(n, i%2 == 1))
			least = min(least, time.Since(begin))
			if changes, _ := w.take(); len(changes) != 1 {
				t.Fatalf("%d objects changed", len(changes))
			}
		}
		return least
	}
	if few, many := change(1500), change(24000); many > 100*few {
		t.Errorf("a change takes %v with 1500 slices, and %v with 24000", few, many)
	}
}

// Each field counts.
func TestSameEndpoint(t *testing.T) {
	if n := reflect.TypeFor[discoveryv1.Endpoint]().NumField(); n != 8 {
		t.Errorf("an endpoint has %d fields", n)
	}
	if n := reflect.TypeFor[discoveryv1.EndpointConditions]().NumField(); n != 3 {
		t.Errorf("it has %d conditions", n)
	}
	yes, no, text := true, false, "a"
	a := discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}}
	for _, b := range []discoveryv1.Endpoint{
		{},
		{Addresses: []string{"10.0.0.2"}},
		{Addresses: a.Addresses, Zone: &text},
		{Addresses: a.Addresses, Hostname: &text},
		{Addresses: a.Addresses, NodeName: &text},
		{Addresses: a.Addresses, Conditions: discoveryv1.EndpointConditions{Ready: &yes}},
		{Addresses: a.Addresses, Conditions: discoveryv1.EndpointConditions{Ready: &no}},
		{Addresses: a.Addresses, Conditions: discoveryv1.EndpointConditions{Serving: &yes}},
		{Addresses: a.Addresses, Conditions: discoveryv1.EndpointConditions{Terminating: &yes}},
		{Addresses: a.Addresses, TargetRef: &corev1.ObjectReference{Name: text}},
		{Addresses: a.Addresses, Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: text}}}},
	} {
		if c := *b.DeepCopy(); sameEndpoint(a, b) || sameEndpoint(b, a) || !sameEndpoint(b, c) {
			t.Errorf("%v is taken for another one", b)
		}
	}
}

// A tag of a load balancer, too, becomes no label that makes a controller here act on the Service.
func TestLabelsThatControllersActOn(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up", openStack)
	s := app("team/app", "10.0.0.1")
	s.Labels = map[string]string{"tier": "web", "app.kubernetes.io/name": "app"}
	for _, k := range []string{"argocd.argoproj.io/instance", "app.kubernetes.io/instance", "kustomize.toolkit.fluxcd.io/name", "external-dns.alpha.example/x", "service.kubernetes.io/x", v1alpha1.LabelUpstream} {
		s.Labels[k] = "prod"
	}
	w.list("up", s)
	w.settle()
	o := w.api[snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Namespace: "team", Name: "up-app"}}]
	want := map[string]string{"tier": "web", "app.kubernetes.io/name": "app", v1alpha1.LabelUpstream: "up", managedBy: manager}
	if !reflect.DeepEqual(o.GetLabels(), want) {
		t.Errorf("the labels are %v, want %v", o.GetLabels(), want)
	}
}
