package translate

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
)

func delegating(name string, routes ...contourv1beta1.Route) *contourv1beta1.IngressRoute {
	return &contourv1beta1.IngressRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
		Spec:       contourv1beta1.IngressRouteSpec{Routes: routes},
	}
}

func rootOf(o *contourv1beta1.IngressRoute, host string) *contourv1beta1.IngressRoute {
	o.Spec.VirtualHost = &contourv1beta1.VirtualHost{Fqdn: host}
	return o
}

func delegate(match, to string) contourv1beta1.Route {
	return contourv1beta1.Route{Match: match, Delegate: &contourv1beta1.Delegate{Name: to}}
}

func statusOf(t *testing.T, tr *Translator, name string) contourv1beta1.Status {
	t.Helper()
	s := tr.result().Statuses[model.Object{Kind: "IngressRoute", Namespace: "team", Name: name}]
	if s == nil {
		t.Fatalf("%s has no status", name)
	}
	return *s.IngressRoute
}

func webService() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
}

// TestDelegationDepth holds that a chain of delegations is bounded, and that the status says so.
func TestDelegationDepth(t *testing.T) {
	const maxDepth = 32
	s := snapshot.New()
	objects := []metav1.Object{rootOf(delegating("ir-1", delegate("/", "ir-2")), "app.example.com")}
	for i := 2; i < 40; i++ {
		objects = append(objects, delegating(fmt.Sprintf("ir-%d", i), delegate("/", fmt.Sprintf("ir-%d", i+1))))
	}
	setAll(t, s, objects...)
	tr := full(input.Config{}, s)
	if got := statusOf(t, tr, fmt.Sprintf("ir-%d", maxDepth-1)); got.CurrentStatus != contourv1beta1.StatusValid {
		t.Errorf("the last but one within reach: %+v", got)
	}
	if got := statusOf(t, tr, fmt.Sprintf("ir-%d", maxDepth)); !strings.Contains(got.Description, "too many delegations in a row") {
		t.Errorf("the last within reach: %+v", got)
	}
	if got := statusOf(t, tr, fmt.Sprintf("ir-%d", maxDepth+1)); got.CurrentStatus != contourv1beta1.StatusOrphaned {
		t.Errorf("the first out of reach: %+v", got)
	}
}

// TestDelegationFansOut holds that a tree in which everybody delegates twice to the
// next is walked once: it would have 2^30 paths.
func TestDelegationFansOut(t *testing.T) {
	s := snapshot.New()
	prefix := ""
	objects := []metav1.Object{rootOf(delegating("ir-0", delegate("/a", "ir-1"), delegate("/a/a", "ir-1")), "app.example.com")}
	for i := 1; i < 30; i++ {
		prefix += "/a/a"
		next := fmt.Sprintf("ir-%d", i+1)
		objects = append(objects, delegating(fmt.Sprintf("ir-%d", i), delegate(prefix+"/a", next), delegate(prefix+"/a/a", next)))
	}
	setAll(t, s, objects...)
	tr := full(input.Config{}, s)
	if got := statusOf(t, tr, "ir-0"); !strings.Contains(got.Description, "already has another prefix of this host") {
		t.Errorf("the root: %+v", got)
	}
}

// TestDelegateThatComesLater holds that what was missing is looked for again.
func TestDelegateThatComesLater(t *testing.T) {
	s := snapshot.New()
	tr := New(input.Config{})
	tr.Apply(s, setAll(t, s, rootOf(delegating("root", delegate("/", "child")), "app.example.com")))
	if got := statusOf(t, tr, "root"); got.CurrentStatus != contourv1beta1.StatusInvalid || got.Description != "spec.routes[0].delegate: IngressRoute team/child not found" {
		t.Errorf("without a child: %+v", got)
	}
	child := delegating("child", contourv1beta1.Route{Match: "/", Services: []contourv1beta1.Service{{Name: "web", Port: 80}}})
	tr.Apply(s, setAll(t, s, child))
	if got := statusOf(t, tr, "root"); got.CurrentStatus != contourv1beta1.StatusValid {
		t.Errorf("with a child: %+v", got)
	}
	keys := setAll(t, s, child)
	s.Delete(keys[0])
	c := tr.Apply(s, keys)
	if status, said := c.Statuses[model.Object{Kind: "IngressRoute", Namespace: "team", Name: "child"}]; !said || status != nil {
		t.Errorf("the status of a deleted object: %v, %v", status, said)
	}
	if got := statusOf(t, tr, "root"); got.CurrentStatus != contourv1beta1.StatusInvalid {
		t.Errorf("without a child again: %+v", got)
	}
}

