package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.dev/lab"
)

// authority issues certificates for a test.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
	pool *x509.CertPool
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	a.pool.AddCert(a.cert)
	return a
}

// randomSerial is a serial number as public authorities make them: of 16 bytes, none less.
func randomSerial(t *testing.T) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		t.Fatal(err)
	}
	return n.SetBit(n, 126, 1)
}

// issue makes a certificate for names or addresses, and its key, in PEM.
func (a *authority) issue(t *testing.T, names ...string) (chain, private []byte) {
	t.Helper()
	serial := randomSerial(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(90 * 24 * time.Hour),
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// tlsSecret is the manifest of a certificate for names.
func (a *authority) tlsSecret(t *testing.T, namespace, name string, names ...string) string {
	t.Helper()
	chain, key := a.issue(t, names...)
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n",
		name, namespace, base64.StdEncoding.EncodeToString(chain), base64.StdEncoding.EncodeToString(key))
}

func (a *authority) caSecret(namespace, name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\ndata: {ca.crt: %s}\n", name, namespace, base64.StdEncoding.EncodeToString(a.pem))
}

// serveTLS runs an HTTPS server on a machine that says its name in X-Backend.
func serveTLS(t *testing.T, m *lab.Machine, at netip.AddrPort, name string, chain, key []byte) {
	t.Helper()
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := m.Listen(t.Context(), "tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Backend", name) }),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // clients that refuse its certificate
	}
	go func() { _ = server.ServeTLS(l, "", "") }()
	t.Cleanup(func() { server.Close() })
}

// secureRequest is a request over TLS.
type secureRequest struct {
	server     string // name that TLS asks for
	host, path string // host is server's when empty
	max        uint16 // version of TLS; 0 is any
}

// secureAnswer is what came of it: the certificate's first name too.
type secureAnswer struct {
	answer
	certificate string
	serial      string
	version     uint16
}

