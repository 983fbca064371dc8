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
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/frontend"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/route"
)

// addressLimit is the most that a Gateway's status may list.
const addressLimit = 16

func (t *Tables) gatewayStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	gw, k := t.from.Gateway.Gateways.Get(c, n), gateway.ParentKey{Kind: snapshot.KindGateway, Name: n}
	if gw == nil {
		return nil, false
	}
	parent, attached := t.from.Gateway.Parents.Get(c, k), t.attached.Get(c, k)
	gen := t.in.Gateways.Get(c, n).Generation
	out := &Status{Generation: gen, Gateway: &gatewayv1.GatewayStatus{}, Listeners: parent.ListenerIDs(), Sections: parent.Served()}
	listeners := t.final(c, parent)
	reason, message := gatewayv1.GatewayReasonAccepted, "the Gateway is accepted"
	if gw.Accepted.Failed {
		reason, message = gw.Accepted.Reason, gw.Accepted.Message
	} else if slices.ContainsFunc(listeners, func(l gateway.Listener) bool { return !l.Serves() }) {
		reason, message = gatewayv1.GatewayReasonListenersNotValid, "some listeners are not accepted: "+gateway.RefusedListeners(listeners)
	}
	if len(gw.Notes) > 0 {
		message = condition.Limit(message + "; " + strings.Join(gw.Notes, "; "))
	}
	out.Gateway.Conditions = []metav1.Condition{
		condition.New(gatewayv1.GatewayConditionAccepted, !gw.Accepted.Failed, reason, message, gen),
		gw.ResolvedCondition(listeners, gen),
	}
	if problem := gw.Insecure(); problem != "" {
		out.Gateway.Conditions = append(out.Gateway.Conditions,
			condition.New(gatewayv1.GatewayConditionInsecureFrontendValidationMode, true, gatewayv1.GatewayReasonConfigurationChanged, problem, gen))
	}
	for i := range listeners {
		l := &listeners[i]
		out.Gateway.Listeners = append(out.Gateway.Listeners, gatewayv1.ListenerStatus{
			Name: l.Name, SupportedKinds: l.Kinds, AttachedRoutes: attached[l.Name], Conditions: t.listenerConditions(c, l, gen),
		})
		out.noteUnserved(l)
	}
	out.Gateway.AttachedListenerSets = &gw.Attached
	t.noteFrontends(c, out, parent, listeners)
	if !gw.Accepted.Failed {
		var addresses []string
		given := t.from.VIP.Outcomes.Get(c, input.Object(snapshot.KindGateway, n))
		switch {
		case given == nil && len(gw.Wanted) == 0 && len(gw.Direct) > 0:
			out.Hold = &condition.Hold{Reason: gatewayv1.GatewayReasonAddressNotAssigned, Message: frontend.NeedVIP}
		case given == nil:
			addresses = t.from.VIP.Addresses.Get(c, memo.Unit{})
		default:
			for _, a := range given.Addresses {
				addresses = append(addresses, a.String())
			}
			out.Hold = given.Hold
		}
		kind := gatewayv1.IPAddressType
		for _, a := range addresses[:min(len(addresses), addressLimit)] {
			out.Gateway.Addresses = append(out.Gateway.Addresses, gatewayv1.GatewayStatusAddress{Type: &kind, Value: a})
		}
	}
	return out, true
}

// final are the listeners with what is known only when server names have their owners.
func (t *Tables) final(c *memo.Context, parent *gateway.Parent) []gateway.Listener {
	list := make([]gateway.Listener, 0, len(parent.Listeners))
	for i := range parent.Listeners {
		p := &parent.Listeners[i]
		l := p.Listener
		lost := t.from.Gateway.LostTo(c, parent, p)
		if lost == "" && l.Secure() && l.Serves() {
			if o := t.from.Host.Owners.Get(c, model.HostKey{Listener: p.ID, Host: l.Hostname}); o.Kind == snapshot.KindIngressRoute {
				lost = o.Keeper.String()
			}
		}
		if lost != "" && parent.Refused == "" {
			message := "server name " + field.Quote(l.Hostname) + " at port " + gateway.PortNumber(l.Port) + " belongs to the older " + lost
			l.Accepted.Fail(gatewayv1.ListenerReasonHostnameConflict, message)
			l.Conflicted.Fail(gatewayv1.ListenerReasonHostnameConflict, message)
		}
		if p.ID == "" {
			list = append(list, t.finalDirect(c, parent, p))
			continue
		}
		if keeper := t.from.Host.LostPort(c, p.ID); keeper != "" && l.Serves() && parent.Refused == "" {
			l.Accepted.Fail(gatewayv1.ListenerReasonPortUnavailable, "port "+gateway.PortNumber(l.Port)+" has another protocol for the older "+keeper+
				": without an address of its own the Gateway shares its ports with others")
		}
		list = append(list, l)
	}
	return list
}

// finalDirect is final for a listener without a proxy.
func (t *Tables) finalDirect(c *memo.Context, parent *gateway.Parent, p *gateway.ParentListener) gateway.Listener {
	l := p.Listener
	if l.Transport() != model.UDP || !l.Serves() || parent.Refused != "" || !parent.Own {
		return l
	}
	id := model.OwnListener(model.ProtocolHTTPS, uint16(l.Port), parent.Gateway.Namespace, parent.Gateway.Name)
	if served := t.from.Listener.Listeners.Get(c, id); served != nil && served.HTTP3() {
		l.Accepted.Fail(gatewayv1.ListenerReasonPortUnavailable, "port "+gateway.PortNumber(l.Port)+
			" takes HTTP/3 over UDP, as the ClientPolicy of the Gateway wants: leave http3 out there, or take another port")
	}
	return l
}

