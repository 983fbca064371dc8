package plane

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/version"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// States of a machine, labels of metrics.
const (
	machineReady    = "ready"
	machineCordoned = "cordoned"
	machineWaiting  = "waiting" // may still report to this plane for the first time
	machineLost     = "lost"
	machineSilent   = "never_seen"
	machineNoProxy  = "proxy_not_ready"
)

// status is what the plane knows now, for people.
func (l *loop) status() model.Status {
	s := model.Status{
		Plane:    l.plane.planeStatus(l.rev.Number, l.history.FreezeStatus()),
		Machines: []model.MachineStatus{}, Listeners: []model.ListenerStatus{}, Routes: []model.RouteStatus{}, Problems: []model.Problem{},
	}
	for _, name := range l.sortedMachines() {
		s.Machines = append(s.Machines, l.machineStatus(name))
		s.Problems = append(s.Problems, l.machineProblems(name)...)
	}
	for _, id := range l.catalog.ListenerIDs() {
		listener := l.catalog.Listener(id)
		s.Listeners = append(s.Listeners, model.ListenerStatus{
			ID: id, Port: listener.Port, Protocol: listener.Protocol, Hosts: l.catalog.HostCount(id), Machines: l.servingMachines(id),
		})
	}
	for _, o := range slices.SortedFunc(maps.Keys(l.statuses), model.Object.Compare) {
		state, reason, message := l.objectState(o)
		if r, is := snapshot.ResourceOf(snapshot.Kind(o.Kind)); is && r.Route {
			s.Routes = append(s.Routes, model.RouteStatus{
				Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Hosts: hostsOf(l.statuses[o]), State: state, Message: message,
			})
		}
		switch state {
		case status.StateInvalid, status.StateDegraded:
			s.Problems = append(s.Problems, model.Problem{Severity: model.SeverityError, Subject: o.String(), Reason: reason, Message: message})
		case status.StatePending:
			if !s.Plane.Leading {
				continue // what machines run is the leader's to know
			}
			fallthrough
		case status.StateOrphaned:
			s.Problems = append(s.Problems, model.Problem{Severity: model.SeverityWarning, Subject: o.String(), Reason: reason, Message: message})
		}
	}
	s.OfOthers = l.translator.CountOthers()
	s.VIPs, s.Sessions = l.vipStatuses(), l.sessionStatuses()
	if s.Plane.Leading {
		s.Problems = append(s.Problems, networkProblems(s.VIPs, s.Sessions)...)
	}
	s.Frontends = l.frontendStatuses()
	if s.Plane.Leading {
		s.Problems = append(s.Problems, l.frontendProblems(s.Frontends)...)
	}
	if s.Plane.Leading {
		upstreams, problems := l.upstreamSummary()
		s.Upstreams, s.Problems = upstreams, append(s.Problems, problems...)
	}
	s.Certificates = l.certificates.statuses()
	s.Problems = append(s.Problems, l.certificates.problems(l.plane.config.Now())...)
	s.Problems = append(s.Problems, l.catalog.EmptySets()...)
	s.Problems = append(s.Problems, l.health.Problems()...)
	s.Problems = append(s.Problems, translate.Unclaimed(l.snapshot, l.plane.config.Translate.ControllerName)...)
	s.Problems = append(s.Problems, l.catalog.UnfitProblems()...)
	s.Problems = append(s.Problems, l.sourceProblems()...)
	s.Problems = append(s.Problems, l.plane.trust.problems()...)
	slices.SortStableFunc(s.Problems, func(a, b model.Problem) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Subject, b.Subject))
	})
	return s
}

func (p *Plane) planeStatus(revision uint64, f *model.FreezeStatus) model.PlaneStatus {
	t := p.lease.current()
	leading := p.serving.Load() != 0
	ending := !leading && p.ended.Load()
	console := t.Console
	if t.Held {
		console = ""
	}
	return model.PlaneStatus{
		LeaderConsole: console,
		Version:       version.String(), Identity: p.config.Identity, Started: p.started,
		Leading: leading, Starting: t.Held && !leading && !ending, Ending: ending, Leader: t.Leader, Epoch: t.Epoch, Revision: revision, Freeze: f,
	}
}

func (l *loop) machineStatus(name string) model.MachineStatus {
	m := l.machines[name]
	state, _ := l.plane.server.Machine(name)
	addresses := []string{}
	if live := l.snapshot.Machines[snapshot.Name{Name: name}]; live != nil {
		addresses = append(addresses, l.holding(live, state).held...)
	}
	problems := make([]*agentv1.Problem, 0, len(state.Problems))
	for _, p := range state.Problems {
		problems = append(problems, &agentv1.Problem{Kind: p.Kind, TypeUrl: string(p.Type), Name: p.Name, Version: p.Version, Message: p.Message})
	}
	var announces []netip.Addr
	for _, v := range state.VIPs {
		if v.State == model.VIPAnnounced {
			announces = append(announces, v.Address)
		}
	}
	return model.MachineStatus{
		Announces: announces, JustCame: l.justCame(state), Name: name, Connected: state.Connected && !state.Lost, LastReport: state.LastReport, Cordoned: m.Cordoned,
		Addresses: addresses, AgentVersion: state.AgentVersion, Proxy: wire.Proxy(state.Proxy),
		Applied: state.Applied.Number, Delivered: state.Delivered.Number, Wanted: state.Wanted.Number,
		Refused: wire.Refused(problems),
	}
}

