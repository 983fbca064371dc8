package translate

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

type routeVerdict = verdict[gatewayv1.RouteConditionReason]

// routeFact is an HTTPRoute or GRPCRoute judged for itself: before it is known who else
// claims its hosts.
type routeFact struct {
	parents []routeParent
	// resolved is of all references of the rules.
	resolved routeVerdict
	// partial says which rules are dropped, while others are served.
	partial string
	// services that requests go to, sorted.
	services []snapshot.Name
	// notes are what is worth knowing of their backends.
	notes []string
	// slashed are paths of matches that requests do not have.
	slashed []slashedPath
	// claims are what it wants of each host, by the certificate that backends are shown:
	// Gateways differ in that.
	claims map[model.CertificateID]*claim
}

// hosts are all hosts of all parents, sorted.
func (f *routeFact) hosts() []model.HostKey {
	if f == nil {
		return nil
	}
	var keys []model.HostKey
	for i := range f.parents {
		keys = append(keys, f.parents[i].hosts...)
	}
	slices.SortFunc(keys, model.HostKey.Compare)
	return slices.Compact(keys)
}

// claimAt is what the route wants of a host: of several parents that lead there the first
// in the route decides.
func (f *routeFact) claimAt(k model.HostKey) *claim {
	for i := range f.parents {
		p := &f.parents[i]
		if _, found := slices.BinarySearchFunc(p.hosts, k, model.HostKey.Compare); found {
			return f.claims[p.certificate]
		}
	}
	return nil
}

func routeOwner(kind snapshot.Kind, n snapshot.Name) model.Object {
	return model.Object{Kind: string(kind), Namespace: n.Namespace, Name: n.Name}
}

// routeTables are the routes of Gateways.
type routeTables struct {
	in      *inputTables
	backend *backendTables
	policy  *policyTables
	host    *hostTables
	gateway *gatewayTables

	routes  *memo.Table[model.Object, *routeFact]  // HTTPRoutes and GRPCRoutes
	streams *memo.Table[model.Object, *streamFact] // TLSRoutes, TCPRoutes and UDPRoutes
	doors   *memo.Sum[doorKey, model.Object, *doorClaim, memo.Parts[model.Object, *doorClaim]]
	winners *memo.Table[doorKey, *doorWinner]
}

func newRouteTables(g *memo.Graph, in *inputTables, backend *backendTables, policy *policyTables, host *hostTables, gateway *gatewayTables) *routeTables {
	t := &routeTables{in: in, backend: backend, policy: policy, host: host, gateway: gateway}
	attaching := memo.Reads(gateway.parents, in.labels, host.nameOwners, gateway.sections)
	t.routes = memo.NewTable(g, "route", t.makeRoute,
		memo.Reads(in.httpRoutes, in.grpcRoutes), attaching, backend.readsOfGroups(), policy.readsOfRoutes(), memo.Puts(host.claims, host.places))
	memo.ForKey(t.routes, in.httpRoutes, ownerOf(snapshot.KindHTTPRoute))
	memo.ForKey(t.routes, in.grpcRoutes, ownerOf(snapshot.KindGRPCRoute))
	t.doors = memo.NewSum[doorKey, model.Object, *doorClaim](g, "claims on a port without a proxy")
	t.streams = memo.NewTable(g, "route of connections", t.makeStream,
		memo.Reads(in.tlsRoutes, in.tcpRoutes, in.udpRoutes, gateway.parents, in.labels, gateway.sections, host.keepers), backend.readsOfGroups(),
		memo.Puts(t.doors, host.routeNames))
	memo.ForKey(t.streams, in.tlsRoutes, ownerOf(snapshot.KindTLSRoute))
	memo.ForKey(t.streams, in.tcpRoutes, ownerOf(snapshot.KindTCPRoute))
	memo.ForKey(t.streams, in.udpRoutes, ownerOf(snapshot.KindUDPRoute))
	t.winners = memo.NewTable(g, "route of a port without a proxy", t.winner, memo.Reads(t.doors))
	return t
}

// ownerOf names the objects of a kind.
func ownerOf(kind snapshot.Kind) func(snapshot.Name) model.Object {
	return func(n snapshot.Name) model.Object { return routeOwner(kind, n) }
}

// nameOf is the name of an object.
func nameOf(o model.Object) snapshot.Name { return snapshot.Name{Namespace: o.Namespace, Name: o.Name} }

