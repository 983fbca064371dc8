package gate

import (
	"maps"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	// Listeners carry these inside an Any, and name what they need in them.
	_ "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"

	"fairlead.dev/internal/delta"
)

// names is what a listener or a cluster needs of other types, each list sorted.
type names struct {
	// routes are the route configurations that it names itself, not those of its scopes.
	routes []string
	// clusters take its bytes, its access log or its traces.
	clusters []string
	// secrets do not count those for which Envoy asks by a client's server name.
	secrets []string
	// keyed says that it proves itself to clients with private keys.
	keyed bool
	// bytes says that it passes bytes on and leads no requests: Envoy asks for no scopes then.
	bytes bool
}

func readListener(r *delta.Resource) (names, error) {
	var l listenerv3.Listener
	if err := unmarshal(r, &l); err != nil {
		return names{}, err
	}
	return readNames(&l), nil
}

// nameFields are the fields that name other resources, by the message that has them.
var nameFields = map[protoreflect.FullName]struct {
	field protoreflect.Name
	kind  delta.Type
}{
	"envoy.extensions.filters.network.http_connection_manager.v3.Rds":                      {"route_config_name", typeRoute},
	"envoy.config.route.v3.ScopedRouteConfiguration":                                       {"route_configuration_name", typeRoute},
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy":                               {"cluster", typeCluster},
	"envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.WeightedCluster.ClusterWeight": {"name", typeCluster},
	"envoy.config.core.v3.GrpcService.EnvoyGrpc":                                           {"cluster_name", typeCluster},
	"envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig":                            {"name", typeSecret},
}

func readNames(m proto.Message) names {
	found := map[delta.Type]map[string]struct{}{typeRoute: {}, typeCluster: {}, typeSecret: {}}
	var keyed, bytes, requests bool
	walk(m.ProtoReflect(), func(m protoreflect.Message) {
		switch m.Descriptor().FullName() {
		case "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext":
			keyed = true
		case "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy":
			bytes = true
		case "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager":
			requests = true
		}
		f, ok := nameFields[m.Descriptor().FullName()]
		if !ok {
			return
		}
		if name := m.Get(m.Descriptor().Fields().ByName(f.field)).String(); name != "" {
			found[f.kind][name] = struct{}{}
		}
	})
	sorted := func(t delta.Type) []string { return slices.Sorted(maps.Keys(found[t])) }
	return names{routes: sorted(typeRoute), clusters: sorted(typeCluster), secrets: sorted(typeSecret), keyed: keyed, bytes: bytes && !requests}
}

// needs is what a version of a listener names, read once.
func (it *item) needs(r *delta.Resource) names {
	if it.named == nil || it.namedOf != r.Version {
		n, err := readListener(r)
		if err != nil {
			n = names{} // nothing to wait for: Envoy will say what is wrong
		}
		it.named, it.namedOf = &n, r.Version
	}
	return *it.named
}

// hasSecrets says whether there is something to send for the secrets. Without, Envoy
// would keep what names them warming for some seconds.
func (g *Gate) hasSecrets(names []string) bool {
	for _, name := range names {
		if it := g.items[key{typeSecret, name}]; it == nil || it.live == nil {
			return false
		}
	}
	return true
}

// hasClusters says whether those of the clusters that the plane has sent are warm. What
// it has not sent does not come.
func (g *Gate) hasClusters(names []string) bool {
	for _, name := range names {
		if c := g.clusters[name]; c != nil && c.target != nil && !c.ready {
			return false
		}
	}
	return true
}

// withholdsKeys says whether a listener must wait for private keys.
func (g *Gate) withholdsKeys(it *item, r *delta.Resource) bool {
	return g.keyless && r != nil && it.needs(r).keyed
}

// clusterInfo is what the gate must know of a cluster.
type clusterInfo struct {
	set string // name of its load assignment; empty when it is not by EDS
	// simple: warm as soon as Envoy has taken it and its endpoints. Others depend on
	// secrets or DNS, or on health checks of a plane that had Envoy do these, and Envoy
	// must be asked.
	simple  bool
	secrets []string // that its connections need, sorted
}

func readCluster(r *delta.Resource) (clusterInfo, error) {
	var c clusterv3.Cluster
	if err := unmarshal(r, &c); err != nil {
		return clusterInfo{}, err
	}
	var info clusterInfo
	switch c.GetType() {
	case clusterv3.Cluster_EDS:
		if info.set = c.GetEdsClusterConfig().GetServiceName(); info.set == "" {
			info.set = c.GetName()
		}
		info.simple = true
	case clusterv3.Cluster_STATIC:
		info.simple = c.GetClusterType() == nil
	}
	if len(c.GetHealthChecks()) > 0 || c.GetTransportSocket() != nil || len(c.GetTransportSocketMatches()) > 0 {
		info.simple = false
	}
	if c.GetTransportSocket() != nil || len(c.GetTransportSocketMatches()) > 0 {
		info.secrets = readNames(&c).secrets
	}
	return info, nil
}
