package translate

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// entry is a route of a virtual host with what is needed to put it in its place.
// Entries are never changed.
type entry struct {
	route   model.Route
	groups  []model.BackendGroup // those that the route names
	created int64                // of the owner, Unix seconds
	order   int                  // within the owner
	// service and method are how many characters a GRPCRoute's match has of each; 0 of others.
	service, method int
}

// compare orders entries as requests try them: HTTPRouteRule.matches of the
// Gateway API, which is also IngressRoute's longest prefix first. Regular
// expressions, whose place is left open there, stand between exact paths and
// prefixes, longer ones first. Those of a GRPCRoute go by GRPCRouteRule.matches.
func (e *entry) compare(f *entry) int {
	a, b := &e.route.Match, &f.route.Match
	// In steps: most are told apart by their paths, and characters are slow to count.
	if c := cmp.Or(
		-cmp.Compare(e.service, f.service),
		-cmp.Compare(e.method, f.method),
		cmp.Compare(pathRank(a.Path.Kind), pathRank(b.Path.Kind)),
	); c != 0 {
		return c
	}
	if c := -cmp.Compare(utf8.RuneCountInString(a.Path.Value), utf8.RuneCountInString(b.Path.Value)); c != 0 {
		return c
	}
	if c := cmp.Or(
		-cmp.Compare(min(len(a.Method), 1), min(len(b.Method), 1)),
		-cmp.Compare(len(a.Headers), len(b.Headers)),
		-cmp.Compare(len(a.Query), len(b.Query)),
		cmp.Compare(e.created, f.created),
	); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(e.route.Owner.Namespace, f.route.Owner.Namespace),
		cmp.Compare(e.route.Owner.Name, f.route.Owner.Name),
		cmp.Compare(e.order, f.order),
		cmp.Compare(e.route.Name, f.route.Name),
	)
}

func pathRank(k model.PathMatchKind) int {
	switch k {
	case model.PathExact:
		return 0
	case model.PathRegex:
		return 1
	default:
		return 2
	}
}

// claim is what one resource wants of a virtual host: an HTTPRoute its rules, a
// root IngressRoute its tree, a Gateway that the host exists.
type claim struct {
	owner   model.Object
	created int64
	entries []*entry  // sorted
	tls     *tlsClaim // of a root IngressRoute, where clients speak TLS: for this host's name
}

// older reports whether c came before d; of two of one second, the one whose name
// comes first in the alphabet.
func (c *claim) older(d *claim) bool {
	return cmp.Or(
		cmp.Compare(c.created, d.created),
		cmp.Compare(c.owner.Namespace, d.owner.Namespace),
		cmp.Compare(c.owner.Name, d.owner.Name),
		cmp.Compare(c.owner.Kind, d.owner.Kind),
	) < 0
}

// hostState is a virtual host in the making.
type hostState struct {
	claims map[model.Object]*claim
	counts tally[string] // claims by kind
	// namespaces of HTTPRoutes and GRPCRoutes that claim it, with how many do.
	namespaces tally[string]
	pending    map[model.Object]struct{} // whose entries are to be taken in; nil: nobody's

	owner     hostOwner
	sortedFor snapshot.Kind // whose entries sorted holds
	sorted    []placed
}

type placed struct {
	by    model.Object // claims it
	entry *entry
}

// routeKinds are the kinds whose resources have routes to put into a virtual host. One host
// has routes of one kind: their rules of precedence differ.
var routeKinds = [...]snapshot.Kind{snapshot.KindHTTPRoute, snapshot.KindGRPCRoute, snapshot.KindIngressRoute}

func isRouteKind(kind string) bool { return slices.Contains(routeKinds[:], snapshot.Kind(kind)) }

// hostOwner says who has a host. Without a conflict it does not change when routes of one
// kind come and go, so they do not have to look again.
type hostOwner struct {
	kind     snapshot.Kind  // whose routes the host has; empty when nobody's
	conflict bool           // others claim the host too
	keeper   model.Object   // with a conflict: the oldest, which decides
	losers   []model.Object // with a conflict: who is not served, sorted
}

// has reports whether the owner of a claim is served, if it was not rejected.
func (o hostOwner) has(claimant model.Object) bool {
	return o.kind != "" && string(o.kind) == claimant.Kind
}

func (o hostOwner) equal(p hostOwner) bool {
	return o.kind == p.kind && o.conflict == p.conflict && o.keeper == p.keeper && slices.Equal(o.losers, p.losers)
}

