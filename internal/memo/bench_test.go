package memo

import (
	"fmt"
	"testing"
)

// fleet is a Graph like the example's: prices of goods, shops that read some, sums by town.
type fleet struct {
	g      *Graph
	goods  *Input[string, int]
	shops  *Input[string, [3]string]
	totals *Table[string, int]
	towns  *Sum[string, string, int, int]
	runs   int
}

func newFleet(shops int) (*fleet, []string) {
	f := &fleet{g: New()}
	f.goods, f.shops = NewInput[string, int](f.g, "goods"), NewInput[string, [3]string](f.g, "shops")
	f.towns = NewFold[string](f.g, "towns", func(sum *int, _ string, before, after *int) {
		if before != nil {
			*sum -= *before
		}
		if after != nil {
			*sum += *after
		}
	}).Same(func(a, b int) bool { return a == b })
	same := func(a, b int) bool { return a == b }
	f.totals = For(NewTable(f.g, "total", func(c *Context, shop string) (int, bool) {
		f.runs++
		total := 0
		for _, name := range f.shops.Get(c, shop) {
			total += f.goods.Get(c, name)
		}
		f.towns.Put(c, shop[len(shop)-2:], shop, total)
		return total, true
	}, Reads(f.goods), Puts(f.towns)), f.shops).Equal(same).Watch()
	For(NewTable(f.g, "town", func(c *Context, town string) (int, bool) { return f.towns.Find(c, town) }, Reads(f.towns)), f.towns).Equal(same)
	f.g.Seal()
	names := make([]string, shops)
	for i := range names {
		names[i] = fmt.Sprintf("goods %06d", i)
	}
	for i := range names {
		f.goods.Set(names[i], i)
		f.shops.Set(fmt.Sprintf("shop %06d", i), [3]string{names[i], names[(i+1)%shops], names[(i+2)%shops]})
	}
	return f, names
}

func benchmark(b *testing.B, shops int, change func(f *fleet, names []string, i int)) {
	f, names := newFleet(shops)
	f.g.Run()
	f.totals.Changes()
	f.runs = 0
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		change(f, names, i)
		f.g.Run()
		f.totals.Changes()
		i++
	}
	b.ReportMetric(float64(f.runs)/float64(b.N), "values/op")
}

// BenchmarkOneOf100000 changes a price that three shops read.
func BenchmarkOneOf100000(b *testing.B) {
	benchmark(b, 100_000, func(f *fleet, names []string, i int) { f.goods.Set(names[i%len(names)], i) })
}

// BenchmarkOneOf1000 must take as long.
func BenchmarkOneOf1000(b *testing.B) {
	benchmark(b, 1000, func(f *fleet, names []string, i int) { f.goods.Set(names[i%len(names)], i) })
}

// BenchmarkEqual sets a price that it has.
func BenchmarkEqual(b *testing.B) {
	benchmark(b, 100_000, func(f *fleet, names []string, i int) { f.goods.Set(names[7], 7) })
}

// BenchmarkComeAndGo has a shop come or go.
func BenchmarkComeAndGo(b *testing.B) {
	benchmark(b, 100_000, func(f *fleet, names []string, i int) {
		if i%2 == 0 {
			f.shops.Set("shop new", [3]string{names[1], names[2], names[3]})
		} else {
			f.shops.Delete("shop new")
		}
	})
}

// BenchmarkAnew computes 100,000 values from nothing.
func BenchmarkAnew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		f, _ := newFleet(100_000)
		f.g.Run()
	}
}

// BenchmarkRunOfNothing is Run without a change.
func BenchmarkRunOfNothing(b *testing.B) {
	benchmark(b, 100_000, func(*fleet, []string, int) {})
}

// TestWorkIsThatOfTheChange holds that a change costs as many allocations in a large Graph as in a small one.
func TestWorkIsThatOfTheChange(t *testing.T) {
	allocations := func(shops int) float64 {
		f, names := newFleet(shops)
		f.g.Run()
		i := 0
		return testing.AllocsPerRun(20, func() {
			f.goods.Set(names[10], i)
			f.g.Run()
			f.totals.Changes()
			i++
		})
	}
	if small, large := allocations(200), allocations(20_000); large > small+2 {
		t.Errorf("a change takes %v allocations among 200 values and %v among 20,000", small, large)
	}
}
