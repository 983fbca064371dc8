package plane

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

// programmedCondition words a verdict; with verdictHold it is what stands in live.
func programmedCondition(conditionType string, v verdict, generation int64, live []metav1.Condition) (metav1.Condition, bool) {
	c := metav1.Condition{Type: conditionType, ObservedGeneration: generation, Message: v.Message}
	switch v.State {
	case verdictProgrammed:
		c.Status, c.Reason = metav1.ConditionTrue, ReasonProgrammed
	case verdictPending:
		c.Status, c.Reason = metav1.ConditionFalse, cmp.Or(v.Reason, ReasonPending)
	case verdictRefused:
		c.Status, c.Reason = metav1.ConditionFalse, ReasonRefused
	case verdictHold:
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

// showsProgrammed says whether an object shows that this generation of it is programmed.
func showsProgrammed(live client.Object, generation int64) bool {
	shows := func(conditions []metav1.Condition, conditionType string) bool {
		c := meta.FindStatusCondition(conditions, conditionType)
		return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
	}
	switch o := live.(type) {
	case *gatewayv1.Gateway:
		return shows(o.Status.Conditions, string(gatewayv1.GatewayConditionProgrammed))
	case *gatewayv1.HTTPRoute:
		return slices.ContainsFunc(o.Status.Parents, func(p gatewayv1.RouteParentStatus) bool { return shows(p.Conditions, RouteProgrammed) })
	default:
		return false
	}
}

// applyClass shows the status on a GatewayClass.
func applyClass(want gatewayv1.GatewayClassStatus) applier {
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

// applyGateway shows the status and the verdict on a Gateway and its listeners.
func applyGateway(want gatewayv1.GatewayStatus, generation int64, v verdict) applier {
	return func(live client.Object, now metav1.Time) client.Object {
		o, ok := live.(*gatewayv1.Gateway)
		if !ok {
			return nil
		}
		status := mergeGateway(o.Status, programGateway(o, want, generation, v), now)
		if equality.Semantic.DeepEqual(status, o.Status) {
			return nil
		}
		n := *o
		n.Status = status
		return n.DeepCopy()
	}
}

// programGateway adds the Programmed conditions, as Gateway API words them.
func programGateway(o *gatewayv1.Gateway, want gatewayv1.GatewayStatus, generation int64, v verdict) gatewayv1.GatewayStatus {
	live := o.Status
	const conditionType = string(gatewayv1.GatewayConditionProgrammed)
	of := func(ours bool, ready verdict, old []metav1.Condition, address bool) metav1.Condition {
		c, ok := programmedCondition(conditionType, ready, generation, old)
		switch {
		case !ours:
			c = metav1.Condition{
				Type: conditionType, ObservedGeneration: generation, Status: metav1.ConditionFalse,
				Reason: string(gatewayv1.GatewayReasonInvalid), Message: "it is not accepted",
			}
		case !ok:
			c = metav1.Condition{
				Type: conditionType, ObservedGeneration: generation, Status: metav1.ConditionFalse,
				Reason: string(gatewayv1.GatewayReasonInvalid), Message: "none of its listeners can be served",
			}
		case ready.State == verdictRefused:
			c.Reason = string(gatewayv1.GatewayReasonInvalid)
			c.Message = refusedPrefix + c.Message
		case ready.State == verdictPending && !ready.Machines && ready.Reason == "":
			c.Reason = string(gatewayv1.GatewayReasonNoResources)
		case ready.State == verdictProgrammed && address && len(want.Addresses) == 0:
			c.Status, c.Reason = metav1.ConditionFalse, string(gatewayv1.GatewayReasonAddressNotAssigned)
			c.Message = "no machine that serves this has reported an address"
		}
		return c
	}
	out := want
	out.Conditions = withProgrammed(want.Conditions, of(accepted(want.Conditions), v, live.Conditions, true))
	out.Listeners = make([]gatewayv1.ListenerStatus, len(want.Listeners))
	for i, l := range want.Listeners {
		var old []metav1.Condition
		for _, o := range live.Listeners {
			if o.Name == l.Name {
				old = o.Conditions
			}
		}
		own := v.of(o, l.Name)
		c := of(accepted(want.Conditions) && accepted(l.Conditions), own, old, false)
		switch {
		case c.Status == metav1.ConditionTrue || own.State == verdictHold:
		case c.Reason == string(gatewayv1.GatewayReasonNoResources):
			c.Reason = string(gatewayv1.ListenerReasonPending)
		}
		l.Conditions = withProgrammed(l.Conditions, c)
		out.Listeners[i] = l
	}
	return out
}

// of is the verdict on one listener of the Gateway: that on its port, where they differ.
func (v verdict) of(o *gatewayv1.Gateway, name gatewayv1.SectionName) verdict {
	for _, l := range o.Spec.Listeners {
		if own, ok := v.Ports[translate.ListenerID(uint16(l.Port))]; ok && l.Name == name {
			return own
		}
	}
	return v
}

// applyHTTPRoute shows the status and the verdict on the parents that are ours.
func applyHTTPRoute(want gatewayv1.HTTPRouteStatus, generation int64, v verdict, controller gatewayv1.GatewayController) applier {
	return func(live client.Object, now metav1.Time) client.Object {
		o, ok := live.(*gatewayv1.HTTPRoute)
		if !ok {
			return nil
		}
		parents := make([]gatewayv1.RouteParentStatus, len(want.Parents))
		for i, p := range want.Parents {
			if accepted(p.Conditions) {
				var old []metav1.Condition
				for _, q := range o.Status.Parents {
					if q.ControllerName == p.ControllerName && equality.Semantic.DeepEqual(q.ParentRef, p.ParentRef) {
						old = q.Conditions
					}
				}
				if c, ok := programmedCondition(RouteProgrammed, v, generation, old); ok {
					p.Conditions = withProgrammed(p.Conditions, c)
				}
			}
			parents[i] = p
		}
		merged := mergeParents(o.Status.Parents, parents, controller, now)
		if equality.Semantic.DeepEqual(merged, o.Status.Parents) || len(merged)+len(o.Status.Parents) == 0 {
			return nil
		}
		n := *o
		n.Status.Parents = merged
		return n.DeepCopy()
	}
}

// applyIngressRoute shows the status, and a refusal as invalid.
func applyIngressRoute(want contourv1beta1.Status, v verdict) applier {
	return func(live client.Object, _ metav1.Time) client.Object {
		o, ok := live.(*contourv1beta1.IngressRoute)
		if !ok {
			return nil
		}
		status := want
		if want.CurrentStatus == contourv1beta1.StatusValid {
			switch {
			case v.State == verdictRefused:
				status.CurrentStatus, status.Description = contourv1beta1.StatusInvalid, refusedPrefix+v.Message
			case v.State == verdictHold && strings.HasPrefix(o.Status.Description, refusedPrefix):
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
func applyAddressPool(want v1alpha1.AddressPoolStatus) applier {
	return func(live client.Object, now metav1.Time) client.Object {
		o, ok := live.(*v1alpha1.AddressPool)
		if !ok {
			return nil
		}
		status := want
		status.Conditions = mergeConditions(o.Status.Conditions, want.Conditions, func(t string) bool { return t == v1alpha1.ConditionAccepted }, now)
		if equality.Semantic.DeepEqual(status, o.Status) {
			return nil
		}
		n := *o
		n.Status = status
		return n.DeepCopy()
	}
}

// applyBGPPeer shows what was translated, and whether the sessions are established, once
// that is known.
func applyBGPPeer(want v1alpha1.BGPPeerStatus, established metav1.Condition, known bool) applier {
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
		status.Conditions = mergeConditions(o.Status.Conditions, status.Conditions, ours, now)
		if equality.Semantic.DeepEqual(status, o.Status) {
			return nil
		}
		n := *o
		n.Status = status
		return n.DeepCopy()
	}
}

// applyService shows the addresses of a Service, and our conditions beside those of
// others.
func applyService(want corev1.ServiceStatus) applier {
	return func(live client.Object, now metav1.Time) client.Object {
		o, ok := live.(*corev1.Service)
		if !ok {
			return nil
		}
		status := *o.Status.DeepCopy()
		status.LoadBalancer = want.LoadBalancer
		ours := func(t string) bool { return strings.HasPrefix(t, v1alpha1.GroupVersion.Group+"/") }
		status.Conditions = mergeConditions(o.Status.Conditions, want.Conditions, ours, now)
		if equality.Semantic.DeepEqual(status, o.Status) {
			return nil
		}
		n := *o
		n.Status = status
		return n.DeepCopy()
	}
}

// applier is statusWrite's Apply.
type applier = func(live client.Object, now metav1.Time) client.Object

// applierOf chooses by what the status is of; nil when it is of nothing.
func applierOf(s *translate.Status, v verdict, controller gatewayv1.GatewayController) applier {
	switch {
	case s.GatewayClass != nil:
		return applyClass(*s.GatewayClass)
	case s.Gateway != nil:
		return applyGateway(*s.Gateway, s.Generation, v)
	case s.HTTPRoute != nil:
		return applyHTTPRoute(*s.HTTPRoute, s.Generation, v, controller)
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
