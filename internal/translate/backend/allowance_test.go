package backend

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/translate/address"
)

func TestAllowance(t *testing.T) {
	annotated := func(text string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationAllowEndpoints: text}}}
	}
	for _, o := range []*corev1.Namespace{nil, {}, annotated("")} {
		if a := makeAllowance(o); a != nil {
			t.Errorf("%v allows %v", o, a)
		}
	}
	a := makeAllowance(annotated("10.0.0.0/8, 2001:db8::1"))
	for text, want := range map[string]bool{"10.0.0.0": true, "10.255.255.255": true, "11.0.0.0": false, "9.255.255.255": false, "2001:db8::1": true, "2001:db8::2": false} {
		if got := address.InRanges(a.ranges, netip.MustParseAddr(text)); got != want {
			t.Errorf("%s is allowed: %v", text, got)
		}
	}
	if a := makeAllowance(annotated("10.0.0.0/8, 10.0.0.1/8")); a.problem == "" || address.InRanges(a.ranges, netip.MustParseAddr("10.0.0.1")) {
		t.Errorf("what cannot be read allows %v (%s)", a.ranges, a.problem)
	}
}
