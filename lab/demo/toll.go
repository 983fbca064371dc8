package demo

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// toll is what became of the requests while the router's next hops changed. A router
// chooses a connection's next hop by a hash, and with fewer or more next hops the
// hash of some connections leads elsewhere: to an edge that does not know them and
// says so. They are told apart from those whose way stayed as it was, of which none
// may be lost.
type toll struct {
	// Lost on the edge that was struck, on connections that the router moved from one
	// edge to another, and on those that it left where they were.
	struck, moved, stayed int
	// exchanged failed while the router exchanged next hops, and nobody passed their packets on.
	exchanged int
	// kept is how many requests went over connections that stayed, on edges that were
	// not struck; without any of them there is nothing to show.
	kept int
	// edges counts the requests by the edge that they went to.
	edges map[string]count
	// unexcused are the failed requests that stayed counts.
	unexcused []sample
}

type count struct{ requests, failed int }

// exchangeTime is how long after a failure it may be known that routes changed.
const exchangeTime = 500 * time.Millisecond

// exchanges says that a request may have failed since the router's kernel exchanges the next hops of an
// IPv6 route one after another: the first of the new ones takes the place of all, and then the others are
// added (Linux, ip6_route_multipath_add). What comes in between goes to the first. Edges that pass packets
// on lose nothing by it. The caller holds the lock.
func (t *traffic) exchanges(s sample) bool {
	return t.alone && s.flow.vip.Is6() && slices.ContainsFunc(t.tables[s.flow.vip], func(to table) bool {
		return to.since.Sub(s.end).Abs() <= exchangeTime
	})
}

// toll sums up the requests. struck is the edge that was struck, if any, at the moment since
// or just after it; until is when the router was seen to have taken it out. What failed counts
// as struck if the router's kernel led its connection to the struck edge, or another edge gave
// it to the proxy there. It does not if it had failed before, nor if the connection was refused
// that was begun when the router led elsewhere: whoever is led to that edge later is to be
// served.
func (t *traffic) toll(struck string, since, until time.Time) toll {
	sum := toll{edges: map[string]count{}}
	samples := t.since(time.Time{}, nil)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range samples {
		edge := s.edge
		var edges []string
		if s.conn != nil {
			edges = s.conn.edges
		}
		// Who is given to the struck edge's proxy when that is back is to be served.
		given := s.conn != nil && slices.Contains(s.conn.owners, struck) && !s.conn.dialed.After(until)
		hit := struck != "" && (slices.Contains(edges, struck) || given)
		if s.failed && (s.end.Before(since) || s.refused && s.conn != nil && s.conn.dialed.After(until)) {
			hit = false
		}
		if edge == "" && len(edges) > 0 {
			edge = edges[0]
		}
		if s.failed && hit {
			edge = struck // whoever passed it on
		}
		n := sum.edges[edge]
		n.requests++
		if s.failed {
			n.failed++
		}
		sum.edges[edge] = n
		switch {
		case hit:
			if s.failed {
				sum.struck++
			}
		case s.failed && !s.refused && t.exchanges(s):
			sum.exchanged++
		case len(edges) > 1 && !s.refused:
			if s.failed {
				sum.moved++
			}
		case s.failed:
			sum.stayed++
			sum.unexcused = append(sum.unexcused, s)
		default:
			sum.kept++
		}
	}
	return sum
}

// trace asks the edges' flow tables to whom they gave the connections that failed: one that
// gets a new connection gives it to the proxy of any edge, by its own table.
func (t *traffic) trace(ctx context.Context) error {
	for _, s := range t.since(time.Time{}, func(s sample) bool { return s.failed && s.conn != nil }) {
		local := s.conn.local
		list, err := t.st.plane.Flows(ctx, console.FlowFilter{FlowQuery: model.FlowQuery{
			Frontend: model.FrontendKey{VIP: s.flow.vip, Port: s.flow.address().Port(), Transport: model.TCP},
			Client:   netip.PrefixFrom(local.Addr(), local.Addr().BitLen()), Limit: v1.MaxFlows,
		}})
		if err != nil {
			return err
		}
		t.mu.Lock()
		for _, f := range list.Flows {
			if f.Client == local && f.Machine != "" && !slices.Contains(s.conn.owners, f.Machine) {
				s.conn.owners = append(s.conn.owners, f.Machine)
			}
		}
		t.mu.Unlock()
	}
	return nil
}

// reckon tells what was lost since the step's event, in which an edge was struck or none. until
// is when the router was seen to have followed.
func (s *Step) reckon(ctx context.Context, t *traffic, struck string, until time.Time) error {
	if err := t.trace(ctx); err != nil {
		return fmt.Errorf("find the edges of the lost connections: %w", err)
	}
	s.judge(t.st, t.toll(struck, s.event, until), struck)
	return nil
}

// byEdge writes who lost what.
func (t toll) byEdge(st *stage) string {
	var parts []string
	for _, m := range st.edges {
		n := t.edges[m.Name()]
		parts = append(parts, fmt.Sprintf("%s %d of %s", m.Name(), n.failed, thousands(n.requests)))
	}
	if n := t.edges[""]; n.requests > 0 {
		parts = append(parts, fmt.Sprintf("no edge %d of %s", n.failed, thousands(n.requests)))
	}
	return strings.Join(parts, ", ")
}

// judge tells what was lost, and that nothing was of what could stay.
func (s *Step) judge(st *stage, t toll, struck string) {
	var of []string
	if struck != "" {
		of = append(of, fmt.Sprintf("%d on %s", t.struck, struck))
	}
	of = append(of, fmt.Sprintf("%d on connections that the router's hash moved to another edge", t.moved),
		fmt.Sprintf("%d of %s on all others", t.stayed, thousands(t.stayed+t.kept)))
	s.fact("lost: %s", strings.Join(of, ", "))
	if t.exchanged > 0 {
		s.fact("lost while the router's kernel replaced next hops of IPv6 (edges forward nothing then): %d", t.exchanged)
		s.figure("failed_exchanged", float64(t.exchanged))
		s.excused = t.exchanged
	}
	s.fact("lost by edge: %s", t.byEdge(st))
	s.figure("failed_struck", float64(t.struck))
	s.figure("failed_moved", float64(t.moved))
	s.figure("failed_stayed", float64(t.stayed))
	for _, lost := range t.unexcused[:min(len(t.unexcused), shownLosses)] {
		s.fact("%s", lost.story(s.event))
	}
	if t.stayed > 0 {
		s.wrong("%d requests were lost on connections whose path did not change, want none", t.stayed)
	}
	if t.kept == 0 {
		s.wrong("no connection kept its path: nothing was shown")
	}
}

// shownLosses is how many of the requests that should not have been lost are told of.
const shownLosses = 5

// story says what became of a request that failed, in times since an event.
func (s sample) story(event time.Time) string {
	ms := func(at time.Time) float64 { return float64(at.Sub(event).Microseconds()) / 1000 }
	way := "without a connection"
	if s.conn != nil {
		way = fmt.Sprintf("from %s, begun at %+.1f ms, led to %s, given to the proxy of %s",
			s.conn.local, ms(s.conn.dialed), inProse(s.conn.edges), inProse(s.conn.owners))
	}
	return fmt.Sprintf("a request to %s at %+.1f to %+.1f ms, %s: %v", s.flow.vip, ms(s.start), ms(s.end), way, s.err)
}
