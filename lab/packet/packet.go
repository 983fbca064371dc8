// Package packet runs the load balancer's program packet by packet in the kernel, and
// counts what a packet costs.
//
// It refuses to attach anything to an interface of the host. Invariant: what making a
// packet and undoing its encapsulation costs is measured the same way and subtracted.
package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

const (
	// packets of one measurement.
	packets = 4096
	// tailCalls that the kernel lets one run of a program make. Packets that need one are
	// measured in many short runs.
	tailCalls = 32
	// size of a packet without the frame check sequence, bytes: a frame of 64.
	size = 60
	// size6 is the least of a TCP packet over IPv6.
	size6      = 74
	mtu        = 1500
	largeTable = 1 << 16
	// linkTo is the link address that packets are made for, as programs have it.
	linkTo = 0x010000000002 << 16
	// loopback is an interface that every namespace has.
	loopback = 1
)

// Case is what packets are measured.
type Case struct {
	Name string
	Mode model.ForwardMode
	// Flows is a power of two; packets take them in turn. New has each packet begin a flow.
	Flows uint32
	New   bool
	VIPs  uint32
	IPv6  bool
	UDP   bool
	// SYN has each packet be the first of a connection.
	SYN bool
	// Sources, Affinity and Limit switch on what frontends can ask for.
	Sources, Affinity, Limit bool
}

// Cost is what one packet costs, in nanoseconds.
type Cost struct {
	Min    float64 `json:"ns_min"`
	Median float64 `json:"ns_median"`
}

// Bench is the program with its maps. Close it.
type Bench struct {
	objects  benchObjects
	backends uint32
	next     uint32 // first packet of the next run with new flows
	// generation and frontend are the last that Counted used.
	generation uint8
	frontend   uint32
}

// New loads the program for so many backends and flow table entries.
func New(backends, flows int) (*Bench, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("lift the limit of locked memory: %w", err)
	}
	spec, err := loadBench()
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	spec.Maps["flows"].MaxEntries, spec.Maps["fresh"].MaxEntries = uint32(flows), uint32(flows)
	b := &Bench{backends: uint32(backends)}
	if err := spec.LoadAndAssign(&b.objects, nil); err != nil {
		return nil, fmt.Errorf("load the program: %w", err)
	}
	if err := b.fill(backends); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Close frees the kernel's memory.
func (b *Bench) Close() error { return b.objects.Close() }

// Memory of the maps, bytes, by name.
func (b *Bench) Memory() (map[string]uint64, error) {
	memory := map[string]uint64{}
	o := &b.objects.benchMaps
	for name, m := range map[string]*ebpf.Map{
		"frontends": o.Frontends, "vips": o.Vips, "backends": o.Backends, "rows": o.Rows, "flows": o.Flows, "fresh": o.Fresh, "nat": o.Nat, "nat_closed": o.NatClosed,
		"affinities": o.Affinities, "fragments": o.Fragments, "next_hops": o.NextHops, "frontend_counters": o.FrontendCounters, "backend_counters": o.BackendCounters,
	} {
		info, err := m.Info()
		if err != nil {
			return nil, err
		}
		if bytes, ok := info.Memlock(); ok {
			memory[name] = bytes
		}
	}
	return memory, nil
}

// Measure runs a case so many times. features of the frontend are those of the case.
func (b *Bench) Measure(c Case, runs int) (Cost, error) {
	if err := b.aim(c); err != nil {
		return Cost{}, err
	}
	for first := uint32(0); !c.New && first <= c.Flows; first += packets {
		// Twice: the second packet of a flow is what moves it to the flow table.
		for range 2 {
			if _, err := b.run(c, first, false); err != nil {
				return Cost{}, err
			}
		}
	}
	sample := func(harness bool) ([]time.Duration, error) {
		times := make([]time.Duration, 0, runs)
		first := uint32(0)
		for range runs {
			at := first
			if c.New && !harness {
				at, b.next = b.next, b.next+packets
			}
			t, err := b.run(c, at, harness)
			if err != nil {
				return nil, err
			}
			times, first = append(times, t), first+packets
		}
		slices.Sort(times)
		return times, nil
	}
	harness, err := sample(true)
	if err != nil {
		return Cost{}, err
	}
	whole, err := sample(false)
	if err != nil {
		return Cost{}, err
	}
	ns := func(i int) float64 { return float64(whole[i]-harness[i]) / packets }
	return Cost{Min: ns(0), Median: ns(runs / 2)}, nil
}

