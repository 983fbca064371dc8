package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"

	"fairlead.dev/internal/balance"
	"fairlead.dev/internal/catalog"
	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/near"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/progress"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/southbound"
)

// States of a frontend, for people and as labels of metrics.
const (
	shownBalanced = "balanced"
	shownPending  = "pending"
	shownRefused  = "refused"
	shownIdle     = "idle" // no backend takes new flows
)

// frontendStatuses are the frontends for people, sorted.
func (l *loop) frontendStatuses() []model.FrontendStatus {
	out := []model.FrontendStatus{}
	for _, e := range l.frontends.all() {
		out = append(out, l.frontendStatus(e))
	}
	return out
}

func (l *loop) frontendStatus(e *frontendEntry) model.FrontendStatus {
	f := e.frontend
	s := model.FrontendStatus{
		FrontendKey: f.FrontendKey, Owner: f.Owner, Listener: f.Listener, Machines: f.Machines,
		Backends: len(e.backends), Available: l.available(e), At: []model.FrontendAt{},
	}
	for _, m := range f.Machines {
		state, why, seen := l.frontendAt(e, m)
		switch state {
		case frontendSilent, frontendLost, frontendUnheard:
			continue
		case frontendWaiting:
			seen.Message = cmp.Or(seen.Message, why)
		}
		s.At = append(s.At, model.FrontendAt{
			Machine: m, State: seen.State, Mode: seen.Mode, DataPlane: seen.DataPlane, Message: seen.Message, Available: seen.Available,
		})
	}
	v := l.balanced([]model.FrontendKey{f.FrontendKey})
	s.Message = v.Message
	switch {
	case v.State == progress.Refused:
		s.State = shownRefused
	case v.State != progress.Programmed:
		s.State = shownPending
	case l.available(e) == 0:
		if s.State, s.Message = shownIdle, noneTakes; f.LocalOnly {
			s.Message = noneIsLocal
		}
		s.Message += l.failing(f.FrontendKey)
	default:
		s.State, s.Message = shownBalanced, ""
		var said []string
		if ill, of := e.panics(); ill > 0 {
			said = append(said, fmt.Sprintf("%d of %d backends are unhealthy, so that all count as healthy (panicThreshold: %d)", ill, of, f.Panic))
		}
		for _, at := range s.At {
			if at.Message != "" {
				said = append(said, at.Machine+": "+at.Message)
			}
		}
		if len(said) > 0 {
			s.Message = model.List(said, "; ")
		}
	}
	return s
}

// panics says how many unhealthy backends take new flows because too few are healthy, and
// of how many.
func (e *frontendEntry) panics() (ill, of int) {
	if e.frontend.Panic == 0 {
		return 0, 0
	}
	for _, b := range e.backends {
		if b.Weight == 0 {
			continue
		}
		if of++; b.Health == model.Unhealthy {
			ill++
		}
	}
	return ill, of
}

// frontendProblem is what is wrong with one frontend, if anything is.
func frontendProblem(f model.FrontendStatus, backends []model.FrontendBackend) (p model.Problem, is bool) {
	p = model.Problem{Severity: model.SeverityError, Subject: "Frontend " + f.String(), Message: f.Message + " (" + f.Owner.Describe() + ")"}
	switch {
	case f.State == shownIdle:
		p.Reason = status.ReasonNoBackends
	case f.State == shownRefused && f.Listener != "":
		// Each machine serves what comes to it.
		p.Severity, p.Reason = model.SeverityWarning, status.ReasonRefused
	case f.State == shownBalanced && model.AllFail(backends):
		p.Severity, p.Reason = model.SeverityWarning, catalog.ReasonNoHealthy
		p.Message = "every backend fails its health check, so all are used (" + f.Owner.Describe() + ")"
	default:
		return p, false
	}
	return p, true
}

// frontendProblems are what is wrong with frontends and tunnels. That a machine does not
// balance what it should is a condition of the owner of a frontend without a proxy.
func (l *loop) frontendProblems(frontends []model.FrontendStatus) []model.Problem {
	var problems []model.Problem
	for _, f := range frontends {
		if p, is := frontendProblem(f, l.frontends.find(f.FrontendKey).backends); is {
			problems = append(problems, p)
		}
	}
	for _, name := range l.sortedMachines() {
		if state, known := l.plane.server.Machine(name); seen(state, known) && state.Tunnel.GetMessage() != "" {
			problems = append(problems, model.Problem{
				Severity: model.SeverityWarning, Subject: model.Object{Kind: string(snapshot.KindMachine), Name: name}.String(),
				Reason: "Tunnel", Message: state.Tunnel.GetMessage(),
			})
		}
	}
	return problems
}

