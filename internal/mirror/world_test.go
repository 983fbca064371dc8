package mirror

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// world is a Mirror with a small API: a map of objects, a writer, and a watch that may be late.
type world struct {
	t   testing.TB
	m   *Mirror
	now time.Time

	api     map[snapshot.Key]snapshot.Object   // stored
	watch   map[snapshot.Key][]snapshot.Object // that m was not told of yet, oldest first
	pending map[snapshot.Key]Write             // that the writer has not written yet
	effect  map[snapshot.Key]snapshot.Object   // the sum of the changes that m gave
	changed []string                           // objects of the API that writes changed
	uid     int
}

const kindEndpoints snapshot.Kind = "Endpoints"

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// newWorld has these namespaces. m knows all of the API.
func newWorld(t testing.TB, namespaces ...string) *world {
	w := &world{
		t: t, m: New(), now: start, api: map[snapshot.Key]snapshot.Object{}, watch: map[snapshot.Key][]snapshot.Object{},
		pending: map[snapshot.Key]Write{}, effect: map[snapshot.Key]snapshot.Object{},
	}
	for _, n := range namespaces {
		w.store(namespace(n))
	}
	w.deliver()
	w.m.Known()
	return w
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func keyOfAny(o snapshot.Object) snapshot.Key {
	n := snapshot.Name{Namespace: o.GetNamespace(), Name: o.GetName()}
	switch o.(type) {
	case *corev1.Namespace:
		return snapshot.Key{Kind: snapshot.KindNamespace, Name: n}
	case *corev1.Endpoints: //nolint:staticcheck // Gimbal's
		return snapshot.Key{Kind: kindEndpoints, Name: n}
	}
	return keyOfObject(o)
}

// store has somebody write an object.
func (w *world) store(o snapshot.Object) {
	w.uid++
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprint("uid-", w.uid)))
		o.SetCreationTimestamp(metav1.NewTime(w.now))
	}
	o.SetResourceVersion(fmt.Sprint(w.uid))
	k := keyOfAny(o)
	w.api[k] = o
	w.watch[k] = append(w.watch[k], o)
}

// erase has somebody delete an object.
func (w *world) erase(k snapshot.Key) {
	if w.api[k] != nil {
		delete(w.api, k)
		w.watch[k] = append(w.watch[k], nil)
	}
}

// deliver tells m all that it was not told yet.
func (w *world) deliver() {
	for _, k := range slices.SortedFunc(maps.Keys(w.watch), snapshot.Key.Compare) {
		for len(w.watch[k]) > 0 {
			w.deliverOne(k)
		}
	}
}

func (w *world) deliverOne(k snapshot.Key) {
	o := w.watch[k][0]
	if w.watch[k] = w.watch[k][1:]; len(w.watch[k]) == 0 {
		delete(w.watch, k)
	}
	if Follows(k.Kind) {
		w.m.Stored(snapshot.Change{Key: k, Object: o})
	}
}

// take takes what m decided.
func (w *world) take() (changes []snapshot.Change, writes []Write) {
	w.t.Helper()
	changes, writes = w.m.Take()
	for _, c := range changes {
		if c.Object == nil {
			if w.effect[c.Key] == nil {
				w.t.Errorf("%v went from effect and was not in it", c.Key)
			}
			delete(w.effect, c.Key)
		} else {
			w.effect[c.Key] = c.Object
		}
	}
	for _, write := range writes {
		w.pending[keyOfAny(write.Wanted)] = write
	}
	return changes, writes
}

// write has the writer bring about one write. It leaves objects alone that are not ours.
func (w *world) write(k snapshot.Key) {
	write := w.pending[k]
	delete(w.pending, k)
	live := w.api[k]
	if live != nil && !Ours(live) {
		return
	}
	switch ns := w.api[snapshot.Key{Kind: snapshot.KindNamespace, Name: snapshot.Name{Name: k.Name.Namespace}}]; {
	case write.Absent && live == nil:
	case write.Absent:
		w.changed = append(w.changed, "delete "+k.String())
		w.erase(k)
	case live != nil:
		next := live.DeepCopyObject().(snapshot.Object)
		if Merge(next, write.Wanted) {
			w.changed = append(w.changed, "update "+k.String())
			w.store(next)
		}
	case ns == nil || ns.GetDeletionTimestamp() != nil:
		// The API refuses it, and the writer tries again later.
	default:
		w.changed = append(w.changed, "create "+k.String())
		w.store(write.Wanted.DeepCopyObject().(snapshot.Object))
	}
}

// settle lets everybody do all that there is to do, and returns the changes that were written.
func (w *world) settle() []string {
	w.t.Helper()
	w.changed = nil
	for range 30 {
		changes, writes := w.take()
		for _, k := range slices.SortedFunc(maps.Keys(w.pending), snapshot.Key.Compare) {
			w.write(k)
		}
		w.deliver()
		if len(changes)+len(writes)+len(w.m.dirty) == 0 {
			return w.changed
		}
	}
	w.t.Fatalf("it does not settle: %v", w.changed)
	return nil
}

// restart begins with another Mirror, which is told of all that is stored.
func (w *world) restart(upstreams ...*v1alpha1.Upstream) {
	w.m = New()
	clear(w.effect)
	clear(w.pending)
	clear(w.watch)
	for k, o := range w.api {
		if Follows(k.Kind) {
			w.m.Stored(snapshot.Change{Key: k, Object: o})
		}
	}
	for _, u := range upstreams {
		w.m.SetUpstream(u.Name, u, w.now)
	}
	w.m.Known()
}

// after moves the clock on.
func (w *world) after(d time.Duration) time.Time {
	w.now = w.now.Add(d)
	return w.m.Advance(w.now)
}

