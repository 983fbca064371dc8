package translate

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// computeAssign gives the addresses of all pools to all owners. It is one node: who
// gets an address depends on who else wants one. Its work follows owners and
// addresses that are given away, and it is done when one of those changes, a pool, or
// a machine's address: never for a route or an endpoint.
func (t *Translator) computeAssign(r reader) {
	a := &assigner{
		byName: map[string]*poolBook{}, wantOf: map[model.Object]*want{}, own: r.own(),
		labels: r.labelsOf, tlsAt: map[string]bool{},
	}
	for _, name := range r.poolNames() {
		p := &poolBook{poolFact: r.pool(name), stored: r.poolRecord(name)}
		if p.poolFact != nil {
			a.pools = append(a.pools, p)
			a.byName[name] = p
		}
	}
	a.wants, a.refused = joinWants(t.wants)
	for _, w := range a.wants {
		a.wantOf[w.owner] = w
	}
	for namespace := range t.sharing {
		a.sharing = append(a.sharing, namespace)
	}
	slices.Sort(a.sharing)
	a.run()
	t.takeOutcomes(a)
	t.takeGrants(a)
	for name := range t.poolOutcomes {
		if a.byName[name] == nil {
			delete(t.poolOutcomes, name)
			t.graph.mark(node{kind: nodePoolStatus, a: name})
		}
	}
	for _, p := range a.pools {
		update(t, node{kind: nodePoolOutcome, a: p.name}, t.poolOutcomes, p.name, &p.out)
	}
}

// takeOutcomes keeps what became of each owner, and tells those that show it.
func (t *Translator) takeOutcomes(a *assigner) {
	fresh := make(map[model.Object]*outcome, len(a.wants)+len(a.sharing))
	for _, w := range a.wants {
		o := a.outcomeOf(w.owner, w.owner, func(held) bool { return true })
		if o != nil && len(w.sharers) == 0 {
			fresh[w.owner] = o
		}
		for _, s := range w.sharers {
			if s.guest() {
				fresh[s.owner] = a.outcomeOfGuest(w, s)
			} else if o != nil {
				fresh[s.owner] = o
			}
		}
	}
	maps.Copy(fresh, a.refused)
	for _, namespace := range a.sharing {
		pools := a.sharedPools(namespace)
		for _, pool := range pools {
			a.tlsAt[pool] = a.tlsAt[pool] || t.sharingTLS[namespace] > 0
		}
		if o := a.outcomeOf(sharedIn(namespace), model.SharingIngressRoutes(), func(h held) bool { return pools[familyOf(h.address)] == h.pool }); o != nil {
			fresh[sharedIn(namespace)] = o
		}
	}
	for owner := range t.outcomes {
		if fresh[owner] == nil {
			update(t, outcomeNode(owner), t.outcomes, owner, nil)
		}
	}
	for owner, o := range fresh {
		update(t, outcomeNode(owner), t.outcomes, owner, o)
	}
}

// takeGrants keeps the addresses that are recorded: those that may be used.
func (t *Translator) takeGrants(a *assigner) {
	fresh := make(map[netip.Addr]grant, len(a.taken))
	for address, h := range a.taken {
		if !h.kept {
			continue
		}
		g := grant{pool: h.pool, owner: h.owner, listeners: []model.ListenerID{t.config.clearID()}}
		if a.tlsAt[h.pool] {
			g.listeners = append(g.listeners, t.config.tlsID())
		}
		if w := a.wantOf[h.owner]; w != nil {
			g.listeners, g.members = w.listeners, a.sharersAt(h.pool, w)
		}
		fresh[address] = g
	}
	t.noteGrants(fresh)
	for address := range t.grants {
		if _, stays := fresh[address]; !stays {
			delete(t.grants, address)
			t.graph.mark(vipNode(address))
			t.graph.mark(frontendsNode(address))
		}
	}
	for address, g := range fresh {
		if old, known := t.grants[address]; !known || old.pool != g.pool || old.owner != g.owner || !slices.Equal(old.listeners, g.listeners) || !slices.Equal(old.members, g.members) {
			t.grants[address] = g
			t.graph.mark(vipNode(address))
			t.graph.mark(frontendsNode(address))
		}
	}
}

func outcomeNode(o model.Object) node {
	return node{kind: nodeOutcome, a: o.Kind, b: o.Namespace, c: o.Name}
}

func vipNode(a netip.Addr) node { return node{kind: nodeVIP, a: a.String()} }

