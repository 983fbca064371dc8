package vip

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// Request is what a resource says of the addresses that it wants. The zero value
// takes what it is given.
type Request struct {
	pool string
	// addresses that it wants and no others, unless any is set or its families say more.
	addresses []netip.Addr
	any       bool
	field     netip.Addr // which of them spec.loadBalancerIP alone asks for; zero: none
	problem   string     // why it cannot be read, with the field's path
}

// addressPath is where what has no spec.addresses asks for an address.
func (q Request) addressPath(a netip.Addr) string {
	if q.field == a {
		return "spec.loadBalancerIP: "
	}
	return "metadata.annotations[" + v1alpha1.AnnotationAddresses + "]: "
}

// Empty reports that nothing is requested.
func (q Request) Empty() bool {
	return q.pool == "" && len(q.addresses) == 0 && !q.any && q.problem == ""
}

// of returns the addresses of a family that are asked for.
func (q Request) of(fam address.Family) []netip.Addr {
	var list []netip.Addr
	for _, a := range q.addresses {
		if address.FamilyOf(a) == fam {
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

// Want is what one owner wants of the pools.
type Want struct {
	Owner     model.Object
	Created   int64
	Request   Request
	Needs     [address.Families]need
	Listeners []model.ListenerID // at its addresses
	// Idle owners have no use for an address while something is wrong with them. They
	// get none, and keep what they have: it would be another's when the slip is mended.
	Idle bool
	// share is the owner that Services which share addresses are together; sharers are those
	// that are one owner, those of its namespace and the oldest first.
	share   model.Object
	sharers []*Want
}

// Needs are those of an owner that is content with what there is.
func (q Request) Needs() [address.Families]need {
	if (len(q.addresses) > 0 || q.problem != "") && !q.any {
		return [address.Families]need{}
	}
	return [address.Families]need{needOptional, needOptional}
}

// GatewayRequest reads spec.addresses; unsupported is told of types that cannot be.
func GatewayRequest(o *gatewayv1.Gateway, unsupported func(problem string)) Request {
	q := Request{pool: o.Annotations[v1alpha1.AnnotationPool]}
	for i, a := range o.Spec.Addresses {
		path := field.At("spec.addresses", i)
		if a.Type != nil && *a.Type != gatewayv1.IPAddressType {
			unsupported(path + ".type: " + field.Quote(string(*a.Type)) + " is not supported: only IPAddress is")
			continue
		}
		if a.Value == "" {
			q.any = true
			continue
		}
		address, err := address.ParsePlain(a.Value)
		if err != nil {
			q.problem = condition.Join(field.NonEmpty(q.problem), []string{path + ".value: " + err.Error()})
			continue
		}
		q.addresses = append(q.addresses, address)
	}
	slices.SortFunc(q.addresses, netip.Addr.Compare)
	q.addresses = slices.Compact(q.addresses)
	return q
}

// AnnotationRequest reads the annotations of what has no field for it.
func AnnotationRequest(annotations map[string]string) Request {
	q := Request{pool: annotations[v1alpha1.AnnotationPool]}
	text, said := annotations[v1alpha1.AnnotationAddresses]
	if !said {
		return q
	}
	path := "metadata.annotations[" + v1alpha1.AnnotationAddresses + "]: "
	for part := range strings.SplitSeq(text, ",") {
		addr, err := address.ParsePlain(strings.TrimSpace(part))
		switch {
		case err != nil:
			return Request{pool: q.pool, problem: path + err.Error()}
		case len(q.of(address.FamilyOf(addr))) > 0:
			return Request{pool: q.pool, problem: path + "at most one " + address.FamilyOf(addr).String() + " address can be asked for"}
		}
		q.addresses = append(q.addresses, addr)
	}
	slices.SortFunc(q.addresses, netip.Addr.Compare)
	return q
}

// serviceRequest reads the annotations of a Service, and the deprecated field that asks for
// one address.
func serviceRequest(o *corev1.Service) Request {
	q := AnnotationRequest(o.Annotations)
	if o.Spec.LoadBalancerIP == "" || q.problem != "" {
		return q
	}
	const path = "spec.loadBalancerIP: "
	addr, err := address.ParsePlain(o.Spec.LoadBalancerIP)
	if err != nil {
		return Request{pool: q.pool, problem: path + err.Error()}
	}
	asked := q.of(address.FamilyOf(addr))
	switch {
	case len(asked) == 0:
		q.addresses, q.field = append(q.addresses, addr), addr
		slices.SortFunc(q.addresses, netip.Addr.Compare)
	case asked[0] != addr:
		return Request{pool: q.pool, problem: path + addr.String() + ", but metadata.annotations[" + v1alpha1.AnnotationAddresses + "] asks for " + asked[0].String() + ": ask for one of them"}
	}
	return q
}

// wantOfService reads ipFamilyPolicy and ipFamilies: the first family of a Service is
// required, the second if the policy says so.
func wantOfService(o *corev1.Service) *Want {
	if !input.IsOurs(o) {
		return nil
	}
	w := &Want{
		Owner:   input.Object(snapshot.KindService, snapshot.Name{Namespace: o.Namespace, Name: o.Name}),
		Created: o.CreationTimestamp.Unix(), Request: serviceRequest(o),
	}
	first := address.IPv4
	if len(o.Spec.IPFamilies) > 0 && o.Spec.IPFamilies[0] == corev1.IPv6Protocol {
		first = address.IPv6
	}
	w.Needs[first] = needRequired
	switch field.Deref(o.Spec.IPFamilyPolicy) {
	case corev1.IPFamilyPolicyRequireDualStack:
		w.Needs[1-first] = needRequired
	case corev1.IPFamilyPolicyPreferDualStack:
		w.Needs[1-first] = needOptional
	case corev1.IPFamilyPolicySingleStack:
	}
	if w.Request.problem != "" {
		w.Needs = [address.Families]need{}
	}
	for _, a := range w.Request.addresses {
		if fam := address.FamilyOf(a); w.Needs[fam] == needNone && w.Request.problem == "" {
			w.Request.addresses, w.Needs = nil, [address.Families]need{}
			w.Request.problem = w.Request.addressPath(a) + a.String() + ": spec.ipFamilies has no " + fam.String()
		}
	}
	w.readShare(o.Annotations)
	return w
}

// readShare reads the key with which a Service shares addresses, KEY or NAMESPACE/KEY.
func (w *Want) readShare(annotations map[string]string) {
	text, said := annotations[v1alpha1.AnnotationShareVIP]
	if !said {
		return
	}
	namespace, key, foreign := strings.Cut(text, "/")
	if !foreign {
		namespace, key = w.Owner.Namespace, text
	}
	if !field.IsLabel(namespace) || !field.IsLabel(key) {
		w.Needs, w.Request = [address.Families]need{}, Request{pool: w.Request.pool, problem: "metadata.annotations[" + v1alpha1.AnnotationShareVIP + "]: " +
			field.Quote(text) + " must be 1 to 63 lower-case letters, digits and inner hyphens, and so the namespace before it, as in team/key, where the VIP is another namespace's"}
		return
	}
	w.share = model.SharingServices(namespace, key)
}

// guest says that the Service shares addresses that are another namespace's.
func (w *Want) guest() bool { return w.share.Namespace != w.Owner.Namespace }
