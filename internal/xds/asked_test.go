package xds_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quic-go/quic-go/http3"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// edge is a listener without TLS and one with TLS and HTTP/3, both for the host a.test and with one
// access log.
type edge struct {
	*world
	ca            *ca
	clear, secure model.Listener
	log           string
	seen          int // bytes of the log
}

func newEdge(t *testing.T, clients model.ClientSettings, routes ...model.Route) *edge {
	t.Helper()
	e := &edge{world: newWorld(t), ca: newCA(t), log: filepath.Join(t.TempDir(), "access.log")}
	e.group("ns/app/1", e.backend("app"))
	e.clear = model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP, Clients: &clients}
	secure := clients
	secure.HTTP3 = true
	e.secure = model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS, Clients: &secure}
	names := []xds.TLSHost{tlsHost(e.secure.ID, "a.test", "t/a")}
	cert := e.ca.issue("t/a", false, "a.test")
	e.set(xds.Secret(xds.SecretName(cert.ID), cert), xds.Secret(xds.HostSecretName("a.test"), cert))
	o := xds.Options{AccessLog: e.log}
	e.listen(e.clear, o, host(e.clear.ID, "a.test", routes...))
	e.tlsListen(e.secure, o, names, section("a.test", host(e.secure.ID, "a.test", routes...)))
	e.routed(e.secure.ID)
	e.set(xds.QUICListener(e.secure, names, o))
	must(t, e.ads.Acked(e.ctx, ldsURL, xds.QUICListenerName(e.secure.ID)))
	client, end := e.client("HTTP/3.0")
	defer end()
	e.eventually("HTTP/3", func() error {
		_, err := fetchWith(client, fmt.Sprintf("https://127.0.0.1:%d/", e.secure.Port), "a.test", nil)
		return err
	})
	e.line("/")
	return e
}

// client speaks one version of HTTP; h2c is HTTP/2 without TLS, and http is HTTP/1.1 without.
func (e *edge) client(version string) (client http.RoundTripper, end func()) {
	config := &tls.Config{RootCAs: e.ca.pool, ServerName: "a.test"}
	if version == "HTTP/3.0" {
		c := &http3.Transport{TLSClientConfig: config}
		return c, func() { _ = c.Close() }
	}
	c := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols)}
	c.Protocols.SetHTTP1(version == "HTTP/1.1" || version == "http")
	c.Protocols.SetHTTP2(version == "HTTP/2.0")
	c.Protocols.SetUnencryptedHTTP2(version == "h2c")
	return c, c.CloseIdleConnections
}

// url is where a client of that version asks.
func (e *edge) url(version, path string) string {
	if version == "h2c" || version == "http" {
		return fmt.Sprintf("http://127.0.0.1:%d%s", e.clear.Port, path)
	}
	return fmt.Sprintf("https://127.0.0.1:%d%s", e.secure.Port, path)
}

// lines waits for so many further lines of the log.
func (e *edge) lines(want int) (all []map[string]any) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("%d lines", want), func() error {
		body, err := os.ReadFile(e.log)
		if err != nil {
			return err
		}
		body = body[e.seen:]
		if got := bytes.Count(body, []byte("\n")); got < want {
			return fmt.Errorf("%d lines:\n%s", got, body)
		}
		e.seen += len(body)
		for line := range bytes.Lines(body) {
			var fields map[string]any
			if err := json.Unmarshal(line, &fields); err != nil {
				e.t.Errorf("%s: %v", line, err)
			}
			all = append(all, fields)
		}
		return nil
	})
	return all
}

// line waits for the one line of a request that was just made, and says if there are more.
func (e *edge) line(what string) map[string]any {
	e.t.Helper()
	all := e.lines(1)
	if len(all) != 1 {
		e.t.Errorf("%s: %d lines: %v", what, len(all), all)
	}
	return all[0]
}

