package health

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	elect "fairlead.dev/internal/verdict"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// Checks knows which machine checks which backend, and each backend's health. Its inputs are
// the backends that groups and frontends use (Use), the machines that can check (Members) and
// their results (Report). Its outputs are the checks to send to machines (Flush) and the users
// whose backends have another health (Judge).
//
// Groups and frontends that want the same check share it: its ID says what it asks.
type Checks struct {
	checks   map[string]*checked
	users    map[User]map[netip.AddrPort]*checked
	backends map[netip.AddrPort]map[*checked]bool
	machines []string // that check, sorted
	found    map[string]map[string]model.CheckResult
	ejected  map[string]map[netip.AddrPort][]model.GroupID // machine -> backend -> whose requests fail there
	unjudged map[*checked]bool
	turned   map[model.Health]int // verdicts that became others, since they were counted
	ration   ration
	send     map[string]map[string]*checked // machine -> ID; nil: it is not to check it any more
}

// User is a group, or a frontend, whose backends are checked.
type User struct {
	Group    model.GroupID
	Frontend model.FrontendKey
}

// Wanted is how a user has a backend checked.
type Wanted struct {
	model.Check
	At    string // the machine that the backend is on, if it is known
	Owner string // namespace of the Service that the backend is of; empty: of Services of several
}

// New is without checks and machines.
func New() *Checks {
	return &Checks{
		checks: map[string]*checked{}, users: map[User]map[netip.AddrPort]*checked{}, backends: map[netip.AddrPort]map[*checked]bool{},
		found: map[string]map[string]model.CheckResult{}, ejected: map[string]map[netip.AddrPort][]model.GroupID{},
		ration: newRation(), unjudged: map[*checked]bool{}, turned: map[model.Health]int{}, send: map[string]map[string]*checked{},
	}
}

// Use replaces the checks of a user's backends; none takes them back.
func (h *Checks) Use(u User, checks map[netip.AddrPort]Wanted) {
	before := h.users[u]
	after := make(map[netip.AddrPort]*checked, len(checks))
	for backend, w := range checks {
		c := h.checks[w.ID]
		if c == nil {
			c = &checked{
				Check: w.Check, uses: map[checkUse]string{}, owners: map[string]int{}, backends: map[netip.AddrPort]int{},
				health: model.HealthUnknown, ejectors: map[string]bool{}, rationed: map[string]bool{}, at: w.At,
			}
			h.checks[w.ID] = c
			if !c.Presumed { // of others the ration decides, when it is known whose they are
				h.assign(c)
			}
		} else if w.At != "" && c.at != w.At {
			c.at = w.At
			h.assign(c)
		}
		after[backend] = c
		if h.backends[backend] == nil {
			h.backends[backend] = map[*checked]bool{}
		}
		h.backends[backend][c] = true
		h.note(c, checkUse{u, backend}, w.Owner)
	}
	for backend, c := range before {
		if after[backend] != c {
			h.forget(c, checkUse{u, backend})
		}
	}
	if len(after) > 0 {
		h.users[u] = after
	} else {
		delete(h.users, u)
	}
}

// note has a use of the check be.
func (h *Checks) note(c *checked, use checkUse, owner string) {
	was, is := c.uses[use]
	if is && was == owner {
		return
	}
	if !is {
		c.backends[use.backend]++
	}
	c.uses[use] = owner
	if c.owners[owner]++; c.owners[owner] == 1 {
		h.own(c, owner)
	}
	if is {
		h.disown(c, was)
	}
	h.countEjections(c)
}

// forget has a use of the check be no more, and the check when nobody uses it.
func (h *Checks) forget(c *checked, use checkUse) {
	h.disown(c, c.uses[use])
	decrease(c.backends, use.backend)
	delete(c.uses, use)
	if c.backends[use.backend] == 0 {
		delete(h.backends[use.backend], c)
		if len(h.backends[use.backend]) == 0 {
			delete(h.backends, use.backend)
		}
	}
	if len(c.uses) > 0 {
		h.countEjections(c)
		return
	}
	for _, m := range c.checkers {
		h.tell(m, c.ID, nil)
	}
	delete(h.checks, c.ID)
	delete(h.unjudged, c)
}

// Members are the machines that can check, sorted. What they check moves as little as it
// can.
func (h *Checks) Members(machines []string) {
	if slices.Equal(h.machines, machines) {
		return
	}
	for _, m := range h.machines {
		if _, still := slices.BinarySearch(machines, m); !still {
			h.eject(m, nil, time.Time{}) // it votes no more
		}
	}
	h.machines = slices.Clone(machines)
	h.ration.stale = true
	for _, c := range h.checks {
		h.assign(c)
	}
}

