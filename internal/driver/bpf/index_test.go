package bpf

import (
	"fmt"
	"testing"
)

func TestIndicesComeBackLast(t *testing.T) {
	n := NewIndices(6)
	if !n.Reserve(2) || n.Reserve(2) || n.Reserve(6) || n.Reserve(0) {
		t.Error("Reserve gives 2 once, and neither 0 nor 6")
	}
	var got []uint32
	next := func() {
		v, ok := n.Alloc()
		if !ok {
			v = 0
		}
		got = append(got, v)
	}
	next()
	n.Release(1)
	n.Release(2)
	for range 6 {
		next()
	}
	if s := fmt.Sprint(got); s != "[1 3 4 5 1 2 0]" {
		t.Errorf("got %s", s)
	}
}
