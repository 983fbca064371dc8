package mirror

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
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

// rich has everything that a service can have.
func rich() *model.UpstreamService {
	ports := []model.UpstreamPort{{Name: "dns", Port: 5353, Protocol: "UDP"}, {Name: "web", Port: 8443, Protocol: "TCP", AppProtocol: "kubernetes.io/h2c"}}
	a := netip.MustParseAddr
	return &model.UpstreamService{
		Key: model.UpstreamKey{Scope: "5c1e", Name: "lb"}, ScopeName: "team", Object: "load balancer lb (web)",
		Labels:      map[string]string{"app": "web", "not a label": "x", "bad-value": "a b", v1alpha1.LabelUpstream: "other"},
		Annotations: map[string]string{"note": "a b", v1alpha1.AnnotationWeights: "10.0.0.1=9"},
		Ports:       []model.UpstreamPort{{Name: "dns", Port: 53, Protocol: "UDP"}, {Name: "web", Port: 443, Protocol: "TCP", AppProtocol: "kubernetes.io/h2c"}},
		Slices: []model.UpstreamSlice{
			{Name: "listener/8443", Ports: ports, Endpoints: []model.UpstreamEndpoint{
				{Address: a("10.0.0.1"), Ready: true, Serving: true, Weight: 5, Zone: "z1", ForZones: []string{"z1", "z2"}},
				{Address: a("10.0.0.2"), Serving: true, Terminating: true, Weight: 4294967295},
				{Address: a("10.0.0.20"), Ready: true, Serving: true, Backup: true},
				{Address: a("fd00::1"), Ready: true, Backup: true, Weight: 3},
			}},
			{Name: "listener/9443", Ports: ports[:1], Endpoints: []model.UpstreamEndpoint{{Address: a("10.0.0.1"), Ready: true, Serving: true, Weight: 2}}},
		},
	}
}

func TestStoredIsReadAgain(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up", openStack)
	w.list("up", rich())
	w.settle()
	for _, o := range w.api {
		switch o := o.(type) {
		case *corev1.Service:
			want := map[string]string{"app": "web", v1alpha1.LabelUpstream: "up", "app.kubernetes.io/managed-by": "fairlead"}
			if !maps.Equal(o.Labels, want) {
				t.Errorf("the labels are %v", o.Labels)
			}
			want = map[string]string{
				"note": "a b", v1alpha1.AnnotationUpstreamObject: "load balancer lb (web)", v1alpha1.AnnotationUpstreamService: "5c1e/lb",
				"fairlead.dev/upstream-project": "team", "fairlead.dev/upstream-copied": "app;note",
			}
			if !maps.Equal(o.Annotations, want) {
				t.Errorf("the annotations are %v", o.Annotations)
			}
		case *discoveryv1.EndpointSlice:
			weights, backups := o.Annotations[v1alpha1.AnnotationWeights], o.Annotations[v1alpha1.AnnotationBackups]
			switch have := weights + " " + backups; have {
			case "10.0.0.1=5,10.0.0.2=4294967295 10.0.0.20", "fd00::1=3 fd00::1", "10.0.0.1=2 ":
			default:
				t.Errorf("weights and backups are %q", have)
			}
		}
	}
	w.restart(anUpstream("up", openStack))
	w.m.restore(w.m.upstreams["up"], nil)
	have, want := w.m.upstreams["up"].services[rich().Key].from, rich()
	for _, s := range []*model.UpstreamService{have, want} { // parts and families come in the order of names
		slices.SortFunc(s.Slices, func(a, b model.UpstreamSlice) int { return strings.Compare(a.Name, b.Name) })
		for i := range s.Slices {
			slices.SortFunc(s.Slices[i].Endpoints, func(a, b model.UpstreamEndpoint) int { return a.Address.Compare(b.Address) })
		}
	}
	if !reflect.DeepEqual(have.Slices, want.Slices) || !reflect.DeepEqual(have.Ports, want.Ports) {
		t.Errorf("read again it has\n%+v\n%+v\nexpected\n%+v\n%+v", have.Slices, have.Ports, want.Slices, want.Ports)
	}
	if have.Object != want.Object || have.ScopeName != "team" {
		t.Errorf("read again it is %q of %q", have.Object, have.ScopeName)
	}
}

