package quota

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestLevelOf(t *testing.T) {
	for _, c := range []struct {
		bound  int
		claims map[string]int
		want   map[string]int // granted
	}{
		{10, map[string]int{}, map[string]int{}},
		{10, map[string]int{"a": 3, "b": 7}, map[string]int{"a": 3, "b": 7}},
		{10, map[string]int{"a": 3, "b": 70}, map[string]int{"a": 3, "b": 7}},
		{10, map[string]int{"a": 70, "b": 70}, map[string]int{"a": 5, "b": 5}},
		{11, map[string]int{"a": 70, "b": 70, "c": 1}, map[string]int{"a": 5, "b": 5, "c": 1}},
		{11, map[string]int{"b": 70, "c": 70}, map[string]int{"b": 6, "c": 5}},
		{2, map[string]int{"b": 1, "c": 1, "d": 9}, map[string]int{"b": 1, "c": 1, "d": 0}},
		{0, map[string]int{"b": 1}, map[string]int{"b": 0}},
	} {
		l := levelOf(c.bound, c.claims)
		for namespace, n := range c.claims {
			if got := min(n, l.of(namespace)); got != c.want[namespace] {
				t.Errorf("%d for %v: %s is granted %d, want %d", c.bound, c.claims, namespace, got, c.want[namespace])
			}
		}
	}
}

// Whatever is claimed: the bound holds and is used up, and nobody has more than one more than another who is refused something.
func TestLevelsAreFair(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		bound, claims, all := random.IntN(40), map[string]int{}, 0
		for i := range random.IntN(12) {
			n := 1 + random.IntN(20)
			claims[fmt.Sprintf("ns-%c", 'a'+i)] = n
			all += n
		}
		l, granted := levelOf(bound, claims), 0
		for a, n := range claims {
			has := min(n, l.of(a))
			granted += has
			for b, m := range claims {
				if min(m, l.of(b)) > has+1 && has < n {
					t.Fatalf("%d for %v: %s has %d, and %s has %d", bound, claims, a, has, b, min(m, l.of(b)))
				}
			}
		}
		if granted != min(bound, all) {
			t.Fatalf("%d for %v: %d are granted", bound, claims, granted)
		}
	}
}
