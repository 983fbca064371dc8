package translate

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// streamStatus writes the status of a TLSRoute, TCPRoute or UDPRoute, now that it is
// known who has the connections, and counts the route at the listeners that it attached to.
func (t *statusTables) streamStatus(c *memo.Context, object model.Object) (*Status, bool) {
	o := t.route.spec(c, snapshot.Kind(object.Kind), nameOf(object))
	status := &Status{Generation: o.generation}
	parents := []gatewayv1.RouteParentStatus{}
	var counted attachments
	var uses serviceUses
	if f := t.route.streams.Get(c, object); f != nil {
		for i := range f.parents {
			p := &f.parents[i]
			parents = append(parents, t.streamParentStatus(c, f, p, object, status))
			if p.accepted.failed {
				continue
			}
			counted.add(&p.routeParent)
			if len(p.names) > 0 { // only proxies speak TLS with backends
				uses.add(&p.routeParent, f.services)
			}
		}
	}
	slices.SortFunc(status.Hosts, model.HostKey.Compare)
	status.Hosts = slices.Compact(status.Hosts)
	status.Listeners = listenersOf(status.Hosts)
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
func (t *statusTables) streamParentStatus(c *memo.Context, f *streamFact, p *streamParent, object model.Object, status *Status) gatewayv1.RouteParentStatus {
	gen := status.Generation
	lost := slices.Clone(p.kept)
	for i := range p.doors {
		d := &p.doors[i]
		if won := t.route.winners.Get(c, d.doorKey); won.route != object {
			lost = append(lost, "listener "+string(d.section)+" leads to "+won.route.String()+", which came first")
			continue
		}
		keys, hold := t.frontend.frontendsOf(c, d.doorKey)
		status.Frontends = append(status.Frontends, keys...)
		if hold != nil && status.Hold == nil {
			status.Hold = hold
		}
	}
	for _, k := range p.names {
		by, owner := t.host.nameOwners.Get(c, k), t.host.owners.Get(c, k)
		switch {
		case owner.kind == snapshot.KindIngressRoute:
			lost = append(lost, "server name "+k.Host+" is "+owner.keeperText()+", which came first")
		case by.route == object && by.parent == p.parent.object():
			status.Hosts = append(status.Hosts, k)
		case by.route == object: // by another of its parents
		case by.route == model.Object{}:
			lost = append(lost, "server name "+k.Host+" is "+by.parent.String()+"'s, which came first")
		default:
			lost = append(lost, "server name "+k.Host+" leads to "+by.route.String()+", which came first")
		}
	}
	reason, message := gatewayv1.RouteReasonAccepted, "the route is accepted"+p.note
	if p.accepted.failed {
		reason, message = p.accepted.reason, p.accepted.message
	}
	conditions := []metav1.Condition{condition(gatewayv1.RouteConditionAccepted, !p.accepted.failed, reason, message, gen)}
	reason, message = gatewayv1.RouteReasonResolvedRefs, "all references are resolved"
	if f.resolved.failed {
		reason, message = f.resolved.reason, f.resolved.message
	}
	conditions = append(conditions, condition(gatewayv1.RouteConditionResolvedRefs, !f.resolved.failed, reason, withNotes(message, f.notes), gen))
	if len(lost) > 0 {
		conditions = append(conditions, condition(ConditionListenerConflict, true, ReasonListenerLost, strings.Join(lost, "; "), gen))
	}
	return gatewayv1.RouteParentStatus{ParentRef: p.ref, ControllerName: t.in.config.ControllerName, Conditions: conditions}
}

// keeperText says whose a host is.
func (o hostOwner) keeperText() string {
	if o.keeper == (model.Object{}) {
		return "an IngressRoute's"
	}
	return o.keeper.String() + "'s"
}

// finalDirect is final for a listener without a proxy.
func (t *statusTables) finalDirect(c *memo.Context, f *parentFact, p *parentListener) gatewayListener {
	l := p.gatewayListener
	if l.transport() != model.UDP || !l.serves() || f.refused != "" || !f.own {
		return l
	}
	id := model.OwnListener(model.ProtocolHTTPS, uint16(l.port), f.gateway.Namespace, f.gateway.Name)
	if served := t.listener.listeners.Get(c, id); served != nil && served.HTTP3() {
		l.accepted.fail(gatewayv1.ListenerReasonPortUnavailable, "port "+portNumber(l.port)+
			" takes HTTP/3 over UDP, as the ClientPolicy of the Gateway wants: leave http3 out there, or take another port")
	}
	return l
}
