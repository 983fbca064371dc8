package translate

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/target"
)

// TestManyBackendTLSPolicies holds that who makes thousands of policies for one Service has each of them
// read no other but the one that holds.
func TestManyBackendTLSPolicies(t *testing.T) {
	const n = 500
	s := snapshot.New()
	objects := []metav1.Object{&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}}
	policy := func(i int) *gatewayv1.BackendTLSPolicy {
		o := &gatewayv1.BackendTLSPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprintf("p-%d", i), CreationTimestamp: metav1.Unix(1_000_000-int64(i), 0)}}
		o.Spec.TargetRefs = []gatewayv1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: gatewayv1.LocalPolicyTargetReference{Kind: "Service", Name: "app"}}}
		o.Spec.Validation.Hostname = "app.test"
		return o
	}
	for i := range n {
		objects = append(objects, policy(i))
	}
	setAll(t, s, objects...)
	tr := full(input.Config{}, s)
	edges := 0
	for _, size := range tr.graph.Sizes() {
		edges += size.Reads
	}
	if edges > 20*n {
		t.Errorf("%d policies read %d nodes", n, edges)
	}
	target := target.ServicePort{Service: snapshot.Name{Namespace: "team", Name: "app"}}
	for i := range n {
		oldest := snapshot.Name{Namespace: "team", Name: fmt.Sprintf("p-%d", n-1-i)}
		if f := tr.targets.TLSHolder(tr.graph.Peek(), target); f != oldest {
			t.Fatalf("%v holds, want %s", f, oldest)
		}
		s.Delete(snapshot.Key{Kind: snapshot.KindBackendTLSPolicy, Name: oldest})
		tr.Apply(s, []snapshot.Key{{Kind: snapshot.KindBackendTLSPolicy, Name: oldest}})
	}
	if size := tr.graph.Sizes()["BackendTLSPolicies of a Service"]; size.Values > 0 {
		t.Errorf("%d are left behind", size.Values)
	}
}
