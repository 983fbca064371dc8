package host

import (
	"iter"
	"slices"
)

// fewKeys is how many keys a tally has in a slice.
const fewKeys = 8

// Tally counts by key; its zero value is empty. Most have one key or two, for which a map takes up to a
// kilobyte.
type Tally[K comparable] struct {
	few  []tallied[K]
	many map[K]int // instead, above fewKeys
}

type tallied[K comparable] struct {
	key   K
	count int
}

// Add counts a key up or down, and returns its count. One at 0 is no key any more.
func (t *Tally[K]) Add(k K, by int) int {
	if t.many != nil {
		count := t.many[k] + by
		if t.many[k] = count; count == 0 {
			delete(t.many, k)
		}
		return count
	}
	i := slices.IndexFunc(t.few, func(f tallied[K]) bool { return f.key == k })
	switch {
	case i >= 0:
		count := t.few[i].count + by
		if t.few[i].count = count; count == 0 {
			t.few = slices.Delete(t.few, i, i+1)
		}
		return count
	case by == 0:
		return 0
	case len(t.few) < fewKeys:
		t.few = append(t.few, tallied[K]{k, by})
		return by
	}
	t.many = make(map[K]int, 2*fewKeys)
	for _, f := range t.few {
		t.many[f.key] = f.count
	}
	t.few, t.many[k] = nil, by
	return by
}

// of is the count of a key.
func (t *Tally[K]) of(k K) int {
	for _, f := range t.few {
		if f.key == k {
			return f.count
		}
	}
	return t.many[k]
}

// size is how many keys there are.
func (t *Tally[K]) size() int { return len(t.few) + len(t.many) }

// Keys are the keys, in any order.
func (t *Tally[K]) Keys() iter.Seq[K] {
	return func(yield func(K) bool) {
		for _, f := range t.few {
			if !yield(f.key) {
				return
			}
		}
		for k := range t.many {
			if !yield(k) {
				return
			}
		}
	}
}
