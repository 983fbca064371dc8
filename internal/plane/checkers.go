package plane

import (
	"maps"
	"net/netip"
	"slices"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
)

// followChecker takes in what a machine found. A lost one does not vote.
func (l *loop) followChecker(name string) {
	h := l.catalog.health
	h.moved = true
	state, known := l.plane.server.Machine(name)
	if l.machines[name] == nil || !seen(state, known) {
		h.report(name, nil, nil)
		return
	}
	// Where backends go on to fail, nothing becomes stale; only what their owners show does.
	ejected := state.Ejected
	if l.machines[name].HostsOnly {
		ejected = nil // it has no proxy
	}
	reworded := h.report(name, state.Checks, ejected)
	for _, key := range l.idle(slices.Collect(maps.Keys(reworded))) {
		maps.Copy(l.due, l.tracker.byFrontend[key])
	}
}

// checkers are the machines that may check: those that report, and those that may still
// report to this plane for the first time. What these were asked to check they check on.
func (l *loop) checkers() []string {
	var names []string
	for name := range l.machines {
		if s := l.tracker.machines[name]; s == nil || !s.lost && !s.silent {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// judgeHealth counts the votes and notes the frontends whose backends have another health
// now. It returns the load assignments that have.
func (l *loop) judgeHealth() map[model.ViewID][]delta.Change {
	h := l.catalog.health
	if h.moved {
		h.moved = false
		h.members(l.checkers())
	}
	if len(h.unjudged) == 0 && !h.ration.stale {
		return nil
	}
	users := h.judge()
	for u := range users {
		if u.group == "" {
			l.frontends.stale[u.frontend] = true
		}
	}
	return l.catalog.rejudged(users)
}

// countChecks brings the metrics of checks up to date.
func (l *loop) countChecks() {
	h, m := l.catalog.health, l.plane.metrics
	verdicts := map[model.Health]int{}
	off := 0
	for _, c := range h.checks {
		if c.off() {
			off++
			continue
		}
		verdicts[c.verdict]++
	}
	m.notChecked.Set(float64(off))
	for _, is := range []model.Health{model.Healthy, model.Unhealthy, model.HealthUnknown} {
		m.checks.WithLabelValues(string(is)).Set(float64(verdicts[is]))
		m.verdicts.WithLabelValues(string(is)).Add(float64(h.turned[is]))
	}
	clear(h.turned)
	out := map[netip.AddrPort]bool{}
	for _, backends := range h.ejected {
		for b := range backends {
			out[b] = true
		}
	}
	m.ejected.Set(float64(len(out)))
}

// checkFrontend has the backends of a frontend checked as it says, and returns what is
// known of them; nil: nobody checks.
func (l *loop) checkFrontend(key model.FrontendKey, n *model.Frontend) func(netip.AddrPort) model.Health {
	u := checkUser{frontend: key}
	checks := map[netip.AddrPort]wantedCheck{}
	if n != nil && n.Check != nil {
		for _, t := range n.Targets {
			if s := l.catalog.sets[t.Set]; s != nil && s.set != nil {
				for _, b := range s.set.Backends {
					w := wantedCheck{Check: model.NewCheck(b.Address, *n.Check), at: b.Machine, owner: t.Set.Namespace()}
					if other, has := checks[b.Address]; has && other.owner != w.owner {
						w.owner = ""
					}
					checks[b.Address] = w
				}
			}
		}
	}
	l.catalog.health.use(u, checks)
	if len(checks) == 0 {
		return nil
	}
	return func(backend netip.AddrPort) model.Health {
		health, _ := l.catalog.health.of(u, backend)
		return health
	}
}
