package xds_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

func TestShard(t *testing.T) {
	for _, c := range []struct {
		host string
		want int
	}{
		{"", 2166136261 % 1024},  // FNV-1a of nothing
		{"a", 0xe40c292c % 1024}, // test vectors of draft-eastlake-fnv
		{"foobar", 0xbf9cf968 % 1024},
		{"*", xds.WildShard},
		{"*.example.com", xds.WildShard},
	} {
		if got := xds.Shard("http-80", c.host); got != c.want {
			t.Errorf("Shard(%q) = %d, want %d", c.host, got, c.want)
		}
	}
	want := xds.Shard("http-80", "www.example.com")
	for _, same := range []string{"WWW.Example.COM", "www.example.com:80", "www.example.com.", "www.example.com.:8080"} {
		if got := xds.Shard("http-80", same); got != want {
			t.Errorf("Shard(%q) = %d, want %d as without port, dot and upper case", same, got, want)
		}
	}
}

// TestShardBalance holds the fullest of 1,024 shards to a sane size at 20,000 hosts.
func TestShardBalance(t *testing.T) {
	counts := make([]int, xds.Shards("http-80"))
	for i := range 20_000 {
		counts[xds.Shard("http-80", fmt.Sprintf("app-%d.team%d.example.com", i, i%97))]++
	}
	most := 0
	for _, n := range counts {
		most = max(most, n)
	}
	// Random hosts: mean 19.5, a Poisson tail beyond 50 has a chance below 1e-8.
	if most > 50 {
		t.Errorf("fullest shard has %d of 20,000 hosts", most)
	}
}

// TestNormaliserAgreesWithShard asks a real Envoy for the shard of many hosts.
func TestNormaliserAgreesWithShard(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	for _, s := range xds.AllShards(l.ID) {
		name := xds.RouteConfigurationName(l.ID, s)
		w.set(&routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
			Name: "any", Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
				Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200, Body: &corev3.DataSource{
					Specifier: &corev3.DataSource_InlineString{InlineString: fmt.Sprint(s)},
				}}},
			}},
		}}})
	}
	for _, s := range xds.Scopes(l.ID) {
		w.set(s)
	}
	w.set(xds.Listener(l, nil, xds.Options{}))
	w.accepting(l)

	hosts := []string{
		"example.com", "Example.COM", "example.com:80", "example.com.", "example.com.:8080", "a", "1", "1.2.3.4", "1.2.3.4:80",
		"[::1]", "[::1]:8080", "[2001:DB8::1]:443", "xn--bcher-kva.example", "XN--BCHER-KVA.example:1", "localhost:65535",
		strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 61),
		"under_score.example.com", "host:", "a:b", "-", "0", "e:0x1",
	}
	r := rand.New(rand.NewPCG(1, 2))
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	for range 1500 {
		b := make([]byte, 1+r.IntN(80))
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		h := strings.TrimRight(string(b), ".") + "x"
		if r.IntN(3) == 0 {
			h += fmt.Sprintf(":%d", r.IntN(65536))
		}
		hosts = append(hosts, h)
	}
	shown := 0
	for _, h := range hosts {
		a := w.get(l.Port, h, "/")
		if want := fmt.Sprint(xds.Shard(l.ID, h)); a.status != 200 || a.body != want {
			t.Errorf("host %q: envoy says shard %q (status %d), Shard says %s", h, a.body, a.status, want)
			if shown++; shown > 10 {
				t.FailNow()
			}
		}
	}
}

