package bpf

import "errors"

// ErrFull is wrapped where a map has no room.
var ErrFull = errors.New("no room")

// Indices gives out the indices of a map from 1 to below its end. One that was given back comes
// again last, so that what the kernel still remembers by it has time to go.
type Indices struct {
	next, end uint32
	reserved  map[uint32]bool // at or above next
	free      []uint32
}

// NewIndices has all indices from 1 to below end.
func NewIndices(end uint32) *Indices {
	return &Indices{next: 1, end: end, reserved: map[uint32]bool{}}
}

// Alloc gives one out, if there is one.
func (n *Indices) Alloc() (uint32, bool) {
	for n.next < n.end {
		v := n.next
		n.next++
		if !n.reserved[v] {
			return v, true
		}
		delete(n.reserved, v)
	}
	if len(n.free) == 0 {
		return 0, false
	}
	v := n.free[0]
	n.free = n.free[1:]
	return v, true
}

// Reserve gives out a certain index before any was given out by Alloc, and reports whether it
// could.
func (n *Indices) Reserve(v uint32) bool {
	if v < n.next || v >= n.end || n.reserved[v] {
		return false
	}
	n.reserved[v] = true
	return true
}

// Release takes an index back.
func (n *Indices) Release(v uint32) { n.free = append(n.free, v) }
