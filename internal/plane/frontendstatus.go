package plane

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead.dev/internal/balance"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/plane/status"
	"fairlead.dev/internal/progress"
)

// frontendState is what one machine of a VIP does about a frontend of it.
type frontendState uint8

const (
	frontendDone frontendState = iota
	frontendWaiting
	frontendRefusedBy
	frontendUnheard
	frontendSilent
	frontendLost
)

// frontendAt says what a machine does about a frontend, and why it is not done.
func (l *loop) frontendAt(e *frontendEntry, machine string) (state frontendState, why string, seen model.FrontendObserved) {
	told := l.peek(machine)
	switch unheard, silent, lost := l.hearing(machine, told); {
	case silent:
		return frontendSilent, "", seen
	case lost:
		return frontendLost, "", seen
	case unheard:
		return frontendUnheard, "", seen
	}
	i, found := slices.BinarySearchFunc(told.Frontends, e.frontend.FrontendKey, func(o model.FrontendObserved, k model.FrontendKey) int {
		return o.Compare(k)
	})
	if found {
		seen = told.Frontends[i]
	}
	switch {
	case !reached(told, e.since):
		return frontendWaiting, "", seen
	case !found:
		return frontendWaiting, "it says nothing of it", seen
	case seen.State == model.FrontendRefused:
		return frontendRefusedBy, cmp.Or(seen.Message, "refused"), seen
	case seen.State != model.FrontendBalanced:
		return frontendWaiting, cmp.Or(seen.Message, string(seen.State)), seen
	}
	return frontendDone, "", seen
}

// balanced is how far machines balance frontends: every machine that has their VIPs and takes new
// flows must balance them.
func (l *loop) balanced(keys []model.FrontendKey) progress.Result {
	machines := map[string]frontendState{}
	why := map[string]string{}
	for _, key := range keys {
		e := l.frontends.find(key)
		if e == nil {
			continue
		}
		for _, m := range e.frontend.Machines {
			if known := l.machines[m]; known == nil || known.Cordoned {
				continue
			}
			s, reason, _ := l.frontendAt(e, m)
			if old, is := machines[m]; !is || s > old {
				machines[m] = s
				why[m] = reason
				if reason != "" && len(keys) > 1 {
					why[m] = key.String() + ": " + reason
				}
			}
		}
	}
	names := map[frontendState][]string{}
	for m, s := range machines {
		name := m
		switch {
		case why[m] != "" && s == frontendRefusedBy:
			name += ": " + why[m]
		case why[m] != "":
			name += " (" + why[m] + ")"
		}
		names[s] = append(names[s], name)
	}
	lost := names[frontendLost]
	v := progress.Result{Machines: len(machines) > 0, Lost: len(lost) > 0}
	done := len(names[frontendDone])
	switch {
	case len(names[frontendRefusedBy]) > 0:
		v.State, v.Kernel, v.Message = progress.Refused, true, model.List(names[frontendRefusedBy], "; ")
	case len(names[frontendUnheard]) > 0:
		v.State, v.Message = progress.Unknown, "waiting for the first report of "+model.List(names[frontendUnheard], ", ")
	case len(names[frontendWaiting]) > 0:
		v.State, v.Message = progress.Pending, "waiting for "+model.List(names[frontendWaiting], ", ")
	case done+len(lost) == 0 && len(names[frontendSilent]) > 0:
		v.State, v.Message = progress.Pending, "waiting for the first report of "+model.List(names[frontendSilent], ", ")
	case done+len(lost) == 0:
		v.State, v.Message = progress.Pending, "no machine has its address"
	case done == 0:
		v.State, v.Message = progress.Pending, "no machine that has its address is connected"
	default:
		v.State, v.Message = progress.Programmed, "every machine concerned balances it"
	}
	if len(lost) > 0 && v.State != progress.Unknown {
		v.Message += "; lost: " + model.List(lost, ", ")
	}
	return v
}

