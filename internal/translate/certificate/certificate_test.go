package certificate

import (
	"bytes"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate/certificatetest"
	"fairlead.dev/internal/translate/input"
)

func TestCertificatesAreJudged(t *testing.T) {
	name := snapshot.Name{Namespace: "team", Name: "web"}
	chain, key := certificatetest.Pair(t, certificatetest.Key(t, elliptic.P256()), "www.example.com", "*.Example.org")
	_, other := certificatetest.Pair(t, certificatetest.Key(t, elliptic.P256()), "www.example.com")
	small, smallKey := certificatetest.Pair(t, certificatetest.Key(t, elliptic.P224()), "a")
	notForSigning, notForSigningKey := certificatetest.Sign(t, certificatetest.Key(t, elliptic.P256()), &x509.Certificate{SerialNumber: big.NewInt(1), KeyUsage: x509.KeyUsageKeyAgreement})
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed, edText := certificatetest.Pair(t, edKey, "a")
	opaque := certificatetest.SecretOf(chain, key)
	opaque.Type = corev1.SecretTypeOpaque
	for _, c := range []struct {
		what    string
		secret  *corev1.Secret
		problem string
	}{
		{"sound", certificatetest.SecretOf(chain, key), ""},
		{"missing", nil, "not found"},
		{"of another type", opaque, `is of type "Opaque"`},
		{"without a certificate", certificatetest.SecretOf(nil, key), "has no tls.crt"},
		{"without a key", certificatetest.SecretOf(chain, nil), "has no tls.key"},
		{"no PEM", certificatetest.SecretOf([]byte("hello"), key), "tls.crt that has no certificate in PEM"},
		{"a key that is no PEM", certificatetest.SecretOf(chain, []byte("hello")), "tls.key that has no private key in PEM"},
		{"another's key", certificatetest.SecretOf(chain, other), "tls.key that is not the key"},
		{"a broken certificate", certificatetest.SecretOf(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}}), key), "cannot be read"},
		{"a block that cannot be read after a sound one", certificatetest.SecretOf(slices.Concat(chain, []byte("-----BEGIN CERTIFICATE-----\nMII!\n-----END CERTIFICATE-----\n")), key), "tls.crt that has a block of PEM that cannot be read"},
		{"two blocks on one line", certificatetest.SecretOf(slices.Concat(bytes.TrimRight(chain, "\n"), chain), key), "block of PEM that cannot be read"},
		{"a key after a block that cannot be read", certificatetest.SecretOf(chain, slices.Concat([]byte("-----BEGIN PRIVATE KEY-----\nMII"), key)), "tls.key that has a block of PEM that cannot be read"},
		{"text around", certificatetest.SecretOf(slices.Concat([]byte("subject=x\n"), chain, []byte("\n# end\n")), slices.Concat([]byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"), key)), ""},
		{"a key of another type than it says", certificatetest.SecretOf(chain, bytes.ReplaceAll(key, []byte("PRIVATE KEY"), []byte("FOO PRIVATE KEY"))), ""},
		{"a key with headers", certificatetest.SecretOf(chain, bytes.Replace(key, []byte("KEY-----\n"), []byte("KEY-----\nComment: mine\n\n"), 1)), ""},
		{"a key encrypted as of old", certificatetest.SecretOf(chain, bytes.Replace(key, []byte("KEY-----\n"), []byte("KEY-----\nProc-Type:4,ENCRYPTED\nDEK-Info:AES-128-CBC,00\n\n"), 1)), "is encrypted"},
		{"a broken key", certificatetest.SecretOf(chain, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte{1}})), "cannot be read"},
		{"an encrypted key", certificatetest.SecretOf(chain, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{1}})), "is encrypted"},
		{"a key that must not sign", certificatetest.SecretOf(notForSigning, notForSigningKey), "key usage has no digital signature"},
		{"a curve that Envoy refuses", certificatetest.SecretOf(small, smallKey), "neither RSA nor ECDSA"},
		{"a kind of key that Envoy refuses", certificatetest.SecretOf(ed, edText), "neither an RSA nor an ECDSA key"},
	} {
		f := read(c.secret, name)
		if (c.problem == "") != (f.Problem == "") || !strings.Contains(f.Problem, c.problem) || (f.Certificate == nil) != (c.problem != "") {
			t.Errorf("%s: problem %q, want %q", c.what, f.Problem, c.problem)
		}
		if f.Certificate != nil && (f.Certificate.Chain != string(chain) || string(f.Certificate.Key) != string(key)) {
			t.Errorf("%s: machines get %q and another key, want what was read", c.what, f.Certificate.Chain)
		}
		if strings.Contains(f.Problem, "PRIVATE") {
			t.Errorf("%s: the problem shows the key: %s", c.what, f.Problem)
		}
	}
	f := read(certificatetest.SecretOf(chain, key), name)
	if c := f.Certificate; c.ID != "team/web" || strings.Join(c.Names, " ") != "*.example.org www.example.com" || c.NotAfter.Year() != 2027 || f.KeyType != "P-256" {
		t.Errorf("a certificate is %+v, %s", c, f.KeyType)
	}
	for host, want := range map[string]bool{"www.example.com": true, "a.example.org": true, "*.example.org": true, "a.b.example.org": false, "example.org": false, "": false} {
		if f.Covers(host) != want {
			t.Errorf("covers %q: %v", host, !want)
		}
	}
}

// TestAuthoritiesAreJudged holds that a bundle is read as a whole or not at all, and that machines receive its certificates alone.
func TestAuthoritiesAreJudged(t *testing.T) {
	chain, _ := certificatetest.Pair(t, certificatetest.Key(t, elliptic.P256()), "www.example.com")
	bundle := &corev1.ConfigMap{Data: map[string]string{}}
	bundle.Namespace, bundle.Name = "team", "ca"
	for added, want := range map[string]string{"": "", "-----BEGIN CERTIFICATE-----\nMII!\n-----END CERTIFICATE-----\n": "block of PEM that cannot be read"} {
		bundle.Data[snapshot.AuthorityKey] = "# ours\n" + string(chain) + added
		g := memo.New()
		in := input.New(g, input.Config{})
		tables := New(g, in)
		g.Seal()
		s := snapshot.New()
		k, err := s.Set(bundle)
		if err != nil {
			t.Fatal(err)
		}
		in.Changed(s, k)
		g.Run()
		f := tables.Authorities.Get(g.Peek(), AuthorityKey{Kind: k.Kind, Name: k.Name})
		if !strings.Contains(f.Problem, want) || want == "" && f.Authority.PEM != string(chain) {
			t.Errorf("a bundle with %q: %+v", added, f)
		}
	}
}
