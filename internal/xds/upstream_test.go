package xds_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// serveOver is an HTTP server over a listener and with protocols of its own, that says how
// it was asked.
func (w *world) serveOver(config *tls.Config, protocols func(*http.Protocols)) netip.AddrPort {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	s := &http.Server{
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
			server, shown := "", ""
			if q.TLS != nil {
				server = q.TLS.ServerName
				for _, c := range q.TLS.PeerCertificates {
					shown += c.Subject.CommonName
				}
			}
			fmt.Fprintf(rw, "%s sni=%s cert=%s host=%s", q.Proto, server, shown, q.Host)
		}),
		ReadHeaderTimeout: 10 * time.Second, TLSConfig: config, Protocols: new(http.Protocols),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // handshakes that must fail
	}
	protocols(s.Protocols)
	if config != nil {
		go func() { _ = s.ServeTLS(l, "", "") }()
	} else {
		go func() { _ = s.Serve(l) }()
	}
	w.t.Cleanup(func() { s.Close() })
	return netip.MustParseAddrPort(l.Addr().String())
}

func only1(p *http.Protocols) { p.SetHTTP1(true) }
func both(p *http.Protocols)  { p.SetHTTP1(true); p.SetHTTP2(true) }
func clear2(p *http.Protocols) {
	p.SetUnencryptedHTTP2(true)
}

