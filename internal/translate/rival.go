package translate

import (
	"maps"
	"slices"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// Of an HTTPRoute and a GRPCRoute that have a hostname in common at one listener, exactly
// one is accepted there, the older one, and the other is served at none of its hostnames
// (GRPCRouteSpec.hostnames). A route that is not accepted itself rejects nobody. Hostnames
// meet when they are equal after what the listener leaves of them: a wildcard and a name
// below it are two hosts here, and requests for the name are never the wildcard's.
//
// The same goes for routes of two namespaces where a host is for one of them
// (v1alpha1.AnnotationHosts).

// rival is one claimant of a host that HTTPRoutes and GRPCRoutes claim, or several namespaces.
type rival struct {
	owner   model.Object
	created int64
	places  []placedHost // through which it has the host
}

// rejects says that, of two claimants of a host, the older one keeps the other out. Two namespaces
// share a host where they attach through one Gateway that shares hosts, where one is at home at the
// other's Gateway, and where no Gateway of theirs holds hosts apart.
func (a rival) rejects(b rival) bool {
	if a.owner.Kind != b.owner.Kind || a.owner.Namespace == b.owner.Namespace {
		return a.owner.Kind != b.owner.Kind
	}
	apart := false
	for _, p := range a.places {
		for _, q := range b.places {
			merged := p.gateway == q.gateway && (!p.apart || p.home || q.home)
			if merged || a.owner.Namespace == q.gateway.Namespace || b.owner.Namespace == p.gateway.Namespace {
				return false
			}
			apart = apart || p.apart || q.apart
		}
	}
	return apart
}

// alike says that whoever one of two rejects is rejected by the other, too.
func (a rival) alike(b rival) bool {
	return a.owner.Kind == b.owner.Kind && a.owner.Namespace == b.owner.Namespace &&
		slices.EqualFunc(a.places, b.places, func(p, q placedHost) bool {
			return p.gateway == q.gateway && p.apart == q.apart && p.home == q.home
		})
}

func isRivalKind(kind string) bool {
	return kind == string(snapshot.KindHTTPRoute) || kind == string(snapshot.KindGRPCRoute)
}

// hasBothKinds says that HTTPRoutes and GRPCRoutes claim the host.
func (h *hostClaims) hasBothKinds() bool {
	return h.counts.of(string(snapshot.KindHTTPRoute)) > 0 && h.counts.of(string(snapshot.KindGRPCRoute)) > 0
}

// contested says that routes of both kinds, or of several namespaces, claim the host.
func (h *hostClaims) contested() bool { return h.hasBothKinds() || h.namespaces.len() > 1 }

// makeRivals lists who claims a host that may be contested, oldest first; nobody where none keeps
// another one out.
func (t *hostTables) makeRivals(c *memo.Context, k model.HostKey) ([]rival, bool) {
	h := t.claims.Get(c, k)
	if !h.contested() {
		return nil, false
	}
	places, apart := map[model.Object][]placedHost{}, false
	for by, p := range t.places.Get(c, k).All() {
		places[by.owner] = append(places[by.owner], p)
		apart = apart || p.apart
	}
	if !h.hasBothKinds() && !apart {
		return nil, false // all are merged
	}
	var rivals []rival
	for _, claim := range h.by.All() {
		if isRivalKind(claim.owner.Kind) {
			v := rival{owner: claim.owner, created: claim.created, places: places[claim.owner]}
			slices.SortFunc(v.places, placedHost.compare)
			rivals = append(rivals, v)
		}
	}
	slices.SortFunc(rivals, func(a, b rival) int {
		return compareAge(&claim{owner: a.owner, created: a.created}, &claim{owner: b.owner, created: b.created})
	})
	t.contests.Put(c, k.Listener, k, rivals)
	return rivals, true
}

func compareAge(a, b *claim) int {
	switch {
	case a.older(b):
		return -1
	case b.older(a):
		return 1
	}
	return 0
}

// contender is a route that claims contested hosts of a listener.
type contender struct {
	*claim // its age
	hosts  []model.HostKey
}

// accept decides which routes are not accepted at a listener, since an older one that is
// keeps them out. The oldest are judged first, for only who is accepted rejects.
func (t *hostTables) accept(c *memo.Context, id model.ListenerID) (struct{}, bool) {
	byOwner, apart := map[model.Object]*contender{}, map[model.HostKey]bool{}
	at := map[claimAt]rival{}
	for k, rivals := range t.contests.Get(c, id).All() {
		for _, v := range rivals {
			c := byOwner[v.owner]
			if c == nil {
				c = &contender{claim: &claim{owner: v.owner, created: v.created}}
				byOwner[v.owner] = c
			}
			c.hosts = append(c.hosts, k)
			at[claimAt{v.owner, k}] = v
			apart[k] = apart[k] || slices.ContainsFunc(v.places, func(p placedHost) bool { return p.apart })
		}
	}
	contenders := slices.SortedFunc(maps.Values(byOwner), func(a, b *contender) int { return compareAge(a.claim, b.claim) })
	accepted := map[model.HostKey][]rival{} // of those that are alike the oldest
	for _, one := range contenders {
		slices.SortFunc(one.hosts, model.HostKey.Compare)
		if by, is := one.rejectedBy(accepted, at); is {
			t.rejected.Put(c, routeAt{one.owner, id}, memo.Unit{}, by)
			continue
		}
		for _, k := range one.hosts {
			v := at[claimAt{one.owner, k}]
			if !slices.ContainsFunc(accepted[k], func(o rival) bool { return v.alike(o) || !apart[k] && v.owner.Kind == o.owner.Kind }) {
				accepted[k] = append(accepted[k], v)
			}
		}
	}
	return struct{}{}, false
}

// rejectedBy finds an accepted route that keeps this one out.
func (o *contender) rejectedBy(accepted map[model.HostKey][]rival, at map[claimAt]rival) (by model.Object, is bool) {
	for _, k := range o.hosts {
		younger := at[claimAt{o.owner, k}]
		if i := slices.IndexFunc(accepted[k], func(older rival) bool { return older.rejects(younger) }); i >= 0 {
			return accepted[k][i].owner, true
		}
	}
	return by, false
}

// routeAt is a route at a listener.
type routeAt struct {
	route    model.Object
	listener model.ListenerID
}

// rejectedAt returns who came first at a listener where a route is rejected.
func (t *hostTables) rejectedAt(c *memo.Context, route model.Object, listener model.ListenerID) (by model.Object, is bool) {
	return t.rejected.Find(c, routeAt{route, listener})
}

func (t *hostTables) isRejected(c *memo.Context, route model.Object, listener model.ListenerID) bool {
	if !isRivalKind(route.Kind) {
		return false
	}
	_, is := t.rejectedAt(c, route, listener)
	return is
}
