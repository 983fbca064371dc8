package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	sniv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/cert_mappers/sni/v3"
	ondemandv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/cert_selectors/on_demand_secret/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// TLSHost is a server name at a listener.
type TLSHost struct {
	model.TLSHost
	// Apart keeps the host off the certificates for which Envoy asks by server name: the
	// name has another one at another shared listener.
	Apart bool
}

// OnDemand reports whether Envoy asks for the certificate of a host by its name when a
// client wants it (HostSecretName), so that the listener need not change with it. Such
// names have no more than a certificate and a minimum version; listeners of one Gateway
// have none, because another Gateway may have the same name.
func OnDemand(h model.TLSHost) bool {
	return !h.Listener.Own() && !isWild(h.Host) && len(h.Certificates) == 1 && len(h.TCP) == 0
}

// Plain reports whether a listener is the same with and without the host, as long as no
// wildcard of the listener covers it.
func Plain(h model.TLSHost) bool { return OnDemand(h) && h.MinVersion == "" }

func isWild(host string) bool { return strings.HasPrefix(host, "*") }

// covers says whether a wildcard holds a name, be it exact or a wildcard itself.
func covers(wild, name string) bool {
	return wild != name && (wild == "*" || strings.HasPrefix(wild, "*.") && strings.HasSuffix(name, wild[1:]))
}

const (
	// A client gets this long for its TLS handshake, and as long before for what tells
	// server name and protocol.
	handshakeTimeout = 10 * time.Second
)

// chain is one way of serving TLS: which server names, and what becomes of them.
type chain struct {
	key   string   // what it is one for
	names []string // sorted; empty is every other
	// section is the wildcard that the names are below; empty if each is a section itself.
	section string
	// below are the wildcards of the listener that are more specific than section.
	below    []string
	onDemand bool
	certs    []model.CertificateID
	min      model.TLSVersion
	tcp      []model.WeightedGroup
}

// chains sorts the hosts of a listener into as few chains as can be: one for all names
// whose certificate is asked for on demand, one more for each minimum version and for
// those that a wildcard would take, one for each wildcard, and one for each set of
// certificates otherwise. quic has nothing on demand (Envoy 1.40).
func chains(l model.Listener, hosts []TLSHost, quic bool, o Options) []chain {
	var wild []string
	for _, h := range hosts {
		if isWild(h.Host) {
			wild = append(wild, h.Host)
		}
	}
	slices.Sort(wild)
	grouped := map[string]*chain{}
	add := func(key string, name string, c chain) {
		if grouped[key] == nil {
			c.key = key
			grouped[key] = &c
		}
		if name != "" && name != "*" {
			grouped[key].names = append(grouped[key].names, name)
		}
	}
	if !l.ID.Own() && !quic && !slices.Contains(wild, "*") {
		add("", "", chain{onDemand: true, min: minTLS(l, "", o)})
	}
	for _, h := range hosts {
		version := minTLS(l, h.MinVersion, o)
		covered := slices.ContainsFunc(wild, func(w string) bool { return covers(w, h.Host) })
		switch {
		case len(h.TCP) > 0 || len(h.Certificates) == 0:
			add("tcp "+h.Host, h.Host, chain{certs: h.Certificates, min: version, tcp: h.TCP})
		case isWild(h.Host):
			c := chain{section: h.Host, certs: h.Certificates, min: version}
			for _, w := range wild {
				if covers(h.Host, w) {
					c.below = append(c.below, w)
				}
			}
			add("wild "+h.Host, h.Host, c)
		case quic || h.Apart || !OnDemand(h.TLSHost):
			key := []string{"set", string(version)}
			for _, c := range h.Certificates {
				key = append(key, string(c))
			}
			add(strings.Join(key, " "), h.Host, chain{certs: h.Certificates, min: version})
		case covered || h.MinVersion != "":
			add("demand "+string(version), h.Host, chain{onDemand: true, min: version})
		}
	}
	var out []chain
	for _, key := range slices.Sorted(maps.Keys(grouped)) {
		c := *grouped[key]
		slices.Sort(c.names)
		out = append(out, c)
	}
	return out
}

// name is the chain's, whatever names it serves: a digest of what it is one for. It is whole: Envoy refuses a listener
// with two chains of one name, and whoever writes routes chooses what is digested.
func (c chain) name() string {
	digest := sha256.Sum256([]byte(c.key))
	return hex.EncodeToString(digest[:])
}

// minTLS is the least version of a host, or where it asks for none, of all at a listener.
func minTLS(l model.Listener, version model.TLSVersion, o Options) model.TLSVersion {
	var clients model.TLSVersion
	if l.Clients != nil {
		clients = l.Clients.MinTLS
	}
	return model.LeastTLS(version, clients, o.MinTLS)
}

// tlsChain words one chain at a TCP listener.
func tlsChain(l model.Listener, c chain, o Options) *listenerv3.FilterChain {
	f := &listenerv3.FilterChain{
		Name: c.name(),
		// Without a bound, a handshake whose certificate does not come waits for ever.
		TransportSocketConnectTimeout: durationpb.New(handshakeTimeout),
	}
	ends := c.onDemand || len(c.certs) > 0
	if ends && len(c.tcp) == 0 {
		f.Filters = append(connectionLimit(l), managerFilter(connectionManager(l, c, o)))
	} else {
		// Without groups connections are closed. A connection manager would answer the
		// handshake with a bad request in clear text.
		f.Filters = append(connectionLimit(l), tcpProxy(l, c.tcp, o))
	}
	if ends {
		f.TransportSocket = tlsSocket(downstreamTLS(l, c, len(c.tcp) == 0))
	}
	return f
}

