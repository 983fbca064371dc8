package xdp

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/model"
)

// readState is what an earlier agent left in the maps, or nothing.
func readState(k *kernel, hops *bpf.NextHops, log *slog.Logger) (*state, error) {
	s := &state{
		k: k, hops: hops, log: log,
		rows: newSlab(k.rowCount), numbers: bpf.NewIndices(min(k.slots, 1<<rowBits)), indices: bpf.NewIndices(k.maps.FrontendCounters.MaxEntries()),
		frontends: map[model.FrontendKey]*frontend{}, signed: map[string]*table{}, passing: map[uint64]*passing{},
		vips: map[netip.Addr]uint32{}, guarded: map[netip.Addr]bool{}, others: map[model.FrontendKey]bool{}, machines: map[netip.Addr]uint32{},
	}
	if !k.object.Adopted() {
		return s, nil
	}
	s.adopted = true
	if err := s.read(); err != nil {
		return nil, fmt.Errorf("read the maps of an earlier agent: %w", err)
	}
	log.Info("took over the load balancing of an earlier agent", "frontends", len(s.frontends))
	return s, nil
}

func (s *state) read() error {
	byIndex := map[uint32]*frontend{}
	tables := map[uint32]*table{}
	var key bpfFrontendKey
	var value bpfFrontend
	for i := s.k.maps.Frontends.Iterate(); ; {
		if !i.Next(&key, &value) {
			if err := i.Err(); err != nil {
				return fmt.Errorf("read frontends: %w", err)
			}
			break
		}
		f := &frontend{
			key:      keyOf(key),
			inKernel: true, value: value, locals: map[uint64]bpfLocal{}, unready: value.Flags&uint16(bpfFrontendFlagFRONTEND_UNREADY) != 0,
		}
		f.wasUnready = f.unready
		if !s.indices.Reserve(value.Index) {
			return fmt.Errorf("two frontends have the number %d", value.Index)
		}
		if value.Flags&uint16(bpfFrontendFlagFRONTEND_SETTLING) != 0 {
			f.settling = time.Now().Add(defaultDrain) // nobody knows how long it was to last
		}
		s.frontends[f.key], byIndex[value.Index] = f, f
		if value.Flags&uint16(bpfFrontendFlagFRONTEND_BALANCED) == 0 {
			continue
		}
		t := tables[value.Rows]
		if t == nil {
			if !s.rows.reserve(value.Rows, value.Mask+1) {
				return fmt.Errorf("the frontend %s shares rows with another frontend", f.key)
			}
			t = &table{base: value.Rows, size: value.Mask + 1, slots: map[uint64]*slot{}, users: map[*frontend]bool{}}
			tables[value.Rows] = t
		}
		s.joinTable(f, t)
	}
	if err := s.readSlots(tables); err != nil {
		return err
	}
	return s.readEntries(byIndex)
}

// readSlots reads the backends, each for its table.
func (s *state) readSlots(tables map[uint32]*table) error {
	for index := uint32(1); index < s.k.slots; index++ {
		var v bpfBackend
		if err := s.k.maps.Backends.Lookup(index, &v); err != nil {
			return fmt.Errorf("read backends: %w", err)
		}
		if v.Id == 0 {
			continue
		}
		s.numbers.Reserve(index)
		p := &slot{index: index, value: v}
		s.hops.Adopt(v.Remote.address(), v.NextHop)
		if p.held = s.hops.Has(v.Remote.address(), v.NextHop); p.held {
			if _, err := s.hops.Hold(v.Remote.address()); err != nil {
				return err
			}
		}
		var t *table
		if v.Table != 0 {
			t = tables[uint32(v.Table-1)]
		}
		if t == nil {
			s.lingering = append(s.lingering, lingering{p, time.Now().Add(defaultDrain)})
			continue
		}
		if other := t.slots[v.Id]; other != nil {
			if v.Flags&uint8(bpfBackendFlagBACKEND_NEW) == 0 {
				p, other = other, p
			}
			s.lingering = append(s.lingering, lingering{other, time.Now().Add(defaultDrain)})
		}
		t.slots[v.Id] = p
	}
	return nil
}