// askTLS sends one request over TLS from the client to an edge, on a connection of its own.
func (s *site) askTLS(ctx context.Context, edge string, roots *x509.CertPool, r secureRequest) (secureAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	target := netip.AddrPortFrom(s.Lab.Machine(edge).Addr4(), 443)
	raw, err := s.Lab.Machine(client.Name).Dial(ctx, "tcp", target.String())
	if err != nil {
		return secureAnswer{}, err
	}
	defer func() { _ = raw.Close() }()
	conn := tls.Client(raw, &tls.Config{ServerName: r.server, RootCAs: roots, MaxVersion: r.max})
	if err := conn.HandshakeContext(ctx); err != nil {
		return secureAnswer{}, err
	}
	leaf := conn.ConnectionState().PeerCertificates[0]
	out := secureAnswer{certificate: strings.Join(leaf.DNSNames, " "), serial: leaf.SerialNumber.String(), version: conn.ConnectionState().Version}
	host := r.host
	if host == "" {
		host = r.server
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+"/"+strings.TrimPrefix(r.path, "/"), nil)
	if err != nil {
		return out, err
	}
	transport := &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(q)
	if err != nil {
		return out, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	out.answer = answer{resp.StatusCode, resp.Header.Get("X-Backend"), string(body), resp.Close}
	return out, err
}

// awaitTLS waits until every edge answers with a status and what else is told.
func (s *site) awaitTLS(t *testing.T, roots *x509.CertPool, r secureRequest, status int, more func(secureAnswer) error) {
	t.Helper()
	for _, edge := range s.edges() {
		s.await(t, fmt.Sprintf("%s to answer https://%s/%s with %d", edge, r.server, r.path, status), func(ctx context.Context) error {
			a, err := s.askTLS(ctx, edge, roots, r)
			if err != nil {
				return err
			}
			if a.status != status {
				return fmt.Errorf("it answers %s with the certificate for %s", a.answer, a.certificate)
			}
			if more != nil {
				return more(a)
			}
			return nil
		})
	}
}

// awaitClosed waits until no edge lets TLS clients of a name in, whoever's certificate they
// would take.
func (s *site) awaitClosed(t *testing.T, server string) {
	t.Helper()
	for _, edge := range s.edges() {
		s.await(t, edge+" to close connections for "+server, func(ctx context.Context) error {
			target := netip.AddrPortFrom(s.Lab.Machine(edge).Addr4(), 443)
			ctx, cancel := context.WithTimeout(ctx, answerTime)
			defer cancel()
			raw, err := s.Lab.Machine(client.Name).Dial(ctx, "tcp", target.String())
			if err != nil {
				return err // somebody must listen: the port is others' too
			}
			defer func() { _ = raw.Close() }()
			conn := tls.Client(raw, &tls.Config{ServerName: server, InsecureSkipVerify: true})
			if err := conn.HandshakeContext(ctx); err == nil {
				return fmt.Errorf("it shows the certificate for %s", strings.Join(conn.ConnectionState().PeerCertificates[0].DNSNames, " "))
			} else if errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return nil
		})
	}
}

// secureRoot is a root with TLS; tls and rest are YAML in flow style.
func secureRoot(namespace, name, host, secure string, rest ...string) string {
	return fmt.Sprintf("apiVersion: contour.heptio.com/v1beta1\nkind: IngressRoute\nmetadata: {name: %s, namespace: %s}\nspec: {virtualhost: {fqdn: %s, tls: {%s}}, %s}\n",
		name, namespace, host, secure, strings.Join(rest, ", "))
}

// TestIngressRoutesOverTLS serves hosts over TLS as IngressRoutes ask for it: with certificates
// of the own and of another namespace, with redirects, to backends that are verified, and as
// connections.
func TestIngressRoutesOverTLS(t *testing.T) {
	s := shared(t)
	s.namespace(t, "certs")
	s.namespace(t, "secure")
	good, other := newAuthority(t, "good"), newAuthority(t, "other")
	backends := s.Lab.Machine(os1.Name)
	at := netip.AddrPortFrom(backends.Addr4(), 8443)
	chain, key := good.issue(t, "backend.internal", "passed.secure.test")
	serveTLS(t, backends, at, "tls", chain, key)
	encrypted := func(name, annotation string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: secure, annotations: {%[2]s}}
spec: {clusterIP: None, ports: [{name: https, port: 443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: secure, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: https, port: %[3]d}]
endpoints: [{addresses: [%[4]q]}]
`, name, annotation, at.Port(), at.Addr())
	}
	const plain = "services: [{name: app, port: 80}]"
	s.apply(t,
		service("secure", "app", s.backends["os1-a"]), encrypted("encrypted", ""),
		encrypted("annotated", `contour.heptio.com/upstream-protocol.tls: "443"`),
		good.tlsSecret(t, "secure", "www", "www.secure.test"), good.tlsSecret(t, "certs", "wildcard", "*.secure.test"),
		good.caSecret("secure", "good"), other.caSecret("secure", "other"),
		secureRoot("secure", "www", "www.secure.test", `secretName: www, minimumProtocolVersion: "1.3"`, "routes: ["+strings.Join([]string{
			"{match: /, " + plain + "}", "{match: /open, permitInsecure: true, " + plain + "}",
			"{match: /verified, services: [{name: encrypted, port: 443, validation: {caSecret: good, subjectName: backend.internal}}]}",
			"{match: /name, services: [{name: encrypted, port: 443, validation: {caSecret: good, subjectName: another.internal}}]}",
			"{match: /authority, services: [{name: encrypted, port: 443, validation: {caSecret: other, subjectName: backend.internal}}]}",
			"{match: /annotated, services: [{name: annotated, port: 443}]}",
		}, ", ")+"]"),
	)
	s.awaitIngress(t, "IngressRoute secure/www", "valid", "valid IngressRoute")
	// A Gateway takes every other name, with a certificate that would do for all: hosts that
	// are closed below must not become its.
	s.apply(t, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: all, namespace: certs}
spec:
  gatewayClassName: fairlead
  listeners: [{name: all, port: 443, protocol: HTTPS, hostname: "*.secure.test", tls: {certificateRefs: [{name: wildcard}]}}]
`)
	t.Cleanup(func() { s.kubectl(t, "delete", "gateway", "all", "-n", "certs") })
	s.awaitTLS(t, good.pool, secureRequest{server: "any.secure.test"}, 404, nil)

	t.Run("routes", func(t *testing.T) {
		of := func(path string) secureRequest { return secureRequest{server: "www.secure.test", path: path} }
		from := func(backend string) func(secureAnswer) error {
			return func(a secureAnswer) error {
				if a.backend != backend || a.certificate != "www.secure.test" || a.version != tls.VersionTLS13 {
					return fmt.Errorf("%s with the certificate for %s, TLS version %x", a.answer, a.certificate, a.version)
				}
				return nil
			}
		}
		s.awaitTLS(t, good.pool, of("x"), 200, from("os1-a"))
		s.awaitTLS(t, good.pool, of("open"), 200, from("os1-a"))
		s.awaitTLS(t, good.pool, of("verified"), 200, from("tls"))
		s.awaitTLS(t, good.pool, of("annotated"), 200, from("tls"))
		s.awaitTLS(t, good.pool, of("name"), 503, nil)
		s.awaitTLS(t, good.pool, of("authority"), 503, nil)
		s.awaitAnswer(t, request{host: "www.secure.test", path: "x?y=z"}, 301)
		s.awaitAnswer(t, request{host: "www.secure.test", path: "open"}, 200, "os1-a")
		if _, err := s.askTLS(t.Context(), edge1.Name, good.pool, secureRequest{server: "www.secure.test", max: tls.VersionTLS12}); err == nil {
			t.Error("a client with TLS 1.2 was let in")
		}
	})

	t.Run("delegated certificate", func(t *testing.T) {
		root := secureRoot("secure", "delegated", "delegated.secure.test", "secretName: certs/wildcard", "routes: [{match: /, permitInsecure: true, "+plain+"}]")
		s.apply(t, root)
		s.awaitIngress(t, "IngressRoute secure/delegated", "invalid", "spec.virtualhost.tls.secretName: Secret certs/wildcard: certificate delegation not permitted…")
		s.awaitAnswer(t, request{host: "delegated.secure.test"}, 503)
		s.awaitClosed(t, "delegated.secure.test")
		s.apply(t, "apiVersion: contour.heptio.com/v1beta1\nkind: TLSCertificateDelegation\nmetadata: {name: wildcard, namespace: certs}\n"+
			"spec: {delegations: [{secretName: wildcard, targetNamespaces: [secure]}]}\n")
		s.awaitIngress(t, "IngressRoute secure/delegated", "valid", "valid IngressRoute")
		s.awaitTLS(t, good.pool, secureRequest{server: "delegated.secure.test"}, 200, nil)
		s.awaitAnswer(t, request{host: "delegated.secure.test"}, 200)
		// Another host's request on the connection, as browsers try with a wildcard certificate.
		s.awaitTLS(t, good.pool, secureRequest{server: "delegated.secure.test", host: "www.secure.test"}, 421, nil)
		before, err := s.askTLS(t.Context(), edge1.Name, good.pool, secureRequest{server: "delegated.secure.test"})
		if err != nil {
			t.Fatal(err)
		}
		s.apply(t, good.tlsSecret(t, "certs", "wildcard", "*.secure.test"))
		s.awaitTLS(t, good.pool, secureRequest{server: "delegated.secure.test"}, 200, func(a secureAnswer) error {
			if a.serial == before.serial {
				return errors.New("it shows the old certificate")
			}
			return nil
		})
	})

	t.Run("connections", func(t *testing.T) {
		s.apply(t,
			secureRoot("secure", "passed", "passed.secure.test", "passthrough: true", "tcpproxy: {services: [{name: encrypted, port: 443}]}", "routes: [{match: /, "+plain+"}]"),
			secureRoot("certs", "ended", "ended.secure.test", "secretName: wildcard", "tcpproxy: {delegate: {name: connections, namespace: secure}}"),
			"apiVersion: contour.heptio.com/v1beta1\nkind: IngressRoute\nmetadata: {name: connections, namespace: secure}\nspec: {tcpproxy: {"+plain+"}}\n",
		)
		for r, says := range map[ref]string{
			"IngressRoute secure/passed": "valid IngressRoute; spec.routes: ignored beside spec.tcpproxy, as in Contour",
			"IngressRoute certs/ended":   "valid IngressRoute", "IngressRoute secure/connections": "valid IngressRoute",
		} {
			s.awaitIngress(t, r, "valid", says)
		}
		s.awaitTLS(t, good.pool, secureRequest{server: "passed.secure.test"}, 200, func(a secureAnswer) error {
			if a.backend != "tls" || !strings.HasPrefix(a.certificate, "backend.internal") {
				return fmt.Errorf("%s with the certificate for %s", a.answer, a.certificate)
			}
			return nil
		})
		s.awaitTLS(t, good.pool, secureRequest{server: "ended.secure.test"}, 200, func(a secureAnswer) error {
			if a.backend != "os1-a" || a.certificate != "*.secure.test" {
				return fmt.Errorf("%s with the certificate for %s", a.answer, a.certificate)
			}
			return nil
		})
		s.awaitAnswer(t, request{host: "passed.secure.test"}, 404)
		s.awaitAnswer(t, request{host: "ended.secure.test"}, 404)
	})

	t.Run("a certificate that goes", func(t *testing.T) {
		s.kubectl(t, "delete", "secret", "www", "-n", "secure")
		s.awaitIngress(t, "IngressRoute secure/www", "invalid", "spec.virtualhost.tls.secretName: TLS Secret secure/www not found")
		s.awaitClosed(t, "www.secure.test")
		s.awaitAnswer(t, request{host: "www.secure.test", path: "open"}, 503)
		s.apply(t, good.tlsSecret(t, "secure", "www", "www.secure.test"))
		s.awaitTLS(t, good.pool, secureRequest{server: "www.secure.test"}, 200, nil)
	})
}