// Report replaces a machine's results and the backends that its proxy holds for failed. now is of
// a clock that nobody sets. It returns the frontends with checks that fail as before, and for another
// reason.
func (h *Checks) Report(machine string, results []model.CheckResult, ejected []model.Ejection, now time.Time) (reworded map[model.FrontendKey]bool) {
	before := h.found[machine]
	after := make(map[string]model.CheckResult, min(len(results), len(h.checks)))
	note := func(id string) {
		if c := h.checks[id]; c.has(machine) {
			h.unjudged[c] = true
		}
	}
	for _, r := range results {
		c := h.checks[r.ID]
		if c == nil {
			continue // nobody asks for it, or not any more
		}
		after[r.ID] = r
		switch old := before[r.ID]; {
		case old.Health != r.Health || old.First != r.First:
			note(r.ID)
		case r.Health == model.Unhealthy && !sameCause(old.Message, r.Message) && c.has(machine):
			for use := range c.uses {
				if use.Group == "" {
					if reworded == nil {
						reworded = map[model.FrontendKey]bool{}
					}
					reworded[use.Frontend] = true
				}
			}
		}
	}
	for id := range before {
		if _, still := after[id]; !still {
			note(id)
		}
	}
	if h.found[machine] = after; len(after) == 0 {
		delete(h.found, machine)
	}
	h.eject(machine, ejected, now)
	return reworded
}

// sameCause says that two checks failed for one reason. What is quoted is an answer, which may be
// another one each time.
func sameCause(a, b string) bool {
	a, _, _ = strings.Cut(a, `"`)
	b, _, _ = strings.Cut(b, `"`)
	return a == b
}

// eject replaces the backends that a machine's proxy holds for failed. All their checkers check
// them at once.
func (h *Checks) eject(machine string, ejected []model.Ejection, now time.Time) {
	before, after := h.ejected[machine], make(map[netip.AddrPort][]model.GroupID, len(ejected))
	for _, e := range ejected {
		after[e.Backend] = append(after[e.Backend], e.Group)
	}
	if len(after) > 0 {
		h.ejected[machine] = after
	} else {
		delete(h.ejected, machine)
	}
	for b, groups := range after {
		if slices.Equal(before[b], groups) {
			continue
		}
		for c := range h.backends[b] {
			h.countEjections(c)
			if len(before[b]) > 0 || !c.mayPrompt(machine, now) {
				continue
			}
			c.Prompt++
			for _, m := range c.checkers {
				h.tell(m, c.ID, c)
			}
		}
	}
	for b := range before {
		if len(after[b]) == 0 {
			for c := range h.backends[b] {
				h.countEjections(c)
			}
		}
	}
}

// countEjections looks anew at whose proxies hold a backend of the check for failed.
func (h *Checks) countEjections(c *checked) {
	h.unjudged[c] = true
	clear(c.ejectors)
	for m, ejected := range h.ejected {
		for backend := range c.backends {
			if slices.ContainsFunc(ejected[backend], c.counts) {
				c.ejectors[m] = true
			}
		}
	}
}

// votes are what the checkers found, and the ejections that count: each is the failing vote of
// its machine, once a checker has voted. A machine whose first answer was a bad one has no vote before it
// is sure: it may be its own fault.
func (h *Checks) votes(c *checked) map[string]model.Health {
	votes := make(map[string]model.Health, len(c.checkers)+len(c.ejectors))
	for _, m := range c.checkers {
		if r, has := h.found[m][c.ID]; has && !r.First {
			votes[m] = r.Health
		}
	}
	if !answered(votes) {
		return nil
	}
	for m := range c.ejectors {
		votes[m] = model.Unhealthy
	}
	return votes
}

// answered says that a vote counts.
func answered(votes map[string]model.Health) bool {
	for _, v := range votes {
		if v == model.Healthy || v == model.Unhealthy {
			return true
		}
	}
	return false
}

// Judge counts the votes where they changed, and returns whose backends have another
// health now.
func (h *Checks) Judge() map[User]bool {
	if len(h.unjudged) == 0 && !h.ration.stale {
		return nil
	}
	users := map[User]bool{}
	turned := h.share()
	for c := range h.unjudged {
		delete(h.unjudged, c)
		after := elect.Of(h.votes(c), c.health)
		if c.off() {
			after = model.HealthUnknown
		}
		if after == c.health && !turned[c] {
			continue
		}
		if after != c.health {
			c.health = after
			h.turned[after]++
		}
		for use := range c.uses {
			users[use.User] = true
		}
	}
	return users
}

// Flush returns the checks that machines are to be sent, by machine. A check that cannot be
// encoded does not keep the others back.
func (h *Checks) Flush() (map[string][]delta.Change, error) {
	var failed error
	changes := make(map[string][]delta.Change, len(h.send))
	for machine, checks := range h.send {
		for _, id := range slices.Sorted(maps.Keys(checks)) {
			change := delta.Change{Type: agentv1.CheckType, Name: id}
			if c := checks[id]; c != nil {
				r, err := delta.NewResource(id, wire.Check(c.Check))
				if err != nil {
					failed = cmp.Or(failed, err)
					continue
				}
				change.Resource = &r
			}
			changes[machine] = append(changes[machine], change)
		}
	}
	clear(h.send)
	return changes, failed
}

// Told says that every machine has been sent its checks.
func (h *Checks) Told() bool { return len(h.send) == 0 }

// Of is what is known of a user's backend, and the ID of its check.
func (h *Checks) Of(u User, backend netip.AddrPort) (model.Health, string) {
	if c := h.users[u][backend]; c != nil && !c.off() {
		return c.health, c.ID
	}
	return model.HealthUnchecked, ""
}