// readEntries reads what frontends lead to besides tables.
func (s *state) readEntries(byIndex map[uint32]*frontend) error {
	var errs [8]error
	var local struct {
		k bpfLocalKey
		v bpfLocal
	}
	it := s.k.maps.Locals.Iterate()
	var orphans []bpfLocalKey
	for it.Next(&local.k, &local.v) {
		if f := byIndex[local.k.Frontend]; f != nil {
			f.locals[local.k.Id] = local.v
		} else {
			orphans = append(orphans, local.k)
		}
	}
	errs[0] = it.Err()
	for _, k := range orphans {
		_ = s.k.maps.Locals.Delete(k)
	}
	var key bpfLocalKey
	var next uint64
	orphans = nil
	it = s.k.maps.Circle.Iterate()
	for it.Next(&key, &next) {
		f := byIndex[key.Frontend]
		if f == nil {
			orphans = append(orphans, key)
			continue
		}
		if f.circle == nil {
			f.circle = map[uint64]uint64{}
		}
		f.circle[key.Id] = next
	}
	errs[7] = it.Err()
	for _, k := range orphans {
		_ = s.k.maps.Circle.Delete(k)
	}
	var id uint64
	var hop bpfHop
	it = s.k.maps.Hops.Iterate()
	for it.Next(&id, &hop) {
		s.passing[id] = &passing{value: hop}
		s.hops.Adopt(hop.Remote.address(), hop.NextHop)
	}
	errs[1] = it.Err()
	var source bpfSourceKey
	var one uint32
	var strangers []bpfSourceKey // they would let clients of the one before into the next with the number
	it = s.k.maps.Sources.Iterate()
	for it.Next(&source, &one) {
		f := byIndex[source.Frontend]
		if f == nil {
			strangers = append(strangers, source)
			continue
		}
		if f.sources == nil {
			f.sources = map[netip.Prefix]bool{}
		}
		a, bits := source.Client.address(), int(source.Prefix)-32
		if source.Client == (bpfAddress{}) {
			a = netip.IPv6Unspecified()
		}
		if a.Is4() {
			bits -= 96
		}
		f.sources[netip.PrefixFrom(a, bits)] = true
	}
	errs[2] = it.Err()
	for _, k := range strangers {
		if err := absent(s.k.maps.Sources.Delete(k)); err != nil {
			return fmt.Errorf("remove a range of clients: %w", err)
		}
	}
	var server bpfQuicServerKey
	var slot uint32
	var unknown []bpfQuicServerKey
	it = s.k.maps.QuicServers.Iterate()
	for it.Next(&server, &slot) {
		f := byIndex[server.Frontend]
		if f == nil {
			unknown = append(unknown, server)
			continue
		}
		if f.servers == nil {
			f.servers = map[[8]byte]uint32{}
		}
		f.servers[server.Id] = slot
	}
	errs[3] = it.Err()
	for _, k := range unknown {
		_ = s.k.maps.QuicServers.Delete(k)
	}
	var vip bpfAddress
	var n uint32
	it = s.k.maps.Vips.Iterate()
	var lost []bpfAddress
	for it.Next(&vip, &n) {
		lost = append(lost, vip)
		if n&vipGuarded != 0 {
			s.guarded[vip.address()] = true
		}
	}
	errs[4] = it.Err()
	for _, f := range s.frontends {
		if f.table != nil {
			f.counted = true
			s.vips[f.key.VIP]++
		}
	}
	for _, vip := range lost {
		if s.vips[vip.address()] == 0 {
			_ = s.k.maps.Vips.Delete(vip)
			delete(s.guarded, vip.address())
		}
	}
	var other bpfFrontendKey
	it = s.k.maps.Others.Iterate()
	for it.Next(&other, &n) {
		s.others[keyOf(other)] = true
	}
	errs[6] = it.Err()
	var machine bpfAddress
	it = s.k.maps.Machines.Iterate()
	for it.Next(&machine, &n) {
		s.hops.Adopt(machine.address(), n)
		hop, err := s.hops.Hold(machine.address())
		if err != nil {
			return err
		}
		s.machines[machine.address()] = hop
	}
	errs[5] = it.Err()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("read the maps: %w", err)
		}
	}
	return nil
}

// sweep takes away what an earlier agent left and nobody asked for.
func (s *state) sweep() error {
	for id, p := range s.passing {
		if p.users == 0 {
			if err := s.forget(id, p); err != nil {
				return err
			}
		}
	}
	s.hops.Sweep()
	return nil
}
