package status

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

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

// Tables are the statuses of all resources. They are made last, when it is known who has what.
type Tables struct {
	Input        *input.Tables
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

	Attached *memo.Sum[gateway.ParentKey, attachment, struct{}, attachedRoutes]
	uses     *memo.Sum[snapshot.Name, serviceUse, struct{}, host.Tally[snapshot.Name]] // of Services by routes: how many, by Gateway
	users    *memo.Table[snapshot.Name, []model.Object]                                // of a Service: Gateways whose routes use it
	All      []*statusTable
}

// statusTable are the statuses of resources of some kinds.
type statusTable = memo.Table[model.Object, *Status]

// attachment is a route at one listener of a Gateway or ListenerSet that counts it.
type attachment struct {
	route   model.Object
	section gatewayv1.SectionName
}

// attachedRoutes are how many routes each listener counts.
type attachedRoutes map[gatewayv1.SectionName]int32

func (a *attachedRoutes) fold(by attachment, before, after *struct{}) {
	if *a == nil {
		*a = attachedRoutes{}
	}
	if before == nil {
		(*a)[by.section]++
	}
	if after == nil {
		(*a)[by.section]--
	}
	if (*a)[by.section] == 0 {
		delete(*a, by.section)
	}
}

// serviceUse is a route that sends requests to a Service through a Gateway.
type serviceUse struct {
	route   model.Object
	gateway snapshot.Name
}

func foldUse(gateways *host.Tally[snapshot.Name], by serviceUse, before, after *struct{}) {
	if before == nil {
		gateways.Add(by.gateway, 1)
	}
	if after == nil {
		gateways.Add(by.gateway, -1)
	}
}

// New adds the statuses of all resources to a graph; t holds the tables that they read.
func New(g *memo.Graph, t *Tables) *Tables {
	t.Attached = memo.NewFold[gateway.ParentKey](g, "attached routes", (*attachedRoutes).fold)
	t.uses = memo.NewFold[snapshot.Name](g, "uses of a Service", foldUse)
	t.users = memo.NewTable(g, "users of a Service", t.usersOf, memo.Reads(t.uses, t.Backend.Services, t.Backend.SetUses))

	hosts := memo.Reads(t.Host.Owners, t.Host.Rejected, t.Host.NameOwners, t.Host.PortKeepers, t.Listener.Listeners)
	parents := memo.Reads(t.Gateway.Gateways, t.Gateway.Outcomes, t.Gateway.Parents, t.VIP.Outcomes, t.VIP.Addresses, t.Certificates.Validity, t.Frontend.Frontends)
	routes := memo.Puts(t.Attached, t.uses)
	newStatus(g, t, snapshot.KindHTTPRoute, t.Input.HTTPRoutes, t.routeStatus, memo.Reads(t.Input.HTTPRoutes, t.Route.Routes), hosts, routes)
	newStatus(g, t, snapshot.KindGRPCRoute, t.Input.GRPCRoutes, t.routeStatus, memo.Reads(t.Input.GRPCRoutes, t.Route.Routes), hosts, routes)
	streams := memo.Reads(t.Route.Streams, t.Route.Winners, t.Frontend.Frontends, t.VIP.Outcomes)
	newStatus(g, t, snapshot.KindTLSRoute, t.Input.TLSRoutes, t.streamStatus, memo.Reads(t.Input.TLSRoutes), streams, hosts, routes)
	newStatus(g, t, snapshot.KindTCPRoute, t.Input.TCPRoutes, t.streamStatus, memo.Reads(t.Input.TCPRoutes), streams, hosts, routes)
	newStatus(g, t, snapshot.KindUDPRoute, t.Input.UDPRoutes, t.streamStatus, memo.Reads(t.Input.UDPRoutes), streams, hosts, routes)
	newStatus(g, t, snapshot.KindIngressRoute, t.Input.IngressRoutes, named(t.ingressStatus),
		memo.Reads(t.Input.IngressRoutes, t.Contour.Routes, t.Contour.Reached, t.Contour.Trees, t.VIP.Outcomes, t.Certificates.Validity), hosts)
	newStatus(g, t, snapshot.KindGatewayClass, t.Input.GatewayClasses, named(t.classStatus), memo.Reads(t.Input.GatewayClasses, t.Gateway.Classes))
	newStatus(g, t, snapshot.KindGateway, t.Input.Gateways, named(t.gatewayStatus), memo.Reads(t.Input.Gateways, t.Attached), parents, hosts)
	newStatus(g, t, snapshot.KindListenerSet, t.Input.ListenerSets, named(t.listenerSetStatus), memo.Reads(t.Input.ListenerSets, t.Attached), parents, hosts)
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
	t.All = append(t.All, memo.ForKey(memo.NewTable(g, string(kind)+" status", f, options...), driver, input.OwnerOf(kind)).Watch())
}

// named is a status by the name of its object.
func named(f func(*memo.Context, snapshot.Name) (*Status, bool)) func(*memo.Context, model.Object) (*Status, bool) {
	return func(c *memo.Context, o model.Object) (*Status, bool) { return f(c, input.NameOf(o)) }
}

func (t *Tables) peerStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	return peerStatus(t.Input.BGPPeers.Get(c, n), t.Fleet.PeerSpecs.Get(c, n.Name), t.Fleet.Sessions.Get(c, n.Name)), true
}

// attachments are the listeners that count a route.
type attachments map[gateway.ParentKey][]gatewayv1.SectionName

func (a *attachments) add(p *gateway.RouteParent) {
	if *a == nil {
		*a = attachments{}
	}
	for _, section := range p.Sections {
		if !slices.Contains((*a)[p.Parent], section) { // two parentRefs may lead to one listener
			(*a)[p.Parent] = append((*a)[p.Parent], section)
		}
	}
}

// serviceUses are the Services that a route sends requests to, with the Gateways through which it does.
type serviceUses map[snapshot.Name][]snapshot.Name

func (u *serviceUses) add(p *gateway.RouteParent, services []snapshot.Name) {
	if *u == nil {
		*u = serviceUses{}
	}
	for _, service := range services {
		if !slices.Contains((*u)[service], p.Gateway) {
			(*u)[service] = append((*u)[service], p.Gateway)
		}
	}
}

// count counts a route at the listeners that it attached to, and at the Services that it uses.
func (t *Tables) count(c *memo.Context, route model.Object, counted attachments, uses serviceUses) {
	for parent, sections := range counted {
		for _, section := range sections {
			t.Attached.Put(c, parent, attachment{route, section}, struct{}{})
		}
	}
	for service, gateways := range uses {
		for _, gateway := range gateways {
			t.uses.Put(c, service, serviceUse{route, gateway}, struct{}{})
		}
	}
}

// usersOf are the Gateways whose routes use a Service; the Service itself when only
// others do.
func (t *Tables) usersOf(c *memo.Context, service snapshot.Name) ([]model.Object, bool) {
	var users []model.Object
	gateways := t.uses.Get(c, service)
	for gateway := range gateways.Keys() {
		users = append(users, input.GatewayOwner(gateway))
	}
	slices.SortFunc(users, model.Object.Compare)
	if len(users) == 0 && t.Backend.Reached(c, service) {
		users = append(users, input.ServiceOwner(service))
	}
	return users, len(users) > 0
}
