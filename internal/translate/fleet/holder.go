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

// ReportedAddresses are what a Machine claims, sorted by address, each once.
func ReportedAddresses(o *v1alpha1.Machine) []ReportedAddress {
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
	reported := make([]ReportedAddress, 0, len(by))
	for _, c := range by {
		reported = append(reported, c)
	}
	slices.SortFunc(reported, func(a, b ReportedAddress) int { return a.Address.Compare(b.Address) })
	return reported
}

// holder is the machine that has an address: the only one whose spec says it, else the only one whose
// status does. Empty: nobody has it.
func (t *Tables) holder(c *memo.Context, a netip.Addr) (string, bool) {
	reported := t.reported.Get(c, a)
	holder, saying := "", 0
	for machine, o := range reported.All() {
		if o.spec {
			holder, saying = machine, saying+1
		} else if reported.Len() == 1 {
			return machine, true
		}
	}
	return holder, saying == 1
}

// contests are the addresses that a machine claims and does not have, sorted.
func (t *Tables) contests(c *memo.Context, o *v1alpha1.Machine) (contests []model.AddressContest) {
	for _, report := range ReportedAddresses(o) {
		holder := t.Holders.Get(c, report.Address)
		if holder == o.Name {
			continue
		}
		contest := model.AddressContest{Address: report.Address, Holder: holder}
		for machine := range t.reported.Get(c, report.Address).All() {
			if machine != o.Name {
				contest.With = append(contest.With, machine)
			}
		}
		slices.Sort(contest.With)
		contests = append(contests, contest)
	}
	return contests
}
