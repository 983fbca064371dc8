package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// TestAgentsComeAndGoBehindVIPs kills an agent that another one follows at once, and stops
// one that leaves its Envoy, at a router that takes what BFD finds for a failure: the
// routes stay and nobody notices.
func TestAgentsComeAndGoBehindVIPs(t *testing.T) {
	s := routed(t)
	// The router waits for ten packets, three seconds, as an agent may take a while to start
	// on a busy machine.
	s.kubectl(t, "delete", "bgppeer", "upstream")
	s.apply(t, rig.PeerManifest("patient", upstream.Machine(), "bfd: {interval: 300ms, multiplier: 10}"))
	t.Cleanup(func() { s.kubectl(t, "delete", "bgppeer", "patient") })
	s.awaitSessions(t, func(x v1.SessionStatus) error {
		if x.Peer != "patient" || x.BFD != "up" {
			return fmt.Errorf("%s to %s, BFD %s: %s", x.Machine, x.Peer, x.BFD, x.Message)
		}
		return nil
	}, "edge-1", "edge-2")
	a := s.agents["edge-1"]
	for name, c := range map[string]struct {
		end  func() error
		away int // requests until the next agent; 100 are a second
	}{
		"killed":  {end: func() error { a.Process.Kill9(); return nil }},
		"stopped": {func() error { return a.Process.Stop(t.Context(), stopTime) }, 500},
		// So long that the plane holds the machine for lost. Its kernel and its Envoy go on.
		"stopped for long": {func() error { return a.Process.Stop(t.Context(), stopTime) }, 800},
	} {
		t.Run(name, func(t *testing.T) {
			s.awaitOrder(t)
			log := s.watchRoutes(t)
			kept, fresh := s.startVIPLoad(t, vip4, true), s.startVIPLoad(t, vip6, false)
			if err := c.end(); err != nil {
				t.Fatal(err)
			}
			if c.away > 0 {
				kept.more(t, c.away)
				log.calm(t, vip4, vip6)
			}
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			// What the plane shows may be of the agent before, whose session the router has
			// not found missing: its restart time runs on until the next one has its own.
			if err := a.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.awaitRouterSessionOf(t, "edge-1", 2)
			s.awaitOrder(t)
			kept.more(t, 100)
			log.calm(t, vip4, vip6)
			kept.none(t)
			fresh.none(t)
		})
	}
}

// TestKillEnvoyBehindVIPs kills an edge's Envoy: its routes go at once, and come back
// with the next one.
func TestKillEnvoyBehindVIPs(t *testing.T) {
	s := routed(t)
	log := s.watchRoutes(t)
	fresh, other := s.startVIPLoad(t, vip4, false), s.startLoad(t, s.Lab.Machine("edge-2"), vip4, true)
	killed := s.Now()
	s.killEnvoy(t, s.envoy(t, "edge-1"))
	gone := log.awaitWay(t, vip4, killed, "edge-2")
	back := log.awaitWay(t, vip4, gone, "edge-1", "edge-2")
	fresh.more(t, 100)
	t.Logf("the route went after %s and was back after %s", gone.Sub(killed), back.Sub(killed))
	fresh.none(t, span{killed, gone.Add(settleTime)}, around(back))
	other.none(t)
}

// settleTime is what a router and a client take to follow a route that changed.
const settleTime = 300 * time.Millisecond

// TestMachinesDieBehindVIPs has everything on an edge die in each of the ways in which
// nobody says goodbye: its routes go when BFD finds out, and traffic goes on over the
// other edge.
func TestMachinesDieBehindVIPs(t *testing.T) {
	s := routed(t)
	m, a := s.Lab.Machine("edge-1"), s.agents["edge-1"]
	signal := func(sig unix.Signal) error {
		found, err := m.Residents()
		for _, r := range found {
			if err == nil {
				err = unix.Kill(r.Pid.ID, sig)
			}
		}
		return err
	}
	for _, c := range []struct {
		name      string
		die, live func(t *testing.T) error
	}{
		{"killed", func(t *testing.T) error { s.killEdge(t, "edge-1"); return nil }, func(t *testing.T) error { return a.Start(t.Context()) }},
		{"stopped", func(*testing.T) error { return signal(unix.SIGSTOP) }, func(*testing.T) error { return signal(unix.SIGCONT) }},
		{"unplugged", func(t *testing.T) error { return m.SetLink(t.Context(), false) }, func(t *testing.T) error { return m.SetLink(t.Context(), true) }},
		{"unreachable", func(*testing.T) error { return m.SetBlackhole(true) }, func(*testing.T) error { return m.SetBlackhole(false) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.awaitOrder(t)
			log := s.watchRoutes(t)
			loads := []*vipLoad{s.startVIPLoad(t, vip4, false), s.startVIPLoad(t, vip6, false)}
			alive := true
			revive := func() {
				if !alive {
					alive = true
					if err := c.live(t); err != nil {
						t.Error(err)
					}
				}
			}
			defer revive()
			died := s.Now()
			alive = false
			if err := c.die(t); err != nil {
				t.Fatal(err)
			}
			gone := log.awaitWay(t, vip4, died, "edge-2")
			if six := log.awaitWay(t, vip6, died, "edge-2"); six.After(gone) {
				gone = six
			}
			loads[0].more(t, 50)
			revive()
			back := log.awaitWay(t, vip4, gone, "edge-1", "edge-2")
			if six := log.awaitWay(t, vip6, gone, "edge-1", "edge-2"); six.After(back) {
				back = six
			}
			t.Logf("the routes went after %s", gone.Sub(died))
			for _, l := range loads {
				l.more(t, 50)
				l.none(t, span{died, gone.Add(settleTime)}, around(back))
			}
		})
	}
	s.awaitOrder(t)
}

