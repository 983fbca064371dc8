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

// addressLimit is the most that a Gateway's status may list.
const addressLimit = 16

func (t *statusTables) gatewayStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	f, k := t.gateway.gateways.Get(c, n), parentKey{snapshot.KindGateway, n}
	if f == nil {
		return nil, false
	}
	parent, attached := t.gateway.parents.Get(c, k), t.attached.Get(c, k)
	gen := t.in.gateways.Get(c, n).Generation
	out := &Status{Generation: gen, Gateway: &gatewayv1.GatewayStatus{}, Listeners: parent.listenerIDs(), Sections: parent.served()}
	listeners := t.final(c, parent)
	reason, message := gatewayv1.GatewayReasonAccepted, "the Gateway is accepted"
	if f.accepted.failed {
		reason, message = f.accepted.reason, f.accepted.message
	} else if slices.ContainsFunc(listeners, func(l gatewayListener) bool { return !l.serves() }) {
		reason, message = gatewayv1.GatewayReasonListenersNotValid, "some listeners are not accepted: "+refusedListeners(listeners)
	}
	if len(f.notes) > 0 {
		message = limit(message + "; " + strings.Join(f.notes, "; "))
	}
	out.Gateway.Conditions = []metav1.Condition{
		condition(gatewayv1.GatewayConditionAccepted, !f.accepted.failed, reason, message, gen),
		f.resolvedCondition(listeners, gen),
	}
	if problem := f.insecure(); problem != "" {
		out.Gateway.Conditions = append(out.Gateway.Conditions,
			condition(gatewayv1.GatewayConditionInsecureFrontendValidationMode, true, gatewayv1.GatewayReasonConfigurationChanged, problem, gen))
	}
	for i := range listeners {
		l := &listeners[i]
		out.Gateway.Listeners = append(out.Gateway.Listeners, gatewayv1.ListenerStatus{
			Name: l.name, SupportedKinds: l.kinds, AttachedRoutes: attached[l.name], Conditions: t.listenerConditions(c, l, gen),
		})
		out.noteUnserved(l)
	}
	out.Gateway.AttachedListenerSets = &f.attached
	t.noteFrontends(c, out, parent, listeners)
	if !f.accepted.failed {
		var addresses []string
		given := t.vip.outcomes.Get(c, gatewayOwner(n))
		switch {
		case given == nil && len(f.wanted) == 0 && len(f.doors) > 0:
			out.Hold = &Hold{Reason: gatewayv1.GatewayReasonAddressNotAssigned, Message: needVIP}
		case given == nil:
			addresses = t.vip.addresses.Get(c, memo.Unit{})
		default:
			for _, a := range given.addresses {
				addresses = append(addresses, a.String())
			}
			out.Hold = given.hold
		}
		kind := gatewayv1.IPAddressType
		for _, a := range addresses[:min(len(addresses), addressLimit)] {
			out.Gateway.Addresses = append(out.Gateway.Addresses, gatewayv1.GatewayStatusAddress{Type: &kind, Value: a})
		}
	}
	return out, true
}

// resolvedCondition sums up the references of a Gateway and its listeners.
func (f *gatewayFact) resolvedCondition(listeners []gatewayListener, gen int64) metav1.Condition {
	v := f.resolved
	var names []string
	for i := range listeners {
		if l := &listeners[i]; l.resolved.failed {
			names = append(names, string(l.name)+" ("+l.resolved.message+")")
		}
	}
	if len(names) > 0 {
		v.fail(gatewayv1.GatewayReasonListenersNotResolved, "listeners with references that are not resolved: "+strings.Join(names, ", "))
	}
	if !v.failed {
		v.reason, v.message = gatewayv1.GatewayReasonResolvedRefs, "all references are resolved"
	}
	return condition(gatewayv1.GatewayConditionResolvedRefs, !v.failed, v.reason, v.message, gen)
}

// final are the listeners with what is known only when server names have their owners.
func (t *statusTables) final(c *memo.Context, f *parentFact) []gatewayListener {
	list := make([]gatewayListener, 0, len(f.listeners))
	for i := range f.listeners {
		p := &f.listeners[i]
		l := p.gatewayListener
		lost := t.gateway.lostTo(c, f, p)
		if lost == "" && l.secure() && l.serves() {
			if o := t.host.owners.Get(c, model.HostKey{Listener: p.id, Host: l.hostname}); o.kind == snapshot.KindIngressRoute {
				lost = o.keeper.String()
			}
		}
		if lost != "" && f.refused == "" {
			message := "server name " + quote(l.hostname) + " at port " + portNumber(l.port) + " is " + lost + "'s, which came first"
			l.accepted.fail(gatewayv1.ListenerReasonHostnameConflict, message)
			l.conflicted.fail(gatewayv1.ListenerReasonHostnameConflict, message)
		}
		if p.id == "" {
			list = append(list, t.finalDirect(c, f, p))
			continue
		}
		if keeper := t.host.lostPort(c, p.id); keeper != "" && l.serves() && f.refused == "" {
			l.accepted.fail(gatewayv1.ListenerReasonPortUnavailable, "port "+portNumber(l.port)+" speaks another protocol for "+keeper+
				", which came first: without an address of its own the Gateway shares its ports with others")
		}
		list = append(list, l)
	}
	return list
}

