package xds_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestConnectionsOutliveNewNames: where certificates are not asked for on demand, a connection outlives
// that its certificate has one more name, or the listener one more certificate.
func TestConnectionsOutliveNewNames(t *testing.T) {
	// Who is to go hears of it with the next answer.
	w := newLimitedWorld(t, xds.BootstrapOptions{}, "--drain-strategy", "immediate")
	c := newCA(t)
	l := model.Listener{ID: model.OwnListener(model.ProtocolHTTPS, 443, "ns", "edge"), Port: freePort(t), Protocol: model.ProtocolHTTPS}
	for _, id := range []string{"t/a", "t/new"} {
		w.set(xds.Secret(xds.SecretName(model.CertificateID(id)), c.issue(id, false, "a.test", "later.test", "new.test")))
	}
	hosts := []xds.TLSHost{tlsHost(l.ID, "a.test", "t/a")}
	w.tlsListen(l, xds.Options{}, hosts, section("a.test", host(l.ID, "a.test", says("a", prefix("/")))))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.pool, ServerName: "a.test"}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	asks := func() (reused bool) {
		t.Helper()
		r, err := http.NewRequestWithContext(httptrace.WithClientTrace(w.ctx, &httptrace.ClientTrace{
			GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused },
		}), http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d/", l.Port), nil)
		must(t, err)
		r.Host = "a.test"
		answer, err := transport.RoundTrip(r)
		must(t, err)
		defer answer.Body.Close()
		_, err = io.Copy(io.Discard, answer.Body)
		must(t, err)
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("got %d", answer.StatusCode)
		}
		return reused
	}
	asks()
	w.set(xds.Listener(l, append(hosts, tlsHost(l.ID, "later.test", "t/a"), tlsHost(l.ID, "new.test", "t/new")), xds.Options{}))
	must(t, w.ads.Acked(w.ctx, ldsURL, string(l.ID)))
	w.eventually("the new names", func() error {
		for name, want := range map[string]string{"later.test": "t/a", "new.test": "t/new"} {
			conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", l.Port), &tls.Config{RootCAs: c.pool, ServerName: name})
			if err != nil {
				return err
			}
			got := conn.ConnectionState().PeerCertificates[0].Subject.CommonName
			_ = conn.Close()
			if got != want {
				return fmt.Errorf("%s has certificate %s, want %s", name, got, want)
			}
		}
		return nil
	})
	for range 3 {
		if !asks() {
			t.Fatal("the connection was ended")
		}
	}
}

// TestLongestWildcards: a server name below several wildcards is served by the longest one, whatever order they have by
// alphabet.
func TestLongestWildcards(t *testing.T) {
	w, c := newWorld(t), newCA(t)
	l := model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS}
	var hosts []xds.TLSHost
	for _, suffix := range []string{"a.z.example.com", "z.example.com", "example.com", "a.example.com"} {
		id := "t/" + suffix
		w.set(xds.Secret(xds.SecretName(model.CertificateID(id)), c.issue(id, false, "*."+suffix)))
		hosts = append(hosts, tlsHost(l.ID, "*."+suffix, model.CertificateID(id)))
	}
	w.tlsListen(l, xds.Options{}, hosts)
	for name, suffix := range map[string]string{"x.a.z.example.com": "a.z.example.com", "x.z.example.com": "z.example.com", "x.example.com": "example.com", "x.a.example.com": "a.example.com"} {
		state, err := shake(l.Port, &tls.Config{RootCAs: c.pool, ServerName: name})
		if err != nil || state.PeerCertificates[0].Subject.CommonName != "t/"+suffix {
			t.Errorf("%s: %v", name, err)
		}
	}
}
