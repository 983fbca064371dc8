package bench

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/router"
)

// ECMPOptions say what is measured.
type ECMPOptions struct {
	NetworkOptions
	Router router.Kind // default FRR
	// Edges is the largest number of edges, default 4, and Duration for how long their
	// number changes, default 5 minutes.
	Edges    int
	Duration time.Duration
	// Seed of what changes when. Equal seeds give equal changes.
	Seed uint64
	// Still keeps all edges in: no change broke what breaks then.
	Still bool
}

// What the edges and their clients can do.
const (
	// edgeRate is what one edge can take in, in bits a second: answers come in from the
	// backends before they go out.
	edgeRate = 50_000_000
	// bodySize of an answer, and downloads that are under way at any time.
	bodySize  = 64 << 10
	downloads = 64
	// downloadTime is when a download is given up: what is slow, as 64 over one edge are, is not broken.
	downloadTime = 30 * time.Second
	// sampleEvery is the length of a sample of the throughput.
	sampleEvery = 250 * time.Millisecond
	// ramp is left out of the throughput by count after each change: connections start
	// slowly.
	ramp = time.Second
	// leastPause and mostPause bound the time between two changes.
	leastPause = 2 * time.Second
	mostPause  = 4 * time.Second
)

// ECMPResult is how a router and the throughput follow the number of edges.
type ECMPResult struct {
	Router   router.Kind `json:"router"`
	Edges    int         `json:"edges"`
	Seed     uint64      `json:"seed"`
	Duration float64     `json:"duration_s"`
	Still    bool        `json:"still,omitempty"`
	// EdgeRate is the capacity of one edge in Mbit/s of packets.
	EdgeRate float64      `json:"edge_rate_mbps"`
	Changes  []ECMPChange `json:"changes"`
	// Delay from asking the API to the router's kernel using exactly the edges wanted.
	Delay DelaySpread `json:"delay_ms"`
	// ByCount is the throughput of so many edges.
	ByCount []CountRate `json:"throughput_by_edges"`
	Samples []Sample    `json:"samples"`
	// Downloads that were complete, how long they took, and those that broke.
	Complete int64       `json:"downloads_complete"`
	Took     DelaySpread `json:"download_ms"`
	Broken   int64       `json:"downloads_broken"`
	// Breaks are the broken ones, in the order in which that was noticed.
	Breaks []ECMPBreak `json:"breaks,omitempty"`
	Goal   string      `json:"goal"`
	Met    bool        `json:"met"`
}

// ECMPChange is one change of the number of edges.
type ECMPChange struct {
	At    float64 `json:"at_s"`
	From  int     `json:"from"`
	To    int     `json:"to"`
	Delay float64 `json:"delay_ms"`
}

// ECMPBreak is a download that broke.
type ECMPBreak struct {
	At    float64 `json:"at_s"` // when it began
	After float64 `json:"after_ms"`
	Read  int64   `json:"bytes_read"`
	From  string  `json:"from"` // the client's end, if there was a connection
	Error string  `json:"error"`
}

// DelaySpread are percentiles by nearest rank.
type DelaySpread struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// CountRate is the throughput while so many edges served.
type CountRate struct {
	Edges   int     `json:"edges"`
	Seconds float64 `json:"seconds"`
	Mbps    float64 `json:"mbps"`
	// Share of what so many edges can do.
	Share float64 `json:"share"`
}

// Sample is the throughput of the clients in the time before At.
type Sample struct {
	At    float64 `json:"at_s"`
	Edges int     `json:"edges"` // in the router's kernel
	Mbps  float64 `json:"mbps"`
}

// The goals, in milliseconds, and the share of the capacity at every count.
const (
	delayP50Goal = 200
	delayP99Goal = 1000
	delayMaxGoal = 2000
	shareGoal    = 0.8
)

// member is the label of the machines that announce the pool.
const member = "pool"

