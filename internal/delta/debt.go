package delta

import (
	"container/heap"
	"container/list"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// maxPast bounds the versions of an item that are remembered while it is held back. Beyond it
// every other one is forgotten: which of them the client is told does not matter, as long as
// it is told one now and then.
const maxPast = 64

// debts are a heap of the items of which the client lacks something, the oldest owed revision
// first. An item is in it at most once and knows its place, so a refusal adds none. A paid item
// stays in it until it comes to the top or is dropped.
type debts struct {
	list  []*item
	steps int // comparisons so far, which tests bound
}

// Len is heap.Interface's.
func (d *debts) Len() int { return len(d.list) }

// Less is heap.Interface's.
func (d *debts) Less(i, j int) bool {
	d.steps++
	return d.list[i].owed.Compare(d.list[j].owed) < 0
}

// Swap is heap.Interface's.
func (d *debts) Swap(i, j int) {
	d.list[i], d.list[j] = d.list[j], d.list[i]
	d.list[i].place, d.list[j].place = i+1, j+1
}

// Push is heap.Interface's.
func (d *debts) Push(x any) {
	it := x.(*item)
	d.list = append(d.list, it)
	it.place = len(d.list)
}

// Pop is heap.Interface's.
func (d *debts) Pop() any {
	last := len(d.list) - 1
	it := d.list[last]
	d.list[last] = nil
	d.list = d.list[:last]
	it.place = 0
	return it
}

// owe notes since when the client lacks something of an item.
func (s *subscription) owe(it *item, since Revision) {
	same := it.owed == since
	it.owed = since
	switch {
	case len(s.stream.options.Last) == 0: // nothing waits for it
	case it.place == 0:
		heap.Push(&s.debts, it)
	case !same:
		heap.Fix(&s.debts, it.place-1)
	}
}

// forgive takes a dropped item out of the debts.
func (s *subscription) forgive(it *item) {
	if it.place > 0 {
		heap.Remove(&s.debts, it.place-1)
	}
}

// indebt notes that an item changed at a revision; owed says whether something of it was
// lacking before.
func (s *subscription) indebt(it *item, at Revision, owed bool) {
	if it.dropped || !it.needed {
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
		if it.held == nil {
			it.held = s.held.PushBack(it)
		}
	}
}

// forget drops the past versions of an item.
func (s *subscription) forget(it *item) {
	it.past = nil
	if it.held != nil {
		s.held.Remove(it.held)
		it.held = nil
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
	for len(s.debts.list) > 0 {
		if it := s.debts.list[0]; it.needed || it.inFlight {
			return it.owed, true
		}
		heap.Pop(&s.debts)
	}
	return Revision{}, true
}

// before is the newest past version of an item that the client may be sent while it lacks
// something since limit, if there is one that tells it anything.
func (s *subscription) before(it *item, limit Revision) (at int, is bool) {
	s.looks++
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
	var next *list.Element
	for el := s.held.Front(); el != nil; el = next {
		next = el.Next()
		it := el.Value.(*item)
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
		} else {
			s.forget(it)
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
	for el := s.held.Front(); el != nil; el = el.Next() {
		if _, is := s.before(el.Value.(*item), limit); is {
			return true
		}
	}
	return false
}