func TestBackendProtocols(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	good, other := newCA(t), newCA(t)
	server := func(c *ca, names ...string) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{pair(t, c.issue("server", false, names...))}, MinVersion: tls.VersionTLS12}
	}
	asking := server(good, "b.test")
	asking.ClientAuth, asking.ClientCAs = tls.RequireAndVerifyClientCert, good.pool
	const authority, second, client = "ConfigMap/ns/good", "ConfigMap/ns/other", "ns/client"
	w.set(xds.AuthoritySecret(xds.AuthorityName(authority), model.Authority{ID: authority, PEM: good.pem}),
		xds.AuthoritySecret(xds.AuthorityName(authority, second), model.Authority{ID: authority, PEM: good.pem}, model.Authority{ID: second, PEM: other.pem}),
		xds.AuthoritySecret(xds.AuthorityName(), model.Authority{PEM: good.pem}),
		xds.Secret(xds.SecretName(client), good.issue("client", false, "client.test")))
	verified := func(change func(*model.BackendTLS)) *model.BackendTLS {
		b := &model.BackendTLS{ServerName: "b.test", Authorities: []model.AuthorityID{authority}}
		if change != nil {
			change(b)
		}
		return b
	}
	cases := []struct {
		name    string
		group   model.BackendGroup
		backend netip.AddrPort
		want    string // "503" where the backend is not trusted
	}{
		{"h2c", model.BackendGroup{Protocol: model.BackendHTTP2}, w.serveOver(nil, clear2), "HTTP/2.0 sni= cert="},
		{"http1", model.BackendGroup{}, w.serveOver(nil, only1), "HTTP/1.1 sni= cert="},
		{"auto without TLS", model.BackendGroup{Protocol: model.BackendAuto}, w.serveOver(nil, only1), "HTTP/1.1 sni= cert="},
		{"TLS http1", model.BackendGroup{TLS: verified(nil)}, w.serveOver(server(good, "b.test"), both), "HTTP/1.1 sni=b.test cert="},
		{"TLS http2", model.BackendGroup{TLS: verified(nil), Protocol: model.BackendHTTP2}, w.serveOver(server(good, "b.test"), both), "HTTP/2.0 sni=b.test cert="},
		{"auto 2", model.BackendGroup{TLS: verified(nil), Protocol: model.BackendAuto}, w.serveOver(server(good, "b.test"), both), "HTTP/2.0 sni=b.test cert="},
		{"auto 1", model.BackendGroup{TLS: verified(nil), Protocol: model.BackendAuto}, w.serveOver(server(good, "b.test"), only1), "HTTP/1.1 sni=b.test cert="},
		{"wildcard certificate", model.BackendGroup{TLS: verified(nil)}, w.serveOver(server(good, "*.test"), only1), "HTTP/1.1 sni=b.test cert="},
		{"wrong name", model.BackendGroup{TLS: verified(nil)}, w.serveOver(server(good, "c.test"), only1), "503"},
		{"wrong authority", model.BackendGroup{TLS: verified(nil)}, w.serveOver(server(other, "b.test"), only1), "503"},
		{"two authorities", model.BackendGroup{TLS: verified(func(b *model.BackendTLS) {
			b.Authorities = []model.AuthorityID{second, authority}
		})}, w.serveOver(server(other, "b.test"), only1), "HTTP/1.1 sni=b.test cert="},
		{"the system's authorities", model.BackendGroup{TLS: verified(func(b *model.BackendTLS) { b.Authorities = nil })}, w.serveOver(server(good, "b.test"), only1), "HTTP/1.1 sni=b.test cert="},
		{"names", model.BackendGroup{TLS: verified(func(b *model.BackendTLS) {
			b.Names = []model.AltName{{DNS: "x.test"}, {URI: "spiffe://good/b"}}
		})}, w.serveOver(server(good, "other.test", "spiffe://good/b"), only1), "HTTP/1.1 sni=b.test cert="},
		{"names do not include the server name", model.BackendGroup{TLS: verified(func(b *model.BackendTLS) {
			b.Names = []model.AltName{{URI: "spiffe://good/c"}}
		})}, w.serveOver(server(good, "b.test", "spiffe://good/b"), only1), "503"},
		{"address as name", model.BackendGroup{TLS: verified(func(b *model.BackendTLS) { b.ServerName = "127.0.0.1" })}, w.serveOver(server(good, "127.0.0.1"), only1), "HTTP/1.1 sni= cert="},
		{"unverified", model.BackendGroup{TLS: &model.BackendTLS{Unverified: true}}, w.serveOver(server(other, "c.test"), only1), "HTTP/1.1 sni= cert="},
		{"unverified with a name", model.BackendGroup{TLS: &model.BackendTLS{Unverified: true, ServerName: "b.test"}, Protocol: model.BackendAuto}, w.serveOver(server(other, "c.test"), both), "HTTP/2.0 sni=b.test cert="},
		{"no name is sent", model.BackendGroup{TLS: &model.BackendTLS{Authorities: []model.AuthorityID{authority}, Names: []model.AltName{{URI: "spiffe://good/b"}}}}, w.serveOver(server(good, "b.test", "spiffe://good/b"), only1), "HTTP/1.1 sni= cert="},
		{"client certificate", model.BackendGroup{TLS: verified(func(b *model.BackendTLS) { b.Certificate = client })}, w.serveOver(asking, only1), "HTTP/1.1 sni=b.test cert=client"},
		{"no client certificate", model.BackendGroup{TLS: verified(nil)}, w.serveOver(asking, only1), "503"},
	}
	var hosts []model.VirtualHost
	for i, c := range cases {
		c.group.ID = model.GroupID(fmt.Sprintf("ns/g%d/1", i))
		w.serveGroup(c.group, c.backend)
		hosts = append(hosts, host(l.ID, fmt.Sprintf("g%d.test", i),
			forward("r", "/", string(c.group.ID), 1)))
	}
	w.listen(l, xds.Options{}, hosts...)
	must(t, w.envoy.Until(w.ctx, "clusters to be warm", func() bool { return w.envoy.Stat(w.ctx, "cluster_manager.warming_clusters") == 0 }))
	for i, c := range cases {
		name := fmt.Sprintf("g%d.test", i)
		a := w.get(l.Port, name, "/")
		got, want := a.body, c.want
		if a.status != 200 {
			got = fmt.Sprint(a.status)
		}
		if want != "503" {
			want += " host=" + name
		}
		if got != want {
			t.Errorf("%s: %q, want %q (%s)", c.name, got, want, a.body)
		}
	}
}

// TestSendProxyProtocol holds that a backend learns the client's address, over TLS too.
func TestSendProxyProtocol(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	authority := newCA(t)
	config := &tls.Config{Certificates: []tls.Certificate{pair(t, authority.issue("server", false, "b.test"))}, MinVersion: tls.VersionTLS12}
	proxied := func(inner *tls.Config) netip.AddrPort {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go answerProxied(c, inner)
			}
		}()
		return netip.MustParseAddrPort(l.Addr().String())
	}
	const id = "ConfigMap/ns/ca"
	w.set(xds.AuthoritySecret(xds.AuthorityName(id), model.Authority{ID: id, PEM: authority.pem}))
	w.serveGroup(model.BackendGroup{ID: "ns/plain/1", SendProxyProtocol: true}, proxied(nil))
	w.serveGroup(model.BackendGroup{ID: "ns/tls/1", SendProxyProtocol: true, TLS: &model.BackendTLS{ServerName: "b.test", Authorities: []model.AuthorityID{id}}}, proxied(config))
	w.listen(l, xds.Options{}, host(l.ID, "a.test", forward("tls", "/tls", "ns/tls/1", 1), forward("plain", "/", "ns/plain/1", 1)))
	for _, path := range []string{"/", "/tls"} {
		for _, from := range []string{"127.0.0.2", "127.0.0.3"} {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			c, err := d.DialContext(w.ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", l.Port))
			must(t, err)
			_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", path)
			must(t, err)
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			must(t, err)
			body, err := io.ReadAll(r.Body)
			must(t, err)
			c.Close()
			if string(body) != from {
				t.Errorf("%s: the backend saw %q (%d), want %s", path, body, r.StatusCode, from)
			}
		}
	}
}

