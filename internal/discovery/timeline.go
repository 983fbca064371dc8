package discovery

import (
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// Passage is the way of one change of a service through the plane.
type Passage struct {
	Upstream string
	Service  model.UpstreamKey
	Seen     time.Time // the source saw it
	Decided  time.Time // it came into effect; zero: it waits, or is held
}

// passages is how many of them are kept.
const passages = 512

// timeline keeps the last changes of services.
type timeline struct {
	ring  []Passage
	next  int
	waits []int // indices of changes that were seen and not decided
}

// see notes what a source has said.
func (t *timeline) see(e event) {
	note := func(k model.UpstreamKey, seen time.Time) {
		p := Passage{Upstream: e.upstream, Service: k, Seen: seen}
		if len(t.ring) < passages {
			t.ring = append(t.ring, p)
			t.waits = append(t.waits, len(t.ring)-1)
			return
		}
		t.ring[t.next] = p
		t.waits = append(t.waits, t.next)
		t.next = (t.next + 1) % passages
	}
	switch e.what {
	case put:
		for _, s := range e.services {
			seen := s.Seen
			if seen.IsZero() {
				seen = e.at
			}
			note(s.Key, seen)
		}
	case removed:
		for _, k := range e.keys {
			note(k, e.at)
		}
	}
}

// decide notes that what was seen came into effect.
func (t *timeline) decide(changes []snapshot.Change, now time.Time) {
	if len(changes) > 0 {
		for _, i := range t.waits {
			t.ring[i].Decided = now
		}
	}
	t.waits = t.waits[:0]
}
