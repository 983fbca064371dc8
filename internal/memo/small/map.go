// Package small has a map that is mostly small. Of such there are very many where few values have many readers:
// one of Go's takes half a kilobyte for its first key.
package small

import (
	"iter"
	"slices"
)

// few is up to how many keys are found without an index.
const few = 8

// Map is a map for few keys, which stays fast with many. The zero Map is empty. A copy must not be changed.
type Map[K comparable, V any] struct {
	list  []pair[K, V]
	index map[K]int // of the list, above few
}

type pair[K comparable, V any] struct {
	value V // first, so that none takes no room
	key   K
}

func (m Map[K, V]) find(k K) int {
	if m.index == nil {
		return slices.IndexFunc(m.list, func(p pair[K, V]) bool { return p.key == k })
	}
	if i, found := m.index[k]; found {
		return i
	}
	return -1
}

// Len is how many keys there are.
func (m Map[K, V]) Len() int { return len(m.list) }

// Get returns the value of a key, and whether there is one.
func (m Map[K, V]) Get(k K) (v V, found bool) {
	if i := m.find(k); i >= 0 {
		return m.list[i].value, true
	}
	return v, false
}

// All are the keys and values, in no order. The Map must not be changed meanwhile.
func (m Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, p := range m.list {
			if !yield(p.key, p.value) {
				return
			}
		}
	}
}

// Keys are the keys, in no order.
func (m Map[K, V]) Keys() iter.Seq[K] {
	return func(yield func(K) bool) {
		m.All()(func(k K, _ V) bool { return yield(k) })
	}
}

// Set sets the value of a key. It reports whether there was none before.
func (m *Map[K, V]) Set(k K, v V) bool {
	if i := m.find(k); i >= 0 {
		m.list[i].value = v
		return false
	}
	m.list = append(m.list, pair[K, V]{v, k})
	if m.index == nil && len(m.list) > few {
		m.index = map[K]int{}
	}
	for i := len(m.index); m.index != nil && i < len(m.list); i++ {
		m.index[m.list[i].key] = i
	}
	return true
}

// Delete removes a key.
func (m *Map[K, V]) Delete(k K) {
	i, last := m.find(k), len(m.list)-1
	if i < 0 {
		return
	}
	if m.index != nil {
		m.index[m.list[last].key] = i
		delete(m.index, k)
	}
	m.list[i], m.list[last] = m.list[last], pair[K, V]{}
	m.list = m.list[:last]
}