// run is one run of the program, and how long it took.
func (b *Bench) run(c Case, first uint32, harness bool) (time.Duration, error) {
	course := benchCourse{Loops: packets, First: first, Flows: c.Flows, Vips: c.VIPs, Version: 4, Protocol: lookup.Number(model.TCP), TcpFlags: 0x10}
	packet := make([]byte, size)
	if c.IPv6 {
		course.Version, packet = 6, make([]byte, size6)
	}
	if c.UDP {
		course.Protocol, course.TcpFlags = lookup.Number(model.UDP), 0
	}
	if c.SYN {
		course.TcpFlags = 0x02
	}
	if c.New {
		course.Flows = 1 << 31
	}
	if c.long() {
		course.Loops = tailCalls
	}
	if harness {
		course.Harness, course.Room = 1, c.room()
	}
	if err := b.objects.Courses.Put(uint32(0), course); err != nil {
		return 0, err
	}
	_, took, err := b.objects.Measure.Benchmark(packet, packets/int(course.Loops), nil)
	if err != nil {
		return 0, fmt.Errorf("run the program: %w", err)
	}
	took *= time.Duration(packets / course.Loops) // it is the mean of the runs
	if err := b.objects.Courses.Lookup(uint32(0), &course); err != nil {
		return 0, err
	}
	// A signal interrupts a run, which then begins anew: more than all may be sent, but none otherwise.
	if course.Sent < packets || course.Other != 0 {
		return 0, fmt.Errorf("%s: %d of %d packets were sent, %d had another XDP action", c.Name, course.Sent, packets, course.Other)
	}
	return took, nil
}

// long says that packets of the case take the long program.
func (c Case) long() bool {
	return c.Mode == model.ModeNAT || c.Mode == model.ModeDSRL2 || c.Sources || c.Affinity || c.Limit
}

// room is what the encapsulation of the case adds, bytes.
func (c Case) room() uint8 {
	outer := uint8(20)
	if c.IPv6 {
		outer = 40
	}
	switch c.Mode {
	case model.ModeDSRIPIP:
		return outer
	case model.ModeDSRGeneve:
		return outer + 8 + 8 + 32
	default:
		return 0
	}
}

