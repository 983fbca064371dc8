package status

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/progress"
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
