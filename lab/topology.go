package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
)

// Role says what a machine is for. The lab treats all roles but RoleRouter alike.
type Role string

// The roles of the machines that the default topologies and the demo use.
const (
	RoleClient    Role = "client"
	RoleEdge      Role = "edge"
	RolePlane     Role = "plane"
	RoleBackends  Role = "backends"
	RoleReflector Role = "reflector"
	// RoleRouter forwards packets between its segments, and chooses among the next
	// hops of a route by addresses and ports. The other machines of its segments
	// have their default routes through it.
	RoleRouter Role = "router"
)

// Topology says which machines a lab has. Name and at least one machine are
// required; everything else has a default.
type Topology struct {
	// Name of the lab: a DNS label. One lab of a name exists on a host at a time.
	Name string
	// Net4 and Net6 are the networks of the first segment (default 10.77.0.0/16 and
	// fd77::/64). They exist in the lab's own namespaces only and need not differ
	// between labs.
	Net4, Net6 netip.Prefix
	// Segments are the lab's segments; empty means one without a name.
	Segments []Segment
	// MTU of every machine's interfaces; 0 means 1500.
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
	// Addresses is how many addresses of each family the machine has on each of its
	// segments; 0 means 1.
	Addresses int
	// Segments it stands on, each through an interface of its own: eth0, eth1 and so
	// on in this order. Empty means the first of the lab.
	Segments []string
}

// Segment is a network that the machines on it share: a bridge.
type Segment struct {
	// Name is a DNS label of at most 11 characters, unique in its lab.
	Name string `json:"name,omitempty"`
	// Net4 and Net6 are its networks; the default of the first is the topology's,
	// and of those after it 10.78.0.0/16 and fd78::/64, and so on.
	Net4 netip.Prefix `json:"net4"`
	Net6 netip.Prefix `json:"net6"`
}

// bridge is the name of the segment's bridge in the fabric. No machine's name has
// a dot, so that no port has it.
func (s Segment) bridge() string {
	if s.Name == "" {
		return "segment"
	}
	return "seg." + s.Name
}

const (
	defaultMTU   = 1500
	maxAddresses = 254
	maxSegments  = 16
)

var (
	labName     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)
	machineName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$`)
	segmentName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,9}[a-z0-9])?$`)
)

// defaultNets are the networks of the segment with the given index that names none.
func defaultNets(index int) (v4, v6 netip.Prefix) {
	n := byte(77 + index)
	v4 = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, n}), 16)
	// fd77 reads like 10.77: decimal digits, written as hexadecimal ones.
	v6 = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, n/10<<4 | n%10}), 64)
	return v4, v6
}

// ErrInvalid is wrapped by errors about a Topology or an argument that cannot work.
var ErrInvalid = errors.New("invalid")

// DefaultTopology is the network of `fairlead lab up`: one client, two edges, two
// clusters of backends (a Kubernetes-like one with three addresses, an OpenStack-like
// one with two) and a machine for the plane.
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

// The segments of RoutedTopology.
const (
	SegmentEdges   = "edges"
	SegmentClients = "clients"
)

// RoutedTopology is DefaultTopology with a router between the client and all the
// others. Edges that announce addresses to the router share its clients.
func RoutedTopology(name string) Topology {
	t := DefaultTopology(name)
	t.Segments = []Segment{{Name: SegmentEdges}, {Name: SegmentClients}}
	for i, m := range t.Machines {
		if m.Role == RoleClient {
			t.Machines[i].Segments = []string{SegmentClients}
		}
	}
	t.Machines = append(t.Machines, MachineSpec{Name: "router", Role: RoleRouter, Segments: []string{SegmentEdges, SegmentClients}})
	return t
}

// complete returns t with its defaults filled in, or why it cannot work.
func (t Topology) complete() (Topology, error) {
	if !labName.MatchString(t.Name) {
		return t, fmt.Errorf("%w lab name %q: want a DNS label of at most 32 characters", ErrInvalid, t.Name)
	}
	if t.MTU == 0 {
		t.MTU = defaultMTU
	}
	if t.MTU < 1280 || t.MTU > 65535 {
		return t, fmt.Errorf("%w mtu %d: IPv6 needs at least 1280, a veth takes at most 65535", ErrInvalid, t.MTU)
	}
	var err error
	if t.Segments, err = t.completeSegments(); err != nil {
		return t, err
	}
	t.Net4, t.Net6 = t.Segments[0].Net4, t.Segments[0].Net6
	if len(t.Machines) == 0 {
		return t, fmt.Errorf("%w lab %s: it has no machines", ErrInvalid, t.Name)
	}
	for _, s := range t.Segments {
		if len(t.Machines) > s.room() {
			return t, fmt.Errorf("%w lab %s: %d machines, and %s has room for %d", ErrInvalid, t.Name, len(t.Machines), s.Net4, s.room())
		}
	}
	machines := make([]MachineSpec, 0, len(t.Machines))
	for _, m := range t.Machines {
		if slices.ContainsFunc(machines, func(other MachineSpec) bool { return other.Name == m.Name }) {
			return t, fmt.Errorf("%w machine name %q: used twice", ErrInvalid, m.Name)
		}
		if m, err = completeMachine(m, t.Segments); err != nil {
			return t, err
		}
		machines = append(machines, m)
	}
	t.Machines = machines
	return t, nil
}