// TestScopedRouting sends every kind of host through a real Envoy.
func TestScopedRouting(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	all := prefix("/")
	w.listen(l, xds.Options{},
		host(l.ID, "www.example.com", says("exact", prefix("/app"))),
		host(l.ID, "*.example.com", says("wild", all)),
		host(l.ID, "*.deep.example.com", says("deep", all)),
		host(l.ID, "xn--bcher-kva.example", says("idn", all)),
		host(l.ID, "[::1]", says("six", all)),
		host(l.ID, "10.1.2.3", says("four", all)),
		host(l.ID, "*", says("any", model.PathMatch{Kind: model.PathRegex, Value: ".*"})),
	)
	for _, c := range []struct {
		name, request string
		status        int
		body          string
	}{
		{"exact", "GET /app HTTP/1.1\r\nHost: www.example.com\r\n\r\n", 200, "exact"},
		{"exact below the prefix", "GET /app/x?y HTTP/1.1\r\nHost: www.example.com\r\n\r\n", 200, "exact"},
		{"upper case", "GET /app HTTP/1.1\r\nHost: WWW.example.COM\r\n\r\n", 200, "exact"},
		{"port", "GET /app HTTP/1.1\r\nHost: www.example.com:8080\r\n\r\n", 200, "exact"},
		{"trailing dot", "GET /app HTTP/1.1\r\nHost: www.example.com.\r\n\r\n", 200, "exact"},
		{"trailing dot and port", "GET /app HTTP/1.1\r\nHost: www.example.com.:80\r\n\r\n", 200, "exact"},
		// The host decides first: another path of an exact host is never a wildcard host's.
		{"exact host, other path", "GET /other HTTP/1.1\r\nHost: www.example.com\r\n\r\n", 404, "404 nothing is served here\n"},
		{"segment, not string prefix", "GET /apple HTTP/1.1\r\nHost: www.example.com\r\n\r\n", 404, "404 nothing is served here\n"},
		{"normalised path", "GET /x/../app HTTP/1.1\r\nHost: www.example.com\r\n\r\n", 200, "exact"},
		{"wildcard", "GET / HTTP/1.1\r\nHost: other.example.com\r\n\r\n", 200, "wild"},
		{"wildcard, two labels", "GET / HTTP/1.1\r\nHost: a.b.example.com\r\n\r\n", 200, "wild"},
		{"wildcard with port and case", "GET / HTTP/1.1\r\nHost: OTHER.example.com:81\r\n\r\n", 200, "wild"},
		{"most specific wildcard", "GET / HTTP/1.1\r\nHost: x.deep.example.com\r\n\r\n", 200, "deep"},
		{"bare suffix is not below the wildcard", "GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", 200, "any"},
		{"catch-all", "GET / HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n", 200, "any"},
		{"punycode", "GET / HTTP/1.1\r\nHost: xn--bcher-kva.example\r\n\r\n", 200, "idn"},
		{"IPv6 literal", "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n", 200, "six"},
		{"IPv6 literal and port", "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", 200, "six"},
		{"IPv4 literal and port", "GET / HTTP/1.1\r\nHost: 10.1.2.3:8080\r\n\r\n", 200, "four"},
		{"client names a scope", "GET /other HTTP/1.1\r\nHost: www.example.com\r\nx-fairlead-scope: http-1/wild\r\n\r\n", 404, "404 nothing is served here\n"},
		{"client names scopes", "GET /app HTTP/1.1\r\nHost: www.example.com\r\nX-Fairlead-Scope: a\r\nx-fairlead-scope: http-1/wild\r\n\r\n", 200, "exact"},
		{"absolute form", "GET http://www.example.com/app HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n", 200, "exact"},
		{"empty host", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 200, "any"},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400, "400 the request has no host\n"},
		{"HTTP/1.0 with host", "GET /app HTTP/1.0\r\nHost: www.example.com\r\n\r\n", 200, "exact"},
		{"HTTP/1.0 without host", "GET / HTTP/1.0\r\n\r\n", 400, "400 the request has no host\n"},
		{"CONNECT", "CONNECT www.example.com:443 HTTP/1.1\r\nHost: www.example.com:443\r\n\r\n", 404, "404 nothing is served here\n"},
		{"CONNECT to an unknown host", "CONNECT elsewhere.test:443 HTTP/1.1\r\nHost: elsewhere.test:443\r\n\r\n", 404, "404 nothing is served here\n"},
		{"server-wide OPTIONS to an exact host", "OPTIONS * HTTP/1.1\r\nHost: www.example.com\r\n\r\n", 404, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := ask(l.Port, c.request)
			must(t, err)
			if a.status != c.status || a.body != c.body {
				t.Errorf("got %d %q, want %d %q", a.status, a.body, c.status, c.body)
			}
		})
	}
}

