package lookup

import (
	"math"
	"math/bits"
)

// ranking ranks members by one of their weights.
type ranking struct {
	ids   []uint64 // by place, to decide between equals
	seeds []uint64
	times []float64 // 1/weight; infinite where the weight is 0
	// likely is how large a member's draw is at most where it stands in a row, but for few
	// rows: a look at all the members of a row then costs little.
	likely []uint32
	least  float64 // cost up to which likely leaves nobody out
	even   float64 // 1/weight if all have the same; else 0
}

// means of a row's first cost within which its first three are, but in 3 of 100 rows.
const means = 7

func rank(members []Member, weight func(Member) uint32) ranking {
	n := len(members)
	r := ranking{ids: make([]uint64, n), seeds: make([]uint64, n), times: make([]float64, n), likely: make([]uint32, n)}
	total := 0.0
	for _, m := range members {
		total += float64(weight(m))
	}
	r.least = means / total * 0.999
	first := true
	for p, m := range members {
		r.ids[p], r.seeds[p], r.times[p] = m.ID, mix(m.ID), math.Inf(1)
		if w := float64(weight(m)); w > 0 {
			r.times[p] = 1 / w
			if r.even == 0 && first {
				r.even, first = r.times[p], false
			} else if r.even != r.times[p] {
				r.even = 0
			}
			r.likely[p] = uint32(min(means*w/total*(1<<32), math.MaxUint32))
		}
	}
	return r
}

// mix is the finalizer of MurmurHash3.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// rowSeed spreads the numbers of rows over all bits (the steps of SplitMix64).
func rowSeed(row int) uint64 {
	x := (uint64(row) + 1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return (x ^ x>>27) * 0x94d049bb133111eb
}

// draw is how far the hash of a row and a member is from 1: x of u = 1-x, in units of
// 2^-32.
func draw(row, member uint64) uint32 {
	x := (row ^ member) * 0xd6e8feb86659fd93
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return uint32(x >> 32)
}

// first are the first three of a row and the fourth, if it is known, the best first.
type first struct {
	places [4]uint16
	costs  [4]float64
}

func nobody() first {
	inf := math.Inf(1)
	return first{places: [4]uint16{empty, empty, empty, empty}, costs: [4]float64{inf, inf, inf, inf}}
}

// last is the cost of the last that is known; infinite where there are fewer than three.
func (f *first) last() float64 {
	if f.places[3] != empty {
		return f.costs[3]
	}
	return f.costs[2]
}

// insert puts a member where its cost belongs; of equals the smaller ID goes first.
func (f *first) insert(r *ranking, place uint16, cost float64) {
	if math.IsInf(cost, 1) {
		return
	}
	k := 4
	for k > 0 && (cost < f.costs[k-1] || cost == f.costs[k-1] && r.ids[place] < r.ids[f.places[k-1]]) {
		if k < 4 {
			f.costs[k], f.places[k] = f.costs[k-1], f.places[k-1]
		}
		k--
	}
	if k < 4 {
		f.costs[k], f.places[k] = cost, place
	}
}

// top ranks all members at a row. Most draws are too large to matter; which are not is
// noted without a branch that a processor could guess wrong.
func (r *ranking) top(row uint64) first {
	var near [64]uint64 // place and draw
	n := 0
	likely := r.likely[:len(r.seeds)]
	for p, seed := range r.seeds {
		q := draw(row, seed)
		near[n&63] = uint64(p)<<32 | uint64(q)
		if q < likely[p] {
			n++
		}
	}
	if n < len(near) {
		f := nobody()
		if r.even > 0 {
			for _, k := range near[:n] {
				f.insert(r, uint16(k>>32), float64(uint32(k)))
			}
			f.weigh(r.even)
		} else {
			for _, k := range near[:n] {
				r.consider(&f, uint16(k>>32), uint32(k))
			}
		}
		if f.places[2] != empty && f.costs[2] <= r.least {
			if f.costs[3] > r.least {
				f.places[3], f.costs[3] = empty, math.Inf(1)
			}
			return f
		}
	}
	f := nobody()
	for p, seed := range r.seeds {
		r.consider(&f, uint16(p), draw(row, seed))
	}
	return f
}

// weigh makes costs of draws: members of one weight rank as their draws do.
func (f *first) weigh(times float64) {
	for k, q := range f.costs {
		if f.places[k] != empty {
			f.costs[k] = negLog(uint32(q)) * times
		}
	}
}

func (r *ranking) consider(f *first, place uint16, q uint32) {
	if float64(q)*(1.0/(1<<32))*r.times[place] <= f.costs[3] { // -ln(1-x) is at least x
		f.insert(r, place, negLog(q)*r.times[place])
	}
}

// cost of a member at a row.
func (r *ranking) cost(place uint16, row uint64) float64 {
	return negLog(draw(row, r.seeds[place])) * r.times[place]
}

// below says whether a member may be among the first of a row with that bound.
func (r *ranking) below(place uint16, row uint64, bound float32) bool {
	q := draw(row, r.seeds[place])
	if float64(q)*(1.0/(1<<32))*r.times[place] > float64(bound) {
		return false
	}
	cost := negLog(q) * r.times[place]
	return cost <= float64(bound) && !math.IsInf(cost, 1)
}

// negLog is -ln(1-x) for x = (q+1/2)/2^32. It uses operations only that round alike
// everywhere; the conversions keep compilers from fusing them.
func negLog(q uint32) float64 {
	if q < 1<<28 { // x < 1/16: the series converges at once
		x := (float64(q) + 0.5) * (1.0 / (1 << 32))
		a := float64(x*(1.0/8)) + 1.0/7
		a = float64(a*x) + 1.0/6
		a = float64(a*x) + 1.0/5
		a = float64(a*x) + 1.0/4
		a = float64(a*x) + 1.0/3
		a = float64(a*x) + 1.0/2
		return x + float64(float64(a*x)*x)
	}
	y := 1<<33 - 2*uint64(q) - 1 // 1-x in units of 2^-33
	n := bits.Len64(y)
	m := float64(y) / float64(uint64(1)<<n) // in [1/2, 1)
	shift := 33 - n
	if m < math.Sqrt2/2 {
		m *= 2
		shift++
	}
	// ln(m) = 2 artanh((m-1)/(m+1))
	return float64(float64(shift)*math.Ln2) - float64(2*artanh((m-1)/(m+1)))
}

// artanh is good to 1e-10 for |s| < 0.18.
func artanh(s float64) float64 {
	z := float64(s * s)
	sum := 1.0 / 13
	for _, c := range [...]float64{1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1} {
		sum = float64(sum*z) + c
	}
	return float64(s * sum)
}

// ratioOne is the unit of logarithms of ratios and prices: 1/ratioOne nat.
const ratioOne = 1 << 14

// logRatio is ln(second/first) in units of 1/ratioOne, saturated. It is good where it can
// decide anything, and never too small elsewhere by so much that it could.
func logRatio(first, second float64) uint16 {
	return uint16(min(float64(2*artanh((second-first)/(second+first))*ratioOne), math.MaxUint16))
}