// list gives a complete list.
func (w *world) list(upstream string, services ...*model.UpstreamService) {
	w.m.Replace(upstream, services, w.now)
}

// set adds or changes an upstream.
func (w *world) set(name string, options ...func(*v1alpha1.Upstream)) *v1alpha1.Upstream {
	u := anUpstream(name, options...)
	w.m.SetUpstream(name, u, w.now)
	return u
}

// anUpstream is a cluster.
func anUpstream(name string, options ...func(*v1alpha1.Upstream)) *v1alpha1.Upstream {
	u := &v1alpha1.Upstream{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.UpstreamSpec{Kubernetes: &v1alpha1.KubernetesUpstream{Secret: name}}}
	for _, o := range options {
		o(u)
	}
	return u
}

func threshold(percent int32) func(*v1alpha1.Upstream) {
	return func(u *v1alpha1.Upstream) { u.Spec.Loss.Threshold = &percent }
}

func keepFor(d time.Duration) func(*v1alpha1.Upstream) {
	return func(u *v1alpha1.Upstream) { u.Spec.Loss.KeepFor = &metav1.Duration{Duration: d} }
}

func confirmed(at time.Time) func(*v1alpha1.Upstream) {
	return func(u *v1alpha1.Upstream) {
		u.Annotations = map[string]string{v1alpha1.AnnotationConfirmedAt: at.Format(time.RFC3339)}
	}
}

func gimbal(u *v1alpha1.Upstream) { u.Spec.Naming = v1alpha1.NamingGimbal }

func openStack(u *v1alpha1.Upstream) {
	u.Spec.Kubernetes, u.Spec.OpenStack = nil, &v1alpha1.OpenStackUpstream{Secret: u.Name}
}

func mapped(from, to string) func(*v1alpha1.Upstream) {
	return func(u *v1alpha1.Upstream) {
		u.Spec.Namespaces.Map = append(u.Spec.Namespaces.Map, v1alpha1.NamespaceMapping{From: from, To: to})
	}
}

// app is a service "scope/name" with a port and ready endpoints.
func app(key string, addresses ...string) *model.UpstreamService {
	scope, name, _ := strings.Cut(key, "/")
	s := &model.UpstreamService{
		Key: model.UpstreamKey{Scope: scope, Name: name}, Object: "Service " + key, Ports: []model.UpstreamPort{{Name: "http", Port: 80, Protocol: "TCP"}},
	}
	if len(addresses) > 0 {
		s.Slices = []model.UpstreamSlice{{Name: "a", Ports: []model.UpstreamPort{{Name: "http", Port: 8080, Protocol: "TCP"}}, Endpoints: ready(addresses...)}}
	}
	return s
}

func ready(addresses ...string) []model.UpstreamEndpoint {
	var all []model.UpstreamEndpoint
	for _, a := range addresses {
		all = append(all, model.UpstreamEndpoint{Address: netip.MustParseAddr(a), Ready: true, Serving: true})
	}
	return all
}

// addresses are n of a network of 16 bits: "10.1", 3 is 10.1.0.1 to 10.1.0.3.
func addresses(network string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("%s.%d.%d", network, (i+1)>>8, (i+1)&255))
	}
	return all
}

// inEffect shows the Services and their endpoints: "ns/name: 10.0.0.1 10.0.0.2!", where "!" is not ready.
func (w *world) inEffect() string { return render(w.effect) }

// stored shows what the API has.
func (w *world) stored() string { return render(w.api) }

func render(objects map[snapshot.Key]snapshot.Object) string {
	lines := map[string][]string{}
	for k, o := range objects {
		switch o := o.(type) {
		case *corev1.Service:
			if n := k.Name.String(); lines[n] == nil {
				lines[n] = []string{}
			}
		case *discoveryv1.EndpointSlice:
			n := k.Name.Namespace + "/" + o.Labels[discoveryv1.LabelServiceName]
			for _, e := range o.Endpoints {
				text := e.Addresses[0]
				if e.Conditions.Ready != nil && !*e.Conditions.Ready {
					text += "!"
				}
				lines[n] = append(lines[n], text)
			}
		}
	}
	var text []string
	for _, n := range slices.Sorted(maps.Keys(lines)) {
		slices.Sort(lines[n])
		text = append(text, strings.Join(append([]string{n + ":"}, lines[n]...), " "))
	}
	return strings.Join(text, "\n")
}

// expect compares text, line by line.
func expect(t testing.TB, what, have string, want ...string) {
	t.Helper()
	if have != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nexpected:\n%s", what, have, strings.Join(want, "\n"))
	}
}

// refusals are those of an upstream: "Reason object: message".
func (w *world) refusals(upstream string) string {
	s, _ := w.m.State(upstream, 100)
	var lines []string
	for _, r := range s.Refusals {
		lines = append(lines, fmt.Sprintf("%s %s: %s", r.Reason, r.Object, r.Message))
	}
	return strings.Join(lines, "\n")
}

// counts are those of a State: "seen 2/4 replicated 2/4 held 0/0".
func (w *world) counts(upstream string) string {
	s, _ := w.m.State(upstream, 0)
	return fmt.Sprintf("seen %d/%d replicated %d/%d held %d/%d",
		s.Seen.Services, s.Seen.Endpoints, s.Replicated.Services, s.Replicated.Endpoints, s.Held.Services, s.Held.Endpoints)
}

// use says of all present orphans whether something routes to them.
func (w *world) use(names ...snapshot.Name) {
	used := map[snapshot.Name]bool{}
	for _, n := range w.m.Orphans() {
		used[n] = slices.Contains(names, n)
	}
	w.m.Use(used)
}
