package lookup

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Member is a backend of a table.
type Member struct {
	// ID is unique within the table and not 0.
	ID uint64
	// Weight is the member's share of new flows, relative to the others'; 0 takes none.
	Weight uint32
	// HopWeight says for which rows it may own flows: the largest weight that it had while
	// these began. At least Weight.
	HopWeight uint32
}

// None stands in a row where there is no member.
const None int32 = -1

// MaxMembers of one table.
const MaxMembers = 1<<16 - 1

const (
	smallRows = 1 << 12
	largeRows = 1 << 16
	// smallMembers have 512 rows each in a small table, at least.
	smallMembers = smallRows / 512
)

// Rows is how many rows a table of n members has: a power of two.
func Rows(n int) int {
	if n <= smallMembers {
		return smallRows
	}
	return largeRows
}

// Table is a lookup table. Make it with New.
type Table struct {
	members []Member // by place; ID 0: the place is free
	places  map[uint64]uint16
	free    []uint16
	rows    []entry
	last    [][3]uint16 // the rows as they were told
	owners  ranking     // by weight
	hops    ranking     // by hop weight
	split   bool        // some member's weights differ
	price   []int32     // by place
}

// empty is the place of no member.
const empty = math.MaxUint16

// entry is what is known of a row.
type entry struct {
	owner [2]uint16 // the first two by weight
	hop   [4]uint16 // the first three by hop weight, and the fourth where it is known
	ratio uint16    // of the costs of the two owners: ln(second/first), saturated
	far   bool      // the owners had to be sought among all: any weight may matter
	bound float32   // members whose cost by hop weight is above do not stand in hop
}

// New returns the table of the members in any order. It panics if an ID is 0 or there
// twice, or if there are too many.
func New(rows int, members []Member) *Table {
	if rows <= 0 || rows&(rows-1) != 0 {
		panic(fmt.Sprintf("lookup: %d rows are not a power of two", rows))
	}
	t := &Table{rows: make([]entry, rows), last: make([][3]uint16, rows)}
	t.rebuild(members)
	return t
}

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Members of the table by the places that rows name. Places without a member are zero. A
// member keeps its place while it stays.
func (t *Table) Members() []Member { return t.members }

// Row is a row: places of members, or None. The first takes new flows; without one the
// others may still own some.
func (t *Table) Row(i int) [3]int32 {
	var r [3]int32
	for k, p := range t.last[i] {
		r[k] = None
		if p != empty {
			r[k] = int32(p)
		}
	}
	return r
}

// Shares counts the rows of which each place is the first.
func (t *Table) Shares() []uint32 {
	shares := make([]uint32, len(t.members))
	for i := range t.last {
		if p := t.last[i][0]; p != empty {
			shares[p]++
		}
	}
	return shares
}

// Update makes the table that of other members and returns the rows that name others than
// before, ascending. The table is then equal to a new one but for the places.
func (t *Table) Update(members []Member) (changed []uint32) {
	fresh := make(map[uint64]Member, len(members))
	for _, m := range members {
		fresh[m.ID] = m
	}
	var gone, altered []uint16
	for p, m := range t.members {
		if m.ID == 0 {
			continue
		}
		switch now, stays := fresh[m.ID]; {
		case !stays:
			gone = append(gone, uint16(p))
		case now != m:
			altered = append(altered, uint16(p))
		}
	}
	added := 0
	for _, m := range members {
		if _, known := t.places[m.ID]; !known {
			added++
		}
	}
	if n := len(gone) + len(altered) + added; n == 0 {
		return nil
	} else if n*8 > len(members)+8 {
		old, before := t.members, t.last
		t.last = make([][3]uint16, len(t.rows))
		t.rebuild(members)
		return differ(old, before, t.members, t.last)
	}
	leave, weigh := set{}, set{}
	var enter []uint16
	for _, p := range altered {
		m := fresh[t.members[p].ID]
		if t.members[p].HopWeight != m.HopWeight {
			leave.add(p)
			enter = append(enter, p)
		}
		weigh.add(p)
		t.members[p] = m
	}
	free := t.free // places of those that go now must not be another's yet
	for _, p := range gone {
		delete(t.places, t.members[p].ID)
		t.members[p] = Member{}
		leave.add(p)
		t.free = append(t.free, p)
	}
	for _, m := range members {
		if _, known := t.places[m.ID]; known {
			continue
		}
		p := uint16(len(t.members))
		if len(free) > 0 {
			p, free = free[0], free[1:]
			t.free = t.free[1:]
			t.members[p] = m
		} else {
			t.members = append(t.members, m)
		}
		t.places[m.ID] = p
		enter = append(enter, p)
	}
	t.check()
	return t.settle(t.revise(&leave, &weigh, enter))
}

// set is a set of places.
type set [1 << 16 / 64]uint64

func (s *set) add(p uint16)      { s[p/64] |= 1 << (p % 64) }
func (s *set) has(p uint16) bool { return s[p/64]>>(p%64)&1 != 0 }

