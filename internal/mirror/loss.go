package mirror

import (
	"slices"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
)

const (
	defaultThreshold  = 50 // percent
	defaultReturnTime = 10 * time.Second
	// confirmAhead is by how much the clock of who confirms may be ahead of ours. A confirmation of a later time, which a typing
	// error makes, would confirm all losses until then.
	confirmAhead = 5 * time.Minute
	// awayAfter is how long an upstream must have been away for its return to be gradual.
	awayAfter = 30 * time.Second
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
	u.stale = u.stale || (err == nil) != c.failing.IsZero()
	if err != nil {
		if c.err = err; c.failing.IsZero() {
			c.failing = now
		}
		return
	}
	if !c.failing.IsZero() && now.Sub(c.failing) >= awayAfter && u.synced {
		u.pace.begin(now, u.returnTime())
	}
	expired := c.expired
	*c = contact{last: now}
	if expired {
		m.markOf(u.name)
		for _, k := range sortedKeys(u.services) {
			if e := u.services[k]; e.full != nil {
				full := e.full
				e.full = nil
				m.place(u, e, full)
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
	gone, services, lost, endpoints := 0, 0, 0, 0
	for k, e := range u.services {
		last, deferred := u.pace.next[k]
		if !deferred {
			last = e.last()
		}
		next := listed[k]
		if last == nil || next == nil && !u.selects(e) {
			continue // that it goes is known, or wanted
		}
		services++
		n := last.Endpoints()
		endpoints += n
		if next == nil {
			gone++
			lost += n
			continue
		}
		lost += max(0, n-next.Endpoints())
	}
	return u.beyond(gone, services) || u.beyond(lost, endpoints)
}

// losesMuch says whether a service loses more of its endpoints than the threshold allows.
func (u *upstream) losesMuch(e *service, next *model.UpstreamService) bool {
	last := e.last()
	if deferred := u.pace.next[e.key]; deferred != nil {
		last = deferred
	}
	// Endpoints that others take the place of are not lost.
	return u.beyond(max(0, last.Endpoints()-next.Endpoints()), last.Endpoints())
}

// last is the form in effect, or the one from before the endpoints expired. Losses are measured by it, unless a later form waits
// for its turn. See latest.
func (e *service) last() *model.UpstreamService {
	if e.full != nil {
		return e.full
	}
	return e.from
}

// hold keeps a service as it is, and remembers what the upstream has listed.
func (u *upstream) hold(e *service, next *model.UpstreamService, now time.Time) {
	delete(u.pace.next, e.key)
	u.stale = true
	if e.held == nil {
		e.held = &held{since: now}
		u.holds[e.key] = true
	}
	e.held.next = next
}

// confirmedAt is up to when operators have confirmed the losses of an upstream; zero: they have not.
func confirmedAt(o *v1alpha1.Upstream) time.Time {
	t, err := time.Parse(time.RFC3339, o.Annotations[v1alpha1.AnnotationConfirmedAt])
	if err != nil {
		return time.Time{}
	}
	return t
}

// Advance applies changes whose waiting time is over or whose loss was confirmed. It returns when it has something to do again; zero:
// only after another input.
func (m *Mirror) Advance(now time.Time) time.Time {
	var next time.Time
	soonest := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	var waiting []string
	for name, u := range m.upstreams {
		if len(u.holds)+len(u.pace.next)+len(u.limited)+len(u.short) > 0 || !u.contact.failing.IsZero() {
			waiting = append(waiting, name)
		}
	}
	slices.Sort(waiting)
	for _, name := range waiting {
		soonest(m.advance(m.upstreams[name], now))
	}
	return next
}

func (m *Mirror) advance(u *upstream, now time.Time) (next time.Time) {
	if now.Before(u.asked) {
		u.stale = true
	}
	if u.asked = now; !u.stale && (u.due.IsZero() || now.Before(u.due)) {
		return u.due
	}
	u.stale = false
	defer func() { u.due = next }()
	soonest := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	over := func(since time.Time) bool {
		if !since.Truncate(time.Second).After(u.confirmed) {
			valid := u.confirmed.Add(-confirmAhead)
			if !now.Before(valid) {
				return true
			}
			soonest(valid)
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
	if c := &u.contact; m.known && !c.failing.IsZero() && !c.expired && over(c.failing) {
		if c.expired = true; !u.synced {
			m.restore(u, nil)
			m.markOf(u.name)
		}
		for _, k := range sortedKeys(u.services) {
			m.expire(u, u.services[k])
		}
	}
	for _, k := range u.pace.takeDue(now) {
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
	full := e.last()
	bare := *full
	bare.Slices = nil
	e.held = nil
	delete(u.holds, e.key)
	delete(u.pace.next, e.key)
	m.place(u, e, &bare)
	e.full = full
}
