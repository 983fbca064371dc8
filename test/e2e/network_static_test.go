package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// secret is a Secret of a BGPPeer.
func secret(name, password string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + ", namespace: fairlead-system}\nstringData: {password: " + password + "}\n"
}

// TestVIPsWithoutAPlane kills the plane, and then agents: VIPs stay announced, and an
// agent that starts announces what it remembers, with the password that its peer wants.
func TestVIPsWithoutAPlane(t *testing.T) {
	s := routed(t)
	c := s.routerConfig()
	c.Ranges[0].BFD.Graceful, c.Ranges[0].Password = true, "correct-horse"
	s.apply(t, secret("upstream", "correct-horse"), rig.PeerManifest("upstream", upstream.Machine(), append(slices.Clone(watched), "passwordSecret: upstream")...))
	t.Cleanup(func() { s.kubectl(t, "delete", "secret", "-n", "fairlead-system", "upstream") })
	s.restartUpstream(t, c)
	s.awaitOrder(t)
	log := s.watchRoutes(t)
	kept, fresh := s.startVIPLoad(t, vip4, true), s.startVIPLoad(t, vip6, false)
	s.plane.Process.Kill9()
	kept.more(t, 100)
	for _, edge := range s.edges() {
		a := s.agents[edge]
		a.Process.Kill9()
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.awaitRouterSession(t, edge)
	}
	kept.more(t, 100)
	log.calm(t, vip4, vip6)
	kept.none(t)
	fresh.none(t)

	// With its Envoy and the routes gone, too, all of it comes back from memory.
	s.killEdge(t, "edge-1")
	if err := s.agents["edge-1"].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitRouterSession(t, "edge-1")
	s.awaitNextHops(t, upstream, vip4, "edge-1", "edge-2")
	s.startPlane(t)
	s.awaitOrder(t)
}

// awaitRouterSession waits until the shared router has a session with an edge.
func (s *site) awaitRouterSession(t *testing.T, edge string) {
	t.Helper()
	s.awaitRouterSessionOf(t, edge, 2)
}

// awaitRouterSessionOf waits until that session carries so many prefixes.
func (s *site) awaitRouterSessionOf(t *testing.T, edge string, prefixes int) {
	t.Helper()
	s.await(t, "the router's session with "+edge, func(ctx context.Context) error {
		sessions, err := upstream.Sessions(ctx)
		if err != nil {
			return err
		}
		for _, x := range sessions {
			if v4, _, _ := s.Lab.Machine(edge).On(lab.SegmentEdges); x.Neighbor == v4 && x.Up && x.Received == prefixes {
				return nil
			}
		}
		return fmt.Errorf("its sessions are %+v", sessions)
	})
}

// assignments are who has which VIP, as the plane shows it.
func (s *site) assignments(t *testing.T) string {
	t.Helper()
	status, err := s.plane.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, v := range status.VIPs {
		lines = append(lines, fmt.Sprintf("%s %s %s", v.Address, v.Pool, v.Owner))
	}
	return strings.Join(lines, "\n")
}

