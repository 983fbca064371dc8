package plane

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReadAPIGoesWithItsPlane: who uninstalls the plane is left no ConfigMap of it, also one that a plane without an owner had written.
func TestReadAPIGoesWithItsPlane(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ServiceAccount", Name: "fairlead-plane", UID: "1"}
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{owner}}, Data: map[string]string{"url": "https://192.0.2.1:7444"}}
	live := &corev1.ConfigMap{Data: map[string]string{"url": "https://192.0.2.1:7444"}}
	if !mergeRead(live, want) || len(live.OwnerReferences) != 1 || live.OwnerReferences[0].UID != "1" {
		t.Errorf("the ConfigMap is %+v", live)
	}
	if mergeRead(live, want) {
		t.Error("what is as it should be is written again")
	}
	live.Data = nil
	if !mergeRead(live, want) || live.Data["url"] == "" {
		t.Errorf("the ConfigMap is %+v", live)
	}
}
