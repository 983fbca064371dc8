package translate

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
)

// ownAddress is an address that somebody has who is no owner of VIPs, so that it cannot be
// one.
type ownAddress struct {
	address netip.Addr
	machine string // who claims it; empty where it is no machine's
	held    bool   // that machine has it, alone
	named   bool   // its Machine's spec says so, and not only what it reports
	what    string // what it is, for people: "an address of Machine a"
	// endpoint says that it is one, of whomever: it may be a VIP that somebody has.
	endpoint bool
}

// foreignEntry are the addresses of pools that a Service or its endpoints have, and those that
// another load balancer gave a Service. There may be very many, so that those are kept only that are in a pool.
type foreignEntry struct {
	addresses []netip.Addr  // sorted
	shown     []netip.Addr  // that another load balancer gave a Service, sorted
	service   snapshot.Name // of an EndpointSlice
}

func (e foreignEntry) same(o foreignEntry) bool {
	return slices.Equal(e.addresses, o.addresses) && slices.Equal(e.shown, o.shown) && e.service == o.service
}

// scanForeign notes what objects of a kind have of the pools.
func scanForeign[O any](g *memo.Graph, t *fleetTables, kind snapshot.Kind, in *objects[O], of func(o *O, among func([]string) []netip.Addr) foreignEntry) {
	memo.NewScan(g, "foreign addresses of "+string(kind)+"s", in, func(c *memo.Context, n snapshot.Name, o *O) {
		ranges := t.pool.ranges.Get(c, memo.Unit{})
		if len(ranges[ipv4])+len(ranges[ipv6]) == 0 {
			return
		}
		e := of(o, func(texts []string) []netip.Addr { return amongRanges(ranges, texts) })
		if len(e.addresses)+len(e.shown) > 0 {
			t.foreign.Put(c, memo.Unit{}, snapshot.Key{Kind: kind, Name: n}, e)
		}
	}, memo.Reads(t.pool.ranges), memo.Puts(t.foreign))
}

func foreignOfService(o *corev1.Service, among func([]string) []netip.Addr) foreignEntry {
	addresses := o.Spec.ClusterIPs
	if len(addresses) == 0 {
		addresses = []string{o.Spec.ClusterIP}
	}
	var shown []string
	if o.Spec.Type == corev1.ServiceTypeLoadBalancer && !isOurs(o) {
		for _, ingress := range o.Status.LoadBalancer.Ingress {
			shown = append(shown, ingress.IP)
		}
	}
	return foreignEntry{addresses: among(addresses), shown: among(shown)}
}

func foreignOfSlice(o *discoveryv1.EndpointSlice, among func([]string) []netip.Addr) foreignEntry {
	var addresses []string
	for _, endpoint := range o.Endpoints {
		addresses = append(addresses, endpoint.Addresses...)
	}
	e := foreignEntry{addresses: among(addresses)}
	e.service, _ = serviceOfSlice(o)
	if e.service.Name == "" {
		e.service = snapshot.Name{}
	}
	return e
}

