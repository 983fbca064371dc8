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
	fold          func(s *S, by By, before, after *V)
	partFollowers []func(k K, by By, step int32)
}

// NewFold declares a Sum. fold adds a part to the state of its key (before is nil), replaces it, or removes it
// (after is nil). same says whether two parts are equal.
func NewFold[K, By comparable, V, S any](g *Graph, name string, same func(a, b V) bool, fold func(s *S, by By, before, after *V)) *Sum[K, By, V, S] {
	return &Sum[K, By, V, S]{Table: newTable[K, S](g.declare(name)), same: same, fold: fold}
}

// NewSum declares a Sum that keeps the parts.
func NewSum[K, By, V comparable](g *Graph, name string) *Sum[K, By, V, Parts[By, V]] {
	return NewFold[K](g, name, func(a, b V) bool { return a == b }, func(s *Parts[By, V], by By, before, after *V) {
		if after == nil {
			s.Delete(by)
		} else if s.Set(by, *after) != (before == nil) && g.strict {
			panic("memo: two parts of " + name + " have one key and one author")
		}
	})
}

// NewCount declares a Sum that counts the parts.
func NewCount[K, By comparable](g *Graph, name string) *Sum[K, By, struct{}, int] {
	return NewFold[K](g, name, func(_, _ struct{}) bool { return true }, func(n *int, _ By, before, after *struct{}) {
		*n += int(step(before != nil, after != nil))
	})
}

// step is 1 for a thing that comes, -1 for one that goes, and 0 for one that changes.
func step(before, after bool) int32 {
	switch {
	case before == after:
		return 0
	case after:
		return 1
	}
	return -1
}

// Set puts a part from outside, between Runs. before is the value that was Set last, nil where there is none; with
// nil for after the part is removed.
func (t *Sum[K, By, V, S]) Set(k K, by By, before, after *V) { t.change(t.at(k), by, before, after) }

func (t *Sum[K, By, V, S]) change(e *entry[K, S], by By, before, after *V) {
	step := step(before != nil, after != nil)
	e.held += step
	t.fold(&e.value, by, before, after)
	e.set(e.value, e.held > 0)
	for _, f := range t.partFollowers {
		f(e.key, by, step)
	}
}

// Put puts a part under a key. It stays until the function runs again and does not put it again. The order should be
// the same each time: a part that comes out of order is searched among those that the function put before.
func (t *Sum[K, By, V, S]) Put(c *Context, k K, by By, v V) {
	if m := c.cell.about(); t.g.strict && !slices.Contains(t.before, m) {
		panic("memo: " + m.name + " does not declare that it puts into " + t.name)
	}
	p, _ := c.puts.again(func(p part) bool {
		s, is := p.(*sumPart[K, By, V, S])
		return is && s.sum == t && s.by == by && s.cell.key == k
	}).(*sumPart[K, By, V, S])
	if p == nil {
		p = &sumPart[K, By, V, S]{t, t.at(k), by, v}
		t.change(p.cell, by, nil, &v)
	} else if before := p.value; !t.same(before, v) {
		p.value = v
		t.change(p.cell, by, &before, &v)
	}
	c.puts.after = append(c.puts.after, p)
}

// part is a value that one function put under one key of a Sum.
type part interface{ retract() }

type sumPart[K, By comparable, V, S any] struct {
	sum   *Sum[K, By, V, S]
	cell  *entry[K, S]
	by    By
	value V
}

func (p *sumPart[K, By, V, S]) retract() { p.sum.change(p.cell, p.by, &p.value, nil) }

// record matches the parts that a function puts with those that it put when it ran before.
type record struct {
	before []part // nil where one was put again
	next   int    // the one that is put next when the order is as before
	after  []part
}

// again returns the part that was put before and is put again, nil when there is none.
func (r *record) again(is func(part) bool) part {
	for n := range r.before {
		i := (r.next + n) % len(r.before)
		if p := r.before[i]; p != nil && is(p) {
			r.before[i], r.next = nil, i+1
			return p
		}
	}
	return nil
}

// end retracts the parts that were not put again, and returns those that are put now.
func (r *record) end() []part {
	for _, p := range r.before {
		if p != nil {
			p.retract()
		}
	}
	return r.after
}
