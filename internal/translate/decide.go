package translate

import (
	"fairlead.dev/internal/memo"
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
func (t *Translator) RoutePolicies(of model.Object, section string) []Says {
	c := t.graph.Peek()
	return t.says(c, t.policy.routeHeld(c, of, section))
}

// HostPolicies are the RoutePolicies that hold for all routes of a virtual host, those that
// go before others first.
func (t *Translator) HostPolicies(k model.HostKey) []Says {
	c := t.graph.Peek()
	routes := t.host.routes.Get(c, k)
	if routes == nil {
		return nil
	}
	return t.says(c, t.host.hostHeld(c, k, t.host.owners.Get(c, k), routes))
}

// ListenerPolicies are the ClientPolicies that hold at a listener, those that go before
// others first.
func (t *Translator) ListenerPolicies(id model.ListenerID) []model.Object {
	return policyObjects(snapshot.KindClientPolicy, t.listener.listenerPolicies(t.graph.Peek(), id))
}

// BackendPolicies are the BackendPolicies that hold for a port of a Service, which may have
// no name, and the BackendTLSPolicy that does, those that go before others first.
func (t *Translator) BackendPolicies(service snapshot.Name, port string) (list []model.Object) {
	c := t.graph.Peek()
	target := policyAnchor{snapshot.KindBackendPolicy, serviceOwner(service), port}
	held := []heldPolicy{t.anchor.holder(c, target)}
	if port != "" {
		held = append(held, t.anchor.holder(c, target.ofWhole()))
	}
	list = policyObjects(snapshot.KindBackendPolicy, held)
	if f := t.backend.policyOf(c, service, port); f != nil {
		list = append(list, backendTLSObject(f.name))
	}
	return list
}

func (t *Translator) says(c *memo.Context, held []heldPolicy) []Says {
	var list []Says
	for _, h := range held {
		if h.none() {
			continue
		}
		if f := t.policy.routes.Get(c, h.name); f != nil {
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
