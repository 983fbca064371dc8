package translate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/host"
	"fairlead.dev/internal/translate/input"
)

// pair makes a self-signed certificate for names, and its key.
func pair(t testing.TB, key any, names ...string) (chain, private []byte) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, DNSNames: names,
		NotBefore: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	var public any
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		public = &key.PublicKey
	case *rsa.PrivateKey:
		public = &key.PublicKey
	case ed25519.PrivateKey:
		public = key.Public()
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// notForSigning is a certificate whose key may agree on keys only, and that key.
func notForSigning(t testing.TB) (chain, private []byte) {
	t.Helper()
	key := ecKey(t, elliptic.P256())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), KeyUsage: x509.KeyUsageKeyAgreement}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	_, private = pair(t, key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), private
}

func ecKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func tlsSecret(chain, key []byte) *corev1.Secret {
	return &corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{snapshot.CertificateKey: chain, snapshot.PrivateKeyKey: key}}
}

func TestCertificatesAreJudged(t *testing.T) {
	name := snapshot.Name{Namespace: "team", Name: "web"}
	chain, key := pair(t, ecKey(t, elliptic.P256()), "www.example.com", "*.Example.org")
	_, other := pair(t, ecKey(t, elliptic.P256()), "www.example.com")
	small, smallKey := pair(t, ecKey(t, elliptic.P224()), "a")
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ed, edText := pair(t, edKey, "a")
	opaque := tlsSecret(chain, key)
	opaque.Type = corev1.SecretTypeOpaque
	for _, c := range []struct {
		what    string
		secret  *corev1.Secret
		problem string
	}{
		{"sound", tlsSecret(chain, key), ""},
		{"missing", nil, "not found"},
		{"of another type", opaque, `is of type "Opaque"`},
		{"without a certificate", tlsSecret(nil, key), "has no tls.crt"},
		{"without a key", tlsSecret(chain, nil), "has no tls.key"},
		{"no PEM", tlsSecret([]byte("hello"), key), "tls.crt that has no certificate in PEM"},
		{"a key that is no PEM", tlsSecret(chain, []byte("hello")), "tls.key that has no private key in PEM"},
		{"another's key", tlsSecret(chain, other), "tls.key that is not the key"},
		{"a broken certificate", tlsSecret(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}}), key), "cannot be read"},
		{"a block that cannot be read after a sound one", tlsSecret(slices.Concat(chain, []byte("-----BEGIN CERTIFICATE-----\nMII!\n-----END CERTIFICATE-----\n")), key), "tls.crt that has a block of PEM that cannot be read"},
		{"two blocks on one line", tlsSecret(slices.Concat(bytes.TrimRight(chain, "\n"), chain), key), "block of PEM that cannot be read"},
		{"a key after a block that cannot be read", tlsSecret(chain, slices.Concat([]byte("-----BEGIN PRIVATE KEY-----\nMII"), key)), "tls.key that has a block of PEM that cannot be read"},
		{"text around", tlsSecret(slices.Concat([]byte("subject=x\n"), chain, []byte("\n# end\n")), slices.Concat([]byte("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n"), key)), ""},
		{"a key of another type than it says", tlsSecret(chain, bytes.ReplaceAll(key, []byte("PRIVATE KEY"), []byte("FOO PRIVATE KEY"))), ""},
		{"a key with headers", tlsSecret(chain, bytes.Replace(key, []byte("KEY-----\n"), []byte("KEY-----\nComment: mine\n\n"), 1)), ""},
		{"a key encrypted as of old", tlsSecret(chain, bytes.Replace(key, []byte("KEY-----\n"), []byte("KEY-----\nProc-Type:4,ENCRYPTED\nDEK-Info:AES-128-CBC,00\n\n"), 1)), "is encrypted"},
		{"a broken key", tlsSecret(chain, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte{1}})), "cannot be read"},
		{"an encrypted key", tlsSecret(chain, pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte{1}})), "is encrypted"},
		{"a key that must not sign", tlsSecret(notForSigning(t)), "key usage has no digital signature"},
		{"a curve that Envoy refuses", tlsSecret(small, smallKey), "neither RSA nor ECDSA"},
		{"a kind of key that Envoy refuses", tlsSecret(ed, edText), "neither an RSA nor an ECDSA key"},
	} {
		f := certificate.Read(c.secret, name)
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
	bundle := &corev1.ConfigMap{Data: map[string]string{}}
	bundle.Namespace, bundle.Name = "team", "ca"
	for added, want := range map[string]string{"": "", "-----BEGIN CERTIFICATE-----\nMII!\n-----END CERTIFICATE-----\n": "block of PEM that cannot be read"} {
		bundle.Data[snapshot.AuthorityKey] = "# ours\n" + string(chain) + added
		s := snapshot.New()
		setAll(t, s, bundle)
		tr, _ := Full(input.Config{}, s)
		f := tr.certificates.Authorities.Get(tr.graph.Peek(), certificate.AuthorityKey{Kind: snapshot.KindConfigMap, Name: snapshot.Name{Namespace: "team", Name: "ca"}})
		if !strings.Contains(f.Problem, want) || want == "" && f.Authority.PEM != string(chain) {
			t.Errorf("a bundle with %q: %+v", added, f)
		}
	}
	f := certificate.Read(tlsSecret(chain, key), name)
	if c := f.Certificate; c.ID != "team/web" || strings.Join(c.Names, " ") != "*.example.org www.example.com" || c.NotAfter.Year() != 2027 || f.KeyType != "P-256" {
		t.Errorf("a certificate is %+v, %s", c, f.KeyType)
	}
	for host, want := range map[string]bool{"www.example.com": true, "a.example.org": true, "*.example.org": true, "a.b.example.org": false, "example.org": false, "": false} {
		if f.Covers(host) != want {
			t.Errorf("covers %q: %v", host, !want)
		}
	}
}

