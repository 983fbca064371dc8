//go:debug rsa1024min=0
package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// certified is a pair in PEM and what a status says of it.
type certified struct {
	name       string
	chain, key []byte
	problem    string // "": the certificate is shown
	notes      string // what the status of a certificate says that is shown
}

// make signs a certificate that a test has changed.
func (a *authority) make(t *testing.T, key any, change func(*x509.Certificate)) (chain, private []byte) {
	t.Helper()
	serial := randomSerial(t)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "test"}, DNSNames: []string{"*.badcert.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if change != nil {
		change(template)
	}
	var public any
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		public = &key.PublicKey
	case *rsa.PrivateKey:
		public = &key.PublicKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// certificates are those that people get wrong, and those that only look so.
func certificates(t *testing.T, a *authority) []certified {
	t.Helper()
	ec := func(c elliptic.Curve) *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	rsaKey := func(bits int) *rsa.PrivateKey {
		key, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	p256 := ec(elliptic.P256())
	good, key := a.make(t, p256, nil)
	other, otherKey := a.make(t, ec(elliptic.P256()), nil)
	var all []certified
	add := func(name string, chain, key []byte, problem string) {
		all = append(all, certified{name: name, chain: chain, key: key, problem: problem})
	}
	made := func(name string, key any, problem string, change func(*x509.Certificate)) {
		chain, private := a.make(t, key, change)
		add(name, chain, private, problem)
	}
	add("good", good, key, "")
	add("other-key", good, otherKey, "has a tls.key that is not the key of the first certificate in tls.crt")
	add("garbage", []byte("garbage"), key, "has a tls.crt that has no certificate in PEM")
	add("garbage-key", good, []byte("garbage"), "has a tls.key that has no private key in PEM")
	add("empty", nil, key, "has no tls.crt")
	add("empty-key", good, nil, "has no tls.key")
	add("cut", good[:len(good)/2], key, "has a tls.crt that has a block of PEM that cannot be read")
	add("root-first", bytes.Join([][]byte{a.pem, good}, nil), key, "has a tls.key that is not the key of the first certificate in tls.crt")
	add("with-root", bytes.Join([][]byte{good, a.pem}, nil), key, "")
	add("others-behind", bytes.Join([][]byte{good, other, a.pem, other}, nil), key, "")
	add("twice", bytes.Join([][]byte{good, good}, nil), key, "")
	add("large-chain", append(bytes.Clone(good), bytes.Repeat(other, 100)...), key, "")
	add("too-large", append(bytes.Clone(good), bytes.Repeat(other, 1000)...), key, "has a tls.crt that has more than 1000 certificates")
	add("text", bytes.Join([][]byte{[]byte("subject=/CN=M\xfcnchen\r\n"), bytes.ReplaceAll(good, []byte("\n"), []byte("\r\n")), []byte("\x00\x00")}, nil), key, "")
	add("key-in-front", bytes.Join([][]byte{key, good}, nil), key, "")
	sec1, err := x509.MarshalECPrivateKey(p256)
	if err != nil {
		t.Fatal(err)
	}
	parameters, err := asn1.Marshal(asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7})
	if err != nil {
		t.Fatal(err)
	}
	add("openssl-key", good, append(pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: parameters}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1})...), "")
	made("rsa-1024", rsaKey(1024), "has a certificate with an RSA key of 1024 bits: at least 2048 are needed", nil)
	made("rsa-2048", rsaKey(2048), "", nil)
	made("p224", ec(elliptic.P224()), "has a certificate with a key that is neither RSA nor ECDSA on P-256, P-384 or P-521: others are not served", nil)
	made("p384", ec(elliptic.P384()), "", nil)
	made("p521", ec(elliptic.P521()), "", nil)
	made("no-names", p256, "", func(c *x509.Certificate) { c.DNSNames = nil })
	all[len(all)-1].notes = "is for no name"
	made("wrong-name", p256, "", func(c *x509.Certificate) { c.DNSNames = []string{"elsewhere.test"} })
	all[len(all)-1].notes = "elsewhere.test"
	made("many-names", p256, "", func(c *x509.Certificate) {
		for i := range 500 {
			c.DNSNames = append(c.DNSNames, fmt.Sprintf("n%d.badcert.test", i))
		}
	})
	made("expired", p256, "", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
	})
	all[len(all)-1].notes = "expired at"
	made("early", p256, "", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(24*time.Hour), time.Now().Add(48*time.Hour)
	})
	all[len(all)-1].notes = "is not valid before"
	made("authority", p256, "", func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	})
	made("client", p256, "", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
	made("critical", p256, "", func(c *x509.Certificate) {
		c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Critical: true, Value: []byte{5, 0}}}
	})
	made("no-signing", p256, noSigning, func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyAgreement })
	made("no-signing-rsa", rsaKey(2048), "", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment })
	return all
}

// noSigning is what Envoy refuses; RSA keys can be used otherwise by TLS 1.2.
const noSigning = "has a certificate with an ECDSA key whose key usage has no digital signature: it cannot be used for TLS"

