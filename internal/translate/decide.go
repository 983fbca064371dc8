package translate

import (
	"slices"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/target"
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
	return t.says(c, t.policy.RouteHeld(c, of, section))
}

// HostPolicies are the RoutePolicies that hold for all routes of a virtual host, those that
// go before others first.
func (t *Translator) HostPolicies(k model.HostKey) []Says {
	c := t.graph.Peek()
	routes := t.host.Routes.Get(c, k)
	if routes == nil {
		return nil
	}
	return t.says(c, t.host.HostHeld(c, k, t.host.Owners.Get(c, k), routes))
}

// ListenerPolicies are the ClientPolicies that hold at a listener, those that go before
// others first.
func (t *Translator) ListenerPolicies(id model.ListenerID) []model.Object {
	return policyObjects(snapshot.KindClientPolicy, t.listener.ListenerPolicies(t.graph.Peek(), id))
}

// BackendPolicies are the BackendPolicies that hold for a port of a Service, which may have
// no name, and the BackendTLSPolicy that does, those that go before others first.
func (t *Translator) BackendPolicies(service snapshot.Name, port string) (list []model.Object) {
	c := t.graph.Peek()
	ref := target.Ref{Kind: snapshot.KindBackendPolicy, Object: input.Object(snapshot.KindService, service), Section: port}
	held := []target.Policy{t.targets.Holder(c, ref)}
	if port != "" {
		held = append(held, t.targets.Holder(c, ref.OfWhole()))
	}
	list = policyObjects(snapshot.KindBackendPolicy, held)
	if f := t.backend.PolicyOf(c, service, port); f != nil {
		list = append(list, input.Object(snapshot.KindBackendTLSPolicy, f.Name))
	}
	return list
}

func (t *Translator) says(c *memo.Context, held []target.Policy) []Says {
	var list []Says
	for _, h := range held {
		if h.None() {
			continue
		}
		if f := t.policy.Routes.Get(c, h.Name); f != nil {
			list = append(list, Says{input.Object(snapshot.KindRoutePolicy, h.Name), f.Policy})
		}
	}
	return list
}

func policyObjects(kind snapshot.Kind, held []target.Policy) []model.Object {
	var list []model.Object
	for _, h := range held {
		if !h.None() {
			list = append(list, input.Object(kind, h.Name))
		}
	}
	return list
}

// Used says of each of some Services whether routes or frontends use it.
func (t *Translator) Used(services []snapshot.Name) map[snapshot.Name]bool {
	used := map[snapshot.Name]bool{}
	for _, n := range services {
		used[n] = t.backend.Used(t.graph.Peek(), n)
	}
	return used
}

// Others are the IngressRoutes that are another controller's, sorted.
func (t *Translator) Others() (others []model.Object) {
	for n := range t.contour.Others.All() {
		others = append(others, input.Object(snapshot.KindIngressRoute, n))
	}
	slices.SortFunc(others, model.Object.Compare)
	return others
}

// CountOthers counts the IngressRoutes that are another controller's.
func (t *Translator) CountOthers() (n int) {
	for range t.contour.Others.All() {
		n++
	}
	return n
}

// OthersClass is the class of an IngressRoute that is another controller's; empty of any other.
func (t *Translator) OthersClass(n snapshot.Name) string {
	return t.contour.Others.Get(t.graph.Peek(), n)
}