// computeVIP brings an address that may be used to the machines of its pool. They all
// share one VIP, so that it is compared once and not for each.
func (t *Translator) computeVIP(r reader, n node) {
	address := netip.MustParseAddr(n.a)
	var before, machines []string
	if old := t.result.Assignments[address]; old != nil {
		before = old.Machines
	}
	var assignment *model.Assignment
	var vip *model.VIP
	if g, granted := t.grants[address]; granted {
		f, selection := r.pool(g.pool), r.selection(g.pool)
		machines = selection.machines
		assignment = &model.Assignment{
			Address: address, Pool: g.pool, Owner: g.owner, Mode: f.mode, Listeners: g.listeners, Machines: machines,
		}
		vip = &model.VIP{Address: address, Pool: g.pool, Mode: f.mode, Listeners: g.listeners, Path: f.path, Interfaces: f.interfaces}
		r.t.graph.read(r.by, frontendsNode(address))
		if at := t.frontendsAt[address]; at != nil {
			vip.Frontends = at.keys
		}
		if f.mode == model.AnnounceL2 {
			vip.Candidates = selection.candidates(address)
		}
	}
	at := func(machine string) model.VIPKey { return model.VIPKey{Machine: machine, Address: address} }
	if len(before) > 0 && vip != nil && reflect.DeepEqual(t.result.VIPs[at(before[0])], vip) {
		vip = t.result.VIPs[at(before[0])]
	}
	same := func(a, b *model.VIP) bool { return a == b }
	for _, machine := range machines {
		publishBy(t.result.VIPs, t.out.VIPs, at(machine), vip, same)
	}
	for _, machine := range before {
		if _, stays := slices.BinarySearch(machines, machine); !stays {
			publish(t.result.VIPs, t.out.VIPs, at(machine), nil)
		}
	}
	publish(t.result.Assignments, t.out.Assignments, address, assignment)
}

func poolObject(name string) model.Object {
	return model.Object{Kind: string(snapshot.KindAddressPool), Name: name}
}

// computePoolStatus writes a pool's whole status, the record of its assignments among it.
func (t *Translator) computePoolStatus(r reader, n node) {
	o := r.s.AddressPools[snapshot.Name{Name: n.a}]
	if o == nil {
		publish(t.result.Statuses, t.out.Statuses, poolObject(n.a), nil)
		return
	}
	out, f := r.poolOutcome(n.a), r.pool(n.a)
	status := &v1alpha1.AddressPoolStatus{Assigned: int32(len(out.records))}
	var free []string
	for fam := range families {
		if len(f.ranges[fam]) > 0 {
			free = append(free, freeText(out.free[fam])+" "+fam.String())
		}
	}
	status.Free = strings.Join(free, ", ")
	for _, rec := range out.records {
		status.Assignments = append(status.Assignments, v1alpha1.Assignment{
			Address: rec.address.String(), Kind: rec.owner.Kind, Namespace: rec.owner.Namespace, Name: rec.owner.Name,
		})
	}
	reason, message := v1alpha1.ReasonAccepted, "the pool is accepted"
	if out.accepted.failed {
		reason, message = out.accepted.reason, out.accepted.message
		if len(out.records) > 0 {
			message += "; what the pool gave away stays"
		}
	}
	notes := slices.Clone(out.notes)
	if selection := r.selection(n.a); selection != nil {
		if len(selection.machines) == 0 {
			notes = append(notes, "no machine announces its addresses: it selects no Machine of role Edge")
		}
		notes = append(notes, alsoHeld(out.records, r.own(), selection.machines)...)
	}
	switch {
	case f.mode == model.AnnounceBGP && len(o.Spec.Interfaces) > 0:
		notes = append(notes, "spec.interfaces is not used: it is for announce: L2")
	case f.mode == model.AnnounceL2 && !reflect.DeepEqual(o.Spec.BGP, v1alpha1.PathAttributes{}):
		notes = append(notes, "spec.bgp is not used: it is for announce: BGP")
	}
	message = withNotes(message, notes)
	status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionAccepted, !out.accepted.failed, reason, message, o.Generation)}
	publish(t.result.Statuses, t.out.Statuses, poolObject(n.a), &Status{Generation: o.Generation, AddressPool: status})
}

// ingressStatus lists addresses in the form that Services and IngressRoutes share.
func ingressStatus(o *outcome) corev1.LoadBalancerStatus {
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

// Settle translates a snapshot as it will be once the assignments of its pools are
// recorded: it writes them into the pools of the snapshot, which it replaces. Machines
// are told of an address only after its record, so a translation of manifests alone
// shows none.
func Settle(c Config, s *snapshot.Snapshot) *Translator {
	t, _ := Full(c, s)
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
		status := t.result.Statuses[poolObject(n.Name)]
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
