package vip

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/fleet"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/pool"
)

// Rooms are the rooms that the tables read, besides the input.
type Rooms struct {
	Pool  *pool.Tables
	Fleet *fleet.Tables
}

// Tables are the addresses that pools give away: who wants which, and who has which.
type Tables struct {
	in   *input.Tables
	from Rooms

	Wants *memo.Sum[memo.Unit, model.Object, *Want, memo.Parts[model.Object, *Want]]
	// Roots are the root IngressRoutes that take the address which all share, by namespace, with whether they have
	// TLS. Only the first and the last are news: sharing.
	Roots   *memo.Sum[string, snapshot.Name, bool, sharingRoots]
	sharing *memo.Sum[memo.Unit, string, bool, memo.Parts[string, bool]]

	Services     *memo.Sum[snapshot.Name, memo.Unit, struct{}, struct{}] // of our class
	Outcomes     *memo.Sum[model.Object, memo.Unit, *Outcome, *Outcome]
	PoolOutcomes *memo.Sum[string, memo.Unit, *poolOutcome, *poolOutcome]
	Grants       *memo.Sum[netip.Addr, memo.Unit, Grant, Grant] // addresses that are recorded: those that may be used
	LeadsTo      *memo.Sum[string, memo.Unit, listenerSet, listenerSet]
	Addresses    *memo.Table[memo.Unit, []string] // where clients reach what all edges share
}

// listenerSet are listeners of the model.
type listenerSet map[model.ListenerID]struct{}

// sharingRoots counts roots that share, and those of them with TLS.
type sharingRoots struct{ all, tls int }

func (s *sharingRoots) fold(_ snapshot.Name, before, after *bool) {
	count := func(tls *bool, by int) {
		if tls == nil {
			return
		}
		if s.all += by; *tls {
			s.tls += by
		}
	}
	count(before, -1)
	count(after, 1)
}

// New adds the assignment of addresses to a graph.
func New(g *memo.Graph, in *input.Tables, r Rooms) *Tables {
	t := &Tables{in: in, from: r}
	t.Wants = memo.NewSum[memo.Unit, model.Object, *Want](g, "wants")
	t.Roots = memo.NewFold[string](g, "roots that share", (*sharingRoots).fold)
	t.sharing = memo.NewSum[memo.Unit, string, bool](g, "namespaces that share")
	memo.For(memo.NewTable(g, "namespace that shares", func(c *memo.Context, namespace string) (struct{}, bool) {
		if roots := t.Roots.Get(c, namespace); roots.all > 0 {
			t.sharing.Put(c, memo.Unit{}, namespace, roots.tls > 0)
		}
		return struct{}{}, false
	}, memo.Reads(t.Roots), memo.Puts(t.sharing)), t.Roots)
	t.Services = memo.NewSlot[snapshot.Name, struct{}](g, "Services of our class")
	memo.NewScan(g, "Services: wants", in.Services, func(c *memo.Context, n snapshot.Name, o *corev1.Service) {
		if w := wantOfService(o); w != nil {
			t.Wants.Put(c, memo.Unit{}, w.Owner, w)
			t.Services.Put(c, n, memo.Unit{}, struct{}{})
		}
	}, memo.Puts(t.Wants, t.Services))
	t.Outcomes = memo.NewSlot[model.Object, *Outcome](g, "outcome of a want")
	t.PoolOutcomes = memo.NewSlot[string, *poolOutcome](g, "outcome of a pool")
	t.Grants = memo.NewSlot[netip.Addr, Grant](g, "grant")
	t.LeadsTo = memo.NewSlot[string, listenerSet](g, "listeners of a pool")
	memo.Always(memo.NewTable(g, "assignment", t.assign,
		memo.Reads(in.PoolNames, t.from.Pool.Pools, t.from.Pool.Records, t.from.Fleet.Own, in.Labels, t.Wants, t.sharing),
		memo.Puts(t.Outcomes, t.PoolOutcomes, t.Grants, t.LeadsTo)), memo.Unit{})
	t.Addresses = memo.NewTable(g, "shared addresses", t.sharedAddresses,
		memo.Reads(in.AllMachines, t.from.Fleet.ChosenBy, t.from.Fleet.SelectedBy, t.from.Fleet.Holders, t.LeadsTo))
	return t
}

// assign gives the addresses of all pools to all owners. It is one value: who
// gets an address depends on who else wants one. Its work follows owners and
// addresses that are given away, and it is done when one of those changes, a pool, or
// a machine's address: never for a route or an endpoint.
func (t *Tables) assign(c *memo.Context, _ memo.Unit) (struct{}, bool) {
	a := &assigner{
		byName: map[string]*poolBook{}, wantOf: map[model.Object]*Want{}, own: t.from.Fleet.Own.Get(c, memo.Unit{}),
		labels: func(namespace string) map[string]string { return t.in.Labels.Get(c, namespace) }, tlsAt: map[string]bool{},
	}
	for _, name := range t.in.PoolNames.Get(c, memo.Unit{}) {
		p := &poolBook{Pool: t.from.Pool.Pools.Get(c, name), stored: t.from.Pool.Records.Get(c, name)}
		if p.Pool != nil {
			a.pools = append(a.pools, p)
			a.byName[name] = p
		}
	}
	a.wants, a.refused = joinWants(t.Wants.Get(c, memo.Unit{}))
	for _, w := range a.wants {
		a.wantOf[w.Owner] = w
	}
	sharing := t.sharing.Get(c, memo.Unit{})
	a.sharing = slices.Sorted(sharing.Keys())
	a.run()
	t.putOutcomes(c, a, sharing)
	t.putGrants(c, a)
	for _, p := range a.pools {
		t.PoolOutcomes.Put(c, p.Name, memo.Unit{}, &p.out)
	}
	return struct{}{}, false
}

