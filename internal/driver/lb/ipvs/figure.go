package ipvs

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/moby/ipvs"

	"fairlead.dev/internal/model"
)

// wide widens a counter of 32 bits.
type wide struct {
	last  uint32
	total uint64
}

// at is the counter once the kernel's stands at now. One that stands lower than before has
// gone round if it was in its upper half, and is a new one otherwise: that of a service or
// backend that came back.
func (w wide) at(now uint32) wide {
	if now < w.last && w.last < 1<<31 {
		w.last = 0
	}
	return wide{now, w.total + uint64(now-w.last)}
}

// totals are whole counters by name.
type totals map[string]wide

// widen notes in t how a counter stands now, after before.
func (t totals) widen(before totals, name string, now uint32) uint64 {
	t[name] = before[name].at(now)
	return t[name].total
}

// Figures counts the packets from clients to backends, as IPVS does. The counters of a mark
// appear at the mark's first frontend, since IPVS does not know the others; each frontend
// has its own flows. IPVS drops packets without counting them, and has no lookup table.
func (p *Plane) Figures() ([]model.FrontendFigures, map[string]uint64, error) {
	p.work.Lock()
	defer p.work.Unlock()
	p.mu.Lock()
	services := p.services
	observed := p.observed
	p.mu.Unlock()
	drops := map[string]uint64{}
	var all []model.FrontendFigures
	for k, o := range observed {
		if o.State == model.FrontendBalanced && o.Mode == model.ModeLocal && !carried(services, k) {
			all = append(all, model.FrontendFigures{FrontendKey: k})
		}
	}
	type pair struct {
		key     model.FrontendKey
		backend netip.AddrPort
	}
	flows := map[pair]uint64{}
	if len(services) > 0 {
		if err := eachConnection(func(c connection) { flows[pair{c.frontend, c.backend}]++ }); err != nil {
			return nil, nil, err
		}
	}
	now := totals{}
	for _, t := range sortedTargets(services) {
		s := services[t]
		x, err := p.kernel.handle.GetService(s.svc())
		if err != nil {
			return nil, nil, fmt.Errorf("read the counters of service %s of IPVS: %w", t, err)
		}
		destinations, err := p.kernel.handle.GetDestinations(s.svc())
		if err != nil {
			return nil, nil, fmt.Errorf("read the counters of service %s of IPVS: %w", t, err)
		}
		for i, k := range s.frontends {
			f := model.FrontendFigures{FrontendKey: k}
			if i == 0 {
				name := t.String()
				f.Packets, f.NewFlows, f.Bytes = now.widen(p.totals, name+" packets", x.Stats.PacketsIn), now.widen(p.totals, name+" flows", x.Stats.Connections), x.Stats.BytesIn
			}
			for _, d := range destinations {
				f.Backends = append(f.Backends, p.backend(k, t, d, i == 0, now))
			}
			for j := range f.Backends {
				f.Backends[j].Flows = flows[pair{k, f.Backends[j].Address}]
			}
			slices.SortFunc(f.Backends, func(a, b model.BackendFigures) int { return a.Address.Compare(b.Address) })
			all = append(all, f)
		}
	}
	p.totals = now
	slices.SortFunc(all, func(a, b model.FrontendFigures) int { return a.Compare(b.FrontendKey) })
	return all, drops, nil
}

func carried(services map[target]service, k model.FrontendKey) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(services)), func(s service) bool { return slices.Contains(s.frontends, k) })
}

func (p *Plane) backend(k model.FrontendKey, t target, d *ipvs.Destination, counts bool, now totals) model.BackendFigures {
	a, _ := netip.AddrFromSlice(d.Address)
	at := netip.AddrPortFrom(a, d.Port)
	b := model.BackendFigures{Address: addressed(k, at)}
	if counts {
		name := fmt.Sprint(t, " ", at)
		b.Packets, b.NewFlows, b.Bytes = now.widen(p.totals, name+" packets", d.Stats.PacketsIn), now.widen(p.totals, name+" flows", d.Stats.Connections), d.Stats.BytesIn
	}
	return b
}