// FuzzSliceOf reads an EndpointSlice of any content, and makes an equal one of the result.
func FuzzSliceOf(f *testing.F) {
	f.Add("10.0.0.1", "10.0.0.2", "10.0.0.1=5,10.0.0.2=3", "10.0.0.2", "a", true, "z1", int32(80), "TCP")
	f.Add("10.0.0.1", "10.0.0.1", "10.0.0.1=0,=,10.0.0.1=-1,x=4294967296", ",", "", false, "", int32(-1), "")
	f.Add("::ffff:10.0.0.1", "host.example", "10.0.0.1=5", "10.0.0.1", "b", false, "", int32(70000), "SCTP")
	f.Fuzz(func(t *testing.T, a, b, weights, backups, name string, ready bool, zone string, number int32, protocol string) {
		p := corev1.Protocol(protocol)
		o := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{annotationSlice: name, v1alpha1.AnnotationWeights: weights, v1alpha1.AnnotationBackups: backups}},
			Ports:      []discoveryv1.EndpointPort{{Name: &name, Port: &number, Protocol: &p}, {}},
			Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{a, b}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, Zone: &zone},
				{Addresses: []string{b}, Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}},
				{},
			},
		}
		s := sliceOf(o)
		if len(s.Endpoints) == 0 {
			return
		}
		if s.Name != name || len(s.Ports) != 2 || len(s.Endpoints) > 2 {
			t.Fatalf("it is %+v", s)
		}
		u := newUpstream("up", anUpstream("up"))
		e := &service{from: &model.UpstreamService{}}
		once := u.slice(u.service(e, e.from.Ports), e, &s, s.Endpoints, 0)
		again := sliceOf(once)
		if twice := u.slice(u.service(e, e.from.Ports), e, &again, again.Endpoints, 0); !reflect.DeepEqual(once, twice) && a != b {
			t.Errorf("read again it is\n%+v\nexpected\n%+v", twice, once)
		}
	})
}

func TestDeletedWhileAway(t *testing.T) {
	w := newWorld(t, "team", "other")
	w.set("up")
	w.list("up", append(four(), bare("team/empty"), app("other/app", "10.0.9.1"))...)
	w.settle()
	w.erase(snapshot.Key{Kind: snapshot.KindNamespace, Name: snapshot.Name{Name: "other"}})
	w.restart(anUpstream("up"))
	w.settle()
	w.list("up", append(four()[1:], app("other/app", "10.0.9.1"))...)
	w.settle()
	want := strings.Split(fourInEffect, "\n")[1:]
	expect(t, "in effect", w.inEffect(), want...)
	expect(t, "stored", w.stored(), want...)
	expect(t, "counts", w.counts("up"), "seen 4/7 replicated 3/6 held 0/0")
}

// A plane that starts serves what is stored, whatever it is told first, and deletes nothing before it knows all.
func TestStart(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up")
	w.list("up", four()...)
	w.settle()
	w.m = New()
	clear(w.effect)
	for k, o := range w.api {
		w.m.Stored(snapshot.Change{Key: k, Object: o})
	}
	w.m.Use(map[snapshot.Name]bool{})
	if changed := w.settle(); len(changed) > 0 || len(w.m.Orphans()) > 0 {
		t.Errorf("before it knows all it wrote %v", changed)
	}
	expect(t, "in effect before it knows all", w.inEffect(), fourInEffect)
	w.m.SetUpstream("up", anUpstream("up"), w.now)
	w.m.Known()
	w.m.Known()
	if changed := w.settle(); len(changed) > 0 || len(w.m.Orphans()) > 0 {
		t.Errorf("before the first list it wrote %v", changed)
	}
	w.m.Put("up", w.now, app("team/new", "10.9.0.1"))
	w.m.Remove("up", w.now, four()[0].Key)
	expect(t, "in effect before the first list", w.inEffect(), fourInEffect)
	w.list("up", four()...)
	if changes, writes := w.take(); len(changes)+len(writes) > 0 {
		t.Errorf("the first list, which is as before, gives %v and %v", changes, writes)
	}
}

