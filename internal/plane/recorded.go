package plane

import (
	"maps"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/snapshot"
)

// isRecorded says whether a change may be one that a user made. It takes next to no time: status alone changes often.
func isRecorded(before snapshot.Object, c snapshot.Change) bool {
	after := c.Object
	if c.Key.Kind == snapshot.KindEndpointSlice || before == nil && after == nil {
		return false
	}
	private := true
	for _, o := range []snapshot.Object{before, after} {
		if o == nil {
			continue
		}
		if o.GetLabels()[v1alpha1.LabelUpstream] != "" {
			return false
		}
		private = private && isPrivate(o)
	}
	if private {
		return false
	}
	if before == nil || after == nil || before.GetUID() != after.GetUID() {
		return true
	}
	if !maps.Equal(before.GetLabels(), after.GetLabels()) || !maps.Equal(before.GetAnnotations(), after.GetAnnotations()) {
		return true
	}
	if g := after.GetGeneration(); g != 0 {
		return g != before.GetGeneration()
	}
	switch a := after.(type) {
	case *corev1.Service:
		b, is := before.(*corev1.Service)
		return !is || !reflect.DeepEqual(b.Spec, a.Spec)
	case *corev1.Secret:
		b, is := before.(*corev1.Secret)
		return !is || !reflect.DeepEqual(b.Data, a.Data)
	case *corev1.ConfigMap:
		b, is := before.(*corev1.ConfigMap)
		return !is || !reflect.DeepEqual(b.Data, a.Data)
	case *corev1.Namespace:
		return false
	}
	return true
}

// isPrivate says of Secrets and ConfigMaps that they have nothing for machines, or are the plane's own or Kubernetes'.
func isPrivate(o snapshot.Object) bool {
	switch o := o.(type) {
	case *corev1.Secret:
		return o.Type != corev1.SecretTypeTLS && len(o.Data) == 0 || strings.HasPrefix(string(o.Type), "fairlead.dev/") || o.Type == corev1.SecretTypeServiceAccountToken
	case *corev1.ConfigMap:
		return len(o.Data) == 0 || o.Name == "kube-root-ca.crt" || o.Namespace == Namespace && o.Name == v1.ReadConfigMap
	}
	return false
}
