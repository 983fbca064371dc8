package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/cilium/ebpf"

	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// shareVIP is the frontend whose flows are counted by backend: its port is of no case that
// is measured.
var shareVIP = model.FrontendKey{VIP: vipOf(0, false), Transport: model.TCP, Port: 81}

// firstShared is the place of the first backend whose flows are counted. Cases that are
// measured use those before it.
const firstShared = 4096

// Members are backends of these weights; their IDs are numbered from 1.
func Members(weights []uint32) []lookup.Member {
	members := make([]lookup.Member, len(weights))
	for i, w := range weights {
		members[i] = lookup.Member{ID: uint64(i) + 1, Weight: w, HopWeight: w}
	}
	return members
}

// Client is somebody at random.
func Client(random *rand.Rand) netip.AddrPort {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 1<<24+random.Uint32N(126<<24)) // 1.0.0.0 to 126.255.255.255
	return netip.AddrPortFrom(netip.AddrFrom4(a), uint16(1024+random.IntN(64512)))
}

// Computed counts the flows of random clients by backend as package lookup has them, in the
// order of the members that the table was made of: their IDs are those of Members.
func Computed(t *lookup.Table, flows int, random *rand.Rand) []uint64 {
	place := make([]uint64, len(t.Members()))
	for i, m := range t.Members() {
		place[i] = m.ID - 1
	}
	counts := make([]uint64, len(place))
	for range flows {
		row := lookup.Hash(model.HashFiveTuple, Client(random), shareVIP) & uint64(t.Len()-1)
		counts[place[t.Row(int(row))[0]]]++
	}
	return counts
}

// Counted is Computed by the program in the kernel: the first packet of each flow is given
// to it.
func (b *Bench) Counted(t *lookup.Table, flows int, random *rand.Rand) ([]uint64, error) {
	if err := b.share(t); err != nil {
		return nil, err
	}
	before, err := b.begun(len(t.Members()))
	if err != nil {
		return nil, err
	}
	packet := syn(shareVIP)
	run := ebpf.RunOptions{Data: packet, DataOut: make([]byte, len(packet)+256)}
	out := run.DataOut
	for range flows {
		from(packet, Client(random))
		run.DataOut = out
		verdict, err := b.objects.Balance.Run(&run)
		if err != nil {
			return nil, fmt.Errorf("run the program: %w", err)
		}
		if verdict != xdpTX && verdict != xdpRedirect {
			return nil, fmt.Errorf("a packet was not sent: XDP action %d", verdict)
		}
	}
	counts, err := b.begun(len(t.Members()))
	for i := range counts {
		counts[i] -= before[i]
	}
	return counts, err
}

// Verdicts of XDP programs.
const (
	xdpTX       = 3
	xdpRedirect = 4
)

// share writes the frontend whose flows are counted, with the rows of a table behind those
// of the cases.
func (b *Bench) share(t *lookup.Table) error {
	if rows := b.objects.Rows.MaxEntries(); uint32(largeTable+t.Len()) > rows {
		return fmt.Errorf("a table of %d rows: there is room for %d", t.Len(), rows)
	}
	keys, values := make([]uint32, t.Len()), make([]uint64, t.Len())
	for i := range keys {
		keys[i] = uint32(largeTable + i)
		for k, place := range t.Row(i) {
			if place != lookup.None {
				values[i] |= (firstShared + t.Members()[place].ID) << (21 * k)
			}
		}
	}
	if _, err := b.objects.Rows.BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	for _, m := range t.Members() {
		flags := benchBackendFlagBACKEND_READY
		if m.Weight > 0 {
			flags |= benchBackendFlagBACKEND_NEW
		}
		// The generation is another one each time: no flow of before is known.
		b.generation++
		a := address(backendOf(uint32(m.ID), false))
		v := benchBackend{Id: m.ID, Address: a, Remote: a, NextHop: 1, Port: network(8080), Mode: uint8(benchModeMODE_IPIP), Generation: b.generation, Flags: uint8(flags)}
		if err := b.objects.Backends.Put(uint32(firstShared+m.ID), v); err != nil {
			return fmt.Errorf("write a backend: %w", err)
		}
	}
	b.frontend++
	f := benchFrontend{Index: b.frontend, Rows: largeTable, Mask: uint32(t.Len() - 1), Flags: uint16(benchFrontendFlagFRONTEND_BALANCED)}
	vip := address(shareVIP.VIP)
	return errors.Join(
		b.objects.Frontends.Put(benchFrontendKey{Vip: vip, Port: network(shareVIP.Port), Protocol: lookup.Number(shareVIP.Transport)}, f),
		b.objects.Vips.Put(vip, uint32(1)),
	)
}

// begun counts the flows that began at each backend.
func (b *Bench) begun(backends int) ([]uint64, error) {
	counts := make([]uint64, backends)
	for i := range counts {
		var each []benchCounter
		if err := b.objects.BackendCounters.Lookup(uint32(firstShared+1+i), &each); err != nil {
			return nil, fmt.Errorf("read the counters of a backend: %w", err)
		}
		for _, c := range each {
			counts[i] += c.Flows
		}
	}
	return counts, nil
}

// syn is the first packet of a connection, from nobody yet: the program does not verify the
// checksum of TCP.
func syn(k model.FrontendKey) []byte {
	p := make([]byte, size)
	copy(p, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0})
	ip := p[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, lookup.Number(k.Transport)
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	copy(ip[16:20], k.VIP.AsSlice())
	tcp := ip[20:]
	binary.BigEndian.PutUint16(tcp[2:], k.Port)
	tcp[12], tcp[13] = 5<<4, 2
	return p
}

// from writes the client into a packet.
func from(packet []byte, client netip.AddrPort) {
	ip := packet[14:]
	copy(ip[12:16], client.Addr().AsSlice())
	ip[10], ip[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	binary.BigEndian.PutUint16(ip[20:], client.Port())
}
