package translate

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
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

// fleetTables are the machines: what they have, who selects them, and their BGP peers.
type fleetTables struct {
	in   *inputTables
	pool *poolTables

	claims    *memo.Sum[netip.Addr, string, addressClaim, memo.Parts[string, addressClaim]] // by machine
	holders   *memo.Table[netip.Addr, string]                                               // the machine that has an address, alone
	routerIDs *memo.Sum[netip.Addr, string, int64, memo.Parts[string, int64]]               // Machines by what their spec says, created when
	keepers   *memo.Table[netip.Addr, string]                                               // the oldest machine with a router id
	machines  *memo.Table[memo.Unit, []fleetMachine]                                        // sorted by name
	foreign   *memo.Sum[memo.Unit, snapshot.Key, foreignEntry, memo.Parts[snapshot.Key, foreignEntry]]
	own       *memo.Table[memo.Unit, []ownAddress] // sorted by address

	selections *memo.Table[string, *selectionFact] // by pool
	selectedBy *poolsOf
	chosenBy   *poolsOf // whose spec.machines takes it

	secrets   *memo.Table[string, *secretFact]
	peerSpecs *memo.Table[string, *peerFact]
	peersAt   *memo.Sum[string, string, struct{}, memo.Parts[string, struct{}]] // valid BGPPeers, by address or interface
	sessions  *memo.Table[string, *peerSessions]
	peers     *memo.Sum[model.PeerKey, memo.Unit, *model.Peer, *model.Peer]

	machine *memo.Table[string, *model.Machine]
	nodes   *memo.Table[string, *model.Node]
}

// poolsOf are pools, by machine.
type poolsOf = memo.Sum[string, string, struct{}, memo.Parts[string, struct{}]]

func newFleetTables(g *memo.Graph, in *inputTables, pool *poolTables) *fleetTables {
	t := &fleetTables{in: in, pool: pool}
	t.claims = memo.NewSum[netip.Addr, string, addressClaim](g, "claims on an address")
	t.routerIDs = memo.NewSum[netip.Addr, string, int64](g, "Machines of a router id")
	memo.NewScan(g, "Machines: index", in.machines, func(c *memo.Context, n snapshot.Name, o *v1alpha1.Machine) {
		for _, claim := range claimsOf(o) {
			t.claims.Put(c, claim.address, n.Name, claim)
		}
		if id := parseRouterID(o.Spec.RouterID); id.IsValid() {
			t.routerIDs.Put(c, id, n.Name, o.CreationTimestamp.Unix())
		}
	}, memo.Puts(t.claims, t.routerIDs))
	t.holders = memo.NewTable(g, "holder of an address", t.holder, memo.Reads(t.claims))
	t.keepers = memo.NewTable(g, "keeper of a router id", t.keeper, memo.Reads(t.routerIDs))
	t.machines = memo.NewTable(g, "fleet", t.makeFleet, memo.Reads(in.allMachines, t.keepers)).Equal(func(a, b []fleetMachine) bool {
		return slices.EqualFunc(a, b, fleetMachine.equal)
	})
	t.foreign = memo.NewSum[memo.Unit, snapshot.Key, foreignEntry](g, "foreign addresses").Same(foreignEntry.same)
	scanForeign(g, t, snapshot.KindService, in.services, foreignOfService)
	scanForeign(g, t, snapshot.KindEndpointSlice, in.endpointSlices, foreignOfSlice)
	t.own = memo.NewTable(g, "own addresses", t.makeOwn, memo.Reads(in.allMachines, in.allPeers, t.holders, t.foreign)).Equal(slices.Equal[[]ownAddress])
	t.selectedBy = memo.NewSum[string, string, struct{}](g, "AddressPools that select a machine")
	t.chosenBy = memo.NewSum[string, string, struct{}](g, "AddressPools that choose a machine")
	t.selections = memo.ForKey(memo.NewTable(g, "selection", t.selection,
		memo.Reads(in.pools, pool.pools, t.machines), memo.Puts(t.selectedBy, t.chosenBy)), in.pools, shortName)
	t.secrets = memo.NewTable(g, "password", t.makeSecret, memo.Reads(in.secrets))
	t.peersAt = memo.NewSum[string, string, struct{}](g, "BGPPeers at an address")
	t.peerSpecs = memo.ForKey(memo.NewTable(g, "BGPPeer in force", t.peerInForce,
		memo.Reads(in.bgpPeers, t.secrets), memo.Puts(t.peersAt)), in.bgpPeers, shortName)
	t.peers = memo.NewSlot[model.PeerKey, *model.Peer](g, "peer of a machine")
	t.peers.Watch()
	t.sessions = memo.ForKey(memo.NewTable(g, "sessions of a BGPPeer", t.makeSessions,
		memo.Reads(in.bgpPeers, t.peerSpecs, t.peersAt, t.machines), memo.Puts(t.peers)), in.bgpPeers, shortName)
	t.machine = memo.ForKey(memo.NewTable(g, "machine", t.makeMachine,
		memo.Reads(in.machines, t.selectedBy, t.chosenBy, t.keepers, t.holders, t.claims)), in.machines, shortName).Watch()
	t.nodes = memo.ForKey(memo.NewTable(g, "node", t.makeNode, memo.Reads(in.machines, t.holders)), in.machines, shortName).Watch()
	return t
}