// ECMP changes the number of edges that announce a VIP at random, and watches how the
// router's kernel and the throughput follow.
func ECMP(ctx context.Context, o ECMPOptions) (r ECMPResult, err error) {
	o.Router = cmp.Or(o.Router, router.FRR)
	o.Edges = cmp.Or(o.Edges, 4)
	o.Duration = cmp.Or(o.Duration, 5*time.Minute)
	if o.Edges < 2 && !o.Still || o.Edges < 1 {
		return r, fmt.Errorf("%d edges: want at least 2, or 1 where nothing changes", o.Edges)
	}
	if err := o.Router.Find(); err != nil {
		return r, err
	}
	o.progress("%s, %d edges, seed %d: start", o.Router, o.Edges, o.Seed)
	s, err := buildSite(ctx, o.NetworkOptions, siteOptions{
		name: "bench-ecmp", kind: o.Router, edges: o.Edges, answer: largeAnswer,
		pool: []string{"machines: {matchLabels: {" + member + ": in}}"}, labels: member + "=in",
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.down(ctx)) }()
	for _, m := range s.edges {
		if err := m.SetRate(lab.SegmentEdges, edgeRate); err != nil {
			return r, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := s.router.Watch(ctx)
	if err != nil {
		return r, err
	}
	x := &experiment{ECMPOptions: o, site: s, random: rand.New(rand.NewPCG(o.Seed, o.Seed)), in: slices.Clone(s.edges)}
	x.count.Store(int64(o.Edges))
	x.began = o.Now()
	var working sync.WaitGroup
	for range downloads {
		working.Go(func() { x.download(ctx) })
	}
	working.Go(func() { x.sample(ctx) })
	err = x.change(ctx, events)
	cancel()
	working.Wait()
	if err != nil {
		return r, err
	}
	return x.result(), nil
}

// largeAnswer is what the backends say: something to carry.
var largeAnswer = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", strconv.Itoa(len(largeBody)))
	_, _ = w.Write(largeBody)
})

var largeBody = make([]byte, bodySize)

// experiment is a lab in which the number of edges changes.
type experiment struct {
	ECMPOptions
	site   *routedSite
	random *rand.Rand
	began  time.Time
	in     []*lab.Machine // that announce the VIP

	count  atomic.Int64 // of next hops in the router's kernel
	bytes  atomic.Int64 // that clients have read
	broken atomic.Int64

	mu     sync.Mutex
	took   []float64 // of the downloads that were complete, ms
	breaks []ECMPBreak

	changes []ECMPChange
	samples []Sample // its goroutine's until that has ended
}

// since is a time of the experiment in seconds.
func (x *experiment) since(t time.Time) float64 {
	return math.Round(t.Sub(x.began).Seconds()*1000) / 1000
}

// change changes the number of edges until the time is over.
func (x *experiment) change(ctx context.Context, events <-chan router.RouteEvent) error {
	if x.Still {
		return rest(ctx, x.Duration)
	}
	for {
		pause := leastPause + time.Duration(x.random.Int64N(int64(mostPause-leastPause)))
		if x.Now().Add(pause).Sub(x.began) > x.Duration {
			return rest(ctx, x.began.Add(x.Duration).Sub(x.Now()))
		}
		if err := rest(ctx, pause); err != nil {
			return err
		}
		// Another number than now, and any edges.
		n := 1 + x.random.IntN(x.Edges-1)
		if n >= len(x.in) {
			n++
		}
		var want []*lab.Machine
		for _, i := range x.random.Perm(x.Edges)[:n] {
			want = append(want, x.site.edges[i])
		}
		c := ECMPChange{From: len(x.in), To: n}
		asked := x.Now()
		at, err := x.become(ctx, want, events)
		if err != nil {
			return err
		}
		c.At, c.Delay = x.since(asked), math.Round(at.Sub(asked).Seconds()*10_000)/10
		x.changes = append(x.changes, c)
		x.in = want
		x.progress("%.0f s: %d edges instead of %d, in the router's kernel after %.1f ms", c.At, c.To, c.From, c.Delay)
	}
}

// become has exactly these edges announce the VIP, and returns when the router's kernel
// used them.
func (x *experiment) become(ctx context.Context, want []*lab.Machine, events <-chan router.RouteEvent) (time.Time, error) {
	label := func(m *lab.Machine, value string) error {
		return x.site.patchMachine(ctx, m.Name(), fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, member, value))
	}
	for _, m := range want { // who comes first: there is always one
		if !slices.Contains(x.in, m) {
			if err := label(m, `"in"`); err != nil {
				return time.Time{}, err
			}
		}
	}
	for _, m := range x.in {
		if !slices.Contains(want, m) {
			if err := label(m, "null"); err != nil {
				return time.Time{}, err
			}
		}
	}
	limit := time.NewTimer(routeTime)
	defer limit.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return time.Time{}, errors.New("the watch of the router's routes ended")
			}
			if e.Prefix != host(vip) {
				continue
			}
			x.count.Store(int64(len(e.NextHops)))
			if slices.Equal(e.NextHops, nextHops(want)) {
				return e.When, nil
			}
		case <-limit.C:
			return time.Time{}, fmt.Errorf("the router does not have the VIP over %v within %s", nextHops(want), routeTime)
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// sample writes the throughput down until ctx ends.
func (x *experiment) sample(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	last, before := x.began, int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, read := x.Now(), x.bytes.Load()
		mbps := float64(read-before) * 8 / 1e6 / now.Sub(last).Seconds()
		x.samples = append(x.samples, Sample{At: x.since(now), Edges: int(x.count.Load()), Mbps: math.Round(mbps*10) / 10})
		last, before = now, read
	}
}

