package xds_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
	"fairlead.dev/internal/xds/envoytest"
)

func TestValidate(t *testing.T) {
	if _, err := envoytest.Find(); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		name    string
		options xds.BootstrapOptions
		listen  xds.Options
	}{
		{"defaults", xds.BootstrapOptions{}, xds.Options{}},
		{
			"everything",
			xds.BootstrapOptions{MaxConnections: 10, HeapBytes: 1 << 30},
			xds.Options{IPv4Only: true, TrustedHops: 2, AllowUnderscores: true, AccessLog: "/dev/stdout"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.options.NodeID, c.options.ADSSocket, c.options.AdminSocket = "edge-1", "/tmp/ads", "/tmp/admin"
			b := xds.Bootstrap(c.options)
			b.StaticResources.Listeners = []*listenerv3.Listener{xds.Listener(model.Listener{ID: "http-80", Port: 80}, nil, c.listen)}
			for i, balance := range []model.Balance{
				model.BalanceRoundRobin, model.BalanceLeastRequest, model.BalanceRandom, model.BalanceCookie,
			} {
				g := model.BackendGroup{ID: model.GroupID(fmt.Sprintf("ns/app/%d", i)), Set: "ns/app/80", Balance: balance}
				if i%2 == 0 {
					g.HealthCheck = &model.HealthCheck{Path: "/", Interval: 5 * time.Second, Timeout: 2 * time.Second, Unhealthy: 3, Healthy: 2}
				}
				c := xds.Cluster(g)
				// A static cluster takes its endpoints in place.
				c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
				c.EdsClusterConfig = nil
				c.LoadAssignment = xds.LoadAssignment(g, model.BackendSet{ID: g.Set, Backends: []model.Backend{
					{Address: netip.MustParseAddrPort("10.0.0.1:80")},
					{Address: netip.MustParseAddrPort("[fd00::1]:80"), State: model.BackendDraining, Zone: "b"},
				}}, func(b netip.AddrPort) (model.Health, string) { return model.HealthUnknown, b.String() })
				c.LoadAssignment.ClusterName = c.Name
				b.StaticResources.Clusters = append(b.StaticResources.Clusters, c)
			}
			must(t, envoytest.Validate(t.Context(), b, dir))
		})
	}
}

// forward is a route to groups by weight: forward("r", "/", "a", 3, "b", 1).
func forward(name, path string, groups ...any) model.Route {
	f := &model.Forward{}
	for i := 0; i < len(groups); i += 2 {
		f.Backends = append(f.Backends, model.WeightedGroup{Group: model.GroupID(groups[i].(string)), Weight: uint32(groups[i+1].(int))})
	}
	return model.Route{Name: name, Match: model.Match{Path: prefix(path)}, Forward: f}
}

// group serves a round robin group of its own name.
func (w *world) group(id string, backends ...netip.AddrPort) {
	w.t.Helper()
	w.serveGroup(model.BackendGroup{ID: model.GroupID(id)}, backends...)
}

func (w *world) serveGroup(g model.BackendGroup, backends ...netip.AddrPort) {
	w.t.Helper()
	g.Set = model.SetID(g.ID)
	s := model.BackendSet{ID: g.Set}
	for _, b := range backends {
		s.Backends = append(s.Backends, model.Backend{Address: b})
	}
	w.set(xds.Cluster(g), xds.LoadAssignment(g, s, nil))
	must(w.t, w.ads.Acked(w.ctx, cdsURL, string(g.ID)))
	must(w.t, w.ads.Acked(w.ctx, edsURL, xds.EndpointsName(g)))
}

