package mirror

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// hashname and truncate are Gimbal's own (projectcontour/gimbal, pkg/translator/translator.go).
func hashname(l int, s ...string) string {
	const shorthash = 6
	r := strings.Join(s, "-")
	if l > len(r) {
		return r
	}
	for i := len(s) - 1; i >= 0; i-- {
		hash := fmt.Sprintf("%x", sha256.Sum256([]byte(s[i])))
		s[i] = truncate(l/len(s), s[i], hash[:shorthash])
		r = strings.Join(s, "-")
		if l > len(r) {
			break
		}
	}
	return r
}

func truncate(l int, s, suffix string) string {
	if l >= len(s) {
		return s
	}
	if l <= len(suffix) {
		return suffix[:min(l, len(suffix))]
	}
	return s[:l-len(suffix)] + suffix
}

func TestGimbalNames(t *testing.T) {
	for backend := range 70 {
		for service := range 90 {
			b, s := strings.Repeat("b", backend), strings.Repeat("s", service)
			if have, want := gimbalName(b, s), hashname(63, b, s); have != want {
				t.Fatalf("%d and %d characters: %s, Gimbal has %s", backend, service, have, want)
			}
			if have, want := gimbalName(s), hashname(63, s); have != want {
				t.Fatalf("%d characters: %s, Gimbal has %s", service, have, want)
			}
		}
	}
	for name, want := range map[string]string{
		"": "", "web": "web", "my lb": "my-lb", "_x": "lb_x", "x.": "x.lb", "ü": "lb-lb", strings.Repeat("x", 64): strings.Repeat("x", 57) + "7ce100",
	} {
		if have := gimbalLabelValue(name); have != want {
			t.Errorf("the label of %q is %q, expected %q", name, have, want)
		}
	}
}

// byGimbal are the objects that Gimbal has written of a service, and the EndpointSlice that Kubernetes makes of them.
func byGimbal(prefix, backend, ns, service string, mirrored int, endpoints ...string) []snapshot.Object {
	labels := func() map[string]string {
		return map[string]string{prefix + "backend": backend, prefix + "service": service, "app": service}
	}
	name := gimbalName(backend, service)
	meta := metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels()}
	objects := []snapshot.Object{
		&corev1.Service{ObjectMeta: *meta.DeepCopy(), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}}}},
		&corev1.Endpoints{ObjectMeta: *meta.DeepCopy()}, //nolint:staticcheck // Gimbal's
	}
	for i := range mirrored {
		o := &discoveryv1.EndpointSlice{ObjectMeta: *meta.DeepCopy(), AddressType: discoveryv1.AddressTypeIPv4}
		o.Name += fmt.Sprint("-", i)
		o.Labels[discoveryv1.LabelManagedBy], o.Labels[discoveryv1.LabelServiceName] = mirroringManager, name
		port := int32(8080 + i)
		o.Ports = []discoveryv1.EndpointPort{{Port: &port}}
		for n := i; n < len(endpoints); n += mirrored {
			o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{endpoints[n]}})
		}
		objects = append(objects, o)
	}
	return objects
}

// unmirror deletes the EndpointSlices of Endpoints that are gone, as Kubernetes does.
func (w *world) unmirror() {
	for k, o := range w.api {
		of := snapshot.Key{Kind: kindEndpoints, Name: snapshot.Name{Namespace: k.Name.Namespace, Name: o.GetLabels()[discoveryv1.LabelServiceName]}}
		if o.GetLabels()[discoveryv1.LabelManagedBy] == mirroringManager && w.api[of] == nil {
			w.erase(k)
		}
	}
}

func TestAdoption(t *testing.T) {
	for _, prefix := range []string{gimbalPrefix, gimbalOldPrefix} {
		long := strings.Repeat("x", 70)
		w := newWorld(t, "team")
		for _, s := range [][]snapshot.Object{
			byGimbal(prefix, "up", "team", "app", 1, "10.0.0.1", "10.0.0.2"), byGimbal(prefix, "up", "team", long, 1, "10.0.1.1"),
			byGimbal(prefix, "up", "team", "gone", 1, "10.0.2.1"), byGimbal(prefix, "other", "team", "app", 1, "10.0.9.1"),
		} {
			for _, o := range s {
				w.store(o)
			}
		}
		w.deliver()
		w.set("up", gimbal)
		w.settle()
		longName := "team/" + gimbalName("up", long)
		before := []string{"team/other-app: 10.0.9.1", "team/up-app: 10.0.0.1 10.0.0.2", "team/up-gone: 10.0.2.1", longName + ": 10.0.1.1"}
		expect(t, "in effect before the first list", w.inEffect(), before...)

		w.list("up", app("team/app", "10.0.0.1", "10.0.0.3"), app("team/"+long, "10.0.1.1"))
		w.settle()
		want := []string{"team/other-app: 10.0.9.1", "team/up-app: 10.0.0.1 10.0.0.3", longName + ": 10.0.1.1"}
		// Of what is gone the Service is deleted. Kubernetes deletes the EndpointSlice.
		expect(t, "in effect", w.inEffect(), want[0], want[1], before[2], want[2])
		if _, is := w.effect[snapshot.Key{Kind: snapshot.KindService, Name: snapshot.Name{Namespace: "team", Name: "up-gone"}}]; is {
			t.Error("the Service of what is gone is in effect")
		}
		w.unmirror()
		w.settle()
		expect(t, "in effect when Kubernetes has done its part", w.inEffect(), want...)
		expect(t, "stored", w.stored(), want...)
		for k, o := range w.api {
			switch k.Kind {
			case kindEndpoints:
				if k.Name.Name != "other-app" {
					t.Errorf("%v is left", k)
				}
			case snapshot.KindService:
				labels := o.GetLabels()
				if by := labels[prefix+"backend"]; by == "" || labels["app"] == "" || by == "up" && (labels[v1alpha1.LabelUpstream] != "up" || labels[gimbalPrefix+"service"] == "") {
					t.Errorf("%v has the labels %v", k, labels)
				}
			}
		}
		// A start finds all as it is, and one without Gimbal's naming as well.
		for _, options := range [][]func(*v1alpha1.Upstream){{gimbal}, nil} {
			w.restart(anUpstream("up", options...))
			w.list("up", app("team/app", "10.0.0.1", "10.0.0.3"))
			w.settle()
			if have := w.inEffect(); !strings.Contains(have, "team/up-app: 10.0.0.1 10.0.0.3") || strings.Contains(have, "10.0.1.1") {
				t.Errorf("in effect:\n%s", have)
			}
		}
	}
}

