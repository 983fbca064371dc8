package status

import (
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

// Applier is Apply of a Write.
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