// shortName is the name of an object that has no namespace.
func shortName(n snapshot.Name) string { return n.Name }

// makeFleet gathers the machines.
func (t *fleetTables) makeFleet(c *memo.Context, _ memo.Unit) ([]fleetMachine, bool) {
	var fleet []fleetMachine
	for _, o := range t.in.allMachines.Get(c, memo.Unit{}).All() {
		m := fleetMachine{name: o.Name, labels: o.Labels, cordoned: o.Spec.Cordoned, backend: o.Spec.Role == v1alpha1.RoleBackend, routerID: parseRouterID(o.Spec.RouterID)}
		if m.routerID.IsValid() {
			if keeper := t.keepers.Get(c, m.routerID); keeper != o.Name {
				m.keeper = keeper
			}
		}
		fleet = append(fleet, m)
	}
	slices.SortFunc(fleet, func(a, b fleetMachine) int { return cmp.Compare(a.name, b.name) })
	return fleet, true
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

// keeper is the oldest machine with a router id; empty when there is none.
func (t *fleetTables) keeper(c *memo.Context, id netip.Addr) (string, bool) {
	keeper, oldest := "", int64(0)
	for machine, created := range t.routerIDs.Get(c, id).All() {
		if keeper == "" || cmp.Or(cmp.Compare(created, oldest), cmp.Compare(machine, keeper)) < 0 {
			keeper, oldest = machine, created
		}
	}
	return keeper, keeper != ""
}

// selectionFact are the machines that a pool selects.
type selectionFact struct {
	machines []string // sorted
	chosen   []string // those that spec.machines takes, sorted; none where it takes all
	// cordoned among them, for pools whose addresses one machine answers for: those go
	// last there. Nothing else depends on it.
	cordoned []string
}

func (t *fleetTables) selection(c *memo.Context, pool string) (*selectionFact, bool) {
	if t.in.pools.Get(c, snapshot.Name{Name: pool}) == nil {
		return nil, false
	}
	f := t.pool.pools.Get(c, pool)
	selection := &selectionFact{}
	var selected []fleetMachine
	for _, m := range t.machines.Get(c, memo.Unit{}) {
		if !m.backend && matches(f.machines, m.labels) {
			selected = append(selected, m)
			if !takesAll(f.machines) {
				selection.chosen = append(selection.chosen, m.name)
				t.chosenBy.Put(c, m.name, pool, struct{}{})
			}
		}
	}
	for _, m := range atMost(f.most, selected, f.name) {
		selection.machines = append(selection.machines, m.name)
		t.selectedBy.Put(c, m.name, pool, struct{}{})
		if m.cordoned && f.mode == model.AnnounceL2 {
			selection.cordoned = append(selection.cordoned, m.name)
		}
	}
	return selection, true
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
