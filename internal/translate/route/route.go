package route

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/policy"
	"fairlead.dev/internal/translate/quota"
)

// Route is an HTTPRoute or GRPCRoute judged for itself: before it is known who else
// claims its hosts.
type Route struct {
	Parents []gateway.RouteParent
	// Resolved is of all references of the rules.
	Resolved gateway.RouteResult
	// Partial says which rules are dropped, while others are served.
	Partial string
	// Services that requests go to, sorted.
	Services []snapshot.Name
	// Notes are what is worth knowing of its annotations, its metrics and its backends.
	Notes []string
	// Slashed are paths of matches that requests do not have.
	Slashed []field.SlashedPath
	// candidates are what it wants of each host, by the certificate that backends are shown:
	// Gateways differ in that.
	candidates map[model.CertificateID]*host.Candidate
}

// Hosts are all hosts of all parents, sorted.
func (r *Route) Hosts() []model.HostKey {
	if r == nil {
		return nil
	}
	var keys []model.HostKey
	for i := range r.Parents {
		keys = append(keys, r.Parents[i].Hosts...)
	}
	slices.SortFunc(keys, model.HostKey.Compare)
	return slices.Compact(keys)
}

// candidateAt is what the route wants of a host: of several parents that lead there the first
// in the route decides.
func (r *Route) candidateAt(k model.HostKey) *host.Candidate {
	for i := range r.Parents {
		p := &r.Parents[i]
		if _, found := slices.BinarySearchFunc(p.Hosts, k, model.HostKey.Compare); found {
			return r.candidates[p.Certificate]
		}
	}
	return nil
}

// Rooms are the rooms that the tables read, besides the input.
type Rooms struct {
	Backend *backend.Tables
	Policy  *policy.Tables
	Host    *host.Tables
	Gateway *gateway.Tables
	Quota   quota.Routes
}

// Tables are the routes of Gateways.
type Tables struct {
	in   *input.Tables
	from Rooms

	Routes         *memo.Table[model.Object, *Route]  // HTTPRoutes and GRPCRoutes
	Streams        *memo.Table[model.Object, *Stream] // TLSRoutes, TCPRoutes and UDPRoutes
	portCandidates *memo.Sum[PortKey, model.Object, *PortCandidate, memo.Parts[model.Object, *PortCandidate]]
	Winners        *memo.Table[PortKey, *PortOwner]
}

// New adds the tables of HTTPRoutes, GRPCRoutes, TLSRoutes, TCPRoutes and UDPRoutes to a graph.
func New(g *memo.Graph, in *input.Tables, r Rooms) *Tables {
	t := &Tables{in: in, from: r}
	attaching := memo.Reads(t.from.Gateway.Parents, in.Labels, t.from.Host.NameOwners, t.from.Gateway.Sections)
	t.Routes = memo.NewTable(g, "route", t.makeRoute,
		memo.Reads(in.HTTPRoutes, in.GRPCRoutes), t.from.Quota.Reads(), attaching, t.from.Backend.ReadsOfGroups(), t.from.Policy.ReadsOfRoutes(), memo.Puts(t.from.Host.Candidates, t.from.Host.Attachments))
	memo.ForKey(t.Routes, in.HTTPRoutes, input.ObjectOf(snapshot.KindHTTPRoute))
	memo.ForKey(t.Routes, in.GRPCRoutes, input.ObjectOf(snapshot.KindGRPCRoute))
	t.portCandidates = memo.NewSum[PortKey, model.Object, *PortCandidate](g, "candidates for a port without a proxy")
	t.Streams = memo.NewTable(g, "route of connections", t.makeStream,
		memo.Reads(in.TLSRoutes, in.TCPRoutes, in.UDPRoutes, t.from.Gateway.Parents, in.Labels, t.from.Gateway.Sections, t.from.Host.Keepers), t.from.Backend.ReadsOfGroups(),
		memo.Puts(t.portCandidates, t.from.Host.RouteNames))
	memo.ForKey(t.Streams, in.TLSRoutes, input.ObjectOf(snapshot.KindTLSRoute))
	memo.ForKey(t.Streams, in.TCPRoutes, input.ObjectOf(snapshot.KindTCPRoute))
	memo.ForKey(t.Streams, in.UDPRoutes, input.ObjectOf(snapshot.KindUDPRoute))
	t.Winners = memo.NewTable(g, "route of a port without a proxy", t.winner, memo.Reads(t.portCandidates))
	return t
}

// makeRoute judges a route, and makes it a candidate for its hosts.
func (t *Tables) makeRoute(c *memo.Context, owner model.Object) (*Route, bool) {
	route := t.judgeRoute(c, owner)
	if route == nil {
		return nil, false
	}
	for _, k := range route.Hosts() {
		t.from.Host.Candidates.Put(c, k, owner, route.candidateAt(k))
	}
	put := map[host.AttachedHost]bool{}
	for i := range route.Parents {
		for _, p := range route.Parents[i].Attached {
			if !put[p] { // two parentRefs may lead to one listener
				put[p] = true
				t.from.Host.Attachments.Put(c, p.Host, host.AttachedBy{Owner: owner, Via: p.Via}, p)
			}
		}
	}
	return route, true
}