// idle names the frontends of which nothing takes new flows.
func (l *loop) idle(keys []model.FrontendKey) (idle []model.FrontendKey) {
	for _, key := range keys {
		if e := l.frontends.find(key); e != nil && l.available(e) == 0 {
			idle = append(idle, key)
		}
	}
	return idle
}

const (
	noneTakes   = "no backend takes new flows"
	noneIsLocal = "no backend on a machine that is to announce the VIP takes new flows (externalTrafficPolicy: Local)"
)

// available counts the backends that take new flows: with externalTrafficPolicy: Local those on
// machines that are to announce the VIP.
func (l *loop) available(e *frontendEntry) int {
	if !e.frontend.LocalOnly {
		return balance.Available(e.backends)
	}
	return balance.Available(slices.DeleteFunc(slices.Clone(e.backends), func(b model.FrontendBackend) bool {
		m := l.machines[b.Machine]
		if m == nil || m.Cordoned || !slices.Contains(e.frontend.Machines, b.Machine) {
			return true
		}
		_, silent, _ := l.hearing(b.Machine, l.peek(b.Machine))
		return silent // it has never reported
	}))
}

// hasBackendAt says that a backend is on a machine, though it may take no new flows at the moment.
func (e *frontendEntry) hasBackendAt(machine string) bool {
	return slices.ContainsFunc(e.backends, func(b model.FrontendBackend) bool { return b.Machine == machine })
}

// idleText words why nothing takes new flows, and of which frontends; empty for none.
func (l *loop) idleText(idle []model.FrontendKey) string {
	if len(idle) == 0 {
		return ""
	}
	var none, local, parts []string
	for _, key := range idle {
		if l.frontends.find(key).frontend.LocalOnly {
			local = append(local, key.String())
		} else {
			none = append(none, key.String())
		}
	}
	if len(local) > 0 {
		parts = append(parts, model.List(local, ", ")+": "+noneIsLocal)
	}
	if len(none) > 0 {
		parts = append(parts, noneTakes+" of "+model.List(none, ", "))
	}
	return strings.Join(parts, "; ") + l.failing(idle...)
}

// failingAsked is how many backends that fail are asked about the cause.
const failingAsked = 64

// failing says how many backends of frontends fail their checks, and what most checks of the first
// failingAsked of them found; empty where none fails.
func (l *loop) failing(keys ...model.FrontendKey) string {
	found := map[string]int{}
	ill, of := 0, 0
	for _, key := range keys {
		e := l.frontends.find(key)
		if e == nil {
			continue
		}
		for _, b := range e.backends {
			if of++; b.Health != model.Unhealthy {
				continue
			}
			if ill++; ill > failingAsked {
				continue
			}
			for _, said := range l.healthVotes(key, b) {
				if said.Health == model.Unhealthy && said.Message != "" {
					found[said.Message]++
				}
			}
		}
	}
	if ill == 0 {
		return ""
	}
	text := fmt.Sprintf(": %d of %d backends are unhealthy", ill, of)
	var most string
	for _, what := range slices.Sorted(maps.Keys(found)) {
		if found[what] > found[most] {
			most = what
		}
	}
	if most != "" {
		text += status.Quote(most)
	}
	return text
}

// healthVotes are the votes on a backend for people, sorted by machine.
func (l *loop) healthVotes(key model.FrontendKey, b model.FrontendBackend) []model.HealthSaid {
	votes := l.health.Votes(health.User{Frontend: key}, b.Address)
	if !l.frontends.isAway(b.Machine) || b.Proxy(key) || b.Health == model.Healthy {
		return votes
	}
	at := slices.IndexFunc(votes, func(v model.HealthSaid) bool { return v.Machine == "" || v.Machine >= b.Machine })
	if at < 0 {
		at = len(votes)
	}
	return slices.Insert(votes, at, model.HealthSaid{Machine: b.Machine, Health: model.HealthUnknown, Message: "the machine is lost, and the backend with it"})
}