// fan is a root that delegates to one IngressRoute for each of the sizes, which has that many
// routes.
func fan(sizes ...int) []metav1.Object {
	root := rootOf(delegating("root"), "app.example.com")
	objects := []metav1.Object{root}
	for i, n := range sizes {
		child := delegating(fmt.Sprintf("child-%d", i))
		for j := range n {
			child.Spec.Routes = append(child.Spec.Routes, contourv1beta1.Route{
				Match: fmt.Sprintf("/%d/%d", i, j), Services: []contourv1beta1.Service{{Name: "web", Port: 80}},
			})
		}
		root.Spec.Routes = append(root.Spec.Routes, delegate(fmt.Sprintf("/%d/", i), child.Name))
		objects = append(objects, child)
	}
	return objects
}

// TestTreeWithTooManyRoutes holds that the largest of the root's delegations stay out, that
// all who are concerned are told, and that there is room again when one of them goes.
func TestTreeWithTooManyRoutes(t *testing.T) {
	s := snapshot.New()
	tr := New(input.Config{})
	web := webService()
	objects := append(fan(20_000, 30, 20_001, 20_000, 5_600), web)
	tr.Apply(s, setAll(t, s, objects...))
	const tooMany = "too many routes for one host: with those of IngressRoute team/child-2 and of all to which it delegates there would be more than 65536 (the smallest of the root's delegations come first)"
	for name, want := range map[string]string{
		"root": "spec.routes[2].delegate: " + tooMany, "child-0": "valid IngressRoute", "child-1": "valid IngressRoute",
		"child-2": tooMany, "child-3": "valid IngressRoute", "child-4": "valid IngressRoute",
	} {
		if got := statusOf(t, tr, name); got.Description != want {
			t.Errorf("%s: %s, want %s", name, got.Description, want)
		}
	}
	key := model.HostKey{Listener: tr.config.ClearID(), Host: "app.example.com"}
	if n := len(tr.result().VirtualHosts[key].Routes); n != 45_631 {
		t.Errorf("%d routes, want those of four and one that answers 503", n)
	}
	objects[1].(*contourv1beta1.IngressRoute).Spec.Routes = nil
	tr.Apply(s, setAll(t, s, objects[1]))
	if got := statusOf(t, tr, "child-2"); got.Description != "valid IngressRoute" {
		t.Errorf("with room: %+v", got)
	}
}

// TestTreeWithTooManyRoutesKeepsEqualParts holds that a delegation of the root with less than an equal
// part is served, though another one, which stays out, led to one of its IngressRoutes before it.
func TestTreeWithTooManyRoutesKeepsEqualParts(t *testing.T) {
	s := snapshot.New()
	objects := fan(1, 1)
	a, b := objects[1].(*contourv1beta1.IngressRoute), objects[2].(*contourv1beta1.IngressRoute)
	add := func(name, prefix string, routes int) contourv1beta1.Route {
		o := delegating(name)
		for j := range routes {
			o.Spec.Routes = append(o.Spec.Routes, contourv1beta1.Route{Match: fmt.Sprintf("%s%d", prefix, j), Services: []contourv1beta1.Service{{Name: "web", Port: 80}}})
		}
		objects = append(objects, o)
		return delegate(prefix, name)
	}
	b.Spec.Routes = []contourv1beta1.Route{add("x", "/1/x/", 3_000), add("y", "/1/y/", 5_000)}
	a.Spec.Routes = []contourv1beta1.Route{delegate("/0/x/", "x")}
	for i := range 6 {
		a.Spec.Routes = append(a.Spec.Routes, add(fmt.Sprintf("many-%d", i), fmt.Sprintf("/0/%d/", i), 12_000))
	}
	setAll(t, s, append(objects, webService())...)
	tr := full(input.Config{}, s)
	for _, name := range []string{"child-1", "x", "y"} {
		if got := statusOf(t, tr, name); got.Description != "valid IngressRoute" {
			t.Errorf("%s, with less than an equal part: %+v", name, got)
		}
	}
	if got := statusOf(t, tr, "child-0"); !strings.HasPrefix(got.Description, "too many routes for one host") {
		t.Errorf("the largest: %+v", got)
	}
}

