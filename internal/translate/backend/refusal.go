package backend

import (
	"net/netip"
	"slices"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/input"
)

// refusing says which endpoints are refused: those that are of each machine itself, or tell it its cloud's
// secrets; and, unless their Namespace allows them, those in AddressPools, at the Kubernetes API, where agents
// call this plane (a machine that came there by way of an edge would prove the edge's address to be its own,
// ADR 50), and in ranges that the operator refuses. Everybody who may write EndpointSlices can name any
// address. There may be very many endpoints, so that only suspects are kept.
type refusing struct {
	operator [address.Families][]address.Range // that the operator refuses
	pools    [address.Families][]address.Range
	api      []netip.AddrPort // where the Kubernetes API answers, sorted
	agents   []netip.AddrPort // where agents call this plane, sorted
}

func (t *Tables) makeRefusing(c *memo.Context, _ memo.Unit) (*refusing, bool) {
	own := t.in.Own.Get(c, memo.Unit{})
	return &refusing{
		operator: address.RangesOf(t.in.Config.RefusedEndpoints), pools: t.from.Pool.Ranges.Get(c, memo.Unit{}),
		api: t.endpointsOfAPI(c, own), agents: sortedEndpoints(own.Agents),
	}, true
}

// endpointsOfAPI are where the Kubernetes API answers: where the plane's own does, else where its own
// EndpointSlice says, which it writes and repairs. Others with its label do not count: with them, their writers
// could have the endpoints of others refused.
func (t *Tables) endpointsOfAPI(c *memo.Context, own snapshot.Own) []netip.AddrPort {
	api := slices.Clone(own.API)
	if o := t.in.EndpointSlices.Get(c, input.APIService); len(api) == 0 && o != nil {
		if service, _ := input.ServiceOfSlice(o); service == input.APIService {
			for i := range o.Endpoints {
				if a, ok := endpointAddress(&o.Endpoints[i]); ok {
					for _, port := range endpointPorts(o) {
						api = append(api, netip.AddrPortFrom(a, port))
					}
				}
			}
		}
	}
	return sortedEndpoints(api)
}

func sortedEndpoints(list []netip.AddrPort) []netip.AddrPort {
	return slices.Compact(slices.SortedFunc(slices.Values(list), netip.AddrPort.Compare))
}

// suspects are the suspects of an EndpointSlice, sorted; nil when there are none. Namespace default may have
// the Kubernetes API as a backend: its Service is there.
func (x *refusing) suspects(o *discoveryv1.EndpointSlice) []netip.AddrPort {
	if o == nil || o.AddressType != discoveryv1.AddressTypeIPv4 && o.AddressType != discoveryv1.AddressTypeIPv6 {
		return nil
	}
	var ports []uint16 // there may be 20,000 of them, and as many endpoints
	var list []netip.AddrPort
	for i := range o.Endpoints {
		a, ok := endpointAddress(&o.Endpoints[i])
		if !ok {
			if a.IsValid() {
				list = append(list, netip.AddrPortFrom(a, 0))
			}
			continue
		}
		if e := netip.AddrPortFrom(a, 0); x.refuses(e, [address.Families][]address.Range{}) {
			list = append(list, e)
		}
		known := x.agents
		if o.Namespace != input.APIService.Namespace {
			known = slices.Concat(known, x.api)
		}
		for _, at := range leadingTo(known, a) {
			if ports == nil {
				ports = endpointPorts(o)
			}
			if _, found := slices.BinarySearch(ports, at.Port()); found {
				list = append(list, netip.AddrPortFrom(a, at.Port()))
			}
		}
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	return slices.Compact(list)
}

// leadingTo are the known endpoints at an address, or where that leads to.
func leadingTo(known []netip.AddrPort, a netip.Addr) (list []netip.AddrPort) {
	inner, leads := model.Embedded(a)
	for _, at := range known {
		if at.Addr() == a || leads && at.Addr() == inner {
			list = append(list, at)
		}
	}
	return list
}

// refuses reports whether an endpoint is refused to a Namespace that allows ranges. With port 0 it is held
// against pools and the operator's ranges, with another one against the API and the plane.
func (x *refusing) refuses(e netip.AddrPort, allowed [address.Families][]address.Range) bool {
	a := e.Addr()
	if !model.Reachable(a) {
		return true
	}
	if inner, is := model.Embedded(a); is && x.refuses(netip.AddrPortFrom(inner, e.Port()), allowed) {
		return true // whoever allows the one has not allowed the other
	}
	if address.InRanges(allowed, a) {
		return false
	}
	if e.Port() != 0 {
		return among(x.api, e) || among(x.agents, e)
	}
	return address.InRanges(x.pools, a) || address.InRanges(x.operator, a)
}

// among says whether an endpoint is in a sorted list.
func among(sorted []netip.AddrPort, e netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(sorted, e, netip.AddrPort.Compare)
	return found
}

// addRefusals adds to a Service which of its endpoints are refused, and why.
func (t *Tables) addRefusals(c *memo.Context, n snapshot.Name, f *Service, of memo.Parts[snapshot.Name, peculiarities]) {
	var list []netip.AddrPort
	for _, p := range of.All() {
		list = append(list, p.suspects...)
	}
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, netip.AddrPort.Compare)
	refusing, allowed := t.refusing.Get(c, memo.Unit{}), allowance{}
	if a := t.allowances.Get(c, n.Namespace); a != nil {
		allowed = *a
	}
	list = slices.DeleteFunc(slices.Compact(list), func(e netip.AddrPort) bool { return !refusing.refuses(e, allowed.ranges) })
	if len(list) == 0 {
		return
	}
	f.refused, f.Refusal = list, t.refusalText(c, n.Namespace, list, allowed)
	for i := range f.Ports {
		f.Ports[i].Refusal = f.Refusal
	}
}

