package ipvs

import "testing"

// TestWide: a counter of the kernel goes round, and begins anew with its service.
func TestWide(t *testing.T) {
	const round = 1 << 32
	var w wide
	for _, c := range []struct {
		now  uint32
		want uint64
	}{{1000, 1000}, {1000, 1000}, {3e9, 3e9}, {7, round + 7}, {5e8, round + 5e8}, {20, round + 5e8 + 20}, {0, round + 5e8 + 20}} {
		if w = w.at(c.now); w.total != c.want {
			t.Errorf("at %d it is %d, want %d", c.now, w.total, c.want)
		}
	}
}
