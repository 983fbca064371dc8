package plane

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead.dev/internal/balance"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// balance adds to an update what follows from everything that is stale.
func (l *loop) balance(update *southbound.Update, rev delta.Revision) {
	var errs []error
	for key, e := range l.frontends.receiveStale() {
		if e != nil {
			errs = append(errs, l.balanceOne(key, e, update, rev))
		}
		maps.Copy(l.due, l.tracker.Needing(key))
	}
	l.tellNodes(update, rev)
	l.admitNewcomers()
	errs = append(errs, l.tellVIPs(update))
	checks, err := l.health.Flush()
	for machine, changes := range checks {
		update.Machine[machine] = append(update.Machine[machine], changes...)
	}
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		l.plane.config.Log.Error("a bug: what is to be balanced cannot be encoded", "error", err)
	}
}

// tellNodes adds to an update what machines are told anew of each other's tunnels.
func (l *loop) tellNodes(update *southbound.Update, rev delta.Revision) {
	f := l.frontends
	if err := f.neighbours.tell(update, func(name string) *agentv1.Node {
		n := f.node(name)
		n.Decaps = l.decaps(name)
		return wire.Node(n)
	}, func(name string) { l.moved(name, rev) }); err != nil {
		l.plane.config.Log.Error("a bug: tunnels cannot be encoded", "error", err)
	}
}

// balanceOne brings one frontend up to date.
func (l *loop) balanceOne(key model.FrontendKey, e *frontendEntry, update *southbound.Update, rev delta.Revision) error {
	f := l.frontends
	l.noteNewcomers(key, e, rev)
	before := *e
	var backends []model.FrontendBackend
	var next time.Time
	if e.frontend != nil {
		backends, e.history, next = balance.Backends(l.balanceInput(e))
	}
	f.setTimer(key, next)
	name := wire.FrontendName(key)
	changed := e.renewed
	if e.renewed && e.frontend != nil {
		r, err := delta.NewResource(name, wire.Frontend(e.frontend, func(id model.ListenerID) string { return string(id) }))
		if err != nil {
			return fmt.Errorf("frontend %s: %w", name, err)
		}
		changed = e.resource == nil || e.resource.Version != r.Version
		e.resource = &r
	}
	listed := before.list == nil || !slices.Equal(before.backends, backends)
	l.leaving.weigh(key, before.backends, backends, rev)
	if listed && e.frontend != nil {
		r, err := delta.NewResource(name, wire.FrontendBackends(backends))
		if err != nil {
			return fmt.Errorf("backends of frontend %s: %w", name, err)
		}
		e.list = &r
		f.house(key, before.backends, backends)
	}
	e.renewed, e.backends, e.at = false, backends, concerned(e.frontend, backends)
	add := func(machine string, t delta.Type, r *delta.Resource) {
		update.Machine[machine] = append(update.Machine[machine], delta.Change{Type: t, Name: name, Resource: r})
	}
	for _, m := range e.at {
		_, had := slices.BinarySearch(before.at, m)
		// The backends first: without them a frontend would have none for a moment.
		if listed || !had {
			add(m, agentv1.FrontendBackendsType, e.list)
		}
		if changed || !had {
			add(m, agentv1.FrontendType, e.resource)
		}
	}
	for _, m := range before.at {
		if _, has := slices.BinarySearch(e.at, m); !has {
			add(m, agentv1.FrontendType, nil)
			add(m, agentv1.FrontendBackendsType, nil)
		}
	}
	if changed || !slices.Equal(before.at, e.at) {
		e.since = rev
		f.neighbours.regroup(before.at, e.at)
	}
	if e.machines = nil; e.frontend != nil {
		e.machines = e.frontend.Machines
	}
	if e.frontend == nil {
		l.checkFrontend(key, nil)
		f.remove(key, before.backends)
	}
	return nil
}

// concerned are the machines that have the VIP of a frontend or backends of it, sorted.
func concerned(f *model.Frontend, backends []model.FrontendBackend) []string {
	if f == nil {
		return nil
	}
	names := slices.Clone(f.Machines)
	for _, b := range backends {
		if b.Machine != "" {
			names = append(names, b.Machine)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// balanceInput gathers what the backends of a frontend are made of.
func (l *loop) balanceInput(e *frontendEntry) balance.Input {
	n := e.frontend
	in := balance.Input{Frontend: n, Before: e.history, Now: l.plane.config.Now()}
	if n.Listener != "" {
		in.Proxies = l.frontends.proxiesOf(n.Machines)
		l.newcomers.withhold(n.FrontendKey, in.Proxies, l.handover.isCordoned)
		in.Parting = func(machine string) bool { return l.hasParting(machine, n.FrontendKey) }
		return in
	}
	in.Sets = make(map[model.SetID]*model.BackendSet, len(n.Targets))
	for _, t := range n.Targets {
		if s := l.catalog.Set(t.Set); s != nil {
			in.Sets[t.Set] = s
		}
	}
	in.Health = l.checkFrontend(n.FrontendKey, n)
	in.Lost = l.frontends.isAway
	return in
}

// proxyState is what a machine's proxy is to other machines now. A machine that may
// still report to this plane for the first time counts as it did: nothing is taken away
// before it was heard.
//
// That a machine withholds a VIP says nothing here: it may do so because no backend is
// available, and would never come back.
func (l *loop) proxyState(name string) (proxyState, bool) {
	m := l.machines[name]
	if m == nil {
		return proxyState{}, false
	}
	state, _ := l.plane.server.Machine(name)
	unheard, silent, lost := l.hearing(name, state)
	p := proxyState{lost: lost, stranger: silent}
	if m.Cordoned {
		p.state = model.BackendDraining
	}
	switch {
	case silent, unheard && state.LastReport.IsZero() && !l.reportedBefore(name):
		p.state = model.BackendUnready
	case unheard || lost:
	case state.Proxy.GetState() == agentv1.Proxy_STATE_STARTING:
		// An agent that has just started does not know its proxy yet, which may have
		// connections. Where it has none, nobody loses by what is still sent to it.
		p.state = model.BackendDraining
	case !serves(state.Proxy):
		p.state = model.BackendUnready
	case state.Proxy.GetState() == agentv1.Proxy_STATE_DRAINING:
		p.state = model.BackendDraining
	}
	return p, true
}

// followMachine notes what a machine is to frontends now.
func (l *loop) followMachine(name string) {
	f := l.frontends
	now, known := l.proxyState(name)
	f.follow(name, now, known)
	f.neighbours.setDecaps(name, l.decaps(name))
	state, _ := l.plane.server.Machine(name)
	if f.neighbours.deliver(name, state.Delivered) {
		maps.Copy(l.due, l.tracker.Unfinished())
	}
	for _, key := range f.neighbours.observe(name, state.Frontends) {
		maps.Copy(l.due, l.tracker.Needing(key))
	}
	l.leaving.follow(name, state.Leaving)
	if l.machines[name] == nil {
		f.neighbours.forget(name)
		l.leaving.follow(name, 0)
	}
}
