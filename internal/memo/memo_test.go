package memo

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// panics holds that f panics with a message that has a text.
func panics(t *testing.T, text string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if said, _ := recover().(string); !strings.Contains(said, text) {
			t.Fatalf("panic is %q, not %q", said, text)
		}
	}()
	f()
}

// nothing is a function of a Table without values.
func nothing(*Context, int) (int, bool) { return 0, false }

func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		name, panics string
		f            func(g *Graph, in *Input[int, int], sum *Sum[int, int, int, Parts[int, int]])
	}{
		{"a read without declaration", "reader does not declare that it reads in", func(g *Graph, in *Input[int, int], _ *Sum[int, int, int, Parts[int, int]]) {
			Always(NewTable(g, "reader", func(c *Context, k int) (int, bool) { return in.Find(c, k) }), 1)
			g.Seal()
			g.Run()
		}},
		{"a put without declaration", "putter does not declare that it puts into sum", func(g *Graph, _ *Input[int, int], sum *Sum[int, int, int, Parts[int, int]]) {
			Always(NewTable(g, "putter", func(c *Context, k int) (int, bool) {
				sum.Put(c, k, k, k)
				return 0, false
			}), 1)
			g.Seal()
			g.Run()
		}},
		{"a read of a Scan without declaration", "scan does not declare that it reads other", func(g *Graph, in *Input[int, int], _ *Sum[int, int, int, Parts[int, int]]) {
			other := NewInput[int, int](g, "other")
			NewScan(g, "scan", in, func(c *Context, k, _ int) { other.Get(c, k) })
			g.Seal()
			in.Set(1, 1)
			g.Run()
		}},
		{"two parts by one author", "two parts of sum have one key and one author", func(g *Graph, in *Input[int, int], sum *Sum[int, int, int, Parts[int, int]]) {
			NewScan(g, "scan", in, func(c *Context, _, v int) { sum.Put(c, 0, 7, v) }, Puts(sum))
			g.Seal()
			in.Set(1, 1)
			in.Set(2, 1)
			g.Run()
		}},
		{"a circle of a read and a put", "depends on itself", func(g *Graph, _ *Input[int, int], sum *Sum[int, int, int, Parts[int, int]]) {
			Always(NewTable(g, "table", nothing, Reads(sum), Puts(sum)), 1)
			g.Seal()
		}},
		{"a circle through a driver", "depends on itself", func(g *Graph, in *Input[int, int], sum *Sum[int, int, int, Parts[int, int]]) {
			a := For(NewTable(g, "a", nothing, Puts(sum)), in)
			b := For(NewTable(g, "b", nothing, Reads(sum)), in)
			For(a, b)
			g.Seal()
		}},
		{"a lazy Table that puts", "table lazy puts parts or drives a table, and has no driver", func(g *Graph, _ *Input[int, int], sum *Sum[int, int, int, Parts[int, int]]) {
			NewTable(g, "lazy", nothing, Puts(sum))
			g.Seal()
		}},
		{"a lazy Table that drives", "table lazy puts parts or drives a table, and has no driver", func(g *Graph, _ *Input[int, int], _ *Sum[int, int, int, Parts[int, int]]) {
			For(NewTable(g, "driven", nothing), NewTable(g, "lazy", nothing))
			g.Seal()
		}},
		{"a table after Seal", "table late is declared after Seal", func(g *Graph, _ *Input[int, int], _ *Sum[int, int, int, Parts[int, int]]) {
			g.Seal()
			NewTable(g, "late", nothing)
		}},
		{"a driver after Seal", "table early is declared after Seal", func(g *Graph, in *Input[int, int], _ *Sum[int, int, int, Parts[int, int]]) {
			early := NewTable(g, "early", nothing)
			g.Seal()
			For(early, in)
		}},
		{"Run before Seal", "Run before Seal", func(g *Graph, _ *Input[int, int], _ *Sum[int, int, int, Parts[int, int]]) { g.Run() }},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := New()
			g.Strict()
			in, sum := NewInput[int, int](g, "in"), NewSum[int, int, int](g, "sum")
			panics(t, test.panics, func() { test.f(g, in, sum) })
		})
	}
}

// box is a value behind a pointer, as large values are.
type box struct{ n int }

