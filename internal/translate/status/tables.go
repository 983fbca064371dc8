package status

import (
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/contour"
	"fairlead.dev/internal/translate/fleet"
	"fairlead.dev/internal/translate/frontend"
	"fairlead.dev/internal/translate/gateway"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/listener"
	"fairlead.dev/internal/translate/policy"
	"fairlead.dev/internal/translate/pool"
	"fairlead.dev/internal/translate/route"
	"fairlead.dev/internal/translate/target"
	"fairlead.dev/internal/translate/vip"
)

// Rooms are the rooms that the tables read, besides the input.
type Rooms struct {
	Targets      *target.Tables
	Certificates *certificate.Tables
	Pool         *pool.Tables
	Fleet        *fleet.Tables
	Backend      *backend.Tables
	Policy       *policy.Tables
	VIP          *vip.Tables
	Host         *host.Tables
	Gateway      *gateway.Tables
	Listener     *listener.Tables
	Route        *route.Tables
	Contour      *contour.Tables
	Frontend     *frontend.Tables
}

// Tables are the statuses of all resources. They are made last, when it is known who has what.
type Tables struct {
	in   *input.Tables
	from Rooms

	attached *memo.Sum[gateway.ParentKey, attachment, struct{}, attachedRoutes]
	uses     *memo.Sum[snapshot.Name, serviceUse, struct{}, host.Tally[snapshot.Name]] // of Services by routes: how many, by Gateway
	users    *memo.Table[snapshot.Name, []model.Object]                                // of a Service: Gateways whose routes use it
	All      []*statusTable
}

// statusTable are the statuses of resources of some kinds.
type statusTable = memo.Table[model.Object, *Status]

