package plane

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/southbound"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// hearing says how a machine is heard of: at most one of the three holds. state is its zero
// value for a machine that is not known.
func (l *loop) hearing(name string, state southbound.MachineState) (unheard, silent, lost bool) {
	unheard = l.unheard(state)
	reported := !state.LastReport.IsZero()
	silent = !unheard && !reported && !l.reportedBefore(name)
	lost = !unheard && !silent && (!reported || state.Lost)
	return unheard, silent, lost
}

// unheard says that a machine may still report to this plane for the first time
// since it leads. To a standby none reports.
func (l *loop) unheard(state southbound.MachineState) bool {
	return l.plane.serving.Load() == 0 || l.inGrace && !state.LastReport.After(l.leadSince)
}

// reportedBefore says whether a machine has reported to any plane, ever.
func (l *loop) reportedBefore(name string) bool {
	live := l.snapshot.Machines[snapshot.Name{Name: name}]
	return live != nil && live.Status.AgentVersion != ""
}

// wasHeard says that a machine has reported to some plane, ever.
func (l *loop) wasHeard(name string) bool {
	state, _ := l.plane.server.Machine(name)
	return !state.LastReport.IsZero() || l.reportedBefore(name)
}

// peek is what the server knew of a machine when it was first asked in this turn of the
// loop: there are many frontends, and each asks about all its machines.
func (l *loop) peek(machine string) southbound.MachineState {
	state, known := l.peeked[machine]
	if !known {
		state, _ = l.plane.server.Machine(machine)
		l.peeked[machine] = state
	}
	return state
}

// seen says that a machine reports to this plane now.
func seen(s southbound.MachineState, known bool) bool {
	return known && !s.LastReport.IsZero() && !s.Lost
}

// reached says that a machine's agent holds everything of a revision that concerns it.
func reached(state southbound.MachineState, rev delta.Revision) bool {
	return state.Delivered.Compare(rev) >= 0 || state.Delivered == state.Wanted && state.Connected
}

// carries says that a machine's kernel carries out a revision. One that is not heard may do
// what it did before; one that was never heard does nothing.
func (l *loop) carries(name string, rev delta.Revision) bool {
	state := l.peek(name)
	switch unheard, silent, lost := l.hearing(name, state); {
	case silent:
		return true
	case unheard, lost:
		return false
	}
	if !state.TellsCarried {
		return reached(state, rev)
	}
	return state.Carried.Compare(rev) >= 0
}

// decaps says whether a machine takes packets out of tunnels, as it last said to any plane.
func (l *loop) decaps(name string) bool {
	if state, _ := l.plane.server.Machine(name); !state.LastReport.IsZero() && !state.TunnelUnknown {
		return state.Tunnel != nil
	}
	return l.decapsBefore(name)
}

// decapsBefore says whether a machine takes packets out of tunnels, as another plane wrote
// it down.
func (l *loop) decapsBefore(name string) bool {
	live := l.snapshot.Machines[snapshot.Name{Name: name}]
	return live != nil && live.Status.Decaps
}

// serves says that a proxy takes requests. One that drains does, but closes each
// connection after the answer.
func serves(p *agentv1.Proxy) bool {
	return p.GetState() == agentv1.Proxy_STATE_READY || p.GetState() == agentv1.Proxy_STATE_DRAINING
}

// unproxied says that a machine is to run no proxy, though it may announce VIPs.
func unproxied(p *agentv1.Proxy) bool { return p.GetState() == agentv1.Proxy_STATE_NONE }

// hostsOnly says that a machine has backends only, and no proxy.
func (l *loop) hostsOnly(name string) bool {
	m := l.machines[name]
	return m != nil && m.HostsOnly
}

// sortedMachines returns the machines' names in order.
func (l *loop) sortedMachines() []string { return slices.Sorted(maps.Keys(l.machines)) }

// observed is what a machine that is heard reports of a VIP; empty when it says nothing of it.
func (l *loop) observed(machine string, vip netip.Addr) model.VIPState {
	state := l.peek(machine)
	if !seen(state, l.machines[machine] != nil) {
		return ""
	}
	at, is := slices.BinarySearchFunc(state.VIPs, vip, func(v model.VIPObserved, vip netip.Addr) int { return v.Address.Compare(vip) })
	if !is {
		return ""
	}
	return state.VIPs[at].State
}

// announces says that a machine reports that it announces a VIP.
func (l *loop) announces(machine string, vip netip.Addr) bool {
	return l.observed(machine, vip) == model.VIPAnnounced
}

// justCame says that a machine's agent may have started a moment ago.
func (l *loop) justCame(state southbound.MachineState) bool {
	age := l.plane.config.Now().Sub(state.Since)
	return state.Connected && age >= 0 && age < startTime
}
