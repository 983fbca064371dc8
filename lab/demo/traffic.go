package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fairlead.dev/lab/load"
	"fairlead.dev/lab/router"
)

// flow is the requests for one route at one VIP.
type flow struct {
	vip   netip.Addr
	route *route
}

func (f flow) address() netip.AddrPort { return netip.AddrPortFrom(f.vip, 80) }

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
	edge    string // that asked the backend; empty without an answer
	failed  bool
	end     time.Time
	refused bool  // the connection could not be made
	err     error // why it failed
	conn    *conn // nil when there was none
}

// conn is one of the client's connections.
type conn struct {
	flow  flow
	local netip.AddrPort
	// edges are those to which the router's kernel led its packets, in the order in
	// which it did, and those that answered on it. Guarded by the traffic's mutex.
	edges []string
	// owners are, of a connection that failed, those to whose proxies an edge gave it.
	// Guarded like edges.
	owners []string
	led    string // where to at first
	dialed time.Time
	closed time.Time
}

func (c *conn) at(edge string) {
	if edge != "" && !slices.Contains(c.edges, edge) {
		c.edges = append(c.edges, edge)
	}
}

// table is which edges the router's kernel spread a VIP over since a moment.
type table struct {
	since time.Time
	edges []string
}

// traffic is requests over several flows at once, with the router watched.
type traffic struct {
	st      *stage
	flows   []flow
	runs    []*load.Run
	alone   bool // edges pass nothing on
	paths   *router.Paths
	unwatch context.CancelFunc
	watched chan struct{} // closed when nobody watches any more

	mu      sync.Mutex
	samples []sample
	conns   map[[2]netip.AddrPort]*conn // by both ends
	tables  map[netip.Addr][]table
	err     error // of watching
}

// flows are all pairs of the routes and their VIPs: each is reached over IPv4 and IPv6.
func (st *stage) flows(routes ...*route) []flow {
	var all []flow
	for _, r := range routes {
		for _, vip := range st.vips[r.owner()] {
			all = append(all, flow{vip, r})
		}
	}
	return all
}

// watchFlows begins to watch what the router does with the flows; close ends it.
func (st *stage) watchFlows(ctx context.Context, flows []flow) (*traffic, error) {
	t := &traffic{
		st: st, flows: flows, alone: st.alone, watched: make(chan struct{}),
		conns: map[[2]netip.AddrPort]*conn{}, tables: map[netip.Addr][]table{},
	}
	var err error
	if t.paths, err = st.router.paths(); err != nil {
		return nil, err
	}
	ctx, t.unwatch = context.WithCancel(ctx)
	events, err := st.router.Watch(ctx)
	if err != nil {
		t.unwatch()
		t.paths.Close()
		return nil, err
	}
	for _, f := range flows {
		if err := t.look(ctx, f.vip, st.Now()); err != nil {
			t.unwatch()
			t.paths.Close()
			return nil, err
		}
	}
	go func() {
		defer close(t.watched)
		for e := range events {
			if e.Prefix.IsSingleIP() && t.knows(e.Prefix.Addr()) {
				t.turn(ctx, e.Prefix.Addr(), table{e.When, st.edgesAt(e.NextHops)})
			}
		}
	}()
	return t, nil
}

// close ends the watching.
func (t *traffic) close() {
	t.unwatch()
	<-t.watched
	t.paths.Close()
}

// look notes the routes of a VIP as they are.
func (t *traffic) look(ctx context.Context, vip netip.Addr, now time.Time) error {
	hops, err := t.st.router.Routes(ctx, netip.PrefixFrom(vip, vip.BitLen()))
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.tables[vip]) == 0 {
		t.tables[vip] = []table{{now, t.st.edgesAt(hops)}}
	}
	return nil
}

func (t *traffic) knows(vip netip.Addr) bool {
	return slices.ContainsFunc(t.flows, func(f flow) bool { return f.vip == vip })
}

// justClosed is how long ago a connection may have ended to which a change of routes
// is told: what the change broke may be over before we hear of it.
const justClosed = time.Second

// turn notes that a VIP's routes changed, and where its connections lead now.
func (t *traffic) turn(ctx context.Context, vip netip.Addr, to table) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tables[vip] = append(t.tables[vip], to)
	for ends, c := range t.conns {
		if !c.closed.IsZero() && to.since.Sub(c.closed) > justClosed {
			delete(t.conns, ends)
			continue
		}
		if c.flow.vip != vip {
			continue
		}
		hop, err := t.paths.Next(ctx, c.local, c.flow.address())
		if err != nil && ctx.Err() == nil {
			t.err = cmp.Or(t.err, err)
		}
		c.at(t.st.edgeAt(hop))
	}
}

