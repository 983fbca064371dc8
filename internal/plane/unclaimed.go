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

// unclaimedRoutes names the HTTPRoutes that attach to nothing: every Gateway that they
// name is missing, or they name none. They are in no order.
func unclaimedRoutes(s *snapshot.Snapshot) []model.Problem {
	var problems []model.Problem
	for n, r := range s.HTTPRoutes {
		var missing []string
		attached := false
		for i, ref := range r.Spec.ParentRefs {
			if ref.Group != nil && *ref.Group != gatewayv1.GroupName || ref.Kind != nil && string(*ref.Kind) != string(snapshot.KindGateway) {
				attached = true // to something that is not ours to know
				continue
			}
			gateway := snapshot.Name{Namespace: n.Namespace, Name: string(ref.Name)}
			if ref.Namespace != nil {
				gateway.Namespace = string(*ref.Namespace)
			}
			if s.Gateways[gateway] != nil {
				attached = true
				continue
			}
			missing = append(missing, fmt.Sprintf("spec.parentRefs[%d]: there is no Gateway %s", i, gateway))
		}
		if attached {
			continue
		}
		message := "spec.parentRefs: it names no Gateway, so nobody serves it"
		if len(missing) > 0 {
			message = list(missing, "; ") + ", so nobody serves it"
		}
		problems = append(problems, model.Problem{
			Severity: model.SeverityWarning, Subject: model.Object{Kind: string(snapshot.KindHTTPRoute), Namespace: n.Namespace, Name: n.Name}.String(),
			Reason: reasonNoGateway, Message: message,
		})
	}
	return problems
}
