package status

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

// A policy that holds at one target and not at another is degraded, one that holds nowhere invalid.
func TestStateOfPolicyThatHoldsInPart(t *testing.T) {
	held := gatewayv1.PolicyAncestorStatus{Conditions: acceptedCondition()}
	lost := gatewayv1.PolicyAncestorStatus{Conditions: []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionFalse, Reason: "Conflicted"}}}
	for want, ancestors := range map[string][]gatewayv1.PolicyAncestorStatus{
		StateProgrammed: {held, held},
		StateDegraded:   {held, lost},
		StateInvalid:    {lost, lost},
	} {
		status := &translate.Status{Policy: &gatewayv1.PolicyStatus{Ancestors: ancestors}}
		if state, reason, _ := StateOf(status, progress.Result{}); state != want || (reason == "Conflicted") != (want != StateProgrammed) {
			t.Errorf("it is %s, %s; want %s", state, reason, want)
		}
	}
}

// Each kind of policy shows our ancestors beside those of others, and is written once.
func TestPolicyStatus(t *testing.T) {
	const ours, other = "fairlead.dev/gateway", "example.com/other"
	ancestor := func(controller gatewayv1.GatewayController) gatewayv1.PolicyAncestorStatus {
		return gatewayv1.PolicyAncestorStatus{
			AncestorRef: gatewayv1.ParentReference{Name: "web"}, ControllerName: controller, Conditions: acceptedCondition(),
		}
	}
	apply := applyPolicy(gatewayv1.PolicyStatus{Ancestors: []gatewayv1.PolicyAncestorStatus{ancestor(ours)}}, ours)
	for _, live := range []client.Object{&v1alpha1.ClientPolicy{}, &v1alpha1.RoutePolicy{}, &v1alpha1.BackendPolicy{}} {
		status := snapshot.PolicyStatus(live)
		status.Ancestors = append(status.Ancestors, ancestor(other))
		next := apply(live, now)
		if next == nil {
			t.Fatalf("%T: nothing is written", live)
		}
		if len(status.Ancestors) != 1 {
			t.Errorf("%T: the live object was changed", live)
		}
		if shown := snapshot.PolicyStatus(next); len(shown.Ancestors) != 2 || shown.Ancestors[0].ControllerName != other || shown.Ancestors[1].Conditions[0].LastTransitionTime.IsZero() {
			t.Errorf("%T: %+v", live, shown.Ancestors)
		}
		if apply(next, metav1.NewTime(now.Add(time.Hour))) != nil {
			t.Errorf("%T would be written again", live)
		}
	}
	if apply(&v1alpha1.Machine{}, now) != nil {
		t.Error("a Machine is no policy")
	}
}
