package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// RoutePolicy says which requests of a route may pass: how many, from where, how large,
// and whom to ask; and how its answers are encoded. It can be said of a Gateway, for all routes there, of a listener, of a
// route and of one rule; what is said nearer to the rule holds, matter by matter.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=routepolicies,shortName=routepol,categories=fairlead
// +kubebuilder:metadata:labels="gateway.networking.k8s.io/policy=Inherited"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.targetRefs[0].kind`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRefs[0].name`
// +kubebuilder:printcolumn:name="Section",type=string,JSONPath=`.spec.targetRefs[0].sectionName`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.ancestors[0].conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.ancestors[0].conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RoutePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RoutePolicySpec `json:"spec"`
	// +optional
	Status gatewayv1.PolicyStatus `json:"status,omitempty,omitzero"`
}

// RoutePolicySpec is what is asked of requests.
//
// +kubebuilder:validation:XValidation:rule="has(self.rateLimit) || has(self.globalRateLimit) || has(self.authorization) || has(self.addresses) || has(self.maxRequestBytes) || has(self.compression) || has(self.grpcWeb) || has(self.errorPages)",message="say at least one of rateLimit, globalRateLimit, authorization, addresses, maxRequestBytes, compression, grpcWeb and errorPages"
type RoutePolicySpec struct {
	// TargetRefs name Gateways and ListenerSets (sectionName: a listener), HTTPRoutes and
	// GRPCRoutes (sectionName: the name of a rule), and IngressRoutes. The policy of a root
	// IngressRoute holds for all that it delegates to as well.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, (t.group == 'gateway.networking.k8s.io' && t.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute']) || (t.group == 'contour.heptio.com' && t.kind == 'IngressRoute'))",message="targets of a RoutePolicy are Gateway, ListenerSet, HTTPRoute or GRPCRoute of group gateway.networking.k8s.io, or IngressRoute of group contour.heptio.com"
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.kind != 'IngressRoute' || !has(t.sectionName))",message="routes of an IngressRoute have no names: leave sectionName out"
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, t == u))",message="name each target once"
	TargetRefs []gatewayv1.LocalPolicyTargetReferenceWithSectionName `json:"targetRefs"`

	// RateLimit is how many requests may pass at each machine; more are answered 429.
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`

	// GlobalRateLimit asks a service that counts for all machines.
	// +optional
	GlobalRateLimit *GlobalRateLimit `json:"globalRateLimit,omitempty"`

	// Authorization asks a service whether a request may pass.
	// +optional
	Authorization *Authorization `json:"authorization,omitempty"`

	// Addresses lets clients in by their address; others are answered 403.
	// +optional
	Addresses *AddressFilter `json:"addresses,omitempty"`

	// MaxRequestBytes of a request's body; more is answered 413.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	MaxRequestBytes *int64 `json:"maxRequestBytes,omitempty"`

	// ErrorPages are shown in place of errors.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.map(p, size(p.body)).sum() <= 4096",message="pages must have 4096 characters together at most"
	ErrorPages []RouteErrorPage `json:"errorPages,omitempty"`

	// Compression of answers, for clients that accept it. IngressRoutes have it by gzip
	// without a policy, as in Contour; others have none.
	// +optional
	Compression *Compression `json:"compression,omitempty"`

	// GRPCWeb lets browsers reach gRPC backends: requests of gRPC-Web become requests of
	// gRPC, and answers the other way round. IngressRoutes have it without a policy, as in
	// Contour; others do not.
	// +optional
	GRPCWeb *bool `json:"grpcWeb,omitempty"`
}

// CompressionAlgorithm is a coding of HTTP content.
//
// +kubebuilder:validation:Enum=gzip;br;zstd
type CompressionAlgorithm string

// The codings that answers can have.
const (
	CompressionGzip   CompressionAlgorithm = "gzip"
	CompressionBrotli CompressionAlgorithm = "br"
	CompressionZstd   CompressionAlgorithm = "zstd"
)

// Compression of answers. Left as they are: answers that have an encoding already, parts
// (206), those with Cache-Control: no-transform, WebSockets and gRPC.
//
// +kubebuilder:validation:XValidation:rule="!has(self.disabled) || !self.disabled || !(has(self.algorithms) || has(self.minBytes) || has(self.contentTypes))",message="disabled goes without the other fields: leave them out"
type Compression struct {
	// Algorithms in order of preference; a client that prefers another of them gets that.
	// Default: br, gzip. zstd is the fastest, and hands on what a backend streams only once it
	// has 128 KiB or the end.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	Algorithms []CompressionAlgorithm `json:"algorithms,omitempty"`
	// MinBytes an answer has at least that is compressed, as far as its Content-Length says.
	// Default: 30.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	MinBytes *int32 `json:"minBytes,omitempty"`
	// ContentTypes that are compressed, without parameters ("text/html"). Default: HTML, plain
	// text, CSS, CSV, Markdown, JavaScript, JSON, XML and SVG.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=127
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$`
	// +kubebuilder:validation:items:XValidation:rule="!self.lowerAscii().startsWith('application/grpc')",message="messages of gRPC are compressed by its own clients and servers"
	ContentTypes []string `json:"contentTypes,omitempty"`
	// Disabled leaves answers as backends send them, where something farther away says
	// otherwise.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
}

