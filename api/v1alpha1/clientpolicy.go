package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// ClientPolicy configures how listeners treat clients: the detection of client addresses,
// limits, timeouts and access logs.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=clientpolicies,shortName=clientpol,categories=fairlead
// +kubebuilder:metadata:labels="gateway.networking.k8s.io/policy=Inherited"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.targetRefs[0].kind`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRefs[0].name`
// +kubebuilder:printcolumn:name="Section",type=string,JSONPath=`.spec.targetRefs[0].sectionName`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.ancestors[0].conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.ancestors[0].conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClientPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClientPolicySpec `json:"spec"`
	// +optional
	Status gatewayv1.PolicyStatus `json:"status,omitempty,omitzero"`
}

// ClientPolicySpec configures clients. The most specific policy applies to each field: that of
// a listener before that of its Gateway, and that of a Gateway before that of its
// GatewayClass. A field that no policy sets has its default.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.http3) && self.http3 && has(self.acceptProxyProtocol) && self.acceptProxyProtocol)",message="HTTP/3 has no PROXY headers: set http3 or acceptProxyProtocol, not both"
type ClientPolicySpec struct {
	// TargetRefs are the GatewayClasses, Gateways (sectionName: a listener) and ListenerSets
	// (sectionName: a listener) that the policy applies to. All teams share a GatewayClass, so
	// only policies in the planes' namespace (fairlead-system) may target one. Such a policy
	// also applies to the shared listeners, which serve IngressRoutes and the Gateways without
	// addresses of their own.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.group == 'gateway.networking.k8s.io' && t.kind in ['GatewayClass', 'Gateway', 'ListenerSet'])",message="targets of a ClientPolicy are of group gateway.networking.k8s.io and kind GatewayClass, Gateway or ListenerSet"
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.kind != 'GatewayClass' || !has(t.sectionName))",message="a GatewayClass has no sections: leave sectionName out"
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, t == u))",message="name each target once"
	TargetRefs []gatewayv1.LocalPolicyTargetReferenceWithSectionName `json:"targetRefs"`

	// TrustedHops is the number of proxies in front of the machines that append to
	// X-Forwarded-For. The client's address is the address that the first of them saw. 0
	// trusts no proxy. Default: the machine's own setting.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	TrustedHops *int32 `json:"trustedHops,omitempty"`

	// AcceptProxyProtocol reads the client's address from a PROXY header (version 1 or 2).
	// Every connection must then begin with such a header.
	// +optional
	AcceptProxyProtocol *bool `json:"acceptProxyProtocol,omitempty"`

	// HTTP3 also serves HTTP/3 (UDP) at the port of HTTPS, and advertises it to clients (RFC
	// 7838). It has no effect where clients must present certificates, and excludes
	// acceptProxyProtocol.
	// +optional
	HTTP3 *bool `json:"http3,omitempty"`

	// Path configures the normalisation of request paths, which precedes the matching of
	// routes and policies. Backends receive the normalised path.
	// +optional
	Path *ClientPath `json:"path,omitempty"`

	// Forwarded configures the X-Forwarded headers that backends receive.
	// +optional
	Forwarded *ClientForwarded `json:"forwarded,omitempty"`

	// ErrorPages replace the proxy's own errors, including those of requests that match no
	// route. Error pages of RoutePolicies have precedence.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.map(p, size(p.body)).sum() <= 32768",message="pages must have at most 32768 characters together"
	ErrorPages []ErrorPage `json:"errorPages,omitempty"`

	// Limits of the resources that clients may use.
	// +optional
	Limits *ClientLimits `json:"limits,omitempty"`

	// Timeouts of slow clients.
	// +optional
	Timeouts *ClientTimeouts `json:"timeouts,omitempty"`

	// TLS configures the TLS connections of clients.
	// +optional
	TLS *ClientTLS `json:"tls,omitempty"`

	// AccessLog configures the access log. Default: the machine's own setting.
	// +optional
	AccessLog *AccessLog `json:"accessLog,omitempty"`

	// Tracing reports spans to an OpenTelemetry collector.
	// +optional
	Tracing *Tracing `json:"tracing,omitempty"`
}