func TestEarlyCutOff(t *testing.T) {
	for _, equal := range []func(a, b *box) bool{nil, func(a, b *box) bool { return a.n == b.n }} {
		g := New()
		g.Strict()
		in := NewInput[int, int](g, "in")
		half := NewTable(g, "half", func(c *Context, k int) (*box, bool) { return &box{in.Get(c, k) / 2}, true }, Reads(in))
		if equal != nil {
			half.Equal(equal)
		}
		For(half, in).Watch()
		ran := 0
		reader := For(NewTable(g, "reader", func(c *Context, k int) (int, bool) {
			ran++
			return half.Get(c, k).n, true
		}, Reads(half)), half)
		g.Seal()
		in.Set(1, 4)
		g.Run()
		before := half.Get(g.Peek(), 1)
		half.Changes()

		in.Set(1, 5)
		g.Run()
		if after := half.Get(g.Peek(), 1); after != before {
			t.Error("an equal value replaces the one before")
		}
		if ran != 1 || len(half.Changes()) != 0 {
			t.Errorf("an equal value has its reader run %d times", ran)
		}
		in.Set(1, 6)
		g.Run()
		if n := reader.Get(g.Peek(), 1); ran != 2 || n != 3 || half.Changes()[1].n != 3 {
			t.Errorf("another value: reader has %d after %d times", n, ran)
		}
	}
}

func TestLazyValuesAreForgotten(t *testing.T) {
	g := New()
	g.Strict()
	in, on := NewInput[int, int](g, "in"), NewInput[int, bool](g, "on")
	lazy := NewTable(g, "lazy", func(c *Context, k int) (int, bool) { return in.Get(c, k), true }, Reads(in)).Watch()
	driven := For(NewTable(g, "driven", func(c *Context, k int) (int, bool) { return in.Find(c, k) }, Reads(in)), in)
	For(NewTable(g, "reader", func(c *Context, k int) (int, bool) {
		if on.Get(c, k) {
			return lazy.Get(c, k) + driven.Get(c, k), true
		}
		return 0, false
	}, Reads(on, lazy, driven)), on)
	g.Seal()
	in.Set(1, 10)
	in.Set(2, 20)
	on.Set(1, true)
	g.Run()
	if got := maps.Collect(lazy.All()); !maps.Equal(got, map[int]int{1: 10}) || !maps.Equal(lazy.Changes(), got) {
		t.Errorf("lazy has %v; 1 is read alone", got)
	}
	on.Set(1, false)
	g.Run()
	if len(lazy.cells) != 0 || len(driven.cells) != 2 {
		t.Errorf("lazy has %d cells, driven %d; nobody reads them", len(lazy.cells), len(driven.cells))
	}
	if got := lazy.Changes(); !maps.Equal(got, map[int]int{1: 0}) {
		t.Errorf("changes of what is forgotten: %v", got)
	}
	if readers := in.cells[1].readers.Len(); readers != 1 {
		t.Errorf("in has %d readers; driven is alone", readers)
	}
}

// A key that a driver names has its function run again when what it read comes, also where there was no value.
func TestDrivenKeysWaitForValues(t *testing.T) {
	g := New()
	g.Strict()
	names, in := NewInput[int, bool](g, "names"), NewInput[int, int](g, "in")
	driven := For(NewTable(g, "driven", func(c *Context, k int) (int, bool) { return in.Find(c, k) }, Reads(in)), names)
	always := Always(NewTable(g, "always", func(c *Context, k int) (int, bool) { return in.Find(c, k) }, Reads(in)), 1)
	g.Seal()
	names.Set(1, true)
	g.Run()
	in.Set(1, 7)
	g.Run()
	if driven.Get(g.Peek(), 1) != 7 || always.Get(g.Peek(), 1) != 7 {
		t.Error("a value that comes late is not seen")
	}
	names.Delete(1)
	g.Run()
	if len(driven.cells) != 0 || len(always.cells) != 1 {
		t.Error("a key that no driver names is left, or one that is Always there is not")
	}
}

