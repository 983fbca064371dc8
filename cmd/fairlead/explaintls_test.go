package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// explainedTLS goes with explained: a listener with a certificate, policies, TLS to backends.
const explainedTLS = `---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: secure, namespace: default}
spec:
  gatewayClassName: fairlead
  listeners:
  - name: https
    port: 443
    protocol: HTTPS
    hostname: shop.example.com
    tls: {certificateRefs: [{name: shop}]}
  - name: broken
    port: 443
    protocol: HTTPS
    hostname: broken.example.com
    tls: {certificateRefs: [{name: missing}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: default}
spec:
  parentRefs: [{name: secure}]
  hostnames: [shop.example.com]
  rules:
  - name: old
    matches: [{path: {value: /old}}]
    filters:
    - type: RequestRedirect
      requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}, statusCode: 301}
  - name: main
    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier: {set: [{name: X-Edge, value: "1"}]}
    backendRefs: [{name: app, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: app, namespace: default}
spec:
  targetRefs: [{group: "", kind: Service, name: app}]
  validation: {wellKnownCACertificates: System, hostname: app.internal}
---
apiVersion: fairlead.dev/v1alpha1
kind: RoutePolicy
metadata: {name: office, namespace: default}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: shop, sectionName: main}]
  addresses: {allow: [203.0.113.0/24]}
---
apiVersion: v1
kind: Secret
metadata: {name: shop, namespace: default}
type: kubernetes.io/tls
data: {tls.crt: CERTIFICATE, tls.key: KEY}
`

// secretFor is the data of a certificate that ends in an hour.
func secretFor(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, b []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return text("CERTIFICATE", der), text("PRIVATE KEY", pkcs8)
}

// Over TLS too every step of an explanation says where it was decided.
func TestExplainManifestsOverTLS(t *testing.T) {
	certificate, key := secretFor(t, "shop.example.com")
	text := explained + strings.NewReplacer("CERTIFICATE", certificate, "KEY", key).Replace(explainedTLS)
	name := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"https://shop.example.com/old/1?q"}, []string{
			"-> listener https-443, port 443, HTTPS", "by Gateway default/secure spec.listeners[0] (" + name, "-> TLS      shop.example.com\n",
			"by Gateway default/secure spec.listeners[0].tls (" + name, "certificate of Secret default/shop data (" + name, "TLS 1.2 or newer",
			"redirects with 301 to https://shop.example.com/new/1?q",
		}},
		{[]string{"https://shop.example.com/", "--from", "203.0.113.9"}, []string{
			"addresses: lets only 203.0.113.0/24 pass", "by RoutePolicy default/office spec.addresses (" + name, "backends see the header x-edge: 1",
			"treated by BackendTLSPolicy default/app spec (" + name, "over TLS as app.internal, verified by the authorities of the system", "-> answer   a backend answers",
		}},
		{[]string{"https://shop.example.com/", "--from", "198.51.100.1"}, []string{"-> answer   the proxy answers 403: 198.51.100.1 is not among those that are allowed"}},
		{[]string{"https://app.example.com/", "--sni", "shop.example.com"}, []string{"-> answer   the proxy answers 421"}},
		{[]string{"https://broken.example.com/"}, []string{"-> answer   the handshake fails", "Gateway default/secure"}},
	} {
		out, err := execute(append([]string{"explain", "-f", name}, c.args...)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, says := range c.says {
			if !strings.Contains(out, says) {
				t.Errorf("%q: no %q in\n%s", c.args, says, out)
			}
		}
	}
}
