package lookup

import "math"

const (
	// rounds of correction. Whole steps come first, then halves, at last a quarter: prices
	// that move at once disturb each other.
	rounds = 6
	whole  = 2
	// fewest rows that a member must be due for its price to mean anything.
	fewest = 8
)

// rivalry is a row that prices decide.
type rivalry struct {
	row   uint32
	owner [2]uint16
	ratio int32
}

// settle sets prices, from nothing, so that they are a function of the members alone, and
// then the rows: those revised and those that prices decide. It returns those that name
// others than before, ascending.
func (t *Table) settle(revised []uint32) (changed []uint32) {
	rivals := t.setPrices(len(revised) == len(t.rows))
	tell := func(i uint32, first uint16) {
		e := &t.rows[i]
		row := [3]uint16{first, e.hop[0], e.hop[1]}
		switch first {
		case e.hop[0]:
			row[1], row[2] = e.hop[1], e.hop[2]
		case e.hop[1]:
			row[2] = e.hop[2]
		}
		if row != t.last[i] {
			t.last[i] = row
			changed = append(changed, i)
		}
	}
	for _, v := range rivals {
		for len(revised) > 0 && revised[0] < v.row {
			tell(revised[0], t.rows[revised[0]].owner[0])
			revised = revised[1:]
		}
		owner := v.owner[t.wins(v)]
		if len(revised) > 0 && revised[0] == v.row {
			revised = revised[1:]
		} else if owner == t.last[v.row][0] {
			continue
		}
		tell(v.row, owner)
	}
	for _, i := range revised {
		tell(i, t.rows[i].owner[0])
	}
	return changed
}

// wins says which of two rivals owns a row.
func (t *Table) wins(v rivalry) int {
	if t.price[v.owner[0]]-t.price[v.owner[1]] > v.ratio {
		return 1
	}
	return 0
}

// dearest is the largest price of a member that is due so many 1/256 rows, and one over the
// smallest, as a logarithm: four standard deviations of the number of rows that it gets by
// chance, at most half a nat.
func dearest(due int64) int64 {
	if due < fewest*256 {
		return 0
	}
	return min(ratioOne/2, 4*ratioOne/int64(math.Sqrt(float64(due/256))))
}

// setPrices makes those dearer that own more rows than their weight is worth: Newton's
// steps, since one percent of price moves about one percent of a member's rows. all says that
// every row is told anew whatever it was. Returned are the rows that prices decide.
func (t *Table) setPrices(all bool) []rivalry {
	n := len(t.members)
	t.price = make([]int32, n)
	due := make([]int64, n)   // in 1/256 rows
	limit := make([]int64, n) // of the price
	var total uint64
	for _, m := range t.members {
		total += uint64(m.Weight)
	}
	for p, m := range t.members {
		if total > 0 {
			due[p] = int64(uint64(len(t.rows)) * 256 * uint64(m.Weight) / total)
		}
		limit[p] = dearest(due[p])
	}
	equal := make([]int64, n) // rows at equal prices
	rivals := make([]rivalry, len(t.rows))
	contested := 0
	for i := range t.rows {
		e := &t.rows[i]
		if e.owner[0] == empty {
			continue
		}
		equal[e.owner[0]]++
		rivals[contested] = rivalry{uint32(i), e.owner, int32(e.ratio)}
		if e.owner[1] == empty {
			continue
		}
		// Else no price changes the owner; one that a price has changed is to be told again.
		if int64(e.ratio) < limit[e.owner[0]]+limit[e.owner[1]] || !all && t.last[i][0] != e.owner[0] {
			contested++
		}
	}
	rivals = rivals[:contested]
	count := make([]int64, n)
	for round := range rounds {
		copy(count, equal)
		for _, v := range rivals {
			if t.price[v.owner[0]]-t.price[v.owner[1]] > v.ratio {
				count[v.owner[0]]--
				count[v.owner[1]]++
			}
		}
		for p, d := range due {
			if limit[p] == 0 {
				continue
			}
			step := (count[p]*256 - d) * ratioOne / d
			if round >= whole {
				step /= 2
			}
			if round == rounds-1 {
				step /= 2
			}
			t.price[p] = int32(min(max(int64(t.price[p])+step, -limit[p]), limit[p]))
		}
	}
	return rivals
}
