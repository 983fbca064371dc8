package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// ErrorPage replaces the short text with which the proxy answers an error. It is never sent to
// gRPC clients.
type ErrorPage struct {
	// Statuses of the answers that the page replaces: numbers from 400 to 599, 4xx and 5xx. If
	// several pages match a status, the first one in the list is used.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(s, type(s) == int ? (s >= 400 && s <= 599) : s in ['4xx', '5xx'])",message="must be from 400 to 599, or 4xx or 5xx"
	Statuses []intstr.IntOrString `json:"statuses"`
	// ContentType of the page. Default: text/html; charset=utf-8.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[\x20-\x7e]+$`
	ContentType string `json:"contentType,omitempty"`
	// Body of the page, sent unchanged.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Body string `json:"body"`
}

// RouteErrorPage is an ErrorPage of routes.
type RouteErrorPage struct {
	ErrorPage `json:",inline"`
	// Of selects the errors that the page replaces. Proxy: errors of the proxy itself. All:
	// errors of backends, too; the status is kept, and the page replaces headers and body.
	// +optional
	// +kubebuilder:default=Proxy
	Of ErrorsOf `json:"of,omitempty"`
}

// ErrorsOf is the origin of errors.
//
// +kubebuilder:validation:Enum=Proxy;All
type ErrorsOf string

// The origins of errors.
const (
	ErrorsOfProxy ErrorsOf = "Proxy"
	ErrorsOfAll   ErrorsOf = "All"
)
