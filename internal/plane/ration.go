package plane

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	elect "fairlead.dev/internal/verdict"
)

// rationedChecks is how many checks that nobody asked for a machine has, on average: it asks a
// thousand a second, so each in ten.
const rationedChecks = 10_000

// reasonNotChecked is said of a namespace with more backends than are checked without being asked
// for.
const reasonNotChecked = "BackendsNotChecked"

// ration shares the checks that nobody asked for among the namespaces of the backends. Where
// there are more of them than the machines have places for, each namespace has a fair share of
// the places, and of its checks the oldest have one.
type ration struct {
	perMachine int               // rationedChecks, but in tests
	shares     map[string]*share // by namespace
	level      int               // places of one namespace
	stale      bool
	// turned are those that got their first place or lost their last one, since they were asked for.
	turned map[*checked]bool
}

// share are the checks of one namespace. list is in order of arrival, with gaps (nil); those
// before edge have a place.
type share struct {
	list   []*checked
	at     map[*checked]int // -> where in list
	placed int
	edge   int
}

func newRation() ration {
	return ration{perMachine: rationedChecks, shares: map[string]*share{}, level: rationedChecks, turned: map[*checked]bool{}}
}

// own notes that a check is of a namespace, too. It gets a place at once if the namespace has one
// left.
func (h *health) own(c *checked, namespace string) {
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
	if h.place(namespace, s, h.ration.level); len(c.uses) == 1 {
		delete(h.ration.turned, c) // its only user has not asked yet
	}
}

// disown takes back a use of a check by a namespace.
func (h *health) disown(c *checked, namespace string) {
	decrease(c.owners, namespace)
	if !c.Presumed || c.owners[namespace] > 0 {
		return
	}
	s := h.ration.shares[namespace]
	at := s.at[c]
	delete(s.at, c)
	s.list[at] = nil
	if at < s.edge {
		s.placed--
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
	s.edge = s.placed
}

// place gives as many checks of a namespace a place as it has, the oldest.
func (h *health) place(namespace string, s *share, places int) {
	places = min(places, len(s.at))
	for ; s.placed < places; s.edge++ {
		if c := s.list[s.edge]; c != nil {
			s.placed++
			h.move(c, namespace, true)
		}
	}
	for s.placed > places {
		s.edge--
		if c := s.list[s.edge]; c != nil {
			s.placed--
			h.move(c, namespace, false)
		}
	}
}

// move notes that a namespace has a place for a check, or none any more, and tells the machines.
func (h *health) move(c *checked, namespace string, has bool) {
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

// share gives each namespace the places that it has now, and returns whose checks got their first
// place or lost their last one.
func (h *health) share() map[*checked]bool {
	r := &h.ration
	if r.stale {
		r.stale = false
		wants := make([]int, 0, len(r.shares))
		for _, s := range r.shares {
			wants = append(wants, len(s.at))
		}
		r.level = model.FairShare(r.perMachine*max(elect.Count, len(h.machines))/elect.Count, wants)
		for _, namespace := range slices.Sorted(maps.Keys(r.shares)) {
			h.place(namespace, r.shares[namespace], r.level)
		}
	}
	turned := r.turned
	r.turned = map[*checked]bool{}
	return turned
}

// problems are the namespaces of which not all backends are checked.
func (r *ration) problems() []model.Problem {
	var problems []model.Problem
	for _, namespace := range slices.Sorted(maps.Keys(r.shares)) {
		s := r.shares[namespace]
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

// notChecked says why nobody checks a backend that should be; empty: that is not so.
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
