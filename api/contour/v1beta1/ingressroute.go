package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IngressRoute routes the requests of one host name to services, or delegates a
// path of it to an IngressRoute of another namespace.
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

// IngressRouteSpec defines the desired routes.
type IngressRouteSpec struct {
	// VirtualHost makes this IngressRoute a root: the entrance of its host name.
	// Without it the IngressRoute serves only what is delegated to it.
	// +optional
	VirtualHost *VirtualHost `json:"virtualhost,omitempty"`
	// Routes are tried longest prefix first.
	// +optional
	Routes []Route `json:"routes,omitempty"`
	// TCPProxy forwards connections instead of requests.
	// +optional
	TCPProxy *TCPProxy `json:"tcpproxy,omitempty"`
}

// VirtualHost is the host name that a root IngressRoute owns.
type VirtualHost struct {
	// Fqdn is the host name. Exactly one root IngressRoute may own it.
	Fqdn string `json:"fqdn"`
	// +optional
	TLS *TLS `json:"tls,omitempty"`
}

// TLS says how connections to the host are secured.
type TLS struct {
	// SecretName names the Secret with certificate and key: "name", or
	// "namespace/name" when it is delegated to this namespace.
	// +optional
	SecretName string `json:"secretName,omitempty"`
	// MinimumProtocolVersion is 1.1, 1.2 or 1.3.
	// +optional
	MinimumProtocolVersion string `json:"minimumProtocolVersion,omitempty"`
	// Passthrough leaves TLS to the backend.
	// +optional
	Passthrough bool `json:"passthrough,omitempty"`
}

// Route sends one path prefix to services, or delegates it.
type Route struct {
	// Match is the path prefix.
	Match string `json:"match"`
	// Services take the requests, in proportion to their weights.
	// +optional
	Services []Service `json:"services,omitempty"`
	// Delegate hands the prefix to another IngressRoute. Not together with services.
	// +optional
	Delegate *Delegate `json:"delegate,omitempty"`
	// HealthCheck holds for each of the services that has none of its own.
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// EnableWebsockets allows the connection to be upgraded.
	// +optional
	EnableWebsockets bool `json:"enableWebsockets,omitempty"`
	// PermitInsecure serves the route in clear text too when the host has TLS.
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

// TimeoutPolicy bounds how long a request may take.
type TimeoutPolicy struct {
	// Request is a duration; "infinity" and "0s" mean no timeout.
	// +optional
	Request string `json:"request,omitempty"`
}

// RetryPolicy retries a request that failed with a 5xx response.
type RetryPolicy struct {
	// NumRetries is how often; 1 when perTryTimeout is set without it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	NumRetries int32 `json:"count,omitempty"`
	// PerTryTimeout bounds each try, as a duration.
	// +optional
	PerTryTimeout string `json:"perTryTimeout,omitempty"`
}

// TCPProxy forwards connections to services, or delegates them.
type TCPProxy struct {
	// +optional
	Services []Service `json:"services,omitempty"`
	// +optional
	Delegate *Delegate `json:"delegate,omitempty"`
}

// Service is a Kubernetes Service of the IngressRoute's own namespace.
type Service struct {
	Name string `json:"name"`
	// Port is a port number of the Service.
	Port int32 `json:"port"`
	// Weight is the share of requests relative to the other services of the route.
	// All unset: equal shares. Some set: those unset get none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Weight *int32 `json:"weight,omitempty"`
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Strategy is RoundRobin, WeightedLeastRequest, Random or Cookie.
	// +optional
	Strategy string `json:"strategy,omitempty"`
	// UpstreamValidation checks the certificate of a TLS backend.
	// +optional
	UpstreamValidation *UpstreamValidation `json:"validation,omitempty"`
}

// UpstreamValidation says which certificate a backend must show.
type UpstreamValidation struct {
	// CACertificate names the Secret with the authority's certificate.
	CACertificate string `json:"caSecret"`
	// SubjectName must stand in the certificate's subject alternative names.
	SubjectName string `json:"subjectName"`
}

// HealthCheck asks every backend of a service for a path and takes those out that
// do not answer 200.
type HealthCheck struct {
	// Path is asked for.
	Path string `json:"path"`
	// Host is the Host header; the service's name when empty.
	// +optional
	Host string `json:"host,omitempty"`
	// IntervalSeconds is the time between two checks, 5 when 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	IntervalSeconds int64 `json:"intervalSeconds,omitempty"`
	// TimeoutSeconds is how long an answer may take, 2 when 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds int64 `json:"timeoutSeconds,omitempty"`
	// UnhealthyThresholdCount failed checks take a backend out, 3 when 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UnhealthyThresholdCount int64 `json:"unhealthyThresholdCount,omitempty"`
	// HealthyThresholdCount passed checks bring it back, 2 when 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	HealthyThresholdCount int64 `json:"healthyThresholdCount,omitempty"`
}

// Delegate names the IngressRoute that takes over.
type Delegate struct {
	Name string `json:"name"`
	// Namespace of the IngressRoute; this one's when empty.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Status says what became of an IngressRoute.
type Status struct {
	// CurrentStatus is valid, invalid or orphaned.
	// +optional
	CurrentStatus string `json:"currentStatus,omitempty"`
	// Description says why, with the path of each field at fault.
	// +optional
	Description string `json:"description,omitempty"`
	// LoadBalancer holds the addresses at which a root is reached, as in Contour's
	// HTTPProxy.
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

// TLSCertificateDelegationSpec lists what is delegated to whom.
type TLSCertificateDelegationSpec struct {
	Delegations []CertificateDelegation `json:"delegations"`
}

// CertificateDelegation lets the target namespaces use one Secret.
type CertificateDelegation struct {
	SecretName string `json:"secretName"`
	// TargetNamespaces may use the Secret; "*" means all.
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
