package mirror

import (
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/internal/model"
)

// paceStep is the time between two steps of a return.
const paceStep = 250 * time.Millisecond

// pace spreads over some time what an upstream that returns takes away.
type pace struct {
	now   time.Time // the last that was told
	until time.Time // the end of the return
	step  time.Time // when changes came into effect last
	next  map[model.UpstreamKey]*model.UpstreamService
}

func (p *pace) begin(now time.Time, d time.Duration) {
	p.set(now)
	p.until = now.Add(d)
}

// set notes the time. A clock that was set back prolongs no return.
func (p *pace) set(now time.Time) {
	if back := p.now.Sub(now); back > 0 {
		p.until, p.step = p.until.Add(-back), p.step.Add(-back)
	}
	p.now = now
}

// defers says whether a form of a service (nil: none) has to wait for its turn, since it takes something away.
func (p *pace) defers(e *service, next *model.UpstreamService) bool {
	return p.now.Before(p.until) && len(e.objects) > 0 && (next == nil || len(leaving(e.from, readyIn(next))) > 0)
}

// add has a form of a service wait for its turn.
func (p *pace) add(k model.UpstreamKey, next *model.UpstreamService) {
	if p.next == nil {
		p.next = map[model.UpstreamKey]*model.UpstreamService{}
	}
	if len(p.next) == 0 {
		p.step = p.now
	}
	p.next[k] = next
}

// takeDue takes the changes whose turn has come: an equal part in each step until the return ends.
func (p *pace) takeDue(now time.Time) []model.UpstreamKey {
	if p.set(now); len(p.next) == 0 {
		return nil
	}
	if !now.Before(p.until) {
		return sortedKeys(p.next)
	}
	passed, left := int(now.Sub(p.step)/paceStep), int(p.until.Sub(p.step)/paceStep)+1
	if passed <= 0 {
		return nil
	}
	keys := sortedKeys(p.next)
	p.step = p.step.Add(time.Duration(passed) * paceStep)
	return keys[:min(len(keys), (len(keys)*passed+left-1)/left)]
}

// readyIn are the addresses of a service that take new work.
func readyIn(s *model.UpstreamService) map[netip.Addr]bool {
	ready := map[netip.Addr]bool{}
	for _, s := range s.Slices {
		for _, e := range s.Endpoints {
			if e.Ready {
				ready[e.Address] = true
			}
		}
	}
	return ready
}

// leaving are the slices of a service with those endpoints that take new work and are not to any more.
func leaving(before *model.UpstreamService, ready map[netip.Addr]bool) []model.UpstreamSlice {
	var leave []model.UpstreamSlice
	for _, s := range before.Slices {
		var endpoints []model.UpstreamEndpoint
		for _, e := range s.Endpoints {
			if e.Ready && !ready[e.Address] {
				endpoints = append(endpoints, e)
			}
		}
		if len(endpoints) > 0 {
			s.Endpoints = endpoints
			leave = append(leave, s)
		}
	}
	return leave
}

// withLeaving is the next form of a service, together with the endpoints that it takes away.
func withLeaving(before, next *model.UpstreamService) *model.UpstreamService {
	both := *next
	both.Slices = slices.Clone(next.Slices)
	named := make(map[string]int, len(both.Slices)) // the first of each name: there may be very many
	for i := len(both.Slices) - 1; i >= 0; i-- {
		named[both.Slices[i].Name] = i
	}
	for _, s := range leaving(before, readyIn(next)) {
		i, is := named[s.Name]
		if is && slices.Equal(both.Slices[i].Ports, s.Ports) {
			gone := make(map[netip.Addr]bool, len(s.Endpoints))
			for _, e := range s.Endpoints {
				gone[e.Address] = true
			}
			leaves := func(e model.UpstreamEndpoint) bool { return gone[e.Address] }
			both.Slices[i].Endpoints = append(slices.DeleteFunc(slices.Clone(both.Slices[i].Endpoints), leaves), s.Endpoints...)
			continue
		}
		if is {
			s.Name += "-leaving" // it had other ports
		}
		both.Slices = append(both.Slices, s)
	}
	return &both
}