// machineState is a machine's state as one word.
func (l *loop) machineState(name string) string {
	s := l.tracker.Machine(name)
	state, _ := l.plane.server.Machine(name)
	switch {
	case s == nil || s.Unheard:
		return machineWaiting
	case s.Silent:
		return machineSilent
	case s.Lost:
		return machineLost
	case !serves(state.Proxy) && !unproxied(state.Proxy) && !l.hostsOnly(name):
		return machineNoProxy
	case s.Cordoned:
		return machineCordoned
	}
	return machineReady
}

func (l *loop) machineProblems(name string) (problems []model.Problem) {
	live := l.snapshot.Machines[snapshot.Name{Name: name}]
	if live == nil {
		return nil
	}
	note := func(severity model.Severity, c metav1.Condition) {
		if c.Status != metav1.ConditionTrue {
			subject := model.Object{Kind: string(snapshot.KindMachine), Name: name}.String()
			problems = append(problems, model.Problem{Severity: severity, Subject: subject, Reason: c.Reason, Message: c.Message})
		}
	}
	ready, state, known := l.machineReady(live)
	if known {
		note(model.SeverityError, ready)
	}
	// Before its trials have ended a machine lacks nothing yet; agents of earlier versions have none.
	if held := l.addressesHeld(live, l.holding(live, state)); known && (state.Proved || held.Reason == v1alpha1.MachineReasonContested) {
		note(model.SeverityWarning, held)
	}
	return problems
}

func hostsOf(s *translate.Status) []string {
	hosts := []string{}
	for _, k := range s.Hosts {
		if !slices.Contains(hosts, k.Host) {
			hosts = append(hosts, k.Host)
		}
	}
	return hosts
}

// sourceProblems is what is wrong with the API itself.
func (l *loop) sourceProblems() []model.Problem {
	var problems []model.Problem
	if missing := l.plane.source.Missing(); len(missing) > 0 {
		names := make([]string, len(missing))
		for i, k := range missing {
			names[i] = string(k)
		}
		problems = append(problems, model.Problem{
			Severity: model.SeverityWarning, Subject: "API " + l.plane.config.REST.Host, Reason: "KindsMissing",
			Message: "the API does not serve " + strings.Join(names, ", ") + ": install their custom resource definitions",
		})
	}
	trouble := l.plane.source.Trouble()
	if kinds := slices.Sorted(maps.Keys(trouble)); len(kinds) > 0 {
		problems = append(problems, model.Problem{
			Severity: model.SeverityError, Subject: "API " + l.plane.config.REST.Host, Reason: "Away",
			Message: "the API does not answer, machines keep the known configuration: " + trouble[kinds[0]],
		})
	}
	unreadable := l.plane.source.Unreadable()
	for _, k := range slices.SortedFunc(maps.Keys(unreadable), func(a, b snapshot.Key) int { return strings.Compare(a.String(), b.String()) }) {
		problems = append(problems, model.Problem{
			Severity: model.SeverityError, Subject: k.String(), Reason: "Unreadable",
			Message: "the API has it as no version of it can be: it is as it was before, or left out, until it is mended or deleted: " + unreadable[k],
		})
	}
	if t := l.plane.lease.current(); t.Held && !t.Renewing {
		problems = append(problems, model.Problem{
			Severity: model.SeverityWarning, Subject: "Plane " + l.plane.config.Identity, Reason: "LeaseNotRenewed",
			Message: "the lease cannot be renewed; machines are served, statuses are not written",
		})
	}
	if err := l.plane.keeper.healthy(); err != nil {
		problems = append(problems, model.Problem{
			Severity: model.SeverityWarning, Subject: "Plane " + l.plane.config.Identity, Reason: "RevisionsNotKept",
			Message: "`fairlead rollback` works, but not past a restart of this plane: " + err.Error(),
		})
	}
	return problems
}

// count brings the metrics of machines, certificates and objects up to date.
func (l *loop) count() {
	m := l.plane.metrics
	machines := map[string]float64{machineReady: 0, machineCordoned: 0, machineWaiting: 0, machineLost: 0, machineSilent: 0, machineNoProxy: 0}
	for name := range l.machines {
		machines[l.machineState(name)]++
	}
	for state, n := range machines {
		m.machines.WithLabelValues(state).Set(n)
	}
	l.countNetwork()
	l.countFrontends()
	l.countChecks()
	l.certificates.count(m, l.plane.config.Now())
	l.counts.show(m)
	l.pools.show(m)
}
