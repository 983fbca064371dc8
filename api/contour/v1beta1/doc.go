// Package v1beta1 holds the compatibility types of contour.heptio.com/v1beta1,
// IngressRoute and TLSCertificateDelegation, as Contour 0.15 defined them, so that
// manifests written for Gimbal apply unchanged.
//
// Two tolerances beyond Contour's schema: healthCheck may stand beside services
// under a route, where it holds for each service without one of its own, and a
// service may be named by any Service port number.
//
// +kubebuilder:object:generate=true
// +groupName=contour.heptio.com
package v1beta1
