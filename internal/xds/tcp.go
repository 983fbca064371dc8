package xds

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	connectionlimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/connection_limit/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// BrokenCluster stands for groups that cannot be resolved. No cluster has the name, so
// connections that are to go there are closed.
const BrokenCluster = "fairlead-broken"

// tcpProxy hands connections to groups by weight. The share of broken references is
// closed.
func tcpProxy(l model.Listener, groups []model.WeightedGroup, o Options) *listenerv3.Filter {
	t := &tcpproxyv3.TcpProxy{StatPrefix: string(l.ID), IdleTimeout: durationpb.New(tcpIdle)}
	if c := l.Clients; c != nil && c.IdleTimeout > 0 {
		t.IdleTimeout = durationpb.New(c.IdleTimeout)
	}
	var weights []*tcpproxyv3.TcpProxy_WeightedCluster_ClusterWeight
	var total uint64
	for _, g := range groups {
		total += uint64(g.Weight)
	}
	scale := weightScale(total, len(groups))
	for _, g := range groups {
		if g.Weight == 0 {
			continue
		}
		name := string(g.Group)
		if name == "" {
			name = BrokenCluster
		}
		weights = append(weights, &tcpproxyv3.TcpProxy_WeightedCluster_ClusterWeight{
			Name: name, Weight: uint32(max(1, uint64(g.Weight)/scale)),
		})
	}
	switch len(weights) {
	case 0:
		t.ClusterSpecifier = &tcpproxyv3.TcpProxy_Cluster{Cluster: BrokenCluster}
	case 1:
		t.ClusterSpecifier = &tcpproxyv3.TcpProxy_Cluster{Cluster: weights[0].GetName()}
	default:
		t.ClusterSpecifier = &tcpproxyv3.TcpProxy_WeightedClusters{
			WeightedClusters: &tcpproxyv3.TcpProxy_WeightedCluster{Clusters: weights},
		}
	}
	t.AccessLog = connectionLogs(l, o)
	return networkFilter("envoy.filters.network.tcp_proxy", t)
}

// connectionLimit bounds the connections of a filter chain, where a policy wants that.
func connectionLimit(l model.Listener) []*listenerv3.Filter {
	if l.Clients == nil || l.Clients.MaxConnections == 0 {
		return nil
	}
	return []*listenerv3.Filter{networkFilter("envoy.filters.network.connection_limit", &connectionlimitv3.ConnectionLimit{
		StatPrefix: string(l.ID), MaxConnections: wrapperspb.UInt64(uint64(l.Clients.MaxConnections)),
	})}
}

func networkFilter(name string, config proto.Message) *listenerv3.Filter {
	return &listenerv3.Filter{Name: name, ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(config)}}
}
