package lookup

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// members of those weights, over and over.
func members(n int, weights ...uint32) []Member {
	if len(weights) == 0 {
		weights = []uint32{100}
	}
	list := make([]Member, n)
	for i := range list {
		w := weights[i%len(weights)]
		list[i] = Member{ID: mix(uint64(i) + 1), Weight: w, HopWeight: w}
	}
	return list
}

// ids are the members of a row; 0 is none.
func (t *Table) ids(i int) (ids [3]uint64) {
	for k, p := range t.Row(i) {
		if p != None {
			ids[k] = t.Members()[p].ID
		}
	}
	return ids
}

func TestSharesFollowWeights(t *testing.T) {
	for _, c := range []struct {
		name    string
		members []Member
		bound   float64 // largest deviation of a share from its weight, as a part of it
	}{
		{"one", members(1), 0},
		{"two", members(2), 0.01},
		{"three of different weight", members(3, 100, 50, 300), 0.01},
		{"8, the most in a small table", members(8), 0.01},
		{"9", members(9), 0.01},
		{"50 of five weights", members(50, 100, 80, 120, 40, 200), 0.01},
		{"100", members(100), 0.01},
		{"255", members(255), 0.04}, // one row is 0.4 %
	} {
		table := New(Rows(len(c.members)), c.members)
		total := 0.0
		for _, m := range c.members {
			total += float64(m.Weight)
		}
		worst := 0.0
		for p, rows := range table.Shares() {
			due := float64(table.Len()) * float64(table.Members()[p].Weight) / total
			worst = max(worst, math.Abs(float64(rows)-due)/due)
		}
		t.Logf("%s: %d rows, largest deviation %.2f %%", c.name, table.Len(), 100*worst)
		if worst > c.bound {
			t.Errorf("%s: a share is %.2f %% from its weight, want at most %.2f %%", c.name, 100*worst, 100*c.bound)
		}
	}
}

// TestSharesOfAnyWeights: however different the weights are, members get their share within
// 1 %, and those with few rows within 2 % or three rows.
func TestSharesOfAnyWeights(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	for _, n := range []int{2, 3, 5, 8, 9, 10, 30, 100} {
		worst := 0.0
		for range 8 {
			list, total := members(n), 0.0
			for i := range list {
				w := 1 + random.Uint32N(100)
				list[i] = Member{ID: random.Uint64() | 1, Weight: w, HopWeight: w}
				total += float64(w)
			}
			table := New(Rows(n), list)
			for p, rows := range table.Shares() {
				due := float64(table.Len()) * float64(table.Members()[p].Weight) / total
				bound := due / 100
				if due < 400 {
					bound = max(3, due/50)
				}
				away := math.Abs(float64(rows) - due)
				worst = max(worst, away/bound)
				if away > bound && due >= 16 {
					t.Errorf("%d members: one of weight %d has %d rows, due are %.1f", n, table.Members()[p].Weight, rows, due)
				}
			}
		}
		t.Logf("%d members: at most %.2f of what is allowed", n, worst)
	}
}

// step is a change of one member or more.
type step struct {
	name   string
	change func([]Member) []Member
	// touched members may gain and lose rows.
	touched []uint64
}

func steps() []step {
	at := func(i int) uint64 { return mix(uint64(i) + 1) }
	edit := func(i int, f func(*Member)) func([]Member) []Member {
		return func(m []Member) []Member { f(&m[i]); return m }
	}
	add := func(m []Member) []Member { return append(m, Member{ID: 7, Weight: 100, HopWeight: 100}) }
	drain := edit(5, func(m *Member) { m.Weight = 0 })
	return []step{
		{"add", add, []uint64{7}},
		{"remove", func(m []Member) []Member { return m[1:] }, []uint64{at(0)}},
		{"drain", drain, []uint64{at(5)}},
		{"100 to 40", edit(5, func(m *Member) { m.Weight = 40 }), []uint64{at(5)}},
		{"100 to 300", edit(5, func(m *Member) { m.Weight, m.HopWeight = 300, 300 }), []uint64{at(5)}},
		{"add and drain", func(m []Member) []Member { return add(drain(m)) }, []uint64{7, at(5)}},
		{"drain two", func(m []Member) []Member { m[9].Weight = 0; return drain(m) }, []uint64{at(5), at(9)}},
		{"drain one, 100 to 40 another", func(m []Member) []Member { m[9].Weight = 40; return drain(m) }, []uint64{at(5), at(9)}},
	}
}

