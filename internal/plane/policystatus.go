package plane

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
)

// applyPolicy shows the ancestors of a policy of our own kinds.
func applyPolicy(want gatewayv1.PolicyStatus, controller gatewayv1.GatewayController) applier {
	return func(live client.Object, now metav1.Time) client.Object {
		next, status := copyPolicy(live)
		if next == nil {
			return nil
		}
		merged := mergeAncestors(status.Ancestors, want.Ancestors, controller, now)
		if equality.Semantic.DeepEqual(merged, status.Ancestors) || len(merged)+len(status.Ancestors) == 0 {
			return nil
		}
		status.Ancestors = merged
		return next
	}
}

// copyPolicy returns a copy of a policy with the place of its status; nil for other objects.
func copyPolicy(o client.Object) (client.Object, *gatewayv1.PolicyStatus) {
	switch o := o.(type) {
	case *v1alpha1.ClientPolicy:
		next := o.DeepCopy()
		return next, &next.Status
	case *v1alpha1.RoutePolicy:
		next := o.DeepCopy()
		return next, &next.Status
	case *v1alpha1.LoadBalancerPolicy:
		next := o.DeepCopy()
		return next, &next.Status
	case *v1alpha1.BackendPolicy:
		next := o.DeepCopy()
		return next, &next.Status
	}
	return nil, nil
}
