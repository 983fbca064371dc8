package policy

import (
	"slices"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/target"
)

// Rooms are the rooms that the tables read, besides the input.
type Rooms struct {
	Targets *target.Tables
	Backend *backend.Tables
}

// Tables are the policies, each judged for itself.
type Tables struct {
	in   *input.Tables
	from Rooms

	Routes  *memo.Table[snapshot.Name, *Route]
	Clients *memo.Table[snapshot.Name, *Client]
	Balance *memo.Table[snapshot.Name, *Balance]

	// Outcomes are the results of reading the policies of each kind.
	Outcomes map[snapshot.Kind]Outcome
}

// Outcome finds the results of reading one policy: its values, and its references to other objects.
type Outcome struct {
	Of    func(c *memo.Context, n snapshot.Name) (values, references field.PolicyResult)
	Reads memo.Option // of Of
}

// New adds the tables of policies to a graph.
func New(g *memo.Graph, in *input.Tables, r Rooms) *Tables {
	t := &Tables{in: in, from: r}
	t.Routes = memo.NewTable(g, "RoutePolicy", t.makeRoutePolicy, memo.Reads(in.RoutePolicies), t.from.Backend.ReadsOfGroups())
	t.Clients = memo.NewTable(g, "ClientPolicy", t.makeClientPolicy, memo.Reads(in.ClientPolicies), t.from.Backend.ReadsOfGroups())
	t.Balance = memo.NewTable(g, "LoadBalancerPolicy", func(c *memo.Context, n snapshot.Name) (*Balance, bool) {
		f := newBalance(in.LoadBalancerPolicies.Get(c, n))
		return f, f != nil
	}, memo.Reads(in.LoadBalancerPolicies))
	t.Outcomes = map[snapshot.Kind]Outcome{
		snapshot.KindRoutePolicy:        {t.routeOutcome, memo.Reads(t.Routes)},
		snapshot.KindClientPolicy:       {t.clientOutcome, memo.Reads(t.Clients)},
		snapshot.KindLoadBalancerPolicy: {t.balanceOutcome, memo.Reads(t.Balance)},
		snapshot.KindBackendPolicy:      {t.backendOutcome, memo.Reads(in.BackendPolicies)},
	}
	return t
}

// backendOutcome reads a BackendPolicy, whose values package backend uses without a table.
func (t *Tables) backendOutcome(c *memo.Context, n snapshot.Name) (values, references field.PolicyResult) {
	_, values = backend.ReadOptions(t.in.BackendPolicies.Get(c, n))
	return values, references
}

// ReadsOfRoutes declares what RoutePolicy reads.
func (t *Tables) ReadsOfRoutes() memo.Option { return memo.Reads(t.from.Targets.Slots, t.Routes) }

// RoutePolicy returns what the RoutePolicies of a route ask, and the groups that this
// names: that of the section goes before that of the object, matter by matter. It is nil
// when there is none. Sections without a name have none of their own.
func (t *Tables) RoutePolicy(c *memo.Context, of model.Object, section string) (*model.RoutePolicy, []model.BackendGroup) {
	return t.MergePolicies(c, t.RouteHeld(c, of, section))
}

// RouteHeld returns the RoutePolicies that apply to a rule of a route, the most specific first.
func (t *Tables) RouteHeld(c *memo.Context, of model.Object, section string) []target.Policy {
	ref := target.Ref{Kind: snapshot.KindRoutePolicy, Object: of, Section: section}
	held := []target.Policy{t.from.Targets.Holder(c, ref)}
	if section != "" {
		held = append(held, t.from.Targets.Holder(c, ref.OfWhole()))
	}
	return held
}

// MergePolicies merges policies, those that go before others first.
func (t *Tables) MergePolicies(c *memo.Context, held []target.Policy) (*model.RoutePolicy, []model.BackendGroup) {
	var merged *model.RoutePolicy
	var groups []model.BackendGroup
	for _, h := range held {
		if h.None() {
			continue
		}
		f := t.Routes.Get(c, h.Name)
		if f == nil {
			continue
		}
		merged = merged.Or(&f.Policy)
		for _, g := range f.groups {
			groups = backend.AddGroup(groups, g)
		}
	}
	if merged == nil || *merged == (model.RoutePolicy{}) {
		return nil, nil
	}
	named := merged.Groups()
	return merged, slices.DeleteFunc(groups, func(g model.BackendGroup) bool { return !slices.Contains(named, g.ID) })
}