// makeRoute judges a route, and claims its hosts.
func (t *routeTables) makeRoute(c *memo.Context, owner model.Object) (*routeFact, bool) {
	f := t.judgeRoute(c, owner)
	if f == nil {
		return nil, false
	}
	for _, k := range f.hosts() {
		t.host.claims.Put(c, k, owner, f.claimAt(k))
	}
	put := map[placedHost]bool{}
	for i := range f.parents {
		for _, p := range f.parents[i].places {
			if !put[p] { // two parentRefs may lead to one listener
				put[p] = true
				t.host.places.Put(c, p.host, placedBy{owner, p.place}, p)
			}
		}
	}
	return f, true
}

// judgeRoute judges a route; nil when there is none or nothing of ours is its parent.
func (t *routeTables) judgeRoute(c *memo.Context, owner model.Object) *routeFact {
	name := snapshot.Name{Namespace: owner.Namespace, Name: owner.Name}
	rc := routeCompiler{t: t, ctx: c, owner: owner}
	var common *gatewayv1.CommonRouteSpec
	var hostnames []gatewayv1.Hostname
	var compile func(c *routeCompiler)
	var refused routeVerdict
	if owner.Kind == string(snapshot.KindGRPCRoute) {
		o := t.in.grpcRoutes.Get(c, name)
		if o == nil {
			return nil
		}
		rc.created, rc.grpc = o.CreationTimestamp.Unix(), true
		common, hostnames, compile = &o.Spec.CommonRouteSpec, o.Spec.Hostnames, func(c *routeCompiler) { c.grpcRules(o) }
	} else {
		o := t.in.httpRoutes.Get(c, name)
		if o == nil {
			return nil
		}
		rc.created = o.CreationTimestamp.Unix()
		common, hostnames, compile = &o.Spec.CommonRouteSpec, o.Spec.Hostnames, func(c *routeCompiler) { c.httpRules(o) }
	}
	f := &routeFact{claims: map[model.CertificateID]*claim{}}
	for _, ref := range common.ParentRefs {
		if k, ok := parentOf(ref, owner.Namespace); ok {
			if p := t.gateway.parents.Get(c, k); p != nil {
				f.parents = append(f.parents, routeParent{ref: ref, parent: k, gateway: p.gateway, certificate: p.clientCertificate})
			}
		}
	}
	if len(f.parents) == 0 {
		return nil
	}
	hosts := rc.hostnames(hostnames)
	for i := range f.parents {
		certificate := f.parents[i].certificate
		if f.claims[certificate] != nil {
			continue
		}
		rc := rc // each certificate makes groups of its own; all else is the same
		rc.certificate = certificate
		compile(&rc)
		f.claims[certificate] = &claim{owner: owner, created: rc.created, entries: rc.entries}
		f.resolved, f.partial, f.services, f.notes, refused = rc.resolved, rc.partial, rc.services, rc.notes, rc.refused
		f.slashed = rc.slashed
	}
	slices.SortFunc(f.services, compareNames)
	f.services = slices.Compact(f.services)
	for i := range f.parents {
		p := &f.parents[i]
		t.attach(c, p, snapshot.Kind(owner.Kind), hosts, owner.Namespace)
		if refused.failed {
			p.accepted, p.hosts, p.places, p.sections = refused, nil, nil, nil
		}
	}
	return f
}

// attach finds the listeners that a parentRef means, and the hosts where the route is served through them.
func (t *routeTables) attach(c *memo.Context, p *routeParent, kind snapshot.Kind, hostnames []string, namespace string) {
	f := t.gateway.parents.Get(c, p.parent)
	elsewhere := t.gateway.attach(c, p, attaching{
		kind: kind, namespace: namespace, hostnames: hostnames,
		lost: func(l *parentListener) string { return t.gateway.lostTo(c, f, l) },
		want: func(l *parentListener, host string) bool {
			if !t.gateway.owns(c, f, l, host) {
				return true
			}
			k := model.HostKey{Listener: l.id, Host: host}
			p.hosts = append(p.hosts, k)
			p.places = append(p.places, placedHost{
				host: k, place: p.place(l.name), gateway: f.gateway, apart: f.hosts == v1alpha1.HostsOfNamespaces,
				home: namespace == f.gateway.Namespace || namespace == p.parent.name.Namespace,
			})
			return false
		},
	})
	slices.SortFunc(p.hosts, model.HostKey.Compare)
	p.hosts = slices.Compact(p.hosts)
	p.noteElsewhere(elsewhere, p.hosts, "requests")
}

// listenersOf are the listeners of sorted hosts, sorted.
func listenersOf(hosts []model.HostKey) []model.ListenerID {
	var ids []model.ListenerID
	for _, k := range hosts {
		ids = append(ids, k.Listener)
	}
	return slices.Compact(ids)
}
