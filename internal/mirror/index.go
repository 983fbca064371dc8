package mirror

import (
	"iter"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// backend is what a label names.
type backend struct {
	name   string
	gimbal bool
}

// owner is a service of an upstream.
type owner struct {
	upstream string
	key      model.UpstreamKey
}

// index notes a stored object among those of its upstream and its Service, or takes it out.
func (m *Mirror) index(k snapshot.Key, in bool) {
	o := m.storedObject(k)
	if o == nil {
		return
	}
	if by := backendOf(o); by != (backend{}) {
		note(m.labelled, by, k, in)
		if u := m.upstreams[by.name]; in && !by.gimbal && u != nil && u.early != nil {
			m.noteEarly(u.early, k)
		}
	}
	if isCopy(o) {
		note(m.copies, m.serviceOf(k), k, in)
	}
}

func note[K, V comparable](index map[K]map[V]bool, at K, k V, in bool) {
	if !in {
		if delete(index[at], k); len(index[at]) == 0 {
			delete(index, at)
		}
		return
	}
	if index[at] == nil {
		index[at] = map[V]bool{}
	}
	index[at][k] = true
}

// backendOf is what the labels of an object name; zero: nothing.
func backendOf(o snapshot.Object) backend {
	if name := o.GetLabels()[v1alpha1.LabelUpstream]; name != "" {
		return backend{name: name}
	}
	if name := gimbalBackend(o.GetLabels()); name != "" {
		return backend{name, true}
	}
	return backend{}
}

// markCopies has the EndpointSlices looked at again that Kubernetes has made of the Endpoints of a Service.
func (m *Mirror) markCopies(n snapshot.Name) {
	for k := range m.copies[n] {
		m.dirty[k] = true
	}
}

// markOf has all stored objects of an upstream looked at again.
func (m *Mirror) markOf(name string) {
	for _, gimbal := range []bool{false, true} {
		for k := range m.labelled[backend{name, gimbal}] {
			m.dirty[k] = true
		}
	}
}

// locate notes in which namespace a service is to be; empty: in none.
func (m *Mirror) locate(u *upstream, e *service, namespace string) {
	note(m.inNamespace, e.namespace, owner{u.name, e.key}, false)
	if e.namespace = namespace; namespace != "" {
		note(m.inNamespace, namespace, owner{u.name, e.key}, true)
	}
}

func (m *Mirror) storedObject(k snapshot.Key) snapshot.Object {
	switch k.Kind {
	case snapshot.KindService:
		if o := m.services[k.Name]; o != nil {
			return o
		}
	case snapshot.KindEndpointSlice:
		if o := m.slices[k.Name]; o != nil {
			return o
		}
	}
	return nil
}

// serviceOf is the name of the Service that a stored object belongs to.
func (m *Mirror) serviceOf(k snapshot.Key) snapshot.Name {
	if k.Kind == snapshot.KindEndpointSlice {
		return snapshot.Name{Namespace: k.Name.Namespace, Name: m.slices[k.Name].Labels[discoveryv1.LabelServiceName]}
	}
	return k.Name
}

// ownerOf is the Upstream that an object is of; empty: it is not ours. What Gimbal has made is the Upstream's that takes it over.
func (m *Mirror) ownerOf(o snapshot.Object) string {
	labels := o.GetLabels()
	if isCopy(o) {
		return ""
	}
	if name := labels[v1alpha1.LabelUpstream]; name != "" {
		return name
	}
	name := gimbalBackend(labels)
	if u := m.upstreams[name]; u != nil && u.object.Spec.Naming == v1alpha1.NamingGimbal {
		return name
	}
	return ""
}

// noteEarly notes a stored object of an upstream.
func (m *Mirror) noteEarly(e *early, k snapshot.Key) {
	n := m.serviceOf(k)
	if e.stored[n] == nil {
		e.stored[n] = map[snapshot.Key]bool{}
	}
	e.stored[n][k] = true
	if of, said := keyOf(m.storedObject(k)); said && k.Kind == snapshot.KindService {
		e.names[of] = n
	}
}

// isForeign says whether a Service of the name is stored that is not ours.
func (m *Mirror) isForeign(n snapshot.Name) bool {
	o := m.services[n]
	return o != nil && m.ownerOf(o) == ""
}

// free says whether a name is no other service's in effect, and no other Service's.
func (m *Mirror) free(n snapshot.Name, me owner) bool {
	o, taken := m.owners[n]
	return !m.isForeign(n) && (!taken || o == me)
}

// storedOf is the service that a stored Service of the name is of, without a key if the Service does not tell it; zero:
// none, or one that goes.
func (m *Mirror) storedOf(n snapshot.Name) owner {
	o := m.services[n]
	if o == nil {
		return owner{}
	}
	by := m.ownerOf(o)
	if by == "" || m.upstreams[by] == nil && m.isUnused(n) {
		return owner{}
	}
	k, _ := keyOf(o)
	return owner{by, k}
}

// Orphans are the Services whose Upstream does not exist. Of some there may be EndpointSlices only.
func (m *Mirror) Orphans() []snapshot.Name {
	if !m.known {
		return nil
	}
	names := map[snapshot.Name]bool{}
	for k := range m.orphaned() {
		names[m.serviceOf(k)] = true
	}
	return slices.SortedFunc(maps.Keys(names), compareNames)
}

// orphaned are the stored objects whose Upstream does not exist.
func (m *Mirror) orphaned() iter.Seq[snapshot.Key] {
	return func(yield func(snapshot.Key) bool) {
		for by, keys := range m.labelled {
			if by.gimbal || m.upstreams[by.name] != nil {
				continue
			}
			for k := range keys {
				if !yield(k) {
					return
				}
			}
		}
	}
}

// isUnused says whether nothing routes to a Service whose Upstream does not exist.
func (m *Mirror) isUnused(n snapshot.Name) bool {
	used, judged := m.used[n]
	return judged && !used
}

// mirrorsGimbal says whether a stored EndpointSlice was made by Kubernetes of the Endpoints that Gimbal wrote for a
// Service that an upstream has taken over. Nobody keeps them any more.
func (m *Mirror) mirrorsGimbal(o snapshot.Object) bool {
	n := snapshot.Name{Namespace: o.GetNamespace(), Name: o.GetLabels()[discoveryv1.LabelServiceName]}
	by, ours := m.owners[n]
	service := m.services[n]
	return isCopy(o) && ours && service != nil && gimbalBackend(service.Labels) == by.upstream
}
