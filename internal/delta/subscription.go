package delta

import (
	"container/list"
	"maps"
	"slices"
	"strconv"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// subscription is one type of one stream.
type subscription struct {
	stream *Stream
	typ    Type
	items  map[string]*item

	wild   bool
	legacy bool // wildcard by an empty first request, not by "*"
	greet  bool // the client waits for a first answer, even an empty one
	// opening: only the first request was taken, and nothing was sent since.
	opening bool
	all     []*watch

	queue  []*item   // needed items, first come first served, and stale ones
	retry  [][]*item // parts of refused responses, each its own response, first
	needed int
	debts  debts
	held   list.List // items with past versions, the first to have one first
	looks  int       // at items of held so far, which tests bound

	outstanding *response
}

// response is one that the client has not answered yet.
type response struct {
	nonce string
	items []*item // those dropped since then do not count
}

func newSubscription(st *Stream, t Type) *subscription {
	return &subscription{stream: st, typ: t, items: map[string]*item{}}
}

// open takes the first request of the type. What the client says that it holds is
// its baseline.
func (s *subscription) open(req *discoveryv3.DeltaDiscoveryRequest) {
	names, versions := req.GetResourceNamesSubscribe(), req.GetInitialResourceVersions()
	s.legacy = len(names) == 0 && len(req.GetResourceNamesUnsubscribe()) == 0
	s.wild = s.legacy || slices.Contains(names, wildcard)
	for _, name := range names {
		if name != wildcard && !s.track(name).explicit {
			s.track(name).explicit = true
			s.stream.names++
		}
	}
	if s.wild {
		s.follow()
		s.stream.names += len(versions)
		for name := range versions {
			s.track(name)
		}
		for _, layer := range s.stream.layers {
			if sh := layer.shelves[s.typ]; sh != nil {
				for name := range sh.entries {
					s.track(name)
				}
			}
		}
		s.greet = len(versions) == 0
	}
	for _, name := range slices.Sorted(maps.Keys(s.items)) {
		it := s.items[name]
		if it.explicit {
			s.attach(it)
		}
		if version, ok := versions[name]; ok {
			s.claim(name, version)
			continue
		}
		it.want = s.stream.lookup(s.typ, name)
		s.settle(it)
	}
}

// claim takes that the client holds a version. It has not been sent anything yet.
func (s *subscription) claim(name, version string) {
	it := s.track(name)
	it.known, it.have = true, version
	// Without a version the client cannot say what it holds.
	it.unsure, it.several = version == "", version == ""
	it.want = s.stream.lookup(s.typ, name)
	if !it.unsure && it.have == it.want.version() {
		s.stream.events = append(s.stream.events, s.event(name, it.have, nil))
	}
	s.settle(it)
}

// subscribe adds a name after the first request. A name that is subscribed to
// again is sent again: the client may have dropped it in between.
func (s *subscription) subscribe(name string) {
	it := s.items[name]
	if it == nil {
		it = s.track(name)
		it.want = s.stream.lookup(s.typ, name)
		if s.wild { // it was in step, that is why it had no item
			it.known, it.have = true, it.want.version()
		}
	}
	if !it.explicit {
		it.explicit = true
		s.stream.names++
		s.attach(it)
	}
	if it.known || it.inFlight || it.refusal != nil {
		s.again(it)
	}
	s.settle(it)
}

// subscribeAll follows every name. One who did so already is sent all again, since it may
// have dropped them in between. only says that the request adds nothing else: a client
// states its wildcard of the old form in words when it adds a first name to it. One who followed
// everything before may take what is in flight since then, though it no longer exists.
func (s *subscription) subscribeAll(only bool) {
	if s.wild && s.legacy && !only {
		s.legacy = false
		return
	}
	s.legacy = false
	repeated := s.wild
	if !repeated {
		s.wild = true
		s.follow()
	}
	names := map[string]bool{} // true: dropped in flight
	for _, layer := range s.stream.layers {
		if sh := layer.shelves[s.typ]; sh != nil {
			for name := range sh.entries {
				names[name] = false
			}
		}
	}
	if s.outstanding != nil {
		for _, it := range s.outstanding.items {
			if it.dropped {
				names[it.name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		it := s.items[name]
		if it == nil {
			it = s.track(name)
			it.want = s.stream.lookup(s.typ, name)
			if repeated {
				it.known, it.have = true, it.want.version()
			}
		}
		if names[name] {
			it.mistrust()
		}
		if repeated {
			s.again(it)
		}
		s.settle(it)
	}
	s.greet = true
}

// resend sends a name again that the client follows already, or says again that it is gone.
func (s *subscription) resend(name string) {
	it := s.items[name]
	if it == nil {
		e := s.stream.lookup(s.typ, name)
		if !s.wild {
			return
		}
		it = s.track(name)
		it.want, it.known, it.have = e, true, e.version()
	}
	if it.want != nil || s.wild {
		s.again(it)
		s.settle(it)
	}
}

// unsubscribe removes a name. Under a wildcard the client cannot know whether it
// still follows the name, so it is told again what it should hold.
func (s *subscription) unsubscribe(name string) {
	if name == wildcard {
		s.unsubscribeAll()
		return
	}
	it := s.items[name]
	if it == nil || !it.explicit {
		return
	}
	if !s.wild {
		s.drop(it)
		return
	}
	it.explicit = false
	s.stream.names--
	s.detach(it)
	s.again(it)
	s.settle(it)
}

func (s *subscription) unsubscribeAll() {
	if !s.wild {
		return
	}
	s.wild, s.legacy, s.greet = false, false, false
	for _, w := range s.all {
		w.stop()
	}
	s.all = nil
	for _, it := range s.items {
		if !it.explicit {
			s.drop(it)
		}
	}
}

// changed takes a change of one name in one set, where old was before.
func (s *subscription) changed(set *Set, name string, old *entry) {
	it := s.items[name]
	if it == nil { // a wildcard that was in step
		it = s.track(name)
		it.known, it.have = true, s.stream.before(s.typ, name, set, old).version()
	}
	owed := it.needed || it.inFlight
	it.want = s.stream.lookup(s.typ, name)
	s.settle(it)
	s.indebt(it, set.revision, owed)
	s.stream.poke()
}

// relayer compares what the client follows in the stream's layers with what it
// followed in the old ones.
func (s *subscription) relayer(old []*Set) {
	if s.wild {
		for _, w := range s.all {
			w.stop()
		}
		s.follow()
		was := &Stream{layers: old}
		for _, name := range s.differing(old) {
			e := was.lookup(s.typ, name)
			if s.items[name] == nil && e.version() != s.stream.lookup(s.typ, name).version() {
				it := s.track(name)
				it.known, it.have = true, e.version()
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.items)) {
		it := s.items[name]
		s.forget(it) // what it was in other sets
		if it.explicit {
			s.detach(it)
			s.attach(it)
		}
		it.want = s.stream.lookup(s.typ, name)
		s.settle(it)
	}
}

// differing gives the names of the sets that are only in one of the stream's
// layers and old, sorted.
func (s *subscription) differing(old []*Set) []string {
	names := map[string]struct{}{}
	collect := func(from, other []*Set) {
		for _, set := range from {
			if sh := set.shelves[s.typ]; sh != nil && !slices.Contains(other, set) {
				for name := range sh.entries {
					names[name] = struct{}{}
				}
			}
		}
	}
	collect(old, s.stream.layers)
	collect(s.stream.layers, old)
	return slices.Sorted(maps.Keys(names))
}

func (s *subscription) close() {
	for _, w := range s.all {
		w.stop()
	}
	for _, it := range s.items {
		s.detach(it)
	}
	s.all, s.items, s.outstanding = nil, nil, nil
}

// track returns the item of a name and makes it if there is none.
func (s *subscription) track(name string) *item {
	it := s.items[name]
	if it == nil {
		it = &item{name: name}
		s.items[name] = it
	}
	return it
}

// again makes the next response carry the item whatever the client holds. Only the ack of a
// response says what it holds after that: it may have dropped the name, or wait for an answer,
// and a refused response gives it neither back.
func (s *subscription) again(it *item) {
	it.force = true
	it.mistrust()
	s.pardon(it)
}

// pardon forgets that a version was refused.
func (s *subscription) pardon(it *item) {
	if r := it.refusal; r != nil {
		it.refusal = nil
		s.tell(s.event(it.name, r.version, nil))
	}
}

// tell tells the owner of the begin or the end of a refusal.
func (s *subscription) tell(e Event) {
	if refused := s.stream.options.Refused; refused != nil {
		refused(e)
	}
}

// settle brings the item's place in the subscription up to date after any change
// of the item.
func (s *subscription) settle(it *item) {
	if it.refusal != nil && it.refusal.version != it.want.version() {
		s.pardon(it)
	}
	if needed := it.needs(); needed != it.needed {
		it.needed = needed
		if needed {
			s.needed++
			if !it.inFlight {
				s.owe(it, Revision{})
			}
		} else { // it is again what the client has, or is sent
			s.needed--
			it.next = Revision{}
			s.forget(it)
		}
	}
	if it.needed && !it.queued && !it.grouped {
		it.queued = true
		s.enqueue(it)
	}
	if it.idle() {
		s.drop(it)
	}
}

// enqueue appends to the queue, whose stale part stays smaller than its live one
// even while a client subscribes and unsubscribes without ever answering.
func (s *subscription) enqueue(it *item) {
	if len(s.queue) > 2*len(s.items)+64 {
		s.queue = slices.DeleteFunc(s.queue, func(it *item) bool { return it.dropped })
	}
	s.queue = append(s.queue, it)
}

// drop forgets the item. Responses in flight, the queue and the retry groups may
// still point to it and skip it.
func (s *subscription) drop(it *item) {
	if it.needed {
		it.needed = false
		s.needed--
	}
	s.detach(it)
	s.pardon(it)
	s.forgive(it)
	s.forget(it)
	it.dropped = true
	delete(s.items, it.name)
	if it.explicit {
		s.stream.names--
	}
}

func (s *subscription) follow() {
	s.all = s.all[:0]
	for _, layer := range s.stream.layers {
		s.all = append(s.all, layer.watchAll(s))
	}
}

func (s *subscription) attach(it *item) {
	for _, layer := range s.stream.layers {
		it.watches = append(it.watches, layer.watch(s, it.name))
	}
}

func (s *subscription) detach(it *item) {
	for _, w := range it.watches {
		w.stop()
	}
	it.watches = nil
}

func (s *subscription) settled() bool {
	return s.needed == 0 && s.outstanding == nil && !s.greet
}

func (s *subscription) sendable() bool {
	return s.outstanding == nil && (s.needed > 0 || s.greet)
}

// tidy empties queues that hold nothing but stale items, so that a stream that is
// not asked for responses does not keep them.
func (s *subscription) tidy() {
	if s.needed > 0 || s.outstanding != nil {
		return
	}
	for _, it := range s.queue {
		s.unqueue(it)
	}
	for _, group := range s.retry {
		for _, it := range group {
			s.ungroup(it)
		}
	}
	s.queue, s.retry = nil, nil
}

func (s *subscription) unqueue(it *item) {
	it.queued = false
	if !it.dropped && it.idle() {
		s.drop(it)
	}
}

func (s *subscription) ungroup(it *item) {
	it.grouped = false
	if !it.dropped && it.idle() {
		s.drop(it)
	}
}

func (s *subscription) nextNonce() string {
	s.stream.nonce++
	return strconv.FormatUint(s.stream.nonce, 10)
}

func (s *subscription) event(name, version string, r *refusal) Event {
	e := Event{Type: s.typ, Name: name, Version: version}
	if r != nil {
		e.Refused, e.Message = true, r.message
	}
	return e
}
