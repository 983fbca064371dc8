package target

import (
	"cmp"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// Ref is what policies of one kind may be attached to: an object, or a named
// section of it.
type Ref struct {
	Kind    snapshot.Kind // of the policies
	Object  model.Object
	Section string // empty is the whole object
}

// targetObject is an object that policies of one kind are attached to, or to sections of which they are.
type targetObject struct {
	kind   snapshot.Kind
	object model.Object
}

func (p Ref) whole() targetObject { return targetObject{p.Kind, p.Object} }

// OfWhole is what policies of the whole object are attached to.
func (p Ref) OfWhole() Ref {
	p.Section = ""
	return p
}

// policySlot holds the policies of one target. Only the oldest has it.
type policySlot struct {
	created map[snapshot.Name]int64
	holder  Policy
}

// set has a policy in the slot, created at the given second; nil takes it out.
func (s *policySlot) set(policy snapshot.Name, created *int64) {
	if delete(s.created, policy); created != nil {
		s.created[policy] = *created
	}
	switch {
	case s.holder.Name == policy:
		s.holder = Policy{}
		for n, created := range s.created {
			s.offer(n, created)
		}
	case created != nil:
		s.offer(policy, *created)
	}
}

// offer has a policy hold the target if it is older.
func (s *policySlot) offer(policy snapshot.Name, created int64) {
	if s.holder.None() || OlderPolicy(created, policy, s.holder.Created, s.holder.Name) {
		s.holder = Policy{policy, created}
	}
}

// sectionPolicy is a policy of a section of an object.
type sectionPolicy struct {
	section string
	policy  snapshot.Name
}

// objectPolicies are the policies of an object and its sections.
type objectPolicies struct {
	sections map[string]*policySlot
	version  uint32 // how often a section went to another policy
}

func (p *objectPolicies) fold(by sectionPolicy, _, after *int64) {
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
func (p objectPolicies) shows(after objectPolicies) bool { return p.version != after.version }

func (p objectPolicies) holder(section string) (h Policy) {
	if slot := p.sections[section]; slot != nil {
		h = slot.holder
	}
	return h
}

// OlderPolicy reports whether policy a, created at the given second, goes before b.
func OlderPolicy(createdA int64, a snapshot.Name, createdB int64, b snapshot.Name) bool {
	if createdA != createdB {
		return createdA < createdB
	}
	return input.CompareNames(a, b) < 0
}

// Tables are which policies are attached to what.
type Tables struct {
	in *input.Tables

	Slots *memo.Sum[targetObject, sectionPolicy, int64, objectPolicies]
	// ofClasses are the policies of whole GatewayClasses, and classes who has each.
	ofClasses *memo.Sum[memo.Unit, classAnchor, int64, memo.Parts[classAnchor, int64]]
	Classes   *memo.Table[memo.Unit, map[string]Policy]

	TLSSlots *memo.Sum[snapshot.Name, sectionPolicy, int64, objectPolicies] // BackendTLSPolicies, by Service
}

// classAnchor is a ClientPolicy of a GatewayClass.
type classAnchor struct {
	class  string
	policy snapshot.Name
}

// New adds the policies of each target to a graph.
func New(g *memo.Graph, in *input.Tables) *Tables {
	t := &Tables{in: in}
	t.Slots = memo.NewFold[targetObject](g, "policies of a target", (*objectPolicies).fold).Shows(objectPolicies.shows)
	t.ofClasses = memo.NewSum[memo.Unit, classAnchor, int64](g, "ClientPolicies of GatewayClasses")
	for _, p := range in.Policies {
		t.scan(p)
	}
	t.Classes = memo.NewTable(g, "ClientPolicy of each GatewayClass", func(c *memo.Context, _ memo.Unit) (map[string]Policy, bool) {
		held := map[string]Policy{}
		for a, created := range t.ofClasses.Get(c, memo.Unit{}).All() {
			if p := held[a.class]; p.None() || OlderPolicy(created, a.policy, p.Created, p.Name) {
				held[a.class] = Policy{a.policy, created}
			}
		}
		return held, true
	}, memo.Reads(t.ofClasses))
	t.TLSSlots = memo.NewFold[snapshot.Name](g, "BackendTLSPolicies of a Service", (*objectPolicies).fold).Shows(objectPolicies.shows)
	memo.NewScan(g, "BackendTLSPolicies: index", in.BackendTLSPolicies, func(c *memo.Context, n snapshot.Name, o *gatewayv1.BackendTLSPolicy) {
		for _, target := range field.Distinct(TargetsOf(o)) {
			t.TLSSlots.Put(c, target.Service, sectionPolicy{target.Section, n}, o.CreationTimestamp.Unix())
		}
	}, memo.Puts(t.TLSSlots))
	return t
}

// scan notes what the policies of a kind are attached to.
func (t *Tables) scan(p input.Policies) {
	p.Scan(string(p.Kind)+": index", func(c *memo.Context, n snapshot.Name, o snapshot.Object) {
		created := o.GetCreationTimestamp().Unix()
		var targets []Ref
		for _, ref := range p.TargetRefs(o) {
			if target, ok := Of(p.Kind, n.Namespace, ref); ok && t.MayTarget(n.Namespace, target) {
				targets = append(targets, target)
			}
		}
		for _, target := range field.Distinct(targets) {
			t.Slots.Put(c, target.whole(), sectionPolicy{target.Section, n}, created)
			if target.Object.Kind == string(snapshot.KindGatewayClass) && target.Section == "" {
				t.ofClasses.Put(c, memo.Unit{}, classAnchor{target.Object.Name, n}, created)
			}
		}
	}, memo.Puts(t.Slots, t.ofClasses))
}

// Kinds says which kinds of objects the policies of a kind may be attached to, with
// their API groups.
func Kinds(policies snapshot.Kind) map[snapshot.Kind]string {
	r, _ := snapshot.ResourceOf(policies)
	return r.Targets
}

// Of is what a reference of a policy means; false when policies of the kind cannot
// be attached to such a thing.
func Of(policies snapshot.Kind, namespace string, ref snapshot.TargetRef) (Ref, bool) {
	kind := snapshot.Kind(ref.Kind)
	t := Ref{policies, model.Object{Kind: string(kind), Namespace: namespace, Name: string(ref.Name)}, string(field.Deref(ref.SectionName))}
	if kind == snapshot.KindGatewayClass {
		t.Object.Namespace = ""
	}
	group, known := Kinds(policies)[kind]
	return t, known && group == string(ref.Group)
}

// MayTarget reports whether policies of a namespace may be attached to a target: what has
// no namespace is everybody's, and so the operator's.
func (t *Tables) MayTarget(namespace string, target Ref) bool {
	return target.Object.Namespace != "" || namespace == t.in.Config.SecretNamespace
}

// Policy is the policy that has a target.
type Policy struct {
	Name    snapshot.Name
	Created int64
}

// SortHeld sorts policies, the oldest first.
func SortHeld(list []Policy) {
	slices.SortFunc(list, func(a, b Policy) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), input.CompareNames(a.Name, b.Name))
	})
}

// None reports that no policy applies.
func (p Policy) None() bool { return p.Name == snapshot.Name{} }

// Holder returns the policy that has a target.
func (t *Tables) Holder(c *memo.Context, target Ref) Policy {
	return t.Slots.Get(c, target.whole()).holder(target.Section)
}

// TLSHolder names the BackendTLSPolicy that has a target. It is found without a look at
// the others, of which anybody of the namespace may make thousands.
func (t *Tables) TLSHolder(c *memo.Context, target ServicePort) snapshot.Name {
	return t.TLSSlots.Get(c, target.Service).holder(target.Section).Name
}
