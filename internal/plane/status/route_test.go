package status

import (
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/translate"
)

func acceptedCondition() []metav1.Condition {
	return []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", ObservedGeneration: 3}}
}

// A GRPCRoute shows what an HTTPRoute shows, and parents of others stay.
func TestGRPCRouteStatus(t *testing.T) {
	const ours, other = "fairlead.dev/gateway", "example.com/other"
	live := &gatewayv1.GRPCRoute{}
	live.Status.Parents = []gatewayv1.RouteParentStatus{{ParentRef: gatewayv1.ParentReference{Name: "theirs"}, ControllerName: other}}
	want := []gatewayv1.RouteParentStatus{{ParentRef: gatewayv1.ParentReference{Name: "edge"}, ControllerName: ours, Conditions: acceptedCondition()}}
	apply := ApplyRoute(want, 3, progress.Result{State: progress.Programmed, Machines: true}, ours)
	next, ok := apply(live, now).(*gatewayv1.GRPCRoute)
	if !ok || len(next.Status.Parents) != 2 || next.Status.Parents[0].ControllerName != other {
		t.Fatalf("got %+v", next)
	}
	if err := hasCondition(next.Status.Parents[1].Conditions, RouteProgrammed, "True", "Programmed"); err != nil {
		t.Error(err)
	}
	if !ShowsProgrammed(next, 3) || ShowsProgrammed(next, 4) {
		t.Error("it does not show what is programmed")
	}
	if apply(next, metav1.NewTime(now.Add(time.Hour))) != nil {
		t.Error("it would be written again")
	}
	gone, ok := ApplyRoute(nil, 3, progress.Result{}, ours)(next, now).(*gatewayv1.GRPCRoute)
	if !ok || len(gone.Status.Parents) != 1 || gone.Status.Parents[0].ControllerName != other {
		t.Errorf("without a parent of ours: %+v", gone)
	}
}

// A policy shows our ancestors beside those of others, and never more than may be.
func TestBackendTLSPolicyStatus(t *testing.T) {
	const ours, other = "fairlead.dev/gateway", "example.com/other"
	ancestors := func(controller gatewayv1.GatewayController, n int) []gatewayv1.PolicyAncestorStatus {
		var list []gatewayv1.PolicyAncestorStatus
		for i := range n {
			list = append(list, gatewayv1.PolicyAncestorStatus{
				AncestorRef: gatewayv1.ParentReference{Name: gatewayv1.ObjectName("edge-" + strconv.Itoa(i))}, ControllerName: controller, Conditions: acceptedCondition(),
			})
		}
		return list
	}
	live := &gatewayv1.BackendTLSPolicy{}
	live.Status.Ancestors = append(ancestors(other, 2), ancestors(ours, 1)...)
	for _, n := range []int{0, 1, 3, 16} {
		apply := applyPolicy(gatewayv1.PolicyStatus{Ancestors: ancestors(ours, n)}, ours)
		next := live
		if changed := apply(live, now); changed != nil {
			next = changed.(*gatewayv1.BackendTLSPolicy)
		}
		if got, want := len(next.Status.Ancestors), min(n, maxAncestors-2)+2; got != want || next.Status.Ancestors[0].ControllerName != other {
			t.Errorf("%d of ours: %d ancestors, want %d", n, got, want)
		}
		if apply(next, metav1.NewTime(now.Add(time.Hour))) != nil {
			t.Errorf("%d of ours: it would be written again", n)
		}
	}
	if applyPolicy(gatewayv1.PolicyStatus{}, ours)(&gatewayv1.BackendTLSPolicy{}, now) != nil {
		t.Error("nothing is written over nothing")
	}
}

// What is wrong with a part of a route is a problem, also while the rest is served.
func TestPartlyInvalidRoutesAreProblems(t *testing.T) {
	state := func(conditions ...metav1.Condition) string {
		state, reason, _ := StateOf(&translate.Status{GRPCRoute: &gatewayv1.GRPCRouteStatus{RouteStatus: gatewayv1.RouteStatus{
			Parents: []gatewayv1.RouteParentStatus{{Conditions: conditions}},
		}}}, progress.Result{})
		return state + " " + reason
	}
	partial := metav1.Condition{Type: string(gatewayv1.RouteConditionPartiallyInvalid), Status: metav1.ConditionTrue, Reason: "UnsupportedValue"}
	if got := state(append(acceptedCondition(), partial)...); got != "invalid PartiallyInvalid" {
		t.Errorf("partly invalid: %s", got)
	}
	if got := state(acceptedCondition()...); got == "invalid PartiallyInvalid" {
		t.Errorf("valid: %s", got)
	}
}
