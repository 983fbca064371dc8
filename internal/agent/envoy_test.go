package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // in the bootstrap
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds/envoytest"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// bench is a real Envoy behind the relay of an agent whose plane is the test.
type bench struct {
	t        *testing.T
	dir      string
	port     int
	revision uint64
	ahead    atomic.Int64 // of the real clock

	log     logged
	mends   map[string]int
	memory  *memory // what the agents wrote
	older   bool    // it is older than what Envoy runs, and that is known
	mu      sync.Mutex
	desired *desired
	relay   *relay
	envoy   *envoytest.Envoy
	stop    func() // the agent
}

const listenerName, routesName = "front", "front/0"

func newBench(t *testing.T) *bench {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b := &bench{
		t: t, dir: t.TempDir(), port: port,
		memory: &memory{target: map[key]*delta.Resource{}, good: map[key]*delta.Resource{}}, mends: map[string]int{},
	}
	b.startAgent()
	t.Cleanup(func() { b.stop() })
	t.Cleanup(func() {
		if t.Failed() {
			b.outstanding()
		}
	})
	return b
}

// outstanding logs what a failed test may have waited for.
func (b *bench) outstanding() {
	b.relay.mu.Lock()
	defer b.relay.mu.Unlock()
	b.t.Logf("applied %s, problems %v", b.relay.feed.Applied(), b.relay.feed.Problems())
}

// startAgent begins with what earlier ones remembered.
func (b *bench) startAgent() {
	b.t.Helper()
	a := idle(b.t, Config{Proxy: b, Now: b.now, Log: b.log.logger(), RunDir: b.dir})
	var writing sync.Mutex
	write := func(m memoryBatch) {
		writing.Lock()
		defer writing.Unlock()
		b.memory.apply(memoryBatch{revision: m.revision, target: m.target})
		b.memory.apply(memoryBatch{revision: m.revision, good: m.good})
	}
	a.relay.remember, a.desired.remember = write, write
	a.relay.mended = func(step string) { b.mu.Lock(); b.mends[step]++; b.mu.Unlock() }
	a.relay.withholdTime = 0
	r := b.memory.remembered()
	a.relay.recall(r.good, b.older, false)
	if _, err := a.desired.restore(r.revision, r.target); err != nil {
		b.t.Fatal(err)
	}
	if err := a.relay.listen(SocketPath(b.dir)); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.relay.run(ctx); err != nil {
			b.t.Error(err)
		}
	})
	b.desired, b.relay = a.desired, a.relay
	b.stop = func() {
		cancel()
		running.Wait()
	}
}

func (b *bench) now() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }

// skip moves the agent's clock on.
func (b *bench) skip(d time.Duration) {
	b.ahead.Add(int64(d))
	b.relay.tick()
}

// startEnvoy starts a new Envoy.
func (b *bench) startEnvoy(args ...string) *envoytest.Envoy {
	b.t.Helper()
	admin := filepath.Join(b.dir, "a.sock")
	text := fmt.Sprintf(`{
  "node": {"id": "edge-1", "cluster": "fairlead"},
  "admin": {"address": {"pipe": {"path": %q}}},
  "layered_runtime": {"layers": [{"name": "l", "static_layer": {"re2.max_program_size.error_level": 200}}]},
  "dynamic_resources": {
    "ads_config": {"api_type": "DELTA_GRPC", "transport_api_version": "V3", "set_node_on_first_message_only": true,
      "grpc_services": [{"envoy_grpc": {"cluster_name": "agent", "retry_policy": {"retry_back_off": {"base_interval": "0.05s", "max_interval": "0.2s"}}}}]},
    "cds_config": {"ads": {}, "resource_api_version": "V3"}, "lds_config": {"ads": {}, "resource_api_version": "V3"}},
  "static_resources": {"clusters": [{"name": "agent", "type": "STATIC", "connect_timeout": "1s",
    "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
      "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": {"http2_protocol_options": {}}}},
    "load_assignment": {"cluster_name": "agent", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {"pipe": {"path": %q}}}}]}]}}]}}`,
		admin, SocketPath(b.dir))
	var bootstrap bootstrapv3.Bootstrap
	if err := protojson.Unmarshal([]byte(text), &bootstrap); err != nil {
		b.t.Fatal(err)
	}
	e, err := envoytest.Start(b.t.Context(), &bootstrap, admin, b.dir, append([]string{"--concurrency", "2"}, args...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = e.Close() })
	b.mu.Lock()
	b.envoy = e
	b.mu.Unlock()
	return e
}

