package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Sizes are how many entries maps hold at most. Zero fields take the defaults. Maps that an
// earlier agent left keep theirs: for others the pins must be removed, and the flows with
// them.
type Sizes struct {
	Frontends uint32 // VIPs, too
	Backends  uint32 // of all lookup tables, and backends that packets may be passed on to
	Rows      uint32 // of all lookup tables: 4,096 or 65,536 each
	NextHops  uint32
	Sources   uint32 // prefixes of clients, of all frontends
	Flows     uint32
	Fresh     uint32 // flows of which one packet was seen
	NAT       uint32 // flows whose answers come back through the load balancer
	Owned     uint32 // flows of backends on this machine
	Fragments uint32
	Affinity  uint32 // clients that have a backend
}

// DefaultSizes are those for a machine with so many bytes of memory: about 65 MB of maps,
// from 4 GiB on 325 MB, and from 16 GiB on 450 MB.
func DefaultSizes(memory uint64) Sizes {
	s := Sizes{
		Frontends: 1024, Backends: 8192, Rows: 1 << 20, NextHops: 8192, Sources: 16384,
		Flows: 1 << 17, Fresh: 1 << 15, NAT: 1 << 16, Owned: 1 << 16, Fragments: 1 << 12, Affinity: 1 << 14,
	}
	if memory >= 4<<30 {
		s = Sizes{
			Frontends: 4096, Backends: 65536, Rows: 4 << 20, NextHops: 16384, Sources: 65536,
			Flows: 1 << 20, Fresh: 1 << 17, NAT: 1 << 18, Owned: 1 << 18, Fragments: 1 << 14, Affinity: 1 << 16,
		}
	}
	if memory >= 16<<30 {
		s.NAT, s.Owned = 1<<19, 1<<19
	}
	return s
}

// or fills in zero fields. Other tables of flows follow that of all flows.
func (s Sizes) or(d Sizes) Sizes {
	if s.Flows != 0 {
		d.NAT, d.Owned, d.Fresh = max(s.Flows/2, 1024), max(s.Flows/2, 1024), max(s.Flows/8, 1024)
	}
	for _, f := range []struct{ v, d *uint32 }{
		{&s.Frontends, &d.Frontends},
		{&s.Backends, &d.Backends},
		{&s.Rows, &d.Rows},
		{&s.NextHops, &d.NextHops},
		{&s.Sources, &d.Sources},
		{&s.Flows, &d.Flows},
		{&s.Fresh, &d.Fresh},
		{&s.NAT, &d.NAT},
		{&s.Owned, &d.Owned},
		{&s.Fragments, &d.Fragments},
		{&s.Affinity, &d.Affinity},
	} {
		if *f.v == 0 {
			*f.v = *f.d
		}
	}
	return s
}

func (s Sizes) of(name string) uint32 {
	return map[string]uint32{
		bpfMapFrontends: s.Frontends, bpfMapVips: s.Frontends, bpfMapOthers: s.Frontends, bpfMapLimits: s.Frontends, bpfMapFrontendCounters: s.Frontends,
		bpfMapBackends: s.Backends, bpfMapBackendCounters: s.Backends, bpfMapHops: s.Backends, bpfMapLocals: s.Backends, bpfMapCircle: s.Backends,
		bpfMapQuicServers: s.Backends,
		bpfMapRows:        s.Rows, bpfMapNextHops: s.NextHops, bpfMapMachines: s.NextHops, bpfMapSources: s.Sources,
		bpfMapFlows: s.Flows, bpfMapFresh: s.Fresh, bpfMapNat: s.NAT, bpfMapNatClosed: s.NAT / 4, bpfMapOwned: s.Owned, bpfMapRestores: s.Owned,
		bpfMapOwnedFresh: s.Owned / 4, bpfMapRestoresFresh: s.Owned / 4, bpfMapAffinities: s.Affinity,
		bpfMapFragments: s.Fragments, bpfMapTunnelFragments: s.Fragments, "nat_fragments": s.Fragments,
	}[name]
}

// kernel is what is loaded: maps, pinned by their names, and programs.
type kernel struct {
	pins             string
	maps             bpfMaps
	arrays           []string             // pins of program arrays
	named            map[string]*ebpf.Map // the same by their names
	balance          *ebpf.Program
	ingress, egress  *ebpf.Program
	rows             []uint64 // shared with the programs
	memory           []byte   // the same, as it was mapped
	adopted          bool     // maps were there already
	possible         int      // CPUs that per-CPU maps have values for
	places, rowCount uint32
}

