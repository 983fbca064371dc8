package translate

import (
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
)

// allowance is where the endpoints of a Namespace may be though they would be refused. The zero value allows
// nothing.
type allowance struct {
	ranges  [families][]addrRange
	problem string // why the annotation cannot be read
}

// makeAllowance reads the annotation of a Namespace; nil when it has none.
func makeAllowance(o *corev1.Namespace) *allowance {
	if o == nil || o.Annotations[v1alpha1.AnnotationAllowEndpoints] == "" {
		return nil
	}
	prefixes, err := ParsePrefixes(o.Annotations[v1alpha1.AnnotationAllowEndpoints])
	if err != nil {
		return &allowance{problem: err.Error()}
	}
	return &allowance{ranges: rangesOf(prefixes)}
}
