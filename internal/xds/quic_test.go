package xds_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

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

// dials3 is a client of HTTP/3 that counts its connections, and remembers sessions.
func dials3(c *ca, sni string, dials *atomic.Int32) *http3.Transport {
	return &http3.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.pool, ServerName: sni, ClientSessionCache: tls.NewLRUClientSessionCache(4)},
		QUICConfig:      &quic.Config{HandshakeIdleTimeout: 5 * time.Second},
		Dial: func(ctx context.Context, address string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
			dials.Add(1)
			return quic.DialAddrEarly(ctx, address, t, q)
		},
	}
}

// TestHTTP3Names: a connection outlives that its certificate has one more name, or the listener one more
// certificate, and nothing is taken in before a handshake is over.
func TestHTTP3Names(t *testing.T) {
	// Who is to go hears of it with the next answer.
	w := newLimitedWorld(t, xds.BootstrapOptions{}, "--drain-strategy", "immediate")
	c := newCA(t)
	l := model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS, Clients: &model.ClientSettings{HTTP3: true}}
	hosts := []xds.TLSHost{tlsHost(l.ID, "a.test", "t/a"), tlsHost(l.ID, "*.wild.test", "t/wild"), tlsHost(l.ID, "*", "t/rest"), tlsHost(l.ID, "in.wild.test", "t/in")}
	names := []string{"a.test", "later.test", "x.wild.test", "in.wild.test", "other.example"}
	for _, id := range []string{"t/a", "t/wild", "t/rest", "t/in", "t/new"} {
		w.set(xds.Secret(xds.SecretName(model.CertificateID(id)), c.issue(id, false, append(names, "new.test")...)))
	}
	listens := func() {
		l3 := xds.QUICListener(l, hosts, xds.Options{})
		w.set(l3)
		must(t, w.ads.Acked(w.ctx, ldsURL, l3.Name))
	}
	w.tlsListen(l, xds.Options{}, hosts, section("a.test", host(l.ID, "a.test", says("a", prefix("/")))))
	listens()
	certificate := func(sni string) string {
		var dials atomic.Int32
		transport := dials3(c, sni, &dials)
		defer transport.Close()
		r, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Get(fmt.Sprintf("https://127.0.0.1:%d/", l.Port))
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	w.eventually("HTTP/3", func() error {
		if got := certificate("a.test"); got != "t/a" {
			return errors.New(got)
		}
		return nil
	})
	for sni, want := range map[string]string{"x.wild.test": "t/wild", "in.wild.test": "t/in", "other.example": "t/rest", "later.test": "t/rest"} {
		if got := certificate(sni); got != want {
			t.Errorf("%s has certificate %s, want %s", sni, got, want)
		}
	}

	var dials atomic.Int32
	transport := dials3(c, "a.test", &dials)
	defer transport.Close()
	asks := func() {
		t.Helper()
		if a, err := fetchWith(transport, fmt.Sprintf("https://127.0.0.1:%d/x", l.Port), "a.test", nil); err != nil || a.status != 200 {
			t.Fatalf("%d %v", a.status, err)
		}
	}
	asks()
	hosts = append(hosts, tlsHost(l.ID, "later.test", "t/a"), tlsHost(l.ID, "new.test", "t/new"))
	listens()
	w.eventually("the new names", func() error {
		if later, fresh := certificate("later.test"), certificate("new.test"); later != "t/a" || fresh != "t/new" {
			return fmt.Errorf("certificates %s, %s", later, fresh)
		}
		return nil
	})
	for range 3 {
		asks()
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections for one client, want 1", n)
	}

	// A client that has a session and would send early data is served after the handshake.
	_ = transport.Close()
	again := dials3(c, "a.test", &dials)
	again.TLSClientConfig.ClientSessionCache = transport.TLSClientConfig.ClientSessionCache
	defer again.Close()
	conn, err := quic.DialAddrEarly(t.Context(), fmt.Sprintf("127.0.0.1:%d", l.Port), &tls.Config{
		RootCAs: c.pool, ServerName: "a.test", NextProtos: []string{"h3"}, ClientSessionCache: transport.TLSClientConfig.ClientSessionCache,
	}, &quic.Config{})
	must(t, err)
	select {
	case <-conn.HandshakeComplete():
	case <-t.Context().Done():
	}
	if s := conn.ConnectionState(); !s.TLS.DidResume || s.Used0RTT {
		t.Errorf("resumed %t, with early data %t; want a session without", s.TLS.DidResume, s.Used0RTT)
	}
	must(t, conn.CloseWithError(0, ""))
}

// TestHTTP3Sets: beyond so many sets of certificates HTTP/3 has no more.
func TestHTTP3Sets(t *testing.T) {
	l := model.Listener{ID: "https-1", Port: 443, Protocol: model.ProtocolHTTPS, Clients: &model.ClientSettings{HTTP3: true}}
	var hosts []xds.TLSHost
	for i := range 1000 {
		hosts = append(hosts, tlsHost(l.ID, fmt.Sprintf("h%d.test", i), model.CertificateID(fmt.Sprintf("t/%d", i))))
	}
	if n := len(xds.QUICListener(l, hosts, xds.Options{}).GetFilterChains()); n != 256 {
		t.Errorf("%d chains, want 256", n)
	}
	for i := range hosts {
		hosts[i].Certificates = []model.CertificateID{"t/one"}
	}
	if n := len(xds.QUICListener(l, hosts, xds.Options{}).GetFilterChains()); n != 1 {
		t.Errorf("%d chains for one certificate, want 1", n)
	}
}