func (o hostOwner) describeLosers() string {
	var names []string
	for i, l := range o.losers {
		if i == 5 {
			names = append(names, "...")
			break
		}
		names = append(names, l.String())
	}
	return strings.Join(names, ", ")
}

func hostNode(k model.HostKey) node { return node{kind: nodeHost, a: string(k.Listener), b: k.Host} }

// claim sets what an owner wants of a host, nil for nothing any more.
func (t *Translator) claim(k model.HostKey, owner model.Object, c *claim) {
	h := t.hosts[k]
	if h == nil {
		if c == nil {
			return
		}
		h = &hostState{claims: map[model.Object]*claim{}}
		t.hosts[k] = h
	}
	old := h.claims[owner]
	if old == c {
		return
	}
	if old != nil {
		h.count(owner, -1)
	}
	if c == nil {
		delete(h.claims, owner)
	} else {
		h.claims[owner] = c
		h.count(owner, 1)
	}
	h.await(owner)
	t.graph.mark(hostNode(k))
	t.markRivals(k, h, owner)
}

// count counts a claimant.
func (h *hostState) count(owner model.Object, by int) {
	h.counts.add(owner.Kind, by)
	if isRivalKind(owner.Kind) {
		h.namespaces.add(owner.Namespace, by)
	}
}

// await notes that the entries of a claimant are to be taken in.
func (h *hostState) await(owner model.Object) {
	if h.pending == nil {
		h.pending = map[model.Object]struct{}{}
	}
	h.pending[owner] = struct{}{}
}

// moveClaims replaces an owner's claims: those of the sorted keys before by one
// and the same claim at the sorted keys after.
func (t *Translator) moveClaims(owner model.Object, before, after []model.HostKey, c *claim) {
	t.moveClaimsBy(owner, before, after, func(model.HostKey) *claim { return c })
}

// moveClaimsBy is moveClaims with a claim for each key.
func (t *Translator) moveClaimsBy(owner model.Object, before, after []model.HostKey, of func(model.HostKey) *claim) {
	for _, k := range before {
		if _, stays := slices.BinarySearchFunc(after, k, model.HostKey.Compare); !stays {
			t.claim(k, owner, nil)
		}
	}
	for _, k := range after {
		t.claim(k, owner, of(k))
	}
}

// computeHost decides who has a host and puts their routes in order.
func (t *Translator) computeHost(r reader, n node) {
	k := model.HostKey{Listener: model.ListenerID(n.a), Host: n.b}
	h := t.hosts[k]
	if h == nil {
		return
	}
	if isTLS(k.Listener) {
		t.graph.mark(tlsServedNode(k))
	}
	var named *claim // a Gateway's, for this very name
	if isTLS(k.Listener) && len(h.claims) > 0 {
		if _, found := r.tlsOwner(k); found {
			s := t.tlsHosts[k]
			named = &claim{owner: s.parent, created: s.created}
		}
	}
	owner := t.decide(k, h, named)
	if !owner.equal(h.owner) {
		h.owner = owner
		t.graph.changed(n)
	}
	rerouted := t.place(k, h)
	if len(h.claims) == 0 {
		delete(t.hosts, k)
	}
	if !t.stands(k, h) {
		t.policyAt(r, k, nil)
		publish(t.result.VirtualHosts, t.out.VirtualHosts, k, nil)
		return
	}
	section := ""
	if isTLS(k.Listener) {
		section = k.Host
		if h.owner.kind != snapshot.KindIngressRoute {
			section, _, _ = r.section(k.Listener, k.Host)
		}
	}
	policy := t.policyAt(r, k, h)
	if stood := t.result.VirtualHosts[k]; stood != nil && !rerouted && stood.Section == section && reflect.DeepEqual(stood.Policy, policy) {
		return
	}
	host := &model.VirtualHost{HostKey: k, Section: section, Policy: policy, Routes: make([]model.Route, len(h.sorted))}
	for i := range h.sorted {
		host.Routes[i] = h.sorted[i].entry.route
	}
	t.result.VirtualHosts[k], t.out.VirtualHosts[k] = host, host
}

// stands reports whether anybody claims the host who was not rejected.
func (t *Translator) stands(k model.HostKey, h *hostState) bool {
	if len(t.rejected[k.Listener]) == 0 {
		return len(h.claims) > 0
	}
	for owner := range h.claims {
		if !t.isRejected(owner, k.Listener) {
			return true
		}
	}
	return false
}

