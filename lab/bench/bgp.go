package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
	"fairlead.dev/lab/router"
)

// The timers of the sessions that are measured.
const (
	holdTime      = 3 * time.Second
	bfdInterval   = 300 * time.Millisecond
	bfdMultiplier = 3
)

// What is promised.
const (
	// gracefulGoal bounds the median of a change that somebody asked for.
	gracefulGoal = 100 * time.Millisecond
	// afterDetection bounds what a router takes after the failure was detected.
	afterDetection = 300 * time.Millisecond
	// noticed is how soon a failure counts as detected that needs no timer: a process
	// ended and its agent or its kernel says so.
	noticed = 100 * time.Millisecond
)

// BGPOptions say what is measured.
type BGPOptions struct {
	NetworkOptions
	// Rounds is how often each case is measured; default 10.
	Rounds int
	// Routers and Cases are those to measure; empty means all.
	Routers []router.Kind
	Cases   []string
}

// BGPResult is how a router and clients see edges come and go.
type BGPResult struct {
	Rows []BGPRow `json:"rows"`
	// What runs during the rounds.
	Edges           int     `json:"edges"`
	NewRate         int     `json:"new_connections_per_s"`
	KeptConnections int     `json:"kept_connections"`
	PatienceMillis  float64 `json:"patience_ms"`
}

// BGPRow is one case at one kind of router.
type BGPRow struct {
	Router router.Kind `json:"router"`
	BFD    bool        `json:"bfd"`
	Case   string      `json:"case"`
	N      int         `json:"n"`
	// RouteChanged is the time until the router's kernel used the new next hops, in
	// ms; nil if the route must not change and did not.
	RouteChanged *Spread `json:"route_changed_ms"`
	// Assigned is the part of it since a watch of the pool's status showed that the VIP
	// is given away; only of announce.
	Assigned *Spread `json:"assigned_ms,omitempty"`
	// Outage is the time until the last new connection began that failed; 0 if none did.
	Outage *Spread `json:"outage_ms"`
	// RouteChanges is how many rounds saw a change of a route that must not change.
	RouteChanges int `json:"route_changes"`
	// NewFailures are new connections that were refused or not answered in time;
	// ByKind is the same by kind. InFlight are those that an edge had taken and that
	// were reset before their answer: they are not new any more. Broken are kept
	// connections that broke.
	NewFailures  Tally             `json:"new_connection_failures"`
	ByKind       map[load.Kind]int `json:"new_connection_failures_by_kind,omitempty"`
	InFlight     Tally             `json:"in_flight_broken"`
	Broken       Tally             `json:"established_broken"`
	BrokenByKind map[load.Kind]int `json:"established_broken_by_kind,omitempty"`
	Goal         string            `json:"goal"`
	Met          bool              `json:"met"`
}

// Spread are times in milliseconds.
type Spread struct {
	P50 float64   `json:"p50"`
	Max float64   `json:"max"`
	All []float64 `json:"all"`
}

// Tally are counts of rounds.
type Tally struct {
	P50   int `json:"p50"`
	Max   int `json:"max"`
	Total int `json:"total"`
}

func spread(times []time.Duration) *Spread {
	if len(times) == 0 {
		return nil
	}
	s := &Spread{}
	for _, t := range times {
		s.All = append(s.All, math.Round(float64(t)/float64(100*time.Microsecond))/10)
	}
	sorted := slices.Sorted(slices.Values(s.All))
	s.P50, s.Max = sorted[len(sorted)/2], sorted[len(sorted)-1]
	return s
}

func sum(of map[load.Kind]int) (n int) {
	for _, m := range of {
		n += m
	}
	return n
}

func tally(counts []int) Tally {
	if len(counts) == 0 {
		return Tally{}
	}
	sorted := slices.Sorted(slices.Values(counts))
	t := Tally{P50: sorted[len(sorted)/2], Max: sorted[len(sorted)-1]}
	for _, n := range counts {
		t.Total += n
	}
	return t
}

// outcome is what one round of a case saw.
type outcome struct {
	changed  time.Duration  // 0 if the route did not change
	assigned *time.Duration // of it, since the VIP was given away
	moved    bool           // a route changed that must not
	outage   time.Duration
	losses
}

