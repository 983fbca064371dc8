package plane

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/internal/balance"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// frontends are what machines should balance, as last published. Each goes to the machines
// that have its VIP and to those that have backends of it, and to no other. VIPs are not
// routing: a Freeze does not hold them.
//
// A change costs what it changes: an endpoint that comes has the backends of those
// frontends encoded that use its set, once for all machines.
type frontends struct {
	entries map[model.FrontendKey]*frontendEntry
	nodes   map[string]*model.Node // as translated: Decaps is not set
	stale   map[model.FrontendKey]bool

	bySet     map[model.SetID]map[model.FrontendKey]bool
	byBackend map[netip.AddrPort]map[model.FrontendKey]bool
	byProxy   map[string]map[model.FrontendKey]bool // of frontends with a listener, by machine
	byHost    map[string]map[model.FrontendKey]bool // by the machines that backends are on
	timers    map[model.FrontendKey]time.Time

	proxies    map[string]proxyState // as last used
	away       map[string]bool       // machines that are lost, with what is on them
	neighbours neighbours
}

// frontendEntry is one frontend. The zero one was never published.
type frontendEntry struct {
	frontend *model.Frontend
	renewed  bool // frontend is not what was published
	backends []model.FrontendBackend
	history  balance.History
	resource *delta.Resource
	list     *delta.Resource
	at       []string       // the machines that have it, sorted
	machines []string       // those that have its VIP, as published
	since    delta.Revision // of the last publication but of backends
}

// proxyState is a machine's proxy as the backend of listeners.
type proxyState struct {
	state model.BackendState
	// lost says that the machine does not report; state is what it would be otherwise.
	lost bool
	// stranger says that the machine never reported.
	stranger bool
}

func newFrontends() *frontends {
	return &frontends{
		entries: map[model.FrontendKey]*frontendEntry{}, nodes: map[string]*model.Node{}, stale: map[model.FrontendKey]bool{},
		bySet: map[model.SetID]map[model.FrontendKey]bool{}, byBackend: map[netip.AddrPort]map[model.FrontendKey]bool{},
		byProxy: map[string]map[model.FrontendKey]bool{}, byHost: map[string]map[model.FrontendKey]bool{}, away: map[string]bool{}, timers: map[model.FrontendKey]time.Time{},
		proxies: map[string]proxyState{}, neighbours: newNeighbours(),
	}
}

// note notes the frontends, backend sets and nodes that a translation changed.
func (f *frontends) note(ch translate.Changes) {
	for key, n := range ch.Frontends {
		e := f.entries[key]
		if e == nil {
			if n == nil {
				continue
			}
			e = &frontendEntry{}
			f.entries[key] = e
		}
		f.index(e.frontend, false)
		f.index(n, true)
		e.frontend, e.renewed = n, true
		f.stale[key] = true
	}
	for id := range ch.Sets {
		f.mark(f.bySet[id])
	}
	for name, n := range ch.Nodes {
		if n == nil {
			delete(f.nodes, name)
		} else {
			f.nodes[name] = n
		}
		f.neighbours.stale[name] = true
	}
}

func (f *frontends) mark(keys map[model.FrontendKey]bool) { maps.Copy(f.stale, keys) }

// index notes, or forgets, what a frontend is made of.
func (f *frontends) index(n *model.Frontend, is bool) {
	if n == nil {
		return
	}
	for _, t := range n.Targets {
		point(f.bySet, t.Set, n.FrontendKey, is)
	}
	if n.Listener != "" {
		for _, m := range n.Machines {
			point(f.byProxy, m, n.FrontendKey, is)
		}
	}
}

// point makes, or takes back, a pointer from one thing to a frontend.
func point[K comparable](m map[K]map[model.FrontendKey]bool, from K, to model.FrontendKey, is bool) {
	switch {
	case is && m[from] == nil:
		m[from] = map[model.FrontendKey]bool{to: true}
	case is:
		m[from][to] = true
	default:
		delete(m[from], to)
		if len(m[from]) == 0 {
			delete(m, from)
		}
	}
}

// byVIP are the frontends that are published, sorted.
func (f *frontends) byVIP() map[netip.Addr][]model.FrontendKey {
	out := map[netip.Addr][]model.FrontendKey{}
	for key, e := range f.entries {
		if e.frontend != nil {
			out[key.VIP] = append(out[key.VIP], key)
		}
	}
	for _, keys := range out {
		slices.SortFunc(keys, model.FrontendKey.Compare)
	}
	return out
}

