package xds

import (
	"cmp"
	"math"
	"net/netip"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	proxyprotocolv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/proxy_protocol/v3"
	rawv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

const (
	alpnHTTP1 = "http/1.1"
	alpnHTTP2 = "h2"

	// An HTTP/2 connection to a backend that does not answer a ping this long is given up: one
	// connection carries many requests, and each would wait for its own timeout.
	pingInterval = 30 * time.Second
	pingTimeout  = 10 * time.Second

	// Headers of an answer; Envoy's own 100 are few, and their size is bounded, too.
	maxAnswerHeaders = 1000
)

// protocolOptions are how HTTP is spoken with the backends of a group.
func protocolOptions(g model.BackendGroup) *httpv3.HttpProtocolOptions {
	http1 := &corev3.Http1ProtocolOptions{}
	http2 := &corev3.Http2ProtocolOptions{ConnectionKeepalive: &corev3.KeepaliveSettings{
		Interval: durationpb.New(pingInterval), Timeout: durationpb.New(pingTimeout),
	}}
	o := &httpv3.HttpProtocolOptions{CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{
		IdleTimeout:     durationpb.New(cmp.Or(max(g.IdleTimeout, 0), upstreamIdle)),
		MaxHeadersCount: wrapperspb.UInt32(maxAnswerHeaders),
	}}
	explicit := &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: http1},
	}
	switch {
	case g.Protocol == model.BackendAuto && g.TLS != nil:
		o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_AutoConfig{AutoConfig: &httpv3.HttpProtocolOptions_AutoHttpConfig{
			HttpProtocolOptions: http1, Http2ProtocolOptions: http2,
		}}
		return o
	case g.Protocol == model.BackendHTTP2:
		explicit.ProtocolConfig = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{Http2ProtocolOptions: http2}
	}
	o.UpstreamProtocolOptions = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: explicit}
	return o
}

// transport is what connections to the backends of a group begin with; nil is nothing.
func transport(g model.BackendGroup) *corev3.TransportSocket {
	inner := socketOf("envoy.transport_sockets.raw_buffer", &rawv3.RawBuffer{})
	if g.TLS != nil {
		inner = socketOf("envoy.transport_sockets.tls", backendTLS(g))
	}
	if g.SendProxyProtocol {
		return socketOf("envoy.transport_sockets.upstream_proxy_protocol", &proxyprotocolv3.ProxyProtocolUpstreamTransport{
			Config:          &corev3.ProxyProtocolConfig{Version: corev3.ProxyProtocolConfig_V2},
			TransportSocket: inner,
		})
	}
	if g.TLS == nil {
		return nil
	}
	return inner
}

func socketOf(name string, config proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{Name: name, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(config)}}
}

// backendTLS verifies the backends of a group by authorities and by name. Authorities and the
// certificate to show are Secrets of their own, so that their renewal changes no cluster; a
// cluster is not warm before they have come.
func backendTLS(g model.BackendGroup) *tlsv3.UpstreamTlsContext {
	common := &tlsv3.CommonTlsContext{
		TlsParams: &tlsv3.TlsParameters{TlsMinimumProtocolVersion: tlsv3.TlsParameters_TLSv1_2},
		ValidationContextType: &tlsv3.CommonTlsContext_CombinedValidationContext{
			CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
				DefaultValidationContext:         &tlsv3.CertificateValidationContext{MatchTypedSubjectAltNames: altNames(g.TLS)},
				ValidationContextSdsSecretConfig: sds(AuthorityName(g.TLS.Authorities...)),
			},
		},
	}
	if g.TLS.Unverified {
		common.ValidationContextType = nil
	}
	switch g.Protocol {
	case model.BackendHTTP2:
		common.AlpnProtocols = []string{alpnHTTP2}
	case model.BackendHTTP1:
		common.AlpnProtocols = []string{alpnHTTP1}
	case model.BackendAuto, model.BackendTCP: // Envoy's own offer, and the client's business
	}
	if g.TLS.Certificate != "" {
		common.TlsCertificateSdsSecretConfigs = []*tlsv3.SdsSecretConfig{sds(SecretName(g.TLS.Certificate))}
	}
	out := &tlsv3.UpstreamTlsContext{CommonTlsContext: common}
	if _, err := netip.ParseAddr(g.TLS.ServerName); err != nil {
		out.Sni = g.TLS.ServerName // an address is no server name (RFC 6066, 3)
	}
	return out
}

