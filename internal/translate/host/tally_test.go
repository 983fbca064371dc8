package host

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTally holds that a tally counts as a map does, in a slice and in a map.
func TestTally(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var got Tally[int]
		want := map[int]int{}
		for range 60 {
			k, by := rng.IntN(3*fewKeys), rng.IntN(5)-2
			if want[k] += by; got.Add(k, by) != want[k] || got.of(k) != want[k] {
				t.Fatalf("%d: %d, want %d", k, got.of(k), want[k])
			}
			if want[k] == 0 {
				delete(want, k)
			}
			if !slices.Equal(slices.Sorted(got.Keys()), slices.Sorted(maps.Keys(want))) || got.size() != len(want) {
				t.Fatalf("%v, want %v", slices.Sorted(got.Keys()), want)
			}
		}
	}
}
