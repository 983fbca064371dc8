package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
	"fairlead.dev/lab/program"
	"fairlead.dev/lab/router"
)

// unbalanced is an address that both backends have, for want of a load balancer: the router
// spreads its connections over them.
var unbalanced = netip.MustParseAddr("198.51.100.1")

// peerSite is one load balancer in front of two backends, in namespaces of its own.
type peerSite struct {
	*survivalSite
	peerPrograms
	envoy string
	dir   string
	peer  *lab.Process // the load balancer, if it is not ours

	softirqs *softirqs
	balancer meter
	backends []meter
}

// peerPrograms are the paths of the programs that are compared or measure.
type peerPrograms struct {
	wrk, haproxy, nginx, taskset, curl string
	stream                             string // nginx' module to forward TCP; empty if that is built in
}

func findPeerPrograms() (p peerPrograms, err error) {
	found, err := program.FindAll(program.Wrk, program.HAProxy, program.Nginx, program.Taskset, program.Curl)
	if err != nil {
		return p, err
	}
	p = peerPrograms{wrk: found[0].Path, haproxy: found[1].Path, nginx: found[2].Path, taskset: found[3].Path, curl: found[4].Path}
	p.stream, err = program.StreamModule(found[2].Says)
	return p, err
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
	p := &peerSite{survivalSite: s, peerPrograms: o.programs, envoy: o.Envoy}
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
		key := v1.FrontendKey{VIP: vip, Transport: v1.TCP, Port: survivalPort}
		if err := p.Await(ctx, fmt.Sprintf("%s to be balanced by %s", key, c.plane), func(ctx context.Context) error {
			status, err := p.plane.Status(ctx)
			if err != nil {
				return err
			}
			var seen []string
			for _, f := range status.Frontends {
				for _, at := range f.At {
					seen = append(seen, fmt.Sprintf("%s %s by %s in mode %s with %d backends: %s", at.Machine, at.State, at.DataPlane, at.Mode, at.Available, at.Message))
					if f.FrontendKey == key && at.State == v1.FrontendBalanced && at.DataPlane == v1.DataPlaneKind(c.plane) && at.Mode == v1.ForwardMode(c.mode) && at.Available == 2 {
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
		if p.peer, err = p.edges[0].Start(ctx, lab.ProcessSpec{Name: "peer", Argv: argv}); err != nil {
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
	argv, err := p.nginxConfig(dir, rest)
	if err != nil {
		return err
	}
	// Client and backends each have a processor: whether the scheduler puts them together is
	// worth more than a load balancer is, and it does so by chance. What is between runs where
	// it likes.
	p.servers[m.Name()], err = m.Start(ctx, lab.ProcessSpec{Name: name, Argv: append([]string{p.taskset, "-c", strconv.Itoa(runtime.NumCPU() - 1)}, argv...)})
	return err
}

func (p *peerPrograms) nginxConfig(dir, rest string) ([]string, error) {
	file := filepath.Join(dir, "nginx.conf")
	text := fmt.Sprintf("user root; worker_processes 1; daemon off; master_process off; pid %s/pid; error_log stderr crit;\nevents { worker_connections 8192; }\n%s\n", dir, rest)
	if strings.HasPrefix(rest, "stream ") && p.stream != "" { // a module of its own in Debian
		text = "load_module " + p.stream + ";\n" + text
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("configure nginx: %w", err)
	}
	return []string{p.nginx, "-c", file, "-p", dir, "-e", "stderr"}, nil
}

// meter begins to count what the machines do.
func (p *peerSite) meter(c contestant) (err error) {
	p.balancer.machine = p.edges[0]
	switch {
	case c.program != nil:
		p.balancer.processes = []int{p.peer.Pid().ID}
	case c.mode != "":
		p.balancer.processes = []int{p.agents[p.edges[0].Name()].Process.Pid().ID}
	}
	processes := append([]int{os.Getpid()}, p.balancer.processes...)
	for _, n := range p.nodes {
		m := meter{machine: n, processes: []int{p.servers[n.Name()].Pid().ID}}
		p.backends, processes = append(p.backends, m), append(processes, m.processes...)
	}
	p.softirqs, err = watchSoftirqs(append([]*lab.Machine{p.edges[0]}, p.nodes...), processes)
	return err
}

func (p *peerSite) targets() (addresses []string) {
	for _, n := range p.nodes {
		addresses = append(addresses, netip.AddrPortFrom(n.Addr4(), survivalPort).String())
	}
	return addresses
}

func nginxOf(p *peerSite) ([]string, error) {
	return p.nginxConfig(p.dir, fmt.Sprintf(`stream { upstream u { server %s; } server { listen 9081 backlog=8192 reuseport; proxy_pass u; } }`, strings.Join(p.targets(), "; server ")))
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
	return []string{p.haproxy, "-f", file, "-db"}, nil
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
