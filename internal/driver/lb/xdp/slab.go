package xdp

import (
	"cmp"
	"slices"
)

// extent is a run of rows.
type extent struct{ base, size uint32 }

func (e extent) end() uint32 { return e.base + e.size }

// slab gives out runs of the rows map, the lowest that fits.
type slab struct{ free []extent } // ascending, no two adjacent

func newSlab(size uint32) *slab { return &slab{free: []extent{{0, size}}} }

func (s *slab) alloc(size uint32) (uint32, bool) {
	for i, e := range s.free {
		if e.size < size {
			continue
		}
		if e.size == size {
			s.free = slices.Delete(s.free, i, i+1)
		} else {
			s.free[i] = extent{e.base + size, e.size - size}
		}
		return e.base, true
	}
	return 0, false
}

// room says whether a run can be had that leaves so many rows free.
func (s *slab) room(size, rest uint32) bool {
	var free uint32
	fits := false
	for _, e := range s.free {
		free += e.size
		fits = fits || e.size >= size
	}
	return fits && free-size >= rest
}

// reserve gives out a certain run, and reports whether it was free.
func (s *slab) reserve(base, size uint32) bool {
	want := extent{base, size}
	for i, e := range s.free {
		if want.base < e.base || want.end() > e.end() || want.end() < want.base {
			continue
		}
		var rest []extent
		if want.base > e.base {
			rest = append(rest, extent{e.base, want.base - e.base})
		}
		if want.end() < e.end() {
			rest = append(rest, extent{want.end(), e.end() - want.end()})
		}
		s.free = slices.Replace(s.free, i, i+1, rest...)
		return true
	}
	return false
}

func (s *slab) release(base, size uint32) {
	i, _ := slices.BinarySearchFunc(s.free, base, func(e extent, b uint32) int { return cmp.Compare(e.base, b) })
	s.free = slices.Insert(s.free, i, extent{base, size})
	if i+1 < len(s.free) && s.free[i].end() == s.free[i+1].base {
		s.free[i].size += s.free[i+1].size
		s.free = slices.Delete(s.free, i+1, i+2)
	}
	if i > 0 && s.free[i-1].end() == s.free[i].base {
		s.free[i-1].size += s.free[i].size
		s.free = slices.Delete(s.free, i, i+1)
	}
}
