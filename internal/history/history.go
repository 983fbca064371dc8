package history

import (
	"maps"
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
