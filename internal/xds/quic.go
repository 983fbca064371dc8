package xds

import (
	"fmt"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	headermutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	quicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/quic/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// altSvcAge is how long clients may remember that a host speaks HTTP/3, seconds.
const altSvcAge = 24 * 60 * 60

// HTTP3 reports whether a listener serves HTTP/3 too. One that verifies clients does not:
// Envoy 1.40 asks for no certificates over QUIC, so there the check would be missing.
// Neither does one behind proxies that send PROXY headers, which UDP has none of.
func HTTP3(l model.Listener) bool {
	return l.Protocol == model.ProtocolHTTPS && l.ClientValidation == nil &&
		l.Clients != nil && l.Clients.HTTP3 && !l.Clients.AcceptProxyProtocol
}

// QUICListenerName names the UDP half of a listener with HTTP/3.
func QUICListenerName(id model.ListenerID) string { return string(id) + "/quic" }

// http3Sets is for how many sets of certificates a listener serves HTTP/3: each takes half a MiB of
// Envoy, which asks for none of them on demand over QUIC (1.40), and all are looked at when one comes. The
// names of others are served over TCP alone.
const http3Sets = 256

// QUICListener is the UDP half of a listener with HTTP/3. hosts are all server names;
// those that hand on bytes are left out, and those beyond http3Sets.
func QUICListener(l model.Listener, hosts []TLSHost, o Options) *listenerv3.Listener {
	out := bind(l, o, corev3.SocketAddress_UDP)
	out.Name = QUICListenerName(l.ID)
	out.UdpListenerConfig = &listenerv3.UdpListenerConfig{QuicOptions: &listenerv3.QuicProtocolOptions{
		IdleTimeout:            durationpb.New(clientIdle),
		CryptoHandshakeTimeout: durationpb.New(handshakeTimeout),
		QuicProtocolOptions:    &corev3.QuicProtocolOptions{MaxConcurrentStreams: wrapperspb.UInt32(http3Streams(l))},
	}}
	var names serverNames
	for _, c := range chains(l, hosts, true, o) {
		if len(c.tcp) > 0 || len(c.certs) == 0 || len(out.FilterChains) == http3Sets {
			names.close(c)
			continue
		}
		m := connectionManager(l, c, o)
		m.CodecType = hcmv3.HttpConnectionManager_HTTP3
		m.Http3ProtocolOptions = &corev3.Http3ProtocolOptions{
			AllowExtendedConnect:                    true,
			OverrideStreamErrorOnInvalidHttpMessage: wrapperspb.Bool(true),
		}
		out.FilterChains = append(out.FilterChains, &listenerv3.FilterChain{
			Name:    c.name(),
			Filters: []*listenerv3.Filter{managerFilter(m)},
			TransportSocket: &corev3.TransportSocket{
				Name: "envoy.transport_sockets.quic",
				ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(&quicv3.QuicDownstreamTransport{
					DownstreamTlsContext: downstreamTLS(l, c, false),
					// Whoever has seen a request in early data may send it again (RFC 8446, 8), and no
					// backend here is told that it came so (RFC 8470).
					EnableEarlyData: wrapperspb.Bool(false),
				})},
			},
		})
		names.add(c)
	}
	out.FilterChainMatcher = names.matcher()
	return out
}

func http3Streams(l model.Listener) uint32 {
	if l.Clients != nil && l.Clients.MaxStreams > 0 {
		return l.Clients.MaxStreams
	}
	return http2Streams
}

// altSvc tells clients that the same port speaks HTTP/3 (RFC 7838, RFC 9114, 3.1).
func altSvc(l model.Listener) *hcmv3.HttpFilter {
	return httpFilter("fairlead.alt_svc", &headermutationv3.HeaderMutation{Mutations: &headermutationv3.Mutations{
		ResponseMutations: []*mutationv3.HeaderMutation{{Action: &mutationv3.HeaderMutation_Append{
			Append: &corev3.HeaderValueOption{
				Header:       &corev3.HeaderValue{Key: "alt-svc", Value: fmt.Sprintf(`h3=":%d"; ma=%d`, l.Port, altSvcAge)},
				AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
			},
		}}},
	}})
}
