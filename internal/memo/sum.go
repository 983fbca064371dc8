package memo

// Sum is a table whose values are made of parts, which functions put there. A part stands under a key and under
// whoever it is by; no two functions may put parts under the same key by the same one. S is what is kept of the
// parts of a key: Parts keeps them as they are.
type Sum[K, By comparable, V, S any] struct {
	Table[K, S]
	same          func(a, b V) bool
	fold          func(s *S, by By, before, after *V)
	partFollowers []func(K, By)
}

// NewFold declares a Sum. fold takes a part into the state of its key (before is nil), replaces it, or takes it out
// (after is nil). same says that one part is as good as another.
func NewFold[K, By comparable, V, S any](g *Graph, name string, same func(a, b V) bool, fold func(s *S, by By, before, after *V)) *Sum[K, By, V, S] {
	return &Sum[K, By, V, S]{Table: newTable[K, S](g, name), same: same, fold: fold}
}

// NewSum declares a Sum that keeps the parts.
func NewSum[K, By, V comparable](g *Graph, name string) *Sum[K, By, V, Parts[By, V]] {
	return NewFold[K](g, name, func(a, b V) bool { return a == b }, (*Parts[By, V]).fold)
}

// NewCount declares a Sum that counts the parts.
func NewCount[K, By comparable](g *Graph, name string) *Sum[K, By, struct{}, int] {
	return NewFold[K](g, name, func(_, _ struct{}) bool { return true }, func(n *int, _ By, before, after *struct{}) {
		if before == nil {
			*n++
		} else {
			*n--
		}
	})
}

type sumPart[K, By comparable, V, S any] struct {
	sum   *Sum[K, By, V, S]
	cell  *entry[K, S]
	by    By
	value V
}

type partID[K, By comparable] struct {
	sum *meta
	key K
	by  By
}

// Put puts a part under a key. It stays until the function runs again and does not put it again.
func (t *Sum[K, By, V, S]) Put(c *Context, k K, by By, v V) {
	if c.of.g.strict && !c.of.puts[t.meta] {
		panic("memo: " + c.of.name + " does not declare that it puts into " + t.name)
	}
	p, _ := c.puts.likely().(*sumPart[K, By, V, S])
	switch {
	case p != nil && p.sum == t && p.by == by && p.cell.key == k:
		c.puts.take()
	case len(c.puts.before) > 0:
		p, _ = c.puts.find(partID[K, By]{t.meta, k, by}).(*sumPart[K, By, V, S])
	default:
		p = nil
	}
	if p == nil {
		p = &sumPart[K, By, V, S]{t, t.at(k), by, v}
		t.change(p.cell, by, nil, &v)
	} else if before := p.value; !t.same(before, v) {
		p.value = v
		t.change(p.cell, by, &before, &v)
	}
	c.puts.after = append(c.puts.after, p)
}

// Set puts a part from outside, between Runs. before is what was Set last, and nil where there is none; with nil
// after it is taken back.
func (t *Sum[K, By, V, S]) Set(k K, by By, before, after *V) { t.change(t.at(k), by, before, after) }

func (t *Sum[K, By, V, S]) change(e *entry[K, S], by By, before, after *V) {
	if before == nil {
		e.parts++
	}
	if after == nil {
		e.parts--
	}
	t.fold(&e.value, by, before, after)
	if e.has = e.parts > 0; !e.has {
		t.g.idle = append(t.g.idle, e)
	}
	e.told()
	for _, f := range t.partFollowers {
		f(e.key, by)
	}
}

func (p *sumPart[K, By, V, S]) id() any { return partID[K, By]{p.sum.meta, p.cell.key, p.by} }

func (p *sumPart[K, By, V, S]) retract() { p.sum.change(p.cell, p.by, &p.value, nil) }
