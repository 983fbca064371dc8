package xds

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

const (
	// exemplarKey is the runtime key of the share of traced requests that the agent is sent. Nobody sets it; the share is the default.
	exemplarKey = "fairlead.exemplars"
	// exemplarShare is that share in percent: a record costs 7 to 10 % of a request's time (ADR 59). Where fewer
	// requests than that begin a trace, all of them are sent.
	exemplarShare = 10
)

// exemplarLog sends traced requests to the agent, for the exemplars of its histograms (ADR 60). All listeners share one stream a
// thread: their loggers are the same, without the filter.
func exemplarLog(t model.Tracing) *accesslogv3.AccessLog {
	log := accessLogger("envoy.access_loggers.http_grpc", &grpclogv3.HttpGrpcAccessLogConfig{
		CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{
			LogName: model.ExemplarLog, GrpcService: grpcTo(adsName), TransportApiVersion: corev3.ApiVersion_V3,
			BufferFlushInterval: durationpb.New(tapFlush), BufferSizeBytes: wrapperspb.UInt32(tapBuffer),
			CustomTags: []*tracingv3.CustomTag{
				{Tag: model.ExemplarTrace, Type: &tracingv3.CustomTag_Value{Value: accessFields["trace_id"]}},
				{Tag: model.TapGroup, Type: &tracingv3.CustomTag_Value{Value: accessFields["group"]}},
			},
		},
	})
	share := uint32(exemplarShare)
	if t.Percent < exemplarShare {
		share = 100
	}
	log.Filter = allOf(
		sampledTrace(),
		&accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_RuntimeFilter{RuntimeFilter: &accesslogv3.RuntimeFilter{
			RuntimeKey: exemplarKey, PercentSampled: &typev3.FractionalPercent{Numerator: share}, UseIndependentRandomness: true,
		}}},
	)
	return log
}

// sampledTrace passes requests whose trace is sampled: the header that the backend is sent says so. Envoy's traceable_filter knows
// nothing of what the sampler of OpenTelemetry has decided, and Envoy 1.40 passes no request with it. A header that is no traceparent
// passes here, but such a request has no trace ID, and the agent ignores it.
func sampledTrace() *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_HeaderFilter{HeaderFilter: &accesslogv3.HeaderFilter{
		Header: &routev3.HeaderMatcher{Name: "traceparent", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
			StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: "-01"}},
		}},
	}}}
}
