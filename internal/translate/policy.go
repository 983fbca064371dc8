package translate

import (
	"slices"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// policyTables are the policies, each judged for itself.
type policyTables struct {
	in      *inputTables
	anchor  *anchorTables
	backend *backendTables

	routes  *memo.Table[snapshot.Name, *routePolicyFact]
	clients *memo.Table[snapshot.Name, *clientPolicyFact]
	balance *memo.Table[snapshot.Name, *balancePolicyFact]
}

func newPolicyTables(g *memo.Graph, in *inputTables, anchor *anchorTables, backend *backendTables) *policyTables {
	t := &policyTables{in: in, anchor: anchor, backend: backend}
	t.routes = memo.NewTable(g, "RoutePolicy", t.makeRoutePolicy, memo.Reads(in.routePolicies), backend.readsOfGroups())
	t.clients = memo.NewTable(g, "ClientPolicy", t.makeClientPolicy, memo.Reads(in.clientPolicies), backend.readsOfGroups())
	t.balance = memo.NewTable(g, "LoadBalancerPolicy", func(c *memo.Context, n snapshot.Name) (*balancePolicyFact, bool) {
		f := makeBalancePolicyFact(in.loadBalancerPolicies.Get(c, n))
		return f, f != nil
	}, memo.Reads(in.loadBalancerPolicies))
	return t
}

// readsOfRoutes declares what routePolicy reads.
func (t *policyTables) readsOfRoutes() memo.Option { return memo.Reads(t.anchor.slots, t.routes) }

// routePolicy returns what the RoutePolicies of a route ask, and the groups that this
// names: that of the section goes before that of the object, matter by matter. It is nil
// when there is none. Sections without a name have none of their own.
func (t *policyTables) routePolicy(c *memo.Context, of model.Object, section string) (*model.RoutePolicy, []model.BackendGroup) {
	return t.mergePolicies(c, t.routeHeld(c, of, section))
}

func (t *policyTables) routeHeld(c *memo.Context, of model.Object, section string) []heldPolicy {
	target := policyAnchor{snapshot.KindRoutePolicy, of, section}
	held := []heldPolicy{t.anchor.holder(c, target)}
	if section != "" {
		held = append(held, t.anchor.holder(c, target.ofWhole()))
	}
	return held
}

// mergePolicies merges policies, those that go before others first.
func (t *policyTables) mergePolicies(c *memo.Context, held []heldPolicy) (*model.RoutePolicy, []model.BackendGroup) {
	var merged *model.RoutePolicy
	var groups []model.BackendGroup
	for _, h := range held {
		if h.none() {
			continue
		}
		f := t.routes.Get(c, h.name)
		if f == nil {
			continue
		}
		merged = merged.Or(&f.policy)
		for _, g := range f.groups {
			groups = addGroup(groups, g)
		}
	}
	if merged == nil || *merged == (model.RoutePolicy{}) {
		return nil, nil
	}
	named := merged.Groups()
	return merged, slices.DeleteFunc(groups, func(g model.BackendGroup) bool { return !slices.Contains(named, g.ID) })
}
