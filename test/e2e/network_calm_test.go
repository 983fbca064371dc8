package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "fairlead.dev/internal/console/v1"
)

// TestNeighboursOfAVIPStayCalm lets another Gateway come, change and go again and again:
// the VIPs that are there, the sessions and the traffic do not notice.
func TestNeighboursOfAVIPStayCalm(t *testing.T) {
	s := routed(t)
	log, lost := s.watchRoutes(t), s.lost(t)
	kept, fresh := s.startVIPLoad(t, vip4, true), s.startVIPLoad(t, vip6, false)
	other := netip.MustParseAddr("203.0.113.17")
	for round := range 5 {
		s.apply(t, gateway("other", 8081))
		s.awaitNextHops(t, upstream, other, "edge-1", "edge-2")
		s.apply(t, httpRouteOf("other", "default", "other", "other.example.com", to("app")))
		s.awaitAnswerOf(t, "the other Gateway", request{at: other, port: 8081, host: "other.example.com"}, 200)
		s.apply(t, gateway("other", 8082))
		s.awaitAnswerOf(t, "the other Gateway", request{at: other, port: 8082, host: "other.example.com"}, 200)
		s.kubectl(t, "delete", "httproute/other", "gateway/other")
		s.awaitNextHops(t, upstream, other)
		if round == 0 && len(log.of(other)) < 2 {
			t.Errorf("the log of routes holds %v of the other VIP", log.of(other))
		}
	}
	kept.more(t, 50)
	log.calm(t, vip4, vip6)
	if now := s.lost(t); !maps.Equal(lost, now) {
		t.Errorf("sessions were lost: %v, before %v", now, lost)
	}
	kept.none(t)
	fresh.none(t)
}

// around is the time in which a router moves flows: a request under way then may meet
// another edge, which does not know it.
func around(when time.Time) span {
	return span{when.Add(-300 * time.Millisecond), when.Add(200 * time.Millisecond)}
}

// TestDrainBreaksNothing takes an edge out of the traffic and back in, and stops its agent
// with --on-stop=drain. The routers move its flows first, and the other edge passes them on
// to it until they end.
func TestDrainBreaksNothing(t *testing.T) {
	s := routed(t)
	log := s.watchRoutes(t)
	cordon := func(on string) {
		t.Helper()
		s.kubectl(t, "patch", "machine", "edge-1", "--type=merge", "-p", `{"spec":{"cordoned":`+on+`}}`)
	}
	t.Cleanup(func() { cordon("false") })
	s.awaitPassing(t)
	kept, fresh := s.startVIPLoad(t, vip4, true), s.startVIPLoad(t, vip4, false)
	began := s.Now()
	cordon("true")
	gone := log.awaitWay(t, vip4, began, "edge-2")
	s.awaitVIP(t, vip4, "announced", "edge-1 withheld: the machine is drained, edge-2 announced")
	kept.more(t, 50)
	cordon("false")
	back := log.awaitWay(t, vip4, gone, "edge-1", "edge-2")
	kept.more(t, 50)
	t.Logf("withdrawn after %s, back after %s", gone.Sub(began), back.Sub(gone))
	kept.none(t)
	fresh.none(t)
	s.awaitOrder(t)

	a := s.agents["edge-1"]
	if err := a.Process.Stop(t.Context(), stopTime); err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context(), "--on-stop=drain"); err != nil {
		t.Fatal(err)
	}
	if err := a.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitOrder(t)
	s.awaitPassing(t)
	kept, fresh = s.startVIPLoad(t, vip4, true), s.startVIPLoad(t, vip4, false)
	began = s.Now()
	if err := a.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	gone = log.awaitWay(t, vip4, began, "edge-2")
	if err := a.Process.Wait(t.Context()); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	s.awaitEmpty(t, a.Machine)
	kept.more(t, 50)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	log.awaitWay(t, vip4, gone, "edge-1", "edge-2")
	kept.more(t, 50)
	kept.none(t)
	fresh.none(t)
}

// awaitPassing waits until both edges pass flows of the listener on to each other.
func (s *site) awaitPassing(t *testing.T) {
	t.Helper()
	s.await(t, "the edges to pass flows on", func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		at := 0
		for _, f := range status.Frontends {
			for _, x := range f.At {
				if x.State != v1.FrontendBalanced || x.Mode != v1.ModeDSRGeneve || x.Available != 2 {
					return fmt.Errorf("%s at %s is %+v", f.FrontendKey, x.Machine, x)
				}
				at++
			}
		}
		if at != 4 {
			return fmt.Errorf("there are %d frontends at machines, want 4", at)
		}
		return nil
	})
}
