package translate

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"fairlead.dev/internal/memo"
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
	entries []*entry // sorted
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

// hostTables are the virtual hosts and server names: who claims each, who has it, and what is served there.
type hostTables struct {
	in      *inputTables
	anchor  *anchorTables
	tls     *tlsTables
	backend *backendTables
	policy  *policyTables

	ports       *memo.Sum[model.ListenerID, model.Object, int64, memo.Parts[model.Object, int64]] // who asks for a listener, created when
	portKeepers *memo.Table[model.ListenerID, model.Object]

	names      *nameClaims[model.Object] // on server names, of Gateways and ListenerSets
	routeNames *nameClaims[tlsClaimant]  // of their routes
	rootNames  *nameClaims[model.Object] // of root IngressRoutes
	keepers    *memo.Table[model.HostKey, *nameKeeper]
	decisions  *memo.Table[model.HostKey, *nameDecision]
	nameOwners *memo.Table[model.HostKey, nameOwner]
	tlsHosts   *memo.Table[model.HostKey, *model.TLSHost]

	claims *memo.Sum[model.HostKey, model.Object, *claim, hostClaims]
	places *memo.Sum[model.HostKey, placedBy, placedHost, memo.Parts[placedBy, placedHost]]

	rivals   *memo.Table[model.HostKey, []rival] // of a host that is contested, oldest first
	contests *memo.Sum[model.ListenerID, model.HostKey, []rival, memo.Parts[model.HostKey, []rival]]
	accepted *memo.Table[model.ListenerID, struct{}]
	rejected *memo.Sum[routeAt, memo.Unit, model.Object, model.Object] // routes that are not accepted at a listener, and for whom

	owners *memo.Table[model.HostKey, hostOwner]
	served *memo.Table[claimAt, struct{}]
	routes *memo.Sum[model.HostKey, model.Object, servedClaim, *hostRoutes]
	hosts  *memo.Table[model.HostKey, *servedHost]
}

// nameClaims are what somebody wants of server names.
type nameClaims[By comparable] = memo.Sum[model.HostKey, By, *tlsClaim, memo.Parts[By, *tlsClaim]]

func newHostTables(g *memo.Graph, in *inputTables, anchor *anchorTables, tls *tlsTables, backend *backendTables, policy *policyTables) *hostTables {
	t := &hostTables{in: in, anchor: anchor, tls: tls, backend: backend, policy: policy}
	t.ports = memo.NewSum[model.ListenerID, model.Object, int64](g, "who asks for a listener")
	t.portKeepers = memo.NewTable(g, "keeper of a port", t.portKeeper, memo.Reads(t.ports))

	t.names = memo.NewSum[model.HostKey, model.Object, *tlsClaim](g, "listeners of a server name")
	t.routeNames = memo.NewSum[model.HostKey, tlsClaimant, *tlsClaim](g, "routes of a server name")
	t.rootNames = memo.NewSum[model.HostKey, model.Object, *tlsClaim](g, "roots of a server name")
	t.keepers = memo.NewTable(g, "keeper of a server name", t.keepName, memo.Reads(t.names))
	t.decisions = memo.NewTable(g, "decision on a server name", t.decideName, memo.Reads(t.names, t.routeNames))
	t.nameOwners = memo.NewTable(g, "owner of a server name", func(c *memo.Context, k model.HostKey) (nameOwner, bool) {
		d, found := t.decisions.Find(c, k)
		if !found {
			return nameOwner{}, false
		}
		return d.nameOwner, true
	}, memo.Reads(t.decisions))

	t.claims = memo.NewFold[model.HostKey](g, "claims on a host", (*hostClaims).fold)
	t.places = memo.NewSum[model.HostKey, placedBy, placedHost](g, "places of a host").Same(func(a, b placedHost) bool { return a == b })
	t.contests = memo.NewSum[model.ListenerID, model.HostKey, []rival](g, "contests at a listener")
	t.rivals = memo.For(memo.NewTable(g, "rivals", t.makeRivals, memo.Reads(t.claims, t.places), memo.Puts(t.contests)), t.claims)
	t.rejected = memo.NewSlot[routeAt, model.Object](g, "rejected route")
	t.accepted = memo.For(memo.NewTable(g, "accepted routes", t.accept, memo.Reads(t.contests), memo.Puts(t.rejected)), t.contests)

	t.owners = memo.NewTable(g, "owner of a host", t.decide, memo.Reads(t.claims, t.nameOwners, t.rejected)).Equal(hostOwner.equal)
	t.routes = memo.NewFold[model.HostKey](g, "routes of a host", foldRoutes).Same(func(a, b servedClaim) bool { return a == b })
	t.served = memo.ForParts(memo.NewTable(g, "claim that is served", t.serve,
		memo.Reads(t.owners, t.rejected), memo.Puts(t.routes, backend.groupUses)), t.claims, func(k model.HostKey, owner model.Object) claimAt { return claimAt{owner, k} })
	t.hosts = memo.For(memo.NewTable(g, "virtual host", t.makeHost,
		memo.Reads(t.routes, t.owners, t.nameOwners, t.places), policy.readsOfRoutes(), memo.Puts(backend.groupUses)), t.routes).Equal((*servedHost).equal).Watch()
	t.tlsHosts = memo.For(memo.For(memo.For(memo.NewTable(g, "server name", t.makeTLSHost,
		memo.Reads(t.decisions, t.owners, t.rootNames), memo.Puts(tls.certificateUses, backend.groupUses)), t.names), t.routeNames), t.rootNames).Watch()
	return t
}