// TestLogSaysWhatWasAsked holds that a line has the client's path and host, whatever a route or a policy
// makes of them and whoever answers, in every version of HTTP; backends are told neither.
func TestLogSaysWhatWasAsked(t *testing.T) {
	moved := forward("moved", "/moved", "ns/app/1", 1)
	moved.Forward.Path = &model.PathRewrite{Kind: model.RewritePrefix, Value: "/elsewhere"}
	moved.Forward.Host = "other.test"
	full := forward("full", "/full", "ns/app/1", 1)
	full.Forward.Path = &model.PathRewrite{Kind: model.RewriteFull, Value: "/"}
	redirect := model.Route{Name: "redirect", Match: model.Match{Path: prefix("/old")}, Redirect: &model.Redirect{
		Status: 302, Host: "new.test", Path: &model.PathRewrite{Kind: model.RewritePrefix, Value: "/new"},
	}}
	refused := under(moved, &model.RoutePolicy{Addresses: &model.AddressFilter{Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}})
	refused.Name, refused.Match.Path = "refused", prefix("/refused")
	e := newEdge(t, model.ClientSettings{}, moved, full, redirect, refused, forward("rest", "/", "ns/app/1", 1))
	protocols := map[string]any{"HTTP/1.1": "HTTP/1.1", "HTTP/2.0": "HTTP/2", "h2c": "HTTP/2", "HTTP/3.0": "HTTP/3"}
	for version := range protocols {
		client, end := e.client(version)
		for _, c := range []struct {
			path, host, saw string // saw is what the backend is told, where it is asked
			status          float64
			logged          string // the path, where it is another
		}{
			{"/moved/a?b=%2Fc", "a.test", "app other.test /elsewhere/a?b=%2Fc", 200, ""},
			{"/moved/" + strings.Repeat("x", 2000), "A.test:8443", "app other.test /elsewhere/x", 200, ("/moved/" + strings.Repeat("x", 2000))[:1024]},
			{"/full/a", "a.test", "app a.test /\n", 200, ""},
			{"/old/a", "a.test", "", 302, ""},
			{"/refused/a", "a.test", "", 403, ""},
			{"/plain", "a.test", "app a.test /plain\n", 200, ""},
			// Envoy makes a path plain before anything else, and answers these itself.
			{"//moved/../moved//a", "a.test", "app other.test /elsewhere/a", 200, "/moved/a"},
			{"/moved%2fa", "a.test", "", 307, "/moved/a"},
		} {
			a, err := fetchWith(client, e.url(version, c.path), c.host, http.Header{"X-Envoy-Original-Path": {"/no"}, "X-Envoy-Original-Host": {"no.test"}})
			if err != nil || a.status != int(c.status) || !strings.HasPrefix(a.body, c.saw) || strings.Contains(a.body, "Original") {
				t.Errorf("%s %.40s: %d %v, want %v; the backend saw\n%s", version, c.path, a.status, err, c.status, a.body)
			}
			want := c.path
			if c.logged != "" {
				want = c.logged
			}
			if line := e.line(c.path); line["path"] != want || line["host"] != c.host || line["status"] != c.status || line["protocol"] != protocols[version] {
				t.Errorf("%s %.40s: %v %v%.60v, want %v%.60s", version, c.path, line["status"], line["host"], line["path"], c.host, want)
			}
		}
		end()
	}
	// A dot at the end is gone.
	if a := e.get(e.clear.Port, "a.test.", "/moved/a"); a.status != 200 {
		t.Errorf("with a dot: %d", a.status)
	}
	if line := e.line("with a dot"); line["path"] != "/moved/a" || line["host"] != "a.test" {
		t.Errorf("with a dot: %v", line)
	}
	// What never comes to filters.
	if a := e.raw(e.clear.Port, "GET /nohost HTTP/1.1\r\nX-Envoy-Original-Path: /no\r\nConnection: close\r\n\r\n"); a.status != 400 {
		t.Errorf("without a host: %d", a.status)
	}
	if line := e.line("without a host"); line["path"] != "/nohost" || line["host"] != nil || line["details"] != "missing_host_header" {
		t.Errorf("without a host: %v", line)
	}
}
