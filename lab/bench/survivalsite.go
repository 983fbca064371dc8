package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

const (
	survivalEdges = 4 // one of them stands aside at first
	survivalNodes = 5 // the same
	survivalPort  = 8080
	// drainTime is what the survival of old flows is promised for.
	survivalDrain = "30s"
)

// layout is how many machines a site has. With aside, the last load balancer and the last
// backend stand aside at first.
type layout struct {
	balancers, backends int
	aside               bool
}

// first are all machines but those that stand aside.
func (l layout) first(m []*lab.Machine) []*lab.Machine {
	if l.aside {
		return m[:len(m)-1]
	}
	return m
}

// survivalSite is a client behind a router, load balancers, and nodes with one backend
// each.
type survivalSite struct {
	*routedSite
	layout
	mode    SurvivalMode
	nodes   []*lab.Machine
	servers map[string]*lab.Process // by node
	in      []*lab.Machine          // the nodes whose backends the Service has
	address string
	held    *load.Held
	check   string // of the policy; empty is that of every survival
}

// buildSurvival brings the lab of that name up.
func buildSurvival(ctx context.Context, o NetworkOptions, name string, kind router.Kind, mode SurvivalMode, size layout) (s *survivalSite, err error) {
	t := lab.Topology{
		Name:     name,
		Segments: []lab.Segment{{Name: lab.SegmentEdges}, {Name: lab.SegmentClients}},
		Machines: []lab.MachineSpec{
			{Name: "client", Role: lab.RoleClient, Segments: []string{lab.SegmentClients}},
			{Name: "router", Role: lab.RoleRouter, Segments: []string{lab.SegmentEdges, lab.SegmentClients}},
			{Name: "plane", Role: lab.RolePlane, Segments: []string{lab.SegmentEdges}},
		},
	}
	for i := range size.balancers {
		t.Machines = append(t.Machines, lab.MachineSpec{Name: fmt.Sprintf("edge-%d", i+1), Role: lab.RoleEdge, Segments: []string{lab.SegmentEdges}})
	}
	for i := range size.backends {
		t.Machines = append(t.Machines, lab.MachineSpec{Name: fmt.Sprintf("node-%d", i+1), Role: lab.RoleBackends, Segments: []string{lab.SegmentEdges}})
	}
	l, err := lab.Up(ctx, t, o.Lab)
	if err != nil {
		return nil, err
	}
	s = &survivalSite{
		routedSite: &routedSite{
			Rig:    &rig.Rig{Lab: l, Binary: o.Binary, Kubectl: o.Kubectl, Envoy: o.Envoy, Now: o.Now},
			client: l.Machine("client"), edges: l.Machines(lab.RoleEdge), agents: map[string]*rig.Agent{}, bfd: true,
		},
		layout: size, mode: mode, nodes: l.Machines(lab.RoleBackends), servers: map[string]*lab.Process{},
		address: netip.AddrPortFrom(vip, survivalPort).String(),
	}
	s.close = func() {}
	if err := s.build(ctx, kind); err != nil {
		return nil, errors.Join(err, s.down(ctx))
	}
	return s, nil
}

func (s *survivalSite) build(ctx context.Context, kind router.Kind) error {
	for _, n := range s.nodes {
		if err := s.startBackend(ctx, n); err != nil {
			return err
		}
	}
	bfd := &router.BFD{Interval: 300 * time.Millisecond, Multiplier: 3}
	var err error
	if s.router, err = s.StartRouter(ctx, s.Lab.Machine("router"), rig.RouterOptions{Kind: kind, BFD: bfd}); err != nil {
		return err
	}
	if s.plane, err = s.StartPlane(ctx, s.Lab.Machine("plane"), rig.PlaneOptions{Args: []string{"--machine-ttl", "5s"}}); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	if err := s.startAgents(ctx); err != nil {
		return err
	}
	s.in = s.first(s.nodes)
	manifests := []string{
		rig.PoolManifest("public", vipPool, "machines: {matchLabels: {"+member+": in}}"),
		rig.PeerManifest("upstream", s.router.Machine(), fmt.Sprintf("bfd: {interval: %s, multiplier: %d}", bfd.Interval, bfd.Multiplier)),
		s.serviceManifest(), s.policyManifest(nil), s.slice(),
	}
	if s.mode == SurvivalProxies {
		manifests = append(manifests, gatewayClass, strings.Replace(gatewayManifest("edge"), fmt.Sprintf("port: %d", vipPort), fmt.Sprintf("port: %d", survivalPort), 1),
			strings.Replace(routeManifest("edge"), "port: 80", fmt.Sprintf("port: %d", survivalPort), 1))
	}
	if err := s.apply(ctx, manifests...); err != nil {
		return err
	}
	return s.awaitEdges(ctx, s.first(s.edges))
}

func (s *survivalSite) apply(ctx context.Context, manifests ...string) error {
	manifests = slices.DeleteFunc(manifests, func(m string) bool { return m == "" })
	_, err := s.plane.Apply(ctx, strings.Join(manifests, "\n---\n"))
	return err
}

