package translate

import (
	"cmp"
	"net/netip"
	"slices"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// addressClaim is an address that a machine claims. The plane lets only those into a status that are
// proven, or that an operator has said (ADR 50).
type addressClaim struct {
	address netip.Addr
	machine string
	spec    bool // its spec says it
	status  bool // its status shows it
}

// addressClaims are those of all Machines.
type addressClaims struct {
	of map[string][]addressClaim     // by machine, sorted by address
	at map[netip.Addr][]addressClaim // sorted by machine
}

// claimsNode is which of the addresses that a machine claims it has.
func claimsNode(machine string) node { return node{kind: nodeClaims, a: machine} }

// machineAddress reads an address of a Machine; false for one that nobody is reached at.
func machineAddress(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	a = a.Unmap()
	return a, err == nil && model.Reachable(a)
}

// inputClaims notes what a Machine claims. It concerns all who claim the same.
func (t *Translator) inputClaims(s *snapshot.Snapshot, n snapshot.Name) {
	x := &t.index.claims
	was, is := x.of[n.Name], claimsOf(s.Machines[n])
	if slices.Equal(was, is) {
		return
	}
	concerned := map[string]struct{}{n.Name: {}}
	note := func(a netip.Addr) {
		for _, c := range x.at[a] {
			concerned[c.machine] = struct{}{}
		}
	}
	for _, c := range was {
		note(c.address)
		x.at[c.address] = slices.DeleteFunc(x.at[c.address], func(o addressClaim) bool { return o.machine == n.Name })
		if len(x.at[c.address]) == 0 {
			delete(x.at, c.address)
		}
	}
	for _, c := range is {
		note(c.address)
		i, _ := slices.BinarySearchFunc(x.at[c.address], c.machine, func(o addressClaim, name string) int { return cmp.Compare(o.machine, name) })
		x.at[c.address] = slices.Insert(x.at[c.address], i, c)
	}
	x.of[n.Name] = is
	if len(is) == 0 {
		delete(x.of, n.Name)
	}
	for machine := range concerned {
		t.graph.changed(claimsNode(machine))
	}
}

// claimsOf are what a Machine claims, sorted by address, each once.
func claimsOf(o *v1alpha1.Machine) []addressClaim {
	if o == nil {
		return nil
	}
	by := map[netip.Addr]addressClaim{}
	add := func(texts []string, spec bool) {
		for _, text := range texts {
			if a, ok := machineAddress(text); ok {
				c := by[a]
				by[a] = addressClaim{address: a, machine: o.Name, spec: c.spec || spec, status: c.status || !spec}
			}
		}
	}
	add(o.Status.Addresses, false)
	add(o.Spec.Addresses, true)
	add(o.Spec.TunnelAddresses, true)
	claims := make([]addressClaim, 0, len(by))
	for _, c := range by {
		claims = append(claims, c)
	}
	slices.SortFunc(claims, func(a, b addressClaim) int { return a.address.Compare(b.address) })
	return claims
}

// holder is the machine that has an address: the only one whose spec says it, else the only one whose
// status does. Empty: nobody has it.
func (x *addressClaims) holder(a netip.Addr) string {
	claims := x.at[a]
	if spec := slices.IndexFunc(claims, func(c addressClaim) bool { return c.spec }); spec >= 0 {
		for _, c := range claims[spec+1:] {
			if c.spec {
				return ""
			}
		}
		return claims[spec].machine
	}
	if len(claims) == 1 {
		return claims[0].machine
	}
	return ""
}

// contests are the addresses that a machine claims and does not have, sorted.
func (x *addressClaims) contests(machine string) (contests []model.AddressContest) {
	for _, c := range x.of[machine] {
		holder := x.holder(c.address)
		if holder == machine {
			continue
		}
		contest := model.AddressContest{Address: c.address, Holder: holder}
		for _, o := range x.at[c.address] {
			if o.machine != machine {
				contest.With = append(contest.With, o.machine)
			}
		}
		contests = append(contests, contest)
	}
	return contests
}