func TestDrivers(t *testing.T) {
	g := New()
	g.Strict()
	in := NewInput[string, int](g, "in")
	sum := NewSum[int, string, int](g, "sum")
	NewScan(g, "scan", in, func(c *Context, k string, v int) { sum.Put(c, v, k, v) }, Puts(sum))
	same := func(_ *Context, k string) (string, bool) { return k, true }
	byKey := ForKey(NewTable(g, "by key", same), in, func(k string) string { return k[:1] })
	byPart := ForParts(NewTable(g, "by part", same), sum, func(k int, by string) string { return strings.Repeat(by, k) })
	g.Seal()
	hold := func(when string, t1 *Table[string, string], want ...string) {
		t.Helper()
		got := slices.Sorted(maps.Keys(maps.Collect(t1.All())))
		if !slices.Equal(got, want) || len(t1.cells) != len(want) {
			t.Errorf("%s: %s has %v, want %v", when, t1.name, got, want)
		}
	}
	in.Set("a1", 1)
	in.Set("a2", 2)
	g.Run()
	hold("at first", byKey, "a")
	hold("at first", byPart, "a1", "a2a2")
	in.Delete("a1")
	in.Set("a2", 1)
	g.Run()
	hold("with one of two", byKey, "a")
	hold("with one of two", byPart, "a2")
	in.Delete("a2")
	g.Run()
	hold("with none", byKey)
	hold("with none", byPart)
}

func TestPeekKeepsNothing(t *testing.T) {
	g := New()
	g.Strict()
	in := NewInput[int, int](g, "in")
	ran := 0
	low := NewTable(g, "low", func(c *Context, k int) (int, bool) {
		ran++
		return in.Find(c, k)
	}, Reads(in))
	high := NewTable(g, "high", func(c *Context, k int) (int, bool) { return low.Get(c, k) + low.Get(c, k), true }, Reads(low)).Watch()
	sum := NewCount[int, int](g, "sum")
	g.Seal()
	in.Set(1, 4)
	for range 2 {
		if v := high.Get(g.Peek(), 1); v != 8 {
			t.Errorf("Peek: %d", v)
		}
		if _, found := low.Find(g.Peek(), 2); found {
			t.Error("Peek finds what is not there")
		}
		sum.Get(g.Peek(), 1)
		if len(low.cells)+len(high.cells)+len(sum.cells) != 0 || in.cells[1].readers.Len() != 0 || len(in.cells) != 1 {
			t.Error("Peek leaves cells or readers")
		}
		g.Run()
	}
	if ran != 4 {
		t.Errorf("low is computed %d times, not once a Peek", ran)
	}
	if c := high.Changes(); c[1] != 0 {
		t.Errorf("changes by Peek: %v", c)
	}
}

func TestScan(t *testing.T) {
	g := New()
	g.Strict()
	in, factor := NewInput[string, int](g, "in"), NewInput[string, int](g, "factor")
	sum := NewSum[int, string, int](g, "sum")
	var looked []string
	s := NewScan(g, "scan", in, func(c *Context, k string, v int) {
		looked = append(looked, k)
		if v > 0 {
			sum.Put(c, v, k, v*factor.Get(c, "all"))
		}
	}, Reads(factor), Puts(sum))
	g.Seal()
	run := func(why string, want ...string) {
		t.Helper()
		looked = nil
		g.Run()
		if slices.Sort(looked); !slices.Equal(looked, want) {
			t.Errorf("%s: looks at %v, want %v", why, looked, want)
		}
	}
	part := func(k int, by string) int {
		parts := sum.Get(g.Peek(), k)
		v, _ := parts.Get(by)
		return v
	}
	for i, k := range []string{"a", "b", "none"} {
		in.Set(k, []int{1, 2, 0}[i])
	}
	factor.Set("all", 10)
	run("at first", "a", "b", "none")
	if len(s.puts) != 2 || part(1, "a") != 10 || part(2, "b") != 20 {
		t.Errorf("scan keeps %v", s.puts)
	}
	in.Set("b", 1)
	run("one value", "b")
	if parts := sum.Get(g.Peek(), 1); parts.Len() != 2 || len(sum.cells) != 1 {
		t.Errorf("a part that moved: %d", parts.Len())
	}
	factor.Set("all", 3)
	run("what it reads", "a", "b", "none")
	factor.Set("other", 3)
	run("what it does not read")
	in.Set("a", 2)
	factor.Set("all", 4)
	run("both", "a", "b", "none")
	if part(2, "a") != 8 || part(1, "b") != 4 {
		t.Error("parts are old")
	}
	in.Delete("b")
	run("one that goes")
	in.Delete("a")
	in.Delete("none")
	factor.Delete("all")
	run("all that go")
	if len(s.puts)+len(sum.cells)+len(in.cells)+len(s.reads) != 0 || len(factor.cells) != 1 {
		t.Error("a scan of nothing keeps something")
	}
}

