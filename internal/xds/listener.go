package xds

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/proxy_protocol/v3"
	tlsinspectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// Options are the settings of the edges' operators for every listener. The zero value is
// an edge that clients reach directly.
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
	// MinTLS is a lower bound for the TLS version of every host name; empty is none.
	MinTLS model.TLSVersion
}

const (
	// webSocket is what connections may be upgraded to. Envoy decides whether a route takes
	// upgrades when it builds a request's filters, and the request has no route then: the
	// normaliser is one of the filters. So listeners take WebSockets in general, and the
	// normaliser refuses those that the route does not want, and all other upgrades.
	webSocket = "websocket"

	// A client gets this long to send its request headers, bytes or none (slowloris).
	requestHeadersTimeout = 10 * time.Second
	// A connection of bytes on which nothing happens is closed after this, about as in Contour 0.15:
	// those of pools of databases are quiet for long, and Linux looks for their peers every 2 h.
	tcpIdle = 9000 * time.Second
	// Before a connection ends on which a request is not complete, its client gets this long to
	// read the answer: bytes that come after the end would make the kernel discard it. Envoy's
	// second would be seen in browsers: they wait for the end of a connection over which a
	// WebSocket was closed, and to Envoy 1.40 such a request is never complete.
	lingering = 250 * time.Millisecond
	// A stream or a client's connection on which nothing happens is closed after this.
	clientIdle = 5 * time.Minute
	// HTTP/2 limits of one client connection (Envoy's advice for edges).
	http2Streams          = 100
	http2StreamWindow     = 64 << 10
	http2ConnectionWindow = 1 << 20
	// Connections that wait for accept; the kernel caps it at net.core.somaxconn.
	backlog = 4096
)

// Listener takes connections at the listener's port, on its own addresses or on every
// address of the machine, IPv6 and IPv4, and routes requests by the scopes of the
// listener. hosts are the server names of one with HTTPS, in any order; those that are
// Plain need not be there unless a wildcard among the others covers them.
func Listener(l model.Listener, hosts []TLSHost, o Options) *listenerv3.Listener {
	out := bind(l, o, corev3.SocketAddress_TCP)
	out.Name = string(l.ID)
	out.TcpBacklogSize = wrapperspb.UInt32(backlog)
	out.ListenerFiltersTimeout = durationpb.New(handshakeTimeout)
	if l.Clients != nil && l.Clients.AcceptProxyProtocol {
		out.ListenerFilters = append(out.ListenerFilters, listenerFilter("envoy.filters.listener.proxy_protocol", &proxyprotocolv3.ProxyProtocol{}))
	}
	if l.Protocol != model.ProtocolHTTPS {
		out.FilterChains = []*listenerv3.FilterChain{{
			Filters: append(connectionLimit(l), managerFilter(connectionManager(l, chain{}, o))),
		}}
		return out
	}
	out.ListenerFilters = append(out.ListenerFilters, listenerFilter("envoy.filters.listener.tls_inspector", &tlsinspectorv3.TlsInspector{}))
	var names serverNames
	for _, c := range chains(l, hosts, false, o) {
		out.FilterChains = append(out.FilterChains, tlsChain(l, c, o))
		names.add(c)
	}
	out.FilterChainMatcher = names.overTLS()
	return out
}

// bind is a listener of any kind without what it does. Every worker has a socket of its
// own, and so the listener of one Gateway's addresses may stand next to that of all
// addresses; the kernel prefers the first. Addresses need not be at the machine yet.
func bind(l model.Listener, o Options, protocol corev3.SocketAddress_Protocol) *listenerv3.Listener {
	out := &listenerv3.Listener{
		StatPrefix:                    string(l.ID),
		TrafficDirection:              corev3.TrafficDirection_INBOUND,
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(connectionBuffer),
		EnableReusePort:               wrapperspb.Bool(true),
	}
	at := func(s *corev3.SocketAddress) *corev3.Address {
		s.Protocol = protocol
		return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: s}}
	}
	if len(l.Addresses) == 0 {
		all := socket("::", l.Port)
		all.Ipv4Compat = true
		if o.IPv4Only {
			all = socket("0.0.0.0", l.Port)
		}
		out.Address = at(all)
		return out
	}
	out.Freebind = wrapperspb.Bool(true)
	for i, a := range l.Addresses {
		address := at(socket(a.Unmap().WithZone("").String(), l.Port))
		if i == 0 {
			out.Address = address
			continue
		}
		out.AdditionalAddresses = append(out.AdditionalAddresses, &listenerv3.AdditionalAddress{Address: address})
	}
	return out
}

func listenerFilter(name string, config proto.Message) *listenerv3.ListenerFilter {
	return &listenerv3.ListenerFilter{Name: name, ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: pack(config)}}
}

func managerFilter(m *hcmv3.HttpConnectionManager) *listenerv3.Filter {
	return networkFilter("envoy.filters.network.http_connection_manager", m)
}

