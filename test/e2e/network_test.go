package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"fairlead.dev/lab/router"
)

// The addresses of the pool of these tests, and the first of each family.
var (
	poolAddresses = []string{"203.0.113.16/29", "2001:db8:77::10/124"}
	vip4          = netip.MustParseAddr("203.0.113.16")
	vip6          = netip.MustParseAddr("2001:db8:77::10")
)

// awaitNextHops waits until the router's kernel sends a VIP's packets to exactly these
// machines.
func (s *site) awaitNextHops(t *testing.T, r *router.Router, vip netip.Addr, machines ...string) {
	t.Helper()
	want := s.hops(vip, machines...)
	s.await(t, fmt.Sprintf("the router to have %s over %v", vip, machines), func(ctx context.Context) error {
		got, err := r.Routes(ctx, netip.PrefixFrom(vip, vip.BitLen()))
		if err != nil {
			return err
		}
		slices.SortFunc(got, netip.Addr.Compare)
		if !slices.Equal(got, want) {
			_, at, err := s.vipAt(ctx, vip) // a machine that withholds it says why
			return errors.Join(fmt.Errorf("it has it over %v, want %v; the plane shows it at %s", got, want, at), err)
		}
		return nil
	})
}

// TestVIPsBehindFRR has the other router learn the VIPs, lose an edge in the ways that
// routers see differently, and get it back.
func TestVIPsBehindFRR(t *testing.T) {
	if err := router.FRR.Find(); err != nil {
		t.Skip(err)
	}
	s := routed(t)
	m, a := s.Lab.Machine("edge-1"), s.agents["edge-1"]
	s.replaceUpstream(t, router.FRR, s.routerConfig())
	s.awaitOrder(t)
	for _, vip := range []netip.Addr{vip4, vip6} {
		s.awaitVIP(t, vip, "announced", "edge-1 announced, edge-2 announced")
	}
	log := s.watchRoutes(t)
	load := s.startVIPLoad(t, vip4, false)
	killed := s.Now()
	s.killEnvoy(t, s.envoy(t, "edge-1"))
	gone := log.awaitWay(t, vip4, killed, "edge-2")
	back := log.awaitWay(t, vip4, gone, "edge-1", "edge-2")
	load.more(t, 50)
	load.none(t, span{killed, gone.Add(settleTime)}, around(back))
	s.awaitOrder(t)

	load = s.startVIPLoad(t, vip4, false)
	died := s.Now()
	if err := m.SetBlackhole(true); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.SetBlackhole(false) }()
	gone = log.awaitWay(t, vip4, died, "edge-2")
	t.Logf("the route went after %s", gone.Sub(died))
	load.more(t, 50)
	if err := m.SetBlackhole(false); err != nil {
		t.Fatal(err)
	}
	back = log.awaitWay(t, vip4, gone, "edge-1", "edge-2")
	load.none(t, span{died, gone.Add(settleTime)}, around(back))
	s.awaitOrder(t)

	// An agent may go and come back, also one that was killed and takes longer than BFD
	// waits: FRR heeds BFD only while the BGP session is up.
	load = s.startVIPLoad(t, vip4, true)
	log = s.watchRoutes(t)
	for name, end := range map[string]func() error{
		"killed":  func() error { a.Process.Kill9(); return nil },
		"stopped": func() error { return a.Process.Stop(t.Context(), stopTime) },
	} {
		if err := end(); err != nil {
			t.Fatal(name, err)
		}
		load.more(t, 200)
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Until the next session is up the router counts the time since the last one: what the
		// plane shows may be of the agent before, and another end would come too early.
		if err := a.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.awaitRouterSession(t, "edge-1")
		s.awaitVIP(t, vip4, "announced", "edge-1 announced, edge-2 announced")
		load.more(t, 50)
	}
	log.calm(t, vip4, vip6)
	load.none(t)
}
