package xds

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	mutationrulesv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	upstreamcodecv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/model"
)

// Headers by which backends report their load (ORCA), and Envoy to itself. The second one goes first where both are there.
const (
	loadHeader       = "endpoint-load-metrics"
	loadHeaderBinary = "endpoint-load-metrics-bin"
)

// measure has Envoy report to its agent what it counts of each backend of a group, and how long each backend took until the
// first byte of its answers (ADR 63). The time is written as a load metric of the backend, in a filter that only this
// cluster has, and Envoy adds such metrics up by backend. What a backend itself says there is overwritten.
func measure(c *clusterv3.Cluster, o *httpv3.HttpProtocolOptions, g model.BackendGroup) {
	if !g.Measured || g.Protocol == model.BackendTCP {
		return
	}
	c.LrsReportEndpointMetrics = []string{"named_metrics." + model.FirstByteMetric}
	remove := func(header string) *mutationrulesv3.HeaderMutation {
		return &mutationrulesv3.HeaderMutation{Action: &mutationrulesv3.HeaderMutation_Remove{Remove: header}}
	}
	o.HttpFilters = []*hcmv3.HttpFilter{
		upstreamFilter("envoy.filters.http.header_mutation", &mutationv3.HeaderMutation{Mutations: &mutationv3.Mutations{
			ResponseMutations: []*mutationrulesv3.HeaderMutation{
				remove(loadHeaderBinary),
				{Action: &mutationrulesv3.HeaderMutation_Append{Append: &corev3.HeaderValueOption{
					Header:       &corev3.HeaderValue{Key: loadHeader, Value: "TEXT named_metrics." + model.FirstByteMetric + "=%COMMON_DURATION(US_TX_BEG:US_RX_BEG:us)%"},
					AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
				}}},
			},
		}}),
		upstreamFilter("envoy.filters.http.upstream_codec", &upstreamcodecv3.UpstreamCodec{}),
	}
}

func upstreamFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(config)}}
}