func tlsSocket(context proto.Message) *corev3.TransportSocket {
	return &corev3.TransportSocket{
		Name:       "envoy.transport_sockets.tls",
		ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: pack(context)},
	}
}

// The ciphers of TLS 1.2, the best first; what stands in brackets is the client's choice,
// who knows whether it computes AES in hardware (Mozilla's intermediate list without
// DHE). TLS 1.3 has its own in BoringSSL.
var modernCiphers = []string{
	"[ECDHE-ECDSA-AES128-GCM-SHA256|ECDHE-ECDSA-CHACHA20-POLY1305]",
	"[ECDHE-RSA-AES128-GCM-SHA256|ECDHE-RSA-CHACHA20-POLY1305]",
	"ECDHE-ECDSA-AES256-GCM-SHA384",
	"ECDHE-RSA-AES256-GCM-SHA384",
}

// oldCiphers are all that TLS 1.0 and 1.1 can speak with forward secrecy, and the least
// bad two without.
var oldCiphers = []string{
	"ECDHE-ECDSA-AES128-SHA", "ECDHE-RSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA", "ECDHE-RSA-AES256-SHA",
	"AES128-SHA", "AES256-SHA",
}

var protocolVersions = map[model.TLSVersion]tlsv3.TlsParameters_TlsProtocol{
	"1.0": tlsv3.TlsParameters_TLSv1_0, "1.1": tlsv3.TlsParameters_TLSv1_1,
	"1.2": tlsv3.TlsParameters_TLSv1_2, "1.3": tlsv3.TlsParameters_TLSv1_3,
}

func downstreamTLS(l model.Listener, c chain, http bool) *tlsv3.DownstreamTlsContext {
	version, known := protocolVersions[c.min]
	if !known {
		version = tlsv3.TlsParameters_TLSv1_2
	}
	ciphers := modernCiphers
	if version < tlsv3.TlsParameters_TLSv1_2 {
		ciphers = slices.Concat(modernCiphers, oldCiphers)
	}
	common := &tlsv3.CommonTlsContext{TlsParams: &tlsv3.TlsParameters{
		TlsMinimumProtocolVersion: version,
		TlsMaximumProtocolVersion: tlsv3.TlsParameters_TLSv1_3,
		CipherSuites:              ciphers,
		EcdhCurves:                []string{"X25519MLKEM768", "X25519", "P-256", "P-384"},
	}}
	if http {
		common.AlpnProtocols = []string{"h2", "http/1.1"}
	}
	d := &tlsv3.DownstreamTlsContext{CommonTlsContext: common}
	if c.onDemand {
		common.CustomTlsCertificateSelector = onDemandSelector()
		// Envoy 1.40 resumes no sessions where the certificate is asked for on demand.
		d.SessionTicketKeysType = &tlsv3.DownstreamTlsContext_DisableStatelessSessionResumption{DisableStatelessSessionResumption: true}
		d.DisableStatefulSessionResumption = true
	}
	for _, id := range c.certs {
		common.TlsCertificateSdsSecretConfigs = append(common.TlsCertificateSdsSecretConfigs, sds(SecretName(id)))
	}
	if len(c.certs) > 1 {
		// The names are decided already; of the certificates the key type counts.
		d.FullScanCertsOnSniMismatch = wrapperspb.Bool(true)
	}
	if v := l.ClientValidation; v != nil {
		d.RequireClientCertificate = wrapperspb.Bool(!v.Optional)
		setValidation(common, v)
	}
	return d
}

func setValidation(common *tlsv3.CommonTlsContext, v *model.ClientValidation) {
	trust := sds(AuthorityName(v.Authorities...))
	if !v.Optional {
		common.ValidationContextType = &tlsv3.CommonTlsContext_ValidationContextSdsSecretConfig{ValidationContextSdsSecretConfig: trust}
		return
	}
	common.ValidationContextType = &tlsv3.CommonTlsContext_CombinedValidationContext{
		CombinedValidationContext: &tlsv3.CommonTlsContext_CombinedCertificateValidationContext{
			DefaultValidationContext: &tlsv3.CertificateValidationContext{
				TrustChainVerification: tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED,
			},
			ValidationContextSdsSecretConfig: trust,
		},
	}
}

// onDemandSelector makes Envoy ask for the Secret that has the name of the server name. A
// name without a Secret is answered by its removal, which ends the handshake.
func onDemandSelector() *corev3.TypedExtensionConfig {
	return &corev3.TypedExtensionConfig{
		Name: "envoy.tls.certificate_selectors.on_demand_secret",
		TypedConfig: pack(&ondemandv3.Config{
			ConfigSource: ads(secretFetch),
			CertificateMapper: &corev3.TypedExtensionConfig{
				Name: "envoy.tls.certificate_mappers.sni",
				// A client without a server name asks for a name that no host has.
				TypedConfig: pack(&sniv3.SNI{DefaultValue: "no server name"}),
			},
		}),
	}
}
