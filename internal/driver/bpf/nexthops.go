package bpf

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"

	"github.com/cilium/ebpf"

	"fairlead.dev/internal/model"
)

// NextHops updates the map next_hops from routes and neighbours. Index 0 is never given out:
// programs that have it ask the kernel for each packet. It is not safe for use by several
// goroutines at once.
type NextHops struct {
	m       *ebpf.Map
	log     *slog.Logger
	indices *Indices
	by      map[netip.Addr]*nextHop
	changes uint64   // of what people may want to know
	network *network // read for a batch of changes; nil: not read yet

	ends  map[netip.Addr]bool // tunnel endpoints of machines
	from4 netip.Addr          // ours
	from6 netip.Addr
}

type nextHop struct {
	index uint32
	users int
	path  Path
	value libNextHop
}

// NewNextHops keeps a map in which nothing is held yet.
func NewNextHops(m *ebpf.Map, log *slog.Logger) *NextHops {
	return &NextHops{m: m, log: log, indices: NewIndices(m.MaxEntries()), by: map[netip.Addr]*nextHop{}}
}

// SetEndpoints tells of the machines and of our own tunnel endpoints. A machine takes out of tunnels
// what comes from an endpoint that another one reports: what is sent to endpoints comes from
// ours, also where the way there leaves by an interface that has another address.
func (n *NextHops) SetEndpoints(self *model.Node, nodes map[string]*model.Node) error {
	ends := make(map[netip.Addr]bool, 2*len(nodes))
	for _, x := range nodes {
		for _, a := range []netip.Addr{x.Tunnel4, x.Tunnel6} {
			if a.IsValid() {
				ends[a] = true
			}
		}
	}
	var from4, from6 netip.Addr
	if self != nil {
		from4, from6 = self.Tunnel4, self.Tunnel6
	}
	if n.from4 == from4 && n.from6 == from6 && maps.Equal(n.ends, ends) {
		return nil
	}
	n.ends, n.from4, n.from6 = ends, from4, from6
	for to, h := range n.by {
		if h.path == (Path{}) {
			continue // adopted, and not looked at yet
		}
		if err := n.write(to, h); err != nil {
			return err
		}
	}
	return nil
}

// source is where packets to an address come from, if not from where the route says.
func (n *NextHops) source(to, routed netip.Addr) netip.Addr {
	switch {
	case n.ends[to] && to.Is4() && n.from4.IsValid():
		return n.from4
	case n.ends[to] && to.Is6() && n.from6.IsValid():
		return n.from6
	}
	return routed
}

// Hold returns the index of an address, which stays until as many releases.
func (n *NextHops) Hold(to netip.Addr) (uint32, error) {
	if !to.IsValid() {
		return 0, nil
	}
	if h := n.by[to]; h != nil {
		h.users++
		return h.index, nil
	}
	index, ok := n.indices.Alloc()
	if !ok {
		return 0, fmt.Errorf("%w for another next hop: the map has %d", ErrFull, n.m.MaxEntries()-1)
	}
	h := &nextHop{index: index, users: 1}
	if err := n.resolve(to, h, true); err != nil {
		n.indices.Release(index)
		return 0, err
	}
	n.by[to] = h
	return index, nil
}

// Release ends one Hold.
func (n *NextHops) Release(to netip.Addr) {
	h := n.by[to]
	if h == nil {
		return
	}
	if h.users--; h.users == 0 {
		n.forget(to, h)
	}
}

// forget clears an entry that nobody holds.
func (n *NextHops) forget(to netip.Addr, h *nextHop) {
	if err := n.m.Put(h.index, libNextHop{}); err != nil {
		n.log.Warn("cannot clear the entry of a next hop", "error", err)
	}
	delete(n.by, to)
	n.indices.Release(h.index)
}

// EndBatch ends a batch of calls: the next call reads the network again.
func (n *NextHops) EndBatch() { n.network = nil }

// Refresh resolves every path again. With ask, it asks neighbours to confirm their link addresses.
func (n *NextHops) Refresh(ask bool) error {
	n.network = nil
	defer n.EndBatch()
	for to, h := range n.by {
		before := h.path
		if err := n.resolve(to, h, ask); err != nil {
			return err
		}
		if before.Problem != h.path.Problem || before.MTU != h.path.MTU || before.Gateway != h.path.Gateway {
			n.changes++
		}
	}
	return nil
}

func (n *NextHops) resolve(to netip.Addr, h *nextHop, ask bool) error {
	if n.network == nil {
		var err error
		if n.network, err = readNetwork(); err != nil {
			return err
		}
	}
	h.path = n.network.path(to)
	if q := h.path.next; q.link != 0 && (ask || h.path.device == 0) {
		if err := q.ask(); err != nil {
			n.log.Debug("cannot ask for the link address of a neighbour", "neighbour", q.ip, "error", err)
		}
	}
	return n.write(to, h)
}

// write brings the map up to date with a path.
func (n *NextHops) write(to netip.Addr, h *nextHop) error {
	p := h.path
	p.source = n.source(to, p.source)
	v := p.value()
	if v == h.value {
		return nil
	}
	if err := n.m.Put(h.index, v); err != nil {
		return fmt.Errorf("write the next hop to %s: %w", to, err)
	}
	h.value = v
	return nil
}

// value is a path as programs have it.
func (p Path) value() libNextHop {
	v := libNextHop{Source4: wire4(p.source), Mtu: uint16(min(p.MTU, 1<<16-1))}
	if p.source.Is6() {
		v.Source = libAddress{Bytes: Wire(p.source)}
	}
	if p.redirect {
		v.Flags = uint8(libNextHopFlagNEXT_HOP_REDIRECT)
	}
	if p.device != 0 {
		v.Device, v.Vlan = uint32(p.device), uint16(p.vlan)
		v.To, v.From = p.to, p.from
	}
	return v
}

// Path returns how the kernel sends to an address now, even if the address is not held.
func (n *NextHops) Path(to netip.Addr) Path {
	if h := n.by[to]; h != nil && h.path != (Path{}) {
		return h.path
	}
	if n.network == nil {
		var err error
		if n.network, err = readNetwork(); err != nil {
			return Path{Problem: err.Error()}
		}
	}
	return n.network.path(to)
}

// Adopt notes that an address has an index already, without holding it.
func (n *NextHops) Adopt(to netip.Addr, index uint32) {
	if !to.IsValid() || index == 0 || n.by[to] != nil || !n.indices.Reserve(index) {
		return
	}
	h := &nextHop{index: index}
	if err := n.m.Lookup(index, &h.value); err != nil {
		h.value = libNextHop{}
	}
	n.by[to] = h
}

// Has says whether an address has that index.
func (n *NextHops) Has(to netip.Addr, index uint32) bool {
	return index != 0 && n.by[to] != nil && n.by[to].index == index
}

// Sweep releases the entries that are not held.
func (n *NextHops) Sweep() {
	for to, h := range n.by {
		if h.users == 0 {
			n.forget(to, h)
		}
	}
}

// Changes returns a number that changes when Refresh has changed a result of Path.
func (n *NextHops) Changes() uint64 { return n.changes }
