package apisource

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// The client of the plane knows the resource of every kind that is written. It asks no API for them.
func TestWrittenKindsAreMapped(t *testing.T) {
	for _, o := range []client.Object{
		&corev1.Service{}, &discoveryv1.EndpointSlice{}, &corev1.Endpoints{}, &corev1.ServiceAccount{}, &corev1.ConfigMap{}, &corev1.Event{}, //nolint:staticcheck // Gimbal's
	} {
		gvk, err := apiutil.GVKForObject(o, scheme.Scheme)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := mapper().RESTMapping(gvk.GroupKind(), gvk.Version); err != nil || m.Resource.Version != gvk.Version {
			t.Errorf("%s: %v, %v", gvk, m, err)
		}
	}
}
