package xdp

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// environment is what a frontend's plan follows from besides the frontend.
type environment struct {
	machine string
	nodes   map[string]*model.Node
	// closed says whether answers of a machine with that VIP as their source are known not
	// to arrive.
	closed func(machine string, vip netip.Addr) bool
	// silent are the machines that have ceased to answer through the tunnel.
	silent map[string]bool
	// unready says that what the frontend has at this machine does not serve.
	unready bool
	// decaps says whether a machine takes packets out of tunnels.
	decaps func(*model.Node) bool
	// path is how the kernel sends to an address.
	path func(netip.Addr) bpf.Path
	// epoch is another one when closed, silent or path may say something else.
	epoch uint64
	// guarded are VIPs at which nothing but frontends is to be reached, with what something
	// else serves there.
	guarded map[netip.Addr][]model.FrontendKey
}

func (s environment) self() *model.Node { return s.nodes[s.machine] }

const (
	// hopsMost is HOPS of bpf/lb/layout.h.
	hopsMost = 3
)

// planned is how a frontend is to be balanced.
type planned struct {
	mode    model.ForwardMode
	message string
	members []member // of the lookup table, by ID; empty where the VIP is not here
	local   []member // backends on this machine, which are taken out of tunnels
	hops    []member // backends that packets may be passed on to
	circle  []uint64 // its proxies, in the order in which they are asked, CIRCLE in one search; none: rows have room for all
	here    bool     // the VIP is here
	direct  bool     // nothing but this machine's sockets: no program is needed
	shared  bool     // the lookup table may be that of other frontends, too
	// signature is the same for frontends that may share a lookup table.
	signature string
}

// member is a backend of a plan.
type member struct {
	id      uint64
	backend model.FrontendBackend
	mode    bpfMode
	flags   bpfBackendFlag
	remote  netip.Addr // where packets to it are sent; not valid: nowhere
	weight  uint32
	hop     uint32 // hop weight
	stands  bool   // in rows
}

// admits says whether the member may get new flows.
func (m member) admits() bool {
	return m.flags&bpfBackendFlagBACKEND_NEW != 0
}

// equal says whether carrying out the one is carrying out the other.
func (p *planned) equal(q *planned) bool {
	return p != nil && q != nil && p.mode == q.mode && p.message == q.message && p.here == q.here && p.direct == q.direct &&
		slices.Equal(p.members, q.members) && slices.Equal(p.local, q.local) && slices.Equal(p.hops, q.hops) && slices.Equal(p.circle, q.circle)
}

// tunnels says whether packets for it may come out of tunnels.
func (p *planned) tunnels() bool {
	return len(p.local) > 0 || len(p.hops) > 0 || p.here && !p.direct
}

// available counts the members that may get new flows.
func (p *planned) available() uint32 {
	var n uint32
	for _, m := range p.members {
		if m.admits() {
			n++
		}
	}
	return n
}

// plan says how a frontend is to be balanced at a machine.
func plan(f *model.Balanced, s environment) *planned {
	p := &planned{here: slices.Contains(f.Frontend.Machines, s.machine)}
	seen := map[uint64]bool{}
	var list []member
	standing, which := lookup.Members(f.Frontend.FrontendKey, f.Backends)
	for i, b := range f.Backends {
		m := member{id: lookup.ID(f.Frontend.FrontendKey, b), backend: b}
		if len(which) > 0 && which[0] == i {
			m.weight, m.hop, m.stands = standing[0].Weight, standing[0].HopWeight, true
			standing, which = standing[1:], which[1:]
		}
		if seen[m.id] {
			continue // the same server twice, or two of 2^64 that hash alike
		}
		seen[m.id] = true
		if b.Proxy(f.Frontend.FrontendKey) {
			m.flags |= bpfBackendFlagBACKEND_PROXY
		}
		if b.State != model.BackendUnready {
			m.flags |= bpfBackendFlagBACKEND_READY
			if m.weight > 0 && (!s.unready || b.Machine != s.machine) {
				m.flags |= bpfBackendFlagBACKEND_NEW
			}
		}
		if b.Machine == s.machine {
			m.flags |= bpfBackendFlagBACKEND_HERE
			p.local = append(p.local, m)
		}
		if remote := s.tunnel(b.Machine); remote.IsValid() {
			h := m
			h.remote = remote
			p.hops = append(p.hops, h)
		}
		list = append(list, m)
		if m.flags&bpfBackendFlagBACKEND_PROXY != 0 && m.flags&bpfBackendFlagBACKEND_READY != 0 {
			p.circle = append(p.circle, m.id)
		}
	}
	slices.Sort(p.circle)
	if len(p.circle) <= hopsMost {
		p.circle = nil
	}
	slices.SortFunc(list, func(a, b member) int { return cmp.Compare(a.id, b.id) })
	if !p.here {
		p.mode = model.ModeDSRGeneve
		return p
	}
	p.members = list
	p.choose(f.Frontend, s)
	if p.direct {
		p.local, p.hops = nil, nil
	}
	p.sign()
	return p
}

