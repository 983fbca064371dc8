package frontend

import (
	"net/netip"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/fleet"
	"fairlead.dev/internal/translate/gateway"
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
	Targets  *target.Tables
	Policy   *policy.Tables
	Backend  *backend.Tables
	Pool     *pool.Tables
	Fleet    *fleet.Tables
	VIP      *vip.Tables
	Gateway  *gateway.Tables
	Listener *listener.Tables
	Route    *route.Tables
}

// Tables are the frontends of addresses, and the VIPs that lead to them.
type Tables struct {
	in   *input.Tables
	from Rooms

	Balanced    *memo.Table[snapshot.Name, *Service] // Services of our class
	At          *memo.Table[netip.Addr, *Frontends]
	Frontends   *memo.Sum[model.FrontendKey, memo.Unit, *model.Frontend, *model.Frontend]
	Assignments *memo.Table[netip.Addr, *model.Assignment]
	vipAt       *memo.Table[netip.Addr, *model.VIP]
	spread      *memo.Table[netip.Addr, struct{}]
	VIPs        *memo.Sum[model.VIPKey, memo.Unit, *model.VIP, *model.VIP]
}

// Frontends are the frontends of one address.
type Frontends struct {
	Keys   []model.FrontendKey // sorted
	Owners []model.Object      // of each
}

// New adds the tables of frontends and of the machines' VIPs to a graph.
func New(g *memo.Graph, in *input.Tables, r Rooms) *Tables {
	t := &Tables{in: in, from: r}
	t.Balanced = memo.NewTable(g, "balanced Service", func(c *memo.Context, n snapshot.Name) (*Service, bool) {
		f := newService(in.Services.Get(c, n))
		return f, f != nil
	}, memo.Reads(in.Services))
	t.Frontends = memo.NewSlot[model.FrontendKey, *model.Frontend](g, "frontend")
	t.Frontends.Watch()
	t.At = memo.For(memo.NewTable(g, "frontends at an address", t.makeFrontends,
		memo.Reads(t.from.VIP.Grants, t.from.Fleet.Selections, t.from.Gateway.Gateways, t.from.Listener.Listeners, t.Balanced), t.ReadsOfBalancing(),
		memo.Puts(t.Frontends, t.from.Backend.SetUses)), t.from.VIP.Grants)
	t.Assignments = memo.For(memo.NewTable(g, "assignment of an address", t.makeAssignment,
		memo.Reads(t.from.VIP.Grants, t.from.Pool.Pools, t.from.Fleet.Selections)), t.from.VIP.Grants).Watch()
	t.vipAt = memo.For(memo.NewTable(g, "VIP", t.makeVIP, memo.Reads(t.from.VIP.Grants, t.from.Pool.Pools, t.from.Fleet.Selections, t.At)), t.from.VIP.Grants)
	t.VIPs = memo.NewSlot[model.VIPKey, *model.VIP](g, "VIP of a machine").Same(func(a, b *model.VIP) bool { return a == b })
	t.VIPs.Watch()
	t.spread = memo.For(memo.NewTable(g, "machines of a VIP", func(c *memo.Context, a netip.Addr) (struct{}, bool) {
		v := t.vipAt.Get(c, a)
		for _, machine := range t.from.Fleet.Selections.Get(c, v.Pool).Machines {
			t.VIPs.Put(c, model.VIPKey{Machine: machine, Address: a}, memo.Unit{}, v)
		}
		return struct{}{}, false
	}, memo.Reads(t.vipAt, t.from.Fleet.Selections), memo.Puts(t.VIPs)), t.from.VIP.Grants)
	return t
}

// ReadsOfBalancing declares what those read who judge how something is balanced.
func (t *Tables) ReadsOfBalancing() memo.Option {
	return memo.Reads(t.from.Targets.Slots, t.from.Policy.Balance, t.from.VIP.Outcomes, t.from.Route.Winners, t.from.Route.Streams, t.from.Gateway.Parents, t.Balanced,
		t.from.Backend.Services, t.in.SlicesOf, t.in.TCPRoutes, t.in.UDPRoutes)
}

