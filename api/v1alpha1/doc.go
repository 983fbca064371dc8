// Package v1alpha1 holds Fairlead's own resources, API group fairlead.dev.
//
// It has only types and their registration: no defaults beyond the schema's, no behaviour,
// and no import of other packages of Fairlead. These comments are the only definition of the
// fields: the CRDs, and with them `kubectl explain`, are generated from the comments.
//
// +kubebuilder:object:generate=true
// +groupName=fairlead.dev
package v1alpha1
