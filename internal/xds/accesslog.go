package xds

import (
	"cmp"
	"maps"
	"slices"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	otellogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	samplersv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/samplers/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// AccessLogFields are the names of the fields that a line of the access log may have,
// sorted.
func AccessLogFields() []string { return slices.Sorted(maps.Keys(accessFields)) }

// standardOutput is the file of lines that a policy asks for where the operators of the
// edges name none: Envoy's own output, which is kept and bounded.
const standardOutput = "/dev/stdout"

// accessLogs are where lines about a listener's requests go: where a policy says, else to
// the machine's file, if there is one.
func accessLogs(l model.Listener, o Options) []*accesslogv3.AccessLog {
	log, choice := accessLog(l, o, decision())
	if log == nil {
		return nil
	}
	log.Filter = wanted(choice)
	return []*accesslogv3.AccessLog{log}
}

// connectionLogs are the same about connections of bytes.
func connectionLogs(l model.Listener, o Options) []*accesslogv3.AccessLog {
	log, choice := accessLog(l, o, connectionDecision())
	if log == nil {
		return nil
	}
	log.Filter = wantedConnections(choice)
	return []*accesslogv3.AccessLog{log}
}

// accessLog is the log of all requests, and what the listener's policy chose; nil is none. decision is an expression.
func accessLog(l model.Listener, o Options, decision string) (*accesslogv3.AccessLog, model.AccessLog) {
	var choice model.AccessLog
	if l.Clients != nil && l.Clients.AccessLog != nil {
		choice = *l.Clients.AccessLog
		o.AccessLog = cmp.Or(o.AccessLog, standardOutput)
	}
	if choice.Off || choice.Collector == "" && o.AccessLog == "" {
		return nil, choice
	}
	if choice.Collector == "" && len(choice.Template) > 0 {
		return templateLog(o.AccessLog, choice.Template, decision), choice
	}
	fields := maps.Clone(accessFields)
	fields["decision"] = computed(decision)
	if len(choice.Fields) > 0 {
		maps.DeleteFunc(fields, func(name, _ string) bool { return !slices.Contains(choice.Fields, name) })
	}
	if choice.Collector != "" {
		return collectorLog(choice.Collector, fields), choice
	}
	return fileLog(o.AccessLog, fields), choice
}

// grpcCall is for calls of gRPC.
func grpcCall() *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_HeaderFilter{HeaderFilter: &accesslogv3.HeaderFilter{
		Header: headerMatch(model.ValueMatch{Name: "content-type", Value: `application/grpc([+;].*)?`, Regex: true}),
	}}}
}

func anyOf(filters ...*accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_OrFilter{OrFilter: &accesslogv3.OrFilter{Filters: filters}}}
}

func allOf(filters ...*accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{AndFilter: &accesslogv3.AndFilter{Filters: filters}}}
}

func fileLog(path string, commands map[string]string) *accesslogv3.AccessLog {
	fields := map[string]*structpb.Value{}
	for name, command := range commands {
		fields[name] = structpb.NewStringValue(command)
	}
	return toFile(path, &corev3.SubstitutionFormatString{
		Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: &structpb.Struct{Fields: fields}}, Formatters: formatters(),
	})
}

func toFile(path string, format *corev3.SubstitutionFormatString) *accesslogv3.AccessLog {
	return accessLogger("envoy.access_loggers.file", &filelogv3.FileAccessLog{
		Path: path, AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: format},
	})
}

// collectorLog sends lines to an OpenTelemetry collector; fields are attributes.
func collectorLog(collector model.GroupID, commands map[string]string) *accesslogv3.AccessLog {
	attributes := &commonv1.KeyValueList{}
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		attributes.Values = append(attributes.Values, &commonv1.KeyValue{
			Key:   name,
			Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: commands[name]}},
		})
	}
	return accessLogger("envoy.access_loggers.open_telemetry", &otellogv3.OpenTelemetryAccessLogConfig{
		GrpcService:          grpcTo(collector),
		LogName:              "fairlead",
		DisableBuiltinLabels: true,
		ResourceAttributes: &commonv1.KeyValueList{Values: []*commonv1.KeyValue{{
			Key: "service.name", Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: "fairlead"}},
		}}},
		Attributes: attributes, Formatters: formatters(),
	})
}

func accessLogger(name string, config proto.Message) *accesslogv3.AccessLog {
	return &accesslogv3.AccessLog{Name: name, ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: pack(config)}}
}

func grpcTo(g model.GroupID) *corev3.GrpcService {
	return &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: string(g)},
	}}
}

// tracing reports spans to an OpenTelemetry collector. A trace that a client began goes on
// as the client decided; of the other requests so many percent begin one.
func tracing(t model.Tracing) *hcmv3.HttpConnectionManager_Tracing {
	all := &typev3.Percent{Value: 100} // the sampler decides
	ratio := sampler("trace_id_ratio_based", &samplersv3.TraceIdRatioBasedSamplerConfig{
		SamplingPercentage: &typev3.FractionalPercent{
			Numerator: uint32(min(100, max(0, t.Percent)) * 10_000), Denominator: typev3.FractionalPercent_MILLION,
		},
	})
	return &hcmv3.HttpConnectionManager_Tracing{
		RandomSampling:    all,
		ClientSampling:    all,
		OverallSampling:   all,
		SpawnUpstreamSpan: wrapperspb.Bool(true),
		CustomTags:        spanAttributes(),
		Provider: &tracev3.Tracing_Http{
			Name: "envoy.tracers.opentelemetry",
			ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: pack(&tracev3.OpenTelemetryConfig{
				GrpcService: grpcTo(t.Collector),
				ServiceName: cmp.Or(t.ServiceName, "fairlead"),
				Sampler:     sampler("parent_based", &samplersv3.ParentBasedSamplerConfig{WrappedSampler: ratio}),
			})},
		},
	}
}

// spanFields are fields of the access log that spans have as attributes, too. Nothing of them is what a client says.
var spanFields = []string{"route", "group", "backend"}

// spanAttributes are the attributes of spans beside Envoy's own.
func spanAttributes() (tags []*tracingv3.CustomTag) {
	for _, f := range spanFields {
		tags = append(tags, &tracingv3.CustomTag{Tag: "fairlead." + f, Type: &tracingv3.CustomTag_Value{Value: accessFields[f]}})
	}
	return tags
}

func sampler(name string, config proto.Message) *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{Name: "envoy.tracers.opentelemetry.samplers." + name, TypedConfig: pack(config)}
}