// TestBadCertificates gives many certificates to IngressRoutes and to Gateways at once. What
// a status says of each is what its clients see, and good hosts are served all the while.
func TestBadCertificates(t *testing.T) {
	s := shared(t)
	s.namespace(t, "badcert")
	a := newAuthority(t, "bad certificates")
	f := s.startTraffic(t, newsHost)
	s.apply(t, service("badcert", "app", s.backends["os1-a"]))
	encode := base64.StdEncoding.EncodeToString
	all := append(certificates(t, a), certified{name: "missing", problem: "not found"})
	var manifests []string
	for _, c := range all {
		if c.name != "missing" {
			manifests = append(manifests, fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: badcert}\ntype: kubernetes.io/tls\ndata: {tls.crt: %q, tls.key: %q}\n",
				c.name, encode(c.chain), encode(c.key)))
		}
		manifests = append(manifests,
			secureRoot("badcert", c.name, c.name+".badcert.test", "secretName: "+c.name, "routes: [{match: /, services: [{name: app, port: 80}]}]"),
			gatewayAPI+fmt.Sprintf("kind: Gateway\nmetadata: {name: %[1]s, namespace: badcert}\nspec: {gatewayClassName: fairlead, listeners: [{name: tls, port: 443, protocol: HTTPS, hostname: g-%[1]s.badcert.test, tls: {certificateRefs: [{name: %[1]s}]}}]}\n", c.name))
	}
	s.createAll(t, manifests...)
	t.Cleanup(func() { s.kubectl(t, "delete", "gateways", "-n", "badcert", "--all") })

	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			root, gateway := ref("IngressRoute badcert/"+c.name), ref("Gateway badcert/"+c.name)
			if c.problem != "" {
				says := "Secret badcert/" + c.name + " " + c.problem
				s.awaitIngress(t, root, "invalid", "spec.virtualhost.tls.secretName: TLS "+says+"…")
				s.awaitConditions(t, gateway, condition{"ResolvedRefs", "False", "ListenersNotResolved", "…tls (…" + says + ")"}, condition{"listener Programmed", "False", "Invalid", "…" + says})
				s.awaitClosed(t, c.name+".badcert.test")
				s.awaitClosed(t, "g-"+c.name+".badcert.test")
				return
			}
			text := "valid IngressRoute"
			if c.notes != "" {
				text = "…" + c.notes + "…"
			}
			s.awaitIngress(t, root, "valid", text)
			s.awaitConditions(t, gateway, condition{"ResolvedRefs", "True", "ResolvedRefs", "…"}, condition{"Programmed", "True", "Programmed", "…"})
			for _, name := range []string{c.name + ".badcert.test", "g-" + c.name + ".badcert.test"} {
				s.awaitShown(t, name, c.chain)
			}
		})
	}
	t.Run("the Secret goes and comes back", func(t *testing.T) {
		s.kubectl(t, "delete", "secret", "good", "-n", "badcert")
		s.awaitIngress(t, "IngressRoute badcert/good", "invalid", "spec.virtualhost.tls.secretName: TLS Secret badcert/good not found")
		s.awaitConditions(t, "Gateway badcert/good", condition{"ResolvedRefs", "False", "ListenersNotResolved", "…tls…not found)"})
		s.awaitClosed(t, "good.badcert.test")
		s.awaitClosed(t, "g-good.badcert.test")
		s.createAll(t, fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: good, namespace: badcert}\ntype: kubernetes.io/tls\ndata: {tls.crt: %q, tls.key: %q}\n", encode(all[0].chain), encode(all[0].key)))
		s.awaitIngress(t, "IngressRoute badcert/good", "valid", "valid IngressRoute")
		s.awaitShown(t, "good.badcert.test", all[0].chain)
		s.awaitShown(t, "g-good.badcert.test", all[0].chain)
	})
	f.none(t)
}

// awaitShown waits until every edge shows the first certificate of a chain to clients of a
// name, who look away: it may be one that they should refuse.
func (s *site) awaitShown(t *testing.T, server string, chain []byte) {
	t.Helper()
	block, rest := pem.Decode(chain)
	for block != nil && block.Type != "CERTIFICATE" {
		block, rest = pem.Decode(rest)
	}
	for _, edge := range s.edges() {
		s.await(t, edge+" to show a certificate for "+server, func(ctx context.Context) error {
			raw, err := s.Lab.Machine(client.Name).Dial(ctx, "tcp", netip.AddrPortFrom(s.Lab.Machine(edge).Addr4(), 443).String())
			if err != nil {
				return err
			}
			defer func() { _ = raw.Close() }()
			conn := tls.Client(raw, &tls.Config{ServerName: server, InsecureSkipVerify: true})
			if err := conn.HandshakeContext(ctx); err != nil {
				// Clients may refuse a certificate that is not for signatures; it was shown.
				if strings.HasPrefix(server, "no-signing-rsa") || strings.HasPrefix(server, "g-no-signing-rsa") {
					return nil
				}
				return err
			}
			if !bytes.Equal(conn.ConnectionState().PeerCertificates[0].Raw, block.Bytes) {
				return errors.New("it shows another one")
			}
			return nil
		})
	}
}
