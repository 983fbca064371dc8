package fleet

import (
	"cmp"
	"hash/fnv"
	"net/netip"
	"slices"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/pool"
)

// Machine is what others ask of a Machine.
type Machine struct {
	Name     string
	labels   map[string]string
	cordoned bool
	backend  bool       // it only hosts backends: nothing of the edge is there
	routerID netip.Addr // as its spec says, zero when it says none
	// keeper is the older machine that has the same router id; empty when there is none.
	keeper string
}

// Rooms are the rooms that the tables read, besides the input.
type Rooms struct {
	Pool *pool.Tables
}

// Tables are the machines: what they have, who selects them, and their BGP peers.
type Tables struct {
	in   *input.Tables
	from Rooms

	reported  *memo.Sum[netip.Addr, string, ReportedAddress, memo.Parts[string, ReportedAddress]] // by machine
	Holders   *memo.Table[netip.Addr, string]                                                     // the machine that has an address, alone
	routerIDs *memo.Sum[netip.Addr, string, int64, memo.Parts[string, int64]]                     // Machines by what their spec says, created when
	keepers   *memo.Table[netip.Addr, string]                                                     // the oldest machine with a router id
	Machines  *memo.Table[memo.Unit, []Machine]                                                   // sorted by name
	foreign   *memo.Sum[memo.Unit, snapshot.Key, foreignEntry, memo.Parts[snapshot.Key, foreignEntry]]
	Own       *memo.Table[memo.Unit, []OwnAddress] // sorted by address

	Selections *memo.Table[string, *Selection] // by pool
	SelectedBy *poolsOf
	ChosenBy   *poolsOf // whose spec.machines takes it

	secrets   *memo.Table[string, *peerPassword]
	PeerSpecs *memo.Table[string, *Peer]
	peersAt   *memo.Sum[string, string, struct{}, memo.Parts[string, struct{}]] // valid BGPPeers, by address or interface
	Sessions  *memo.Table[string, *Sessions]
	Peers     *memo.Sum[model.PeerKey, memo.Unit, *model.Peer, *model.Peer]

	Machine *memo.Table[string, *model.Machine]
	Nodes   *memo.Table[string, *model.Node]
}

// poolsOf are pools, by machine.
type poolsOf = memo.Sum[string, string, struct{}, memo.Parts[string, struct{}]]

// New adds the tables of machines and BGP peers to a graph.
func New(g *memo.Graph, in *input.Tables, r Rooms) *Tables {
	t := &Tables{in: in, from: r}
	t.reported = memo.NewSum[netip.Addr, string, ReportedAddress](g, "reports of an address")
	t.routerIDs = memo.NewSum[netip.Addr, string, int64](g, "Machines of a router id")
	memo.NewScan(g, "Machines: index", in.Machines, func(c *memo.Context, n snapshot.Name, o *v1alpha1.Machine) {
		for _, report := range ReportedAddresses(o) {
			t.reported.Put(c, report.Address, n.Name, report)
		}
		if id := parseRouterID(o.Spec.RouterID); id.IsValid() {
			t.routerIDs.Put(c, id, n.Name, o.CreationTimestamp.Unix())
		}
	}, memo.Puts(t.reported, t.routerIDs))
	t.Holders = memo.NewTable(g, "holder of an address", t.holder, memo.Reads(t.reported))
	t.keepers = memo.NewTable(g, "keeper of a router id", t.keeper, memo.Reads(t.routerIDs))
	t.Machines = memo.NewTable(g, "fleet", t.makeFleet, memo.Reads(in.AllMachines, t.keepers)).Equal(func(a, b []Machine) bool {
		return slices.EqualFunc(a, b, Machine.equal)
	})
	t.foreign = memo.NewSum[memo.Unit, snapshot.Key, foreignEntry](g, "foreign addresses").Same(foreignEntry.same)
	scanForeign(g, t, snapshot.KindService, in.Services, foreignOfService)
	scanForeign(g, t, snapshot.KindEndpointSlice, in.EndpointSlices, foreignOfSlice)
	t.Own = memo.NewTable(g, "own addresses", t.makeOwn, memo.Reads(in.AllMachines, in.AllPeers, in.PeersInForce, t.Holders, t.foreign)).Equal(slices.Equal[[]OwnAddress])
	t.SelectedBy = memo.NewSum[string, string, struct{}](g, "AddressPools that select a machine")
	t.ChosenBy = memo.NewSum[string, string, struct{}](g, "AddressPools that choose a machine")
	t.Selections = memo.ForKey(memo.NewTable(g, "selection", t.selection,
		memo.Reads(in.Pools, t.from.Pool.Pools, t.Machines), memo.Puts(t.SelectedBy, t.ChosenBy)), in.Pools, shortName)
	t.secrets = memo.NewTable(g, "password", t.makeSecret, memo.Reads(in.Secrets))
	t.peersAt = memo.NewSum[string, string, struct{}](g, "BGPPeers at an address")
	t.PeerSpecs = memo.ForKey(memo.NewTable(g, "BGPPeer in force", t.peerInForce,
		memo.Reads(in.BGPPeers, in.PeersInForce, t.secrets), memo.Puts(t.peersAt)), in.BGPPeers, shortName)
	t.Peers = memo.NewSlot[model.PeerKey, *model.Peer](g, "peer of a machine")
	t.Peers.Watch()
	t.Sessions = memo.ForKey(memo.NewTable(g, "sessions of a BGPPeer", t.makeSessions,
		memo.Reads(in.BGPPeers, t.PeerSpecs, t.peersAt, t.Machines), memo.Puts(t.Peers)), in.BGPPeers, shortName)
	t.Machine = memo.ForKey(memo.NewTable(g, "machine", t.makeMachine,
		memo.Reads(in.Machines, t.SelectedBy, t.ChosenBy, t.keepers, t.Holders, t.reported)), in.Machines, shortName).Watch()
	t.Nodes = memo.ForKey(memo.NewTable(g, "node", t.makeNode, memo.Reads(in.Machines, t.Holders)), in.Machines, shortName).Watch()
	return t
}

