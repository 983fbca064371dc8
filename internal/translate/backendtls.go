package translate

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

type policyVerdict = verdict[gatewayv1.PolicyConditionReason]

// backendTLSFact is a BackendTLSPolicy judged for itself.
type backendTLSFact struct {
	name     snapshot.Name
	targets  []tlsTarget
	accepted policyVerdict
	resolved policyVerdict
	// tls is how backends are verified; nil when the policy is invalid. Then nothing may be
	// sent to them.
	tls *model.BackendTLS
}

// tlsTarget is a Service, or the port of it that section names.
type tlsTarget struct {
	service snapshot.Name
	section string
}

func (f *backendTLSFact) problem() string {
	if f.accepted.failed {
		return f.accepted.message
	}
	return f.resolved.message
}

func backendTLSObject(n snapshot.Name) model.Object {
	return model.Object{Kind: string(snapshot.KindBackendTLSPolicy), Namespace: n.Namespace, Name: n.Name}
}

// targetsOf are the Services that a policy speaks of, in its order.
func targetsOf(o *gatewayv1.BackendTLSPolicy) []tlsTarget {
	var targets []tlsTarget
	for _, ref := range o.Spec.TargetRefs {
		if ref.Group == "" && ref.Kind == gatewayv1.Kind(snapshot.KindService) {
			targets = append(targets, tlsTarget{snapshot.Name{Namespace: o.Namespace, Name: string(ref.Name)}, string(deref(ref.SectionName))})
		}
	}
	return targets
}

// attachedTLS is what a policy says of itself to the index.
type attachedTLS struct {
	created int64
	targets []tlsTarget
}

// inputBackendTLS takes note of a policy that changed.
func (t *Translator) inputBackendTLS(s *snapshot.Snapshot, n snapshot.Name) {
	t.graph.mark(named(nodeBackendTLS, n))
	t.graph.mark(named(nodeBackendTLSStatus, n))
	var after attachedTLS
	if o := s.BackendTLSPolicies[n]; o != nil {
		after.created = o.CreationTimestamp.Unix()
		for _, target := range targetsOf(o) {
			if !slices.Contains(after.targets, target) {
				after.targets = append(after.targets, target)
			}
		}
	}
	before, slots := t.index.attachedTLS[n], t.index.tlsSlots
	for _, target := range before.targets {
		if before.created == after.created && slices.Contains(after.targets, target) {
			continue
		}
		slot := slots[target]
		if slot.remove(n) {
			t.graph.changed(named(nodePoliciesOf, target.service))
		}
		if len(slot.created) == 0 {
			delete(slots, target)
		}
	}
	for _, target := range after.targets {
		if slots[target] == nil {
			slots[target] = &policySlot{created: map[snapshot.Name]int64{}}
		}
		if slots[target].add(n, after.created) {
			t.graph.changed(named(nodePoliciesOf, target.service))
		}
	}
	if len(after.targets) == 0 {
		delete(t.index.attachedTLS, n)
	} else {
		t.index.attachedTLS[n] = after
	}
}

// backendTLS returns the policy that holds for a Service's port: of those that name the
// port the oldest, else of those that name the whole Service. It has precedence also when
// it is invalid. Nil when there is none.
func (r reader) backendTLS(service snapshot.Name, port string) *backendTLSFact {
	r.t.graph.read(r.by, named(nodePoliciesOf, service))
	if port != "" {
		if f := r.firstPolicy(tlsTarget{service, port}); f != nil {
			return f
		}
	}
	return r.firstPolicy(tlsTarget{service, ""})
}

// firstPolicy is the policy that holds for a target; nil when there is none.
func (r reader) firstPolicy(target tlsTarget) *backendTLSFact {
	holder := r.tlsHolder(target)
	if holder == (snapshot.Name{}) {
		return nil
	}
	r.t.graph.read(r.by, named(nodeBackendTLS, holder))
	return r.t.backendTLS[holder]
}

// tlsHolder names the oldest policy of those with one and the same target. It is found without a look at
// the others, of which anybody of the namespace may make thousands.
func (r reader) tlsHolder(target tlsTarget) snapshot.Name {
	r.t.graph.read(r.by, named(nodePoliciesOf, target.service))
	if slot := r.t.index.tlsSlots[target]; slot != nil {
		return slot.holder
	}
	return snapshot.Name{}
}