// TestMissingShard shows what a host sees while its shard is not there, and that a shard
// without hosts must be sent and not be taken away.
func TestMissingShard(t *testing.T) {
	w := newWorld(t)
	// Another listener has the subscription to scopes, so the next one opens at once.
	w.listen(model.Listener{ID: "http-0", Port: freePort(t), Protocol: model.ProtocolHTTP}, xds.Options{})
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	www := host(l.ID, "www.example.com", says("exact", prefix("/")))
	wild := host(l.ID, "*", says("any", prefix("/")))
	shard := xds.Shard(l.ID, www.Host)
	name := xds.RouteConfigurationName(l.ID, shard)
	for _, rc := range shards(l.ID, []model.VirtualHost{wild}) {
		if rc.Name != name {
			w.set(rc)
		}
	}
	for _, s := range xds.Scopes(l.ID) {
		w.set(s)
	}
	must(t, w.ads.Acked(w.ctx, rdsURL, xds.RouteConfigurationName(l.ID, xds.WildShard)))
	w.set(xds.Listener(l, nil, xds.Options{}))
	w.accepting(l)
	if a := w.get(l.Port, "www.example.com", "/"); a.status != 404 {
		t.Errorf("shard missing: got %d %q, want 404: a host must not fall to a wildcard host while its shard is on the way", a.status, a.body)
	}
	w.route(xds.RouteConfiguration(l.ID, shard, []model.VirtualHost{www}))
	if a := w.get(l.Port, "www.example.com", "/"); a.body != "exact" {
		t.Errorf("shard there: got %d %q, want exact", a.status, a.body)
	}
	w.route(xds.RouteConfiguration(l.ID, shard, nil))
	if a := w.get(l.Port, "www.example.com", "/"); a.body != "any" {
		t.Errorf("shard empty: got %d %q, want any", a.status, a.body)
	}
	w.route(xds.RouteConfiguration(l.ID, shard, []model.VirtualHost{www}))
	w.ads.Remove(rdsURL, name)
	w.route(xds.RouteConfiguration(l.ID, xds.WildShard, nil)) // acknowledged after the removal was seen
	if a := w.get(l.Port, "www.example.com", "/"); a.body != "exact" {
		t.Errorf("shard removed: got %d %q; envoy is expected to keep the last routes, which is why empty shards are sent", a.status, a.body)
	}
}

// TestLaterListener adds a listener to a running proxy in the order that the ADR asks
// for (scopes, their shards, the listener) and removes the one that came first.
func TestLaterListener(t *testing.T) {
	w := newWorld(t)
	first := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.listen(first, xds.Options{}, host(first.ID, "a.test", says("first", prefix("/"))))

	second := model.Listener{ID: "http-2", Port: freePort(t), Protocol: model.ProtocolHTTP}
	a := host(second.ID, "a.test", says("second", prefix("/")))
	rcs := shards(second.ID, []model.VirtualHost{a})
	for _, rc := range rcs {
		w.set(rc)
	}
	for _, s := range xds.Scopes(second.ID) {
		w.set(s)
	}
	for _, rc := range rcs {
		must(t, w.ads.Acked(w.ctx, rdsURL, rc.Name))
	}
	w.set(xds.Listener(second, nil, xds.Options{}))
	w.accepting(second)
	if got := w.get(second.Port, "a.test", "/"); got.body != "second" {
		t.Errorf("second listener's first answer is %d %q, want second", got.status, got.body)
	}
	if got := w.get(first.Port, "a.test", "/"); got.body != "first" {
		t.Errorf("first listener answers %d %q, want first", got.status, got.body)
	}

	w.ads.Remove(ldsURL, string(first.ID))
	must(t, w.envoy.Until(w.ctx, "the first listener to be gone", func() bool {
		return w.envoy.Stat(w.ctx, "listener_manager.total_listeners_active") == 1
	}))
	a.Routes = []model.Route{says("changed", prefix("/"))}
	w.route(xds.RouteConfiguration(second.ID, xds.Shard(second.ID, a.Host), []model.VirtualHost{a}))
	if got := w.get(second.Port, "a.test", "/"); got.body != "changed" {
		t.Errorf("after the first listener went, the second answers %d %q, want changed", got.status, got.body)
	}
}
