package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// NetworkOptions are common to the benchmarks of the network.
type NetworkOptions struct {
	// Binary is fairlead itself. All programs are required.
	Binary, Kubectl, Envoy string
	// Lab says where the lab keeps its state.
	Lab lab.Options
	Now func() time.Time
	// Progress is told what is measured next.
	Progress func(what string)
}

func (o NetworkOptions) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// segmentManagement connects planes and edges beside the traffic.
const segmentManagement = "management"

// What all these benchmarks use.
const (
	vipHost     = "vip.example.com"
	vipPort     = 80
	backendPort = 8080
)

var (
	vipPool = []string{"203.0.113.16/29"}
	vip     = netip.MustParseAddr("203.0.113.16")
)

// routedSite is a client behind a router, edges before backends, and the programs of
// all of them.
type routedSite struct {
	*rig.Rig
	router *router.Router
	bfd    bool
	plane  *rig.Plane
	client *lab.Machine
	edges  []*lab.Machine
	agents map[string]*rig.Agent
	api    dynamic.Interface
	close  func()
}

// siteOptions say how a site is built.
type siteOptions struct {
	name   string
	kind   router.Kind
	bfd    *router.BFD
	edges  int
	answer http.Handler // of the backends
	pool   []string     // more lines of the pool's spec
	labels string       // of the machines: "key=value"
}

// buildSite brings a site up and returns when the router sends the VIP's packets to
// all edges and they answer.
func buildSite(ctx context.Context, n NetworkOptions, o siteOptions) (s *routedSite, err error) {
	t := lab.Topology{
		Name:     o.name,
		Segments: []lab.Segment{{Name: lab.SegmentEdges}, {Name: lab.SegmentClients}, {Name: segmentManagement}},
		Machines: []lab.MachineSpec{
			{Name: "client", Role: lab.RoleClient, Segments: []string{lab.SegmentClients}},
			{Name: "router", Role: lab.RoleRouter, Segments: []string{lab.SegmentEdges, lab.SegmentClients}},
			{Name: "plane", Role: lab.RolePlane, Segments: []string{segmentManagement}},
			{Name: "os1", Role: lab.RoleBackends, Addresses: 2, Segments: []string{lab.SegmentEdges}},
		},
	}
	for i := range o.edges {
		t.Machines = append(t.Machines, lab.MachineSpec{
			Name: fmt.Sprintf("edge-%d", i+1), Role: lab.RoleEdge, Segments: []string{lab.SegmentEdges, segmentManagement},
		})
	}
	l, err := lab.Up(ctx, t, n.Lab)
	if err != nil {
		return nil, err
	}
	s = &routedSite{
		Rig:    &rig.Rig{Lab: l, Binary: n.Binary, Kubectl: n.Kubectl, Envoy: n.Envoy, Now: n.Now},
		client: l.Machine("client"), edges: l.Machines(lab.RoleEdge), agents: map[string]*rig.Agent{}, bfd: o.bfd != nil,
	}
	s.close = func() {}
	if err := s.build(ctx, o); err != nil {
		return nil, errors.Join(err, s.down(ctx))
	}
	return s, nil
}

// down takes the site away.
func (s *routedSite) down(ctx context.Context) error {
	s.close()
	return s.Lab.Down(context.WithoutCancel(ctx))
}

func (s *routedSite) build(ctx context.Context, o siteOptions) error {
	if err := s.serve(ctx, o.answer); err != nil {
		return err
	}
	var err error
	if s.router, err = s.StartRouter(ctx, s.Lab.Machine("router"), rig.RouterOptions{Kind: o.kind, BFD: o.bfd}); err != nil {
		return err
	}
	if s.plane, err = s.StartPlane(ctx, s.Lab.Machine("plane"), rig.PlaneOptions{}); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	for _, m := range s.edges {
		if s.agents[m.Name()], err = s.StartAgent(ctx, m, s.plane, "--envoy-threads", "1"); err != nil {
			return err
		}
	}
	if err := s.plane.AwaitConnected(ctx, s.edges...); err != nil {
		return err
	}
	for _, m := range s.edges {
		// What a machine does when it is cordoned or labelled is measured, not its drain time.
		patch := `{"spec":{"drainTime":"0s"}}`
		if key, value, ok := strings.Cut(o.labels, "="); ok {
			patch = fmt.Sprintf(`{"metadata":{"labels":{%q:%q}},"spec":{"drainTime":"0s"}}`, key, value)
		}
		if err := s.patchMachine(ctx, m.Name(), patch); err != nil {
			return err
		}
	}
	var peer []string
	if o.bfd != nil {
		peer = append(peer, fmt.Sprintf("bfd: {interval: %s, multiplier: %d}", o.bfd.Interval, o.bfd.Multiplier))
	}
	if _, err := s.plane.Apply(ctx, strings.Join([]string{
		rig.PoolManifest("public", vipPool, o.pool...), rig.PeerManifest("upstream", s.router.Machine(), peer...),
		gatewayClass, gatewayManifest("edge"), s.appManifest(), routeManifest("edge", "probe"),
	}, "\n---\n")); err != nil {
		return err
	}
	return s.awaitWhole(ctx)
}

