package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
)

// SeeingOptions say what is measured.
type SeeingOptions struct {
	NetworkOptions
	// Sizes are the numbers of routes, in labs of their own; default 5,000 and 20,000. All but the number of series is measured at
	// the last one.
	Sizes []int
	// Endpoints of each route's Service, default 5; Namespaces, default 500; Edges, default 3.
	Endpoints, Namespaces, Edges int
	// Viewers look at `top`, or watch the routes; default 50.
	Viewers int
	// Changes of one route, with and without scrapes and viewers; default 60.
	Changes int
	// Rounds and Requests of each round for the cost of a request; default 20 and 5,000.
	Rounds, Requests int
}

// SeeingResult is what it costs to be seen, and how true it is.
type SeeingResult struct {
	Cost SeeingCost  `json:"request_cost"`
	Rows []SeeingRow `json:"rows"`
	// SeriesRatio is the number of an edge's series at the largest size, as a multiple of that at the smallest.
	SeriesRatio float64 `json:"edge_series_ratio"`
}

// SeeingCost is Envoy's processor time for a request at one worker, with all metrics and without.
type SeeingCost struct {
	Plain   float64 `json:"without_us"`
	Counted float64 `json:"with_metrics_us"`
	// Noise is the same listener without metrics a second time, as a multiple of the first.
	Noise float64 `json:"noise_ratio"`
	Ratio float64 `json:"with_metrics_ratio"`
}

// SeeingRow is one number of routes.
type SeeingRow struct {
	Routes int `json:"routes"`
	// Series of an edge and of the plane at /metrics, without those of Go and of the process.
	EdgeSeries  int `json:"edge_series"`
	PlaneSeries int `json:"plane_series"`
	// Scrape is how long an edge takes to answer a scrape, after each route was asked.
	ScrapeP50 float64 `json:"scrape_p50_ms"`
	ScrapeMax float64 `json:"scrape_max_ms"`
	EnvoyRSS  float64 `json:"envoy_rss_mb"`
	AgentRSS  float64 `json:"agent_rss_mb"`
	PlaneRSS  float64 `json:"plane_rss_mb"`
	// The rest is of the largest size.
	Read *SeeingRead `json:"read_api,omitempty"`
	Top  *SeeingTop  `json:"top,omitempty"`
	// Change is from the API's answer to a change of one route until the first request that followed it: with nobody looking, and
	// with a scrape of each edge a second and viewers of top.
	ChangeP50     float64 `json:"change_p50_ms,omitempty"`
	ChangeP99     float64 `json:"change_p99_ms,omitempty"`
	ChangeSeenP50 float64 `json:"change_seen_p50_ms,omitempty"`
	ChangeSeenP99 float64 `json:"change_seen_p99_ms,omitempty"`
}

// SeeingRead is what the read API takes.
type SeeingRead struct {
	// FirstPage is the median time of a page of 100 routes; FirstPageMax the longest, of 20 that were asked for.
	FirstPage    float64 `json:"first_page_p50_ms"`
	FirstPageMax float64 `json:"first_page_max_ms"`
	// Idle is the plane's processor time without streams, as a part of one core, and Streams what it is more with them.
	Idle    float64 `json:"plane_idle_core"`
	Streams float64 `json:"streams_core"`
	Open    int     `json:"open_streams"`
	// Revoked is how long a stream goes on after its right is taken away.
	Revoked float64 `json:"revoked_s"`
	// Changed is from the API's answer to a change of a route until a stream tells of it, median and longest.
	ChangedP50 float64 `json:"stream_change_p50_ms"`
	ChangedMax float64 `json:"stream_change_max_ms"`
}

// SeeingTop is what viewers of top see.
type SeeingTop struct {
	Viewers int `json:"viewers"`
	// Seen is from a request until a viewer sees it.
	SeenP50 float64 `json:"seen_p50_ms"`
	SeenP99 float64 `json:"seen_p99_ms"`
	// Counted is the largest error of the requests of a route, as a part of those that clients counted, and Routes how many were asked.
	Counted float64 `json:"largest_count_error"`
	Routes  int     `json:"asked_routes"`
	// EnvoyRatio is Envoy's processor time a request while viewers look, as a multiple of that without, and Rate the requests a second
	// at each edge meanwhile: what a viewer costs does not depend on it.
	EnvoyRatio float64 `json:"envoy_cpu_ratio"`
	Rate       float64 `json:"requests_per_s"`
}

