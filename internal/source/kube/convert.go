package kube

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
)

// service is what is kept of a Service. Nobody changes one.
type service struct {
	labels, annotations map[string]string
	ports               []model.UpstreamPort
	refused             []model.UpstreamRefusal
	more                int // refusals than these
	// excluded services have no slices. Those that are refused as a whole have no ports either.
	excluded bool
}

// slice is what is kept of an EndpointSlice. Nobody changes one.
type slice struct {
	service string // its name, in the same namespace
	slice   model.UpstreamSlice
	refused []model.UpstreamRefusal
	more    int // refusals than these
	// excluded slices are refused as a whole.
	excluded bool
	changed  time.Time // when the cluster says that its cause happened
}

// discoveredLabels are the labels of Services that were discovered, here or by another Fairlead or Gimbal.
var discoveredLabels = []string{v1alpha1.LabelUpstream, "gimbal.heptio.com/backend", "gimbal.projectcontour.io/backend"}

// convertService is nil for a Service that is not given at all.
func convertService(o *corev1.Service) *service {
	if o.Namespace == metav1.NamespaceDefault && o.Name == "kubernetes" {
		return nil
	}
	object := serviceObject(o.Namespace, o.Name)
	for _, label := range discoveredLabels {
		if from, ok := o.Labels[label]; ok {
			return &service{excluded: true, refused: []model.UpstreamRefusal{{
				Object: object, Reason: model.RefusedLoop,
				Message: fmt.Sprintf("it was itself discovered, from %q (label %s)", clip(from), label),
			}}}
		}
	}
	out := &service{labels: copyLabels(o.Labels), annotations: copyAnnotations(o.Annotations)}
	r := refusals{object: object}
	if o.Spec.Type == corev1.ServiceTypeExternalName { // a route to one of its ports is valid, and answers 503
		out.excluded = true
		r.add(object, model.RefusedExternalName, "it is a name (%s), which has no endpoints", clip(o.Spec.ExternalName))
	}
	ports := o.Spec.Ports
	if len(ports) > maxServicePorts {
		r.add(object, model.RefusedAnswer, "it has %d ports, and %d are read", len(ports), maxServicePorts)
		ports = ports[:maxServicePorts]
	}
	for i := range ports {
		p := &ports[i]
		protocol := cmp.Or(string(p.Protocol), string(corev1.ProtocolTCP))
		if slices.ContainsFunc(out.ports, func(o model.UpstreamPort) bool { return int32(o.Port) == p.Port && o.Protocol == protocol }) {
			r.add(portObject(protocol, int64(p.Port), object), model.RefusedPort, "another port has the same number")
			continue
		}
		out.ports = r.port(out.ports, p.Name, int64(p.Port), protocol, p.AppProtocol)
	}
	out.refused, out.more = r.all, r.more
	return out
}

// convertSlice is nil for an EndpointSlice that is not given at all.
func convertSlice(o *discoveryv1.EndpointSlice) *slice {
	name := o.Labels[discoveryv1.LabelServiceName]
	if !canBe(o.Namespace, name) {
		return nil
	}
	object := "EndpointSlice " + o.Namespace + "/" + o.Name
	out := &slice{service: name, slice: model.UpstreamSlice{Name: o.Name}}
	if t, err := time.Parse(time.RFC3339Nano, o.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
		out.changed = t.UTC()
	}
	r := refusals{object: object}
	defer func() { out.refused, out.more = r.all, r.more }()
	out.excluded = true
	switch {
	case o.AddressType != discoveryv1.AddressTypeIPv4 && o.AddressType != discoveryv1.AddressTypeIPv6:
		r.add(object, model.RefusedNoAddress, "its endpoints are of type %s, which are no addresses", clip(string(o.AddressType)))
		return out
	case len(o.Endpoints) > maxSliceEndpoints || len(o.Ports) > maxSlicePorts:
		r.add(object, model.RefusedAnswer, "it has %d endpoints and %d ports; at most %d and %d are possible", len(o.Endpoints), len(o.Ports), maxSliceEndpoints, maxSlicePorts)
		return out
	}
	out.excluded = false
	for i := range o.Ports {
		p := &o.Ports[i]
		if p.Port == nil {
			r.add(object, model.RefusedPort, "its port %q has no number", clip(value(p.Name)))
			continue
		}
		out.slice.Ports = r.port(out.slice.Ports, value(p.Name), int64(*p.Port), string(value(p.Protocol)), p.AppProtocol)
	}
	out.slice.Endpoints = make([]model.UpstreamEndpoint, 0, len(o.Endpoints))
	for i := range o.Endpoints {
		if e, ok := r.endpoint(&o.Endpoints[i], o.AddressType); ok {
			out.slice.Endpoints = append(out.slice.Endpoints, e)
		}
	}
	return out
}