// dial makes a connection of a flow and notes where the router leads it, before its first
// packet leaves: of a connection that is refused it tells who refused it.
func (t *traffic) dial(ctx context.Context, f flow, network, address string) (net.Conn, error) {
	from := t.st.client.Addr4()
	if f.vip.Is6() {
		from = t.st.client.Addr6()
	}
	var c *conn
	made, err := t.st.client.DialFrom(ctx, network, from, address, func(local netip.AddrPort) {
		t.mu.Lock()
		defer t.mu.Unlock()
		c = &conn{flow: f, local: local, dialed: t.st.Now()}
		hop, err := t.paths.Next(ctx, c.local, f.address())
		if err != nil && ctx.Err() == nil {
			t.err = cmp.Or(t.err, err)
		}
		c.led = t.st.edgeAt(hop)
		c.at(c.led)
		t.conns[[2]netip.AddrPort{c.local, f.address()}] = c
	})
	if c == nil {
		return nil, err
	}
	closed := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		c.closed = t.st.Now()
	}
	if err != nil {
		closed()
		return nil, &unmade{err, c}
	}
	return &watchedConn{Conn: made, closed: closed}, nil
}

// unmade is why a connection could not be made.
type unmade struct {
	error
	conn *conn
}

func (u *unmade) Unwrap() error { return u.error }

// watchedConn tells when it is closed.
type watchedConn struct {
	net.Conn
	closed func()
}

func (c *watchedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// config is the load of one flow.
func (t *traffic) config(f flow) load.Config {
	return load.Config{
		Address: f.address().String(), Host: f.route.host, Now: t.st.Now,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return t.dial(ctx, f, network, address)
		},
		OnResult: func(r load.Result) { t.add(f, r) },
	}
}

// steady starts the steady traffic.
func (st *stage) steady(ctx context.Context, flows []flow) (*traffic, error) {
	t, err := st.watchFlows(ctx, flows)
	if err != nil {
		return nil, err
	}
	for _, f := range flows {
		c := t.config(f)
		c.Rate, c.Concurrency = steadyRate, steadyClients
		run, err := load.Start(ctx, c)
		if err != nil {
			t.stop()
			return nil, err
		}
		t.runs = append(t.runs, run)
	}
	return t, nil
}

func (t *traffic) add(f flow, r load.Result) {
	s := sample{start: r.Start, end: r.Start.Add(r.Latency), flow: f, cluster: clusterOf(r.Name), failed: r.Kind != "", err: r.Err, edge: t.st.edgeAt(r.Peer)}
	t.mu.Lock()
	defer t.mu.Unlock()
	var u *unmade
	if errors.As(r.Err, &u) {
		s.conn, s.refused = u.conn, true
	} else if s.conn = t.conns[[2]netip.AddrPort{r.Local, f.address()}]; s.conn != nil {
		// Of load balancers backends see nothing: it is the one to which the router leads.
		if n := len(s.conn.edges); f.overKernel() && n > 0 {
			s.edge = s.conn.edges[n-1]
		}
		s.conn.at(s.edge)
	}
	t.samples = append(t.samples, s)
}

// stop ends the traffic and the watching. It may be called again.
func (t *traffic) stop() {
	_ = t.report()
	t.close()
}

// report ends the traffic when the requests under way are answered, and returns the
// report of all flows. It may be called again.
func (t *traffic) report() load.Report {
	for _, r := range t.runs {
		r.Finish()
	}
	var reports []load.Report
	for _, r := range t.runs {
		reports = append(reports, r.Stop())
	}
	return load.Merge(reports...)
}

// since returns the samples of requests that started at or after a moment.
func (t *traffic) since(moment time.Time, want func(sample) bool) []sample {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []sample
	for _, s := range t.samples {
		if !s.start.Before(moment) && (want == nil || want(s)) {
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
			latest := t.since(moment, func(s sample) bool { return s.flow == f })
			slices.SortFunc(latest, func(a, b sample) int { return a.start.Compare(b.start) })
			if len(latest) < window {
				return fmt.Errorf("%s at %s: %d answers since", f.route.host, f.vip, len(latest))
			}
			counts := map[string]int{}
			for _, s := range latest[len(latest)-window:] {
				if !s.failed {
					counts[s.cluster]++
				}
			}
			if wrong := load.Wrong(load.Split(counts, f.route.weights, load.DefaultSigmas)); wrong != "" {
				return fmt.Errorf("%s at %s: %s", f.route.host, f.vip, wrong)
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

// answers counts the good answers by edge and cluster.
func (t *traffic) answers() map[string]map[string]int {
	counts := map[string]map[string]int{}
	for _, s := range t.since(time.Time{}, nil) {
		if s.failed {
			continue
		}
		if counts[s.edge] == nil {
			counts[s.edge] = map[string]int{}
		}
		counts[s.edge][s.cluster]++
	}
	return counts
}

// misled is how many connections the router's kernel leads to no edge, by its word.
func (t *traffic) misled() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, c := range t.conns {
		if c.led == "" {
			n++
		}
	}
	return n
}