func (o SeeingOptions) complete() SeeingOptions {
	if len(o.Sizes) == 0 {
		o.Sizes = []int{5_000, 20_000}
	}
	o.Endpoints, o.Namespaces, o.Edges = orDefault(o.Endpoints, 5), orDefault(o.Namespaces, 500), orDefault(o.Edges, 3)
	o.Viewers, o.Changes = orDefault(o.Viewers, 50), orDefault(o.Changes, 60)
	o.Rounds, o.Requests = orDefault(o.Rounds, 20), orDefault(o.Requests, 5_000)
	return o
}

// Seeing measures what metrics, top and the read API cost, and how true they are.
func Seeing(ctx context.Context, o SeeingOptions) (r SeeingResult, err error) {
	o = o.complete()
	o.progress("what a request costs with metrics and without")
	if r.Cost, err = requestCost(ctx, o); err != nil {
		return r, fmt.Errorf("the cost of a request: %w", err)
	}
	for i, n := range o.Sizes {
		row, err := seeRoutes(ctx, o, n, i == len(o.Sizes)-1)
		if err != nil {
			return r, fmt.Errorf("%d routes: %w", n, err)
		}
		r.Rows = append(r.Rows, row)
	}
	if n := len(r.Rows); n > 1 {
		r.SeriesRatio = math.Round(float64(r.Rows[n-1].EdgeSeries)/float64(max(1, r.Rows[0].EdgeSeries))*1000) / 1000
	}
	return r, nil
}

// seeRoutes measures one number of routes in a lab.
func seeRoutes(ctx context.Context, o SeeingOptions, n int, all bool) (row SeeingRow, err error) {
	t := lab.Topology{Name: "bench-seeing", Machines: []lab.MachineSpec{
		{Name: "plane", Role: lab.RolePlane}, {Name: "os1", Role: lab.RoleBackends, Addresses: o.Endpoints},
	}}
	for i := range o.Edges {
		t.Machines = append(t.Machines, lab.MachineSpec{Name: edgeName(i), Role: lab.RoleEdge})
	}
	l, err := lab.Up(ctx, t, o.Lab)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx))) }()
	b := newSeeingBench(o, l, n)
	steps := []func(context.Context) error{b.build, b.write, b.scrapes, b.memory}
	if all {
		steps = append(steps, b.readAPI, b.viewers, b.changes)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return row, err
		}
	}
	return b.row, nil
}

// Listeners of requestCost: two without loggers, and one as it is.
const (
	costPlain   model.ListenerID = "http-81"
	costPlain2  model.ListenerID = "http-82"
	costCounted                  = scopesListener
)

// requestCost compares listeners of one Envoy, in turns.
func requestCost(ctx context.Context, o SeeingOptions) (c SeeingCost, err error) {
	s, err := newScopesBench(ctx)
	if err != nil {
		return c, err
	}
	defer s.close()
	stop, err := s.serve(ctx, &EdgeRow{Routes: 100, Endpoints: 2})
	if err != nil {
		return c, err
	}
	defer stop()
	for _, id := range []model.ListenerID{costPlain, costPlain2} {
		// The routes of this listener are those of the other one.
		if err := s.listen(ctx, id, func(m *hcmv3.HttpConnectionManager) { m.AccessLog = nil }); err != nil {
			return c, err
		}
	}
	sums := map[model.ListenerID]float64{}
	order := []model.ListenerID{costPlain, costCounted, costPlain2}
	for round := range o.Rounds {
		for i := range order {
			id := order[(i+round)%len(order)]
			us, err := s.askMany(id, o.Requests)
			if err != nil {
				return c, err
			}
			sums[id] += us / float64(o.Rounds)
		}
	}
	c.Plain, c.Counted = (sums[costPlain]+sums[costPlain2])/2, sums[costCounted]
	c.Ratio, c.Noise = math.Round(c.Counted/c.Plain*1000)/1000, math.Round(sums[costPlain2]/sums[costPlain]*1000)/1000
	return c, nil
}

// askMany returns Envoy's processor time for a request of a listener, in microseconds.
func (s *scopesBench) askMany(id model.ListenerID, n int) (float64, error) {
	c, err := dialBench(s.port[id])
	if err != nil {
		return 0, err
	}
	defer c.conn.Close()
	before, err := s.envoy.CPU()
	if err != nil {
		return 0, err
	}
	for i := range n {
		host := s.hosts[i%len(s.hosts)]
		status, _, err := c.get(host, "")
		if err != nil || status != http.StatusOK {
			return 0, fmt.Errorf("ask %s at %s: got %d, %w", host, id, status, err)
		}
	}
	after, err := s.envoy.CPU()
	return float64((after - before).Nanoseconds()) / 1000 / float64(n), err
}
