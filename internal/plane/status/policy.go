package status

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/snapshot"
)

// applyPolicy shows the ancestors of a policy that are ours.
func applyPolicy(want gatewayv1.PolicyStatus, controller gatewayv1.GatewayController) Applier {
	return func(live client.Object, now metav1.Time) client.Object {
		status := snapshot.PolicyStatus(live)
		if status == nil {
			return nil
		}
		merged := mergeAncestors(status.Ancestors, want.Ancestors, controller, now)
		if equality.Semantic.DeepEqual(merged, status.Ancestors) || len(merged)+len(status.Ancestors) == 0 {
			return nil
		}
		next := live.DeepCopyObject().(client.Object)
		snapshot.PolicyStatus(next).Ancestors = (&gatewayv1.PolicyStatus{Ancestors: merged}).DeepCopy().Ancestors
		return next
	}
}

// maxAncestors is how many ancestors the schema of a policy's status lets in.
const maxAncestors = 16

// mergeAncestors replaces the ancestors of our controller and keeps those of others, each
// in its place, as many as fit.
func mergeAncestors(live, want []gatewayv1.PolicyAncestorStatus, controller gatewayv1.GatewayController, now metav1.Time) []gatewayv1.PolicyAncestorStatus {
	out := []gatewayv1.PolicyAncestorStatus{}
	used := make([]bool, len(want))
	others := 0
	for _, old := range live {
		if old.ControllerName != controller {
			others++
		}
	}
	for _, old := range live {
		if old.ControllerName != controller {
			out = append(out, old)
			continue
		}
		i := slices.IndexFunc(want, func(a gatewayv1.PolicyAncestorStatus) bool {
			return equality.Semantic.DeepEqual(a.AncestorRef, old.AncestorRef)
		})
		if i >= 0 && i < maxAncestors-others && !used[i] {
			used[i] = true
			a := want[i]
			a.Conditions = MergeConditions(old.Conditions, a.Conditions, everyType, now)
			out = append(out, a)
		}
	}
	for i, a := range want {
		if !used[i] && i < maxAncestors-others {
			a.Conditions = MergeConditions(nil, a.Conditions, everyType, now)
			out = append(out, a)
		}
	}
	return out
}
