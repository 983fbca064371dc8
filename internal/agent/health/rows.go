package health

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// Rows do for the backends of frontends what Assignments do for those of groups, with two
// differences. A backend that nobody knows takes flows: rows of the lookup table must not
// move for a moment's ignorance. And one that the plane has out stays out while it is away:
// it may be out for another reason too.
type Rows struct {
	own   func(check string) Finding
	known map[string]*frontendRows
}

type frontendRows struct {
	frontend *model.Frontend // nil until it comes
	raw      *delta.Resource // of the backends; nil until they come
	backends []model.FrontendBackend
	said     map[netip.AddrPort]model.Health          // by the plane, when it knew
	out      map[netip.AddrPort]model.FrontendBackend // as last sent, of those that were unhealthy
	sent     *delta.Resource
}

// NewRows makes rows that know nothing. own returns this machine's own result of a check.
func NewRows(own func(string) Finding) *Rows {
	return &Rows{own: own, known: map[string]*frontendRows{}}
}

// Resolve converts a change of the plane into the changes for the data planes. An error leaves
// everything as it was.
func (r *Rows) Resolve(c delta.Change) ([]delta.Change, error) {
	if c.Type != agentv1.FrontendType && c.Type != agentv1.FrontendBackendsType {
		return []delta.Change{c}, nil
	}
	var f *model.Frontend
	var list []model.FrontendBackend
	var err error
	switch {
	case c.Resource == nil:
	case c.Type == agentv1.FrontendType:
		f, err = frontend(c)
	default:
		list, err = frontendBackends(c)
	}
	if err != nil {
		return nil, err
	}
	x := r.known[c.Name]
	if x == nil {
		x = &frontendRows{}
		r.known[c.Name] = x
	}
	if c.Type == agentv1.FrontendType {
		x.frontend = f
		changes := []delta.Change{c}
		if before := x.sent; x.raw != nil && r.build(c.Name, x) != before {
			changes = append(changes, delta.Change{Type: agentv1.FrontendBackendsType, Name: c.Name, Resource: x.sent})
		}
		r.forget(c.Name, x)
		return changes, nil
	}
	if c.Resource == nil {
		x.raw, x.sent, x.backends, x.said, x.out = nil, nil, nil, nil, nil
		r.forget(c.Name, x)
		return []delta.Change{c}, nil
	}
	said := make(map[netip.AddrPort]model.Health, len(list))
	for _, b := range list {
		if Decided(b.Health) {
			said[b.Address] = b.Health
		} else if h := x.said[b.Address]; Decided(h) {
			said[b.Address] = h
		}
	}
	x.raw, x.backends, x.said = c.Resource, list, said
	c.Resource = r.build(c.Name, x)
	return []delta.Change{c}, nil
}

func frontend(c delta.Change) (*model.Frontend, error) {
	var m agentv1.Frontend
	if err := read(c.Resource, &m); err != nil {
		return nil, err
	}
	return wire.FrontendOf(c.Name, &m)
}

func frontendBackends(c delta.Change) ([]model.FrontendBackend, error) {
	var m agentv1.FrontendBackends
	if err := read(c.Resource, &m); err != nil {
		return nil, err
	}
	return wire.FrontendBackendsOf(c.Name, &m)
}

func (r *Rows) forget(name string, x *frontendRows) {
	if x.frontend == nil && x.raw == nil {
		delete(r.known, name)
	}
}

// Again returns the backends that have changed although the plane sent none.
func (r *Rows) Again() []delta.Change {
	var changes []delta.Change
	for _, name := range slices.Sorted(maps.Keys(r.known)) {
		x := r.known[name]
		if before := x.sent; x.raw != nil && r.build(name, x) != before {
			changes = append(changes, delta.Change{Type: agentv1.FrontendBackendsType, Name: name, Resource: x.sent})
		}
	}
	return changes
}

// build makes the backends for the data planes; the same again if they are no others.
func (r *Rows) build(name string, x *frontendRows) *delta.Resource {
	out := map[netip.AddrPort]model.FrontendBackend{}
	list, takes, stay := slices.Clone(x.backends), 0, 0
	for i, b := range list {
		if b.Weight == 0 || b.Health == model.HealthUnchecked {
			if b.Health == model.Unhealthy {
				out[b.Address] = b
			}
			continue
		}
		takes++
		if b.Health != model.Unhealthy && r.health(x, b) == model.Unhealthy {
			list[i] = excluded(x, b)
			out[b.Address] = list[i]
			continue
		}
		stay++
	}
	sent := x.raw
	// Where few are left, health is not to be believed, as the plane has it.
	panics := x.frontend != nil && (stay*100 < int(x.frontend.Panic)*takes || stay == 0 && x.frontend.Check != nil && x.frontend.Check.Presumed)
	if stay < takes && !panics {
		if made, err := delta.NewResource(name, wire.FrontendBackends(list)); err == nil {
			sent = &made
		}
	}
	if x.out = out; x.sent == nil || x.sent.Version != sent.Version {
		x.sent = sent
	}
	return x.sent
}

// health is what is known of a backend that takes flows.
func (r *Rows) health(x *frontendRows, b model.FrontendBackend) model.Health {
	own := Finding{Health: model.HealthUnchecked}
	if x.frontend != nil && x.frontend.Check != nil {
		own = r.own(model.NewCheck(b.Address, *x.frontend.Check).ID)
	}
	switch {
	case own.Holds():
		return own.Health
	case Decided(b.Health):
		return b.Health
	case own.sure(), Decided(own.Health) && !Decided(x.said[b.Address]):
		return own.Health
	case Decided(x.said[b.Address]):
		return x.said[b.Address]
	}
	return x.out[b.Address].Health
}

// excluded is a backend that takes no new flow because it is unhealthy. Its flows of TCP end
// by themselves, those of UDP would go on for ever (package balance does the same).
func excluded(x *frontendRows, b model.FrontendBackend) model.FrontendBackend {
	b.Weight, b.State, b.Health = 0, model.BackendDraining, model.Unhealthy
	if x.frontend != nil && x.frontend.Transport == model.UDP && x.frontend.QUIC == nil {
		b.State = model.BackendUnready
	}
	return b
}
