package plane

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/internal/balance"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/placement"
	"fairlead.dev/internal/translate"
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
		f.neighbours.mark(name)
	}
}

// find returns a frontend; nil where there is none, or it is about to go.
func (f *frontends) find(key model.FrontendKey) *frontendEntry {
	if e := f.entries[key]; e != nil && e.frontend != nil {
		return e
	}
	return nil
}

// all are the frontends, sorted, without those that are about to go.
func (f *frontends) all() iter.Seq2[model.FrontendKey, *frontendEntry] {
	return func(yield func(model.FrontendKey, *frontendEntry) bool) {
		for _, key := range slices.SortedFunc(maps.Keys(f.entries), model.FrontendKey.Compare) {
			if e := f.find(key); e != nil && !yield(key, e) {
				return
			}
		}
	}
}

// at are the machines that have a frontend as published, sorted. They still have one that is about to go.
func (f *frontends) at(key model.FrontendKey) []string {
	if e := f.entries[key]; e != nil {
		return e.at
	}
	return nil
}

// proxied are the frontends that have a machine's proxy as a backend.
func (f *frontends) proxied(machine string) iter.Seq[model.FrontendKey] {
	return maps.Keys(f.byProxy[machine])
}

// node is a machine's node as translated.
func (f *frontends) node(name string) model.Node {
	if n := f.nodes[name]; n != nil {
		return *n
	}
	return model.Node{Name: name}
}

// receiveStale returns the frontends that are to be balanced, also those that are about to go; nil: it is gone
// already. Each is stale until it is its turn.
func (f *frontends) receiveStale() iter.Seq2[model.FrontendKey, *frontendEntry] {
	return func(yield func(model.FrontendKey, *frontendEntry) bool) {
		for key := range f.stale {
			if delete(f.stale, key); !yield(key, f.entries[key]) {
				return
			}
		}
	}
}

// setTimer says when something of a frontend ends; zero: nothing does.
func (f *frontends) setTimer(key model.FrontendKey, at time.Time) {
	if delete(f.timers, key); !at.IsZero() {
		f.timers[key] = at
	}
}

// remove removes a frontend that had these backends.
func (f *frontends) remove(key model.FrontendKey, backends []model.FrontendBackend) {
	f.house(key, backends, nil)
	delete(f.entries, key)
}

func (f *frontends) mark(keys map[model.FrontendKey]bool) { maps.Copy(f.stale, keys) }

func (f *frontends) markOne(key model.FrontendKey) { f.stale[key] = true }

// markProxy marks the frontends that have a machine's proxy as a backend.
func (f *frontends) markProxy(machine string) { f.mark(f.byProxy[machine]) }

// isStale says that some frontend is to be balanced.
func (f *frontends) isStale() bool { return len(f.stale) > 0 }

// expire marks the frontends of which something ends by now.
func (f *frontends) expire(now time.Time) {
	for key, at := range f.timers {
		if !now.Before(at) {
			f.markOne(key)
		}
	}
}

// restart says that everything is published anew at rev.
func (f *frontends) restart(rev delta.Revision) {
	for _, e := range f.entries {
		e.since = rev
	}
}

// follow notes what a machine's proxy is now; known is false where there is no such machine.
func (f *frontends) follow(machine string, now proxyState, known bool) {
	switch before, was := f.proxies[machine]; {
	case !known:
		delete(f.proxies, machine)
	case was && before == now:
		return
	default:
		f.proxies[machine] = now
	}
	f.markProxy(machine)
	f.miss()
}

// isAway says that a machine is lost with what is on it.
func (f *frontends) isAway(machine string) bool { return f.away[machine] }

// hasEnd says that others know where a machine's tunnels end.
func (f *frontends) hasEnd(machine string) bool {
	n := f.nodes[machine]
	return n != nil && (n.Tunnel4.IsValid() || n.Tunnel6.IsValid())
}

// passed are the proxies among the backends of listeners, if only for connections that they have.
func (f *frontends) passed() map[placement.ListenerAt]bool {
	uses := map[placement.ListenerAt]bool{}
	for key, e := range f.entries {
		if e.frontend == nil || e.frontend.Listener == "" {
			continue
		}
		for _, b := range e.backends {
			if b.Proxy(key) {
				uses[placement.ListenerAt{Machine: b.Machine, Listener: e.frontend.Listener}] = true
			}
		}
	}
	return uses
}

// byVIP are the frontends that are published, sorted.
func (f *frontends) byVIP() map[netip.Addr][]model.FrontendKey {
	out := map[netip.Addr][]model.FrontendKey{}
	for key := range f.all() {
		out[key.VIP] = append(out[key.VIP], key)
	}
	return out
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
