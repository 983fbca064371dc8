package load

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		name    string
		answers map[string]int
		weights map[string]float64
		wrong   string // "" for right
	}{
		{"exact", map[string]int{"a": 6000, "b": 4000}, map[string]float64{"a": 60, "b": 40}, ""},
		{"within 4 sigma (49)", map[string]int{"a": 6190, "b": 3810}, map[string]float64{"a": 60, "b": 40}, ""},
		{"beyond 4 sigma", map[string]int{"a": 6200, "b": 3800}, map[string]float64{"a": 60, "b": 40}, "a got 62.00 %"},
		{"weights need not add up to anything", map[string]int{"a": 750, "b": 250}, map[string]float64{"a": 3, "b": 1}, ""},
		{"weight 0 gets nothing", map[string]int{"a": 100}, map[string]float64{"a": 1, "b": 0}, ""},
		{"weight 0 got one", map[string]int{"a": 10000, "b": 1}, map[string]float64{"a": 1, "b": 0}, "b got 0.01 %"},
		{"one of two is silent", map[string]int{"a": 100}, map[string]float64{"a": 1, "b": 1}, "b got 0.00 %"},
		{"a stranger", map[string]int{"a": 100, "x": 1}, map[string]float64{"a": 1}, "x got 0.99 %"},
		{"no answers", nil, map[string]float64{"a": 1}, "a got 0.00 %"},
		{"no weights", map[string]int{"a": 1}, nil, "a got 100.00 %"},
		{"all weights 0", map[string]int{"a": 1}, map[string]float64{"a": 0}, "a got 100.00 %"},
	} {
		got := Wrong(Split(c.answers, c.weights, DefaultSigmas))
		if (c.wrong == "") != (got == "") || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: wrong is %q, want %q", c.name, got, c.wrong)
		}
	}
}

// The bound lets fair dice pass and finds loaded ones.
func TestSplitAgainstDice(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	throw := func(p float64) map[string]int {
		answers := map[string]int{}
		for range 10000 {
			if dice.Float64() < p {
				answers["a"]++
			} else {
				answers["b"]++
			}
		}
		return answers
	}
	weights := map[string]float64{"a": 60, "b": 40}
	for range 300 {
		if wrong := Wrong(Split(throw(0.60), weights, DefaultSigmas)); wrong != "" {
			t.Errorf("fair dice: %s", wrong)
		}
		if wrong := Wrong(Split(throw(0.55), weights, DefaultSigmas)); wrong == "" {
			t.Error("dice of 55 % passed for 60 %")
		}
	}
}
