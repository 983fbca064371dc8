package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/translate"
)

// A Service that translation refuses is a problem, one that waits for machines is none yet.
func TestARefusedServiceIsAProblem(t *testing.T) {
	for reason, want := range map[string]string{v1alpha1.ReasonUnsupportedProtocol: StateInvalid, v1alpha1.ReasonPortTaken: StateInvalid, v1alpha1.ReasonPending: StateUnserved} {
		status := &translate.Status{Service: &corev1.ServiceStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionServed, Status: metav1.ConditionFalse, Reason: reason, Message: "why"}}}}
		if state, why, _ := StateOf(status, progress.Result{}); state != want || want == StateInvalid && why != reason {
			t.Errorf("%s: it is %s, %s", reason, state, why)
		}
	}
}

// A route of which a part is wrong is served all the same; one that is not accepted is not.
func TestARouteThatIsWrongInPartIsDegraded(t *testing.T) {
	condition := func(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: status, Reason: reason}
	}
	accepted := condition("Accepted", metav1.ConditionTrue, "Accepted")
	for name, c := range map[string]struct {
		conditions  []metav1.Condition
		result      progress.State
		state, says string
	}{
		"a backend is missing":         {[]metav1.Condition{accepted, condition("ResolvedRefs", metav1.ConditionFalse, "BackendNotFound")}, progress.Programmed, "degraded", "BackendNotFound"},
		"and a machine has to follow":  {[]metav1.Condition{accepted, condition("ResolvedRefs", metav1.ConditionFalse, "BackendNotFound")}, progress.Pending, "degraded", "BackendNotFound"},
		"a rule is dropped":            {[]metav1.Condition{accepted, condition("PartiallyInvalid", metav1.ConditionTrue, "UnsupportedValue")}, progress.Programmed, "degraded", "PartiallyInvalid"},
		"all is well":                  {[]metav1.Condition{accepted, condition("ResolvedRefs", metav1.ConditionTrue, "ResolvedRefs")}, progress.Programmed, "programmed", "Programmed"},
		"nothing is accepted":          {[]metav1.Condition{condition("Accepted", metav1.ConditionFalse, "UnsupportedValue")}, progress.None, "invalid", "UnsupportedValue"},
		"nothing of it is programmed":  {[]metav1.Condition{accepted, condition("ResolvedRefs", metav1.ConditionFalse, "BackendNotFound")}, progress.None, "invalid", "BackendNotFound"},
		"a proxy refused what is left": {[]metav1.Condition{accepted, condition("ResolvedRefs", metav1.ConditionFalse, "BackendNotFound")}, progress.Refused, "invalid", "BackendNotFound"},
	} {
		status := &translate.Status{HTTPRoute: &gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{{Conditions: c.conditions}}}}}
		if state, why, _ := StateOf(status, progress.Result{State: c.result}); state != c.state || why != c.says {
			t.Errorf("%s: it is %s, %s; want %s, %s", name, state, why, c.state, c.says)
		}
	}
}
