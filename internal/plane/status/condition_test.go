package status

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/translate"
)

var (
	then = metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	now  = metav1.NewTime(then.Add(time.Hour))
)

func cond(t string, s metav1.ConditionStatus, reason string, at metav1.Time) metav1.Condition {
	return metav1.Condition{Type: t, Status: s, Reason: reason, LastTransitionTime: at}
}

func TestMergeConditions(t *testing.T) {
	live := []metav1.Condition{
		cond("Foreign", metav1.ConditionTrue, "Mine", then),
		cond("Accepted", metav1.ConditionTrue, "Old", then),
		cond("Programmed", metav1.ConditionFalse, "Pending", then),
		cond("ResolvedRefs", metav1.ConditionTrue, "WasOurs", then),
	}
	ours := []metav1.Condition{
		cond("Programmed", metav1.ConditionTrue, "Programmed", metav1.Time{}),
		cond("Accepted", metav1.ConditionTrue, "New", metav1.Time{}),
		cond("Fresh", metav1.ConditionTrue, "Fresh", metav1.Time{}),
	}
	want := []metav1.Condition{
		cond("Foreign", metav1.ConditionTrue, "Mine", then),
		cond("Accepted", metav1.ConditionTrue, "New", then), // the status is the same
		cond("Programmed", metav1.ConditionTrue, "Programmed", now),
		cond("Fresh", metav1.ConditionTrue, "Fresh", now),
	}
	got := MergeConditions(live, ours, gatewayType, now)
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if again := MergeConditions(got, ours, gatewayType, metav1.NewTime(now.Add(time.Hour))); !equality.Semantic.DeepEqual(again, want) {
		t.Errorf("merged again it is %v", again)
	}
}

func TestMergeParentsKeepsThoseOfOthers(t *testing.T) {
	parent := func(name, controller string, conditions ...metav1.Condition) gatewayv1.RouteParentStatus {
		return gatewayv1.RouteParentStatus{
			ParentRef:      gatewayv1.ParentReference{Name: gatewayv1.ObjectName(name)},
			ControllerName: gatewayv1.GatewayController(controller), Conditions: conditions,
		}
	}
	ok := func(at metav1.Time) metav1.Condition { return cond("Accepted", metav1.ConditionTrue, "Accepted", at) }
	live := []gatewayv1.RouteParentStatus{
		parent("gone", "us", ok(then)), parent("theirs", "them", ok(then)), parent("kept", "us", ok(then)), parent("kept", "them", ok(then)),
	}
	want := []gatewayv1.RouteParentStatus{
		parent("theirs", "them", ok(then)), parent("kept", "us", ok(then)), parent("kept", "them", ok(then)), parent("new", "us", ok(now)),
	}
	got := mergeParents(live, []gatewayv1.RouteParentStatus{parent("new", "us", ok(metav1.Time{})), parent("kept", "us", ok(metav1.Time{}))}, "us", now)
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if got := mergeParents(live, nil, "us", now); len(got) != 2 {
		t.Errorf("a route that left us has %+v", got)
	}
}

func acceptedGateway(listenerAccepted bool, addresses int) gatewayv1.GatewayStatus {
	s := gatewayv1.GatewayStatus{
		Conditions: []metav1.Condition{cond("Accepted", metav1.ConditionTrue, "Accepted", metav1.Time{})},
		Listeners:  []gatewayv1.ListenerStatus{{Name: "http", Conditions: []metav1.Condition{cond("Accepted", metav1.ConditionTrue, "Accepted", metav1.Time{})}}},
	}
	if !listenerAccepted {
		s.Listeners[0].Conditions[0].Status = metav1.ConditionFalse
	}
	for range addresses {
		s.Addresses = append(s.Addresses, gatewayv1.GatewayStatusAddress{Value: "192.0.2.1"})
	}
	return s
}

