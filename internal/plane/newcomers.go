package plane

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/balance"
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// movesFollowed is how often one that comes follows another machine's tunnels. A machine that begins
// finds an end of each family, and takes packets out then; one that goes on to report something else
// must not hold others up with it.
const movesFollowed = 4

// newcomerTime is how long a machine that comes to a VIP waits for others at most, from when it
// is heard of.
const newcomerTime = 30 * time.Second

// newcomers are the machines that come to frontends that others have already. Two things wait
// for what kernels carry out: its proxy gets new flows once its own kernel knows the others,
// and it announces the VIP once each of them takes out of tunnels what it passes on.
type newcomers struct {
	at      map[model.FrontendKey]map[string]*newcomer
	changed map[model.VIPKey]bool // what is awaited for them may differ from what was published
	// missed are VIPs that are announced though some machines have not followed a revision.
	missed map[model.VIPKey]map[string]delta.Revision
}

// newcomer is one machine at one frontend.
type newcomer struct {
	rev   delta.Revision // with which it and the others were told of each other
	began time.Time      // when it was first heard of; zero: it was not
	takes bool           // its proxy may get new flows
	moves map[string]int // how often it followed what machines moved
	// awaited are the machines whose kernels do not carry rev out, itself included, sorted.
	awaited []string
}

func newNewcomers() newcomers {
	return newcomers{
		at: map[model.FrontendKey]map[string]*newcomer{}, changed: map[model.VIPKey]bool{},
		missed: map[model.VIPKey]map[string]delta.Revision{},
	}
}

// isStale says that what is awaited for some newcomer may differ from what was published.
func (c *newcomers) isStale() bool { return len(c.changed) > 0 }

// receive returns the VIPs for which that holds, and forgets them.
func (c *newcomers) receive() map[model.VIPKey]bool {
	changed := maps.Clone(c.changed)
	clear(c.changed)
	return changed
}

// noteNewcomers notes which machines come to a frontend with rev, before its backends are made.
func (l *loop) noteNewcomers(key model.FrontendKey, e *frontendEntry, rev delta.Revision) {
	c := &l.newcomers
	var now []string
	if e.frontend != nil {
		now = e.frontend.Machines
	}
	for name := range c.at[key] {
		if !slices.Contains(now, name) {
			c.drop(key, name)
		}
	}
	came := false
	for _, name := range now {
		if slices.Contains(e.machines, name) || !l.isPreceded(name, e) {
			continue
		}
		_, had := slices.BinarySearch(e.at, name) // it may have flows still
		if c.at[key] == nil {
			c.at[key] = map[string]*newcomer{}
		}
		c.at[key][name] = &newcomer{takes: had}
		c.changed[model.VIPKey{Machine: name, Address: key.VIP}] = true
		came = true
	}
	if came {
		c.renew(key, rev)
	}
}

// isPreceded says that other machines may have flows of a frontend to which a machine comes.
// Of one that was not published before, that is so if the machine was never heard of and
// others were: they may have had the frontend under another plane.
func (l *loop) isPreceded(name string, e *frontendEntry) bool {
	others := e.machines
	if e.resource == nil {
		if l.wasHeard(name) {
			return false
		}
		others = e.frontend.Machines
	}
	return slices.ContainsFunc(others, func(m string) bool { return m != name && l.wasHeard(m) })
}

// renew says that all have something new to follow with rev.
func (c *newcomers) renew(key model.FrontendKey, rev delta.Revision) {
	for _, n := range c.at[key] {
		n.rev = rev
	}
}

// moved says that machines are told with rev of another end of a machine's tunnels, or that the machine
// takes packets out of them. Newcomers to its frontends follow that, too, before they pass flows on to it,
// movesFollowed times.
func (l *loop) moved(name string, rev delta.Revision) {
	for key, list := range l.newcomers.at {
		if _, concerns := slices.BinarySearch(l.frontends.at(key), name); !concerns {
			continue
		}
		for _, n := range list {
			if n.moves[name] == movesFollowed {
				continue
			}
			if n.moves == nil {
				n.moves = map[string]int{}
			}
			n.moves[name]++
			n.rev = rev
		}
	}
}

func (c *newcomers) drop(key model.FrontendKey, name string) {
	c.changed[model.VIPKey{Machine: name, Address: key.VIP}] = true
	if delete(c.at[key], name); len(c.at[key]) == 0 {
		delete(c.at, key)
	}
}

// restartNewcomers says that everything is published anew at rev. Another plane may have let newcomers
// announce: that is past.
func (l *loop) restartNewcomers(rev delta.Revision) {
	c := &l.newcomers
	clear(c.missed)
	for key, list := range c.at {
		c.renew(key, rev)
		for name, n := range list {
			n.began, n.takes, n.moves = time.Time{}, l.wasHeard(name), nil
		}
		l.frontends.markOne(key)
	}
}

// admitNewcomers looks anew at what machines that come wait for.
func (l *loop) admitNewcomers() {
	c := &l.newcomers
	if len(c.at)+len(c.missed) == 0 {
		return
	}
	clear(l.peeked)
	now := l.plane.config.Now()
	for key, list := range c.at {
		for name, n := range list {
			l.admit(key, name, n, now)
		}
	}
	for k, missed := range c.missed {
		maps.DeleteFunc(missed, func(name string, rev delta.Revision) bool { return !l.holdsUp(name, rev) })
		if len(missed) == 0 || l.network.vip(k) == nil {
			delete(c.missed, k)
		}
	}
}

