package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

// defaultDrain is how long a frontend that says nothing has its backends keep their flows.
const defaultDrain = 30 * time.Second

// state is what is in the maps, and what is to be.
type state struct {
	k       *kernel
	hops    *bpf.NextHops
	log     *slog.Logger
	rows    *slab
	numbers *bpf.Indices // of slots of backends
	indices *bpf.Indices // of frontends

	frontends map[model.FrontendKey]*frontend
	signed    map[string]*table // those that may be shared, by signature
	lingering []lingering
	passing   map[uint64]*passing // the map hops
	vips      map[netip.Addr]uint32
	guarded   map[netip.Addr]bool                // of vips
	others    map[model.FrontendKey]bool         // the map of that name
	guard     map[netip.Addr][]model.FrontendKey // that is wanted
	machines  map[netip.Addr]uint32              // the map of that name
	nodes     map[string]*model.Node
	epoch     uint64
	adopted   bool // there may be entries of which nobody has spoken yet
}

// frontend is one that is in the maps, or is to be.
type frontend struct {
	key   model.FrontendKey
	given *model.Balanced // nil: it is to go
	plan  *planned
	done  *planned // that was carried out last
	dirty bool     // plan is not carried out

	unready, wasUnready bool
	refused             error

	inKernel bool
	value    bpfFrontend
	table    *table
	settling time.Time           // until when rows have just changed
	locals   map[uint64]bpfLocal // nil: value.Index is none
	passes   map[uint64]bool     // hops that it uses
	circle   map[uint64]uint64   // in the map of that name
	sources  map[netip.Prefix]bool
	servers  map[[8]byte]uint32
	counted  bool // in vips
}

// passing is an entry of hops.
type passing struct {
	users int
	held  bool // its next hop is
	value bpfHop
}

func (f *frontend) wireKey() bpfFrontendKey { return wireKey(f.key) }

// plan takes over what is wanted. It returns whether something is to be balanced, and
// whether packets are to be taken out of tunnels.
func (s *state) plan(want model.Balancing, env environment) (balanced, decaps bool) {
	all := s.epoch != env.epoch || !maps.Equal(s.nodes, want.Nodes)
	s.nodes, s.epoch, s.guard = want.Nodes, env.epoch, env.guarded
	for key, b := range want.Frontends {
		f := s.frontends[key]
		if f == nil {
			f = &frontend{key: key}
			s.frontends[key] = f
		}
		was := f.unready
		f.unready = want.Unready[key]
		if f.given != b || all || f.refused != nil || f.unready != was {
			env.unready = f.unready
			p := plan(b, env)
			f.dirty = f.dirty || f.refused != nil || f.given == nil || f.given.Frontend != b.Frontend || !p.equal(f.plan)
			f.plan, f.given = p, b
		}
		balanced = balanced || f.plan.here && !f.plan.direct
		decaps = decaps || f.plan.tunnels()
	}
	for key, f := range s.frontends {
		if want.Frontends[key] == nil {
			f.given = nil
		}
	}
	return balanced, decaps
}

// translates says whether a frontend sends by NAT.
func (s *state) translates() bool {
	for _, f := range s.frontends {
		if f.plan != nil && slices.ContainsFunc(f.plan.members, func(m member) bool { return m.mode == bpfModeMODE_NAT }) {
			return true
		}
	}
	return false
}

// apply carries the plans out. What is wrong with one frontend is kept with it; an error is
// about all.
func (s *state) apply(now time.Time) error {
	if err := s.setMachines(); err != nil {
		return err
	}
	s.expire(now)
	errs := []error{s.open()}
	var dirty, gone []*frontend
	for _, f := range s.frontends {
		switch {
		case f.given == nil:
			gone = append(gone, f)
		case f.dirty || f.unready != f.wasUnready || !f.settling.IsZero() && !now.Before(f.settling):
			dirty = append(dirty, f)
		}
	}
	byKey := func(a, b *frontend) int { return a.key.Compare(b.key) }
	slices.SortFunc(dirty, byKey)
	slices.SortFunc(gone, byKey)
	// Those that come before those that go, so that what both use stays.
	for _, f := range dirty {
		err := s.put(f, now)
		if err != nil && (f.refused == nil || f.refused.Error() != err.Error()) {
			s.log.Warn("cannot balance a frontend as desired", "frontend", f.key, "error", err)
		}
		f.refused, f.dirty, f.wasUnready = err, false, f.unready
	}
	for _, f := range gone {
		if err := s.remove(f); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(s.frontends, f.key)
	}
	errs = append(errs, s.shut())
	if s.adopted && errors.Join(errs...) == nil {
		s.adopted = false
		errs = append(errs, s.sweep())
	}
	return errors.Join(errs...)
}

