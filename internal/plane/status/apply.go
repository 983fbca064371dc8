package status

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

// RouteProgrammed is the condition type of a route's parent that says whether the
// machines concerned run the route.
const RouteProgrammed = "fairlead.dev/Programmed"

// Reasons of RouteProgrammed, beside those that Gateway API names.
const (
	// ReasonProgrammed says that every machine concerned runs it.
	ReasonProgrammed = "Programmed"
	// ReasonPending says that some machine has not said so yet; the message names it.
	ReasonPending = "Pending"
	// ReasonRefused says that a machine's proxy refused it; the message has its words.
	ReasonRefused = "Refused"
)

// refusedPrefix begins the description of an IngressRoute that a proxy refused.
const refusedPrefix = "refused by the proxy of "

// refusedText says who refused what, and in which words.
func refusedText(v progress.Result) string {
	if v.Kernel {
		return "refused by " + v.Message
	}
	return refusedPrefix + v.Message
}

// programmedCondition words a result; of progress.Unknown it is the condition in live.
func programmedCondition(conditionType string, v progress.Result, generation int64, live []metav1.Condition) (metav1.Condition, bool) {
	c := metav1.Condition{Type: conditionType, ObservedGeneration: generation, Message: v.Message}
	switch v.State {
	case progress.Programmed:
		c.Status, c.Reason = metav1.ConditionTrue, ReasonProgrammed
	case progress.Pending:
		c.Status, c.Reason = metav1.ConditionFalse, cmp.Or(v.Reason, ReasonPending)
	case progress.Refused:
		c.Status, c.Reason = metav1.ConditionFalse, ReasonRefused
	case progress.Unknown:
		if old := meta.FindStatusCondition(live, conditionType); old != nil {
			return *old, true
		}
		c.Status, c.Reason = metav1.ConditionFalse, ReasonPending
	default:
		return metav1.Condition{}, false
	}
	return c, true
}

// withProgrammed returns the conditions with one more.
func withProgrammed(conditions []metav1.Condition, c metav1.Condition) []metav1.Condition {
	out := make([]metav1.Condition, 0, len(conditions)+1)
	for _, old := range conditions {
		if old.Type != c.Type {
			out = append(out, old)
		}
	}
	return append(out, c)
}

func accepted(conditions []metav1.Condition) bool {
	return meta.IsStatusConditionTrue(conditions, string(gatewayv1.GatewayConditionAccepted))
}

// ShowsProgrammed says whether an object shows that this generation of it is programmed.
func ShowsProgrammed(live client.Object, generation int64) bool {
	shows := func(conditions []metav1.Condition, conditionType string) bool {
		c := meta.FindStatusCondition(conditions, conditionType)
		return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
	}
	if route := snapshot.RouteStatus(live); route != nil {
		return slices.ContainsFunc(route.Parents, func(p gatewayv1.RouteParentStatus) bool { return shows(p.Conditions, RouteProgrammed) })
	}
	switch o := live.(type) {
	case *gatewayv1.Gateway:
		return shows(o.Status.Conditions, string(gatewayv1.GatewayConditionProgrammed))
	case *gatewayv1.ListenerSet:
		return shows(o.Status.Conditions, string(gatewayv1.ListenerSetConditionProgrammed))
	case *corev1.Service:
		return shows(o.Status.Conditions, v1alpha1.ConditionServed)
	default:
		return false
	}
}

// applyClass shows the status on a GatewayClass.
func applyClass(want gatewayv1.GatewayClassStatus) Applier {
	return func(live client.Object, now metav1.Time) client.Object {
		o, ok := live.(*gatewayv1.GatewayClass)
		if !ok {
			return nil
		}
		status := mergeClass(o.Status, want, now)
		if equality.Semantic.DeepEqual(status, o.Status) {
			return nil
		}
		n := *o
		n.Status = status
		return n.DeepCopy()
	}
}

// applyIngressRoute shows the status, and a refusal as invalid.
func applyIngressRoute(want contourv1beta1.Status, v progress.Result) Applier {
	return func(live client.Object, _ metav1.Time) client.Object {
		o, ok := live.(*contourv1beta1.IngressRoute)
		if !ok {
			return nil
		}
		status := want
		if want.CurrentStatus == contourv1beta1.StatusValid {
			switch {
			case v.State == progress.Refused:
				status.CurrentStatus, status.Description = contourv1beta1.StatusInvalid, refusedPrefix+v.Message
			case v.State == progress.Unknown && strings.HasPrefix(o.Status.Description, refusedPrefix):
				status = o.Status
			}
		}
		if equality.Semantic.DeepEqual(status, o.Status) {
			return nil
		}
		n := o.DeepCopy()
		n.Status = status
		return n
	}
}

// applyAddressPool shows the whole status of a pool.
func applyAddressPool(want v1alpha1.AddressPoolStatus) Applier {
	return func(live client.Object, now metav1.Time) client.Object {
		o, ok := live.(*v1alpha1.AddressPool)
		if !ok {
			return nil
		}
		status := want
		status.Conditions = MergeConditions(o.Status.Conditions, want.Conditions, func(t string) bool { return t == v1alpha1.ConditionAccepted }, now)
		if equality.Semantic.DeepEqual(status, o.Status) {
			return nil
		}
		n := *o
		n.Status = status
		return n.DeepCopy()
	}
}

// ApplyBGPPeer shows what was translated, and whether the sessions are established, once
// that is known.
func ApplyBGPPeer(want v1alpha1.BGPPeerStatus, established metav1.Condition, known bool) Applier {
	return func(live client.Object, now metav1.Time) client.Object {
		o, ok := live.(*v1alpha1.BGPPeer)
		if !ok {
			return nil
		}
		status := want
		if known {
			status.Conditions = append(slices.Clone(want.Conditions), established)
		}
		ours := func(t string) bool { return known || t != v1alpha1.ConditionEstablished }
		status.Conditions = MergeConditions(o.Status.Conditions, status.Conditions, ours, now)
		if equality.Semantic.DeepEqual(status, o.Status) {
			return nil
		}
		n := *o
		n.Status = status
		return n.DeepCopy()
	}
}

// Applier is statusWrite's Apply.
type Applier = func(live client.Object, now metav1.Time) client.Object

// ApplierOf chooses by what the status is of; nil when it is of nothing.
func ApplierOf(s *translate.Status, v progress.Result, controller gatewayv1.GatewayController) Applier {
	switch {
	case s.GatewayClass != nil:
		return applyClass(*s.GatewayClass)
	case s.Gateway != nil:
		return applyGateway(s, v)
	case s.ListenerSet != nil:
		return applyListenerSet(s, v)
	case s.Route() != nil:
		return ApplyRoute(s.Route().Parents, s.Generation, v, controller)
	case s.Policy != nil:
		return applyPolicy(*s.Policy, controller)
	case s.BackendTLSPolicy != nil:
		return applyPolicy(*s.BackendTLSPolicy, controller)
	case s.IngressRoute != nil:
		return applyIngressRoute(*s.IngressRoute, v)
	case s.AddressPool != nil:
		return applyAddressPool(*s.AddressPool)
	case s.Service != nil:
		return applyService(*s.Service)
	default:
		return nil
	}
}
