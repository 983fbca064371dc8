package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// asking is a Gateway with lines of metadata and spec of its own, in flow style.
func asking(name string, port int, metadata, spec string) string {
	g := gateway(name, port)
	g = strings.Replace(g, "namespace: default}", "namespace: default"+metadata+"}", 1)
	return strings.Replace(g, "  gatewayClassName: fairlead\n", "  gatewayClassName: fairlead\n"+spec, 1)
}

// TestWhoGetsAnAddress asks for addresses in all ways. Each Gateway says what became of it.
func TestWhoGetsAnAddress(t *testing.T) {
	s := routed(t)
	names := []string{"first", "second", "wish", "foreign", "nowhere", "taken"}
	t.Cleanup(func() {
		for _, n := range names {
			s.kubectl(t, "delete", "gateway", n, "--ignore-not-found")
		}
		s.kubectl(t, "delete", "addresspool", "small")
	})
	small := ", annotations: {fairlead.dev/address-pool: small}"
	wish := func(a string) string { return "  addresses: [{type: IPAddress, value: " + a + "}]\n" }
	s.apply(t, rig.PoolManifest("small", []string{"198.51.100.8/32"}, "assign: OnRequest"), asking("first", 8201, small, ""))
	s.awaitGateway(t, "first", "198.51.100.8")
	s.apply(t,
		asking("second", 8202, small, ""), asking("wish", 8203, "", wish("203.0.113.20")), asking("foreign", 8204, "", wish("192.0.2.77")),
		asking("nowhere", 8205, ", annotations: {fairlead.dev/address-pool: nowhere}", ""), asking("taken", 8206, "", wish("203.0.113.16")))
	s.awaitGateway(t, "wish", "203.0.113.20")
	for name, want := range map[string]condition{
		"first":   {"Programmed", "True", "Programmed", "every machine concerned runs it"},
		"wish":    {"Programmed", "True", "Programmed", "every machine concerned runs it"},
		"second":  {"Programmed", "False", "AddressNotAssigned", "no IPv4 address is free in AddressPool small: add addresses to a pool, or delete an owner that no longer needs its address"},
		"foreign": {"Programmed", "False", "AddressNotUsable", "192.0.2.77 is in no AddressPool: ask for an address of a pool, or for none"},
		"nowhere": {"Programmed", "False", "AddressNotUsable", `metadata.annotations[fairlead.dev/address-pool]: AddressPool "nowhere" not found`},
		"taken":   {"Programmed", "False", "AddressNotUsable", "203.0.113.16 of AddressPool public belongs to Gateway default/edge"},
	} {
		s.awaitConditions(t, ref("Gateway default/"+name), want, condition{"Accepted", "True", "Accepted", "the Gateway is accepted"})
	}
	if got := s.kubectl(t, "get", "addresspool", "small", "-o", "jsonpath={.status.assigned} {.status.free} {.status.assignments[*].name}"); got != "1 0 IPv4 first" {
		t.Errorf("the small pool says %q", got)
	}
	_, out, errs := s.run(t, s.plane.Machine, "vips")
	for _, want := range []struct{ address, pool, owner string }{
		{"203.0.113.16", "public", "Gateway default/edge"}, {"203.0.113.20", "public", "Gateway default/wish"}, {"198.51.100.8", "small", "Gateway default/first"},
	} {
		line := lineWith(out, want.address+" ")
		if wrong := wantText(line, want.pool, want.owner, "BGP", "announced"); wrong != "" {
			t.Errorf("fairlead vips: %s\n%s%s", wrong, out, errs)
		}
	}
	s.kubectl(t, "delete", "gateway", "first") // and the next one in the queue gets it
	s.awaitGateway(t, "second", "198.51.100.8")
	s.awaitConditions(t, "AddressPool small", condition{"Accepted", "True", "Accepted", "the pool is accepted"})
}

// awaitGateway waits until a Gateway has exactly these addresses and is programmed.
func (s *site) awaitGateway(t *testing.T, name string, addresses ...string) {
	t.Helper()
	s.await(t, fmt.Sprintf("Gateway %s at %v", name, addresses), func(ctx context.Context) error {
		o, err := s.get(ctx, ref("Gateway default/"+name))
		if err != nil {
			return err
		}
		var raw []string
		for _, a := range o.Status.Addresses {
			raw = append(raw, string(a))
		}
		for _, a := range addresses {
			if !strings.Contains(strings.Join(raw, " "), `"`+a+`"`) {
				return fmt.Errorf("its addresses are %v, its conditions %+v", raw, o.Status.Conditions)
			}
		}
		if len(raw) != len(addresses) {
			return fmt.Errorf("its addresses are %v", raw)
		}
		return nil
	})
}

