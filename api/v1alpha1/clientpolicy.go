package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// ClientPolicy says how clients are treated at listeners: how their addresses are known,
// what they may use up, how long they may take, and what is written down about them.
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

// ClientPolicySpec is what an operator says of clients. What is left out follows the
// policy of the next larger target: of a Gateway after its listener, of the GatewayClass
// after the Gateway; and then the defaults.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.http3) && self.http3 && has(self.acceptProxyProtocol) && self.acceptProxyProtocol)",message="HTTP/3 has no PROXY headers: say http3 or acceptProxyProtocol, not both"
type ClientPolicySpec struct {
	// TargetRefs name GatewayClasses, Gateways (sectionName: a listener) and ListenerSets
	// (the same). A GatewayClass is everybody's: only policies in the planes' namespace
	// (fairlead-system) may target one. Its policy also holds for the listeners that
	// Gateways without addresses of their own share with IngressRoutes.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.group == 'gateway.networking.k8s.io' && t.kind in ['GatewayClass', 'Gateway', 'ListenerSet'])",message="targets of a ClientPolicy are of group gateway.networking.k8s.io and kind GatewayClass, Gateway or ListenerSet"
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.kind != 'GatewayClass' || !has(t.sectionName))",message="a GatewayClass has no sections: leave sectionName out"
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, t == u))",message="name each target once"
	TargetRefs []gatewayv1.LocalPolicyTargetReferenceWithSectionName `json:"targetRefs"`

	// TrustedHops is how many proxies in front of ours append to X-Forwarded-For: the
	// client's address is the one that the first of them saw. 0 trusts no proxy. Left
	// out, the machine's own setting holds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	TrustedHops *int32 `json:"trustedHops,omitempty"`

	// AcceptProxyProtocol takes the client's address from a PROXY header (version 1 or 2),
	// with which every connection must begin then.
	// +optional
	AcceptProxyProtocol *bool `json:"acceptProxyProtocol,omitempty"`

	// HTTP3 serves HTTP/3 at the port of HTTPS over UDP too, and tells clients (RFC 7838).
	// Not where clients must show certificates, nor with acceptProxyProtocol.
	// +optional
	HTTP3 *bool `json:"http3,omitempty"`

	// Path is what is made of the paths of requests before routes and policies are looked for.
	// Backends get what routes were looked for by.
	// +optional
	Path *ClientPath `json:"path,omitempty"`

	// Forwarded is what backends are told of what clients asked for.
	// +optional
	Forwarded *ClientForwarded `json:"forwarded,omitempty"`

	// ErrorPages are shown in place of the proxy's own errors, also where no route is found. Those of RoutePolicies go
	// before them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.map(p, size(p.body)).sum() <= 32768",message="pages must have 32768 characters together at most"
	ErrorPages []ErrorPage `json:"errorPages,omitempty"`

	// Limits of what clients may use up.
	// +optional
	Limits *ClientLimits `json:"limits,omitempty"`

	// Timeouts end what slow clients hold open.
	// +optional
	Timeouts *ClientTimeouts `json:"timeouts,omitempty"`

	// TLS of clients.
	// +optional
	TLS *ClientTLS `json:"tls,omitempty"`

	// AccessLog is where a line about each request goes; left out, the machine's own
	// setting holds.
	// +optional
	AccessLog *AccessLog `json:"accessLog,omitempty"`

	// Tracing reports spans to an OpenTelemetry collector.
	// +optional
	Tracing *Tracing `json:"tracing,omitempty"`
}

// ClientForwarded is what backends are told of what clients asked for. A proxy that is trusted (trustedHops) may have
// said it already; then its word stays.
type ClientForwarded struct {
	// Host sets X-Forwarded-Host to the host that the client asked for.
	// +optional
	Host *bool `json:"host,omitempty"`
	// Port sets X-Forwarded-Port to the port at which the client arrived.
	// +optional
	Port *bool `json:"port,omitempty"`
}

// ClientPath is what is made of the paths of requests. Many backends take "//admin" and "/%2Fadmin"
// for "/admin": where proxies do not, rules for "/admin" are walked around.
type ClientPath struct {
	// EscapedSlashesAction is what becomes of paths with an escaped slash or backslash ("%2F",
	// "%5C"). Default: UnescapeAndRedirect; with disableMergeSlashes RejectRequest.
	// +optional
	EscapedSlashesAction EscapedSlashesAction `json:"escapedSlashesAction,omitempty"`
	// DisableMergeSlashes leaves "//" as it is; otherwise it is taken for "/".
	// +optional
	DisableMergeSlashes *bool `json:"disableMergeSlashes,omitempty"`
}

// EscapedSlashesAction is what becomes of paths with escaped slashes.
//
// +kubebuilder:validation:Enum=UnescapeAndRedirect;UnescapeAndForward;RejectRequest;KeepUnchanged
type EscapedSlashesAction string

// The actions.
const (
	// UnescapeAndRedirect sends clients to the path with slashes (307); calls of gRPC get INTERNAL.
	UnescapeAndRedirect EscapedSlashesAction = "UnescapeAndRedirect"
	// UnescapeAndForward takes them for slashes, and backends get slashes.
	UnescapeAndForward EscapedSlashesAction = "UnescapeAndForward"
	// RejectRequest answers 400.
	RejectRequest EscapedSlashesAction = "RejectRequest"
	// KeepUnchanged takes them for a part of a name. It is for backends that do, too, like registries
	// of packages, and forges.
	KeepUnchanged EscapedSlashesAction = "KeepUnchanged"
)

