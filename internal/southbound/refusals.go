package southbound

import (
	"slices"
	"sync"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// freshRefusals is how many changes are kept apart from a list that nobody reads, at least.
const freshRefusals = 1024

// What a machine's refusals may say, in bytes: a machine that refuses each of its resources with a long
// message of its own would take the plane's memory. Beyond maxTold messages are cut to shortMessage.
const (
	maxTold      = 1 << 20
	shortMessage = 64
)

// refusals are what a machine refuses on one discovery stream. A change costs no more where
// thousands are refused, since it comes under the lock of all views: it is put aside, and
// merged into the sorted list when that is read. No lock of others is held then.
type refusals struct {
	mu      sync.Mutex
	version uint64
	fresh   map[refusalKey]delta.Event // since the list was made
	size    int                        // of the list
	lengths map[refusalKey]int         // of the messages of those that last
	told    int                        // sum of them

	reading  sync.Mutex
	list     []Problem // by type and name; never changed, but replaced
	reported []Problem // that all was last asked for with
	whole    []Problem // list and reported, sorted
	stale    bool      // whole is of an older list
	work     int       // refusals sorted or copied so far, which tests bound
}

type refusalKey struct {
	typ  delta.Type
	name string
}

// note takes the begin or the end of one refusal.
func (r *refusals) note(e delta.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fresh == nil {
		r.fresh = map[refusalKey]delta.Event{}
	}
	key := refusalKey{e.Type, e.Name}
	r.fresh[key] = e
	r.told -= r.lengths[key]
	delete(r.lengths, key)
	if e.Refused && e.Message != "" {
		if r.lengths == nil {
			r.lengths = map[refusalKey]int{}
		}
		r.lengths[key] = len(e.Message)
		r.told += len(e.Message)
	}
	r.version++
}

// room is how much the message of one more refusal may say, in bytes.
func (r *refusals) room() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(shortMessage, min(maxMessage, maxTold-r.told))
}

// at is a number that moves with every change.
func (r *refusals) at() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// trim bounds what is put aside while nobody reads.
func (r *refusals) trim() {
	r.mu.Lock()
	crowded := len(r.fresh) > 2*r.size+freshRefusals
	r.mu.Unlock()
	if crowded {
		r.reading.Lock()
		defer r.reading.Unlock()
		r.merge()
	}
}

// all returns the refusals and what the machine reported, sorted. Nobody may change it.
func (r *refusals) all(reported []Problem) []Problem {
	r.reading.Lock()
	defer r.reading.Unlock()
	r.merge()
	if !r.stale && slices.Equal(r.reported, reported) {
		return r.whole
	}
	r.reported, r.whole, r.stale = reported, r.list, false
	if len(reported) > 0 {
		r.whole = zip(r.list, slices.SortedFunc(slices.Values(reported), Problem.compare))
		r.work += len(r.list)
	}
	return r.whole
}

// merge brings the list up to date. r.reading is held.
func (r *refusals) merge() {
	r.mu.Lock()
	fresh := r.fresh
	r.fresh = nil
	r.mu.Unlock()
	if len(fresh) == 0 {
		return
	}
	var begun []Problem
	for _, e := range fresh {
		if e.Refused {
			begun = append(begun, Problem{
				Kind: agentv1.Problem_KIND_REFUSED, Type: e.Type, Name: e.Name, Version: e.Version, Message: cut(e.Message, maxMessage),
			})
		}
	}
	slices.SortFunc(begun, Problem.compare)
	kept := make([]Problem, 0, len(r.list))
	for _, p := range r.list {
		if _, changed := fresh[refusalKey{p.Type, p.Name}]; !changed {
			kept = append(kept, p)
		}
	}
	r.work += len(r.list) + len(fresh)
	r.list, r.stale = zip(kept, begun), true
	r.mu.Lock()
	r.size = len(r.list)
	r.mu.Unlock()
}

// zip makes one sorted list of two.
func zip(a, b []Problem) []Problem {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	both := make([]Problem, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].compare(b[0]) <= 0 {
			both, a = append(both, a[0]), a[1:]
		} else {
			both, b = append(both, b[0]), b[1:]
		}
	}
	return append(append(both, a...), b...)
}
