// Package gatetest makes small resources of Envoy for tests of packages that pass resources on.
package gatetest

import (
	"fmt"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tcpproxyv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"fairlead.dev/internal/delta"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// Bad in a resource makes the model of Envoy refuse it.
const Bad = "bad"

// Pack is a message as a resource, versioned by its content.
func Pack(t testing.TB, name string, m proto.Message) *delta.Resource {
	r, err := delta.NewResource(name, m)
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

// ClusterOption changes a cluster.
type ClusterOption func(*clusterv3.Cluster)

// WithChecks has Envoy check the health of a cluster.
func WithChecks(c *clusterv3.Cluster) { c.HealthChecks = []*corev3.HealthCheck{{}} }

// AsBad has the model of Envoy refuse a cluster.
func AsBad(c *clusterv3.Cluster) { c.AltStatName = Bad }

// Cluster is a cluster by EDS with a set of endpoints; another salt makes it another version.
func Cluster(t testing.TB, name, set string, salt int, options ...ClusterOption) delta.Change {
	c := &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: set},
	}
	if salt > 0 {
		c.AltStatName = fmt.Sprint("v", salt)
	}
	for _, o := range options {
		o(c)
	}
	return delta.Change{Type: agentv1.ClusterType, Name: name, Resource: Pack(t, name, c)}
}

// Endpoints are a load assignment; another salt makes it another version, and the model of Envoy refuses a negative one.
func Endpoints(t testing.TB, name string, salt int) delta.Change {
	c := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	for range salt {
		c.Endpoints = append(c.Endpoints, &endpointv3.LocalityLbEndpoints{})
	}
	if salt < 0 {
		c.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{}}}
	}
	return delta.Change{Type: agentv1.EndpointType, Name: name, Resource: Pack(t, name, c)}
}

// Host is a virtual host: where it leads, and which version it is. The model of Envoy refuses
// a bad one.
type Host struct {
	Name     string
	Clusters []string
	Salt     int
	Bad      bool
}

// Proto is the virtual host as Envoy has it.
func (h Host) Proto() *routev3.VirtualHost {
	v := &routev3.VirtualHost{Name: h.Name, Domains: []string{h.Name + ".example"}}
	for _, c := range h.Clusters {
		v.Routes = append(v.Routes, &routev3.Route{
			Name:   fmt.Sprint(h.Salt),
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: c}}},
		})
	}
	if h.Bad {
		v.RequestHeadersToRemove = []string{Bad}
	}
	return v
}

// Routes is a route configuration of hosts.
func Routes(t testing.TB, name string, hosts ...Host) delta.Change {
	rc := &routev3.RouteConfiguration{Name: name}
	for _, h := range hosts {
		rc.VirtualHosts = append(rc.VirtualHosts, h.Proto())
	}
	return delta.Change{Type: agentv1.RouteType, Name: name, Resource: Pack(t, name, rc)}
}

// Scope is a scope that leads to a route configuration.
func Scope(t testing.TB, name, routes string) delta.Change {
	return delta.Change{Type: agentv1.ScopeType, Name: name, Resource: Pack(t, name, &routev3.ScopedRouteConfiguration{
		Name: name, RouteConfigurationName: routes,
	})}
}

// Listener is a listener without anything in it; another salt makes it another version.
func Listener(t testing.TB, name, salt string) delta.Change {
	return delta.Change{Type: agentv1.ListenerType, Name: name, Resource: Pack(t, name, &listenerv3.Listener{Name: name, StatPrefix: salt})}
}

// Removal is a change that takes a resource away.
func Removal(t delta.Type, name string) delta.Change { return delta.Change{Type: t, Name: name} }

func inline(text string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}}
}

// PrivateKey is how the private keys of certificates begin.
const PrivateKey = "the private key of a certificate "

// Certificate is a certificate with its private key, as a secret.
func Certificate(t testing.TB, name, salt string) delta.Change {
	return delta.Change{Type: agentv1.SecretType, Name: name, Resource: Pack(t, name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{
		TlsCertificate: &tlsv3.TlsCertificate{CertificateChain: inline("chain " + salt), PrivateKey: inline(PrivateKey + salt)},
	}})}
}

// Authority is an authority's certificate, as a secret.
func Authority(t testing.TB, name string) delta.Change {
	return delta.Change{Type: agentv1.SecretType, Name: name, Resource: Pack(t, name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{
		ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline("an authority")},
	}})}
}

// TLSListener is a listener that terminates TLS and hands the bytes to a cluster.
func TLSListener(t testing.TB, name, secret, cluster string) delta.Change {
	context := &tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
		TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: secret}},
	}}
	proxy := &tcpproxyv3.TcpProxy{ClusterSpecifier: &tcpproxyv3.TcpProxy_Cluster{Cluster: cluster}}
	return delta.Change{Type: agentv1.ListenerType, Name: name, Resource: Pack(t, name, &listenerv3.Listener{Name: name, FilterChains: []*listenerv3.FilterChain{{
		TransportSocket: &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: AnyOf(t, context)}},
		Filters:         []*listenerv3.Filter{{Name: "tcp", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: AnyOf(t, proxy)}}},
	}}})}
}

// AnyOf is a message inside an Any.
func AnyOf(t testing.TB, m proto.Message) *anypb.Any {
	packed, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return packed
}
