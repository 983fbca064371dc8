package plane

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
)

// followChecker hands a machine's results to health. A lost machine does not vote.
func (l *loop) followChecker(name string) {
	h := l.health
	l.checkersStale = true
	state, known := l.plane.server.Machine(name)
	if l.machines[name] == nil || !seen(state, known) {
		h.Report(name, nil, nil, time.Now())
		return
	}
	// Where backends go on to fail, nothing becomes stale; only what their owners show does.
	ejected := state.Ejected
	if l.machines[name].HostsOnly {
		ejected = nil // it has no proxy
	}
	reworded := h.Report(name, state.Checks, ejected, time.Now()) // setting the clock does not matter
	for _, key := range l.idle(slices.Collect(maps.Keys(reworded))) {
		maps.Copy(l.due, l.tracker.Needing(key))
	}
}

// checkers are the machines that may check: those that report, and those that may still
// report to this plane for the first time. What these were asked to check they check on.
func (l *loop) checkers() []string {
	var names []string
	for name := range l.machines {
		if s := l.tracker.Machine(name); s == nil || !s.Lost && !s.Silent {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// judgeHealth counts the votes and notes the frontends whose backends have another health
// now. It returns the load assignments that change with it.
func (l *loop) judgeHealth() map[model.ViewID][]delta.Change {
	if l.checkersStale {
		l.checkersStale = false
		l.health.Members(l.checkers())
	}
	users := l.health.Judge()
	if len(users) == 0 {
		return nil
	}
	for u := range users {
		if u.Group == "" {
			l.frontends.markOne(u.Frontend)
		}
	}
	return l.catalog.HealthChanged(users)
}

// countChecks brings the metrics of checks up to date.
func (l *loop) countChecks() {
	m, n := l.plane.metrics, l.health.Count()
	m.notChecked.Set(float64(n.Off))
	for _, is := range []model.Health{model.Healthy, model.Unhealthy, model.HealthUnknown} {
		m.checks.WithLabelValues(string(is)).Set(float64(n.Checks[is]))
		m.verdicts.WithLabelValues(string(is)).Add(float64(n.Turned[is]))
	}
	m.ejected.Set(float64(n.Ejected))
}

// checkFrontend has the backends of a frontend checked as it says, and returns what is
// known of them; nil: nobody checks.
func (l *loop) checkFrontend(key model.FrontendKey, n *model.Frontend) func(netip.AddrPort) model.Health {
	u := health.User{Frontend: key}
	checks := map[netip.AddrPort]health.Wanted{}
	if n != nil && n.Check != nil {
		for _, t := range n.Targets {
			if s := l.catalog.Set(t.Set); s != nil {
				for _, b := range s.Backends {
					w := health.Wanted{Check: model.NewCheck(b.Address, *n.Check), At: b.Machine, Owner: t.Set.Namespace()}
					if other, has := checks[b.Address]; has && other.Owner != w.Owner {
						w.Owner = ""
					}
					checks[b.Address] = w
				}
			}
		}
	}
	l.health.Use(u, checks)
	if len(checks) == 0 {
		return nil
	}
	return func(backend netip.AddrPort) model.Health {
		health, _ := l.health.Of(u, backend)
		return health
	}
}
