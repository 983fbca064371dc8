package history

import (
	"slices"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
)

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

// Mark says what a Freeze held that said no time itself.
type Mark struct {
	Since time.Time `json:"since"` // when it was created, by the API
	AsOf  time.Time `json:"asOf"`
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

// look returns a step packed, or else what it replaced.
func (h *History) look(c *Step) ([]byte, State) {
	if h.keeper == nil {
		return c.packed, c.before
	}
	return h.keeper.Look(c)
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

// LastRevision is the revision of the last step of routing; zero when there is none.
func (h *History) LastRevision() delta.Revision {
	for _, c := range slices.Backward(h.log) {
		if c.count > 0 {
			return c.revision
		}
	}
	return delta.Revision{}
}
