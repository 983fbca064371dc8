package xdp

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"

	"github.com/cilium/ebpf"

	"fairlead.dev/internal/model"
)

// nextHops keeps the map of that name as routes and neighbours are. Place 0 is never
// given out: whoever has it asks the kernel for each packet.
type nextHops struct {
	m       *ebpf.Map
	log     *slog.Logger
	numbers *numbers
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
	way   way
	value bpfNextHop
}

func newNextHops(m *ebpf.Map, log *slog.Logger) *nextHops {
	return &nextHops{m: m, log: log, numbers: newNumbers(m.MaxEntries()), by: map[netip.Addr]*nextHop{}}
}

// meet tells of the machines and of our own tunnel endpoints. A machine takes out of tunnels
// what comes from an endpoint that another one reports: what is sent to endpoints comes from
// ours, also where the way there leaves by an interface that has another address.
func (n *nextHops) meet(self *model.Node, nodes map[string]*model.Node) error {
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
		if h.way == (way{}) {
			continue // adopted, and not looked at yet
		}
		if err := n.write(to, h); err != nil {
			return err
		}
	}
	return nil
}

// source is where packets to an address come from, if not from where the route says.
func (n *nextHops) source(to, routed netip.Addr) netip.Addr {
	switch {
	case n.ends[to] && to.Is4() && n.from4.IsValid():
		return n.from4
	case n.ends[to] && to.Is6() && n.from6.IsValid():
		return n.from6
	}
	return routed
}

// hold returns the place for an address, which stays until as many releases.
func (n *nextHops) hold(to netip.Addr) (uint32, error) {
	if !to.IsValid() {
		return 0, nil
	}
	if h := n.by[to]; h != nil {
		h.users++
		return h.index, nil
	}
	index, ok := n.numbers.alloc()
	if !ok {
		return 0, fmt.Errorf("%w for another next hop: the map has %d", errFull, n.m.MaxEntries()-1)
	}
	h := &nextHop{index: index, users: 1}
	if err := n.resolve(to, h, true); err != nil {
		n.numbers.release(index)
		return 0, err
	}
	n.by[to] = h
	return index, nil
}

func (n *nextHops) release(to netip.Addr) {
	h := n.by[to]
	if h == nil {
		return
	}
	if h.users--; h.users == 0 {
		n.forget(to, h)
	}
}

// forget clears a place to which nothing leads.
func (n *nextHops) forget(to netip.Addr, h *nextHop) {
	if err := n.m.Put(h.index, bpfNextHop{}); err != nil {
		n.log.Warn("the place of a next hop was not cleared", "error", err)
	}
	delete(n.by, to)
	n.numbers.release(h.index)
}

// settled ends a batch: what was read of the network is old from now on.
func (n *nextHops) settled() { n.network = nil }

// refresh looks at every way anew. With ask, neighbours are asked whether they still have their link addresses.
func (n *nextHops) refresh(ask bool) error {
	n.network = nil
	defer n.settled()
	for to, h := range n.by {
		before := h.way
		if err := n.resolve(to, h, ask); err != nil {
			return err
		}
		if before.problem != h.way.problem || before.mtu != h.way.mtu || before.gateway != h.way.gateway {
			n.changes++
		}
	}
	return nil
}

func (n *nextHops) resolve(to netip.Addr, h *nextHop, ask bool) error {
	if n.network == nil {
		var err error
		if n.network, err = readNetwork(); err != nil {
			return err
		}
	}
	h.way = n.network.way(to)
	if q := h.way.ask; q.link != 0 && (ask || h.way.device == 0) {
		if err := q.poke(); err != nil {
			n.log.Debug("a neighbour was not asked for", "neighbour", q.ip, "error", err)
		}
	}
	return n.write(to, h)
}

// write brings the map up to date with a way.
func (n *nextHops) write(to netip.Addr, h *nextHop) error {
	w := h.way
	w.source = n.source(to, w.source)
	v := w.value()
	if v == h.value {
		return nil
	}
	if err := n.m.Put(h.index, v); err != nil {
		return fmt.Errorf("write the next hop to %s: %w", to, err)
	}
	h.value = v
	return nil
}

// value is a way as programs have it.
func (w way) value() bpfNextHop {
	v := bpfNextHop{Source4: wire4(w.source), Mtu: uint16(min(w.mtu, 1<<16-1))}
	if w.source.Is6() {
		v.Source = wireAddress(w.source)
	}
	if w.redirect {
		v.Flags = uint8(bpfNextHopFlagNEXT_HOP_REDIRECT)
	}
	if w.device != 0 {
		v.Device, v.Vlan = uint32(w.device), uint16(w.vlan)
		v.To, v.From = w.to, w.from
	}
	return v
}

// look is how the kernel sends to an address now, also to one that nobody holds.
func (n *nextHops) look(to netip.Addr) way {
	if h := n.by[to]; h != nil && h.way != (way{}) {
		return h.way
	}
	if n.network == nil {
		var err error
		if n.network, err = readNetwork(); err != nil {
			return way{problem: err.Error()}
		}
	}
	return n.network.way(to)
}