// listenerConditions are those of a listener but Programmed.
func (t *Tables) listenerConditions(c *memo.Context, l *gateway.Listener, gen int64) []metav1.Condition {
	write := func(kind gatewayv1.ListenerConditionType, v gateway.ListenerResult, negative bool, reason gatewayv1.ListenerConditionReason, message string) metav1.Condition {
		if v.Failed {
			reason, message = v.Reason, v.Message
		}
		return condition.New(kind, v.Failed == negative, reason, message, gen)
	}
	accepted := "the listener is accepted"
	if note := t.in.Config.FloorNote(l.MinTLS); note != "" {
		accepted += "; tls.options[" + gateway.OptionMinTLS + "]: " + note
	}
	list := []metav1.Condition{
		write(gatewayv1.ListenerConditionAccepted, l.Accepted, false, gatewayv1.ListenerReasonAccepted, accepted),
		write(gatewayv1.ListenerConditionConflicted, l.Conflicted, true, gatewayv1.ListenerReasonNoConflicts, "no other listener is in conflict with it"),
		write(gatewayv1.ListenerConditionResolvedRefs, l.Resolved, false, gatewayv1.ListenerReasonResolvedRefs, "all references are resolved"+t.from.Certificates.ValidityNotes(c, l.Certificates)),
	}
	if l.Overlaps != "" {
		list = append(list, condition.New(gatewayv1.ListenerConditionOverlappingTLSConfig, true, gatewayv1.ListenerReasonOverlappingHostnames,
			"hostname "+field.Quote(l.Hostname)+" overlaps with "+field.Quote(l.Overlaps)+" of another listener at port "+gateway.PortNumber(l.Port)+
				": a client that uses a connection again for the other name is answered 421", gen))
	}
	return list
}

func (t *Tables) listenerSetStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	k := gateway.ParentKey{Kind: snapshot.KindListenerSet, Name: n}
	parent, attached := t.from.Gateway.Parents.Get(c, k), t.attached.Get(c, k)
	if parent == nil {
		return nil, false
	}
	gen, out := t.in.ListenerSets.Get(c, n).Generation, t.from.Gateway.Outcomes.Get(c, gateway.SetKey{Gateway: parent.Gateway, Set: n})
	s := &Status{Generation: gen, ListenerSet: &gatewayv1.ListenerSetStatus{}, Listeners: parent.ListenerIDs(), Sections: parent.Served()}
	listeners := t.final(c, parent)
	reason, message := gatewayv1.ListenerSetReasonAccepted, "the ListenerSet is accepted"
	if out.Accepted.Failed {
		reason, message = out.Accepted.Reason, out.Accepted.Message
	} else if slices.ContainsFunc(listeners, func(l gateway.Listener) bool { return !l.Serves() || l.Broken() }) {
		reason, message = gatewayv1.ListenerSetReasonListenersNotValid, "some listeners cannot be served: "+gateway.UnservedListeners(listeners)
	}
	s.ListenerSet.Conditions = []metav1.Condition{condition.New(gatewayv1.ListenerSetConditionAccepted, !out.Accepted.Failed, reason, message, gen)}
	for i := range listeners {
		l := &listeners[i]
		s.ListenerSet.Listeners = append(s.ListenerSet.Listeners, gatewayv1.ListenerEntryStatus{
			Name: l.Name, SupportedKinds: l.Kinds, AttachedRoutes: attached[l.Name], Conditions: t.listenerConditions(c, l, gen),
		})
		s.noteUnserved(l)
	}
	t.noteFrontends(c, s, parent, listeners)
	if given := t.from.VIP.Outcomes.Get(c, input.Object(snapshot.KindGateway, parent.Gateway)); given != nil && !out.Accepted.Failed {
		s.Hold = given.Hold
	}
	return s, true
}

// noteFrontends notes in a status the frontends of the listeners without a proxy of a
// Gateway or ListenerSet, and which of them have none.
func (t *Tables) noteFrontends(c *memo.Context, s *Status, parent *gateway.Parent, listeners []gateway.Listener) {
	if parent.Refused != "" {
		return
	}
	for i := range listeners {
		l := &listeners[i]
		if !l.Serves() || !l.Direct() {
			continue
		}
		if !parent.Own {
			if s.Unserved == nil {
				s.Unserved = map[gatewayv1.SectionName]string{}
			}
			s.Unserved[l.Name] = frontend.NeedVIP
			continue
		}
		keys, _ := t.from.Frontend.FrontendsOf(c, route.PortKey{Gateway: parent.Gateway, Transport: l.Transport(), Port: uint16(l.Port)})
		if len(keys) == 0 {
			continue
		}
		if s.SectionFrontends == nil {
			s.SectionFrontends = map[gatewayv1.SectionName][]model.FrontendKey{}
		}
		s.SectionFrontends[l.Name] = keys
		s.Frontends = append(s.Frontends, keys...)
	}
	slices.SortFunc(s.Frontends, model.FrontendKey.Compare)
}