// decide says who has the host. Routes of one kind share one. Between kinds the oldest
// resource decides: what worked before somebody else came goes on working.
//
// Who has the very name at a listener with TLS, a Gateway, stands with its routes.
func (t *Translator) decide(k model.HostKey, h *hostState, named *claim) hostOwner {
	var kinds []snapshot.Kind
	for _, kind := range routeKinds {
		if h.counts.of(string(kind)) > 0 {
			kinds = append(kinds, kind)
		}
	}
	switch {
	case len(kinds) == 0:
		return hostOwner{}
	case len(kinds) == 1 && (named == nil || kinds[0] != snapshot.KindIngressRoute):
		return hostOwner{kind: kinds[0]}
	}
	o := hostOwner{conflict: true}
	oldest, ofGateway := named, (*claim)(nil)
	for _, c := range h.claims {
		if !isRouteKind(c.owner.Kind) || t.isRejected(c.owner, k.Listener) {
			continue
		}
		if oldest == nil || c.older(oldest) {
			oldest = c
		}
		if isRivalKind(c.owner.Kind) && (ofGateway == nil || c.older(ofGateway)) {
			ofGateway = c
		}
	}
	if oldest != nil {
		o.keeper = oldest.owner
		switch {
		case isRouteKind(oldest.owner.Kind):
			o.kind = snapshot.Kind(oldest.owner.Kind)
		case ofGateway != nil:
			o.kind = snapshot.Kind(ofGateway.owner.Kind)
		default:
			o.kind = snapshot.KindHTTPRoute
		}
	}
	if named != nil && o.kind == snapshot.KindIngressRoute {
		o.losers = append(o.losers, named.owner)
	}
	for _, c := range h.claims {
		if isRouteKind(c.owner.Kind) && (snapshot.Kind(c.owner.Kind) != o.kind || t.isRejected(c.owner, k.Listener)) {
			o.losers = append(o.losers, c.owner)
		}
	}
	slices.SortFunc(o.losers, model.Object.Compare)
	return o
}

// tls is what the root IngressRoute wants of the host's server name that has the host; nil
// when none has.
func (h *hostState) tls() *tlsClaim {
	if h.owner.kind != snapshot.KindIngressRoute {
		return nil
	}
	for _, c := range h.claims {
		if c.owner.Kind == string(snapshot.KindIngressRoute) {
			return c.tls
		}
	}
	return nil
}

// place brings sorted up to the claims that changed, and the uses of groups with
// it. It reports whether the routes differ from those before. What did not change
// is merged, not sorted again.
func (t *Translator) place(k model.HostKey, h *hostState) bool {
	var added []placed
	add := func(c *claim) {
		if c != nil && h.owner.has(c.owner) && !t.isRejected(c.owner, k.Listener) {
			for _, e := range c.entries {
				added = append(added, placed{c.owner, e})
			}
		}
	}
	pending := h.pending
	h.pending = nil
	gone := func(p placed) bool { _, found := pending[p.by]; return found }
	if h.sortedFor == h.owner.kind {
		for owner := range pending {
			add(h.claims[owner])
		}
	} else {
		h.sortedFor = h.owner.kind
		gone = func(placed) bool { return true }
		for _, c := range h.claims {
			add(c)
		}
	}
	dropped := 0
	for _, p := range h.sorted {
		if gone(p) {
			dropped++
			t.useGroups(p.entry.groups, -1)
		}
	}
	if dropped == 0 && len(added) == 0 {
		return false
	}
	for _, p := range added {
		t.useGroups(p.entry.groups, 1)
	}
	slices.SortFunc(added, func(a, b placed) int { return a.entry.compare(b.entry) })
	merged := make([]placed, 0, len(h.sorted)-dropped+len(added))
	for _, p := range h.sorted {
		if gone(p) {
			continue
		}
		for len(added) > 0 && added[0].entry.compare(p.entry) < 0 {
			merged, added = append(merged, added[0]), added[1:]
		}
		merged = append(merged, p)
	}
	before := h.sorted
	h.sorted = append(merged, added...)
	return !slices.EqualFunc(before, h.sorted, func(a, b placed) bool {
		return a.entry == b.entry || reflect.DeepEqual(a.entry.route, b.entry.route)
	})
}
