package backend

import (
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/translate/address"
)

// allowance is where the endpoints of a Namespace may be though they would be refused. The zero value allows
// nothing.
type allowance struct {
	ranges  [address.Families][]address.Range
	problem string // why the annotation cannot be read
}

// makeAllowance reads the annotation of a Namespace; nil when it has none.
func makeAllowance(o *corev1.Namespace) *allowance {
	if o == nil || o.Annotations[v1alpha1.AnnotationAllowEndpoints] == "" {
		return nil
	}
	prefixes, err := address.ParsePrefixes(o.Annotations[v1alpha1.AnnotationAllowEndpoints])
	if err != nil {
		return &allowance{problem: err.Error()}
	}
	return &allowance{ranges: address.RangesOf(prefixes)}
}
