package status

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/translate"
)

// Only another quote of checks waits.
func TestWhatMayWaitForOtherWords(t *testing.T) {
	const (
		idle    = "no backend takes new flows of tcp://192.0.2.1:80: 2 of 2 backends are unhealthy"
		refused = idle + ", most often: connection refused"
		missing = idle + ", most often: answered 404"
		note    = `annotation "a" is not read; annotation "b" is not read`
	)
	served := func(message string) corev1.ServiceStatus {
		return corev1.ServiceStatus{Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionServed, Status: metav1.ConditionFalse, Reason: ReasonNoBackends, Message: message, ObservedGeneration: 3,
		}}}
	}
	with := func(s corev1.ServiceStatus, change func(*corev1.ServiceStatus)) corev1.ServiceStatus {
		change(&s)
		return s
	}
	for _, c := range []struct {
		name          string
		shown, wanted corev1.ServiceStatus
		notes         string
		waits         bool
	}{
		{"another quote", served(refused), served(missing), "", true},
		{"another quote beside notes", served(refused + "; " + note), served(missing + "; " + note), note, true},
		{"notes come", served(refused), served(refused + "; " + note), note, false},
		{"notes go", served(refused + "; " + note), served(missing), "", false},
		{"other notes", served(refused + "; a note"), served(missing + "; " + note), note, false},
		{"more backends fail", served(refused), served("no backend takes new flows of tcp://192.0.2.1:80: 3 of 3 backends are unhealthy, most often: answered 404"), "", false},
		{"the first quote", served(idle), served(refused), "", false},
		{"another generation", served(refused), with(served(missing), func(s *corev1.ServiceStatus) { s.Conditions[0].ObservedGeneration = 4 }), "", false},
		{"another reason", served(refused), with(served(missing), func(s *corev1.ServiceStatus) { s.Conditions[0].Reason = v1alpha1.ReasonServed }), "", false},
		{"another address", served(refused), with(served(missing), func(s *corev1.ServiceStatus) {
			s.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.2"}}
		}), "", false},
		{"another condition", served(refused), with(served(missing), func(s *corev1.ServiceStatus) {
			s.Conditions = append(s.Conditions, metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Accepted"})
		}), "", false},
		{"nothing was shown", corev1.ServiceStatus{}, served(missing), "", false},
	} {
		live := &corev1.Service{Status: c.shown}
		if waits := Requotes(live, &translate.Status{Service: &c.wanted, Notes: c.notes}); waits != c.waits {
			t.Errorf("%s: it waits: %v", c.name, waits)
		}
	}
}