// amongRanges are the addresses that are in a pool, sorted.
func amongRanges(ranges [families][]addrRange, texts []string) (list []netip.Addr) {
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		if a = a.Unmap().WithZone(""); inRanges(ranges, a) {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// makeOwn gathers the addresses that machines, their peers, Services and endpoints have
// themselves. Cordoned machines have theirs too.
func (t *fleetTables) makeOwn(c *memo.Context, _ memo.Unit) ([]ownAddress, bool) {
	var own []ownAddress
	add := func(text string, o ownAddress) {
		if a, ok := machineAddress(text); ok {
			o.address, o.held = a, o.machine != "" && t.holders.Get(c, a) == o.machine
			own = append(own, o)
		}
	}
	for _, o := range t.in.allMachines.Get(c, memo.Unit{}).All() {
		for _, text := range o.Spec.Addresses {
			add(text, ownAddress{machine: o.Name, named: true, what: "an address of Machine " + o.Name})
		}
		for _, text := range o.Status.Addresses {
			if !slices.Contains(o.Spec.Addresses, text) {
				add(text, ownAddress{machine: o.Name, what: "an address of Machine " + o.Name})
			}
		}
		for _, text := range o.Spec.TunnelAddresses {
			add(text, ownAddress{machine: o.Name, named: true, what: "a tunnel address of Machine " + o.Name})
		}
	}
	for _, o := range t.in.allPeers.Get(c, memo.Unit{}).All() {
		add(o.Spec.Address, ownAddress{what: "the address of BGPPeer " + o.Name})
		if former := t.formerPeer(o); former != nil && former.Address != o.Spec.Address {
			add(former.Address, ownAddress{what: "the address of BGPPeer " + o.Name})
		}
	}
	for k, entry := range t.foreign.Get(c, memo.Unit{}).All() {
		o := ownAddress{what: "the cluster IP of " + serviceOwner(k.Name).String()}
		if k.Kind == snapshot.KindEndpointSlice {
			o = ownAddress{what: "an endpoint of EndpointSlice " + k.Name.String(), endpoint: true}
			if entry.service == apiService && k.Name == apiService {
				o.endpoint = false // the API's own machines, which it writes itself
			}
			if entry.service != (snapshot.Name{}) {
				o.what = "an endpoint of " + serviceOwner(entry.service).String()
			}
		}
		for _, a := range entry.addresses {
			add(a.String(), o)
		}
		for _, a := range entry.shown {
			add(a.String(), ownAddress{what: "the load balancer address of " + serviceOwner(k.Name).String()})
		}
	}
	slices.SortFunc(own, func(a, b ownAddress) int {
		return cmp.Or(a.address.Compare(b.address), -cmp.Compare(a.machine, b.machine), cmp.Compare(a.what, b.what))
	})
	return slices.Compact(own), true
}

// alsoHeld says which addresses that a pool gave away somebody else has, too. A machine that
// announces an address may report it, and a VIP may be an endpoint of somebody else's.
func alsoHeld(records []record, own []ownAddress, announcers []string) []string {
	var notes []string
	for _, rec := range records {
		i, _ := slices.BinarySearchFunc(own, rec.address, func(o ownAddress, a netip.Addr) int { return o.address.Compare(a) })
		for ; i < len(own) && own[i].address == rec.address; i++ {
			o := own[i]
			if o.endpoint || o.machine != "" && slices.Contains(announcers, o.machine) {
				continue
			}
			const most = 3
			if len(notes) == most {
				return append(notes, "and more")
			}
			notes = append(notes, rec.address.String()+", which "+rec.owner.Words()+" has, is "+o.what+" too: clients reach one of the two; give one another address")
		}
	}
	return notes
}

// foreignIn names the first few addresses of a pool that somebody has already, as endpoints or in
// another way. An address that is somebody's VIP is none: a machine that announces it may report it.
// refuses says that the pool is not for VIPs: what one machine alone reports does not say so.
func (a *assigner) foreignIn(p *poolBook, endpoints bool) (reason string, texts []string, refuses bool) {
	const most = 3
	reason = v1alpha1.ReasonMachineAddress
	reporter := ""
	for _, o := range a.own {
		if _, vip := a.taken[o.address]; vip || o.endpoint != endpoints || !p.has(o.address) {
			continue
		}
		switch {
		case o.machine == "":
			reason, refuses = v1alpha1.ReasonAddressInUse, true
		case o.named || reporter != "" && reporter != o.machine:
			refuses = true
		default:
			reporter = o.machine
		}
		if len(texts) < most {
			texts = append(texts, o.address.String()+" is "+o.what)
		} else if len(texts) == most {
			texts = append(texts, "...")
		}
		if len(texts) > most && refuses && reason == v1alpha1.ReasonAddressInUse {
			break
		}
	}
	return reason, texts, refuses
}

// isOwn says what an address is that somebody has already, but for endpoints: everybody who may write
// EndpointSlices could keep all addresses of a pool from everybody else.
func (a *assigner) isOwn(address netip.Addr) (what string, is bool) {
	for o := range a.ownAt(address) {
		if !o.endpoint {
			return o.what, true
		}
	}
	return "", false
}

// isEndpoint says that somebody has an address for an endpoint.
func (a *assigner) isEndpoint(address netip.Addr) bool {
	for o := range a.ownAt(address) {
		if o.endpoint {
			return true
		}
	}
	return false
}

// ownAt is who has an address.
func (a *assigner) ownAt(address netip.Addr) iter.Seq[ownAddress] {
	return func(yield func(ownAddress) bool) {
		i, _ := slices.BinarySearchFunc(a.own, address, func(o ownAddress, x netip.Addr) int { return o.address.Compare(x) })
		for ; i < len(a.own) && a.own[i].address == address && yield(a.own[i]); i++ {
		}
	}
}
