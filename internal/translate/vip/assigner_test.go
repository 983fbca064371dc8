package vip

import (
	"fmt"
	"strings"
	"testing"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/fleet"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/pool"
)

// TestAssignmentLimit holds that a pool gives away as many addresses as its status can hold, without walking through
// a /64.
func TestAssignmentLimit(t *testing.T) {
	g := memo.New()
	in := input.New(g, input.Config{}.WithDefaults())
	pools := pool.New(g, in)
	tables := New(g, in, Rooms{Pool: pools, Fleet: fleet.New(g, in, fleet.Rooms{Pool: pools})})
	wants := memo.NewInput[int, *Want](g, "wants of the test")
	memo.NewScan(g, "wants of the test: index", wants, func(c *memo.Context, _ int, w *Want) {
		tables.Wants.Put(c, memo.Unit{}, w.Owner, w)
	}, memo.Puts(tables.Wants))
	g.Seal()
	s := snapshot.New()
	edge := &v1alpha1.AddressPool{}
	edge.Name, edge.Spec.Addresses = "edge", []string{"192.0.2.0/24", "198.51.96.0/20", "2001:db8::/64"}
	k, err := s.Set(edge)
	if err != nil {
		t.Fatal(err)
	}
	in.Changed(s, k)
	const owners = assignmentLimit + 5
	for i := range owners {
		wants.Set(i, &Want{Owner: input.Object(snapshot.KindGateway, snapshot.Name{Namespace: "team", Name: fmt.Sprintf("edge-%d", i)}), Needs: Request{}.Needs()})
	}
	g.Run()
	c := g.Peek()
	if n := len(tables.PoolOutcomes.Get(c, "edge").Records); n != assignmentLimit {
		t.Fatalf("%d assignments", n)
	}
	refused := 0
	for i := range owners {
		outcome := tables.Outcomes.Get(c, input.Object(snapshot.KindGateway, snapshot.Name{Namespace: "team", Name: fmt.Sprintf("edge-%d", i)}))
		if outcome.Hold != nil && strings.Contains(outcome.Hold.Message, fullText()) {
			refused++
		}
	}
	// Every owner receives one address of each family.
	if want := owners - assignmentLimit/2; refused != want {
		t.Errorf("%d owners receive none, want %d", refused, want)
	}
}