func (l *loop) admit(key model.FrontendKey, name string, n *newcomer, now time.Time) {
	c, vip := &l.newcomers, model.VIPKey{Machine: name, Address: key.VIP}
	leads := l.plane.serving.Load() != 0
	_, silent, lost := l.hearing(name, l.peek(name))
	if heard := !leads || !silent && !lost; heard && n.began.IsZero() || now.Before(n.began) {
		n.began = now
	}
	late := !n.began.IsZero() && now.Sub(n.began) >= newcomerTime
	own := !silent && l.carries(name, n.rev)
	if !n.takes && (own || late || !leads) {
		n.takes = true
		l.frontends.markOne(key)
	}
	var awaited []string
	for _, m := range l.frontends.at(key) {
		other := c.at[key][m]
		switch {
		case m == name:
			if !own || !l.frontends.hasEnd(name) {
				awaited = append(awaited, m)
			}
		case other != nil && !other.takes: // it has no flow, and gets none before it follows
		case l.holdsUp(m, n.rev):
			awaited = append(awaited, m)
		}
	}
	if late {
		if leads && len(awaited) > 0 {
			l.announceEarly(vip, awaited, n.rev)
		}
		awaited = nil
	}
	if !slices.Equal(n.awaited, awaited) {
		n.awaited = awaited
		c.changed[vip] = true
	}
	if len(awaited) == 0 {
		c.drop(key, name)
	}
}

// tellVIPs adds to an update the VIPs that changed, or for which other machines are awaited.
func (l *loop) tellVIPs(update *southbound.Update) error {
	var errs []error
	for k := range l.network.receive(l.newcomers.receive()) {
		var m proto.Message
		if v := l.network.vip(k); v != nil {
			told := *v
			told.Awaited = l.newcomers.awaited(k.Machine, v)
			m = wire.VIP(told, func(id model.ListenerID) string { return string(id) })
		}
		errs = append(errs, addTo(update, k.Machine, agentv1.VipType, wire.VIPName(k.Address), m))
	}
	return errors.Join(errs...)
}

// miss notes that a VIP is announced though machines have not followed a revision.
func (c *newcomers) miss(vip model.VIPKey, names []string, rev delta.Revision) {
	if c.missed[vip] == nil {
		c.missed[vip] = map[string]delta.Revision{}
	}
	for _, name := range names {
		c.missed[vip][name] = rev
	}
}

// announceEarly has a VIP announced though machines have not followed a revision.
func (l *loop) announceEarly(vip model.VIPKey, names []string, rev delta.Revision) {
	l.plane.config.Log.Warn("a machine announces a VIP although other machines may not accept the flows that it forwards to them: connections may break",
		"machine", vip.Machine, "vip", vip.Address, "not_ready", strings.Join(names, ", "), "after", newcomerTime)
	l.newcomers.miss(vip, names, rev)
}

// holdsUp says that a machine's kernel may have flows and is not known to carry a revision
// out. One that is lost may be away for ever, and nobody waits for it.
func (l *loop) holdsUp(name string, rev delta.Revision) bool {
	if l.machines[name] == nil {
		return false
	}
	_, silent, lost := l.hearing(name, l.peek(name))
	return !silent && !lost && !l.carries(name, rev)
}

// withhold takes new flows from the proxies of machines whose kernels do not know the others
// yet, unless none is left. stays says of a machine that it is cordoned and not told yet: where no
// other proxy is ready, its own serves until one is.
func (c *newcomers) withhold(key model.FrontendKey, proxies []balance.Proxy, stays func(machine string) bool) {
	waits := func(p balance.Proxy) bool {
		n := c.at[key][p.Machine]
		return n != nil && !n.takes
	}
	ready := func(p balance.Proxy) bool { return p.State == model.BackendReady && !waits(p) }
	if !slices.ContainsFunc(proxies, ready) {
		for i, p := range proxies {
			if p.State == model.BackendDraining && stays(p.Machine) {
				proxies[i].State = model.BackendReady
			}
		}
	}
	if !slices.ContainsFunc(proxies, ready) {
		return
	}
	for i := range proxies {
		if waits(proxies[i]) {
			proxies[i].State = model.BackendUnready
		}
	}
}

// awaited are the machines that a newcomer to a VIP waits for, sorted.
func (c *newcomers) awaited(machine string, vip *model.VIP) []string {
	var list []string
	for _, key := range vip.Frontends {
		if n := c.at[key][machine]; n != nil {
			list = append(list, n.awaited...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// hasty are the machines that announce a VIP though others have not followed, and why.
func (c *newcomers) hasty(vip netip.Addr) map[string]string {
	why := map[string]string{}
	for k, names := range c.missed {
		if k.Address == vip {
			why[k.Machine] = "it announces the VIP though flows that it passes on may break at " + strings.Join(slices.Sorted(maps.Keys(names)), ", ") +
				", which did not follow within " + newcomerTime.String()
		}
	}
	return why
}