// BGP measures each case at each router, with and without BFD.
func BGP(ctx context.Context, o BGPOptions) (r BGPResult, err error) {
	o.Rounds = cmp.Or(o.Rounds, 10)
	if len(o.Routers) == 0 {
		o.Routers = router.Kinds()
	}
	cases, err := selectCases(o.Cases)
	if err != nil {
		return r, err
	}
	for _, k := range o.Routers {
		if err := k.Find(); err != nil {
			return r, err
		}
	}
	r = BGPResult{Edges: bgpEdges, NewRate: newRate, KeptConnections: keptConnections, PatienceMillis: float64(patience.Milliseconds())}
	for _, k := range o.Routers {
		for _, bfd := range []bool{false, true} {
			rows, err := o.measure(ctx, k, bfd, cases)
			r.Rows = append(r.Rows, rows...)
			if err != nil {
				return r, fmt.Errorf("%s, BFD %v: %w", k, bfd, err)
			}
		}
	}
	return r, nil
}

// bgpEdges is two, so that a flow moves only if its edge goes: with more of them, a
// router moves flows between those that stay.
const bgpEdges = 2

// measure runs the cases at one router in a lab of their own.
func (o BGPOptions) measure(ctx context.Context, k router.Kind, bfd bool, cases []bgpCase) (rows []BGPRow, err error) {
	site := siteOptions{name: "bench-bgp", kind: k, edges: bgpEdges, answer: smallAnswer}
	label := string(k)
	if bfd {
		site.bfd = &router.BFD{Interval: bfdInterval, Multiplier: bfdMultiplier}
		label += " with BFD"
	}
	o.progress("%s: start", label)
	s, err := buildSite(ctx, o.NetworkOptions, site)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.down(ctx)) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := s.router.Watch(ctx)
	if err != nil {
		return nil, err
	}
	f, err := startFlows(ctx, s.client, netip.AddrPortFrom(vip, vipPort).String(), o.Now)
	if err != nil {
		return nil, err
	}
	defer f.stop()
	t := &trial{site: s, flows: f, events: events, now: o.Now}
	for _, c := range cases {
		row := BGPRow{Router: k, BFD: bfd, Case: c.name}
		var outcomes []outcome
		for i := range o.Rounds {
			began := o.Now()
			got, err := t.round(ctx, c, s.edges[i%len(s.edges)])
			if err != nil {
				return rows, fmt.Errorf("%s, round %d: %w", c.name, i+1, err)
			}
			outcomes = append(outcomes, got)
			o.progress("%s: %s %d of %d: %s (%.1f s)", label, c.name, i+1, o.Rounds, got, o.Now().Sub(began).Seconds())
		}
		row.fill(c, bfd, outcomes)
		rows = append(rows, row)
	}
	return rows, nil
}

func (o outcome) String() string {
	text := fmt.Sprintf("route after %.1f ms", float64(o.changed.Microseconds())/1000)
	if o.changed == 0 {
		text = "no change of route"
	}
	if o.moved {
		text = "an unexpected change of route"
	}
	if o.assigned != nil {
		text += fmt.Sprintf(" (%.1f since assigned)", float64(o.assigned.Microseconds())/1000)
	}
	return fmt.Sprintf("%s, %d new failed (until %.1f ms), %d in flight and %d kept broken", text, sum(o.failed), float64(o.outage.Microseconds())/1000, o.inFlight, sum(o.broken))
}

// fill sums the rounds up and compares them with the goal.
func (row *BGPRow) fill(c bgpCase, bfd bool, outcomes []outcome) {
	row.N = len(outcomes)
	var changed, assigned, outage []time.Duration
	var failed, inFlight, broken []int
	row.ByKind, row.BrokenByKind = map[load.Kind]int{}, map[load.Kind]int{}
	for _, o := range outcomes {
		if o.changed > 0 {
			changed = append(changed, o.changed)
		}
		if o.assigned != nil {
			assigned = append(assigned, *o.assigned)
		}
		outage = append(outage, o.outage)
		if o.moved {
			row.RouteChanges++
		}
		for kind, n := range o.failed {
			row.ByKind[kind] += n
		}
		for kind, n := range o.broken {
			row.BrokenByKind[kind] += n
		}
		failed, inFlight, broken = append(failed, sum(o.failed)), append(inFlight, o.inFlight), append(broken, sum(o.broken))
	}
	row.RouteChanged, row.Assigned, row.Outage = spread(changed), spread(assigned), spread(outage)
	row.NewFailures, row.InFlight, row.Broken = tally(failed), tally(inFlight), tally(broken)
	row.Goal, row.Met = c.judge(bfd, row)
}

// trial is a lab in which rounds take place.
type trial struct {
	site   *routedSite
	flows  *flows
	events <-chan router.RouteEvent
	now    func() time.Time
}