// makeFrontends makes the frontends at an address that may be used.
func (t *Tables) makeFrontends(c *memo.Context, address netip.Addr) (*Frontends, bool) {
	g := t.from.VIP.Grants.Get(c, address)
	b := frontendBuilder{t: t, ctx: c, address: address, grant: g, made: map[model.FrontendKey]*model.Frontend{}}
	b.machines = t.from.Fleet.Selections.Get(c, g.Pool).Machines
	b.build()
	at := &Frontends{}
	for k, f := range b.made {
		at.Keys = append(at.Keys, k)
		t.Frontends.Put(c, k, memo.Unit{}, f)
		named := map[backend.PortKey]bool{}
		for _, target := range f.Targets {
			if port, ok := backend.PortOfSet(target.Set); ok && !named[port] {
				named[port] = true
				t.from.Backend.SetUses.Put(c, port, backend.SetUser{Frontend: k}, struct{}{})
			}
		}
	}
	slices.SortFunc(at.Keys, model.FrontendKey.Compare)
	for _, k := range at.Keys {
		at.Owners = append(at.Owners, b.made[k].Owner)
	}
	return at, len(at.Keys) > 0
}

func (t *Tables) makeAssignment(c *memo.Context, address netip.Addr) (*model.Assignment, bool) {
	g := t.from.VIP.Grants.Get(c, address)
	return &model.Assignment{
		Address: address, Pool: g.Pool, Owner: g.Owner, Mode: t.from.Pool.Pools.Get(c, g.Pool).Mode, Listeners: g.Listeners,
		Machines: t.from.Fleet.Selections.Get(c, g.Pool).Machines,
	}, true
}

// makeVIP is what the machines of its pool are told of an address that may be used. They all
// share one, so that it is compared once and not for each.
func (t *Tables) makeVIP(c *memo.Context, address netip.Addr) (*model.VIP, bool) {
	g := t.from.VIP.Grants.Get(c, address)
	f, selection := t.from.Pool.Pools.Get(c, g.Pool), t.from.Fleet.Selections.Get(c, g.Pool)
	v := &model.VIP{Address: address, Pool: g.Pool, Mode: f.Mode, Listeners: g.Listeners, Path: f.Path, Interfaces: f.Interfaces}
	if at := t.At.Get(c, address); at != nil {
		v.Frontends = at.Keys
	}
	if f.Mode == model.AnnounceL2 {
		v.Candidates = selection.Candidates(address)
	}
	return v, true
}

// frontendBuilder makes the frontends of one address.
type frontendBuilder struct {
	t        *Tables
	ctx      *memo.Context
	address  netip.Addr
	grant    vip.Grant
	machines []string
	made     map[model.FrontendKey]*model.Frontend
}

func (b *frontendBuilder) build() {
	for _, id := range b.grant.Listeners {
		b.proxies(id)
	}
	n := input.NameOf(b.grant.Owner)
	switch snapshot.Kind(b.grant.Owner.Kind) {
	case snapshot.KindService:
		if len(b.grant.Members) == 0 {
			b.service(n)
		}
		for _, member := range b.grant.Members {
			b.service(input.NameOf(member))
		}
	case snapshot.KindGateway:
		if f := b.t.from.Gateway.Gateways.Get(b.ctx, n); f != nil {
			for _, d := range f.Direct {
				b.direct(n, d)
			}
		}
	}
}

// add makes a frontend as settings want it, unless another has the port.
func (b *frontendBuilder) add(f model.Frontend, transport model.Transport, port uint16, settings []target.Ref) {
	f.FrontendKey = model.FrontendKey{VIP: b.address, Transport: transport, Port: port}
	if b.made[f.FrontendKey] != nil {
		return
	}
	f.Machines = b.machines
	if f.Owner.Kind == "" {
		f.Owner = b.grant.Owner
	}
	var s policy.BalanceSettings
	for _, anchor := range settings {
		s, _ = s.Under(b.t.settingsAt(b.ctx, anchor))
	}
	use := policy.BalanceUse{Transport: transport, Port: port, Proxies: f.Listener != ""}
	if s.Mode == model.ModeDSRIPIP || s.Mode == model.ModeDSRL2 {
		use.Services = b.t.answersAt(b.ctx, f.Targets)
	}
	s, _ = s.Fit(use)
	s.Apply(&f)
	for _, target := range f.Targets {
		port, ok := backend.PortOfSet(target.Set)
		if !ok {
			continue
		}
		if service := b.t.from.Backend.Services.Get(b.ctx, port.Service); service != nil {
			f.Drained = append(f.Drained, service.Drained...)
		}
	}
	slices.SortFunc(f.Drained, netip.Addr.Compare)
	f.Drained = slices.Compact(f.Drained)
	b.made[f.FrontendKey] = &f
}

