package xdp

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// table is a lookup table in the kernel, and the backends of its rows. Frontends of
// proxies with equal members share one.
type table struct {
	base      uint32
	look      *lookup.Table // nil: as an earlier agent left it
	size      uint32
	slots     map[uint64]*slot // by the ID of the backend
	users     map[*frontend]bool
	signature string
	shares    map[uint32]uint32 // rows by the slot that is first in them
}

// slot is a backend in the kernel.
type slot struct {
	index   uint32
	value   bpfBackend
	backend model.FrontendBackend
	known   bool // backend is set: Set spoke of it
	held    bool // its next hop is held
}

// lingering is a slot that takes no new flow and keeps what it has: its backend is reached
// in another way now.
type lingering struct {
	slot  *slot
	until time.Time
}

// newTable makes the table of members: first what rows name, then the rows.
// Those of its backends that are in slots stay there.
func (s *state) newTable(members []member, slots map[uint64]*slot) (*table, error) {
	size := s.size(members)
	base, ok := s.rows.alloc(size)
	if !ok {
		return nil, fmt.Errorf("%w for %d more rows of lookup tables: the map has %d", bpf.ErrFull, size, s.k.rowCount)
	}
	t := &table{base: base, size: size, slots: maps.Clone(slots), users: map[*frontend]bool{}}
	for i := range size {
		s.k.setRow(base+i, [3]uint32{})
	}
	if err := s.setTable(t, members, 0, time.Time{}); err != nil {
		s.rows.release(base, size)
		return nil, err
	}
	return t, nil
}

// sign notes by what other frontends find the table.
func (s *state) sign(t *table, signature string) {
	if s.signed[t.signature] == t {
		delete(s.signed, t.signature)
	}
	if t.signature = signature; signature != "" {
		s.signed[signature] = t
	}
}

// due is how many rows a table of the members has on every load balancer. Those count, too,
// that this one does not reach: its rows are the others' then, but for theirs.
func due(members []member) uint32 {
	n := 0
	for _, m := range members {
		if m.backend.State != model.BackendUnready {
			n++
		}
	}
	return uint32(lookup.Rows(n))
}

// fewRows is the size of the smallest tables.
var fewRows = uint32(lookup.Rows(0))

// size is how many rows a new table gets: those due, or few where there is no room. A quarter
// of all rows is kept for small tables: many frontends that are a little less even are better
// than a few that are and others that are not balanced.
func (s *state) size(members []member) uint32 {
	if n := due(members); n == fewRows || s.rows.room(n, s.k.rowCount/4) {
		return n
	}
	return fewRows
}

// fits says whether a table has the number of rows for the members. Neither more nor fewer
// do: other load balancers, and those that start later, would choose otherwise.
func (s *state) fits(t *table, members []member) bool {
	n := due(members)
	return t.size == n || t.size == fewRows && s.size(members) == fewRows
}

// setTable changes a table: new backends first, then rows, then what backends may get; those
// that are gone last.
func (s *state) setTable(t *table, members []member, drain time.Duration, now time.Time) error {
	var fresh []*slot
	undo := func(err error) error {
		for _, p := range fresh {
			err = errors.Join(err, s.freeSlot(p))
		}
		return err
	}
	next := make(map[uint64]*slot, len(members))
	var late []func() error
	for _, m := range members {
		p := t.slots[m.id]
		if p != nil && bpfMode(p.value.Mode) != m.mode && p.value.Flags&uint8(bpfBackendFlagBACKEND_READY) != 0 {
			p = nil // flows that began in the other mode go on in it
		}
		value, err := s.backendValue(t, m, p)
		if err != nil {
			return undo(err)
		}
		if p == nil {
			if p, err = s.newSlot(value); err != nil {
				s.hops.Release(m.remote)
				return undo(err)
			}
			fresh = append(fresh, p)
		} else if p.value == value {
			p.held = true
		} else {
			p, grows := p, value.Flags&^p.value.Flags != 0
			write := func() error { return s.putSlot(p, value) }
			if grows {
				if err := write(); err != nil {
					return undo(err)
				}
			} else {
				late = append(late, write)
			}
		}
		p.backend, p.known = m.backend, true
		next[m.id] = p
	}
	var gone []*slot
	for id, p := range t.slots {
		if next[id] != p {
			gone = append(gone, p)
		}
	}
	t.slots = next
	s.setRows(t, members)
	var errs []error
	for _, write := range late {
		errs = append(errs, write())
	}
	for _, p := range gone {
		q := next[p.value.Id]
		if q == nil || drain <= 0 {
			errs = append(errs, s.freeSlot(p))
			continue
		}
		v := p.value
		v.Flags &^= uint8(bpfBackendFlagBACKEND_NEW)
		errs = append(errs, s.putSlot(p, v))
		s.lingering = append(s.lingering, lingering{p, now.Add(drain)})
	}
	return errors.Join(errs...)
}

