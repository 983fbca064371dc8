package vip

import (
	"iter"
	"net/netip"
	"slices"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/translate/fleet"
)

// foreignIn names the first few addresses of a pool that somebody has already, as endpoints or in
// another way. An address that is somebody's VIP is none: a machine that announces it may report it.
// refuses says that the pool is not for VIPs: what one machine alone reports does not say so.
func (a *assigner) foreignIn(p *poolBook, endpoints bool) (reason string, texts []string, refuses bool) {
	const most = 3
	reason = v1alpha1.ReasonMachineAddress
	reporter := ""
	for _, o := range a.own {
		if _, vip := a.taken[o.Address]; vip || o.Endpoint != endpoints || !p.Has(o.Address) {
			continue
		}
		switch {
		case o.Machine == "":
			reason, refuses = v1alpha1.ReasonAddressInUse, true
		case o.Named || reporter != "" && reporter != o.Machine:
			refuses = true
		default:
			reporter = o.Machine
		}
		if len(texts) < most {
			texts = append(texts, o.Address.String()+" is "+o.What)
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
		if !o.Endpoint {
			return o.What, true
		}
	}
	return "", false
}

// isEndpoint says that somebody has an address for an endpoint.
func (a *assigner) isEndpoint(address netip.Addr) bool {
	for o := range a.ownAt(address) {
		if o.Endpoint {
			return true
		}
	}
	return false
}

// ownAt is who has an address.
func (a *assigner) ownAt(address netip.Addr) iter.Seq[fleet.OwnAddress] {
	return func(yield func(fleet.OwnAddress) bool) {
		i, _ := slices.BinarySearchFunc(a.own, address, func(o fleet.OwnAddress, x netip.Addr) int { return o.Address.Compare(x) })
		for ; i < len(a.own) && a.own[i].Address == address && yield(a.own[i]); i++ {
		}
	}
}
