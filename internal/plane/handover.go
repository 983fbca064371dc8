package plane

import (
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/wire"
)

const (
	// handoverTime is how long a machine keeps a VIP at most that it is to have no longer.
	handoverTime = comeTime
	// installTime is what routers may take to use a path that they were told of. A withdrawal that
	// follows sooner may be carried out before it: FRR asks its other half whether it can reach the
	// next hop, and uses no path to it meanwhile.
	installTime = 500 * time.Millisecond
)

// handover knows what machines are not told yet, since no other machine announces a VIP of theirs:
// routers would have no way to it for a moment. A machine that is to have a VIP no longer keeps it,
// and its frontends as one that has it. A machine that is cordoned does not know, and gets no new
// flows from others meanwhile.
type handover struct {
	vips    map[model.VIPKey]*deferral
	cordons map[string]*deferral
	// translated are the frontends of kept VIPs, without the machines that keep them.
	translated map[model.FrontendKey]*model.Frontend
	wake       func(time.Duration) // has the loop turn after that long
}

// deferral is one thing that a machine is not told yet.
type deferral struct {
	since    time.Time
	relieved time.Time // when others were first seen to announce; zero: they do not
}

func newHandover(wake func(time.Duration)) handover {
	return handover{
		vips: map[model.VIPKey]*deferral{}, cordons: map[string]*deferral{},
		translated: map[model.FrontendKey]*model.Frontend{}, wake: wake,
	}
}

// keep leaves out of what a translation changed what takes a VIP from its last machine before
// others announce it.
func (l *loop) keep(ch *translate.Changes) {
	h := &l.handover
	for k, v := range ch.VIPs {
		switch stands := l.network.vips[k]; {
		case v != nil:
			delete(h.vips, k) // it has the VIP again
		case h.vips[k] != nil:
			delete(ch.VIPs, k)
		case stands != nil && l.isLast(k, stands, ch):
			h.vips[k] = &deferral{since: l.plane.config.Now()}
			l.plane.config.Log.Info("a machine keeps a VIP that it is to have no longer: no other machine announces it yet", "machine", k.Machine, "vip", k.Address, "at_most", handoverTime)
			delete(ch.VIPs, k)
		}
	}
	for key, f := range ch.Frontends {
		if f == nil || len(h.keepers(key.VIP)) == 0 {
			delete(h.translated, key)
			continue
		}
		h.translated[key] = f
		ch.Frontends[key] = h.withKeepers(f)
	}
}

// told is a machine as its agent is told of it: not cordoned while it is the last one that
// announces a VIP which others are to announce.
func (l *loop) told(name string, m model.Machine, ch *translate.Changes) model.Machine {
	h := &l.handover
	before := l.machines[name]
	switch {
	case !m.Cordoned:
		delete(h.cordons, name)
	case h.cordons[name] == nil && before != nil && !before.Cordoned && l.isLastOfAny(name, ch):
		h.cordons[name] = &deferral{since: l.plane.config.Now()}
		l.plane.config.Log.Info("a machine that is cordoned goes on to announce its VIPs: no other machine announces one of them yet", "machine", name, "at_most", handoverTime)
	}
	m.Cordoned = m.Cordoned && h.cordons[name] == nil
	return m
}

// isLastOfAny says that a machine is the last one that announces some VIP.
func (l *loop) isLastOfAny(name string, ch *translate.Changes) bool {
	for k, v := range l.network.vips {
		if k.Machine == name && l.isLast(k, v, ch) {
			return true
		}
	}
	return false
}

// isLast says that a machine announces a VIP which others that report are to announce, and none of
// them does.
// ch is what changes with it, nil: nothing.
func (l *loop) isLast(k model.VIPKey, v *model.VIP, ch *translate.Changes) bool {
	if v.Mode != model.AnnounceBGP || !l.announces(k.Machine, k.Address) {
		return false
	}
	assignment := l.network.assignments[k.Address]
	if ch != nil {
		if a, changes := ch.Assignments[k.Address]; changes {
			assignment = a
		}
	}
	if assignment == nil {
		return false
	}
	heirs := slices.DeleteFunc(slices.Clone(assignment.Machines), func(m string) bool {
		known := l.machines[m]
		return m == k.Machine || known == nil || known.Cordoned || !seen(l.peek(m), true)
	})
	return len(heirs) > 0 && !slices.ContainsFunc(heirs, func(m string) bool { return l.announces(m, k.Address) })
}

// announces says that a machine reports that it announces a VIP.
func (l *loop) announces(machine string, vip netip.Addr) bool {
	state := l.peek(machine)
	return seen(state, l.machines[machine] != nil) && slices.ContainsFunc(state.VIPs, func(v model.VIPObserved) bool {
		return v.Address == vip && v.State == model.VIPAnnounced
	})
}

// keepers are the machines that keep a VIP.
func (h *handover) keepers(vip netip.Addr) (machines []string) {
	for k := range h.vips {
		if k.Address == vip {
			machines = append(machines, k.Machine)
		}
	}
	return machines
}

// withKeepers is a frontend as it is published while machines keep its VIP.
func (h *handover) withKeepers(f *model.Frontend) *model.Frontend {
	keepers := h.keepers(f.VIP)
	if len(keepers) == 0 {
		return f
	}
	n := *f
	n.Machines = append(slices.Clone(f.Machines), keepers...)
	slices.Sort(n.Machines)
	n.Machines = slices.Compact(n.Machines)
	return &n
}

// release tells machines what they were not told until others announce.
func (l *loop) release(update *southbound.Update) {
	h := &l.handover
	for k, d := range h.vips {
		if !l.isOver(d, k.Machine, l.isLast(k, l.network.vips[k], nil)) {
			continue
		}
		delete(h.vips, k)
		delete(l.network.vips, k)
		l.network.stale[k] = true
		ch := translate.Changes{Frontends: map[model.FrontendKey]*model.Frontend{}}
		for key, f := range h.translated {
			if key.VIP != k.Address {
				continue
			}
			if ch.Frontends[key] = h.withKeepers(f); ch.Frontends[key] == f {
				delete(h.translated, key)
			}
		}
		l.frontends.note(ch)
	}
	for name, d := range h.cordons {
		if !l.isOver(d, name, l.isLastOfAny(name, nil)) {
			continue
		}
		delete(h.cordons, name)
		if m := l.machines[name]; m != nil {
			if err := addTo(update, name, string(typeMachine), name, wire.MachineConfig(*m, l.plane.config.TTL)); err != nil {
				l.plane.config.Log.Error("a bug: a machine cannot be encoded", "machine", name, "error", err)
			}
		}
	}
}

// isOver says that a machine is to be told; last, that no other one announces.
func (l *loop) isOver(d *deferral, machine string, last bool) bool {
	now := l.plane.config.Now()
	if now.Before(d.since) || now.Before(d.relieved) { // the clock was set back
		d.since, d.relieved = now, time.Time{}
	}
	switch {
	case last && now.Sub(d.since) >= handoverTime:
		l.plane.config.Log.Warn("the last machine that announces a VIP withdraws it, though no other one has begun to", "machine", machine, "after", handoverTime)
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
