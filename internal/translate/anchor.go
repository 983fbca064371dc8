package translate

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
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

// policyTarget is an object that policies of one kind are attached to, or to sections of which they are.
type policyTarget struct {
	kind   snapshot.Kind
	object model.Object
}

func (p policyAnchor) whole() policyTarget { return policyTarget{p.kind, p.object} }

// ofWhole is what policies of the whole object are attached to.
func (p policyAnchor) ofWhole() policyAnchor {
	p.section = ""
	return p
}

// policySlot holds the policies of one target. Only the oldest has it.
type policySlot struct {
	created map[snapshot.Name]int64
	holder  heldPolicy
}

// set has a policy in the slot, created at the given second; nil takes it out.
func (s *policySlot) set(policy snapshot.Name, created *int64) {
	if delete(s.created, policy); created != nil {
		s.created[policy] = *created
	}
	switch {
	case s.holder.name == policy:
		s.holder = heldPolicy{}
		for n, created := range s.created {
			s.offer(n, created)
		}
	case created != nil:
		s.offer(policy, *created)
	}
}

// offer has a policy hold the target if it is older.
func (s *policySlot) offer(policy snapshot.Name, created int64) {
	if s.holder.none() || olderPolicy(created, policy, s.holder.created, s.holder.name) {
		s.holder = heldPolicy{policy, created}
	}
}

// sectionPolicy is a policy of a section of an object.
type sectionPolicy struct {
	section string
	policy  snapshot.Name
}

// targetPolicies are the policies of an object and its sections.
type targetPolicies struct {
	sections map[string]*policySlot
	version  uint32 // how often a section went to another policy
}

func (p *targetPolicies) fold(by sectionPolicy, _, after *int64) {
	slot := p.sections[by.section]
	if slot == nil {
		slot = &policySlot{created: map[snapshot.Name]int64{}}
		if p.sections == nil {
			p.sections = map[string]*policySlot{}
		}
		p.sections[by.section] = slot
	}
	holder := slot.holder
	if slot.set(by.policy, after); slot.holder != holder {
		p.version++
	}
	if len(slot.created) == 0 {
		delete(p.sections, by.section)
	}
}

// shows says that a section went to another policy.
func (p targetPolicies) shows(after targetPolicies) bool { return p.version != after.version }

func (p targetPolicies) holder(section string) (h heldPolicy) {
	if slot := p.sections[section]; slot != nil {
		h = slot.holder
	}
	return h
}

// olderPolicy reports whether policy a, created at the given second, goes before b.
func olderPolicy(createdA int64, a snapshot.Name, createdB int64, b snapshot.Name) bool {
	if createdA != createdB {
		return createdA < createdB
	}
	return compareNames(a, b) < 0
}

// anchorTables are which policies are attached to what.
type anchorTables struct {
	in *inputTables

	slots *memo.Sum[policyTarget, sectionPolicy, int64, targetPolicies]
	// ofClasses are the policies of whole GatewayClasses, and classes who has each.
	ofClasses *memo.Sum[memo.Unit, classAnchor, int64, memo.Parts[classAnchor, int64]]
	classes   *memo.Table[memo.Unit, map[string]heldPolicy]

	tlsSlots *memo.Sum[snapshot.Name, sectionPolicy, int64, targetPolicies] // BackendTLSPolicies, by Service
}

// classAnchor is a ClientPolicy of a GatewayClass.
type classAnchor struct {
	class  string
	policy snapshot.Name
}