func TestUpstreamDeleted(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up")
	w.list("up", four()...)
	w.settle()
	w.m.SetUpstream("up", nil, w.now)
	w.settle()
	expect(t, "in effect before anybody says what is used", w.inEffect(), fourInEffect)
	if have := fmt.Sprint(w.m.Orphans()); have != "[team/up-app0 team/up-app1 team/up-app2 team/up-app3]" {
		t.Errorf("orphans: %s", have)
	}
	app0, app1 := snapshot.Name{Namespace: "team", Name: "up-app0"}, snapshot.Name{Namespace: "team", Name: "up-app1"}
	w.use(app0, app1)
	w.settle()
	lines := strings.Split(fourInEffect, "\n")
	expect(t, "in effect while two are used", w.inEffect(), lines[:2]...)
	w.use(app1)
	w.settle()
	expect(t, "in effect while one is used", w.inEffect(), lines[1])
	expect(t, "stored", w.stored(), lines[1])

	// An answer about others says nothing of these.
	w.m.Use(map[snapshot.Name]bool{{Namespace: "team", Name: "other"}: true})
	w.settle()
	expect(t, "in effect after an answer about others", w.inEffect(), lines[1])

	// Objects that come late are not judged yet.
	late := w.api[snapshot.Key{Kind: snapshot.KindService, Name: app1}].DeepCopyObject().(*corev1.Service)
	late.Name, late.UID = "up-app9", ""
	w.store(late)
	w.settle()
	expect(t, "in effect with a late one", w.inEffect(), lines[1], "team/up-app9:")
	w.use(app1)
	w.settle()
	expect(t, "in effect", w.inEffect(), lines[1])

	// The Upstream is there again: what is stored is in effect until its first list.
	w.set("up")
	w.settle()
	expect(t, "in effect", w.inEffect(), lines[1])
	w.list("up", four()[2:]...)
	w.settle()
	w.m.SetUpstream("up", nil, w.now)
	w.erase(snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Namespace: "team", Name: "up-app2"}})
	w.settle()
	if have := fmt.Sprint(w.m.Orphans()); have != "[team/up-app1 team/up-app2 team/up-app3]" { // there are still EndpointSlices of up-app2
		t.Errorf("orphans: %s", have)
	}
	w.use()
	w.settle()
	expect(t, "stored at the end", w.stored())
}

// A term that ends leaves in effect what is stored, and the next one begins with the first lists.
func TestForget(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up")
	w.list("up", four()...)
	w.settle()
	w.m.Put("up", w.now, app("team/app0", "10.5.0.1"), app("team/new", "10.6.0.1"))
	w.m.Contact("up", errAway, w.now)
	w.take()
	clear(w.pending) // they are not written any more
	w.m.Forget()
	changes, writes := w.take()
	if len(writes) > 0 {
		t.Errorf("it writes %v", writes)
	}
	expect(t, "in effect", w.inEffect(), fourInEffect)
	if len(changes) == 0 {
		t.Error("nothing changed")
	}
	if s, _ := w.m.State("up", 1); s.Synced || !s.Failing.IsZero() {
		t.Errorf("its state is %+v", s)
	}
	w.list("up", app("team/app0", "10.5.0.1"))
	w.settle()
	expect(t, "counts", w.counts("up"), "seen 1/1 replicated 4/7 held 3/6")
}

// What somebody else does to our objects is undone.
func TestMeddling(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up")
	w.list("up", rich2())
	w.settle()
	before := maps.Clone(w.api)
	for k, o := range before {
		if k.Kind == snapshot.KindNamespace {
			continue
		}
		next := o.DeepCopyObject().(snapshot.Object)
		switch o := next.(type) {
		case *corev1.Service:
			o.Spec.Selector, o.Spec.Ports[0].Port = map[string]string{"a": "b"}, 81
			o.Labels["theirs"] = "stays"
		case *discoveryv1.EndpointSlice:
			o.Endpoints[0].Addresses[0] = "10.66.0.1"
			o.Annotations[v1alpha1.AnnotationBackups] = "10.66.0.1"
		}
		w.store(next)
		w.deliver()
		w.settle()
		if live := w.api[k]; !has(live, o) || !has(w.effect[k], o) {
			t.Errorf("%v is %v", k, live)
		}
		w.erase(k)
		w.settle()
		if live := w.api[k]; live == nil || !has(live, o) {
			t.Errorf("%v is %v after it was deleted", k, live)
		}
	}
	if changes, writes := w.take(); len(changes)+len(writes) > 0 {
		t.Errorf("there is more: %v, %v", changes, writes)
	}
	w.m.Recheck()
	if changes, writes := w.take(); len(changes)+len(writes) > 0 {
		t.Errorf("there is more: %v, %v", changes, writes)
	}
}

