package bgp

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// Subtypes of ROUTE-REFRESH (RFC 7313, 3.2).
const (
	refreshBegin = 1
	refreshEnd   = 2
)

// ribOut is what a peer holds of this machine (the Adj-RIB-Out of RFC 4271, 3.2): what was written to its connection,
// neither more nor less. It forgets a route only when its withdrawal was written: a peer that wants all routes again
// still has those that are to be taken back.
type ribOut struct {
	held  map[netip.Prefix]string // keys of the routes
	asked map[packet.Family]bool  // families that the peer wants to have again
}

func newRibOut() *ribOut {
	return &ribOut{held: map[netip.Prefix]string{}, asked: map[packet.Family]bool{}}
}

// step is a message, and what the peer holds more and less once it is written.
type step struct {
	message *packet.BGPMessage
	reach   []route
	unreach []netip.Prefix
}

// ask notes that the peer wants a family again.
func (r *ribOut) ask(f packet.Family) { r.asked[f] = true }

// steps returns what turns what the peer holds into what is wanted: new and changed routes first. With again they have
// all routes of the families that the peer asked for, between the marks of RFC 7313 if it knows them: it then drops
// whatever it holds besides.
func (r *ribOut) steps(wanted map[netip.Prefix]route, again, marks bool) ([]step, error) {
	groups := map[string][]route{}
	for p, w := range wanted {
		if key, held := r.held[p]; !held || key != w.key || again && r.asked[family(p)] {
			groups[w.key] = append(groups[w.key], w)
		}
	}
	var steps []step
	mark := func(subtype uint8) {
		for _, f := range []packet.Family{packet.RF_IPv4_UC, packet.RF_IPv6_UC} {
			if again && marks && r.asked[f] {
				steps = append(steps, step{message: packet.NewBGPRouteRefreshMessage(f.Afi(), subtype, f.Safi())})
			}
		}
	}
	mark(refreshBegin)
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		group := groups[key]
		slices.SortFunc(group, func(a, b route) int { return comparePrefix(a.prefix, b.prefix) })
		for part := range slices.Chunk(group, perMessage) {
			m, err := reach(part)
			if err != nil {
				return nil, err
			}
			steps = append(steps, step{message: m, reach: part})
		}
	}
	gone := map[packet.Family][]netip.Prefix{}
	for p := range r.held {
		if _, ok := wanted[p]; !ok {
			gone[family(p)] = append(gone[family(p)], p)
		}
	}
	for _, f := range []packet.Family{packet.RF_IPv4_UC, packet.RF_IPv6_UC} {
		slices.SortFunc(gone[f], comparePrefix)
		for part := range slices.Chunk(gone[f], perMessage) {
			m, err := unreach(f, part)
			if err != nil {
				return nil, err
			}
			steps = append(steps, step{message: m, unreach: part})
		}
	}
	mark(refreshEnd)
	return steps, nil
}

// wrote notes that a step was written.
func (r *ribOut) wrote(s step) {
	for _, w := range s.reach {
		r.held[w.prefix] = w.key
	}
	for _, p := range s.unreach {
		delete(r.held, p)
	}
}

// answered notes that all steps with what the peer asked for were written.
func (r *ribOut) answered() { clear(r.asked) }

// list returns the prefixes that the peer holds, sorted. It is the caller's.
func (r *ribOut) list() []netip.Prefix { return slices.SortedFunc(maps.Keys(r.held), comparePrefix) }

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