func TestForward(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.group("ns/a/80", w.backend("a"))
	w.group("ns/b/80", w.backend("b"))
	w.group("ns/none/80")
	dead := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t))
	w.group("ns/half/80", dead, w.backend("half"))

	with := func(r model.Route, change func(*model.Route)) model.Route {
		change(&r)
		return r
	}
	w.listen(l, xds.Options{},
		host(l.ID, "weights.test", forward("w", "/", "ns/a/80", 60, "ns/b/80", 40)),
		host(l.ID, "zero.test", forward("z", "/", "ns/a/80", 0, "ns/b/80", 5)),
		host(l.ID, "broken.test", forward("x", "/", "ns/a/80", 1, "", 1)),
		host(l.ID, "allbroken.test", forward("x", "/", "", 1, "ns/a/80", 0)),
		host(l.ID, "empty.test", forward("e", "/", "ns/none/80", 1)),
		host(l.ID, "half.test", forward("h", "/", "ns/half/80", 1)),
		host(l.ID, "match.test",
			with(forward("method", "/", "ns/b/80", 1), func(r *model.Route) { r.Match.Method = "DELETE" }),
			with(forward("header", "/", "ns/b/80", 1), func(r *model.Route) {
				r.Match.Headers = []model.ValueMatch{{Name: "env", Value: "canary"}, {Name: "user", Value: "j.*", Regex: true}}
			}),
			with(forward("query", "/", "ns/b/80", 1), func(r *model.Route) {
				r.Match.Query = []model.ValueMatch{{Name: "v", Value: "2"}}
			}),
			with(forward("regex", "/", "ns/b/80", 1), func(r *model.Route) {
				r.Match.Path = model.PathMatch{Kind: model.PathRegex, Value: "/v[0-9]+/.*"}
			}),
			with(forward("exact", "/", "ns/b/80", 1), func(r *model.Route) {
				r.Match.Path = model.PathMatch{Kind: model.PathExact, Value: "/exact"}
			}),
			with(forward("string prefix", "/", "ns/b/80", 1), func(r *model.Route) {
				r.Match.Path = model.PathMatch{Kind: model.PathPrefix, Value: "/str"}
			}),
			forward("rest", "/", "ns/a/80", 1),
		),
	)

	t.Run("headers", func(t *testing.T) {
		a := w.get(l.Port, "half.test:81", "/p?q=1", "x-fairlead-scope: http-1/wild", "x-envoy-retry-on: 5xx",
			"x-envoy-original-path: /no", "x_under: 1", "X-Forwarded-Proto: https")
		for _, bad := range []string{"x-fairlead", "Retry", "Original", "under", "https"} {
			if strings.Contains(strings.ToLower(a.body), strings.ToLower(bad)) {
				t.Errorf("the backend saw %q of the client:\n%s", bad, a.body)
			}
		}
		if !strings.HasPrefix(a.body, "half half.test:81 /p?q=1\n") {
			t.Errorf("the backend must see host and path unchanged:\n%s", a.body)
		}
		if s := a.headers.Get("Server") + a.headers.Get("X-Envoy-Upstream-Service-Time"); s != "" {
			t.Errorf("the response tells about the proxy: %v", a.headers)
		}
	})

	t.Run("weights", func(t *testing.T) {
		const n = 2000
		got := map[string]int{}
		for range n {
			got[w.get(l.Port, "weights.test", "/").headers.Get("Backend")]++
		}
		// Binomial with p 0.6; five standard deviations either side.
		if d := math.Abs(float64(got["a"]) - 0.6*n); d > 5*math.Sqrt(n*0.6*0.4) || got["a"]+got["b"] != n {
			t.Errorf("of %d requests at 60/40: %v", n, got)
		}
		for range 20 {
			if a := w.get(l.Port, "zero.test", "/"); a.headers.Get("Backend") != "b" {
				t.Fatalf("weight 0 got a request: %d %q", a.status, a.body)
			}
		}
	})

	t.Run("broken references", func(t *testing.T) {
		const n = 1000
		got := map[int]int{}
		for range n {
			got[w.get(l.Port, "broken.test", "/").status]++
		}
		if d := math.Abs(float64(got[500]) - n/2); d > 5*math.Sqrt(n/4) || got[200]+got[500] != n {
			t.Errorf("of %d requests with half of the weight broken: %v", n, got)
		}
		if a := w.get(l.Port, "allbroken.test", "/"); a.status != 500 {
			t.Errorf("all broken: %d, want 500", a.status)
		}
	})

	t.Run("no backend", func(t *testing.T) {
		if a := w.get(l.Port, "empty.test", "/"); a.status != 503 || a.body != "503 no backend is available\n" {
			t.Errorf("got %d %q", a.status, a.body)
		}
	})

	t.Run("dead backend is retried elsewhere", func(t *testing.T) {
		for range 20 {
			if a := w.get(l.Port, "half.test", "/"); a.status != 200 {
				t.Fatalf("got %d %q", a.status, a.body)
			}
		}
	})

	t.Run("matches", func(t *testing.T) {
		for _, c := range []struct{ request, want string }{
			{"GET / HTTP/1.1\r\n", "a"},
			{"DELETE / HTTP/1.1\r\n", "b"},
			{"GET / HTTP/1.1\r\nEnv: canary\r\nUser: jo\r\n", "b"},
			{"GET / HTTP/1.1\r\nEnv: canary\r\n", "a"},
			{"GET / HTTP/1.1\r\nEnv: canary\r\nUser: ajo\r\n", "a"},
			{"GET /?v=2 HTTP/1.1\r\n", "b"},
			{"GET /?v=22 HTTP/1.1\r\n", "a"},
			{"GET /v12/x HTTP/1.1\r\n", "b"},
			{"GET /x/v12/x HTTP/1.1\r\n", "a"},
			{"GET /exact?z HTTP/1.1\r\n", "b"},
			{"GET /exact/ HTTP/1.1\r\n", "a"},
			{"GET /string HTTP/1.1\r\n", "b"},
		} {
			if a := w.raw(l.Port, c.request+"Host: match.test\r\n\r\n"); a.headers.Get("Backend") != c.want {
				t.Errorf("%q went to %q (%d), want %q", c.request, a.headers.Get("Backend"), a.status, c.want)
			}
		}
	})

	t.Run("HTTP/2 in clear text", func(t *testing.T) {
		protocols := &http.Protocols{}
		protocols.SetUnencryptedHTTP2(true)
		transport := &http.Transport{Protocols: protocols}
		defer transport.CloseIdleConnections()
		q, err := http.NewRequestWithContext(w.ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", l.Port), nil)
		must(t, err)
		q.Host = "Zero.TEST:8080"
		r, err := transport.RoundTrip(q)
		must(t, err)
		r.Body.Close()
		if r.ProtoMajor != 2 || r.StatusCode != 200 || r.Header.Get("Backend") != "b" {
			t.Errorf("got %s %d from %q", r.Proto, r.StatusCode, r.Header.Get("Backend"))
		}
	})

	t.Run("IPv6 clients", func(t *testing.T) {
		c, err := net.Dial("tcp", fmt.Sprintf("[::1]:%d", l.Port))
		if err != nil {
			t.Skipf("no IPv6 loopback: %v", err)
		}
		defer c.Close()
		_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: zero.test\r\nConnection: close\r\n\r\n")
		must(t, err)
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		must(t, err)
		r.Body.Close()
		if r.StatusCode != 200 {
			t.Errorf("got %d", r.StatusCode)
		}
	})
}

