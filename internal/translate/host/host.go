package host

import (
	"reflect"
	"slices"
	"strings"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/policy"
	"fairlead.dev/internal/translate/target"
)

// Rooms are the rooms that the tables read, besides the input.
type Rooms struct {
	Targets      *target.Tables
	Certificates *certificate.Tables
	Backend      *backend.Tables
	Policy       *policy.Tables
}

// Tables are the virtual hosts and server names: who claims each, who has it, and what is served there.
type Tables struct {
	in   *input.Tables
	from Rooms

	Ports       *memo.Sum[model.ListenerID, model.Object, int64, memo.Parts[model.Object, int64]] // who asks for a listener, created when
	PortKeepers *memo.Table[model.ListenerID, model.Object]

	Names      *nameCandidates[model.Object]  // on server names, of Gateways and ListenerSets
	RouteNames *nameCandidates[NameContender] // of their routes
	RootNames  *nameCandidates[model.Object]  // of root IngressRoutes
	Keepers    *memo.Table[model.HostKey, *NameKeeper]
	decisions  *memo.Table[model.HostKey, *nameDecision]
	NameOwners *memo.Table[model.HostKey, nameOwner]
	TLSHosts   *memo.Table[model.HostKey, *model.TLSHost]

	Candidates  *memo.Sum[model.HostKey, model.Object, *Candidate, candidates]
	Attachments *memo.Sum[model.HostKey, AttachedBy, AttachedHost, memo.Parts[AttachedBy, AttachedHost]]

	rivals   *memo.Table[model.HostKey, []rival] // of a host that is contested, oldest first
	contests *memo.Sum[model.ListenerID, model.HostKey, []rival, memo.Parts[model.HostKey, []rival]]
	accepted *memo.Table[model.ListenerID, struct{}]
	Rejected *memo.Sum[routeAt, memo.Unit, model.Object, model.Object] // routes that are not accepted at a listener, and for whom

	Owners *memo.Table[model.HostKey, Owner]
	served *memo.Table[candidacy, struct{}]
	Routes *memo.Sum[model.HostKey, model.Object, servedCandidate, *Routes]
	Hosts  *memo.Table[model.HostKey, *servedHost]
}

// nameCandidates are the candidates for server names, by resource.
type nameCandidates[By comparable] = memo.Sum[model.HostKey, By, *NameCandidate, memo.Parts[By, *NameCandidate]]

// New adds the tables of virtual hosts, server names and ports to a graph.
func New(g *memo.Graph, in *input.Tables, r Rooms) *Tables {
	t := &Tables{in: in, from: r}
	t.Ports = memo.NewSum[model.ListenerID, model.Object, int64](g, "who asks for a listener")
	t.PortKeepers = memo.NewTable(g, "keeper of a port", t.portKeeper, memo.Reads(t.Ports))

	t.Names = memo.NewSum[model.HostKey, model.Object, *NameCandidate](g, "listeners of a server name")
	t.RouteNames = memo.NewSum[model.HostKey, NameContender, *NameCandidate](g, "routes of a server name")
	t.RootNames = memo.NewSum[model.HostKey, model.Object, *NameCandidate](g, "roots of a server name")
	t.Keepers = memo.NewTable(g, "keeper of a server name", t.keepName, memo.Reads(t.Names))
	t.decisions = memo.NewTable(g, "decision on a server name", t.decideName, memo.Reads(t.Names, t.RouteNames))
	t.NameOwners = memo.NewTable(g, "owner of a server name", func(c *memo.Context, k model.HostKey) (nameOwner, bool) {
		d, found := t.decisions.Find(c, k)
		if !found {
			return nameOwner{}, false
		}
		return d.nameOwner, true
	}, memo.Reads(t.decisions))

	t.Candidates = memo.NewFold[model.HostKey](g, "candidates for a host", (*candidates).fold)
	t.Attachments = memo.NewSum[model.HostKey, AttachedBy, AttachedHost](g, "attachments of a host").Same(func(a, b AttachedHost) bool { return a == b })
	t.contests = memo.NewSum[model.ListenerID, model.HostKey, []rival](g, "contests at a listener")
	t.rivals = memo.For(memo.NewTable(g, "rivals", t.makeRivals, memo.Reads(t.Candidates, t.Attachments), memo.Puts(t.contests)), t.Candidates)
	t.Rejected = memo.NewSlot[routeAt, model.Object](g, "rejected route")
	t.accepted = memo.For(memo.NewTable(g, "accepted routes", t.accept, memo.Reads(t.contests), memo.Puts(t.Rejected)), t.contests)

	t.Owners = memo.NewTable(g, "owner of a host", t.decide, memo.Reads(t.Candidates, t.NameOwners, t.Rejected)).Equal(Owner.equal)
	t.Routes = memo.NewFold[model.HostKey](g, "routes of a host", foldRoutes).Same(func(a, b servedCandidate) bool { return a == b })
	t.served = memo.ForParts(memo.NewTable(g, "candidate that is served", t.serve,
		memo.Reads(t.Owners, t.Rejected), memo.Puts(t.Routes, t.from.Backend.GroupUses)), t.Candidates, func(k model.HostKey, owner model.Object) candidacy { return candidacy{owner, k} })
	t.Hosts = memo.For(memo.NewTable(g, "virtual host", t.makeHost,
		memo.Reads(t.Routes, t.Owners, t.NameOwners, t.Attachments), t.from.Policy.ReadsOfRoutes(), memo.Puts(t.from.Backend.GroupUses)), t.Routes).Equal((*servedHost).equal).Watch()
	t.TLSHosts = memo.For(memo.For(memo.For(memo.NewTable(g, "server name", t.makeTLSHost,
		memo.Reads(t.decisions, t.Owners, t.RootNames), memo.Puts(t.from.Certificates.CertificateUses, t.from.Backend.GroupUses)), t.Names), t.RouteNames), t.RootNames).Watch()
	return t
}

