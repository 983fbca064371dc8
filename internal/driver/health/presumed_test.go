package health

import (
	"container/heap"
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// TestPresumedChecksSayNothingUntilTheyWereAnswered holds that a machine that never reached a
// backend does not speak against it, where nobody asked for the check.
func TestPresumedChecksSayNothingUntilTheyWereAnswered(t *testing.T) {
	how := *model.PresumedCheck()
	now := time.Unix(1, 0)
	t.Run("never reached", func(t *testing.T) {
		x := tally{health: model.HealthUnknown}
		for range 10 {
			if x.add(how, "connection refused", now, now) || x.health != model.HealthUnknown {
				t.Fatalf("it is %s", x.health)
			}
		}
		if x.add(how, "", now, now); x.health != model.Healthy {
			t.Errorf("after a good answer it is %s", x.health)
		}
	})
	t.Run("reached before", func(t *testing.T) {
		x := tally{health: model.HealthUnknown}
		x.add(how, "", now, now)
		for i, want := range []model.Health{model.Healthy, model.Healthy, model.Unhealthy, model.Unhealthy} {
			if x.add(how, "no connection", now, now); x.health != want {
				t.Errorf("after %d failures it is %s", i+1, x.health)
			}
		}
	})
	t.Run("asked for", func(t *testing.T) {
		x, asked := tally{health: model.HealthUnknown}, how
		asked.Presumed = false
		if x.add(asked, "connection refused", now, now); x.health != model.Unhealthy {
			t.Errorf("after a bad answer it is %s", x.health)
		}
	})
}

// TestBusyMachinesAccuseNobody holds that a machine that did not run while an answer may have
// come does not count that against a backend, where nobody asked for the check.
func TestBusyMachinesAccuseNobody(t *testing.T) {
	presumed := *model.PresumedCheck()
	asked := presumed
	asked.Presumed = false
	for _, c := range []struct {
		how  model.HealthCheck
		kind string
		took time.Duration
		want bool
	}{
		{presumed, FailTimeout, presumed.Timeout + time.Millisecond, false},
		{presumed, FailTimeout, 2 * presumed.Timeout, true},
		{presumed, FailRefused, 2 * presumed.Timeout, false},
		{presumed, "", 2 * presumed.Timeout, false},
		{asked, FailTimeout, 2 * presumed.Timeout, false},
	} {
		if got := inconclusive(c.how, c.kind, c.took); got != c.want {
			t.Errorf("%+v, %q after %s: %t", c.how, c.kind, c.took, got)
		}
	}
}

// TestManyPresumedChecksAreSlower holds that a machine with very many checks that nobody asked
// for does not spend more on them.
func TestManyPresumedChecksAreSlower(t *testing.T) {
	p := New(Config{})
	var checks []model.Check
	for i := range 5000 {
		checks = append(checks, model.NewCheck(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80), *model.PresumedCheck()))
	}
	p.Set(checks)
	c := p.checks[checks[0].ID]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	heap.Remove(&p.queue, c.at)
	began := time.Now()
	p.end(ctx, c, began, "", "")
	if wait := c.due.Sub(began); wait < 4*time.Second || wait > 5*time.Second {
		t.Errorf("one of 5,000 is asked again after %s", wait)
	}
}

// TestConnectionsAreNotSeen holds that asking for a connection is the business of kernels: the
// program behind the port accepts nothing, so that it has nothing to complain about. One that
// the machine was too busy to end in time may be seen.
func TestConnectionsAreNotSeen(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan int, 1)
	go func() {
		n := 0
		for {
			c, err := l.Accept()
			if err != nil {
				accepted <- n
				return
			}
			n++
			_ = c.Close()
		}
	}()
	p := New(Config{})
	check := model.NewCheck(l.Addr().(*net.TCPAddr).AddrPort(), *model.PresumedCheck())
	const probes = 50
	for range probes {
		if err := p.probe(t.Context(), check); err != nil {
			t.Error(err)
		}
	}
	_ = l.Close()
	if n := <-accepted; n > probes/2 {
		t.Errorf("the server saw %d of %d connections", n, probes)
	}
	gone := model.NewCheck(netip.MustParseAddrPort(l.Addr().String()), *model.PresumedCheck())
	if err := p.probe(t.Context(), gone); err == nil {
		t.Error("a port where nobody listens takes connections")
	}
}