func rich2() *model.UpstreamService {
	s := rich()
	s.Key.Scope, s.ScopeName = "team", ""
	return s
}

// A write that has not been written yet is replaced by what is wanted now.
func TestWritesAreReplaced(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up", threshold(100))
	w.list("up", app("team/app", "10.0.0.1"))
	w.settle()
	for _, c := range []struct {
		name        string
		first, then []*model.UpstreamService
		last        string
	}{
		{"changed and back", []*model.UpstreamService{app("team/app", "10.0.0.2")}, []*model.UpstreamService{app("team/app", "10.0.0.1")}, "team/up-app: 10.0.0.1"},
		{"deleted and back", nil, []*model.UpstreamService{app("team/app", "10.0.0.1")}, "team/up-app: 10.0.0.1"},
		{"another one, and gone", []*model.UpstreamService{app("team/app", "10.0.0.1"), app("team/b", "10.0.0.1")}, []*model.UpstreamService{app("team/app", "10.0.0.1")}, "team/up-app: 10.0.0.1"},
	} {
		w.list("up", c.first...)
		if _, writes := w.take(); len(writes) == 0 {
			t.Errorf("%s: it writes nothing", c.name)
		}
		w.list("up", c.then...)
		w.take()
		if changed := w.settle(); len(changed) > 0 {
			t.Errorf("%s: it wrote %v", c.name, changed)
		}
		expect(t, c.name, w.stored(), c.last)
	}
}

func TestMergeSharesNothing(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up", openStack)
	w.list("up", rich())
	w.take()
	for k, wanted := range w.m.wanted {
		before, live := wanted.DeepCopyObject(), wanted.DeepCopyObject().(snapshot.Object)
		switch o := live.(type) {
		case *corev1.Service:
			o.Spec.Ports = nil
		case *discoveryv1.EndpointSlice:
			o.Endpoints, o.Ports = nil, nil
		}
		if !Merge(live, wanted) || Merge(live, wanted) || !has(live, wanted) {
			t.Fatalf("%v is %v", k, live)
		}
		switch o := live.(type) { // as an answer of the API is decoded into it
		case *corev1.Service:
			o.Spec.Ports[0].Port = 1
			*o.Spec.Ports[1].AppProtocol = "x"
		case *discoveryv1.EndpointSlice:
			o.Endpoints[0].Addresses[0], *o.Endpoints[0].Conditions.Ready, *o.Ports[0].Port = "192.0.2.1", false, 1
		}
		live.GetLabels()["x"], live.GetAnnotations()["x"] = "y", "y"
		if !reflect.DeepEqual(before, wanted) {
			t.Errorf("%v changed", k)
		}
	}
}

// The project's name is stored: a service that is held after a start stays where it is, whatever happens.
func TestProjectAfterStart(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up", openStack)
	var all []*model.UpstreamService
	for _, s := range four() {
		s.Key.Scope, s.ScopeName = "5c1e", "Team"
		all = append(all, s)
	}
	w.list("up", all...)
	w.settle()
	expect(t, "in effect", w.inEffect(), fourInEffect)
	w.restart(anUpstream("up", openStack))
	w.list("up")
	w.settle()
	w.set("up", openStack, func(u *v1alpha1.Upstream) { u.Spec.Namespaces.Include = []string{"Team"} })
	w.settle()
	expect(t, "in effect", w.inEffect(), fourInEffect)
	w.after(time.Hour)
	w.set("up", openStack, mapped("Team", "elsewhere"))
	w.store(namespace("elsewhere"))
	w.settle()
	expect(t, "in effect", w.inEffect(), strings.ReplaceAll(fourInEffect, "team/", "elsewhere/"))
}

