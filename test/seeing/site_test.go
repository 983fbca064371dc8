package seeing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
	"fairlead.dev/lab/program"
	"fairlead.dev/lab/rig"
	"fairlead.dev/lab/router"
)

// site is a client behind a router that speaks BGP, two edges with Envoy and a data plane, a machine with backends,
// a plane, a cluster that is an Upstream, and a machine with Prometheus.
type site struct {
	*rig.Rig
	t          *testing.T // the whole test
	plane      *rig.Plane
	standby    *rig.Plane
	agents     map[string]*rig.Agent
	backends   []rig.Backend
	api, cloud *lab.Process
	prometheus *prometheus
	router     *router.Router
	mortal     *http.Server // the backend that dies
}

const (
	httpVIP = "10.77.200.1"
	l4VIP   = "10.77.200.2"
)

// newSite brings the lab up, until traffic passes and Prometheus has read everything once.
func newSite(t *testing.T) *site {
	t.Helper()
	if err := errors.Join(lab.Supported(), router.BIRD.Find()); err != nil {
		t.Skip(err)
	}
	if _, err := program.Prometheus.Find(); err != nil {
		t.Fatal(err)
	}
	p, err := findPrograms()
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	machine := func(name string, role lab.Role, segments ...string) lab.MachineSpec {
		return lab.MachineSpec{Name: name, Role: role, Segments: segments}
	}
	os1 := machine("os1", lab.RoleBackends, lab.SegmentEdges)
	os1.Addresses = 4 // two of backends, one of a slow backend, one of a dead one
	l, err := lab.Up(ctx, lab.Topology{
		Name: fmt.Sprintf("seeing-%d", os.Getpid()), Segments: []lab.Segment{{Name: lab.SegmentEdges}, {Name: lab.SegmentClients}},
		Machines: []lab.MachineSpec{
			machine("client", lab.RoleClient, lab.SegmentClients), machine("router", lab.RoleRouter, lab.SegmentEdges, lab.SegmentClients),
			machine("edge-1", lab.RoleEdge, lab.SegmentEdges), machine("edge-2", lab.RoleEdge, lab.SegmentEdges), os1,
			machine("plane", lab.RolePlane, lab.SegmentEdges), machine("cloud", "", lab.SegmentEdges), machine("monitor", "", lab.SegmentEdges),
		},
	}, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, Rig: &rig.Rig{Lab: l, Binary: p.binary, Kubectl: p.kubectl, Envoy: p.envoy, Now: time.Now}, agents: map[string]*rig.Agent{}}
	t.Cleanup(func() {
		s.tell(t)
		state := l.State()
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
		if left, err := lab.Leftovers(state); err != nil || len(left) > 0 {
			t.Errorf("left over: %s (%v)", strings.Join(left, ", "), err)
		}
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s.startRouter(t)
	s.backends, err = s.StartBackends(ctx, l.Machine("os1"), l.Machine("os1").Addrs4()[:2], 80)
	must(err)
	s.startSlow(t)
	s.startMortal(t)
	s.runAPI(t) // of a process of its own, so that it can die alone
	s.plane, err = s.StartPlane(ctx, l.Machine("plane"), rig.PlaneOptions{Console: "0.0.0.0:7080", Args: []string{"--kubeconfig", s.apiDir(t) + "/admin.kubeconfig", "--machine-ttl", "5s", "--upstream-allow", "loopback"}})
	must(err)
	small, err := l.Machine("edge-2").Dir("agent") // a disk that a test can fill
	must(err)
	must(l.RecordMount(small))
	must(unix.Mount("tmpfs", small, "tmpfs", 0, "size=8m,mode=700"))
	s.standby, err = s.StartPlane(ctx, l.Machine("plane"), rig.PlaneOptions{
		Name: "standby", AgentPort: "7543", Console: "0.0.0.0:7090", Args: []string{"--kubeconfig", s.apiDir(t) + "/admin.kubeconfig", "--machine-ttl", "5s"},
	})
	must(err)
	for _, m := range append(l.Machines(lab.RoleEdge), l.Machine("os1")) {
		args := []string{"--console-address", "0.0.0.0:7081", "--drain-time", "1s"}
		if m.Role() == lab.RoleBackends {
			args = append(args, rig.RoleBackend...)
		}
		s.agents[m.Name()], err = s.StartAgent(ctx, m, s.plane, args...)
		must(err)
	}
	for _, a := range s.agents {
		must(a.AwaitReady(ctx))
	}
	must(s.plane.AwaitConnected(ctx, l.Machine("edge-1"), l.Machine("edge-2"), l.Machine("os1")))
	s.apply(t, rig.PoolManifest("public", []string{httpVIP, l4VIP}), rig.PeerManifest("upstream", l.Machine("router")), objects, gateway(8089),
		s.endpoints("shop", "app", s.backends...), s.endpoints("shop", "web", append(slices.Clone(s.backends), s.dying())...), s.endpoints("shop", "empty"), s.endpoints("shop", "slow", s.slow()))
	s.certificate(t, 60*24*time.Hour)
	s.startCloud(t)
	s.prometheus = s.startPrometheus(t)
	return s
}

// objects of a team: a Gateway with its own address, an L4 frontend beside it, and routes that are good, bad and slow.
const objects = `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: fairlead}
spec: {controllerName: fairlead.dev/gateway}
---
apiVersion: v1
kind: Service
metadata: {name: slow, namespace: shop, annotations: {fairlead.dev/metrics: backend}}
spec: {clusterIP: None, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: shop}
spec: {clusterIP: None, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty, namespace: shop}
spec: {clusterIP: None, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: LoadBalancer
  loadBalancerClass: fairlead.dev/l4
  loadBalancerIP: ` + l4VIP + `
  allocateLoadBalancerNodePorts: false
  ports: [{name: http, port: 80}, {name: nothing, port: 81}]
---
apiVersion: fairlead.dev/v1alpha1
kind: LoadBalancerPolicy
metadata: {name: web, namespace: shop}
spec:
  targetRefs: [{group: "", kind: Service, name: web, sectionName: http}]
  panicThreshold: 80
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: shop}
spec:
  parentRefs: [{name: edge}]
  hostnames: [shop.example.com]
  rules:
  - {matches: [{path: {value: /bad}}], backendRefs: [{name: empty, port: 80}]}
  - {matches: [{path: {value: /slow}}], backendRefs: [{name: slow, port: 80}]}
  - {matches: [{path: {value: /again}}], backendRefs: [{name: slow, port: 80}], retry: {codes: [503], attempts: 2}}
  - {matches: [{path: {value: /far}}], backendRefs: [{name: up01-far, port: 80}]}
  - {matches: [{path: {value: /}}], backendRefs: [{name: app, port: 80}]}
`

func (s *site) startRouter(t *testing.T) {
	t.Helper()
	var err error
	if s.router, err = s.StartRouter(t.Context(), s.Lab.Machine("router"), rig.RouterOptions{Kind: router.BIRD, Hold: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}
}

// slow and dying are backends of the test's own: one takes its time, the other dies when the test wants.
func (s *site) slow() rig.Backend  { return s.backend(2) }
func (s *site) dying() rig.Backend { return s.backend(3) }

func (s *site) backend(n int) rig.Backend {
	return rig.Backend{Cluster: "os1", Address: netip.AddrPortFrom(s.Lab.Machine("os1").Addrs4()[n], 80)}
}

// gateway is that of the team, with a port besides the usual ones.
func gateway(port int) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: fairlead
  addresses: [{type: IPAddress, value: %s}]
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: tls}]}}
  - {name: more, port: %d, protocol: HTTP}
