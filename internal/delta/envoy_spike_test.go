package delta_test

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/delta"
)

const (
	cds delta.Type = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	eds delta.Type = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	lds delta.Type = "type.googleapis.com/envoy.config.listener.v3.Listener"
	rds delta.Type = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
)

// ads says that a resource comes by ADS, with no time after which Envoy would go on
// without it.
func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		InitialFetchTimeout:   durationpb.New(0),
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

func pipe(path string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
}

func cluster(name string, timeout time.Duration) proto.Message {
	return &clusterv3.Cluster{
		Name:                 name,
		ConnectTimeout:       durationpb.New(timeout),
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
	}
}

// badCluster is one that only Envoy's own code refuses, not its schema.
func badCluster(name string) proto.Message {
	c := cluster(name, time.Second).(*clusterv3.Cluster)
	c.EdsClusterConfig = nil
	return c
}

func endpoints(name string, sockets ...string) proto.Message {
	locality := &endpointv3.LocalityLbEndpoints{}
	for _, socket := range sockets {
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: pipe(socket)}},
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}
}

func listener(t *testing.T, name, socket, routes string) proto.Message {
	pack := func(m proto.Message) *anypb.Any {
		a, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	return &listenerv3.Listener{
		Name:    name,
		Address: pipe(socket),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name: "http",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(&hcmv3.HttpConnectionManager{
				StatPrefix:     "spike",
				RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{RouteConfigName: routes, ConfigSource: ads()}},
				HttpFilters: []*hcmv3.HttpFilter{{
					Name:       "envoy.filters.http.router",
					ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})},
				}},
			})},
		}}}},
	}
}

// badListener has a filter that Envoy does not know.
func badListener(name, socket string) proto.Message {
	return &listenerv3.Listener{Name: name, Address: pipe(socket), FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "none", ConfigType: &listenerv3.Filter_TypedConfig{
			TypedConfig: &anypb.Any{TypeUrl: "type.googleapis.com/no.such.Filter"},
		}}},
	}}}
}

func routes(name, cluster string) proto.Message {
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
		}},
	}}}
}

// badRoutes has one domain twice, which Envoy refuses.
func badRoutes(name string) proto.Message {
	r := routes(name, "c0").(*routev3.RouteConfiguration)
	r.VirtualHosts = append(r.VirtualHosts, &routev3.VirtualHost{Name: "again", Domains: []string{"*"}})
	return r
}

// backend answers every request on a unix socket with its name.
func (s *adsServer) backend(name string) string {
	s.t.Helper()
	path := filepath.Join(s.path, name)
	l, err := net.Listen("unix", path)
	if err != nil {
		s.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, name) })}
	go func() { _ = server.Serve(l) }()
	s.t.Cleanup(func() { _ = server.Close() })
	return path
}

func (s *adsServer) answers(want string) {
	s.t.Helper()
	if code, body := s.get("front", "/"); code != http.StatusOK || body != want {
		s.t.Fatalf("Envoy answers %d %q, want %q", code, body, want)
	}
}

// world publishes five clusters with a backend each, a listener and its routes.
func (s *adsServer) world() {
	s.t.Helper()
	clusters, loads := map[string]proto.Message{}, map[string]proto.Message{}
	for i := range 5 {
		name := fmt.Sprintf("c%d", i)
		clusters[name] = cluster(name, time.Second)
		loads[name] = endpoints(name, s.backend("b"+name))
	}
	s.publish(eds, loads)
	s.publish(cds, clusters)
	s.publish(rds, map[string]proto.Message{"r": routes("r", "c0")})
	s.publish(lds, map[string]proto.Message{"l": listener(s.t, "l", filepath.Join(s.path, "front"), "r")})
}

func (s *adsServer) versions(t delta.Type) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	versions := map[string]string{}
	for _, name := range s.set.Names(t) {
		r, _ := s.set.Get(t, name)
		versions[name] = r.Version
	}
	return versions
}

// carried counts what was sent on the present stream.
func (s *adsServer) carried() (resources, removals int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.sent {
		resources += len(r.GetResources())
		removals += len(r.GetRemovedResources())
	}
	return resources, removals
}