func serviceObject(namespace, name string) string { return "Service " + namespace + "/" + name }

// refusals collects what is left out of an object.
type refusals struct {
	object string
	all    []model.UpstreamRefusal
	more   int
}

func (r *refusals) add(object string, reason model.RefusalReason, format string, args ...any) {
	if len(r.all) >= maxRefusals {
		r.more++
		return
	}
	r.all = append(r.all, model.UpstreamRefusal{Object: object, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

// port appends a port, or refuses it.
func (r *refusals) port(ports []model.UpstreamPort, name string, number int64, protocol string, app *string) []model.UpstreamPort {
	protocol = cmp.Or(protocol, string(corev1.ProtocolTCP))
	object := portObject(protocol, number, r.object)
	if name != "" && len(validation.IsDNS1123Label(name)) > 0 {
		r.add(object, model.RefusedPort, "no port can have the name %q", clip(name))
		return ports
	}
	if protocol != string(corev1.ProtocolTCP) && protocol != string(corev1.ProtocolUDP) && protocol != string(corev1.ProtocolSCTP) {
		r.add(object, model.RefusedProtocol, "its protocol is neither TCP, UDP nor SCTP")
		return ports
	}
	if number < 1 || number > math.MaxUint16 {
		r.add(object, model.RefusedPort, "its number is not from 1 to %d", math.MaxUint16)
		return ports
	}
	p := model.UpstreamPort{Name: intern(name), Port: uint16(number), Protocol: intern(protocol)}
	for _, other := range ports {
		// The ports of a slice may differ in their names alone: two targets with the same number.
		if other.Name == p.Name {
			r.add(object, model.RefusedPort, "another port has the same name")
			return ports
		}
	}
	if v := value(app); v != "" && len(v) <= validation.DNS1123SubdomainMaxLength && len(validation.IsQualifiedName(v)) == 0 {
		p.AppProtocol = intern(v)
	}
	return append(ports, p)
}

func portObject(protocol string, number int64, of string) string {
	return fmt.Sprintf("port %s/%d of %s", clip(protocol), number, of)
}

// endpoint converts an endpoint, or refuses it. Its first address stands for all of them, as everywhere in Kubernetes.
func (r *refusals) endpoint(e *discoveryv1.Endpoint, family discoveryv1.AddressType) (model.UpstreamEndpoint, bool) {
	if len(e.Addresses) == 0 {
		r.add(r.object, model.RefusedNoAddress, "an endpoint has no address")
		return model.UpstreamEndpoint{}, false
	}
	text := e.Addresses[0]
	object := "endpoint " + clip(text) + " of " + r.object
	a, err := netip.ParseAddr(text)
	if err != nil {
		r.add(object, model.RefusedNoAddress, "it is no address")
		return model.UpstreamEndpoint{}, false
	}
	if a = a.Unmap(); a.Is4() != (family == discoveryv1.AddressTypeIPv4) {
		r.add(object, model.RefusedNoAddress, "its address is not of type %s", family)
		return model.UpstreamEndpoint{}, false
	}
	if a.Zone() != "" || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() {
		r.add(object, model.RefusedNoAddress, "no other machine reaches this address")
		return model.UpstreamEndpoint{}, false
	}
	// Unknown conditions have the meanings that the API documents.
	ready := e.Conditions.Ready == nil || *e.Conditions.Ready
	out := model.UpstreamEndpoint{
		Address: a, Ready: ready, Serving: ready, Terminating: value(e.Conditions.Terminating), Zone: zoneName(value(e.Zone)),
	}
	if e.Conditions.Serving != nil {
		out.Serving = *e.Conditions.Serving
	}
	if e.Hints != nil && len(e.Hints.ForZones) <= maxZoneHints {
		for _, z := range e.Hints.ForZones {
			if name := zoneName(z.Name); name != "" {
				out.ForZones = append(out.ForZones, name)
			}
		}
	}
	return out, true
}

// zoneName is a zone's name; empty if no zone can have it.
func zoneName(name string) string {
	if len(validation.IsValidLabelValue(name)) > 0 {
		return ""
	}
	return intern(name)
}

// intern keeps a text that many objects have in memory once.
func intern(s string) string { return unique.Make(s).Value() }

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// clip bounds a text of the upstream in a message, and leaves out what is not to be printed.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return cloud.Printable(s)
	}
	return cloud.Printable(s[:most]) + "…"
}

// canBe says whether Kubernetes can have an object of this name in this namespace.
func canBe(namespace, name string) bool {
	return len(namespace) <= validation.DNS1123LabelMaxLength && len(validation.IsDNS1123Label(namespace)) == 0 &&
		len(name) <= validation.DNS1123SubdomainMaxLength && len(validation.IsDNS1123Subdomain(name)) == 0
}

func copyLabels(labels map[string]string) map[string]string {
	var out map[string]string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		v := labels[key]
		if model.IsForeignLabel(key) || len(out) >= maxLabels ||
			len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(v)) > 0 {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = v
	}
	return out
}

