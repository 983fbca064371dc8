package xds_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestHeadersOfMovers holds what backends of IngressRoutes are told of a request, as by Contour: when it came, by
// the edge's clock and not the client's. Of a rewritten path they are not told what it was.
func TestHeadersOfMovers(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.group("ns/echo/1", w.serve(func(a http.ResponseWriter, q *http.Request) {
		fmt.Fprintf(a, "%s %s", q.URL.Path, strings.Join(q.Header.Values("X-Request-Start"), ","))
		for name := range q.Header {
			if strings.HasPrefix(name, "X-Envoy-Original") {
				fmt.Fprint(a, " "+name)
			}
		}
	}))
	told := forward("told", "/told", "ns/echo/1", 1)
	told.Forward.StartHeader = true
	told.Forward.Path = &model.PathRewrite{Kind: model.RewritePrefix, Value: "/"}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", told, forward("plain", "/plain", "ns/echo/1", 1)))
	said := regexp.MustCompile(`^/x t=1[0-9]{9}\.[0-9]{3}$`)
	if a := w.get(l.Port, "a.test", "/told/x", "X-Request-Start: t=1.5", "X-Envoy-Original-Path: /no"); !said.MatchString(strings.ReplaceAll(a.body, "//", "/")) {
		t.Errorf("the backend heard %q", a.body)
	}
	if a := w.get(l.Port, "a.test", "/plain", "X-Request-Start: t=1.5"); a.body != "/plain t=1.5" {
		t.Errorf("another backend heard %q", a.body)
	}
}

// TestNamedAffinityCookie holds that a cookie of another proxy goes on to keep its client.
func TestNamedAffinityCookie(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.serveGroup(model.BackendGroup{ID: "ns/cookie/1", Balance: model.BalanceCookie, Cookie: "X-Contour-Session-Affinity"}, w.backend("c1"), w.backend("c2"), w.backend("c3"))
	w.listen(l, xds.Options{}, host(l.ID, "a.test", forward("r", "/", "ns/cookie/1", 1)))
	a := w.get(l.Port, "a.test", "/")
	cookie, _, _ := strings.Cut(a.headers.Get("Set-Cookie"), ";")
	if !strings.HasPrefix(cookie, "X-Contour-Session-Affinity=") {
		t.Fatalf("no cookie: %v", a.headers)
	}
	var seen []string
	for i := range 60 {
		b := w.get(l.Port, "a.test", "/", "Cookie: "+cookie)
		if b.headers.Get("Backend") != a.headers.Get("Backend") || b.headers.Get("Set-Cookie") != "" {
			t.Fatalf("moved from %q: %v", a.headers.Get("Backend"), b.headers)
		}
		// Its value is any text: one that another proxy gave decides as well.
		c := w.get(l.Port, "a.test", "/", fmt.Sprintf("Cookie: X-Contour-Session-Affinity=%d", i))
		seen = append(seen, c.headers.Get("Backend"))
	}
	if slices.Sort(seen); len(slices.Compact(seen)) != 3 {
		t.Errorf("60 clients have %v", seen)
	}
}

// TestFloorOfTLS holds that no host name has an older TLS than the operator wants.
func TestFloorOfTLS(t *testing.T) {
	w := newWorld(t)
	c := newCA(t)
	l := model.Listener{ID: "https-1", Port: freePort(t), Protocol: model.ProtocolHTTPS, Clients: &model.ClientSettings{MinTLS: "1.0"}}
	w.set(
		xds.Secret(xds.HostSecretName("old.test"), c.issue("t/old", false, "old.test")),
		xds.Secret(xds.HostSecretName("any.test"), c.issue("t/any", false, "any.test")),
		xds.Secret(xds.HostSecretName("new.test"), c.issue("t/new", false, "new.test")),
	)
	old, newest := tlsHost(l.ID, "old.test", "t/old"), tlsHost(l.ID, "new.test", "t/new")
	old.MinVersion, newest.MinVersion = "1.1", "1.3"
	w.tlsListen(l, xds.Options{MinTLS: "1.2"}, []xds.TLSHost{old, newest, tlsHost(l.ID, "any.test", "t/any")})
	for _, try := range []struct {
		name    string
		version uint16
		ok      bool
	}{
		{"old.test", tls.VersionTLS11, false},
		{"old.test", tls.VersionTLS12, true},
		{"any.test", tls.VersionTLS11, false},
		{"any.test", tls.VersionTLS12, true},
		{"new.test", tls.VersionTLS12, false},
		{"new.test", tls.VersionTLS13, true},
	} {
		config := &tls.Config{InsecureSkipVerify: true, ServerName: try.name, MinVersion: tls.VersionTLS10, MaxVersion: try.version}
		if _, err := shake(l.Port, config); (err == nil) != try.ok {
			t.Errorf("%s with TLS %x: %v, want success %t", try.name, try.version, err, try.ok)
		}
	}
}
