package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// l4Site is a lab whose Service is balanced in the kernel: a client behind a router, two
// edges, and two machines with backends that have agents of their own.
type l4Site struct {
	*site
	router *router.Router
	web    v1.FrontendKey // over IPv4, to os1
	web6   v1.FrontendKey // over IPv6, to k8s1
}

// newL4 brings the lab up and waits until both VIPs answer.
func newL4(t *testing.T, name string, agentArgs ...string) *l4Site {
	t.Helper()
	if err := errors.Join(lab.Supported(), router.BIRD.Find()); err != nil {
		t.Skip(err)
	}
	outside, way := client, lab.MachineSpec{Name: "router", Role: lab.RoleRouter, Segments: []string{lab.SegmentEdges, lab.SegmentClients}}
	outside.Segments = []string{lab.SegmentClients}
	s := &l4Site{
		site: newLabOf(t, lab.Topology{
			Name: name, Segments: []lab.Segment{{Name: lab.SegmentEdges}, {Name: lab.SegmentClients}},
			Machines: []lab.MachineSpec{outside, way, edge1, edge2, k8s1, os1, plane},
		}),
		web:  v1.FrontendKey{VIP: vip4, Transport: v1.TCP, Port: 80},
		web6: v1.FrontendKey{VIP: vip6, Transport: v1.TCP, Port: 80},
	}
	var err error
	if s.router, err = s.StartRouter(t.Context(), s.Lab.Machine("router"), rig.RouterOptions{Kind: router.BIRD, BFD: &router.BFD{}}); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(agentArgs, "nftables") {
		for _, edge := range s.edges() {
			s.forward(t, s.Lab.Machine(edge))
		}
	}
	if err := s.start(t.Context(), rig.PlaneOptions{Args: []string{"--machine-ttl", "5s"}}, append([]string{"--drain-time", "2s"}, agentArgs...)...); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Lab.Machines(lab.RoleBackends) {
		if s.agents[m.Name()], err = s.StartAgent(t.Context(), m, s.plane, append(slices.Clone(rig.RoleBackend), agentArgs...)...); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range s.Lab.Machines(lab.RoleBackends) {
		if err := s.agents[m.Name()].AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.apply(t, rig.PoolManifest("public", poolAddresses), rig.PeerManifest("upstream", s.Lab.Machine("router"), watched...), l4Service)
	s.endpoints(t, s.cluster(os1.Name), s.cluster(k8s1.Name))
	for _, edge := range s.edges() {
		s.apply(t, machineOf(edge, "drainTime: 3s"))
	}
	s.awaitWay(t, vip4, "edge-1", "edge-2")
	s.awaitWay(t, vip6, "edge-1", "edge-2")
	return s
}

// forward has a machine forward packets, as nftables and IPVS need it: agents change no such
// setting, and refuse frontends without.
func (s *site) forward(t *testing.T, m *lab.Machine) {
	t.Helper()
	if out, err := m.Command(t.Context(), "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1").CombinedOutput(); err != nil {
		t.Fatalf("%s cannot be told to forward: %v: %s", m.Name(), err, out)
	}
}

func machineOf(name, spec string) string {
	return "apiVersion: fairlead.dev/v1alpha1\nkind: Machine\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n"
}

const l4Service = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: LoadBalancer
  loadBalancerClass: fairlead.dev/l4
  allocateLoadBalancerNodePorts: false
  ipFamilyPolicy: RequireDualStack
  ipFamilies: [IPv4, IPv6]
  ports: [{name: http, port: 80}]
`

// endpoints are the backends of the Service from now on, by family.
func (s *l4Site) endpoints(t *testing.T, v4, v6 []rig.Backend) {
	t.Helper()
	for family, backends := range map[string][]rig.Backend{"IPv4": v4, "IPv6": v6} {
		port := uint16(80)
		lines := "endpoints: []\n"
		if len(backends) > 0 {
			port, lines = backends[0].Address.Port(), "endpoints:\n"
		}
		for _, b := range backends {
			lines += fmt.Sprintf("- {addresses: [%q], conditions: {ready: true}}\n", b.Address.Addr())
		}
		s.apply(t, fmt.Sprintf(`apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-%s
  namespace: default
  labels: {kubernetes.io/service-name: web, endpointslice.kubernetes.io/managed-by: tests.fairlead.dev}
addressType: %s
ports: [{name: http, port: %d}]
%s`, strings.ToLower(family), family, port, lines))
	}
}

// awaitWay waits until the router sends a VIP's packets to the machines.
func (s *l4Site) awaitWay(t *testing.T, vip netip.Addr, machines ...string) {
	t.Helper()
	s.awaitNextHops(t, s.router, vip, machines...)
}

// awaitFrontend waits until the plane shows a frontend at each of the machines as wanted.
func (s *l4Site) awaitFrontend(t *testing.T, key v1.FrontendKey, mode v1.ForwardMode, kind v1.DataPlaneKind, available uint32, machines ...string) {
	t.Helper()
	s.await(t, fmt.Sprintf("%s in mode %s by %s with %d backends at %v", key, mode, kind, available, machines), func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		var at []string
		for _, f := range status.Frontends {
			if f.FrontendKey != key {
				continue
			}
			for _, x := range f.At {
				if x.State == v1.FrontendDecap {
					continue
				}
				if at = append(at, x.Machine); x.State != v1.FrontendBalanced || x.Mode != mode || x.DataPlane != kind || x.Available != available {
					return fmt.Errorf("%s: %+v", x.Machine, x)
				}
			}
		}
		if !slices.Equal(at, machines) {
			return fmt.Errorf("it is at %v", at)
		}
		return nil
	})
}

// answer has every backend of the cluster answer at the VIP, and nobody else.
func (s *l4Site) answer(t *testing.T, vip netip.Addr, backends []rig.Backend) {
	t.Helper()
	missing := map[string]bool{}
	for _, b := range backends {
		missing[b.Name] = true
	}
	s.await(t, fmt.Sprintf("answers of %d backends at %s", len(backends), vip), func(ctx context.Context) error {
		a, err := s.ask(ctx, "", request{at: vip, host: vipHost})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(backends, func(b rig.Backend) bool { return b.Name == a.backend }) || a.status != 200 {
			return fmt.Errorf("it answers %s", a)
		}
		if delete(missing, a.backend); len(missing) > 0 {
			return fmt.Errorf("none came from %v", missing)
		}
		return nil
	})
}

// TestBalancedInTheKernel takes a Service of the L4 class through what befalls machines,
// agents and backends, with connections that must not notice.
func TestBalancedInTheKernel(t *testing.T) {
	s := newL4(t, "l4")
	os1s, k8s1s := s.cluster(os1.Name), s.cluster(k8s1.Name)
	s.awaitFrontend(t, s.web, v1.ModeDSRGeneve, v1.DataPlaneXDP, uint32(len(os1s)), "edge-1", "edge-2")
	s.awaitFrontend(t, s.web6, v1.ModeDSRGeneve, v1.DataPlaneXDP, uint32(len(k8s1s)), "edge-1", "edge-2")
	s.answer(t, vip4, os1s)
	s.answer(t, vip6, k8s1s)

	t.Run("the agents are killed and come back", func(t *testing.T) {
		loads := s.loads(t)
		for _, name := range []string{"edge-1", "edge-2", os1.Name, k8s1.Name} {
			a := s.agents[name]
			a.Process.Kill9()
			loads.more(t, 50)
			if err := a.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := a.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			loads.more(t, 50)
			s.awaitWay(t, vip4, "edge-1", "edge-2")
		}
		loads.none(t)
	})
	t.Run("an edge is cordoned", func(t *testing.T) {
		loads := s.loads(t)
		s.kubectl(t, "patch", "machine", "edge-1", "--type=merge", "-p", `{"spec":{"cordoned":true}}`)
		s.awaitWay(t, vip4, "edge-2")
		loads.more(t, 100)
		s.kubectl(t, "patch", "machine", "edge-1", "--type=merge", "-p", `{"spec":{"cordoned":false}}`)
		s.awaitWay(t, vip4, "edge-1", "edge-2")
		loads.more(t, 100)
		loads.none(t)
	})
	t.Run("a backend goes", func(t *testing.T) {
		loads := s.loads(t)
		s.endpoints(t, os1s[:1], k8s1s[:1])
		s.awaitFrontend(t, s.web, v1.ModeDSRGeneve, v1.DataPlaneXDP, 1, "edge-1", "edge-2")
		s.awaitFrontend(t, s.web6, v1.ModeDSRGeneve, v1.DataPlaneXDP, 1, "edge-1", "edge-2")
		loads.more(t, 50)
		s.answer(t, vip4, os1s[:1])
		s.endpoints(t, os1s, k8s1s)
		s.answer(t, vip4, os1s)
		loads.more(t, 50)
		loads.none(t)
	})
	t.Run("there is no backend", func(t *testing.T) {
		s.endpoints(t, nil, k8s1s)
		s.awaitWay(t, vip4)
		s.awaitVIP(t, vip4, "withheld", "edge-1 withheld: frontend tcp://203.0.113.16:80 has no available backend, edge-2 withheld: frontend tcp://203.0.113.16:80 has no available backend")
		s.answer(t, vip6, k8s1s)
		s.endpoints(t, os1s, k8s1s)
		s.awaitWay(t, vip4, "edge-1", "edge-2")
		s.answer(t, vip4, os1s)
	})
	t.Run("addresses are rewritten", func(t *testing.T) {
		s.apply(t, `apiVersion: fairlead.dev/v1alpha1
kind: LoadBalancerPolicy
metadata: {name: web, namespace: default}
spec: {targetRefs: [{group: "", kind: Service, name: web}], mode: NAT}
`)
		s.awaitFrontend(t, s.web, v1.ModeNAT, v1.DataPlaneXDP, uint32(len(os1s)), "edge-1", "edge-2")
		s.answer(t, vip4, os1s)
		s.answer(t, vip6, k8s1s)
		loads := s.loads(t)
		// Flows are at home at one edge: the routers must not move them while its agent is away.
		a := s.agents["edge-1"]
		if err := a.Process.Stop(t.Context(), stopTime); err != nil {
			t.Fatal(err)
		}
		loads.more(t, 50)
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		loads.more(t, 50)
		loads.none(t)
		s.kubectl(t, "delete", "loadbalancerpolicy", "web")
		s.awaitFrontend(t, s.web, v1.ModeDSRGeneve, v1.DataPlaneXDP, uint32(len(os1s)), "edge-1", "edge-2")
	})
}

// l4Loads are requests at both VIPs, on kept connections and on new ones.
type l4Loads []*vipLoad

func (s *l4Site) loads(t *testing.T) l4Loads {
	t.Helper()
	var loads l4Loads
	for _, vip := range []netip.Addr{vip4, vip6} {
		loads = append(loads, s.startVIPLoad(t, vip, true), s.startVIPLoad(t, vip, false))
	}
	return loads
}

func (l l4Loads) more(t *testing.T, n int) {
	t.Helper()
	for _, x := range l {
		x.more(t, n)
	}
}

func (l l4Loads) none(t *testing.T, but ...span) {
	t.Helper()
	for _, x := range l {
		x.none(t, but...)
	}
}
