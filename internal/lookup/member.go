package lookup

import "fairlead.dev/internal/model"

// Members are the backends of a frontend as its table has them, in their order, and which
// backend each is. Backends to which nothing may be sent are left out: a packet that
// travels by one that is dead arrives nowhere. One that drains has a weight where no other
// is left (KEP-1669). Of backends with one ID the first stands for all: addresses of which
// two have one can be computed, and a table takes an ID once.
func Members(k model.FrontendKey, backends []model.FrontendBackend) (members []Member, which []int) {
	seen := make(map[uint64]bool, len(backends))
	for i, b := range backends {
		id := ID(k, b)
		again := seen[id]
		seen[id] = true
		if again || b.State == model.BackendUnready {
			continue
		}
		members = append(members, Member{ID: id, Weight: b.Weight, HopWeight: max(b.Weight, b.HopWeight)})
		which = append(which, i)
	}
	return members, which
}
