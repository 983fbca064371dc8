// Package v1beta1 holds the compatibility types of contour.heptio.com/v1beta1,
// IngressRoute and TLSCertificateDelegation, as Contour 0.15 defined them, so that
// manifests written for Gimbal apply unchanged.
//
// Two things go beyond Contour's schema. A route may have a healthCheck beside its services;
// it applies to each service that has none of its own. A service may name any port number of
// its Service.
//
// +kubebuilder:object:generate=true
// +groupName=contour.heptio.com
package v1beta1
