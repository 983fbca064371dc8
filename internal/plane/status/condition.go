package status

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// MergeConditions returns what live becomes when ours are set: conditions of the
// types in ours are replaced, and those of types that were ours and are no more are
// dropped; all others stay as somebody else wrote them. The time of a condition
// moves only when its status changes.
func MergeConditions(live, ours []metav1.Condition, owned func(conditionType string) bool, now metav1.Time) []metav1.Condition {
	var out []metav1.Condition
	for _, old := range live {
		at := slices.IndexFunc(ours, func(c metav1.Condition) bool { return c.Type == old.Type })
		switch {
		case at >= 0:
			out = append(out, dated(ours[at], &old, now))
		case !owned(old.Type):
			out = append(out, old)
		}
	}
	for _, c := range ours {
		if !slices.ContainsFunc(live, func(old metav1.Condition) bool { return old.Type == c.Type }) {
			out = append(out, dated(c, nil, now))
		}
	}
	return out
}

func dated(c metav1.Condition, old *metav1.Condition, now metav1.Time) metav1.Condition {
	c.LastTransitionTime = now
	if old != nil && old.Status == c.Status && !old.LastTransitionTime.IsZero() {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return c
}

// everyType owns every condition: those of listeners and of our own parents.
func everyType(string) bool { return true }

// gatewayType owns the conditions that a Gateway's controller sets.
func gatewayType(t string) bool {
	switch gatewayv1.GatewayConditionType(t) {
	case gatewayv1.GatewayConditionAccepted, gatewayv1.GatewayConditionProgrammed, gatewayv1.GatewayConditionResolvedRefs,
		gatewayv1.GatewayConditionInsecureFrontendValidationMode:
		return true
	}
	return false
}

// setType owns the conditions that a ListenerSet's controller sets.
func setType(t string) bool {
	switch gatewayv1.ListenerSetConditionType(t) {
	case gatewayv1.ListenerSetConditionAccepted, gatewayv1.ListenerSetConditionProgrammed:
		return true
	}
	return false
}

func mergeListenerSet(live, want gatewayv1.ListenerSetStatus, now metav1.Time) gatewayv1.ListenerSetStatus {
	out := want
	out.Conditions = MergeConditions(live.Conditions, want.Conditions, setType, now)
	out.Listeners = slices.Clone(want.Listeners)
	for i, l := range out.Listeners {
		var old []metav1.Condition
		for _, o := range live.Listeners {
			if o.Name == l.Name {
				old = o.Conditions
			}
		}
		out.Listeners[i].Conditions = MergeConditions(old, l.Conditions, everyType, now)
	}
	return out
}

// classType owns the conditions that a GatewayClass's controller sets.
func classType(t string) bool {
	switch gatewayv1.GatewayClassConditionType(t) {
	case gatewayv1.GatewayClassConditionStatusAccepted, gatewayv1.GatewayClassConditionStatusSupportedVersion:
		return true
	}
	return false
}

func mergeClass(live gatewayv1.GatewayClassStatus, want gatewayv1.GatewayClassStatus, now metav1.Time) gatewayv1.GatewayClassStatus {
	out := want
	out.Conditions = MergeConditions(live.Conditions, want.Conditions, classType, now)
	if want.SupportedFeatures == nil {
		out.SupportedFeatures = live.SupportedFeatures
	}
	return out
}

func mergeGateway(live, want gatewayv1.GatewayStatus, now metav1.Time) gatewayv1.GatewayStatus {
	out := want
	out.Conditions = MergeConditions(live.Conditions, want.Conditions, gatewayType, now)
	out.Listeners = slices.Clone(want.Listeners)
	for i, l := range out.Listeners {
		var old []metav1.Condition
		for _, o := range live.Listeners {
			if o.Name == l.Name {
				old = o.Conditions
			}
		}
		out.Listeners[i].Conditions = MergeConditions(old, l.Conditions, everyType, now)
	}
	return out
}

// mergeParents replaces the parents of our controller and keeps those of others, each
// in its place.
func mergeParents(live, want []gatewayv1.RouteParentStatus, controller gatewayv1.GatewayController, now metav1.Time) []gatewayv1.RouteParentStatus {
	out := []gatewayv1.RouteParentStatus{}
	used := make([]bool, len(want))
	same := func(a gatewayv1.ParentReference) int {
		return slices.IndexFunc(want, func(p gatewayv1.RouteParentStatus) bool { return equality.Semantic.DeepEqual(p.ParentRef, a) })
	}
	for _, old := range live {
		if old.ControllerName != controller {
			out = append(out, old)
			continue
		}
		if i := same(old.ParentRef); i >= 0 && !used[i] {
			used[i] = true
			p := want[i]
			p.Conditions = MergeConditions(old.Conditions, p.Conditions, everyType, now)
			out = append(out, p)
		}
	}
	for i, p := range want {
		if !used[i] {
			p.Conditions = MergeConditions(nil, p.Conditions, everyType, now)
			out = append(out, p)
		}
	}
	return out
}