// connectionManager is what HTTP is served by, to the clients of one filter chain.
func connectionManager(l model.Listener, c chain, o Options) *hcmv3.HttpConnectionManager {
	underscores := corev3.HttpProtocolOptions_DROP_HEADER
	if o.AllowUnderscores {
		underscores = corev3.HttpProtocolOptions_ALLOW
	}
	m := &hcmv3.HttpConnectionManager{
		StatPrefix:                 string(l.ID),
		CodecType:                  hcmv3.HttpConnectionManager_AUTO,
		RouteSpecifier:             scopedRoutes(),
		HttpFilters:                httpFilters(l, c, o),
		StripPortMode:              nil, // backends see the Host that the client sent
		StripTrailingHostDot:       true,
		ServerHeaderTransformation: hcmv3.HttpConnectionManager_PASS_THROUGH,

		// The peer is the client, or TrustedHops proxies stand before it. Without an
		// InternalAddressConfig no address is trusted to set Envoy's own headers (Envoy 1.33;
		// an empty one would trust private addresses).
		UseRemoteAddress:  wrapperspb.Bool(true),
		XffNumTrustedHops: o.TrustedHops,

		// "/a/../b" is routed as "/b", "//b" as "/b", and clients of "/%2Fb" are sent to "/b":
		// what a backend may take for a path is found by that path's rules (ADR 42).
		NormalizePath:                wrapperspb.Bool(true),
		MergeSlashes:                 true,
		PathWithEscapedSlashesAction: hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT,

		RequestHeadersTimeout: durationpb.New(requestHeadersTimeout),
		DelayedCloseTimeout:   durationpb.New(lingering),
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
			// A bad request ends itself, and not those that share its connection.
			OverrideStreamErrorOnInvalidHttpMessage: wrapperspb.Bool(true),
		},
		UpgradeConfigs: []*hcmv3.HttpConnectionManager_UpgradeConfig{{UpgradeType: webSocket}},
		AccessLog:      append(accessLogs(l, o), requestStats(l), tapLog()),
	}
	boundHeaders(m, l)
	if v := l.ClientValidation; v != nil && !v.Optional {
		// Backends learn whose certificate was verified; what a client says of it is dropped,
		// here and where nothing is verified.
		m.ForwardClientCertDetails = hcmv3.HttpConnectionManager_SANITIZE_SET
		m.SetCurrentClientCertDetails = &hcmv3.HttpConnectionManager_SetCurrentClientCertDetails{
			Subject: wrapperspb.Bool(true), Dns: true, Uri: true,
		}
	}
	var pages []model.ErrorPage
	if l.Clients != nil {
		treat(m, *l.Clients)
		pages = l.Clients.ErrorPages
	}
	m.LocalReplyConfig = localReplies(pages)
	tellBackends(m, l.Clients)
	return m
}

// treat applies what a policy wants for clients.
func treat(m *hcmv3.HttpConnectionManager, c model.ClientSettings) {
	common := m.CommonHttpProtocolOptions
	if c.TrustedHops != nil {
		m.XffNumTrustedHops = *c.TrustedHops
	}
	m.MergeSlashes = !c.KeepSlashes
	m.PathWithEscapedSlashesAction = map[model.EscapedSlashes]hcmv3.HttpConnectionManager_PathWithEscapedSlashesAction{
		model.SlashesRedirect: hcmv3.HttpConnectionManager_UNESCAPE_AND_REDIRECT,
		model.SlashesUnescape: hcmv3.HttpConnectionManager_UNESCAPE_AND_FORWARD,
		model.SlashesReject:   hcmv3.HttpConnectionManager_REJECT_REQUEST,
		model.SlashesKeep:     hcmv3.HttpConnectionManager_KEEP_UNCHANGED,
	}[c.EscapedSlashes]
	if c.MaxRequestsPerConnection > 0 {
		common.MaxRequestsPerConnection = wrapperspb.UInt32(c.MaxRequestsPerConnection)
	}
	if c.MaxStreams > 0 {
		m.Http2ProtocolOptions.MaxConcurrentStreams = wrapperspb.UInt32(c.MaxStreams)
	}
	if c.HeadersTimeout > 0 {
		m.RequestHeadersTimeout = durationpb.New(c.HeadersTimeout)
	}
	if c.RequestTimeout > 0 {
		m.RequestTimeout = durationpb.New(c.RequestTimeout)
	}
	if c.IdleTimeout > 0 {
		m.StreamIdleTimeout = durationpb.New(c.IdleTimeout)
		common.IdleTimeout = durationpb.New(c.IdleTimeout)
	}
	if c.Tracing != nil && c.Tracing.Collector != "" {
		m.Tracing = tracing(*c.Tracing)
		m.AccessLog = append(m.AccessLog, exemplarLog(*c.Tracing))
	}
}

func socket(host string, port uint16) *corev3.SocketAddress {
	return &corev3.SocketAddress{Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)}}
}

func address(host string, port uint16) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: socket(host, port)}}
}

func pipe(path string, mode uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path, Mode: mode}}}
}

// typedOptions are the protocol options of a cluster.
func typedOptions(m proto.Message) map[string]*anypb.Any {
	return map[string]*anypb.Any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": pack(m)}
}