// startAgents starts the agents of load balancers and nodes.
func (s *survivalSite) startAgents(ctx context.Context) error {
	var err error
	for i, m := range s.edges {
		labels := ""
		if i < len(s.first(s.edges)) {
			labels = ", labels: {" + member + ": in}"
		}
		if err := s.apply(ctx, fmt.Sprintf("apiVersion: fairlead.dev/v1alpha1\nkind: Machine\nmetadata: {name: %s%s}\nspec: {drainTime: %s}\n", m.Name(), labels, survivalDrain)); err != nil {
			return err
		}
		if s.agents[m.Name()], err = s.StartAgent(ctx, m, s.plane, "--envoy-threads", "1"); err != nil {
			return err
		}
	}
	for _, m := range s.nodes {
		if s.agents[m.Name()], err = s.StartAgent(ctx, m, s.plane, rig.RoleBackend...); err != nil {
			return err
		}
	}
	return s.plane.AwaitConnected(ctx, slices.Concat(s.edges, s.nodes)...)
}

// startBackend serves at a node, by a process: connections need two open files. It has the VIP too, for
// modes that leave the destination alone.
func (s *survivalSite) startBackend(ctx context.Context, n *lab.Machine) error {
	if s.mode == SurvivalL2 && s.servers[n.Name()] == nil {
		if err := holdVIP(n); err != nil {
			return err
		}
	}
	server, err := n.Start(ctx, lab.ProcessSpec{
		Name: "backend", Argv: []string{s.Binary, "lab", "backend", "--serve", fmt.Sprintf("%s=0.0.0.0:%d", n.Name(), survivalPort)},
	})
	if err != nil {
		return err
	}
	s.servers[n.Name()] = server
	return nil
}

// holdVIP gives a node the VIP, on its loopback.
func holdVIP(n *lab.Machine) error {
	h, err := n.Netlink()
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: vip.AsSlice(), Mask: net.CIDRMask(32, 32)}}
	if err := h.AddrReplace(lo, address); err != nil {
		return fmt.Errorf("give %s the VIP: %w", n.Name(), err)
	}
	return nil
}

// serviceManifest is the Service of the backends.
func (s *survivalSite) serviceManifest() string {
	kind := "type: LoadBalancer\n  loadBalancerClass: fairlead.dev/l4\n  allocateLoadBalancerNodePorts: false"
	if s.mode == SurvivalProxies {
		kind = "clusterIP: None"
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: app, namespace: default}
spec:
  %s
  ports: [{name: http, port: %d}]
`, kind, survivalPort)
}

// policyManifest says how the Service is balanced, with weights of single backends; of
// proxies nothing is said.
func (s *survivalSite) policyManifest(weights map[netip.Addr]int) string {
	if s.mode == SurvivalProxies {
		return ""
	}
	var lines strings.Builder
	for _, n := range s.nodes {
		if w, said := weights[n.Addr4()]; said {
			fmt.Fprintf(&lines, "{address: %s, weight: %d}, ", n.Addr4(), w)
		}
	}
	return fmt.Sprintf(`apiVersion: fairlead.dev/v1alpha1
kind: LoadBalancerPolicy
metadata: {name: app, namespace: default}
spec:
  targetRefs: [{group: "", kind: Service, name: app}]
  mode: %s
  drainTime: %s
  healthCheck: %s
  weights: [%s]
`, s.mode, survivalDrain, cmp.Or(s.check, "{type: TCP, interval: 1s, timeout: 500ms, fall: 2}"), strings.TrimSuffix(lines.String(), ", "))
}

// slice are the backends of s.in.
func (s *survivalSite) slice() string {
	var endpoints strings.Builder
	for _, n := range s.in {
		fmt.Fprintf(&endpoints, "- {addresses: [%q], nodeName: %s, conditions: {ready: true}}\n", n.Addr4(), n.Name())
	}
	return fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: app-1
  namespace: default
  labels: {kubernetes.io/service-name: app, endpointslice.kubernetes.io/managed-by: bench.fairlead.dev}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints:
%s`, survivalPort, endpoints.String())
}

// awaitEdges waits until the router sends the VIP's packets to exactly these, and each of
// them balances.
func (s *survivalSite) awaitEdges(ctx context.Context, edges []*lab.Machine) error {
	if err := s.Await(ctx, fmt.Sprintf("the router to have the VIP over %d edges", len(edges)), func(ctx context.Context) error {
		got, err := s.router.Routes(ctx, host(vip))
		if err == nil && !slices.Equal(got, nextHops(edges)) {
			err = fmt.Errorf("it has it over %v", got)
		}
		return err
	}); err != nil {
		return err
	}
	key := v1.FrontendKey{VIP: vip, Transport: v1.TCP, Port: survivalPort}
	return s.Await(ctx, key.String()+" to be balanced", func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		balanced := 0
		for _, f := range status.Frontends {
			for _, at := range f.At {
				if f.FrontendKey == key && at.State == v1.FrontendBalanced {
					balanced++
				}
			}
		}
		if balanced < len(edges) {
			return fmt.Errorf("%d machines balance it", balanced)
		}
		return nil
	})
}