// aim writes frontends and backends as the case wants them.
func (b *Bench) aim(c Case) error {
	flags := uint16(benchFrontendFlagFRONTEND_BALANCED)
	for on, flag := range map[benchFrontendFlag]bool{
		benchFrontendFlagFRONTEND_SOURCES: c.Sources, benchFrontendFlagFRONTEND_AFFINITY: c.Affinity, benchFrontendFlagFRONTEND_LIMITED: c.Limit,
	} {
		if flag {
			flags |= uint16(on)
		}
	}
	protocol := lookup.Number(model.TCP)
	if c.UDP {
		protocol = lookup.Number(model.UDP)
	}
	for i := range c.VIPs {
		f := benchFrontend{Index: i, Rows: 0, Mask: largeTable - 1, Flags: flags, Affinity: 3600, Limit: 1 << 31}
		vip := address(vipOf(i, c.IPv6))
		if err := b.objects.Frontends.Put(benchFrontendKey{Vip: vip, Port: network(80), Protocol: protocol}, f); err != nil {
			return fmt.Errorf("write a frontend: %w", err)
		}
		if err := b.objects.Vips.Put(vip, uint32(1)); err != nil {
			return fmt.Errorf("write a VIP: %w", err)
		}
		if c.Sources {
			key := benchSourceKey{Prefix: 32, Frontend: i}
			if err := b.objects.Sources.Put(key, uint32(1)); err != nil {
				return fmt.Errorf("write a source: %w", err)
			}
		}
	}
	mode := map[model.ForwardMode]benchMode{
		model.ModeDSRIPIP: benchModeMODE_IPIP, model.ModeDSRGeneve: benchModeMODE_GENEVE, model.ModeNAT: benchModeMODE_NAT, model.ModeDSRL2: benchModeMODE_L2,
	}[c.Mode]
	for i := range b.backends {
		var old benchBackend
		if err := b.objects.Backends.Lookup(i+1, &old); err != nil {
			return err
		}
		// Another generation: flows of the case before are not of this one.
		a := backendOf(i, c.IPv6)
		fresh := benchBackend{
			Id: uint64(i) + 1, Address: address(a), Remote: address(a), NextHop: 1, Port: network(8080),
			Mode: uint8(mode), Generation: old.Generation + 1, Flags: uint8(benchBackendFlagBACKEND_READY | benchBackendFlagBACKEND_NEW),
		}
		if err := b.objects.Backends.Put(i+1, fresh); err != nil {
			return fmt.Errorf("write a backend: %w", err)
		}
	}
	return nil
}

// fill writes the table, the next hop and our addresses.
func (b *Bench) fill(backends int) error {
	members := make([]lookup.Member, backends)
	for i := range members {
		members[i] = lookup.Member{ID: uint64(i) + 1, Weight: 100, HopWeight: 100}
	}
	table := lookup.New(largeTable, members)
	keys, values := make([]uint32, largeTable), make([]uint64, largeTable)
	for i := range largeTable {
		keys[i] = uint32(i)
		for k, place := range table.Row(i) {
			if place != lookup.None {
				values[i] |= table.Members()[place].ID << (21 * k)
			}
		}
	}
	if _, err := b.objects.Rows.BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	ours4, ours6 := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:db8:ffff::1")
	next := benchNextHop{Device: loopback, Mtu: mtu, To: [6]uint8{2, 0, 0, 0, 0, 9}, From: [6]uint8{2, 0, 0, 0, 0, 1}, Source: address(ours6)}
	four := ours4.As4()
	next.Source4 = binary.NativeEndian.Uint32(four[:])
	if err := b.objects.NextHops.Put(uint32(1), next); err != nil {
		return fmt.Errorf("write a next hop: %w", err)
	}
	s := benchSettings{Tunnel4: address(ours4), Tunnel6: address(ours6), NatPorts: [2][2]uint16{{1024, 32767}, {32768, 65535}}}
	if err := b.objects.Settings.Put(uint32(0), s); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	if err := b.objects.Links.Put(uint32(0), benchLinks{At: [8]uint64{linkTo, linkTo, linkTo, linkTo, linkTo, linkTo, linkTo, linkTo}}); err != nil {
		return fmt.Errorf("write link addresses: %w", err)
	}
	return nil
}

func address(a netip.Addr) benchAddress { return benchAddress{Bytes: a.As16()} }

func network(port uint16) uint16 { return port<<8 | port>>8 }

func vipOf(i uint32, six bool) netip.Addr {
	if six {
		a := netip.MustParseAddr("2001:db8:0:1::").As16()
		binary.BigEndian.PutUint32(a[12:], i)
		return netip.AddrFrom16(a)
	}
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 0xcb007100+i)
	return netip.AddrFrom4(a)
}

func backendOf(i uint32, six bool) netip.Addr {
	if six {
		a := netip.MustParseAddr("2001:db8:0:2::").As16()
		binary.BigEndian.PutUint32(a[12:], i+1)
		return netip.AddrFrom16(a)
	}
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 0x0a640001+i)
	return netip.AddrFrom4(a)
}
