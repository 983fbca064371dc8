package translate

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// statusTables are the statuses of all resources. They are made last, when it is known who has what.
type statusTables struct {
	in       *inputTables
	anchor   *anchorTables
	tls      *tlsTables
	pool     *poolTables
	fleet    *fleetTables
	backend  *backendTables
	policy   *policyTables
	vip      *vipTables
	host     *hostTables
	gateway  *gatewayTables
	listener *listenerTables
	route    *routeTables
	contour  *contourTables
	frontend *frontendTables

	attached *memo.Sum[parentKey, attachment, struct{}, attachedRoutes]
	uses     *memo.Sum[snapshot.Name, serviceUse, struct{}, tally[snapshot.Name]] // of Services by routes: how many, by Gateway
	users    *memo.Table[snapshot.Name, []model.Object]                           // of a Service: Gateways whose routes use it
	all      []*statusTable
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
}

// serviceUse is a route that sends requests to a Service through a Gateway.
type serviceUse struct {
	route   model.Object
	gateway snapshot.Name
}

func foldUse(gateways *tally[snapshot.Name], by serviceUse, before, after *struct{}) {
	if before == nil {
		gateways.add(by.gateway, 1)
	}
	if after == nil {
		gateways.add(by.gateway, -1)
	}
}

func newStatusTables(g *memo.Graph, t *statusTables) *statusTables {
	t.attached = memo.NewFold[parentKey](g, "attached routes", (*attachedRoutes).fold)
	t.uses = memo.NewFold[snapshot.Name](g, "uses of a Service", foldUse)
	t.users = memo.NewTable(g, "users of a Service", t.usersOf, memo.Reads(t.uses, t.backend.services, t.backend.setUses))

	hosts := memo.Reads(t.host.owners, t.host.rejected, t.host.nameOwners, t.host.portKeepers, t.listener.listeners)
	parents := memo.Reads(t.gateway.gateways, t.gateway.outcomes, t.gateway.parents, t.vip.outcomes, t.vip.addresses, t.tls.validity, t.frontend.frontends)
	routes := memo.Puts(t.attached, t.uses)
	newStatus(g, t, snapshot.KindHTTPRoute, t.in.httpRoutes, t.routeStatus, memo.Reads(t.in.httpRoutes, t.route.routes), hosts, routes)
	newStatus(g, t, snapshot.KindGRPCRoute, t.in.grpcRoutes, t.routeStatus, memo.Reads(t.in.grpcRoutes, t.route.routes), hosts, routes)
	streams := memo.Reads(t.route.streams, t.route.winners, t.frontend.frontends, t.vip.outcomes)
	newStatus(g, t, snapshot.KindTLSRoute, t.in.tlsRoutes, t.streamStatus, memo.Reads(t.in.tlsRoutes), streams, hosts, routes)
	newStatus(g, t, snapshot.KindTCPRoute, t.in.tcpRoutes, t.streamStatus, memo.Reads(t.in.tcpRoutes), streams, hosts, routes)
	newStatus(g, t, snapshot.KindUDPRoute, t.in.udpRoutes, t.streamStatus, memo.Reads(t.in.udpRoutes), streams, hosts, routes)
	newStatus(g, t, snapshot.KindIngressRoute, t.in.ingressRoutes, named(t.ingressStatus),
		memo.Reads(t.in.ingressRoutes, t.contour.routes, t.contour.reached, t.contour.trees, t.vip.outcomes, t.tls.validity), hosts)
	newStatus(g, t, snapshot.KindGatewayClass, t.in.gatewayClasses, named(t.classStatus), memo.Reads(t.in.gatewayClasses, t.gateway.classes))
	newStatus(g, t, snapshot.KindGateway, t.in.gateways, named(t.gatewayStatus), memo.Reads(t.in.gateways, t.attached), parents, hosts)
	newStatus(g, t, snapshot.KindListenerSet, t.in.listenerSets, named(t.listenerSetStatus), memo.Reads(t.in.listenerSets, t.attached), parents, hosts)
	newStatus(g, t, snapshot.KindService, t.vip.services, named(t.serviceStatus),
		memo.Reads(t.in.services, t.frontend.balanced, t.vip.outcomes, t.vip.grants, t.frontend.at, t.frontend.frontends, t.backend.services))
	newStatus(g, t, snapshot.KindAddressPool, t.in.pools, named(t.poolStatus),
		memo.Reads(t.in.pools, t.vip.poolOutcomes, t.pool.pools, t.fleet.selections, t.fleet.own))
	newStatus(g, t, snapshot.KindBGPPeer, t.in.bgpPeers, named(t.peerStatus), memo.Reads(t.in.bgpPeers, t.fleet.peerSpecs, t.fleet.sessions))
	newStatus(g, t, snapshot.KindBackendTLSPolicy, t.in.backendTLSPolicies, named(t.backendTLSStatus),
		memo.Reads(t.in.backendTLSPolicies, t.backend.backendTLS, t.backend.services, t.anchor.tlsSlots, t.users))
	targets := memo.Reads(t.anchor.slots, t.in.gatewayClasses, t.gateway.classes, t.in.gateways, t.in.listenerSets, t.gateway.parents, t.in.httpRoutes, t.in.grpcRoutes,
		t.route.routes, t.in.tcpRoutes, t.in.udpRoutes, t.route.streams, t.in.ingressRoutes, t.in.services)
	newStatus(g, t, snapshot.KindRoutePolicy, t.in.routePolicies, t.policyStatusOf(snapshot.KindRoutePolicy), memo.Reads(t.in.routePolicies, t.policy.routes), targets)
	newStatus(g, t, snapshot.KindClientPolicy, t.in.clientPolicies, t.policyStatusOf(snapshot.KindClientPolicy),
		memo.Reads(t.in.clientPolicies, t.policy.clients), targets, t.listener.readsOfClients())
	newStatus(g, t, snapshot.KindBackendPolicy, t.in.backendPolicies, t.policyStatusOf(snapshot.KindBackendPolicy), memo.Reads(t.in.backendPolicies), targets)
	newStatus(g, t, snapshot.KindLoadBalancerPolicy, t.in.loadBalancerPolicies, t.policyStatusOf(snapshot.KindLoadBalancerPolicy),
		memo.Reads(t.in.loadBalancerPolicies, t.policy.balance), targets, t.frontend.readsOfBalancing())
	return t
}