// restart says that everything is published anew at rev.
func (f *frontends) restart(rev delta.Revision) {
	for _, e := range f.entries {
		e.since = rev
	}
}

// balance adds to an update what follows from everything that is stale.
func (l *loop) balance(update *southbound.Update, rev delta.Revision) {
	f := l.frontends
	var errs []error
	for key := range f.stale {
		delete(f.stale, key)
		if err := l.balanceOne(key, update, rev); err != nil {
			errs = append(errs, err)
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
		n := model.Node{Name: name}
		if f.nodes[name] != nil {
			n = *f.nodes[name]
		}
		n.Decaps = l.decaps(name)
		return wire.Node(n)
	}, func(name string) { l.moved(name, rev) }); err != nil {
		l.plane.config.Log.Error("a bug: tunnels cannot be encoded", "error", err)
	}
}

// balanceOne brings one frontend up to date.
func (l *loop) balanceOne(key model.FrontendKey, update *southbound.Update, rev delta.Revision) error {
	f := l.frontends
	e := f.entries[key]
	if e == nil {
		return nil
	}
	l.noteNewcomers(key, e, rev)
	before := *e
	var backends []model.FrontendBackend
	delete(f.timers, key)
	if e.frontend != nil {
		var next time.Time
		if backends, e.history, next = balance.Backends(l.balanceInput(e)); !next.IsZero() {
			f.timers[key] = next
		}
	}
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
		f.house(key, before.backends, nil)
		delete(f.entries, key)
	}
	return nil
}

// house notes the backends of a frontend in the place of those before, and where they are.
func (f *frontends) house(key model.FrontendKey, before, after []model.FrontendBackend) {
	for i, list := range [][]model.FrontendBackend{before, after} {
		for _, b := range list {
			point(f.byBackend, b.Address, key, i == 1)
			if b.Machine != "" && !b.Proxy(key) {
				point(f.byHost, b.Machine, key, i == 1)
			}
		}
	}
}

// miss looks anew at which machines are lost with what is on them. When more than half of those
// that ever reported are, it is the way to them that is broken rather than they: none is.
func (f *frontends) miss() {
	lost, all := map[string]bool{}, 0
	for name, p := range f.proxies {
		if p.stranger {
			continue
		}
		if all++; p.lost {
			lost[name] = true
		}
	}
	if 2*len(lost) > all {
		lost = nil
	}
	for _, list := range []map[string]bool{lost, f.away} {
		for name := range list {
			if lost[name] != f.away[name] {
				f.mark(f.byHost[name])
			}
		}
	}
	f.away = lost
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
		l.newcomers.withhold(n.FrontendKey, in.Proxies, func(m string) bool { return l.handover.cordons[m] != nil })
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
	in.Lost = func(machine string) bool { return l.frontends.away[machine] }
	return in
}

// proxiesOf are the backends of a listener on the machines. If most of them are lost, it is
// the way to them that is broken rather than they: they count as they did.
func (f *frontends) proxiesOf(machines []string) []balance.Proxy {
	lost := 0
	for _, m := range machines {
		if f.proxies[m].lost {
			lost++
		}
	}
	out := make([]balance.Proxy, 0, len(machines))
	for _, m := range machines {
		p, known := f.proxies[m]
		switch {
		case !known:
			p.state = model.BackendUnready
		case p.lost && 2*lost <= len(machines):
			// Its agent may be away and its proxy not. Where it is the machine that is gone,
			// those who send to it find out for themselves.
			p.state = model.BackendDraining
		}
		out = append(out, balance.Proxy{Machine: m, State: p.state})
	}
	return out
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
	if now, known := l.proxyState(name); !known {
		delete(f.proxies, name)
		f.mark(f.byProxy[name])
		f.miss()
	} else if before, was := f.proxies[name]; !was || before != now {
		f.proxies[name] = now
		f.mark(f.byProxy[name])
		f.miss()
	}
	if is := l.decaps(name); f.neighbours.decaps[name] != is {
		f.neighbours.decaps[name] = is
		f.neighbours.stale[name] = true
	}
	state, _ := l.plane.server.Machine(name)
	if f.neighbours.delivered[name] != state.Delivered {
		f.neighbours.delivered[name] = state.Delivered
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

// expireFrontends marks the frontends of which something ends by now.
func (l *loop) expireFrontends() {
	now := l.plane.config.Now()
	for key, at := range l.frontends.timers {
		if !now.Before(at) {
			l.frontends.stale[key] = true
		}
	}
}
