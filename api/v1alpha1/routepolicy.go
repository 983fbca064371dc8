package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// RoutePolicy limits and authorizes the requests of a route, and configures the encoding of
// its answers. Its target is a Gateway, a listener, a route or a rule. For each field the most
// specific policy applies.
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

// RoutePolicySpec configures the treatment of requests and answers.
//
// +kubebuilder:validation:XValidation:rule="has(self.rateLimit) || has(self.globalRateLimit) || has(self.authorization) || has(self.addresses) || has(self.maxRequestBytes) || has(self.compression) || has(self.grpcWeb) || has(self.errorPages) || has(self.accessLog)",message="set at least one of rateLimit, globalRateLimit, authorization, addresses, maxRequestBytes, compression, grpcWeb, errorPages and accessLog"
type RoutePolicySpec struct {
	// TargetRefs are the targets of the policy: Gateways and ListenerSets (sectionName: a
	// listener), HTTPRoutes and GRPCRoutes (sectionName: the name of a rule), and
	// IngressRoutes. The policy of a root IngressRoute also applies to all IngressRoutes to
	// which the root delegates.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, (t.group == 'gateway.networking.k8s.io' && t.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute']) || (t.group == 'contour.heptio.com' && t.kind == 'IngressRoute'))",message="targets of a RoutePolicy are Gateway, ListenerSet, HTTPRoute or GRPCRoute of group gateway.networking.k8s.io, or IngressRoute of group contour.heptio.com"
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.kind != 'IngressRoute' || !has(t.sectionName))",message="routes of an IngressRoute have no names: leave sectionName out"
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, t == u))",message="name each target once"
	TargetRefs []gatewayv1.LocalPolicyTargetReferenceWithSectionName `json:"targetRefs"`

	// RateLimit limits the rate of requests at each machine; further requests are answered
	// 429.
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`

	// GlobalRateLimit asks a service that counts the requests of all machines.
	// +optional
	GlobalRateLimit *GlobalRateLimit `json:"globalRateLimit,omitempty"`

	// Authorization asks a service whether a request may pass.
	// +optional
	Authorization *Authorization `json:"authorization,omitempty"`

	// Addresses admits clients by their addresses; other clients are answered 403.
	// +optional
	Addresses *AddressFilter `json:"addresses,omitempty"`

	// MaxRequestBytes is the size limit of a request's body; larger requests are answered 413.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	MaxRequestBytes *int64 `json:"maxRequestBytes,omitempty"`

	// ErrorPages replace the answers to failed requests.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.map(p, size(p.body)).sum() <= 4096",message="pages must have at most 4096 characters together"
	ErrorPages []RouteErrorPage `json:"errorPages,omitempty"`

	// Compression of answers, for clients that accept it. Default: gzip for IngressRoutes, as
	// in Contour; none for other routes.
	// +optional
	Compression *Compression `json:"compression,omitempty"`

	// GRPCWeb lets browsers use gRPC backends: it translates gRPC-Web requests to gRPC, and
	// the answers back. Default: on for IngressRoutes, as in Contour; off for other routes.
	// +optional
	GRPCWeb *bool `json:"grpcWeb,omitempty"`

	// AccessLog selects the requests that have a line in the access log, where the listener has
	// one. Default: the ClientPolicy's choice.
	// +optional
	AccessLog *RouteAccessLog `json:"accessLog,omitempty"`
}

// LoggedRequests are the requests that have a line in the access log.
//
// +kubebuilder:validation:Enum=All;Errors;None
type LoggedRequests string

// The choices.
const (
	LogAll    LoggedRequests = "All"
	LogErrors LoggedRequests = "Errors"
	LogNone   LoggedRequests = "None"
)

// RouteAccessLog selects requests for the access log.
//
// +kubebuilder:validation:XValidation:rule="has(self.requests) != has(self.samplePercent)",message="set either requests or samplePercent"
type RouteAccessLog struct {
	// Requests is All, Errors (only failed requests: those answered 4xx or 5xx, those without an
	// answer, and failed gRPC calls) or None.
	// +optional
	Requests LoggedRequests `json:"requests,omitempty"`
	// SamplePercent is the share of successful requests that are logged: 0 to 100, as a number
	// or as a text like "0.5". Failed requests are always logged.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? (self >= 0 && self <= 100) : self.matches('^(100(\\\\.0+)?|[0-9]{1,2}(\\\\.[0-9]{1,4})?)$')",message="must be from 0 to 100, with at most four decimals, like 10 or \"0.5\""
	SamplePercent *intstr.IntOrString `json:"samplePercent,omitempty"`
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

// Compression of answers. These answers are not compressed: answers that already have an
// encoding, partial answers (206), answers with Cache-Control: no-transform, WebSockets and
// gRPC.
//
// +kubebuilder:validation:XValidation:rule="!has(self.disabled) || !self.disabled || !(has(self.algorithms) || has(self.minBytes) || has(self.contentTypes))",message="disabled excludes the other fields: leave them out"
type Compression struct {
	// Algorithms in order of preference. If the client prefers another one of the list, that
	// one is used. Default: br, gzip. zstd is the fastest, but forwards a streamed answer only
	// in blocks of 128 KiB and at its end.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	Algorithms []CompressionAlgorithm `json:"algorithms,omitempty"`
	// MinBytes is the smallest Content-Length that is compressed. Default: 30.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	MinBytes *int32 `json:"minBytes,omitempty"`
	// ContentTypes of the answers that are compressed, without parameters ("text/html").
	// Default: HTML, plain text, CSS, CSV, Markdown, JavaScript, JSON, XML and SVG.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=127
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$`
	// +kubebuilder:validation:items:XValidation:rule="!self.lowerAscii().startsWith('application/grpc')",message="gRPC clients and servers compress their own messages"
	ContentTypes []string `json:"contentTypes,omitempty"`
	// Disabled turns compression off where a less specific policy enables it.
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
	// Burst is the number of requests that may pass at once after a pause. Default: the value
	// of requests.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	Burst *int64 `json:"burst,omitempty"`
}

