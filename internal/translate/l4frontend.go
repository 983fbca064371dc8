package translate

import (
	"net/netip"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// frontendTables are the frontends of addresses, and the VIPs that lead to them.
type frontendTables struct {
	in       *inputTables
	anchor   *anchorTables
	policy   *policyTables
	backend  *backendTables
	pool     *poolTables
	fleet    *fleetTables
	vip      *vipTables
	gateway  *gatewayTables
	listener *listenerTables
	route    *routeTables

	balanced    *memo.Table[snapshot.Name, *balancedFact] // Services of our class
	at          *memo.Table[netip.Addr, *frontendsAt]
	frontends   *memo.Sum[model.FrontendKey, memo.Unit, *model.Frontend, *model.Frontend]
	assignments *memo.Table[netip.Addr, *model.Assignment]
	vipAt       *memo.Table[netip.Addr, *model.VIP]
	spread      *memo.Table[netip.Addr, struct{}]
	vips        *memo.Sum[model.VIPKey, memo.Unit, *model.VIP, *model.VIP]
}

// frontendsAt are the frontends of one address.
type frontendsAt struct {
	keys   []model.FrontendKey // sorted
	owners []model.Object      // of each
}

func newFrontendTables(g *memo.Graph, in *inputTables, anchor *anchorTables, policy *policyTables, backend *backendTables, pool *poolTables, fleet *fleetTables,
	vip *vipTables, gateway *gatewayTables, listener *listenerTables, route *routeTables,
) *frontendTables {
	t := &frontendTables{in: in, anchor: anchor, policy: policy, backend: backend, pool: pool, fleet: fleet, vip: vip, gateway: gateway, listener: listener, route: route}
	t.balanced = memo.NewTable(g, "balanced Service", func(c *memo.Context, n snapshot.Name) (*balancedFact, bool) {
		f := makeBalancedFact(in.services.Get(c, n))
		return f, f != nil
	}, memo.Reads(in.services))
	t.frontends = memo.NewSlot[model.FrontendKey, *model.Frontend](g, "frontend")
	t.frontends.Watch()
	t.at = memo.For(memo.NewTable(g, "frontends at an address", t.makeFrontends,
		memo.Reads(vip.grants, fleet.selections, gateway.gateways, listener.listeners, t.balanced), t.readsOfBalancing(),
		memo.Puts(t.frontends, backend.setUses)), vip.grants)
	t.assignments = memo.For(memo.NewTable(g, "assignment of an address", t.makeAssignment,
		memo.Reads(vip.grants, pool.pools, fleet.selections)), vip.grants).Watch()
	t.vipAt = memo.For(memo.NewTable(g, "VIP", t.makeVIP, memo.Reads(vip.grants, pool.pools, fleet.selections, t.at)), vip.grants)
	t.vips = memo.NewSlot[model.VIPKey, *model.VIP](g, "VIP of a machine").Same(func(a, b *model.VIP) bool { return a == b })
	t.vips.Watch()
	t.spread = memo.For(memo.NewTable(g, "machines of a VIP", func(c *memo.Context, a netip.Addr) (struct{}, bool) {
		v := t.vipAt.Get(c, a)
		for _, machine := range t.fleet.selections.Get(c, v.Pool).machines {
			t.vips.Put(c, model.VIPKey{Machine: machine, Address: a}, memo.Unit{}, v)
		}
		return struct{}{}, false
	}, memo.Reads(t.vipAt, fleet.selections), memo.Puts(t.vips)), vip.grants)
	return t
}

// readsOfBalancing declares what those read who judge how something is balanced.
func (t *frontendTables) readsOfBalancing() memo.Option {
	return memo.Reads(t.anchor.slots, t.policy.balance, t.vip.outcomes, t.route.winners, t.route.streams, t.gateway.parents, t.balanced,
		t.backend.services, t.in.slicesOf, t.in.tcpRoutes, t.in.udpRoutes)
}

// makeFrontends makes the frontends at an address that may be used.
func (t *frontendTables) makeFrontends(c *memo.Context, address netip.Addr) (*frontendsAt, bool) {
	g := t.vip.grants.Get(c, address)
	b := frontendBuilder{t: t, ctx: c, address: address, grant: g, made: map[model.FrontendKey]*model.Frontend{}}
	b.machines = t.fleet.selections.Get(c, g.pool).machines
	b.build()
	at := &frontendsAt{}
	for k, f := range b.made {
		at.keys = append(at.keys, k)
		t.frontends.Put(c, k, memo.Unit{}, f)
		named := map[portKey]bool{}
		for _, target := range f.Targets {
			if port, ok := portOfSet(target.Set); ok && !named[port] {
				named[port] = true
				t.backend.setUses.Put(c, port, setUser{frontend: k}, struct{}{})
			}
		}
	}
	slices.SortFunc(at.keys, model.FrontendKey.Compare)
	for _, k := range at.keys {
		at.owners = append(at.owners, b.made[k].Owner)
	}
	return at, len(at.keys) > 0
}

func (t *frontendTables) makeAssignment(c *memo.Context, address netip.Addr) (*model.Assignment, bool) {
	g := t.vip.grants.Get(c, address)
	return &model.Assignment{
		Address: address, Pool: g.pool, Owner: g.owner, Mode: t.pool.pools.Get(c, g.pool).mode, Listeners: g.listeners,
		Machines: t.fleet.selections.Get(c, g.pool).machines,
	}, true
}

// makeVIP is what the machines of its pool are told of an address that may be used. They all
// share one, so that it is compared once and not for each.
func (t *frontendTables) makeVIP(c *memo.Context, address netip.Addr) (*model.VIP, bool) {
	g := t.vip.grants.Get(c, address)
	f, selection := t.pool.pools.Get(c, g.pool), t.fleet.selections.Get(c, g.pool)
	v := &model.VIP{Address: address, Pool: g.pool, Mode: f.mode, Listeners: g.listeners, Path: f.path, Interfaces: f.interfaces}
	if at := t.at.Get(c, address); at != nil {
		v.Frontends = at.keys
	}
	if f.mode == model.AnnounceL2 {
		v.Candidates = selection.candidates(address)
	}
	return v, true
}

// frontendBuilder makes the frontends of one address.
type frontendBuilder struct {
	t        *frontendTables
	ctx      *memo.Context
	address  netip.Addr
	grant    grant
	machines []string
	made     map[model.FrontendKey]*model.Frontend
}

func (b *frontendBuilder) build() {
	for _, id := range b.grant.listeners {
		b.proxies(id)
	}
	n := snapshot.Name{Namespace: b.grant.owner.Namespace, Name: b.grant.owner.Name}
	switch snapshot.Kind(b.grant.owner.Kind) {
	case snapshot.KindService:
		if len(b.grant.members) == 0 {
			b.service(n)
		}
		for _, member := range b.grant.members {
			b.service(snapshot.Name{Namespace: member.Namespace, Name: member.Name})
		}
	case snapshot.KindGateway:
		if f := b.t.gateway.gateways.Get(b.ctx, n); f != nil {
			for _, d := range f.doors {
				b.door(n, d)
			}
		}
	}
}

// add makes a frontend as settings want it, unless another has the port.
func (b *frontendBuilder) add(f model.Frontend, transport model.Transport, port uint16, settings []policyAnchor) {
	f.FrontendKey = model.FrontendKey{VIP: b.address, Transport: transport, Port: port}
	if b.made[f.FrontendKey] != nil {
		return
	}
	f.Machines = b.machines
	if f.Owner.Kind == "" {
		f.Owner = b.grant.owner
	}
	var s balanceSettings
	for _, anchor := range settings {
		s, _ = s.under(b.t.settingsAt(b.ctx, anchor))
	}
	use := balanceUse{transport: transport, port: port, proxies: f.Listener != ""}
	if s.mode == model.ModeDSRIPIP || s.mode == model.ModeDSRL2 {
		use.services = b.t.answersAt(b.ctx, f.Targets)
	}
	s, _ = s.fit(use)
	s.apply(&f)
	for _, target := range f.Targets {
		port, ok := portOfSet(target.Set)
		if !ok {
			continue
		}
		if service := b.t.backend.services.Get(b.ctx, port.service); service != nil {
			f.Drained = append(f.Drained, service.drained...)
		}
	}
	slices.SortFunc(f.Drained, netip.Addr.Compare)
	f.Drained = slices.Compact(f.Drained)
	b.made[f.FrontendKey] = &f
}

// proxies makes the frontends of a listener, if it is there.
func (b *frontendBuilder) proxies(id model.ListenerID) {
	l := b.t.listener.listeners.Get(b.ctx, id)
	if l == nil {
		return
	}
	var anchors []policyAnchor
	if gateway, own := gatewayOfListener(id); own {
		var held []heldPolicy
		of := map[heldPolicy]policyAnchor{}
		if f := b.t.gateway.gateways.Get(b.ctx, gateway); f != nil {
			for i := range f.listeners {
				g := &f.listeners[i]
				if !g.serves() || g.direct() || g.port != int32(l.Port) {
					continue
				}
				anchor := balanceAnchor(gatewayOwner(gateway), g.name)
				if p := b.t.anchor.holder(b.ctx, anchor); !p.none() && !slices.Contains(held, p) {
					held, of[p] = append(held, p), anchor
				}
			}
		}
		sortHeld(held)
		for _, p := range held {
			anchors = append(anchors, of[p])
		}
		anchors = append(anchors, balanceAnchor(gatewayOwner(gateway), ""))
	}
	b.add(model.Frontend{Listener: id}, model.TCP, l.Port, anchors)
	if l.HTTP3() {
		b.add(model.Frontend{Listener: id}, model.UDP, l.Port, anchors)
	}
}

// service makes the frontends of a Service of our class.
func (b *frontendBuilder) service(n snapshot.Name) {
	f := b.t.balanced.Get(b.ctx, n)
	if f == nil || f.problem != "" {
		return
	}
	for _, p := range f.ports {
		b.add(model.Frontend{
			Owner: serviceOwner(n), Targets: []model.Target{{Set: portKey{n, p.number, p.transport}.id(), Weight: 1}}, Affinity: f.affinity, Sources: f.sources, LocalOnly: f.localOnly,
		}, p.transport, uint16(p.number), serviceAnchors(n, p.name))
	}
}

// door makes the frontend of a TCP or UDP listener. Without a route it leads nowhere.
func (b *frontendBuilder) door(gateway snapshot.Name, d gatewayDoor) {
	var f model.Frontend
	anchors, won := b.t.doorAnchors(b.ctx, gateway, d)
	if won != nil {
		f.Targets = won.targets
	}
	b.add(f, d.transport, d.port, anchors)
}

// needVIP says why a TCP or UDP listener is not served at the machines' own addresses.
const needVIP = "TCP and UDP listeners need an address of their own: make an AddressPool that gives the Gateway one"

// frontendsOf are the frontends of a door at all addresses of its Gateway, sorted; without
// an address the hold says why.
func (t *frontendTables) frontendsOf(c *memo.Context, d doorKey) (keys []model.FrontendKey, hold *Hold) {
	out := t.vip.outcomes.Get(c, gatewayOwner(d.gateway))
	if out == nil {
		return nil, &Hold{Reason: gatewayv1.GatewayReasonAddressNotAssigned, Message: needVIP}
	}
	for _, a := range out.addresses {
		k := model.FrontendKey{VIP: a, Transport: d.transport, Port: d.port}
		if f := t.frontends.Get(c, k); f != nil && f.Listener == "" && f.Owner == gatewayOwner(d.gateway) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		hold = out.hold
	}
	return keys, hold
}