// revise brings the entries up to date in which members stand that leave or whose weight
// is another, or to which members may come, and returns which.
func (t *Table) revise(leave, weigh *set, enter []uint16) (revised []uint32) {
	t.rank()
	for i := range t.rows {
		e := &t.rows[i]
		left := leave.has(e.hop[0]) || leave.has(e.hop[1]) || leave.has(e.hop[2]) || leave.has(e.hop[3])
		came := false
		for k := 0; k < len(enter) && !came; k++ {
			came = t.hops.below(enter[k], rowSeed(i), e.bound)
		}
		switch {
		case left || came:
			t.amend(i, leave, enter)
		case weigh.has(e.hop[0]) || weigh.has(e.hop[1]) || weigh.has(e.hop[2]) || e.far:
			t.choose(i)
		default:
			continue
		}
		revised = append(revised, uint32(i))
	}
	return revised
}

// amend takes out of a row who leaves, puts in who comes, and ranks all members only where
// fewer than three are left.
func (t *Table) amend(i int, leave *set, enter []uint16) {
	e, seed := &t.rows[i], rowSeed(i)
	top, most := nobody(), float64(e.bound)
	for _, p := range e.hop {
		if p != empty && !leave.has(p) {
			top.insert(&t.hops, p, t.hops.cost(p, seed))
		}
	}
	exact := true
	for _, p := range enter {
		if cost := t.hops.cost(p, seed); cost < most*(1-1e-6) {
			top.insert(&t.hops, p, cost)
		} else if cost <= most { // the bound has too few bits to tell
			exact = false
		}
	}
	if top.places[2] == empty || !exact {
		t.fill(i)
		return
	}
	t.keep(i, &top)
}

// rebuild computes every row from nothing.
func (t *Table) rebuild(members []Member) {
	t.members = slices.Clone(members)
	slices.SortFunc(t.members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	t.places = make(map[uint64]uint16, len(members))
	for p, m := range t.members {
		t.places[m.ID] = uint16(p)
	}
	if len(t.places) != len(members) {
		panic("lookup: two members have one ID")
	}
	t.free = nil
	t.check()
	t.rank()
	all := make([]uint32, len(t.rows))
	for i := range t.rows {
		t.fill(i)
		all[i] = uint32(i)
	}
	t.settle(all)
}

func (t *Table) check() {
	if len(t.members) > MaxMembers {
		panic(fmt.Sprintf("lookup: %d members, and a table has at most %d", len(t.members), MaxMembers))
	}
	if _, zero := t.places[0]; zero {
		panic("lookup: a member without ID")
	}
}

func (t *Table) rank() {
	t.owners = rank(t.members, func(m Member) uint32 { return m.Weight })
	t.hops = rank(t.members, func(m Member) uint32 { return m.HopWeight })
	t.split = slices.ContainsFunc(t.members, func(m Member) bool { return m.Weight != m.HopWeight })
}

// fill computes what is known of one row.
func (t *Table) fill(i int) {
	top := t.hops.top(rowSeed(i))
	t.keep(i, &top)
}

// keep writes an entry.
func (t *Table) keep(i int, top *first) {
	e := &t.rows[i]
	e.hop, e.bound = top.places, bound(top.last())
	if t.split {
		t.choose(i)
	} else {
		e.far = false
		e.own(top)
	}
}

// choose finds the first two by weight. A member costs by weight at least what it costs by
// hop weight, so where two of the hops cost no more than the third hop did, no other member
// can come before them.
func (t *Table) choose(i int) {
	e, seed := &t.rows[i], rowSeed(i)
	top := nobody()
	for _, p := range e.hop[:3] {
		if p != empty {
			top.insert(&t.owners, p, t.owners.cost(p, seed))
		}
	}
	e.far = e.hop[2] != empty && (top.places[1] == empty || top.costs[1] > t.hops.cost(e.hop[2], seed))
	if e.far {
		top = t.owners.top(seed)
	}
	e.own(&top)
}

func (e *entry) own(top *first) {
	e.owner, e.ratio = [2]uint16{top.places[0], top.places[1]}, math.MaxUint16
	if e.owner[1] != empty {
		e.ratio = logRatio(top.costs[0], top.costs[1])
	}
}

// bound is a number of fewer bits that is not below the cost.
func bound(cost float64) float32 {
	if math.IsInf(cost, 1) {
		return math.MaxFloat32
	}
	b := float32(cost)
	if float64(b) < cost {
		b = math.Nextafter32(b, math.MaxFloat32)
	}
	return b
}

// differ lists the rows that name others.
func differ(old []Member, before [][3]uint16, members []Member, after [][3]uint16) (changed []uint32) {
	id := func(members []Member, p uint16) uint64 {
		if p == empty {
			return 0
		}
		return members[p].ID
	}
	for i := range after {
		for k := range after[i] {
			if id(old, before[i][k]) != id(members, after[i][k]) {
				changed = append(changed, uint32(i))
				break
			}
		}
	}
	return changed
}
