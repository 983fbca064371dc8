package xds

import (
	"cmp"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// BootstrapOptions are what one machine's Envoy must know before it can ask its agent.
type BootstrapOptions struct {
	NodeID      string // required: the machine's name
	ADSSocket   string // required: unix socket of the agent
	AdminSocket string // required: unix socket of Envoy's admin interface
	AdminMode   uint32 // of that socket; 0 is 0600
	// OutlierLog is where Envoy writes which backends it takes out, and when they are back; a
	// line of JSON each. Empty is nowhere.
	OutlierLog string
	// MaxConnections bounds the clients' connections over all listeners; 0 is 50,000. The
	// process needs at least twice as many file descriptors.
	MaxConnections int64
	// HeapBytes is the memory at which Envoy sheds load, step by step (overload.go). 0 is no
	// bound.
	HeapBytes uint64
}

const (
	defaultMaxConnections = 50_000
	// regexSize bounds the compiled size of a regular expression; a larger one is refused
	// with the resource that holds it. The plane lets none pass that comes near: translate's regexLimit
	// is a quarter, since RE2 has up to twice as many instructions as are counted there for loops and for
	// alternatives. A plain path expression is below 100.
	regexSize = 4096
	adsName   = "fairlead-agent"
)

// Bootstrap is the static configuration of an Envoy that gets everything else from its
// agent over one delta ADS stream. Run it with --disable-hot-restart, and --concurrency
// for the number of threads, which no bootstrap can say.
func Bootstrap(o BootstrapOptions) *bootstrapv3.Bootstrap {
	if o.MaxConnections == 0 {
		o.MaxConnections = defaultMaxConnections
	}
	clusters := &bootstrapv3.ClusterManager{LoadStatsConfig: &corev3.ApiConfigSource{
		ApiType: corev3.ApiConfigSource_GRPC, TransportApiVersion: corev3.ApiVersion_V3, GrpcServices: []*corev3.GrpcService{toAgent()},
	}}
	if o.OutlierLog != "" {
		clusters.OutlierDetection = &bootstrapv3.ClusterManager_OutlierDetection{EventLogPath: o.OutlierLog}
	}
	return &bootstrapv3.Bootstrap{
		ClusterManager: clusters,
		Node:           &corev3.Node{Id: o.NodeID, Cluster: "fairlead"},
		Admin: &bootstrapv3.Admin{
			Address:               pipe(o.AdminSocket, cmp.Or(o.AdminMode, 0o600)),
			IgnoreGlobalConnLimit: true,
		},
		DynamicResources: &bootstrapv3.Bootstrap_DynamicResources{
			LdsConfig: ads(initialFetch),
			CdsConfig: ads(initialFetch),
			AdsConfig: &corev3.ApiConfigSource{
				ApiType:                   corev3.ApiConfigSource_DELTA_GRPC,
				TransportApiVersion:       corev3.ApiVersion_V3,
				SetNodeOnFirstMessageOnly: true,
				GrpcServices:              []*corev3.GrpcService{toAgent()},
			},
		},
		StaticResources: &bootstrapv3.Bootstrap_StaticResources{Clusters: []*clusterv3.Cluster{agent(o.ADSSocket)}},
		OverloadManager: overload(o),
		LayeredRuntime: &bootstrapv3.LayeredRuntime{Layers: []*bootstrapv3.RuntimeLayer{{
			Name: "fairlead",
			LayerSpecifier: &bootstrapv3.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: map[string]*structpb.Value{
				// A chunk that is longer than it says is refused, and not read in a way that another
				// proxy may not share.
				"envoy.reloadable_features.strict_chunk_parsing": structpb.NewBoolValue(true),

				// A report of loads has requests that ended, also where none has begun since the last one.
				"envoy.reloadable_features.report_load_for_non_zero_stats": structpb.NewBoolValue(true),

				"re2.max_program_size.error_level": structpb.NewNumberValue(regexSize),
				"re2.max_program_size.warn_level":  structpb.NewNumberValue(regexSize),
			}}},
		}, tapLayer()}},
		StatsConfig: &metricsv3.StatsConfig{StatsMatcher: statistics()},
		// Nobody but the admin interface asks for statistics: Envoy's own walk over all of them each five seconds is only work
		// for its main thread.
		StatsFlush:          &bootstrapv3.Bootstrap_StatsFlushOnAdmin{StatsFlushOnAdmin: true},
		DeferredStatOptions: &bootstrapv3.Bootstrap_DeferredStatOptions{EnableDeferredCreationStats: true},
	}
}

// toAgent is the agent as a gRPC service. It is on the same machine: Envoy asks again soon after it restarted.
func toAgent() *corev3.GrpcService {
	service := grpcTo(adsName)
	service.GetEnvoyGrpc().RetryPolicy = &corev3.RetryPolicy{RetryBackOff: &corev3.BackoffStrategy{
		BaseInterval: durationpb.New(100 * time.Millisecond), MaxInterval: durationpb.New(time.Second),
	}}
	return service
}

// agent is the cluster behind the ADS stream.
func agent(path string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 adsName,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		ConnectTimeout:       durationpb.New(time.Second),
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: adsName, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{
				Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}},
			}}},
		}}},
		TypedExtensionProtocolOptions: typedOptions(&httpv3.HttpProtocolOptions{
			UpstreamProtocolOptions: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{
				ExplicitHttpConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
					ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
						Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
					},
				},
			},
		}),
	}
}
