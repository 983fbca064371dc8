package xds

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	lbcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/common/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// affinityCookie keeps a client at one backend (model.BalanceCookie).
	affinityCookie = "fairlead-affinity"

	connectTimeout = 2 * time.Second
	// upstreamIdle closes a pooled connection before the usual servers do (nginx 75 s,
	// many others 60 s), so that a request rarely meets a closing one.
	upstreamIdle = 50 * time.Second
	// connectionBuffer bounds what Envoy holds for one connection, bytes.
	connectionBuffer = 32 << 10
)

// Cluster is a group of backends with kept connections to the backends of the group's set,
// which come by EDS under EndpointsName. Health is what EDS says: Envoy checks nobody. A
// group without any healthy backend answers 503: Envoy's panic threshold is 0, so that it
// never falls back on unhealthy ones by itself.
//
// Envoy does not ask for the load assignment of a cluster again that it replaces. Whoever
// sends a changed cluster sends the load assignment after it once more; else the change
// waits for the initial fetch timeout, and every other change of clusters with it.
func Cluster(g model.BackendGroup) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                          string(g.ID),
		AltStatName:                   statOfGroup(g),
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:              &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads(initialFetch), ServiceName: EndpointsName(g)},
		ConnectTimeout:                durationpb.New(connectTimeout),
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(connectionBuffer),
		CircuitBreakers:               &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{breaker(g.Limits)}},
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{
			HealthyPanicThreshold: &typev3.Percent{Value: 0},
			// A session goes on at a backend that drains, until that is gone; nobody else does.
			OverrideHostStatus: &corev3.HealthStatusSet{Statuses: []corev3.HealthStatus{
				corev3.HealthStatus_UNKNOWN, corev3.HealthStatus_HEALTHY, corev3.HealthStatus_DEGRADED, corev3.HealthStatus_DRAINING,
			}},
			// A change of health takes effect at once, not with the next second's batch.
			UpdateMergeWindow: durationpb.New(0),
		},
		IgnoreHealthOnHostRemoval: true,
		TransportSocket:           transport(g),
		OutlierDetection:          outlier(g.Outlier),
		UpstreamConnectionOptions: &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveTime: wrapperspb.UInt32(60), KeepaliveInterval: wrapperspb.UInt32(10), KeepaliveProbes: wrapperspb.UInt32(3),
		}},
	}
	options := protocolOptions(g)
	measure(c, options, g)
	c.TypedExtensionProtocolOptions = typedOptions(options)
	switch g.Balance {
	case model.BalanceLeastRequest:
		c.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
	case model.BalanceRandom:
		c.LbPolicy = clusterv3.Cluster_RANDOM
	case model.BalanceCookie:
		c.LoadBalancingPolicy = byCookie(cmp.Or(g.Cookie, affinityCookie))
	case model.BalanceRoundRobin:
		c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
	}
	return c
}

// EndpointsName names the load assignment of a group. Each group has its own, also when
// groups share a set: one that came first would not be sent again for the second.
func EndpointsName(g model.BackendGroup) string { return string(g.ID) }

// byCookie is a ring hash over a session cookie that Envoy sets when a client has none.
func byCookie(name string) *clusterv3.LoadBalancingPolicy {
	ring := &ringhashv3.RingHash{ConsistentHashingLbConfig: &lbcommonv3.ConsistentHashingLbConfig{
		HashPolicy: []*routev3.RouteAction_HashPolicy{{PolicySpecifier: &routev3.RouteAction_HashPolicy_Cookie_{
			Cookie: &routev3.RouteAction_HashPolicy_Cookie{Name: name, Ttl: durationpb.New(0), Path: "/"},
		}}},
	}}
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "envoy.load_balancing_policies.ring_hash", TypedConfig: pack(ring)},
	}}}
}

// Health says what is known of a backend, and the ID of its check; HealthUnchecked where
// nobody checks it.
type Health func(backend netip.AddrPort) (health model.Health, check string)

