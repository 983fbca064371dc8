package translate

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// routeStatus writes a route's status, now that it is known who has each host, and
// counts the route at the listeners that it attached to.
func (t *statusTables) routeStatus(c *memo.Context, object model.Object) (*Status, bool) {
	status := &Status{}
	parents := []gatewayv1.RouteParentStatus{}
	var counted attachments
	var uses serviceUses
	if object.Kind == string(snapshot.KindGRPCRoute) {
		status.Generation = t.in.grpcRoutes.Get(c, nameOf(object)).Generation
	} else {
		status.Generation = t.in.httpRoutes.Get(c, nameOf(object)).Generation
	}
	if f := t.route.routes.Get(c, object); f != nil {
		for i := range f.parents {
			p := &f.parents[i]
			parent, attached := t.parentStatus(c, f, p, object, status.Generation)
			parents = append(parents, parent)
			if attached {
				counted.add(p)
				uses.add(p, f.services)
			}
		}
		for _, k := range f.hosts() {
			if _, rejected := t.host.rejectedAt(c, object, k.Listener); !rejected && t.host.owners.Get(c, k).has(object) {
				status.Hosts = append(status.Hosts, k)
			}
		}
		status.Listeners = listenersOf(status.Hosts)
	}
	if object.Kind == string(snapshot.KindGRPCRoute) {
		status.GRPCRoute = &gatewayv1.GRPCRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: parents}}
	} else {
		status.HTTPRoute = &gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: parents}}
	}
	t.count(c, object, counted, uses)
	return status, true
}

func (t *statusTables) parentStatus(c *memo.Context, f *routeFact, p *routeParent, object model.Object, gen int64) (status gatewayv1.RouteParentStatus, attached bool) {
	accepted := p.accepted
	var lost, kept []string
	for _, k := range p.hosts {
		owner := t.host.owners.Get(c, k)
		by, rejected := t.host.rejectedAt(c, object, k.Listener)
		switch {
		case rejected && owner.conflict && owner.keeper == by:
			lost = append(lost, k.Host+" is kept by "+by.String()+", which came first")
		case rejected && by.Kind == object.Kind:
			lost = append(lost, k.Host+" is not served: "+by.String()+", which came first, is of another namespace and has a hostname of this route at the same listener, where a Gateway has its hosts each for one namespace (annotation "+v1alpha1.AnnotationHosts+")")
		case rejected:
			lost = append(lost, k.Host+" is not served: "+by.String()+", which came first, has a hostname of this route at the same listener")
		case !owner.conflict:
		case owner.has(object):
			kept = append(kept, k.Host+" ("+owner.describeLosers()+")")
		default:
			lost = append(lost, k.Host+" is kept by "+owner.keeper.String()+", which came first")
		}
	}
	if len(lost) > 0 && len(lost) == len(p.hosts) {
		accepted.fail(ReasonHostConflict, strings.Join(lost, "; "))
	}
	message := withNotes("the route is accepted"+p.note, t.slashNotes(c, f.slashed, p.hosts))
	reason := gatewayv1.RouteReasonAccepted
	if accepted.failed {
		reason, message = accepted.reason, accepted.message
	}
	conditions := []metav1.Condition{condition(gatewayv1.RouteConditionAccepted, !accepted.failed, reason, message, gen)}
	reason, message = gatewayv1.RouteReasonResolvedRefs, "all references are resolved"
	if f.resolved.failed {
		reason, message = f.resolved.reason, f.resolved.message
	}
	conditions = append(conditions, condition(gatewayv1.RouteConditionResolvedRefs, !f.resolved.failed, reason, withNotes(message, f.notes), gen))
	if f.partial != "" && !accepted.failed {
		conditions = append(conditions, condition(gatewayv1.RouteConditionPartiallyInvalid, true, gatewayv1.RouteReasonUnsupportedValue, f.partial, gen))
	}
	switch {
	case len(lost) > 0:
		conditions = append(conditions, condition(ConditionHostConflict, true, ReasonHostLost, strings.Join(lost, "; "), gen))
	case len(kept) > 0:
		conditions = append(conditions, condition(ConditionHostConflict, true, ReasonHostKept,
			"claimed by others too, which are not served there: "+strings.Join(kept, "; "), gen))
	}
	return gatewayv1.RouteParentStatus{ParentRef: p.ref, ControllerName: t.in.config.ControllerName, Conditions: conditions}, !accepted.failed
}
