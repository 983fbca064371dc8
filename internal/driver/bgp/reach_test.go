package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
)

func role(s *site) {
	n, p := s.neighbour(), s.peer()
	n.role, p.Role, p.StrictRole = "provider", model.RoleCustomer, true
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	c.established()
	s.has(route4, s.edge.Addr4().String())
	p.Role = model.RolePeer
	c.set(speaking(p, route4))
	// Each end may be the first to say so.
	c.until("the roles do not fit", func(x model.Session) bool {
		return x.State != model.SessionEstablished && x.Reason == model.SessionWrongRole
	})
	s.lacks(route4)
	p.Role, p.StrictRole = model.RoleNone, false
	c.set(speaking(p, route4))
	c.until("the router wants a role", func(x model.Session) bool {
		return x.State != model.SessionEstablished && strings.Contains(x.Message, "2/11")
	})
}

func ttlSecurity(s *site) {
	n, p := s.neighbour(), s.peer()
	n.security, n.bfd = true, true
	p.TTLSecurity, p.BFD = 1, &model.BFD{Interval: 300 * time.Millisecond, Multiplier: 3}
	if _, is := s.router.(*frr); is { // it takes a peer with TTL security for one that is far away
		p.BFD.Mode = model.BFDMultiHop
	}
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	c.until("BFD up", func(x model.Session) bool { return x.State == model.SessionEstablished && x.BFD == "up" })
	s.has(route4, s.edge.Addr4().String())
}

// A router that sends with TTL 1 may be anywhere.
func noTTLSecurity(s *site) {
	n, p := s.neighbour(), s.peer()
	p.TTLSecurity = 1
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	c.until("told what both ends need", func(x model.Session) bool {
		return x.State != model.SessionEstablished && strings.Contains(x.Message, "TTL 255")
	})
	s.lacks(route4)
}

// ip runs a command in a machine.
func (s *site) ip(m *lab.Machine, argv ...string) {
	s.Helper()
	if out, err := m.Command(context.WithoutCancel(s.Context()), argv...).CombinedOutput(); err != nil {
		s.Fatalf("%v: %v: %s", argv, err, out)
	}
}

func passive(s *site) {
	n, p := s.neighbour(), s.peer()
	n.connects, p.Connection = true, model.ConnectionPassive
	c := startChild(s.T, s.edge, speaking(p, route4))
	if x := c.saw(model.SessionAwaited); x.State != model.SessionActive {
		s.Errorf("the session is %+v", x)
	}
	s.start(s.T, s.box, n)
	c.established()
	s.has(route4, s.edge.Addr4().String())
	p.Password, p.NeedsPassword = "secret", true
	c.set(speaking(p, route4))
	c.saw(model.SessionAwaited) // its segments are not signed
	s.lacks(route4)
	p.Password, p.NeedsPassword = "", false
	c.set(speaking(p, route4))
	c.established()
	s.has(route4, s.edge.Addr4().String())
}

func bothConnect(s *site) {
	n, p := s.neighbour(), s.peer()
	n.connects, p.Connection = true, model.ConnectionBoth
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	for range 5 {
		c.established()
		s.has(route4, s.edge.Addr4().String())
		p.HoldTime += time.Second // another OPEN: both ends connect at once again
		c.set(speaking(p, route4))
		c.until("a session of the new hold time", func(x model.Session) bool {
			return x.State == model.SessionEstablished && x.Reason == model.SessionOK && len(x.Advertised) == 1
		})
	}
}

// A BGP daemon of the machine's own has the port. That costs what it has to, and no more.
func portTaken(s *site) {
	other := &bird{}
	other.start(s.T, s.edge, neighbour{address: s.box.Addr4().String(), local: s.edge.Addr4().String(), asn: 65333})
	n, p := s.neighbour(), s.peer()
	p.Connection = model.ConnectionBoth
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	x := c.until("established, and told that it cannot listen", func(x model.Session) bool {
		return x.State == model.SessionEstablished && x.Reason == model.SessionCannotListen
	})
	if !strings.Contains(x.Message, "another program has port 179") {
		s.Errorf("the message is %q", x.Message)
	}
	s.has(route4, s.edge.Addr4().String())
	other.process.Kill9()
	c.until("the port is free again", func(x model.Session) bool {
		return x.State == model.SessionEstablished && x.Reason == model.SessionOK
	})
	p.Connection = model.ConnectionPassive
	c.set(speaking(p, route4))
	c.saw(model.SessionAwaited)
}

// The session comes from one of the machine's addresses, and the next hop is in a network of another.
func ownAddresses(s *site) {
	for _, c := range [][]string{{"198.18.0.2/24"}, {"198.18.0.3/24"}} {
		s.ip(s.edge, "ip", "addr", "replace", c[0], "dev", "eth0")
		s.Cleanup(func() { s.ip(s.edge, "ip", "addr", "del", c[0], "dev", "eth0") })
	}
	s.ip(s.box, "ip", "addr", "replace", "198.18.0.1/24", "dev", "eth0")
	s.Cleanup(func() { s.ip(s.box, "ip", "addr", "del", "198.18.0.1/24", "dev", "eth0") })
	n, p := s.neighbour(), s.peer()
	n.address, n.local = "198.18.0.3", "198.18.0.1"
	p.Address, p.Source = netip.MustParseAddr(n.local), netip.MustParsePrefix("198.18.0.3/32")
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	c.established()
	s.has(route4, "198.18.0.3")
	p.NextHop4 = netip.PrefixFrom(s.edge.Addr4(), 24).Masked()
	c.set(speaking(p, route4))
	eventually(s.T, "the next hop is in the other network", func() bool {
		r, ok := s.route(s.T, route4)
		return ok && r.NextHop == s.edge.Addr4().String()
	})
	p.Source = netip.MustParsePrefix("198.19.0.0/24")
	c.set(speaking(p, route4))
	if x := c.saw(model.SessionNoLocalAddress); !strings.Contains(x.Message, "198.19.0.0/24") {
		s.Errorf("the message is %q", x.Message)
	}
	p.Source = netip.MustParsePrefix("198.18.0.3/32")
	c.set(speaking(p, route4))
	c.established()
}

