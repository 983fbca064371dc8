package translate

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// vipTables are the addresses that pools give away: who wants which, and who has which.
type vipTables struct {
	in    *inputTables
	pool  *poolTables
	fleet *fleetTables

	wants *memo.Sum[memo.Unit, model.Object, *want, memo.Parts[model.Object, *want]]
	// roots are the root IngressRoutes that take the address which all share, by namespace, with whether they have
	// TLS. Only the first and the last are news: sharing.
	roots   *memo.Sum[string, snapshot.Name, bool, sharingRoots]
	sharing *memo.Sum[memo.Unit, string, bool, memo.Parts[string, bool]]

	services     *memo.Sum[snapshot.Name, memo.Unit, struct{}, struct{}] // of our class
	outcomes     *memo.Sum[model.Object, memo.Unit, *outcome, *outcome]
	poolOutcomes *memo.Sum[string, memo.Unit, *poolOutcome, *poolOutcome]
	grants       *memo.Sum[netip.Addr, memo.Unit, grant, grant] // addresses that are recorded: those that may be used
	leadsTo      *memo.Sum[string, memo.Unit, listenerSet, listenerSet]
	addresses    *memo.Table[memo.Unit, []string] // where clients reach what all edges share
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

func newVIPTables(g *memo.Graph, in *inputTables, pool *poolTables, fleet *fleetTables) *vipTables {
	t := &vipTables{in: in, pool: pool, fleet: fleet}
	t.wants = memo.NewSum[memo.Unit, model.Object, *want](g, "wants")
	t.roots = memo.NewFold[string](g, "roots that share", (*sharingRoots).fold)
	t.sharing = memo.NewSum[memo.Unit, string, bool](g, "namespaces that share")
	memo.For(memo.NewTable(g, "namespace that shares", func(c *memo.Context, namespace string) (struct{}, bool) {
		if roots := t.roots.Get(c, namespace); roots.all > 0 {
			t.sharing.Put(c, memo.Unit{}, namespace, roots.tls > 0)
		}
		return struct{}{}, false
	}, memo.Reads(t.roots), memo.Puts(t.sharing)), t.roots)
	t.services = memo.NewSlot[snapshot.Name, struct{}](g, "Services of our class")
	memo.NewScan(g, "Services: wants", in.services, func(c *memo.Context, n snapshot.Name, o *corev1.Service) {
		if w := wantOfService(o); w != nil {
			t.wants.Put(c, memo.Unit{}, w.owner, w)
			t.services.Put(c, n, memo.Unit{}, struct{}{})
		}
	}, memo.Puts(t.wants, t.services))
	t.outcomes = memo.NewSlot[model.Object, *outcome](g, "outcome of a want")
	t.poolOutcomes = memo.NewSlot[string, *poolOutcome](g, "outcome of a pool")
	t.grants = memo.NewSlot[netip.Addr, grant](g, "grant")
	t.leadsTo = memo.NewSlot[string, listenerSet](g, "listeners of a pool")
	memo.Always(memo.NewTable(g, "assignment", t.assign,
		memo.Reads(in.poolNames, pool.pools, pool.records, fleet.own, in.labels, t.wants, t.sharing),
		memo.Puts(t.outcomes, t.poolOutcomes, t.grants, t.leadsTo)), memo.Unit{})
	t.addresses = memo.NewTable(g, "shared addresses", t.sharedAddresses,
		memo.Reads(in.allMachines, fleet.chosenBy, fleet.selectedBy, fleet.holders, t.leadsTo))
	return t
}

// assign gives the addresses of all pools to all owners. It is one value: who
// gets an address depends on who else wants one. Its work follows owners and
// addresses that are given away, and it is done when one of those changes, a pool, or
// a machine's address: never for a route or an endpoint.
func (t *vipTables) assign(c *memo.Context, _ memo.Unit) (struct{}, bool) {
	a := &assigner{
		byName: map[string]*poolBook{}, wantOf: map[model.Object]*want{}, own: t.fleet.own.Get(c, memo.Unit{}),
		labels: func(namespace string) map[string]string { return t.in.labels.Get(c, namespace) }, tlsAt: map[string]bool{},
	}
	for _, name := range t.in.poolNames.Get(c, memo.Unit{}) {
		p := &poolBook{poolFact: t.pool.pools.Get(c, name), stored: t.pool.records.Get(c, name)}
		if p.poolFact != nil {
			a.pools = append(a.pools, p)
			a.byName[name] = p
		}
	}
	a.wants, a.refused = joinWants(t.wants.Get(c, memo.Unit{}))
	for _, w := range a.wants {
		a.wantOf[w.owner] = w
	}
	sharing := t.sharing.Get(c, memo.Unit{})
	a.sharing = slices.Sorted(sharing.Keys())
	a.run()
	t.putOutcomes(c, a, sharing)
	t.putGrants(c, a)
	for _, p := range a.pools {
		t.poolOutcomes.Put(c, p.name, memo.Unit{}, &p.out)
	}
	return struct{}{}, false
}

// putOutcomes says what became of each owner.
func (t *vipTables) putOutcomes(c *memo.Context, a *assigner, sharing memo.Parts[string, bool]) {
	put := func(owner model.Object, o *outcome) { t.outcomes.Put(c, owner, memo.Unit{}, o) }
	for _, w := range a.wants {
		o := a.outcomeOf(w.owner, w.owner, func(held) bool { return true })
		if o != nil && len(w.sharers) == 0 {
			put(w.owner, o)
		}
		for _, s := range w.sharers {
			if s.guest() {
				put(s.owner, a.outcomeOfGuest(w, s))
			} else if o != nil {
				put(s.owner, o)
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
		if o := a.outcomeOf(sharedIn(namespace), model.SharingIngressRoutes(), func(h held) bool { return pools[familyOf(h.address)] == h.pool }); o != nil {
			put(sharedIn(namespace), o)
		}
	}
}

// putGrants says which addresses are recorded, and where those of each pool lead.
func (t *vipTables) putGrants(c *memo.Context, a *assigner) {
	leadsTo := map[string]listenerSet{}
	for address, h := range a.taken {
		if !h.kept {
			continue
		}
		g := grant{pool: h.pool, owner: h.owner, listeners: []model.ListenerID{t.in.config.clearID()}}
		if a.tlsAt[h.pool] {
			g.listeners = append(g.listeners, t.in.config.tlsID())
		}
		if w := a.wantOf[h.owner]; w != nil {
			g.listeners, g.members = w.listeners, a.sharersAt(h.pool, w)
		}
		t.grants.Put(c, address, memo.Unit{}, g)
		for _, id := range g.listeners {
			if leadsTo[g.pool] == nil {
				leadsTo[g.pool] = listenerSet{}
			}
			leadsTo[g.pool][id] = struct{}{}
		}
	}
	for pool, listeners := range leadsTo {
		t.leadsTo.Put(c, pool, memo.Unit{}, listeners)
	}
}

// hasShared says that a machine has listeners that edges share at their own addresses: of some of them at
// least, where a pool has chosen it.
func (t *vipTables) hasShared(c *memo.Context, machine string) bool {
	if !t.fleet.isChosen(c, machine) {
		return true
	}
	for pool := range t.fleet.selectedBy.Get(c, machine).All() {
		for id := range t.leadsTo.Get(c, pool) {
			if !id.Own() {
				return true
			}
		}
	}
	return false
}

// sharedAddresses gathers where clients reach what all edges share: what agents reported and
// their machines have, of those that take new work and have it, sorted, each once.
func (t *vipTables) sharedAddresses(c *memo.Context, _ memo.Unit) ([]string, bool) {
	var found []netip.Addr
	for _, o := range t.in.allMachines.Get(c, memo.Unit{}).All() {
		if o.Spec.Cordoned || o.Spec.Role == v1alpha1.RoleBackend || !t.hasShared(c, o.Name) {
			continue
		}
		for _, claim := range claimsOf(o) {
			if claim.status && t.fleet.holders.Get(c, claim.address) == o.Name {
				found = append(found, claim.address)
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

// loadBalancerStatus lists addresses in the form that Services and IngressRoutes share.
func loadBalancerStatus(o *outcome) corev1.LoadBalancerStatus {
	var status corev1.LoadBalancerStatus
	if o == nil {
		return status
	}
	for _, a := range o.addresses {
		mode := corev1.LoadBalancerIPModeVIP
		status.Ingress = append(status.Ingress, corev1.LoadBalancerIngress{IP: a.String(), IPMode: &mode})
	}
	return status
}
