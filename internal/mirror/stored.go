package mirror

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// restore makes services of the stored objects of an upstream, so that its first list is compared with them. It does so
// without a list (nil) if the upstream does not answer.
func (m *Mirror) restore(u *upstream, listed map[model.UpstreamKey]*model.UpstreamService) {
	named := map[snapshot.Name]model.UpstreamKey{} // by the list
	for _, k := range sortedKeys(listed) {
		if plain := u.names(k, listed[k])[0]; named[plain] == (model.UpstreamKey{}) {
			named[plain] = k
		}
	}
	found := m.storedServices(u, listed)
	var others []*service // of other names than theirs
	for _, n := range slices.SortedFunc(maps.Keys(found), m.compareAges) {
		o := m.services[n]
		if o == nil || m.ownerOf(o) != u.name {
			continue
		}
		k, said := keyOf(o)
		scopeName := ""
		for _, s := range objectsOf(found[n]) { // more teams may edit the Service than EndpointSlices
			if k, said = keyOf(s); u.object.Spec.OpenStack != nil { // namespaces have no other name
				scopeName = s.GetAnnotations()[annotationScopeName]
			}
		}
		if l := listed[k]; l != nil {
			scopeName = l.ScopeName
		}
		e := &service{key: k, namespace: n.Namespace, name: n, from: &model.UpstreamService{ScopeName: scopeName}}
		if !said {
			if e.key, said = named[n]; said {
				e.from.ScopeName = listed[e.key].ScopeName
			}
		}
		switch {
		case !said && listed == nil:
		case !said: // Gimbal made it, and the upstream does not list it
			e.guessed = n
			e.key = model.UpstreamKey{Scope: n.Namespace, Name: cmp.Or(gimbalService(o.Labels), n.Name)}
			m.restoreOne(u, e, o, found[n])
		case slices.Contains(u.names(e.key, e.from), n):
			m.restoreOne(u, e, o, found[n])
		case n.Namespace == u.names(e.key, e.from)[0].Namespace:
			others = append(others, e)
		default: // a namespace is not believed what it says about services of another one
		}
	}
	for _, e := range others {
		m.restoreOne(u, e, m.services[e.name], found[e.name])
	}
}

// compareAges orders Services by age, the oldest first: who copies what another one's says comes later.
func (m *Mirror) compareAges(a, b snapshot.Name) int {
	age := func(n snapshot.Name) time.Time {
		if o := m.services[n]; o != nil {
			return o.CreationTimestamp.Time
		}
		return time.Time{}
	}
	return cmp.Or(age(a).Compare(age(b)), compareNames(a, b))
}

