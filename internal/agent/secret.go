package agent

import (
	"maps"
	"slices"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
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

// SetKeyless says that the private keys of what is remembered are not there: they are
// kept in memory only, and the machine has started anew. Until they come again, listeners
// that need keys are not given to Envoy, so that nothing leads clients to a machine that
// would turn them away. It must come before Restore.
func (g *Gate) SetKeyless(keyless bool) {
	if g.keyless == keyless {
		return
	}
	g.keyless = keyless
	for k := range g.items {
		if k.kind == typeListener {
			g.touch(k)
		}
	}
}

// withholdsKeys says whether a listener must wait for private keys.
func (g *Gate) withholdsKeys(it *item, r *delta.Resource) bool {
	return g.keyless && r != nil && it.needs(r).keyed
}

// isPrivate says whether a change is of something that must not be on the disk. The
// certificates of authorities may; a removal is of both kinds.
func isPrivate(c delta.Change) (private, public bool) {
	switch {
	case c.Type == typePassword:
		return true, false
	case c.Type != typeSecret:
		return false, true
	case c.Resource == nil:
		return true, true
	case c.Resource.Body == nil: // stands for what was said before, wherever that is
		return true, true
	}
	var s tlsv3.Secret
	if err := unmarshal(c.Resource, &s); err != nil || s.GetValidationContext() == nil {
		return true, false
	}
	return false, true
}