// Services that are given before the first complete list come into effect, each whole. The others stay as they are stored.
func TestServicesBeforeTheFirstList(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up")
	w.list("up", app("team/a", "10.0.0.1", "fd00::1"), app("team/b", "10.0.0.2"), app("team/c", "10.0.0.3"))
	w.settle()
	w.restart(w.m.upstreams["up"].object)
	w.m.Put("up", w.now, app("team/a", "10.0.0.9"), app("team/d", "10.0.0.4"))
	w.m.Remove("up", w.now, model.UpstreamKey{Scope: "team", Name: "b"})
	w.settle()
	if s, _ := w.m.State("up", 1); s.Synced {
		t.Error("it counts as complete")
	}
	have := w.inEffect()
	for _, want := range []string{"10.0.0.9", "10.0.0.3", "10.0.0.4"} {
		if !strings.Contains(have, want) {
			t.Errorf("%s is not in effect:\n%s", want, have)
		}
	}
	for _, gone := range []string{"10.0.0.1", "fd00::1", "10.0.0.2"} {
		if strings.Contains(have, gone+" ") || strings.Contains(have, gone+"\n") {
			t.Errorf("%s is in effect:\n%s", gone, have)
		}
	}
	if have != w.stored() {
		t.Errorf("in effect is\n%s\nstored is\n%s", have, w.stored())
	}
	w.list("up", app("team/a", "10.0.0.9"), app("team/c", "10.0.0.3"), app("team/d", "10.0.0.4"))
	if w.settle(); w.inEffect() != have {
		t.Errorf("a list that says the same changes\n%s\nto\n%s", have, w.inEffect())
	}
}

// What a team writes into its own Service moves and deletes nothing of another namespace.
func TestForgedAnnotations(t *testing.T) {
	for name, forge := range map[string]map[string]string{
		"a service that is not stored yet": {v1alpha1.AnnotationUpstreamService: "teamb/new"},
		"a stored one":                     {v1alpha1.AnnotationUpstreamService: "teamb/foo", annotationScopeName: "teama"},
		"another namespace":                {annotationScopeName: "teamb"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "teama", "teamb")
			w.set("up")
			w.list("up", app("teama/foo", "10.66.0.1", "10.66.0.2", "10.66.0.3", "10.66.0.4", "10.66.0.5"), app("teamb/foo", "10.0.0.1"))
			w.settle()
			k := snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Namespace: "teama", Name: "up-foo"}}
			forged := w.api[k].DeepCopyObject().(snapshot.Object)
			annotations := forged.GetAnnotations()
			maps.Copy(annotations, forge)
			forged.SetAnnotations(annotations)
			w.store(forged)
			w.restart(anUpstream("up"))
			w.list("up", app("teamb/foo", "10.0.0.1"), app("teamb/new", "10.0.0.2"))
			w.settle()
			have := w.inEffect()
			for _, want := range []string{"teamb/up-foo: 10.0.0.1", "teamb/up-new: 10.0.0.2"} {
				if !strings.Contains(have, want) {
					t.Errorf("%s is not in effect:\n%s", want, have)
				}
			}
			for line := range strings.Lines(have) {
				if strings.HasPrefix(line, "teamb/") && strings.Contains(line, "10.66.") {
					t.Errorf("team a's endpoints are in effect for team b:\n%s", have)
				}
			}
		})
	}
}

// forge has a team write a Service and an EndpointSlice of an upstream in its own namespace.
func (w *world) forge(namespace, name, upstream, key, project string, addresses ...string) {
	labels := map[string]string{v1alpha1.LabelUpstream: upstream}
	port, proto, pn := int32(8080), corev1.ProtocolTCP, "http"
	w.store(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, Annotations: map[string]string{v1alpha1.AnnotationUpstreamService: key}},
		Spec:       corev1.ServiceSpec{ClusterIP: "None", Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: proto}}},
	})
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-forged", Labels: map[string]string{
			v1alpha1.LabelUpstream: upstream, discoveryv1.LabelManagedBy: v1alpha1.SliceManager, discoveryv1.LabelServiceName: name,
		}, Annotations: map[string]string{v1alpha1.AnnotationUpstreamService: key, annotationScopeName: project}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &pn, Port: &port, Protocol: &proto}},
	}
	if project == "" {
		delete(s.Annotations, annotationScopeName)
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	w.store(s)
}