// A first list that is much shorter than what Gimbal has written is a loss, too.
func TestAdoptionWithLoss(t *testing.T) {
	w := newWorld(t, "team")
	store := func() {
		for i := range 4 {
			for _, o := range byGimbal(gimbalPrefix, "up", "team", fmt.Sprint("app", i), 2, fmt.Sprintf("10.0.%d.1", i), fmt.Sprintf("10.0.%d.2", i)) {
				w.store(o)
			}
		}
	}
	store()
	w.deliver()
	options := []func(*v1alpha1.Upstream){gimbal, openStack}
	w.set("up", options...)
	// The key of a load balancer has the ID of its project, which Gimbal does not tell.
	lb := func(n int) *model.UpstreamService {
		s := four()[n]
		s.Key.Scope, s.ScopeName = "5c1e", "team"
		return s
	}
	w.list("up", lb(0))
	w.settle()
	w.unmirror()
	w.settle()
	expect(t, "in effect", w.inEffect(), fourInEffect)
	expect(t, "stored", w.stored(), fourInEffect)
	expect(t, "counts", w.counts("up"), "seen 1/2 replicated 4/8 held 3/6")

	w.restart(anUpstream("up", options...))
	w.list("up", lb(0))
	if changed := w.settle(); len(changed) > 0 {
		t.Errorf("after a start it wrote %v", changed)
	}
	expect(t, "in effect after a start", w.inEffect(), fourInEffect)

	// The upstream lists more of them: they keep their names.
	w.m.Put("up", w.now, lb(1))
	w.settle()
	expect(t, "in effect", w.inEffect(), fourInEffect)
	expect(t, "counts", w.counts("up"), "seen 2/4 replicated 4/8 held 2/4")
	w.list("up", lb(0), lb(1), lb(2), lb(3))
	w.settle()
	expect(t, "in effect", w.inEffect(), fourInEffect)
	expect(t, "stored", w.stored(), fourInEffect)
	expect(t, "counts", w.counts("up"), "seen 4/8 replicated 4/8 held 0/0")
	if s, _ := w.m.Lookup(snapshot.Name{Namespace: "team", Name: "up-app3"}); s.From.Key != (model.UpstreamKey{Scope: "5c1e", Name: "app3"}) {
		t.Errorf("it is of %v", s.From.Key)
	}
}

// Operators may begin without Gimbal's names: its objects are foreign then, until they say otherwise.
func TestNamingChanges(t *testing.T) {
	w := newWorld(t, "team")
	for _, o := range byGimbal(gimbalPrefix, "up", "team", "app", 1, "10.0.0.1") {
		w.store(o)
	}
	w.deliver()
	w.set("up")
	w.list("up", app("team/app", "10.0.0.2"))
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app: 10.0.0.1", "team/up-app-"+digest("up", "team", "app")+": 10.0.0.2")
	w.set("up", gimbal)
	w.settle()
	w.unmirror()
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app: 10.0.0.2")
	expect(t, "stored", w.stored(), "team/up-app: 10.0.0.2")
	w.set("up")
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/up-app: 10.0.0.2")
	expect(t, "stored", w.stored(), "team/up-app: 10.0.0.2")
}

// Gimbal gave one name to two services of two backends. It stays with the backend that its label names.
func TestAdoptionOfCollision(t *testing.T) {
	w := newWorld(t, "team")
	for _, o := range byGimbal(gimbalPrefix, "a", "team", "b-c", 1, "10.0.0.1") {
		w.store(o)
	}
	w.deliver()
	w.set("a", gimbal)
	w.set("a-b", gimbal)
	w.list("a-b", app("team/c", "10.0.0.2"))
	w.list("a", app("team/b-c", "10.0.0.1"))
	w.settle()
	w.unmirror()
	w.settle()
	expect(t, "in effect", w.inEffect(), "team/a-b-c: 10.0.0.1", "team/a-b-c-"+digest("a-b", "team", "c")+": 10.0.0.2")
}
