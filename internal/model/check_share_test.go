package model

import (
	"math"
	"testing"
)

func TestFairShare(t *testing.T) {
	for _, c := range []struct {
		total int
		wants []int
		want  int
	}{
		{10, nil, math.MaxInt},
		{10, []int{4, 6}, math.MaxInt},
		{10, []int{4, 7}, 6},
		{10, []int{100, 100}, 5},
		{10, []int{100, 1, 2, 100}, 3},
		{1000, []int{200_000, 50}, 950},
		{1, []int{3, 3}, 0},
	} {
		if got := FairShare(c.total, c.wants); got != c.want {
			t.Errorf("%d among %v: %d each at most, want %d", c.total, c.wants, got, c.want)
		}
	}
}