// TestOwnersStayInTheirRows: who owned a row is within its three after a change, unless it
// has gone itself, so that old flows find it; and rows of others stay.
func TestOwnersStayInTheirRows(t *testing.T) {
	for _, n := range []int{12, 100} {
		base := New(largeRows, members(n))
		for _, s := range steps() {
			list := s.change(members(n))
			after := New(largeRows, list)
			present := map[uint64]bool{}
			for _, m := range list {
				present[m.ID] = true
			}
			unrelated, lost := 0, 0
			for i := range after.Len() {
				was, is := base.ids(i), after.ids(i)
				if was[0] != is[0] && !slices.Contains(s.touched, was[0]) && !slices.Contains(s.touched, is[0]) {
					unrelated++
				}
				if present[was[0]] && !slices.Contains(is[:], was[0]) {
					lost++
				}
			}
			t.Logf("%d members, %s: %.3f %% of rows moved between others", n, s.name, 100*float64(unrelated)/float64(after.Len()))
			if unrelated > after.Len()/100 {
				t.Errorf("%d members, %s: %d of %d rows moved between members that did not change, want at most 1 %%", n, s.name, unrelated, after.Len())
			}
			if lost > 0 {
				t.Errorf("%d members, %s: %d rows lost their owner from their three", n, s.name, lost)
			}
		}
	}
}

// TestUpdateIsNew: whatever the history, a table is that of its members; and what Update
// returns are the rows that changed, no more and no fewer.
func TestUpdateIsNew(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		n := 1 + random.IntN(60)
		list := members(n, 100, 50, 1, 300)
		table := New(4096, list)
		for round := range 12 {
			for range 1 + random.IntN(4) {
				list = mutate(random, list)
			}
			random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			before := make([][3]uint64, table.Len())
			for i := range before {
				before[i] = table.ids(i)
			}
			changed := table.Update(list)
			fresh := New(4096, list)
			var want []uint32
			for i := range before {
				if got, want := table.ids(i), fresh.ids(i); got != want {
					t.Fatalf("seed %d, round %d, row %d: %x, a new table has %x", seed, round, i, got, want)
				}
				if before[i] != table.ids(i) {
					want = append(want, uint32(i))
				}
			}
			if !slices.Equal(changed, want) {
				t.Fatalf("seed %d, round %d: %d rows are said to have changed, %d have", seed, round, len(changed), len(want))
			}
		}
	}
}

func mutate(random *rand.Rand, list []Member) []Member {
	list = slices.Clone(list)
	i := 0
	if len(list) > 0 {
		i = random.IntN(len(list))
	}
	switch random.IntN(5) {
	case 0:
		return append(list, Member{ID: random.Uint64() | 1, Weight: 100, HopWeight: 100})
	case 1:
		if len(list) > 0 {
			return slices.Delete(list, i, i+1)
		}
	case 2:
		if len(list) > 0 {
			list[i].Weight = 0
		}
	case 3:
		if len(list) > 0 {
			w := uint32(random.IntN(200))
			list[i].Weight, list[i].HopWeight = w, w+uint32(random.IntN(100))
		}
	case 4:
		if len(list) > 0 {
			list[i].HopWeight = list[i].Weight
		}
	}
	return list
}

func TestFewMembers(t *testing.T) {
	a, b := Member{ID: 1, Weight: 1, HopWeight: 1}, Member{ID: 2, HopWeight: 5}
	for _, c := range []struct {
		members []Member
		want    [3]uint64
	}{
		{nil, [3]uint64{}},
		{[]Member{a}, [3]uint64{1}},
		{[]Member{b}, [3]uint64{0, 2}}, // drains: it has old flows only
		{[]Member{a, b}, [3]uint64{1, 2}},
		{[]Member{{ID: 3}}, [3]uint64{}},
	} {
		table := New(8, c.members)
		for i := range 8 {
			if got := table.ids(i); got != c.want {
				t.Errorf("%v: row %d is %v, want %v", c.members, i, got, c.want)
			}
		}
	}
}

func TestBadMembersAreBugs(t *testing.T) {
	for name, list := range map[string][]Member{"no id": {{Weight: 1}}, "twice": {{ID: 1}, {ID: 1}}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			New(8, list)
		}()
	}
}

func TestNegLog(t *testing.T) {
	for _, q := range []uint32{0, 1, 1000, 1<<28 - 1, 1 << 28, 1<<28 + 1, 1 << 30, 1 << 31, 3 << 30, math.MaxUint32 - 1, math.MaxUint32} {
		want := -math.Log1p(-(float64(q) + 0.5) / (1 << 32))
		if got := negLog(q); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%d: %.15g, want %.15g", q, got, want)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	for _, n := range []int{8, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := members(n)
			for b.Loop() {
				New(Rows(n), m)
			}
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, s := range steps()[:4] {
		b.Run(s.name, func(b *testing.B) {
			before, after := members(100), s.change(members(100))
			table := New(largeRows, before)
			for i := 0; b.Loop(); i++ {
				if i%2 == 0 {
					table.Update(after)
				} else {
					table.Update(before)
				}
			}
		})
	}
}