// ClientLimits bound what clients may use up, at each machine.
type ClientLimits struct {
	// MaxConnections at once at the listener; more are closed at once.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	MaxConnections *int32 `json:"maxConnections,omitempty"`
	// MaxHeaderBytes of a request's headers; more is answered 431. Default: 61440 (60 KiB).
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=8388608
	MaxHeaderBytes *int32 `json:"maxHeaderBytes,omitempty"`
	// MaxHeaders is how many headers a request may have; more is answered 431. Default: 100.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=10000
	MaxHeaders *int32 `json:"maxHeaders,omitempty"`
	// MaxRequestsPerConnection after which a connection is closed in order, so that load
	// spreads anew; none when left out.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxRequestsPerConnection *int32 `json:"maxRequestsPerConnection,omitempty"`
	// MaxStreams under way at once on one HTTP/2 or HTTP/3 connection. Default: 100.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxStreams *int32 `json:"maxStreams,omitempty"`
}

// ClientTimeouts end what slow clients hold open.
type ClientTimeouts struct {
	// Headers must have arrived within this time after the first byte. Default: 10s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('1h')",message="must be from 10ms to 1h"
	Headers *gatewayv1.Duration `json:"headers,omitempty"`
	// Request, body included, must have arrived within this time; no bound when left out.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('24h')",message="must be from 10ms to 24h; for no bound leave it out"
	Request *gatewayv1.Duration `json:"request,omitempty"`
	// Idle connections and streams end after this time. Default: 5m.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('24h')",message="must be from 100ms to 24h"
	Idle *gatewayv1.Duration `json:"idle,omitempty"`
}

// ClientTLS is what is asked of TLS clients.
type ClientTLS struct {
	// MinVersion of TLS, for host names that ask for none themselves. Default: 1.2.
	// +optional
	// +kubebuilder:validation:Enum="1.0";"1.1";"1.2";"1.3"
	MinVersion string `json:"minVersion,omitempty"`
}

// LogDestination says where access logs go.
//
// +kubebuilder:validation:Enum=File;OTLP;Off
type LogDestination string

// The destinations of access logs.
const (
	LogFile LogDestination = "File"
	LogOTLP LogDestination = "OTLP"
	LogOff  LogDestination = "Off"
)

// AccessLog is where a line about each request goes, and what is in it.
//
// +kubebuilder:validation:XValidation:rule="(has(self.destination) && self.destination == 'OTLP') == has(self.collector)",message="collector must be set with destination OTLP, and only then"
// +kubebuilder:validation:XValidation:rule="!has(self.destination) || self.destination != 'Off' || (!has(self.fields) && !has(self.errorsOnly))",message="fields and errorsOnly mean nothing with destination Off: leave them out"
type AccessLog struct {
	// Destination is File (JSON lines in the machine's access log file), OTLP (an
	// OpenTelemetry collector) or Off.
	// +optional
	// +kubebuilder:default=File
	Destination LogDestination `json:"destination,omitempty"`
	// Collector takes log records over OTLP (gRPC).
	// +optional
	Collector *gatewayv1.BackendObjectReference `json:"collector,omitempty"`
	// Fields to write; all when left out.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=40
	Fields []AccessLogField `json:"fields,omitempty"`
	// ErrorsOnly writes requests only that were answered 4xx or 5xx or not at all, and calls of gRPC
	// that failed.
	// +optional
	ErrorsOnly bool `json:"errorsOnly,omitempty"`
}

// AccessLogField is a field of access logs.
//
// +kubebuilder:validation:Enum=time;client;listener;server_name;tls_version;tls_cipher;client_subject;method;host;path;protocol;status;grpc_status;flags;details;bytes_in;bytes_out;duration_ms;backend;group;route;attempts;request_id;trace_id;user_agent;transport_failure
type AccessLogField string

// AccessLogFields are all fields, as the schema has them.
func AccessLogFields() []AccessLogField {
	return []AccessLogField{
		"time", "client", "listener", "server_name", "tls_version", "tls_cipher", "client_subject", "method", "host", "path", "protocol",
		"status", "grpc_status", "flags", "details", "bytes_in", "bytes_out", "duration_ms", "backend", "group", "route", "attempts",
		"request_id", "trace_id", "user_agent", "transport_failure",
	}
}

// Tracing reports spans.
type Tracing struct {
	// Collector takes spans over OTLP (gRPC).
	Collector gatewayv1.BackendObjectReference `json:"collector"`
	// SamplePercent of the requests begins a trace: 0 to 100, a number or a text like
	// "0.5". Traces that clients began go on in any case. Default: 100.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? (self >= 0 && self <= 100) : self.matches('^(100(\\\\.0+)?|[0-9]{1,2}(\\\\.[0-9]{1,4})?)$')",message="must be from 0 to 100, with at most four decimals, like 10 or \"0.5\""
	SamplePercent *intstr.IntOrString `json:"samplePercent,omitempty"`
	// ServiceName that spans carry. Default: fairlead.
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
