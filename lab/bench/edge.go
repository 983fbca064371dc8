package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
	"fairlead.dev/lab/load"
)

// EdgeOptions say what is measured. Zero values take the defaults.
type EdgeOptions struct {
	// Rate in requests a second at which latency is measured, 2,000, for Duration, 10 s,
	// Rounds times; the median round counts, 3.
	Rate     float64
	Duration time.Duration
	Rounds   int
	// Routes (one a host), Endpoints (of one service) and Prefixes (on one host).
	Routes, Endpoints, Prefixes []int
	Now                         func() time.Time
	Progress                    func(what string)
}

// EdgeResult is what an edge's Envoy takes of time and processor for a request, by the
// size of what it is configured with.
type EdgeResult struct {
	Rate      float64      `json:"requests_per_s"`
	Routes    []EdgeRow    `json:"routes"`
	Endpoints []EdgeRow    `json:"endpoints"`
	Prefixes  []EdgeRow    `json:"prefixes"`
	Memory    EdgeMemory   `json:"memory"`
	Scopes    ScopesResult `json:"normaliser"`
}

// EdgeRow is one size.
type EdgeRow struct {
	Routes    int     `json:"routes"`
	Endpoints int     `json:"endpoints"`
	Prefixes  int     `json:"prefixes,omitempty"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	CPU       float64 `json:"envoy_us_per_request"`
	RSS       float64 `json:"envoy_rss_mb"`
	Failed    int     `json:"failed"`
	// Ratio of CPU to that of the first row.
	Ratio float64 `json:"envoy_cpu_ratio"`
}

// EdgeMemory compares shards with one route configuration of the same hosts.
type EdgeMemory struct {
	Hosts   int     `json:"hosts"`
	Sharded float64 `json:"sharded_mb"`
	One     float64 `json:"one_mb"`
	Ratio   float64 `json:"ratio"`
}

// edgeLoads are loads side by side, each of a host of its own.
const edgeLoads = 8

// Edge measures a real Envoy on loopback. It returns envoytest.ErrNoEnvoy where there is
// none.
func Edge(ctx context.Context, o EdgeOptions) (r EdgeResult, err error) {
	o = o.complete()
	r.Rate = o.Rate
	for _, n := range o.Routes {
		if err := o.row(ctx, &r.Routes, EdgeRow{Routes: n, Endpoints: 2}); err != nil {
			return r, err
		}
	}
	for _, n := range o.Endpoints {
		if err := o.row(ctx, &r.Endpoints, EdgeRow{Routes: 1_000, Endpoints: n}); err != nil {
			return r, err
		}
	}
	for _, n := range o.Prefixes {
		if err := o.row(ctx, &r.Prefixes, EdgeRow{Routes: 1, Endpoints: 2, Prefixes: n}); err != nil {
			return r, err
		}
	}
	o.progress("memory with shards and without")
	if r.Memory, err = edgeMemory(ctx, o.Routes[len(o.Routes)-1]); err != nil {
		return r, err
	}
	o.progress("cost of the normaliser")
	r.Scopes, err = Scopes(ctx, ScopesOptions{})
	return r, err
}

func (o EdgeOptions) complete() EdgeOptions {
	if o.Rate == 0 {
		o.Rate = 2_000
	}
	if o.Duration == 0 {
		o.Duration = 10 * time.Second
	}
	o.Rounds = orDefault(o.Rounds, 3)
	if o.Routes == nil {
		o.Routes = []int{100, 1_000, 5_000, 20_000}
	}
	if o.Endpoints == nil {
		o.Endpoints = []int{1, 10, 100, 1_000}
	}
	if o.Prefixes == nil {
		o.Prefixes = []int{100, 5_000}
	}
	return o
}

func (o EdgeOptions) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// row measures one size and adds it.
func (o EdgeOptions) row(ctx context.Context, rows *[]EdgeRow, row EdgeRow) (err error) {
	o.progress("%d routes, %d endpoints, %d prefixes", row.Routes, row.Endpoints, row.Prefixes)
	s, err := newScopesBench(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	stop, err := s.serve(ctx, &row)
	if err != nil {
		return err
	}
	defer stop()
	var p50, p99, cpu []float64
	for range o.Rounds {
		before, err := s.envoy.CPU()
		if err != nil {
			return err
		}
		report, err := s.loads(ctx, o, row)
		if err != nil {
			return err
		}
		after, err := s.envoy.CPU()
		if err != nil {
			return err
		}
		row.Failed += report.Failed
		p50, p99 = append(p50, millis(report.Latency.P50)), append(p99, millis(report.Latency.P99))
		cpu = append(cpu, float64((after-before).Microseconds())/float64(report.Requests))
	}
	row.P50, row.P99, row.CPU = percentile(p50, 0.5), percentile(p99, 0.5), math.Round(percentile(cpu, 0.5)*10)/10
	row.RSS = math.Round(float64(s.envoy.RSS())/102.4) / 10
	row.Ratio = 1
	if len(*rows) > 0 {
		row.Ratio = math.Round(row.CPU/(*rows)[0].CPU*100) / 100
	}
	*rows = append(*rows, row)
	return nil
}

var edgeGroup = model.BackendGroup{ID: "bench/app/80", Set: "bench/app/80"}

// serveOK answers at a port of every address of loopback. Connections stay open if they are to be kept.
func serveOK(ctx context.Context, kept bool) (port uint16, stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "0.0.0.0:0")
	if err != nil {
		return 0, nil, err
	}
	body := []byte("ok\n")
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })}
	server.SetKeepAlivesEnabled(kept)
	go func() { _ = server.Serve(l) }()
	return netip.MustParseAddrPort(l.Addr().String()).Port(), func() { _ = server.Close() }, nil
}

// serve configures Envoy with so many routes to so many endpoints, all of which are this
// process under addresses of loopback.
func (s *scopesBench) serve(ctx context.Context, row *EdgeRow) (stop func(), err error) {
	port, stop, err := serveOK(ctx, true)
	if err != nil {
		return nil, err
	}
	set := model.BackendSet{ID: edgeGroup.Set}
	for i := range row.Endpoints {
		address := netip.AddrFrom4([4]byte{127, 1, byte(i / 250), byte(i%250 + 1)})
		set.Backends = append(set.Backends, model.Backend{Address: netip.AddrPortFrom(address, port)})
	}
	for i := range row.Routes {
		host := edgeHost(i, row.Prefixes)
		s.hosts = append(s.hosts, host.Host)
		s.shards[benchShard(host.Host)] = append(s.shards[benchShard(host.Host)], host)
	}
	err = errors.Join(s.ads.Set(xds.LoadAssignment(edgeGroup, set, nil)), s.ads.Set(xds.Cluster(edgeGroup)), s.listen(ctx, scopesListener, nil))
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// edgeHost has one route, or one a prefix.
func edgeHost(i, prefixes int) model.VirtualHost {
	h := model.VirtualHost{HostKey: model.HostKey{Listener: scopesListener, Host: routeHost(i)}}
	for p := range max(1, prefixes) {
		path := "/"
		if prefixes > 0 {
			path = edgePrefix(p)
		}
		h.Routes = append(h.Routes, model.Route{
			Name:    "HTTPRoute/bench/app/rules/" + strconv.Itoa(p) + "/matches/0",
			Match:   model.Match{Path: model.PathMatch{Kind: model.PathSegments, Value: path}},
			Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: edgeGroup.ID, Weight: 1}}},
		})
	}
	return h
}

func edgePrefix(p int) string { return fmt.Sprintf("/team-%04d/app", p) }

// loads asks for hosts, or for prefixes of one, spread over all.
func (s *scopesBench) loads(ctx context.Context, o EdgeOptions, row EdgeRow) (load.Report, error) {
	var runs []*load.Run
	for i := range edgeLoads {
		c := load.Config{
			Address: fmt.Sprintf("127.0.0.1:%d", s.port[scopesListener]), Host: s.hosts[i*(len(s.hosts)-1)/edgeLoads], Path: "/",
			Rate: o.Rate / edgeLoads, Concurrency: 8, Duration: o.Duration,
		}
		if row.Prefixes > 0 {
			c.Path = edgePrefix((i*2+1)*row.Prefixes/(2*edgeLoads)) + "/index.html"
		}
		run, err := load.Start(ctx, c)
		if err != nil {
			return load.Report{}, err
		}
		runs = append(runs, run)
	}
	var reports []load.Report
	for _, run := range runs {
		<-run.Done()
		reports = append(reports, run.Stop())
	}
	return load.Merge(reports...), ctx.Err()
}

// edgeMemory takes the memory of two Envoys with the same hosts.
func edgeMemory(ctx context.Context, hosts int) (EdgeMemory, error) {
	m := EdgeMemory{Hosts: hosts}
	for _, one := range []bool{false, true} {
		s, err := newScopesBench(ctx)
		if err != nil {
			return m, err
		}
		out := &m.Sharded
		shards := benchShard
		if one {
			out, shards = &m.One, func(string) int { return xds.WildShard }
		}
		for i := range hosts {
			h := edgeHost(i, 0)
			s.shards[shards(h.Host)] = append(s.shards[shards(h.Host)], h)
		}
		set := model.BackendSet{ID: edgeGroup.Set}
		err = errors.Join(s.ads.Set(xds.LoadAssignment(edgeGroup, set, nil)), s.ads.Set(xds.Cluster(edgeGroup)), s.listen(ctx, scopesListener, nil))
		*out = math.Round(float64(s.envoy.RSS())/102.4) / 10
		s.close()
		if err != nil {
			return m, err
		}
	}
	m.Ratio = math.Round(m.Sharded/m.One*100) / 100
	return m, nil
}
