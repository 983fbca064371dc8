package xdp

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Whatever is given out and back: no two have a row in common, and all comes together again.
func TestSlabGivesEveryRowOnce(t *testing.T) {
	const size = 1 << 16
	random := rand.New(rand.NewPCG(5, 5))
	s := newSlab(size)
	owner := make([]int, size)
	held := map[int]extent{}
	give := func(id int, e extent) {
		for i := e.base; i < e.end(); i++ {
			if owner[i] != 0 {
				t.Fatalf("row %d is given to %d and %d", i, owner[i], id)
			}
			owner[i] = id
		}
		held[id] = e
	}
	for id := 1; id < 4000; id++ {
		n := uint32(1) << random.IntN(13)
		base := uint32(random.IntN(size))
		switch random.IntN(3) {
		case 0:
			free := base+n <= size
			for i := base; free && i < base+n; i++ {
				free = owner[i] == 0
			}
			if got := s.reserve(base, n); got != free {
				t.Fatalf("take %d rows at %d: %t, want %t", n, base, got, free)
			}
			if free {
				give(id, extent{base, n})
			}
		case 1:
			if base, ok := s.alloc(n); ok {
				give(id, extent{base, n})
			}
		default:
			for id, e := range held {
				s.release(e.base, e.size)
				clear(owner[e.base:e.end()])
				delete(held, id)
				break
			}
		}
	}
	for _, e := range held {
		s.release(e.base, e.size)
	}
	if got := fmt.Sprint(s.free); got != "[{0 65536}]" {
		t.Errorf("free at last: %s", got)
	}
}
