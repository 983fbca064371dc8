package plane

import (
	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
)

// leaving knows which machines leave the traffic, and when no other machine sends their
// proxies new flows. It goes by what kernels carry out, not by what agents received.
type leaving struct {
	// weightless says, by machine and frontend, since which revision a proxy gets no new flow.
	weightless map[string]map[model.FrontendKey]delta.Revision
	numbers    map[string]uint64 // machines that leave, with the number that they report
}

func newLeaving() leaving {
	return leaving{weightless: map[string]map[model.FrontendKey]delta.Revision{}, numbers: map[string]uint64{}}
}

// weigh notes which proxies get new flows of a frontend, from a revision on.
func (v *leaving) weigh(key model.FrontendKey, before, after []model.FrontendBackend, rev delta.Revision) {
	is := map[string]bool{}
	for _, b := range after {
		if !b.Proxy(key) {
			continue
		}
		if b.Weight > 0 {
			continue
		}
		is[b.Machine] = true
		if v.weightless[b.Machine] == nil {
			v.weightless[b.Machine] = map[model.FrontendKey]delta.Revision{}
		}
		if _, known := v.weightless[b.Machine][key]; !known {
			v.weightless[b.Machine][key] = rev
		}
	}
	for _, b := range before {
		if b.Machine != "" && !is[b.Machine] && v.weightless[b.Machine] != nil {
			if delete(v.weightless[b.Machine], key); len(v.weightless[b.Machine]) == 0 {
				delete(v.weightless, b.Machine)
			}
		}
	}
}

// isWeightless says that a machine's proxy gets no new flow of a frontend.
func (v *leaving) isWeightless(name string, key model.FrontendKey) bool {
	_, is := v.weightless[name][key]
	return is
}

// follow notes whether a machine leaves.
func (v *leaving) follow(name string, number uint64) {
	if number == 0 {
		delete(v.numbers, name)
		return
	}
	v.numbers[name] = number
}

// tellLeaving tells machines that leave when all others have noticed.
func (l *loop) tellLeaving() {
	v := &l.leaving
	for name, number := range v.numbers {
		if l.peek(name).Left != number && l.unsought(name) {
			l.plane.server.Left(name, number)
		}
	}
}

// unsought says that no kernel of another machine sends new flows to a machine's proxy.
func (l *loop) unsought(name string) bool {
	f := l.frontends
	for key := range f.proxied(name) {
		if l.leaving.isWeightless(name, key) {
			continue
		}
		for _, b := range f.find(key).backends {
			if b.Machine == name {
				return false
			}
		}
	}
	for key, rev := range l.leaving.weightless[name] {
		e := f.find(key)
		if e == nil {
			continue
		}
		for _, m := range e.frontend.Machines {
			if m != name && !l.carries(m, rev) {
				return false
			}
		}
	}
	return true
}

// hasParting says that a machine has connections at a frontend whose VIP it has no longer. One
// whose agent is away, as after a kill, may have some: its proxy serves on.
func (l *loop) hasParting(name string, key model.FrontendKey) bool {
	state := l.peek(name)
	if l.machines[name] == nil {
		return false
	}
	if !state.Connected || state.LastReport.Before(state.Since) {
		return true
	}
	for _, o := range state.Frontends {
		if o.FrontendKey == key {
			return o.Parting > 0
		}
	}
	return false
}
