package mirror

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

const (
	// managedBy is the label that names the program that owns an object.
	managedBy = "app.kubernetes.io/managed-by"
	manager   = "fairlead"
	// maxEndpoints is the largest number of endpoints in an EndpointSlice of ours.
	maxEndpoints = 500
)

// build makes the Service and the EndpointSlices of a service.
func (m *Mirror) build(u *upstream, e *service) []snapshot.Object {
	ports := e.admitPorts()
	service := u.service(e, ports)
	all := []snapshot.Object{service}
	valid := make(map[string]bool, len(ports))
	for _, p := range ports {
		valid[p.Name] = true
	}
	for i := range e.from.Slices {
		s := e.from.Slices[i]
		if len(ports) < len(e.from.Ports) {
			s.Ports = slices.DeleteFunc(slices.Clone(s.Ports), func(p model.UpstreamPort) bool { return !valid[p.Name] })
			if len(s.Ports) == 0 {
				continue
			}
		}
		in := u.admitEndpoints(e, &s)
		for _, v4 := range []bool{true, false} {
			family := slices.DeleteFunc(slices.Clone(in), func(p model.UpstreamEndpoint) bool { return p.Address.Is4() != v4 })
			for n := 0; len(family) > 0; n++ {
				part := family[:min(len(family), maxEndpoints)]
				family = family[len(part):]
				all = append(all, u.slice(service, e, &s, part, n))
			}
		}
	}
	return all
}

// admitPorts finds the ports of a service that an API accepts, and notes those that it would not.
func (e *service) admitPorts() []model.UpstreamPort {
	var valid []model.UpstreamPort
	for _, p := range e.from.Ports {
		fault := ""
		switch {
		case p.Name == "" && len(e.from.Ports) > 1:
			fault = "it has no name, and is not the only port"
		case p.Name != "" && len(validation.IsDNS1123Label(p.Name)) > 0:
			fault = "no port can have its name"
		case p.Port == 0 || p.Protocol != "TCP" && p.Protocol != "UDP" && p.Protocol != "SCTP":
			fault = "its number is 0, or its protocol is not TCP, UDP or SCTP"
		case slices.ContainsFunc(valid, func(q model.UpstreamPort) bool {
			return p.Name == q.Name || p.Port == q.Port && p.Protocol == q.Protocol
		}):
			fault = "another port has its name, or its number and protocol"
		}
		if p.AppProtocol != "" && len(validation.IsQualifiedName(p.AppProtocol)) > 0 {
			p.AppProtocol = ""
		}
		if fault == "" {
			valid = append(valid, p)
			continue
		}
		e.refused = append(e.refused, model.UpstreamRefusal{
			Object: e.from.Object, Reason: model.RefusedPort, Message: "port " + strconv.Itoa(int(p.Port)) + " is left out: " + fault,
		})
	}
	return valid
}

// zonesOf are the topology hints that an API accepts: at most 8, each once.
func zonesOf(hints []string) []discoveryv1.ForZone {
	var zones []discoveryv1.ForZone
	for _, z := range hints {
		if len(zones) < 8 && z != "" && len(validation.IsValidLabelValue(z)) == 0 && !slices.Contains(zones, discoveryv1.ForZone{Name: z}) {
			zones = append(zones, discoveryv1.ForZone{Name: z})
		}
	}
	return zones
}

func (u *upstream) service(e *service, ports []model.UpstreamPort) *corev1.Service {
	theirs := labelsOf(e.from)
	o := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.name.Namespace, Name: e.name.Name, Labels: u.labels(e, theirs),
			Annotations: maps.Clone(e.from.Annotations),
		},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Type: corev1.ServiceTypeClusterIP},
	}
	if o.Annotations == nil {
		o.Annotations = map[string]string{}
	}
	note, stored := o.Annotations[annotationCopied]
	for _, k := range ours {
		delete(o.Annotations, k)
	}
	switch {
	case !stored:
		o.Annotations[annotationCopied] = noteCopied(theirs, o.Annotations)
	case note != "":
		o.Annotations[annotationCopied] = note
	}
	o.Annotations[v1alpha1.AnnotationUpstreamObject] = e.from.Object
	if e.guessed == (snapshot.Name{}) {
		o.Annotations[v1alpha1.AnnotationUpstreamService] = e.key.String()
	}
	if e.from.ScopeName != "" {
		o.Annotations[annotationScopeName] = e.from.ScopeName
	}
	for _, p := range ports {
		port := corev1.ServicePort{Name: p.Name, Port: int32(p.Port), Protocol: corev1.Protocol(p.Protocol), TargetPort: intstr.FromInt32(int32(p.Port))}
		if p.AppProtocol != "" {
			port.AppProtocol = &p.AppProtocol
		}
		o.Spec.Ports = append(o.Spec.Ports, port)
	}
	return o
}

