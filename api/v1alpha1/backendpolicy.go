package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// BackendPolicy configures how proxies treat the backends of a Service, for all routes to the
// Service.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=backendpolicies,shortName=backendpol,categories=fairlead
// +kubebuilder:metadata:labels="gateway.networking.k8s.io/policy=Direct"
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.targetRefs[0].name`
// +kubebuilder:printcolumn:name="Section",type=string,JSONPath=`.spec.targetRefs[0].sectionName`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.ancestors[0].conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.ancestors[0].conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BackendPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BackendPolicySpec `json:"spec"`
	// +optional
	Status gatewayv1.PolicyStatus `json:"status,omitempty,omitzero"`
}

// BackendPolicySpec configures the backends of Services.
//
// +kubebuilder:validation:XValidation:rule="has(self.outlierDetection) || has(self.circuitBreaker) || has(self.retryBudget) || has(self.retryMethods) || has(self.idleTimeout) || has(self.sendProxyProtocol)",message="set at least one of outlierDetection, circuitBreaker, retryBudget, retryMethods, idleTimeout and sendProxyProtocol"
type BackendPolicySpec struct {
	// TargetRefs are the Services that the policy applies to; sectionName is the name of a
	// port.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.group == '' && t.kind == 'Service')",message="targets of a BackendPolicy are Services: group \"\" and kind Service"
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, t == u))",message="name each target once"
	TargetRefs []gatewayv1.LocalPolicyTargetReferenceWithSectionName `json:"targetRefs"`

	// OutlierDetection ejects backends that keep failing, for a limited time.
	// +optional
	OutlierDetection *OutlierDetection `json:"outlierDetection,omitempty"`

	// CircuitBreaker limits the load that one machine puts on the Service. Requests beyond the
	// limits are answered 503.
	// +optional
	CircuitBreaker *CircuitBreaker `json:"circuitBreaker,omitempty"`

	// RetryBudget limits the share of active requests that may be retries.
	// +optional
	RetryBudget *RetryBudget `json:"retryBudget,omitempty"`

	// RetryMethods are the methods, in addition to GET, HEAD and OPTIONS, whose requests are
	// retried if the connection breaks before the answer begins. A backend may have processed
	// the first try, so it must tolerate duplicate requests (RFC 9110, 9.2.2).
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	RetryMethods []RetryMethod `json:"retryMethods,omitempty"`

	// IdleTimeout closes a connection to a backend after this time without a request. It
	// should be shorter than the idle timeout of the backends: a request on a connection that
	// the backend is closing may be lost. Default: 50s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1h')",message="must be from 100ms to 1h"
	IdleTimeout gatewayv1.Duration `json:"idleTimeout,omitempty"`

	// SendProxyProtocol begins each connection to a backend with a PROXY header (version 2),
	// which contains the client's address. Backends must expect the header.
	// +optional
	SendProxyProtocol *bool `json:"sendProxyProtocol,omitempty"`
}

// RetryMethod is an HTTP method that is not retried by default.
//
// +kubebuilder:validation:Enum=DELETE;PATCH;POST;PUT
type RetryMethod string

// OutlierDetection ejects backends that keep failing. The ejection time is multiplied by the
// number of times that the backend has been ejected.
type OutlierDetection struct {
	// ConsecutiveErrors is the number of errors in a row after which a backend is ejected. A
	// 5xx answer and no answer are errors. Default: 5.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	ConsecutiveErrors *int32 `json:"consecutiveErrors,omitempty"`
	// Interval between two checks whether the ejection time of a backend is over. Default:
	// 10s.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1h')",message="must be from 100ms to 1h"
	Interval gatewayv1.Duration `json:"interval,omitempty"`
	// EjectionTime is how long a backend is ejected the first time. Default: 30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('24h')",message="must be from 100ms to 24h"
	EjectionTime gatewayv1.Duration `json:"ejectionTime,omitempty"`
	// MaxEjectedPercent is the largest share of the backends that may be ejected at the same
	// time. Default: 50.
	// +optional
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxEjectedPercent *int32 `json:"maxEjectedPercent,omitempty"`
}

// CircuitBreaker limits the load that one machine puts on the Service. An omitted limit is
// unlimited.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxConnections) || has(self.maxPendingRequests) || has(self.maxRequests)",message="set at least one of maxConnections, maxPendingRequests and maxRequests"
type CircuitBreaker struct {
	// MaxConnections is the limit of connections to all backends together.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConnections *int32 `json:"maxConnections,omitempty"`
	// MaxPendingRequests is the limit of requests that wait for a connection.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPendingRequests *int32 `json:"maxPendingRequests,omitempty"`
	// MaxRequests is the limit of active requests.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxRequests *int32 `json:"maxRequests,omitempty"`
}

// RetryBudget limits retries.
type RetryBudget struct {
	// Percent is the largest share of active requests that may be retries.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Percent int32 `json:"percent"`
}

// BackendPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type BackendPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BackendPolicy `json:"items"`
}

func init() { register(&BackendPolicy{}, &BackendPolicyList{}) }
