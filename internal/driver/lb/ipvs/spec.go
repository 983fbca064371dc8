package ipvs

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"github.com/moby/ipvs"

	"fairlead.dev/internal/model"
)

// Flags of services (linux/ip_vs.h).
const (
	flagPersistent = 0x01 // affinity
	flagHashed     = 0x02 // the kernel's own
	flagFallback   = 0x08 // mh: take another backend while the chosen one takes nothing
	flagPort       = 0x10 // mh: hash the client's port too
)

// Marks of ours have these upper bits.
const (
	markBase = 0x0f1a0000
	markMask = 0xffff0000
)

// maxWeight that the library can read back.
const maxWeight = 1<<16 - 1

// target identifies a service: by a mark or by a frontend.
type target struct {
	mark uint32
	is4  bool // of a mark's service
	key  model.FrontendKey
}

func (t target) String() string {
	if t.mark != 0 {
		return fmt.Sprintf("mark %#x", t.mark)
	}
	return t.key.String()
}

func (t target) compare(u target) int {
	return cmp.Or(cmp.Compare(t.mark, u.mark), t.key.Compare(u.key))
}

// service is what IPVS is told about a target.
type service struct {
	target    target
	frontends []model.FrontendKey // that it carries out, sorted
	scheduler string
	flags     uint32
	timeout   uint32 // of affinity, seconds
	backends  map[netip.AddrPort]backend
}

// backend is a destination.
type backend struct {
	weight  uint32
	forward uint32
	limit   uint32
}

var forwarding = map[model.ForwardMode]uint32{
	model.ModeNAT: ipvs.ConnFwdMasq, model.ModeLocal: ipvs.ConnFwdMasq,
	model.ModeDSRIPIP: ipvs.ConnFwdTunnel, model.ModeDSRL2: ipvs.ConnFwdDirectRoute,
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("IPVS: "+format+": %w", append(args, errors.ErrUnsupported)...)
}

// supports says what of the frontend IPVS cannot do on any machine.
func supports(f *model.Frontend) error {
	switch {
	case f.Mode == model.ModeDSRGeneve:
		return unsupported("mode DSRGeneve: its tunnels do not say which flow they carry; ask for NAT, DSRIPIP or DSRL2, or the data plane XDP")
	case f.Listener != "" && f.Mode != model.ModeAuto && f.Mode != model.ModeLocal:
		return unsupported("mode %s to proxies: ask for the mode Local, or the data plane XDP", f.Mode)
	case len(f.Sources) > 0:
		return unsupported("source ranges: leave sourceRanges out, or use the data plane NFTables or XDP")
	case f.NewFlows > 0:
		return unsupported("a limit of new flows: leave newFlowsPerSecond out, or use the data plane NFTables or XDP; maxFlowsPerBackend limits the flows to one backend")
	case f.QUIC != nil:
		return unsupported("QUIC connection IDs: leave quic out, or use the data plane XDP")
	case f.Scheduler != "" && !slices.Contains([]string{"mh", "wrr", "wlc"}, f.Scheduler):
		return unsupported("scheduler %q: it has to be mh, wrr or wlc", f.Scheduler)
	}
	return nil
}

// mode that the frontend has here.
func mode(f *model.Frontend) model.ForwardMode {
	switch {
	case f.Listener != "":
		return model.ModeLocal
	case f.Mode == model.ModeAuto:
		return model.ModeNAT
	}
	return f.Mode
}

