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