// restartUpstream runs the shared router anew with another configuration, and with the
// usual one again when the test is over.
func (s *site) restartUpstream(t *testing.T, c router.Config) {
	t.Helper()
	s.replaceUpstream(t, router.BIRD, c)
}

// replaceUpstream is restartUpstream with a router of another kind.
func (s *site) replaceUpstream(t *testing.T, kind router.Kind, c router.Config) {
	t.Helper()
	m := upstream.Machine()
	if err := upstream.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := router.Start(t.Context(), kind, m, c)
	if err != nil {
		t.Fatal(err)
	}
	upstream = r
	t.Cleanup(func() { s.usualUpstream(t) })
}

// usualUpstream runs the shared router anew, as it was at first.
func (s *site) usualUpstream(t *testing.T) {
	t.Helper()
	m, ctx := upstream.Machine(), context.WithoutCancel(t.Context())
	if err := upstream.Stop(ctx); err != nil {
		t.Error(err)
	}
	r, err := s.StartRouter(ctx, m, rig.RouterOptions{Kind: router.BIRD, BFD: &router.BFD{}})
	if err != nil {
		t.Fatal(err)
	}
	upstream = r
}

// TestRouterRestarts stops the router, and kills it: the sessions are down and people
// are told why; when it is back, so are sessions and routes.
func TestRouterRestarts(t *testing.T) {
	s := routed(t)
	const refused = "the connection is refused: let the router's BGP listen on this address and port, and accept this machine as a neighbour"
	// Where the session was lost more than once, the message says that, too.
	for name, c := range map[string]struct {
		end             func()
		reason, message string
	}{
		"stopped": {func() {
			if err := upstream.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}, "Notified", "peer upstream (…): it is shut down for us (NOTIFICATION 6/2): enable the session at the router…; since then: " + refused},
		"killed": {func() { upstream.Kill() }, "Refused", "peer upstream (…): " + refused},
	} {
		if !t.Run(name, func(t *testing.T) {
			s.awaitOrder(t)
			c.end()
			s.awaitProblemOf(t, "BGPPeer upstream at edge-1", c.reason, c.message)
			s.awaitVIP(t, vip4, "withheld", "edge-1 withheld: no BGP session advertises it: session with upstream (…) is not established (connect): …, edge-2 withheld: no BGP session advertises it: session with upstream (…) is not established (connect): …")
			began := s.Now()
			s.usualUpstream(t)
			s.awaitOrder(t)
			t.Logf("everything was back %s after the router", s.Now().Sub(began))
			s.awaitVIP(t, vip4, "announced", "edge-1 announced, edge-2 announced")
			s.awaitConditions(t, "BGPPeer upstream", condition{"Established", "True", "Established", "sessions with edge-1, edge-2"})
		}) {
			s.usualUpstream(t) // the next tests need it
		}
	}
}

// awaitProblemOf waits until the plane names a problem; in the message "…" stands for
// any text.
func (s *site) awaitProblemOf(t *testing.T, subject, reason, message string) {
	t.Helper()
	s.await(t, fmt.Sprintf("the problem %s %s: %s", subject, reason, message), func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		for _, p := range status.Problems {
			if p.Subject == subject && p.Reason == reason && matches(message, p.Message) {
				return nil
			}
		}
		return fmt.Errorf("the problems are %+v", status.Problems)
	})
}

// routerConfig is the usual configuration of the shared router, to be changed.
func (s *site) routerConfig() router.Config {
	m := upstream.Machine()
	net4, _, _ := m.Networks("edges")
	id, _, _ := m.On("edges")
	return router.Config{ASN: rig.RouterASN, ID: id, Ranges: []router.Range{{Prefix: net4, Peering: router.Peering{
		ASN: rig.EdgeASN, Families: []router.Family{router.IPv4, router.IPv6}, BFD: &router.BFD{}, Helper: true,
	}}}}
}