// compile says what a frontend becomes at a machine. A listener of the machine's own proxy
// becomes nothing: s has no backends.
func compile(b model.Balancing, f *model.Balanced) (s service, available uint32, message string) {
	g := f.Frontend
	m := mode(g)
	s = service{
		target: target{key: g.FrontendKey}, frontends: []model.FrontendKey{g.FrontendKey},
		scheduler: cmp.Or(g.Scheduler, "mh"), backends: map[netip.AddrPort]backend{},
	}
	if s.scheduler == "mh" {
		s.flags = flagFallback
		if g.Hash == model.HashFiveTuple {
			s.flags |= flagPort
		}
	}
	if g.Affinity > 0 {
		s.flags |= flagPersistent
		s.timeout = uint32(max(g.Affinity/time.Second, 1))
	}
	here := g.LocalOnly || m == model.ModeLocal
	var foreign, moved int
	var heaviest uint32
	for _, x := range f.Backends {
		if g.Listener != "" && !x.Proxy(g.FrontendKey) || here && x.Machine != b.Machine {
			continue
		}
		switch {
		case x.Address.Addr().Is4() != g.VIP.Is4():
			foreign++
			continue
		case (m == model.ModeDSRIPIP || m == model.ModeDSRL2) && x.Address.Port() != g.Port:
			moved++
			continue
		case x.State == model.BackendUnready, x.Machine == b.Machine && x.Machine != "" && b.Unready[g.FrontendKey]:
			continue
		}
		y := backend{forward: forwarding[m], limit: g.MaxFlows}
		if x.State == model.BackendReady {
			y.weight = x.Weight
		}
		if y.weight > 0 {
			available++
		}
		heaviest = max(heaviest, y.weight)
		s.backends[x.Address] = y
	}
	for a, y := range s.backends {
		if heaviest > maxWeight && y.weight > 0 {
			y.weight = max(uint32(uint64(y.weight)*maxWeight/uint64(heaviest)), 1)
			s.backends[a] = y
		}
	}
	if foreign > 0 {
		message = fmt.Sprintf("%d backends are left out: their addresses are of another family than the VIP", foreign)
	}
	if moved > 0 {
		message = said(message, fmt.Sprintf("%d backends are left out: mode %s keeps the port, and theirs is not %d", moved, m, g.Port))
	}
	return s, available, message
}

// share joins services that can be one of a mark: those of one VIP and owner with affinity
// whose backends differ in nothing but the port, which is the frontend's. A single one is
// that of a mark too, since connections do not outlive their service: it can then get
// company. The rest stay.
func share(services []service, owners map[model.FrontendKey]model.Object) []service {
	groups := map[string][]service{}
	var order []string
	var all []service
	for _, s := range services {
		signature, ok := s.signature(owners[s.target.key])
		if !ok {
			all = append(all, s)
			continue
		}
		if groups[signature] == nil {
			order = append(order, signature)
		}
		groups[signature] = append(groups[signature], s)
	}
	taken := map[uint32]bool{}
	for _, signature := range order {
		group := groups[signature]
		first := group[0]
		joined := service{
			target:    target{mark: mark(first.target.key.VIP, owners[first.target.key], taken), is4: first.target.key.VIP.Is4()},
			scheduler: first.scheduler, flags: first.flags, timeout: first.timeout, backends: map[netip.AddrPort]backend{},
		}
		for a, y := range first.backends {
			// Port 0: a flow keeps the port that it was for.
			joined.backends[netip.AddrPortFrom(a.Addr(), 0)] = y
		}
		for _, s := range group {
			joined.frontends = append(joined.frontends, s.target.key)
		}
		all = append(all, joined)
	}
	return all
}

// signature is equal for services that can be joined.
func (s service) signature(owner model.Object) (string, bool) {
	if s.flags&flagPersistent == 0 || len(s.backends) == 0 || owner == (model.Object{}) {
		return "", false
	}
	var parts []string
	for a, y := range s.backends {
		if a.Port() != s.target.key.Port {
			return "", false
		}
		parts = append(parts, fmt.Sprint(a.Addr().String(), y))
	}
	slices.Sort(parts)
	return fmt.Sprint(owner, s.target.key.VIP.String(), s.scheduler, s.flags, s.timeout, parts), true
}

// mark of a VIP and owner: the same after a restart, as long as no other has it.
func mark(vip netip.Addr, owner model.Object, taken map[uint32]bool) uint32 {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, vip.String(), " ", owner)
	m := markBase | h.Sum32()&^markMask
	for m == markBase || taken[m] {
		m = markBase | (m+1)&^markMask
	}
	taken[m] = true
	return m
}