// Run, Status, Warming and Active make the bench the agent's Proxy.
func (b *bench) Run(ctx context.Context, _ func()) error { <-ctx.Done(); return nil }

func (b *bench) Status() model.ProxyStatus { return model.ProxyStatus{State: proxyReady} }

func (b *bench) Groups(context.Context) ([]model.GroupFigures, error) { return nil, nil }

func (b *bench) Warming(ctx context.Context) ([]string, error) {
	return b.clusters(ctx, "dynamic_warming_clusters")
}

func (b *bench) Active(ctx context.Context) ([]string, error) {
	return b.clusters(ctx, "dynamic_active_clusters")
}

func (b *bench) clusters(ctx context.Context, list string) ([]string, error) {
	e := b.running()
	if e == nil {
		return nil, errors.New("no envoy yet")
	}
	var dump struct {
		Configs []struct{ Cluster struct{ Name string } }
	}
	if err := readAdmin(ctx, e, "/config_dump?resource="+list+"&mask=cluster.name", &dump); err != nil {
		return nil, err
	}
	var names []string
	for _, c := range dump.Configs {
		names = append(names, c.Cluster.Name)
	}
	return names, nil
}

// Listeners, Routes and Replace make the bench a Witness.
func (b *bench) Listeners(ctx context.Context) (map[string]struct{}, map[string][]string, error) {
	e := b.running()
	if e == nil {
		return nil, nil, errors.New("no envoy yet")
	}
	var dump struct {
		Unready []struct {
			Name    string
			Targets []string `json:"target_names"`
		} `json:"unready_targets_dumps"`
	}
	var list struct {
		Statuses []struct{ Name string } `json:"listener_statuses"`
	}
	if err := readAdmin(ctx, e, "/init_dump?mask=listener", &dump); err != nil {
		return nil, nil, err
	}
	if err := readAdmin(ctx, e, "/listeners?format=json", &list); err != nil {
		return nil, nil, err
	}
	serving, warming := map[string]struct{}{}, map[string][]string{}
	for _, l := range list.Statuses {
		serving[l.Name] = struct{}{}
	}
	for _, u := range dump.Unready {
		words := strings.Fields(u.Name) // as in driver/proxy
		warming[words[max(0, len(words)-2)]] = u.Targets
	}
	return serving, warming, nil
}

func (b *bench) Routes(ctx context.Context, names []string) (map[string]string, error) {
	e := b.running()
	if e == nil {
		return nil, errors.New("no envoy yet")
	}
	body, err := e.Admin(ctx, http.MethodGet, "/config_dump?resource=dynamic_route_configs&mask=version_info,route_config.name&name_regex="+
		url.QueryEscape("^("+strings.Join(names, "|")+")$"))
	if err != nil {
		return nil, err
	}
	var dump struct {
		Configs []struct {
			Version string                `json:"version_info"`
			Routes  struct{ Name string } `json:"route_config"`
		}
	}
	versions := map[string]string{}
	if strings.HasPrefix(body, "{") { // otherwise it says that there are none
		if err := json.Unmarshal([]byte(body), &dump); err != nil {
			return nil, fmt.Errorf("%w: %s", err, body)
		}
	}
	for _, c := range dump.Configs {
		versions[c.Routes.Name] = c.Version
	}
	return versions, nil
}

func (b *bench) Replace(reason string) { b.t.Errorf("Envoy is to be replaced: %s", reason) }

