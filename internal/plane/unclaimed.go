package plane

import (
	"fmt"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// reasonNoClass is the reason of a problem: a Gateway that nobody can serve, because
// its class is not there. No status may be written to it: the class may come, and be
// another controller's.
const reasonNoClass = "ClassNotFound"

// reasonNoGateway is the reason of a problem: a route that attaches to no Gateway there
// is. No status may be written to it either: the Gateway may come, and be another
// controller's.
const reasonNoGateway = "GatewayNotFound"

// unclaimedGateways names the Gateways whose class does not exist, in no order.
func unclaimedGateways(s *snapshot.Snapshot, controller gatewayv1.GatewayController) []model.Problem {
	var problems []model.Problem
	for n, g := range s.Gateways {
		class := string(g.Spec.GatewayClassName)
		if s.GatewayClasses[snapshot.Name{Name: class}] != nil {
			continue
		}
		problems = append(problems, model.Problem{
			Severity: model.SeverityWarning, Subject: model.Object{Kind: string(snapshot.KindGateway), Namespace: n.Namespace, Name: n.Name}.String(), Reason: reasonNoClass,
			Message: fmt.Sprintf("spec.gatewayClassName: there is no GatewayClass %s, so nobody serves it; a class of ours has spec.controllerName %s", class, controller),
		})
	}
	return problems
}

// unclaimedRoutes names the routes that attach to nothing: every Gateway
// and ListenerSet that they name is missing, or they name none. They are in no order.
func unclaimedRoutes(s *snapshot.Snapshot) []model.Problem {
	var problems []model.Problem
	for r := range gatewayRoutes(s) {
		var missing []string
		attached := false
		for i, ref := range r.parents {
			kind := snapshot.KindGateway
			if ref.Kind != nil {
				kind = snapshot.Kind(*ref.Kind)
			}
			n := snapshot.Name{Namespace: r.object.Namespace, Name: string(ref.Name)}
			if ref.Namespace != nil {
				n.Namespace = string(*ref.Namespace)
			}
			switch {
			case ref.Group != nil && *ref.Group != gatewayv1.GroupName, kind != snapshot.KindGateway && kind != snapshot.KindListenerSet:
				attached = true // to something that is not ours to know
			case kind == snapshot.KindGateway && s.Gateways[n] != nil, kind == snapshot.KindListenerSet && s.ListenerSets[n] != nil:
				attached = true
			default:
				missing = append(missing, fmt.Sprintf("spec.parentRefs[%d]: there is no %s %s", i, kind, n))
			}
		}
		if attached {
			continue
		}
		message := "spec.parentRefs: it names no Gateway, so nobody serves it"
		if len(missing) > 0 {
			message = list(missing, "; ") + ", so nobody serves it"
		}
		problems = append(problems, model.Problem{
			Severity: model.SeverityWarning, Subject: r.object.String(), Reason: reasonNoGateway, Message: message,
		})
	}
	return problems
}
