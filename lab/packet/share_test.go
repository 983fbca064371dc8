package packet

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"fairlead.dev/internal/lookup"
)

func evenly(n int, weights ...uint32) (list []uint32) {
	for i := range n {
		list = append(list, weights[i%len(weights)])
	}
	return list
}

// TestFlowsFollowWeights gives the program the first packets of 100,000 flows of random
// clients. Each backend gets exactly as many as package lookup computes, its rows are its
// weight's share within 1 %, and so are the flows but for chance: they are within 2 % of it,
// or within four standard deviations where those are more. The clients are the same in every
// run.
func TestFlowsFollowWeights(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it loads a BPF program")
	}
	b, err := New(100, 1<<17)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	const flows = 100_000
	for _, c := range []struct {
		name    string
		weights []uint32
	}{
		{"3 alike", evenly(3, 100)},
		{"3 of 100, 50 and 1", []uint32{100, 50, 1}},
		{"3, of which one went from 100 to 40", []uint32{100, 40, 100}},
		{"10 alike", evenly(10, 100)},
		{"10 of 1 to 100", []uint32{1, 12, 23, 34, 45, 56, 67, 78, 89, 100}},
		{"100 alike", evenly(100, 100)},
		{"100 of five weights", evenly(100, 100, 40, 80, 20, 60)},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := lookup.New(lookup.Rows(len(c.weights)), Members(c.weights))
			got, err := b.Counted(table, flows, rand.New(rand.NewPCG(1, 2)))
			if err != nil {
				t.Fatal(err)
			}
			if want := Computed(table, flows, rand.New(rand.NewPCG(1, 2))); !slices.Equal(got, want) {
				t.Fatalf("the program gave the backends %v, computed are %v", got, want)
			}
			var total float64
			for _, w := range c.weights {
				total += float64(w)
			}
			for i, m := range table.Members() {
				rows := float64(table.Shares()[i])
				due := float64(table.Len()) * float64(m.Weight) / total
				bound := due / 100
				if due < 400 { // of so few rows, a few are more
					bound = max(3, due/50)
				}
				if math.Abs(rows-due) > bound {
					t.Errorf("backend %d has %.0f rows, its weight is due %.1f", m.ID, rows, due)
				}
				part := float64(m.Weight) / total
				want := flows * part
				if away := math.Abs(float64(got[m.ID-1]) - want); away > max(0.02*want, 4*math.Sqrt(want*(1-part))) {
					t.Errorf("backend %d got %d flows, its weight is due %.0f", m.ID, got[m.ID-1], want)
				}
			}
		})
	}
}
