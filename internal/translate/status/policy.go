package status

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/policy"
	"fairlead.dev/internal/translate/target"
)

// policyStatus writes the status of a policy: an ancestor for each of its targets.
func (t *Tables) policyStatus(c *memo.Context, policies input.Policies, n snapshot.Name) (*Status, bool) {
	k, o := snapshot.Key{Kind: policies.Kind, Name: n}, policies.Get(c, n)
	invalid, unresolved := t.from.Policy.Outcomes[k.Kind].Of(c, n)
	status := &gatewayv1.PolicyStatus{Ancestors: []gatewayv1.PolicyAncestorStatus{}}
	for i, ref := range policies.TargetRefs(o) {
		ancestor := ancestorRef(k, ref)
		if len(status.Ancestors) == ancestorLimit || slices.ContainsFunc(status.Ancestors, func(a gatewayv1.PolicyAncestorStatus) bool {
			return reflect.DeepEqual(a.AncestorRef, ancestor)
		}) {
			continue
		}
		accepted, note := t.judgeTarget(c, k, ref, field.At("spec.targetRefs", i))
		if invalid.Failed {
			accepted.Fail(invalid.Reason, invalid.Message)
		}
		status.Ancestors = append(status.Ancestors, gatewayv1.PolicyAncestorStatus{
			AncestorRef: ancestor, ControllerName: t.in.Config.ControllerName, Conditions: []metav1.Condition{
				field.PolicyCondition(gatewayv1.PolicyConditionAccepted, accepted, gatewayv1.PolicyReasonAccepted, "the policy holds here"+note, o.GetGeneration()),
				field.PolicyCondition(v1alpha1.ConditionResolvedRefs, unresolved, policy.PolicyReasonResolvedRefs, "all references are resolved", o.GetGeneration()),
			},
		})
	}
	return &Status{Generation: o.GetGeneration(), Policy: status}, true
}

// ancestorRef names a target as a status does.
func ancestorRef(k snapshot.Key, ref snapshot.TargetRef) gatewayv1.ParentReference {
	valid := func(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }
	group, kind := gatewayv1.Group(valid(string(ref.Group))), gatewayv1.Kind(valid(string(ref.Kind)))
	a := gatewayv1.ParentReference{Group: &group, Kind: &kind, Name: gatewayv1.ObjectName(valid(string(ref.Name)))}
	if ref.Kind != gatewayv1.Kind(snapshot.KindGatewayClass) {
		namespace := gatewayv1.Namespace(k.Name.Namespace)
		a.Namespace = &namespace
	}
	if section := gatewayv1.SectionName(valid(string(field.Deref(ref.SectionName)))); section != "" {
		a.SectionName = &section
	}
	return a
}

// judgeTarget says whether a policy has what it targets, and what is worth knowing if it
// has.
func (t *Tables) judgeTarget(c *memo.Context, k snapshot.Key, ref snapshot.TargetRef, path string) (accepted field.PolicyResult, note string) {
	groups := target.Kinds(k.Kind)
	target, known := target.Of(k.Kind, k.Name.Namespace, ref)
	if !known {
		var kinds []string
		for _, kind := range field.SortedKeys(groups) {
			kinds = append(kinds, field.KindText(groups[kind], string(kind)))
		}
		accepted.Fail(gatewayv1.PolicyReasonInvalid, path+".kind: "+field.KindText(string(ref.Group), string(ref.Kind))+
			" cannot have a "+string(k.Kind)+": only "+strings.Join(kinds, ", ")+" can")
		return accepted, ""
	}
	if !t.from.Targets.MayTarget(k.Name.Namespace, target) {
		accepted.Fail(v1alpha1.ReasonTargetNotPermitted, path+": "+target.Object.String()+" is shared by all teams: only a "+string(k.Kind)+
			" in namespace "+t.in.Config.SecretNamespace+" may target it")
		return accepted, ""
	}
	if problem := t.missingTarget(c, target, path); problem != "" {
		accepted.Fail(gatewayv1.PolicyReasonTargetNotFound, problem)
	}
	if holder := t.from.Targets.Holder(c, target).Name; holder != k.Name {
		accepted.Fail(gatewayv1.PolicyReasonConflicted, path+": the older "+string(k.Kind)+" "+holder.String()+
			" has the same target; put both into one, or delete one")
	}
	if k.Kind == snapshot.KindClientPolicy && !accepted.Failed {
		problem, remark := t.from.Listener.Sharing(c, k.Name, target)
		if problem != "" {
			accepted.Fail(v1alpha1.ReasonSharedListener, path+": "+problem)
		}
		note = remark
		if floor := t.in.Config.FloorNote(t.from.Policy.Clients.Get(c, k.Name).Settings.MinTLS); floor != "" {
			note += "; spec.tls.minVersion: " + floor
		}
	}
	if k.Kind == snapshot.KindLoadBalancerPolicy && !accepted.Failed {
		problem, remark := t.from.Frontend.JudgeBalancing(c, k.Name, target)
		if problem != "" {
			accepted.Fail(gatewayv1.PolicyReasonInvalid, problem+remark)
		}
		note = remark
	}
	return accepted, note
}