// putOutcomes says what became of each owner.
func (t *Tables) putOutcomes(c *memo.Context, a *assigner, sharing memo.Parts[string, bool]) {
	put := func(owner model.Object, o *Outcome) { t.Outcomes.Put(c, owner, memo.Unit{}, o) }
	for _, w := range a.wants {
		o := a.outcomeOf(w.Owner, w.Owner, func(held) bool { return true })
		if o != nil && len(w.sharers) == 0 {
			put(w.Owner, o)
		}
		for _, s := range w.sharers {
			if s.guest() {
				put(s.Owner, a.outcomeOfGuest(w, s))
			} else if o != nil {
				put(s.Owner, o)
			}
		}
	}
	for owner, o := range a.refused {
		put(owner, o)
	}
	for _, namespace := range a.sharing {
		pools := a.sharedPools(namespace)
		tls, _ := sharing.Get(namespace)
		for _, pool := range pools {
			a.tlsAt[pool] = a.tlsAt[pool] || tls
		}
		if o := a.outcomeOf(SharedIn(namespace), model.SharingIngressRoutes(), func(h held) bool { return pools[address.FamilyOf(h.address)] == h.pool }); o != nil {
			put(SharedIn(namespace), o)
		}
	}
}

// putGrants says which addresses are recorded, and where those of each pool lead.
func (t *Tables) putGrants(c *memo.Context, a *assigner) {
	leadsTo := map[string]listenerSet{}
	for address, h := range a.taken {
		if !h.kept {
			continue
		}
		g := Grant{Pool: h.pool, Owner: h.owner, Listeners: []model.ListenerID{t.in.Config.ClearID()}}
		if a.tlsAt[h.pool] {
			g.Listeners = append(g.Listeners, t.in.Config.TLSID())
		}
		if w := a.wantOf[h.owner]; w != nil {
			g.Listeners, g.Members = w.Listeners, a.sharersAt(h.pool, w)
		}
		t.Grants.Put(c, address, memo.Unit{}, g)
		for _, id := range g.Listeners {
			if leadsTo[g.Pool] == nil {
				leadsTo[g.Pool] = listenerSet{}
			}
			leadsTo[g.Pool][id] = struct{}{}
		}
	}
	for pool, listeners := range leadsTo {
		t.LeadsTo.Put(c, pool, memo.Unit{}, listeners)
	}
}

// hasShared says that a machine has listeners that edges share at their own addresses. If a pool has chosen the
// machine, one of its pools must lead to such a listener. All its pools are read, also after the first such listener:
// the recorded reads must not depend on the order of the pools.
func (t *Tables) hasShared(c *memo.Context, machine string) (has bool) {
	if !t.from.Fleet.IsChosen(c, machine) {
		return true
	}
	for pool := range t.from.Fleet.SelectedBy.Get(c, machine).All() {
		for id := range t.LeadsTo.Get(c, pool) {
			has = has || !id.Own()
		}
	}
	return has
}

// sharedAddresses gathers where clients reach what all edges share: what agents reported and
// their machines have, of those that take new work and have it, sorted, each once.
func (t *Tables) sharedAddresses(c *memo.Context, _ memo.Unit) ([]string, bool) {
	var found []netip.Addr
	for _, o := range t.in.AllMachines.Get(c, memo.Unit{}).All() {
		if o.Spec.Cordoned || o.Spec.Role == v1alpha1.RoleBackend || !t.hasShared(c, o.Name) {
			continue
		}
		for _, report := range fleet.ReportedAddresses(o) {
			if report.Status && t.from.Fleet.Holders.Get(c, report.Address) == o.Name {
				found = append(found, report.Address)
			}
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	var addresses []string
	for _, a := range slices.Compact(found) {
		addresses = append(addresses, a.String())
	}
	return addresses, true
}

// LoadBalancerStatus lists addresses in the form that Services and IngressRoutes share.
func LoadBalancerStatus(o *Outcome) corev1.LoadBalancerStatus {
	var status corev1.LoadBalancerStatus
	if o == nil {
		return status
	}
	for _, a := range o.Addresses {
		mode := corev1.LoadBalancerIPModeVIP
		status.Ingress = append(status.Ingress, corev1.LoadBalancerIngress{IP: a.String(), IPMode: &mode})
	}
	return status
}
