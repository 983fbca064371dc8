package status

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/route"
)

// routeStatus writes a route's status, now that it is known who has each host, and
// counts the route at the listeners that it attached to.
func (t *Tables) routeStatus(c *memo.Context, object model.Object) (*Status, bool) {
	status := &Status{}
	parents := []gatewayv1.RouteParentStatus{}
	var counted attachments
	var uses serviceUses
	if object.Kind == string(snapshot.KindGRPCRoute) {
		status.Generation = t.in.GRPCRoutes.Get(c, input.NameOf(object)).Generation
	} else {
		status.Generation = t.in.HTTPRoutes.Get(c, input.NameOf(object)).Generation
	}
	if route := t.from.Route.Routes.Get(c, object); route != nil {
		for i := range route.Parents {
			p := &route.Parents[i]
			parent, attached := t.parentStatus(c, route, p, object, status.Generation)
			parents = append(parents, parent)
			if attached {
				counted.add(p)
				uses.add(p, route.Services)
			}
		}
		for _, k := range route.Hosts() {
			if _, rejected := t.from.Host.RejectedAt(c, object, k.Listener); !rejected && t.from.Host.Owners.Get(c, k).Has(object) {
				status.Hosts = append(status.Hosts, k)
			}
		}
		status.Listeners = host.ListenersOf(status.Hosts)
	}
	if object.Kind == string(snapshot.KindGRPCRoute) {
		status.GRPCRoute = &gatewayv1.GRPCRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: parents}}
	} else {
		status.HTTPRoute = &gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: parents}}
	}
	t.count(c, object, counted, uses)
	return status, true
}

func (t *Tables) parentStatus(c *memo.Context, route *route.Route, p *gateway.RouteParent, object model.Object, gen int64) (status gatewayv1.RouteParentStatus, attached bool) {
	accepted := p.Accepted
	var lost, kept []string
	for _, k := range p.Hosts {
		owner := t.from.Host.Owners.Get(c, k)
		by, rejected := t.from.Host.RejectedAt(c, object, k.Listener)
		switch {
		case rejected && owner.Conflict && owner.Keeper == by:
			lost = append(lost, k.Host+" belongs to the older "+by.String())
		case rejected && by.Kind == object.Kind:
			lost = append(lost, k.Host+" is not served: the older "+by.String()+" of another namespace has a hostname of this route at the same listener, and the Gateway serves each host for one namespace (annotation "+v1alpha1.AnnotationHosts+")")
		case rejected:
			lost = append(lost, k.Host+" is not served: the older "+by.String()+" has a hostname of this route at the same listener")
		case !owner.Conflict:
		case owner.Has(object):
			kept = append(kept, k.Host+" ("+owner.DescribeLosers()+")")
		default:
			lost = append(lost, k.Host+" belongs to the older "+owner.Keeper.String())
		}
	}
	if len(lost) > 0 && len(lost) == len(p.Hosts) {
		accepted.Fail(condition.ReasonHostConflict, strings.Join(lost, "; "))
	}
	message := condition.WithNotes("the route is accepted"+p.Note, t.slashNotes(c, route.Slashed, p.Hosts))
	reason := gatewayv1.RouteReasonAccepted
	if accepted.Failed {
		reason, message = accepted.Reason, accepted.Message
	}
	conditions := []metav1.Condition{condition.New(gatewayv1.RouteConditionAccepted, !accepted.Failed, reason, message, gen)}
	reason, message = gatewayv1.RouteReasonResolvedRefs, "all references are resolved"
	if route.Resolved.Failed {
		reason, message = route.Resolved.Reason, route.Resolved.Message
	}
	conditions = append(conditions, condition.New(gatewayv1.RouteConditionResolvedRefs, !route.Resolved.Failed, reason, condition.WithNotes(message, append(slices.Clone(route.Notes), t.measureNotes(c, route.Services)...)), gen))
	if route.Partial != "" && !accepted.Failed {
		conditions = append(conditions, condition.New(gatewayv1.RouteConditionPartiallyInvalid, true, gatewayv1.RouteReasonUnsupportedValue, route.Partial, gen))
	}
	switch {
	case len(lost) > 0:
		conditions = append(conditions, condition.New(condition.ConditionHostConflict, true, condition.ReasonHostLost, strings.Join(lost, "; "), gen))
	case len(kept) > 0:
		conditions = append(conditions, condition.New(condition.ConditionHostConflict, true, condition.ReasonHostKept,
			"claimed by others too, which are not served there: "+strings.Join(kept, "; "), gen))
	}
	return gatewayv1.RouteParentStatus{ParentRef: p.Ref, ControllerName: t.in.Config.ControllerName, Conditions: conditions}, !accepted.Failed
}

// measureNotes say which Services get no metrics of each backend although they ask for them.
func (t *Tables) measureNotes(c *memo.Context, services []snapshot.Name) (notes []string) {
	for _, service := range services {
		notes = append(notes, field.NonEmpty(t.from.Backend.UnmeasuredNote(c, service))...)
	}
	return notes
}