// shortName is the name of an object that has no namespace.
func shortName(n snapshot.Name) string { return n.Name }

// makeFleet gathers the machines.
func (t *Tables) makeFleet(c *memo.Context, _ memo.Unit) ([]Machine, bool) {
	var fleet []Machine
	for _, o := range t.in.AllMachines.Get(c, memo.Unit{}).All() {
		m := Machine{Name: o.Name, labels: o.Labels, cordoned: o.Spec.Cordoned, backend: o.Spec.Role == v1alpha1.RoleBackend, routerID: parseRouterID(o.Spec.RouterID)}
		if m.routerID.IsValid() {
			if keeper := t.keepers.Get(c, m.routerID); keeper != o.Name {
				m.keeper = keeper
			}
		}
		fleet = append(fleet, m)
	}
	slices.SortFunc(fleet, func(a, b Machine) int { return cmp.Compare(a.Name, b.Name) })
	return fleet, true
}

func (m Machine) equal(o Machine) bool {
	if len(m.labels) != len(o.labels) {
		return false
	}
	for k, v := range m.labels {
		if w, has := o.labels[k]; !has || v != w {
			return false
		}
	}
	return m.Name == o.Name && m.cordoned == o.cordoned && m.backend == o.backend && m.routerID == o.routerID && m.keeper == o.keeper
}

// Selection are the machines that a pool selects.
type Selection struct {
	Machines []string // sorted
	chosen   []string // those that spec.machines takes, sorted; none where it takes all
	// Cordoned among them, for pools whose addresses one machine answers for: those go
	// last there. Nothing else depends on it.
	cordoned []string
}

func (t *Tables) selection(c *memo.Context, poolName string) (*Selection, bool) {
	if t.in.Pools.Get(c, snapshot.Name{Name: poolName}) == nil {
		return nil, false
	}
	f := t.from.Pool.Pools.Get(c, poolName)
	selection := &Selection{}
	var selected []Machine
	for _, m := range t.Machines.Get(c, memo.Unit{}) {
		if !m.backend && pool.Matches(f.Machines, m.labels) {
			selected = append(selected, m)
			if !pool.TakesAll(f.Machines) {
				selection.chosen = append(selection.chosen, m.Name)
				t.ChosenBy.Put(c, m.Name, poolName, struct{}{})
			}
		}
	}
	for _, m := range atMost(f.Most, selected, f.Name) {
		selection.Machines = append(selection.Machines, m.Name)
		t.SelectedBy.Put(c, m.Name, poolName, struct{}{})
		if m.cordoned && f.Mode == model.AnnounceL2 {
			selection.cordoned = append(selection.cordoned, m.Name)
		}
	}
	return selection, true
}

// atMost chooses so many machines for a pool by rendezvous hashing; 0 is all of them.
// Cordoned ones do not count, and stay where they are chosen: they drain by themselves
// while others have taken their place.
func atMost(most int, machines []Machine, pool string) []Machine {
	if most == 0 || len(machines) <= most {
		return machines
	}
	ranked := slices.Clone(machines)
	slices.SortFunc(ranked, func(a, b Machine) int {
		return cmp.Or(cmp.Compare(rendezvous([]byte(pool), b.Name), rendezvous([]byte(pool), a.Name)), cmp.Compare(a.Name, b.Name))
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
	slices.SortFunc(ranked, func(a, b Machine) int { return cmp.Compare(a.Name, b.Name) })
	return ranked
}

// Candidates orders the machines that may own a VIP by rendezvous hashing (Thaler and
// Ravishankar, 1998): VIPs spread evenly, and the loss of a machine moves its own only.
// Cordoned machines go last.
func (s *Selection) Candidates(vip netip.Addr) []string {
	type ranked struct {
		name     string
		cordoned bool
		score    uint64
	}
	list, key := make([]ranked, 0, len(s.Machines)), vip.As16()
	for _, name := range s.Machines {
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
