package mirror

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// keyOf reads the key of the service that a stored object is of; false: the object does not say.
func keyOf(o snapshot.Object) (model.UpstreamKey, bool) {
	scope, name, said := strings.Cut(o.GetAnnotations()[v1alpha1.AnnotationUpstreamService], "/")
	return model.UpstreamKey{Scope: scope, Name: name}, said
}

// restore makes services of the stored objects of an upstream, so that its first list is compared with them. It does so
// without a list (nil) if the upstream does not answer. Services without EndpointSlices of ours are left out: anyone may
// write one.
func (m *Mirror) restore(u *upstream, listed map[model.UpstreamKey]*model.UpstreamService) {
	ofService, ofGimbal := map[snapshot.Name][]*discoveryv1.EndpointSlice{}, map[snapshot.Name][]*discoveryv1.EndpointSlice{}
	for n, o := range m.slicesOf(u) {
		of := snapshot.Name{Namespace: n.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}
		switch {
		case o.Labels[discoveryv1.LabelManagedBy] == v1alpha1.SliceManager && o.Labels[v1alpha1.LabelUpstream] == u.name:
			ofService[of] = append(ofService[of], o)
		case m.isGimbalsOf(u, of, o):
			ofGimbal[of] = append(ofGimbal[of], o)
		}
	}
	for n, all := range ofGimbal {
		if ofService[n] == nil { // else it is taken over already
			ofService[n] = all
		}
	}
	unnamed := map[snapshot.Name]model.UpstreamKey{} // of Services that Gimbal made
	for k, s := range listed {
		unnamed[snapshot.Name{Namespace: Namespace(&u.object.Spec, k.Scope, s.ScopeName), Name: u.plainName(k)}] = k
	}
	for _, n := range slices.SortedFunc(maps.Keys(ofService), compareNames) {
		o, all := m.services[n], ofService[n]
		if o == nil || m.ownerOf(o) != u.name {
			continue
		}
		s := &model.UpstreamService{
			ScopeName: o.Annotations[annotationScopeName], Object: o.Annotations[v1alpha1.AnnotationUpstreamObject], Labels: o.Labels, Annotations: o.Annotations,
		}
		k, said := keyOf(o)
		if !said {
			if k, said = unnamed[n]; said {
				s.ScopeName = listed[k].ScopeName
			} else {
				k = model.UpstreamKey{Scope: n.Namespace, Name: cmp.Or(gimbalService(o.Labels), n.Name)}
			}
		}
		if u.services[k] != nil || !said && listed == nil {
			continue
		}
		s.Key, s.Ports = k, portsOf(o)
		slices.SortFunc(all, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
		for _, o := range all {
			next := sliceOf(o)
			if i := slices.IndexFunc(s.Slices, func(b model.UpstreamSlice) bool { return b.Name == next.Name && slices.Equal(b.Ports, next.Ports) }); i >= 0 {
				s.Slices[i].Endpoints = append(s.Slices[i].Endpoints, next.Endpoints...)
				continue
			}
			s.Slices = append(s.Slices, next)
		}
		e := &service{key: k, from: s, namespace: n.Namespace, name: n, guessed: !said}
		u.services[k] = e
		if e.guessed {
			s.Object = cmp.Or(s.Object, "Service "+k.String())
			u.guessed[n] = k
		}
		m.owners[n] = owner{u.name, k}
		// Its objects are those that are stored, until the list says otherwise.
		e.endpoints = s.Endpoints()
		for _, o := range append([]snapshot.Object{o}, objectsOf(all)...) {
			key := keyOfObject(o)
			e.objects = append(e.objects, key)
			m.wanted[key] = o
		}
		u.count(e)
		if len(e.objects) == 1 { // its EndpointSlices are of what Gimbal wrote, and go
			m.place(u, e, s)
		}
	}
}

// slicesOf are the stored EndpointSlices that may be of an upstream.
func (m *Mirror) slicesOf(u *upstream) map[snapshot.Name]*discoveryv1.EndpointSlice {
	if u.object.Spec.Naming == v1alpha1.NamingGimbal {
		return m.slices
	}
	found := map[snapshot.Name]*discoveryv1.EndpointSlice{}
	for k := range m.labelled[backend{name: u.name}] {
		if k.Kind == snapshot.KindEndpointSlice {
			found[k.Name] = m.slices[k.Name]
		}
	}
	return found
}

// isGimbalsOf says whether an EndpointSlice has the endpoints of a Service that Gimbal made and the upstream takes over.
func (m *Mirror) isGimbalsOf(u *upstream, of snapshot.Name, o *discoveryv1.EndpointSlice) bool {
	service := m.services[of]
	return service != nil && u.object.Spec.Naming == v1alpha1.NamingGimbal && gimbalBackend(service.Labels) == u.name &&
		o.Labels[discoveryv1.LabelManagedBy] == mirroringManager
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
