package translate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/input"
)

// reasonNoClass is the reason of a problem: a Gateway that nobody can serve, because
// its class is not there. No status may be written to it: the class may come, and be
// another controller's.
const reasonNoClass = "ClassNotFound"

// reasonNoGateway is the reason of a problem: a route that attaches to no Gateway there
// is. No status may be written to it either: the Gateway may come, and be another
// controller's.
const reasonNoGateway = "GatewayNotFound"

// Unclaimed names the objects of a snapshot that nobody serves because something that they
// name is not there, sorted. No table has them: they have no status and lead to no value. It looks at
// the whole snapshot at each call.
func Unclaimed(s *snapshot.Snapshot, controller gatewayv1.GatewayController) []model.Problem {
	problems := slices.Concat(unclaimedGateways(s, controller), unclaimedRoutes(s), unclaimedServices(s))
	slices.SortFunc(problems, func(a, b model.Problem) int { return cmp.Compare(a.Subject, b.Subject) })
	return problems
}

// unclaimedGateways names the Gateways whose class does not exist, in no order.
func unclaimedGateways(s *snapshot.Snapshot, controller gatewayv1.GatewayController) []model.Problem {
	var problems []model.Problem
	for n, g := range s.Gateways {
		class := string(g.Spec.GatewayClassName)
		if s.GatewayClasses[snapshot.Name{Name: class}] != nil {
			continue
		}
		problems = append(problems, model.Problem{
			Severity: model.SeverityWarning, Subject: input.Object(snapshot.KindGateway, n).String(), Reason: reasonNoClass,
			Message: fmt.Sprintf("spec.gatewayClassName: there is no GatewayClass %s, so the Gateway is not served; a GatewayClass of Fairlead has spec.controllerName %s", class, controller),
		})
	}
	return problems
}

// unclaimedRoutes names the routes that name a Gateway or ListenerSet that is missing, or
// none at all. They are in no order.
func unclaimedRoutes(s *snapshot.Snapshot) []model.Problem {
	var problems []model.Problem
	for k, r := range s.GatewayRoutes() {
		var missing []string
		attached := false
		for i, ref := range r.Parents {
			parent, ours := gateway.ParentOf(ref, k.Name.Namespace)
			switch {
			case !ours:
				attached = true // to something that is not ours to know
			case s.Get(snapshot.Key(parent)) != nil:
				attached = true
			default:
				missing = append(missing, fmt.Sprintf("spec.parentRefs[%d]: there is no %s %s", i, parent.Kind, parent.Name))
			}
		}
		var message string
		switch {
		case attached && len(missing) == 0:
			continue
		case attached:
			message = field.ListTexts(missing) + ", so the route is not served there"
		case len(missing) > 0:
			message = field.ListTexts(missing) + ", so the route is not served"
		default:
			message = "spec.parentRefs: the route names no Gateway, so it is not served"
		}
		problems = append(problems, model.Problem{
			Severity: model.SeverityWarning, Subject: input.Object(k.Kind, k.Name).String(), Reason: reasonNoGateway, Message: message,
		})
	}
	return problems
}

// reasonNoServiceClass is the reason of a problem: a Service whose class has our domain and
// is none of ours. Nobody else serves it, and no status may be written to it, as to any
// Service of another class.
const reasonNoServiceClass = "UnknownLoadBalancerClass"

// unclaimedServices names the Services of type LoadBalancer whose class is one that we do not
// have, in no order.
func unclaimedServices(s *snapshot.Snapshot) []model.Problem {
	var problems []model.Problem
	for n, o := range s.Services {
		if o.Spec.Type != corev1.ServiceTypeLoadBalancer || o.Spec.LoadBalancerClass == nil {
			continue
		}
		class := *o.Spec.LoadBalancerClass
		domain, _, _ := strings.Cut(class, "/")
		if !strings.EqualFold(domain, v1alpha1.GroupVersion.Group) || class == v1alpha1.LoadBalancerClass {
			continue
		}
		problems = append(problems, model.Problem{
			Severity: model.SeverityWarning, Subject: input.Object(snapshot.KindService, n).String(), Reason: reasonNoServiceClass,
			Message: fmt.Sprintf("spec.loadBalancerClass: there is no class %s, so the Service is not served; the class of Fairlead is %s, and the field cannot be changed: create the Service again", class, v1alpha1.LoadBalancerClass),
		})
	}
	return problems
}