// LoadAssignment is where the backends of a group are, by failure domain and address. s is
// the group's set. A nil health is that of nobody. Backups are of a second priority, which Envoy
// uses while none of the first is healthy.
//
// The status of an endpoint whose health is not known yet is UNKNOWN, which Envoy takes for
// healthy. Agents put what they know in its place. Where all that take requests fail a check that
// nobody asked for, all are healthy.
func LoadAssignment(g model.BackendGroup, s model.BackendSet, health Health) *endpointv3.ClusterLoadAssignment {
	backends := slices.SortedFunc(slices.Values(s.Backends), func(a, b model.Backend) int {
		return cmp.Or(cmp.Compare(priority(a), priority(b)), cmp.Compare(a.Zone, b.Zone), a.Address.Compare(b.Address))
	})
	out := &endpointv3.ClusterLoadAssignment{ClusterName: EndpointsName(g)}
	last := uint32(0) // priority
	if n := len(backends); n > 0 && !backends[0].Backup && backends[n-1].Backup {
		last = 1
		out.Policy = &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(oneIsEnough)}
	}
	weightOf := endpointWeights(g, backends)
	var here *endpointv3.LocalityLbEndpoints
	accepting, none := s.Accepting()
	if g.Presumed() && !none && health != nil && allIll(backends, accepting, health) {
		known := health
		health = func(b netip.AddrPort) (model.Health, string) {
			_, check := known(b)
			return model.Healthy, check
		}
	}
	for i, b := range backends {
		if i == 0 || b.Zone != backends[i-1].Zone || b.Backup != backends[i-1].Backup {
			here = &endpointv3.LocalityLbEndpoints{Priority: min(priority(b), last)}
			if b.Zone != "" {
				here.Locality = &corev3.Locality{Zone: b.Zone}
			}
			out.Endpoints = append(out.Endpoints, here)
		}
		known, check := model.HealthUnchecked, ""
		if health != nil {
			known, check = health(b.Address)
		}
		e := &endpointv3.LbEndpoint{
			HealthStatus: healthStatus(b.State, !none && b.State == accepting, known),
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: address(b.Address.Addr().Unmap().WithZone("").String(), b.Address.Port()),
			}},
		}
		if check != "" && !none && b.State == accepting {
			fields := map[string]*structpb.Value{agentv1.CheckMetadataKey: structpb.NewStringValue(check)}
			if g.Presumed() {
				fields[agentv1.PresumedMetadataKey] = structpb.NewBoolValue(true)
			}
			e.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{agentv1.CheckMetadata: {Fields: fields}}}
		}
		if weight := weightOf(b); weight > 1 {
			e.LoadBalancingWeight = wrapperspb.UInt32(weight)
		}
		here.LbEndpoints = append(here.LbEndpoints, e)
	}
	return out
}

// oneIsEnough is the overprovisioning factor, in percent, at which one healthy backend of a million
// keeps all requests in its priority. The default, 140, gives requests to backups when 29 of 100 fail.
const oneIsEnough = 100_000_000

// priority of Envoy, 0 being the first.
func priority(b model.Backend) uint32 {
	if b.Backup {
		return 1
	}
	return 0
}

const (
	// mostShares bounds what weights add up to: Envoy refuses more than 1<<32.
	mostShares = 1 << 31
	// ringShares bounds it for a ring hash. Envoy makes as many entries of a ring as the weights have
	// units of the smallest.
	ringShares = 1 << 16
)

// endpointWeights are the weights of backends among the others.
func endpointWeights(g model.BackendGroup, backends []model.Backend) func(model.Backend) uint32 {
	total, most := uint64(0), uint64(mostShares)
	if g.Balance == model.BalanceCookie {
		most = ringShares
	}
	for _, b := range backends {
		total += uint64(b.Share())
	}
	if total <= max(most, uint64(len(backends))) {
		return model.Backend.Share
	}
	return func(b model.Backend) uint32 { return uint32(max(1, uint64(b.Share())*most/total)) }
}

// allIll says that every backend that accepts requests is unhealthy.
func allIll(backends []model.Backend, accepting model.BackendState, health Health) bool {
	return !slices.ContainsFunc(backends, func(b model.Backend) bool {
		known, _ := health(b.Address)
		return b.State == accepting && known != model.Unhealthy
	})
}

// healthStatus is what Envoy is told of a backend: accepts says that it may get new requests,
// as far as its state goes.
func healthStatus(s model.BackendState, accepts bool, h model.Health) corev3.HealthStatus {
	switch {
	case h == model.Unhealthy || s == model.BackendUnready:
		return corev3.HealthStatus_UNHEALTHY
	case accepts && h == model.HealthUnknown:
		return corev3.HealthStatus_UNKNOWN
	case accepts:
		return corev3.HealthStatus_HEALTHY
	default:
		return corev3.HealthStatus_DRAINING
	}
}
