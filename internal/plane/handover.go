package plane

import (
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/placement"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/wire"
)

const (
	// handoverTime is how long a machine is not told at most: what those that come may wait for
	// others, and then some, to announce.
	handoverTime = newcomerTime + 5*time.Second
	// handoverMost is the same where one machine after another comes, and none announces.
	handoverMost = 4 * handoverTime
	// installTime is what routers may take to use a path that they were told of. A withdrawal that
	// follows sooner may be carried out before it: FRR asks its other half whether it can reach the
	// next hop, and uses no path to it meanwhile.
	installTime = 500 * time.Millisecond
	// startTime is how long an agent that has just started may say that it announces nothing while
	// routers keep its routes (RFC 4724).
	startTime = 10 * time.Second
)

// handover knows what machines are not told yet, since no other machine announces a VIP of theirs:
// routers would have no way to it for a moment. A machine that is to have a VIP no longer keeps it,
// and its frontends as one that has it. A machine that is cordoned does not know.
type handover struct {
	kept    map[netip.Addr]*keptVIP
	cordons map[string]*cordon
	wake    func(time.Duration) // has the loop turn after that long
}

// keptVIP is a VIP that machines keep.
type keptVIP struct {
	machines map[string]*deferral
	// translated are its frontends, without the machines that keep it.
	translated map[model.FrontendKey]*model.Frontend
}

// cordon is one of which the machine is not told yet.
type cordon struct {
	deferral
	vips []model.VIPKey // that it was the last one to announce
}

// deferral is one thing that a machine is not told yet.
type deferral struct {
	first    time.Time // when the first of the heirs came
	since    time.Time // when the last of them did
	heirs    []string  // machines that it waited for
	relieved time.Time // when others were first seen to announce; zero: they do not
}

func newHandover(wake func(time.Duration)) handover {
	return handover{kept: map[netip.Addr]*keptVIP{}, cordons: map[string]*cordon{}, wake: wake}
}

// keeps says that a machine keeps a VIP.
func (h *handover) keeps(k model.VIPKey) bool {
	kept := h.kept[k.Address]
	return kept != nil && kept.machines[k.Machine] != nil
}

// drop says that a machine keeps a VIP no longer.
func (h *handover) drop(k model.VIPKey) {
	kept := h.kept[k.Address]
	if delete(kept.machines, k.Machine); len(kept.machines) == 0 {
		delete(h.kept, k.Address)
	}
}

// uses are the listeners of the VIPs that machines keep.
func (h *handover) uses(n *network) map[placement.ListenerAt]bool {
	uses := map[placement.ListenerAt]bool{}
	for address, kept := range h.kept {
		for machine := range kept.machines {
			for _, id := range n.listeners(model.VIPKey{Machine: machine, Address: address}) {
				uses[placement.ListenerAt{Machine: machine, Listener: id}] = true
			}
		}
	}
	return uses
}

// isCordoned says that a machine is cordoned and not told yet.
func (h *handover) isCordoned(machine string) bool { return h.cordons[machine] != nil }

// heirs says which of the machines that are to announce a VIP are waited for.
type heirs int

const (
	forHeard heirs = iota // those that report
	forKnown              // those that have reported before, too: one that is lost may come back
	forAll                // every one: until it comes, who announces is the only one that serves
)

// keepVIPs leaves out of what a translation changed what takes a VIP from its last machine before
// others announce it. was are the machines as they were before.
func (l *loop) keepVIPs(ch *translate.Changes, was map[string]*model.Machine) {
	h := &l.handover
	l.disinherit(ch, was)
	given, keepers := map[netip.Addr]*model.VIP{}, vipsOf{}
	for k, v := range ch.VIPs {
		switch stands := l.network.vip(k); {
		case v != nil:
			given[k.Address] = v
			if h.keeps(k) {
				h.drop(k) // it has the VIP again
			}
		case h.keeps(k):
			delete(ch.VIPs, k)
		case l.staysOwned(k.Address, ch) && !l.changesRole(k.Machine, was) && l.isLast(k, stands, ch, forAll):
			if h.kept[k.Address] == nil {
				h.kept[k.Address] = &keptVIP{machines: map[string]*deferral{}, translated: map[model.FrontendKey]*model.Frontend{}}
			}
			h.kept[k.Address].machines[k.Machine] = &deferral{since: l.plane.config.Now()}
			delete(ch.VIPs, k)
			keepers.add(k)
		}
	}
	for machine, vips := range keepers {
		l.plane.config.Log.Info("a machine keeps VIPs that were assigned to other machines: none of these announces them yet", "machine", machine, "vips", model.List(vips, ", "), "at_most", handoverTime)
	}
	for address, v := range given { // a VIP is the same at all its machines
		if kept := h.kept[address]; kept != nil {
			for m := range kept.machines {
				ch.VIPs[model.VIPKey{Machine: m, Address: address}] = v
			}
		}
	}
	for key, f := range ch.Frontends {
		switch kept := h.kept[key.VIP]; {
		case kept == nil:
		case f == nil:
			delete(kept.translated, key)
		default:
			kept.translated[key] = f
			ch.Frontends[key] = kept.with(f)
		}
	}
}