// differs says whether the rows that an earlier agent left are others than those of the
// members.
func (s *state) differs(t *table, members []member) bool {
	t.look = lookup.New(int(t.size), lookups(members))
	at := t.at()
	for i := range t.size {
		if s.k.row(t.base+i) != slots(t.look.Row(int(i)), at) {
			return true
		}
	}
	return false
}

// lookups are the members that stand in rows, in the order of their IDs.
func lookups(members []member) []lookup.Member {
	var list []lookup.Member
	for _, m := range members {
		if m.stands {
			list = append(list, lookup.Member{ID: m.id, Weight: m.weight, HopWeight: m.hop})
		}
	}
	return list
}

// at are the slots of the members of the lookup table; 0 for one that has none.
func (t *table) at() []uint32 {
	at := make([]uint32, len(t.look.Members()))
	for i, m := range t.look.Members() {
		if p := t.slots[m.ID]; p != nil {
			at[i] = p.index
		}
	}
	return at
}

// slots is a row with slots of backends for those of members.
func slots(row [3]int32, at []uint32) (r [3]uint32) {
	for n, member := range row {
		if member != lookup.None {
			r[n] = at[member]
		}
	}
	return r
}

// setRows writes the rows that differ.
func (s *state) setRows(t *table, members []member) {
	if t.look == nil {
		t.look = lookup.New(int(t.size), lookups(members))
	} else {
		t.look.Update(lookups(members))
	}
	// A backend may have another slot though its row names the same one. To look at all
	// rows takes less than a millisecond.
	at := t.at()
	for i := range t.size {
		s.k.setRow(t.base+i, slots(t.look.Row(int(i)), at))
	}
	t.shares = make(map[uint32]uint32, len(at))
	for i, n := range t.look.Shares() {
		if n > 0 {
			t.shares[at[i]] = n
		}
	}
}

// freeTable gives rows and slots back. Nothing leads to them any more.
func (s *state) freeTable(t *table) {
	s.sign(t, "")
	for _, p := range t.slots {
		if err := s.freeSlot(p); err != nil {
			s.log.Warn("cannot clear the entry of a backend", "error", err)
		}
	}
	s.rows.release(t.base, t.size)
}

// backendValue is a member as programs have it. The next hop is held unless was has it.
func (s *state) backendValue(t *table, m member, was *slot) (bpfBackend, error) {
	v := bpfBackend{
		Id: m.id, Address: wireAddress(m.backend.Address.Addr()), Remote: wireAddress(m.remote), Port: bpf.NetworkPort(m.backend.Address.Port()),
		Mode: uint8(m.mode), Flags: uint8(m.flags), Table: uint64(t.base) + 1,
	}
	if m.flags&bpfBackendFlagBACKEND_PROXY != 0 {
		v.Address = bpfAddress{} // each frontend's own VIP
	}
	if was == nil {
		hop, err := s.hops.Hold(m.remote)
		v.NextHop = hop
		return v, err
	}
	v.Generation = was.value.Generation
	if was.held && was.value.Remote == v.Remote {
		v.NextHop = was.value.NextHop
		return v, nil
	}
	hop, err := s.hops.Hold(m.remote)
	v.NextHop = hop
	return v, err
}

// newSlot writes a backend to a free slot.
func (s *state) newSlot(v bpfBackend) (*slot, error) {
	index, ok := s.numbers.Alloc()
	if !ok {
		return nil, fmt.Errorf("%w for another backend: the map has %d", bpf.ErrFull, s.k.slots-1)
	}
	var old bpfBackend
	if err := s.k.maps.Backends.Lookup(index, &old); err != nil {
		return nil, fmt.Errorf("read the entry of a backend: %w", err)
	}
	v.Generation = old.Generation + 1
	p := &slot{index: index, held: true}
	if err := s.clearBackendCounter(index); err != nil {
		return nil, err
	}
	if err := s.k.maps.Backends.Put(index, v); err != nil {
		return nil, fmt.Errorf("write a backend: %w", err)
	}
	p.value = v
	return p, nil
}

// putSlot writes what changed about a backend; its next hop is held already.
func (s *state) putSlot(p *slot, v bpfBackend) error {
	if err := s.k.maps.Backends.Put(p.index, v); err != nil {
		return fmt.Errorf("write a backend: %w", err)
	}
	if p.held && p.value.Remote != v.Remote {
		s.hops.Release(p.value.Remote.address())
	}
	p.value, p.held = v, true
	return nil
}

// freeSlot clears a slot. The generation stays, to be raised when it is given out again.
func (s *state) freeSlot(p *slot) error {
	v := bpfBackend{Generation: p.value.Generation}
	err := s.k.maps.Backends.Put(p.index, v)
	if p.held {
		s.hops.Release(p.value.Remote.address())
	}
	s.numbers.Release(p.index)
	if err != nil {
		return fmt.Errorf("clear the entry of a backend: %w", err)
	}
	return nil
}
