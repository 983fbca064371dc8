package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PasswordKey is the only key of a Secret whose value a snapshot holds.
const PasswordKey = "password"

// Trim returns a copy of a Secret that holds its names, its age and the value of
// PasswordKey. Whatever else the Secret holds, private keys among it, stays outside.
func Trim(o *corev1.Secret) *corev1.Secret {
	trimmed := &corev1.Secret{
		TypeMeta: o.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
			Generation: o.Generation, CreationTimestamp: o.CreationTimestamp,
		},
	}
	if text, said := o.StringData[PasswordKey]; said { // goes before Data, as at the API
		trimmed.Data = map[string][]byte{PasswordKey: []byte(text)}
	} else if value, said := o.Data[PasswordKey]; said {
		trimmed.Data = map[string][]byte{PasswordKey: append([]byte(nil), value...)}
	}
	return trimmed
}

// trimmed reports whether a Secret holds no more than Trim leaves.
func trimmed(o *corev1.Secret) bool {
	_, password := o.Data[PasswordKey]
	return len(o.StringData) == 0 && len(o.Annotations) == 0 && (len(o.Data) == 0 || len(o.Data) == 1 && password)
}