// newStatus declares the statuses of the resources of a kind.
func newStatus(g *memo.Graph, t *statusTables, kind snapshot.Kind, driver memo.Driver[snapshot.Name], f func(*memo.Context, model.Object) (*Status, bool), options ...memo.Option) {
	t.all = append(t.all, memo.ForKey(memo.NewTable(g, string(kind)+" status", f, options...), driver, ownerOf(kind)).Watch())
}

// named is a status by the name of its object.
func named(f func(*memo.Context, snapshot.Name) (*Status, bool)) func(*memo.Context, model.Object) (*Status, bool) {
	return func(c *memo.Context, o model.Object) (*Status, bool) { return f(c, nameOf(o)) }
}

func (t *statusTables) policyStatusOf(kind snapshot.Kind) func(*memo.Context, model.Object) (*Status, bool) {
	return named(func(c *memo.Context, n snapshot.Name) (*Status, bool) {
		return t.policyStatus(c, snapshot.Key{Kind: kind, Name: n})
	})
}

func (t *statusTables) peerStatus(c *memo.Context, n snapshot.Name) (*Status, bool) {
	return peerStatus(t.in.bgpPeers.Get(c, n), t.fleet.peerSpecs.Get(c, n.Name), t.fleet.sessions.Get(c, n.Name)), true
}

// attachments are the listeners that count a route.
type attachments map[parentKey][]gatewayv1.SectionName

func (a *attachments) add(p *routeParent) {
	if *a == nil {
		*a = attachments{}
	}
	for _, section := range p.sections {
		if !slices.Contains((*a)[p.parent], section) { // two parentRefs may lead to one listener
			(*a)[p.parent] = append((*a)[p.parent], section)
		}
	}
}

// serviceUses are the Services that a route sends requests to, with the Gateways through which it does.
type serviceUses map[snapshot.Name][]snapshot.Name

func (u *serviceUses) add(p *routeParent, services []snapshot.Name) {
	if *u == nil {
		*u = serviceUses{}
	}
	for _, service := range services {
		if !slices.Contains((*u)[service], p.gateway) {
			(*u)[service] = append((*u)[service], p.gateway)
		}
	}
}

// count counts a route at the listeners that it attached to, and at the Services that it uses.
func (t *statusTables) count(c *memo.Context, route model.Object, counted attachments, uses serviceUses) {
	for parent, sections := range counted {
		for _, section := range sections {
			t.attached.Put(c, parent, attachment{route, section}, struct{}{})
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
func (t *statusTables) usersOf(c *memo.Context, service snapshot.Name) ([]model.Object, bool) {
	var users []model.Object
	gateways := t.uses.Get(c, service)
	for gateway := range gateways.keys() {
		users = append(users, gatewayOwner(gateway))
	}
	slices.SortFunc(users, model.Object.Compare)
	if len(users) == 0 && t.backend.reached(c, service) {
		users = append(users, serviceOwner(service))
	}
	return users, len(users) > 0
}
