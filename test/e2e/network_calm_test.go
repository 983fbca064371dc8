package e2e

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// TestDrainComesBeforeWithdrawal takes an edge out of the traffic and back in, and stops
// its agent with --on-stop=drain.
func TestDrainComesBeforeWithdrawal(t *testing.T) {
	s := routed(t)
	log := s.watchRoutes(t)
	cordon := func(on string) {
		t.Helper()
		s.kubectl(t, "patch", "machine", "edge-1", "--type=merge", "-p", `{"spec":{"cordoned":`+on+`}}`)
	}
	t.Cleanup(func() { cordon("false") })
	kept, fresh := s.startVIPLoad(t, vip4, true), s.startVIPLoad(t, vip4, false)
	began := s.Now()
	cordon("true")
	closing := s.awaitCloses(t, "edge-1")
	gone := log.awaitWay(t, vip4, began, "edge-2")
	if !closing.Before(gone) {
		t.Errorf("connections were told to end at %s, and the route went at %s", closing.Format("05.000"), gone.Format("05.000"))
	}
	s.awaitVIP(t, vip4, "announced", "edge-1 withheld: the machine is drained, edge-2 announced")
	kept.more(t, 50)
	cordon("false")
	back := log.awaitWay(t, vip4, gone, "edge-1", "edge-2")
	kept.more(t, 50)
	t.Logf("told to end after %s, withdrawn after %s (%s), back at %s", closing.Sub(began), gone.Sub(began), gone.Format("05.000"), back.Format("05.000"))
	kept.none(t, around(gone), around(back))
	fresh.none(t, around(gone), around(back))
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
	back = log.awaitWay(t, vip4, gone, "edge-1", "edge-2")
	kept.more(t, 50)
	kept.none(t, around(gone), around(back))
	fresh.none(t, around(gone), around(back))
}
