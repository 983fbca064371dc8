package translate

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// computeStreamStatus writes the status of a TLSRoute, TCPRoute or UDPRoute, now that it is
// known who has the connections, and counts the route at the listeners that it attached to.
func (t *Translator) computeStreamStatus(r reader, n node) {
	object := model.Object{Kind: n.a, Namespace: n.b, Name: n.c}
	o := streamOf(r.s, snapshot.Kind(n.a), snapshot.Name{Namespace: n.b, Name: n.c})
	if o == nil {
		t.countRoute(object, nil)
		t.useServices(object, nil)
		publish(t.result.Statuses, t.out.Statuses, object, nil)
		return
	}
	status := &Status{Generation: o.generation}
	parents := []gatewayv1.RouteParentStatus{}
	var counted []attachment
	var uses []serviceUse
	if f := r.stream(object); f != nil {
		for i := range f.parents {
			p := &f.parents[i]
			parents = append(parents, t.streamParentStatus(r, f, p, object, status))
			if p.accepted.failed {
				continue
			}
			for _, section := range p.sections {
				counted = append(counted, attachment{p.parent, section})
			}
			if len(p.names) > 0 { // only proxies speak TLS with backends
				for _, service := range f.services {
					uses = append(uses, serviceUse{service, p.gateway})
				}
			}
		}
	}
	slices.SortFunc(status.Hosts, model.HostKey.Compare)
	status.Hosts = slices.Compact(status.Hosts)
	status.Listeners = listenersOf(status.Hosts)
	slices.SortFunc(status.Frontends, model.FrontendKey.Compare)
	status.Frontends = slices.Compact(status.Frontends)
	all := gatewayv1.RouteStatus{Parents: parents}
	switch snapshot.Kind(n.a) {
	case snapshot.KindTLSRoute:
		status.TLSRoute = &gatewayv1.TLSRouteStatus{RouteStatus: all}
	case snapshot.KindTCPRoute:
		status.TCPRoute = &gatewayv1.TCPRouteStatus{RouteStatus: all}
	default:
		status.UDPRoute = &gatewayv1.UDPRouteStatus{RouteStatus: all}
	}
	t.countRoute(object, counted)
	t.useServices(object, uses)
	publish(t.result.Statuses, t.out.Statuses, object, status)
}

// streamParentStatus words what became of a route at one parent, and notes in the route's
// status what must reach the machines.
func (t *Translator) streamParentStatus(r reader, f *streamFact, p *streamParent, object model.Object, status *Status) gatewayv1.RouteParentStatus {
	gen := status.Generation
	lost := slices.Clone(p.kept)
	for i := range p.doors {
		d := &p.doors[i]
		if owner, _ := r.door(d.doorKey); owner != object {
			lost = append(lost, "listener "+string(d.section)+" leads to "+owner.String()+", which came first")
			continue
		}
		keys, hold := r.frontendsOf(d.doorKey)
		status.Frontends = append(status.Frontends, keys...)
		if hold != nil && status.Hold == nil {
			status.Hold = hold
		}
	}
	for _, k := range p.names {
		by, owner := r.tlsRoute(k), r.owner(k)
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
	return gatewayv1.RouteParentStatus{ParentRef: p.ref, ControllerName: t.config.ControllerName, Conditions: conditions}
}

// keeperText says whose a host is.
func (o hostOwner) keeperText() string {
	if o.keeper == (model.Object{}) {
		return "an IngressRoute's"
	}
	return o.keeper.String() + "'s"
}

// finalDirect is final for a listener without a proxy.
func (f *parentFact) finalDirect(r reader, p *parentListener) gatewayListener {
	l := p.gatewayListener
	if l.transport() != model.UDP || !l.serves() || f.refused != "" || !f.own {
		return l
	}
	id := model.OwnListener(model.ProtocolHTTPS, uint16(l.port), f.gateway.Namespace, f.gateway.Name)
	r.t.graph.read(r.by, listenerNode(id))
	if served := r.t.result.Listeners[id]; served != nil && served.HTTP3() {
		l.accepted.fail(gatewayv1.ListenerReasonPortUnavailable, "port "+portNumber(l.port)+
			" takes HTTP/3 over UDP, as the ClientPolicy of the Gateway wants: leave http3 out there, or take another port")
	}
	return l
}
