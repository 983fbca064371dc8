package bench

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
	"fairlead.dev/lab/router"
)

// PeersOptions say how load balancers are compared.
type PeersOptions struct {
	NetworkOptions
	// Duration of one run of wrk, default 4 s, and Rounds of each, default 3; medians count.
	Duration time.Duration
	Rounds   int
	// Connections of the client at once, default 32.
	Connections int
	// Only these contestants; default all.
	Only []string
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

// PeerRow is one load balancer with one kind of connections.
type PeerRow struct {
	Name string `json:"name"`
	// Kind is keepalive, or close: a connection a request.
	Kind     string  `json:"kind"`
	Requests float64 `json:"requests_per_s"`
	// Ratio to the requests without a load balancer.
	Ratio float64 `json:"ratio_to_direct"`
	// CPU of the whole host for a request, and what of it the load balancer takes: all that
	// is more than without one.
	CPU   float64 `json:"cpu_us_per_request"`
	LBCPU float64 `json:"lb_cpu_us_per_request"`
	// Latency in milliseconds.
	P50 float64 `json:"p50_ms"`
	P90 float64 `json:"p90_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
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

const peerRows = "keepalive close"

// contestants in the order of the table; the first has no load balancer.
func contestants() []contestant {
	return []contestant{
		{name: "direct"},
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

// unbalanced is an address that both backends have, for want of a load balancer: the router
// spreads its connections over them.
var unbalanced = netip.MustParseAddr("198.51.100.1")

// peerSite is one load balancer in front of two backends, in namespaces of its own.
type peerSite struct {
	*survivalSite
	envoy string
	dir   string
}

// Peers measures each contestant in a lab of its own: what the kernel remembers of one
// must not help or hinder another.
func Peers(ctx context.Context, o PeersOptions) (r PeersResult, err error) {
	o.Duration, o.Rounds, o.Connections = cmp.Or(o.Duration, 4*time.Second), cmp.Or(o.Rounds, 3), cmp.Or(o.Connections, 32)
	for _, program := range []string{"wrk", "nginx", "haproxy", "taskset"} {
		if _, err := exec.LookPath(program); err != nil {
			return r, fmt.Errorf("%w (apt-get install wrk haproxy nginx-light libnginx-mod-stream util-linux)", err)
		}
	}
	r = PeersResult{
		Connections: o.Connections, Seconds: o.Duration.Seconds(), Rounds: o.Rounds,
		Goal: "XDP takes less CPU for a request than every other", Met: true,
	}
	for _, c := range contestants() {
		if len(o.Only) > 0 && c.name != "direct" && !slices.Contains(o.Only, c.name) {
			continue
		}
		rows, err := peer(ctx, o, c)
		if err != nil {
			return r, fmt.Errorf("%s: %w", c.name, err)
		}
		r.Rows = append(r.Rows, rows...)
	}
	r.compare()
	return r, nil
}

// compare relates every row to that without a load balancer, and judges.
func (r *PeersResult) compare() {
	direct := map[string]PeerRow{}
	most, least := map[string]float64{}, map[string]float64{}
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Name == "direct" {
			direct[row.Kind] = *row
		}
		d := direct[row.Kind]
		row.Ratio, row.LBCPU = row.Requests/d.Requests, row.CPU-d.CPU
		switch {
		case strings.HasPrefix(row.Name, "XDP"):
			most[row.Kind] = max(most[row.Kind], row.LBCPU)
		case row.Name != "direct":
			if l, any := least[row.Kind]; !any || row.LBCPU < l {
				least[row.Kind] = row.LBCPU
			}
		}
	}
	for kind, l := range least {
		r.Met = r.Met && most[kind] < l
	}
}

// peer measures one contestant.
func peer(ctx context.Context, o PeersOptions, c contestant) (rows []PeerRow, err error) {
	o.progress("%s: start", c.name)
	s, err := buildPeer(ctx, o, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.down(ctx)) }()
	url := "http://" + netip.AddrPortFrom(vip, survivalPort).String() + "/"
	switch {
	case c.program != nil:
		url = "http://" + netip.AddrPortFrom(s.edges[0].Addr4(), c.port).String() + "/"
	case c.mode == "":
		url = "http://" + netip.AddrPortFrom(unbalanced, survivalPort).String() + "/"
	}
	for _, kind := range strings.Fields(peerRows) {
		var list []PeerRow
		for range o.Rounds {
			row, err := s.wrk(ctx, o, url, kind)
			if err != nil {
				return nil, err
			}
			list = append(list, row)
		}
		slices.SortFunc(list, func(a, b PeerRow) int { return cmp.Compare(a.CPU, b.CPU) })
		row := list[len(list)/2]
		row.Name, row.Kind = c.name, kind
		o.progress("%s, %s: %.0f requests a second, %.1f us a request", c.name, kind, row.Requests, row.CPU)
		rows = append(rows, row)
	}
	return rows, nil
}

// buildPeer brings up a lab with a router, one load balancer and two backends, all nginx.
func buildPeer(ctx context.Context, o PeersOptions, c contestant) (*peerSite, error) {
	mode := c.mode
	if mode == "" {
		mode = SurvivalGeneve // anything: nobody uses it
	}
	s, err := buildSurvival(ctx, o.NetworkOptions, "bench-e2e", router.BIRD, mode, layout{balancers: 1, backends: 2})
	if err != nil {
		return nil, err
	}
	p := &peerSite{survivalSite: s, envoy: o.Envoy}
	if err := p.serve(ctx, c); err != nil {
		return nil, errors.Join(err, s.down(ctx))
	}
	return p, nil
}

func (p *peerSite) serve(ctx context.Context, c contestant) error {
	// Whoever closes first keeps the connection's ports for a minute. Which side that is depends
	// on microseconds, and a client that searches for a free port costs more than all else.
	for _, m := range append([]*lab.Machine{p.client, p.edges[0]}, p.nodes...) {
		if err := run(ctx, m, "sysctl", "-qw", "net.ipv4.tcp_max_tw_buckets=0"); err != nil {
			return err
		}
	}
	for _, n := range p.nodes {
		p.servers[n.Name()].Kill9() // the survival site's own
		if err := p.startNginx(ctx, n, "backend", fmt.Sprintf(`http { access_log off; keepalive_requests 100000000; keepalive_timeout 600;
server { listen %d backlog=8192 reuseport; location / { return 200 "ok\n"; } } }`, survivalPort)); err != nil {
			return err
		}
	}
	switch {
	case c.plane == model.DataPlaneNFTables: // it forwards as a router does
		if err := run(ctx, p.edges[0], "sysctl", "-qw", "net.ipv4.ip_forward=1"); err != nil {
			return err
		}
	case c.plane == "" && c.program == nil:
		if err := p.spread(ctx); err != nil {
			return err
		}
	}
	if c.plane != "" {
		policy := strings.Replace(p.policyManifest(nil), "  mode:", "  dataPlane: "+string(c.plane)+"\n  mode:", 1)
		if err := p.apply(ctx, policy); err != nil {
			return err
		}
		key := model.FrontendKey{VIP: vip, Transport: model.TCP, Port: survivalPort}
		if err := p.Await(ctx, fmt.Sprintf("%s to be balanced by %s", key, c.plane), func(ctx context.Context) error {
			status, err := p.plane.Status(ctx)
			if err != nil {
				return err
			}
			var seen []string
			for _, f := range status.Frontends {
				for _, at := range f.At {
					seen = append(seen, fmt.Sprintf("%s %s by %s in mode %s with %d backends: %s", at.Machine, at.State, at.DataPlane, at.Mode, at.Available, at.Message))
					if f.FrontendKey == key && at.State == model.FrontendBalanced && at.DataPlane == c.plane && at.Mode == model.ForwardMode(c.mode) && at.Available == 2 {
						return nil
					}
				}
			}
			return errors.New(strings.Join(seen, "; "))
		}); err != nil {
			return err
		}
	}
	if c.program != nil {
		var err error
		if p.dir, err = p.edges[0].Dir("peer"); err != nil {
			return err
		}
		argv, err := c.program(p)
		if err != nil {
			return err
		}
		if _, err := p.edges[0].Start(ctx, lab.ProcessSpec{Name: "peer", Argv: argv}); err != nil {
			return err
		}
	}
	return nil
}

// spread lets the router send connections to all backends, by 5-tuple.
func (p *peerSite) spread(ctx context.Context) error {
	route := []string{"ip", "route", "add", host(unbalanced).String()}
	for _, n := range p.nodes {
		if err := run(ctx, n, "ip", "address", "add", host(unbalanced).String(), "dev", "lo"); err != nil {
			return err
		}
		route = append(route, "nexthop", "via", n.Addr4().String())
	}
	return run(ctx, p.router.Machine(), route...)
}

func run(ctx context.Context, m *lab.Machine, argv ...string) error {
	if out, err := m.Command(ctx, argv...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s at %s: %w: %s", strings.Join(argv, " "), m.Name(), err, out)
	}
	return nil
}

func (p *peerSite) startNginx(ctx context.Context, m *lab.Machine, name, rest string) error {
	dir, err := m.Dir(name)
	if err != nil {
		return err
	}
	argv, err := nginxConfig(dir, rest)
	if err != nil {
		return err
	}
	// Client and backends each have a processor: whether the scheduler puts them together is
	// worth more than a load balancer is, and it does so by chance. What is between runs where
	// it likes.
	_, err = m.Start(ctx, lab.ProcessSpec{Name: name, Argv: append([]string{"taskset", "-c", strconv.Itoa(runtime.NumCPU() - 1)}, argv...)})
	return err
}

func nginxConfig(dir, rest string) ([]string, error) {
	file := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf("user root; worker_processes 1; daemon off; master_process off; pid %s/pid; error_log stderr crit;\nevents { worker_connections 8192; }\n%s\n", dir, rest)
	if strings.HasPrefix(rest, "stream ") { // a module of its own in Debian
		text = "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n" + text
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("configure nginx: %w", err)
	}
	return []string{"nginx", "-c", file, "-p", dir, "-e", "stderr"}, nil
}

func (p *peerSite) targets() (addresses []string) {
	for _, n := range p.nodes {
		addresses = append(addresses, netip.AddrPortFrom(n.Addr4(), survivalPort).String())
	}
	return addresses
}

func nginxOf(p *peerSite) ([]string, error) {
	return nginxConfig(p.dir, fmt.Sprintf(`stream { upstream u { server %s; } server { listen 9081 backlog=8192 reuseport; proxy_pass u; } }`, strings.Join(p.targets(), "; server ")))
}

func haproxyOf(p *peerSite) ([]string, error) {
	text := `global
  nbthread 1
  maxconn 8000
defaults
  mode tcp
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen l
  bind :9082 backlog 8192
  balance roundrobin
`
	for i, t := range p.targets() {
		text += fmt.Sprintf("  server s%d %s\n", i, t)
	}
	file := filepath.Join(p.dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("configure HAProxy: %w", err)
	}
	return []string{"haproxy", "-f", file, "-db"}, nil
}

func envoyOf(p *peerSite) ([]string, error) {
	endpoints := ""
	for _, n := range p.nodes {
		endpoints += fmt.Sprintf("        - endpoint: {address: {socket_address: {address: %s, port_value: %d}}}\n", n.Addr4(), survivalPort)
	}
	text := `static_resources:
  listeners:
  - address: {socket_address: {address: 0.0.0.0, port_value: 9083}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: t, cluster: c}
  clusters:
  - name: c
    type: STATIC
    connect_timeout: 5s
    load_assignment:
      cluster_name: c
      endpoints:
      - lb_endpoints:
` + endpoints
	file := filepath.Join(p.dir, "envoy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("configure Envoy: %w", err)
	}
	return []string{p.envoy, "-c", file, "--concurrency", "1", "-l", "off", "--disable-hot-restart", "--base-id", "77"}, nil
}

// wrk runs once, and reads what the host's processors did meanwhile.
func (p *peerSite) wrk(ctx context.Context, o PeersOptions, url, kind string) (PeerRow, error) {
	argv := []string{"taskset", "-c", "0", "wrk", "-t1", "-c" + strconv.Itoa(o.Connections), fmt.Sprintf("-d%.0fs", o.Duration.Seconds()), "--latency"}
	if kind == "close" {
		argv = append(argv, "-H", "Connection: close")
	}
	// The first requests wait until everything listens.
	if err := p.Await(ctx, url+" to answer", func(ctx context.Context) error {
		out, err := p.client.Command(ctx, "curl", "-sS", "-o", "/dev/null", "-m", "2", url).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}); err != nil {
		return PeerRow{}, err
	}
	before, err := busy()
	if err != nil {
		return PeerRow{}, err
	}
	out, err := p.client.Command(ctx, append(argv, url)...).CombinedOutput()
	if err != nil {
		return PeerRow{}, fmt.Errorf("wrk: %w: %s", err, out)
	}
	after, err := busy()
	if err != nil {
		return PeerRow{}, err
	}
	return readWrk(string(out), after-before)
}

var (
	wrkRequests = regexp.MustCompile(`(\d+) requests in`)
	wrkRate     = regexp.MustCompile(`Requests/sec:\s+([\d.]+)`)
	wrkLatency  = regexp.MustCompile(`(?m)^\s+(50|90|99)%\s+([\d.]+)(us|ms|s)$`)
	wrkMax      = regexp.MustCompile(`Latency\s+\S+\s+\S+\s+([\d.]+)(us|ms|s)`)
	wrkErrors   = regexp.MustCompile(`Socket errors: .*|Non-2xx.*`)
)

// readWrk reads what wrk prints; cpu is what the host was busy meanwhile.
func readWrk(out string, cpu time.Duration) (row PeerRow, err error) {
	requests, rate := wrkRequests.FindStringSubmatch(out), wrkRate.FindStringSubmatch(out)
	if requests == nil || rate == nil {
		return row, fmt.Errorf("wrk says nothing of requests: %s", out)
	}
	// Sockets that were open when wrk ended count as read errors of closed connections.
	if bad := wrkErrors.FindString(out); bad != "" && !strings.Contains(bad, "connect 0, read") {
		return row, fmt.Errorf("wrk: %s", bad)
	}
	n, _ := strconv.ParseFloat(requests[1], 64)
	row.Requests, _ = strconv.ParseFloat(rate[1], 64)
	row.CPU = float64(cpu.Microseconds()) / n
	for _, m := range wrkLatency.FindAllStringSubmatch(out, -1) {
		ms := wrkMillis(m[2], m[3])
		switch m[1] {
		case "50":
			row.P50 = ms
		case "90":
			row.P90 = ms
		case "99":
			row.P99 = ms
		}
	}
	if m := wrkMax.FindStringSubmatch(out); m != nil {
		row.Max = wrkMillis(m[1], m[2])
	}
	return row, nil
}

func wrkMillis(number, unit string) float64 {
	f, _ := strconv.ParseFloat(number, 64)
	return f * map[string]float64{"us": 1e-3, "ms": 1, "s": 1e3}[unit]
}

// busy is how long the host's processors have worked, in all.
func busy() (time.Duration, error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	scanner := bufio.NewScanner(f)
	if !scanner.Scan() {
		return 0, errors.New("/proc/stat is empty")
	}
	fields := strings.Fields(scanner.Text()) // cpu user nice system idle iowait irq softirq ...
	if len(fields) < 8 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", scanner.Text())
	}
	var ticks uint64
	for _, i := range []int{1, 2, 3, 6, 7} {
		n, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/stat: %w", err)
		}
		ticks += n
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 everywhere that matters
	return time.Duration(ticks) * tick, nil
}