// completeSegments returns the segments with their defaults filled in.
func (t Topology) completeSegments() ([]Segment, error) {
	segments := slices.Clone(t.Segments)
	if len(segments) == 0 {
		segments = []Segment{{}}
	}
	if len(segments) > maxSegments {
		return nil, fmt.Errorf("%w lab %s: %d segments, want at most %d", ErrInvalid, t.Name, len(segments), maxSegments)
	}
	for i := range segments {
		s := &segments[i]
		if len(t.Segments) > 0 && !segmentName.MatchString(s.Name) {
			return nil, fmt.Errorf("%w segment name %q: want a DNS label of at most 11 characters", ErrInvalid, s.Name)
		}
		v4, v6 := defaultNets(i)
		if i == 0 && t.Net4.IsValid() {
			v4 = t.Net4
		}
		if i == 0 && t.Net6.IsValid() {
			v6 = t.Net6
		}
		if !s.Net4.IsValid() {
			s.Net4 = v4
		}
		if !s.Net6.IsValid() {
			s.Net6 = v6
		}
		s.Net4, s.Net6 = s.Net4.Masked(), s.Net6.Masked()
		if !s.Net4.Addr().Is4() || s.Net4.Bits() > 16 {
			return nil, fmt.Errorf("%w IPv4 network %s: want a prefix of at most 16 bits", ErrInvalid, s.Net4)
		}
		if !s.Net6.Addr().Is6() || s.Net6.Addr().Is4In6() || s.Net6.Bits() > 64 {
			return nil, fmt.Errorf("%w IPv6 network %s: want a prefix of at most 64 bits", ErrInvalid, s.Net6)
		}
		for _, other := range segments[:i] {
			switch {
			case other.Name == s.Name:
				return nil, fmt.Errorf("%w segment name %q: used twice", ErrInvalid, s.Name)
			case other.Net4.Overlaps(s.Net4) || other.Net6.Overlaps(s.Net6):
				return nil, fmt.Errorf("%w segments %s and %s: their networks overlap", ErrInvalid, other.Name, s.Name)
			}
		}
	}
	return segments, nil
}

// completeMachine returns m with its defaults filled in.
func completeMachine(m MachineSpec, segments []Segment) (MachineSpec, error) {
	switch {
	case !machineName.MatchString(m.Name):
		return m, fmt.Errorf("%w machine name %q: want a DNS label of at most 15 characters", ErrInvalid, m.Name)
	case m.Name == fabricName || m.Name == (Segment{}).bridge():
		return m, fmt.Errorf("%w machine name %q: the lab's own segment has it", ErrInvalid, m.Name)
	case m.Addresses < 0 || m.Addresses > maxAddresses:
		return m, fmt.Errorf("%w machine %s: %d addresses, want 1 to %d", ErrInvalid, m.Name, m.Addresses, maxAddresses)
	}
	m.Addresses = max(m.Addresses, 1)
	m.Segments = slices.Clone(m.Segments)
	if len(m.Segments) == 0 {
		m.Segments = []string{segments[0].Name}
	}
	for i, name := range m.Segments {
		if slices.Contains(m.Segments[:i], name) {
			return m, fmt.Errorf("%w machine %s: it is on segment %s twice", ErrInvalid, m.Name, name)
		}
		if !slices.ContainsFunc(segments, func(s Segment) bool { return s.Name == name }) {
			return m, fmt.Errorf("%w machine %s: the lab has no segment %q", ErrInvalid, m.Name, name)
		}
	}
	return m, nil
}

// room is how many machines a segment has addresses for.
func (s Segment) room() int { return 1<<(24-s.Net4.Bits()) - 1 }

// addresses returns the n addresses of the machine with the given index: host
// number (index+1)*256 + k in the IPv4 network, ::<index+1>:<k> in the IPv6 one,
// k counted from 1.
func (s Segment) addresses(index, n int) (v4, v6 []netip.Addr) {
	for k := 1; k <= n; k++ {
		a4 := s.Net4.Addr().As4()
		host := uint32(index+1)<<8 | uint32(k)
		for i := range 4 {
			a4[i] |= byte(host >> (24 - 8*i))
		}
		a6 := s.Net6.Addr().As16()
		a6[12], a6[13] = byte((index+1)>>8), byte(index+1)
		a6[15] = byte(k)
		v4 = append(v4, netip.AddrFrom4(a4))
		v6 = append(v6, netip.AddrFrom16(a6))
	}
	return v4, v6
}