// A session is bound to a device. This kernel may lack VRFs; what binds to one binds to any interface.
func device(s *site) {
	n, p := s.neighbour(), s.peer()
	n.bfd, p.BFD = true, &model.BFD{Interval: 300 * time.Millisecond, Multiplier: 3}
	p.Device, p.Connection = "eth0", model.ConnectionBoth
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	c.until("BFD up", func(x model.Session) bool { return x.State == model.SessionEstablished && x.BFD == "up" })
	s.has(route4, s.edge.Addr4().String())
	p.Device = "red"
	c.set(speaking(p, route4))
	if x := c.saw(model.SessionNoLocalAddress); !strings.Contains(x.Message, "no device red") {
		s.Errorf("the message is %q", x.Message)
	}
}

// On a fabric without IPv4, IPv4 prefixes have IPv6 next hops (RFC 8950).
func ipv6NextHop(s *site) {
	out, err := s.edge.Command(s.Context(), "ip", "-4", "-o", "addr", "show", "dev", "eth0").Output()
	if err != nil || len(strings.Fields(string(out))) < 4 {
		s.Fatalf("no IPv4 address (%v): %s", err, out)
	}
	address := strings.Fields(string(out))[3]
	s.ip(s.edge, "ip", "addr", "del", address, "dev", "eth0")
	s.Cleanup(func() { s.ip(s.edge, "ip", "addr", "replace", address, "dev", "eth0") })
	n, p := s.neighbour(), s.peer()
	n.address, n.local, p.Address = s.edge.Addr6().String(), s.box.Addr6().String(), s.box.Addr6()
	n.nextHop6 = true
	s.start(s.T, s.box, n)
	w := speaking(p, route4, route6)
	w.RouterID = s.edge.Addr4()
	c := startChild(s.T, s.edge, w)
	c.established()
	via := s.edge.Addr6().String()
	eventually(s.T, "the router has "+route4+" via "+via, func() bool {
		r, ok := s.route(s.T, route4)
		return ok && r.NextHop == via
	})
	eventually(s.T, "the router's kernel has it", func() bool {
		return strings.Contains(kernelRoute(s.T, s.box, vip4), "via inet6 ")
	})
	s.has(route6, via)
	w.Prefixes = w.Prefixes[1:]
	c.set(w)
	s.lacks(route4)
	s.has(route6, via)
}

// TestRoles holds which roles fit, and that routes to those who may not pass them on upwards are marked.
func TestRoles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ours   model.Role
		strict bool
		theirs []uint8
		fits   bool
	}{
		{"", false, nil, true},
		{"", false, []uint8{3}, true},
		{model.RoleCustomer, false, nil, true},
		{model.RoleCustomer, true, nil, false},
		{model.RoleCustomer, true, []uint8{0}, true},
		{model.RoleCustomer, false, []uint8{3}, false},
		{model.RoleCustomer, false, []uint8{0, 4}, false},
		{model.RoleCustomer, false, []uint8{77}, false},
		{model.RoleProvider, false, []uint8{3}, true},
		{model.RolePeer, false, []uint8{4}, true},
		{model.RoleRouteServer, false, []uint8{2}, true},
		{model.RoleRouteServerClient, false, []uint8{1}, true},
		{model.RoleRouteServerClient, false, []uint8{2}, false},
	} {
		f := fits(model.Peer{Role: c.ours, StrictRole: c.strict}, c.theirs)
		if (f == nil) != c.fits {
			t.Errorf("%s (strict %t) to %v: %+v", c.ours, c.strict, c.theirs, f)
		}
	}
	for role, want := range map[model.Role]bool{
		"": false, model.RoleCustomer: false, model.RoleRouteServerClient: false,
		model.RoleProvider: true, model.RolePeer: true, model.RoleRouteServer: true,
	} {
		list, err := attributes(model.Peer{LocalASN: ourASN, PeerASN: theirASN, Role: role}, model.PathOptions{}, true)
		if err != nil {
			t.Fatal(err)
		}
		last, err := list[len(list)-1].Serialize()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(last) == "\xc0\x23\x04\x00\x00\xfc\x00"; got != want {
			t.Errorf("as %s: the last attribute is %x", role, last)
		}
	}
}

// TestWhichConnectionStays holds RFC 4271, 6.8 and RFC 6286, 2.3.
func TestWhichConnectionStays(t *testing.T) {
	t.Parallel()
	low, high := netip.MustParseAddr("9.255.255.255"), netip.MustParseAddr("10.0.0.0")
	for _, c := range []struct {
		ours, theirs netip.Addr
		asn, peerASN uint32
		stays        bool
	}{
		{low, high, 2, 1, false},
		{high, low, 1, 2, true},
		{low, low, 2, 1, true},
		{low, low, 1, 2, false},
	} {
		if got := oursStays(model.Peer{LocalASN: c.asn, PeerASN: c.peerASN}, c.ours, c.theirs); got != c.stays {
			t.Errorf("%s: ours stays is %t", fmt.Sprint(c), got)
		}
	}
}