// What a team writes as if it were an upstream's, EndpointSlices too, moves nothing into another namespace, takes no service
// away from it, and uses up no limits of listed services.
func TestForgedSlices(t *testing.T) {
	for _, c := range []struct {
		name      string
		options   []func(*v1alpha1.Upstream)
		forge     func(*world)
		loss      bool
		elsewhere []string // that is in effect outside of the team's namespace
	}{
		{
			name:      "a service of another namespace",
			forge:     func(w *world) { w.forge("attacker", "up-x", "up", "victim/other", "", addresses("10.66", 10)...) },
			elsewhere: []string{"victim/up-app: 10.0.0.1"},
		},
		{
			name:      "a stored service of another namespace",
			forge:     func(w *world) { w.forge("attacker", "up-app", "up", "victim/app", "attacker", "10.66.0.1") },
			loss:      true,
			elsewhere: []string{"victim/up-app: 10.0.0.1"},
		},
		{
			name: "a stored service of another project", options: []func(*v1alpha1.Upstream){openStack},
			forge:     func(w *world) { w.forge("attacker", "up-app", "up", "victim/app", "attacker", "10.66.0.1") },
			loss:      true,
			elsewhere: []string{"victim/up-app: 10.0.0.1"},
		},
		{
			name: "more than the limits", options: []func(*v1alpha1.Upstream){func(u *v1alpha1.Upstream) { u.Spec.Limits.Endpoints = 100 }},
			forge: func(w *world) {
				w.forge("attacker", "up-a", "up", "attacker/a", "", addresses("10.66", 100)...)
				w.forge("attacker", "up-b", "up", "attacker/b", "", addresses("10.66", 100)...)
			},
			elsewhere: []string{"victim/up-app: 10.0.0.1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, "attacker", "victim")
			u := w.set("up", c.options...)
			w.list("up", app("victim/app", "10.0.0.1"))
			w.settle()
			w.now = w.now.Add(time.Hour)
			c.forge(w)
			w.restart(u)
			if c.loss {
				w.list("up")
			} else {
				w.list("up", app("victim/app", "10.0.0.1"))
			}
			w.settle()
			var lines []string
			for line := range strings.Lines(w.inEffect()) {
				if !strings.HasPrefix(line, "attacker/") {
					lines = append(lines, strings.TrimSpace(line))
				}
			}
			expect(t, "in effect elsewhere", strings.Join(lines, "\n"), c.elsewhere...)
		})
	}
}

// Labels and annotations that the upstream takes away go; those that others have added stay, also after a restart.
func TestRemovedLabelsGo(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up")
	s := app("team/app", "10.0.0.1")
	s.Labels, s.Annotations = map[string]string{"app": "web", "tier": "front"}, map[string]string{"projectcontour.io/upstream-protocol.tls": "443", "note": "a"}
	w.list("up", s)
	w.settle()
	key := snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Namespace: "team", Name: "up-app"}}
	edited := w.api[key].DeepCopyObject().(*corev1.Service)
	edited.Labels["ours"], edited.Annotations["theirs"] = "x", "y"
	w.store(edited)
	w.settle()
	w.restart(w.m.upstreams["up"].object)
	w.settle()
	next := *s
	next.Labels, next.Annotations = map[string]string{"app": "api"}, map[string]string{"note": "a"}
	w.list("up", &next)
	w.settle()
	for _, o := range []snapshot.Object{w.api[key], w.effect[key]} {
		want := map[string]string{"app": "api", "ours": "x", v1alpha1.LabelUpstream: "up", "app.kubernetes.io/managed-by": "fairlead"}
		if !maps.Equal(o.GetLabels(), want) {
			t.Errorf("the labels are %v", o.GetLabels())
		}
		if a := o.GetAnnotations(); a["note"] != "a" || a["theirs"] != "y" || a["projectcontour.io/upstream-protocol.tls"] != "" || a["fairlead.dev/upstream-copied"] != "app;note" {
			t.Errorf("the annotations are %v", a)
		}
	}
	if changed := w.settle(); len(changed) > 0 {
		t.Errorf("it wrote %v again", changed)
	}
}

// An Upstream that is made again keeps what was to be deleted and is not yet.
func TestUpstreamMadeAgain(t *testing.T) {
	w := newWorld(t, "team")
	w.set("up")
	w.list("up", four()...)
	w.settle()
	w.m.SetUpstream("up", nil, w.now)
	w.use()
	w.take() // the deletions wait in the writer
	w.set("up")
	w.settle()
	expect(t, "in effect", w.inEffect(), fourInEffect)
	expect(t, "stored", w.stored(), fourInEffect)
}

// TestStampIsTheAPIs: the annotation in which the API names who wrote a Service is not wanted to be as it was: each write would
// change it, and make another write.
func TestStampIsTheAPIs(t *testing.T) {
	got := asStored(map[string]string{v1alpha1.AnnotationChangedBy: "alice", "team": "shop"})
	if _, is := got[v1alpha1.AnnotationChangedBy]; is || got["team"] != "shop" {
		t.Errorf("got %v", got)
	}
}