// TestNamesThatHTTP3DoesNotServe: a name without a certificate, and one whose connections are handed on, are not
// served with a wildcard's certificate, by whose routes they would be answered.
func TestNamesThatHTTP3DoesNotServe(t *testing.T) {
	w, c := newWorld(t), newCA(t)
	l := model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS, Clients: &model.ClientSettings{HTTP3: true}}
	w.group("ns/pass/1", w.tlsBackend(pair(t, c.issue("t/backend", false, "pass.a.test", "x.deep.a.test"))))
	hosts := []xds.TLSHost{tlsHost(l.ID, "*.a.test", "t/w"), tlsHost(l.ID, "closed.a.test")}
	for _, name := range []string{"pass.a.test", "*.deep.a.test"} {
		handed := tlsHost(l.ID, name)
		handed.TCP = []model.WeightedGroup{{Group: "ns/pass/1", Weight: 1}}
		hosts = append(hosts, handed)
	}
	w.set(xds.Secret(xds.SecretName("t/w"), c.issue("t/w", false, "*.a.test", "x.deep.a.test")))
	w.tlsListen(l, xds.Options{}, hosts, section("*.a.test", host(l.ID, "*.a.test", says("the wildcard's", model.PathMatch{}))),
		section("closed.a.test", host(l.ID, "closed.a.test", says("closed", model.PathMatch{}))))
	w.set(xds.QUICListener(l, hosts, xds.Options{}))
	must(t, w.ads.Acked(w.ctx, ldsURL, xds.QUICListenerName(l.ID)))
	ask := func(name string) (answer, error) {
		transport := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: c.pool, ServerName: name}, QUICConfig: &quic.Config{HandshakeIdleTimeout: 2 * time.Second}}
		defer transport.Close()
		return fetchWith(transport, fmt.Sprintf("https://127.0.0.1:%d/x", l.Port), name, http.Header{})
	}
	w.eventually("the wildcard", func() error {
		a, err := ask("any.a.test")
		if err == nil && a.body != "the wildcard's" {
			err = fmt.Errorf("%d %q", a.status, a.body)
		}
		return err
	})
	for _, name := range []string{"closed.a.test", "pass.a.test", "x.deep.a.test"} {
		if a, err := ask(name); err == nil {
			t.Errorf("%s: %d %q", name, a.status, a.body)
		}
	}
}

// TestNamesOfChains: whoever chooses host names, or names of Secrets, finds no two that are one chain's: Envoy would
// refuse the listener of all.
func TestNamesOfChains(t *testing.T) {
	l := model.Listener{ID: "https-1", Port: 443, Protocol: model.ProtocolHTTPS}
	for _, c := range xds.Listener(l, []xds.TLSHost{tlsHost(l.ID, "a.test", "t/a"), tlsHost(l.ID, "closed.test"), tlsHost(l.ID, "*.b.test", "t/b")}, xds.Options{}).GetFilterChains() {
		if name, err := hex.DecodeString(c.GetName()); err != nil || len(name) < sha256.Size {
			t.Errorf("chain %q has a name of %d bytes", c.GetName(), len(name))
		}
	}
}

// TestClearTextIsNotHandedOn: a listener of TLS hands on connections of TLS, and closes others.
func TestClearTextIsNotHandedOn(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS}
	var taken atomic.Int64
	w.group("ns/pass/1", w.serve(func(http.ResponseWriter, *http.Request) { taken.Add(1) }))
	handed := tlsHost(l.ID, "*")
	handed.TCP = []model.WeightedGroup{{Group: "ns/pass/1", Weight: 1}}
	w.tlsListen(l, xds.Options{}, []xds.TLSHost{handed})
	if a, err := ask(l.Port, "GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"); err == nil || taken.Load() > 0 {
		t.Errorf("answered %d: the backend took %d requests", a.status, taken.Load())
	}
}

// TestBadStreamEndsItself: a malformed request over HTTP/2 ends itself, and not the others of its
// connection.
func TestBadStreamEndsItself(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	answer := make(chan struct{})
	w.group("ns/slow/1", w.serve(func(rw http.ResponseWriter, _ *http.Request) {
		<-answer
		_, _ = io.WriteString(rw, "slow")
	}))
	w.listen(l, xds.Options{}, host(l.ID, "a.test", forward("HTTPRoute/ns/a", "/", "ns/slow/1", 1)))
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", l.Port))
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	must(t, err)
	f := http2.NewFramer(conn, conn)
	must(t, f.WriteSettings())
	ask := func(stream uint32, more ...hpack.HeaderField) {
		var block bytes.Buffer
		e := hpack.NewEncoder(&block)
		for _, h := range append([]hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "a.test"}, {Name: ":path", Value: "/"}}, more...) {
			must(t, e.WriteField(h))
		}
		must(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}))
	}
	ask(1)
	ask(3, hpack.HeaderField{Name: "connection", Value: "keep-alive"}) // RFC 9113, 8.2.2
	ask(5, hpack.HeaderField{Name: "Upper", Value: "x"})               // RFC 9113, 8.2
	ended := map[uint32]bool{}
	for !ended[1] {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("the connection ended: %v; ended streams: %v", err, ended)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				must(t, f.WriteSettingsAck())
			}
		case *http2.GoAwayFrame:
			t.Fatalf("the connection ends: %v", frame)
		case *http2.RSTStreamFrame:
			ended[frame.StreamID] = true
			if ended[3] && ended[5] {
				close(answer)
			}
		case *http2.DataFrame:
			ended[frame.StreamID] = frame.StreamEnded()
		case *http2.HeadersFrame:
			ended[frame.StreamID] = frame.StreamEnded()
			if ended[3] && ended[5] && frame.StreamID != 1 {
				close(answer)
			}
		}
	}
	if !ended[3] || !ended[5] {
		t.Errorf("ended are %v", ended)
	}
}
