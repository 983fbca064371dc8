package delta

import (
	"container/heap"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// maxPast bounds the versions of an item that are remembered while it is held back. Beyond it
// every other one is forgotten: which of them the client is told does not matter, as long as
// it is told one now and then.
const maxPast = 64

// debt is that the client lacks something of an item since a revision.
type debt struct {
	revision Revision
	item     *item
}

// debts are a heap, the oldest revision first. What was paid meanwhile stays in it until it
// comes to the top.
type debts []debt

// Len is heap.Interface's.
func (d debts) Len() int { return len(d) }

// Less is heap.Interface's.
func (d debts) Less(i, j int) bool { return d[i].revision.Compare(d[j].revision) < 0 }

// Swap is heap.Interface's.
func (d debts) Swap(i, j int) { d[i], d[j] = d[j], d[i] }

// Push is heap.Interface's.
func (d *debts) Push(x any) { *d = append(*d, x.(debt)) }

// Pop is heap.Interface's.
func (d *debts) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = debt{}
	*d = (*d)[:last]
	return x
}

// stands says whether a debt is one still.
func (d debt) stands() bool {
	it := d.item
	return !it.dropped && (it.needed || it.inFlight) && it.owed == d.revision
}

// owe notes since when the client lacks something of an item.
func (s *subscription) owe(it *item, since Revision) {
	it.owed = since
	if len(s.stream.options.Last) == 0 {
		return // nothing waits for it
	}
	if len(s.debts) > 2*len(s.items)+64 {
		kept := s.debts[:0]
		for _, d := range s.debts {
			if d.stands() {
				kept = append(kept, d)
			}
		}
		clear(s.debts[len(kept):])
		s.debts = kept
		heap.Init(&s.debts)
	}
	heap.Push(&s.debts, debt{since, it})
}

// indebt notes that an item changed at a revision; owed says whether something of it was
// lacking before.
func (s *subscription) indebt(it *item, at Revision, owed bool) {
	if it.dropped {
		return
	}
	if !it.needed { // it is again what the client has, or is sent
		it.past, it.next = nil, Revision{}
		return
	}
	switch {
	case !owed:
		s.owe(it, at)
	case it.inFlight && it.next == (Revision{}):
		it.next = at
	}
	if s.stream.rank(s) >= 0 {
		if len(it.past) == maxPast {
			for i := range maxPast / 2 {
				it.past[i] = it.past[2*i+1]
			}
			clear(it.past[maxPast/2:])
			it.past = it.past[:maxPast/2]
		}
		it.past = append(it.past, version{at, it.want})
	}
}

// pay takes an answer about an item: what it lacks now is what changed since that was sent.
func (s *subscription) pay(it *item) {
	if it.needed && !it.dropped && it.next != (Revision{}) {
		s.owe(it, it.next)
	}
}

// oldest is since when the client lacks something of the type; false: it lacks nothing.
func (s *subscription) oldest() (Revision, bool) {
	if s.settled() {
		return Revision{}, false
	}
	if s.greet {
		return Revision{}, true
	}
	for len(s.debts) > 0 && !s.debts[0].stands() {
		heap.Pop(&s.debts)
	}
	if len(s.debts) == 0 {
		return Revision{}, true
	}
	return s.debts[0].revision, true
}

// before is the newest past version of an item that the client may be sent while it lacks
// something since limit, if there is one that tells it anything.
func (s *subscription) before(it *item, limit Revision) (at int, is bool) {
	if !it.needed || it.force {
		return 0, false
	}
	for at = len(it.past) - 1; at >= 0; at-- {
		v := it.past[at]
		if v.revision.Compare(limit) < 0 {
			return at, v.revision.Compare(s.stream.options.Floor) >= 0 && (!it.known || it.unsure || v.entry.version() != it.have)
		}
	}
	return 0, false
}

// respondBefore makes a response of past versions, all from before limit; nil without one.
// Refused responses are tried in parts only when nothing is held back.
func (s *subscription) respondBefore(limit Revision) *discoveryv3.DeltaDiscoveryResponse {
	if len(s.retry) > 0 {
		return nil
	}
	var resp *discoveryv3.DeltaDiscoveryResponse
	var items []*item
	size := 0
	for _, it := range s.queue {
		at, is := s.before(it, limit)
		if !is {
			continue
		}
		e := it.past[at].entry
		cost := len(it.name) + fieldOverhead
		if e != nil {
			cost = e.size
		}
		if len(items) > 0 && size+cost > s.stream.options.MaxResponseBytes {
			break
		}
		size += cost
		if resp == nil {
			resp = s.response()
		}
		it.past, it.next = it.past[at+1:], Revision{}
		if len(it.past) > 0 {
			it.next = it.past[0].revision
		}
		put(resp, it, e)
		items = append(items, it)
		s.settle(it)
	}
	if resp != nil {
		s.greet = false
		s.outstanding = &response{nonce: resp.Nonce, items: items}
	}
	return resp
}

// canBefore says whether respondBefore would give one.
func (s *subscription) canBefore(limit Revision) bool {
	if len(s.retry) > 0 {
		return false
	}
	for _, it := range s.queue {
		if _, is := s.before(it, limit); is {
			return true
		}
	}
	return false
}
