package listener

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/policy"
	"fairlead.dev/internal/translate/target"
)

// sharedPolicy is the ClientPolicy that holds at the listeners that all Gateways without
// addresses of their own share with IngressRoutes: the oldest that has a GatewayClass of
// ours.
func (t *Tables) sharedPolicy(c *memo.Context) target.Policy {
	var oldest target.Policy
	for class, p := range t.from.Targets.Classes.Get(c, memo.Unit{}) {
		if t.from.Gateway.Classes.Get(c, class) == nil {
			continue
		}
		if oldest.None() || target.OlderPolicy(p.Created, p.Name, oldest.Created, oldest.Name) {
			oldest = p
		}
	}
	return oldest
}

// clients returns how clients are treated at a listener, and the groups that this names.
// Nothing but the policy of a GatewayClass holds at one that is shared: what one Gateway
// says must not disturb the others.
func (t *Tables) clients(c *memo.Context, id model.ListenerID, protocol model.Protocol) (*model.ClientSettings, []model.BackendGroup) {
	var settings policy.ClientSettings
	var groups []model.BackendGroup
	for _, p := range t.ListenerPolicies(c, id) {
		f := t.from.Policy.Clients.Get(c, p.Name)
		if f == nil {
			continue
		}
		settings = settings.Under(f.Settings)
		for _, g := range f.Groups {
			groups = backend.AddGroup(groups, g)
		}
	}
	m := settings.At(protocol)
	used := func(g model.BackendGroup) bool {
		return m != nil && (m.AccessLog != nil && m.AccessLog.Collector == g.ID || m.Tracing != nil && m.Tracing.Collector == g.ID)
	}
	return m, slices.DeleteFunc(groups, func(g model.BackendGroup) bool { return !used(g) })
}

// ListenerPolicies are the ClientPolicies that hold at a listener, those that go before
// others first.
func (t *Tables) ListenerPolicies(c *memo.Context, id model.ListenerID) []target.Policy {
	if !id.Own() {
		if p := t.sharedPolicy(c); !p.None() {
			return []target.Policy{p}
		}
		return nil
	}
	return t.ownPolicies(c, id)
}

// ownPolicies are the ClientPolicies of a Gateway's own listener: of the sections there,
// of ListenerSets, of the Gateway and of its class, in this order; of several on one level
// the oldest goes first.
func (t *Tables) ownPolicies(c *memo.Context, id model.ListenerID) []target.Policy {
	const levels = 4
	var held [levels][]target.Policy
	note := func(level int, of target.Ref) {
		if p := t.from.Targets.Holder(c, of); !p.None() && !slices.Contains(held[level], p) {
			held[level] = append(held[level], p)
		}
	}
	asking := t.from.Host.Ports.Get(c, id)
	for owner := range asking.All() {
		f := t.from.Gateway.Parents.Get(c, gateway.ParentKey{Kind: snapshot.Kind(owner.Kind), Name: input.NameOf(owner)})
		if f == nil {
			continue
		}
		if !isGuest(asking, owner, f) {
			for i := range f.Listeners {
				if f.Listeners[i].ID == id {
					note(0, clientAnchor(owner, f.Listeners[i].Name))
				}
			}
			if owner.Kind == string(snapshot.KindListenerSet) {
				note(1, clientAnchor(owner, ""))
			}
		}
		note(2, clientAnchor(input.Object(snapshot.KindGateway, f.Gateway), ""))
		note(3, clientAnchor(input.Object(snapshot.KindGatewayClass, snapshot.Name{Name: f.Class}), ""))
	}
	for _, list := range held {
		target.SortHeld(list)
	}
	return slices.Concat(held[:]...)
}

// isGuest says that a ListenerSet of another namespace than the Gateway's shares a listener with some of
// other namespaces: its policies would hold for their clients. Whose port it was first nobody remembers.
func isGuest(asking memo.Parts[model.Object, int64], owner model.Object, f *gateway.Parent) bool {
	if owner.Kind != string(snapshot.KindListenerSet) || owner.Namespace == f.Gateway.Namespace {
		return false
	}
	for other := range asking.All() {
		if other.Namespace != owner.Namespace {
			return true
		}
	}
	return false
}

// Sharing says why a ClientPolicy does not hold for a Gateway, a ListenerSet or a section
// of them, or what is worth knowing of it if it does.
func (t *Tables) Sharing(c *memo.Context, policy snapshot.Name, target target.Ref) (problem, note string) {
	if target.Object.Kind == string(snapshot.KindGatewayClass) {
		if p := t.sharedPolicy(c); p.Name != policy {
			note = "; at the shared listeners the older ClientPolicy " + p.Name.String() + " applies"
		}
		return "", note
	}
	f := t.from.Gateway.Parents.Get(c, gateway.ParentKey{Kind: snapshot.Kind(target.Object.Kind), Name: input.NameOf(target.Object)})
	if f == nil {
		return "", ""
	}
	own, shared, first := 0, 0, map[snapshot.Name]struct{}{}
	var asGuest []string // ports
	for i := range f.Listeners {
		l := &f.Listeners[i]
		if target.Section != "" && string(l.Name) != target.Section {
			continue
		}
		if !l.ID.Own() {
			shared++
			continue
		}
		if isGuest(t.from.Host.Ports.Get(c, l.ID), target.Object, f) {
			asGuest = append(asGuest, strconv.Itoa(int(l.Port)))
			continue
		}
		own++
		if target.Section == "" && target.Object.Kind == string(snapshot.KindGateway) {
			continue // nobody else has the Gateway
		}
		for _, p := range t.ownPolicies(c, l.ID) {
			if p.Name == policy {
				break
			}
			first[p.Name] = struct{}{}
		}
	}
	if shared > 0 && own == 0 {
		return target.Object.String() + " has no address of its own and shares its listeners with other Gateways and with IngressRoutes: " +
			"give it an address (AddressPool), or create a ClientPolicy for its GatewayClass", ""
	}
	if len(asGuest) > 0 && own == 0 {
		return target.Object.String() + " shares its ports with listeners of other namespaces at Gateway " + f.Gateway.String() + ", and the policy would apply to their clients, too: " +
			"use other ports, or create a ClientPolicy for the Gateway", ""
	}
	if len(asGuest) > 0 {
		note = "; not at the ports that listeners of other namespaces also use at Gateway " + f.Gateway.String() + ": " + strings.Join(slices.Compact(asGuest), ", ")
	}
	if len(first) > 0 && target.Section != "" {
		note += "; listeners with another hostname at the same port have " + field.ListNames(slices.SortedFunc(maps.Keys(first), input.CompareNames)) + ", which has precedence for fields that both set"
	}
	return "", note
}

// clientAnchor is what ClientPolicies may be attached to.
func clientAnchor(of model.Object, section gatewayv1.SectionName) target.Ref {
	return target.Ref{Kind: snapshot.KindClientPolicy, Object: of, Section: string(section)}
}
