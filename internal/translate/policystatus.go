package translate

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
)

// policyStatus writes the status of a policy: an ancestor for each of its targets.
func (t *statusTables) policyStatus(c *memo.Context, k snapshot.Key) (*Status, bool) {
	p := t.judgePolicy(c, k)
	status := &gatewayv1.PolicyStatus{Ancestors: []gatewayv1.PolicyAncestorStatus{}}
	for i, ref := range p.refs {
		ancestor := ancestorRef(k, ref)
		if len(status.Ancestors) == ancestorLimit || slices.ContainsFunc(status.Ancestors, func(a gatewayv1.PolicyAncestorStatus) bool {
			return reflect.DeepEqual(a.AncestorRef, ancestor)
		}) {
			continue
		}
		accepted, note := t.judgeTarget(c, k, ref, at("spec.targetRefs", i))
		if p.invalid.failed {
			accepted.fail(p.invalid.reason, p.invalid.message)
		}
		status.Ancestors = append(status.Ancestors, gatewayv1.PolicyAncestorStatus{
			AncestorRef: ancestor, ControllerName: t.in.config.ControllerName, Conditions: []metav1.Condition{
				policyCondition(gatewayv1.PolicyConditionAccepted, accepted, gatewayv1.PolicyReasonAccepted, "the policy holds here"+note, p.generation),
				policyCondition(v1alpha1.ConditionResolvedRefs, p.resolved, policyReasonResolvedRefs, "all references are resolved", p.generation),
			},
		})
	}
	return &Status{Generation: p.generation, Policy: status}, true
}

func policyCondition(kind gatewayv1.PolicyConditionType, v policyVerdict, reason gatewayv1.PolicyConditionReason, message string, generation int64) metav1.Condition {
	if v.failed {
		reason, message = v.reason, v.message
	}
	return condition(kind, !v.failed, reason, message, generation)
}

