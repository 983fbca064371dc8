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
	Input *input.Tables
	Rooms

	attached *memo.Sum[gateway.ParentKey, attachment, struct{}, attachedRoutes]
	uses     *memo.Sum[snapshot.Name, serviceUse, struct{}, host.Tally[snapshot.Name]] // of Services by routes: how many, by Gateway
	users    *memo.Table[snapshot.Name, []model.Object]                                // of a Service: Gateways whose routes use it
	All      []*statusTable
}

// statusTable are the statuses of resources of some kinds.
type statusTable = memo.Table[model.Object, *Status]

// New adds the statuses of all resources to a graph.
func New(g *memo.Graph, in *input.Tables, r Rooms) *Tables {
	t := &Tables{Input: in, Rooms: r}
	t.attached = memo.NewFold[gateway.ParentKey](g, "attached routes", (*attachedRoutes).fold)
	t.uses = memo.NewFold[snapshot.Name](g, "uses of a Service", foldUse)
	t.users = memo.NewTable(g, "users of a Service", t.usersOf, memo.Reads(t.uses, t.Backend.Services, t.Backend.SetUses))

	hosts := memo.Reads(t.Host.Owners, t.Host.Rejected, t.Host.NameOwners, t.Host.PortKeepers, t.Listener.Listeners)
	parents := memo.Reads(t.Gateway.Gateways, t.Gateway.Outcomes, t.Gateway.Parents, t.VIP.Outcomes, t.VIP.Addresses, t.Certificates.Validity, t.Frontend.Frontends)
	routes := memo.Puts(t.attached, t.uses)
	newStatus(g, t, snapshot.KindHTTPRoute, t.Input.HTTPRoutes, t.routeStatus, memo.Reads(t.Input.HTTPRoutes, t.Route.Routes), hosts, routes)
	newStatus(g, t, snapshot.KindGRPCRoute, t.Input.GRPCRoutes, t.routeStatus, memo.Reads(t.Input.GRPCRoutes, t.Route.Routes), hosts, routes)
	streams := memo.Reads(t.Route.Streams, t.Route.Winners, t.Frontend.Frontends, t.VIP.Outcomes)
	newStatus(g, t, snapshot.KindTLSRoute, t.Input.TLSRoutes, t.streamStatus, memo.Reads(t.Input.TLSRoutes), streams, hosts, routes)
	newStatus(g, t, snapshot.KindTCPRoute, t.Input.TCPRoutes, t.streamStatus, memo.Reads(t.Input.TCPRoutes), streams, hosts, routes)
	newStatus(g, t, snapshot.KindUDPRoute, t.Input.UDPRoutes, t.streamStatus, memo.Reads(t.Input.UDPRoutes), streams, hosts, routes)
	newStatus(g, t, snapshot.KindIngressRoute, t.Input.IngressRoutes, named(t.ingressStatus),
		memo.Reads(t.Input.IngressRoutes, t.Contour.Routes, t.Contour.Reached, t.Contour.Trees, t.VIP.Outcomes, t.Certificates.Validity), hosts)
	newStatus(g, t, snapshot.KindGatewayClass, t.Input.GatewayClasses, named(t.classStatus), memo.Reads(t.Input.GatewayClasses, t.Gateway.Classes))
	newStatus(g, t, snapshot.KindGateway, t.Input.Gateways, named(t.gatewayStatus), memo.Reads(t.Input.Gateways, t.attached), parents, hosts)
	newStatus(g, t, snapshot.KindListenerSet, t.Input.ListenerSets, named(t.listenerSetStatus), memo.Reads(t.Input.ListenerSets, t.attached), parents, hosts)
	newStatus(g, t, snapshot.KindService, t.VIP.Services, named(t.serviceStatus),
		memo.Reads(t.Input.Services, t.Frontend.Balanced, t.VIP.Outcomes, t.VIP.Grants, t.Frontend.At, t.Frontend.Frontends, t.Backend.Services))
	newStatus(g, t, snapshot.KindAddressPool, t.Input.Pools, named(t.poolStatus),
		memo.Reads(t.Input.Pools, t.VIP.PoolOutcomes, t.Pool.Pools, t.Fleet.Selections, t.Fleet.Own))
	newStatus(g, t, snapshot.KindBGPPeer, t.Input.BGPPeers, named(t.peerStatus), memo.Reads(t.Input.BGPPeers, t.Fleet.PeerSpecs, t.Fleet.Sessions))
	newStatus(g, t, snapshot.KindBackendTLSPolicy, t.Input.BackendTLSPolicies, named(t.backendTLSStatus),
		memo.Reads(t.Input.BackendTLSPolicies, t.Backend.BackendTLS, t.Backend.Services, t.Targets.TLSSlots, t.users))
	targets := memo.Reads(t.Targets.Slots, t.Input.GatewayClasses, t.Gateway.Classes, t.Input.Gateways, t.Input.ListenerSets, t.Gateway.Parents, t.Input.HTTPRoutes, t.Input.GRPCRoutes,
		t.Route.Routes, t.Input.TCPRoutes, t.Input.UDPRoutes, t.Route.Streams, t.Input.IngressRoutes, t.Input.Services)
	more := map[snapshot.Kind]memo.Option{snapshot.KindClientPolicy: t.Listener.ReadsOfClients(), snapshot.KindLoadBalancerPolicy: t.Frontend.ReadsOfBalancing()}
	for _, p := range t.Input.Policies {
		newStatus(g, t, p.Kind, p, named(func(c *memo.Context, n snapshot.Name) (*Status, bool) { return t.policyStatus(c, p, n) }),
			memo.Reads(p), t.Policy.Outcomes[p.Kind].Reads, targets, more[p.Kind])
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