// candidates are the resources that claim a host.
type candidates struct {
	by     memo.Parts[model.Object, *Candidate]
	counts Tally[string] // by kind
	// namespaces of HTTPRoutes and GRPCRoutes that claim it, with how many do.
	namespaces Tally[string]
}

func (h *candidates) fold(owner model.Object, before, after **Candidate) {
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
func (h *candidates) count(owner model.Object, by int) {
	h.counts.Add(owner.Kind, by)
	if isRivalKind(owner.Kind) {
		h.namespaces.Add(owner.Namespace, by)
	}
}

// candidacy names one resource and the host that it claims.
type candidacy struct {
	owner model.Object
	host  model.HostKey
}

// servedCandidate is a candidate that was not rejected.
type servedCandidate struct {
	candidate *Candidate
	has       bool // the host: its routes are served
}

// Routes are the candidates for a host that were not rejected, and the routes of those that own it.
type Routes struct {
	by      memo.Parts[model.Object, servedCandidate]
	pending map[model.Object]struct{} // whose entries are to be taken in; nil: nobody's
	sorted  []ownedEntry
}

type ownedEntry struct {
	by    model.Object // claims it
	entry *Entry
}

func foldRoutes(s **Routes, owner model.Object, _, after *servedCandidate) {
	if *s == nil {
		*s = &Routes{}
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
// merged, not sorted again. The order is a cache inside the state of the Sum, which a function otherwise must not keep:
// makeHost alone reads it, and a slice that was returned is never written again.
func (h *Routes) order() []ownedEntry {
	var added []ownedEntry
	for owner := range h.pending {
		if s, _ := h.by.Get(owner); s.has {
			for _, e := range s.candidate.Entries {
				added = append(added, ownedEntry{owner, e})
			}
		}
	}
	if h.pending == nil {
		return h.sorted
	}
	slices.SortFunc(added, func(a, b ownedEntry) int { return a.entry.Compare(b.entry) })
	merged := make([]ownedEntry, 0, len(h.sorted)+len(added))
	for _, p := range h.sorted {
		if _, gone := h.pending[p.by]; gone {
			continue
		}
		for len(added) > 0 && added[0].entry.Compare(p.entry) < 0 {
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

// Owner says who has a host. Without a conflict it does not change when routes of one
// kind come and go, so they do not have to look again.
type Owner struct {
	Kind     snapshot.Kind  // whose routes the host has; empty when nobody's
	Conflict bool           // others claim the host too
	Keeper   model.Object   // with a conflict: the oldest, which decides
	losers   []model.Object // with a conflict: who is not served, sorted
}

// Has reports whether the owner of a claim is served, if it was not rejected.
func (o Owner) Has(claimant model.Object) bool {
	return o.Kind != "" && string(o.Kind) == claimant.Kind
}

func (o Owner) equal(p Owner) bool {
	return o.Kind == p.Kind && o.Conflict == p.Conflict && o.Keeper == p.Keeper && slices.Equal(o.losers, p.losers)
}

// DescribeLosers names the resources that lost the host, five at most.
func (o Owner) DescribeLosers() string {
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
func (t *Tables) decide(c *memo.Context, k model.HostKey) (Owner, bool) {
	h := t.Candidates.Get(c, k)
	var named *Candidate // a Gateway's, for this very name
	if input.IsTLS(k.Listener) && h.by.Len() > 0 {
		if n, found := t.NameOwners.Find(c, k); found {
			named = &Candidate{Owner: n.Parent, Created: n.created}
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
		return Owner{}, false
	case len(kinds) == 1 && (named == nil || kinds[0] != snapshot.KindIngressRoute):
		return Owner{Kind: kinds[0]}, true
	}
	o := Owner{Conflict: true}
	oldest, ofGateway := named, (*Candidate)(nil)
	for _, candidate := range h.by.All() {
		if !isRouteKind(candidate.Owner.Kind) || t.isRejected(c, candidate.Owner, k.Listener) {
			continue
		}
		if oldest == nil || candidate.Older(oldest) {
			oldest = candidate
		}
		if isRivalKind(candidate.Owner.Kind) && (ofGateway == nil || candidate.Older(ofGateway)) {
			ofGateway = candidate
		}
	}
	if oldest != nil {
		o.Keeper = oldest.Owner
		switch {
		case isRouteKind(oldest.Owner.Kind):
			o.Kind = snapshot.Kind(oldest.Owner.Kind)
		case ofGateway != nil:
			o.Kind = snapshot.Kind(ofGateway.Owner.Kind)
		default:
			o.Kind = snapshot.KindHTTPRoute
		}
	}
	if named != nil && o.Kind == snapshot.KindIngressRoute {
		o.losers = append(o.losers, named.Owner)
	}
	for _, candidate := range h.by.All() {
		if isRouteKind(candidate.Owner.Kind) && (snapshot.Kind(candidate.Owner.Kind) != o.Kind || t.isRejected(c, candidate.Owner, k.Listener)) {
			o.losers = append(o.losers, candidate.Owner)
		}
	}
	slices.SortFunc(o.losers, model.Object.Compare)
	return o, true
}

// serve adds a candidate that is not rejected to those of its host, and uses its groups if it owns the host.
func (t *Tables) serve(c *memo.Context, at candidacy) (struct{}, bool) {
	if t.isRejected(c, at.owner, at.host.Listener) {
		return struct{}{}, false
	}
	candidate, _ := t.Candidates.Driven(at.host).by.Get(at.owner)
	s := servedCandidate{candidate: candidate, has: t.Owners.Get(c, at.host).Has(at.owner)}
	t.Routes.Put(c, at.host, at.owner, s)
	if s.has {
		used := map[model.GroupID]struct{}{}
		for _, e := range candidate.Entries {
			for i := range e.Groups {
				g := &e.Groups[i]
				if _, known := used[g.ID]; !known {
					used[g.ID] = struct{}{}
					t.from.Backend.GroupUses.Put(c, g.ID, certificate.User{Kind: "claim", Object: at.owner, Host: at.host}, g)
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
	routes  []ownedEntry
}

func (h *servedHost) equal(o *servedHost) bool {
	return h.section == o.section && reflect.DeepEqual(h.policy, o.policy) && slices.EqualFunc(h.routes, o.routes, func(a, b ownedEntry) bool {
		return a.entry == b.entry || reflect.DeepEqual(a.entry.Route, b.entry.Route)
	})
}

// Host is the virtual host of the model; nil of nil.
func (h *servedHost) Host() *model.VirtualHost {
	if h == nil {
		return nil
	}
	host := &model.VirtualHost{HostKey: h.key, Section: h.section, Policy: h.policy, Routes: make([]model.Route, len(h.routes))}
	for i := range h.routes {
		host.Routes[i] = h.routes[i].entry.Route
	}
	return host
}

// makeHost makes a virtual host that somebody claims who was not rejected.
func (t *Tables) makeHost(c *memo.Context, k model.HostKey) (*servedHost, bool) {
	routes, owner := t.Routes.Get(c, k), t.Owners.Get(c, k)
	h := &servedHost{key: k, routes: routes.order()}
	if input.IsTLS(k.Listener) {
		h.section = k.Host
		if owner.Kind != snapshot.KindIngressRoute {
			h.section, _, _ = t.Section(c, k.Listener, k.Host)
		}
	}
	var groups []model.BackendGroup
	h.policy, groups = t.hostPolicy(c, k, owner, routes)
	t.from.Backend.UseGroups(c, groups, certificate.User{Kind: "host policy", Host: k})
	return h, true
}

// ListenersOf are the listeners of sorted hosts, sorted.
func ListenersOf(hosts []model.HostKey) []model.ListenerID {
	var ids []model.ListenerID
	for _, k := range hosts {
		ids = append(ids, k.Listener)
	}
	return slices.Compact(ids)
}

// KeeperText names the resource that has a host.
func (o Owner) KeeperText() string {
	if o.Keeper == (model.Object{}) {
		return "IngressRoute"
	}
	return o.Keeper.String()
}