// answerProxied answers one request with the source of the PROXY header (version 2).
func answerProxied(c net.Conn, config *tls.Config) {
	defer c.Close()
	head := make([]byte, 16)
	if _, err := io.ReadFull(c, head); err != nil {
		return
	}
	rest := make([]byte, binary.BigEndian.Uint16(head[14:]))
	if _, err := io.ReadFull(c, rest); err != nil {
		return
	}
	var from netip.Addr
	switch head[13] >> 4 {
	case 1:
		from, _ = netip.AddrFromSlice(rest[:4])
	case 2:
		from, _ = netip.AddrFromSlice(rest[:16])
	}
	if config != nil {
		c = tls.Server(c, config)
	}
	if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
		return
	}
	fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(from.String()), from)
}

func TestOutlierDetection(t *testing.T) {
	events := filepath.Join(t.TempDir(), "outliers.log")
	w := newLimitedWorld(t, xds.BootstrapOptions{OutlierLog: events})
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	bad := w.serve(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) })
	w.serveGroup(model.BackendGroup{ID: "ns/a/1", Outlier: &model.OutlierDetection{
		ConsecutiveErrors: 3, Interval: time.Second, EjectionTime: time.Hour, MaxEjected: 50,
	}}, bad, w.backend("good"))
	w.serveGroup(model.BackendGroup{ID: "ns/b/1"}, bad)
	w.listen(l, xds.Options{}, host(l.ID, "a.test", forward("r", "/", "ns/a/1", 1)), host(l.ID, "b.test", forward("r", "/", "ns/b/1", 1)))
	failed := 0
	for range 100 {
		if a := w.get(l.Port, "a.test", "/"); a.status != 200 {
			failed++
		}
	}
	// Threads hear of it a moment later.
	if failed < 3 || failed > 20 {
		t.Errorf("%d requests failed, want about 3 until the backend is out", failed)
	}
	// What the agent reads of it.
	must(t, w.envoy.Until(w.ctx, "the event to be written", func() bool {
		var e struct {
			Cluster  string `json:"cluster_name"`
			Upstream string `json:"upstream_url"`
			Action   string
			Enforced bool
			Time     time.Time `json:"timestamp"`
		}
		data, err := os.ReadFile(events)
		return err == nil && json.Unmarshal(data, &e) == nil && e.Cluster == "ns/a/1" && e.Upstream == bad.String() &&
			e.Action == "EJECT" && e.Enforced && !e.Time.IsZero()
	}))
	for range 20 {
		if a := w.get(l.Port, "b.test", "/"); a.status != 500 {
			t.Fatalf("nobody asked to take it out: %d", a.status)
		}
	}
}

func TestBackendLimits(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	var under atomic.Int64
	release := make(chan struct{})
	slow := w.serve(func(_ http.ResponseWriter, q *http.Request) {
		under.Add(1)
		select {
		case <-release:
		case <-q.Context().Done():
		}
	})
	w.serveGroup(model.BackendGroup{ID: "ns/a/1", Limits: &model.BackendLimits{MaxRequests: 2}}, slow)
	w.listen(l, xds.Options{}, host(l.ID, "a.test", forward("r", "/", "ns/a/1", 1)))
	answers := make(chan int, 2)
	for range 2 {
		go func() {
			a, _ := ask(l.Port, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
			answers <- a.status
		}()
	}
	must(t, w.envoy.Until(w.ctx, "two requests under way", func() bool { return under.Load() == 2 }))
	if a := w.get(l.Port, "a.test", "/"); a.status != 503 || !strings.Contains(a.body, "too many requests wait") {
		t.Errorf("beyond the limit: %d %q, want 503 for overflow", a.status, a.body)
	}
	close(release)
	for range 2 {
		if got := <-answers; got != 200 {
			t.Errorf("within the limit: %d", got)
		}
	}
}
