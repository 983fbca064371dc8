package clouds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"fairlead.dev/lab/load"
)

const (
	host = "app.example.com"
	rate = 60 // requests a second
	// recent answers are compared with weights, a few seconds of them.
	recent = 200
	tick   = 50 * time.Millisecond
)

// traffic is a load that goes on, and who answered its last requests.
type traffic struct {
	s    *site
	run  *load.Run
	mu   sync.Mutex
	last []string // names, the newest last
}

func (s *site) config() load.Config {
	return load.Config{
		Address: s.edge.Addr4().String() + ":80", Dial: s.client.Dial, Host: host, Rate: rate, Concurrency: 16, Timeout: time.Minute,
	}
}

func (s *site) begin(ctx context.Context) *traffic {
	s.t.Helper()
	l := &traffic{s: s}
	c := s.config()
	c.OnResult = l.note
	var err error
	l.run, err = load.Start(ctx, c)
	s.must(err)
	s.t.Cleanup(l.run.Finish)
	return l
}

func (l *traffic) note(r load.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last = append(l.last, r.Name); len(l.last) > recent {
		l.last = l.last[len(l.last)-recent:]
	}
}

// forget forgets who has answered so far.
func (l *traffic) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = nil
}

// sees waits until what clouds' shares, in percent, of the newest answers are as given, within what chance does to so few. A
// name of a backend begins with that of its cloud.
func (l *traffic) sees(ctx context.Context, what string, shares map[string]float64) {
	l.s.t.Helper()
	l.s.eventually(ctx, what, func(context.Context) error {
		counts := l.answers()
		n := 0
		for _, c := range counts {
			n += c
		}
		if n < recent {
			return fmt.Errorf("%d of %d answers", n, recent)
		}
		for name := range counts {
			known := false
			for c := range shares {
				known = known || strings.HasPrefix(name, c)
			}
			if !known {
				return fmt.Errorf("%s answers: %v", name, counts)
			}
		}
		for c, want := range shares {
			got := 0
			for name, k := range counts {
				if strings.HasPrefix(name, c) {
					got += k
				}
			}
			slack := 0.4 * min(want, 100-want) // no chance at all where all or nothing is wanted
			if share := float64(got) / float64(n) * 100; share < want-slack || share > want+slack {
				return fmt.Errorf("%s answers %.0f %% instead of %.0f %%: %v", c, share, want, counts)
			}
		}
		return nil
	})
}

// answers counts the newest answers by name.
func (l *traffic) answers() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]int{}
	for _, name := range l.last {
		counts[name]++
	}
	return counts
}

// one is nil if a load has no failure.
func (s *site) one(ctx context.Context, c load.Config) error {
	r, err := load.Do(ctx, c)
	if err == nil && r.Failed > 0 {
		err = errors.New(r.Why())
	}
	return err
}

// stop ends the load. No request may have failed.
func (l *traffic) stop(during string) {
	l.s.t.Helper()
	r := l.run.Stop()
	if r.Failed > 0 || r.OK == 0 {
		l.s.t.Errorf("%s: of %d requests %d failed: %s", during, r.OK+r.Failed, r.Failed, r.Why())
	} else {
		l.s.t.Logf("%s: %d requests, none failed (p50 %s, max %s)", during, r.OK, r.Latency.P50.Round(time.Millisecond), r.Latency.Max.Round(time.Millisecond))
	}
}

// eventually waits until there is no error.
func (s *site) eventually(ctx context.Context, what string, try func(context.Context) error) {
	s.t.Helper()
	began := time.Now()
	s.must(s.Await(ctx, what, try))
	s.t.Logf("%s: after %s", what, time.Since(began).Round(10*time.Millisecond))
}

// weigh gives services weights in the route.
func (s *site) weigh(ctx context.Context, weights map[string]int) {
	s.t.Helper()
	var services []string
	for name, w := range weights {
		services = append(services, fmt.Sprintf("{name: %s, port: 80, weight: %d}", name, w))
	}
	_, err := s.plane.Apply(ctx, fmt.Sprintf(`apiVersion: contour.heptio.com/v1beta1
kind: IngressRoute
metadata: {name: app, namespace: %s}
spec:
  virtualhost: {fqdn: %s}
  routes: [{match: /, services: [%s]}]
`, namespace, host, strings.Join(services, ", ")))
	s.must(err)
}