func TestPrefixRewrite(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.group("ns/a/80", w.backend("a"))
	cases := []struct {
		kind                    model.PathMatchKind
		match, to, ask, arrives string
	}{
		// The table of Gateway API's HTTPPathModifier.
		{model.PathSegments, "/foo", "/xyz", "/foo/bar", "/xyz/bar"},
		{model.PathSegments, "/foo", "/xyz/", "/foo/bar", "/xyz/bar"},
		{model.PathSegments, "/foo/", "/xyz", "/foo/bar", "/xyz/bar"},
		{model.PathSegments, "/foo", "/xyz", "/foo", "/xyz"},
		{model.PathSegments, "/foo", "/xyz", "/foo/", "/xyz/"},
		{model.PathSegments, "/foo", "/", "/foo/bar", "/bar"},
		{model.PathSegments, "/foo", "/", "/foo/", "/"},
		{model.PathSegments, "/foo", "/", "/foo", "/"},
		{model.PathSegments, "/", "/xyz", "/bar", "/xyz/bar"},
		{model.PathSegments, "/f.o", "/", "/f.o/bar?q=/f.o", "/bar?q=/f.o"},
		// IngressRoute's string prefixes.
		{model.PathPrefix, "/foo", "/", "/foo/bar", "/bar"},
		{model.PathPrefix, "/foo", "/", "/foobar", "/bar"},
		{model.PathPrefix, "/foo", "/x", "/foobar", "/xbar"},
		{model.PathPrefix, "/foo/", "/", "/foo/bar", "/bar"},
		{model.PathPrefix, "/", "/x/", "/bar", "/x/bar"},
		{model.PathExact, "/foo", "/x/y", "/foo?q=1", "/x/y?q=1"},
	}
	var hosts []model.VirtualHost
	for i, c := range cases {
		r := forward("r", "/", "ns/a/80", 1)
		r.Match.Path = model.PathMatch{Kind: c.kind, Value: c.match}
		r.Forward.Path = &model.PathRewrite{Kind: model.RewritePrefix, Value: c.to}
		hosts = append(hosts, host(l.ID, fmt.Sprintf("h%d.test", i), r))
	}
	w.listen(l, xds.Options{}, hosts...)
	for i, c := range cases {
		a := w.get(l.Port, fmt.Sprintf("h%d.test", i), c.ask)
		if f := strings.Fields(a.body); a.status != 200 || len(f) < 3 || f[2] != c.arrives {
			t.Errorf("%s %s to %s: %s arrives as %q (%d), want %s", c.kind, c.match, c.to, c.ask, f, a.status, c.arrives)
		}
	}
}

