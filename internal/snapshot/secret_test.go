package snapshot

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Nothing of a Secret comes in but what translation needs, whatever the source forgot.
func TestSecretsAreTrimmed(t *testing.T) {
	const here = "system"
	o := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "b", ResourceVersion: "7", Annotations: map[string]string{"x": "PRIVATE"}},
		Data:       map[string][]byte{PasswordKey: []byte("hunter2"), "tls.key": []byte("PRIVATE"), "token": []byte("PRIVATE")},
	}
	s := New()
	if _, err := s.Set(o); err == nil || len(s.Secrets) != 0 || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a Secret as it is: %v", err)
	}
	trimmed := Trim(o, here)
	if k, err := s.Set(trimmed); err != nil || k.String() != "Secret system/b" {
		t.Errorf("a trimmed Secret: %s, %v", k, err)
	}
	if text := fmt.Sprintf("%q %s", trimmed.Data, fmt.Sprint(trimmed.Annotations)); strings.Contains(text, "PRIVATE") || string(trimmed.Data[PasswordKey]) != "hunter2" || trimmed.ResourceVersion != "7" {
		t.Errorf("trimmed: %s", text)
	}
	if string(o.Data["tls.key"]) != "PRIVATE" {
		t.Error("trimming changed its input")
	}
	if len(Trim(&corev1.Secret{Data: map[string][]byte{"ca.key": {1}}}, "").Data) != 0 {
		t.Error("a Secret without a password has data")
	}
	if got := Trim(o, "elsewhere"); len(got.Data) != 0 {
		t.Errorf("a password of another namespace: %v", got.Data)
	}
	if got := Trim(&corev1.Secret{Data: map[string][]byte{PasswordKey: []byte("a")}, StringData: map[string]string{PasswordKey: "b"}}, ""); string(got.Data[PasswordKey]) != "b" || got.StringData != nil {
		t.Errorf("stringData: %v", got)
	}
	pair := &corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{CertificateKey: {1}, PrivateKeyKey: {2}, AuthorityKey: {3}, "more": {4}}}
	if got := Trim(pair, "").Data; len(got) != 3 || got["more"] != nil {
		t.Errorf("of a TLS Secret came %v", got)
	}
	config := &corev1.ConfigMap{Data: map[string]string{AuthorityKey: "a", "other": "b"}}
	if got := TrimConfigMap(config).Data; len(got) != 1 || got[AuthorityKey] != "a" {
		t.Errorf("of a ConfigMap came %v", got)
	}
}