// countFrontends brings the metrics of frontends up to date.
func (l *loop) countFrontends() {
	states := map[string]float64{shownBalanced: 0, shownPending: 0, shownRefused: 0, shownIdle: 0}
	backends := map[string]float64{"available": 0, "standby": 0, "unavailable": 0}
	panicking := 0
	for _, e := range l.frontends.all() {
		if ill, _ := e.panics(); ill > 0 {
			panicking++
		}
		for _, b := range e.backends {
			if b.Standby > 0 {
				backends["standby"]++
				backends["unavailable"]--
			}
		}
	}
	l.plane.metrics.panicking.Set(float64(panicking))
	for _, f := range l.frontendStatuses() {
		states[f.State]++
		backends["available"] += float64(f.Available)
		backends["unavailable"] += float64(f.Backends - f.Available)
	}
	for state, n := range states {
		l.plane.metrics.frontends.WithLabelValues(state).Set(n)
	}
	for state, n := range backends {
		l.plane.metrics.backends.WithLabelValues(state).Set(n)
	}
}

// Backends are those of the frontends that a text names, with the figures of the machines
// that answer in time: a frontend ("tcp://192.0.2.1:80"), a VIP, or an owner as
// "NAMESPACE/NAME" or "KIND NAMESPACE/NAME"; all for an empty one.
func (p *Plane) Backends(ctx context.Context, of string) ([]model.BackendStatus, error) {
	figures := map[string]southbound.Figures{}
	if p.serving.Load() != 0 {
		figures = p.figures(ctx)
	}
	type found struct {
		rows    []model.BackendStatus
		matched bool
		names   []string
	}
	f, err := question(ctx, p, func(l *loop) (f found) {
		if f.rows, f.matched = l.backendStatuses(of, figures); !f.matched {
			f.names = l.frontendNames()
		}
		return f
	})
	switch {
	case err != nil || of == "" || f.matched:
	case len(f.names) == 0:
		err = console.None(fmt.Sprintf("no frontend matches %q: no frontend is balanced in the kernel", of))
	default:
		err = console.None(fmt.Sprintf("no frontend matches %q: want a frontend (tcp://VIP:PORT), a VIP, or NAMESPACE/NAME of its owner%s", of, near.DidYouMean(of, f.names)))
	}
	return f.rows, err
}