// disinherit takes VIPs from machines that keep them for an owner or a pool that has them no longer,
// and from those that have changed their role.
func (l *loop) disinherit(ch *translate.Changes, was map[string]*model.Machine) {
	h := &l.handover
	for address, kept := range h.kept {
		stays, ended := l.staysOwned(address, ch), false
		for m := range kept.machines {
			if stays && !l.changesRole(m, was) {
				continue
			}
			k := model.VIPKey{Machine: m, Address: address}
			h.drop(k)
			if ended = true; ch.VIPs[k] == nil {
				if ch.VIPs == nil {
					ch.VIPs = map[model.VIPKey]*model.VIP{}
				}
				ch.VIPs[k] = nil
			}
		}
		for key, f := range kept.translated {
			if _, changes := ch.Frontends[key]; !changes && ended {
				if ch.Frontends == nil {
					ch.Frontends = map[model.FrontendKey]*model.Frontend{}
				}
				ch.Frontends[key] = f
			}
		}
	}
}

// staysOwned says that an address has the owner and the pool that it had.
func (l *loop) staysOwned(vip netip.Addr, ch *translate.Changes) bool {
	before := l.network.assignment(vip)
	a, changes := ch.Assignments[vip]
	return !changes || a != nil && before != nil && a.Owner == before.Owner && a.Pool == before.Pool
}

// changesRole says that a machine has another role than before: what it served is not sent to it.
func (l *loop) changesRole(name string, was map[string]*model.Machine) bool {
	before, now := was[name], l.machines[name]
	return before != nil && (now == nil || now.HostsOnly != before.HostsOnly)
}

// told is a machine as its agent is told of it: not cordoned while it is the last one that
// announces a VIP which others are to announce. was is the machine as it was before.
func (l *loop) told(name string, was *model.Machine, m model.Machine, ch *translate.Changes) model.Machine {
	h := &l.handover
	switch {
	case !m.Cordoned:
		delete(h.cordons, name)
	case h.cordons[name] == nil && was != nil && !was.Cordoned:
		var last []model.VIPKey
		for k, v := range l.network.vipsAt(name) {
			if l.isLast(k, v, ch, forHeard) {
				last = append(last, k)
			}
		}
		if len(last) > 0 {
			h.cordons[name] = &cordon{deferral{since: l.plane.config.Now()}, last}
			l.plane.config.Log.Info("a cordoned machine keeps announcing its VIPs: no other machine announces one of them yet", "machine", name, "vip", last[0].Address, "at_most", handoverTime)
		}
	}
	m.Cordoned = m.Cordoned && h.cordons[name] == nil
	return m
}

// isLast says that a machine announces a VIP which others are to announce, and none of them does.
// ch is what changes with it, nil: nothing.
func (l *loop) isLast(k model.VIPKey, v *model.VIP, ch *translate.Changes, wait heirs) bool {
	return len(l.heirsOf(k, v, ch, wait)) > 0
}

// heirsOf are the machines that are to announce a VIP beside the one that does; none where one of them
// announces it already, or the one does not.
func (l *loop) heirsOf(k model.VIPKey, v *model.VIP, ch *translate.Changes, wait heirs) []string {
	if !l.holds(k) {
		return nil
	}
	assignment := l.network.assignment(k.Address)
	if ch != nil {
		if a, changes := ch.Assignments[k.Address]; changes {
			assignment = a
		}
	}
	if v == nil || v.Mode != model.AnnounceBGP || assignment == nil {
		return nil
	}
	var heirs []string
	for _, m := range assignment.Machines {
		if known := l.machines[m]; m == k.Machine || known == nil || known.Cordoned || !l.canServe(m, v, wait) {
			continue
		}
		if l.announces(m, k.Address) && l.peek(m).Leaving == 0 { // one whose agent leaves will cease to
			return nil
		}
		state := l.peek(m)
		_, _, lost := l.hearing(m, state)
		started := !state.LastReport.IsZero() || l.reportedBefore(m)
		if wait == forAll || started && (wait == forKnown || !lost) {
			heirs = append(heirs, m)
		}
	}
	return heirs
}

