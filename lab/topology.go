package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
)

// Role says what a machine is for. The lab treats all roles alike.
type Role string

// The roles of the machines that the default topology and the demo use.
const (
	RoleClient   Role = "client"
	RoleEdge     Role = "edge"
	RolePlane    Role = "plane"
	RoleBackends Role = "backends"
)

// Topology says which machines a lab has. Name and at least one machine are
// required; everything else has a default.
type Topology struct {
	// Name of the lab: a DNS label. One lab of a name exists on a host at a time.
	Name string
	// Net4 and Net6 are the networks of the segment (default 10.77.0.0/16 and
	// fd77::/64). They exist in the lab's own namespaces only and need not differ
	// between labs.
	Net4, Net6 netip.Prefix
	// MTU of every machine's interface; 0 means 1500.
	MTU int
	// Machines in the order of their addresses.
	Machines []MachineSpec
}

// MachineSpec says what one machine is.
type MachineSpec struct {
	// Name is a DNS label of at most 15 characters, unique in its lab.
	Name string
	// Role is a label for people and for those who look machines up by it.
	Role Role
	// Addresses is how many addresses of each family the machine has; 0 means 1.
	Addresses int
}

const (
	defaultMTU   = 1500
	maxAddresses = 254
)

var (
	defaultNet4 = netip.MustParsePrefix("10.77.0.0/16")
	defaultNet6 = netip.MustParsePrefix("fd77::/64")

	labName     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)
	machineName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$`)
)

// ErrInvalid is wrapped by errors about a Topology or an argument that cannot work.
var ErrInvalid = errors.New("invalid")

// DefaultTopology is the network of `fairlead lab up` and of the demo: one
// client, two edges, two clusters of backends (a Kubernetes-like one with three
// addresses, an OpenStack-like one with two) and a machine for the plane.
func DefaultTopology(name string) Topology {
	return Topology{
		Name: name,
		Machines: []MachineSpec{
			{Name: "client", Role: RoleClient},
			{Name: "edge-1", Role: RoleEdge},
			{Name: "edge-2", Role: RoleEdge},
			{Name: "k8s1", Role: RoleBackends, Addresses: 3},
			{Name: "os1", Role: RoleBackends, Addresses: 2},
			{Name: "plane", Role: RolePlane},
		},
	}
}

// complete returns t with its defaults filled in, or why it cannot work.
func (t Topology) complete() (Topology, error) {
	if !labName.MatchString(t.Name) {
		return t, fmt.Errorf("%w lab name %q: want a DNS label of at most 32 characters", ErrInvalid, t.Name)
	}
	if !t.Net4.IsValid() {
		t.Net4 = defaultNet4
	}
	if !t.Net6.IsValid() {
		t.Net6 = defaultNet6
	}
	if t.MTU == 0 {
		t.MTU = defaultMTU
	}
	t.Net4, t.Net6 = t.Net4.Masked(), t.Net6.Masked()
	if !t.Net4.Addr().Is4() || t.Net4.Bits() > 16 {
		return t, fmt.Errorf("%w IPv4 network %s: want a prefix of at most 16 bits", ErrInvalid, t.Net4)
	}
	if !t.Net6.Addr().Is6() || t.Net6.Addr().Is4In6() || t.Net6.Bits() > 64 {
		return t, fmt.Errorf("%w IPv6 network %s: want a prefix of at most 64 bits", ErrInvalid, t.Net6)
	}
	if t.MTU < 1280 || t.MTU > 65535 {
		return t, fmt.Errorf("%w mtu %d: IPv6 needs at least 1280, a veth takes at most 65535", ErrInvalid, t.MTU)
	}
	if len(t.Machines) == 0 {
		return t, fmt.Errorf("%w lab %s: it has no machines", ErrInvalid, t.Name)
	}
	if most := 1<<(24-t.Net4.Bits()) - 1; len(t.Machines) > most {
		return t, fmt.Errorf("%w lab %s: %d machines, and %s has room for %d", ErrInvalid, t.Name, len(t.Machines), t.Net4, most)
	}
	seen := map[string]bool{}
	machines := make([]MachineSpec, len(t.Machines))
	for i, m := range t.Machines {
		switch {
		case !machineName.MatchString(m.Name):
			return t, fmt.Errorf("%w machine name %q: want a DNS label of at most 15 characters", ErrInvalid, m.Name)
		case m.Name == fabricName:
			return t, fmt.Errorf("%w machine name %q: the lab's own segment has it", ErrInvalid, m.Name)
		case seen[m.Name]:
			return t, fmt.Errorf("%w machine name %q: used twice", ErrInvalid, m.Name)
		case m.Addresses < 0 || m.Addresses > maxAddresses:
			return t, fmt.Errorf("%w machine %s: %d addresses, want 1 to %d", ErrInvalid, m.Name, m.Addresses, maxAddresses)
		}
		seen[m.Name] = true
		m.Addresses = max(m.Addresses, 1)
		machines[i] = m
	}
	t.Machines = machines
	return t, nil
}

// addresses returns the addresses of the machine with the given index: host
// number (index+1)*256 + k in the IPv4 network, ::<index+1>:<k> in the IPv6 one,
// k counted from 1.
func (t Topology) addresses(index int) (v4, v6 []netip.Addr) {
	for k := 1; k <= t.Machines[index].Addresses; k++ {
		a4 := t.Net4.Addr().As4()
		host := uint32(index+1)<<8 | uint32(k)
		for i := range 4 {
			a4[i] |= byte(host >> (24 - 8*i))
		}
		a6 := t.Net6.Addr().As16()
		a6[12], a6[13] = byte((index+1)>>8), byte(index+1)
		a6[15] = byte(k)
		v4 = append(v4, netip.AddrFrom4(a4))
		v6 = append(v6, netip.AddrFrom16(a6))
	}
	return v4, v6
}