// labelsOf are the labels of a service that its Service here can have.
func labelsOf(s *model.UpstreamService) map[string]string {
	labels := map[string]string{}
	for k, v := range s.Labels {
		if !isReserved(k) && len(validation.IsQualifiedName(k)) == 0 && len(validation.IsValidLabelValue(v)) == 0 {
			labels[k] = v
		}
	}
	return labels
}

// labels are those of a Service: those of the upstream, and ours.
func (u *upstream) labels(e *service, theirs map[string]string) map[string]string {
	labels := maps.Clone(theirs)
	labels[v1alpha1.LabelUpstream], labels[managedBy] = u.name, manager
	if u.object.Spec.Naming == v1alpha1.NamingGimbal {
		maps.Copy(labels, gimbalLabels(u.name, e.from))
	}
	return labels
}

// isReserved says whether a label of an upstream would have a meaning here that its author may not give it. The labels of load
// balancers are the sources' own.
func isReserved(key string) bool {
	return key != v1alpha1.LabelLoadBalancerID && key != v1alpha1.LabelLoadBalancerName && model.IsForeignLabel(key)
}

// slice makes a part of a slice of a service, of one family.
func (u *upstream) slice(service *corev1.Service, e *service, s *model.UpstreamSlice, endpoints []model.UpstreamEndpoint, part int) *discoveryv1.EndpointSlice {
	family := discoveryv1.AddressTypeIPv4
	if endpoints[0].Address.Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	end := "-" + digest(u.name, e.key.Scope, e.key.Name, s.Name, string(family), strconv.Itoa(part))
	o := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.name.Namespace, Name: e.name.Name + end,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: service.Name, discoveryv1.LabelManagedBy: v1alpha1.SliceManager, v1alpha1.LabelUpstream: u.name,
			},
			Annotations: map[string]string{annotationSlice: s.Name},
		},
		AddressType: family,
	}
	if e.guessed == (snapshot.Name{}) {
		o.Annotations[v1alpha1.AnnotationUpstreamService] = e.key.String()
	}
	if e.from.ScopeName != "" {
		o.Annotations[annotationScopeName] = e.from.ScopeName
	}
	for _, p := range s.Ports {
		number, protocol := int32(p.Port), corev1.Protocol(p.Protocol)
		port := discoveryv1.EndpointPort{Name: &p.Name, Port: &number, Protocol: &protocol}
		if p.AppProtocol != "" {
			port.AppProtocol = &p.AppProtocol
		}
		o.Ports = append(o.Ports, port)
	}
	var weights, backups []string
	for _, p := range endpoints {
		endpoint := discoveryv1.Endpoint{
			Addresses:  []string{p.Address.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &p.Ready, Serving: &p.Serving, Terminating: &p.Terminating},
		}
		if p.Zone != "" && len(validation.IsValidLabelValue(p.Zone)) == 0 {
			endpoint.Zone = &p.Zone
		}
		if zones := zonesOf(p.ForZones); len(zones) > 0 {
			endpoint.Hints = &discoveryv1.EndpointHints{ForZones: zones}
		}
		if p.Weight > 1 {
			weights = append(weights, p.Address.String()+"="+strconv.FormatUint(uint64(p.Weight), 10))
		}
		if p.Backup {
			backups = append(backups, p.Address.String())
		}
		o.Endpoints = append(o.Endpoints, endpoint)
	}
	if len(weights) > 0 {
		o.Annotations[v1alpha1.AnnotationWeights] = strings.Join(weights, ",")
	}
	if len(backups) > 0 {
		o.Annotations[v1alpha1.AnnotationBackups] = strings.Join(backups, ",")
	}
	return o
}

const (
	// annotationSlice names the part of a service that an EndpointSlice has.
	annotationSlice = "fairlead.dev/upstream-slice"
	// annotationScopeName is the name of the project of a Service.
	annotationScopeName = "fairlead.dev/upstream-project"
)

