package xds_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	statusv3 "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// judge is a policy's service over gRPC: it refuses who has "bad" in the path, and
// remembers what it was asked.
type judge struct {
	authv3.UnimplementedAuthorizationServer
	ratelimitv3.UnimplementedRateLimitServiceServer

	mu    sync.Mutex
	asked []string
}

func (j *judge) note(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked = append(j.asked, what)
}

func (j *judge) last() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.asked) == 0 {
		return ""
	}
	return j.asked[len(j.asked)-1]
}

func (j *judge) Check(_ context.Context, q *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	r := q.GetAttributes().GetRequest().GetHttp()
	j.note(fmt.Sprintf("%s body=%q cookie=%s%s", r.GetPath(), r.GetBody(), r.GetHeaders()["cookie"], r.GetHeaders()["x-fairlead-scope"]+r.GetHeaders()["x-envoy-retry-on"]))
	switch {
	case strings.Contains(r.GetPath(), "broken"):
		return nil, errors.New("broken")
	case strings.Contains(r.GetPath(), "bad"):
		return &authv3.CheckResponse{
			Status: &statusv3.Status{Code: int32(codes.PermissionDenied)},
			HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
				Status: &typev3.HttpStatus{Code: typev3.StatusCode_Unauthorized}, Body: "who are you?",
			}},
		}, nil
	}
	ok := &authv3.OkHttpResponse{Headers: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: "x-user", Value: "jo"}}}}
	switch {
	case strings.Contains(r.GetPath(), "unmarked"):
		ok.HeadersToRemove = []string{"CDN-Loop"}
	case strings.Contains(r.GetPath(), "marked"):
		ok.Headers = append(ok.Headers, &corev3.HeaderValueOption{
			Header: &corev3.HeaderValue{Key: "cdn-loop", Value: "other"}, AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return &authv3.CheckResponse{Status: &statusv3.Status{}, HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: ok}}, nil
}

func (j *judge) ShouldRateLimit(_ context.Context, q *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	var entries []string
	for _, d := range q.GetDescriptors() {
		for _, e := range d.GetEntries() {
			entries = append(entries, e.GetKey()+"="+e.GetValue())
		}
	}
	what := q.GetDomain() + " " + strings.Join(entries, ",")
	j.note(what)
	if strings.Contains(what, "bad") {
		return &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OVER_LIMIT}, nil
	}
	if strings.Contains(what, "broken") {
		return nil, errors.New("broken")
	}
	return &ratelimitv3.RateLimitResponse{OverallCode: ratelimitv3.RateLimitResponse_OK}, nil
}

// grpc serves a judge.
func (w *world) grpc(j *judge) netip.AddrPort {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	s := grpc.NewServer()
	authv3.RegisterAuthorizationServer(s, j)
	ratelimitv3.RegisterRateLimitServiceServer(s, j)
	go func() { _ = s.Serve(l) }()
	w.t.Cleanup(s.Stop)
	return netip.MustParseAddrPort(l.Addr().String())
}

func under(r model.Route, p *model.RoutePolicy) model.Route {
	r.Policy = p
	return r
}