// hostClaims are who claims a host.
type hostClaims struct {
	by     memo.Parts[model.Object, *claim]
	counts tally[string] // by kind
	// namespaces of HTTPRoutes and GRPCRoutes that claim it, with how many do.
	namespaces tally[string]
}

func (h *hostClaims) fold(owner model.Object, before, after **claim) {
	if before == nil {
		h.count(owner, 1)
	}
	if after == nil {
		h.by.Delete(owner)
		h.count(owner, -1)
		return
	}
	h.by.Set(owner, *after)
}

// count counts a claimant.
func (h *hostClaims) count(owner model.Object, by int) {
	h.counts.add(owner.Kind, by)
	if isRivalKind(owner.Kind) {
		h.namespaces.add(owner.Namespace, by)
	}
}

// claimAt names a claim of one resource on one host.
type claimAt struct {
	owner model.Object
	host  model.HostKey
}

// servedClaim is a claim that was not rejected.
type servedClaim struct {
	claim *claim
	has   bool // the host: its routes are served
}

// hostRoutes are the claims on a host that were not rejected, and the routes of those that have it.
type hostRoutes struct {
	by      memo.Parts[model.Object, servedClaim]
	pending map[model.Object]struct{} // whose entries are to be taken in; nil: nobody's
	sorted  []placed
}

type placed struct {
	by    model.Object // claims it
	entry *entry
}

func foldRoutes(s **hostRoutes, owner model.Object, _, after *servedClaim) {
	if *s == nil {
		*s = &hostRoutes{}
	}
	h := *s
	if after == nil {
		h.by.Delete(owner)
	} else {
		h.by.Set(owner, *after)
	}
	if h.pending == nil {
		h.pending = map[model.Object]struct{}{}
	}
	h.pending[owner] = struct{}{}
}

