package lookup

import "math"

const (
	// rounds of correction. Whole steps come first, halves after them: prices that move at
	// once disturb each other.
	rounds = 6
	whole  = 4
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
	t.setPrices()
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
	for _, v := range t.rivals {
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

// dearest is the largest price, and one over the smallest, as a logarithm: four standard
// deviations of the number of rows that a member gets by chance, at most 1/4 nat.
func (t *Table) dearest() int64 {
	members := 0
	for _, m := range t.members {
		if m.Weight > 0 {
			members++
		}
	}
	each := len(t.rows) / max(members, 1)
	return min(ratioOne/4, 4*ratioOne/max(1, int64(math.Sqrt(float64(each)))))
}

// setPrices makes those dearer that own more rows than their weight is worth: Newton's
// steps, since one percent of price moves about one percent of a member's rows.
func (t *Table) setPrices() {
	n := len(t.members)
	t.price = make([]int32, n)
	due := make([]int64, n) // in 1/256 rows
	var total uint64
	for _, m := range t.members {
		total += uint64(m.Weight)
	}
	for p, m := range t.members {
		if total > 0 {
			due[p] = int64(uint64(len(t.rows)) * 256 * uint64(m.Weight) / total)
		}
	}
	equal := make([]int64, n) // rows at equal prices
	if t.rivals == nil {
		t.rivals = make([]rivalry, len(t.rows))
	}
	rivals := t.rivals[:cap(t.rivals)]
	contested := 0
	dearest := t.dearest()
	for i := range t.rows {
		e := &t.rows[i]
		if e.owner[0] == empty {
			continue
		}
		equal[e.owner[0]]++
		rivals[contested] = rivalry{uint32(i), e.owner, int32(e.ratio)}
		if int64(e.ratio) < 2*dearest { // else no price changes the owner
			contested++
		}
	}
	t.rivals = rivals[:contested]
	count := make([]int64, n)
	for round := range rounds {
		copy(count, equal)
		for _, v := range t.rivals {
			if t.price[v.owner[0]]-t.price[v.owner[1]] > v.ratio {
				count[v.owner[0]]--
				count[v.owner[1]]++
			}
		}
		for p, d := range due {
			if d < fewest*256 {
				continue
			}
			step := (count[p]*256 - d) * ratioOne / d
			if round >= whole {
				step /= 2
			}
			t.price[p] = int32(min(max(int64(t.price[p])+step, -dearest), dearest))
		}
	}
}
