package history

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
)

const (
	// Limit is how many steps of routing a plane can turn back.
	Limit = 4096
	// limitBytes bounds their size, packed.
	limitBytes = 32 << 20
	// trimEvery is after how many packed bytes those of all steps are counted again.
	trimEvery = 1 << 20
)

// Routing is the part of a translation that a Freeze holds: a state, or what of it
// changed. A nil value says that there is none.
type Routing struct {
	listeners map[model.ListenerID]*model.Listener
	hosts     map[model.HostKey]*model.VirtualHost
	tls       map[model.HostKey]*model.TLSHost
	views     map[model.ViewID]*model.View
}

func newRouting() Routing {
	return Routing{
		listeners: map[model.ListenerID]*model.Listener{}, hosts: map[model.HostKey]*model.VirtualHost{},
		tls: map[model.HostKey]*model.TLSHost{}, views: map[model.ViewID]*model.View{},
	}
}

func (r Routing) clone() Routing {
	return Routing{listeners: maps.Clone(r.listeners), hosts: maps.Clone(r.hosts), tls: maps.Clone(r.tls), views: maps.Clone(r.views)}
}

// Size is how many keys it has.
func (r Routing) Size() int { return len(r.listeners) + len(r.hosts) + len(r.tls) + len(r.views) }

// routingOf is the part of the changes that a Freeze holds.
func routingOf(ch translate.Changes) Routing {
	return Routing{listeners: ch.Listeners, hosts: ch.VirtualHosts, tls: ch.TLSHosts, views: ch.Views}
}

// Under completes changes: they come after the routing.
func (r Routing) Under(ch *translate.Changes) {
	maps.Copy(r.listeners, ch.Listeners)
	maps.Copy(r.hosts, ch.VirtualHosts)
	maps.Copy(r.tls, ch.TLSHosts)
	maps.Copy(r.views, ch.Views)
	r.Into(ch)
}

// Into replaces the routing of changes.
func (r Routing) Into(ch *translate.Changes) {
	ch.Listeners, ch.VirtualHosts, ch.TLSHosts, ch.Views = r.listeners, r.hosts, r.tls, r.views
}

// State is routing with the groups that it names, without which it cannot be turned back to: a
// state, or what of it changed.
type State struct {
	Routing
	groups map[model.GroupID]*model.BackendGroup
}

// Step is one step of the history.
type Step struct {
	sequence uint64 // of this plane; 0 for one of a plane before it
	at       time.Time
	revision delta.Revision // with which it was published, or would have been
	owners   []model.Object
	// count is how much of routing changed; 0 for a step that is of groups alone, or of
	// the mark alone, and no revision that anybody is shown.
	count int
	mark  *Mark
	// What it replaced, and by what; or, once the keeper has packed it, neither.
	before, after State
	packed        []byte
	kept          bool // it outlives the plane
}

// Keeper packs the steps of a history behind its back.
type Keeper interface {
	// Begin receives the state that the history begins with, before any step.
	Begin(at time.Time, rev delta.Revision, p State)
	// Add receives a step, which only the keeper may change from then on.
	Add(c *Step)
	// Look returns a step packed, or else what it replaced.
	Look(c *Step) (packed []byte, before State)
	// Total is how much was packed ever, bytes.
	Total() int
}

// Mark says what a Freeze held that said no time itself.
type Mark struct {
	Since time.Time `json:"since"` // when it was created, by the API
	AsOf  time.Time `json:"asOf"`
}

// History has the routing that translation wants and the routing that machines are sent. It knows the
// last steps of routing, and while a Freeze holds it holds back every further one.
//
// Invariant: what is published of a key is held[key] where that has the key, else
// wanted[key]; of a view it is both.
type History struct {
	started time.Time // zero before everything was read
	began   time.Time // since when states are known: the start, or the oldest step that is left
	lacks   string    // why none before are; empty when there were none
	letGo   int       // steps
	known   bool      // the first translation is in
	wanted  Routing
	held    Routing
	groups  map[model.GroupID]*model.BackendGroup // in the result of the translation
	log     []*Step                               // oldest first
	frozen  *Freeze
	keeper  Keeper // nil: steps are not packed
	counted uint64 // steps of this plane
	trimmed int    // how much was packed ever, when their bytes were last counted
	// gone are certificates and authorities that were deleted while frozen.
	goneCertificates map[model.CertificateID]bool
	goneAuthorities  map[model.AuthorityID]bool
	names            map[ownedName]bool // what namesHeld found; nil when that is stale
}

// New is a history that knows nothing yet. k may be nil.
func New(k Keeper) *History {
	return &History{
		wanted: newRouting(), held: newRouting(), groups: map[model.GroupID]*model.BackendGroup{}, keeper: k,
		goneCertificates: map[model.CertificateID]bool{}, goneAuthorities: map[model.AuthorityID]bool{},
	}
}