func makeBackendTLSFact(r reader, n snapshot.Name) *backendTLSFact {
	o := r.s.BackendTLSPolicies[n]
	if o == nil {
		return nil
	}
	f := &backendTLSFact{name: n, targets: targetsOf(o)}
	for i, ref := range o.Spec.TargetRefs {
		if ref.Group != "" || ref.Kind != gatewayv1.Kind(snapshot.KindService) {
			f.accepted.fail(gatewayv1.PolicyReasonInvalid, at("spec.targetRefs", i)+".kind: "+kindText(string(ref.Group), string(ref.Kind))+" cannot be the target: only Service can")
		}
	}
	tls := &model.BackendTLS{}
	const path = "spec.validation"
	invalid := func(field, problem string) {
		f.accepted.fail(gatewayv1.PolicyReasonInvalid, path+field+": "+problem)
	}
	v := &o.Spec.Validation
	tls.ServerName = strings.ToLower(string(v.Hostname))
	if problem := hostProblem(tls.ServerName, false); problem != "" {
		invalid(".hostname", problem)
	}
	for i, name := range v.SubjectAltNames {
		field := at(".subjectAltNames", i)
		switch name.Type {
		case gatewayv1.HostnameSubjectAltNameType:
			host := strings.ToLower(string(name.Hostname))
			if problem := hostProblem(host, true); problem != "" {
				invalid(field+".hostname", problem)
			}
			tls.Names = append(tls.Names, model.AltName{DNS: host})
		case gatewayv1.URISubjectAltNameType:
			u, err := url.Parse(string(name.URI))
			if err != nil || u.Scheme == "" || !printable(string(name.URI)) || u.Host == "" && u.Path == "" && u.Opaque == "" {
				invalid(field+".uri", quote(string(name.URI))+` is no absolute URI, like "spiffe://example.com/app"`)
			}
			tls.Names = append(tls.Names, model.AltName{URI: string(name.URI)})
		default:
			invalid(field+".type", quote(string(name.Type))+" is unknown")
		}
	}
	wellKnown := deref(v.WellKnownCACertificates)
	switch {
	case len(v.CACertificateRefs) > 0 && wellKnown != "":
		invalid("", "only one of caCertificateRefs and wellKnownCACertificates can be specified")
	case len(v.CACertificateRefs) == 0 && wellKnown == "":
		invalid("", "one of caCertificateRefs and wellKnownCACertificates must be specified")
	case wellKnown != "" && wellKnown != gatewayv1.WellKnownCACertificatesSystem:
		invalid(".wellKnownCACertificates", quote(string(wellKnown))+" is unknown: only System is")
	}
	for i, ref := range v.CACertificateRefs {
		if id := f.authority(r, ref, n.Namespace, at(path+".caCertificateRefs", i)); id != "" {
			tls.Authorities = append(tls.Authorities, id)
		}
	}
	if len(v.CACertificateRefs) > 0 && len(tls.Authorities) == 0 {
		f.accepted.fail(gatewayv1.BackendTLSPolicyReasonNoValidCACertificate, "no reference leads to a CA certificate: "+f.resolved.message)
	}
	for _, key := range sortedKeys(o.Spec.Options) {
		if strings.HasPrefix(string(key), "fairlead.dev/") || !strings.Contains(string(key), "/") {
			f.accepted.fail(gatewayv1.PolicyReasonInvalid, "spec.options: "+quote(string(key))+" is unknown")
		}
	}
	if !f.accepted.failed {
		slices.Sort(tls.Authorities)
		tls.Authorities = slices.Compact(tls.Authorities)
		f.tls = tls
	}
	return f
}

// authority resolves one reference to CA certificates; empty when it is broken.
func (f *backendTLSFact) authority(r reader, ref gatewayv1.LocalObjectReference, namespace, path string) model.AuthorityID {
	kind := snapshot.Kind(ref.Kind)
	if ref.Group != "" || kind != snapshot.KindConfigMap && kind != snapshot.KindSecret {
		f.resolved.fail(gatewayv1.BackendTLSPolicyReasonInvalidKind,
			path+".kind: "+kindText(string(ref.Group), string(ref.Kind))+" holds no CA certificates: only ConfigMap and Secret do")
		return ""
	}
	a := r.authority(kind, snapshot.Name{Namespace: namespace, Name: string(ref.Name)})
	if a.problem != "" {
		f.resolved.fail(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, path+": "+string(kind)+" "+namespace+"/"+string(ref.Name)+" "+a.problem)
		return ""
	}
	return a.authority.ID
}

