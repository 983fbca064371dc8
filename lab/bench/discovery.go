package bench

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// The parts of the benchmark of discovery.
const (
	DiscoveryKubernetes = "kubernetes"
	DiscoveryScale      = "scale"
	DiscoveryOpenStack  = "openstack"
)

// DiscoveryParts are all parts, in the order in which they are measured.
func DiscoveryParts() []string {
	return []string{DiscoveryKubernetes, DiscoveryScale, DiscoveryOpenStack}
}

// DiscoveryOptions say what is measured.
type DiscoveryOptions struct {
	NetworkOptions
	// Parts to measure; default all.
	Parts []string

	// Changes of each kind of one endpoint of a cluster with so many Services; default 100 and 200.
	Changes, Services int

	// The plane of the scale part: so many Upstreams (at least three), with so many services and endpoints in all, of which
	// a part has a route; default 160, 20,000, 100,000 and 1,000.
	Upstreams, ScaleServices, ScaleEndpoints, Routes int
	// ChangeRate of endpoints a second for Duration; default 100 for a minute.
	ChangeRate float64
	Duration   time.Duration

	// The clouds of the OpenStack part: load balancers with members, and the projects of a large cloud; default 1,000,
	// 4,000 and 3,900. A member is disabled and enabled MemberChanges times, default 25. Rest is how long requests are
	// counted while nothing changes; default 90 s.
	LoadBalancers, Members, Projects, MemberChanges int
	Rest                                            time.Duration
}

func (o DiscoveryOptions) complete() DiscoveryOptions {
	if len(o.Parts) == 0 {
		o.Parts = DiscoveryParts()
	}
	o.Changes, o.Services = orDefault(o.Changes, 100), orDefault(o.Services, 200)
	o.Upstreams, o.Routes = max(3, orDefault(o.Upstreams, 160)), orDefault(o.Routes, 1_000)
	o.ScaleServices, o.ScaleEndpoints = orDefault(o.ScaleServices, 20_000), orDefault(o.ScaleEndpoints, 100_000)
	if o.ChangeRate == 0 {
		o.ChangeRate = 100
	}
	if o.Duration == 0 {
		o.Duration = time.Minute
	}
	o.LoadBalancers, o.Members = orDefault(o.LoadBalancers, 1_000), orDefault(o.Members, 4_000)
	o.Projects, o.MemberChanges = orDefault(o.Projects, 3_900), orDefault(o.MemberChanges, 25)
	if o.Rest == 0 {
		o.Rest = 90 * time.Second
	}
	return o
}

// DiscoveryResult has what was measured of each part; nil: it was left out.
type DiscoveryResult struct {
	Kubernetes *DiscoveryCluster `json:"kubernetes,omitempty"`
	Scale      *DiscoveryFleet   `json:"scale,omitempty"`
	OpenStack  *DiscoveryCloud   `json:"openstack,omitempty"`
}

// Delay is a distribution of delays, in ms.
type Delay struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

func delayOf(took []time.Duration) Delay {
	v := make([]float64, len(took))
	for i, d := range took {
		v[i] = millis(d)
	}
	return Delay{len(v), percentile(v, 0.5), percentile(v, 0.99), percentile(v, 1)}
}

// Discovery measures the parts one after the other.
func Discovery(ctx context.Context, o DiscoveryOptions) (r DiscoveryResult, err error) {
	o = o.complete()
	for _, part := range o.Parts {
		if !slices.Contains(DiscoveryParts(), part) {
			return r, fmt.Errorf("no part is named %q; there are %v", part, DiscoveryParts())
		}
	}
	for _, part := range DiscoveryParts() {
		if !slices.Contains(o.Parts, part) {
			continue
		}
		switch part {
		case DiscoveryKubernetes:
			r.Kubernetes, err = discoverCluster(ctx, o)
		case DiscoveryScale:
			r.Scale, err = discoverFleet(ctx, o)
		case DiscoveryOpenStack:
			r.OpenStack, err = discoverCloud(ctx, o)
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", part, err)
		}
	}
	return r, nil
}