// tunnel is where packets to a machine are sent in a tunnel from here; not valid where the
// two have no endpoints of one family.
func (s environment) tunnel(machine string) netip.Addr {
	self, to := s.self(), s.nodes[machine]
	switch {
	case self == nil || to == nil:
	case self.Tunnel4.IsValid() && to.Tunnel4.IsValid():
		return to.Tunnel4
	case self.Tunnel6.IsValid() && to.Tunnel6.IsValid():
		return to.Tunnel6
	}
	return netip.Addr{}
}

// unreached says why a backend cannot be reached through a tunnel; "" if it can.
func (s environment) unreached(b model.FrontendBackend, vip netip.Addr) string {
	switch node := s.nodes[b.Machine]; {
	case b.Machine == "":
		return fmt.Sprintf("backend %s is on no machine with an agent", b.Address)
	case !b.Address.Addr().IsValid() || b.Address.Addr().Is4() != vip.Is4():
		return fmt.Sprintf("backend %s and the VIP are of different families", b.Address)
	case !s.tunnel(b.Machine).IsValid():
		return fmt.Sprintf("machine %s and this one have no tunnel endpoints of one family", b.Machine)
	case b.Machine != s.machine && (node == nil || !s.decaps(node)):
		return fmt.Sprintf("machine %s does not decapsulate now", b.Machine)
	case b.Machine != s.machine && s.closed(b.Machine, vip):
		return fmt.Sprintf("answers of machine %s from the VIP do not arrive (does a router on the path filter source addresses?)", b.Machine)
	}
	return ""
}

// choose settles the mode, and how each member is reached in it.
func (p *planned) choose(f *model.Frontend, s environment) {
	proxies := f.Listener != ""
	alone := !slices.ContainsFunc(p.members, func(m member) bool { return m.backend.Machine != s.machine })
	var why []string
	say := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	p.mode = f.Mode
	switch {
	case proxies && f.Mode == model.ModeLocal:
	case proxies && alone && (f.Mode == model.ModeAuto || f.Mode == model.ModeDSRGeneve):
		p.mode = model.ModeLocal
	case proxies:
		if p.mode = model.ModeDSRGeneve; f.Mode != model.ModeAuto && f.Mode != model.ModeDSRGeneve {
			say("proxies of other machines are reached by %s, not %s", model.ModeDSRGeneve, f.Mode)
		}
	case f.Mode == model.ModeAuto:
		p.mode = model.ModeDSRGeneve
		for _, m := range p.members {
			if u := s.unreached(m.backend, f.VIP); u != "" {
				p.mode = model.ModeNAT
				say("not %s: %s", model.ModeDSRGeneve, u)
				break
			}
		}
	}
	reached := map[string]int{}
	for i := range p.members {
		m := &p.members[i]
		if u := p.reach(m, f, s); u != "" {
			if reached[u]++; reached[u] == 1 {
				say("%s", u)
			}
			m.flags &^= bpfBackendFlagBACKEND_NEW | bpfBackendFlagBACKEND_READY
			m.stands = false
		}
		if f.LocalOnly && m.backend.Machine != s.machine {
			m.weight = 0
			m.flags &^= bpfBackendFlagBACKEND_NEW
		}
	}
	p.forgo(s, say)
	p.direct = p.mode == model.ModeLocal && len(f.Sources) == 0 && f.NewFlows == 0
	const most = 3
	if len(why) > most {
		why = append(why[:most], fmt.Sprintf("and %d more", len(why)-most))
	}
	p.message = strings.Join(why, "; ")
}

// forgo takes new flows from members whose machines do not answer through the tunnel by which
// they would get them, unless no other is left.
func (p *planned) forgo(s environment, say func(string, ...any)) {
	gone := func(m member) bool {
		return m.admits() && m.mode == bpfModeMODE_GENEVE && m.backend.Machine != s.machine && s.silent[m.backend.Machine]
	}
	if !slices.ContainsFunc(p.members, func(m member) bool { return m.admits() && !gone(m) }) {
		return
	}
	said := map[string]bool{}
	for i := range p.members {
		m := &p.members[i]
		if !gone(*m) {
			continue
		}
		m.weight = 0 // as the plane will have it once the machine is lost
		m.flags &^= bpfBackendFlagBACKEND_NEW
		if !said[m.backend.Machine] {
			said[m.backend.Machine] = true
			say("machine %s does not answer: its backends get no new flows from here", m.backend.Machine)
		}
	}
}

