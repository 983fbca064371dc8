package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
	"fairlead.dev/lab/router"
)

// HealthOptions say what is measured.
type HealthOptions struct {
	NetworkOptions
	Router router.Kind // default BIRD
	// Rounds of each death with each check, default 10.
	Rounds int
	// Seed of the moments at which backends die.
	Seed uint64
}

// HealthCheck is how backends are checked.
type HealthCheck struct {
	Interval time.Duration
	Timeout  time.Duration
	Fall     int
	// Default says that no policy asks for it.
	Default bool
}

func (c HealthCheck) manifest() string {
	if c.Default {
		return "null"
	}
	return fmt.Sprintf("{type: TCP, interval: %s, timeout: %s, fall: %d, rise: 1}", c.Interval, c.Timeout, c.Fall)
}

// bound is until when a dead backend may get new flows: fall × interval, and 100 ms for the
// way of the verdict to every machine. A timeout of at most half of the interval costs
// nothing more (docs/reference/health.md).
func (c HealthCheck) bound() time.Duration {
	return time.Duration(c.Fall)*c.Interval + 100*time.Millisecond
}

func (c HealthCheck) String() string {
	if c.Default {
		return fmt.Sprintf("%s x %d, by default", c.Interval, c.Fall)
	}
	return fmt.Sprintf("%s x %d", c.Interval, c.Fall)
}

var healthChecks = []HealthCheck{
	{Interval: time.Second, Timeout: 500 * time.Millisecond, Fall: model.DefaultFall, Default: true},
	{Interval: time.Second, Timeout: 500 * time.Millisecond, Fall: 2},
	{Interval: 300 * time.Millisecond, Timeout: 150 * time.Millisecond, Fall: 3},
}

// liveness is how proxies of other machines are watched: they are silent for 2 s at most
// before they count as gone (docs/reference/health.md).
var liveness = HealthCheck{Interval: 500 * time.Millisecond, Fall: 4}

// HealthResult is how soon a dead backend gets no new flow.
type HealthResult struct {
	Router        router.Kind `json:"router"`
	LoadBalancers int         `json:"load_balancers"`
	Backends      int         `json:"backends"`
	NewRate       float64     `json:"new_connections_per_s"`
	Rows          []HealthRow `json:"rows"`
	Away          HealthAway  `json:"without_a_plane"`
	Goal          string      `json:"goal"`
	Met           bool        `json:"met"`
}

// HealthRow is one way to die, with one check.
type HealthRow struct {
	Check  string  `json:"check"`
	Death  string  `json:"death"`
	Rounds int     `json:"rounds"`
	Bound  float64 `json:"bound_ms"`
	// Last is when the last first packet of a connection left any load balancer for the dead
	// backend, from right before its death.
	Last Range `json:"last_new_flow_ms"`
	// Over is how many rounds went over the bound.
	Over int `json:"over"`
	// Flows are first packets that load balancers sent to the dead backend, in all rounds;
	// Failed are the new connections that came to nothing, of Began.
	Flows  int `json:"flows_to_the_dead"`
	Failed int `json:"new_connections_failed"`
	Began  int `json:"new_connections"`
}

// Range is a distribution of few values.
type Range struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

func rangeOf(values []time.Duration) Range {
	if len(values) == 0 {
		return Range{}
	}
	v := slices.Sorted(slices.Values(values))
	return Range{inMilliseconds(v[0]), inMilliseconds(v[len(v)/2]), inMilliseconds(v[len(v)-1])}
}

// HealthAway is what holds while no plane runs.
type HealthAway struct {
	// FlowsToOut went to a backend that had been out before the plane died.
	FlowsToOut int `json:"flows_to_a_backend_that_was_out"`
	// Failed are new connections that came to nothing before another backend died.
	Failed int `json:"new_connections_failed"`
	// Checks are the load balancers that check that other backend themselves, by what they
	// did: they stopped; Last is when the last of them had. The others wait for the plane.
	Checks int     `json:"load_balancers_that_stop"`
	Last   float64 `json:"last_new_flow_of_them_ms"`
	Others int     `json:"load_balancers_that_go_on"`
	// Returned is when the last of all had, from when the plane was ready again; 0: at once.
	Returned float64 `json:"last_new_flow_after_the_plane_ms"`
}

const (
	healthEdges, healthNodes = 3, 4
	healthRate               = 200
)

// death is how a backend ends.
type death struct {
	name string
	die  func(context.Context, *lab.Machine) error
	live func(context.Context, *lab.Machine) error
}

// Health kills backends at random moments, and measures until when load balancers send them
// new connections.
func Health(ctx context.Context, o HealthOptions) (r HealthResult, err error) {
	o.Router, o.Rounds = cmp.Or(o.Router, router.BIRD), cmp.Or(o.Rounds, 10)
	if err := o.Router.Find(); err != nil {
		return r, err
	}
	r = HealthResult{
		Router: o.Router, LoadBalancers: healthEdges, Backends: healthNodes, NewRate: healthRate,
		Goal: "no new flow later than fall x interval + 100 ms", Met: true,
	}
	random := rand.New(rand.NewPCG(o.Seed, 1))
	if err := healthOf(ctx, o, SurvivalGeneve, func(s *healthSite) error { return s.backends(ctx, o, &r, random) }); err != nil {
		return r, err
	}
	return r, healthOf(ctx, o, SurvivalProxies, func(s *healthSite) error {
		return s.add(ctx, o, &r, liveness, death{"a proxy's machine vanishes", vanish, appear}, random)
	})
}

