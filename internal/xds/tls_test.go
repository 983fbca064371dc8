package xds_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// ca signs certificates for tests.
type ca struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	pem  string
}

func newCA(t *testing.T) *ca {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	c := &ca{t: t, cert: cert, key: key, pool: x509.NewCertPool(), pem: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
	c.pool.AddCert(cert)
	return c
}

// issue makes a certificate; its subject's common name is the ID, so that tests see which
// one was shown.
func (c *ca) issue(id string, useRSA bool, names ...string) model.Certificate {
	c.t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must(c.t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: id}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	var public, private any
	if useRSA {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		must(c.t, err)
		public, private = key.Public(), key
	} else {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(c.t, err)
		public, private = key.Public(), key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, public, c.key)
	must(c.t, err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	must(c.t, err)
	return model.Certificate{
		ID:    model.CertificateID(id),
		Chain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:   model.Redacted(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
		Names: names, NotBefore: template.NotBefore, NotAfter: template.NotAfter,
	}
}

// pair is a certificate as a Go client takes it.
func pair(t *testing.T, c model.Certificate) tls.Certificate {
	t.Helper()
	p, err := tls.X509KeyPair([]byte(c.Chain), []byte(c.Key))
	must(t, err)
	return p
}

// tlsListen serves an HTTPS listener and waits until it listens.
func (w *world) tlsListen(l model.Listener, o xds.Options, names []xds.TLSHost, hosts ...model.VirtualHost) {
	w.t.Helper()
	for _, rc := range shards(l.ID, hosts) {
		w.set(rc)
	}
	for _, s := range xds.Scopes(l.ID) {
		w.set(s)
	}
	w.set(xds.Listener(l, names, o))
	must(w.t, w.ads.Acked(w.ctx, ldsURL, string(l.ID)))
	w.accepting(l)
}

func tlsHost(l model.ListenerID, host string, certs ...model.CertificateID) xds.TLSHost {
	return xds.TLSHost{TLSHost: model.TLSHost{HostKey: model.HostKey{Listener: l, Host: host}, Certificates: certs}}
}

// section puts a virtual host into a section.
func section(s string, h model.VirtualHost) model.VirtualHost {
	h.Section = s
	return h
}

// shake is the TLS state that a client of a server name gets.
func shake(port uint16, config *tls.Config) (tls.ConnectionState, error) {
	d := &net.Dialer{Timeout: 20 * time.Second}
	raw, err := d.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer raw.Close()
	if err := raw.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return tls.ConnectionState{}, err
	}
	c := tls.Client(raw, config)
	err = c.Handshake()
	return c.ConnectionState(), err
}

// fetch asks for https://host/ over a connection with the server name.
func fetch(port uint16, config *tls.Config, host string, header http.Header) (answer, error) {
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	q, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/", port), nil)
	if err != nil {
		return answer{}, err
	}
	q.Host = host
	for k, v := range header {
		q.Header[k] = v
	}
	r, err := client.Do(q)
	if err != nil {
		return answer{}, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return answer{r.StatusCode, r.Header, string(body)}, err
}

// TestTLSOnDemand: one filter chain serves any number of host names, each with its own
// certificate; names without one, and clients without a name, get no handshake.
func TestTLSOnDemand(t *testing.T) {
	w := newWorld(t)
	c := newCA(t)
	l := model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS}
	for _, name := range []string{"a.example.com", "b.example.com"} {
		w.set(xds.Secret(xds.HostSecretName(name), c.issue(name, false, name)))
	}
	w.tlsListen(l, xds.Options{}, nil,
		section("a.example.com", host(l.ID, "a.example.com", says("a", prefix("/")))),
		section("b.example.com", host(l.ID, "b.example.com", says("b", prefix("/")))),
	)
	for _, name := range []string{"a.example.com", "b.example.com"} {
		for _, spelled := range []string{name} {
			s, err := shake(l.Port, &tls.Config{RootCAs: c.pool, ServerName: spelled, NextProtos: []string{"h2", "http/1.1"}})
			if err != nil {
				t.Fatalf("%s: %v (asked %v)", spelled, err, w.ads.Asked("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"))
			}
			if got := s.PeerCertificates[0].Subject.CommonName; got != name || s.NegotiatedProtocol != "h2" || s.Version != tls.VersionTLS13 {
				t.Errorf("%s: certificate %s, ALPN %q, version %x", spelled, got, s.NegotiatedProtocol, s.Version)
			}
			if s.CurveID != tls.X25519MLKEM768 {
				t.Errorf("%s: key exchange %v", spelled, s.CurveID)
			}
		}
		if a, err := fetch(l.Port, &tls.Config{RootCAs: c.pool, ServerName: name}, name, nil); err != nil || a.body != name[:1] {
			t.Errorf("%s: %v %v", name, a, err)
		}
	}
	for _, name := range []string{"c.example.com", ""} {
		if s, err := shake(l.Port, &tls.Config{InsecureSkipVerify: true, ServerName: name}); err == nil {
			t.Errorf("server name %q was served with %v", name, s.PeerCertificates[0].Subject)
		} else if errors.Is(err, io.EOF) {
			t.Logf("server name %q: %v", name, err)
		}
	}
	// A name that had none gets one, another is renewed, one goes.
	w.set(xds.Secret("c.example.com", c.issue("c.example.com", false, "c.example.com")))
	w.eventually("certificate of c.example.com", func() error {
		_, err := shake(l.Port, &tls.Config{RootCAs: c.pool, ServerName: "c.example.com"})
		return err
	})
	w.set(xds.Secret("a.example.com", c.issue("renewed", false, "a.example.com")))
	w.eventually("renewed certificate", func() error {
		s, err := shake(l.Port, &tls.Config{RootCAs: c.pool, ServerName: "a.example.com"})
		if err == nil && s.PeerCertificates[0].Subject.CommonName != "renewed" {
			err = errors.New("old certificate")
		}
		return err
	})
	w.ads.Remove("type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret", "b.example.com")
	w.eventually("removal", func() error {
		if _, err := shake(l.Port, &tls.Config{RootCAs: c.pool, ServerName: "b.example.com"}); err == nil {
			return errors.New("b.example.com is still served")
		}
		return nil
	})
}

// eventually waits until a check finds nothing wrong.
func (w *world) eventually(what string, check func() error) {
	w.t.Helper()
	var err error
	if e := w.envoy.Until(w.ctx, what, func() bool { err = check(); return err == nil }); e != nil {
		w.t.Fatalf("%v: %v\n%s", e, err, w.envoy.Log())
	}
}
