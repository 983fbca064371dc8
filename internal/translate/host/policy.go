package host

import (
	"cmp"
	"slices"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/target"
)

// Attachment is a listener of a Gateway or ListenerSet through which a route is attached to
// a virtual host.
type Attachment struct {
	Parent  model.Object
	Section string
	// Above is the Gateway of a ListenerSet; zero for a Gateway itself.
	Above model.Object
}

// AttachedHost is one host of a route, with one listener through which the route serves it.
type AttachedHost struct {
	Host    model.HostKey
	Via     Attachment
	Gateway snapshot.Name // through whose listeners
	// Apart: the host is for the routes of one namespace there, and for those of the namespace of the
	// Gateway or ListenerSet, their home.
	Apart, Home bool
}

func (p AttachedHost) compare(q AttachedHost) int {
	return cmp.Or(p.Host.Compare(q.Host), p.Via.Parent.Compare(q.Via.Parent), cmp.Compare(p.Via.Section, q.Via.Section))
}

// AttachedBy is a route with one of its attachments.
type AttachedBy struct {
	Owner model.Object
	Via   Attachment
}

// hostPolicy returns what the RoutePolicies of those ask through which a virtual host is
// reached: of a root IngressRoute, or of listeners, ListenerSets and Gateways, in this
// order. Of several on one level the oldest goes first. IngressRoutes have besides what
// Contour gave them all.
func (t *Tables) hostPolicy(c *memo.Context, k model.HostKey, owner Owner, routes *Routes) (*model.RoutePolicy, []model.BackendGroup) {
	policy, groups := t.from.Policy.MergePolicies(c, t.HostHeld(c, k, owner, routes))
	if owner.Kind == snapshot.KindIngressRoute {
		policy = policy.Or(model.ContourEncoding())
	}
	return policy, groups
}

// HostHeld returns the RoutePolicies that apply to a host, the most specific first.
func (t *Tables) HostHeld(c *memo.Context, k model.HostKey, owner Owner, routes *Routes) []target.Policy {
	if owner.Kind == snapshot.KindIngressRoute {
		for root, s := range routes.by.All() {
			if s.has {
				return t.from.Policy.RouteHeld(c, root, "")
			}
		}
		return nil
	}
	const levels = 3
	var held [levels][]target.Policy
	note := func(level int, target target.Ref) {
		if p := t.from.Targets.Holder(c, target); !p.None() && !slices.Contains(held[level], p) {
			held[level] = append(held[level], p)
		}
	}
	for by := range t.Attachments.Get(c, k).All() {
		if _, stands := routes.by.Get(by.Owner); !stands {
			continue // it was rejected
		}
		via := by.Via
		ref := target.Ref{Kind: snapshot.KindRoutePolicy, Object: via.Parent, Section: via.Section}
		note(0, ref)
		if via.Above == (model.Object{}) {
			note(2, ref.OfWhole())
			continue
		}
		note(1, ref.OfWhole())
		note(2, target.Ref{Kind: snapshot.KindRoutePolicy, Object: via.Above})
	}
	for _, list := range held {
		target.SortHeld(list)
	}
	return slices.Concat(held[:]...)
}