// A real Envoy follows the engine through additions, changes, removals, a lost
// stream and its own restart.
func TestEnvoyFollows(t *testing.T) {
	binary := findEnvoy(t)
	s := newADSServer(t)
	stop := s.startEnvoy(binary)
	s.settled(cds, lds) // both empty, both answered
	s.world()
	s.settled(cds, lds, eds, rds)
	s.answers("bc0")

	s.publish(rds, map[string]proto.Message{"r": routes("r", "c1")})
	s.settled(rds)
	s.answers("bc1")
	s.publish(eds, map[string]proto.Message{"c1": endpoints("c1", filepath.Join(s.path, "bc2"))})
	s.settled(eds)
	s.answers("bc2")
	s.publish(cds, map[string]proto.Message{"c4": nil})
	s.settled(cds)
	if got := s.runs("dynamic_active_clusters"); len(got) != 4 || got["c4"] != "" {
		t.Fatalf("Envoy runs %v after the removal of c4", got)
	}
	s.wait("end of the subscription to the endpoints of c4", func() bool {
		return s.stream.State(eds, "c4").Phase == delta.Unknown
	})

	// A lost stream: Envoy says what it holds, and only what changed meanwhile travels.
	s.pause(true)
	s.publish(rds, map[string]proto.Message{"r": routes("r", "c3")})
	s.publish(cds, map[string]proto.Message{"c2": nil})
	s.breakStream()
	if holds := s.first(cds).GetInitialResourceVersions(); len(holds) != 4 {
		t.Fatalf("Envoy says that it holds %v", holds)
	}
	s.pause(false)
	s.settled(cds, lds, eds, rds)
	s.answers("bc3")
	if resources, removals := s.carried(); resources != 1 || removals != 1 {
		t.Fatalf("%d resources and %d removals were sent after the reconnect, want one each", resources, removals)
	}

	// A new Envoy knows nothing and gets everything.
	stop()
	s.mu.Lock()
	s.stream = nil
	s.mu.Unlock()
	s.startEnvoy(binary)
	s.settled(cds, lds, eds, rds)
	s.answers("bc3")
	if got := s.runs("dynamic_active_clusters"); len(got) != 3 {
		t.Fatalf("the new Envoy runs %v", got)
	}
}

// One bad cluster among five stays behind alone. Envoy takes the others even from
// the response that it refuses, but says after a lost stream that it has not.
func TestEnvoyRefusesOneCluster(t *testing.T) {
	s := newADSServer(t)
	s.startEnvoy(findEnvoy(t))
	s.world()
	s.settled(cds, lds, eds, rds)
	old := s.versions(cds)

	wait := s.refusal(cds)
	changed := map[string]proto.Message{"c2": badCluster("c2")}
	for _, name := range []string{"c0", "c1", "c3", "c4"} {
		changed[name] = cluster(name, 2*time.Second)
	}
	s.mu.Lock()
	s.resends = false // they are resent below, when it matters
	s.mu.Unlock()
	s.publish(cds, changed)
	for name := range changed {
		s.resend(eds, name)
	}
	if message := wait().GetErrorDetail().GetMessage(); !strings.Contains(message, "c2") {
		t.Errorf("Envoy says %q", message)
	}
	now := s.versions(cds)
	now["c2"] = old["c2"]
	if runs := s.runs("dynamic_active_clusters"); !maps.Equal(runs, now) {
		t.Errorf("after a refused response with one bad cluster among five Envoy runs\n%v, want\n%v, had\n%v", runs, now, old)
	}
	s.breakStream()
	if holds := s.first(cds).GetInitialResourceVersions(); !maps.Equal(holds, old) {
		t.Errorf("Envoy says that it holds %v, want %v", holds, old)
	}
	s.mu.Lock()
	s.resends = true
	s.mu.Unlock()
	s.pause(false)
	s.settled(cds, lds, eds, rds)
	if runs := s.runs("dynamic_active_clusters"); !maps.Equal(runs, now) {
		t.Errorf("after bisection Envoy runs %v, want %v", runs, now)
	}
	if st := s.state(cds, "c2"); st.Phase != delta.Nacked || !strings.Contains(st.Message, "EDS") || st.Held != old["c2"] {
		t.Errorf("the bad cluster is %+v", st)
	}
	s.answers("bc0")
	s.publish(cds, map[string]proto.Message{"c2": cluster("c2", 3*time.Second)})
	s.settled(cds)
	if st := s.state(cds, "c2"); st.Phase != delta.Acked {
		t.Errorf("the repaired cluster is %v", st)
	}
}