// proxies makes the frontends of a listener, if it is there.
func (b *frontendBuilder) proxies(id model.ListenerID) {
	l := b.t.from.Listener.Listeners.Get(b.ctx, id)
	if l == nil {
		return
	}
	var anchors []target.Ref
	if gateway, own := input.GatewayOfListener(id); own {
		var held []target.Policy
		of := map[target.Policy]target.Ref{}
		if f := b.t.from.Gateway.Gateways.Get(b.ctx, gateway); f != nil {
			for i := range f.Listeners {
				g := &f.Listeners[i]
				if !g.Serves() || g.Direct() || g.Port != int32(l.Port) {
					continue
				}
				anchor := policy.BalanceAnchor(input.Object(snapshot.KindGateway, gateway), g.Name)
				if p := b.t.from.Targets.Holder(b.ctx, anchor); !p.None() && !slices.Contains(held, p) {
					held, of[p] = append(held, p), anchor
				}
			}
		}
		target.SortHeld(held)
		for _, p := range held {
			anchors = append(anchors, of[p])
		}
		anchors = append(anchors, policy.BalanceAnchor(input.Object(snapshot.KindGateway, gateway), ""))
	}
	b.add(model.Frontend{Listener: id}, model.TCP, l.Port, anchors)
	if l.HTTP3() {
		b.add(model.Frontend{Listener: id}, model.UDP, l.Port, anchors)
	}
}

// service makes the frontends of a Service of our class.
func (b *frontendBuilder) service(n snapshot.Name) {
	f := b.t.Balanced.Get(b.ctx, n)
	if f == nil || f.Problem != "" {
		return
	}
	for _, p := range f.Ports {
		b.add(model.Frontend{
			Owner: input.Object(snapshot.KindService, n), Targets: []model.Target{{Set: backend.PortKey{Service: n, Number: p.Number, Transport: p.Transport}.ID(), Weight: 1}}, Affinity: f.affinity, Sources: f.Sources, LocalOnly: f.localOnly,
		}, p.Transport, uint16(p.Number), serviceAnchors(n, p.name))
	}
}

// direct makes the frontend of a TCP or UDP listener. Without a route it leads nowhere.
func (b *frontendBuilder) direct(gateway snapshot.Name, d gateway.DirectListener) {
	var f model.Frontend
	anchors, won := b.t.directAnchors(b.ctx, gateway, d)
	if won != nil {
		f.Targets = won.Targets
	}
	b.add(f, d.Transport, d.Port, anchors)
}

// NeedVIP says why a TCP or UDP listener is not served at the machines' own addresses.
const NeedVIP = "TCP and UDP listeners need an address of their own: make an AddressPool that gives the Gateway one"

// FrontendsOf are the frontends of a direct listener at all addresses of its Gateway, sorted; without
// an address the hold says why.
func (t *Tables) FrontendsOf(c *memo.Context, d route.PortKey) (keys []model.FrontendKey, hold *condition.Hold) {
	out := t.from.VIP.Outcomes.Get(c, input.Object(snapshot.KindGateway, d.Gateway))
	if out == nil {
		return nil, &condition.Hold{Reason: gatewayv1.GatewayReasonAddressNotAssigned, Message: NeedVIP}
	}
	for _, a := range out.Addresses {
		k := model.FrontendKey{VIP: a, Transport: d.Transport, Port: d.Port}
		if f := t.Frontends.Get(c, k); f != nil && f.Listener == "" && f.Owner == input.Object(snapshot.KindGateway, d.Gateway) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		hold = out.Hold
	}
	return keys, hold
}