// RateLimit is a token bucket at each machine.
type RateLimit struct {
	// Requests that may pass in one period.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	Requests int64 `json:"requests"`
	// Per is the period. Default: 1s.
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('50ms') && duration(self) <= duration('24h')",message="must be from 50ms to 24h"
	Per gatewayv1.Duration `json:"per,omitempty"`
	// Burst is how many may pass at once after a pause; as many as requests when left out.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	Burst *int64 `json:"burst,omitempty"`
}

// GlobalRateLimit asks a service that speaks Envoy's rate limit protocol (gRPC,
// envoy.service.ratelimit.v3). A request over the limit is answered 429.
type GlobalRateLimit struct {
	// Service that counts. One of another namespace needs a ReferenceGrant there.
	Service gatewayv1.BackendObjectReference `json:"service"`
	// Domain of the limits in the service's configuration.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Domain string `json:"domain"`
	// Descriptor of a request: its entries in order. A request that lacks a header that an
	// entry asks for is not counted.
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Descriptor []RateLimitEntry `json:"descriptor"`
	// Timeout of a question. Default: 100ms.
	// +optional
	// +kubebuilder:default="100ms"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('10s')",message="must be from 1ms to 10s"
	Timeout gatewayv1.Duration `json:"timeout,omitempty"`
	// FailOpen lets requests pass while the service does not answer; else they are
	// answered 503.
	// +optional
	FailOpen bool `json:"failOpen,omitempty"`
}

// RateLimitEntry is one entry of a descriptor.
//
// +kubebuilder:validation:XValidation:rule="(has(self.header) ? 1 : 0) + (has(self.clientAddress) && self.clientAddress ? 1 : 0) + (has(self.value) ? 1 : 0) == 1",message="say exactly one of header, clientAddress: true and value"
type RateLimitEntry struct {
	// Key of the entry, as the service's configuration names it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
	// Header of the request whose value is the entry's.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$`
	Header string `json:"header,omitempty"`
	// ClientAddress makes the client's address the entry's value.
	// +optional
	ClientAddress bool `json:"clientAddress,omitempty"`
	// Value that is always the same.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Value string `json:"value,omitempty"`
}

// AuthorizationProtocol is how an authorisation service is asked.
//
// +kubebuilder:validation:Enum=GRPC;HTTP
type AuthorizationProtocol string

// The ways to ask an authorisation service.
const (
	AuthorizationGRPC AuthorizationProtocol = "GRPC"
	AuthorizationHTTP AuthorizationProtocol = "HTTP"
)

// Authorization asks a service whether a request may pass.
//
// +kubebuilder:validation:XValidation:rule="!has(self.http) || (has(self.protocol) && self.protocol == 'HTTP')",message="http is for protocol HTTP: set protocol, or leave http out"
type Authorization struct {
	// Service to ask. One of another namespace needs a ReferenceGrant there.
	Service gatewayv1.BackendObjectReference `json:"service"`
	// Protocol is GRPC (envoy.service.auth.v3) or HTTP: a request with the client's method
	// and path, which 200 lets pass and any other answer refuses.
	// +optional
	// +kubebuilder:default=GRPC
	Protocol AuthorizationProtocol `json:"protocol,omitempty"`
	// HTTP holds what is particular to that protocol.
	// +optional
	HTTP *AuthorizationHTTPOptions `json:"http,omitempty"`
	// MaxBodyBytes of a request's body that the service is shown; none when left out.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777216
	MaxBodyBytes *int32 `json:"maxBodyBytes,omitempty"`
	// Timeout of a question. Default: 1s.
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('60s')",message="must be from 1ms to 60s"
	Timeout gatewayv1.Duration `json:"timeout,omitempty"`
	// FailOpen lets requests pass while the service does not answer; else they are
	// answered 503.
	// +optional
	FailOpen bool `json:"failOpen,omitempty"`
}

// AuthorizationHTTPOptions are for services that are asked over HTTP.
type AuthorizationHTTPOptions struct {
	// PathPrefix is put before the path that the client asked for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^?#\s]*$`
	PathPrefix string `json:"pathPrefix,omitempty"`
	// RequestHeaders of the client that the service is shown, besides Host, Authorization,
	// the method and the path.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$`
	RequestHeaders []string `json:"requestHeaders,omitempty"`
	// ResponseHeaders of the service's answer that go on to the backend.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$`
	ResponseHeaders []string `json:"responseHeaders,omitempty"`
}

// AddressFilter lets clients in by their address. What deny has is refused, whatever
// allow has; with allow, only what it has is let in.
//
// +kubebuilder:validation:XValidation:rule="has(self.allow) || has(self.deny)",message="say allow, deny or both"
type AddressFilter struct {
	// Allow has addresses ("192.0.2.7") and CIDRs ("2001:db8::/32"); everybody when left out.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self)",message="must be an address like 192.0.2.7 or a CIDR like 192.0.2.0/24"
	Allow []string `json:"allow,omitempty"`
	// Deny is the same for addresses that are refused.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self)",message="must be an address like 192.0.2.7 or a CIDR like 192.0.2.0/24"
	Deny []string `json:"deny,omitempty"`
}

// RoutePolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type RoutePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RoutePolicy `json:"items"`
}

func init() { register(&RoutePolicy{}, &RoutePolicyList{}) }
