package memo

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
)

// keys is how many keys each table of a world has.
const keys = 12

// author of a part: one function.
type author struct{ table, key int }

// world is a Graph made at random from a seed, and all its tables seen alike.
type world struct {
	g        *Graph
	inputs   []*Input[int, int]
	tables   []*seen
	scans    bool           // some Scan reads
	computed map[author]int // in this Run
}

// seen is a table of a world, whatever its type is.
type seen struct {
	Any
	name    string
	driver  Driver[int]
	drive   func(t *Table[int, int], pick int) // has the keys of a Table follow this one
	get     func(c *Context, k int) (int, bool)
	put     func(c *Context, k int, by author, v int)
	all     func() map[int]int
	cells   func() map[int]bool
	reads   func() int
	changes func() map[int]int
	follows map[int]int // what changes led to
}

// mix is a hash.
func mix(values ...int) int {
	h := uint64(14695981039346656037)
	for _, v := range values {
		h = (h ^ uint64(v)) * 1099511628211
		h ^= h >> 29
	}
	return int(h >> 8 & 0xffffff)
}

func (w *world) see(name string, s *seen) *seen {
	s.name, s.follows = fmt.Sprintf("%d %s", len(w.tables), name), map[int]int{}
	w.tables = append(w.tables, s)
	return s
}

func seeTable[V any](w *world, name string, t *Table[int, V], number func(V) int) *seen {
	t.Watch()
	numbers := func(from map[int]V) map[int]int {
		to := map[int]int{}
		for k, v := range from {
			to[k] = number(v)
		}
		return to
	}
	return w.see(name, &seen{
		Any: t, driver: t,
		drive: func(of *Table[int, int], pick int) {
			if pick%2 == 0 {
				For(of, t)
			} else {
				ForKey(of, t, func(k int) int { return k / 2 })
			}
		},
		get: func(c *Context, k int) (int, bool) {
			v, found := t.Find(c, k)
			return number(v), found
		},
		all: func() map[int]int { return numbers(maps.Collect(t.All())) },
		cells: func() map[int]bool {
			keys := map[int]bool{}
			for k := range t.cells {
				keys[k] = true
			}
			return keys
		},
		reads: func() (n int) {
			for _, e := range t.cells {
				if e.work != nil {
					n += len(e.reads)
				}
			}
			return n
		},
		changes: func() map[int]int { return numbers(t.Changes()) },
	})
}

func seeSum[V, S any](w *world, name string, t *Sum[int, author, V, S], part func(int) V, number func(S) int) {
	s := seeTable(w, name, &t.Table, number)
	s.put = func(c *Context, k int, by author, v int) { t.Put(c, k, by, part(v)) }
	byKey := s.drive
	s.drive = func(of *Table[int, int], pick int) {
		if pick%3 == 0 {
			ForParts(of, t, func(k int, by author) int { return (k + by.key) % keys })
		} else {
			byKey(of, pick)
		}
	}
}

// newAdded is a Sum of numbers.
func newAdded(g *Graph, name string) *Sum[int, author, int, int] {
	return NewFold[int](g, name, func(sum *int, _ author, before, after *int) {
		if before != nil {
			*sum -= *before
		}
		if after != nil {
			*sum += *after
		}
	})
}

func same[V any](v V) V { return v }

// newWorld makes the same Graph of the same seed.
func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 53))
	w := &world{g: New(), computed: map[author]int{}}
	w.g.Strict()
	for range 1 + r.IntN(3) {
		in := NewInput[int, int](w.g, "input")
		w.inputs = append(w.inputs, in)
		seeTable(w, "input", &in.Table, same)
	}
	for range 1 + r.IntN(4) { // levels
		lower := append([]*seen(nil), w.tables...)
		var sums []*seen
		for range r.IntN(3) {
			switch r.IntN(3) {
			case 0:
				t := NewSum[int, author, int](w.g, "sum")
				seeSum(w, "sum", t, same, func(p Parts[author, int]) (n int) {
					for by, v := range p.All() {
						n += mix(by.table, by.key, v)
					}
					return n + p.Len()
				})
			case 1:
				seeSum(w, "count", NewCount[int, author](w.g, "count"), func(int) struct{} { return struct{}{} }, same)
			case 2:
				seeSum(w, "fold", newAdded(w.g, "fold"), same, same)
			}
			sums = append(sums, w.tables[len(w.tables)-1])
		}
		for range 1 + r.IntN(3) {
			w.addTable(r, lower, sums)
		}
		if r.IntN(3) == 0 && len(sums) > 0 {
			w.addScan(r, lower, sums)
		}
	}
	w.g.Seal()
	return w
}