// serve runs the backends in this process.
func (s *routedSite) serve(ctx context.Context, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	s.close = func() { _ = server.Close() }
	for _, a := range s.Lab.Machine("os1").Addrs4() {
		l, err := s.Lab.Machine("os1").Listen(ctx, "tcp", netip.AddrPortFrom(a, backendPort).String())
		if err != nil {
			return err
		}
		go func() { _ = server.Serve(l) }()
	}
	return nil
}

// connect makes the client of the plane's API, whose connections start at the plane.
func (s *routedSite) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", s.plane.Kubeconfig())
	if err != nil {
		return err
	}
	config.Dial, config.QPS = s.plane.Machine.Dial, -1
	s.api, err = dynamic.NewForConfig(config)
	return err
}

var (
	machines = schema.GroupVersionResource{Group: "fairlead.dev", Version: "v1alpha1", Resource: "machines"}
	pools    = schema.GroupVersionResource{Group: "fairlead.dev", Version: "v1alpha1", Resource: "addresspools"}
	gateways = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
)

func (s *routedSite) patchMachine(ctx context.Context, name, patch string) error {
	_, err := s.api.Resource(machines).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// nextHop is the address at which the router reaches an edge.
func nextHop(m *lab.Machine) netip.Addr {
	v4, _, _ := m.On(lab.SegmentEdges)
	return v4
}

// nextHops are those of some edges, in the order of their addresses.
func nextHops(edges []*lab.Machine) []netip.Addr {
	hops := make([]netip.Addr, len(edges))
	for i, m := range edges {
		hops[i] = nextHop(m)
	}
	slices.SortFunc(hops, netip.Addr.Compare)
	return hops
}

// awaitWhole waits until all sessions are up, the router sends the VIP's packets to all
// edges, and each of them answers.
func (s *routedSite) awaitWhole(ctx context.Context) error {
	if err := s.Await(ctx, "the router to have the VIP over all edges", func(ctx context.Context) error {
		got, err := s.router.Routes(ctx, host(vip))
		if err == nil && !slices.Equal(got, nextHops(s.edges)) {
			err = fmt.Errorf("it has it over %v", got)
		}
		return err
	}); err != nil {
		return err
	}
	if err := s.Await(ctx, "all sessions to be up", s.sessionsUp); err != nil {
		return err
	}
	for _, m := range s.edges {
		if err := s.Await(ctx, m.Name()+" to answer", func(ctx context.Context) error { return s.ask(ctx, m) }); err != nil {
			return err
		}
	}
	return nil
}

func (s *routedSite) sessionsUp(ctx context.Context) error {
	sessions, err := s.router.Sessions(ctx)
	if err != nil {
		return err
	}
	up := 0
	for _, x := range sessions {
		if x.Up && (!s.bfd || x.BFD == "up") {
			up++
		}
	}
	if up != len(s.edges) {
		return fmt.Errorf("%+v", sessions)
	}
	return nil
}

// ask sends a request to the VIP at one edge, from that edge.
func (s *routedSite) ask(ctx context.Context, m *lab.Machine) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/", netip.AddrPortFrom(vip, vipPort)), nil)
	if err != nil {
		return err
	}
	request.Host = vipHost
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return m.Dial(ctx, network, address)
		},
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

const gatewayClass = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: fairlead}
spec: {controllerName: fairlead.dev/gateway}
`

func gatewayManifest(name string) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %s, namespace: default}
spec:
  gatewayClassName: fairlead
  listeners:
  - {name: http, port: %d, protocol: HTTP}
`, name, vipPort)
}

// appManifest is the service of the backends.
func (s *routedSite) appManifest() string {
	var addresses strings.Builder
	for _, a := range s.Lab.Machine("os1").Addrs4() {
		fmt.Fprintf(&addresses, "- {addresses: [%q], conditions: {ready: true}}\n", a)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: app, namespace: default}
spec:
  clusterIP: None
  ports: [{name: http, port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: app-1
  namespace: default
  labels: {kubernetes.io/service-name: app, endpointslice.kubernetes.io/managed-by: bench.fairlead.dev}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints:
%s`, backendPort, addresses.String())
}

// routeManifest sends what comes to the gateways to the backends.
func routeManifest(gateways ...string) string {
	parents := make([]string, len(gateways))
	for i, g := range gateways {
		parents[i] = "{name: " + g + "}"
	}
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: default}
spec:
  parentRefs: [%s]
  hostnames: [%q]
  rules: [{backendRefs: [{name: app, port: 80}]}]
`, strings.Join(parents, ", "), vipHost)
}
