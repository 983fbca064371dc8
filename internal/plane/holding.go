package plane

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/southbound"
)

// maxAddresses is how many addresses a Machine shows (its schema's maxItems).
const maxAddresses = 64

// RoleAddresses are networks in which machines of a role have the addresses that they report.
type RoleAddresses struct {
	Role     v1alpha1.MachineRole
	Networks []netip.Prefix
}

// holding is which of the addresses that a machine reports are its own, as texts in the order of the
// report.
type holding struct {
	held   []string
	doubts []string // of which nobody knows
	main   bool     // the first of a family is among these: by it the machine calls others
	others []string // that other machines have proven, with their names
}

// holding judges the addresses that a machine reports (ADR 50). That another one reports the same, the
// translation finds.
func (l *loop) holding(live *v1alpha1.Machine, state southbound.MachineState) (h holding) {
	spec := addressesIn(slices.Concat(live.Spec.Addresses, live.Spec.TunnelAddresses))
	kept := addressesIn(live.Status.Addresses)
	seen := map[bool]bool{} // families, by whether it is IPv4
	for _, text := range state.Addresses[:min(len(state.Addresses), maxAddresses)] {
		a, err := netip.ParseAddr(text)
		if a = a.Unmap(); err != nil {
			continue
		}
		first := !seen[a.Is4()]
		seen[a.Is4()] = true
		_, proven := slices.BinarySearchFunc(state.Proven, a, netip.Addr.Compare)
		if spec[a] || proven {
			h.held = append(h.held, text)
			continue
		}
		if others := l.plane.server.Provers(a); len(others) > 0 {
			h.others = append(h.others, fmt.Sprintf("%s (of %s)", text, few(others)))
			continue
		}
		// A plane that has just begun to lead, or is newer than the agent, takes nothing away.
		if l.plane.config.grants(live.Spec.Role, a) || !state.Proved && kept[a] {
			h.held = append(h.held, text)
			continue
		}
		h.doubts, h.main = append(h.doubts, text), h.main || first
	}
	return h
}

// grants says whether the operator has said that machines of a role have what they report.
func (c Config) grants(role v1alpha1.MachineRole, a netip.Addr) bool {
	if role == "" {
		role = v1alpha1.RoleEdge
	}
	return slices.ContainsFunc(c.MachineAddresses, func(r RoleAddresses) bool {
		return r.Role == role && slices.ContainsFunc(r.Networks, func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

func addressesIn(texts []string) map[netip.Addr]bool {
	set := map[netip.Addr]bool{}
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			set[a.Unmap()] = true
		}
	}
	return set
}

// addressesHeld is the condition of a machine's addresses.
func (l *loop) addressesHeld(live *v1alpha1.Machine, h holding) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.MachineAddressesHeld, Status: metav1.ConditionFalse, ObservedGeneration: live.Generation}
	var contested []model.AddressContest
	if m := l.machines[live.Name]; m != nil {
		contested = m.Contested
	}
	unproven := ""
	if len(h.doubts) > 0 {
		unproven = fmt.Sprintf("the agent reports %s without having connected from there", few(h.doubts))
	}
	const remedy = "name them in spec.addresses of the Machine, or grant their network with --machine-addresses of the plane"
	switch {
	case len(contested) > 0:
		c.Reason = v1alpha1.MachineReasonContested
		texts := make([]string, 0, len(contested))
		for _, x := range contested {
			if x.Holder != "" {
				texts = append(texts, fmt.Sprintf("%s belongs to Machine %s, whose spec names it", x.Address, x.Holder))
			} else {
				texts = append(texts, fmt.Sprintf("%s is also claimed by Machine %s and belongs to neither", x.Address, few(x.With)))
			}
		}
		c.Message = few(texts) + ": name it in spec.addresses of the right Machine alone, or delete the Machine object of a machine that is gone"
	case len(h.others) > 0:
		// No remedy that is followed blindly: a spec outranks a proof, and the report may be false.
		c.Reason = v1alpha1.MachineReasonContested
		c.Message = "the agent reports addresses that other machines report and have connected from: " + few(h.others) +
			"; find out why this machine reports them, and name one in spec.addresses of its Machine only if it belongs there"
	case len(live.Spec.Addresses)+len(live.Spec.TunnelAddresses) > 0, len(h.held) > 0 && !h.main:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.MachineReasonHeld, "the machine has its addresses, and no other claims them"
		if unproven != "" {
			c.Message += "; " + unproven + ": if they matter, " + remedy
		}
	case unproven != "":
		c.Reason, c.Message = v1alpha1.MachineReasonUnproven, unproven+": no backend is found by them and no tunnel ends there; "+remedy
	default:
		c.Reason, c.Message = v1alpha1.MachineReasonUnproven, "the agent reports no address"
	}
	return c
}

// few lists the first few.
func few(texts []string) string {
	const most = 4
	if n := len(texts) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], ", "), n)
	}
	return strings.Join(texts, ", ")
}