// code is what a function of a world does, made at random.
type code struct {
	w     *world
	id    int
	reads []*seen
	sums  []*seen
}

func (w *world) newCode(r *rand.Rand, lower, sums []*seen, reads int) (*code, []Option) {
	f := &code{w: w, id: r.IntN(1 << 30)}
	var options []Option
	for range reads {
		f.reads = append(f.reads, lower[r.IntN(len(lower))])
	}
	for _, s := range f.reads {
		options = append(options, Reads(s))
	}
	for _, s := range sums {
		if r.IntN(2) == 0 {
			f.sums = append(f.sums, s)
			options = append(options, Puts(s))
		}
	}
	return f, options
}

// run reads, also depending on what was read before, and puts in an order that depends on it.
func (f *code) run(c *Context, k, v int) int {
	self := author{f.id, k}
	f.w.computed[self]++
	h := mix(f.id, k, v)
	for i, s := range f.reads {
		if h%4 == 0 {
			continue
		}
		key := k
		if i%2 == 1 {
			key = h % keys
		}
		v, found := s.get(c, key)
		h = mix(f.id, k, h%8, v)
		if found {
			h++
		}
	}
	for i, s := range f.sums {
		n := mix(h, i) % 4
		for j := range n {
			if h%2 == 0 {
				j = n - 1 - j
			}
			s.put(c, (k+j*5)%keys, self, 1+mix(h, j)%3)
		}
	}
	return h
}

func (w *world) addTable(r *rand.Rand, lower, sums []*seen) {
	name, drivers := "lazy", []*seen(nil)
	if kind := r.IntN(5); kind > 1 {
		name = "driven"
		for _, s := range lower {
			if r.IntN(2) == 0 && !s.about().lazy {
				drivers = append(drivers, s)
			}
		}
	}
	always := name == "driven" && (len(drivers) == 0 || r.IntN(8) == 0)
	if name == "lazy" {
		sums = nil
	}
	f, options := w.newCode(r, lower, sums, 1+r.IntN(4))
	t := NewTable(w.g, name, func(c *Context, k int) (int, bool) {
		h := f.run(c, k, 0)
		return 1 + h%5, h%6 != 0
	}, options...)
	for _, d := range drivers {
		d.drive(t, r.IntN(6))
	}
	if always {
		Always(t, r.IntN(keys))
	}
	seeTable(w, name, t, same)
}

func (w *world) addScan(r *rand.Rand, lower, sums []*seen) {
	in := w.inputs[r.IntN(len(w.inputs))]
	f, options := w.newCode(r, lower, sums, r.IntN(2))
	w.scans = w.scans || len(f.reads) > 0
	NewScan(w.g, "scan", in, func(c *Context, k, v int) { f.run(c, k, v) }, options...)
}

// state is what was set from outside.
type state struct{ inputs []map[int]int }

// anew is the world of a seed with a state, from nothing.
func (s *state) anew(seed uint64) *world {
	w := newWorld(seed)
	for i, in := range w.inputs {
		for k, v := range s.inputs[i] {
			in.Set(k, v)
		}
	}
	w.run(nil)
	return w
}

func (w *world) run(t *testing.T) {
	clear(w.computed)
	w.g.Run()
	for _, s := range w.tables {
		if n := s.about().size; n.Values != len(s.cells()) || n.Reads != s.reads() {
			t.Fatalf("%s: %d cells and %d reads, but the size is %v", s.name, len(s.cells()), s.reads(), n)
		}
	}
	for who, n := range w.computed {
		if n > 1 {
			t.Fatalf("computed %d times in one Run: %v", n, who)
		}
	}
}

