package bench

import (
	"context"
	"errors"
	"fmt"
	"math"

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
	// TappedRatio is with all metrics while each request is recorded for a tap, and TappedShare while every fourth is: an agent has
	// fewer recorded the more there are.
	TappedRatio float64 `json:"with_tap_ratio"`
	TappedShare float64 `json:"with_tap_of_a_quarter_ratio"`
	// PlainRSS and CountedRSS are Envoy's memory with so many routes, each with a cluster, when each was asked.
	Routes     int     `json:"memory_routes"`
	PlainRSS   float64 `json:"memory_without_mb"`
	CountedRSS float64 `json:"memory_with_metrics_mb"`
	RSSRatio   float64 `json:"memory_ratio"`
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
	// MainThread is how long Envoy's main thread works for one question, which a scrape and all viewers of a sample share.
	MainThread float64 `json:"envoy_main_thread_ms"`
	EnvoyRSS   float64 `json:"envoy_rss_mb"`
	AgentRSS   float64 `json:"agent_rss_mb"`
	PlaneRSS   float64 `json:"plane_rss_mb"`
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
	// EnvoyRatio is Envoy's processor time a request while viewers look, as a multiple of that without, TapRatio the same while
	// somebody taps all requests, and Rate the requests a second at each edge meanwhile. Used is Envoy's processor time without viewers,
	// as a part of one core: what viewers add does not depend on the rate, so the ratio falls with it.
	EnvoyRatio float64 `json:"envoy_cpu_ratio"`
	TapRatio   float64 `json:"envoy_cpu_ratio_tap"`
	Rate       float64 `json:"requests_per_s"`
	Used       float64 `json:"envoy_core"`
	// Quantiles is the largest error of an edge's quantiles of durations (50, 90 and 99 %), as a part of those that clients measured.
	Quantiles float64 `json:"largest_quantile_error"`
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
	r.Cost.Routes = o.Sizes[len(o.Sizes)-1]
	o.progress("%d routes: memory with metrics and without", r.Cost.Routes)
	if err := r.Cost.memory(ctx, o); err != nil {
		return r, fmt.Errorf("memory: %w", err)
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
		steps = append(steps, b.readAPI, b.viewers, b.quantiles, b.changes)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return row, err
		}
	}
	return b.row, nil
}