// TestRootWithTooManyRoutes holds that a root alone has its bound, too.
func TestRootWithTooManyRoutes(t *testing.T) {
	s := snapshot.New()
	root := rootOf(delegating("root"), "app.example.com")
	for i := range 65_537 {
		root.Spec.Routes = append(root.Spec.Routes, contourv1beta1.Route{Match: fmt.Sprintf("/%d", i), Services: []contourv1beta1.Service{{Name: "web", Port: 80}}})
	}
	setAll(t, s, root, webService())
	tr := full(input.Config{}, s)
	if got := statusOf(t, tr, "root"); got.CurrentStatus != contourv1beta1.StatusInvalid || got.Description != "spec.routes: has 65537 routes, and one host may have 65536" {
		t.Errorf("too many: %+v", got)
	}
	key := model.HostKey{Listener: tr.config.ClearID(), Host: "app.example.com"}
	if routes := tr.result().VirtualHosts[key].Routes; len(routes) != 1 || routes[0].Respond == nil {
		t.Errorf("%d routes, want one that answers 503", len(routes))
	}
	root = root.DeepCopy()
	root.Spec.Routes = root.Spec.Routes[1:]
	tr.Apply(s, setAll(t, s, root))
	if got := statusOf(t, tr, "root"); got.CurrentStatus != contourv1beta1.StatusValid {
		t.Errorf("as many as may be: %+v", got)
	}
}

// TestDelegationTakesNobodysPlace holds that who delegates a prefix to somebody else's IngressRoute whose
// routes do not continue it keeps it out of no place that it has by right, and is told.
func TestDelegationTakesNobodysPlace(t *testing.T) {
	serve := func(match string) contourv1beta1.Route {
		return contourv1beta1.Route{Match: match, Services: []contourv1beta1.Service{{Name: "web", Port: 80}}}
	}
	s := snapshot.New()
	setAll(t, s, webService(),
		rootOf(delegating("root", delegate("/b", "thief"), delegate("/c", "second"), delegate("/checkout", "checkout")), "app.example.com"),
		delegating("thief", serve("/b"), delegate("/b/x", "checkout"), delegate("/b/y", "checkout")),
		delegating("second", serve("/c"), delegate("/c/x", "checkout")),
		delegating("checkout", serve("/checkout"), serve("/checkout/pay")))
	tr := full(input.Config{}, s)
	const taken = ": IngressRoute team/checkout already has another prefix of this host: it can have one"
	for name, want := range map[string]string{
		"root": "valid IngressRoute", "checkout": "valid IngressRoute",
		"thief":  "spec.routes[1].delegate" + taken + "; spec.routes[2].delegate" + taken,
		"second": "spec.routes[1].delegate" + taken,
	} {
		if got := statusOf(t, tr, name); got.Description != want {
			t.Errorf("%s: %s, want %s", name, got.Description, want)
		}
	}
	served := map[string]bool{}
	for _, r := range tr.result().VirtualHosts[model.HostKey{Listener: tr.config.ClearID(), Host: "app.example.com"}].Routes {
		served[r.Match.Path.Value] = r.Respond == nil
	}
	for path, want := range map[string]bool{"/checkout": true, "/checkout/pay": true, "/b": true, "/b/x": false, "/b/y": false, "/c/x": false} {
		if got, is := served[path]; !is || got != want {
			t.Errorf("%s is served: %t (there: %t), want %t", path, got, is, want)
		}
	}
}

// TestManyServicesOfARoute holds that the services of one route, or tcpproxy, are bounded.
func TestManyServicesOfARoute(t *testing.T) {
	var many []contourv1beta1.Service
	for i := range 16_000 {
		many = append(many, contourv1beta1.Service{Name: fmt.Sprintf("s-%d", i), Port: 80})
	}
	s := snapshot.New()
	o := rootOf(&contourv1beta1.IngressRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "root"}}, "app.example.com")
	o.Spec.Routes = []contourv1beta1.Route{{Match: "/", Services: many}}
	setAll(t, s, o)
	tr := full(input.Config{}, s)
	if got := statusOf(t, tr, "root"); !strings.Contains(got.Description, "spec.routes[0].services: 16000 are too many: at most 128") {
		t.Errorf("the root: %.300s", got.Description)
	}
}

// BenchmarkLargeTree is the cost of a change in one of 32 IngressRoutes of one tree, as large
// as the API takes them.
func BenchmarkLargeTree(b *testing.B) {
	s := snapshot.New()
	sizes := make([]int, 32)
	for i := range sizes {
		sizes[i] = 12_000
	}
	objects := append(fan(sizes...), webService())
	for _, o := range objects {
		if _, err := s.Set(o); err != nil {
			b.Fatal(err)
		}
	}
	tr := full(input.Config{}, s)
	child := objects[5].(*contourv1beta1.IngressRoute)
	for b.Loop() {
		child = child.DeepCopy()
		child.Generation++
		child.Spec.Routes[7].PrefixRewrite = fmt.Sprintf("/%d", child.Generation)
		k, err := s.Set(child)
		if err != nil {
			b.Fatal(err)
		}
		tr.Apply(s, []snapshot.Key{k})
	}
}
