package xds_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestHTTP3: a listener with HTTP/3 serves the same hosts at the same port over UDP, each
// with its certificate, and says so to clients that came over TCP.
func TestHTTP3(t *testing.T) {
	w := newWorld(t)
	c := newCA(t)
	l := model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS, Clients: &model.ClientSettings{HTTP3: true, MaxStreams: 7}}
	hosts := []xds.TLSHost{tlsHost(l.ID, "a.test", "t/a"), tlsHost(l.ID, "b.test", "t/b"), tlsHost(l.ID, "*.wild.test", "t/wild")}
	for _, h := range hosts {
		cert := c.issue(string(h.Certificates[0]), false, h.Host)
		w.set(xds.Secret(xds.SecretName(cert.ID), cert), xds.Secret(xds.HostSecretName(h.Host), cert))
	}
	w.group("ns/app/1", w.backend("app"))
	w.tlsListen(l, xds.Options{}, hosts,
		section("a.test", host(l.ID, "a.test", forward("a", "/", "ns/app/1", 1))),
		section("b.test", host(l.ID, "b.test", says("b", prefix("/")))),
		section("*.wild.test", host(l.ID, "*.wild.test", says("wild", prefix("/")))),
	)
	w.set(xds.QUICListener(l, hosts, xds.Options{}))
	must(t, w.ads.Acked(w.ctx, ldsURL, xds.QUICListenerName(l.ID)))

	over3 := func(sni, host string) (answer, error) {
		transport := &http3.Transport{
			TLSClientConfig: &tls.Config{RootCAs: c.pool, ServerName: sni},
			QUICConfig:      &quic.Config{HandshakeIdleTimeout: 5 * time.Second},
		}
		defer transport.Close()
		return fetchWith(transport, fmt.Sprintf("https://127.0.0.1:%d/x", l.Port), host, http.Header{"X-Fairlead-Scope": {"https-1/wild"}})
	}
	w.eventually("HTTP/3", func() error {
		_, err := over3("b.test", "b.test")
		return err
	})
	for _, q := range []struct {
		sni, host string
		status    int
		body      string
	}{
		{"a.test", "a.test", 200, "app a.test /x\n"},
		{"b.test", "b.test", 200, "b"},
		{"x.wild.test", "y.wild.test", 200, "wild"},
		{"a.test", "b.test", 421, ""},
		{"x.wild.test", "a.test", 421, ""},
	} {
		a, err := over3(q.sni, q.host)
		if err != nil || a.status != q.status || !strings.HasPrefix(a.body, q.body) {
			t.Errorf("server name %s, host %s: %d %q %v, want %d %q", q.sni, q.host, a.status, a.body, err, q.status, q.body)
		}
		if strings.Contains(a.body, "Scope") {
			t.Errorf("the backend saw the scope of a client: %s", a.body)
		}
	}
	if _, err := over3("unknown.test", "unknown.test"); err == nil {
		t.Error("a server name without a certificate was served")
	}
	a, err := fetch(l.Port, &tls.Config{RootCAs: c.pool, ServerName: "b.test"}, "b.test", nil)
	if want := fmt.Sprintf(`h3=":%d"; ma=86400`, l.Port); err != nil || a.headers.Get("Alt-Svc") != want {
		t.Errorf("over TCP: %v %v, want Alt-Svc %s", a.headers, err, want)
	}
	// A renewed certificate counts here too.
	w.set(xds.Secret(xds.SecretName("t/b"), c.issue("renewed", false, "b.test")))
	w.eventually("the renewed certificate", func() error {
		transport := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: c.pool, ServerName: "b.test"}}
		defer transport.Close()
		r, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Get(fmt.Sprintf("https://127.0.0.1:%d/", l.Port))
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if _, err := io.ReadAll(r.Body); err != nil {
			return err
		}
		if got := r.TLS.PeerCertificates[0].Subject.CommonName; got != "renewed" {
			return fmt.Errorf("certificate %s", got)
		}
		return nil
	})
}
