package xdp

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
)

// Entries that frontends lead to, besides their tables.

// isFull says that a map took no entry because it has no room.
func isFull(err error) bool { return errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOSPC) }

// full says how large a map that is full is.
func full(err error, m *ebpf.Map) error {
	if err != nil && isFull(err) {
		return fmt.Errorf("%w: the map has %d entries", bpf.ErrFull, m.MaxEntries())
	}
	return err
}

// absent forgives that what is to go has gone.
func absent(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// setLocals writes the backends on this machine, pruneLocals takes away those that are no
// more.
func (s *state) setLocals(f *frontend) error {
	for _, m := range f.plan.local {
		at := m.backend.Address
		v := bpfLocal{Address: wireAddress(at.Addr()), Port: bpf.NetworkPort(at.Port()), Flags: uint8(m.flags)}
		if was, there := f.locals[m.id]; there && was == v {
			continue
		}
		if err := s.k.maps.Locals.Put(bpfLocalKey{Id: m.id, Frontend: f.value.Index}, v); err != nil {
			return fmt.Errorf("write a backend of this machine: %w", full(err, s.k.maps.Locals))
		}
		f.locals[m.id] = v
	}
	return nil
}

func (s *state) pruneLocals(f *frontend) error {
	keep := map[uint64]bool{}
	for _, m := range f.plan.local {
		keep[m.id] = true
	}
	for id := range f.locals {
		if keep[id] {
			continue
		}
		if err := absent(s.k.maps.Locals.Delete(bpfLocalKey{Id: id, Frontend: f.value.Index})); err != nil {
			return fmt.Errorf("remove a backend of this machine: %w", err)
		}
		delete(f.locals, id)
	}
	return nil
}

// setPasses writes where backends are that packets may be passed on to.
func (s *state) setPasses(f *frontend) error {
	keep := make(map[uint64]bool, len(f.plan.hops))
	for _, m := range f.plan.hops {
		keep[m.id] = true
		p := s.passing[m.id]
		if p == nil {
			p = &passing{}
		}
		v := bpfHop{Remote: wireAddress(m.remote), NextHop: p.value.NextHop, Flags: uint8(m.flags & bpfBackendFlagBACKEND_HERE)}
		if !p.held || v.Remote != p.value.Remote {
			hop, err := s.hops.Hold(m.remote)
			if err != nil {
				return err
			}
			v.NextHop = hop
			if p.held {
				s.hops.Release(p.value.Remote.address())
			}
			p.held = true
		}
		if p.value != v {
			if err := s.k.maps.Hops.Put(m.id, v); err != nil {
				s.hops.Release(m.remote)
				p.held = false
				return fmt.Errorf("write the hop to a backend: %w", full(err, s.k.maps.Hops))
			}
			p.value = v
		}
		s.passing[m.id] = p
		if !f.passes[m.id] {
			p.users++
			if f.passes == nil {
				f.passes = map[uint64]bool{}
			}
			f.passes[m.id] = true
		}
	}
	for id := range f.passes {
		if keep[id] {
			continue
		}
		delete(f.passes, id)
		if p := s.passing[id]; p != nil {
			if p.users--; p.users == 0 {
				if err := s.forget(id, p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// setCircle writes in which order proxies are asked whom a row has no room for. While it is
// written a search may end early, or come to the same one twice.
func (s *state) setCircle(f *frontend) error {
	want := make(map[uint64]uint64, len(f.plan.circle))
	for i, id := range f.plan.circle {
		want[id] = f.plan.circle[(i+1)%len(f.plan.circle)]
	}
	for id, next := range want {
		if is, there := f.circle[id]; there && is == next {
			continue
		}
		if err := s.k.maps.Circle.Put(bpfLocalKey{Id: id, Frontend: f.value.Index}, next); err != nil {
			return fmt.Errorf("write the circle of proxies: %w", full(err, s.k.maps.Circle))
		}
		if f.circle == nil {
			f.circle = map[uint64]uint64{}
		}
		f.circle[id] = next
	}
	for id := range f.circle {
		if _, stays := want[id]; stays {
			continue
		}
		if err := absent(s.k.maps.Circle.Delete(bpfLocalKey{Id: id, Frontend: f.value.Index})); err != nil {
			return fmt.Errorf("change the circle of proxies: %w", err)
		}
		delete(f.circle, id)
	}
	return nil
}

func (s *state) forget(id uint64, p *passing) error {
	if err := absent(s.k.maps.Hops.Delete(id)); err != nil {
		return fmt.Errorf("remove the hop to a backend: %w", err)
	}
	if p.held {
		s.hops.Release(p.value.Remote.address())
	}
	delete(s.passing, id)
	return nil
}

// sourceKey is a prefix of clients of a frontend.
func sourceKey(index uint32, p netip.Prefix) bpfSourceKey {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	return bpfSourceKey{Prefix: uint32(32 + bits), Frontend: index, Client: wireAddress(p.Masked().Addr())}
}

func (s *state) setSources(f *frontend) error {
	for _, p := range f.given.Frontend.Sources {
		if p = p.Masked(); f.sources[p] {
			continue
		}
		if err := s.k.maps.Sources.Put(sourceKey(f.value.Index, p), uint32(1)); err != nil {
			return fmt.Errorf("write a range of clients: %w", full(err, s.k.maps.Sources))
		}
		if f.sources == nil {
			f.sources = map[netip.Prefix]bool{}
		}
		f.sources[p] = true
	}
	return nil
}

func (s *state) pruneSources(f *frontend) error {
	keep := map[netip.Prefix]bool{}
	if f.given != nil && (f.plan.here || len(f.plan.local) > 0) {
		for _, p := range f.given.Frontend.Sources {
			keep[p.Masked()] = true
		}
	}
	for p := range f.sources {
		if keep[p] {
			continue
		}
		if err := absent(s.k.maps.Sources.Delete(sourceKey(f.value.Index, p))); err != nil {
			return fmt.Errorf("remove a range of clients: %w", err)
		}
		delete(f.sources, p)
	}
	return nil
}

// setServers writes which backend each server ID of QUIC is.
func (s *state) setServers(f *frontend) error {
	want := map[[8]byte]uint32{}
	if f.given != nil && f.given.Frontend.QUIC != nil && f.table != nil && len(f.plan.members) > 0 {
		for _, p := range f.table.slots {
			if p.known {
				want[serverID(p.backend, f.given.Frontend.QUIC.Length)] = p.index
			}
		}
	}
	for id, slot := range want {
		if f.servers[id] == slot {
			continue
		}
		if err := s.k.maps.QuicServers.Put(bpfQuicServerKey{Frontend: f.value.Index, Id: id}, slot); err != nil {
			return fmt.Errorf("write a server of QUIC: %w", full(err, s.k.maps.QuicServers))
		}
		if f.servers == nil {
			f.servers = map[[8]byte]uint32{}
		}
		f.servers[id] = slot
	}
	for id := range f.servers {
		if _, stays := want[id]; stays {
			continue
		}
		if err := absent(s.k.maps.QuicServers.Delete(bpfQuicServerKey{Frontend: f.value.Index, Id: id})); err != nil {
			return fmt.Errorf("remove a server of QUIC: %w", err)
		}
		delete(f.servers, id)
	}
	return nil
}

// setVIP counts the frontend among those of its VIP, or not.
func (s *state) setVIP(f *frontend, on bool) error {
	if on == f.counted {
		return nil
	}
	vip, n := f.key.VIP, s.vips[f.key.VIP]
	if on {
		n++
	} else {
		n--
	}
	var err error
	if n == 0 {
		err = absent(s.k.maps.Vips.Delete(wireAddress(vip)))
	} else {
		err = s.k.maps.Vips.Put(wireAddress(vip), s.vipValue(vip, n))
	}
	if err != nil {
		return fmt.Errorf("write the VIP: %w", full(err, s.k.maps.Vips))
	}
	if s.vips[vip] = n; n == 0 {
		delete(s.vips, vip)
		delete(s.guarded, vip)
	}
	f.counted = on
	return nil
}

// setMachines writes from which tunnel endpoints packets are taken.
func (s *state) setMachines() error {
	want := map[netip.Addr]bool{}
	for _, n := range s.nodes {
		for _, a := range []netip.Addr{n.Tunnel4, n.Tunnel6} {
			if a.IsValid() {
				want[a] = true
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(want), netip.Addr.Compare) {
		if _, there := s.machines[a]; there {
			continue
		}
		hop, err := s.hops.Hold(a)
		if err == nil {
			if err = s.k.maps.Machines.Put(wireAddress(a), hop); err != nil {
				s.hops.Release(a)
			}
		}
		if err != nil {
			return fmt.Errorf("write the tunnel endpoint %s: %w", a, full(err, s.k.maps.Machines))
		}
		s.machines[a] = hop
	}
	for _, a := range slices.Collect(maps.Keys(s.machines)) {
		if want[a] {
			continue
		}
		if err := absent(s.k.maps.Machines.Delete(wireAddress(a))); err != nil {
			return fmt.Errorf("remove the tunnel endpoint %s: %w", a, err)
		}
		s.hops.Release(a)
		delete(s.machines, a)
	}
	return nil
}

func (s *state) clearFrontendCounter(index uint32) error {
	if err := s.k.maps.FrontendCounters.Put(index, make([]bpfCounter, s.k.possible)); err != nil {
		return fmt.Errorf("clear the counters of a frontend: %w", err)
	}
	return nil
}

func (s *state) clearBackendCounter(index uint32) error {
	if err := s.k.maps.BackendCounters.Put(index, make([]bpfCounter, s.k.possible)); err != nil {
		return fmt.Errorf("clear the counters of a backend: %w", err)
	}
	return nil
}
