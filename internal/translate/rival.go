package translate

import (
	"maps"
	"slices"

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

func (a rival) equal(b rival) bool {
	return a.owner == b.owner && a.created == b.created && slices.Equal(a.places, b.places)
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

func rivalsNode(k model.HostKey) node {
	return node{kind: nodeRivals, a: string(k.Listener), b: k.Host}
}

func acceptedNode(id model.ListenerID) node { return node{kind: nodeAccepted, a: string(id)} }

func rejectedNode(o model.Object) node {
	return node{kind: nodeRejected, a: o.Kind, b: o.Namespace, c: o.Name}
}

// markRivals looks at a host again whose claims changed, if it is, or was, contested.
func (t *Translator) markRivals(k model.HostKey, h *hostState, owner model.Object) {
	if !isRivalKind(owner.Kind) {
		return
	}
	if t.rivals[k] != nil || h.contested() {
		t.graph.mark(rivalsNode(k))
	}
}

// hasBothKinds says that HTTPRoutes and GRPCRoutes claim the host.
func (h *hostState) hasBothKinds() bool {
	return h.counts.of(string(snapshot.KindHTTPRoute)) > 0 && h.counts.of(string(snapshot.KindGRPCRoute)) > 0
}

// contested says that routes of both kinds, or of several namespaces, claim the host.
func (h *hostState) contested() bool { return h.hasBothKinds() || h.namespaces.len() > 1 }

// computeRivals lists who claims a host that may be contested, oldest first; nobody where none keeps
// another one out.
func (t *Translator) computeRivals(r reader, n node) {
	k := model.HostKey{Listener: model.ListenerID(n.a), Host: n.b}
	var rivals []rival
	if h := t.hosts[k]; h != nil && h.contested() {
		var claims []*claim
		for _, c := range h.claims {
			if isRivalKind(c.owner.Kind) {
				claims = append(claims, c)
			}
		}
		slices.SortFunc(claims, compareAge)
		apart := false
		for _, c := range claims {
			v := rival{owner: c.owner, created: c.created}
			for _, p := range r.route(c.owner).places() {
				if p.host == k {
					v.places, apart = append(v.places, p), apart || p.apart
				}
			}
			rivals = append(rivals, v)
		}
		if !h.hasBothKinds() && !apart {
			rivals = nil // all are merged
		}
	}
	if slices.EqualFunc(t.rivals[k], rivals, rival.equal) {
		return
	}
	contests := t.contests[k.Listener]
	if rivals == nil {
		delete(t.rivals, k)
		if delete(contests, k); len(contests) == 0 {
			delete(t.contests, k.Listener)
		}
	} else {
		t.rivals[k] = rivals
		if contests == nil {
			contests = map[model.HostKey]struct{}{}
			t.contests[k.Listener] = contests
		}
		contests[k] = struct{}{}
	}
	t.graph.mark(acceptedNode(k.Listener))
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

// computeAccepted decides which routes are not accepted at a listener, since an older one that is
// keeps them out. The oldest are judged first, for only who is accepted rejects.
func (t *Translator) computeAccepted(n node) {
	id := model.ListenerID(n.a)
	byOwner, apart := map[model.Object]*contender{}, map[model.HostKey]bool{}
	at := map[rivalry]rival{}
	for k := range t.contests[id] {
		for _, v := range t.rivals[k] {
			c := byOwner[v.owner]
			if c == nil {
				c = &contender{claim: &claim{owner: v.owner, created: v.created}}
				byOwner[v.owner] = c
			}
			c.hosts = append(c.hosts, k)
			at[rivalry{v.owner, k}] = v
			apart[k] = apart[k] || slices.ContainsFunc(v.places, func(p placedHost) bool { return p.apart })
		}
	}
	contenders := slices.SortedFunc(maps.Values(byOwner), func(a, b *contender) int { return compareAge(a.claim, b.claim) })
	accepted := map[model.HostKey][]rival{} // of those that are alike the oldest
	rejected := map[model.Object]model.Object{}
	for _, c := range contenders {
		slices.SortFunc(c.hosts, model.HostKey.Compare)
		for _, k := range c.hosts {
			younger := at[rivalry{c.owner, k}]
			if i := slices.IndexFunc(accepted[k], func(older rival) bool { return older.rejects(younger) }); i >= 0 {
				rejected[c.owner] = accepted[k][i].owner
				break
			}
		}
		if _, is := rejected[c.owner]; is {
			continue
		}
		for _, k := range c.hosts {
			v := at[rivalry{c.owner, k}]
			if !slices.ContainsFunc(accepted[k], func(o rival) bool { return v.alike(o) || !apart[k] && v.owner.Kind == o.owner.Kind }) {
				accepted[k] = append(accepted[k], v)
			}
		}
	}
	t.reject(id, rejected)
}

// rivalry is a route at one contested host.
type rivalry struct {
	route model.Object
	host  model.HostKey
}

// reject replaces which routes are rejected at a listener, and for whom, and tells who shows it.
func (t *Translator) reject(id model.ListenerID, rejected map[model.Object]model.Object) {
	before := t.rejected[id]
	if len(rejected) == 0 {
		delete(t.rejected, id)
	} else {
		t.rejected[id] = rejected
	}
	for _, owners := range []map[model.Object]model.Object{before, rejected} {
		for owner := range owners {
			if before[owner] == rejected[owner] {
				continue
			}
			t.graph.changed(rejectedNode(owner))
			for _, k := range t.routes[owner].hosts() {
				if h := t.hosts[k]; h != nil && k.Listener == id {
					h.await(owner)
					t.graph.mark(hostNode(k))
				}
			}
		}
	}
}

// rejectedAt returns who came first at a listener where a route is rejected.
func (r reader) rejectedAt(route model.Object, listener model.ListenerID) (by model.Object, is bool) {
	r.t.graph.read(r.by, rejectedNode(route))
	by, is = r.t.rejected[listener][route]
	return by, is
}

// isRejected is rejectedAt for nodes that are marked when it changes.
func (t *Translator) isRejected(route model.Object, listener model.ListenerID) bool {
	_, is := t.rejected[listener][route]
	return is
}