// GlobalRateLimit asks a service that implements Envoy's rate limit protocol (gRPC,
// envoy.service.ratelimit.v3). A request over the limit is answered 429.
type GlobalRateLimit struct {
	// Service that counts. A Service of another namespace needs a ReferenceGrant there.
	Service gatewayv1.BackendObjectReference `json:"service"`
	// Domain of the limits in the service's configuration.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Domain string `json:"domain"`
	// Descriptor of a request: its entries, in order. A request without a header that an entry
	// uses is not counted.
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Descriptor []RateLimitEntry `json:"descriptor"`
	// Timeout of a query to the service. Default: 100ms.
	// +optional
	// +kubebuilder:default="100ms"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('10s')",message="must be from 1ms to 10s"
	Timeout gatewayv1.Duration `json:"timeout,omitempty"`
	// FailOpen lets requests pass while the service does not answer; otherwise they are
	// answered 503.
	// +optional
	FailOpen bool `json:"failOpen,omitempty"`
}

// RateLimitEntry is one entry of a descriptor.
//
// +kubebuilder:validation:XValidation:rule="(has(self.header) ? 1 : 0) + (has(self.clientAddress) && self.clientAddress ? 1 : 0) + (has(self.value) ? 1 : 0) == 1",message="set exactly one of header, clientAddress: true and value"
type RateLimitEntry struct {
	// Key of the entry, as the service's configuration names it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
	// Header of the request whose value is the value of the entry.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$`
	Header string `json:"header,omitempty"`
	// ClientAddress makes the client's address the value of the entry.
	// +optional
	ClientAddress bool `json:"clientAddress,omitempty"`
	// Value is a constant value of the entry.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Value string `json:"value,omitempty"`
}

// AuthorizationProtocol is the protocol of an authorization service.
//
// +kubebuilder:validation:Enum=GRPC;HTTP
type AuthorizationProtocol string

// The protocols of authorization services.
const (
	AuthorizationGRPC AuthorizationProtocol = "GRPC"
	AuthorizationHTTP AuthorizationProtocol = "HTTP"
)

// Authorization asks a service whether a request may pass.
//
// +kubebuilder:validation:XValidation:rule="!has(self.http) || (has(self.protocol) && self.protocol == 'HTTP')",message="http is for protocol HTTP: set protocol, or leave http out"
type Authorization struct {
	// Service that authorizes. A Service of another namespace needs a ReferenceGrant there.
	Service gatewayv1.BackendObjectReference `json:"service"`
	// Protocol is GRPC (envoy.service.auth.v3) or HTTP. With HTTP the service receives a
	// request with the client's method and path. It admits the client's request with 200 and
	// refuses it with any other answer.
	// +optional
	// +kubebuilder:default=GRPC
	Protocol AuthorizationProtocol `json:"protocol,omitempty"`
	// HTTP configures the protocol HTTP.
	// +optional
	HTTP *AuthorizationHTTPOptions `json:"http,omitempty"`
	// MaxBodyBytes is how much of a request's body the service receives. Default: none.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16777216
	MaxBodyBytes *int32 `json:"maxBodyBytes,omitempty"`
	// Timeout of a query to the service. Default: 1s.
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <= duration('60s')",message="must be from 1ms to 60s"
	Timeout gatewayv1.Duration `json:"timeout,omitempty"`
	// FailOpen lets requests pass while the service does not answer; otherwise they are
	// answered 503.
	// +optional
	FailOpen bool `json:"failOpen,omitempty"`
}

// AuthorizationHTTPOptions configure authorization over HTTP.
type AuthorizationHTTPOptions struct {
	// PathPrefix is put before the path of the client's request.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/[^?#\s]*$`
	PathPrefix string `json:"pathPrefix,omitempty"`
	// RequestHeaders of the client that the service receives, in addition to Host,
	// Authorization, the method and the path.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$`
	RequestHeaders []string `json:"requestHeaders,omitempty"`
	// ResponseHeaders of the service's answer that are added to the request to the backend.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$`
	ResponseHeaders []string `json:"responseHeaders,omitempty"`
}

// AddressFilter admits clients by their addresses. An address in deny is always refused. If
// allow is set, only addresses in allow are admitted.
//
// +kubebuilder:validation:XValidation:rule="has(self.allow) || has(self.deny)",message="set allow, deny or both"
type AddressFilter struct {
	// Allow lists the addresses ("192.0.2.7") and CIDRs ("2001:db8::/32") that are admitted.
	// Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self)",message="must be an address like 192.0.2.7 or a CIDR like 192.0.2.0/24"
	Allow []string `json:"allow,omitempty"`
	// Deny lists the addresses and CIDRs that are refused.
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