// Begin notes when everything was read.
func (h *History) Begin(now time.Time) {
	h.started = now.Truncate(time.Microsecond) // what a Freeze can say
	h.began = h.started
}

// Apply applies a translation's changes and returns those of them that may be published. The first
// changes are the state that the plane begins with, and no step.
func (h *History) Apply(ch translate.Changes, now time.Time, rev delta.Revision) translate.Changes {
	wants := routingOf(ch)
	h.names = nil
	if !h.known {
		h.known = true
		h.update(wants, ch.Groups)
		if h.keeper != nil {
			h.keeper.Begin(h.began, rev, State{h.wanted.clone(), maps.Clone(h.groups)})
		}
		return ch
	}
	h.note(State{wants, ch.Groups}, now, rev)
	if h.frozen == nil {
		h.update(wants, ch.Groups)
		return ch
	}
	passed := newRouting()
	hold(h.wanted.listeners, h.held.listeners, wants.listeners)
	hold(h.wanted.hosts, h.held.hosts, wants.hosts)
	hold(h.wanted.tls, h.held.tls, wants.tls)
	hold(h.wanted.views, h.held.views, wants.views)
	h.update(wants, ch.Groups)
	for id := range wants.views {
		passed.views[id] = h.publishedView(id)
	}
	passed.Into(&ch)
	ch.Certificates = keepPresent(ch.Certificates, h.goneCertificates)
	ch.Authorities = keepPresent(ch.Authorities, h.goneAuthorities)
	return ch
}

// ApplyGroups applies groups that came or went by pins, without any change of routing.
func (h *History) ApplyGroups(groups map[model.GroupID]*model.BackendGroup, now time.Time) {
	h.note(State{groups: groups}, now, delta.Revision{})
	replace(h.groups, groups)
}

// update brings the wanted state up to what changed.
func (h *History) update(wants Routing, groups map[model.GroupID]*model.BackendGroup) {
	replace(h.wanted.listeners, wants.listeners)
	replace(h.wanted.hosts, wants.hosts)
	replace(h.wanted.tls, wants.tls)
	replace(h.wanted.views, wants.views)
	replace(h.groups, groups)
}

// note writes a step into the log. Groups may go later than the routes that named them:
// what is pinned goes when routing thaws.
func (h *History) note(wants State, now time.Time, rev delta.Revision) {
	if wants.Size()+len(wants.groups) == 0 {
		return
	}
	h.add(&Step{
		at: now, revision: rev, count: wants.Size(), after: wants,
		owners: ownersOf(h.wanted, wants.Routing),
		before: State{
			Routing{
				listeners: values(h.wanted.listeners, wants.listeners), hosts: values(h.wanted.hosts, wants.hosts),
				tls: values(h.wanted.tls, wants.tls), views: values(h.wanted.views, wants.views),
			}, values(h.groups, wants.groups),
		},
	})
}

// add puts a step behind the others. It waits when the keeper is far behind, never for a
// disk.
func (h *History) add(c *Step) {
	// What a Freeze says has microseconds; and a clock may be set back.
	c.at = c.at.Truncate(time.Microsecond)
	if n := len(h.log); n > 0 && !c.at.After(h.log[n-1].at) {
		c.at = h.log[n-1].at.Add(time.Microsecond)
	}
	h.counted++
	c.sequence = h.counted
	h.log = append(h.log, c)
	h.trim()
	if h.keeper != nil {
		h.keeper.Add(c)
	}
}

// trim lets the oldest steps go, beyond what may be kept.
func (h *History) trim() {
	total := 0
	if h.keeper != nil {
		total = h.keeper.Total()
	}
	if len(h.log) <= Limit && total < h.trimmed+trimEvery {
		return
	}
	h.trimmed = total
	size := 0
	keep := len(h.log)
	for ; keep > 0 && len(h.log)-keep < Limit; keep-- {
		packed, _ := h.look(h.log[keep-1])
		if size += len(packed); size > limitBytes {
			break
		}
	}
	for _, c := range h.log[:keep] {
		h.began = c.at
		if c.count > 0 {
			h.letGo++
		}
	}
	h.log = slices.Delete(h.log, 0, keep)
}

// namedOwners is how many objects a step names at most.
const namedOwners = 8

// name notes an object that the step is of.
func (c *Step) name(o model.Object) {
	if len(c.owners) < namedOwners && !slices.Contains(c.owners, o) {
		c.owners = append(c.owners, o)
	}
}

// ownersOf are the first owners of changes to a state, sorted.
func ownersOf(before, changes Routing) []model.Object {
	var c Step
	for k, v := range changes.hosts {
		for _, o := range routeOwners(before.hosts[k], v) {
			c.name(o)
		}
	}
	for k, v := range changes.tls {
		for _, h := range []*model.TLSHost{before.tls[k], v} {
			if h != nil {
				c.name(h.Owner)
			}
		}
	}
	c.nameRest(before, changes)
	slices.SortFunc(c.owners, model.Object.Compare)
	return c.owners
}