// reach settles how packets get to a member, and returns why they do not.
func (p *planned) reach(m *member, f *model.Frontend, s environment) string {
	here := m.flags&bpfBackendFlagBACKEND_HERE != 0
	sameFamily := m.backend.Address.Addr().Is4() == f.VIP.Is4()
	samePort := m.backend.Address.Port() == f.Port
	tunnelled := func() string {
		m.mode, m.remote = bpfModeMODE_GENEVE, s.tunnel(m.backend.Machine)
		return s.unreached(m.backend, f.VIP)
	}
	switch p.mode {
	case model.ModeDSRGeneve:
		return tunnelled()
	case model.ModeLocal:
		m.mode = bpfModeMODE_LOCAL
		switch {
		case !here && f.Listener != "":
			return "mode Local sends nothing to the proxies of other machines"
		case !here:
			return fmt.Sprintf("backend %s is not on this machine, as mode Local requires", m.backend.Address)
		case !samePort:
			return fmt.Sprintf("backend %s does not have the frontend's port, which mode Local does not change", m.backend.Address)
		}
	case model.ModeNAT:
		if !sameFamily {
			return fmt.Sprintf("backend %s and the VIP are of different families, which NAT does not translate", m.backend.Address)
		}
		// An answer of this machine's own would never meet the program again.
		if here && s.tunnel(s.machine).IsValid() {
			return tunnelled()
		}
		m.mode, m.remote = bpfModeMODE_NAT, m.backend.Address.Addr()
	case model.ModeDSRIPIP, model.ModeDSRL2:
		m.mode, m.remote = bpfModeMODE_IPIP, m.backend.Address.Addr()
		if p.mode == model.ModeDSRL2 {
			m.mode = bpfModeMODE_L2
			if !here && s.path(m.remote).Gateway {
				return fmt.Sprintf("backend %s is behind a router, where %s does not reach", m.backend.Address, p.mode)
			}
		}
		if here {
			m.mode, m.remote = bpfModeMODE_LOCAL, netip.Addr{}
		}
		if !samePort {
			return fmt.Sprintf("backend %s does not have the frontend's port, which %s does not change", m.backend.Address, p.mode)
		}
	}
	return ""
}

// sign writes the signature. Only tables of proxies are shared: packets to them travel with
// hops, so that no flow depends on the slot of its backend.
func (p *planned) sign() {
	p.shared = p.mode == model.ModeDSRGeneve && len(p.members) > 0
	for _, m := range p.members {
		p.shared = p.shared && m.flags&bpfBackendFlagBACKEND_PROXY != 0 && m.mode == bpfModeMODE_GENEVE
	}
	if !p.shared {
		return
	}
	b := make([]byte, 0, 40*len(p.members))
	for _, m := range p.members {
		b = binary.BigEndian.AppendUint64(b, m.id)
		b = binary.BigEndian.AppendUint32(b, m.weight)
		b = binary.BigEndian.AppendUint32(b, m.hop)
		remote := wireAddress(m.remote)
		b = append(append(b, byte(m.flags)), remote.Bytes[:]...)
	}
	p.signature = string(b)
}

// supports returns why a frontend cannot be balanced by this data plane at all.
func supports(f *model.Frontend) string {
	switch {
	case f.MaxFlows > 0:
		return "it does not limit the flows of a backend (maxFlowsPerBackend); IPVS does"
	case f.Scheduler != "" && f.Scheduler != "mh":
		return fmt.Sprintf("it chooses backends by hash, not by the scheduler %s; IPVS does", f.Scheduler)
	case f.QUIC != nil && (f.QUIC.Length == 0 || f.QUIC.Length > 8 || f.QUIC.Offset > 15):
		return "server IDs in QUIC's connection IDs have 1 to 8 bytes and begin within the first 16"
	}
	return ""
}

// serverID is what a server of a QUIC frontend writes into its connection IDs: the last
// bytes of its address, IPv4 mapped, and port.
func serverID(b model.FrontendBackend, length uint8) (id [8]byte) {
	a := b.Address.Addr().As16()
	all := binary.BigEndian.AppendUint16(a[:], b.Address.Port())
	copy(id[:], all[len(all)-int(length):])
	return id
}