// Who has a server name is decided by age, and what nobody uses is not published.
func TestTheOldestHasAServerName(t *testing.T) {
	chain, key := pair(t, ecKey(t, elliptic.P256()), "www.example.com")
	s := snapshot.New()
	secret := tlsSecret(chain, key)
	secret.Namespace, secret.Name = "team", "web"
	name := snapshot.Name{Namespace: "team", Name: "web"}
	if _, err := s.Set(secret); err != nil {
		t.Fatal(err)
	}
	tr, _ := Full(input.Config{}, s)
	if f := tr.certificates.Certificates.Get(tr.graph.Peek(), name); f.Problem != "" {
		t.Fatal(f.Problem)
	}
	k := model.HostKey{Listener: "https-443", Host: "www.example.com"}
	owner := func(name string) model.Object { return model.Object{Kind: "Gateway", Namespace: "team", Name: name} }
	claims := map[string]*host.NameCandidate{}
	claimBy := func(name string, created int64, ids ...model.CertificateID) {
		claims[name] = &host.NameCandidate{Created: created, Host: model.TLSHost{HostKey: k, Owner: owner(name), Certificates: ids}}
		claim := claims[name]
		tr.host.Names.Set(k, owner(name), nil, &claim)
	}
	takeBack := func(name string) {
		claim := claims[name]
		tr.host.Names.Set(k, owner(name), &claim, nil)
	}
	claimBy("young", 2, "team/web")
	if c := tr.Apply(s, nil); len(c.Certificates) != 1 || c.TLSHosts[k] == nil {
		t.Errorf("a first claim changed %+v", c)
	}
	claimBy("old", 1)
	if c := tr.Apply(s, nil); c.TLSHosts[k].Owner != owner("old") || len(c.Certificates) != 1 || c.Certificates["team/web"] != nil {
		t.Errorf("an older claim changed %+v", c)
	}
	takeBack("old")
	if c := tr.Apply(s, nil); c.TLSHosts[k].Owner != owner("young") || c.Certificates["team/web"] == nil {
		t.Errorf("an older claim that goes changed %+v", c)
	}
	// A renewed certificate changes itself and nothing else.
	renewed := tlsSecret(pair(t, ecKey(t, elliptic.P256()), "www.example.com"))
	renewed.Namespace, renewed.Name = "team", "web"
	if _, err := s.Set(renewed); err != nil {
		t.Fatal(err)
	}
	c := tr.Apply(s, []snapshot.Key{{Kind: snapshot.KindSecret, Name: name}})
	if len(c.Certificates) != 1 || len(c.TLSHosts)+len(c.Listeners)+len(c.VirtualHosts) != 0 {
		t.Errorf("a renewed certificate changed %+v", c)
	}
	takeBack("young")
	if c := tr.Apply(s, nil); len(c.TLSHosts) != 1 || len(c.Certificates) != 1 || tr.graph.Sizes()["server name"].Values+tr.graph.Sizes()["uses of a certificate"].Values != 0 {
		t.Errorf("a last claim that goes changed %+v", c)
	}
}