func TestPolicies(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	fail := make(chan struct{}, 100)
	flaky := w.serve(func(rw http.ResponseWriter, _ *http.Request) {
		select {
		case <-fail:
			rw.WriteHeader(http.StatusBadGateway)
		default:
			fmt.Fprint(rw, "fine")
		}
	})
	hang := w.serve(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
	upgrade := w.serve(func(rw http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Upgrade") != "websocket" {
			rw.WriteHeader(http.StatusUpgradeRequired)
			return
		}
		c, b, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(b, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		b.Flush()
		line, err := b.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprint(b, "echo "+line)
		b.Flush()
	})
	w.group("ns/flaky/80", flaky)
	w.group("ns/hang/80", hang)
	w.group("ns/ws/80", upgrade)
	w.serveGroup(model.BackendGroup{ID: "ns/cookie/80", Balance: model.BalanceCookie}, w.backend("c1"), w.backend("c2"), w.backend("c3"))

	retry := forward("retry", "/retry", "ns/flaky/80", 1)
	retry.Forward.Retry = &model.Retry{Attempts: 3, ServerErrors: true}
	slow := forward("slow", "/slow", "ns/hang/80", 1)
	slow.Forward.Timeout = 50 * time.Millisecond
	try := forward("try", "/try", "ns/hang/80", 1)
	try.Forward.Timeout = model.Never
	try.Forward.Retry, try.Forward.TryTimeout = &model.Retry{Attempts: 1, ServerErrors: true}, 50*time.Millisecond
	ws := forward("ws", "/ws", "ns/ws/80", 1)
	ws.Forward.WebSocket = true
	nows, all := forward("nows", "/nows", "ns/ws/80", 1), forward("all", "/", "ns/ws/80", 1)
	nows.Forward.NoUpgrade, all.Forward.NoUpgrade = true, true
	filtered := forward("filtered", "/", "ns/ws/80", 1)
	filtered.Policy = &model.RoutePolicy{Addresses: &model.AddressFilter{Deny: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
	body := strings.Repeat("x", 5000)
	w.listen(l, xds.Options{}, host(l.ID, "*.wild.test", ws, nows), host(l.ID, "nows.test", all), host(l.ID, "filter.test", filtered), host(l.ID, "p.test", retry, slow, try, ws,
		nows, forward("undeclared", "/undeclared", "ns/ws/80", 1),
		forward("once", "/once", "ns/flaky/80", 1),
		forward("cookie", "/cookie", "ns/cookie/80", 1),
		model.Route{Name: "big", Match: model.Match{Path: prefix("/big")}, Respond: &model.Respond{Status: 503, Body: body}},
	))

	t.Run("retry", func(t *testing.T) {
		fail <- struct{}{}
		fail <- struct{}{}
		if a := w.get(l.Port, "p.test", "/retry"); a.status != 200 {
			t.Errorf("with three attempts and two failures: %d %q", a.status, a.body)
		}
		fail <- struct{}{}
		if a := w.get(l.Port, "p.test", "/once"); a.status != 502 {
			t.Errorf("without a retry policy a 502 is the backend's answer: got %d", a.status)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		for _, path := range []string{"/slow", "/try"} {
			if a := w.get(l.Port, "p.test", path); a.status != 504 {
				t.Errorf("%s: %d %q, want 504", path, a.status, a.body)
			}
		}
	})
	t.Run("websocket", func(t *testing.T) {
		shake := "GET %s HTTP/1.1\r\nHost: p.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		for _, host := range []string{"p.test", "a.wild.test"} {
			c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", l.Port))
			must(t, err)
			defer c.Close()
			must(t, c.SetDeadline(time.Now().Add(20*time.Second)))
			fmt.Fprint(c, strings.Replace(fmt.Sprintf(shake, "/ws"), "p.test", host, 1))
			b := bufio.NewReader(c)
			r, err := http.ReadResponse(b, nil)
			must(t, err)
			r.Body.Close()
			if r.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%s: got %d", host, r.StatusCode)
			}
			fmt.Fprint(c, "hello\n")
			if line, err := b.ReadString('\n'); err != nil || line != "echo hello\n" {
				t.Errorf("%s: got %q, %v", host, line, err)
			}
		}
		const none = "400 the route does not allow WebSockets\n"
		for _, c := range []struct{ shake, want string }{
			{fmt.Sprintf(shake, "/undeclared"), "101 "},
			{fmt.Sprintf(shake, "/nows"), none},
			{strings.Replace(fmt.Sprintf(shake, "/nows"), "Host", "x-fairlead-scope: http-1/wild\r\nHost", 1), none},
			{strings.Replace(fmt.Sprintf(shake, "/"), "p.test", "nows.test", 1), none},
			{strings.Replace(fmt.Sprintf(shake, "/nows"), "p.test", "a.wild.test", 1), none},
			{strings.Replace(fmt.Sprintf(shake, "/none"), "p.test", "a.wild.test", 1), "404 404 nothing is served here\n"},
			{strings.Replace(fmt.Sprintf(shake, "/ws"), "websocket", "other", 1), "400 connections are upgraded to WebSockets only\n"},
			{strings.Replace(fmt.Sprintf(shake, "/"), "p.test", "filter.test", 1), "403 403 clients from this address are not allowed\n"}, // a policy's answer stays what it is
		} {
			if a, err := ask(l.Port, c.shake); err != nil || fmt.Sprint(a.status, " ", strings.TrimPrefix(a.body, "400 ")) != c.want {
				t.Errorf("%q: %d %q %v, want %q", c.shake, a.status, a.body, err, c.want)
			}
		}
		for _, harmless := range []string{"TLS/1.2", "h2c"} {
			if a := w.raw(l.Port, strings.Replace(fmt.Sprintf(shake, "/cookie"), "websocket", harmless, 1)); a.status != 200 {
				t.Errorf("an offer of %s is answered %d, want 200 as if it were not there", harmless, a.status)
			}
		}
	})
	t.Run("cookie", func(t *testing.T) {
		a := w.get(l.Port, "p.test", "/cookie")
		cookie, _, _ := strings.Cut(a.headers.Get("Set-Cookie"), ";")
		if !strings.HasPrefix(cookie, "fairlead-affinity=") {
			t.Fatalf("no cookie: %v", a.headers)
		}
		for range 20 {
			b := w.get(l.Port, "p.test", "/cookie", "Cookie: "+cookie)
			if b.headers.Get("Backend") != a.headers.Get("Backend") {
				t.Fatalf("moved from %q to %q", a.headers.Get("Backend"), b.headers.Get("Backend"))
			}
		}
	})
	t.Run("large fixed response", func(t *testing.T) {
		if a := w.get(l.Port, "p.test", "/big"); a.status != 503 || a.body != body {
			t.Errorf("got %d and %d bytes, want 503 and %d bytes", a.status, len(a.body), len(body))
		}
	})
}

// TestHealth holds that Envoy uses a backend as the load assignment says, and at once.
func TestHealth(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	check := model.BackendGroup{ID: "ns/check/80", Set: "ns/check/80", HealthCheck: &model.HealthCheck{Path: "/status"}}
	c1, c2 := w.backend("c1"), w.backend("c2")
	w.serveGroup(check, c1, c2)
	drain := model.BackendGroup{ID: "ns/drain/80", Set: "ns/drain/80"}
	d1, d2 := w.backend("d1"), w.backend("d2")
	w.serveGroup(drain, d1, d2)
	w.listen(l, xds.Options{},
		host(l.ID, "check.test", forward("c", "/", "ns/check/80", 1)),
		host(l.ID, "drain.test", forward("d", "/", "ns/drain/80", 1)))

	both := model.BackendSet{ID: check.Set, Backends: []model.Backend{{Address: c1}, {Address: c2}}}
	for _, known := range []struct {
		c1, c2 model.Health
		want   string // who answers
	}{
		{model.Healthy, model.Unhealthy, "c1"},
		{model.Unhealthy, model.Healthy, "c2"},
		{model.HealthUnknown, model.HealthUnknown, "c1 c2"},
		{model.Unhealthy, model.HealthUnknown, "c2"},
		{model.Unhealthy, model.Unhealthy, "nobody"},
		{model.Healthy, model.HealthUnchecked, "c1 c2"},
	} {
		w.set(xds.LoadAssignment(check, both, func(b netip.AddrPort) (model.Health, string) {
			if b == c1 {
				return known.c1, "1"
			}
			return known.c2, "2"
		}))
		must(t, w.ads.Acked(w.ctx, edsURL, xds.EndpointsName(check)))
		// The threads hear of it one after the other.
		must(t, w.envoy.Until(w.ctx, fmt.Sprintf("c1 %s, c2 %s: %s to answer", known.c1, known.c2, known.want), func() bool {
			answered := map[string]bool{}
			for range 20 {
				if a := w.get(l.Port, "check.test", "/"); a.status == 200 {
					answered[a.headers.Get("Backend")] = true
				} else {
					answered["nobody"] = true
				}
			}
			return strings.Join(slices.Sorted(maps.Keys(answered)), " ") == known.want
		}))
	}

	set := model.BackendSet{ID: drain.Set, Backends: []model.Backend{
		{Address: d2, State: model.BackendReady}, {Address: d1, State: model.BackendDraining},
	}}
	for _, state := range []model.BackendState{model.BackendDraining, model.BackendUnready} {
		set.Backends[1].State = state
		w.set(xds.LoadAssignment(drain, set, nil))
		must(t, w.ads.Acked(w.ctx, edsURL, xds.EndpointsName(drain)))
		for range 20 {
			if a := w.get(l.Port, "drain.test", "/"); a.headers.Get("Backend") != "d2" {
				t.Fatalf("state %d got a new request: %d %q", state, a.status, a.body)
			}
		}
	}
	set.Backends[0].State = model.BackendDraining
	w.set(xds.LoadAssignment(drain, set, nil))
	must(t, w.ads.Acked(w.ctx, edsURL, xds.EndpointsName(drain)))
	if a := w.get(l.Port, "drain.test", "/"); a.status != 200 {
		t.Errorf("only draining backends: got %d, want them to serve on", a.status)
	}
	set.Backends[0].State, set.Backends[1].State = model.BackendUnready, model.BackendUnready
	w.set(xds.LoadAssignment(drain, set, nil))
	must(t, w.ads.Acked(w.ctx, edsURL, xds.EndpointsName(drain)))
	if a := w.get(l.Port, "drain.test", "/"); a.status != 503 {
		t.Errorf("no backend left: got %d, want 503 and no panic routing", a.status)
	}
}

// TestClusterChange holds that a new version of a cluster, and a second group over the
// same set, are warm once their load assignment was sent, and that requests go on.
func TestClusterChange(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	a := w.backend("a")
	w.serveGroup(model.BackendGroup{ID: "ns/a/80"}, a)
	w.listen(l, xds.Options{}, host(l.ID, "a.test", forward("a", "/", "ns/a/80", 1)), host(l.ID, "b.test", forward("b", "/", "ns/a/80?random", 1)))
	for _, next := range []model.BackendGroup{
		{ID: "ns/a/80", Balance: model.BalanceLeastRequest},
		{ID: "ns/a/80?random", Balance: model.BalanceRandom},
	} {
		w.serveGroup(next, a)
		must(t, w.envoy.Until(w.ctx, "cluster to be warm", func() bool {
			return w.envoy.Stat(w.ctx, "cluster_manager.warming_clusters") == 0
		}))
		if got := w.get(l.Port, "a.test", "/"); got.status != 200 {
			t.Errorf("%d %q", got.status, got.body)
		}
	}
	if got := w.get(l.Port, "b.test", "/"); got.status != 200 {
		t.Errorf("%d %q", got.status, got.body)
	}
	if n := w.envoy.Stat(w.ctx, "cluster.ns@.init_fetch_timeout"); n != 0 {
		t.Errorf("%d clusters waited for the initial fetch timeout", n)
	}
}

func TestListenerOptions(t *testing.T) {
	w := newWorld(t)
	w.group("ns/a/80", w.backend("a"))
	log := filepath.Join(t.TempDir(), "access.log")
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.listen(l, xds.Options{IPv4Only: true, TrustedHops: 1, AllowUnderscores: true, AccessLog: log},
		host(l.ID, "a.test", forward("HTTPRoute/ns/a", "/", "ns/a/80", 1)))
	a := w.get(l.Port, "a.test", "/", "X-Forwarded-For: 203.0.113.7", "x_under: 1")
	if !strings.Contains(a.body, "X-Envoy-External-Address: 203.0.113.7") || !strings.Contains(a.body, "X_under: 1") {
		t.Errorf("trusted hop or underscore is missing:\n%s", a.body)
	}
	must(t, w.envoy.Until(w.ctx, "a line in the access log", func() bool {
		if _, err := w.envoy.Admin(w.ctx, http.MethodPost, "/reopen_logs"); err != nil {
			return false
		}
		b, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(b), `"route":"HTTPRoute/ns/a"`) && strings.Contains(string(b), `"client":"203.0.113.7:`)
	}))
}
