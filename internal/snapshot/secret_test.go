package snapshot

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Nothing of a Secret comes in but its password, whatever the source forgot.
func TestSecretsAreTrimmed(t *testing.T) {
	o := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", ResourceVersion: "7", Annotations: map[string]string{"x": "PRIVATE"}},
		Data:       map[string][]byte{PasswordKey: []byte("hunter2"), "tls.key": []byte("PRIVATE")},
	}
	s := New()
	if _, err := s.Set(o); err == nil || len(s.Secrets) != 0 || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a Secret as it is: %v", err)
	}
	trimmed := Trim(o)
	if k, err := s.Set(trimmed); err != nil || k.String() != "Secret a/b" {
		t.Errorf("a trimmed Secret: %s, %v", k, err)
	}
	if text := fmt.Sprintf("%q %s", trimmed.Data, fmt.Sprint(trimmed.Annotations)); strings.Contains(text, "PRIVATE") || string(trimmed.Data[PasswordKey]) != "hunter2" || trimmed.ResourceVersion != "7" {
		t.Errorf("trimmed: %s", text)
	}
	if string(o.Data["tls.key"]) != "PRIVATE" {
		t.Error("trimming changed its input")
	}
	if len(Trim(&corev1.Secret{Data: map[string][]byte{"ca.key": {1}}}).Data) != 0 {
		t.Error("a Secret without a password has data")
	}
	if got := Trim(&corev1.Secret{Data: map[string][]byte{PasswordKey: []byte("a")}, StringData: map[string]string{PasswordKey: "b"}}); string(got.Data[PasswordKey]) != "b" || got.StringData != nil {
		t.Errorf("stringData: %v", got)
	}
}
