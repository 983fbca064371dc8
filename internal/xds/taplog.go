package xds

import (
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

const (
	// tapFlush is how long a record may wait for others, and tapBuffer how many bytes of them.
	tapFlush  = 200 * time.Millisecond
	tapBuffer = 64 << 10
	// tapWait is how long a new Envoy waits for the layer: an agent of an earlier version has none.
	tapWait = 2 * time.Second
)

// tapLog sends requests to the agent while model.TapKey asks for them (ADR 59). All listeners share one stream a thread: their
// loggers are the same.
func tapLog() *accesslogv3.AccessLog {
	log := accessLogger("envoy.access_loggers.http_grpc", &grpclogv3.HttpGrpcAccessLogConfig{
		CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{
			LogName: model.TapLayer, GrpcService: grpcTo(adsName), TransportApiVersion: corev3.ApiVersion_V3,
			BufferFlushInterval: durationpb.New(tapFlush), BufferSizeBytes: wrapperspb.UInt32(tapBuffer),
			CustomTags: []*tracingv3.CustomTag{{Tag: model.TapGroup, Type: &tracingv3.CustomTag_Value{Value: "%UPSTREAM_CLUSTER_RAW%"}}},
		},
		AdditionalRequestHeadersToLog: model.TapHeaders(), AdditionalResponseHeadersToLog: model.TapResponseHeaders(),
	})
	log.Filter = &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_RuntimeFilter{RuntimeFilter: &accesslogv3.RuntimeFilter{
		RuntimeKey: model.TapKey, PercentSampled: &typev3.FractionalPercent{},
		UseIndependentRandomness: true,
	}}}
	return log
}

// tapLayer has Envoy ask its agent for model.TapKey.
func tapLayer() *bootstrapv3.RuntimeLayer {
	return &bootstrapv3.RuntimeLayer{Name: model.TapLayer, LayerSpecifier: &bootstrapv3.RuntimeLayer_RtdsLayer_{
		RtdsLayer: &bootstrapv3.RuntimeLayer_RtdsLayer{Name: model.TapLayer, RtdsConfig: &corev3.ConfigSource{
			ResourceApiVersion: corev3.ApiVersion_V3, InitialFetchTimeout: durationpb.New(tapWait),
			ConfigSourceSpecifier: &corev3.ConfigSource_ApiConfigSource{ApiConfigSource: &corev3.ApiConfigSource{
				ApiType: corev3.ApiConfigSource_DELTA_GRPC, TransportApiVersion: corev3.ApiVersion_V3, SetNodeOnFirstMessageOnly: true,
				GrpcServices: []*corev3.GrpcService{toAgent()},
			}},
		}},
	}}
}