func TestGatewayProgrammed(t *testing.T) {
	refused := acceptedGateway(true, 1)
	refused.Conditions[0].Status = metav1.ConditionFalse
	for name, c := range map[string]struct {
		want              gatewayv1.GatewayStatus
		v                 progress.Result
		gateway, listener metav1.ConditionStatus
		reason, ofIts     string
	}{
		"programmed": {acceptedGateway(true, 1), progress.Result{State: progress.Programmed, Machines: true}, "True", "True", "Programmed", "Programmed"},
		"no address": {acceptedGateway(true, 0), progress.Result{State: progress.Programmed, Machines: true}, "False", "True", "AddressNotAssigned", "Programmed"},
		"pending":    {acceptedGateway(true, 1), progress.Result{State: progress.Pending, Machines: true}, "False", "False", "Pending", "Pending"},
		"no machine": {acceptedGateway(true, 0), progress.Result{State: progress.Pending}, "False", "False", "NoResources", "Pending"},
		"refused":    {acceptedGateway(true, 1), progress.Result{State: progress.Refused, Machines: true, Message: "edge-1: no"}, "False", "False", "Invalid", "Invalid"},
		"listener":   {acceptedGateway(false, 1), progress.Result{State: progress.Programmed, Machines: true}, "True", "False", "Programmed", "Invalid"},
		"nothing":    {acceptedGateway(false, 1), progress.Result{State: progress.None}, "False", "False", "Invalid", "Invalid"},
		"not ours":   {refused, progress.Result{State: progress.Programmed}, "False", "False", "Invalid", "Invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			live := &gatewayv1.Gateway{}
			apply := applyGateway(&translate.Status{Generation: 3, Gateway: &c.want}, c.v)
			next, ok := apply(live, now).(*gatewayv1.Gateway)
			if !ok {
				t.Fatal("nothing to write")
			}
			if err := hasCondition(next.Status.Conditions, "Programmed", c.gateway, c.reason); err != nil {
				t.Error("of the Gateway:", err)
			}
			if err := hasCondition(next.Status.Listeners[0].Conditions, "Programmed", c.listener, c.ofIts); err != nil {
				t.Error("of the listener:", err)
			}
			if apply(next, metav1.NewTime(now.Add(time.Hour))) != nil {
				t.Error("it would be written again")
			}
			if len(live.Status.Conditions) != 0 {
				t.Error("the live object was changed")
			}
		})
	}
}

func TestARefusedListenerSparesItsNeighbour(t *testing.T) {
	want := acceptedGateway(true, 1)
	want.Listeners = append(want.Listeners, *want.Listeners[0].DeepCopy())
	want.Listeners[1].Name = "alt"
	live := &gatewayv1.Gateway{}
	sections := map[gatewayv1.SectionName]model.ListenerID{"http": "http-80", "alt": "http-8080_a_b"}
	refused := progress.Result{State: progress.Refused, Machines: true, Message: "edge-1: no"}
	whole := refused
	whole.Ports = map[model.ListenerID]progress.Result{"http-80": refused, "http-8080_a_b": {State: progress.Programmed, Machines: true}}
	next, ok := applyGateway(&translate.Status{Generation: 3, Gateway: &want, Sections: sections}, whole)(live, now).(*gatewayv1.Gateway)
	if !ok {
		t.Fatal("nothing to write")
	}
	for what, err := range map[string]error{
		"the Gateway":   hasCondition(next.Status.Conditions, "Programmed", "False", "Invalid"),
		"the refused":   hasCondition(next.Status.Listeners[0].Conditions, "Programmed", "False", "Invalid"),
		"its neighbour": hasCondition(next.Status.Listeners[1].Conditions, "Programmed", "True", "Programmed"),
	} {
		if err != nil {
			t.Errorf("of %s: %v", what, err)
		}
	}
}

func TestIngressRouteStatus(t *testing.T) {
	valid := contourv1beta1.Status{CurrentStatus: contourv1beta1.StatusValid, Description: "valid IngressRoute"}
	refused := contourv1beta1.Status{CurrentStatus: contourv1beta1.StatusInvalid, Description: refusedPrefix + "edge-1: no"}
	invalid := contourv1beta1.Status{CurrentStatus: contourv1beta1.StatusInvalid, Description: "spec.routes: no"}
	for name, c := range map[string]struct {
		live, said, want contourv1beta1.Status
		v                progress.Result
	}{
		"valid":              {contourv1beta1.Status{}, valid, valid, progress.Result{State: progress.Programmed}},
		"pending":            {contourv1beta1.Status{}, valid, valid, progress.Result{State: progress.Pending}},
		"refused":            {valid, valid, refused, progress.Result{State: progress.Refused, Message: "edge-1: no"}},
		"refused and unsure": {refused, valid, refused, progress.Result{State: progress.Unknown}},
		"well again":         {refused, valid, valid, progress.Result{State: progress.Programmed}},
		"invalid anyway":     {refused, invalid, invalid, progress.Result{State: progress.Unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			live := &contourv1beta1.IngressRoute{Status: c.live}
			got := c.live
			if next, ok := applyIngressRoute(c.said, c.v)(live, now).(*contourv1beta1.IngressRoute); ok {
				got = next.Status
			}
			if !equality.Semantic.DeepEqual(got, c.want) {
				t.Errorf("got %+v", got)
			}
		})
	}
}
