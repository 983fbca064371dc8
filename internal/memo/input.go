package memo

// Input is a table whose values are set from outside, between Runs.
type Input[K comparable, V any] struct{ Table[K, V] }

// NewInput declares an Input.
func NewInput[K comparable, V any](g *Graph, name string) *Input[K, V] {
	return &Input[K, V]{newTable[K, V](g.declare(name))}
}

// Set sets a value. The functions that read the key run again, also where the value is the same.
func (t *Input[K, V]) Set(k K, v V) {
	e := t.at(k)
	e.held = 1
	e.set(v, true)
}

// Delete removes a value.
func (t *Input[K, V]) Delete(k K) {
	if e := t.cells[k]; e != nil && e.has {
		e.held = 0
		e.set(e.value, false)
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
	values  int32 // of the Input
	pending map[K]struct{}
}

// NewScan declares a Scan.
func NewScan[K comparable, V any](g *Graph, name string, in *Input[K, V], f func(c *Context, k K, v V), options ...Option) *Scan[K, V] {
	s := &Scan[K, V]{meta: g.declare(name, options...), in: in, f: f, puts: map[K][]part{}, pending: map[K]struct{}{}}
	s.node, s.before = node{cell: s, work: &work{}}, append(s.before, in.meta)
	in.follow(func(k K, step int32) {
		if len(s.pending) == 0 {
			s.queue = append(s.queue, &s.node)
		}
		s.values += step
		s.pending[k] = struct{}{}
	})
	return s
}

func (s *Scan[K, V]) compute() {
	if s.dirty || s.values == 0 && len(s.pending) > 0 {
		s.forget()
		s.dirty = false
		for k := range s.in.cells {
			s.pending[k] = struct{}{}
		}
	}
	big := len(s.pending) > 8
	for k := range s.pending {
		c := Context{node: &s.node, before: s.puts[k]}
		if e := s.in.cells[k]; e != nil && e.has {
			s.f(&c, k, e.value)
		}
		if s.puts[k] = c.end(); len(s.puts[k]) == 0 {
			delete(s.puts, k)
		}
	}
	if clear(s.pending); big {
		s.pending = map[K]struct{}{} // to go through one that was large takes as long as then
	}
	s.size = Size{} // its reads may be for values that are gone
}

func (s *Scan[K, V]) release() {}