// listenerConditions are those of a listener but Programmed.
func (t *statusTables) listenerConditions(c *memo.Context, l *gatewayListener, gen int64) []metav1.Condition {
	write := func(kind gatewayv1.ListenerConditionType, v listenerVerdict, negative bool, reason gatewayv1.ListenerConditionReason, message string) metav1.Condition {
		if v.failed {
			reason, message = v.reason, v.message
		}
		return condition(kind, v.failed == negative, reason, message, gen)
	}
	accepted := "the listener is accepted"
	if note := t.in.config.floorNote(l.minTLS); note != "" {
		accepted += "; tls.options[" + OptionMinTLS + "]: " + note
	}
	list := []metav1.Condition{
		write(gatewayv1.ListenerConditionAccepted, l.accepted, false, gatewayv1.ListenerReasonAccepted, accepted),
		write(gatewayv1.ListenerConditionConflicted, l.conflicted, true, gatewayv1.ListenerReasonNoConflicts, "no other listener is in conflict with it"),
		write(gatewayv1.ListenerConditionResolvedRefs, l.resolved, false, gatewayv1.ListenerReasonResolvedRefs, "all references are resolved"+t.tls.validityNotes(c, l.certificates)),
	}
	if l.overlaps != "" {
		list = append(list, condition(gatewayv1.ListenerConditionOverlappingTLSConfig, true, gatewayv1.ListenerReasonOverlappingHostnames,
			"hostname "+quote(l.hostname)+" overlaps with "+quote(l.overlaps)+" of another listener at port "+portNumber(l.port)+
				": a client that uses a connection again for the other name is answered 421", gen))
	}
	return list
}

func (t *statusTables) listenerSetStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	k := parentKey{snapshot.KindListenerSet, n}
	parent, attached := t.gateway.parents.Get(c, k), t.attached.Get(c, k)
	if parent == nil {
		return nil, false
	}
	gen, out := t.in.listenerSets.Get(c, n).Generation, t.gateway.outcomes.Get(c, setKey{parent.gateway, n})
	s := &Status{Generation: gen, ListenerSet: &gatewayv1.ListenerSetStatus{}, Listeners: parent.listenerIDs(), Sections: parent.served()}
	listeners := t.final(c, parent)
	reason, message := gatewayv1.ListenerSetReasonAccepted, "the ListenerSet is accepted"
	if out.accepted.failed {
		reason, message = out.accepted.reason, out.accepted.message
	} else if slices.ContainsFunc(listeners, func(l gatewayListener) bool { return !l.serves() || l.broken() }) {
		reason, message = gatewayv1.ListenerSetReasonListenersNotValid, "some listeners cannot be served: "+unservedListeners(listeners)
	}
	s.ListenerSet.Conditions = []metav1.Condition{condition(gatewayv1.ListenerSetConditionAccepted, !out.accepted.failed, reason, message, gen)}
	for i := range listeners {
		l := &listeners[i]
		s.ListenerSet.Listeners = append(s.ListenerSet.Listeners, gatewayv1.ListenerEntryStatus{
			Name: l.name, SupportedKinds: l.kinds, AttachedRoutes: attached[l.name], Conditions: t.listenerConditions(c, l, gen),
		})
		s.noteUnserved(l)
	}
	t.noteFrontends(c, s, parent, listeners)
	if given := t.vip.outcomes.Get(c, gatewayOwner(parent.gateway)); given != nil && !out.accepted.failed {
		s.Hold = given.hold
	}
	return s, true
}

// noteFrontends notes in a status the frontends of the listeners without a proxy of a
// Gateway or ListenerSet, and which of them have none.
func (t *statusTables) noteFrontends(c *memo.Context, s *Status, f *parentFact, listeners []gatewayListener) {
	if f.refused != "" {
		return
	}
	for i := range listeners {
		l := &listeners[i]
		if !l.serves() || !l.direct() {
			continue
		}
		if !f.own {
			if s.Unserved == nil {
				s.Unserved = map[gatewayv1.SectionName]string{}
			}
			s.Unserved[l.name] = needVIP
			continue
		}
		keys, _ := t.frontend.frontendsOf(c, doorKey{f.gateway, l.transport(), uint16(l.port)})
		if len(keys) == 0 {
			continue
		}
		if s.SectionFrontends == nil {
			s.SectionFrontends = map[gatewayv1.SectionName][]model.FrontendKey{}
		}
		s.SectionFrontends[l.name] = keys
		s.Frontends = append(s.Frontends, keys...)
	}
	slices.SortFunc(s.Frontends, model.FrontendKey.Compare)
}
