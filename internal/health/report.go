package health

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// reasonNotChecked is said of a namespace with more backends than are checked without being asked
// for.
const reasonNotChecked = "BackendsNotChecked"

// AllUnhealthy says whether every backend of a set that takes requests is unhealthy for a user,
// with the result of a check of the first.
func (h *Checks) AllUnhealthy(u User, s *model.BackendSet) (what string, all bool) {
	state, none := s.Accepting()
	if none || len(h.users[u]) == 0 {
		return "", false
	}
	for _, b := range s.Backends {
		if b.State != state {
			continue
		}
		c := h.users[u][b.Address]
		if c == nil || c.health != model.Unhealthy {
			return "", false
		}
		if what != "" {
			continue
		}
		what = b.Address.String()
		for _, m := range c.checkers {
			if r := h.found[m][c.ID]; r.Health == model.Unhealthy {
				what += ": " + r.Message + " (" + m + ")"
				break
			}
		}
	}
	return what, true
}

// Votes are the votes on a user's backend for people, sorted by machine. A machine has one vote:
// that of its proxy, if the proxy sees requests fail.
func (h *Checks) Votes(u User, backend netip.AddrPort) []model.HealthSaid {
	c := h.users[u][backend]
	if c == nil {
		return nil
	}
	if why := c.notChecked(); why != "" {
		return []model.HealthSaid{{Message: "not checked: " + why}}
	}
	var votes []model.HealthSaid
	for _, m := range c.checkers {
		if r, has := h.found[m][c.ID]; has && !c.ejectors[m] {
			votes = append(votes, model.HealthSaid{Machine: m, Health: r.Health, Message: r.Message})
		}
	}
	for m := range c.ejectors {
		message := "its proxy sees requests fail"
		if h.found[m][c.ID].Health == model.Healthy && slices.Contains(c.checkers, m) {
			message += ", though its check is answered well"
		}
		votes = append(votes, model.HealthSaid{Machine: m, Health: model.Unhealthy, Passive: true, Message: message})
	}
	slices.SortStableFunc(votes, func(a, b model.HealthSaid) int { return strings.Compare(a.Machine, b.Machine) })
	return votes
}

// Tally is the state of all checks in numbers.
type Tally struct {
	Checks  map[model.Health]int // by the backend's health
	Turned  map[model.Health]int // checks whose backend came to have this health, since the last count
	Off     int                  // checks that nobody makes
	Ejected int                  // backends that some proxy holds for failed
}

// Count counts the checks.
func (h *Checks) Count() Tally {
	t := Tally{Checks: map[model.Health]int{}, Turned: h.turned}
	h.turned = map[model.Health]int{}
	for _, c := range h.checks {
		if c.off() {
			t.Off++
			continue
		}
		t.Checks[c.health]++
	}
	out := map[netip.AddrPort]bool{}
	for _, backends := range h.ejected {
		for b := range backends {
			out[b] = true
		}
	}
	t.Ejected = len(out)
	return t
}

// Problems are the namespaces of which not all backends are checked.
func (h *Checks) Problems() []model.Problem {
	var problems []model.Problem
	for _, namespace := range slices.Sorted(maps.Keys(h.ration.shares)) {
		s := h.ration.shares[namespace]
		without, first := 0, ""
		for _, c := range s.list[s.edge:] {
			if c == nil || !c.off() {
				continue
			}
			if without++; without == 1 {
				first = c.Target.String()
			}
		}
		if without == 0 {
			continue
		}
		subject := "Backends of several namespaces"
		if namespace != "" {
			subject = model.Object{Kind: string(snapshot.KindNamespace), Name: namespace}.String()
		}
		problems = append(problems, model.Problem{
			Severity: model.SeverityWarning, Subject: subject, Reason: reasonNotChecked,
			Message: fmt.Sprintf("%d of %d backends are not checked, such as %s, as there are more without a healthCheck of a policy than the machines check: a dead one gets connections until its EndpointSlice says so",
				without, len(s.at), first),
		})
	}
	return problems
}

// notChecked is the reason why a backend is not checked that should be; empty: it is checked.
func (c *checked) notChecked() string {
	if c == nil || !c.off() {
		return ""
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(c.owners)), func(name string) bool { return name == "" })
	if len(names) == 0 {
		return "too many backends without a healthCheck of a policy"
	}
	return "too many backends without a healthCheck of a policy in namespace " + strings.Join(names, ", ")
}
