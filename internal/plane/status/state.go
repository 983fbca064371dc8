package status

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/translate"
)

// States of an object, for people and as labels of metrics.
const (
	StateProgrammed = "programmed"
	StatePending    = "pending"
	StateInvalid    = "invalid"
	// StateDegraded is that of an object that is accepted and in which something is wrong: the
	// rest is served.
	StateDegraded = "degraded"
	StateOrphaned = "orphaned"
	// StateUnserved is that of an object that nothing of ours takes in.
	StateUnserved = "unserved"
)

// StateOf is the state of an object with a status, for people, and why.
func StateOf(s *translate.Status, v progress.Result) (state, reason, message string) {
	var conditions [][]metav1.Condition
	switch {
	case s.GatewayClass != nil:
		conditions = append(conditions, s.GatewayClass.Conditions)
	case s.AddressPool != nil:
		conditions = append(conditions, s.AddressPool.Conditions)
	case s.BGPPeer != nil:
		conditions = append(conditions, s.BGPPeer.Conditions)
	case s.Gateway != nil:
		conditions = append(conditions, s.Gateway.Conditions)
		for _, ls := range s.Gateway.Listeners {
			conditions = append(conditions, ls.Conditions)
		}
	case s.ListenerSet != nil:
		conditions = append(conditions, s.ListenerSet.Conditions)
		for _, ls := range s.ListenerSet.Listeners {
			conditions = append(conditions, ls.Conditions)
		}
	case s.Route() != nil:
		parents := s.Route().Parents
		if len(parents) == 0 {
			return StateUnserved, "", ""
		}
		for _, p := range parents {
			conditions = append(conditions, p.Conditions)
		}
	case s.Policy != nil:
		for _, a := range s.Policy.Ancestors {
			conditions = append(conditions, a.Conditions)
		}
	case s.BackendTLSPolicy != nil:
		if len(s.BackendTLSPolicy.Ancestors) == 0 {
			return StateUnserved, "", ""
		}
		for _, a := range s.BackendTLSPolicy.Ancestors {
			conditions = append(conditions, a.Conditions)
		}
	case s.Service != nil:
		// A Service that waits for machines or for an address is pending, see below.
		c := meta.FindStatusCondition(s.Service.Conditions, v1alpha1.ConditionServed)
		if c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonPending && s.Hold == nil {
			return StateInvalid, c.Reason, c.Message
		}
	case s.IngressRoute != nil && s.IngressRoute.CurrentStatus == contourv1beta1.StatusOrphaned:
		return StateOrphaned, "Orphaned", s.IngressRoute.Description
	case s.IngressRoute != nil && s.IngressRoute.CurrentStatus == contourv1beta1.StatusInvalid:
		return StateInvalid, "Invalid", s.IngressRoute.Description
	}
	faulty := StateInvalid
	judged := v.State == progress.Programmed || v.State == progress.Pending || v.State == progress.Unknown
	if (judged || s.Policy != nil || s.BackendTLSPolicy != nil) && slices.ContainsFunc(conditions, accepted) {
		faulty = StateDegraded
	}
	for _, cs := range conditions {
		for _, conditionType := range []string{string(gatewayv1.GatewayConditionAccepted), string(gatewayv1.ListenerConditionResolvedRefs)} {
			if c := meta.FindStatusCondition(cs, conditionType); c != nil && c.Status == metav1.ConditionFalse {
				return faulty, c.Reason, c.Message
			}
		}
		if c := meta.FindStatusCondition(cs, string(gatewayv1.RouteConditionPartiallyInvalid)); c != nil && c.Status == metav1.ConditionTrue {
			return faulty, c.Type, c.Message
		}
	}
	switch v.State {
	case progress.Refused:
		return StateInvalid, ReasonRefused, refusedText(v)
	case progress.Pending, progress.Unknown:
		return StatePending, cmp.Or(v.Reason, ReasonPending), v.Message
	case progress.Programmed:
		return StateProgrammed, ReasonProgrammed, v.Message
	}
	if s.GatewayClass != nil || s.IngressRoute != nil || s.AddressPool != nil || s.BGPPeer != nil || s.BackendTLSPolicy != nil || s.Policy != nil {
		return StateProgrammed, "", ""
	}
	return StateUnserved, "", ""
}
