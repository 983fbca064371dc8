package host

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
	owner       model.Object
	created     int64
	attachments []AttachedHost // through which it has the host
}

// rejects says that, of two claimants of a host, the older one keeps the other out. Two namespaces
// share a host where they attach through one Gateway that shares hosts, where one is at home at the
// other's Gateway, and where no Gateway of theirs holds hosts apart.
func (a rival) rejects(b rival) bool {
	if a.owner.Kind != b.owner.Kind || a.owner.Namespace == b.owner.Namespace {
		return a.owner.Kind != b.owner.Kind
	}
	apart := false
	for _, p := range a.attachments {
		for _, q := range b.attachments {
			merged := p.Gateway == q.Gateway && (!p.Apart || p.Home || q.Home)
			if merged || a.owner.Namespace == q.Gateway.Namespace || b.owner.Namespace == p.Gateway.Namespace {
				return false
			}
			apart = apart || p.Apart || q.Apart
		}
	}
	return apart
}

// alike says that whoever one of two rejects is rejected by the other, too.
func (a rival) alike(b rival) bool {
	return a.owner.Kind == b.owner.Kind && a.owner.Namespace == b.owner.Namespace &&
		slices.EqualFunc(a.attachments, b.attachments, func(p, q AttachedHost) bool {
			return p.Gateway == q.Gateway && p.Apart == q.Apart && p.Home == q.Home
		})
}

func isRivalKind(kind string) bool {
	return kind == string(snapshot.KindHTTPRoute) || kind == string(snapshot.KindGRPCRoute)
}

// hasBothKinds says that HTTPRoutes and GRPCRoutes claim the host.
func (h *candidates) hasBothKinds() bool {
	return h.counts.of(string(snapshot.KindHTTPRoute)) > 0 && h.counts.of(string(snapshot.KindGRPCRoute)) > 0
}

// contested says that routes of both kinds, or of several namespaces, claim the host.
func (h *candidates) contested() bool { return h.hasBothKinds() || h.namespaces.size() > 1 }

// makeRivals lists who claims a host that may be contested, oldest first; nobody where none keeps
// another one out.
func (t *Tables) makeRivals(c *memo.Context, k model.HostKey) ([]rival, bool) {
	h := t.Candidates.Get(c, k)
	if !h.contested() {
		return nil, false
	}
	attachments, apart := map[model.Object][]AttachedHost{}, false
	for by, p := range t.Attachments.Get(c, k).All() {
		attachments[by.Owner] = append(attachments[by.Owner], p)
		apart = apart || p.Apart
	}
	if !h.hasBothKinds() && !apart {
		return nil, false // all are merged
	}
	var rivals []rival
	for _, candidate := range h.by.All() {
		if isRivalKind(candidate.Owner.Kind) {
			v := rival{owner: candidate.Owner, created: candidate.Created, attachments: attachments[candidate.Owner]}
			slices.SortFunc(v.attachments, AttachedHost.compare)
			rivals = append(rivals, v)
		}
	}
	slices.SortFunc(rivals, func(a, b rival) int {
		return compareAge(&Candidate{Owner: a.owner, Created: a.created}, &Candidate{Owner: b.owner, Created: b.created})
	})
	t.contests.Put(c, k.Listener, k, rivals)
	return rivals, true
}

func compareAge(a, b *Candidate) int {
	switch {
	case a.Older(b):
		return -1
	case b.Older(a):
		return 1
	}
	return 0
}

// contender is a route that claims contested hosts of a listener.
type contender struct {
	*Candidate // its age
	hosts      []model.HostKey
}

// accept decides which routes are not accepted at a listener, since an older one that is
// keeps them out. The oldest are judged first, for only who is accepted rejects.
func (t *Tables) accept(c *memo.Context, id model.ListenerID) (struct{}, bool) {
	byOwner, apart := map[model.Object]*contender{}, map[model.HostKey]bool{}
	at := map[candidacy]rival{}
	for k, rivals := range t.contests.Get(c, id).All() {
		for _, v := range rivals {
			c := byOwner[v.owner]
			if c == nil {
				c = &contender{Candidate: &Candidate{Owner: v.owner, Created: v.created}}
				byOwner[v.owner] = c
			}
			c.hosts = append(c.hosts, k)
			at[candidacy{v.owner, k}] = v
			apart[k] = apart[k] || slices.ContainsFunc(v.attachments, func(p AttachedHost) bool { return p.Apart })
		}
	}
	contenders := slices.SortedFunc(maps.Values(byOwner), func(a, b *contender) int { return compareAge(a.Candidate, b.Candidate) })
	accepted := map[model.HostKey][]rival{} // of those that are alike the oldest
	for _, one := range contenders {
		slices.SortFunc(one.hosts, model.HostKey.Compare)
		if by, is := one.rejectedBy(accepted, at); is {
			t.Rejected.Put(c, routeAt{one.Owner, id}, memo.Unit{}, by)
			continue
		}
		for _, k := range one.hosts {
			v := at[candidacy{one.Owner, k}]
			if !slices.ContainsFunc(accepted[k], func(o rival) bool { return v.alike(o) || !apart[k] && v.owner.Kind == o.owner.Kind }) {
				accepted[k] = append(accepted[k], v)
			}
		}
	}
	return struct{}{}, false
}

// rejectedBy finds an accepted route that keeps this one out.
func (o *contender) rejectedBy(accepted map[model.HostKey][]rival, at map[candidacy]rival) (by model.Object, is bool) {
	for _, k := range o.hosts {
		younger := at[candidacy{o.Owner, k}]
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

// RejectedAt returns who came first at a listener where a route is rejected.
func (t *Tables) RejectedAt(c *memo.Context, route model.Object, listener model.ListenerID) (by model.Object, is bool) {
	return t.Rejected.Find(c, routeAt{route, listener})
}

// isRejected reports whether a route is rejected at a listener.
func (t *Tables) isRejected(c *memo.Context, route model.Object, listener model.ListenerID) bool {
	if !isRivalKind(route.Kind) {
		return false
	}
	_, is := t.RejectedAt(c, route, listener)
	return is
}
