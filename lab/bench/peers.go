package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

// PeersOptions say how load balancers are compared.
type PeersOptions struct {
	NetworkOptions
	// Duration of one run, default 4 s, and Rounds of each, default 3; medians count.
	Duration time.Duration
	Rounds   int
	// Connections of the client at once, default 32.
	Connections int
	// KeptRate and CloseRate are the requests a second at which processor time and latency
	// are measured: on connections that are kept (default 4,000), and on one each (default
	// 1,500). Every contestant must be able to.
	KeptRate, CloseRate float64
	// Only these contestants; default all.
	Only []string

	programs peerPrograms
}

// PeersResult compares load balancers with no load balancer at all.
type PeersResult struct {
	Connections int       `json:"connections"`
	Seconds     float64   `json:"seconds"`
	Rounds      int       `json:"rounds"`
	Rows        []PeerRow `json:"rows"`
	Goal        string    `json:"goal"`
	Met         bool      `json:"met"`
}

// PeerRow is one load balancer with one kind of connections. Each figure is the median of
// its rounds.
type PeerRow struct {
	Name string `json:"name"`
	// Kind is keepalive, or close: a connection a request.
	Kind string `json:"kind"`
	// Requests of a client that asks as fast as it can, and their ratio to those without a
	// load balancer.
	Requests float64 `json:"requests_per_s"`
	Ratio    float64 `json:"ratio_to_direct"`
	// Rate at which all that follows is measured, the same for all.
	Rate float64 `json:"rate_per_s"`
	// LBCPU is the processor time that the load balancer's machine takes for a request: its
	// kernel for packets that arrive, and the load balancer's own process. Least is the
	// lowest of the rounds, Packets how many arrive there.
	LBCPU     float64 `json:"lb_cpu_us_per_request"`
	Least     float64 `json:"lb_cpu_us_per_request_min"`
	Kernel    float64 `json:"lb_kernel_us_per_request"`
	Processes float64 `json:"lb_process_us_per_request"`
	Packets   float64 `json:"lb_packets_per_request"`
	// Backends is what their machines take for a request, and CPU the whole host, with
	// client, router and the switches between.
	Backends float64 `json:"backends_cpu_us_per_request"`
	CPU      float64 `json:"cpu_us_per_request"`
	// Latency in milliseconds, from when a request was due.
	P50 float64 `json:"p50_ms"`
	P90 float64 `json:"p90_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
}

// figures are all that a round measures.
func (r *PeerRow) figures() []*float64 {
	return []*float64{&r.Requests, &r.Rate, &r.LBCPU, &r.Kernel, &r.Processes, &r.Packets, &r.Backends, &r.CPU, &r.P50, &r.P90, &r.P99, &r.Max}
}

// contestant is one way to the backends.
type contestant struct {
	name string
	// mode and plane of ours; empty for others.
	mode  SurvivalMode
	plane model.DataPlaneKind
	// program of others, which listens at the load balancer's machine.
	program func(*peerSite) ([]string, error)
	port    uint16
}

const (
	direct     = "direct"
	keptPeers  = "keepalive"
	closePeers = "close"
)

var peerKinds = []string{keptPeers, closePeers}

// contestants in the order of the table; the first has no load balancer.
func contestants() []contestant {
	return []contestant{
		{name: direct},
		{name: "XDP, DSRGeneve", mode: SurvivalGeneve, plane: model.DataPlaneXDP},
		{name: "XDP, DSRL2", mode: SurvivalL2, plane: model.DataPlaneXDP},
		{name: "XDP, NAT", mode: SurvivalNAT, plane: model.DataPlaneXDP},
		{name: "nftables, NAT", mode: SurvivalNAT, plane: model.DataPlaneNFTables},
		{name: "HAProxy, TCP", program: haproxyOf, port: 9082},
		{name: "nginx, stream", program: nginxOf, port: 9081},
		{name: "Envoy, TCP", program: envoyOf, port: 9083},
	}
}

// PeerNames are the contestants.
func PeerNames() (names []string) {
	for _, c := range contestants() {
		names = append(names, c.name)
	}
	return names
}

// Peers measures each contestant in labs of its own: what the kernel remembers of one
// must not help or hinder another. A round measures all of them.
func Peers(ctx context.Context, o PeersOptions) (r PeersResult, err error) {
	o.Duration, o.Rounds, o.Connections = cmp.Or(o.Duration, 4*time.Second), cmp.Or(o.Rounds, 3), cmp.Or(o.Connections, 32)
	o.KeptRate, o.CloseRate = cmp.Or(o.KeptRate, 4000), cmp.Or(o.CloseRate, 1500)
	if o.programs, err = findPeerPrograms(); err != nil {
		return r, err
	}
	r = PeersResult{
		Connections: o.Connections, Seconds: o.Duration.Seconds(), Rounds: o.Rounds,
		Goal: "XDP uses less CPU per request than every other", Met: true,
	}
	var all []PeerRow
	for round := range o.Rounds {
		for _, c := range contestants() {
			if len(o.Only) > 0 && c.name != direct && !slices.Contains(o.Only, c.name) {
				continue
			}
			o.progress("round %d of %d, %s", round+1, o.Rounds, c.name)
			rows, err := peer(ctx, o, c)
			if err != nil {
				return r, fmt.Errorf("%s: %w", c.name, err)
			}
			all = append(all, rows...)
		}
	}
	r.Rows = medians(all)
	r.compare()
	return r, nil
}

// medians makes one row of all rounds of a contestant and kind.
func medians(all []PeerRow) (rows []PeerRow) {
	for _, first := range all {
		same := func(r PeerRow) bool { return r.Name == first.Name && r.Kind == first.Kind }
		if slices.ContainsFunc(rows, same) {
			continue
		}
		row, rounds := first, [][]float64{}
		row.Least = first.LBCPU
		for _, r := range all {
			if !same(r) {
				continue
			}
			for i, f := range r.figures() {
				if i == len(rounds) {
					rounds = append(rounds, nil)
				}
				rounds[i] = append(rounds[i], *f)
			}
			row.Least = min(row.Least, r.LBCPU)
		}
		for i, f := range row.figures() {
			slices.Sort(rounds[i])
			*f = rounds[i][len(rounds[i])/2]
		}
		rows = append(rows, row)
	}
	return rows
}

// compare relates every row to that without a load balancer, and judges.
func (r *PeersResult) compare() {
	most, least := map[string]float64{}, map[string]float64{}
	for i := range r.Rows {
		row := &r.Rows[i]
		for _, d := range r.Rows {
			if d.Name == direct && d.Kind == row.Kind {
				row.Ratio = row.Requests / d.Requests
			}
		}
		switch {
		case strings.HasPrefix(row.Name, "XDP"):
			most[row.Kind] = max(most[row.Kind], row.LBCPU)
		case row.Name != direct:
			if l, any := least[row.Kind]; !any || row.LBCPU < l {
				least[row.Kind] = row.LBCPU
			}
		}
	}
	for kind, l := range least {
		r.Met = r.Met && most[kind] < l
	}
}

// peer measures one contestant once.
func peer(ctx context.Context, o PeersOptions, c contestant) (rows []PeerRow, err error) {
	s, err := buildPeer(ctx, o, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.down(ctx)) }()
	to := netip.AddrPortFrom(vip, survivalPort)
	switch {
	case c.program != nil:
		to = netip.AddrPortFrom(s.edges[0].Addr4(), c.port)
	case c.mode == "":
		to = netip.AddrPortFrom(unbalanced, survivalPort)
	}
	// First without anything at tracepoints.
	for _, kind := range peerKinds {
		most, err := s.wrk(ctx, o, "http://"+to.String()+"/", kind)
		if err != nil {
			return nil, err
		}
		rows = append(rows, PeerRow{Name: c.name, Kind: kind, Requests: most})
	}
	if err := s.meter(c); err != nil {
		return nil, err
	}
	defer s.softirqs.stop()
	for i := range rows {
		if err := s.measure(ctx, o, to.String(), &rows[i]); err != nil {
			return nil, err
		}
		o.progress("%s, %s: at most %.0f requests/s; at %.0f requests/s: %.2f us/request", c.name, rows[i].Kind, rows[i].Requests, rows[i].Rate, rows[i].LBCPU)
	}
	return rows, nil
}
