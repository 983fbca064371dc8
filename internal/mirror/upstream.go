package mirror

import (
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// upstream is what is known of one.
type upstream struct {
	name     string
	object   *v1alpha1.Upstream
	synced   bool   // a complete list was taken
	early    *early // nil: nothing was said before the first complete list
	lenient  bool   // the next list may be shorter
	services map[model.UpstreamKey]*service

	seen      Counts // of the last list, and of changes since
	twice     []model.UpstreamRefusal
	extra     int                        // services that are not even kept
	nServices int                        // in effect
	endpoints int                        // in effect
	limited   map[model.UpstreamKey]bool // services that are beyond the limit of services
	short     map[model.UpstreamKey]bool // services with endpoints that are beyond the limit of endpoints
	holds     map[model.UpstreamKey]bool // services with held
	guessed   map[snapshot.Name]model.UpstreamKey

	contact contact
	sweep   time.Time // of the last complete list
	pace    pace

	confirmed time.Time // up to when operators have confirmed losses; zero: they have not
	// due is when time alone changes something; zero: it does not. It holds unless stale, and if the clock was not set back since asked.
	due, asked time.Time
	stale      bool
}

// service is a service of an upstream, with what is in effect of it. It may be known in several forms:
//
//   - from: in effect. Normally it is the last form that the upstream gave.
//   - held.next: the last form that it gave, while a loss is held; nil: it does not list the service.
//   - pace.next of the upstream: the last form that it gave, while that waits for its turn.
//   - full: the form from before the endpoints expired; from is then the same without endpoints.
//
// latest chooses among them the one that the upstream gave last; last is for measuring losses.
type service struct {
	key       model.UpstreamKey
	from      *model.UpstreamService // in effect
	namespace string                 // here; empty: none can be
	name      snapshot.Name          // here; zero while it is refused
	refusal   *model.UpstreamRefusal // of the whole
	refused   []model.UpstreamRefusal
	objects   []snapshot.Key
	endpoints int
	counted   bool // among those of the upstream that are in effect
	placed    bool // the objects follow from the service; false: they are as they were stored
	// guessed is the name of the stored Service whose key is not known: Gimbal has made it. Zero: the key is known.
	guessed snapshot.Name

	held *held
	// full is the form with the endpoints that expired; nil: they have not.
	full *model.UpstreamService
}

// held is a service that is in effect although the upstream has listed another form of it, or none.
type held struct {
	since time.Time
	next  *model.UpstreamService // nil: it was not listed
}

func newUpstream(name string, o *v1alpha1.Upstream) *upstream {
	return &upstream{
		name: name, object: o, confirmed: confirmedAt(o), stale: true, services: map[model.UpstreamKey]*service{}, limited: map[model.UpstreamKey]bool{}, short: map[model.UpstreamKey]bool{},
		holds: map[model.UpstreamKey]bool{}, guessed: map[snapshot.Name]model.UpstreamKey{},
	}
}

// Replace takes a complete list of an upstream's services. The first one is compared with what is stored, so that all of
// it has to be Known.
func (m *Mirror) Replace(name string, list []*model.UpstreamService, now time.Time) {
	u := m.upstreams[name]
	if u == nil {
		return
	}
	listed := u.takeList(list)
	first := !u.synced
	if first {
		m.restore(u, listed)
		u.synced = true
		u.early = nil
		m.markOf(name)
	}
	u.bound(listed)
	hold := func(e *service, next *model.UpstreamService) {
		if u.hold(e, next, now); first {
			m.place(u, e, e.from) // it may be that it cannot be here any more
		}
	}
	u.sweep = now
	for _, k := range sortedKeys(listed) {
		m.claim(u, k, listed[k])
	}
	loss := !u.lenient && u.isLoss(listed)
	u.lenient = false
	if first && u.isOverLimits() { // somebody else has written of it: what is listed comes first
		for _, e := range u.services {
			if !e.placed {
				u.uncount(e)
			}
		}
	}
	var kept []*service
	for _, k := range sortedKeys(listed) {
		next := listed[k]
		if e := u.services[k]; loss && e != nil && u.losesMuch(e, next) {
			kept = append(kept, e)
			continue
		}
		m.update(u, k, next, now)
	}
	for _, e := range kept {
		hold(e, listed[e.key])
	}
	for _, k := range sortedKeys(u.services) {
		if listed[k] != nil {
			continue
		}
		if e := u.services[k]; loss && u.selects(e) {
			hold(e, nil)
			continue
		}
		m.update(u, k, nil, now)
	}
	m.retryLimited(u)
}

// isOverLimits says whether more is in effect than the limits allow, as only what was stored can be.
func (u *upstream) isOverLimits() bool {
	limits := &u.object.Spec.Limits
	return u.nServices > limitOf(limits.Services, defaultServices) || u.endpoints > limitOf(limits.Endpoints, defaultEndpoints)
}

// takeList counts the services of a list, and finds them by key. Of two with one key the first counts.
func (u *upstream) takeList(list []*model.UpstreamService) map[model.UpstreamKey]*model.UpstreamService {
	listed := make(map[model.UpstreamKey]*model.UpstreamService, len(list))
	u.seen, u.twice, u.extra = Counts{}, nil, 0
	for _, s := range list {
		if listed[s.Key] != nil {
			u.twice = append(u.twice, model.UpstreamRefusal{Object: s.Object, Reason: model.RefusedAnswer, Message: "the upstream lists it twice; the first counts"})
			continue
		}
		listed[s.Key] = s
		u.seen.Services++
		u.seen.Endpoints += s.Endpoints()
	}
	return listed
}

// bound leaves out of a list what is too much to keep: of what is in effect nothing, if there is anything else.
func (u *upstream) bound(listed map[model.UpstreamKey]*model.UpstreamService) {
	if over := len(listed) - u.most(); over > 0 {
		u.extra = over
		keys := sortedKeys(listed)
		for _, kept := range []bool{false, true} { // of those in effect the last
			for i := len(keys) - 1; i >= 0 && len(listed) > u.most(); i-- {
				if (u.services[keys[i]] != nil) == kept {
					delete(listed, keys[i])
				}
			}
		}
	}
}

// most is how many services are kept at most, in effect or refused: the rest is counted.
func (u *upstream) most() int {
	limit := limitOf(u.object.Spec.Limits.Services, defaultServices)
	return limit + max(limit, 1000)
}

// Put takes services that changed, each whole. Before the first complete list, the others stay as they are stored.
func (m *Mirror) Put(name string, now time.Time, list ...*model.UpstreamService) {
	u := m.upstreams[name]
	if u == nil || !m.begin(u) {
		return
	}
	for _, s := range list {
		if u.services[s.Key] == nil && len(u.services) >= u.most() {
			u.extra++
			continue
		}
		if m.isEarlyLoss(u, s) {
			continue // the first list is judged as a whole, and has it again
		}
		m.claim(u, s.Key, s)
		e := u.services[s.Key]
		u.note(u.latest(s.Key), s)
		if e != nil && e.held != nil && u.losesMuch(e, s) {
			e.held.next = s
			continue
		}
		m.update(u, s.Key, s, now)
		m.noteSaid(u, s.Key)
	}
	m.retryLimited(u)
}

// Remove takes the upstream's word that services are gone.
func (m *Mirror) Remove(name string, now time.Time, keys ...model.UpstreamKey) {
	u := m.upstreams[name]
	if u == nil || !m.begin(u) {
		return
	}
	for _, k := range keys {
		u.note(u.latest(k), nil)
		m.update(u, k, nil, now)
		m.noteSaid(u, k)
	}
	m.retryLimited(u)
}

// early is what an upstream says before its first complete list. What is stored of other services stays in effect.
type early struct {
	stored map[snapshot.Name]map[snapshot.Key]bool // objects by their Service
	names  map[model.UpstreamKey]snapshot.Name
	said   map[snapshot.Name]bool // Services of which the upstream has said what there is
}

// begin sees to it that an upstream can say something about single services; false: it cannot yet.
func (m *Mirror) begin(u *upstream) bool {
	switch {
	case u.synced:
		return true
	case !m.known:
		return false
	case u.early != nil:
		return true
	}
	u.early = &early{map[snapshot.Name]map[snapshot.Key]bool{}, map[model.UpstreamKey]snapshot.Name{}, map[snapshot.Name]bool{}}
	for k := range m.labelled[backend{name: u.name}] {
		m.noteEarly(u.early, k)
	}
	return true
}

// isEarlyLoss says whether the first form of a service, before the first complete list, has much fewer endpoints than are stored.
func (m *Mirror) isEarlyLoss(u *upstream, s *model.UpstreamService) bool {
	if u.early == nil {
		return false
	}
	n, is := u.early.names[s.Key]
	if !is || u.early.said[n] {
		return false
	}
	stored := 0
	for k := range u.early.stored[n] {
		if o := m.slices[k.Name]; k.Kind == snapshot.KindEndpointSlice && o != nil {
			stored += len(o.Endpoints)
		}
	}
	return u.beyond(max(0, stored-s.Endpoints()), stored)
}

// noteSaid notes that an upstream has said what there is of a service. Other objects that are stored of it are not in effect any more.
func (m *Mirror) noteSaid(u *upstream, k model.UpstreamKey) {
	if u.early == nil {
		return
	}
	names := []snapshot.Name{u.early.names[k]}
	if e := u.services[k]; e != nil {
		names = append(names, e.name)
	}
	for _, n := range names {
		if n.Name == "" || u.early.said[n] {
			continue
		}
		u.early.said[n] = true
		for k := range u.early.stored[n] {
			m.dirty[k] = true
		}
	}
}

// latest is the last form of a service that the upstream gave, in effect or not; nil: it has none. See last.
func (u *upstream) latest(k model.UpstreamKey) *model.UpstreamService {
	e := u.services[k]
	if next, is := u.pace.next[k]; is {
		return next
	}
	switch {
	case e == nil:
		return nil
	case e.held != nil:
		return e.held.next
	case e.full != nil:
		return e.full
	}
	return e.from
}

// note counts a change of what the upstream has.
func (u *upstream) note(before, after *model.UpstreamService) {
	if before != nil {
		u.seen.Services--
		u.seen.Endpoints -= before.Endpoints()
	}
	if after != nil {
		u.seen.Services++
		u.seen.Endpoints += after.Endpoints()
	}
}

// update brings a form of a service into effect (nil: none), now or when its turn comes.
func (m *Mirror) update(u *upstream, k model.UpstreamKey, next *model.UpstreamService, now time.Time) {
	e := u.services[k]
	if e == nil {
		m.apply(u, k, next)
		return
	}
	if u.pace.set(now); !u.pace.defers(e, next) {
		m.apply(u, k, next)
		return
	}
	if next != nil {
		m.apply(u, k, withLeaving(e.from, next))
	}
	u.pace.add(k, next)
	u.stale = true
}

// claim gives a service that the upstream lists the objects of its name whose key was guessed.
func (m *Mirror) claim(u *upstream, k model.UpstreamKey, next *model.UpstreamService) {
	if len(u.guessed) == 0 {
		return
	}
	if e := u.services[k]; e != nil && e.guessed != (snapshot.Name{}) { // the guess was right
		delete(u.guessed, e.guessed)
		e.guessed, e.placed = snapshot.Name{}, false
		return
	}
	n := snapshot.Name{Namespace: namespaceOf(&u.object.Spec, k.Scope, next.ScopeName), Name: u.plainName(k)}
	guess, is := u.guessed[n]
	if !is {
		return
	}
	delete(u.guessed, n)
	m.apply(u, guess, nil)
}
