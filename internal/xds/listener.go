package xds

import (
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// Options are what the operators of the edges choose for every listener. The zero value
// is an edge that clients reach directly.
type Options struct {
	// IPv4Only binds 0.0.0.0 instead of "::" for machines whose kernel has no IPv6.
	IPv4Only bool
	// TrustedHops is how many proxies in front of the edge append to X-Forwarded-For;
	// the client's address is taken from that far back. 0 takes the peer's address.
	TrustedHops uint32
	// AllowUnderscores passes header names with "_" on. They are legal, but CGI-like
	// backends cannot tell X_Forwarded_For from X-Forwarded-For, so by default such
	// headers are dropped, as nginx does.
	AllowUnderscores bool
	// AccessLog is the file that takes one JSON line a request, say /dev/stdout; empty is
	// none.
	AccessLog string
}

const (
	// A client gets this long to send its request headers, bytes or none (slowloris).
	requestHeadersTimeout = 10 * time.Second
	// A stream or a client's connection on which nothing happens is closed after this.
	clientIdle = 5 * time.Minute
	// HTTP/2 limits of one client connection (Envoy's advice for edges).
	http2Streams          = 100
	http2StreamWindow     = 64 << 10
	http2ConnectionWindow = 1 << 20
	// Connections that wait for accept; the kernel caps it at net.core.somaxconn.
	backlog = 4096
)

// Listener takes requests at the listener's port on every address of the machine, IPv6
// and IPv4, and routes them by the scopes of the listener.
func Listener(l model.Listener, o Options) *listenerv3.Listener {
	bind := socket("::", l.Port)
	bind.Ipv4Compat = true
	if o.IPv4Only {
		bind = socket("0.0.0.0", l.Port)
	}
	return &listenerv3.Listener{
		Name:                          string(l.ID),
		StatPrefix:                    string(l.ID),
		Address:                       &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: bind}},
		TrafficDirection:              corev3.TrafficDirection_INBOUND,
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(connectionBuffer),
		EnableReusePort:               wrapperspb.Bool(true),
		TcpBacklogSize:                wrapperspb.UInt32(backlog),
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: pack(connectionManager(l, o))},
		}}}},
	}
}

func connectionManager(l model.Listener, o Options) *hcmv3.HttpConnectionManager {
	underscores := corev3.HttpProtocolOptions_DROP_HEADER
	if o.AllowUnderscores {
		underscores = corev3.HttpProtocolOptions_ALLOW
	}
	m := &hcmv3.HttpConnectionManager{
		StatPrefix:                 string(l.ID),
		CodecType:                  hcmv3.HttpConnectionManager_AUTO,
		RouteSpecifier:             scopedRoutes(),
		HttpFilters:                httpFilters(l),
		StripPortMode:              nil, // backends see the Host that the client sent
		StripTrailingHostDot:       true,
		ServerHeaderTransformation: hcmv3.HttpConnectionManager_PASS_THROUGH,

		// The peer is the client, or TrustedHops proxies stand before it. Without an
		// InternalAddressConfig no address is trusted to set Envoy's own headers (Envoy 1.33;
		// an empty one would trust private addresses).
		UseRemoteAddress:  wrapperspb.Bool(true),
		XffNumTrustedHops: o.TrustedHops,

		// "/a/../b" is routed as "/b". Slashes are left as they are: "//" and "%2F" mean
		// something to object stores, package registries and forges.
		NormalizePath:                wrapperspb.Bool(true),
		MergeSlashes:                 false,
		PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_KEEP_UNCHANGED,

		RequestHeadersTimeout: durationpb.New(requestHeadersTimeout),
		StreamIdleTimeout:     durationpb.New(clientIdle),
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
			IdleTimeout:                  durationpb.New(clientIdle),
			HeadersWithUnderscoresAction: underscores,
		},
		HttpProtocolOptions: &corev3.Http1ProtocolOptions{
			AcceptHttp_10: true,
			// Some clients offer TLS in every request (RFC 2817); they do not insist.
			IgnoreHttp_11Upgrade: []*matcherv3.StringMatcher{{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: "TLS/"}}},
		},
		Http2ProtocolOptions: &corev3.Http2ProtocolOptions{
			MaxConcurrentStreams:        wrapperspb.UInt32(http2Streams),
			InitialStreamWindowSize:     wrapperspb.UInt32(http2StreamWindow),
			InitialConnectionWindowSize: wrapperspb.UInt32(http2ConnectionWindow),
			AllowConnect:                true, // WebSocket over HTTP/2 (RFC 8441)
		},
		UpgradeConfigs:                []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: webSocket}},
		EarlyHeaderMutationExtensions: []*corev3.TypedExtensionConfig{removeScope()},
		LocalReplyConfig:              localReplies(),
	}
	if o.AccessLog != "" {
		m.AccessLog = []*accesslogv3.AccessLog{accessLog(o.AccessLog)}
	}
	return m
}

// localReplies says in one short line why the proxy itself answered. Fixed responses of
// routes keep their own body.
func localReplies() *hcmv3.LocalReplyConfig {
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{{
		Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
			ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{
				Flags: []string{"NR", "UH", "UF", "UC", "UT", "UR", "UO", "LR", "URX", "NC", "UPE", "OM"},
			},
		}},
		BodyFormatOverride: &corev3.SubstitutionFormatString{Format: &corev3.SubstitutionFormatString_TextFormatSource{
			TextFormatSource: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{
				InlineString: "%RESPONSE_CODE% %RESPONSE_FLAGS_LONG%\n",
			}},
		}},
	}}}
}

func accessLog(path string) *accesslogv3.AccessLog {
	fields := map[string]*structpb.Value{}
	for name, command := range map[string]string{
		"time":              "%START_TIME%",
		"client":            "%DOWNSTREAM_REMOTE_ADDRESS%",
		"listener":          "%DOWNSTREAM_LOCAL_ADDRESS%",
		"method":            "%REQ(:METHOD)%",
		"host":              "%REQ(:AUTHORITY)%",
		"path":              "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
		"protocol":          "%PROTOCOL%",
		"status":            "%RESPONSE_CODE%",
		"flags":             "%RESPONSE_FLAGS%",
		"details":           "%RESPONSE_CODE_DETAILS%",
		"bytes_in":          "%BYTES_RECEIVED%",
		"bytes_out":         "%BYTES_SENT%",
		"duration_ms":       "%DURATION%",
		"backend":           "%UPSTREAM_HOST%",
		"group":             "%UPSTREAM_CLUSTER%",
		"route":             "%ROUTE_NAME%",
		"attempts":          "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
		"request_id":        "%REQ(X-REQUEST-ID)%",
		"user_agent":        "%REQ(USER-AGENT)%",
		"transport_failure": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
	} {
		fields[name] = structpb.NewStringValue(command)
	}
	return &accesslogv3.AccessLog{
		Name: "envoy.access_loggers.file",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: pack(&filelogv3.FileAccessLog{
			Path: path,
			AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
				Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: &structpb.Struct{Fields: fields}},
			}},
		})},
	}
}

func socket(host string, port uint16) *corev3.SocketAddress {
	return &corev3.SocketAddress{Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}
}

func address(host string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: socket(host, port)}}
}

func pipe(path string) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path, Mode: 0o600}}}
}

// typedOptions are the protocol options of a cluster.
func typedOptions(m proto.Message) map[string]*anypb.Any {
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": pack(m)}
}
