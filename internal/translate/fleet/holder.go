package fleet

import (
	"net/netip"
	"slices"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
)

// ReportedAddress is an address that a machine claims. The plane lets only those into a status that are
// proven, or that an operator has said (ADR 50).
type ReportedAddress struct {
	Address netip.Addr
	machine string
	spec    bool // its spec says it
	Status  bool // its status shows it
}

// machineAddress reads an address of a Machine; false for one that nobody is reached at.
func machineAddress(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	a = a.Unmap()
	return a, err == nil && model.Reachable(a)
}

// ClaimsOf are what a Machine claims, sorted by address, each once.
func ClaimsOf(o *v1alpha1.Machine) []ReportedAddress {
	if o == nil {
		return nil
	}
	by := map[netip.Addr]ReportedAddress{}
	add := func(texts []string, spec bool) {
		for _, text := range texts {
			if a, ok := machineAddress(text); ok {
				c := by[a]
				by[a] = ReportedAddress{Address: a, machine: o.Name, spec: c.spec || spec, Status: c.Status || !spec}
			}
		}
	}
	add(o.Status.Addresses, false)
	add(o.Spec.Addresses, true)
	add(o.Spec.TunnelAddresses, true)
	claims := make([]ReportedAddress, 0, len(by))
	for _, c := range by {
		claims = append(claims, c)
	}
	slices.SortFunc(claims, func(a, b ReportedAddress) int { return a.Address.Compare(b.Address) })
	return claims
}

// holder is the machine that has an address: the only one whose spec says it, else the only one whose
// status does. Empty: nobody has it.
func (t *Tables) holder(c *memo.Context, a netip.Addr) (string, bool) {
	claims := t.claims.Get(c, a)
	holder, saying := "", 0
	for machine, o := range claims.All() {
		if o.spec {
			holder, saying = machine, saying+1
		} else if claims.Len() == 1 {
			return machine, true
		}
	}
	return holder, saying == 1
}

// contests are the addresses that a machine claims and does not have, sorted.
func (t *Tables) contests(c *memo.Context, o *v1alpha1.Machine) (contests []model.AddressContest) {
	for _, claim := range ClaimsOf(o) {
		holder := t.Holders.Get(c, claim.Address)
		if holder == o.Name {
			continue
		}
		contest := model.AddressContest{Address: claim.Address, Holder: holder}
		for machine := range t.claims.Get(c, claim.Address).All() {
			if machine != o.Name {
				contest.With = append(contest.With, machine)
			}
		}
		slices.Sort(contest.With)
		contests = append(contests, contest)
	}
	return contests
}
