// Package v1alpha1 holds Fairlead's own resources, API group fairlead.dev.
//
// It is types and their registration only: no defaults beyond the schema's, no
// behaviour, nothing of ours imported. What a field means is said here once; the
// CRDs, `kubectl explain` and the reference are made from these comments.
//
// +kubebuilder:object:generate=true
// +groupName=fairlead.dev
package v1alpha1