// readAdmin reads an answer of the admin interface.
func readAdmin(ctx context.Context, e *envoytest.Envoy, path string, into any) error {
	body, err := e.Admin(ctx, http.MethodGet, path)
	if err == nil {
		err = json.Unmarshal([]byte(body), into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", path, err, body)
	}
	return nil
}

func (b *bench) running() *envoytest.Envoy {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.envoy
}

// plane sends changes as one revision, in the order of the types, with a checkpoint.
func (b *bench) plane(changes ...delta.Change) {
	b.t.Helper()
	b.revision++
	r := delta.Revision{Epoch: 1, Number: b.revision}
	byType := map[delta.Type][]delta.Change{}
	for _, c := range changes {
		byType[c.Type] = append(byType[c.Type], c)
	}
	byType[typeCheckpoint] = []delta.Change{checkpointAt(b.t, r)}
	for _, t := range planeTypes {
		if len(byType[t]) > 0 {
			if err := b.desired.receive(responseOf(b.t, r, byType[t]...)); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// applies waits until Envoy runs the last revision, less the problems named.
func (b *bench) applies(problems ...string) *agentv1.Applied {
	b.t.Helper()
	var last *agentv1.Applied
	eventually(b.t, fmt.Sprintf("revision %d with problems %v", b.revision, problems), func() bool {
		last = b.relay.applied()
		var names []string
		for _, p := range last.GetProblems() {
			names = append(names, p.GetName())
		}
		return last.GetRevision() == b.revision && strings.Join(names, " ") == strings.Join(problems, " ")
	})
	return last
}

// backend answers with its name.
func (b *bench) backend(name string) *net.TCPAddr {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
	b.t.Cleanup(server.Close)
	return server.Listener.Addr().(*net.TCPAddr)
}

func (b *bench) cluster(name, set string, options ...func(*clusterv3.Cluster)) delta.Change {
	c := &clusterv3.Cluster{
		Name: name, ConnectTimeout: durationpb.New(time.Second),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{ServiceName: set, EdsConfig: envoytest.Source()},
	}
	for _, o := range options {
		o(c)
	}
	return delta.Change{Type: typeCluster, Name: name, Resource: gatetest.Pack(b.t, name, c)}
}

// checked adds health checks that take at least one round before the cluster is warm.
func checked(timeout time.Duration) func(*clusterv3.Cluster) {
	return func(c *clusterv3.Cluster) {
		c.HealthChecks = []*corev3.HealthCheck{{
			Timeout: durationpb.New(timeout), Interval: durationpb.New(timeout),
			UnhealthyThreshold: wrapperspb.UInt32(1), HealthyThreshold: wrapperspb.UInt32(1),
			HealthChecker: &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: &corev3.HealthCheck_HttpHealthCheck{Path: "/"}},
		}}
	}
}

func (b *bench) endpoints(set string, addresses ...*net.TCPAddr) delta.Change {
	c := &endpointv3.ClusterLoadAssignment{ClusterName: set, Endpoints: []*endpointv3.LocalityLbEndpoints{{}}}
	for _, a := range addresses {
		c.Endpoints[0].LbEndpoints = append(c.Endpoints[0].LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: socket(a.IP.String(), a.Port)}},
		})
	}
	return delta.Change{Type: typeEndpoint, Name: set, Resource: gatetest.Pack(b.t, set, c)}
}

func socket(host string, port int) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
	}}}
}

// listener leads to the routes. Another salt is another listener filter chain.
func (b *bench) listener(salt string) delta.Change {
	manager := &hcmv3.HttpConnectionManager{
		StatPrefix: "front" + salt,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: routesName, ConfigSource: envoytest.Source(),
		}},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: gatetest.AnyOf(b.t, &routerv3.Router{})},
		}},
	}
	l := &listenerv3.Listener{
		Name: listenerName, Address: socket("127.0.0.1", b.port),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: gatetest.AnyOf(b.t, manager)},
		}}}},
	}
	return delta.Change{Type: typeListener, Name: listenerName, Resource: gatetest.Pack(b.t, listenerName, l)}
}

// ask sends one request for a host.
func (b *bench) ask(host string) (status int, body string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", b.port), nil)
	if err != nil {
		return 0, "", err
	}
	req.Host = host + ".example"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// answers waits for an answer: Envoy accepts a change on its main thread and hands it
// to the threads that serve after that. None but 200 is right meanwhile.
func (b *bench) answers(host, body string) {
	b.t.Helper()
	eventually(b.t, host+" to answer "+body, func() bool {
		status, text, err := b.ask(host)
		if err != nil || status != http.StatusOK {
			b.t.Fatalf("%s answered %d %q, %v; want %q", host, status, text, err, body)
		}
		return text == body
	})
}

// load asks for hosts all the time until stopped; it returns how many answers there
// were, and what was wrong with those that were not 200.
func (b *bench) load(hosts ...string) (stop func() (total int64, failures []string)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var mu sync.Mutex
	var failures []string
	var total atomic.Int64
	for i := range 4 {
		running.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				host := hosts[n%len(hosts)]
				status, body, err := b.ask(host)
				total.Add(1)
				if err != nil || status != http.StatusOK {
					mu.Lock()
					failures = append(failures, fmt.Sprintf("%s: %d %q %v", host, status, body, err))
					mu.Unlock()
				}
			}
		})
	}
	return func() (int64, []string) {
		cancel()
		running.Wait()
		return total.Load(), failures
	}
}

func (b *bench) unharmed(stop func() (int64, []string)) {
	b.t.Helper()
	total, failures := stop()
	b.t.Logf("%d requests, %d failed", total, len(failures))
	if len(failures) > 0 || total == 0 {
		b.t.Errorf("%d of %d requests failed: %v", len(failures), total, failures[:min(len(failures), 5)])
	}
}

