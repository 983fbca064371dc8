package l2

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
)

func TestPlace(t *testing.T) {
	prefixes := func(s ...string) (p []netip.Prefix) {
		for _, x := range s {
			p = append(p, netip.MustParsePrefix(x))
		}
		return p
	}
	s := survey{
		links: []link{
			{name: "eth0", index: 2, prefixes: prefixes("192.0.2.9/24", "2001:db8::9/64")},
			{name: "eth1", index: 3, prefixes: prefixes("192.0.2.10/24"), noIPv6: errors.New("IPv6 is disabled on interface eth1")},
			{name: "eth2", index: 4, prefixes: prefixes("198.51.100.9/24", "2001:db8:2::9/64"), down: errors.New("interface eth2 has no carrier")},
		},
		default4: 2,
	}
	for _, tt := range []struct {
		vip        string
		interfaces []string
		usable     string
		why        string
	}{
		{"192.0.2.50", nil, "[eth0 eth1]", "[]"},
		{"192.0.2.50", []string{"eth1"}, "[eth1]", "[]"},
		{"203.0.113.1", nil, "[eth0]", "[]"}, // the default route's
		{"2001:db8::50", nil, "[eth0]", "[]"},
		{"2001:db8:3::50", nil, "[]", "[no interface has an address in the VIP's network, and there is no default route; name interfaces in the pool]"},
		{"2001:db8::50", []string{"eth0", "eth1"}, "[eth0]", "[IPv6 is disabled on interface eth1]"},
		{"198.51.100.50", nil, "[]", "[interface eth2 has no carrier]"},
		{"192.0.2.50", []string{"eth9", "eth0"}, "[eth0]", "[this machine has no Ethernet interface eth9]"},
	} {
		usable, why := s.usableOn(Candidacy{VIP: netip.MustParseAddr(tt.vip), Interfaces: tt.interfaces})
		names := []string{}
		for _, l := range usable {
			names = append(names, l.name)
		}
		if got := fmt.Sprint(names); got != tt.usable {
			t.Errorf("%s on %v: usable are %s, want %s", tt.vip, tt.interfaces, got, tt.usable)
		}
		if got := fmt.Sprint(why); got != tt.why {
			t.Errorf("%s on %v: why is %s, want %s", tt.vip, tt.interfaces, got, tt.why)
		}
	}
}
