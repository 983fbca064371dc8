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
	Refused   int
	Refusals  []model.UpstreamRefusal
	RefusedBy map[model.RefusalReason]int

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
		RefusedBy: map[model.RefusalReason]int{}, LastContact: c.last, LastSweep: u.sweep, Failing: c.failing, Err: c.err, Expired: c.expired,
	}
	refuse := func(r model.UpstreamRefusal) {
		s.RefusedBy[r.Reason]++
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
	slices.SortFunc(refusing, model.UpstreamKey.Compare)
	for _, k := range refusing {
		e := u.services[k]
		if e.refusal != nil && e.refusal.Reason != model.RefusedUnselected {
			refuse(*e.refusal)
		}
		for _, r := range e.refused {
			refuse(r)
		}
	}
	if u.extra > 0 {
		s.OverLimit = true
		s.Refused += u.extra - 1
		refuse(model.UpstreamRefusal{Object: number(u.extra, "service", "services"), Reason: model.RefusedLimit, Message: "far beyond spec.limits.services: not looked at"})
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

// Waits says whether the last form of a service that the upstream gave is not in effect: it is held, or its turn comes later.
func (m *Mirror) Waits(upstream string, k model.UpstreamKey) bool {
	u := m.upstreams[upstream]
	if u == nil {
		return false
	}
	_, paced := u.pace.next[k]
	return paced || u.holds[k]
}

// Unstored counts, by upstream, the objects that were to be written and are not known to be stored, or deleted.
func (m *Mirror) Unstored() map[string]int {
	n := map[string]int{}
	for k := range m.offered {
		if owner := m.Unwritten(k); owner != "" {
			n[owner]++
		}
	}
	return n
}

// Unwritten is the upstream whose object was to be written, or deleted, and is not known to be; "": there is no such object.
func (m *Mirror) Unwritten(k snapshot.Key) string {
	if _, offered := m.offered[k]; !offered {
		return ""
	}
	o := m.wanted[k]
	if o == nil {
		o = m.storedObject(k)
	}
	if o == nil {
		return ""
	}
	return m.ownerOf(o)
}

// Copied is the upstream of a Service that was taken over from Gimbal while there are EndpointSlices of Gimbal's Endpoints;
// "": there are none.
func (m *Mirror) Copied(service snapshot.Name) string {
	if o := m.services[service]; o != nil && len(m.copies[service]) > 0 {
		return m.ownerOf(o)
	}
	return ""
}

// Left is what is left of an Upstream that does not exist any more.
type Left struct {
	Counts
	// Used are the Services to which something routes, sorted; nil: it is not known yet.
	Used []snapshot.Name
}

// Left says, by name, what is left of Upstreams that do not exist.
func (m *Mirror) Left() map[string]Left {
	all := map[string]Left{}
	for _, n := range m.Orphans() {
		name := m.ownerOf(m.services[n])
		l := all[name]
		l.Services++
		if used, judged := m.used[n]; judged {
			if l.Used == nil {
				l.Used = []snapshot.Name{}
			}
			if used {
				l.Used = append(l.Used, n)
			}
		}
		all[name] = l
	}
	for k := range m.orphaned() {
		if o := m.slices[k.Name]; m.known && k.Kind == snapshot.KindEndpointSlice && o != nil {
			name := m.ownerOf(o)
			l := all[name]
			l.Endpoints += len(o.Endpoints)
			all[name] = l
		}
	}
	return all
}

// Service is a service of an upstream as a person asks for it.
type Service struct {
	Upstream string
	From     *model.UpstreamService // in effect
	Held     time.Time              // since when the upstream does not list it like this; zero: it does
	// Contact is when the upstream answered last, and Failing since when it does not; zero: it does.
	Contact, Failing time.Time
}

// Lookup finds what a Service here is of; false: no upstream has it.
func (m *Mirror) Lookup(n snapshot.Name) (Service, bool) {
	o, is := m.owners[n]
	u := m.upstreams[o.upstream]
	if !is || u == nil || u.services[o.key] == nil {
		return Service{}, false
	}
	e := u.services[o.key]
	s := Service{Upstream: u.name, From: e.from, Contact: u.contact.last, Failing: u.contact.failing}
	if e.held != nil {
		s.Held = e.held.since
	}
	return s, true
}