// peek reads all, which must change nothing.
func (w *world) peek() {
	for _, s := range w.tables {
		for k := range keys {
			s.get(w.g.Peek(), k)
		}
	}
}

// change changes one value in the world and in the state.
func (s *state) change(w *world, what, k, v int) {
	n := what % len(w.inputs)
	k %= keys
	if v %= 4; v == 0 {
		w.inputs[n].Delete(k)
		delete(s.inputs[n], k)
	} else {
		w.inputs[n].Set(k, v)
		s.inputs[n][k] = v
	}
}

// check holds a world equal to the one made anew.
func (w *world) check(t *testing.T, anew *world, empty bool) {
	t.Helper()
	for i, s := range w.tables {
		want := anew.tables[i]
		if !s.about().lazy && !maps.Equal(s.all(), want.all()) {
			t.Fatalf("%s: %v, made anew: %v", s.name, s.all(), want.all())
		}
		before := s.cells()
		for k := range keys {
			v, found := s.get(w.g.Peek(), k)
			wantV, wantFound := want.get(anew.g.Peek(), k)
			if v != wantV || found != wantFound {
				t.Fatalf("%s, key %d: %d %v, made anew: %d %v", s.name, k, v, found, wantV, wantFound)
			}
		}
		switch cells := s.cells(); {
		case !maps.Equal(cells, before):
			t.Fatalf("%s: Peek left cells: %v, before: %v", s.name, cells, before)
		case (!w.scans || empty) && !maps.Equal(cells, want.cells()):
			t.Fatalf("%s: cells %v, made anew: %v", s.name, cells, want.cells())
		case (!w.scans || empty) && s.about().size != want.about().size:
			t.Fatalf("%s: size %v, made anew: %v", s.name, s.about().size, want.about().size)
		}
		for k, v := range s.changes() {
			if v == 0 {
				delete(s.follows, k)
			} else {
				s.follows[k] = v
			}
		}
		if !maps.Equal(s.follows, s.all()) {
			t.Fatalf("%s: changes lead to %v, but there is %v", s.name, s.follows, s.all())
		}
	}
}

// try changes the world of a seed as ops say, and checks it after each Run.
func try(t *testing.T, seed uint64, ops []byte) {
	w := newWorld(seed)
	s := &state{}
	for range w.inputs {
		s.inputs = append(s.inputs, map[int]int{})
	}
	w.peek()
	w.run(t)
	for ; len(ops) >= 3; ops = ops[3:] {
		s.change(w, int(ops[0]), int(ops[1]), int(ops[2])%16)
		if ops[2] >= 128 { // else more is changed in this Run
			w.run(t)
			w.check(t, s.anew(seed), false)
		} else if ops[2]%2 == 0 {
			w.peek()
		}
	}
	for k := range keys {
		for i := range w.inputs {
			s.change(w, i, k, 0)
		}
	}
	w.run(t)
	w.check(t, newEmpty(seed), true)
}

// newEmpty is the world of a seed with nothing set, in which Always' keys are left, and what they read.
func newEmpty(seed uint64) *world {
	w := newWorld(seed)
	w.run(nil)
	return w
}

func TestIncrementalEqualsAnew(t *testing.T) {
	worlds := 400
	if testing.Short() {
		worlds = 100
	}
	for seed := range uint64(worlds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 54))
			ops := make([]byte, 3*(20+r.IntN(60)))
			for i := range ops {
				ops[i] = byte(r.IntN(256))
			}
			try(t, seed, ops)
		})
	}
}

func FuzzGraph(f *testing.F) {
	f.Add(uint64(1), []byte{0, 1, 130, 1, 1, 131, 0, 1, 128})
	f.Add(uint64(7), []byte("a longer list of changes to one world, of which some are run alone"))
	f.Fuzz(func(t *testing.T, seed uint64, ops []byte) {
		if len(ops) > 300 {
			ops = ops[:300]
		}
		try(t, seed, ops)
	})
}