// put writes a frontend: what its entry leads to, the entry, and then takes away what it
// leads to no more. One that cannot be written whole stays away, or as near to what is wanted
// as there is room.
func (s *state) put(f *frontend, now time.Time) error {
	if why := supports(f.given.Frontend); why != "" {
		return errors.Join(s.remove(f), fmt.Errorf("%w: %s", errors.ErrUnsupported, why))
	}
	if f.plan.direct {
		return s.remove(f)
	}
	first := f.locals == nil
	if first {
		index, ok := s.indices.Alloc()
		if !ok {
			return fmt.Errorf("%w for another frontend: the map has %d", bpf.ErrFull, s.k.maps.Frontends.MaxEntries())
		}
		if err := s.clearFrontendCounter(index); err != nil {
			s.indices.Release(index)
			return err
		}
		f.value.Index, f.locals = index, map[uint64]bpfLocal{}
	}
	err := s.putParts(f, now)
	if err != nil && first {
		err = errors.Join(err, s.remove(f))
	}
	return err
}

func (s *state) putParts(f *frontend, now time.Time) error {
	if err := errors.Join(s.setLocals(f), s.setPasses(f), s.setCircle(f)); err != nil {
		return err
	}
	old := f.table
	if err := s.chooseTable(f, now); err != nil {
		return err
	}
	// A frontend that is there goes on with what there is room for, so that its backends are
	// those of now: clients whose range does not fit are not let in.
	lacks := errors.Join(s.setSources(f), s.setServers(f))
	if lacks != nil && !f.inKernel {
		return lacks
	}
	if f.plan.here {
		if err := s.setVIP(f, true); err != nil {
			return err
		}
	}
	v := s.frontendValue(f, now)
	if !f.inKernel || v != f.value {
		if err := s.k.maps.Frontends.Put(f.wireKey(), v); err != nil {
			return fmt.Errorf("write the frontend: %w", full(err, s.k.maps.Frontends))
		}
		f.value, f.inKernel = v, true
	}
	if old != nil && old != f.table {
		s.leaveTable(f, old)
	}
	f.done = f.plan
	err := errors.Join(lacks, s.pruneLocals(f), s.pruneSources(f))
	if !f.plan.here {
		err = errors.Join(err, s.setVIP(f, false))
	}
	return err
}

// chooseTable finds or changes the table of a frontend, or makes one.
func (s *state) chooseTable(f *frontend, now time.Time) error {
	p := f.plan
	if !p.here {
		f.table, f.settling = nil, time.Time{}
		return nil
	}
	drain := f.given.Frontend.Drain
	if drain <= 0 {
		drain = defaultDrain
	}
	t := f.table
	if t != nil && t.look != nil && (t.signature != "" && t.signature == p.signature || f.done != nil && slices.Equal(f.done.members, p.members)) {
		return nil
	}
	if other := s.tableOf(p.signature); other != nil && other != t {
		if s.joinTable(f, other); t != nil {
			f.settling = now.Add(drain)
		}
		return nil
	}
	alone := t != nil && len(t.users) == 1
	if t == nil || !alone && (s.splits(t, p) || !s.fits(t, p.members)) {
		fresh, err := s.newTable(p.members, nil)
		if err != nil {
			return err
		}
		s.sign(fresh, p.signature)
		if t != nil {
			f.settling = now.Add(drain)
		}
		s.joinTable(f, fresh)
		return nil
	}
	if !s.fits(t, p.members) { // its backends move on to other rows
		fresh, err := s.newTable(p.members, t.slots)
		if err == nil {
			s.sign(fresh, p.signature)
			t.slots = nil // what does not stand in the new one was freed
			f.settling = now.Add(drain)
			s.joinTable(f, fresh)
			return nil
		}
		if !errors.Is(err, bpf.ErrFull) {
			return err
		} // else the rows that it has must do
	}
	if t.look != nil || s.differs(t, p.members) {
		if err := s.carryHops(t, now.Add(drain)); err != nil {
			return err
		}
	}
	if err := s.setTable(t, p.members, drain, now); err != nil {
		return err
	}
	s.sign(t, p.signature)
	return nil
}