// refusalText says how many addresses are refused, which is the first, why, and what allows it. One that can be allowed
// comes before those that nothing allows: whoever reads it can do something about it.
func (t *Tables) refusalText(c *memo.Context, namespace string, refused []netip.AddrPort, allowed allowance) string {
	count := 0
	for i, e := range refused {
		if i == 0 || e.Addr() != refused[i-1].Addr() {
			count++
		}
	}
	named, can := refused[0], slices.IndexFunc(refused, func(e netip.AddrPort) bool { return model.Reachable(e.Addr()) })
	if can >= 0 {
		named = refused[can]
	}
	first, why := endpointText(named), t.whyRefused(c, named, allowed)
	text, them := "1 endpoint address is refused: "+first+" "+why, "it"
	if count > 1 {
		text, them = strconv.Itoa(count)+" endpoint addresses are refused: the first, "+first+", "+why, "them"
	}
	if can < 0 {
		return text + " (nothing allows it)"
	}
	if slices.ContainsFunc(refused, func(e netip.AddrPort) bool { return !model.Reachable(e.Addr()) }) {
		them = "some of " + them
	}
	how := "can allow " + them
	if allowed.problem != "" {
		how = "allows nothing: " + allowed.problem
	}
	return text + " (annotation " + v1alpha1.AnnotationAllowEndpoints + " of Namespace " + namespace + " " + how + ")"
}

// whyRefused says what is at an endpoint that is refused. It names no range of the operator's: tenants read it.
func (t *Tables) whyRefused(c *memo.Context, e netip.AddrPort, allowed allowance) string {
	refusing := t.refusing.Get(c, memo.Unit{})
	if inner, is := model.Embedded(e.Addr()); is {
		if within := netip.AddrPortFrom(inner, e.Port()); refusing.refuses(within, allowed.ranges) {
			return "leads to " + endpointText(within) + ", which " + t.whyRefused(c, within, allowed)
		}
	}
	switch {
	case !model.Reachable(e.Addr()):
		return "means each machine itself, or is where clouds answer their machines"
	case e.Port() == 0:
	case among(refusing.agents, e):
		return "is where agents call the plane"
	default:
		return "is the Kubernetes API"
	}
	for _, name := range t.in.PoolNames.Get(c, memo.Unit{}) {
		if p := t.from.Pool.Pools.Get(c, name); p != nil && address.InRanges(p.Ranges, e.Addr()) {
			return "is in AddressPool " + name
		}
	}
	return "is in a range that operators refuse"
}

// endpointText is the address, with the port where it matters.
func endpointText(e netip.AddrPort) string {
	if e.Port() == 0 {
		return e.Addr().String()
	}
	return e.String()
}

// accept leaves out backends at endpoints that are refused. It may change the list.
func (f *Service) accept(backends []model.Backend) []model.Backend {
	if len(f.refused) == 0 {
		return backends
	}
	backends = slices.DeleteFunc(backends, func(b model.Backend) bool {
		return among(f.refused, netip.AddrPortFrom(b.Address.Addr(), 0)) || among(f.refused, b.Address)
	})
	if len(backends) == 0 {
		return nil
	}
	return backends
}

// endpointAddress is where an endpoint is. It is not ok where no traffic may be sent to.
func endpointAddress(e *discoveryv1.Endpoint) (a netip.Addr, ok bool) {
	if len(e.Addresses) == 0 {
		return a, false
	}
	a, err := netip.ParseAddr(e.Addresses[0]) // further ones have no meaning (discovery/v1)
	a = a.Unmap()
	return a, err == nil && model.Reachable(a)
}

// endpointPorts are the ports of an EndpointSlice, sorted.
func endpointPorts(o *discoveryv1.EndpointSlice) []uint16 {
	var ports []uint16
	for _, p := range o.Ports {
		if p.Port != nil && *p.Port >= 1 && *p.Port <= 65535 {
			ports = append(ports, uint16(*p.Port))
		}
	}
	slices.Sort(ports)
	return ports
}
