package delta

import (
	"slices"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
)

// respond makes the next response of a sendable subscription.
func (s *subscription) respond() *discoveryv3.DeltaDiscoveryResponse {
	items := s.take()
	resp := s.response()
	for _, it := range items {
		it.needed, it.next = false, Revision{}
		s.forget(it)
		s.needed--
		put(resp, it, it.want)
	}
	s.greet = false
	s.outstanding = &response{nonce: resp.Nonce, items: items}
	return resp
}

// response is an empty one.
func (s *subscription) response() *discoveryv3.DeltaDiscoveryResponse {
	st := s.stream
	for _, layer := range st.layers {
		if layer.revision.Compare(st.revision) > 0 {
			st.revision = layer.revision
		}
	}
	return &discoveryv3.DeltaDiscoveryResponse{
		SystemVersionInfo: st.revision.String(),
		TypeUrl:           string(s.typ),
		Nonce:             s.nextNonce(),
	}
}

// put adds an item to a response, as e has it.
func put(resp *discoveryv3.DeltaDiscoveryResponse, it *item, e *entry) {
	it.inFlight, it.sent, it.force = true, e.version(), false
	if e != nil {
		resp.Resources = append(resp.Resources, e.wire)
	} else {
		resp.RemovedResources = append(resp.RemovedResources, it.name)
	}
}

// take removes the items of the next response from the retry groups, or, when
// there are none, from the queue.
func (s *subscription) take() []*item {
	for len(s.retry) > 0 {
		taken, rest := s.pack(s.retry[0], s.ungroup)
		if len(rest) > 0 {
			s.retry[0] = rest
		} else {
			s.retry = s.retry[1:]
		}
		if len(taken) > 0 {
			return taken
		}
	}
	taken, rest := s.pack(s.queue, s.unqueue)
	if s.queue = rest; len(rest) == 0 {
		s.queue = nil
	}
	return taken
}

// pack splits list into what fits one response and the rest. leave is called for
// each item that leaves the list; those that need nothing any more are left out.
func (s *subscription) pack(list []*item, leave func(*item)) (taken, rest []*item) {
	size := 0
	for i, it := range list {
		if !it.needed {
			leave(it)
			continue
		}
		cost := len(it.name) + fieldOverhead
		if it.want != nil {
			cost = it.want.size
		}
		if len(taken) > 0 && size+cost > s.stream.options.MaxResponseBytes {
			return taken, list[i:]
		}
		size += cost
		leave(it)
		taken = append(taken, it)
	}
	return taken, nil
}

// accepted takes the ack of a response.
func (s *subscription) accepted(out *response) {
	for _, it := range out.items {
		if it.dropped {
			continue
		}
		it.inFlight, it.unsure = false, false
		it.known, it.have = true, it.sent
		s.stream.events = append(s.stream.events, s.event(it.name, it.sent, nil))
		s.settle(it)
		s.pay(it)
	}
}

// refused takes the nack of a response. It says nothing about which resource is
// bad, nor whether the client took the others.
func (s *subscription) refused(out *response, message string) {
	live := slices.DeleteFunc(slices.Clone(out.items), func(it *item) bool { return it.dropped })
	if len(out.items) == 0 {
		s.stream.events = append(s.stream.events, s.event("", "", &refusal{message: message}))
	}
	if len(out.items) == 1 && len(live) == 1 {
		it := live[0]
		it.inFlight = false
		it.refuse(message)
		e := s.event(it.name, it.sent, it.refusal)
		s.stream.events = append(s.stream.events, e)
		s.tell(e)
		s.settle(it)
		s.pay(it)
		return
	}
	for _, it := range live {
		it.inFlight, it.grouped = false, true
		it.doubt()
		s.settle(it)
	}
	switch half := len(live) / 2; {
	case half > 0:
		s.retry = slices.Insert(s.retry, 0, live[:half:half], live[half:])
	case len(live) == 1:
		s.retry = slices.Insert(s.retry, 0, live)
	}
}