// The same for listeners, routes and endpoints.
func TestEnvoyRefusesOtherTypes(t *testing.T) {
	s := newADSServer(t)
	s.startEnvoy(findEnvoy(t))
	s.world()
	s.settled(cds, lds, eds, rds)

	s.publish(lds, map[string]proto.Message{
		"m1":    listener(t, "m1", filepath.Join(s.path, "m1"), "r1"),
		"mbad":  badListener("mbad", filepath.Join(s.path, "mbad")),
		"m2":    listener(t, "m2", filepath.Join(s.path, "m2"), "r2"),
		"empty": listener(t, "empty", filepath.Join(s.path, "empty"), ""), // asks for the route ""
	})
	s.publish(rds, map[string]proto.Message{"r1": badRoutes("r1"), "r2": routes("r2", "c2")})
	s.wait("routes of the new listeners", func() bool {
		return s.stream.State(rds, "r1").Phase == delta.Nacked && s.stream.State(rds, "r2").Phase == delta.Acked
	})
	s.settled(lds, rds)
	s.publish(eds, map[string]proto.Message{
		"c0": endpoints("c0", filepath.Join(s.path, "bc1")),
		"c1": endpoints("other"), // not the cluster's
	})
	s.settled(eds)
	for _, want := range []struct {
		typ   delta.Type
		name  string
		phase delta.Phase
	}{
		{lds, "m1", delta.Acked},
		{lds, "m2", delta.Acked},
		{lds, "mbad", delta.Nacked},
		{lds, "empty", delta.Acked},
		{rds, "r1", delta.Nacked},
		{rds, "r2", delta.Acked},
		{rds, "", delta.Acked},
		{eds, "c0", delta.Acked},
		{eds, "c1", delta.Nacked},
	} {
		if st := s.state(want.typ, want.name); st.Phase != want.phase {
			t.Errorf("%s %q is %+v, want %s", want.typ, want.name, st, want.phase)
		}
	}
	s.answers("bc1")
}

// A cluster that Envoy replaces waits for its endpoints, which Envoy does not ask
// for; the response with the cluster is answered only after they came.
func TestEnvoyWaitsForTheEndpointsOfAReplacedCluster(t *testing.T) {
	s := newADSServer(t)
	s.startEnvoy(findEnvoy(t))
	s.world()
	s.settled(cds, lds, eds, rds)
	s.mu.Lock()
	s.resends = false
	s.mu.Unlock()

	s.publish(cds, map[string]proto.Message{"c0": cluster("c0", 5*time.Second)})
	s.publish(rds, map[string]proto.Message{"r": routes("r", "c1")})
	s.settled(rds)
	s.answers("bc1")
	warming := s.runs("dynamic_warming_clusters")
	if st := s.state(cds, "c0"); st.Phase != delta.Sent || warming["c0"] != st.Version {
		t.Fatalf("the replaced cluster is %v, warming are %v; Envoy no longer waits for endpoints?", st, warming)
	}
	s.resend(eds, "c0")
	s.settled(cds)
	if warming := s.runs("dynamic_warming_clusters"); len(warming) != 0 {
		t.Fatalf("still warming: %v", warming)
	}

	// A new cluster without endpoints is answered that there are none, and warm.
	s.publish(cds, map[string]proto.Message{"c9": cluster("c9", time.Second)})
	s.settled(cds, eds)
	if st := s.state(eds, "c9"); st.Phase != delta.Acked || st.Version != "" {
		t.Fatalf("the endpoints that do not exist are %v", st)
	}
}

func (s *adsServer) resend(t delta.Type, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.Resend(t, name)
}