// carryHops has UDP packets of a table's frontends carry hops before its rows change.
func (s *state) carryHops(t *table, until time.Time) error {
	for user := range t.users {
		user.settling = until
		v := user.value
		v.Flags |= uint16(bpfFrontendFlagFRONTEND_SETTLING)
		if !user.inKernel || v == user.value || v.Flags&uint16(bpfFrontendFlagFRONTEND_BALANCED) == 0 {
			continue
		}
		if err := s.k.maps.Frontends.Put(user.wireKey(), v); err != nil {
			return fmt.Errorf("write the frontend: %w", err)
		}
		user.value = v
	}
	return nil
}

// tableOf is a table with that signature; nil for none.
func (s *state) tableOf(signature string) *table {
	if signature == "" {
		return nil
	}
	return s.signed[signature]
}

// splits says whether some of the frontends of a table do not change as this plan does.
func (s *state) splits(t *table, p *planned) bool {
	for user := range t.users {
		if user.given != nil && (p.signature == "" || user.plan.signature != p.signature) {
			return true
		}
	}
	return false
}

func (s *state) joinTable(f *frontend, t *table) {
	f.table = t
	t.users[f] = true
}

func (s *state) leaveTable(f *frontend, t *table) {
	if delete(t.users, f); len(t.users) == 0 {
		s.freeTable(t)
	}
}

// remove takes a frontend away: its entry first, then what that led to.
func (s *state) remove(f *frontend) error {
	if f.inKernel {
		if err := s.k.maps.Frontends.Delete(f.wireKey()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("remove the frontend %s: %w", f.key, err)
		}
		f.inKernel = false
	}
	if f.locals == nil {
		return nil
	}
	plan := f.plan
	f.plan = &planned{}
	err := errors.Join(s.setVIP(f, false), s.pruneLocals(f), s.setPasses(f), s.setCircle(f), s.pruneSources(f), s.setServers(f))
	f.plan, f.done = plan, nil
	if f.table != nil {
		s.leaveTable(f, f.table)
		f.table = nil
	}
	s.indices.Release(f.value.Index)
	f.locals, f.value = nil, bpfFrontend{}
	return err
}

// frontendValue is a frontend as programs have it.
func (s *state) frontendValue(f *frontend, now time.Time) bpfFrontend {
	m := f.given.Frontend
	v := bpfFrontend{Index: f.value.Index}
	var flags bpfFrontendFlag
	set := func(on bool, flag bpfFrontendFlag) {
		if on {
			flags |= flag
		}
	}
	if t := f.table; t != nil {
		v.Rows, v.Mask = t.base, t.size-1
		set(true, bpfFrontendFlagFRONTEND_BALANCED)
	}
	if !f.settling.IsZero() && !now.Before(f.settling) {
		f.settling = time.Time{}
	}
	set(!f.settling.IsZero(), bpfFrontendFlagFRONTEND_SETTLING)
	set(len(m.Sources) > 0, bpfFrontendFlagFRONTEND_SOURCES)
	set(m.Affinity > 0, bpfFrontendFlagFRONTEND_AFFINITY)
	set(m.NewFlows > 0, bpfFrontendFlagFRONTEND_LIMITED)
	set(f.unready, bpfFrontendFlagFRONTEND_UNREADY)
	v.Affinity = uint32((m.Affinity + time.Second - 1) / time.Second)
	v.Limit = m.NewFlows
	switch m.Hash {
	case model.HashThreeTuple:
		v.Hash = uint8(bpfFlowHashHASH_THREE_TUPLE)
	case model.HashSource:
		v.Hash = uint8(bpfFlowHashHASH_SOURCE)
	}
	if q := m.QUIC; q != nil && len(f.servers) > 0 {
		flags |= bpfFrontendFlagFRONTEND_QUIC
		v.Quic = q.Offset<<4 | q.Length
	}
	v.Flags = uint16(flags)
	return v
}

// expire frees the slots whose time is over.
func (s *state) expire(now time.Time) {
	s.lingering = slices.DeleteFunc(s.lingering, func(l lingering) bool {
		if now.Before(l.until) {
			return false
		}
		if err := s.freeSlot(l.slot); err != nil {
			s.log.Warn("cannot clear the entry of a backend", "error", err)
		}
		return true
	})
}

// next is when time brings something; zero for never.
func (s *state) next() (next time.Time) {
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, f := range s.frontends {
		sooner(f.settling)
	}
	for _, l := range s.lingering {
		sooner(l.until)
	}
	return next
}
