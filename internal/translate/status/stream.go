package status

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/route"
)

// streamStatus writes the status of a TLSRoute, TCPRoute or UDPRoute, now that it is
// known who has the connections, and counts the route at the listeners that it attached to.
func (t *Tables) streamStatus(c *memo.Context, object model.Object) (*Status, bool) {
	o := t.from.Route.Spec(c, snapshot.Kind(object.Kind), input.NameOf(object))
	status := &Status{Generation: o.Generation}
	parents := []gatewayv1.RouteParentStatus{}
	var counted attachments
	var uses serviceUses
	if stream := t.from.Route.Streams.Get(c, object); stream != nil {
		for i := range stream.Parents {
			p := &stream.Parents[i]
			parents = append(parents, t.streamParentStatus(c, stream, p, object, status))
			if p.Accepted.Failed {
				continue
			}
			counted.add(&p.RouteParent)
			if len(p.Names) > 0 { // only proxies speak TLS with backends
				uses.add(&p.RouteParent, stream.Services)
			}
		}
	}
	slices.SortFunc(status.Hosts, model.HostKey.Compare)
	status.Hosts = slices.Compact(status.Hosts)
	status.Listeners = host.ListenersOf(status.Hosts)
	slices.SortFunc(status.Frontends, model.FrontendKey.Compare)
	status.Frontends = slices.Compact(status.Frontends)
	all := gatewayv1.RouteStatus{Parents: parents}
	switch snapshot.Kind(object.Kind) {
	case snapshot.KindTLSRoute:
		status.TLSRoute = &gatewayv1.TLSRouteStatus{RouteStatus: all}
	case snapshot.KindTCPRoute:
		status.TCPRoute = &gatewayv1.TCPRouteStatus{RouteStatus: all}
	default:
		status.UDPRoute = &gatewayv1.UDPRouteStatus{RouteStatus: all}
	}
	t.count(c, object, counted, uses)
	return status, true
}

// streamParentStatus words what became of a route at one parent, and notes in the route's
// status what must reach the machines.
func (t *Tables) streamParentStatus(c *memo.Context, stream *route.Stream, p *route.StreamParent, object model.Object, status *Status) gatewayv1.RouteParentStatus {
	gen := status.Generation
	lost := slices.Clone(p.Kept)
	for i := range p.Direct {
		d := &p.Direct[i]
		if won := t.from.Route.Winners.Get(c, d.PortKey); won.Route != object {
			lost = append(lost, "listener "+string(d.Section)+" belongs to the older "+won.Route.String())
			continue
		}
		keys, hold := t.from.Frontend.FrontendsOf(c, d.PortKey)
		status.Frontends = append(status.Frontends, keys...)
		if hold != nil && status.Hold == nil {
			status.Hold = hold
		}
	}
	for _, k := range p.Names {
		by, owner := t.from.Host.NameOwners.Get(c, k), t.from.Host.Owners.Get(c, k)
		switch {
		case owner.Kind == snapshot.KindIngressRoute:
			lost = append(lost, "server name "+k.Host+" belongs to the older "+owner.KeeperText())
		case by.Route == object && by.Parent == p.Parent.Object():
			status.Hosts = append(status.Hosts, k)
		case by.Route == object: // by another of its parents
		case by.Route == model.Object{}:
			lost = append(lost, "server name "+k.Host+" belongs to the older "+by.Parent.String())
		default:
			lost = append(lost, "server name "+k.Host+" belongs to the older "+by.Route.String())
		}
	}
	reason, message := gatewayv1.RouteReasonAccepted, "the route is accepted"+p.Note
	if p.Accepted.Failed {
		reason, message = p.Accepted.Reason, p.Accepted.Message
	}
	conditions := []metav1.Condition{condition.New(gatewayv1.RouteConditionAccepted, !p.Accepted.Failed, reason, message, gen)}
	reason, message = gatewayv1.RouteReasonResolvedRefs, "all references are resolved"
	if stream.Resolved.Failed {
		reason, message = stream.Resolved.Reason, stream.Resolved.Message
	}
	conditions = append(conditions, condition.New(gatewayv1.RouteConditionResolvedRefs, !stream.Resolved.Failed, reason, condition.WithNotes(message, stream.Notes), gen))
	if len(lost) > 0 {
		conditions = append(conditions, condition.New(condition.ConditionListenerConflict, true, condition.ReasonListenerLost, strings.Join(lost, "; "), gen))
	}
	return gatewayv1.RouteParentStatus{ParentRef: p.Ref, ControllerName: t.in.Config.ControllerName, Conditions: conditions}
}
