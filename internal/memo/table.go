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
	lazy      bool // computes what is read
	cells     map[K]*entry[K, V]
	queue     []*entry[K, V]
	followers []func(K)
	watched   bool
	changes   map[K]V // since the last Changes
}

type entry[K comparable, V any] struct {
	node
	has   bool
	parts int32 // of a Sum
	in    *Table[K, V]
	key   K
	value V
}

func newTable[K comparable, V any](g *Graph, name string) Table[K, V] {
	return Table[K, V]{
		meta: g.declare(name), cells: map[K]*entry[K, V]{},
		equal: func(a, b V) bool { return reflect.DeepEqual(a, b) },
	}
}

// NewTable declares a Table. The function returns the value of a key, and whether there is one.
func NewTable[K comparable, V any](g *Graph, name string, f func(c *Context, k K) (V, bool), options ...Option) *Table[K, V] {
	t := newTable[K, V](g, name)
	t.f, t.lazy = f, true
	t.meta.compute = t.run
	for _, o := range options {
		o(t.meta)
	}
	return &t
}

// Equal replaces how values are compared, which is by reflect.DeepEqual.
func (t *Table[K, V]) Equal(equal func(a, b V) bool) *Table[K, V] {
	t.equal = equal
	return t
}

// driver is a table whose changes name keys of another one.
type driver[K comparable] interface {
	Any
	follow(func(K))
}

// For has a Table compute each key of a driver: when it comes, changes or goes there.
func For[K comparable, V any](t *Table[K, V], d driver[K]) *Table[K, V] {
	return ForKey(t, d, func(k K) K { return k })
}

// ForKey is For where the driver has other keys.
func ForKey[K, D comparable, V any](t *Table[K, V], d driver[D], key func(D) K) *Table[K, V] {
	t.lazy, t.before = false, append(t.before, d.about())
	d.follow(func(k D) { t.ask(key(k)) })
	return t
}

// ForParts has a Table compute a key for each part that is put into a Sum, replaced or taken back.
func ForParts[T, K, By comparable, W, V, S any](t *Table[T, W], s *Sum[K, By, V, S], key func(K, By) T) *Table[T, W] {
	t.lazy, t.before = false, append(t.before, s.meta)
	s.partFollowers = append(s.partFollowers, func(k K, by By) { t.ask(key(k, by)) })
	return t
}

// Always has a Table compute some keys, whatever happens.
func Always[K comparable, V any](t *Table[K, V], keys ...K) *Table[K, V] {
	t.lazy = false
	for _, k := range keys {
		t.ask(k)
	}
	return t
}

// ask has a key computed in the next Run.
func (t *Table[K, V]) ask(k K) { t.at(k).stale() }

// at is the cell of a key.
func (t *Table[K, V]) at(k K) *entry[K, V] {
	e := t.cells[k]
	if e == nil {
		e = &entry[K, V]{in: t, key: k}
		t.cells[k] = e
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
		if c.cell == nil && !t.lazy {
			return v, false
		}
		e = t.at(k)
		if t.lazy {
			e.compute()
			t.g.idle = append(t.g.idle, e) // nobody reads it yet, and Peek never does
		}
	}
	c.read(t.meta, e)
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
	t.watched = true
	return t
}

// Changes returns the values that came or changed since it was last called, and zero values for those that went.
func (t *Table[K, V]) Changes() map[K]V {
	changes := t.changes
	if t.changes = nil; changes == nil {
		changes = map[K]V{}
	}
	return changes
}

func (t *Table[K, V]) follow(f func(K)) { t.followers = append(t.followers, f) }

func (t *Table[K, V]) run() {
	for len(t.queue) > 0 {
		queue := t.queue
		t.queue = nil
		for _, e := range queue {
			if e.dirty {
				e.compute()
			}
		}
	}
}

func (e *entry[K, V]) stale() {
	if !e.dirty {
		e.dirty = true
		e.in.queue = append(e.in.queue, e)
	}
}

func (e *entry[K, V]) compute() {
	t := e.in
	c := t.g.begin(t.meta, e)
	c.puts.before = e.puts
	v, has := t.f(c, e.key)
	e.puts = c.puts.end()
	if has != e.has || has && !t.equal(e.value, v) {
		e.set(v, has)
	}
	if !has && e.readers.Len() == 0 {
		t.g.idle = append(t.g.idle, e)
	}
}

// set sets the value and tells everybody.
func (e *entry[K, V]) set(v V, has bool) {
	if e.value, e.has = v, has; !has {
		var none V
		e.value = none
	}
	e.told()
}

func (e *entry[K, V]) told() {
	e.changed()
	for _, f := range e.in.followers {
		f(e.key)
	}
	if e.in.watched {
		if e.in.changes == nil {
			e.in.changes = map[K]V{}
		}
		e.in.changes[e.key] = e.value
	}
}

// release forgets a cell that nobody reads: in a lazy Table any, elsewhere one without a value.
func (e *entry[K, V]) release() {
	t := e.in
	if e.readers.Len() > 0 || e.dirty || t.cells[e.key] != e || e.has && !t.lazy || e.work != nil && len(e.puts) > 0 {
		return
	}
	t.g.forget(e)
	delete(t.cells, e.key)
}
