package plane

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
)

// A Service that leaves us shows nothing of ours any more, and keeps what others wrote.
func TestServiceThatLeavesShowsNothingOfOurs(t *testing.T) {
	r := newRig(t)
	first := r.plane("one").awaitReady()
	r.create(pool())
	app := balanced("app")
	r.create(app)
	const theirs = "example.com/Seen"
	show := func(s *corev1.Service, conditionType string) {
		meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: "Seen"})
	}
	status := func(change func(*corev1.Service)) {
		t.Helper()
		eventually(t, "its status is edited", func() error {
			if err := reread(r, app); err != nil {
				return err
			}
			change(app)
			return r.client.Status().Update(context.Background(), app)
		})
	}
	shows := func(ours bool, address string) func(*corev1.Service) error {
		return func(s *corev1.Service) error {
			var got string
			for _, in := range s.Status.LoadBalancer.Ingress {
				got += in.IP
			}
			is := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionServed) != nil
			if is != ours || got != address || meta.FindStatusCondition(s.Status.Conditions, theirs) == nil {
				return fmt.Errorf("it shows %q and %+v", got, s.Status.Conditions)
			}
			return nil
		}
	}
	status(func(s *corev1.Service) { show(s, theirs) })
	await(r, app, "it is ours", shows(true, vip4.String()))
	edit(r, app, func(s *corev1.Service) {
		s.Spec.Type, s.Spec.LoadBalancerClass, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeClusterIP, nil, nil
	})
	await(r, app, "it has left", shows(false, ""))

	// Another controller has it now.
	edit(r, app, func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer })
	const address = "198.51.100.7"
	give := func(s *corev1.Service) { s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}} }
	status(give)
	await(r, app, "it is another's", shows(false, address))

	// It left while no plane ran.
	first.stop()
	status(func(s *corev1.Service) { show(s, v1alpha1.ConditionServed) })
	r.plane("two").awaitReady()
	await(r, app, "the next plane takes it back", shows(false, address))
}
