package bench

import (
	"fmt"
	"math"
	"math/rand/v2"

	"fairlead.dev/internal/lookup"
	"fairlead.dev/lab/packet"
)

// LBWeights is how near backends come to their weights.
type LBWeights struct {
	Backends int    `json:"backends"`
	Weights  string `json:"weights"`
	// Rows is the largest deviation of a backend's rows from its weight's share, percent of
	// that share: what chance has no part in.
	Rows float64 `json:"rows_percent"`
	// Flows of random clients, and the largest deviation of a backend's flows.
	Flows   int     `json:"flows"`
	Largest float64 `json:"flows_percent"`
	// Chance is one standard deviation of that backend's flows where each flow goes by its
	// weight: what no load balancer that hashes is below.
	Chance float64 `json:"chance_percent"`
	// Kernel says that the program chose, and not package lookup.
	Kernel bool `json:"kernel"`
}

const (
	kernelFlows   = 100_000
	computedFlows = 10_000_000
)

// lbWeights counts flows by backend: by the program where 100,000 flows say something, and
// by what it is tested to be equal to.
func lbWeights(b *packet.Bench, tell func(string)) (list []LBWeights, err error) {
	series := func(n int, step uint32) (weights []uint32) {
		for i := range uint32(n) {
			weights = append(weights, 100-i*step)
		}
		return weights
	}
	for _, c := range []struct {
		name    string
		weights []uint32
		kernel  bool
	}{
		{"100 each", series(3, 0), true},
		{"100, 100, 40", []uint32{100, 100, 40}, true},
		{"100, 100, 100, 40", []uint32{100, 100, 100, 40}, true},
		{"100 each", series(10, 0), false},
		{"100, 90, ... 10", series(10, 10), false},
		{"100 each", series(100, 0), false},
		{"100, of one 40", append(series(99, 0), 40), false},
		{"100, 99, ... 1", series(100, 1), false},
	} {
		tell(fmt.Sprintf("weights, %d backends of %s", len(c.weights), c.name))
		table := lookup.New(lookup.Rows(len(c.weights)), packet.Members(c.weights))
		w := LBWeights{Backends: len(c.weights), Weights: c.name, Flows: computedFlows, Kernel: c.kernel}
		random := rand.New(rand.NewPCG(uint64(len(c.weights)), 1))
		var counts []uint64
		if c.kernel {
			w.Flows = kernelFlows
			if counts, err = b.Counted(table, w.Flows, random); err != nil {
				return nil, err
			}
		} else {
			counts = packet.Computed(table, w.Flows, random)
		}
		w.judge(table, counts)
		list = append(list, w)
	}
	return list, nil
}

// judge fills in how far rows and flows are from what weights are due.
func (w *LBWeights) judge(table *lookup.Table, counts []uint64) {
	var total float64
	for _, m := range table.Members() {
		total += float64(m.Weight)
	}
	for i, m := range table.Members() {
		part := float64(m.Weight) / total
		away := func(got, of float64) float64 { return 100 * math.Abs(got-of*part) / (of * part) }
		w.Rows = max(w.Rows, away(float64(table.Shares()[i]), float64(table.Len())))
		if d := away(float64(counts[m.ID-1]), float64(w.Flows)); d >= w.Largest {
			w.Largest, w.Chance = d, 100*math.Sqrt((1-part)/(part*float64(w.Flows)))
		}
	}
}