// ancestorRef names a target as a status does.
func ancestorRef(k snapshot.Key, ref gatewayv1.LocalPolicyTargetReferenceWithSectionName) gatewayv1.ParentReference {
	valid := func(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
	group, kind := gatewayv1.Group(valid(string(ref.Group))), gatewayv1.Kind(valid(string(ref.Kind)))
	a := gatewayv1.ParentReference{Group: &group, Kind: &kind, Name: gatewayv1.ObjectName(valid(string(ref.Name)))}
	if ref.Kind != gatewayv1.Kind(snapshot.KindGatewayClass) {
		namespace := gatewayv1.Namespace(k.Name.Namespace)
		a.Namespace = &namespace
	}
	if section := gatewayv1.SectionName(valid(string(deref(ref.SectionName)))); section != "" {
		a.SectionName = &section
	}
	return a
}

// judgedPolicy is what a policy is for itself.
type judgedPolicy struct {
	refs              []policyRef
	generation        int64
	invalid, resolved policyVerdict
}

func (t *statusTables) judgePolicy(c *memo.Context, k snapshot.Key) judgedPolicy {
	switch k.Kind {
	case snapshot.KindRoutePolicy:
		o, f := t.in.routePolicies.Get(c, k.Name), t.policy.routes.Get(c, k.Name)
		return judgedPolicy{o.Spec.TargetRefs, o.Generation, f.invalid, f.resolved}
	case snapshot.KindClientPolicy:
		o, f := t.in.clientPolicies.Get(c, k.Name), t.policy.clients.Get(c, k.Name)
		return judgedPolicy{o.Spec.TargetRefs, o.Generation, f.invalid, f.resolved}
	case snapshot.KindLoadBalancerPolicy:
		o, f := t.in.loadBalancerPolicies.Get(c, k.Name), t.policy.balance.Get(c, k.Name)
		return judgedPolicy{refs: o.Spec.TargetRefs, generation: o.Generation, invalid: f.invalid}
	default: // BackendPolicy
		o := t.in.backendPolicies.Get(c, k.Name)
		_, invalid := makeBackendOptions(o)
		return judgedPolicy{refs: o.Spec.TargetRefs, generation: o.Generation, invalid: invalid}
	}
}

// judgeTarget says whether a policy has what it targets, and what is worth knowing if it
// has.
func (t *statusTables) judgeTarget(c *memo.Context, k snapshot.Key, ref policyRef, path string) (accepted policyVerdict, note string) {
	target, known := targetOf(k.Kind, k.Name.Namespace, ref)
	if !known {
		var kinds []string
		for _, kind := range sortedKeys(targetGroups(k.Kind)) {
			kinds = append(kinds, kindText(targetGroups(k.Kind)[kind], string(kind)))
		}
		accepted.fail(gatewayv1.PolicyReasonInvalid, path+".kind: "+kindText(string(ref.Group), string(ref.Kind))+
			" cannot have a "+string(k.Kind)+": only "+strings.Join(kinds, ", ")+" can")
		return accepted, ""
	}
	if !t.anchor.mayTarget(k.Name.Namespace, target) {
		accepted.fail(v1alpha1.ReasonTargetNotPermitted, path+": "+target.object.String()+" is everybody's: only a "+string(k.Kind)+
			" in namespace "+t.in.config.SecretNamespace+" may have it as a target")
		return accepted, ""
	}
	if problem := t.missingTarget(c, target, path); problem != "" {
		accepted.fail(gatewayv1.PolicyReasonTargetNotFound, problem)
	}
	if holder := t.anchor.holder(c, target).name; holder != k.Name {
		accepted.fail(gatewayv1.PolicyReasonConflicted, path+": "+string(k.Kind)+" "+holder.String()+
			", which came first, has the same target; put both into one, or delete one")
	}
	if k.Kind == snapshot.KindClientPolicy && !accepted.failed {
		problem, remark := t.listener.sharing(c, k.Name, target)
		if problem != "" {
			accepted.fail(v1alpha1.ReasonSharedListener, path+": "+problem)
		}
		note = remark
		if floor := t.in.config.floorNote(t.policy.clients.Get(c, k.Name).settings.minTLS); floor != "" {
			note += "; spec.tls.minVersion: " + floor
		}
	}
	if k.Kind == snapshot.KindLoadBalancerPolicy && !accepted.failed {
		problem, remark := t.frontend.judgeBalancing(c, k.Name, target)
		if problem != "" {
			accepted.fail(gatewayv1.PolicyReasonInvalid, problem+remark)
		}
		note = remark
	}
	return accepted, note
}

// missingTarget says what of a target is not there, or nothing.
func (t *statusTables) missingTarget(c *memo.Context, target policyAnchor, path string) string {
	n := snapshot.Name{Namespace: target.object.Namespace, Name: target.object.Name}
	there, ours := false, false
	what, sections := "section", []string(nil)
	switch snapshot.Kind(target.object.Kind) {
	case snapshot.KindGatewayClass:
		there, ours = t.in.gatewayClasses.Get(c, n) != nil, t.gateway.classes.Get(c, n.Name) != nil
	case snapshot.KindGateway, snapshot.KindListenerSet:
		what = "listener"
		there = t.in.gateways.Get(c, n) != nil
		if target.object.Kind == string(snapshot.KindListenerSet) {
			there = t.in.listenerSets.Get(c, n) != nil
		}
		if p := t.gateway.parents.Get(c, parentKey{snapshot.Kind(target.object.Kind), n}); p != nil {
			ours = true
			for i := range p.listeners {
				sections = append(sections, string(p.listeners[i].name))
			}
		}
	case snapshot.KindHTTPRoute:
		what = "rule"
		if o := t.in.httpRoutes.Get(c, n); o != nil {
			there, ours = true, t.route.routes.Get(c, routeOwner(snapshot.KindHTTPRoute, n)) != nil
			for i := range o.Spec.Rules {
				sections = append(sections, string(deref(o.Spec.Rules[i].Name)))
			}
		}
	case snapshot.KindGRPCRoute:
		what = "rule"
		if o := t.in.grpcRoutes.Get(c, n); o != nil {
			there, ours = true, t.route.routes.Get(c, routeOwner(snapshot.KindGRPCRoute, n)) != nil
			for i := range o.Spec.Rules {
				sections = append(sections, string(deref(o.Spec.Rules[i].Name)))
			}
		}
	case snapshot.KindTCPRoute, snapshot.KindUDPRoute:
		what = "rule"
		if o := t.route.spec(c, snapshot.Kind(target.object.Kind), n); o != nil {
			there, ours = true, t.route.streams.Get(c, target.object) != nil
			sections = o.rules
		}
	case snapshot.KindIngressRoute:
		what = "route"
		o := t.in.ingressRoutes.Get(c, n)
		there, ours = o != nil, o != nil && t.in.config.isOurs(o)
	case snapshot.KindService:
		what = "port"
		if o := t.in.services.Get(c, n); o != nil {
			there, ours = true, target.kind != snapshot.KindLoadBalancerPolicy || isOurs(o)
			for _, p := range o.Spec.Ports {
				sections = append(sections, p.Name)
			}
		}
	}
	switch {
	case !there:
		return path + ".name: " + target.object.String() + " not found"
	case !ours:
		return path + ".name: " + target.object.String() + " is not served by " + string(t.in.config.ControllerName)
	case target.section != "" && !slices.Contains(sections, target.section):
		return path + ".sectionName: " + target.object.String() + " has no " + what + " named " + quote(target.section)
	}
	return ""
}
