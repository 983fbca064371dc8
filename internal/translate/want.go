package translate

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// request is what a resource says of the addresses that it wants. The zero value
// takes what it is given.
type request struct {
	pool string
	// addresses that it wants and no others, unless any is set or its families say more.
	addresses []netip.Addr
	any       bool
	field     netip.Addr // which of them spec.loadBalancerIP alone asks for; zero: none
	problem   string     // why it cannot be read, with the field's path
}

// addressPath is where what has no spec.addresses asks for an address.
func (q request) addressPath(a netip.Addr) string {
	if q.field == a {
		return "spec.loadBalancerIP: "
	}
	return "metadata.annotations[" + v1alpha1.AnnotationAddresses + "]: "
}

func (q request) empty() bool {
	return q.pool == "" && len(q.addresses) == 0 && !q.any && q.problem == ""
}

// of returns the addresses of a family that are asked for.
func (q request) of(fam family) []netip.Addr {
	var list []netip.Addr
	for _, a := range q.addresses {
		if familyOf(a) == fam {
			list = append(list, a)
		}
	}
	return list
}

// need says whether an owner takes an address of a family.
type need uint8

const (
	needNone     need = iota
	needOptional      // if a pool has the family
	needRequired
)

// want is what one owner wants of the pools.
type want struct {
	owner     model.Object
	created   int64
	request   request
	needs     [families]need
	listeners []model.ListenerID // at its addresses
	// idle owners have no use for an address while something is wrong with them. They
	// get none, and keep what they have: it would be another's when the slip is mended.
	idle bool
	// share is the owner that Services which share addresses are together; sharers are those
	// that are one owner, those of its namespace and the oldest first.
	share   model.Object
	sharers []*want
}

// needs are those of an owner that is content with what there is.
func (q request) needs() [families]need {
	if (len(q.addresses) > 0 || q.problem != "") && !q.any {
		return [families]need{}
	}
	return [families]need{needOptional, needOptional}
}

// gatewayRequest reads spec.addresses; unsupported is told of types that cannot be.
func gatewayRequest(o *gatewayv1.Gateway, unsupported func(problem string)) request {
	q := request{pool: o.Annotations[v1alpha1.AnnotationPool]}
	for i, a := range o.Spec.Addresses {
		path := at("spec.addresses", i)
		if a.Type != nil && *a.Type != gatewayv1.IPAddressType {
			unsupported(path + ".type: " + quote(string(*a.Type)) + " is not supported: only IPAddress is")
			continue
		}
		if a.Value == "" {
			q.any = true
			continue
		}
		address, err := parsePlain(a.Value)
		if err != nil {
			q.problem = joinProblems(nonEmpty(q.problem), []string{path + ".value: " + err.Error()})
			continue
		}
		q.addresses = append(q.addresses, address)
	}
	slices.SortFunc(q.addresses, netip.Addr.Compare)
	q.addresses = slices.Compact(q.addresses)
	return q
}

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

// annotationRequest reads the annotations of what has no field for it.
func annotationRequest(annotations map[string]string) request {
	q := request{pool: annotations[v1alpha1.AnnotationPool]}
	text, said := annotations[v1alpha1.AnnotationAddresses]
	if !said {
		return q
	}
	path := "metadata.annotations[" + v1alpha1.AnnotationAddresses + "]: "
	for part := range strings.SplitSeq(text, ",") {
		address, err := parsePlain(strings.TrimSpace(part))
		switch {
		case err != nil:
			return request{pool: q.pool, problem: path + err.Error()}
		case len(q.of(familyOf(address))) > 0:
			return request{pool: q.pool, problem: path + "at most one " + familyOf(address).String() + " address can be asked for"}
		}
		q.addresses = append(q.addresses, address)
	}
	slices.SortFunc(q.addresses, netip.Addr.Compare)
	return q
}

// serviceRequest reads the annotations of a Service, and the deprecated field that asks for
// one address.
func serviceRequest(o *corev1.Service) request {
	q := annotationRequest(o.Annotations)
	if o.Spec.LoadBalancerIP == "" || q.problem != "" {
		return q
	}
	const path = "spec.loadBalancerIP: "
	address, err := parsePlain(o.Spec.LoadBalancerIP)
	if err != nil {
		return request{pool: q.pool, problem: path + err.Error()}
	}
	asked := q.of(familyOf(address))
	switch {
	case len(asked) == 0:
		q.addresses, q.field = append(q.addresses, address), address
		slices.SortFunc(q.addresses, netip.Addr.Compare)
	case asked[0] != address:
		return request{pool: q.pool, problem: path + address.String() + ", but metadata.annotations[" + v1alpha1.AnnotationAddresses + "] asks for " + asked[0].String() + ": ask for one of them"}
	}
	return q
}

// isOurs reports whether a Service is one of type LoadBalancer that is ours to serve.
func isOurs(o *corev1.Service) bool {
	return o != nil && o.Spec.Type == corev1.ServiceTypeLoadBalancer && deref(o.Spec.LoadBalancerClass) == v1alpha1.LoadBalancerClass
}

func serviceOwner(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindService), Namespace: n.Namespace, Name: n.Name}
}

// wantOfService reads ipFamilyPolicy and ipFamilies: the first family of a Service is
// required, the second if the policy says so.
func wantOfService(o *corev1.Service) *want {
	if !isOurs(o) {
		return nil
	}
	w := &want{
		owner:   serviceOwner(snapshot.Name{Namespace: o.Namespace, Name: o.Name}),
		created: o.CreationTimestamp.Unix(), request: serviceRequest(o),
	}
	first := ipv4
	if len(o.Spec.IPFamilies) > 0 && o.Spec.IPFamilies[0] == corev1.IPv6Protocol {
		first = ipv6
	}
	w.needs[first] = needRequired
	switch deref(o.Spec.IPFamilyPolicy) {
	case corev1.IPFamilyPolicyRequireDualStack:
		w.needs[1-first] = needRequired
	case corev1.IPFamilyPolicyPreferDualStack:
		w.needs[1-first] = needOptional
	case corev1.IPFamilyPolicySingleStack:
	}
	if w.request.problem != "" {
		w.needs = [families]need{}
	}
	for _, a := range w.request.addresses {
		if fam := familyOf(a); w.needs[fam] == needNone && w.request.problem == "" {
			w.request.addresses, w.needs = nil, [families]need{}
			w.request.problem = w.request.addressPath(a) + a.String() + ": spec.ipFamilies has no " + fam.String()
		}
	}
	w.readShare(o.Annotations)
	return w
}