// ClientForwarded configures the X-Forwarded headers that backends receive. A header that a
// trusted proxy (trustedHops) has already set is kept.
type ClientForwarded struct {
	// Host sets X-Forwarded-Host to the host that the client requested.
	// +optional
	Host *bool `json:"host,omitempty"`
	// Port sets X-Forwarded-Port to the port at which the client arrived.
	// +optional
	Port *bool `json:"port,omitempty"`
}

// ClientPath configures the normalisation of request paths. Many backends treat "//admin" and
// "/%2Fadmin" as "/admin". If the proxy does not, clients can bypass rules for "/admin".
type ClientPath struct {
	// EscapedSlashesAction is the treatment of paths with an escaped slash or backslash
	// ("%2F", "%5C"). Default: UnescapeAndRedirect; with disableMergeSlashes, RejectRequest.
	// +optional
	EscapedSlashesAction EscapedSlashesAction `json:"escapedSlashesAction,omitempty"`
	// DisableMergeSlashes keeps adjacent slashes. By default "//" becomes "/".
	// +optional
	DisableMergeSlashes *bool `json:"disableMergeSlashes,omitempty"`
}

// EscapedSlashesAction is the treatment of paths with escaped slashes.
//
// +kubebuilder:validation:Enum=UnescapeAndRedirect;UnescapeAndForward;RejectRequest;KeepUnchanged
type EscapedSlashesAction string

// The actions.
const (
	// UnescapeAndRedirect redirects clients to the path with slashes (307); gRPC calls fail
	// with INTERNAL.
	UnescapeAndRedirect EscapedSlashesAction = "UnescapeAndRedirect"
	// UnescapeAndForward unescapes the slashes, for the matching and for the backend.
	UnescapeAndForward EscapedSlashesAction = "UnescapeAndForward"
	// RejectRequest answers 400.
	RejectRequest EscapedSlashesAction = "RejectRequest"
	// KeepUnchanged treats escaped slashes as a part of a path segment. It is for backends
	// that do the same, such as package registries and Git forges.
	KeepUnchanged EscapedSlashesAction = "KeepUnchanged"
)

// ClientLimits limit the resources that clients may use at each machine.
type ClientLimits struct {
	// MaxConnections is the limit of open connections of the listener; further connections are
	// closed immediately.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	MaxConnections *int32 `json:"maxConnections,omitempty"`
	// MaxHeaderBytes is the size limit of a request's headers; larger requests are answered
	// 431. Default: 61440 (60 KiB).
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=8388608
	MaxHeaderBytes *int32 `json:"maxHeaderBytes,omitempty"`
	// MaxHeaders is the limit of headers in a request; requests with more are answered 431.
	// Default: 100.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=10000
	MaxHeaders *int32 `json:"maxHeaders,omitempty"`
	// MaxRequestsPerConnection is the number of requests after which a connection is closed
	// gracefully, so that load is rebalanced. Default: unlimited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxRequestsPerConnection *int32 `json:"maxRequestsPerConnection,omitempty"`
	// MaxStreams is the limit of active streams on an HTTP/2 or HTTP/3 connection. Default:
	// 100.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxStreams *int32 `json:"maxStreams,omitempty"`
}

// ClientTimeouts are the timeouts of slow clients.
type ClientTimeouts struct {
	// Headers is the time within which the headers must arrive after their first byte.
	// Default: 10s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('1h')",message="must be from 10ms to 1h"
	Headers *gatewayv1.Duration `json:"headers,omitempty"`
	// Request is the time within which the whole request, including its body, must arrive.
	// Default: unlimited.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('24h')",message="must be from 10ms to 24h; for no bound leave it out"
	Request *gatewayv1.Duration `json:"request,omitempty"`
	// Idle is the time after which an idle connection or stream is closed. Default: 5m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('24h')",message="must be from 100ms to 24h"
	Idle *gatewayv1.Duration `json:"idle,omitempty"`
}

// ClientTLS configures the TLS connections of clients.
type ClientTLS struct {
	// MinVersion is the minimum TLS version, for hosts that set none themselves. Default: 1.2.
	// +optional
	// +kubebuilder:validation:Enum="1.0";"1.1";"1.2";"1.3"
	MinVersion string `json:"minVersion,omitempty"`
}

// LogDestination is the destination of access logs.
//
// +kubebuilder:validation:Enum=File;OTLP;Off
type LogDestination string

