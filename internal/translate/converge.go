package translate

import (
	"cmp"
	"slices"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/status"
)

// Converge translates a snapshot as it will be once the assignments of its pools are
// recorded: it writes them into the pools of the snapshot, which it replaces. Machines
// are told of an address only after its record, so a translation of manifests alone
// shows none.
func Converge(c input.Config, s *snapshot.Snapshot) *Translator {
	t := full(c, s)
	const rounds = 4 // two suffice, see ADR 14
	for range rounds {
		keys := t.record(s)
		if len(keys) == 0 {
			break
		}
		t.Apply(s, keys)
	}
	return t
}

// record writes the status of each pool into the snapshot, and names those that changed.
func (t *Translator) record(s *snapshot.Snapshot) []snapshot.Key {
	var keys []snapshot.Key
	for n, pool := range s.AddressPools {
		status := t.statusOf(input.Object(snapshot.KindAddressPool, n))
		if status == nil || slices.Equal(status.AddressPool.Assignments, pool.Status.Assignments) {
			continue
		}
		pool = pool.DeepCopy()
		pool.Status = *status.AddressPool.DeepCopy()
		s.AddressPools[n] = pool
		keys = append(keys, snapshot.Key{Kind: snapshot.KindAddressPool, Name: n})
	}
	slices.SortFunc(keys, func(a, b snapshot.Key) int { return cmp.Compare(a.Name.Name, b.Name.Name) })
	return keys
}

// statusOf is the status of an object as it stands; nil when there is none.
func (t *Translator) statusOf(o model.Object) *status.Status {
	for _, statuses := range t.status.All {
		if s := statuses.Get(t.graph.Peek(), o); s != nil {
			return s
		}
	}
	return nil
}
