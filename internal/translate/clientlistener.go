package translate

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// sharedPolicy is the ClientPolicy that holds at the listeners that all Gateways without
// addresses of their own share with IngressRoutes: the oldest that has a GatewayClass of
// ours.
func (t *listenerTables) sharedPolicy(c *memo.Context) heldPolicy {
	var oldest heldPolicy
	for class, p := range t.anchor.classes.Get(c, memo.Unit{}) {
		if t.gateway.classes.Get(c, class) == nil {
			continue
		}
		if oldest.none() || olderPolicy(p.created, p.name, oldest.created, oldest.name) {
			oldest = p
		}
	}
	return oldest
}

// clients returns how clients are treated at a listener, and the groups that this names.
// Nothing but the policy of a GatewayClass holds at one that is shared: what one Gateway
// says must not disturb the others.
func (t *listenerTables) clients(c *memo.Context, id model.ListenerID, protocol model.Protocol) (*model.ClientSettings, []model.BackendGroup) {
	var settings clientSettings
	var groups []model.BackendGroup
	for _, p := range t.listenerPolicies(c, id) {
		f := t.policy.clients.Get(c, p.name)
		if f == nil {
			continue
		}
		settings = settings.under(f.settings)
		for _, g := range f.groups {
			groups = addGroup(groups, g)
		}
	}
	m := settings.at(protocol)
	used := func(g model.BackendGroup) bool {
		return m != nil && (m.AccessLog != nil && m.AccessLog.Collector == g.ID || m.Tracing != nil && m.Tracing.Collector == g.ID)
	}
	return m, slices.DeleteFunc(groups, func(g model.BackendGroup) bool { return !used(g) })
}

// listenerPolicies are the ClientPolicies that hold at a listener, those that go before
// others first.
func (t *listenerTables) listenerPolicies(c *memo.Context, id model.ListenerID) []heldPolicy {
	if !id.Own() {
		if p := t.sharedPolicy(c); !p.none() {
			return []heldPolicy{p}
		}
		return nil
	}
	return t.ownPolicies(c, id)
}

// ownPolicies are the ClientPolicies of a Gateway's own listener: of the sections there,
// of ListenerSets, of the Gateway and of its class, in this order; of several on one level
// the oldest goes first.
func (t *listenerTables) ownPolicies(c *memo.Context, id model.ListenerID) []heldPolicy {
	const levels = 4
	var held [levels][]heldPolicy
	note := func(level int, of policyAnchor) {
		if p := t.anchor.holder(c, of); !p.none() && !slices.Contains(held[level], p) {
			held[level] = append(held[level], p)
		}
	}
	asking := t.host.ports.Get(c, id)
	for owner := range asking.All() {
		f := t.gateway.parents.Get(c, parentKey{snapshot.Kind(owner.Kind), snapshot.Name{Namespace: owner.Namespace, Name: owner.Name}})
		if f == nil {
			continue
		}
		if !isGuest(asking, owner, f) {
			for i := range f.listeners {
				if f.listeners[i].id == id {
					note(0, clientAnchor(owner, f.listeners[i].name))
				}
			}
			if owner.Kind == string(snapshot.KindListenerSet) {
				note(1, clientAnchor(owner, ""))
			}
		}
		note(2, clientAnchor(gatewayOwner(f.gateway), ""))
		note(3, clientAnchor(model.Object{Kind: string(snapshot.KindGatewayClass), Name: f.class}, ""))
	}
	for _, list := range held {
		sortHeld(list)
	}
	return slices.Concat(held[:]...)
}

// isGuest says that a ListenerSet of another namespace than the Gateway's shares a listener with some of
// other namespaces: its policies would hold for their clients. Whose port it was first nobody remembers.
func isGuest(asking memo.Parts[model.Object, int64], owner model.Object, f *parentFact) bool {
	if owner.Kind != string(snapshot.KindListenerSet) || owner.Namespace == f.gateway.Namespace {
		return false
	}
	for other := range asking.All() {
		if other.Namespace != owner.Namespace {
			return true
		}
	}
	return false
}

// sharing says why a ClientPolicy does not hold for a Gateway, a ListenerSet or a section
// of them, or what is worth knowing of it if it does.
func (t *listenerTables) sharing(c *memo.Context, policy snapshot.Name, target policyAnchor) (problem, note string) {
	if target.object.Kind == string(snapshot.KindGatewayClass) {
		if p := t.sharedPolicy(c); p.name != policy {
			note = "; at the listeners that Gateways without addresses of their own share, ClientPolicy " + p.name.String() + " holds, which came first"
		}
		return "", note
	}
	f := t.gateway.parents.Get(c, parentKey{snapshot.Kind(target.object.Kind), snapshot.Name{Namespace: target.object.Namespace, Name: target.object.Name}})
	if f == nil {
		return "", ""
	}
	own, shared, first := 0, 0, map[snapshot.Name]struct{}{}
	var asGuest []string // ports
	for i := range f.listeners {
		l := &f.listeners[i]
		if target.section != "" && string(l.name) != target.section {
			continue
		}
		if !l.id.Own() {
			shared++
			continue
		}
		if isGuest(t.host.ports.Get(c, l.id), target.object, f) {
			asGuest = append(asGuest, strconv.Itoa(int(l.port)))
			continue
		}
		own++
		if target.section == "" && target.object.Kind == string(snapshot.KindGateway) {
			continue // nobody else has the Gateway
		}
		for _, p := range t.ownPolicies(c, l.id) {
			if p.name == policy {
				break
			}
			first[p.name] = struct{}{}
		}
	}
	if shared > 0 && own == 0 {
		return target.object.String() + " has no addresses of its own, and shares its listeners with other Gateways and with IngressRoutes: " +
			"give it an address (AddressPool), or have a ClientPolicy for its GatewayClass", ""
	}
	if len(asGuest) > 0 && own == 0 {
		return target.object.String() + " shares its ports with listeners of other namespaces at Gateway " + f.gateway.String() + ", for whose clients the policy would hold, too: " +
			"take other ports, or have a ClientPolicy for the Gateway", ""
	}
	if len(asGuest) > 0 {
		note = "; not at ports that other namespaces have at Gateway " + f.gateway.String() + ", too: " + strings.Join(slices.Compact(asGuest), ", ")
	}
	if len(first) > 0 && target.section != "" {
		note += "; listeners with another hostname at the same port have " + listNames(slices.SortedFunc(maps.Keys(first), compareNames)) + ", which goes first where both say something"
	}
	return "", note
}

// clientAnchor is what ClientPolicies may be attached to.
func clientAnchor(of model.Object, section gatewayv1.SectionName) policyAnchor {
	return policyAnchor{snapshot.KindClientPolicy, of, string(section)}
}
