package status

import (
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/snapshot"
)

// ApplyRoute shows the status of the parents that are ours, and how far they are programmed.
func ApplyRoute(want []gatewayv1.RouteParentStatus, generation int64, v progress.Result, controller gatewayv1.GatewayController) Applier {
	return func(live client.Object, now metav1.Time) client.Object {
		status := snapshot.RouteStatus(live)
		if status == nil {
			return nil
		}
		parents := make([]gatewayv1.RouteParentStatus, len(want))
		for i, p := range want {
			if accepted(p.Conditions) {
				var old []metav1.Condition
				for _, q := range status.Parents {
					if q.ControllerName == p.ControllerName && equality.Semantic.DeepEqual(q.ParentRef, p.ParentRef) {
						old = q.Conditions
					}
				}
				if c, ok := programmedCondition(RouteProgrammed, v, generation, old); ok {
					p.Conditions = withProgrammed(p.Conditions, c)
				}
			}
			parents[i] = p
		}
		merged := mergeParents(status.Parents, parents, controller, now)
		if equality.Semantic.DeepEqual(merged, status.Parents) || len(merged)+len(status.Parents) == 0 {
			return nil
		}
		next := live.DeepCopyObject().(client.Object)
		snapshot.RouteStatus(next).Parents = (&gatewayv1.RouteStatus{Parents: merged}).DeepCopy().Parents
		return next
	}
}
