package xds_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
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
		SerialNumber: serial, Subject: pkix.Name{CommonName: id},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if u, err := url.Parse(name); err == nil && u.Scheme != "" {
			template.URIs = append(template.URIs, u)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
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
	return fetchWith(transport, fmt.Sprintf("https://127.0.0.1:%d/", port), host, header)
}

func fetchWith(transport http.RoundTripper, url, host string, header http.Header) (answer, error) {
	client := &http.Client{Transport: transport, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	q, err := http.NewRequest(http.MethodGet, url, nil)
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
		s, err := shake(l.Port, &tls.Config{RootCAs: c.pool, ServerName: name, NextProtos: []string{"h2", "http/1.1"}})
		must(t, err)
		if got := s.PeerCertificates[0].Subject.CommonName; got != name || s.NegotiatedProtocol != "h2" || s.Version != tls.VersionTLS13 {
			t.Errorf("%s: certificate %s, ALPN %q, version %x", name, got, s.NegotiatedProtocol, s.Version)
		}
		if s.CurveID != tls.X25519MLKEM768 {
			t.Errorf("%s: key exchange %v", name, s.CurveID)
		}
		if a, err := fetch(l.Port, &tls.Config{RootCAs: c.pool, ServerName: name}, name, nil); err != nil || a.body != name[:1] {
			t.Errorf("%s: %v %v", name, a, err)
		}
	}
	for _, name := range []string{"c.example.com", ""} {
		if s, err := shake(l.Port, &tls.Config{InsecureSkipVerify: true, ServerName: name}); err == nil {
			t.Errorf("server name %q was served with %v", name, s.PeerCertificates[0].Subject)
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
	w.ads.Remove(sdsURL, "b.example.com")
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

// TestTLSChains: what needs a filter chain of its own, next to the names on demand.
func TestTLSChains(t *testing.T) {
	w := newWorld(t)
	c := newCA(t)
	l := model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS}
	for _, id := range []string{"t/wild", "t/any", "t/tcp"} {
		w.set(xds.Secret(xds.SecretName(model.CertificateID(id)), c.issue(id, false, "www.example.com")))
	}
	w.set(
		xds.Secret(xds.SecretName("t/both-ec"), c.issue("t/both-ec", false, "both.test")),
		xds.Secret(xds.SecretName("t/both-rsa"), c.issue("t/both-rsa", true, "both.test")),
		xds.Secret(xds.HostSecretName("www.example.com"), c.issue("t/www", false, "www.example.com")),
		xds.Secret(xds.HostSecretName("old.test"), c.issue("t/old", false, "old.test")),
		xds.Secret(xds.HostSecretName("strict.test"), c.issue("t/strict", false, "strict.test")),
	)
	w.group("ns/echo/1", w.echo("plain "))
	passthrough := w.tlsBackend(pair(t, c.issue("t/backend", false, "pass.test")))
	w.group("ns/pass/1", passthrough)
	strict := tlsHost(l.ID, "strict.test", "t/strict")
	strict.MinVersion = "1.3"
	old := tlsHost(l.ID, "old.test", "t/old")
	old.MinVersion = "1.0"
	tcp := tlsHost(l.ID, "tcp.test", "t/tcp")
	tcp.TCP = []model.WeightedGroup{{Group: "ns/echo/1", Weight: 1}, {Group: "ns/echo/1", Weight: 2}}
	pass := tlsHost(l.ID, "pass.test")
	pass.TCP = []model.WeightedGroup{{Group: "ns/pass/1", Weight: 1}}
	broken := tlsHost(l.ID, "broken.test")
	broken.TCP = []model.WeightedGroup{{Weight: 1}}
	w.group("ns/none/1")
	half := tlsHost(l.ID, "half.test")
	half.TCP = []model.WeightedGroup{{Group: "ns/pass/1", Weight: 2}, {Weight: 1}, {Group: "ns/none/1", Weight: 1}}
	w.tlsListen(l, xds.Options{}, []xds.TLSHost{
		tlsHost(l.ID, "*", "t/any"), tlsHost(l.ID, "*.example.com", "t/wild"), tlsHost(l.ID, "www.example.com", "t/www"),
		tlsHost(l.ID, "both.test", "t/both-ec", "t/both-rsa"), strict, old, tcp, pass, broken, half,
		tlsHost(l.ID, "closed.test"),
	},
		section("*", host(l.ID, "*", says("any", prefix("/")))),
		section("*", host(l.ID, "other.test", says("other", prefix("/")))),
		section("*.example.com", host(l.ID, "*.example.com", says("wild", prefix("/")))),
		section("*.example.com", host(l.ID, "api.example.com", says("api", prefix("/")))),
		section("www.example.com", host(l.ID, "www.example.com", says("www", prefix("/")))),
		section("strict.test", host(l.ID, "strict.test", says("strict", prefix("/")))),
	)
	skip := func(name string) *tls.Config {
		return &tls.Config{InsecureSkipVerify: true, ServerName: name, NextProtos: []string{"h2", "http/1.1"}}
	}

	t.Run("certificates", func(t *testing.T) {
		for name, want := range map[string]string{
			"www.example.com": "t/www", "api.example.com": "t/wild", "a.b.example.com": "t/wild", "example.com": "t/any",
			"elsewhere.test": "t/any", "": "t/any", "strict.test": "t/strict", "both.test": "t/both-ec", "tcp.test": "t/tcp", "pass.test": "t/backend",
		} {
			s, err := shake(l.Port, skip(name))
			if err != nil {
				t.Errorf("%q: %v", name, err)
			} else if got := s.PeerCertificates[0].Subject.CommonName; got != want {
				t.Errorf("%q: certificate %s, want %s", name, got, want)
			}
		}
		if got, err := certificateForRSA(l.Port, "both.test"); err != nil || got != "t/both-rsa" {
			t.Errorf("client without ECDSA: certificate %s %v", got, err)
		}
	})

	t.Run("versions and ciphers", func(t *testing.T) {
		for _, c := range []struct {
			name     string
			min, max uint16
			ciphers  []uint16
			ok       bool
		}{
			{"strict.test", tls.VersionTLS13, tls.VersionTLS13, nil, true},
			{"strict.test", tls.VersionTLS12, tls.VersionTLS12, nil, false},
			{"api.example.com", tls.VersionTLS12, tls.VersionTLS12, nil, true},
			{"www.example.com", tls.VersionTLS12, tls.VersionTLS12, nil, true},
			{"www.example.com", tls.VersionTLS10, tls.VersionTLS11, nil, false},
			{"api.example.com", tls.VersionTLS12, tls.VersionTLS12, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA}, false},
			{"old.test", tls.VersionTLS10, tls.VersionTLS10, nil, true},
			{"old.test", tls.VersionTLS11, tls.VersionTLS11, nil, true},
		} {
			config := skip(c.name)
			config.MinVersion, config.MaxVersion, config.CipherSuites = c.min, c.max, c.ciphers
			if _, err := shake(l.Port, config); (err == nil) != c.ok {
				t.Errorf("%s with version %x to %x, ciphers %v: %v, want success %t", c.name, c.min, c.max, c.ciphers, err, c.ok)
			}
		}
	})

	t.Run("hosts of other sections", func(t *testing.T) {
		for _, c := range []struct {
			sni, host string
			status    int
			body      string
		}{
			{"www.example.com", "www.example.com", 200, "www"},
			{"www.example.com", "www.example.com:8443", 200, "www"},
			{"www.example.com", "api.example.com", 421, ""},
			{"www.example.com", "unknown.example.com", 421, ""},
			{"api.example.com", "api.example.com", 200, "api"},
			{"x.example.com", "api.example.com", 200, "api"},
			{"api.example.com", "x.example.com", 200, "wild"},
			{"api.example.com", "www.example.com", 421, ""},
			{"api.example.com", "strict.test", 421, ""},
			{"api.example.com", "elsewhere.test", 421, ""},
			{"elsewhere.test", "elsewhere.test", 200, "any"},
			{"elsewhere.test", "other.test", 200, "other"},
			{"elsewhere.test", "more.test", 200, "any"},
			{"elsewhere.test", "www.example.com", 421, ""},
			{"elsewhere.test", "x.example.com", 421, ""},
			{"elsewhere.test", "strict.test", 421, ""},
			{"", "other.test", 200, "other"},
			{"", "strict.test", 421, ""},
			{"strict.test", "strict.test", 200, "strict"},
			{"strict.test", "other.test", 421, ""},
			{"both.test", "both.test", 404, ""}, // nothing is routed there, and "*" does not have it
		} {
			a, err := fetch(l.Port, skip(c.sni), c.host, http.Header{"X-Fairlead-Scope": {"https-1/wild"}})
			if err != nil || a.status != c.status || c.body != "" && a.body != c.body {
				t.Errorf("server name %q, host %q: %d %q %v, want %d %q", c.sni, c.host, a.status, a.body, err, c.status, c.body)
			}
		}
	})

	t.Run("bytes", func(t *testing.T) {
		for name, want := range map[string]string{"tcp.test": "plain hello", "pass.test": "inside hello"} {
			conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", l.Port), skip(name))
			must(t, err)
			must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
			_, err = conn.Write([]byte("hello"))
			must(t, err)
			must(t, conn.CloseWrite())
			got, err := io.ReadAll(conn)
			if err != nil || string(got) != want {
				t.Errorf("%s: %q %v, want %q", name, got, err, want)
			}
			conn.Close()
		}
		for _, name := range []string{"broken.test", "closed.test"} {
			var clear tls.RecordHeaderError
			if _, err := shake(l.Port, skip(name)); err == nil || errors.As(err, &clear) {
				t.Errorf("%s: %v, want a closed connection without an answer", name, err)
			}
		}
		served := 0
		for range 200 { // 100 are expected, with a standard deviation of 7
			if _, err := shake(l.Port, skip("half.test")); err == nil {
				served++
			}
		}
		if served < 50 || served > 150 {
			t.Errorf("half.test: %d of 200 connections were served, want half: the share of broken references and of Services without endpoints is closed", served)
		}
	})

	t.Run("clear text", func(t *testing.T) {
		if a, err := ask(l.Port, "GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n"); err == nil {
			t.Errorf("a request in clear text was answered: %d %q", a.status, a.body)
		}
	})
}

// certificateForRSA is the common name in the certificate that a TLS 1.2 client is shown
// that knows RSA only. Go's client cannot leave ECDSA out, so the hello is made here.
func certificateForRSA(port uint16, name string) (string, error) {
	vector := func(bytes int, content []byte) []byte { // RFC 8446, 3.4
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(content)))[4-bytes:], content...)
	}
	extension := func(kind uint16, content []byte) []byte {
		return append(binary.BigEndian.AppendUint16(nil, kind), vector(2, content)...)
	}
	extensions := slices.Concat(
		extension(0, vector(2, append([]byte{0}, vector(2, []byte(name))...))), // server_name
		extension(10, vector(2, []byte{0, 29})),                                // supported_groups: X25519
		extension(13, vector(2, []byte{4, 1})),                                 // signature_algorithms: rsa_pkcs1_sha256
	)
	hello := slices.Concat([]byte{3, 3}, make([]byte, 32), []byte{0}, vector(2, []byte{0xc0, 0x2f}), []byte{1, 0}, vector(2, extensions))
	record := append([]byte{22, 3, 1}, vector(2, append([]byte{1}, vector(3, hello)...))...)
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return "", err
	}
	if _, err := conn.Write(record); err != nil {
		return "", err
	}
	var handshake []byte
	for {
		head := make([]byte, 5)
		if _, err := io.ReadFull(conn, head); err != nil {
			return "", err
		}
		body := make([]byte, binary.BigEndian.Uint16(head[3:]))
		if _, err := io.ReadFull(conn, body); err != nil {
			return "", err
		}
		if head[0] != 22 {
			return "", fmt.Errorf("record of type %d: %x", head[0], body)
		}
		handshake = append(handshake, body...)
		for rest := handshake; len(rest) >= 4; {
			n := int(rest[1])<<16 | int(rest[2])<<8 | int(rest[3])
			if len(rest) < 4+n {
				break
			}
			if rest[0] == 11 { // Certificate: a list of lists
				length := int(rest[7])<<16 | int(rest[8])<<8 | int(rest[9])
				cert, err := x509.ParseCertificate(rest[10 : 10+length])
				if err != nil {
					return "", err
				}
				return cert.Subject.CommonName, nil
			}
			rest = rest[4+n:]
		}
	}
}