// TestPeersThatDoNotComeUp has a second peer with everything wrong in turn; each time the
// peer and the session say what, and the first peer does not notice.
func TestPeersThatDoNotComeUp(t *testing.T) {
	s := routed(t)
	log := s.watchRoutes(t)
	m := s.Lab.Machine(reflector.Name)
	at, _, _ := m.On(lab.SegmentEdges)
	c := s.routerConfig()
	c.ID, c.NoKernel = at, true
	c.Ranges[0].BFD, c.Ranges[0].Password = nil, "right"
	second, err := router.Start(t.Context(), router.BIRD, m, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		s.kubectl(t, "delete", "bgppeer", "second")
		s.kubectl(t, "delete", "secret", "-n", "fairlead-system", "second", "--ignore-not-found")
	})
	peer := rig.PeerManifest("second", m, "passwordSecret: second")
	s.apply(t, peer)
	each := func(why string) string {
		return "edge-1: peer second (" + at.String() + ":179): " + why + "; edge-2: peer second (" + at.String() + ":179): " + why
	}
	accepted := condition{"Accepted", "True", "Accepted", "the peer is accepted"}
	s.awaitConditions(t, "BGPPeer second",
		condition{"Accepted", "False", "PasswordMissing", "spec.passwordSecret: Secret fairlead-system/second not found: machines that know the password go on with it, others have no session"},
		condition{"Established", "False", "PasswordMissing", each("the session needs a password, and its Secret is missing or empty: create it or correct its name")})
	s.apply(t, secret("second", "wrong"))
	s.awaitConditions(t, "BGPPeer second", accepted,
		condition{"Established", "False", "NoAnswer", each("nothing answers: the password differs at the router (TCP MD5 answers nothing then), or a firewall drops the packets")})
	s.apply(t, secret("second", "right"))
	s.awaitConditions(t, "BGPPeer second", accepted, condition{"Established", "True", "Established", "sessions with edge-1, edge-2"})
	s.apply(t, strings.Replace(peer, fmt.Sprintf("peerASN: %d", rig.RouterASN), "peerASN: 64999", 1))
	s.awaitConditions(t, "BGPPeer second", accepted,
		condition{"Established", "False", "WrongAS", each("it has AS 65000, and AS 64999 is expected: correct the peer's AS here or at the router")})
	s.awaitBGP(t, "Sessions (4)", "65001 to 64999", "203.0.113.16/32  edge-1 to upstream, edge-2 to upstream",
		"edge-1 to second: WrongAS: peer second ("+at.String()+":179): it has AS 65000, and AS 64999 is expected")
	log.calm(t, vip4, vip6)
}

// awaitBGP waits until `fairlead bgp` has these words.
func (s *site) awaitBGP(t *testing.T, words ...string) {
	t.Helper()
	s.await(t, "fairlead bgp to tell", func(context.Context) error {
		_, out, errs := s.run(t, s.plane.Machine, "bgp")
		if wrong := wantText(out, words...); wrong != "" {
			return fmt.Errorf("%s: %s%s", wrong, out, errs)
		}
		return nil
	})
}

// TestOneRouterIDTwice gives two edges one router id: one keeps it, the other one is told,
// and both have sessions.
func TestOneRouterIDTwice(t *testing.T) {
	s := routed(t)
	set := func(id string) {
		t.Helper()
		for _, edge := range s.edges() {
			s.kubectl(t, "patch", "machine", edge, "--type=merge", "-p", `{"spec":{"routerID":`+id+`}}`)
		}
	}
	t.Cleanup(func() { set("null") })
	set(`"10.99.99.99"`)
	s.await(t, "a session with the router id", func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		var ids []string
		for _, x := range status.Sessions {
			if x.State == v1.SessionEstablished {
				ids = append(ids, x.RouterID.String())
			}
		}
		if len(ids) != 2 || ids[0] == ids[1] || !strings.Contains(strings.Join(ids, " "), "10.99.99.99") {
			return fmt.Errorf("the router ids are %v", ids)
		}
		return nil
	})
	s.awaitConditions(t, "BGPPeer upstream", condition{"RouterIDConflict", "True", "Duplicate", "…10.99.99.99…"})
	s.awaitOrder(t)
}

// TestEdgeWithoutIPv6 takes IPv6 from an edge that serves: its IPv4 VIP goes on, and the
// IPv6 one is withheld there with the reason, and comes back.
func TestEdgeWithoutIPv6(t *testing.T) {
	s := routed(t)
	m := s.Lab.Machine("edge-2")
	log := s.watchRoutes(t)
	load4, load6 := s.startVIPLoad(t, vip4, true), s.startVIPLoad(t, vip6, false)
	put := func(value string) {
		t.Helper()
		c := m.Command(context.WithoutCancel(t.Context()), "sh", "-c", "echo "+value+" > /proc/sys/net/ipv6/conf/lo/disable_ipv6")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Cleanup(func() { put("0") })
	off := s.Now()
	put("1")
	s.awaitVIP(t, vip6, "announced", "edge-1 announced, edge-2 withheld: hold 2001:db8:77::10: …")
	s.awaitVIP(t, vip4, "announced", "edge-1 announced, edge-2 announced")
	gone := log.awaitWay(t, vip6, off, "edge-1")
	t.Logf("withheld after %s", gone.Sub(off))
	s.awaitProblemOf(t, "VIP 2001:db8:77::10", "NotEverywhere", "edge-2: hold 2001:db8:77::10: unsupported operation: IPv6 is disabled on lo; set net.ipv6.conf.lo.disable_ipv6=0")
	put("0")
	back := log.awaitWay(t, vip6, gone, "edge-1", "edge-2")
	s.awaitOrder(t)
	log.calm(t, vip4)
	load4.none(t)
	load6.none(t, span{off, gone.Add(settleTime)}, around(back))
}
