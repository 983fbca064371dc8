package health

import (
	"maps"
	"slices"

	"fairlead.dev/internal/model"
	elect "fairlead.dev/internal/verdict"
)

// rationedChecks is how many checks that nobody asked for a machine has, on average: it asks a
// thousand a second, so each in ten.
const rationedChecks = 10_000

// ration shares the checks that nobody asked for among the namespaces of the backends. Where
// there are more of them than the machines have slots, each namespace has a fair share of
// the slots, and its oldest checks have them.
type ration struct {
	perMachine int               // rationedChecks, but in tests
	shares     map[string]*share // by namespace
	level      int               // slots of one namespace
	stale      bool
	// turned are the checks that got their first slot or lost their last one, since share.
	turned map[*checked]bool
}

// share are the checks of one namespace. list is in order of arrival, with gaps (nil); the
// checks before edge have a slot.
type share struct {
	list   []*checked
	at     map[*checked]int // -> where in list
	filled int
	edge   int
}

func newRation() ration {
	return ration{perMachine: rationedChecks, shares: map[string]*share{}, level: rationedChecks, turned: map[*checked]bool{}}
}

// own notes that a check is of a namespace, too. It gets a slot at once if the namespace has one
// left.
func (h *Checks) own(c *checked, namespace string) {
	if !c.Presumed {
		return
	}
	s := h.ration.shares[namespace]
	if s == nil {
		s = &share{at: map[*checked]int{}}
		h.ration.shares[namespace] = s
	}
	s.at[c] = len(s.list)
	s.list = append(s.list, c)
	h.ration.stale = true
	if h.fill(namespace, s, h.ration.level); len(c.uses) == 1 {
		delete(h.ration.turned, c) // its only user has not asked yet
	}
}

// disown takes back a use of a check by a namespace.
func (h *Checks) disown(c *checked, namespace string) {
	decrease(c.owners, namespace)
	if !c.Presumed || c.owners[namespace] > 0 {
		return
	}
	s := h.ration.shares[namespace]
	at := s.at[c]
	delete(s.at, c)
	s.list[at] = nil
	if at < s.edge {
		s.filled--
	}
	if len(s.at) == 0 {
		delete(h.ration.shares, namespace)
	} else if len(s.list) > 2*len(s.at) {
		s.compact()
	}
	h.ration.stale = true
	h.move(c, namespace, false)
}

// compact leaves the gaps out.
func (s *share) compact() {
	s.list = slices.DeleteFunc(s.list, func(c *checked) bool { return c == nil })
	for i, c := range s.list {
		s.at[c] = i
	}
	s.edge = s.filled
}

// fill gives a namespace's slots to its oldest checks.
func (h *Checks) fill(namespace string, s *share, slots int) {
	slots = min(slots, len(s.at))
	for ; s.filled < slots; s.edge++ {
		if c := s.list[s.edge]; c != nil {
			s.filled++
			h.move(c, namespace, true)
		}
	}
	for s.filled > slots {
		s.edge--
		if c := s.list[s.edge]; c != nil {
			s.filled--
			h.move(c, namespace, false)
		}
	}
}

// move notes that a check has a slot of a namespace, or none any more, and tells the machines.
func (h *Checks) move(c *checked, namespace string, has bool) {
	if c.rationed[namespace] == has {
		return
	}
	off := c.off()
	if has {
		c.rationed[namespace] = true
	} else {
		delete(c.rationed, namespace)
	}
	c.Namespaces = slices.Sorted(maps.Keys(c.rationed))
	if c.off() != off {
		h.ration.turned[c], h.unjudged[c] = true, true
		h.assign(c)
		return
	}
	for _, m := range c.checkers {
		h.tell(m, c.ID, c)
	}
}

// share gives each namespace its slots, and returns the checks that got their first slot or lost
// their last one.
func (h *Checks) share() map[*checked]bool {
	r := &h.ration
	if r.stale {
		r.stale = false
		wants := make([]int, 0, len(r.shares))
		for _, s := range r.shares {
			wants = append(wants, len(s.at))
		}
		r.level = model.FairShare(r.perMachine*max(elect.Count, len(h.machines))/elect.Count, wants)
		for _, namespace := range slices.Sorted(maps.Keys(r.shares)) {
			h.fill(namespace, r.shares[namespace], r.level)
		}
	}
	turned := r.turned
	r.turned = map[*checked]bool{}
	return turned
}
