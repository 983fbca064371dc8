package plane

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
)

// Whoever may write the status of a Service or a Namespace, or finalize one, can write annotations by that: the chart's policy names them.
func TestSubresourcesForgeNobody(t *testing.T) {
	r := newRig(t)
	r.stamps()
	ctx := context.Background()
	mallory, name := r.user("mallory-of-statuses")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stamped-status"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stamped-status"}}
	for _, o := range []client.Object{service, namespace} {
		if err := r.client.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.client.Delete(ctx, o) })
	}
	for _, c := range []struct {
		of, subresource string
		object          client.Object
	}{{"Service", "status", service}, {"Namespace", "status", namespace}, {"Namespace", "finalize", namespace}} {
		c.object.SetAnnotations(map[string]string{v1alpha1.AnnotationChangedBy: "alice"})
		if err := mallory.SubResource(c.subresource).Update(ctx, c.object); err != nil {
			t.Fatalf("%s of a %s: %v", c.subresource, c.of, err)
		}
		if err := r.client.Get(ctx, client.ObjectKeyFromObject(c.object), c.object); err != nil {
			t.Fatal(err)
		}
		if got := c.object.GetAnnotations()[v1alpha1.AnnotationChangedBy]; got != name {
			t.Errorf("%s of a %s: changed by %q, want %q", c.subresource, c.of, got, name)
		}
	}
}