// order returns the routes in the order in which requests try them. What did not change since it was last called is
// merged, not sorted again.
func (h *hostRoutes) order() []placed {
	var added []placed
	for owner := range h.pending {
		if s, _ := h.by.Get(owner); s.has {
			for _, e := range s.claim.entries {
				added = append(added, placed{owner, e})
			}
		}
	}
	if h.pending == nil {
		return h.sorted
	}
	slices.SortFunc(added, func(a, b placed) int { return a.entry.compare(b.entry) })
	merged := make([]placed, 0, len(h.sorted)+len(added))
	for _, p := range h.sorted {
		if _, gone := h.pending[p.by]; gone {
			continue
		}
		for len(added) > 0 && added[0].entry.compare(p.entry) < 0 {
			merged, added = append(merged, added[0]), added[1:]
		}
		merged = append(merged, p)
	}
	h.sorted, h.pending = append(merged, added...), nil
	return h.sorted
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

// decide says who has a host. Routes of one kind share one. Between kinds the oldest
// resource decides: what worked before somebody else came goes on working.
//
// Who has the very name at a listener with TLS, a Gateway, stands with its routes.
func (t *hostTables) decide(c *memo.Context, k model.HostKey) (hostOwner, bool) {
	h := t.claims.Get(c, k)
	var named *claim // a Gateway's, for this very name
	if isTLS(k.Listener) && h.by.Len() > 0 {
		if n, found := t.nameOwners.Find(c, k); found {
			named = &claim{owner: n.parent, created: n.created}
		}
	}
	var kinds []snapshot.Kind
	for _, kind := range routeKinds {
		if h.counts.of(string(kind)) > 0 {
			kinds = append(kinds, kind)
		}
	}
	switch {
	case len(kinds) == 0:
		return hostOwner{}, false
	case len(kinds) == 1 && (named == nil || kinds[0] != snapshot.KindIngressRoute):
		return hostOwner{kind: kinds[0]}, true
	}
	o := hostOwner{conflict: true}
	oldest, ofGateway := named, (*claim)(nil)
	for _, claim := range h.by.All() {
		if !isRouteKind(claim.owner.Kind) || t.isRejected(c, claim.owner, k.Listener) {
			continue
		}
		if oldest == nil || claim.older(oldest) {
			oldest = claim
		}
		if isRivalKind(claim.owner.Kind) && (ofGateway == nil || claim.older(ofGateway)) {
			ofGateway = claim
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
	for _, claim := range h.by.All() {
		if isRouteKind(claim.owner.Kind) && (snapshot.Kind(claim.owner.Kind) != o.kind || t.isRejected(c, claim.owner, k.Listener)) {
			o.losers = append(o.losers, claim.owner)
		}
	}
	slices.SortFunc(o.losers, model.Object.Compare)
	return o, true
}

// serve puts a claim that is not rejected among those of its host, and uses its groups if it has the host.
func (t *hostTables) serve(c *memo.Context, at claimAt) (struct{}, bool) {
	if t.isRejected(c, at.owner, at.host.Listener) {
		return struct{}{}, false
	}
	claim, _ := t.claims.Driven(at.host).by.Get(at.owner)
	s := servedClaim{claim: claim, has: t.owners.Get(c, at.host).has(at.owner)}
	t.routes.Put(c, at.host, at.owner, s)
	if s.has {
		used := map[model.GroupID]struct{}{}
		for _, e := range claim.entries {
			for i := range e.groups {
				g := &e.groups[i]
				if _, known := used[g.ID]; !known {
					used[g.ID] = struct{}{}
					t.backend.groupUses.Put(c, g.ID, user{kind: "claim", object: at.owner, host: at.host}, g)
				}
			}
		}
	}
	return struct{}{}, false
}

// servedHost is a virtual host, with its routes as they were compiled.
type servedHost struct {
	key     model.HostKey
	section string
	policy  *model.RoutePolicy
	routes  []placed
}

func (h *servedHost) equal(o *servedHost) bool {
	return h.section == o.section && reflect.DeepEqual(h.policy, o.policy) && slices.EqualFunc(h.routes, o.routes, func(a, b placed) bool {
		return a.entry == b.entry || reflect.DeepEqual(a.entry.route, b.entry.route)
	})
}

// host is the virtual host of the model; nil of nil.
func (h *servedHost) host() *model.VirtualHost {
	if h == nil {
		return nil
	}
	host := &model.VirtualHost{HostKey: h.key, Section: h.section, Policy: h.policy, Routes: make([]model.Route, len(h.routes))}
	for i := range h.routes {
		host.Routes[i] = h.routes[i].entry.route
	}
	return host
}

// makeHost makes a virtual host that somebody claims who was not rejected.
func (t *hostTables) makeHost(c *memo.Context, k model.HostKey) (*servedHost, bool) {
	routes, owner := t.routes.Get(c, k), t.owners.Get(c, k)
	h := &servedHost{key: k, routes: routes.order()}
	if isTLS(k.Listener) {
		h.section = k.Host
		if owner.kind != snapshot.KindIngressRoute {
			h.section, _, _ = t.section(c, k.Listener, k.Host)
		}
	}
	var groups []model.BackendGroup
	h.policy, groups = t.hostPolicy(c, k, owner, routes)
	t.backend.useGroups(c, groups, user{kind: "host policy", host: k})
	return h, true
}
