package mirror

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
)

const (
	defaultThreshold  = 50 // percent
	defaultReturnTime = 10 * time.Second
	// awayAfter is how long an upstream must have been away for its return to be gradual.
	awayAfter = 30 * time.Second
	// paceStep is the time between two steps of a return.
	paceStep = 250 * time.Millisecond
)

// contact is when an upstream answered.
type contact struct {
	last    time.Time // it answered; zero: never
	failing time.Time // since when it does not; zero: it does
	err     error
	expired bool // its endpoints are not in effect any more
}

// Contact notes that an upstream answered (nil), or why it does not.
func (m *Mirror) Contact(name string, err error, now time.Time) {
	u := m.upstreams[name]
	if u == nil {
		return
	}
	c := &u.contact
	if err != nil {
		if c.err = err; c.failing.IsZero() {
			c.failing = now
		}
		return
	}
	if !c.failing.IsZero() && now.Sub(c.failing) >= awayAfter && u.synced {
		u.pace.until = now.Add(u.returnTime())
	}
	expired := c.expired
	*c = contact{last: now}
	if expired {
		for _, k := range sortedKeys(u.services) {
			if e := u.services[k]; e.full != nil {
				m.apply(u, k, e.full)
			}
		}
		m.retryLimited(u)
	}
}

func (u *upstream) threshold() int {
	if t := u.object.Spec.Loss.Threshold; t != nil {
		return int(*t)
	}
	return defaultThreshold
}

func (u *upstream) returnTime() time.Duration {
	if d := u.object.Spec.Loss.ReturnTime; d != nil {
		return d.Duration
	}
	return defaultReturnTime
}

func (u *upstream) keepFor() time.Duration {
	if d := u.object.Spec.Loss.KeepFor; d != nil {
		return d.Duration
	}
	return 0
}

// beyond says whether a loss is more than the threshold allows.
func (u *upstream) beyond(lost, of int) bool { return lost*100 > u.threshold()*of }

// isLoss says whether a list lacks more of the services, or of the endpoints, than the threshold allows.
func (u *upstream) isLoss(listed map[model.UpstreamKey]*model.UpstreamService) bool {
	gone, lost, all := 0, 0, 0
	for k, e := range u.services {
		next := listed[k]
		n := endpointsOf(e)
		all += n
		if next == nil {
			gone++
			lost += n
			continue
		}
		lost += lostOf(e, next)
	}
	return u.beyond(gone, len(u.services)) || u.beyond(lost, all)
}

// losesMuch says whether a service loses more of its endpoints than the threshold allows.
func (u *upstream) losesMuch(e *service, next *model.UpstreamService) bool {
	return u.beyond(lostOf(e, next), endpointsOf(e))
}

// endpointsOf is the number of endpoints that a service had before the upstream was away.
func endpointsOf(e *service) int {
	if e.full != nil {
		return e.full.Endpoints()
	}
	return e.from.Endpoints()
}

// lostOf is how many endpoints a service has fewer. Endpoints that others take the place of are not lost.
func lostOf(e *service, next *model.UpstreamService) int {
	return max(0, endpointsOf(e)-next.Endpoints())
}

// hold keeps a service as it is, and remembers what the upstream has listed.
func (u *upstream) hold(e *service, next *model.UpstreamService, now time.Time) {
	delete(u.pace.next, e.key)
	if e.held == nil {
		e.held = &held{since: now}
		u.holds[e.key] = true
	}
	e.held.next = next
}

// confirmed is up to when operators have confirmed losses; zero: they have not.
func (u *upstream) confirmed() time.Time {
	t, err := time.Parse(time.RFC3339, u.object.Annotations[v1alpha1.AnnotationConfirmedAt])
	if err != nil {
		return time.Time{}
	}
	return t
}

// Advance brings into effect what time, or a confirmation, brings. It returns when it has something to do again; zero:
// only after another input.
func (m *Mirror) Advance(now time.Time) time.Time {
	var next time.Time
	soonest := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, u := range m.upstreams {
		soonest(m.advance(u, now))
	}
	return next
}

func (m *Mirror) advance(u *upstream, now time.Time) (next time.Time) {
	soonest := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	over := func(since time.Time) bool {
		if !since.Truncate(time.Second).After(u.confirmed()) {
			return true
		}
		if keep := u.keepFor(); keep > 0 {
			if end := since.Add(keep); now.Before(end) {
				soonest(end)
			} else {
				return true
			}
		}
		return false
	}
	for _, k := range sortedKeys(u.holds) {
		if e := u.services[k]; over(e.held.since) {
			m.apply(u, k, e.held.next)
		}
	}
	if c := &u.contact; u.synced && !c.failing.IsZero() && !c.expired && over(c.failing) {
		c.expired = true
		for _, k := range sortedKeys(u.services) {
			m.expire(u, u.services[k])
		}
	}
	for _, k := range u.pace.due(now) {
		m.apply(u, k, u.pace.next[k])
	}
	if len(u.pace.next) > 0 {
		soonest(u.pace.step.Add(paceStep))
	}
	m.retryLimited(u)
	return next
}

// expire takes the endpoints of a service out of effect. The Service stays.
func (m *Mirror) expire(u *upstream, e *service) {
	full := e.from
	bare := *full
	bare.Slices = nil
	e.held = nil
	delete(u.holds, e.key)
	delete(u.pace.next, e.key)
	m.place(u, e, &bare)
	e.full = full
}

// pace spreads the changes of an upstream that returns.
type pace struct {
	until time.Time // of the return
	step  time.Time // when changes came into effect last
	next  map[model.UpstreamKey]*model.UpstreamService
}

// defers notes a change for later, if an upstream returns and the change takes something away.
func (p *pace) defers(k model.UpstreamKey, e *service, next *model.UpstreamService, now time.Time) bool {
	if !now.Before(p.until) || next != nil && !takesAway(e.from, next) {
		return false
	}
	if p.next == nil {
		p.next = map[model.UpstreamKey]*model.UpstreamService{}
	}
	if len(p.next) == 0 {
		p.step = now
	}
	p.next[k] = next
	return true
}

// due are the changes whose turn has come: an equal part in each step until the return ends.
func (p *pace) due(now time.Time) []model.UpstreamKey {
	if len(p.next) == 0 {
		return nil
	}
	keys := sortedKeys(p.next)
	if !now.Before(p.until) {
		return keys
	}
	passed, left := int(now.Sub(p.step)/paceStep), int(p.until.Sub(p.step)/paceStep)+1
	if passed <= 0 {
		return nil
	}
	p.step = p.step.Add(time.Duration(passed) * paceStep)
	return keys[:min(len(keys), (len(keys)*passed+left-1)/left)]
}

// takesAway says whether an endpoint that takes new work does not in the next form.
func takesAway(before, next *model.UpstreamService) bool {
	ready := map[netip.Addr]bool{}
	for _, s := range next.Slices {
		for _, e := range s.Endpoints {
			if e.Ready {
				ready[e.Address] = true
			}
		}
	}
	return slices.ContainsFunc(before.Slices, func(s model.UpstreamSlice) bool {
		return slices.ContainsFunc(s.Endpoints, func(e model.UpstreamEndpoint) bool { return e.Ready && !ready[e.Address] })
	})
}

func compareKeys(a, b model.UpstreamKey) int {
	return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Name, b.Name))
}
