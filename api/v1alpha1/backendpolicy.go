package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// BackendPolicy says how proxies treat the backends of a Service, whichever routes lead
// there.
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

// BackendPolicySpec is what is said of the backends of Services.
//
// +kubebuilder:validation:XValidation:rule="has(self.outlierDetection) || has(self.circuitBreaker) || has(self.retryBudget) || has(self.retryMethods) || has(self.idleTimeout) || has(self.sendProxyProtocol)",message="say at least one of outlierDetection, circuitBreaker, retryBudget, retryMethods, idleTimeout and sendProxyProtocol"
type BackendPolicySpec struct {
	// TargetRefs name Services; sectionName is the name of a port.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(t, t.group == '' && t.kind == 'Service')",message="targets of a BackendPolicy are Services: group \"\" and kind Service"
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, t == u))",message="name each target once"
	TargetRefs []gatewayv1.LocalPolicyTargetReferenceWithSectionName `json:"targetRefs"`

	// OutlierDetection takes backends out for a while that keep failing.
	// +optional
	OutlierDetection *OutlierDetection `json:"outlierDetection,omitempty"`

	// CircuitBreaker bounds what one machine sends to the Service at once; what is more is
	// answered 503 at once.
	// +optional
	CircuitBreaker *CircuitBreaker `json:"circuitBreaker,omitempty"`

	// RetryBudget bounds how many of the requests under way may be retries.
	// +optional
	RetryBudget *RetryBudget `json:"retryBudget,omitempty"`

	// RetryMethods are further methods, besides GET, HEAD and OPTIONS, whose requests are sent
	// again when a connection broke before an answer began. The first try may have been
	// processed: backends must bear to get such a request twice (RFC 9110, 9.2.2).
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	RetryMethods []RetryMethod `json:"retryMethods,omitempty"`

	// IdleTimeout closes connections to backends on which there was no request for so long. It
	// should be less than what the backends have themselves: a request that meets a closing
	// connection may be lost. Default: 50s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1h')",message="must be from 100ms to 1h"
	IdleTimeout gatewayv1.Duration `json:"idleTimeout,omitempty"`

	// SendProxyProtocol begins each connection with a PROXY header (version 2) that says
	// who the client is. Backends must expect it.
	// +optional
	SendProxyProtocol *bool `json:"sendProxyProtocol,omitempty"`
}

// RetryMethod is a method of requests that change something.
//
// +kubebuilder:validation:Enum=DELETE;PATCH;POST;PUT
type RetryMethod string

// OutlierDetection takes backends out that keep failing. The next time it is for longer:
// the ejection time, times how often it happened.
type OutlierDetection struct {
	// ConsecutiveErrors after which a backend is taken out: answers of 5xx, or none at
	// all. Default: 5.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	ConsecutiveErrors *int32 `json:"consecutiveErrors,omitempty"`
	// Interval at which backends are let back in. Default: 10s.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('1h')",message="must be from 100ms to 1h"
	Interval gatewayv1.Duration `json:"interval,omitempty"`
	// EjectionTime is how long a backend stays out the first time. Default: 30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('100ms') && duration(self) <= duration('24h')",message="must be from 100ms to 24h"
	EjectionTime gatewayv1.Duration `json:"ejectionTime,omitempty"`
	// MaxEjectedPercent of the backends may be out at once. Default: 50.
	// +optional
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxEjectedPercent *int32 `json:"maxEjectedPercent,omitempty"`
}

// CircuitBreaker bounds what one machine sends to the Service at once. What is left out
// has no bound.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxConnections) || has(self.maxPendingRequests) || has(self.maxRequests)",message="say at least one of maxConnections, maxPendingRequests and maxRequests"
type CircuitBreaker struct {
	// MaxConnections to all backends together.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConnections *int32 `json:"maxConnections,omitempty"`
	// MaxPendingRequests that wait for a connection.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxPendingRequests *int32 `json:"maxPendingRequests,omitempty"`
	// MaxRequests under way.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxRequests *int32 `json:"maxRequests,omitempty"`
}

// RetryBudget bounds retries.
type RetryBudget struct {
	// Percent of the requests under way that may be retries.
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
