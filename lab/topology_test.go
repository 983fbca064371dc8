package lab

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestTopologyThatCannotWork(t *testing.T) {
	many := Topology{Name: "x"}
	for range 256 {
		many.Machines = append(many.Machines, MachineSpec{Name: "m"})
	}
	one := []MachineSpec{{Name: "a"}}
	for _, c := range []struct {
		says string
		t    Topology
	}{
		{`lab name ""`, Topology{Machines: one}},
		{`lab name "../x"`, Topology{Name: "../x", Machines: one}},
		{"no machines", Topology{Name: "x"}},
		{`machine name "a_b"`, Topology{Name: "x", Machines: []MachineSpec{{Name: "a_b"}}}},
		{`machine name "sixteen-letters-"`, Topology{Name: "x", Machines: []MachineSpec{{Name: "sixteen-letters-"}}}},
		{"used twice", Topology{Name: "x", Machines: []MachineSpec{{Name: "a"}, {Name: "a"}}}},
		{"own segment", Topology{Name: "x", Machines: []MachineSpec{{Name: "fabric"}}}},
		{"own segment", Topology{Name: "x", Machines: []MachineSpec{{Name: "segment"}}}},
		{`no segment "b"`, Topology{Name: "x", Segments: []Segment{{Name: "a"}}, Machines: []MachineSpec{{Name: "a", Segments: []string{"b"}}}}},
		{"segment a twice", Topology{Name: "x", Segments: []Segment{{Name: "a"}}, Machines: []MachineSpec{{Name: "a", Segments: []string{"a", "a"}}}}},
		{`segment name ""`, Topology{Name: "x", Segments: []Segment{{}}, Machines: one}},
		{`segment name "a": used twice`, Topology{Name: "x", Segments: []Segment{{Name: "a"}, {Name: "a"}}, Machines: one}},
		{"overlap", Topology{Name: "x", Segments: []Segment{{Name: "a"}, {Name: "b", Net4: netip.MustParsePrefix("10.0.0.0/8")}}, Machines: one}},
		{"255 addresses", Topology{Name: "x", Machines: []MachineSpec{{Name: "a", Addresses: 255}}}},
		{"room for 255", many},
		{"IPv4 network", Topology{Name: "x", Net4: netip.MustParsePrefix("10.0.0.0/24"), Machines: one}},
		{"IPv6 network", Topology{Name: "x", Net6: netip.MustParsePrefix("10.0.0.0/8"), Machines: one}},
		{"mtu 1000", Topology{Name: "x", MTU: 1000, Machines: one}},
	} {
		if _, err := c.t.complete(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("error is %v, want one that says %q", err, c.says)
		}
	}
	for _, topology := range []Topology{DefaultTopology("demo"), RoutedTopology("demo")} {
		if _, err := topology.complete(); err != nil {
			t.Errorf("default topology: %v", err)
		}
	}
}

func TestAddressesAreDistinctAndInTheNetworks(t *testing.T) {
	s := Segment{Net4: netip.MustParsePrefix("10.128.0.0/9"), Net6: netip.MustParsePrefix("fd00:1:2:3::/64")}
	seen := map[netip.Addr]bool{}
	for i := range 1000 {
		n := 1 + i%254
		v4, v6 := s.addresses(i, n)
		if len(v4) != n || len(v6) != n {
			t.Fatalf("machine %d has %d and %d addresses, want %d", i, len(v4), len(v6), n)
		}
		for _, a := range append(v4, v6...) {
			if seen[a] || !s.Net4.Contains(a) && !s.Net6.Contains(a) {
				t.Fatalf("address %s of machine %d: used twice, or outside the networks", a, i)
			}
			seen[a] = true
		}
	}
}

func TestUnescapeMount(t *testing.T) {
	if got := unescapeMount(`/a\040b\134c\`); got != `/a b\c\` {
		t.Errorf("unescaped to %q", got)
	}
}
