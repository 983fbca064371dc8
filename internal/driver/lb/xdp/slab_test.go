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
			if got := s.take(base, n); got != free {
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

func TestNumbersComeBackLast(t *testing.T) {
	n := newNumbers(6)
	if !n.take(2) || n.take(2) || n.take(6) || n.take(0) {
		t.Error("take gives 2 once, and neither 0 nor 6")
	}
	var got []uint32
	next := func() {
		v, ok := n.alloc()
		if !ok {
			v = 0
		}
		got = append(got, v)
	}
	next()
	n.release(1)
	n.release(2)
	for range 6 {
		next()
	}
	if s := fmt.Sprint(got); s != "[1 3 4 5 1 2 0]" {
		t.Errorf("got %s", s)
	}
}