// routeOwners are the owners of the routes that differ.
func routeOwners(before, after *model.VirtualHost) []model.Object {
	routes := func(h *model.VirtualHost) map[string]*model.Route {
		byName := map[string]*model.Route{}
		if h != nil {
			for i := range h.Routes {
				byName[h.Routes[i].Name] = &h.Routes[i]
			}
		}
		return byName
	}
	old, now := routes(before), routes(after)
	var owners []model.Object
	for name, r := range now {
		if was := old[name]; was == nil || !reflect.DeepEqual(was, r) {
			owners = append(owners, r.Owner)
		}
	}
	for name, r := range old {
		if now[name] == nil {
			owners = append(owners, r.Owner)
		}
	}
	return owners
}

// LastRevision is the revision of the last step of routing; zero when there is none.
func (h *History) LastRevision() delta.Revision {
	for _, c := range slices.Backward(h.log) {
		if c.count > 0 {
			return c.revision
		}
	}
	return delta.Revision{}
}

// asOf is how many steps there are up to a time.
func (h *History) asOf(t time.Time) int {
	i, _ := slices.BinarySearchFunc(h.log, t, func(c *Step, t time.Time) int {
		if c.at.After(t) {
			return 1
		}
		return -1
	})
	return i
}

// Prepend puts steps of planes before this one before its own.
func (h *History) Prepend(a Adoption) error {
	h.lacks = a.Lacks
	if len(h.log) > 0 && a.replaces < h.log[0].sequence-1 || len(a.Steps) == 0 && !a.Began.Before(h.began) {
		return nil // some own steps are gone already: they do not fit together
	}
	own := slices.IndexFunc(h.log, func(c *Step) bool { return c.sequence > a.replaces })
	if own < 0 {
		own = len(h.log)
	}
	if n := len(a.Steps); n > 0 && own < len(h.log) && !h.log[own].at.After(a.Steps[n-1].at) {
		return ErrMoved
	}
	h.log = slices.Concat(a.Steps, h.log[own:])
	h.began, h.letGo = a.Began, a.letGo
	h.trim()
	return nil
}

// look returns a step packed, or else what it replaced.
func (h *History) look(c *Step) ([]byte, State) {
	if h.keeper == nil {
		return c.packed, c.before
	}
	return h.keeper.Look(c)
}

// hold keeps the published value of each key that changes, and forgets it when what is
// wanted is the same again.
func hold[K comparable, V any](wanted, held, changes map[K]*V) {
	for k, v := range changes {
		old, is := held[k]
		if !is {
			old = wanted[k]
		}
		if (old == nil) == (v == nil) && (old == nil || reflect.DeepEqual(old, v)) {
			delete(held, k)
		} else {
			held[k] = old
		}
	}
}

// turn moves what is published to a target, which names the keys whose value differs from
// what is wanted, and returns the changes.
func turn[K comparable, V any](wanted, held, target map[K]*V) map[K]*V {
	out := map[K]*V{}
	for k := range held {
		if _, is := target[k]; !is {
			out[k] = wanted[k]
			delete(held, k)
		}
	}
	for k, v := range target {
		now, is := held[k]
		if !is {
			now = wanted[k]
		}
		if now != v {
			out[k] = v
		}
		if wanted[k] == v {
			delete(held, k)
		} else {
			held[k] = v
		}
	}
	return out
}

// published is the state that machines are sent.
func published[K comparable, V any](wanted, held map[K]*V) map[K]*V {
	out := maps.Clone(wanted)
	replace(out, held)
	return out
}

// replace sets what changed, and deletes what is nil.
func replace[K comparable, V any](state, changes map[K]*V) {
	for k, v := range changes {
		if v == nil {
			delete(state, k)
		} else {
			state[k] = v
		}
	}
}

// values are the state's values of the keys of another map; nil where it has none.
func values[K comparable, V, W any](state map[K]*V, keys map[K]*W) map[K]*V {
	out := make(map[K]*V, len(keys))
	for k := range keys {
		out[k] = state[k]
	}
	return out
}

// keepPresent leaves removals out and notes them.
func keepPresent[K comparable, V any](changes map[K]*V, gone map[K]bool) map[K]*V {
	out := make(map[K]*V, len(changes))
	for k, v := range changes {
		if v == nil {
			gone[k] = true
			continue
		}
		delete(gone, k)
		out[k] = v
	}
	return out
}

func absent[K comparable, V any](keys map[K]bool) map[K]*V {
	out := make(map[K]*V, len(keys))
	for k := range keys {
		out[k] = nil
	}
	return out
}
