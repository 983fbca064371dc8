package memo

// Input is a table whose values are set from outside, between Runs.
type Input[K comparable, V any] struct{ Table[K, V] }

// NewInput declares an Input.
func NewInput[K comparable, V any](g *Graph, name string) *Input[K, V] {
	return &Input[K, V]{newTable[K, V](g, name)}
}

// Set sets a value. Whoever read the key is computed again, also where the value is the same.
func (t *Input[K, V]) Set(k K, v V) { t.at(k).set(v, true) }

// Delete removes a value.
func (t *Input[K, V]) Delete(k K) {
	if e := t.cells[k]; e != nil {
		var none V
		e.set(none, false)
		t.g.idle = append(t.g.idle, e)
	}
}

// Scan looks at each value of an Input and puts what it finds into Sums. It keeps nothing of values for which it
// puts nothing. What it reads besides is for all values alike: when that changes, it looks at all of them again.
type Scan[K comparable, V any] struct {
	*meta
	node
	in      *Input[K, V]
	f       func(c *Context, k K, v V)
	puts    map[K][]part
	pending map[K]struct{}
}

// NewScan declares a Scan.
func NewScan[K comparable, V any](g *Graph, name string, in *Input[K, V], f func(c *Context, k K, v V), options ...Option) *Scan[K, V] {
	s := &Scan[K, V]{meta: g.declare(name), node: node{work: &work{}}, in: in, f: f, puts: map[K][]part{}, pending: map[K]struct{}{}}
	s.meta.compute = s.update
	s.before = append(s.before, in.meta)
	for _, o := range options {
		o(s.meta)
	}
	in.follow(func(k K) { s.pending[k] = struct{}{} })
	return s
}

func (s *Scan[K, V]) stale() { s.dirty = true }

func (s *Scan[K, V]) release() {}

func (s *Scan[K, V]) update() {
	if s.dirty {
		s.g.begin(s.meta, s)
		for k := range s.in.cells {
			s.pending[k] = struct{}{}
		}
	}
	for k := range s.pending {
		c := Context{of: s.meta, cell: s, puts: record{before: s.puts[k]}}
		if e := s.in.cells[k]; e != nil && e.has {
			s.f(&c, k, e.value)
		}
		if puts := c.puts.end(); len(puts) > 0 {
			s.puts[k] = puts
		} else {
			delete(s.puts, k)
		}
	}
	clear(s.pending)
}