// altNames are the names of which a backend's certificate must have one.
func altNames(t *model.BackendTLS) []*tlsv3.SubjectAltNameMatcher {
	one := func(kind tlsv3.SubjectAltNameMatcher_SanType, value string) *tlsv3.SubjectAltNameMatcher {
		return &tlsv3.SubjectAltNameMatcher{SanType: kind, Matcher: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Exact{Exact: value},
		}}
	}
	dns := func(name string) *tlsv3.SubjectAltNameMatcher {
		if a, err := netip.ParseAddr(name); err == nil {
			return one(tlsv3.SubjectAltNameMatcher_IP_ADDRESS, a.String())
		}
		return one(tlsv3.SubjectAltNameMatcher_DNS, name)
	}
	var out []*tlsv3.SubjectAltNameMatcher
	for _, n := range t.Names {
		if n.URI != "" {
			out = append(out, one(tlsv3.SubjectAltNameMatcher_URI, n.URI))
		} else {
			out = append(out, dns(n.DNS))
		}
	}
	if len(out) == 0 && t.ServerName != "" {
		out = append(out, dns(t.ServerName))
	}
	return out
}

// breaker lifts Envoy's limits of 1,024: what protects a backend is the team's to say.
// Retries alone are bounded, to a quarter of what is under way.
func breaker(l *model.BackendLimits) *clusterv3.CircuitBreakers_Thresholds {
	if l == nil {
		l = &model.BackendLimits{}
	}
	limit := func(n uint32) *wrapperspb.UInt32Value { return wrapperspb.UInt32(cmp.Or(n, math.MaxUint32)) }
	b := &clusterv3.CircuitBreakers_Thresholds{
		MaxConnections:     limit(l.MaxConnections),
		MaxPendingRequests: limit(l.MaxPending),
		MaxRequests:        limit(l.MaxRequests),
	}
	if l.MaxRetries > 0 && l.MaxRetryBudget == 0 {
		b.MaxRetries = wrapperspb.UInt32(l.MaxRetries)
		return b
	}
	b.RetryBudget = &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
		BudgetPercent: &typev3.Percent{Value: float64(cmp.Or(l.MaxRetryBudget, 25))}, MinRetryConcurrency: wrapperspb.UInt32(16),
	}
	return b
}

// outlier takes backends out that fail several times in a row. Envoy's statistics over success
// rates stay off: nobody asked for them.
func outlier(o *model.OutlierDetection) *clusterv3.OutlierDetection {
	if o == nil {
		return nil
	}
	return &clusterv3.OutlierDetection{
		Consecutive_5Xx:                    wrapperspb.UInt32(max(o.ConsecutiveErrors, 1)),
		EnforcingConsecutive_5Xx:           wrapperspb.UInt32(100),
		EnforcingConsecutiveGatewayFailure: wrapperspb.UInt32(0),
		EnforcingSuccessRate:               wrapperspb.UInt32(0),
		Interval:                           positive(o.Interval),
		BaseEjectionTime:                   positive(o.EjectionTime),
		MaxEjectionTime:                    positive(max(o.EjectionTime, maxEjection)),
		MaxEjectionPercent:                 wrapperspb.UInt32(min(o.MaxEjected, 100)),
	}
}

// maxEjection is how far Envoy lets the time grow for which a backend is out (its default).
const maxEjection = 300 * time.Second

// positive is a duration that Envoy must not have as zero; its default where it is.
func positive(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(max(d, time.Millisecond))
}