func copyAnnotations(annotations map[string]string) map[string]string {
	var out map[string]string
	size := 0
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		v := annotations[key]
		if model.IsForeignKey(key) || len(out) >= maxAnnotations || len(v) > maxAnnotationValue ||
			size+len(key)+len(v) > maxAnnotationBytes || len(validation.IsQualifiedName(strings.ToLower(key))) > 0 {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = v
		size += len(key) + len(v)
	}
	return out
}

func equalService(a, b *service) bool {
	return a.excluded == b.excluded && a.more == b.more && maps.Equal(a.labels, b.labels) && maps.Equal(a.annotations, b.annotations) &&
		slices.Equal(a.ports, b.ports) && slices.Equal(a.refused, b.refused)
}

// equalSlice compares what is given; the time of a change alone is no change.
func equalSlice(a, b *slice) bool {
	return a.service == b.service && a.excluded == b.excluded && a.more == b.more && a.slice.Same(b.slice) && slices.Equal(a.refused, b.refused)
}

// bytes is about how much memory a service takes, with its key.
func (s *service) bytes(key model.UpstreamKey) int64 {
	n := 256 + len(key.Scope) + len(key.Name) + refusalBytes(s.refused)
	for k, v := range s.labels {
		n += 64 + len(k) + len(v)
	}
	for k, v := range s.annotations {
		n += 64 + len(k) + len(v)
	}
	for _, p := range s.ports {
		n += 64 + len(p.Name) + len(p.AppProtocol)
	}
	return int64(n)
}

// bytes is about how much memory a slice takes, with its key.
func (s *slice) bytes(key model.UpstreamKey) int64 {
	n := 256 + 2*len(key.Scope) + 2*len(key.Name) + len(s.service) + refusalBytes(s.refused)
	for _, p := range s.slice.Ports {
		n += 64 + len(p.Name) + len(p.AppProtocol)
	}
	for i := range s.slice.Endpoints {
		n += 128 + len(s.slice.Endpoints[i].Zone)
		for _, zone := range s.slice.Endpoints[i].ForZones {
			n += 16 + len(zone)
		}
	}
	return int64(n)
}

func refusalBytes(all []model.UpstreamRefusal) int {
	n := 0
	for i := range all {
		n += 64 + len(all[i].Object) + len(all[i].Message)
	}
	return n
}
