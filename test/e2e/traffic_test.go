package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"fairlead.dev/lab/load"
)

// traffic is steady requests for one host over some edges, an open loop, so that an
// edge that does not answer does not slow them down.
type traffic struct {
	site  *site
	flows []*flow
}

// flow is the traffic over one edge.
type flow struct {
	edge  string
	run   *load.Run
	count atomic.Int64

	mu   sync.Mutex
	last []string // backends of the latest answers, "" for a failure
}

const (
	trafficRate   = 100 // per flow and second
	latestAnswers = 100
)

// startTraffic sends requests for the host over the edges (default: all), the first
// one over IPv4, the next over IPv6 and so on, until it is stopped, at the test's end
// at the latest. It returns when every flow has had answers.
func (s *site) startTraffic(t *testing.T, host string, edges ...string) *traffic {
	t.Helper()
	if len(edges) == 0 {
		edges = s.edges()
	}
	f := &traffic{site: s}
	t.Cleanup(func() { f.stop() })
	for i, edge := range edges {
		m := s.Lab.Machine(edge)
		address := m.Addr4()
		if i%2 == 1 {
			address = m.Addr6()
		}
		one := &flow{edge: edge}
		run, err := load.Start(context.Background(), load.Config{
			Address: netip.AddrPortFrom(address, 80).String(), Host: host, Dial: s.Lab.Machine(client.Name).Dial,
			Rate: trafficRate, Concurrency: 4, Now: s.Now, OnResult: one.note,
		})
		if err != nil {
			t.Fatal(err)
		}
		one.run = run
		f.flows = append(f.flows, one)
	}
	f.more(t, 20)
	return f
}

func (f *flow) note(r load.Result) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last = append(f.last, r.Name); len(f.last) > latestAnswers {
		f.last = f.last[1:]
	}
	f.count.Add(1)
}

// latest are the backends of the flow's latest answers, "" for each failure.
func (f *flow) latest() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.last...)
}

// more waits until every flow has sent n more requests and knows what came of them.
func (f *traffic) more(t *testing.T, n int64) {
	t.Helper()
	for _, one := range f.flows {
		goal := one.count.Load() + n
		f.site.await(t, fmt.Sprintf("%d more requests over %s", n, one.edge), func(context.Context) error {
			if got := one.count.Load(); got < goal {
				return fmt.Errorf("%d are missing", goal-got)
			}
			return nil
		})
	}
}

// stop ends the traffic and returns the report of each edge.
func (f *traffic) stop() map[string]load.Report {
	for _, one := range f.flows {
		one.run.Finish()
	}
	reports := map[string]load.Report{}
	for _, one := range f.flows {
		reports[one.edge] = one.run.Stop()
	}
	return reports
}

// none ends the traffic and fails the test if a request failed.
func (f *traffic) none(t *testing.T) {
	t.Helper()
	for edge, r := range f.stop() {
		t.Logf("%s: %s", edge, r)
		if r.Failed > 0 {
			t.Errorf("%s: %d of %d requests failed: %s", edge, r.Failed, r.Requests, r.Why())
		}
	}
}
