package health

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/internal/model"
	elect "fairlead.dev/internal/verdict"
)

// checked is a check with its checkers.
type checked struct {
	model.Check
	uses     map[checkUse]string    // -> owner
	owners   map[string]int         // uses by owner
	backends map[netip.AddrPort]int // uses by backend
	checkers []string
	health   model.Health
	at       string // the machine that the backend is on, if it is known
	// rationed are the namespaces that spend a slot on the check; only presumed checks need one.
	rationed map[string]bool
	// ejectors are the machines whose proxies hold the backend for failed, if that counts.
	ejectors map[string]bool
	prompted map[string]time.Time // when a machine's report last had all that check do so at once
}

// checkUse is one backend of a user.
type checkUse struct {
	User
	backend netip.AddrPort
}

// promptPause is how long a check is not asked for at once again for the same machine: it may report what it
// likes, and takes nothing from what others report.
const promptPause = 5 * time.Second

// has says whether the check is, and the machine is to do it.
func (c *checked) has(machine string) bool { return c != nil && slices.Contains(c.checkers, machine) }

// off says that nobody checks: there are too many checks that nobody asked for.
func (c *checked) off() bool { return c.Presumed && len(c.rationed) == 0 }

// counts says that what proxies see of requests of a group has a vote. An address tells nothing
// of whose it is: who routes requests to another namespace's backends must not take them out.
func (c *checked) counts(g model.GroupID) bool {
	owner := g.Namespace()
	return !c.Presumed && len(c.owners) == 1 && owner != "" && c.owners[owner] > 0
}

// mayPrompt says whether a machine's report may have the check done at once, and notes that it had.
func (c *checked) mayPrompt(machine string, now time.Time) bool {
	maps.DeleteFunc(c.prompted, func(_ string, at time.Time) bool { return now.Sub(at) >= promptPause })
	if _, paused := c.prompted[machine]; paused {
		return false
	}
	if c.prompted == nil {
		c.prompted = map[string]time.Time{}
	}
	c.prompted[machine] = now
	return true
}

// decrease counts one less, and nothing where none is left.
func decrease[K comparable](counts map[K]int, k K) {
	if counts[k]--; counts[k] == 0 {
		delete(counts, k)
	}
}

// assign chooses who checks. Of a presumed check it is not the backend's own machine where
// there is another: when that vanishes its last result would count until it is lost, and would weigh
// as much as that of another one that asks in vain.
func (h *Checks) assign(c *checked) {
	machines := h.machines
	if i, is := slices.BinarySearch(machines, c.at); is && c.Presumed && len(machines) > 1 {
		machines = slices.Delete(slices.Clone(machines), i, i+1)
	}
	var after []string
	if !c.off() {
		after = elect.Checkers(c.ID, machines, elect.Count)
	}
	slices.Sort(after)
	if slices.Equal(c.checkers, after) {
		return
	}
	for _, m := range c.checkers {
		if !slices.Contains(after, m) {
			h.tell(m, c.ID, nil)
		}
	}
	for _, m := range after {
		if !slices.Contains(c.checkers, m) {
			h.tell(m, c.ID, c)
		}
	}
	c.checkers = after
	h.unjudged[c] = true
}

// tell notes what a machine is to be sent.
func (h *Checks) tell(machine, id string, c *checked) {
	if h.send[machine] == nil {
		h.send[machine] = map[string]*checked{}
	}
	h.send[machine][id] = c
}
