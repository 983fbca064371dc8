package health

import (
	"net/netip"
	"slices"

	"fairlead.dev/internal/model"
)

// Rows do for the backends of frontends what Assignments do for those of groups, with two
// differences. A backend that nobody knows takes flows: rows of the lookup table must not
// move for a moment's ignorance. And one that the plane has out stays out while it is away:
// it may be out for another reason too.
//
// The lists that they take and return are shared, and never changed.
type Rows struct {
	own   func(check string) Finding
	known map[model.FrontendKey]*frontendRows
}

type frontendRows struct {
	frontend *model.Frontend                          // nil until it comes
	backends []model.FrontendBackend                  // of the plane; nil until they come
	said     map[netip.AddrPort]model.Health          // by the plane, when it knew
	out      map[netip.AddrPort]model.FrontendBackend // as last sent, of those that were unhealthy
	sent     []model.FrontendBackend
}

// NewRows makes rows that know nothing. own returns this machine's own result of a check.
func NewRows(own func(string) Finding) *Rows {
	return &Rows{own: own, known: map[model.FrontendKey]*frontendRows{}}
}

// SetFrontend sets what the plane wants of a frontend; nil removes it. If the backends for the data
// planes change with it, it returns them.
func (r *Rows) SetFrontend(key model.FrontendKey, f *model.Frontend) (backends []model.FrontendBackend, changed bool) {
	x := r.of(key)
	x.frontend = f
	changed = x.backends != nil && r.build(x)
	r.forget(key, x)
	return x.sent, changed
}

// SetBackends sets the plane's backends of a frontend; nil removes them, and an empty list does not.
// It returns the backends for the data planes.
func (r *Rows) SetBackends(key model.FrontendKey, list []model.FrontendBackend) []model.FrontendBackend {
	x := r.of(key)
	if x.backends = list; list == nil {
		x.sent, x.said, x.out = nil, nil, nil
		r.forget(key, x)
		return nil
	}
	said := make(map[netip.AddrPort]model.Health, len(list))
	for _, b := range list {
		if Decided(b.Health) {
			said[b.Address] = b.Health
		} else if h := x.said[b.Address]; Decided(h) {
			said[b.Address] = h
		}
	}
	x.said = said
	r.build(x)
	return x.sent
}

// Again returns the backends that have changed although the plane sent none.
func (r *Rows) Again() map[model.FrontendKey][]model.FrontendBackend {
	changed := map[model.FrontendKey][]model.FrontendBackend{}
	for key, x := range r.known {
		if x.backends != nil && r.build(x) {
			changed[key] = x.sent
		}
	}
	return changed
}

func (r *Rows) of(key model.FrontendKey) *frontendRows {
	x := r.known[key]
	if x == nil {
		x = &frontendRows{}
		r.known[key] = x
	}
	return x
}

func (r *Rows) forget(key model.FrontendKey, x *frontendRows) {
	if x.frontend == nil && x.backends == nil {
		delete(r.known, key)
	}
}

// build makes the backends for the data planes, and reports whether they have changed.
func (r *Rows) build(x *frontendRows) (changed bool) {
	out := map[netip.AddrPort]model.FrontendBackend{}
	list, takes, stay := x.backends, 0, 0
	for i, b := range x.backends {
		if b.Weight == 0 || b.Health == model.HealthUnchecked {
			if b.Health == model.Unhealthy {
				out[b.Address] = b
			}
			continue
		}
		takes++
		if b.Health != model.Unhealthy && r.health(x, b) == model.Unhealthy {
			if takes-stay == 1 { // the first
				list = slices.Clone(list)
			}
			list[i] = excluded(x, b)
			out[b.Address] = list[i]
			continue
		}
		stay++
	}
	if !slices.ContainsFunc(list, func(b model.FrontendBackend) bool { return b.Weight > 0 }) {
		if backups, found := r.standIn(x, list); found {
			return x.send(backups, out)
		}
	}
	// Where few are left, health is not to be believed, as the plane has it.
	if x.frontend != nil && (stay*100 < int(x.frontend.Panic)*takes || stay == 0 && x.frontend.Check != nil && x.frontend.Check.Presumed) {
		list = x.backends
	}
	return x.send(list, out)
}

// send notes what the data planes are given, and reports whether it has changed.
func (x *frontendRows) send(list []model.FrontendBackend, out map[netip.AddrPort]model.FrontendBackend) (changed bool) {
	x.out = out
	if x.sent != nil && slices.Equal(list, x.sent) {
		return false
	}
	x.sent = list
	return true
}

// standIn gives the backups on standby that are not known to be unhealthy their weight; found says that there
// are any. Where a frontend has several sets, they stand in when no set has another backend left.
func (r *Rows) standIn(x *frontendRows, list []model.FrontendBackend) (with []model.FrontendBackend, found bool) {
	with = slices.Clone(list)
	for i := range with {
		if b := &with[i]; b.Standby > 0 && r.health(x, *b) != model.Unhealthy {
			b.Weight, b.HopWeight, b.Standby, b.State = b.Standby, max(b.HopWeight, b.Standby), 0, model.BackendReady
			found = true
		}
	}
	return with, found
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