// New adds the statuses of all resources to a graph.
func New(g *memo.Graph, in *input.Tables, r Rooms) *Tables {
	t := &Tables{in: in, from: r}
	t.attached = memo.NewFold[gateway.ParentKey](g, "attached routes", (*attachedRoutes).fold)
	t.uses = memo.NewFold[snapshot.Name](g, "uses of a Service", foldUse)
	t.users = memo.NewTable(g, "users of a Service", t.usersOf, memo.Reads(t.uses, t.from.Backend.Services, t.from.Backend.SetUses))

	hosts := memo.Reads(t.from.Host.Owners, t.from.Host.Rejected, t.from.Host.NameOwners, t.from.Host.PortKeepers, t.from.Listener.Listeners)
	parents := memo.Reads(t.from.Gateway.Gateways, t.from.Gateway.Outcomes, t.from.Gateway.Parents, t.from.VIP.Outcomes, t.from.VIP.Addresses, t.from.Certificates.Validity, t.from.Frontend.Frontends)
	routes := memo.Puts(t.attached, t.uses)
	newStatus(g, t, snapshot.KindHTTPRoute, t.in.HTTPRoutes, t.routeStatus, memo.Reads(t.in.HTTPRoutes, t.from.Route.Routes, t.from.Backend.Unmeasured), hosts, routes)
	newStatus(g, t, snapshot.KindGRPCRoute, t.in.GRPCRoutes, t.routeStatus, memo.Reads(t.in.GRPCRoutes, t.from.Route.Routes, t.from.Backend.Unmeasured), hosts, routes)
	streams := memo.Reads(t.from.Route.Streams, t.from.Route.Winners, t.from.Frontend.Frontends, t.from.VIP.Outcomes)
	newStatus(g, t, snapshot.KindTLSRoute, t.in.TLSRoutes, t.streamStatus, memo.Reads(t.in.TLSRoutes), streams, hosts, routes)
	newStatus(g, t, snapshot.KindTCPRoute, t.in.TCPRoutes, t.streamStatus, memo.Reads(t.in.TCPRoutes), streams, hosts, routes)
	newStatus(g, t, snapshot.KindUDPRoute, t.in.UDPRoutes, t.streamStatus, memo.Reads(t.in.UDPRoutes), streams, hosts, routes)
	newStatus(g, t, snapshot.KindIngressRoute, t.in.IngressRoutes, named(t.ingressStatus),
		memo.Reads(t.in.IngressRoutes, t.from.Contour.Routes, t.from.Contour.Reached, t.from.Contour.Trees, t.from.Backend.Unmeasured, t.from.VIP.Outcomes, t.from.Certificates.Validity), hosts)
	newStatus(g, t, snapshot.KindGatewayClass, t.in.GatewayClasses, named(t.classStatus), memo.Reads(t.in.GatewayClasses, t.from.Gateway.Classes))
	newStatus(g, t, snapshot.KindGateway, t.in.Gateways, named(t.gatewayStatus), memo.Reads(t.in.Gateways, t.attached), parents, hosts)
	newStatus(g, t, snapshot.KindListenerSet, t.in.ListenerSets, named(t.listenerSetStatus), memo.Reads(t.in.ListenerSets, t.attached), parents, hosts)
	newStatus(g, t, snapshot.KindService, t.from.VIP.Services, named(t.serviceStatus),
		memo.Reads(t.in.Services, t.from.Frontend.Balanced, t.from.VIP.Outcomes, t.from.VIP.Grants, t.from.Frontend.At, t.from.Frontend.Frontends, t.from.Backend.Services))
	newStatus(g, t, snapshot.KindAddressPool, t.in.Pools, named(t.poolStatus),
		memo.Reads(t.in.Pools, t.from.VIP.PoolOutcomes, t.from.Pool.Pools, t.from.Fleet.Selections, t.from.Fleet.Own))
	newStatus(g, t, snapshot.KindBGPPeer, t.in.BGPPeers, named(t.peerStatus), memo.Reads(t.in.BGPPeers, t.from.Fleet.PeerSpecs, t.from.Fleet.Sessions))
	newStatus(g, t, snapshot.KindBackendTLSPolicy, t.in.BackendTLSPolicies, named(t.backendTLSStatus),
		memo.Reads(t.in.BackendTLSPolicies, t.from.Backend.BackendTLS, t.from.Backend.Services, t.from.Targets.TLSSlots, t.users))
	targets := memo.Reads(t.from.Targets.Slots, t.in.GatewayClasses, t.from.Gateway.Classes, t.in.Gateways, t.in.ListenerSets, t.from.Gateway.Parents, t.in.HTTPRoutes, t.in.GRPCRoutes,
		t.from.Route.Routes, t.in.TCPRoutes, t.in.UDPRoutes, t.from.Route.Streams, t.in.IngressRoutes, t.in.Services)
	more := map[snapshot.Kind]memo.Option{snapshot.KindClientPolicy: t.from.Listener.ReadsOfClients(), snapshot.KindLoadBalancerPolicy: t.from.Frontend.ReadsOfBalancing()}
	for _, p := range t.in.Policies {
		outcome, found := t.from.Policy.Outcomes[p.Kind]
		if !found {
			panic("nothing reads the values of a " + string(p.Kind) + ": package policy has no outcome of it")
		}
		newStatus(g, t, p.Kind, p, named(func(c *memo.Context, n snapshot.Name) (*Status, bool) { return t.policyStatus(c, p, n) }),
			memo.Reads(p), outcome.Reads, targets, more[p.Kind])
	}
	return t
}

// newStatus declares the statuses of the resources of a kind.
func newStatus(g *memo.Graph, t *Tables, kind snapshot.Kind, driver memo.Driver[snapshot.Name], f func(*memo.Context, model.Object) (*Status, bool), options ...memo.Option) {
	t.All = append(t.All, memo.ForKey(memo.NewTable(g, string(kind)+" status", f, options...), driver, input.ObjectOf(kind)).Watch())
}

// named is a status by the name of its object.
func named(f func(*memo.Context, snapshot.Name) (*Status, bool)) func(*memo.Context, model.Object) (*Status, bool) {
	return func(c *memo.Context, o model.Object) (*Status, bool) { return f(c, input.NameOf(o)) }
}
