package translate

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// computePolicyStatus writes the status of a policy: an ancestor for each of its targets.
func (t *Translator) computePolicyStatus(r reader, n node) {
	k := n.policyKey()
	object := model.Object{Kind: string(k.Kind), Namespace: k.Name.Namespace, Name: k.Name.Name}
	invalid, resolved, generation, found := r.judgePolicy(k)
	if !found {
		publish(t.result.Statuses, t.out.Statuses, object, nil)
		return
	}
	status := &gatewayv1.PolicyStatus{Ancestors: []gatewayv1.PolicyAncestorStatus{}}
	refs, _ := policyRefs(r.s, k)
	for i, ref := range refs {
		ancestor := ancestorRef(k, ref)
		if len(status.Ancestors) == ancestorLimit || slices.ContainsFunc(status.Ancestors, func(a gatewayv1.PolicyAncestorStatus) bool {
			return reflect.DeepEqual(a.AncestorRef, ancestor)
		}) {
			continue
		}
		accepted, note := r.judgeTarget(k, ref, at("spec.targetRefs", i))
		if invalid.failed {
			accepted.fail(invalid.reason, invalid.message)
		}
		status.Ancestors = append(status.Ancestors, gatewayv1.PolicyAncestorStatus{
			AncestorRef: ancestor, ControllerName: t.config.ControllerName, Conditions: []metav1.Condition{
				policyCondition(gatewayv1.PolicyConditionAccepted, accepted, gatewayv1.PolicyReasonAccepted, "the policy holds here"+note, generation),
				policyCondition(v1alpha1.ConditionResolvedRefs, resolved, policyReasonResolvedRefs, "all references are resolved", generation),
			},
		})
	}
	publish(t.result.Statuses, t.out.Statuses, object, &Status{Generation: generation, Policy: status})
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

// judgePolicy is what a policy is for itself.
func (r reader) judgePolicy(k snapshot.Key) (invalid, resolved policyVerdict, generation int64, found bool) {
	switch k.Kind {
	case snapshot.KindRoutePolicy:
		if o := r.s.RoutePolicies[k.Name]; o != nil {
			f := r.routePolicyFact(k.Name)
			return f.invalid, f.resolved, o.Generation, true
		}
	case snapshot.KindClientPolicy:
		if o := r.s.ClientPolicies[k.Name]; o != nil {
			f := r.clientPolicyFact(k.Name)
			return f.invalid, f.resolved, o.Generation, true
		}
	case snapshot.KindLoadBalancerPolicy:
		if o := r.s.LoadBalancerPolicies[k.Name]; o != nil {
			return r.balancePolicyFact(k.Name).invalid, resolved, o.Generation, true
		}
	case snapshot.KindBackendPolicy:
		if o := r.s.BackendPolicies[k.Name]; o != nil {
			_, invalid = makeBackendOptions(o)
			return invalid, resolved, o.Generation, true
		}
	}
	return invalid, resolved, 0, false
}

// judgeTarget says whether a policy has what it targets, and what is worth knowing if it
// has.
func (r reader) judgeTarget(k snapshot.Key, ref gatewayv1.LocalPolicyTargetReferenceWithSectionName, path string) (accepted policyVerdict, note string) {
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
	if !r.t.config.mayTarget(k.Name.Namespace, target) {
		accepted.fail(v1alpha1.ReasonTargetNotPermitted, path+": "+target.object.String()+" is everybody's: only a "+string(k.Kind)+
			" in namespace "+r.t.config.SecretNamespace+" may have it as a target")
		return accepted, ""
	}
	if problem := r.missingTarget(target, path); problem != "" {
		accepted.fail(gatewayv1.PolicyReasonTargetNotFound, problem)
	}
	if holder := r.holder(target).name; holder != k.Name {
		accepted.fail(gatewayv1.PolicyReasonConflicted, path+": "+string(k.Kind)+" "+holder.String()+
			", which came first, has the same target; put both into one, or delete one")
	}
	if k.Kind == snapshot.KindClientPolicy && !accepted.failed {
		problem, remark := r.sharing(k.Name, target)
		if problem != "" {
			accepted.fail(v1alpha1.ReasonSharedListener, path+": "+problem)
		}
		note = remark
		if floor := r.t.config.floorNote(r.clientPolicyFact(k.Name).settings.minTLS); floor != "" {
			note += "; spec.tls.minVersion: " + floor
		}
	}
	if k.Kind == snapshot.KindLoadBalancerPolicy && !accepted.failed {
		problem, remark := r.judgeBalancing(k.Name, target)
		if problem != "" {
			accepted.fail(gatewayv1.PolicyReasonInvalid, problem+remark)
		}
		note = remark
	}
	return accepted, note
}

// missingTarget says what of a target is not there, or nothing.
func (r reader) missingTarget(target policyAnchor, path string) string {
	n := snapshot.Name{Namespace: target.object.Namespace, Name: target.object.Name}
	there, ours := false, false
	what, sections := "section", []string(nil)
	switch snapshot.Kind(target.object.Kind) {
	case snapshot.KindGatewayClass:
		there, ours = r.s.GatewayClasses[n] != nil, r.class(n.Name) != nil
	case snapshot.KindGateway, snapshot.KindListenerSet:
		what = "listener"
		there = r.s.Gateways[n] != nil
		if target.object.Kind == string(snapshot.KindListenerSet) {
			there = r.s.ListenerSets[n] != nil
		}
		if p := r.parent(parentKey{snapshot.Kind(target.object.Kind), n}); p != nil {
			ours = true
			for i := range p.listeners {
				sections = append(sections, string(p.listeners[i].name))
			}
		}
	case snapshot.KindHTTPRoute:
		what = "rule"
		if o := r.s.HTTPRoutes[n]; o != nil {
			there, ours = true, r.httpRoute(n) != nil
			for i := range o.Spec.Rules {
				sections = append(sections, string(deref(o.Spec.Rules[i].Name)))
			}
		}
	case snapshot.KindGRPCRoute:
		what = "rule"
		if o := r.s.GRPCRoutes[n]; o != nil {
			there, ours = true, r.grpcRoute(n) != nil
			for i := range o.Spec.Rules {
				sections = append(sections, string(deref(o.Spec.Rules[i].Name)))
			}
		}
	case snapshot.KindTCPRoute, snapshot.KindUDPRoute:
		what = "rule"
		if o := streamOf(r.s, snapshot.Kind(target.object.Kind), n); o != nil {
			there, ours = true, r.stream(target.object) != nil
			sections = o.rules
		}
	case snapshot.KindIngressRoute:
		what = "route"
		there = r.s.IngressRoutes[n] != nil
		ours = r.t.config.ingressRoute(r.s, n) != nil
	case snapshot.KindService:
		what = "port"
		if o := r.s.Services[n]; o != nil {
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
		return path + ".name: " + target.object.String() + " is not served by " + string(r.t.config.ControllerName)
	case target.section != "" && !slices.Contains(sections, target.section):
		return path + ".sectionName: " + target.object.String() + " has no " + what + " named " + quote(target.section)
	}
	return ""
}
