package translate

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/near"
)

// balancedFact is what a Service of our class says of how it is balanced.
type balancedFact struct {
	ports     []balancedPort
	sources   []netip.Prefix // sorted
	affinity  time.Duration
	localOnly bool
	// refused are ports that cannot be balanced, in words.
	refused []string
	// problem says why nothing is balanced; notes what is worth knowing else.
	problem string
	notes   []string
}

// balancedPort is a port at which a Service's addresses take in connections or datagrams.
type balancedPort struct {
	name      string
	number    int32
	transport model.Transport
}

// defaultAffinity is how long the API server keeps a client at its backend where
// sessionAffinityConfig does not say.
const defaultAffinity = 3 * time.Hour

func makeBalancedFact(o *corev1.Service) *balancedFact {
	if !isOurs(o) {
		return nil
	}
	f := &balancedFact{localOnly: o.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal}
	for i, p := range o.Spec.Ports {
		port := balancedPort{name: p.Name, number: p.Port, transport: model.Transport(cmp.Or(p.Protocol, corev1.ProtocolTCP))}
		switch {
		case port.transport != model.TCP && port.transport != model.UDP:
			f.refused = append(f.refused, at("spec.ports", i)+".protocol: "+quote(string(p.Protocol))+" cannot be balanced: only TCP and UDP can")
		case p.Port < 1 || p.Port > 65535:
			f.refused = append(f.refused, at("spec.ports", i)+".port: "+strconv.Itoa(int(p.Port))+" must be in the range 1-65535")
		case !slices.ContainsFunc(f.ports, func(q balancedPort) bool { return q.number == port.number && q.transport == port.transport }):
			f.ports = append(f.ports, port)
		}
	}
	for i, text := range o.Spec.LoadBalancerSourceRanges {
		prefix, ok := parsePrefix(text)
		if !ok {
			// To leave it out would let in whom nobody wanted.
			f.problem = at("spec.loadBalancerSourceRanges", i) + ": " + quote(text) + " is no CIDR like 192.0.2.0/24"
			break
		}
		f.sources = append(f.sources, prefix)
	}
	f.sources = sortPrefixes(f.sources)
	if o.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		f.affinity = defaultAffinity
		if c := o.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && deref(c.ClientIP.TimeoutSeconds) > 0 {
			f.affinity = time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
		}
	}
	if _, problem := drainedBackends(o); problem != "" {
		f.notes = append(f.notes, problem)
	}
	f.notes = append(f.notes, foreignNotes(o)...)
	f.notes = append(f.notes, unknownNotes(o.Annotations, v1alpha1.AnnotationPool, v1alpha1.AnnotationAddresses, v1alpha1.AnnotationShareVIP, v1alpha1.AnnotationDrainedBackends)...)
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

// unknownLimit is how many annotations that nothing reads are named.
const unknownLimit = 5

// unknownAnnotations are those in our domain that nothing reads: the first unknownLimit, sorted,
// and how many more there are.
func unknownAnnotations(annotations map[string]string, known []string) (names []string, more int) {
	for name := range annotations {
		if !strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") || slices.Contains(known, name) {
			continue
		}
		i, _ := slices.BinarySearch(names, name)
		if names = slices.Insert(names, i, name); len(names) > unknownLimit {
			names, more = names[:unknownLimit], more+1
		}
	}
	return names, more
}

// unknownNotes name annotations in our domain that nothing reads, with those that may have been
// meant.
func unknownNotes(annotations map[string]string, known ...string) (notes []string) {
	names, more := unknownAnnotations(annotations, known)
	for _, name := range names {
		notes = append(notes, unknownNote(name, known))
	}
	return append(notes, moreUnknown(more)...)
}

func unknownNote(name string, known []string) string {
	return "metadata.annotations[" + name + "]: nothing reads it" + cmp.Or(near.DidYouMean(name, known), "; known are "+strings.Join(known, ", "))
}

// moreUnknown counts those that are not named, if there are any.
func moreUnknown(more int) []string {
	if more == 0 {
		return nil
	}
	return []string{"metadata.annotations: nothing reads " + strconv.Itoa(more) + " more of " + v1alpha1.GroupVersion.Group}
}

// gatewayNotes are unknownNotes of a Gateway, which asks for addresses in a field.
func gatewayNotes(annotations map[string]string) (notes []string) {
	known := []string{v1alpha1.AnnotationPool, v1alpha1.AnnotationHosts}
	names, more := unknownAnnotations(annotations, known)
	for _, name := range names {
		if name == v1alpha1.AnnotationAddresses || slices.Contains(near.Names(name, []string{v1alpha1.AnnotationPool, v1alpha1.AnnotationAddresses}), v1alpha1.AnnotationAddresses) {
			notes = append(notes, "metadata.annotations["+name+"]: a Gateway asks for addresses in spec.addresses")
		} else {
			notes = append(notes, unknownNote(name, known))
		}
	}
	return append(notes, moreUnknown(more)...)
}

func sortPrefixes(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, comparePrefixes)
	return slices.Compact(list)
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// nobody is a source that no client has.
var nobody = netip.PrefixFrom(netip.IPv6Unspecified(), 128)

// bothSources are the clients that are in both lists; an empty list is everybody.
func bothSources(a, b []netip.Prefix) []netip.Prefix {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	var both []netip.Prefix
	for _, p := range a {
		for _, q := range b {
			switch {
			case !p.Overlaps(q):
			case p.Bits() > q.Bits():
				both = append(both, p)
			default:
				both = append(both, q)
			}
		}
	}
	if len(both) == 0 {
		return []netip.Prefix{nobody}
	}
	return sortPrefixes(both)
}