// canServe says that a machine has what a VIP leads to: a proxy, or a frontend with backends of its
// own. Where these are to be on the machine (externalTrafficPolicy: Local) one that has none is not
// waited for, unless all are.
func (l *loop) canServe(machine string, v *model.VIP, wait heirs) bool {
	if len(v.Listeners) > 0 && !unproxied(l.peek(machine).Proxy) || len(v.Listeners)+len(v.Frontends) == 0 {
		return true
	}
	return slices.ContainsFunc(v.Frontends, func(key model.FrontendKey) bool {
		e := l.frontends.find(key)
		if e == nil {
			return len(v.Listeners) == 0 // it is not known yet
		}
		return e.frontend.Listener == "" && (!e.frontend.LocalOnly || wait == forAll || e.hasBackendAt(machine))
	})
}

// holds says that routers have a way to a VIP by a machine, as far as that is known.
func (l *loop) holds(k model.VIPKey) bool {
	switch l.observed(k.Machine, k.Address) {
	case model.VIPAnnounced:
		return true
	case model.VIPWithheld:
		return l.justCame(l.peek(k.Machine))
	}
	return false
}

// with is a frontend as it is published while machines keep its VIP.
func (kept *keptVIP) with(f *model.Frontend) *model.Frontend {
	n := *f
	n.Machines = slices.Clone(f.Machines)
	for m := range kept.machines {
		n.Machines = append(n.Machines, m)
	}
	slices.Sort(n.Machines)
	n.Machines = slices.Compact(n.Machines)
	return &n
}

// releaseVIPs tells machines what they were not told until others announce.
func (l *loop) releaseVIPs(update *southbound.Update) {
	h, late := &l.handover, vipsOf{}
	for address, kept := range h.kept {
		over := false
		for m, d := range kept.machines {
			k := model.VIPKey{Machine: m, Address: address}
			heirs := l.heirsOf(k, l.network.vip(k), nil, forAll)
			if !l.isOver(d, heirs) {
				continue
			}
			if len(heirs) > 0 {
				late.add(k)
			}
			over = true
			h.drop(k)
			l.network.remove(k)
		}
		if over {
			ch := translate.Changes{Frontends: map[model.FrontendKey]*model.Frontend{}}
			for key, f := range kept.translated {
				ch.Frontends[key] = kept.with(f)
			}
			l.frontends.note(ch)
		}
	}
	for name, c := range h.cordons {
		var heirs []string
		var last []model.VIPKey
		for _, k := range c.vips {
			of := slices.DeleteFunc(l.heirsOf(k, l.network.vip(k), nil, forKnown), func(m string) bool {
				_, _, lost := l.hearing(m, l.peek(m))
				return lost && !slices.Contains(c.heirs, m) // before it was waited for
			})
			if len(of) > 0 {
				heirs, last = append(heirs, of...), append(last, k)
			}
		}
		if !l.isOver(&c.deferral, heirs) {
			continue
		}
		for _, k := range last {
			late.add(k)
		}
		delete(h.cordons, name)
		l.frontends.markProxy(name) // its proxy drains now, if it did not before
		if m := l.machines[name]; m != nil {
			if err := addTo(update, name, string(typeMachine), name, wire.MachineConfig(*m, l.plane.config.TTL)); err != nil {
				l.plane.config.Log.Error("a bug: a machine cannot be encoded", "machine", name, "error", err)
			}
		}
	}
	for machine, vips := range late {
		l.plane.config.Log.Warn("the last machine that announces VIPs withdraws them, although no other machine announces them yet", "machine", machine, "vips", model.List(vips, ", "), "after", handoverTime)
	}
}

// vipsOf are VIPs by machine, for a line of the log.
type vipsOf map[string][]string

func (o vipsOf) add(k model.VIPKey) { o[k.Machine] = append(o[k.Machine], k.Address.String()) }

// isOver says that a machine is to be told. heirs are those that it waits for; none: one of them
// announces, or none can serve any more. One more has as long as the first had, once, and all of them have handoverMost.
func (l *loop) isOver(d *deferral, heirs []string) bool {
	now, last := l.plane.config.Now(), len(heirs) > 0
	for _, m := range heirs {
		if !slices.Contains(d.heirs, m) {
			d.heirs, d.since = append(d.heirs, m), now
		}
	}
	if d.first.IsZero() {
		d.first = d.since
	}
	if now.Before(d.since) || now.Before(d.relieved) { // the clock was set back
		d.first, d.since, d.relieved = now, now, time.Time{}
	}
	switch {
	case last && (now.Sub(d.since) >= handoverTime || now.Sub(d.first) >= handoverMost):
		return true
	case last:
		d.relieved = time.Time{}
	case d.relieved.IsZero():
		d.relieved = now
		l.handover.wake(installTime)
	default:
		return now.Sub(d.relieved) >= installTime
	}
	return false
}