// TestParts puts lists of parts one after another, and follows what becomes of the state.
func TestParts(t *testing.T) {
	g := New()
	g.Strict()
	in := NewInput[int, []int](g, "in") // each n puts n under the key n%10
	calls := 0
	sum := NewFold[int](g, "sum", func(s *[]int, by int, before, after *int) {
		calls++
		if before != nil {
			i := slices.Index(*s, *before)
			*s = slices.Delete(slices.Clone(*s), i, i+1)
		}
		if after != nil {
			*s = append(slices.Clone(*s), *after)
			slices.Sort(*s)
		}
	})
	other := NewCount[int, int](g, "other")
	For(NewTable(g, "putter", func(c *Context, k int) (int, bool) {
		for _, n := range in.Get(c, k) {
			sum.Put(c, n%10, n/10%10, n)
			other.Put(c, n%10, n/10%10, struct{}{})
		}
		return 0, false
	}, Reads(in), Puts(sum, other)), in)
	g.Seal()
	for _, test := range []struct {
		name  string
		puts  []int
		calls int
		want  map[int][]int
	}{
		{"new ones", []int{11, 21, 12}, 3, map[int][]int{1: {11, 21}, 2: {12}}},
		{"the same", []int{11, 21, 12}, 0, map[int][]int{1: {11, 21}, 2: {12}}},
		{"another order", []int{12, 11, 21}, 0, map[int][]int{1: {11, 21}, 2: {12}}},
		{"reversed", []int{21, 11, 12}, 0, map[int][]int{1: {11, 21}, 2: {12}}},
		{"one replaced", []int{21, 111, 12}, 1, map[int][]int{1: {21, 111}, 2: {12}}},
		{"one in front", []int{31, 21, 111, 12}, 1, map[int][]int{1: {21, 31, 111}, 2: {12}}},
		{"one retracted", []int{31, 111, 12}, 1, map[int][]int{1: {31, 111}, 2: {12}}},
		{"one elsewhere", []int{31, 111, 13}, 2, map[int][]int{1: {31, 111}, 3: {13}}},
		{"all retracted", nil, 3, map[int][]int{}},
	} {
		calls = 0
		in.Set(1, test.puts)
		g.Run()
		if got := maps.Collect(sum.All()); !maps.EqualFunc(got, test.want, slices.Equal) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
		if calls != test.calls {
			t.Errorf("%s: %d parts changed, want %d", test.name, calls, test.calls)
		}
		for k, parts := range test.want {
			if n := other.Get(g.Peek(), k); n != len(parts) {
				t.Errorf("%s: %d counted under %d", test.name, n, k)
			}
		}
	}
	if len(sum.cells)+len(other.cells) != 0 {
		t.Error("cells without parts are left")
	}
}

func TestSetIsAlwaysAChange(t *testing.T) {
	g := New()
	in := NewInput[int, int](g, "in")
	ran := 0
	For(NewTable(g, "reader", func(c *Context, k int) (int, bool) {
		ran++
		return in.Find(c, k)
	}, Reads(in)), in)
	g.Seal()
	in.Set(1, 1)
	g.Run()
	in.Set(1, 1)
	g.Run()
	in.Delete(2)
	g.Run()
	if ran != 2 {
		t.Errorf("ran %d times", ran)
	}
}

func TestSlotsAndDriven(t *testing.T) {
	g := New()
	g.Strict()
	in := NewInput[int, int](g, "in")
	slot := NewSlot[int, int](g, "slot").Same(func(a, b int) bool { return a/10 == b/10 })
	For(NewTable(g, "putter", func(c *Context, k int) (int, bool) {
		slot.Put(c, k+1, Unit{}, in.Get(c, k))
		return 0, false
	}, Reads(in), Puts(slot)), in)
	seen := ForParts(NewTable(g, "seen", func(_ *Context, k int) (int, bool) { return slot.Driven(k), true }), slot, func(k int, _ Unit) int { return k })
	g.Seal()
	for _, test := range []struct{ set, want int }{{40, 40}, {41, 40}, {50, 50}} {
		in.Set(1, test.set)
		g.Run()
		if got := seen.Get(g.Peek(), 2); got != test.want {
			t.Errorf("after %d: %d, want %d", test.set, got, test.want)
		}
	}
	if readers := slot.cells[2].readers.Len(); readers != 0 || slot.Driven(3) != 0 {
		t.Error("Driven is recorded, or finds something")
	}
	if size := g.Sizes()["putter"]; size != (Size{Values: 1, Reads: 1}) {
		t.Errorf("the size is %v", size)
	}
	in.Delete(1)
	g.Run()
	if sizes := g.Sizes(); len(sizes) != 0 {
		t.Errorf("cells are left: %v", sizes)
	}
}