// ours are the annotations that only Fairlead gives.
var ours = []string{
	v1alpha1.AnnotationUpstreamObject, v1alpha1.AnnotationUpstreamService, annotationSlice, annotationScopeName,
	v1alpha1.AnnotationWeights, v1alpha1.AnnotationBackups, annotationCopied,
}

// merged is a stored object with the wanted fields: the stored one itself if it has them, the wanted one if none is stored.
// Labels and annotations that others have added stay.
func merged(stored, wanted snapshot.Object) snapshot.Object {
	if stored == nil {
		return wanted
	}
	if has(stored, wanted) {
		return stored
	}
	next := stored.DeepCopyObject().(snapshot.Object)
	Merge(next, wanted)
	return next
}

// Ours says whether an object was made by us, or by Gimbal.
func Ours(o metav1.Object) bool {
	return o.GetLabels()[v1alpha1.LabelUpstream] != "" || gimbalBackend(o.GetLabels()) != ""
}

// Merge sets the wanted fields of a live object that is ours, and reports whether that changes it. The two share nothing
// after it.
func Merge(live, wanted metav1.Object) bool {
	if has(live, wanted) {
		return false
	}
	labels, annotations := copied(live.GetAnnotations())
	live.SetLabels(with(live.GetLabels(), wanted.GetLabels(), labels))
	live.SetAnnotations(with(live.GetAnnotations(), wanted.GetAnnotations(), ours, annotations))
	switch w := wanted.(type) {
	case *corev1.Service:
		if l, is := live.(*corev1.Service); is {
			l.Spec.Ports, l.Spec.Selector = w.DeepCopy().Spec.Ports, nil
		}
	case *discoveryv1.EndpointSlice:
		if l, is := live.(*discoveryv1.EndpointSlice); is {
			w = w.DeepCopy()
			l.Endpoints, l.Ports = w.Endpoints, w.Ports
		}
	}
	return true
}

// has says whether an object has the wanted fields.
func has(o, wanted metav1.Object) bool {
	labels, annotations := copied(o.GetAnnotations())
	if !contains(o.GetLabels(), wanted.GetLabels(), labels) || !contains(o.GetAnnotations(), wanted.GetAnnotations(), ours, annotations) {
		return false
	}
	switch w := wanted.(type) {
	case *corev1.Service:
		l, is := o.(*corev1.Service) // with a selector its endpoints would be pods of here
		return is && len(l.Spec.Selector) == 0 && equality.Semantic.DeepEqual(l.Spec.Ports, w.Spec.Ports)
	case *discoveryv1.EndpointSlice:
		l, is := o.(*discoveryv1.EndpointSlice)
		return is && slices.EqualFunc(l.Endpoints, w.Endpoints, sameEndpoint) && equality.Semantic.DeepEqual(l.Ports, w.Ports)
	}
	return true
}

// sameEndpoint says whether two endpoints are the same. There may be very many, and most are of a form that is compared without
// reflection, which takes most of the time.
func sameEndpoint(a, b discoveryv1.Endpoint) bool {
	plain := func(e *discoveryv1.Endpoint) bool {
		return e.Hostname == nil && e.TargetRef == nil && e.DeprecatedTopology == nil && e.NodeName == nil && e.Hints == nil
	}
	x, y := &a.Conditions, &b.Conditions
	return plain(&a) && plain(&b) && slices.Equal(a.Addresses, b.Addresses) && samePointed(a.Zone, b.Zone) &&
		samePointed(x.Ready, y.Ready) && samePointed(x.Serving, y.Serving) && samePointed(x.Terminating, y.Terminating) ||
		equality.Semantic.DeepEqual(a, b)
}

func samePointed[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// with returns a map with the wanted values in it, and without those keys of ours that are not wanted.
func with(live, wanted map[string]string, ours ...[]string) map[string]string {
	next := maps.Clone(live)
	if next == nil {
		next = map[string]string{}
	}
	for _, keys := range ours {
		for _, k := range keys {
			delete(next, k)
		}
	}
	maps.Copy(next, wanted)
	return next
}

// contains says whether a map is as with would make it.
func contains(live, wanted map[string]string, ours ...[]string) bool {
	for k, v := range wanted {
		if text, is := live[k]; !is || text != v {
			return false
		}
	}
	for _, keys := range ours {
		for _, k := range keys {
			_, is := live[k]
			if _, want := wanted[k]; is && !want {
				return false
			}
		}
	}
	return true
}
