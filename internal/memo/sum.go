package memo

import (
	"slices"

	"fairlead.dev/internal/memo/small"
)

// Parts are the parts of one key of a Sum, by author.
type Parts[By comparable, V any] = small.Map[By, V]

// Sum is a table whose values are made of parts, which functions put there. A part has a key and an author (By); no
// two functions may put parts with the same key and author. S is what is kept of the parts of a key: Parts keeps
// them as they are. A function must not keep an S, because it is changed in place.
type Sum[K, By comparable, V, S any] struct {
	Table[K, S]
	same          func(a, b V) bool
	shows         func(before, after S) bool // nil: always
	fold          func(s *S, by By, before, after *V)
	partFollowers []func(k K, by By, step int32)
}

// NewFold declares a Sum. fold adds a part to the state of its key (before is nil), replaces it, or removes it
// (after is nil).
func NewFold[K, By comparable, V, S any](g *Graph, name string, fold func(s *S, by By, before, after *V)) *Sum[K, By, V, S] {
	t := &Sum[K, By, V, S]{Table: newTable[K, S](g.declare(name)), same: deepEqual[V], fold: fold}
	t.sum = t
	return t
}

// NewSum declares a Sum that keeps the parts.
func NewSum[K, By comparable, V any](g *Graph, name string) *Sum[K, By, V, Parts[By, V]] {
	return NewFold[K](g, name, func(s *Parts[By, V], by By, before, after *V) {
		if after == nil {
			s.Delete(by)
		} else if s.Set(by, *after) != (before == nil) && g.strict {
			panic("memo: two parts of " + name + " have one key and one author")
		}
	})
}

// NewCount declares a Sum that counts the parts.
func NewCount[K, By comparable](g *Graph, name string) *Sum[K, By, struct{}, int] {
	return NewFold[K](g, name, func(n *int, _ By, before, after *struct{}) { *n += int(step(before != nil, after != nil)) })
}

// Unit is the key of a table with one value, and the author of parts with one author.
type Unit struct{}

// NewSlot declares a Sum with one part a key: values that one function has for several keys.
func NewSlot[K comparable, V any](g *Graph, name string) *Sum[K, Unit, V, V] {
	return NewFold[K](g, name, func(s *V, _ Unit, _, after *V) {
		if after != nil {
			*s = *after
		}
	})
}

// Same replaces how parts are compared, which is by reflect.DeepEqual.
func (t *Sum[K, By, V, S]) Same(same func(a, b V) bool) *Sum[K, By, V, S] {
	t.same = same
	return t
}

// Shows has readers run only where a change of the parts shows in what they see of a key. before is a copy of S, so
// that maps and slices in it have changed already.
func (t *Sum[K, By, V, S]) Shows(shows func(before, after S) bool) *Sum[K, By, V, S] {
	t.shows = shows
	return t
}

// Driven returns what is kept of a key, without recording the read. It is for functions that a part of this Sum
// drives (ForParts), and that look at this part alone.
func (t *Sum[K, By, V, S]) Driven(k K) (s S) {
	if e := t.cells[k]; e != nil {
		s = e.value
	}
	return s
}

func (t *Sum[K, By, V, S]) change(e *entry[K, S], by By, before, after *V) {
	step := step(before != nil, after != nil)
	e.held += step
	state := e.value
	if t.fold(&e.value, by, before, after); e.has != (e.held > 0) || t.shows == nil || t.shows(state, e.value) {
		e.set(e.value, e.held > 0)
	}
	for _, f := range t.partFollowers {
		f(e.key, by, step)
	}
}

// Put puts a part under a key. It stays until the function runs again and does not put it again.
func (t *Sum[K, By, V, S]) Put(c *Context, k K, by By, v V) {
	if m := c.node.about(); t.g.strict && !slices.Contains(t.before, m) {
		panic("memo: " + m.name + " does not declare that it puts into " + t.name)
	}
	var p *sumPart[K, By, V, S]
	if c.next < len(c.before) {
		p, _ = c.before[c.next].(*sumPart[K, By, V, S])
	}
	if len(c.before) > 0 && (p == nil || p.cell.in != &t.Table || p.by != by || p.cell.key != k) {
		p, _ = c.find(partID[K, By, S]{t.at(k), by}).(*sumPart[K, By, V, S])
	}
	if p == nil {
		p = &sumPart[K, By, V, S]{partID[K, By, S]{t.at(k), by}, v}
		t.change(p.cell, by, nil, &v)
	} else {
		c.before[c.next] = nil
		c.next++
		if before := p.value; !t.same(before, v) {
			p.value = v
			t.change(p.cell, by, &before, &v)
		}
	}
	c.after = append(c.after, p)
}

type sumPart[K, By comparable, V, S any] struct {
	partID[K, By, S]
	value V
}

type partID[K, By comparable, S any] struct {
	cell *entry[K, S]
	by   By
}

func (p partID[K, By, S]) id() any { return p }

func (p *sumPart[K, By, V, S]) retract() {
	p.cell.in.sum.(*Sum[K, By, V, S]).change(p.cell, p.by, &p.value, nil)
}