// kindText names a kind of a group.
func kindText(group, kind string) string {
	if group != "" {
		kind += "." + group
	}
	return quote(kind)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// ancestorLimit is how many ancestors a policy's status may have.
const ancestorLimit = 16

// computeBackendTLSStatus writes a policy's status, for each Gateway whose routes use the
// Service. Where only IngressRoutes do, the Service itself is what the status speaks of.
func (t *Translator) computeBackendTLSStatus(r reader, n node) {
	name := n.name()
	object := backendTLSObject(name)
	o := r.s.BackendTLSPolicies[name]
	if o == nil {
		publish(t.result.Statuses, t.out.Statuses, object, nil)
		return
	}
	r.t.graph.read(r.by, named(nodeBackendTLS, name))
	f := t.backendTLS[name]
	accepted := f.accepted
	users := map[model.Object]bool{}
	var holds []string
	for _, target := range f.targets {
		if problem := r.targetProblem(target); problem != "" {
			accepted.fail(gatewayv1.PolicyReasonTargetNotFound, problem)
		} else if first := r.tlsHolder(target); first != name {
			accepted.fail(gatewayv1.PolicyReasonConflicted, "BackendTLSPolicy "+first.String()+", which came first, holds for "+target.String())
		} else {
			holds = append(holds, target.String())
		}
		for _, user := range r.usersOf(target.service) {
			users[user] = true
		}
	}
	if accepted.failed && !f.accepted.failed && len(holds) > 0 {
		accepted.message += "; it holds for " + strings.Join(holds, ", ")
	}
	conditions := []metav1.Condition{
		policyCondition(gatewayv1.PolicyConditionAccepted, accepted, gatewayv1.PolicyReasonAccepted, "the policy is accepted", o.Generation),
		policyCondition(gatewayv1.BackendTLSPolicyConditionResolvedRefs, f.resolved, gatewayv1.BackendTLSPolicyReasonResolvedRefs, "all references are resolved", o.Generation),
	}
	status := &gatewayv1.PolicyStatus{Ancestors: []gatewayv1.PolicyAncestorStatus{}}
	var ancestors []model.Object
	for user := range users {
		ancestors = append(ancestors, user)
	}
	slices.SortFunc(ancestors, model.Object.Compare)
	for _, user := range ancestors[:min(len(ancestors), ancestorLimit)] {
		status.Ancestors = append(status.Ancestors, gatewayv1.PolicyAncestorStatus{
			AncestorRef: parentReference(user), ControllerName: t.config.ControllerName, Conditions: slices.Clone(conditions),
		})
	}
	publish(t.result.Statuses, t.out.Statuses, object, &Status{Generation: o.Generation, BackendTLSPolicy: status})
}

func policyCondition(kind gatewayv1.PolicyConditionType, v policyVerdict, reason gatewayv1.PolicyConditionReason, message string, generation int64) metav1.Condition {
	if v.failed {
		reason, message = v.reason, v.message
	}
	return condition(kind, !v.failed, reason, message, generation)
}

// String is "Service a/b", or "port web of Service a/b".
func (t tlsTarget) String() string {
	text := "Service " + t.service.String()
	if t.section != "" {
		text = "port " + t.section + " of " + text
	}
	return text
}

// targetProblem says why there is nothing that a policy could hold for, or nothing.
func (r reader) targetProblem(t tlsTarget) string {
	service := r.service(t.service)
	switch {
	case service == nil:
		return t.String() + " not found"
	case t.section != "" && !slices.ContainsFunc(service.ports, func(p servicePort) bool { return p.name == t.section }):
		return t.String() + " not found"
	}
	return ""
}

func parentReference(o model.Object) gatewayv1.ParentReference {
	group, kind, namespace := gatewayv1.Group(gatewayv1.GroupName), gatewayv1.Kind(o.Kind), gatewayv1.Namespace(o.Namespace)
	if o.Kind == string(snapshot.KindService) {
		group = ""
	}
	return gatewayv1.ParentReference{Group: &group, Kind: &kind, Namespace: &namespace, Name: gatewayv1.ObjectName(o.Name)}
}

// serviceUse is a Gateway whose routes send requests to a Service.
type serviceUse struct {
	service snapshot.Name
	gateway snapshot.Name
}

func compareUses(a, b serviceUse) int {
	return cmp.Or(compareNames(a.service, b.service), compareNames(a.gateway, b.gateway))
}

// useServices replaces what a route adds to the users of Services.
func (t *Translator) useServices(route model.Object, after []serviceUse) {
	slices.SortFunc(after, compareUses)
	after = slices.Compact(after)
	before := t.usesOf[route]
	if slices.Equal(before, after) {
		return
	}
	add := func(uses []serviceUse, by int) {
		for _, u := range uses {
			count := t.users[u.service]
			if count == nil {
				count = map[snapshot.Name]int{}
				t.users[u.service] = count
			}
			was := count[u.gateway]
			if count[u.gateway] += by; count[u.gateway] == 0 {
				delete(count, u.gateway)
			}
			if len(count) == 0 {
				delete(t.users, u.service)
			}
			if was == 0 || was+by == 0 {
				t.graph.changed(named(nodeUsersOf, u.service))
			}
		}
	}
	add(after, 1) // first: what stays is not missed for a moment
	add(before, -1)
	if len(after) == 0 {
		delete(t.usesOf, route)
	} else {
		t.usesOf[route] = after
	}
}

// usersOf are the Gateways whose routes use a Service; the Service itself when only
// others do.
func (r reader) usersOf(service snapshot.Name) []model.Object {
	r.t.graph.read(r.by, named(nodeUsersOf, service))
	var users []model.Object
	for gateway := range r.t.users[service] {
		users = append(users, gatewayOwner(gateway))
	}
	if len(users) == 0 && r.t.reaches[service] > 0 {
		users = append(users, serviceOwner(service))
	}
	return users
}
