package main

import (
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/plane"
	"fairlead.dev/internal/translate"
)

// machineAddresses is the value of a flag that takes ROLE=CIDR, separated by commas, and may be given
// often.
type machineAddresses []plane.RoleAddresses

// String is empty while the flag has not been given: help shows no default then.
func (m *machineAddresses) String() string {
	var texts []string
	for _, r := range *m {
		for _, p := range r.Networks {
			texts = append(texts, string(r.Role)+"="+p.String())
		}
	}
	return strings.Join(texts, ",")
}

// Set adds what one use of the flag names.
func (m *machineAddresses) Set(text string) error {
	var list []plane.RoleAddresses
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		name, networks, ok := strings.Cut(part, "=")
		if !ok {
			return fmt.Errorf("%q names no role: write Edge=%[1]s or Backend=%[1]s", part)
		}
		roles := []v1alpha1.MachineRole{v1alpha1.RoleEdge, v1alpha1.RoleBackend}
		i := slices.IndexFunc(roles, func(r v1alpha1.MachineRole) bool { return strings.EqualFold(string(r), name) })
		if i < 0 {
			return fmt.Errorf("%q: there is no role %q: want Edge or Backend", part, name)
		}
		prefixes, err := translate.ParsePrefixes(networks)
		if err != nil {
			return err
		}
		if len(prefixes) == 0 {
			return fmt.Errorf("%q names no network: write %s=10.0.0.0/24", part, roles[i])
		}
		list = append(list, plane.RoleAddresses{Role: roles[i], Networks: prefixes})
	}
	*m = append(*m, list...)
	return nil
}

// roleCIDRs stands in help for the value of such a flag.
const roleCIDRs = "ROLE=CIDR"

// Type says what kind of value it is.
func (m *machineAddresses) Type() string { return roleCIDRs }
