package backend

import (
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/translate/address"
)

// Allowance is where the endpoints of a Namespace may be though they would be refused. The zero value allows
// nothing.
type Allowance struct {
	Ranges  [address.Families][]address.Range
	Problem string // why the annotation cannot be read
}

// MakeAllowance reads the annotation of a Namespace; nil when it has none.
func MakeAllowance(o *corev1.Namespace) *Allowance {
	if o == nil || o.Annotations[v1alpha1.AnnotationAllowEndpoints] == "" {
		return nil
	}
	prefixes, err := address.ParsePrefixes(o.Annotations[v1alpha1.AnnotationAllowEndpoints])
	if err != nil {
		return &Allowance{Problem: err.Error()}
	}
	return &Allowance{Ranges: address.RangesOf(prefixes)}
}
