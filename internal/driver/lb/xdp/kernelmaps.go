package xdp

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
)

// Sizes are the largest numbers of entries of maps. Zero fields have the defaults. Maps of
// an earlier agent keep their sizes: to change them, the pins must be removed, and the
// flows with them.
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
		bpfMapFrontends: s.Frontends, bpfMapVips: s.Frontends, bpfMapOthers: s.Frontends, bpfMapLimits: s.Frontends, bpfMapWatched: s.Frontends, bpfMapFrontendCounters: s.Frontends,
		bpfMapBackends: s.Backends, bpfMapBackendCounters: s.Backends, bpfMapHops: s.Backends, bpfMapLocals: s.Backends, bpfMapCircle: s.Backends,
		bpfMapQuicServers: s.Backends,
		bpfMapRows:        s.Rows, bpfMapNextHops: s.NextHops, bpfMapMachines: s.NextHops, bpfMapSources: s.Sources,
		bpfMapFlows: s.Flows, bpfMapFresh: s.Fresh, bpfMapNat: s.NAT, bpfMapNatClosed: s.NAT / 4, bpfMapOwned: s.Owned, bpfMapRestores: s.Owned,
		bpfMapOwnedFresh: s.Owned / 4, bpfMapRestoresFresh: s.Owned / 4, bpfMapAffinities: s.Affinity,
		bpfMapFragments: s.Fragments, bpfMapTunnelFragments: s.Fragments, "nat_fragments": s.Fragments,
	}[name]
}

// inherited are maps that say the same whatever the layout: they name addresses and no
// indices. Both programs use them while one takes over from the other, or the answers of
// backends would leave with the wrong source for a moment, and break their connections.
var inherited = []string{bpfMapRestores, bpfMapRestoresFresh}

// programNames are the programs that are pinned.
var programNames = []string{bpfProgBalance, bpfProgBalanceAny, bpfProgTunnelIn, bpfProgTunnelOut}

// hooked are the programs that are attached.
var hooked = map[bpf.Hook]string{bpf.XDP: bpfProgBalance, bpf.Ingress: bpfProgTunnelIn, bpf.Egress: bpfProgTunnelOut}

// kernel is what is loaded.
type kernel struct {
	object          *bpf.Object
	maps            bpfMaps
	rows            []uint64 // shared with the programs
	memory          []byte   // the same, as it was mapped
	possible        int      // CPUs that per-CPU maps have values for
	slots, rowCount uint32
}

// loadKernel loads the programs with the maps that are pinned, or others.
func loadKernel(pins *bpf.Pins, sizes Sizes, log *slog.Logger) (k *kernel, err error) {
	k = &kernel{}
	k.object, err = bpf.Load(pins, bpf.Spec{File: _BpfBytes, Programs: programNames, Entries: sizes.of, Key: bpfMapFrontends, Inherited: inherited}, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			k.close()
			k, err = nil, fmt.Errorf("load the programs: %w", err)
		}
	}()
	k.object.Assign(&k.maps)
	if k.possible, err = ebpf.PossibleCPU(); err != nil {
		return k, err
	}
	k.slots, k.rowCount = k.maps.Backends.MaxEntries(), k.maps.Rows.MaxEntries()
	size := int(k.rowCount) * 8
	page := os.Getpagesize()
	k.memory, err = unix.Mmap(k.maps.Rows.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return k, fmt.Errorf("map the rows: %w", err)
	}
	k.rows = unsafe.Slice((*uint64)(unsafe.Pointer(&k.memory[0])), k.rowCount)
	return k, nil
}

func (k *kernel) close() {
	if k.memory != nil {
		k.rows = nil
		_ = unix.Munmap(k.memory)
		k.memory = nil
	}
	k.object.Close()
}

// setRow writes a row at once.
func (k *kernel) setRow(i uint32, slots [3]uint32) {
	var v uint64
	for n, p := range slots {
		v |= uint64(p) << (rowBits * n)
	}
	if p := &k.rows[i]; atomic.LoadUint64(p) != v {
		atomic.StoreUint64(p, v)
	}
	runtime.KeepAlive(k.memory)
}

// row reads a row.
func (k *kernel) row(i uint32) (slots [3]uint32) {
	v := atomic.LoadUint64(&k.rows[i])
	for n := range slots {
		slots[n] = uint32(v>>(rowBits*n)) & (1<<rowBits - 1)
	}
	return slots
}

// rowBits is ROW_BITS of bpf/lb/layout.h.
const rowBits = 21

// wireAddress is an address as programs have it: IPv4 mapped; zero for none.
func wireAddress(a netip.Addr) bpfAddress { return bpfAddress{Bytes: bpf.Wire(a)} }

// address is the other way round.
func (a bpfAddress) address() netip.Addr { return bpf.Address(a.Bytes) }