// judgeRoute judges a route; nil when there is none or nothing of ours is its parent.
func (t *Tables) judgeRoute(c *memo.Context, owner model.Object) *Route {
	name := snapshot.Name{Namespace: owner.Namespace, Name: owner.Name}
	rc := compiler{t: t, ctx: c, owner: owner}
	var common *gatewayv1.CommonRouteSpec
	var hostnames []gatewayv1.Hostname
	var compile func(c *compiler)
	var refused gateway.RouteResult
	var annotations map[string]string
	var unmeasured string
	if owner.Kind == string(snapshot.KindGRPCRoute) {
		o := t.in.GRPCRoutes.Get(c, name)
		if o == nil {
			return nil
		}
		rc.created, rc.grpc, annotations = o.CreationTimestamp.Unix(), true, o.Annotations
		common, hostnames, compile = &o.Spec.CommonRouteSpec, o.Spec.Hostnames, func(c *compiler) { c.grpcRules(o) }
	} else {
		o := t.in.HTTPRoutes.Get(c, name)
		if o == nil {
			return nil
		}
		rc.created, annotations = o.CreationTimestamp.Unix(), o.Annotations
		common, hostnames, compile = &o.Spec.CommonRouteSpec, o.Spec.Hostnames, func(c *compiler) { c.httpRules(o) }
	}
	route := &Route{candidates: map[model.CertificateID]*host.Candidate{}}
	for _, ref := range common.ParentRefs {
		if k, ok := gateway.ParentOf(ref, owner.Namespace); ok {
			if p := t.from.Gateway.Parents.Get(c, k); p != nil {
				route.Parents = append(route.Parents, gateway.RouteParent{Ref: ref, Parent: k, Gateway: p.Gateway, Certificate: p.ClientCertificate})
			}
		}
	}
	if len(route.Parents) == 0 {
		return nil
	}
	rc.measured, unmeasured = t.from.Quota.Has(c, owner, annotations, rc.created)
	rc.notes = field.RouteNotes(annotations)
	hosts := rc.hostnames(hostnames)
	for i := range route.Parents {
		certificate := route.Parents[i].Certificate
		if route.candidates[certificate] != nil {
			continue
		}
		rc := rc // each certificate makes groups of its own; all else is the same
		rc.notes = slices.Clone(rc.notes)
		rc.certificate = certificate
		compile(&rc)
		route.candidates[certificate] = &host.Candidate{Owner: owner, Created: rc.created, Entries: rc.entries}
		route.Resolved, route.Partial, route.Services, route.Notes, refused = rc.resolved, rc.partial, rc.services, rc.notes, rc.refused
		route.Slashed = rc.slashed
	}
	route.Notes = append(route.Notes, field.NonEmpty(unmeasured)...)
	slices.SortFunc(route.Services, input.CompareNames)
	route.Services = slices.Compact(route.Services)
	for i := range route.Parents {
		p := &route.Parents[i]
		t.attach(c, p, snapshot.Kind(owner.Kind), hosts, owner.Namespace)
		if refused.Failed {
			p.Accepted, p.Hosts, p.Attached, p.Sections = refused, nil, nil, nil
		}
	}
	return route
}

// attach finds the listeners that a parentRef means, and the hosts where the route is served through them.
func (t *Tables) attach(c *memo.Context, p *gateway.RouteParent, kind snapshot.Kind, hostnames []string, namespace string) {
	parent := t.from.Gateway.Parents.Get(c, p.Parent)
	elsewhere := t.from.Gateway.Attach(c, p, gateway.Attaching{
		Kind: kind, Namespace: namespace, Hostnames: hostnames,
		Lost: func(l *gateway.ParentListener) string { return t.from.Gateway.LostTo(c, parent, l) },
		Want: func(l *gateway.ParentListener, hostName string) bool {
			if !t.from.Gateway.Owns(c, parent, l, hostName) {
				return true
			}
			k := model.HostKey{Listener: l.ID, Host: hostName}
			p.Hosts = append(p.Hosts, k)
			p.Attached = append(p.Attached, host.AttachedHost{
				Host: k, Via: p.Attachment(l.Name), Gateway: parent.Gateway, Apart: parent.Hosts == v1alpha1.HostsOfNamespaces,
				Home: namespace == parent.Gateway.Namespace || namespace == p.Parent.Name.Namespace,
			})
			return false
		},
	})
	slices.SortFunc(p.Hosts, model.HostKey.Compare)
	p.Hosts = slices.Compact(p.Hosts)
	p.NoteElsewhere(elsewhere, p.Hosts, "requests")
}
