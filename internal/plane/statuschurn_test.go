package plane

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/plane/status"
)

// statusBound is how long a status may differ from the truth while the API takes writes.
const statusBound = 2 * time.Second

// frozenClock stands still until it is moved.
type frozenClock struct {
	mu     sync.Mutex
	at     time.Time
	timers map[chan time.Time]time.Time
}

func (c *frozenClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *frozenClock) after(d time.Duration) (elapsed <-chan time.Time, stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := make(chan time.Time, 1)
	c.timers[timer] = c.at.Add(d)
	return timer, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.timers, timer)
	}
}

func (c *frozenClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
	for timer, at := range c.timers {
		if !at.After(c.at) {
			delete(c.timers, timer)
			timer <- c.at
		}
	}
}

// Routes come and go, 50 a second of a clock that only the test moves: the Gateway's count is
// never older than statusBound, and it is written at the pace of one object.
func TestGatewayStatusFollowsChurn(t *testing.T) {
	const routes, step = 150, 20 * time.Millisecond
	r := newRig(t)
	c := &frozenClock{at: time.Now(), timers: map[chan time.Time]time.Time{}}
	p := r.plane("churn", func(config *Config) { config.statusNow, config.statusAfter = c.now, c.after }).awaitReady()
	g := gateway()
	r.create(gatewayClass(), g)
	attached := func(what string, is func(int) bool) {
		t.Helper()
		await(r, g, what, func(g *gatewayv1.Gateway) error {
			if len(g.Status.Listeners) != 1 || !is(int(g.Status.Listeners[0].AttachedRoutes)) {
				return fmt.Errorf("its listeners are %+v", g.Status.Listeners)
			}
			return nil
		})
	}
	known := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("the plane knows %d routes", n), func() error {
			got := 0
			if err := p.ask(t.Context(), func(l *loop) {
				for o := range l.statuses {
					if o.Kind == "HTTPRoute" && len(l.due) == 0 {
						got++
					}
				}
				if len(l.due) > 0 {
					got = -1
				}
			}); err != nil || got != n {
				return fmt.Errorf("it knows %d: %w", got, err)
			}
			return nil
		})
	}
	// Time does not pass while the API has a write: its count may be the one before, and the
	// next is due by the clock after it.
	settle := func(what string, n int) {
		t.Helper()
		end := c.now().Add(statusBound)
		attached(what, func(got int) bool {
			if p.metric("fairlead_plane_status_writes_under_way", nil) == 0 && c.now().Before(end) {
				c.move(step)
			}
			return got == n
		})
	}
	await(r, g, "the Gateway has a status", func(g *gatewayv1.Gateway) error {
		c.move(step)
		if len(g.Status.Listeners) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	began, each := c.now(), int(statusBound/step)
	for i := range routes {
		r.create(httpRoute(fmt.Sprintf("churn-%d", i), fmt.Sprintf("churn-%d.example.com", i), "app"))
		known(i + 1)
		c.move(step)
		if i%10 == 9 {
			attached(fmt.Sprintf("%d routes are counted, those of %s ago", i+1, statusBound), func(n int) bool { return n >= i+1-each })
		}
	}
	settle("all routes are counted", routes)
	for i := range routes {
		if err := r.client.Delete(t.Context(), httpRoute(fmt.Sprintf("churn-%d", i), "", "app")); err != nil {
			t.Fatal(err)
		}
		known(routes - i - 1)
		c.move(step)
		if i%10 == 9 {
			attached(fmt.Sprintf("%d routes are gone, those of %s ago", i+1, statusBound), func(n int) bool { return n <= routes-i-1+each })
		}
	}
	settle("no route is counted", 0)
	written := p.metric("fairlead_plane_status_writes_total", map[string]string{"kind": "Gateway", "result": "written"})
	if most := float64(c.now().Sub(began)/status.WritePace) + 2; written > most {
		t.Errorf("%g writes of the Gateway in %s, at most %g are needed", written, c.now().Sub(began), most)
	}
}
