package frontend

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/policy"
)

// Service is what a Service of our class says of how it is balanced.
type Service struct {
	Ports     []balancedPort
	Sources   []netip.Prefix // sorted
	affinity  time.Duration
	localOnly bool
	// Refused are ports that cannot be balanced, in words.
	Refused []string
	// Problem says why nothing is balanced; notes what is worth knowing else.
	Problem string
	Notes   []string
}

// balancedPort is a port at which a Service's addresses take in connections or datagrams.
type balancedPort struct {
	name      string
	Number    int32
	Transport model.Transport
}

func newService(o *corev1.Service) *Service {
	if !input.IsOurs(o) {
		return nil
	}
	f := &Service{localOnly: o.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal}
	for i, p := range o.Spec.Ports {
		port := balancedPort{name: p.Name, Number: p.Port, Transport: model.Transport(cmp.Or(p.Protocol, corev1.ProtocolTCP))}
		switch {
		case port.Transport != model.TCP && port.Transport != model.UDP:
			f.Refused = append(f.Refused, field.At("spec.ports", i)+".protocol: "+field.Quote(string(p.Protocol))+" cannot be balanced: only TCP and UDP can")
		case p.Port < 1 || p.Port > 65535:
			f.Refused = append(f.Refused, field.At("spec.ports", i)+".port: "+strconv.Itoa(int(p.Port))+" must be in the range 1-65535")
		case !slices.ContainsFunc(f.Ports, func(q balancedPort) bool { return q.Number == port.Number && q.Transport == port.Transport }):
			f.Ports = append(f.Ports, port)
		}
	}
	for i, text := range o.Spec.LoadBalancerSourceRanges {
		prefix, ok := address.ParsePrefix(text)
		if !ok {
			// To leave it out would let in whom nobody wanted.
			f.Problem = field.At("spec.loadBalancerSourceRanges", i) + ": " + field.Quote(text) + " is not a CIDR like 192.0.2.0/24"
			break
		}
		f.Sources = append(f.Sources, prefix)
	}
	f.Sources = address.SortPrefixes(f.Sources)
	if o.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		f.affinity = policy.DefaultAffinity
		if c := o.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && field.Deref(c.ClientIP.TimeoutSeconds) > 0 {
			f.affinity = time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
		}
	}
	if _, problem := backend.DrainedBackends(o); problem != "" {
		f.Notes = append(f.Notes, problem)
	}
	f.Notes = append(f.Notes, foreignNotes(o)...)
	f.Notes = append(f.Notes, field.NonEmpty(field.MeasuredNote(o.Annotations, v1alpha1.MetricsOfBackend))...)
	f.Notes = append(f.Notes, field.UnknownAnnotations(o.Annotations, v1alpha1.AnnotationPool, v1alpha1.AnnotationAddresses, v1alpha1.AnnotationShareVIP, v1alpha1.AnnotationDrainedBackends, v1alpha1.AnnotationMetrics)...)
	return f
}

// foreignNotes name annotations by which other load balancers are asked for an address, and which
// mean nothing here, with ours in their place. Where ours is there, too, nothing is lacking.
func foreignNotes(o *corev1.Service) (notes []string) {
	for _, a := range []struct{ who, theirs, ours string }{
		{"MetalLB", "metallb.io/loadBalancerIPs", v1alpha1.AnnotationAddresses},
		{"MetalLB", "metallb.universe.tf/loadBalancerIPs", v1alpha1.AnnotationAddresses},
		{"MetalLB", "metallb.io/address-pool", v1alpha1.AnnotationPool},
		{"MetalLB", "metallb.universe.tf/address-pool", v1alpha1.AnnotationPool},
		{"MetalLB", "metallb.io/allow-shared-ip", v1alpha1.AnnotationShareVIP},
		{"MetalLB", "metallb.universe.tf/allow-shared-ip", v1alpha1.AnnotationShareVIP},
		{"kube-vip", "kube-vip.io/loadbalancerIPs", v1alpha1.AnnotationAddresses},
	} {
		said := o.Annotations[a.ours] != "" || a.ours == v1alpha1.AnnotationAddresses && o.Spec.LoadBalancerIP != ""
		if o.Annotations[a.theirs] != "" && !said {
			notes = append(notes, "metadata.annotations["+a.theirs+"]: only "+a.who+" reads it: use "+a.ours+" instead")
		}
	}
	return notes
}
