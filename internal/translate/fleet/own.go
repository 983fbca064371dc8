package fleet

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/pool"
)

// OwnAddress is an address that somebody has who is no owner of VIPs, so that it cannot be
// one.
type OwnAddress struct {
	Address netip.Addr
	Machine string // that reports it; empty where it is no machine's
	Held    bool   // that machine has it, alone
	Named   bool   // its Machine's spec says so, and not only what it reports
	What    string // what it is, for people: "an address of Machine a"
	// Endpoint says that it is one, of whomever: it may be a VIP that somebody has.
	Endpoint bool
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
func scanForeign[O any](g *memo.Graph, t *Tables, kind snapshot.Kind, in *input.Objects[O], of func(o *O, among func([]string) []netip.Addr) foreignEntry) {
	memo.NewScan(g, "foreign addresses of "+string(kind)+"s", in, func(c *memo.Context, n snapshot.Name, o *O) {
		ranges := t.from.Pool.Ranges.Get(c, memo.Unit{})
		if len(ranges[address.IPv4])+len(ranges[address.IPv6]) == 0 {
			return
		}
		e := of(o, func(texts []string) []netip.Addr { return amongRanges(ranges, texts) })
		if len(e.addresses)+len(e.shown) > 0 {
			t.foreign.Put(c, memo.Unit{}, snapshot.Key{Kind: kind, Name: n}, e)
		}
	}, memo.Reads(t.from.Pool.Ranges), memo.Puts(t.foreign))
}

func foreignOfService(o *corev1.Service, among func([]string) []netip.Addr) foreignEntry {
	addresses := o.Spec.ClusterIPs
	if len(addresses) == 0 {
		addresses = []string{o.Spec.ClusterIP}
	}
	var shown []string
	if o.Spec.Type == corev1.ServiceTypeLoadBalancer && !input.IsOurs(o) {
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
	e.service, _ = input.ServiceOfSlice(o)
	if e.service.Name == "" {
		e.service = snapshot.Name{}
	}
	return e
}

// amongRanges are the addresses that are in a pool, sorted.
func amongRanges(ranges [address.Families][]address.Range, texts []string) (list []netip.Addr) {
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		if a = a.Unmap().WithZone(""); address.InRanges(ranges, a) {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list)
}

// makeOwn gathers the addresses that machines, their peers, Services and endpoints have
// themselves. Cordoned machines have theirs too.
func (t *Tables) makeOwn(c *memo.Context, _ memo.Unit) ([]OwnAddress, bool) {
	var own []OwnAddress
	add := func(text string, o OwnAddress) {
		if a, ok := machineAddress(text); ok {
			o.Address, o.Held = a, o.Machine != "" && t.Holders.Get(c, a) == o.Machine
			own = append(own, o)
		}
	}
	for _, o := range t.in.AllMachines.Get(c, memo.Unit{}).All() {
		for _, text := range o.Spec.Addresses {
			add(text, OwnAddress{Machine: o.Name, Named: true, What: "an address of Machine " + o.Name})
		}
		for _, text := range o.Status.Addresses {
			if !slices.Contains(o.Spec.Addresses, text) {
				add(text, OwnAddress{Machine: o.Name, What: "an address of Machine " + o.Name})
			}
		}
		for _, text := range o.Spec.TunnelAddresses {
			add(text, OwnAddress{Machine: o.Name, Named: true, What: "a tunnel address of Machine " + o.Name})
		}
	}
	for _, o := range t.in.AllPeers.Get(c, memo.Unit{}).All() {
		add(o.Spec.Address, OwnAddress{What: "the address of BGPPeer " + o.Name})
		if former := t.formerPeer(c, o); former != nil && former.Address != o.Spec.Address {
			add(former.Address, OwnAddress{What: "the address of BGPPeer " + o.Name})
		}
	}
	for k, entry := range t.foreign.Get(c, memo.Unit{}).All() {
		o := OwnAddress{What: "the cluster IP of " + input.Object(snapshot.KindService, k.Name).String()}
		if k.Kind == snapshot.KindEndpointSlice {
			o = OwnAddress{What: "an endpoint of EndpointSlice " + k.Name.String(), Endpoint: true}
			if entry.service == input.APIService && k.Name == input.APIService {
				o.Endpoint = false // the API's own machines, which it writes itself
			}
			if entry.service != (snapshot.Name{}) {
				o.What = "an endpoint of " + input.Object(snapshot.KindService, entry.service).String()
			}
		}
		for _, a := range entry.addresses {
			add(a.String(), o)
		}
		for _, a := range entry.shown {
			add(a.String(), OwnAddress{What: "the load balancer address of " + input.Object(snapshot.KindService, k.Name).String()})
		}
	}
	slices.SortFunc(own, func(a, b OwnAddress) int {
		return cmp.Or(a.Address.Compare(b.Address), -cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.What, b.What))
	})
	return slices.Compact(own), true
}

// AlsoHeld says which addresses that a pool gave away somebody else has, too. A machine that
// announces an address may report it, and a VIP may be an endpoint of somebody else's.
func AlsoHeld(records []pool.Assignment, own []OwnAddress, announcers []string) []string {
	var notes []string
	for _, rec := range records {
		i, _ := slices.BinarySearchFunc(own, rec.Address, func(o OwnAddress, a netip.Addr) int { return o.Address.Compare(a) })
		for ; i < len(own) && own[i].Address == rec.Address; i++ {
			o := own[i]
			if o.Endpoint || o.Machine != "" && slices.Contains(announcers, o.Machine) {
				continue
			}
			const most = 3
			if len(notes) == most {
				return append(notes, "and more")
			}
			notes = append(notes, rec.Address.String()+", which "+rec.Owner.Describe()+" has, is "+o.What+" too: clients reach one of the two; give one another address")
		}
	}
	return notes
}