// frontendNames are what a frontend may be named by, each once.
func (l *loop) frontendNames() []string {
	names := map[string]bool{}
	for key, e := range l.frontends.all() {
		names[key.String()], names[key.VIP.String()] = true, true
		if o := e.frontend.Owner; o.Name != "" {
			names[o.Namespace+"/"+o.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// backendAt identifies a backend in figures.
type backendAt struct {
	frontend model.FrontendKey
	address  netip.AddrPort
	machine  string // of a proxy
}

func identify(key model.FrontendKey, address netip.AddrPort, machine string) backendAt {
	b := backendAt{frontend: key, address: address}
	if address.Addr() == key.VIP {
		b.machine = machine
	}
	return b
}

func (l *loop) backendStatuses(of string, figures map[string]southbound.Figures) (rows []model.BackendStatus, matched bool) {
	rows = []model.BackendStatus{}
	sums := map[backendAt]model.BackendFigures{}
	tables := map[model.FrontendKey]uint64{}
	told := map[model.FrontendKey]map[string]bool{}
	for machine, answer := range figures {
		for _, f := range answer.Frontends {
			if told[f.FrontendKey] == nil {
				told[f.FrontendKey] = map[string]bool{}
			}
			told[f.FrontendKey][machine] = true
			for _, b := range f.Backends {
				at := identify(f.FrontendKey, b.Address, b.Machine)
				sum := sums[at]
				sum.Packets, sum.Bytes, sum.NewFlows = sum.Packets+b.Packets, sum.Bytes+b.Bytes, sum.NewFlows+b.NewFlows
				sum.Flows, sum.Tunnelled, sum.Rows = sum.Flows+b.Flows, sum.Tunnelled+b.Tunnelled, sum.Rows+b.Rows
				sum.Owns, sum.Owned = sum.Owns || b.Owns, sum.Owned+b.Owned
				sums[at] = sum
				tables[f.FrontendKey] += uint64(b.Rows)
			}
		}
	}
	for key, e := range l.frontends.all() {
		if !e.frontend.Named(of) {
			continue
		}
		matched = true
		uncounted := l.uncounted(e, told[key])
		var total uint64
		for _, b := range e.backends {
			total += uint64(b.Weight)
		}
		for _, b := range e.backends {
			row := model.BackendStatus{
				Frontend: key, Owner: e.frontend.Owner, FrontendBackend: b,
				Percent: percent(uint64(b.Weight), total), Says: l.healthVotes(key, b), Drain: balance.Drain(e.frontend),
			}
			row.Uncounted = uncounted
			if sum, known := sums[identify(key, b.Address, b.Machine)]; known {
				row.Known, row.Flows, row.NewFlows, row.Packets, row.Bytes = true, flowsOf(sum), sum.NewFlows, sum.Packets, sum.Bytes
				row.RowsPercent = percent(uint64(sum.Rows), tables[key])
			}
			rows = append(rows, row)
		}
	}
	return rows, matched
}

// uncounted are the machines whose data planes have a frontend, and which have not told how many
// flows they have. Those that are lost are not among them.
func (l *loop) uncounted(e *frontendEntry, told map[string]bool) (machines []string) {
	for _, m := range e.at {
		state := l.peek(m)
		if !seen(state, l.machines[m] != nil) {
			continue
		}
		i, has := slices.BinarySearchFunc(state.Frontends, e.frontend.FrontendKey, func(o model.FrontendObserved, k model.FrontendKey) int { return o.Compare(k) })
		if has && state.Frontends[i].DataPlane != "" && state.Frontends[i].State.Carried() && !told[m] {
			machines = append(machines, m)
		}
	}
	return machines
}

// flowsOf are the flows that a backend has, each once, from the sum of what machines count.
// One that goes through a tunnel is known where it goes in and where it comes out, and may
// stand in the tables of several load balancers that routers moved it between: the machine
// of the backend knows best, if it counts.
func flowsOf(sum model.BackendFigures) uint64 {
	if !sum.Owns {
		return sum.Flows
	}
	return sum.Owned + sum.Flows - min(sum.Flows, sum.Tunnelled)
}

func percent(part, whole uint64) float64 {
	return math.Round(float64(part)*1000/float64(max(1, whole))) / 10
}

// Flows are those that the machines' flow tables have, or one machine's if it is named.
func (p *Plane) Flows(ctx context.Context, machine string, q model.FlowQuery) (model.FlowList, error) {
	out := model.FlowList{Flows: []model.FlowAt{}, Answered: []string{}}
	if p.serving.Load() == 0 {
		return out, errors.New("this plane does not lead: machines report to the leader, ask there")
	}
	names, err := question(ctx, p, (*loop).sortedMachines)
	if err != nil {
		return out, err
	}
	if machine != "" && !slices.Contains(names, machine) {
		return out, console.None(fmt.Sprintf("no Machine has the name %q%s", machine, near.DidYouMean(machine, names)))
	}
	answers, silent, err := p.flows(ctx, machine, q)
	switch {
	case err != nil:
		return out, err
	case len(answers) == 0 && len(silent) > 0:
		return out, errors.New("no flow table is known: " + unanswered(silent))
	}
	out.Silent = silent
	for _, name := range slices.Sorted(maps.Keys(answers)) {
		out.Answered = append(out.Answered, name)
		if answers[name].Truncated {
			out.Truncated = append(out.Truncated, name)
		}
		for _, f := range answers[name].Flows {
			out.Flows = append(out.Flows, model.FlowAt{At: name, Flow: f})
		}
	}
	slices.SortStableFunc(out.Flows, func(a, b model.FlowAt) int {
		return cmp.Or(a.Frontend.Compare(b.Frontend), a.Client.Compare(b.Client), cmp.Compare(a.At, b.At))
	})
	return out, nil
}
