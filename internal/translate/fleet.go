package translate

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// fleetMachine is what others ask of a Machine.
type fleetMachine struct {
	name     string
	labels   map[string]string
	cordoned bool
	backend  bool       // it only hosts backends: nothing of the edge is there
	routerID netip.Addr // as its spec says, zero when it says none
	// keeper is the older machine that has the same router id; empty when there is none.
	keeper string
}

// computeFleet gathers the machines, sorted by name.
func (t *Translator) computeFleet(r reader, n node) {
	var fleet []fleetMachine
	for _, name := range sortedNames(t.index.machines) {
		o := r.s.Machines[name]
		if o == nil {
			continue
		}
		m := fleetMachine{name: o.Name, labels: o.Labels, cordoned: o.Spec.Cordoned, backend: o.Spec.Role == v1alpha1.RoleBackend, routerID: parseRouterID(o.Spec.RouterID)}
		if keeper := t.index.keeperOf(m.routerID); keeper != o.Name {
			m.keeper = keeper
		}
		fleet = append(fleet, m)
	}
	if !slices.EqualFunc(fleet, t.fleet, fleetMachine.equal) {
		t.fleet = fleet
		t.graph.changed(n)
	}
}

func (m fleetMachine) equal(o fleetMachine) bool {
	if len(m.labels) != len(o.labels) {
		return false
	}
	for k, v := range m.labels {
		if w, has := o.labels[k]; !has || v != w {
			return false
		}
	}
	return m.name == o.name && m.cordoned == o.cordoned && m.backend == o.backend && m.routerID == o.routerID && m.keeper == o.keeper
}

// parseRouterID reads a BGP identifier, zero when it is none (RFC 6286, 2.1).
func parseRouterID(text string) netip.Addr {
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// routerID is what a Machine says of its router id, and how old it is.
type routerID struct {
	id      netip.Addr
	created int64
}

// keeperOf is the oldest machine with a router id; empty when there is none.
func (x *index) keeperOf(id netip.Addr) string {
	keeper := ""
	for n := range x.routerIDs[id] {
		if keeper == "" || cmp.Or(cmp.Compare(x.routerIDOf[n.Name].created, x.routerIDOf[keeper].created), cmp.Compare(n.Name, keeper)) < 0 {
			keeper = n.Name
		}
	}
	return keeper
}

// selectionFact are the machines that a pool selects.
type selectionFact struct {
	machines []string // sorted
	chosen   []string // those that spec.machines takes, sorted; none where it takes all
	// cordoned among them, for pools whose addresses one machine answers for: those go
	// last there. Nothing else depends on it.
	cordoned []string
}

func (t *Translator) computeSelection(r reader, n node) {
	var selection *selectionFact
	if r.s.AddressPools[snapshot.Name{Name: n.a}] != nil {
		f := r.pool(n.a)
		selection = &selectionFact{}
		var selected []fleetMachine
		for _, m := range r.fleet() {
			if !m.backend && matches(f.machines, m.labels) {
				selected = append(selected, m)
				if !takesAll(f.machines) {
					selection.chosen = append(selection.chosen, m.name)
				}
			}
		}
		for _, m := range atMost(f.most, selected, f.name) {
			selection.machines = append(selection.machines, m.name)
			if m.cordoned && f.mode == model.AnnounceL2 {
				selection.cordoned = append(selection.cordoned, m.name)
			}
		}
	}
	t.noteSelection(n.a, t.selections[n.a], selection)
	update(t, n, t.selections, n.a, selection)
}

// atMost chooses so many machines for a pool by rendezvous hashing; 0 is all of them.
// Cordoned ones do not count, and stay where they are chosen: they drain by themselves
// while others have taken their place.
func atMost(most int, machines []fleetMachine, pool string) []fleetMachine {
	if most == 0 || len(machines) <= most {
		return machines
	}
	ranked := slices.Clone(machines)
	slices.SortFunc(ranked, func(a, b fleetMachine) int {
		return cmp.Or(cmp.Compare(rendezvous([]byte(pool), b.name), rendezvous([]byte(pool), a.name)), cmp.Compare(a.name, b.name))
	})
	counted := 0
	for i, m := range ranked {
		if counted == most {
			ranked = ranked[:i]
			break
		}
		if !m.cordoned {
			counted++
		}
	}
	slices.SortFunc(ranked, func(a, b fleetMachine) int { return cmp.Compare(a.name, b.name) })
	return ranked
}

// candidates orders the machines that may own a VIP by rendezvous hashing (Thaler and
// Ravishankar, 1998): VIPs spread evenly, and the loss of a machine moves its own only.
// Cordoned machines go last.
func (s *selectionFact) candidates(vip netip.Addr) []string {
	type ranked struct {
		name     string
		cordoned bool
		score    uint64
	}
	list, key := make([]ranked, 0, len(s.machines)), vip.As16()
	for _, name := range s.machines {
		_, cordoned := slices.BinarySearch(s.cordoned, name)
		list = append(list, ranked{name, cordoned, rendezvous(key[:], name)})
	}
	slices.SortFunc(list, func(a, b ranked) int {
		if a.cordoned != b.cordoned {
			if b.cordoned {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name))
	})
	var names []string
	for _, m := range list {
		names = append(names, m.name)
	}
	return names
}

// rendezvous is FNV-1a over both names, finished as in SplitMix64: FNV alone leaves
// the high bits of short names alike.
func rendezvous(key []byte, machine string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(key)
	_, _ = h.Write([]byte(machine))
	x := h.Sum64()
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
