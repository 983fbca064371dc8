package xds

import (
	"time"

	overloadv3 "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	connectionsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	heapv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/fixed_heap/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	heapMonitor = "envoy.resource_monitors.fixed_heap"
	// streamAccount is the least memory, as a power of two, for which a stream is watched:
	// 1 MiB. Below, no stream is worth ending.
	streamAccount = 20
)

// overload bounds connections and memory. As memory fills, clients feel it in this order:
// idle connections end sooner (from 80 %), memory is given back to the system (90 %), the
// streams that hold most are reset (92 %), answers end their connections (95 %), new
// connections wait (97 %), requests are refused with 503 (98 %). The admin interface goes
// on throughout, and with it the machine's agent.
func overload(o BootstrapOptions) *overloadv3.OverloadManager {
	m := &overloadv3.OverloadManager{
		RefreshInterval: durationpb.New(250 * time.Millisecond),
		ResourceMonitors: []*overloadv3.ResourceMonitor{monitor("envoy.resource_monitors.global_downstream_max_connections",
			&connectionsv3.DownstreamConnectionsConfig{MaxActiveDownstreamConnections: o.MaxConnections})},
	}
	if o.HeapBytes == 0 {
		return m
	}
	m.ResourceMonitors = append(m.ResourceMonitors, monitor(heapMonitor, &heapv3.FixedHeapConfig{MaxHeapSizeBytes: o.HeapBytes}))
	m.BufferFactoryConfig = &overloadv3.BufferFactoryConfig{MinimumAccountToTrackPowerOfTwo: streamAccount}
	hasten := shed("reduce_timeouts", between(0.80, 0.95))
	hasten.TypedConfig = pack(&overloadv3.ScaleTimersOverloadActionConfig{TimerScaleFactors: []*overloadv3.ScaleTimersOverloadActionConfig_ScaleTimer{
		hastened(overloadv3.ScaleTimersOverloadActionConfig_HTTP_DOWNSTREAM_CONNECTION_IDLE),
		hastened(overloadv3.ScaleTimersOverloadActionConfig_HTTP_DOWNSTREAM_STREAM_IDLE),
		hastened(overloadv3.ScaleTimersOverloadActionConfig_TRANSPORT_SOCKET_CONNECT),
	}})
	m.Actions = []*overloadv3.OverloadAction{
		hasten,
		shed("shrink_heap", from(0.90)),
		shed("reset_high_memory_stream", between(0.92, 0.98)),
		shed("disable_http_keepalive", from(0.95)),
		shed("stop_accepting_connections", from(0.97)),
		shed("stop_accepting_requests", from(0.98)),
	}
	return m
}

func shed(name string, t *overloadv3.Trigger) *overloadv3.OverloadAction {
	return &overloadv3.OverloadAction{Name: "envoy.overload_actions." + name, Triggers: []*overloadv3.Trigger{t}}
}

// from acts fully at a share of the memory, between ever more from one to the other.
func from(share float64) *overloadv3.Trigger {
	return &overloadv3.Trigger{Name: heapMonitor, TriggerOneof: &overloadv3.Trigger_Threshold{Threshold: &overloadv3.ThresholdTrigger{Value: share}}}
}

func between(begin, full float64) *overloadv3.Trigger {
	return &overloadv3.Trigger{Name: heapMonitor, TriggerOneof: &overloadv3.Trigger_Scaled{Scaled: &overloadv3.ScaledTrigger{
		ScalingThreshold: begin, SaturationThreshold: full,
	}}}
}

// hastened shortens a timeout to a twentieth at worst.
func hastened(t overloadv3.ScaleTimersOverloadActionConfig_TimerType) *overloadv3.ScaleTimersOverloadActionConfig_ScaleTimer {
	return &overloadv3.ScaleTimersOverloadActionConfig_ScaleTimer{
		Timer: t, OverloadAdjust: &overloadv3.ScaleTimersOverloadActionConfig_ScaleTimer_MinScale{MinScale: &typev3.Percent{Value: 5}},
	}
}

func monitor(name string, config proto.Message) *overloadv3.ResourceMonitor {
	return &overloadv3.ResourceMonitor{Name: name, ConfigType: &overloadv3.ResourceMonitor_TypedConfig{TypedConfig: pack(config)}}
}
