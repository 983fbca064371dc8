package translate

import (
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// Says is a RoutePolicy and what of it could be read.
type Says struct {
	model.Object
	Policy model.RoutePolicy
}

// RoutePolicies are those that hold for a route as such: of the section first, which may be
// empty, then of the whole. Those that go before others come first.
func (t *Translator) RoutePolicies(of model.Object, section string) (list []Says) {
	t.asked(func(r reader) { list = r.says(r.routeHeld(of, section)) })
	return list
}

// HostPolicies are the RoutePolicies that hold for all routes of a virtual host, those that
// go before others first.
func (t *Translator) HostPolicies(k model.HostKey) (list []Says) {
	t.asked(func(r reader) {
		if h := t.hosts[k]; h != nil {
			list = r.says(r.hostHeld(k, h))
		}
	})
	return list
}

// ListenerPolicies are the ClientPolicies that hold at a listener, those that go before
// others first.
func (t *Translator) ListenerPolicies(id model.ListenerID) (list []model.Object) {
	t.asked(func(r reader) { list = policyObjects(snapshot.KindClientPolicy, r.listenerPolicies(id)) })
	return list
}

// BackendPolicies are the BackendPolicies that hold for a port of a Service, which may have
// no name, and the BackendTLSPolicy that does, those that go before others first.
func (t *Translator) BackendPolicies(service snapshot.Name, port string) (list []model.Object) {
	t.asked(func(r reader) {
		target := policyAnchor{snapshot.KindBackendPolicy, serviceOwner(service), port}
		held := []heldPolicy{r.holder(target)}
		if port != "" {
			held = append(held, r.holder(target.whole()))
		}
		list = policyObjects(snapshot.KindBackendPolicy, held)
		if f := r.backendTLS(service, port); f != nil {
			list = append(list, backendTLSObject(f.name))
		}
	})
	return list
}

// asked lets f look as a node would, without being told of changes later.
func (t *Translator) asked(f func(reader)) {
	r := reader{t: t}
	f(r)
	t.graph.forget(r.by)
}

func (r reader) says(held []heldPolicy) []Says {
	var list []Says
	for _, h := range held {
		if h.none() {
			continue
		}
		if f := r.routePolicyFact(h.name); f != nil {
			list = append(list, Says{policyObject(snapshot.KindRoutePolicy, h.name), f.policy})
		}
	}
	return list
}

func policyObjects(kind snapshot.Kind, held []heldPolicy) []model.Object {
	var list []model.Object
	for _, h := range held {
		if !h.none() {
			list = append(list, policyObject(kind, h.name))
		}
	}
	return list
}

func policyObject(kind snapshot.Kind, n snapshot.Name) model.Object {
	return model.Object{Kind: string(kind), Namespace: n.Namespace, Name: n.Name}
}