// healthOf measures in a lab of its own.
func healthOf(ctx context.Context, o HealthOptions, mode SurvivalMode, measure func(*healthSite) error) (err error) {
	o.progress("%s: start", mode)
	s, err := buildHealth(ctx, o, mode)
	if err != nil {
		return err
	}
	defer func() {
		if e := s.end(ctx); err == nil {
			err = e
		}
	}()
	if err := s.clients(ctx); err != nil {
		return err
	}
	return measure(s)
}

// backends measures those that machines check.
func (s *healthSite) backends(ctx context.Context, o HealthOptions, r *HealthResult, random *rand.Rand) error {
	for _, c := range healthChecks {
		s.check = c.manifest()
		if err := s.apply(ctx, s.policyManifest(nil)); err != nil {
			return err
		}
		for _, d := range s.deaths() {
			if err := s.add(ctx, o, r, c, d, random); err != nil {
				return err
			}
		}
	}
	o.progress("without a plane")
	var err error
	r.Away, err = s.away(ctx, healthChecks[len(healthChecks)-1])
	r.Met = r.Met && r.Away.FlowsToOut == 0 && r.Away.Failed == 0
	return err
}

// add measures a row more.
func (s *healthSite) add(ctx context.Context, o HealthOptions, r *HealthResult, c HealthCheck, d death, random *rand.Rand) error {
	row, err := s.row(ctx, o, c, d, random)
	if err != nil {
		return fmt.Errorf("%s, %s: %w", row.Check, d.name, err)
	}
	o.progress("%s, %s: last new flow after %.0f to %.0f ms, bound %.0f", row.Check, d.name, row.Last.Min, row.Last.Max, row.Bound)
	r.Rows, r.Met = append(r.Rows, row), r.Met && row.Over == 0
	return nil
}

// row measures one death with one check.
func (s *healthSite) row(ctx context.Context, o HealthOptions, c HealthCheck, d death, random *rand.Rand) (HealthRow, error) {
	r := HealthRow{Check: c.String(), Death: d.name, Rounds: o.Rounds, Bound: inMilliseconds(c.bound())}
	var last []time.Duration
	began, failed := s.began.Load(), s.failed.Load()
	for i := range o.Rounds {
		n := s.dying[i%len(s.dying)]
		if err := s.settle(ctx, c, c.Interval+time.Duration(random.Int64N(int64(c.Interval)))); err != nil {
			return r, err
		}
		at := o.Now()
		if err := d.die(ctx, n); err != nil {
			return r, err
		}
		if err := s.quiet(ctx, at.Add(c.bound()), n); err != nil {
			return r, err
		}
		when, flows := s.sent(n, at)
		r.Flows += flows
		took := max(0, when.Sub(at))
		if last = append(last, took); took > c.bound() {
			r.Over++
		}
		if err := d.live(ctx, n); err != nil {
			return r, err
		}
	}
	r.Last = rangeOf(last)
	if err := s.settle(ctx, c, 0); err != nil {
		return r, err
	}
	r.Began, r.Failed = int(s.began.Load()-began), int(s.failed.Load()-failed)
	return r, nil
}

// away has the plane die while a backend is out, and another backend die without it.
func (s *healthSite) away(ctx context.Context, c HealthCheck) (r HealthAway, err error) {
	kill := s.deaths()[0]
	out, next := s.nodes[0], s.nodes[1]
	if err := s.settle(ctx, c, c.Interval); err != nil {
		return r, err
	}
	at := s.Now()
	if err := kill.die(ctx, out); err != nil {
		return r, err
	}
	if err := s.quiet(ctx, at.Add(c.bound()), out); err != nil {
		return r, err
	}
	s.plane.Process.Kill9()
	at, failed := s.Now(), s.failed.Load()
	if err := pauseFor(ctx, 5*time.Second); err != nil {
		return r, err
	}
	_, r.FlowsToOut = s.sent(out, at)
	r.Failed = int(s.failed.Load() - failed)
	at = s.Now()
	if err := kill.die(ctx, next); err != nil {
		return r, err
	}
	if err := pauseFor(ctx, 2*c.bound()+2*time.Second); err != nil {
		return r, err
	}
	for _, e := range s.edges {
		when := s.sentBy(e, next)
		if s.Now().Sub(when) > time.Second {
			r.Checks++
			r.Last = max(r.Last, inMilliseconds(when.Sub(at)))
		} else {
			r.Others++
		}
	}
	if err := s.plane.Start(ctx); err != nil {
		return r, err
	}
	at = s.Now()
	if err := s.quiet(ctx, at.Add(c.bound()), next); err != nil {
		return r, err
	}
	when, _ := s.sent(next, at)
	r.Returned = max(0, inMilliseconds(when.Sub(at)))
	return r, nil
}

func inMilliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// clients open new connections until the site ends.
func (s *healthSite) clients(ctx context.Context) error {
	var err error
	s.fresh, err = load.Start(ctx, load.Config{
		Address: s.address, Host: vipHost, Dial: s.client.Dial, Rate: healthRate, NewConnections: true, Concurrency: 10 * healthRate,
		Timeout: 5 * time.Second, Now: s.Now, OnResult: func(x load.Result) {
			s.began.Add(1)
			if x.Kind != "" {
				s.failed.Add(1)
			}
		},
	})
	return err
}
