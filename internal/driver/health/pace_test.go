package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/internal/model"
)

// TestFloodsSlowThemselvesOnly holds that a dead backend of a small namespace is found in the time
// that its check says, however many default checks another namespace has, and that these share
// what is left. Time is the bubble's.
func TestFloodsSlowThemselvesOnly(t *testing.T) {
	const flood, small = 10_000, 50
	synctest.Test(t, func(t *testing.T) {
		presumed := func(namespace string, a byte, n int) (list []model.Check) {
			for i := range n {
				c := model.NewCheck(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, a, byte(i >> 8), byte(i)}), 80), *model.PresumedCheck())
				c.Namespaces = []string{namespace}
				list = append(list, c)
			}
			return list
		}
		checks := append(presumed("flood", 1, flood), presumed("small", 2, small)...)
		dead := checks[flood]
		var died atomic.Bool
		var probes atomic.Int64
		p := New(Config{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			probes.Add(1)
			if died.Load() && address == dead.Target.String() {
				return nil, errors.New("nobody listens")
			}
			here, _ := net.Pipe()
			return here, nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() { stopped <- p.Run(ctx) }()
		p.Set(checks[:flood]) // the flood is there first, and then small's
		p.Set(checks)
		time.Sleep(2 * time.Second)
		for _, c := range checks[flood:] {
			if p.Result(c.ID).Health != model.Healthy {
				t.Fatalf("%s of the small namespace is %s after 2 s, want healthy", c.Target, p.Result(c.ID).Health)
			}
		}
		time.Sleep(20 * time.Second) // until the flood has found its pace
		probes.Store(0)
		time.Sleep(10 * time.Second)
		if n := probes.Load(); n > 10*presumedRate*12/10 || n < 10*presumedRate*9/10 {
			t.Errorf("%d probes in 10 s, want %d a second", n, presumedRate)
		}
		died.Store(true)
		at := time.Now()
		for p.Result(dead.ID).Health != model.Unhealthy && time.Since(at) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("the dead backend was found after %v, beside %d checks of another namespace", time.Since(at), flood)
		if took := time.Since(at); took > 3100*time.Millisecond {
			t.Errorf("the dead backend of the small namespace was found after %v, want 3 s", took)
		}
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// TestManyNamespacesKeepTheRate holds that the rate is that of all namespaces together, also where
// there are more of them than probes in a second.
func TestManyNamespacesKeepTheRate(t *testing.T) {
	for _, x := range []struct{ namespaces, each int }{{1, 5}, {3, 900}, {3 * presumedRate, 3}, {10 * presumedRate, 1}} {
		var p pace
		var checks []model.Check
		for i := range x.namespaces * x.each {
			c := model.NewCheck(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 80), *model.PresumedCheck())
			c.Namespaces = []string{fmt.Sprint("team-", i%x.namespaces)}
			checks = append(checks, c)
		}
		p.set(checks)
		var rate float64
		for _, c := range checks {
			rate += 1 / max(p.interval(c), time.Second).Seconds()
		}
		if rate > presumedRate*1.001 {
			t.Errorf("%d namespaces with %d checks each are asked %.0f times a second, want %d at most", x.namespaces, x.each, rate, presumedRate)
		}
	}
}

// TestBackendsOfTwoNamespaces holds that who names another namespace's backends beside a flood of
// its own does not slow their checks.
func TestBackendsOfTwoNamespaces(t *testing.T) {
	var p pace
	var checks []model.Check
	for i := range 5000 {
		c := model.NewCheck(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80), *model.PresumedCheck())
		if c.Namespaces = []string{"flood"}; i < 100 {
			c.Namespaces = []string{"flood", "small"}
		}
		checks = append(checks, c)
	}
	p.set(checks)
	if d := p.interval(checks[0]); d > time.Second {
		t.Errorf("it is asked each %v, want each second", d)
	}
	if d, want := p.interval(checks[200]), 5000*time.Second/900; d != want {
		t.Errorf("another one of the flood is asked each %v, want each %v", d, want)
	}
}