// restoreOne makes a service of its stored objects.
func (m *Mirror) restoreOne(u *upstream, e *service, o *corev1.Service, all []*discoveryv1.EndpointSlice) {
	if _, taken := m.owners[e.name]; taken || u.services[e.key] != nil {
		return
	}
	s := &model.UpstreamService{
		Key: e.key, ScopeName: e.from.ScopeName, Object: cmp.Or(o.Annotations[v1alpha1.AnnotationUpstreamObject], "Service "+e.key.String()),
		Labels: o.Labels, Annotations: asStored(o.Annotations), Ports: portsOf(o),
	}
	slices.SortFunc(all, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	named := map[string][]int{} // slices by name: there may be very many
	for _, o := range all {
		next := sliceOf(o)
		if i := slices.IndexFunc(named[next.Name], func(i int) bool { return slices.Equal(s.Slices[i].Ports, next.Ports) }); i >= 0 {
			part := &s.Slices[named[next.Name][i]]
			part.Endpoints = append(part.Endpoints, next.Endpoints...)
			continue
		}
		named[next.Name] = append(named[next.Name], len(s.Slices))
		s.Slices = append(s.Slices, next)
	}
	e.from, e.endpoints = s, s.Endpoints()
	u.services[e.key] = e
	m.locate(u, e, e.namespace)
	if e.guessed != (snapshot.Name{}) {
		u.guessed[e.guessed] = e.key
	}
	m.owners[e.name] = owner{u.name, e.key}
	m.markCopies(e.name)
	// Its objects are those that are stored, until the list says otherwise.
	for _, o := range append([]snapshot.Object{o}, objectsOf(all)...) {
		key := keyOfObject(o)
		e.objects = append(e.objects, key)
		m.wanted[key] = o
	}
	u.count(e)
	if len(all) > 0 && len(e.objects) == 1 { // its EndpointSlices are of what Gimbal wrote, and go
		m.place(u, e, s)
	}
}

// names are the names that a service may have: the plain one, and the hashed one.
func (u *upstream) names(k model.UpstreamKey, s *model.UpstreamService) []snapshot.Name {
	ns := namespaceOf(&u.object.Spec, k.Scope, s.ScopeName)
	return []snapshot.Name{{Namespace: ns, Name: u.plainName(k)}, {Namespace: ns, Name: u.hashedName(k)}}
}

// storedServices are the stored Services of an upstream, with their EndpointSlices. Those without EndpointSlices of ours
// count only if the list names them: anyone may write one.
func (m *Mirror) storedServices(u *upstream, listed map[model.UpstreamKey]*model.UpstreamService) map[snapshot.Name][]*discoveryv1.EndpointSlice {
	found := map[snapshot.Name][]*discoveryv1.EndpointSlice{}
	for k := range m.labelled[backend{name: u.name}] {
		if o := m.slices[k.Name]; k.Kind == snapshot.KindEndpointSlice && o.Labels[discoveryv1.LabelManagedBy] == v1alpha1.SliceManager {
			of := m.serviceOf(k)
			found[of] = append(found[of], o)
		}
	}
	if u.object.Spec.Naming == v1alpha1.NamingGimbal {
		for n, all := range m.copies {
			if o := m.services[n]; o == nil || gimbalBackend(o.Labels) != u.name || found[n] != nil {
				continue // or it is taken over already
			}
			for k := range all {
				found[n] = append(found[n], m.slices[k.Name])
			}
		}
	}
	for _, k := range sortedKeys(listed) {
		for _, n := range u.names(k, listed[k]) {
			if o := m.services[n]; o != nil && found[n] == nil {
				if said, is := keyOf(o); !is || said == k {
					found[n] = nil
				}
			}
		}
	}
	return found
}

func objectsOf(all []*discoveryv1.EndpointSlice) []snapshot.Object {
	var objects []snapshot.Object
	for _, o := range all {
		if o.Labels[discoveryv1.LabelManagedBy] == v1alpha1.SliceManager {
			objects = append(objects, o)
		}
	}
	return objects
}

func portsOf(o *corev1.Service) []model.UpstreamPort {
	var ports []model.UpstreamPort
	for _, p := range o.Spec.Ports {
		port := model.UpstreamPort{Name: p.Name, Port: uint16(p.Port), Protocol: string(p.Protocol)}
		if p.AppProtocol != nil {
			port.AppProtocol = *p.AppProtocol
		}
		ports = append(ports, port)
	}
	return ports
}

// sliceOf reads a stored EndpointSlice.
func sliceOf(o *discoveryv1.EndpointSlice) model.UpstreamSlice {
	name, said := o.Annotations[annotationSlice]
	if !said {
		name = o.Name
	}
	s := model.UpstreamSlice{Name: name}
	for _, p := range o.Ports {
		port := model.UpstreamPort{}
		if p.Name != nil {
			port.Name = *p.Name
		}
		if p.Port != nil {
			port.Port = uint16(*p.Port)
		}
		if p.Protocol != nil {
			port.Protocol = string(*p.Protocol)
		}
		if p.AppProtocol != nil {
			port.AppProtocol = *p.AppProtocol
		}
		s.Ports = append(s.Ports, port)
	}
	weights := map[string]uint32{}
	for entry := range strings.SplitSeq(o.Annotations[v1alpha1.AnnotationWeights], ",") {
		if a, text, is := strings.Cut(entry, "="); is {
			if w, err := strconv.ParseUint(text, 10, 32); err == nil {
				weights[a] = uint32(w)
			}
		}
	}
	backups := "," + o.Annotations[v1alpha1.AnnotationBackups] + ","
	for i := range o.Endpoints {
		p := &o.Endpoints[i]
		if len(p.Addresses) == 0 {
			continue
		}
		text := p.Addresses[0]
		a, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		ready := p.Conditions.Ready == nil || *p.Conditions.Ready
		e := model.UpstreamEndpoint{
			Address: a, Ready: ready, Serving: ready, Weight: weights[text], Backup: strings.Contains(backups, ","+text+","),
		}
		if p.Conditions.Serving != nil {
			e.Serving = *p.Conditions.Serving
		}
		if p.Conditions.Terminating != nil {
			e.Terminating = *p.Conditions.Terminating
		}
		if p.Zone != nil {
			e.Zone = *p.Zone
		}
		if p.Hints != nil {
			for _, z := range p.Hints.ForZones {
				e.ForZones = append(e.ForZones, z.Name)
			}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}
