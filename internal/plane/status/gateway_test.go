package status

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/translate"
)

// A listener without a certificate to show is not programmed, and its Gateway is.
func TestAnUnservedListenerSparesItsGateway(t *testing.T) {
	want := acceptedGateway(true, 1)
	s := &translate.Status{Generation: 3, Gateway: &want, Unserved: map[gatewayv1.SectionName]string{want.Listeners[0].Name: "no certificate"}}
	next, ok := applyGateway(s, progress.Result{State: progress.Programmed, Machines: true})(&gatewayv1.Gateway{}, now).(*gatewayv1.Gateway)
	if !ok {
		t.Fatal("nothing to write")
	}
	if err := hasCondition(next.Status.Conditions, "Programmed", "True", "Programmed"); err != nil {
		t.Error("of the Gateway:", err)
	}
	if err := hasCondition(next.Status.Listeners[0].Conditions, "Programmed", "False", "Invalid"); err != nil {
		t.Error("of the listener:", err)
	}
}

// A condition of ours that is not wanted any more goes; those of others stay.
func TestInsecureValidationEnds(t *testing.T) {
	want := acceptedGateway(true, 1)
	live := &gatewayv1.Gateway{}
	live.Status.Conditions = []metav1.Condition{
		{Type: string(gatewayv1.GatewayConditionInsecureFrontendValidationMode), Status: "True", Reason: "ConfigurationChanged"},
		{Type: "example.com/theirs", Status: "True", Reason: "Theirs"},
	}
	next, ok := applyGateway(&translate.Status{Generation: 3, Gateway: &want}, progress.Result{State: progress.Programmed, Machines: true})(live, now).(*gatewayv1.Gateway)
	if !ok {
		t.Fatal("nothing to write")
	}
	for _, c := range next.Status.Conditions {
		if c.Type == string(gatewayv1.GatewayConditionInsecureFrontendValidationMode) {
			t.Error("the condition stayed")
		}
	}
	if err := hasCondition(next.Status.Conditions, "example.com/theirs", "True", "Theirs"); err != nil {
		t.Error(err)
	}
}

func TestListenerSetProgrammed(t *testing.T) {
	status := func(accepted metav1.ConditionStatus, reason string, listener metav1.ConditionStatus, conflict string) gatewayv1.ListenerSetStatus {
		conflicted := metav1.Condition{Type: "Conflicted", Status: "False", Reason: "NoConflicts"}
		if conflict != "" {
			conflicted.Status, conflicted.Reason = "True", conflict
		}
		return gatewayv1.ListenerSetStatus{
			Conditions: []metav1.Condition{{Type: "Accepted", Status: accepted, Reason: reason}},
			Listeners: []gatewayv1.ListenerEntryStatus{
				{Name: "a", Conditions: []metav1.Condition{{Type: "Accepted", Status: listener, Reason: "x"}, conflicted}},
			},
		}
	}
	programmed := progress.Result{State: progress.Programmed, Machines: true}
	for name, c := range map[string]struct {
		want          gatewayv1.ListenerSetStatus
		v             progress.Result
		set, listener metav1.ConditionStatus
		reason, ofIts string
	}{
		"programmed":  {status("True", "Accepted", "True", ""), programmed, "True", "True", "Programmed", "Programmed"},
		"pending":     {status("True", "Accepted", "True", ""), progress.Result{State: progress.Pending, Machines: true}, "False", "False", "Pending", "Pending"},
		"not allowed": {status("False", "NotAllowed", "True", ""), progress.Result{State: progress.None}, "False", "False", "NotAllowed", "Invalid"},
		"conflict":    {status("True", "ListenersNotValid", "False", "HostnameConflict"), programmed, "True", "False", "Programmed", "HostnameConflict"},
		"nothing":     {status("False", "ListenersNotValid", "False", "ProtocolConflict"), progress.Result{State: progress.None}, "False", "False", "ListenersNotValid", "ProtocolConflict"},
	} {
		t.Run(name, func(t *testing.T) {
			apply := applyListenerSet(&translate.Status{Generation: 3, ListenerSet: &c.want}, c.v)
			next, ok := apply(&gatewayv1.ListenerSet{}, now).(*gatewayv1.ListenerSet)
			if !ok {
				t.Fatal("nothing to write")
			}
			if err := hasCondition(next.Status.Conditions, "Programmed", c.set, c.reason); err != nil {
				t.Error("of the set:", err)
			}
			if err := hasCondition(next.Status.Listeners[0].Conditions, "Programmed", c.listener, c.ofIts); err != nil {
				t.Error("of the listener:", err)
			}
			if apply(next, metav1.NewTime(now.Add(time.Hour))) != nil {
				t.Error("it would be written again")
			}
		})
	}
}
