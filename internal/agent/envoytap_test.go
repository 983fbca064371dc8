package agent

import (
	"net/http"
	"strings"
	"testing"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	datav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	grpclogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/model"
)

// tapLayer is the layer of the runtime that the bootstrap has for samples.
const tapLayer = `, {"name": "fairlead-tap", "rtds_layer": {"name": "fairlead-tap", "rtds_config": {"resource_api_version": "V3", "initial_fetch_timeout": "2s",
	"api_config_source": {"api_type": "DELTA_GRPC", "transport_api_version": "V3",
	"grpc_services": [{"envoy_grpc": {"cluster_name": "agent", "retry_policy": {"retry_back_off": {"base_interval": "0.05s", "max_interval": "0.2s"}}}}]}}}}`

// tappedListener is the bench's, with a log for samples.
func (b *bench) tappedListener() delta.Change {
	b.t.Helper()
	var l listenerv3.Listener
	var manager hcmv3.HttpConnectionManager
	if err := b.listener("").Resource.Body.UnmarshalTo(&l); err != nil {
		b.t.Fatal(err)
	}
	filter := l.FilterChains[0].Filters[0]
	if err := filter.GetTypedConfig().UnmarshalTo(&manager); err != nil {
		b.t.Fatal(err)
	}
	manager.AccessLog = []*accesslogv3.AccessLog{{
		Name: "envoy.access_loggers.http_grpc",
		Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_RuntimeFilter{
			RuntimeFilter: &accesslogv3.RuntimeFilter{RuntimeKey: model.TapKey, UseIndependentRandomness: true},
		}},
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: gatetest.AnyOf(b.t, &grpclogv3.HttpGrpcAccessLogConfig{
			CommonConfig: &grpclogv3.CommonGrpcAccessLogConfig{
				LogName: "tap", TransportApiVersion: corev3.ApiVersion_V3, BufferFlushInterval: durationpb.New(50e6),
				CustomTags:  []*tracingv3.CustomTag{{Tag: model.TapGroup, Type: &tracingv3.CustomTag_Value{Value: "%UPSTREAM_CLUSTER_RAW%"}}},
				GrpcService: &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: "agent"}}},
			},
		})},
	}}
	filter.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: gatetest.AnyOf(b.t, &manager)}
	return delta.Change{Type: typeListener, Name: listenerName, Resource: gatetest.Pack(b.t, listenerName, &l)}
}

// TestEnvoySendsSamples: a real Envoy sends records while somebody wants them, and stops by itself when the agent
// is gone.
func TestEnvoySendsSamples(t *testing.T) {
	b := newBench(t)
	b.layers = tapLayer
	b.plane(b.cluster("c", "s"), b.endpoints("s", b.backend("one")), b.tappedListener(), gatetest.Routes(t, routesName, hosts(0, 1)...))
	e := b.startEnvoy()
	b.applies()
	b.answers("h0", "one")
	eventually(t, "the proxy to ask what to sample", b.sampler.able)

	records := make(chan *datav3.HTTPAccessLogEntry, 1000)
	c := &sampling{take: func(r *datav3.HTTPAccessLogEntry) {
		select {
		case records <- r:
		default:
		}
	}}
	key := func() string {
		text, err := e.Admin(t.Context(), http.MethodGet, "/runtime")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	sampled := func() (model.TapRecord, bool) {
		b.answers("h0", "one")
		select {
		case r := <-records:
			return tapRecord(r), true
		default:
			return model.TapRecord{}, false
		}
	}
	b.sampler.want(c, wholeSample)
	var r model.TapRecord
	eventually(t, "a record", func() (is bool) { r, is = sampled(); return is })
	if r.Status != http.StatusOK || r.Host != "h0.example" || r.Group != "c" || r.Method != http.MethodGet || r.Path != "/" || r.Seconds <= 0 || r.Backend == "" || r.Sent != 3 {
		t.Errorf("record: %+v", r)
	}
	b.sampler.want(c, 0)
	eventually(t, "the proxy to be told to stop", func() bool { return !hasKey(key()) })

	b.sampler.want(c, wholeSample)
	eventually(t, "the key to be back", func() bool { return hasKey(key()) })
	b.stop()
	eventually(t, "the key to lapse without an agent", func() bool { return !hasKey(key()) })
	b.startAgent()
	eventually(t, "the proxy to ask the next agent", b.sampler.able)
	if hasKey(key()) {
		t.Error("the next agent wants samples of nobody")
	}
	b.answers("h0", "one")
}

func hasKey(runtime string) bool { return strings.Contains(runtime, `"`+model.TapKey+`"`) }
