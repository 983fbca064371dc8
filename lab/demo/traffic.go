package demo

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
)

// flow is the requests for one route over one edge.
type flow struct {
	edge    string
	address string
	route   *route
}

// The steady traffic during which things happen: an open loop, so that an edge
// that does not answer does not slow the requests down.
const (
	steadyRate    = 250 // per flow and second
	steadyClients = 8   // per flow
)

// sample is what came of one request.
type sample struct {
	start   time.Time
	flow    flow
	cluster string
	failed  bool
}

// traffic is requests over several flows at once.
type traffic struct {
	flows []flow
	runs  []*load.Run

	mu      sync.Mutex
	samples []sample
}

// flows are all pairs of the routes and the edges. One edge is reached over IPv4,
// the other over IPv6.
func (st *stage) flows(routes ...*route) []flow {
	var all []flow
	for i, m := range st.Lab.Machines(lab.RoleEdge) {
		addr := m.Addr4()
		if i%2 == 1 {
			addr = m.Addr6()
		}
		for _, r := range routes {
			all = append(all, flow{edge: m.Name(), address: netip.AddrPortFrom(addr, 80).String(), route: r})
		}
	}
	return all
}

// steady starts the steady traffic.
func (st *stage) steady(ctx context.Context, flows []flow) (*traffic, error) {
	t := &traffic{flows: flows}
	for _, f := range flows {
		run, err := load.Start(ctx, load.Config{
			Address: f.address, Host: f.route.host, Dial: st.Lab.Machine("client").Dial,
			Rate: steadyRate, Concurrency: steadyClients, Now: st.Now,
			OnResult: func(r load.Result) { t.add(f, r) },
		})
		if err != nil {
			t.stop()
			return nil, err
		}
		t.runs = append(t.runs, run)
	}
	return t, nil
}

func (t *traffic) add(f flow, r load.Result) {
	s := sample{start: r.Start, flow: f, cluster: clusterOf(r.Name), failed: r.Kind != ""}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.samples = append(t.samples, s)
}

// stop ends the traffic when the requests under way are answered, and returns the
// report of all flows that want accepts (nil: all).
func (t *traffic) stop() { t.report(nil) }

func (t *traffic) report(want func(flow) bool) load.Report {
	for _, r := range t.runs {
		r.Finish()
	}
	var reports []load.Report
	for i, r := range t.runs {
		report := r.Stop()
		if want == nil || want(t.flows[i]) {
			reports = append(reports, report)
		}
	}
	return load.Merge(reports...)
}

// since returns the samples of requests that started at or after a moment.
func (t *traffic) since(moment time.Time, want func(flow) bool) []sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []sample
	for _, s := range t.samples {
		if !s.start.Before(moment) && (want == nil || want(s.flow)) {
			found = append(found, s)
		}
	}
	return found
}

// awaitCount waits until n requests that started after the moment were answered.
func (st *stage) awaitCount(ctx context.Context, t *traffic, moment time.Time, n int) error {
	return st.Await(ctx, fmt.Sprintf("%d more requests", n), func(context.Context) error {
		if got := len(t.since(moment, nil)); got < n {
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
}

// window is how many of a flow's latest answers tell which weights are in force.
const window = 300

// awaitWeights waits until the latest answers of every flow are split by its
// route's weights as they are on record.
func (st *stage) awaitWeights(ctx context.Context, t *traffic, moment time.Time) error {
	return st.Await(ctx, "the new weights", func(context.Context) error {
		for _, f := range t.flows {
			latest := t.since(moment, func(g flow) bool { return g == f })
			slices.SortFunc(latest, func(a, b sample) int { return a.start.Compare(b.start) })
			if len(latest) < window {
				return fmt.Errorf("%s over %s: %d answers since", f.route.host, f.edge, len(latest))
			}
			counts := map[string]int{}
			for _, s := range latest[len(latest)-window:] {
				if !s.failed {
					counts[s.cluster]++
				}
			}
			if wrong := load.Wrong(load.Split(counts, f.route.weights, load.DefaultSigmas)); wrong != "" {
				return fmt.Errorf("%s over %s: %s", f.route.host, f.edge, wrong)
			}
		}
		return nil
	})
}

// changePoint estimates when answers began to follow new weights: the moment that
// makes what was seen most likely, given the share of one cluster before and
// after it (both between 0 and 1).
func changePoint(samples []sample, cluster string, before, after float64) time.Time {
	samples = slices.Clone(samples)
	slices.SortStableFunc(samples, func(a, b sample) int { return cmp.Compare(a.start.UnixNano(), b.start.UnixNano()) })
	var at time.Time
	best, gain := math.Inf(-1), 0.0
	for i, s := range samples {
		// gain is how much likelier the samples so far are under the old weights.
		if gain > best {
			best, at = gain, samples[i].start
		}
		switch {
		case s.failed:
		case s.cluster == cluster:
			gain += math.Log(before / after)
		default:
			gain += math.Log((1 - before) / (1 - after))
		}
	}
	return at
}