// TestEnvoyServesThroughChanges: clusters, endpoints, routes and the listener change
// under load, and no request fails.
func TestEnvoyServesThroughChanges(t *testing.T) {
	b := newBench(t)
	one, two := b.backend("one"), b.backend("two")
	config := &agentv1.MachineConfig{DrainTime: durationpb.New(50 * time.Millisecond)}
	b.plane(
		delta.Change{Type: typeMachine, Name: "edge-1", Resource: gatetest.Pack(t, "edge-1", config)},
		b.cluster("c0", "s"), b.endpoints("s", one), b.listener(""),
		gatetest.Routes(t, routesName, gatetest.Host{Name: "a", Clusters: []string{"c0"}}, gatetest.Host{Name: "b", Clusters: []string{"c0"}}),
	)
	e := b.startEnvoy()
	b.applies()
	stop := b.load("a", "b")
	for i := 1; i <= 12; i++ {
		name := fmt.Sprint("c", i)
		var options []func(*clusterv3.Cluster)
		if i%4 == 0 {
			options = append(options, checked(200*time.Millisecond))
		}
		// The route is said before the cluster is known, the old cluster goes with it, and
		// both are over the endpoints of the one before.
		b.plane(
			gatetest.Routes(t, routesName, gatetest.Host{Name: "a", Clusters: []string{name}, Salt: i}, gatetest.Host{Name: "b", Clusters: []string{"c0"}, Salt: i / 3}),
			gatetest.Removal(typeCluster, fmt.Sprint("c", i-1)),
		)
		b.plane(b.cluster(name, "s", options...), b.cluster("c0", "s", func(c *clusterv3.Cluster) { c.AltStatName = name }))
		if i%3 == 0 {
			b.plane(b.listener(name), b.endpoints("s", one, two))
		}
		b.applies()
		b.plane(b.endpoints("s", two))
	}
	b.applies()
	b.unharmed(stop)
	b.answers("a", "two")
	eventually(t, "the clusters of old routes to be gone", func() bool {
		return e.Stat(t.Context(), "cluster_manager.active_clusters") == 3 // agent, c0, c12
	})
}

// TestEnvoyRefusesOneHost: of many hosts that change at once Envoy refuses one. It
// keeps its last good form; the others go live.
func TestEnvoyRefusesOneHost(t *testing.T) {
	b := newBench(t)
	b.plane(b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.listener(""), gatetest.Routes(t, routesName, hosts(0, 10)...))
	b.startEnvoy()
	b.applies()
	stop := b.load("h3", "h4")
	monster := func(salt int) delta.Change {
		rc := &routev3.RouteConfiguration{Name: routesName}
		for _, h := range hosts(salt, 11) {
			v := h.Proto()
			if h.Name == "h3" || h.Name == "h10" { // one that was live, and a new one
				v.Routes[0].Match.PathSpecifier = &routev3.RouteMatch_SafeRegex{
					SafeRegex: &matcherv3.RegexMatcher{Regex: "/(" + strings.Repeat("[a-z0-9]{1,8}", 20) + ")?"},
				}
			}
			rc.VirtualHosts = append(rc.VirtualHosts, v)
		}
		return delta.Change{Type: typeRoute, Name: routesName, Resource: gatetest.Pack(t, routesName, rc)}
	}
	b.plane(monster(1))
	applied := b.applies(routesName+"/h3", routesName+"/h10")
	for _, p := range applied.GetProblems() {
		if p.GetKind() != agentv1.Problem_KIND_REFUSED || !strings.Contains(p.GetMessage(), "program size") {
			t.Errorf("problem: %v", p)
		}
	}
	b.answers("h3", "one")
	b.answers("h9", "one")
	if status, _, err := b.ask("h10"); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("a host without any good form answered %d, %v; want 503", status, err)
	}
	b.plane(gatetest.Routes(t, routesName, hosts(2, 11)...))
	b.applies()
	b.answers("h10", "one")
	b.unharmed(stop)
}

func hosts(salt, n int) []gatetest.Host {
	var list []gatetest.Host
	for i := range n {
		list = append(list, gatetest.Host{Name: fmt.Sprint("h", i), Clusters: []string{"c"}, Salt: salt})
	}
	return list
}