func newAnchorTables(g *memo.Graph, in *inputTables) *anchorTables {
	t := &anchorTables{in: in}
	t.slots = memo.NewFold[policyTarget](g, "policies of a target", (*targetPolicies).fold).Shows(targetPolicies.shows)
	t.ofClasses = memo.NewSum[memo.Unit, classAnchor, int64](g, "ClientPolicies of GatewayClasses")
	scanPolicies(g, t, snapshot.KindClientPolicy, in.clientPolicies, func(o *v1alpha1.ClientPolicy) []policyRef { return o.Spec.TargetRefs })
	scanPolicies(g, t, snapshot.KindRoutePolicy, in.routePolicies, func(o *v1alpha1.RoutePolicy) []policyRef { return o.Spec.TargetRefs })
	scanPolicies(g, t, snapshot.KindLoadBalancerPolicy, in.loadBalancerPolicies, func(o *v1alpha1.LoadBalancerPolicy) []policyRef { return o.Spec.TargetRefs })
	scanPolicies(g, t, snapshot.KindBackendPolicy, in.backendPolicies, func(o *v1alpha1.BackendPolicy) []policyRef { return o.Spec.TargetRefs })
	t.classes = memo.NewTable(g, "ClientPolicy of each GatewayClass", func(c *memo.Context, _ memo.Unit) (map[string]heldPolicy, bool) {
		held := map[string]heldPolicy{}
		for a, created := range t.ofClasses.Get(c, memo.Unit{}).All() {
			if p := held[a.class]; p.none() || olderPolicy(created, a.policy, p.created, p.name) {
				held[a.class] = heldPolicy{a.policy, created}
			}
		}
		return held, true
	}, memo.Reads(t.ofClasses))
	t.tlsSlots = memo.NewFold[snapshot.Name](g, "BackendTLSPolicies of a Service", (*targetPolicies).fold).Shows(targetPolicies.shows)
	memo.NewScan(g, "BackendTLSPolicies: index", in.backendTLSPolicies, func(c *memo.Context, n snapshot.Name, o *gatewayv1.BackendTLSPolicy) {
		for _, target := range distinct(targetsOf(o)) {
			t.tlsSlots.Put(c, target.service, sectionPolicy{target.section, n}, o.CreationTimestamp.Unix())
		}
	}, memo.Puts(t.tlsSlots))
	return t
}

// policyRef is how policies name their targets.
type policyRef = gatewayv1.LocalPolicyTargetReferenceWithSectionName

// scanPolicies notes what the policies of a kind are attached to.
func scanPolicies[O any, P interface {
	*O
	metav1.Object
}](g *memo.Graph, t *anchorTables, kind snapshot.Kind, in *objects[O], refs func(P) []policyRef) {
	memo.NewScan(g, string(kind)+": index", in, func(c *memo.Context, n snapshot.Name, o *O) {
		created := P(o).GetCreationTimestamp().Unix()
		var targets []policyAnchor
		for _, ref := range refs(o) {
			if target, ok := targetOf(kind, n.Namespace, ref); ok && t.mayTarget(n.Namespace, target) {
				targets = append(targets, target)
			}
		}
		for _, target := range distinct(targets) {
			t.slots.Put(c, target.whole(), sectionPolicy{target.section, n}, created)
			if target.object.Kind == string(snapshot.KindGatewayClass) && target.section == "" {
				t.ofClasses.Put(c, memo.Unit{}, classAnchor{target.object.Name, n}, created)
			}
		}
	}, memo.Puts(t.slots, t.ofClasses))
}

// distinct are the elements of a list, each once, in its order.
func distinct[T comparable](list []T) []T {
	var out []T
	for _, v := range list {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
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
func targetOf(policies snapshot.Kind, namespace string, ref policyRef) (policyAnchor, bool) {
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
func (t *anchorTables) mayTarget(namespace string, target policyAnchor) bool {
	return target.object.Namespace != "" || namespace == t.in.config.SecretNamespace
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
func (t *anchorTables) holder(c *memo.Context, target policyAnchor) heldPolicy {
	return t.slots.Get(c, target.whole()).holder(target.section)
}

// tlsHolder names the BackendTLSPolicy that has a target. It is found without a look at
// the others, of which anybody of the namespace may make thousands.
func (t *anchorTables) tlsHolder(c *memo.Context, target tlsTarget) snapshot.Name {
	return t.tlsSlots.Get(c, target.service).holder(target.section).name
}
