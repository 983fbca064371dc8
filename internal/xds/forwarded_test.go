package xds_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// heard serves what a backend hears of some headers, one a line.
func (w *world) heard(names ...string) http.HandlerFunc {
	return func(rw http.ResponseWriter, q *http.Request) {
		for name, values := range q.Header {
			lower := strings.ToLower(name)
			if slices.Contains(names, lower) || strings.HasPrefix(lower, "x-envoy-") && lower != "x-envoy-external-address" {
				fmt.Fprintf(rw, "%s: %s\n", lower, strings.Join(values, " | "))
			}
		}
	}
}

// TestForwarded holds what backends are told of a request, and whom is believed: nobody, or proxies in front.
func TestForwarded(t *testing.T) {
	w := newWorld(t)
	const id = "0ab7b2fd-9f53-4b1d-a4c5-1234567890ab"
	hops := uint32(1)
	said := []string{
		"X-Request-Id: " + id, "X-Forwarded-For: 192.0.2.66", "X-Forwarded-Host: said.test", "X-Forwarded-Port: 99", "X-Forwarded-Proto: https",
		"X-Envoy-Attempt-Count: 7", "X-Envoy-Original-Dst-Host: 192.0.2.1:80", "X-Envoy-Peer-Metadata: a", "X-Envoy-Peer-Metadata-Id: a", "x-envoy-anything: a",
		"X-Envoy-Max-Retries: 1000", "X-Envoy-Retry-On: 5xx", "X-Envoy-Upstream-Rq-Timeout-Ms: 1", "X-Envoy-Internal: true", "X-Envoy-Original-Path: /x",
	}
	w.group("ns/echo/1", w.serve(w.heard("x-request-id", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto")))
	for what, c := range map[string]struct {
		clients *model.ClientSettings
		send    []string
		want    map[string]string
	}{
		"as it comes": {nil, said, map[string]string{
			"x-forwarded-host": "said.test", "x-forwarded-port": "99", "x-forwarded-proto": "http", "x-forwarded-for": "192.0.2.66,192.0.2.2",
		}},
		"told": {&model.ClientSettings{ForwardedHost: true, ForwardedPort: true}, said, map[string]string{
			"x-forwarded-host": "a.test", "x-forwarded-port": "PORT", "x-forwarded-proto": "http", "x-forwarded-for": "192.0.2.66,192.0.2.2",
		}},
		"behind a proxy": {&model.ClientSettings{TrustedHops: &hops, ForwardedHost: true, ForwardedPort: true}, said, map[string]string{
			"x-request-id": id, "x-forwarded-host": "said.test", "x-forwarded-port": "99", "x-forwarded-proto": "https", "x-forwarded-for": "192.0.2.66,192.0.2.2",
		}},
		"behind a proxy that says nothing": {&model.ClientSettings{TrustedHops: &hops, ForwardedHost: true, ForwardedPort: true}, nil, map[string]string{
			"x-forwarded-host": "a.test", "x-forwarded-port": "PORT", "x-forwarded-proto": "http", "x-forwarded-for": "192.0.2.2",
		}},
	} {
		l := model.Listener{ID: model.ListenerID("http-" + fmt.Sprint(freePort(t))), Port: freePort(t), Protocol: model.ProtocolHTTP, Clients: c.clients}
		w.listen(l, xds.Options{}, host(l.ID, "a.test", forward("echo", "/", "ns/echo/1", 1)))
		w.routed(l.ID)
		got := map[string]string{}
		for line := range strings.Lines(w.get(l.Port, "a.test", "/", c.send...).body) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			got[name] = value
		}
		if _, kept := c.want["x-request-id"]; !kept {
			if got["x-request-id"] == id || len(got["x-request-id"]) != len(id) {
				t.Errorf("%s: the request's ID is %q", what, got["x-request-id"])
			}
			delete(got, "x-request-id")
		}
		for name, want := range c.want {
			if want = strings.ReplaceAll(want, "PORT", fmt.Sprint(l.Port)); got[name] != want {
				t.Errorf("%s: %s is %q, want %q", what, name, got[name], want)
			}
			delete(got, name)
		}
		if len(got) > 0 {
			t.Errorf("%s: the backend hears %v, too", what, got)
		}
	}
}

// TestUpperCaseServerNames: names of servers are the same in upper case, but where certificates are asked for on
// demand, by the name as it was sent (Envoy 1.40).
func TestUpperCaseServerNames(t *testing.T) {
	w, c := newWorld(t), newCA(t)
	l := model.Listener{ID: model.OwnListener(model.ProtocolHTTPS, 443, "ns", "edge"), Port: freePort(t), Protocol: model.ProtocolHTTPS}
	w.set(xds.Secret(xds.SecretName("t/a"), c.issue("t/a", false, "a.test")), xds.Secret(xds.SecretName("t/w"), c.issue("t/w", false, "*.b.test")))
	w.tlsListen(l, xds.Options{}, []xds.TLSHost{tlsHost(l.ID, "a.test", "t/a"), tlsHost(l.ID, "*.b.test", "t/w")},
		section("a.test", host(l.ID, "a.test", says("a", prefix("/")))), section("*.b.test", host(l.ID, "*.b.test", says("b", prefix("/")))))
	for name, want := range map[string]string{"A.test": "a", "a.TEST": "a", "X.B.test": "b"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.pool, ServerName: name}, DisableKeepAlives: true}
		a, err := fetchWith(transport, fmt.Sprintf("https://127.0.0.1:%d/", l.Port), strings.ToLower(name), nil)
		if err != nil || a.body != want {
			t.Errorf("%s: %d %q, %v", name, a.status, a.body, err)
		}
	}
}
