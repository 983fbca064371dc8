package translate

import (
	"cmp"
	"slices"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// hostPlace is a listener of a Gateway or ListenerSet through which a route is attached to
// a virtual host.
type hostPlace struct {
	parent  model.Object
	section string
	// above is the Gateway of a ListenerSet; zero for a Gateway itself.
	above model.Object
}

// placedHost is one host of a route with one place through which it has it.
type placedHost struct {
	host    model.HostKey
	place   hostPlace
	gateway snapshot.Name // through whose listeners
	// apart: the host is for the routes of one namespace there, and for those of the namespace of the
	// Gateway or ListenerSet, their home.
	apart, home bool
}

func (p placedHost) compare(q placedHost) int {
	return cmp.Or(p.host.Compare(q.host), p.place.parent.Compare(q.place.parent), cmp.Compare(p.place.section, q.place.section))
}

// placedBy is a route with one of its places.
type placedBy struct {
	owner model.Object
	place hostPlace
}

// hostPolicy returns what the RoutePolicies of those ask through which a virtual host is
// reached: of a root IngressRoute, or of listeners, ListenerSets and Gateways, in this
// order. Of several on one level the oldest goes first. IngressRoutes have besides what
// Contour gave them all.
func (t *hostTables) hostPolicy(c *memo.Context, k model.HostKey, owner hostOwner, routes *hostRoutes) (*model.RoutePolicy, []model.BackendGroup) {
	policy, groups := t.policy.mergePolicies(c, t.hostHeld(c, k, owner, routes))
	if owner.kind == snapshot.KindIngressRoute {
		policy = policy.Or(model.ContourEncoding())
	}
	return policy, groups
}

func (t *hostTables) hostHeld(c *memo.Context, k model.HostKey, owner hostOwner, routes *hostRoutes) []heldPolicy {
	if owner.kind == snapshot.KindIngressRoute {
		for root, s := range routes.by.All() {
			if s.has {
				return t.policy.routeHeld(c, root, "")
			}
		}
		return nil
	}
	const levels = 3
	var held [levels][]heldPolicy
	note := func(level int, target policyAnchor) {
		if p := t.anchor.holder(c, target); !p.none() && !slices.Contains(held[level], p) {
			held[level] = append(held[level], p)
		}
	}
	for by := range t.places.Get(c, k).All() {
		if _, stands := routes.by.Get(by.owner); !stands {
			continue // it was rejected
		}
		place := by.place
		target := policyAnchor{snapshot.KindRoutePolicy, place.parent, place.section}
		note(0, target)
		if place.above == (model.Object{}) {
			note(2, target.ofWhole())
			continue
		}
		note(1, target.ofWhole())
		note(2, policyAnchor{kind: snapshot.KindRoutePolicy, object: place.above})
	}
	for _, list := range held {
		sortHeld(list)
	}
	return slices.Concat(held[:]...)
}
