package snapshot

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
)

// The keys of a Secret or ConfigMap whose values a snapshot may hold.
const (
	// PasswordKey, KubeconfigKey, CloudsKey and NotificationsKey are kept of Secrets of one namespace, the operators'.
	PasswordKey      = "password"
	KubeconfigKey    = "kubeconfig"    // of an Upstream that is a Kubernetes cluster
	CloudsKey        = "clouds.yaml"   // of an Upstream that is an OpenStack cloud
	NotificationsKey = "notifications" // the URL of such a cloud's notifications
	// CertificateKey and PrivateKeyKey are kept of Secrets of type kubernetes.io/tls.
	CertificateKey = corev1.TLSCertKey
	PrivateKeyKey  = corev1.TLSPrivateKeyKey
	// AuthorityKey holds certificates that others are verified by.
	AuthorityKey = "ca.crt"
	// RevocationKey holds lists of certificates that are not valid any more.
	RevocationKey = "ca.crl"
)

// kept are the keys of which Trim may leave the values.
var kept = []string{PasswordKey, KubeconfigKey, CloudsKey, NotificationsKey, CertificateKey, PrivateKeyKey, AuthorityKey, RevocationKey}

// Trim returns a copy of a Secret that holds its names, type and age, and of its values
// those that the plane needs: certificate and key of TLS Secrets, CA certificates, and
// passwords and credentials of upstreams where the Secret's namespace is passwords. All else stays outside.
func Trim(o *corev1.Secret, passwords string) *corev1.Secret {
	trimmed := &corev1.Secret{
		TypeMeta: o.TypeMeta, ObjectMeta: trimMeta(o.ObjectMeta), Type: o.Type,
	}
	for _, k := range kept {
		switch k {
		case PasswordKey, KubeconfigKey, CloudsKey, NotificationsKey:
			if o.Namespace != passwords {
				continue
			}
		case CertificateKey, PrivateKeyKey:
			if o.Type != corev1.SecretTypeTLS {
				continue
			}
		}
		value, said := o.Data[k]
		if text, is := o.StringData[k]; is { // goes before Data, as at the API
			value, said = []byte(text), true
		}
		if !said {
			continue
		}
		if trimmed.Data == nil {
			trimmed.Data = map[string][]byte{}
		}
		trimmed.Data[k] = slices.Clone(value)
	}
	return trimmed
}

// TrimConfigMap returns a copy of a ConfigMap that holds its names, its age and CA
// certificates.
func TrimConfigMap(o *corev1.ConfigMap) *corev1.ConfigMap {
	trimmed := &corev1.ConfigMap{TypeMeta: o.TypeMeta, ObjectMeta: trimMeta(o.ObjectMeta)}
	for _, k := range []string{AuthorityKey, RevocationKey} {
		if text, said := o.Data[k]; said {
			if trimmed.Data == nil {
				trimmed.Data = map[string]string{}
			}
			trimmed.Data[k] = text
		}
	}
	return trimmed
}

// trimMeta leaves out labels and annotations, but for the one by which the API says who wrote the object.
func trimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	var stamp map[string]string
	if who, is := m.Annotations[v1alpha1.AnnotationChangedBy]; is {
		stamp = map[string]string{v1alpha1.AnnotationChangedBy: who}
	}
	return metav1.ObjectMeta{
		Annotations: stamp,
		Namespace:   m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Generation: m.Generation, CreationTimestamp: m.CreationTimestamp,
	}
}

// trimmed reports whether a Secret holds no more than Trim leaves.
func trimmed(o *corev1.Secret) bool {
	for k := range o.Annotations {
		if k != v1alpha1.AnnotationChangedBy {
			return false
		}
	}
	return len(o.StringData) == 0 && onlyKept(slices.Collect(maps.Keys(o.Data)))
}

func onlyKept(keys []string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool { return !slices.Contains(kept, k) })
}