// Pauses of a round.
const (
	// calm precedes each round: what an earlier one set off is over.
	calm = 300 * time.Millisecond
	// routeTime is how long a route may take to change.
	routeTime = 40 * time.Second
	// greetings are new connections to a VIP that has just come.
	greetings = 20
)

// round brings the trouble of a case about once and mends it.
func (t *trial) round(ctx context.Context, c bgpCase, victim *lab.Machine) (o outcome, err error) {
	if err := t.site.awaitWhole(ctx); err != nil {
		return o, err
	}
	t.flows.renew()
	healthy, cancel := context.WithTimeout(ctx, routeTime)
	defer cancel()
	if err := t.flows.whole(healthy, t.now); err != nil {
		return o, err
	}
	if err := rest(ctx, calm); err != nil {
		return o, err
	}
	t.drain()
	p := &round{trial: t, victim: victim}
	if c.prepare != nil {
		if err := c.prepare(ctx, p); err != nil {
			return o, err
		}
	}
	p.began = t.now() // act may know it better
	if err := c.act(ctx, p); err != nil {
		return o, err
	}
	end, err := t.follow(ctx, c, p, &o)
	if err != nil {
		return o, err
	}
	greeted := o.failed // at the new VIP
	if o.losses = t.flows.between(p.began, end); !o.last.IsZero() {
		o.outage = max(o.last.Sub(p.began), 0)
	}
	for kind, n := range greeted {
		o.failed[kind] += n
	}
	if c.mend != nil && !c.supervised {
		err = c.mend(ctx, p)
	}
	return o, err
}

// greet asks a VIP that has just come a few times, each time on a new connection.
func (t *trial) greet(ctx context.Context, address netip.Addr, o *outcome) error {
	r, err := load.Do(ctx, load.Config{
		Address: netip.AddrPortFrom(address, vipPort).String(), Host: vipHost, Dial: t.site.client.Dial,
		Requests: greetings, Concurrency: 2, NewConnections: true, Timeout: patience, Now: t.now,
	})
	o.failed = map[load.Kind]int{}
	for kind, f := range r.Failures {
		o.failed[kind] = f.Count
	}
	return err
}

// follow waits until what the case set off is over, and returns when that was.
func (t *trial) follow(ctx context.Context, c bgpCase, p *round, o *outcome) (time.Time, error) {
	if c.supervised {
		if err := c.mend(ctx, p); err != nil {
			return time.Time{}, err
		}
		if err := t.site.awaitWhole(ctx); err != nil {
			return time.Time{}, err
		}
		end := t.now()
		if err := rest(ctx, calm); err != nil {
			return end, err
		}
		at, moved := t.left(p.victim)
		if !at.IsZero() {
			o.changed = at.Sub(p.began)
		}
		o.moved = moved && c.keeps
		return end, nil
	}
	at, err := t.await(ctx, c.route(p), c.want(p))
	if err != nil {
		return at, err
	}
	if c.name == announce {
		if err := t.greet(ctx, p.probe, o); err != nil {
			return at, err
		}
	}
	end := t.now()
	o.changed = at.Sub(p.began)
	if !p.assigned.IsZero() {
		// The route may be there before our watch says that the VIP is given away.
		since := max(at.Sub(p.assigned), 0)
		o.assigned = &since
	}
	return end, rest(ctx, c.after())
}

// drain forgets the events so far.
func (t *trial) drain() {
	for {
		select {
		case <-t.events:
		default:
			return
		}
	}
}

// left forgets the events so far and says when the VIP's route was first without the
// edge, if it was, and whether it changed at all.
func (t *trial) left(victim *lab.Machine) (at time.Time, moved bool) {
	for {
		select {
		case e := <-t.events:
			if e.Prefix != host(vip) {
				continue
			}
			moved = true
			if at.IsZero() && !slices.Contains(e.NextHops, nextHop(victim)) {
				at = e.When
			}
		default:
			return at, moved
		}
	}
}

// await returns when the router's kernel came to use exactly these next hops.
func (t *trial) await(ctx context.Context, prefix netip.Prefix, want []netip.Addr) (time.Time, error) {
	limit := time.NewTimer(routeTime)
	defer limit.Stop()
	var last []netip.Addr
	for {
		select {
		case e, ok := <-t.events:
			switch {
			case !ok:
				return time.Time{}, errors.New("the watch of the router's routes ended")
			case e.Prefix != prefix:
			case slices.Equal(e.NextHops, want):
				return e.When, nil
			default:
				last = e.NextHops
			}
		case <-limit.C:
			return time.Time{}, fmt.Errorf("the router does not have %s over %v within %s; last it had it over %v", prefix, want, routeTime, last)
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