// TestEverythingRestarts kills the plane and the agents in one go: every VIP has the
// owner that it had.
func TestEverythingRestarts(t *testing.T) {
	s := routed(t)
	var owners []string
	for i := range 5 {
		owners = append(owners, fmt.Sprintf("stable-%d", i))
		s.apply(t, gateway(owners[i], 8100+i))
	}
	remove := func(names ...string) {
		for _, n := range names {
			s.kubectl(t, "delete", "gateway", n)
		}
	}
	t.Cleanup(func() { remove(owners...) })
	remove(owners[1], owners[3]) // leaves holes that a new assignment would fill
	owners = slices.DeleteFunc(owners, func(n string) bool { return n == "stable-1" || n == "stable-3" })
	for _, vip := range []string{"203.0.113.17", "203.0.113.19", "203.0.113.21"} {
		s.awaitNextHops(t, upstream, netip.MustParseAddr(vip), "edge-1", "edge-2")
	}
	var before string
	s.await(t, "what was removed has no address", func(context.Context) error {
		if before = s.assignments(t); strings.Count(before, "stable-") != 6 {
			return fmt.Errorf("the assignments are\n%s", before)
		}
		return nil
	})
	s.plane.Process.Kill9()
	for _, edge := range s.edges() {
		s.killEdge(t, edge)
	}
	for _, edge := range s.edges() {
		if err := s.agents[edge].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.startPlane(t)
	s.awaitOrder(t)
	if after := s.assignments(t); after != before {
		t.Errorf("the assignments are\n%s\nbefore they were\n%s", after, before)
	}
}

// TestRouteReflector has the edges peer with a reflector, and the router too: the router
// learns all edges from it, and that one is gone.
func TestRouteReflector(t *testing.T) {
	s := routed(t)
	m, both := s.Lab.Machine(reflector.Name), []router.Family{router.IPv4, router.IPv6}
	internal := router.Peering{ASN: rig.EdgeASN, Families: both, AddPath: true, BFD: &router.BFD{}}
	c := s.routerConfig()
	id, net4 := c.ID, c.Ranges[0].Prefix
	at, _, _ := m.On(lab.SegmentEdges)
	clients := internal
	clients.Client, clients.AddPath, clients.BFD = true, false, nil
	middle, err := router.Start(t.Context(), router.BIRD, m, router.Config{
		ASN: rig.EdgeASN, ID: at, NoKernel: true,
		Neighbors: []router.Neighbor{{Address: id, Peering: internal}}, Ranges: []router.Range{{Prefix: net4, Peering: clients}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := middle.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		s.kubectl(t, "delete", "bgppeer", "reflector")
	})
	s.kubectl(t, "delete", "bgppeer", "upstream")
	s.restartUpstream(t, router.Config{ASN: rig.EdgeASN, ID: id, Neighbors: []router.Neighbor{{Address: at, Peering: internal}}})
	s.apply(t, fmt.Sprintf(`apiVersion: fairlead.dev/v1alpha1
kind: BGPPeer
metadata: {name: reflector}
spec: {address: %s, localASN: %d, peerASN: %d, holdTime: 3s, connectRetryTime: 1s, families: [IPv4, IPv6]}
`, at, rig.EdgeASN, rig.EdgeASN))
	s.awaitWays(t)
	log := s.watchRoutes(t)
	load := s.startVIPLoad(t, vip4, false)
	died := s.Now()
	s.killEdge(t, "edge-1")
	gone := log.awaitWay(t, vip4, died, "edge-2")
	log.awaitWay(t, vip6, died, "edge-2")
	t.Logf("the route went after %s", gone.Sub(died))
	load.more(t, 50)
	if err := s.agents["edge-1"].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := log.awaitWay(t, vip4, gone, "edge-1", "edge-2")
	load.more(t, 50)
	load.none(t, span{died, gone.Add(settleTime)}, around(back))
}

// TestRouterWithoutMultipath has all traffic pass one edge, and the other one when that
// is gone. First the router has both ways and one client takes only one of them.
func TestRouterWithoutMultipath(t *testing.T) {
	s := routed(t)
	hash := func(policy string) {
		t.Helper()
		c := upstream.Machine().Command(context.WithoutCancel(t.Context()), "sh", "-c", "echo "+policy+" | tee /proc/sys/net/ipv4/fib_multipath_hash_policy")
		if out, err := c.CombinedOutput(); err != nil || string(out) != policy+"\n" {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Cleanup(func() { hash("1") })
	hash("0")
	same := s.startVIPLoad(t, vip4, false)
	same.more(t, 50)
	same.none(t)
	hash("1")
	c := s.routerConfig()
	c.MaxPaths = 1
	s.restartUpstream(t, c)
	for _, edge := range s.edges() {
		s.awaitRouterSession(t, edge)
	}
	s.awaitWatched(t)
	// Which one it is may change as long as the router settles, so it is asked last.
	log := s.watchRoutes(t)
	load := s.startVIPLoad(t, vip4, false)
	load.more(t, 50)
	var one string
	s.await(t, "one way", func(ctx context.Context) error {
		hops, err := upstream.Routes(ctx, netip.PrefixFrom(vip4, 32))
		for _, edge := range s.edges() {
			if slices.Equal(hops, s.hops(vip4, edge)) {
				one = edge
			}
		}
		if err == nil && one == "" {
			err = fmt.Errorf("the route goes by %v", hops)
		}
		return err
	})
	killed := s.Now()
	s.killEnvoy(t, s.envoy(t, one))
	rest := slices.DeleteFunc(s.edges(), func(edge string) bool { return edge == one })
	gone := log.awaitWay(t, vip4, killed, rest...)
	load.more(t, 100)
	var but []span
	for _, e := range log.of(vip4) {
		but = append(but, around(e.When))
	}
	load.none(t, append(but, span{killed, gone.Add(settleTime)})...)
}

// TestFlatSegment has a VIP of the edges' own segment: a client on it reaches the one
// edge that owns it, and the other one soon after that is gone.
func TestFlatSegment(t *testing.T) {
	s := routed(t)
	flat := []netip.Addr{netip.MustParseAddr("10.77.200.16"), netip.MustParseAddr("fd77::200:10")}
	s.apply(t, rig.PoolManifest("flat", []string{"10.77.200.16/31", "fd77::200:10/127"}, "announce: L2", "assign: OnRequest"),
		strings.Replace(gateway("flat", 8090), "namespace: default}", `namespace: default, annotations: {fairlead.dev/address-pool: flat}}`, 1),
		httpRouteOf("flat", "default", "flat", "flat.example.com", to("app")))
	t.Cleanup(func() {
		s.kubectl(t, "delete", "httproute/flat", "gateway/flat")
		s.kubectl(t, "delete", "addresspool", "flat")
	})
	ask := func(vip netip.Addr) {
		t.Helper()
		s.awaitFrom(t, neighbour.Name, request{at: vip, port: 8090, host: "flat.example.com"})
	}
	for _, vip := range flat {
		ask(vip)
	}
	owner := s.awaitOwner(t, flat[0])
	_, out, errs := s.run(t, s.plane.Machine, "vips")
	if !strings.Contains(out, "10.77.200.16") || !strings.Contains(lineWith(out, "10.77.200.16"), owner) {
		t.Errorf("fairlead vips names no owner %s:\n%s%s", owner, out, errs)
	}
	began := s.Now()
	s.killEdge(t, owner)
	ask(flat[0])
	t.Logf("the VIP of %s answered elsewhere after %s", owner, s.Now().Sub(began))
	ask(flat[1])
	if err := s.agents[owner].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitOwner(t, flat[0])
	s.awaitOwner(t, flat[1])
	for _, vip := range flat {
		ask(vip)
	}
	s.awaitOrder(t)
}

// lineWith is the first line of a text that has the word.
func lineWith(text, word string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			return line
		}
	}
	return ""
}

// awaitOwner waits until exactly one edge owns a VIP and the other stands by.
func (s *site) awaitOwner(t *testing.T, vip netip.Addr) (owner string) {
	t.Helper()
	s.await(t, "one owner of "+vip.String(), func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		for _, v := range status.VIPs {
			if v.Address != vip {
				continue
			}
			var owners, others []string
			for _, at := range v.At {
				switch at.State {
				case v1.VIPAnnounced:
					owners = append(owners, at.Machine)
				case v1.VIPStandby:
					others = append(others, at.Machine)
				}
			}
			if len(owners) != 1 || len(others) != 1 {
				return fmt.Errorf("it is %+v", v)
			}
			owner = owners[0]
			return nil
		}
		return errors.New("there is no such VIP")
	})
	return owner
}

// awaitFrom waits until a machine gets an answer.
func (s *site) awaitFrom(t *testing.T, machine string, r request) {
	t.Helper()
	m := s.Lab.Machine(machine)
	target := netip.AddrPortFrom(r.at, r.port)
	s.await(t, machine+" to reach "+target.String(), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second) // an owner that is gone answers nothing
		defer cancel()
		conn, err := m.Dial(ctx, "tcp", target.String())
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if deadline, ok := ctx.Deadline(); ok {
			_ = conn.SetDeadline(deadline)
		}
		if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", r.host); err != nil {
			return err
		}
		answer := make([]byte, 12)
		if _, err := conn.Read(answer); err != nil {
			return err
		}
		if string(answer) != "HTTP/1.1 200" {
			return fmt.Errorf("it answers %q", answer)
		}
		return nil
	})
}