// loadKernel adopts the maps that are pinned and makes the others, and takes the programs that
// an agent of this build left, or has the kernel verify them. Pinned maps without the map of
// frontends are an error.
func loadKernel(pins string, sizes Sizes, log *slog.Logger) (k *kernel, err error) {
	k = &kernel{pins: pins, named: map[string]*ebpf.Map{}}
	defer func() {
		if err != nil {
			k.close()
			k, err = nil, fmt.Errorf("load the programs: %w", err)
		}
	}()
	spec, err := loadBpf()
	if err != nil {
		return k, err
	}
	whole := true // all maps are there
	rest := false // maps are there that mean nothing without that of frontends
	for name, m := range spec.Maps {
		if private(name) || m.Type == ebpf.ProgramArray {
			continue
		}
		m.Pinning = ebpf.PinByName
		if n := sizes.of(name); n != 0 {
			m.MaxEntries = n
		}
		adopted, err := fit(m, filepath.Join(pins, name), log)
		if err != nil {
			return k, err
		}
		whole = whole && adopted
		if adopted && name == bpfMapFrontends {
			k.adopted = true
		} else if adopted && !slices.Contains(inherited, name) {
			rest = true
		}
	}
	if rest && !k.adopted {
		// A new frontend would get the number of an earlier one, and with it that one's ranges
		// of clients, and its flows.
		return k, errors.New("the map of frontends is missing: nothing says which frontends the entries of the other maps belong to")
	}
	if !whole || !k.reuse(log) {
		if err := k.verify(spec); err != nil {
			return k, err
		}
	}
	if k.possible, err = ebpf.PossibleCPU(); err != nil {
		return k, err
	}
	k.places, k.rowCount = k.maps.Backends.MaxEntries(), k.maps.Rows.MaxEntries()
	size := int(k.rowCount) * 8
	page := os.Getpagesize()
	k.memory, err = unix.Mmap(k.maps.Rows.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return k, fmt.Errorf("map the rows: %w", err)
	}
	k.rows = unsafe.Slice((*uint64)(unsafe.Pointer(&k.memory[0])), k.rowCount)
	return k, nil
}

// private says that a map is the programs' own: constants, and memory for what does not fit
// their stacks.
func private(name string) bool { return name[0] == '.' || strings.HasSuffix(name, "works") }

// fit takes the size of a pinned map over, and removes a pin that is of no use.
func fit(m *ebpf.MapSpec, path string, log *slog.Logger) (adopted bool, err error) {
	there, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open the pinned map %s: %w", path, err)
	}
	defer func() { _ = there.Close() }()
	if there.Type() == m.Type && there.KeySize() == m.KeySize && there.ValueSize() == m.ValueSize && there.Flags() == m.Flags {
		if there.MaxEntries() != m.MaxEntries && m.Type != ebpf.PerCPUArray && m.Type != ebpf.RingBuf {
			log.Info("a map of an earlier agent keeps its size", "map", m.Name, "entries", there.MaxEntries(), "asked", m.MaxEntries)
		}
		m.MaxEntries = there.MaxEntries()
		return true, nil
	}
	log.Warn("a pinned map is not what this version makes; it is made anew", "map", m.Name)
	if err := there.Unpin(); err != nil {
		return false, fmt.Errorf("remove the pinned map %s: %w", path, err)
	}
	return false, nil
}

func (k *kernel) close() {
	if k.memory != nil {
		k.rows = nil
		_ = unix.Munmap(k.memory)
		k.memory = nil
	}
	for _, p := range []*ebpf.Program{k.balance, k.ingress, k.egress} {
		if p != nil {
			_ = p.Close()
		}
	}
	for _, m := range k.named {
		_ = m.Close()
	}
}

// remove takes the pins of programs and maps away: maps go with the last program that uses
// them. The map of frontends goes first of these, since this agent may be killed meanwhile: the
// next one takes over maps that it finds with that map, and uses none that it finds without it.
func (k *kernel) remove() error {
	if err := k.dropPrograms(false); err != nil {
		return err
	}
	errs := []error{k.maps.Frontends.Unpin()}
	for name, m := range k.named {
		if name != bpfMapFrontends {
			errs = append(errs, m.Unpin())
		}
	}
	return errors.Join(errs...)
}

// bytes is the kernel's memory of the maps.
func (k *kernel) bytes() uint64 {
	var total uint64
	for _, m := range k.named {
		if info, err := m.Info(); err == nil {
			n, _ := info.Memlock()
			total += n
		}
	}
	return total
}

// setRow writes a row at once.
func (k *kernel) setRow(i uint32, places [3]uint32) {
	var v uint64
	for n, p := range places {
		v |= uint64(p) << (rowBits * n)
	}
	if p := &k.rows[i]; atomic.LoadUint64(p) != v {
		atomic.StoreUint64(p, v)
	}
	runtime.KeepAlive(k.memory)
}

// row reads a row.
func (k *kernel) row(i uint32) (places [3]uint32) {
	v := atomic.LoadUint64(&k.rows[i])
	for n := range places {
		places[n] = uint32(v>>(rowBits*n)) & (1<<rowBits - 1)
	}
	return places
}

// rowBits is ROW_BITS of bpf/lb/layout.h.
const rowBits = 21

// wireAddress is an address as programs have it: IPv4 mapped; zero for none.
func wireAddress(a netip.Addr) bpfAddress {
	if !a.IsValid() {
		return bpfAddress{}
	}
	return bpfAddress{Bytes: a.As16()}
}

// address is the other way round.
func (a bpfAddress) address() netip.Addr {
	if a == (bpfAddress{}) {
		return netip.Addr{}
	}
	return netip.AddrFrom16(a.Bytes).Unmap()
}

// networkPort is a port in network byte order, as a number of this machine's order, and the
// other way round.
func networkPort(p uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, p))
}

// wire4 is an IPv4 address in network byte order; 0 for others.
func wire4(a netip.Addr) uint32 {
	if !a.Is4() {
		return 0
	}
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}
