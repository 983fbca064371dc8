package plane

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
)

// routeStatus is the status of a route of Gateways, nil of anything else.
func routeStatus(o client.Object) *gatewayv1.RouteStatus {
	switch o := o.(type) {
	case *gatewayv1.HTTPRoute:
		return &o.Status.RouteStatus
	case *gatewayv1.GRPCRoute:
		return &o.Status.RouteStatus
	case *gatewayv1.TLSRoute:
		return &o.Status.RouteStatus
	case *gatewayv1.TCPRoute:
		return &o.Status.RouteStatus
	case *gatewayv1.UDPRoute:
		return &o.Status.RouteStatus
	default:
		return nil
	}
}

// withParents returns a copy of a route with other parents in its status.
func withParents(o client.Object, parents []gatewayv1.RouteParentStatus) client.Object {
	switch o := o.(type) {
	case *gatewayv1.HTTPRoute:
		n := *o
		n.Status.Parents = parents
		return n.DeepCopy()
	case *gatewayv1.GRPCRoute:
		n := *o
		n.Status.Parents = parents
		return n.DeepCopy()
	case *gatewayv1.TLSRoute:
		n := *o
		n.Status.Parents = parents
		return n.DeepCopy()
	case *gatewayv1.TCPRoute:
		n := *o
		n.Status.Parents = parents
		return n.DeepCopy()
	case *gatewayv1.UDPRoute:
		n := *o
		n.Status.Parents = parents
		return n.DeepCopy()
	default:
		return nil
	}
}

// applyRoute shows the status and the verdict on the parents that are ours.
func applyRoute(want []gatewayv1.RouteParentStatus, generation int64, v verdict, controller gatewayv1.GatewayController) applier {
	return func(live client.Object, now metav1.Time) client.Object {
		status := routeStatus(live)
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
		return withParents(live, merged)
	}
}

// unattached is the status of a route of a kind that nothing of ours has; nil for kinds
// that are no routes of Gateways.
func unattached(kind snapshot.Kind, generation int64) *translate.Status {
	none := gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{}}
	switch kind {
	case snapshot.KindHTTPRoute:
		return &translate.Status{Generation: generation, HTTPRoute: &gatewayv1.HTTPRouteStatus{RouteStatus: none}}
	case snapshot.KindGRPCRoute:
		return &translate.Status{Generation: generation, GRPCRoute: &gatewayv1.GRPCRouteStatus{RouteStatus: none}}
	case snapshot.KindTLSRoute:
		return &translate.Status{Generation: generation, TLSRoute: &gatewayv1.TLSRouteStatus{RouteStatus: none}}
	case snapshot.KindTCPRoute:
		return &translate.Status{Generation: generation, TCPRoute: &gatewayv1.TCPRouteStatus{RouteStatus: none}}
	case snapshot.KindUDPRoute:
		return &translate.Status{Generation: generation, UDPRoute: &gatewayv1.UDPRouteStatus{RouteStatus: none}}
	default:
		return nil
	}
}

// applyBackendTLSPolicy shows the ancestors that are ours.
func applyBackendTLSPolicy(want gatewayv1.PolicyStatus, controller gatewayv1.GatewayController) applier {
	return func(live client.Object, now metav1.Time) client.Object {
		o, ok := live.(*gatewayv1.BackendTLSPolicy)
		if !ok {
			return nil
		}
		merged := mergeAncestors(o.Status.Ancestors, want.Ancestors, controller, now)
		if equality.Semantic.DeepEqual(merged, o.Status.Ancestors) || len(merged)+len(o.Status.Ancestors) == 0 {
			return nil
		}
		n := *o
		n.Status.Ancestors = merged
		return n.DeepCopy()
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
			a.Conditions = mergeConditions(old.Conditions, a.Conditions, everyType, now)
			out = append(out, a)
		}
	}
	for i, a := range want {
		if !used[i] && i < maxAncestors-others {
			a.Conditions = mergeConditions(nil, a.Conditions, everyType, now)
			out = append(out, a)
		}
	}
	return out
}