// TestEnvoyRestart: a new Envoy is given everything from what is remembered, and its
// first answers are right.
func TestEnvoyRestart(t *testing.T) {
	b := newBench(t)
	b.plane(
		b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.listener(""),
		b.cluster("d", "s", checked(time.Second)),
		gatetest.Routes(t, routesName, append(hosts(0, 5), gatetest.Host{Name: "d", Clusters: []string{"d"}})...),
	)
	e := b.startEnvoy()
	b.applies()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b.startEnvoy()
	var first string
	eventually(t, "a first answer", func() bool {
		status, body, err := b.ask("d")
		first = fmt.Sprint(status, " ", body)
		return err == nil
	})
	t.Logf("first answer %v after the start", time.Since(began))
	if first != "200 one" {
		t.Errorf("the first answer of the new Envoy: %s", first)
	}
	b.answers("h0", "one")
	b.applies()
}

// TestAgentRestart: Envoy serves on while there is no agent, and a new agent with what
// was remembered takes nothing from it.
func TestAgentRestart(t *testing.T) {
	b := newBench(t)
	b.plane(
		b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.listener(""),
		b.cluster("d", "s", checked(time.Second)),
		gatetest.Routes(t, routesName, append(hosts(0, 5), gatetest.Host{Name: "d", Clusters: []string{"d"}})...),
	)
	e := b.startEnvoy()
	b.applies()
	stop := b.load("h0", "d")
	for range 3 {
		b.stop()
		b.answers("d", "one")
		b.startAgent()
		b.applies()
	}
	b.unharmed(stop)
	b.plane(b.cluster("e", "s"), gatetest.Routes(t, routesName, gatetest.Host{Name: "h0", Clusters: []string{"e"}}))
	b.applies()
	b.answers("h0", "one")
	if n := e.Stat(t.Context(), "cluster_manager.cluster_modified"); n != 0 {
		t.Errorf("%d clusters were sent again", n)
	}
}

// TestEnvoyPortInUse: the problem says which port and what to do, and the listener
// comes to life when the port is free.
func TestEnvoyPortInUse(t *testing.T) {
	b := newBench(t)
	other, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", b.port))
	if err != nil {
		t.Fatal(err)
	}
	b.plane(b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.listener(""), gatetest.Routes(t, routesName, hosts(0, 1)...))
	b.startEnvoy()
	applied := b.applies(listenerName)
	if p := applied.GetProblems()[0]; !strings.HasPrefix(p.GetMessage(), fmt.Sprintf("port %d is in use", b.port)) {
		t.Errorf("problem: %v", p)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	b.skip(10 * time.Second)
	b.applies()
	eventually(t, "the listener to be open", func() bool {
		_, _, err := b.ask("h0")
		return err == nil
	})
	b.answers("h0", "one")
}

// TestEnvoyClusterThatWarmsSlowly: a cluster whose first health check hangs holds back
// its own host. What is warm goes on, and its routes change. (Other new clusters wait,
// for Envoy answers about clusters only when all of them are warm.)
func TestEnvoyClusterThatWarmsSlowly(t *testing.T) {
	b := newBench(t)
	hole, err := net.Listen("tcp", "127.0.0.1:0") // never answers
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	b.plane(
		b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.cluster("d", "s2"), b.endpoints("s2", b.backend("two")),
		b.listener(""), gatetest.Routes(t, routesName, hosts(0, 2)...),
	)
	b.startEnvoy()
	b.applies()
	stop := b.load("h0", "h1")
	routes := func(h0 string) delta.Change {
		return gatetest.Routes(t, routesName, gatetest.Host{Name: "h0", Clusters: []string{h0}, Salt: 1}, hosts(0, 2)[1], gatetest.Host{Name: "slow", Clusters: []string{"slow"}})
	}
	b.plane(b.cluster("slow", "hole", checked(time.Hour)), b.endpoints("hole", hole.Addr().(*net.TCPAddr)), routes("c"))
	b.plane(routes("d"))
	eventually(t, "the other host's new route", func() bool {
		_, body, err := b.ask("h0")
		return err == nil && body == "two"
	})
	eventually(t, "the wait to be a problem", func() bool {
		b.relay.tick()
		p := b.relay.applied().GetProblems()
		return len(p) == 1 && p[0].GetName() == routesName+"/slow" && p[0].GetKind() == agentv1.Problem_KIND_WAITING &&
			strings.Contains(p[0].GetMessage(), `"slow"`)
	})
	if names, err := b.Warming(t.Context()); err != nil || len(names) != 1 || names[0] != "slow" {
		t.Errorf("warming: %v, %v", names, err)
	}
	b.unharmed(stop)
	if err := hole.Close(); err != nil { // the check fails at last
		t.Fatal(err)
	}
	b.applies()
}
