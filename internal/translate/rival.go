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

// rejects says that, of two claimants of a host, the older one keeps the other out. Those of two
// namespaces are merged by a Gateway of both at which hosts are shared, or where one of them is at home,
// also of the other's Gateway; and where hosts are for one namespace at no Gateway of theirs.
func (a rival) rejects(b rival) bool {
	if a.owner.Kind != b.owner.Kind || a.owner.Namespace == b.owner.Namespace {
		return a.owner.Kind != b.owner.Kind
	}
	open := false
	for _, p := range a.places {
		for _, q := range b.places {
			merged := p.gateway == q.gateway && (!p.open && !q.open || p.home || q.home)
			if merged || a.owner.Namespace == q.gateway.Namespace || b.owner.Namespace == p.gateway.Namespace {
				return false
			}
			open = open || p.open || q.open
		}
	}
	return open
}

func (a rival) equal(b rival) bool {
	return a.owner == b.owner && a.created == b.created && slices.Equal(a.places, b.places)
}

func isRivalKind(kind string) bool {
	return kind == string(snapshot.KindHTTPRoute) || kind == string(snapshot.KindGRPCRoute)
}

func rivalsNode(k model.HostKey) node {
	return node{kind: nodeRivals, a: string(k.Listener), b: k.Host}
}

func rejectedNode(o model.Object) node {
	return node{kind: nodeRejected, a: o.Kind, b: o.Namespace, c: o.Name}
}

// markRivals looks at a host again whose claims changed, if both kinds are, or were, there.
func (t *Translator) markRivals(k model.HostKey, h *hostState, owner model.Object) {
	if !isRivalKind(owner.Kind) {
		return
	}
	if t.rivals[k] != nil || h.contested() {
		t.graph.mark(rivalsNode(k))
	}
}

// contested says that routes of both kinds, or of several namespaces, claim the host.
func (h *hostState) contested() bool {
	return h.counts[string(snapshot.KindHTTPRoute)] > 0 && h.counts[string(snapshot.KindGRPCRoute)] > 0 || len(h.namespaces) > 1
}

// computeRivals lists who claims a host that may be contested, oldest first; nobody where none keeps
// another one out.
func (t *Translator) computeRivals(r reader, n node) {
	k := model.HostKey{Listener: model.ListenerID(n.a), Host: n.b}
	var rivals []rival
	if h := t.hosts[k]; h != nil && h.contested() {
		kinds := h.counts[string(snapshot.KindHTTPRoute)] > 0 && h.counts[string(snapshot.KindGRPCRoute)] > 0
		var claims []*claim
		for _, c := range h.claims {
			if isRivalKind(c.owner.Kind) {
				claims = append(claims, c)
			}
		}
		slices.SortFunc(claims, func(a, b *claim) int {
			if a.older(b) {
				return -1
			}
			return 1
		})
		open := false
		for _, c := range claims {
			v := rival{owner: c.owner, created: c.created}
			for _, p := range r.route(c.owner).places() {
				if p.host == k {
					v.places, open = append(v.places, p), open || p.open
				}
			}
			rivals = append(rivals, v)
		}
		if !kinds && !open {
			rivals = nil // all are merged
		}
	}
	before := t.rivals[k]
	if slices.EqualFunc(before, rivals, rival.equal) {
		return
	}
	if rivals == nil {
		delete(t.rivals, k)
	} else {
		t.rivals[k] = rivals
	}
	t.graph.changed(n)
	for _, r := range slices.Concat(before, rivals) {
		t.graph.mark(rejectedNode(r.owner))
	}
}

// computeRejected finds the listeners at which a route is not accepted because of an older
// one of the other kind.
func (t *Translator) computeRejected(r reader, n node) {
	owner := model.Object{Kind: n.a, Namespace: n.b, Name: n.c}
	known := map[rivalry]*model.Object{}
	var rejected map[model.ListenerID]model.Object
	hosts := t.routes[owner].hosts()
	if !slices.ContainsFunc(hosts, func(k model.HostKey) bool { return t.rivals[k] != nil }) {
		hosts = nil // nobody to meet; who comes marks the node again
	}
	for _, id := range listenersOf(hosts) {
		if by := r.rejectedBy(rivalry{owner, id}, known); by != nil {
			if rejected == nil {
				rejected = map[model.ListenerID]model.Object{}
			}
			rejected[id] = *by
		}
	}
	before := t.rejected[owner]
	if maps.Equal(before, rejected) {
		return
	}
	if rejected == nil {
		delete(t.rejected, owner)
	} else {
		t.rejected[owner] = rejected
	}
	t.graph.changed(n)
	for _, k := range t.routes[owner].hosts() {
		if h := t.hosts[k]; h != nil && (before[k.Listener] != rejected[k.Listener]) {
			h.pending[owner] = struct{}{}
			t.graph.mark(hostNode(k))
		}
	}
}

// rivalry is a route at one listener.
type rivalry struct {
	route    model.Object
	listener model.ListenerID
}

// rejectedBy finds the route for which another is rejected at a listener, nil when it is
// accepted. Only older ones reject, so this ends; known keeps what was found.
func (r reader) rejectedBy(of rivalry, known map[rivalry]*model.Object) *model.Object {
	if by, found := known[of]; found {
		return by
	}
	known[of] = nil
	for _, k := range r.hostsOf(of.route) {
		if k.Listener != of.listener {
			continue
		}
		rivals := r.rivalsOf(k)
		at := slices.IndexFunc(rivals, func(v rival) bool { return v.owner == of.route })
		for _, older := range rivals[:max(at, 0)] {
			if older.rejects(rivals[at]) && r.rejectedBy(rivalry{older.owner, of.listener}, known) == nil {
				known[of] = &older.owner
				return &older.owner
			}
		}
	}
	return nil
}

// hostsOf are the hosts that an HTTPRoute or GRPCRoute claims.
func (r reader) hostsOf(route model.Object) []model.HostKey {
	return r.route(route).hosts()
}

func (r reader) rivalsOf(k model.HostKey) []rival {
	r.t.graph.read(r.by, rivalsNode(k))
	return r.t.rivals[k]
}

// rejectedAt returns who came first at a listener where a route is rejected.
func (r reader) rejectedAt(route model.Object, listener model.ListenerID) (by model.Object, is bool) {
	r.t.graph.read(r.by, rejectedNode(route))
	by, is = r.t.rejected[route][listener]
	return by, is
}

// isRejected is rejectedAt for nodes that are marked when it changes.
func (t *Translator) isRejected(route model.Object, listener model.ListenerID) bool {
	_, is := t.rejected[route][listener]
	return is
}
