package e2e

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestDrainWithoutAPlane drains an edge whose plane dies, and stops another one's agent, to
// drain, while there is none: nobody tells the other edge, and nothing breaks all the same.
func TestDrainWithoutAPlane(t *testing.T) {
	s := routed(t)
	a := s.agents["edge-1"]
	restart := func(args ...string) {
		t.Helper()
		if err := a.Process.Stop(t.Context(), stopTime); err != nil {
			t.Fatal(err)
		}
		if err := a.Start(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
		if err := a.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var loads []*vipLoad
	begin := func() {
		t.Helper()
		s.awaitOrder(t)
		s.awaitPassing(t)
		loads = []*vipLoad{s.startVIPLoad(t, vip4, true), s.startVIPLoad(t, vip4, false), s.startVIPLoad(t, vip6, true), s.startVIPLoad(t, vip6, false)}
	}
	more := func(n int) {
		t.Helper()
		for _, l := range loads {
			l.more(t, n)
		}
	}
	end := func() {
		t.Helper()
		for _, l := range loads {
			l.none(t)
		}
	}

	begin()
	s.kubectl(t, "patch", "machine", "edge-1", "--type=merge", "-p", `{"spec":{"cordoned":true}}`)
	s.awaitNextHops(t, upstream, vip4, "edge-2")
	s.plane.Process.Kill9()
	more(100)
	log := s.watchRoutes(t)
	a.Process.Kill9() // it remembers that it is to be drained
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitRouterSessionOf(t, "edge-1", 0)
	more(100)
	log.calm(t, vip4, vip6)
	end()
	s.startPlane(t)
	s.kubectl(t, "patch", "machine", "edge-1", "--type=merge", "-p", `{"spec":{"cordoned":false}}`)

	s.awaitOrder(t)
	restart("--on-stop=drain")
	begin()
	s.plane.Process.Kill9()
	more(20)
	if err := a.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.awaitNextHops(t, upstream, vip4, "edge-2")
	if err := a.Process.Wait(t.Context()); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	s.awaitEmpty(t, a.Machine)
	more(100)
	if err := a.Start(t.Context()); err != nil { // and back, from what it remembers
		t.Fatal(err)
	}
	s.awaitNextHops(t, upstream, vip4, "edge-1", "edge-2")
	more(100)
	end()
	s.startPlane(t)
	s.awaitOrder(t)
}
