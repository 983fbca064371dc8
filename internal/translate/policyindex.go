package translate

import (
	"cmp"
	"maps"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// policyAnchor is what policies of one kind may be attached to: an object, or a named
// section of it.
type policyAnchor struct {
	kind    snapshot.Kind // of the policies
	object  model.Object
	section string // empty is the whole object
}

// whole is the object of which the target is a section.
func (p policyAnchor) whole() policyAnchor {
	p.section = ""
	return p
}

// policySlot holds the policies of one target. Only the oldest has it.
type policySlot struct {
	created map[snapshot.Name]int64
	holder  snapshot.Name
}

// add has a policy in the slot; true when it holds it now.
func (s *policySlot) add(policy snapshot.Name, created int64) bool {
	if _, known := s.created[policy]; known {
		return false
	}
	first := len(s.created) == 0 || olderPolicy(created, policy, s.created[s.holder], s.holder)
	s.created[policy] = created
	if first {
		s.holder = policy
	}
	return first
}

// remove takes a policy out; true when it held the slot.
func (s *policySlot) remove(policy snapshot.Name) bool {
	delete(s.created, policy)
	if s.holder != policy {
		return false
	}
	s.holder = snapshot.Name{}
	for n, created := range s.created {
		if s.holder == (snapshot.Name{}) || olderPolicy(created, n, s.created[s.holder], s.holder) {
			s.holder = n
		}
	}
	return true
}

// olderPolicy reports whether policy a, created at the given second, goes before b.
func olderPolicy(createdA int64, a snapshot.Name, createdB int64, b snapshot.Name) bool {
	if createdA != createdB {
		return createdA < createdB
	}
	return compareNames(a, b) < 0
}

// policyState is what a Translator knows of policies.
type policyState struct {
	// An index over the snapshot.
	slots    map[policyAnchor]*policySlot
	sections map[policyAnchor]nameSet // of objects, those that have a slot
	targets  map[snapshot.Key]attachedPolicy

	// Results of nodes.
	routes  map[snapshot.Name]*routePolicyFact
	clients map[snapshot.Name]*clientPolicyFact
	balance map[snapshot.Name]*balancePolicyFact

	// Sums over nodes.
	places    map[model.HostKey]*tally[hostPlace]
	hosts     map[model.HostKey][]model.BackendGroup // groups that policies of hosts name
	listeners map[model.ListenerID][]model.BackendGroup
}

func newPolicyState() policyState {
	return policyState{
		slots:     map[policyAnchor]*policySlot{},
		sections:  map[policyAnchor]nameSet{},
		targets:   map[snapshot.Key]attachedPolicy{},
		routes:    map[snapshot.Name]*routePolicyFact{},
		clients:   map[snapshot.Name]*clientPolicyFact{},
		balance:   map[snapshot.Name]*balancePolicyFact{},
		places:    map[model.HostKey]*tally[hostPlace]{},
		hosts:     map[model.HostKey][]model.BackendGroup{},
		listeners: map[model.ListenerID][]model.BackendGroup{},
	}
}

// computePolicy judges a policy for itself.
func (t *Translator) computePolicy(r reader, n node) {
	switch k := n.policyKey(); k.Kind {
	case snapshot.KindRoutePolicy:
		update(t, n, t.policies.routes, k.Name, makeRoutePolicyFact(r, k.Name))
	case snapshot.KindClientPolicy:
		update(t, n, t.policies.clients, k.Name, makeClientPolicyFact(r, k.Name))
	case snapshot.KindLoadBalancerPolicy:
		update(t, n, t.policies.balance, k.Name, makeBalancePolicyFact(r.s.LoadBalancerPolicies[k.Name]))
	}
}

// settleUses replaces the groups that one user of a map names.
func settleUses[K comparable](t *Translator, uses map[K][]model.BackendGroup, k K, groups []model.BackendGroup) {
	t.useGroups(groups, 1)
	t.useGroups(uses[k], -1)
	if len(groups) == 0 {
		delete(uses, k)
	} else {
		uses[k] = groups
	}
}

// attachedPolicy is what a policy says of itself to the index.
type attachedPolicy struct {
	created int64
	targets []policyAnchor
}

// policyRefs are the targets that a policy names, and when it was created; nil when there
// is no such policy.
func policyRefs(s *snapshot.Snapshot, k snapshot.Key) (refs []gatewayv1.LocalPolicyTargetReferenceWithSectionName, created int64) {
	switch k.Kind {
	case snapshot.KindClientPolicy:
		if o := s.ClientPolicies[k.Name]; o != nil {
			return o.Spec.TargetRefs, o.CreationTimestamp.Unix()
		}
	case snapshot.KindRoutePolicy:
		if o := s.RoutePolicies[k.Name]; o != nil {
			return o.Spec.TargetRefs, o.CreationTimestamp.Unix()
		}
	case snapshot.KindLoadBalancerPolicy:
		if o := s.LoadBalancerPolicies[k.Name]; o != nil {
			return o.Spec.TargetRefs, o.CreationTimestamp.Unix()
		}
	case snapshot.KindBackendPolicy:
		if o := s.BackendPolicies[k.Name]; o != nil {
			return o.Spec.TargetRefs, o.CreationTimestamp.Unix()
		}
	}
	return nil, 0
}

// targetGroups says which kinds of objects the policies of a kind may be attached to, with
// their API groups.
func targetGroups(policies snapshot.Kind) map[snapshot.Kind]string {
	switch policies {
	case snapshot.KindClientPolicy:
		return map[snapshot.Kind]string{
			snapshot.KindGatewayClass: gatewayv1.GroupName, snapshot.KindGateway: gatewayv1.GroupName, snapshot.KindListenerSet: gatewayv1.GroupName,
		}
	case snapshot.KindRoutePolicy:
		return map[snapshot.Kind]string{
			snapshot.KindGateway: gatewayv1.GroupName, snapshot.KindListenerSet: gatewayv1.GroupName, snapshot.KindHTTPRoute: gatewayv1.GroupName,
			snapshot.KindGRPCRoute: gatewayv1.GroupName, snapshot.KindIngressRoute: contourv1beta1.GroupVersion.Group,
		}
	case snapshot.KindBackendPolicy:
		return map[snapshot.Kind]string{snapshot.KindService: ""}
	case snapshot.KindLoadBalancerPolicy:
		return map[snapshot.Kind]string{
			snapshot.KindService: "", snapshot.KindGateway: gatewayv1.GroupName, snapshot.KindTCPRoute: gatewayv1.GroupName, snapshot.KindUDPRoute: gatewayv1.GroupName,
		}
	default:
		return nil
	}
}

// targetOf is what a reference of a policy means; false when policies of the kind cannot
// be attached to such a thing.
func targetOf(policies snapshot.Kind, namespace string, ref gatewayv1.LocalPolicyTargetReferenceWithSectionName) (policyAnchor, bool) {
	kind := snapshot.Kind(ref.Kind)
	t := policyAnchor{policies, model.Object{Kind: string(kind), Namespace: namespace, Name: string(ref.Name)}, string(deref(ref.SectionName))}
	if kind == snapshot.KindGatewayClass {
		t.object.Namespace = ""
	}
	group, known := targetGroups(policies)[kind]
	return t, known && group == string(ref.Group)
}

// mayTarget reports whether policies of a namespace may be attached to a target: what has
// no namespace is everybody's, and so the operator's.
func (c Config) mayTarget(namespace string, t policyAnchor) bool {
	return t.object.Namespace != "" || namespace == c.SecretNamespace
}

func policyAnchorNode(t policyAnchor) node {
	return node{kind: nodePolicyAnchor, a: string(t.kind) + "/" + t.object.Kind, b: t.object.Namespace + "/" + t.object.Name}
}

func policyNode(k snapshot.Key) node {
	return node{kind: nodePolicy, a: string(k.Kind), b: k.Name.Namespace, c: k.Name.Name}
}

func policyStatusNode(k snapshot.Key) node {
	return node{kind: nodePolicyStatus, a: string(k.Kind), b: k.Name.Namespace, c: k.Name.Name}
}

// policyKey is the policy of a node that policyNode or policyStatusNode made.
func (n node) policyKey() snapshot.Key {
	return snapshot.Key{Kind: snapshot.Kind(n.a), Name: snapshot.Name{Namespace: n.b, Name: n.c}}
}

// inputPolicy takes note of a changed policy.
func (t *Translator) inputPolicy(s *snapshot.Snapshot, k snapshot.Key) {
	if k.Kind != snapshot.KindBackendPolicy {
		t.graph.mark(policyNode(k)) // the others have nothing to resolve
	}
	t.graph.mark(policyStatusNode(k))
	refs, created := policyRefs(s, k)
	var targets []policyAnchor
	for _, ref := range refs {
		if target, ok := targetOf(k.Kind, k.Name.Namespace, ref); ok && t.config.mayTarget(k.Name.Namespace, target) && !slices.Contains(targets, target) {
			targets = append(targets, target)
		}
	}
	before := t.policies.targets[k]
	for _, target := range before.targets {
		if before.created != created || !slices.Contains(targets, target) {
			t.detachPolicy(target, k.Name)
		}
	}
	for _, target := range targets {
		t.attachPolicy(target, k.Name, created)
		if k.Kind == snapshot.KindBackendPolicy {
			t.graph.changed(policyAnchorNode(target)) // its readers read the policy itself
		}
	}
	if len(targets) == 0 {
		delete(t.policies.targets, k)
	} else {
		t.policies.targets[k] = attachedPolicy{created, targets}
	}
}

// changedHolder has those look again who asked for the policies of a target.
func (t *Translator) changedHolder(target policyAnchor) {
	t.graph.changed(policyAnchorNode(target))
	if target.object.Kind == string(snapshot.KindGatewayClass) {
		t.graph.changed(node{kind: nodeClassPolicies})
	}
}

func (t *Translator) attachPolicy(target policyAnchor, policy snapshot.Name, created int64) {
	slot := t.policies.slots[target]
	if slot == nil {
		slot = &policySlot{created: map[snapshot.Name]int64{}}
		t.policies.slots[target] = slot
		put(t.policies.sections, target.whole(), snapshot.Name{Name: target.section})
	}
	if slot.add(policy, created) {
		t.changedHolder(target)
	}
}

func (t *Translator) detachPolicy(target policyAnchor, policy snapshot.Name) {
	slot := t.policies.slots[target]
	if slot == nil {
		return
	}
	if slot.remove(policy) {
		t.changedHolder(target)
	}
	if len(slot.created) == 0 {
		delete(t.policies.slots, target)
		drop(t.policies.sections, target.whole(), snapshot.Name{Name: target.section})
	}
}

// heldPolicy is the policy that has a target.
type heldPolicy struct {
	name    snapshot.Name
	created int64
}

// sortHeld sorts policies, the oldest first.
func sortHeld(list []heldPolicy) {
	slices.SortFunc(list, func(a, b heldPolicy) int {
		return cmp.Or(cmp.Compare(a.created, b.created), compareNames(a.name, b.name))
	})
}

func (p heldPolicy) none() bool { return p.name == snapshot.Name{} }

// holder returns the policy that has a target.
func (r reader) holder(target policyAnchor) heldPolicy {
	r.t.graph.read(r.by, policyAnchorNode(target))
	if slot := r.t.policies.slots[target]; slot != nil {
		return heldPolicy{slot.holder, slot.created[slot.holder]}
	}
	return heldPolicy{}
}

// classPolicies returns the ClientPolicies that have a GatewayClass, by the names of the
// classes.
func (r reader) classPolicies() map[string]heldPolicy {
	r.t.graph.read(r.by, node{kind: nodeClassPolicies})
	held := map[string]heldPolicy{}
	for target, slot := range r.t.policies.slots {
		if target.object.Kind == string(snapshot.KindGatewayClass) && target.section == "" {
			held[target.object.Name] = heldPolicy{slot.holder, slot.created[slot.holder]}
		}
	}
	return held
}

// markPoliciesOf has the statuses of the policies written anew that are attached to a
// changed object: they say whether it is there, and has the section.
func (t *Translator) markPoliciesOf(k snapshot.Key) {
	object := model.Object{Kind: string(k.Kind), Namespace: k.Name.Namespace, Name: k.Name.Name}
	for _, kind := range []snapshot.Kind{snapshot.KindClientPolicy, snapshot.KindRoutePolicy, snapshot.KindBackendPolicy, snapshot.KindLoadBalancerPolicy} {
		whole := policyAnchor{kind: kind, object: object}
		for section := range t.policies.sections[whole] {
			target := whole
			target.section = section.Name
			for name := range maps.Keys(t.policies.slots[target].created) {
				t.graph.mark(policyStatusNode(snapshot.Key{Kind: kind, Name: name}))
			}
		}
	}
}