// echo answers with a greeting and what it read until the end.
func (w *world) echo(greeting string) netip.AddrPort {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	w.t.Cleanup(func() { l.Close() })
	return w.echoAt(l, greeting)
}

func (w *world) tlsBackend(cert tls.Certificate) netip.AddrPort {
	w.t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	must(w.t, err)
	w.t.Cleanup(func() { l.Close() })
	return w.echoAt(l, "inside ")
}

func (w *world) echoAt(l net.Listener, greeting string) netip.AddrPort {
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if body, err := io.ReadAll(c); err == nil {
					_, _ = io.WriteString(c, greeting+string(body))
				}
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// TestClientCertificates: a listener that verifies clients, and one that only asks.
func TestClientCertificates(t *testing.T) {
	w := newWorld(t)
	c, other := newCA(t), newCA(t)
	backend := w.backend("app")
	w.group("ns/app/1", backend)
	w.set(
		xds.Secret(xds.HostSecretName("a.test"), c.issue("a.test", false, "a.test")),
		xds.AuthoritySecret(xds.AuthorityName("ConfigMap/t/b", "ConfigMap/t/a"), model.Authority{ID: "ConfigMap/t/a", PEM: c.pem}, model.Authority{ID: "ConfigMap/t/b", PEM: newCA(t).pem}),
	)
	listen := func(id model.ListenerID, optional bool) model.Listener {
		l := model.Listener{ID: id, Port: freePort(t), Protocol: model.ProtocolHTTPS, ClientValidation: &model.ClientValidation{
			Authorities: []model.AuthorityID{"ConfigMap/t/a", "ConfigMap/t/b"}, Optional: optional,
		}}
		w.tlsListen(l, xds.Options{}, nil, section("a.test", host(l.ID, "a.test", forward("r", "/", "ns/app/1", 1))))
		return l
	}
	required, optional := listen("https-1", false), listen("https-2", true)
	good, bad := pair(t, c.issue("client", false, "client.test")), pair(t, other.issue("stranger", false, "stranger.test"))
	spoof := http.Header{"X-Forwarded-Client-Cert": {"Hash=1;Subject=\"CN=admin\""}}
	for _, q := range []struct {
		name  string
		l     model.Listener
		certs []tls.Certificate
		ok    bool
		xfcc  string
	}{
		{"required, none", required, nil, false, ""},
		{"required, stranger's", required, []tls.Certificate{bad}, false, ""},
		{"required, good", required, []tls.Certificate{good}, true, "client.test"},
		{"optional, none", optional, nil, true, ""},
		{"optional, stranger's", optional, []tls.Certificate{bad}, true, ""},
		{"optional, good", optional, []tls.Certificate{good}, true, ""},
	} {
		config := &tls.Config{RootCAs: c.pool, ServerName: "a.test", Certificates: q.certs}
		a, err := fetch(q.l.Port, config, "a.test", spoof)
		if (err == nil && a.status == 200) != q.ok {
			t.Errorf("%s: %d %v", q.name, a.status, err)
			continue
		}
		if strings.Contains(a.body, "admin") || q.xfcc == "" && strings.Contains(a.body, "Client-Cert") || !strings.Contains(a.body, q.xfcc) {
			t.Errorf("%s: the backend saw\n%s", q.name, a.body)
		}
	}
}