// download fetches one answer after the other, each on a connection of its own, until
// ctx ends.
func (x *experiment) download(ctx context.Context) {
	address := netip.AddrPortFrom(vip, vipPort).String()
	buffer := make([]byte, 16<<10)
	for ctx.Err() == nil {
		b := ECMPBreak{}
		began := x.Now()
		err := x.fetch(ctx, address, buffer, &b)
		took := math.Round(x.Now().Sub(began).Seconds()*10_000) / 10
		switch {
		case ctx.Err() != nil:
		case err == nil:
			x.mu.Lock()
			x.took = append(x.took, took)
			x.mu.Unlock()
		default:
			x.broken.Add(1)
			b.At, b.After, b.Error = x.since(began), took, err.Error()
			x.mu.Lock()
			x.breaks = append(x.breaks, b)
			x.mu.Unlock()
			x.progress("%.3f s: a download broke after %.1f ms and %d bytes from %s: %s", b.At, b.After, b.Read, b.From, b.Error)
			_ = rest(ctx, 20*time.Millisecond) // an edge that refuses at once is no reason to spin
		}
	}
}

func (x *experiment) fetch(ctx context.Context, address string, buffer []byte, b *ECMPBreak) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTime)
	defer cancel()
	conn, err := x.site.client.Dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	b.From = conn.LocalAddr().String()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+vipHost+"\r\nConnection: close\r\n\r\n"); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReaderSize(conn, 4<<10), nil)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	for {
		n, err := answer.Body.Read(buffer)
		x.bytes.Add(int64(n))
		b.Read += int64(n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// result sums up.
func (x *experiment) result() ECMPResult {
	r := ECMPResult{
		Router: x.Router, Edges: x.Edges, Seed: x.Seed, Duration: x.Duration.Seconds(), EdgeRate: edgeRate / 1e6,
		Changes: x.changes, Samples: x.samples, Complete: int64(len(x.took)), Took: delaySpread(x.took), Broken: x.broken.Load(),
		ByCount: byCount(x.samples, x.changes), Breaks: x.breaks,
		Still: x.Still, Goal: fmt.Sprintf("no download breaks; throughput at least %.0f %% of what the edges can do", shareGoal*100),
	}
	if !x.Still {
		r.Goal += fmt.Sprintf("; delay p50 < %d ms, p99 < %d ms, max < %d ms", delayP50Goal, delayP99Goal, delayMaxGoal)
	}
	delays := make([]float64, len(x.changes))
	for i, c := range x.changes {
		delays[i] = c.Delay
	}
	r.Delay = delaySpread(delays)
	r.Met = len(r.ByCount) > 0 && (len(delays) > 0 || x.Still) && r.Broken == 0 && r.Delay.P50 < delayP50Goal && r.Delay.P99 < delayP99Goal && r.Delay.Max < delayMaxGoal
	for _, c := range r.ByCount {
		r.Met = r.Met && c.Share >= shareGoal
	}
	return r
}

func delaySpread(delays []float64) DelaySpread {
	sorted := slices.Sorted(slices.Values(delays))
	n := len(sorted)
	if n == 0 {
		return DelaySpread{}
	}
	rank := func(percent int) float64 { return sorted[(n*percent+99)/100-1] }
	return DelaySpread{P50: rank(50), P99: rank(99), Max: sorted[n-1]}
}

// byCount is the throughput of the samples that no change is in or shortly before.
func byCount(samples []Sample, changes []ECMPChange) []CountRate {
	sums := map[int]*CountRate{}
	for i, s := range samples {
		from := 0.0
		if i > 0 {
			from = samples[i-1].At
		}
		steady := from >= ramp.Seconds() && !slices.ContainsFunc(changes, func(c ECMPChange) bool {
			return c.At < s.At && c.At+c.Delay/1000+ramp.Seconds() > from
		})
		if !steady {
			continue
		}
		c := sums[s.Edges]
		if c == nil {
			c = &CountRate{Edges: s.Edges}
			sums[s.Edges] = c
		}
		c.Mbps += s.Mbps * (s.At - from)
		c.Seconds += s.At - from
	}
	list := make([]CountRate, 0, len(sums))
	for _, c := range sums {
		mbps := c.Mbps / c.Seconds
		list = append(list, CountRate{
			Edges: c.Edges, Seconds: math.Round(c.Seconds*10) / 10, Mbps: math.Round(mbps*10) / 10,
			Share: math.Round(mbps*1e6/(edgeRate*float64(max(c.Edges, 1)))*1000) / 1000,
		})
	}
	slices.SortFunc(list, func(a, b CountRate) int { return cmp.Compare(a.Edges, b.Edges) })
	return list
}
