package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IngressRoute routes the requests of a host to Services, or delegates a path prefix of the
// host to an IngressRoute of another namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=ingressroutes,singular=ingressroute,categories=fairlead
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="FQDN",type=string,JSONPath=`.spec.virtualhost.fqdn`,description="Fully qualified domain name"
// +kubebuilder:printcolumn:name="TLS Secret",type=string,JSONPath=`.spec.virtualhost.tls.secretName`,description="Secret with TLS credentials"
// +kubebuilder:printcolumn:name="First route",type=string,JSONPath=`.spec.routes[0].match`,description="First routes defined"
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.currentStatus`,description="The current status of the IngressRoute"
// +kubebuilder:printcolumn:name="Status Description",type=string,JSONPath=`.status.description`,description="Description of the current status"
type IngressRoute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IngressRouteSpec `json:"spec"`
	// +optional
	Status Status `json:"status,omitempty"`
}

// IngressRouteSpec configures the host, the routes and the connections of an IngressRoute.
type IngressRouteSpec struct {
	// VirtualHost makes this IngressRoute the root of its host. Without it, the IngressRoute
	// serves only what other IngressRoutes delegate to it.
	// +optional
	VirtualHost *VirtualHost `json:"virtualhost,omitempty"`
	// Routes of the requests. The longest matching prefix has precedence.
	// +optional
	Routes []Route `json:"routes,omitempty"`
	// TCPProxy forwards connections instead of requests.
	// +optional
	TCPProxy *TCPProxy `json:"tcpproxy,omitempty"`
}

// VirtualHost is the host name that a root IngressRoute owns.
type VirtualHost struct {
	// Fqdn is the host name. Only one root IngressRoute can own a host.
	Fqdn string `json:"fqdn"`
	// +optional
	TLS *TLS `json:"tls,omitempty"`
}

// TLS configures the TLS connections of the host.
type TLS struct {
	// SecretName is the name of the Secret with the certificate and its key: "name", or
	// "namespace/name" if a TLSCertificateDelegation there delegates the Secret to this
	// namespace.
	// +optional
	SecretName string `json:"secretName,omitempty"`
	// MinimumProtocolVersion of TLS: 1.1, 1.2 or 1.3.
	// +optional
	MinimumProtocolVersion string `json:"minimumProtocolVersion,omitempty"`
	// Passthrough forwards TLS to the backends without decrypting it.
	// +optional
	Passthrough bool `json:"passthrough,omitempty"`
}

// Route sends the requests of a path prefix to Services, or delegates them.
type Route struct {
	// Match is the path prefix.
	Match string `json:"match"`
	// Services that receive the requests, in proportion to their weights.
	// +optional
	Services []Service `json:"services,omitempty"`
	// Delegate delegates the prefix to another IngressRoute. It excludes services.
	// +optional
	Delegate *Delegate `json:"delegate,omitempty"`
	// HealthCheck of each service that has none of its own.
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// EnableWebsockets allows upgrades of connections to WebSocket.
	// +optional
	EnableWebsockets bool `json:"enableWebsockets,omitempty"`
	// PermitInsecure also serves the route in clear text if the host has TLS.
	// +optional
	PermitInsecure bool `json:"permitInsecure,omitempty"`
	// PrefixRewrite replaces the matched prefix before the request is forwarded.
	// +optional
	PrefixRewrite string `json:"prefixRewrite,omitempty"`
	// +optional
	TimeoutPolicy *TimeoutPolicy `json:"timeoutPolicy,omitempty"`
	// +optional
	RetryPolicy *RetryPolicy `json:"retryPolicy,omitempty"`
}

// TimeoutPolicy limits the duration of a request.
type TimeoutPolicy struct {
	// Request is a duration; "infinity" and "0s" mean no timeout.
	// +optional
	Request string `json:"request,omitempty"`
}

// RetryPolicy retries requests that failed with a 5xx answer.
type RetryPolicy struct {
	// NumRetries is the number of retries. Default: 1 if perTryTimeout is set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	NumRetries int32 `json:"count,omitempty"`
	// PerTryTimeout limits the duration of each try.
	// +optional
	PerTryTimeout string `json:"perTryTimeout,omitempty"`
}

// TCPProxy forwards connections to Services, or delegates them.
type TCPProxy struct {
	// +optional
	Services []Service `json:"services,omitempty"`
	// +optional
	Delegate *Delegate `json:"delegate,omitempty"`
}

// Service is a Kubernetes Service in the namespace of the IngressRoute.
type Service struct {
	Name string `json:"name"`
	// Port is a port number of the Service.
	Port int32 `json:"port"`
	// Weight is the share of requests, relative to the other services of the route. If no
	// service has a weight, the shares are equal. If some have one, the others receive no
	// requests.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Weight *int32 `json:"weight,omitempty"`
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Strategy is RoundRobin, WeightedLeastRequest, Random or Cookie.
	// +optional
	Strategy string `json:"strategy,omitempty"`
	// UpstreamValidation verifies the certificate of a TLS backend.
	// +optional
	UpstreamValidation *UpstreamValidation `json:"validation,omitempty"`
}

// UpstreamValidation configures the verification of a backend's certificate.
type UpstreamValidation struct {
	// CACertificate is the name of the Secret with the certificates of the authorities.
	CACertificate string `json:"caSecret"`
	// SubjectName is the name that the certificate must have among its subject alternative
	// names.
	SubjectName string `json:"subjectName"`
}

// HealthCheck requests a path from every backend of a service. A backend that does not answer
// 200 is unhealthy.
type HealthCheck struct {
	// Path of the request.
	Path string `json:"path"`
	// Host header of the request. Default: the name of the service.
	// +optional
	Host string `json:"host,omitempty"`
	// IntervalSeconds is the time between two checks. Default: 5.
	// +optional
	// +kubebuilder:validation:Minimum=0
	IntervalSeconds int64 `json:"intervalSeconds,omitempty"`
	// TimeoutSeconds is the time within which a backend must answer. Default: 2.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
	// UnhealthyThresholdCount is the number of failed checks in a row after which a backend is
	// unhealthy. Default: 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UnhealthyThresholdCount int64 `json:"unhealthyThresholdCount,omitempty"`
	// HealthyThresholdCount is the number of successful checks in a row after which a backend
	// is healthy again. Default: 2.
	// +optional
	// +kubebuilder:validation:Minimum=0
	HealthyThresholdCount int64 `json:"healthyThresholdCount,omitempty"`
}

// Delegate names the IngressRoute to which a route or a tcpproxy delegates.
type Delegate struct {
	Name string `json:"name"`
	// Namespace of the IngressRoute. Default: the namespace of the delegating IngressRoute.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Status is the result of the validation of an IngressRoute.
type Status struct {
	// CurrentStatus is valid, invalid or orphaned.
	// +optional
	CurrentStatus string `json:"currentStatus,omitempty"`
	// Description is the reason, with the path of each invalid field.
	// +optional
	Description string `json:"description,omitempty"`
	// LoadBalancer has the addresses of a root, as in Contour's HTTPProxy.
	// +optional
	LoadBalancer corev1.LoadBalancerStatus `json:"loadBalancer,omitempty,omitzero"`
}

// Values of Status.CurrentStatus.
const (
	StatusValid    = "valid"
	StatusInvalid  = "invalid"
	StatusOrphaned = "orphaned"
)

// IngressRouteList is a list of IngressRoutes.
//
// +kubebuilder:object:root=true
type IngressRouteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IngressRoute `json:"items"`
}

// TLSCertificateDelegation lets other namespaces use Secrets of this one.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=tlscertificatedelegations,singular=tlscertificatedelegation,shortName=tlscerts,categories=fairlead
type TLSCertificateDelegation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TLSCertificateDelegationSpec `json:"spec"`
}

// TLSCertificateDelegationSpec lists the delegated Secrets and the namespaces that may use
// them.
type TLSCertificateDelegationSpec struct {
	Delegations []CertificateDelegation `json:"delegations"`
}

// CertificateDelegation lets the target namespaces use one Secret.
type CertificateDelegation struct {
	SecretName string `json:"secretName"`
	// TargetNamespaces are the namespaces that may use the Secret; "*" selects all.
	TargetNamespaces []string `json:"targetNamespaces"`
}

// TLSCertificateDelegationList is a list of TLSCertificateDelegations.
//
// +kubebuilder:object:root=true
type TLSCertificateDelegationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TLSCertificateDelegation `json:"items"`
}