// The destinations of access logs.
const (
	LogFile LogDestination = "File"
	LogOTLP LogDestination = "OTLP"
	LogOff  LogDestination = "Off"
)

// AccessLog configures the access log, which has a line for each request.
//
// +kubebuilder:validation:XValidation:rule="(has(self.destination) && self.destination == 'OTLP') == has(self.collector)",message="collector must be set with destination OTLP, and only then"
// +kubebuilder:validation:XValidation:rule="!has(self.destination) || self.destination != 'Off' || (!has(self.fields) && !has(self.template) && !has(self.errorsOnly) && !has(self.samplePercent))",message="fields, template, errorsOnly and samplePercent have no effect with destination Off: leave them out"
// +kubebuilder:validation:XValidation:rule="!has(self.template) || (!has(self.fields) && !has(self.collector))",message="template is for destination File, and replaces fields"
// +kubebuilder:validation:XValidation:rule="!has(self.samplePercent) || !has(self.errorsOnly) || !self.errorsOnly",message="errorsOnly means samplePercent 0: leave out one of them"
type AccessLog struct {
	// Destination is File (JSON lines in the machine's access log file), OTLP (an
	// OpenTelemetry collector) or Off.
	// +optional
	// +kubebuilder:default=File
	Destination LogDestination `json:"destination,omitempty"`
	// Collector receives log records over OTLP (gRPC).
	// +optional
	Collector *gatewayv1.BackendObjectReference `json:"collector,omitempty"`
	// Fields of each line. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=40
	Fields []AccessLogField `json:"fields,omitempty"`
	// Template makes lines of text in place of JSON: text with fields ("{status}") and headers
	// ("{request.referer}", "{response.content-type}"). "{{" and "}}" stand for braces. Headers
	// that can hold credentials are refused.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Template string `json:"template,omitempty"`
	// SamplePercent is the share of successful requests that are logged: 0 to 100, as a number
	// or as a text like "0.5". Failed requests are always logged. Default: 100.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? (self >= 0 && self <= 100) : self.matches('^(100(\\\\.0+)?|[0-9]{1,2}(\\\\.[0-9]{1,4})?)$')",message="must be from 0 to 100, with at most four decimals, like 10 or \"0.5\""
	SamplePercent *intstr.IntOrString `json:"samplePercent,omitempty"`
	// ErrorsOnly logs only failed requests: those answered 4xx or 5xx, those without an
	// answer, and failed gRPC calls.
	// +optional
	ErrorsOnly bool `json:"errorsOnly,omitempty"`
}

// AccessLogField is a field of access logs.
//
// +kubebuilder:validation:Enum=time;client;listener;server_name;tls_version;tls_cipher;client_subject;method;host;path;protocol;status;grpc_status;flags;details;bytes_in;bytes_out;duration_ms;backend;group;route;owner;decision;attempts;request_id;trace_id;user_agent;transport_failure
type AccessLogField string

// AccessLogFields returns all fields, in the order of the schema.
func AccessLogFields() []AccessLogField {
	return []AccessLogField{
		"time", "client", "listener", "server_name", "tls_version", "tls_cipher", "client_subject", "method", "host", "path", "protocol",
		"status", "grpc_status", "flags", "details", "bytes_in", "bytes_out", "duration_ms", "backend", "group", "route", "owner",
		"decision", "attempts", "request_id", "trace_id", "user_agent", "transport_failure",
	}
}

// Tracing reports spans.
type Tracing struct {
	// Collector receives spans over OTLP (gRPC).
	Collector gatewayv1.BackendObjectReference `json:"collector"`
	// SamplePercent is the share of requests that begin a trace: 0 to 100, as a number or as a
	// text like "0.5". Traces that a client began always continue. Default: 100.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? (self >= 0 && self <= 100) : self.matches('^(100(\\\\.0+)?|[0-9]{1,2}(\\\\.[0-9]{1,4})?)$')",message="must be from 0 to 100, with at most four decimals, like 10 or \"0.5\""
	SamplePercent *intstr.IntOrString `json:"samplePercent,omitempty"`
	// ServiceName of the spans. Default: fairlead.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	ServiceName string `json:"serviceName,omitempty"`
}

// ClientPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type ClientPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClientPolicy `json:"items"`
}

func init() { register(&ClientPolicy{}, &ClientPolicyList{}) }
