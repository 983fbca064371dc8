package memo

import (
	"iter"
	"reflect"
)

// Table is a table whose values are computed from other tables.
type Table[K comparable, V any] struct {
	*meta
	f         func(*Context, K) (V, bool) // nil in Inputs and Sums
	equal     func(a, b V) bool
	cells     map[K]*entry[K, V]
	followers []func(k K, step int32)
	sum       any     // the Sum that it is part of, if it is
	changes   map[K]V // since the last Changes; nil where nobody asks
}

type entry[K comparable, V any] struct {
	node
	in    *Table[K, V]
	key   K
	value V
}

func newTable[K comparable, V any](m *meta) Table[K, V] {
	return Table[K, V]{meta: m, cells: map[K]*entry[K, V]{}, equal: deepEqual[V]}
}

func deepEqual[V any](a, b V) bool { return reflect.DeepEqual(a, b) }

// NewTable declares a Table. The function returns the value of a key, and whether there is one.
func NewTable[K comparable, V any](g *Graph, name string, f func(c *Context, k K) (V, bool), options ...Option) *Table[K, V] {
	t := newTable[K, V](g.declare(name, options...))
	t.f, t.lazy = f, true
	return &t
}

// Equal replaces how values are compared, which is by reflect.DeepEqual.
func (t *Table[K, V]) Equal(equal func(a, b V) bool) *Table[K, V] {
	t.equal = equal
	return t
}

// Driver is a table whose keys name keys of another one.
type Driver[K comparable] interface {
	Any
	follow(f func(k K, step int32))
}

// For has a Table hold a value for each key of a driver. It is computed when the value of the driver changes, too.
func For[K comparable, V any](t *Table[K, V], d Driver[K]) *Table[K, V] {
	return ForKey(t, d, func(k K) K { return k })
}

// ForKey is For where the driver has other keys. One key may be named by several.
func ForKey[K, D comparable, V any](t *Table[K, V], d Driver[D], key func(D) K) *Table[K, V] {
	t.driven(d.about())
	d.follow(func(k D, step int32) { t.hold(key(k), step) })
	return t
}

// ForParts is For with a key for each part of a Sum.
func ForParts[T, K, By comparable, W, V, S any](t *Table[T, W], s *Sum[K, By, V, S], key func(K, By) T) *Table[T, W] {
	t.driven(s.meta)
	s.partFollowers = append(s.partFollowers, func(k K, by By, step int32) { t.hold(key(k, by), step) })
	return t
}

// Always has a Table hold values for some keys, whatever happens.
func Always[K comparable, V any](t *Table[K, V], keys ...K) *Table[K, V] {
	t.driven()
	for _, k := range keys {
		t.hold(k, 1)
	}
	return t
}

func (m *meta) driven(by ...*meta) {
	m.mustBeOpen()
	m.lazy, m.before = false, append(m.before, by...)
	for _, d := range by {
		d.pushes = true
	}
}

// hold has a key computed in the next Run, after a driver began (1) or ceased (-1) to name it, or changed (0).
func (t *Table[K, V]) hold(k K, step int32) {
	e := t.at(k)
	e.held += step
	e.stale()
}

// at is the cell of a key.
func (t *Table[K, V]) at(k K) *entry[K, V] {
	e := t.cells[k]
	if e == nil {
		e = &entry[K, V]{key: k, in: t}
		e.cell, t.cells[k] = e, e
		t.size.Values++
	}
	return e
}

// Get returns the value of a key, the zero value where there is none.
func (t *Table[K, V]) Get(c *Context, k K) V {
	v, _ := t.Find(c, k)
	return v
}

// Find returns the value of a key, and whether there is one.
func (t *Table[K, V]) Find(c *Context, k K) (v V, found bool) {
	e := t.cells[k]
	if e == nil {
		e = t.at(k)
		t.g.idle = append(t.g.idle, &e.node) // for Peek
		if t.lazy {
			e.compute()
		}
	}
	if c.node == nil {
		defer t.g.sweep()
	} else {
		c.read(&e.node)
	}
	return e.value, e.has
}

// All are the keys and values, in no order. Nothing records that they were read: it is for use between Runs.
func (t *Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, e := range t.cells {
			if e.has && !yield(k, e.value) {
				return
			}
		}
	}
}

// Watch has the Table note its changes, for Changes.
func (t *Table[K, V]) Watch() *Table[K, V] {
	t.changes = map[K]V{}
	return t
}

// Changes returns the values that came or changed since it was last called, and zero values for those that went; nil
// where there are none.
func (t *Table[K, V]) Changes() map[K]V {
	if len(t.changes) == 0 {
		return nil
	}
	changes := t.changes
	t.Watch()
	return changes
}

func (t *Table[K, V]) follow(f func(k K, step int32)) { t.followers = append(t.followers, f) }

func (e *entry[K, V]) about() *meta { return e.in.meta }

func (e *entry[K, V]) compute() {
	t := e.in
	e.forget()
	c := Context{node: &e.node, before: e.puts}
	v, has := *new(V), false
	if t.lazy || e.held > 0 {
		v, has = t.f(&c, e.key)
	}
	e.dirty, e.reads, e.puts = false, exact(e.reads), c.end()
	if has != e.has || has && !t.equal(e.value, v) {
		e.set(v, has)
	} else if !has {
		t.g.idle = append(t.g.idle, &e.node)
	}
}

// set sets the value and has all that depends on it computed again.
func (e *entry[K, V]) set(v V, has bool) {
	t, step := e.in, step(e.has, has)
	if e.value, e.has = v, has; !has {
		e.value = *new(V)
		t.g.idle = append(t.g.idle, &e.node)
	}
	for reader := range e.readers.All() {
		reader.stale()
	}
	for _, f := range t.followers {
		f(e.key, step)
	}
	if t.changes != nil {
		t.changes[e.key] = e.value
	}
}

// step is 1 for a thing that comes, -1 for one that goes, and 0 for one that changes.
func step(before, after bool) (n int32) {
	if after {
		n++
	}
	if before {
		n--
	}
	return n
}

// release forgets a cell that nothing holds and nobody reads.
func (e *entry[K, V]) release() {
	if e.readers.Len() > 0 || e.held > 0 || e.dirty || e.in.cells[e.key] != e {
		return
	}
	if e.has { // in a lazy Table
		e.set(e.value, false)
	}
	e.forget()
	delete(e.in.cells, e.key)
	e.in.size.Values--
}