`, httpVIP, port)
}

// apply applies manifests with kubectl.
func (s *site) apply(t *testing.T, manifests ...string) {
	t.Helper()
	if _, err := s.plane.Apply(t.Context(), strings.Join(manifests, "\n---\n")); err != nil {
		t.Fatal(err)
	}
}

func (s *site) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.plane.Kubectl(context.WithoutCancel(t.Context()), "", args...)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// endpoints is the EndpointSlice of a Service.
func (s *site) endpoints(namespace, service string, backends ...rig.Backend) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: %[2]s-1
  namespace: %[1]s
  labels: {kubernetes.io/service-name: %[2]s, endpointslice.kubernetes.io/managed-by: tests.fairlead.dev}
addressType: IPv4
ports: [{name: http, port: 80}]
`, namespace, service)
	if len(backends) == 0 {
		b.WriteString("endpoints: []\n")
		return b.String()
	}
	b.WriteString("endpoints:\n")
	for _, e := range backends {
		fmt.Fprintf(&b, "- {addresses: [%q], conditions: {ready: true}}\n", e.Address.Addr())
	}
	return b.String()
}

// apiDir is the directory of the plane, where the rig looks for the kubeconfig of its API.
func (s *site) apiDir(t *testing.T) string {
	t.Helper()
	dir, err := s.Lab.Machine("plane").Dir("plane")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (s *site) runAPI(t *testing.T) {
	t.Helper()
	var err error
	if s.api, err = s.StartAPI(t.Context(), s.Lab.Machine("plane"), s.apiDir(t)); err != nil {
		t.Fatal(err)
	}
}

// startCloud runs the API of another cluster with a Service, and makes it an Upstream.
func (s *site) startCloud(t *testing.T) {
	t.Helper()
	m := s.Lab.Machine("cloud")
	dir, err := m.Dir("api")
	if err != nil {
		t.Fatal(err)
	}
	s.runCloud(t)
	raw, err := os.ReadFile(filepath.Join(dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config := strings.ReplaceAll(string(raw), "127.0.0.1", m.Addr4().String())
	config = strings.ReplaceAll(config, "[::1]", m.Addr4().String())
	file := filepath.Join(dir, "upstream.kubeconfig")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.cloudApply(t, `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: elsewhere}
---
apiVersion: v1
kind: Service
metadata: {name: far, namespace: shop}
spec: {clusterIP: None, ports: [{name: http, port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: refused, namespace: elsewhere}
spec: {clusterIP: None, ports: [{name: http, port: 80}]}
---
`+s.endpoints("shop", "far", s.backends[0]))
	s.kubectl(t, "-n", "fairlead-system", "create", "secret", "generic", "up01", "--from-file=kubeconfig="+file)
	s.apply(t, "apiVersion: fairlead.dev/v1alpha1\nkind: Upstream\nmetadata: {name: up01}\nspec:\n  kubernetes: {secret: up01}\n")
}

// cloudApply applies a manifest in the other cluster.
func (s *site) cloudApply(t *testing.T, manifest string) {
	t.Helper()
	m := s.Lab.Machine("cloud")
	dir, err := m.Dir("api")
	if err != nil {
		t.Fatal(err)
	}
	c := m.Command(t.Context(), s.Kubectl, "--kubeconfig", filepath.Join(dir, "upstream.kubeconfig"), "apply", "-f", "-")
	c.Stdin = strings.NewReader(manifest)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// change changes a route and an endpoint of the upstream, and asks the plane as a command does: this, too, has figures.
func (s *site) change(t *testing.T, n int) {
	t.Helper()
	s.apply(t, strings.ReplaceAll(changing, "N", strconv.Itoa(n)))
	s.cloudApply(t, s.endpoints("shop", "far", s.backends[n%2]))
	if _, err := s.plane.Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// changing is a route that names a service of the upstream, and one that does not exist.
const changing = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: changing, namespace: shop}
spec:
  parentRefs: [{name: edge}]
  hostnames: [changing.example.com]
  rules:
  - {matches: [{path: {value: /N}}], backendRefs: [{name: up01-far, port: 80}]}
  - {matches: [{path: {value: /}}], backendRefs: [{name: missing, port: 80}]}
`

func (s *site) runCloud(t *testing.T) {
	t.Helper()
	m := s.Lab.Machine("cloud")
	dir, err := m.Dir("api")
	if err == nil {
		s.cloud, err = s.StartAPI(t.Context(), m, dir)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// traffic asks the VIPs for paths, again and again, until it is stopped.
func (s *site) traffic(t *testing.T, paths ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	transport := &http.Transport{DialContext: s.Lab.Machine("client").Dial, DisableKeepAlives: true}
	tick := time.NewTicker(20 * time.Millisecond)
	go func() {
		var running sync.WaitGroup
		defer close(done)
		defer running.Wait()
		defer tick.Stop()
		for i := 0; ; i++ {
			if slices.Contains(paths, "/bad") {
				running.Go(func() { s.knock(ctx) })
			}
			for _, vip := range []string{httpVIP, l4VIP} {
				running.Go(func() { ask(ctx, transport, vip, paths[i%len(paths)]) })
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// knock opens a connection to the frontend that has no backends.
func (s *site) knock(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if c, err := s.Lab.Machine("client").Dial(ctx, "tcp", l4VIP+":81"); err == nil {
		_ = c.Close()
	}
}

// impatient is a path that takes long, and whose clients leave before.
const impatient = "/slow/impatient"

// ask sends one request; what comes of it is counted by the machines.
func ask(ctx context.Context, transport http.RoundTripper, vip, path string) {
	limit := 5 * time.Second
	if path == impatient {
		limit = 100 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+vip+path, nil)
	if err != nil {
		return
	}
	request.Host = "shop.example.com"
	if answer, err := transport.RoundTrip(request); err == nil {
		_ = answer.Body.Close()
	}
}

// tell shows the ends of the logs after a failure.
func (s *site) tell(t *testing.T) {
	if !t.Failed() {
		return
	}
	paths, _ := filepath.Glob(filepath.Join(s.Lab.State().Dir(), "logs/*.log"))
	for _, path := range paths {
		if raw, err := os.ReadFile(path); err == nil {
			lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
			t.Logf("%s ends with\n%s", path, strings.Join(lines[max(0, len(lines)-8):], "\n"))
		}
	}
}
