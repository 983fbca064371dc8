package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// ErrorPage is what clients are shown in place of the short line with which the proxy answers an error. Calls of
// gRPC are never shown one.
type ErrorPage struct {
	// Statuses of the answers that have it: from 400 to 599, or 4xx and 5xx. Of several pages for one status the first
	// in the list is shown.
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
	// Body is the page, as it is.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Body string `json:"body"`
}

// RouteErrorPage is an ErrorPage of routes.
type RouteErrorPage struct {
	ErrorPage `json:",inline"`
	// Of says whose answers have it: Proxy, those that the proxy gives itself; or All, those of backends too, of which
	// the status stays, and headers and body do not.
	// +optional
	// +kubebuilder:default=Proxy
	Of ErrorsOf `json:"of,omitempty"`
}

// ErrorsOf is whose errors.
//
// +kubebuilder:validation:Enum=Proxy;All
type ErrorsOf string

// Whose.
const (
	ErrorsOfProxy ErrorsOf = "Proxy"
	ErrorsOfAll   ErrorsOf = "All"
)
