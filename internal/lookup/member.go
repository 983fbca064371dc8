package lookup

import "fairlead.dev/internal/model"

// Members are the backends of a frontend as its table has them, in their order, and which
// backend each is. Backends to which nothing may be sent are left out: a packet that
// travels by one that is dead arrives nowhere.
func Members(k model.FrontendKey, backends []model.FrontendBackend) (members []Member, which []int) {
	for i, b := range backends {
		if b.State == model.BackendUnready {
			continue
		}
		m := Member{ID: ID(k, b), Weight: b.Weight, HopWeight: max(b.Weight, b.HopWeight)}
		if b.State == model.BackendDraining {
			m.Weight = 0
		}
		members, which = append(members, m), append(which, i)
	}
	return members, which
}
