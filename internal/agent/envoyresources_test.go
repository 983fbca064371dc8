package agent

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/xds/envoytest"
)

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

func hosts(salt, n int) []gatetest.Host {
	var list []gatetest.Host
	for i := range n {
		list = append(list, gatetest.Host{Name: fmt.Sprint("h", i), Clusters: []string{"c"}, Salt: salt})
	}
	return list
}