// missingTarget says what of a target is not there, or nothing.
func (t *Tables) missingTarget(c *memo.Context, target target.Ref, path string) string {
	n := snapshot.Name{Namespace: target.Object.Namespace, Name: target.Object.Name}
	there, ours := false, false
	what, sections := "section", []string(nil)
	switch snapshot.Kind(target.Object.Kind) {
	case snapshot.KindGatewayClass:
		there, ours = t.in.GatewayClasses.Get(c, n) != nil, t.from.Gateway.Classes.Get(c, n.Name) != nil
	case snapshot.KindGateway, snapshot.KindListenerSet:
		what = "listener"
		there = t.in.Gateways.Get(c, n) != nil
		if target.Object.Kind == string(snapshot.KindListenerSet) {
			there = t.in.ListenerSets.Get(c, n) != nil
		}
		if p := t.from.Gateway.Parents.Get(c, gateway.ParentKey{Kind: snapshot.Kind(target.Object.Kind), Name: n}); p != nil {
			ours = true
			for i := range p.Listeners {
				sections = append(sections, string(p.Listeners[i].Name))
			}
		}
	case snapshot.KindHTTPRoute:
		what = "rule"
		if o := t.in.HTTPRoutes.Get(c, n); o != nil {
			there, ours = true, t.from.Route.Routes.Get(c, input.Object(snapshot.KindHTTPRoute, n)) != nil
			for i := range o.Spec.Rules {
				sections = append(sections, string(field.Deref(o.Spec.Rules[i].Name)))
			}
		}
	case snapshot.KindGRPCRoute:
		what = "rule"
		if o := t.in.GRPCRoutes.Get(c, n); o != nil {
			there, ours = true, t.from.Route.Routes.Get(c, input.Object(snapshot.KindGRPCRoute, n)) != nil
			for i := range o.Spec.Rules {
				sections = append(sections, string(field.Deref(o.Spec.Rules[i].Name)))
			}
		}
	case snapshot.KindTCPRoute, snapshot.KindUDPRoute:
		what = "rule"
		if o := t.from.Route.Spec(c, snapshot.Kind(target.Object.Kind), n); o != nil {
			there, ours = true, t.from.Route.Streams.Get(c, target.Object) != nil
			sections = o.Rules
		}
	case snapshot.KindIngressRoute:
		what = "route"
		o := t.in.IngressRoutes.Get(c, n)
		there, ours = o != nil, o != nil && t.in.Config.IsOurs(o)
	case snapshot.KindService:
		what = "port"
		if o := t.in.Services.Get(c, n); o != nil {
			there, ours = true, target.Kind != snapshot.KindLoadBalancerPolicy || input.IsOurs(o)
			for _, p := range o.Spec.Ports {
				sections = append(sections, p.Name)
			}
		}
	}
	switch {
	case !there:
		return path + ".name: " + target.Object.String() + " not found"
	case !ours:
		return path + ".name: " + target.Object.String() + " is not served by " + string(t.in.Config.ControllerName)
	case target.Section != "" && !slices.Contains(sections, target.Section):
		return path + ".sectionName: " + target.Object.String() + " has no " + what + " named " + field.Quote(target.Section)
	}
	return ""
}
