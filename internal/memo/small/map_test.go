package small

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestMapIsAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var m Map[int, int]
	want := map[int]int{}
	check := func() {
		t.Helper()
		got := maps.Collect(m.All())
		if !maps.Equal(got, want) || m.Len() != len(want) {
			t.Fatalf("%d: %v, want %v", m.Len(), got, want)
		}
		if keys := slices.Collect(m.Keys()); len(keys) != len(want) {
			t.Fatalf("keys %v, want those of %v", keys, want)
		}
		for k := range 30 {
			v, found := m.Get(k)
			if w, has := want[k]; v != w || found != has {
				t.Fatalf("Get(%d): %d %v, want %d %v", k, v, found, w, has)
			}
		}
	}
	for i := range 20000 {
		keys := 4 + i/1000%3*12 // few and many, by turns
		k, v := r.IntN(keys), r.IntN(100)
		if _, has := want[k]; r.IntN(2) == 0 {
			if m.Set(k, v) == has {
				t.Fatalf("Set(%d) does not say %v", k, !has)
			}
			want[k] = v
		} else {
			m.Delete(k)
			delete(want, k)
		}
		check()
	}
	for range m.All() {
		break
	}
	for k := range 30 {
		m.Delete(k)
	}
	clear(want)
	check()
}

func TestMapKeepsNothing(t *testing.T) {
	var m Map[int, *int]
	for k := range 3 {
		m.Set(k, new(int))
	}
	for k := range 3 {
		m.Delete(k)
	}
	for _, p := range m.list[:3] {
		if p.value != nil {
			t.Fatal("a deleted value is still held")
		}
	}
}
