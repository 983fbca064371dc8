package nft

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"fairlead.dev/internal/model"
)

// Figures counts the packets that arrived for frontends and those that went to backends,
// without answers. Rows are the hash values of a backend, of 65,536. Counters begin anew
// when a backend comes back.
func (p *Plane) Figures() ([]model.FrontendFigures, map[string]uint64, error) {
	p.mu.Lock()
	specs := p.shares
	p.mu.Unlock()
	drops := map[string]uint64{}
	if len(specs) == 0 {
		return nil, drops, nil
	}
	counters := map[element]counter{}
	for _, f := range both {
		for _, name := range []string{setSeen, setFlows, setPacket} {
			if err := p.kernel.counters(name+f.suffix, counters); err != nil {
				return nil, nil, err
			}
		}
	}
	objects, err := p.kernel.conn.GetObjects(p.kernel.table)
	if err != nil {
		return nil, nil, fmt.Errorf("read the counters of table inet %s: %w", tableName, err)
	}
	for _, o := range objects {
		if c, ok := o.(*nftables.CounterObj); ok {
			drops[c.Name] = c.Packets
		}
	}
	type pair struct {
		key     model.FrontendKey
		backend netip.AddrPort
	}
	flows := map[pair]uint64{}
	err = p.tracked(specs, func(_ *netlink.ConntrackFlow, key model.FrontendKey, _, backend netip.AddrPort) {
		flows[pair{key, backend}]++
	})
	if err != nil {
		return nil, nil, err
	}
	var all []model.FrontendFigures
	for _, key := range slices.SortedFunc(maps.Keys(specs), model.FrontendKey.Compare) {
		s, f := specs[key], familyOf(key.VIP)
		seen := counters[element{setSeen + f.suffix, frontendKey(key)}]
		x := model.FrontendFigures{FrontendKey: key, Packets: seen.packets, Bytes: seen.bytes}
		for _, b := range s.known {
			began, to := counters[element{setFlows + f.suffix, pairKey(key, b)}], counters[element{setPacket + f.suffix, pairKey(key, b)}]
			if s.local {
				to = seen // nothing is rewritten, and there is one backend
			}
			x.NewFlows += began.packets
			x.Backends = append(x.Backends, model.BackendFigures{
				Address: b, Packets: to.packets, Bytes: to.bytes, NewFlows: began.packets, Flows: flows[pair{key, b}], Rows: s.rows(b),
			})
		}
		all = append(all, x)
	}
	return all, drops, nil
}

// rows is how many hash values the backend has.
func (s spec) rows(b netip.AddrPort) uint32 {
	for i, x := range s.shares {
		if x.backend != b {
			continue
		}
		if i+1 < len(s.shares) {
			return s.shares[i+1].from - x.from
		}
		return modulus - x.from
	}
	return 0
}

type counter struct{ packets, bytes uint64 }

// counters adds those of a set's elements.
func (k *kernel) counters(set string, to map[element]counter) error {
	elements, err := k.elements(set)
	if err != nil {
		return err
	}
	for _, e := range elements {
		if e.Counter != nil {
			to[element{set, string(e.Key)}] = counter{e.Counter.Packets, e.Counter.Bytes}
		}
	}
	return nil
}
