// Package certificatetest makes certificates and TLS Secrets for tests.
//
// It refuses to be used by other code than tests. Invariant: every key is new, and every certificate is signed by its own key.
package certificatetest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/internal/snapshot"
)

// Key makes an ECDSA key.
func Key(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Pair makes a certificate for names, which is valid throughout 2026, and returns it and its key in PEM.
func Pair(t testing.TB, key crypto.Signer, names ...string) (chain, private []byte) {
	t.Helper()
	return Sign(t, key, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: names,
		NotBefore: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
	})
}

// Sign makes a certificate after a template, and returns it and its key in PEM.
func Sign(t testing.TB, key crypto.Signer, template *x509.Certificate) (chain, private []byte) {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// Secret is a TLS Secret with a new certificate for names.
func Secret(t testing.TB, namespace, name string, names ...string) *corev1.Secret {
	t.Helper()
	o := SecretOf(Pair(t, Key(t, elliptic.P256()), names...))
	o.Namespace, o.Name = namespace, name
	return o
}

// SecretOf is a TLS Secret, which has no name yet.
func SecretOf(chain, key []byte) *corev1.Secret {
	return &corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{snapshot.CertificateKey: chain, snapshot.PrivateKeyKey: key}}
}