func TestRoutePolicies(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.group("ns/a/80", w.backend("a"))
	var one, two judge
	w.serveGroup(model.BackendGroup{ID: "ns/one/1", Protocol: model.BackendHTTP2}, w.grpc(&one))
	w.serveGroup(model.BackendGroup{ID: "ns/two/1", Protocol: model.BackendHTTP2}, w.grpc(&two))
	var byHTTP judge
	w.group("ns/http/1", w.serve(func(rw http.ResponseWriter, q *http.Request) {
		byHTTP.note(fmt.Sprintf("%s host=%s token=%s cookie=%s", q.URL.RequestURI(), q.Host, q.Header.Get("X-Token"), q.Header.Get("Cookie")))
		switch {
		case strings.Contains(q.URL.Path, "bad"):
			rw.Header().Set("Www-Authenticate", "Basic")
			rw.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(rw, "no")
		case strings.Contains(q.URL.Path, "broken"):
			rw.WriteHeader(http.StatusInternalServerError)
		}
		rw.Header().Set("X-User", "http-jo")
		rw.Header().Set("X-Secret", "s")
		rw.Header().Set("CDN-Loop", "other")
	}))
	w.serveGroup(model.BackendGroup{ID: "ns/away/1", Protocol: model.BackendHTTP2}, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t)))
	w.serveGroup(model.BackendGroup{ID: "ns/none/1", Protocol: model.BackendHTTP2})

	to := func(path string, p *model.RoutePolicy) model.Route {
		return under(forward(path, path, "ns/a/80", 1), p)
	}
	auth := func(a model.Authorization) *model.RoutePolicy {
		a.Timeout = 10 * time.Second
		return &model.RoutePolicy{Authorization: &a}
	}
	limit := func(g model.GlobalRateLimit) *model.RoutePolicy {
		g.Timeout = 10 * time.Second
		return &model.RoutePolicy{GlobalRateLimit: &g}
	}
	prefixes := func(list ...string) (out []netip.Prefix) {
		for _, s := range list {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	byHeader := []model.RateLimitSource{{Key: "kind", Value: "100%"}, {Key: "who", Header: "x-who"}, {Key: "from", ClientAddress: true}}
	w.group("ns/ws/80", w.serve(func(rw http.ResponseWriter, q *http.Request) {
		c, b, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(b, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		b.Flush()
		if line, err := b.ReadString('\n'); err == nil {
			fmt.Fprint(b, "echo "+line)
			b.Flush()
		}
	}))
	sockets := under(forward("ws", "/ws", "ns/ws/80", 1), &model.RoutePolicy{MaxRequestBytes: 3})
	sockets.Forward.WebSocket = true
	shared := host(l.ID, "shared.test", sockets, to("/small", &model.RoutePolicy{MaxRequestBytes: 3}), forward("plain", "/", "ns/a/80", 1))
	shared.Policy = auth(model.Authorization{Service: "ns/one/1"})
	w.listen(l, xds.Options{TrustedHops: 1}, shared,
		host(l.ID, "auth.test",
			to("/one", auth(model.Authorization{Service: "ns/one/1"})),
			to("/two", auth(model.Authorization{Service: "ns/two/1", MaxBodyBytes: 5})),
			to("/http", auth(model.Authorization{Service: "ns/http/1", HTTP: true, PathPrefix: "/check", RequestHeaders: []string{"x-token"}, ResponseHeaders: []string{"x-user"}})),
			to("/httpmarked", auth(model.Authorization{Service: "ns/http/1", HTTP: true, ResponseHeaders: []string{"cdn-loop", "x-user"}})),
			to("/away", auth(model.Authorization{Service: "ns/away/1"})),
			to("/open", auth(model.Authorization{Service: "ns/away/1", FailOpen: true})),
			to("/none", auth(model.Authorization{Service: "ns/none/1"})),
			to("/unknown", auth(model.Authorization{Service: "ns/unknown/1"})),
			to("/noone", auth(model.Authorization{})),
			to("/noopen", auth(model.Authorization{FailOpen: true})),
			to("/openhttp", auth(model.Authorization{Service: "ns/http/1", HTTP: true, FailOpen: true})),
			under(says("said", prefix("/said")), auth(model.Authorization{Service: "ns/one/1"})),
			forward("plain", "/", "ns/a/80", 1)),
		host(l.ID, "limit.test",
			to("/bucket", &model.RoutePolicy{RateLimit: &model.RateLimit{Requests: 1, Per: time.Hour, Burst: 3}}),
			to("/global", limit(model.GlobalRateLimit{Service: "ns/two/1", Domain: "edge", Descriptors: byHeader})),
			to("/away", limit(model.GlobalRateLimit{Service: "ns/away/1", Domain: "edge", Descriptors: byHeader})),
			to("/open", limit(model.GlobalRateLimit{Service: "ns/away/1", Domain: "edge", Descriptors: byHeader, FailOpen: true})),
			to("/often", &model.RoutePolicy{RateLimit: &model.RateLimit{Requests: 2, Per: 3 * time.Millisecond, Burst: 5}}),
			forward("plain", "/", "ns/a/80", 1)),
		host(l.ID, "address.test",
			to("/deny", &model.RoutePolicy{Addresses: &model.AddressFilter{Deny: prefixes("203.0.113.0/24", "2001:db8::/32")}}),
			to("/allow", &model.RoutePolicy{Addresses: &model.AddressFilter{Allow: prefixes("203.0.113.0/24"), Deny: prefixes("203.0.113.7/32")}}),
			to("/all", &model.RoutePolicy{
				Addresses: &model.AddressFilter{Allow: prefixes("203.0.113.0/24")}, MaxRequestBytes: 4,
				RateLimit: &model.RateLimit{Requests: 1, Per: time.Hour, Burst: 1000}, Authorization: &model.Authorization{Service: "ns/one/1"},
				GlobalRateLimit: &model.GlobalRateLimit{Service: "ns/two/1", Domain: "edge", Descriptors: byHeader},
			})),
	)
	status := func(want int, host, path string, headers ...string) answer {
		t.Helper()
		a := w.get(l.Port, host, path, headers...)
		if a.status != want {
			t.Errorf("%s%s %q: %d %q, want %d", host, path, headers, a.status, a.body, want)
		}
		return a
	}

	t.Run("authorization", func(t *testing.T) {
		if a := status(200, "auth.test", "/one", "Cookie: c=1"); !strings.Contains(a.body, "X-User: jo") || one.last() != `/one body="" cookie=c=1` {
			t.Errorf("asked %q, backend saw %s", one.last(), a.body)
		}
		// No service takes the marks away by which loops end.
		for _, path := range []string{"/one", "/one/marked", "/one/unmarked", "/httpmarked"} {
			a := status(200, "auth.test", path, "CDN-Loop: fairlead")
			if !strings.Contains(a.body, "Cdn-Loop: fairlead,fairlead\r\n") || !strings.Contains(a.body, "jo\r\n") {
				t.Errorf("%s: backend saw %s", path, a.body)
			}
		}
		if a := status(401, "auth.test", "/one/bad"); a.body != "who are you?" {
			t.Errorf("%q", a.body)
		}
		status(503, "auth.test", "/one/broken")
		a := w.raw(l.Port, "POST /two HTTP/1.1\r\nHost: auth.test\r\nContent-Length: 10\r\n\r\n0123456789")
		if a.status != 200 || two.last() != `/two body="01234" cookie=` {
			t.Errorf("%d, asked %q", a.status, two.last())
		}
		a = status(200, "auth.test", "/http/x?q=1", "X-Token: t", "Cookie: c=1")
		if byHTTP.last() != "/check/http/x?q=1 host=auth.test token=t cookie=" || !strings.Contains(a.body, "X-User: http-jo") || strings.Contains(a.body, "X-Secret") {
			t.Errorf("asked %q, backend saw %s", byHTTP.last(), a.body)
		}
		if a := status(401, "auth.test", "/http/bad"); a.body != "no" || a.headers.Get("Www-Authenticate") != "Basic" {
			t.Errorf("%v %q", a.headers, a.body)
		}
		status(503, "auth.test", "/http/broken")
		status(200, "auth.test", "/openhttp/broken")
		status(503, "auth.test", "/away")
		status(200, "auth.test", "/open")
		status(503, "auth.test", "/none")
		status(503, "auth.test", "/unknown")
		status(500, "auth.test", "/noone")
		status(200, "auth.test", "/noopen")
		status(401, "auth.test", "/said/bad")
		status(200, "auth.test", "/said")
		status(200, "auth.test", "/bad")
		status(401, "shared.test", "/bad")
		status(401, "shared.test", "/small/bad")
		status(200, "shared.test", "/small")
	})
	t.Run("local limit", func(t *testing.T) {
		for range 3 {
			status(200, "limit.test", "/bucket")
		}
		a := status(429, "limit.test", "/bucket")
		for _, h := range []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Retry-After"} {
			if a.headers.Get(h) == "" {
				t.Errorf("no %s in %v", h, a.headers)
			}
		}
		status(200, "limit.test", "/")
		status(200, "limit.test", "/often")
	})
	t.Run("global limit", func(t *testing.T) {
		status(200, "limit.test", "/global", "X-Who: jo", "X-Forwarded-For: 203.0.113.9")
		if got, want := two.last(), "edge kind=100%,who=jo,from=203.0.113.9"; got != want {
			t.Errorf("asked %q, want %q", got, want)
		}
		status(429, "limit.test", "/global", "X-Who: bad")
		status(503, "limit.test", "/global", "X-Who: broken")
		status(503, "limit.test", "/away", "X-Who: jo")
		status(200, "limit.test", "/open", "X-Who: jo")
	})
	t.Run("addresses", func(t *testing.T) {
		status(200, "address.test", "/deny", "X-Forwarded-For: 198.51.100.1")
		status(403, "address.test", "/deny", "X-Forwarded-For: 203.0.113.1")
		status(403, "address.test", "/deny", "X-Forwarded-For: 2001:db8::1")
		status(403, "address.test", "/allow", "X-Forwarded-For: 198.51.100.1")
		status(200, "address.test", "/allow", "X-Forwarded-For: 203.0.113.1")
		status(403, "address.test", "/allow", "X-Forwarded-For: 203.0.113.7")
		// The last address is the one that counts, not what the client wrote before it.
		status(403, "address.test", "/allow", "X-Forwarded-For: 203.0.113.1, 198.51.100.1")
		status(200, "address.test", "/all", "X-Who: jo", "X-Forwarded-For: 203.0.113.1")
		status(403, "address.test", "/all/bad", "X-Forwarded-For: 198.51.100.1")
		status(401, "address.test", "/all/bad", "X-Who: jo", "X-Forwarded-For: 203.0.113.1")
		status(429, "address.test", "/all", "X-Who: bad", "X-Forwarded-For: 203.0.113.1")
	})
	t.Run("body", func(t *testing.T) {
		post := func(path, headers, body string) int {
			c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", l.Port))
			must(t, err)
			defer c.Close()
			must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
			fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: shared.test\r\n%s\r\n\r\n%s", path, headers, body)
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			must(t, err)
			defer r.Body.Close()
			_, _ = io.Copy(io.Discard, r.Body)
			return r.StatusCode
		}
		for _, c := range []struct {
			headers, body string
			want          int
		}{
			{"Content-Length: 3", "abc", 200},
			{"Content-Length: 4", "abcd", 413},
			{"Content-Length: 1000000", "", 413},
			{"Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n", 200},
			{"Transfer-Encoding: chunked", "2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n", 413},
		} {
			if got := post("/small", c.headers, c.body); got != c.want {
				t.Errorf("%s: %d, want %d", c.headers, got, c.want)
			}
		}
		if got := post("/ws", "Content-Length: 4", "abcd"); got != 413 {
			t.Errorf("a body to a route with WebSockets: %d", got)
		}
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", l.Port))
		must(t, err)
		defer c.Close()
		must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
		fmt.Fprint(c, "GET /ws HTTP/1.1\r\nHost: shared.test\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n")
		b := bufio.NewReader(c)
		r, err := http.ReadResponse(b, nil)
		must(t, err)
		r.Body.Close()
		fmt.Fprint(c, "more than three bytes\n")
		if line, err := b.ReadString('\n'); r.StatusCode != 101 || line != "echo more than three bytes\n" {
			t.Errorf("what goes through a WebSocket is no body: %d %q %v", r.StatusCode, line, err)
		}
		if got := post("/", "Content-Length: 4", "abcd"); got != 200 {
			t.Errorf("a route without the limit: %d", got)
		}
	})
}
