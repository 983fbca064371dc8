package mirror

import (
	"slices"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// Counts are numbers of services and endpoints.
type Counts struct{ Services, Endpoints int }

// State is what one upstream has and what of it is in effect.
type State struct {
	Synced     bool
	Seen       Counts // that the upstream has
	Replicated Counts // that are in effect
	Held       Counts // of those, which the upstream does not list any more
	HeldSince  time.Time
	Returning  bool // changes wait for their turn
	OverLimit  bool
	// Refused is the number of services and parts that are left out, and Refusals the first of them, in the order of keys.
	Refused  int
	Refusals []model.UpstreamRefusal

	LastContact, LastSweep time.Time
	Failing                time.Time // since when the upstream does not answer; zero: it answers
	Err                    error     // why it does not
	Expired                bool      // its endpoints are not in effect any more
}

// State tells about an upstream, with so many refusals at most; false: there is none.
func (m *Mirror) State(name string, refusals int) (State, bool) {
	u := m.upstreams[name]
	if u == nil {
		return State{}, false
	}
	c := u.contact
	s := State{
		Synced: u.synced, Seen: u.seen, Replicated: Counts{u.nServices, u.endpoints}, Returning: len(u.pace.next) > 0, OverLimit: len(u.limited)+len(u.short) > 0,
		LastContact: c.last, LastSweep: u.sweep, Failing: c.failing, Err: c.err, Expired: c.expired,
	}
	refuse := func(r model.UpstreamRefusal) {
		if s.Refused++; len(s.Refusals) < refusals {
			s.Refusals = append(s.Refusals, r)
		}
	}
	for _, r := range u.twice {
		refuse(r)
	}
	var refusing []model.UpstreamKey
	for k, e := range u.services {
		if e.refusal != nil || len(e.refused) > 0 {
			refusing = append(refusing, k)
		}
	}
	slices.SortFunc(refusing, compareKeys)
	for _, k := range refusing {
		e := u.services[k]
		if e.refusal != nil && e.refusal.Reason != model.RefusedUnselected {
			refuse(*e.refusal)
		}
		for _, r := range e.refused {
			refuse(r)
		}
	}
	for k := range u.holds {
		e := u.services[k]
		s.Held.Services++
		s.Held.Endpoints += e.endpoints
		if s.HeldSince.IsZero() || e.held.since.Before(s.HeldSince) {
			s.HeldSince = e.held.since
		}
	}
	return s, true
}

// Service is a service of an upstream as a person asks for it.
type Service struct {
	Upstream string
	From     *model.UpstreamService // in effect
	Held     time.Time              // since when the upstream does not list it like this; zero: it does
}

// Lookup finds what a Service here is of; false: no upstream has it.
func (m *Mirror) Lookup(n snapshot.Name) (Service, bool) {
	o, is := m.owners[n]
	u := m.upstreams[o.upstream]
	if !is || u == nil || u.services[o.key] == nil {
		return Service{}, false
	}
	e := u.services[o.key]
	s := Service{Upstream: u.name, From: e.from}
	if e.held != nil {
		s.Held = e.held.since
	}
	return s, true
}
