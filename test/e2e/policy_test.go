package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/backend"
	"fairlead.dev/lab/rig"
)

// policyLab is a lab for policies: one edge, three backends, and the services that policies
// ask. Its routes are in namespace team: HTTPRoute app of host app.example.com and
// IngressRoute app of host old.example.com.
func policyLab(t *testing.T) (*site, *helpers) {
	t.Helper()
	s := newLab(t, "policy", client, edge1, k8s1, os1, plane)
	if err := s.start(t.Context(), rig.PlaneOptions{Args: []string{"--machine-ttl", "5s"}}, "--drain-time", "1s"); err != nil {
		t.Fatal(err)
	}
	h, grpcAt, httpAt := startHelpers(t, s.Lab.Machine(os1.Name))
	var rules, routes []string
	for _, path := range []string{"/", "/limited", "/denied", "/asked", "/asked-http", "/away", "/open", "/counted", "/small"} {
		name := strings.TrimPrefix(path, "/")
		if name == "" {
			name = "all"
		}
		filters := ""
		if strings.HasPrefix(name, "asked") {
			filters = "filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: " + backend.PathEcho + "}}}], "
		}
		rules = append(rules, fmt.Sprintf("{name: %s, matches: [{path: {value: %s}}], %sbackendRefs: [{name: app, port: 80}]}", name, path, filters))
		if name != "all" {
			s.apply(t, namespace("team"), ingressRoute("team", name, "", fmt.Sprintf("{match: /old/%s, services: [{name: app, port: 80}]}", name)))
			routes = append(routes, fmt.Sprintf("{match: /old/%s, delegate: {name: %s}}", name, name))
		}
	}
	s.apply(t,
		gatewayClass, namespace("fairlead-system"), gateway("edge", 80), service("team", "app", s.cluster("k8s1")...),
		service("team", "grpc", grpcAt), service("team", "http", httpAt), service("team", "nobody"), service("fairlead-system", "otel", grpcAt),
		httpRoute("team", "app", "app.example.com", rules...),
		ingressRoute("team", "root", "old.example.com", append(routes, "{match: /, services: [{name: app, port: 80}]}")...),
	)
	s.awaitAnswer(t, request{host: "app.example.com"}, 200)
	s.awaitAnswer(t, request{host: "old.example.com", path: "/old/limited"}, 200)
	return s, h
}

// accepted is what a policy shows at a target when all is well.
var accepted = condition{"Accepted", "True", "Accepted", "the policy holds here"}

// forBoth are a policy for a rule of the HTTPRoute, and the same for the IngressRoute whose
// path ends in the rule's name.
func forBoth(name, spec string) string {
	return policy("RoutePolicy", "team", name, "HTTPRoute app "+name, spec) + "---\n" + policy("RoutePolicy", "team", "old-"+name, "IngressRoute "+name, spec)
}

// both are a request for a rule's path, and the same through the IngressRoute.
func both(name string, header http.Header) []request {
	return []request{{host: "app.example.com", path: "/" + name, header: header}, {host: "old.example.com", path: "/old/" + name, header: header}}
}

// TestRoutePolicies attaches policies to rules of an HTTPRoute and to IngressRoutes, and
// sees with a real Envoy and real services what they do.
func TestRoutePolicies(t *testing.T) {
	s, h := policyLab(t)
	s.apply(t,
		forBoth("limited", "rateLimit: {requests: 2, per: 24h}"),
		forBoth("denied", fmt.Sprintf("addresses: {deny: [%s, %s]}", s.Lab.Machine(client.Name).Addr4(), s.Lab.Machine(client.Name).Addr6())),
		forBoth("asked", "authorization: {service: {name: grpc, port: 80}}"),
		forBoth("asked-http", "authorization: {service: {name: http, port: 80}, protocol: HTTP, http: {pathPrefix: /check, requestHeaders: [X-Token], responseHeaders: [X-User]}}"),
		forBoth("away", "authorization: {service: {name: nobody, port: 80}}"),
		forBoth("open", "authorization: {service: {name: nobody, port: 80}, failOpen: true}"),
		forBoth("counted", "globalRateLimit: {service: {name: grpc, port: 80}, domain: edge, descriptor: [{key: user, header: X-User-Name}, {key: plan, value: free}]}"),
		forBoth("small", "maxRequestBytes: 100"),
	)
	for _, name := range []string{"limited", "old-limited", "asked", "old-counted", "small"} {
		s.awaitConditions(t, ref("RoutePolicy team/"+name), accepted, condition{"ResolvedRefs", "True", "ResolvedRefs", "all references are resolved"})
	}

	for _, r := range both("limited", nil) {
		s.awaitAnswer(t, r, 429)
	}
	for _, r := range both("denied", nil) {
		s.awaitAnswer(t, r, 403)
	}
	for _, name := range []string{"asked", "asked-http"} {
		refused := 401
		user := "alice"
		if name == "asked-http" {
			refused, user = 403, "bob"
		}
		for _, r := range both(name, nil) {
			s.awaitAnswer(t, r, refused)
			if a, err := s.ask(t.Context(), edge1.Name, r); err != nil || !strings.Contains(a.body, "who are you?") {
				t.Errorf("%s: the service's own answer is not shown: %s (%v)", r.path, a, err)
			}
			r.header = http.Header{"X-Token": {"good"}}
			s.awaitAnswer(t, r, 200)
		}
		s.echo(t, request{host: "app.example.com", path: "/" + name, header: http.Header{"X-Token": {"good"}}}, "X-User", user)
	}
	for _, r := range both("away", http.Header{"X-Token": {"good"}}) {
		s.awaitAnswer(t, r, 503)
	}
	for _, r := range both("open", nil) {
		s.awaitAnswer(t, r, 200)
	}
	for i, r := range both("counted", nil) {
		r.header = http.Header{"X-User-Name": {fmt.Sprintf("carol-%d", i)}}
		s.awaitAnswer(t, r, 429)
		r.header = http.Header{"X-User-Name": {fmt.Sprintf("dave-%d", i)}}
		s.awaitAnswer(t, r, 200)
	}
	h.mu.Lock()
	if n := h.descriptors["edge user=carol-0 plan=free"]; n <= userLimit {
		t.Errorf("the service was asked for %v", h.descriptors)
	}
	h.mu.Unlock()
	for _, r := range both("small", nil) {
		if status := s.post(t, r, strings.Repeat("x", 1000)); status != 413 {
			t.Errorf("%s with a body of 1000 bytes: %d, want 413", r.path, status)
		}
		if status := s.post(t, r, "x"); status != 200 {
			t.Errorf("%s with a body of 1 byte: %d, want 200", r.path, status)
		}
	}
	// Who is not concerned is not disturbed.
	for _, host := range []string{"app.example.com", "old.example.com"} {
		if err := s.answers(t.Context(), host, 5); err != nil {
			t.Errorf("%s without a policy: %v", host, err)
		}
	}

	t.Run("encoded", func(t *testing.T) { s.encoded(t) })

	t.Run("levels", func(t *testing.T) {
		// What the Gateway says holds where no rule says anything of the matter, and goes with it.
		s.apply(t, policy("RoutePolicy", "default", "all", "Gateway edge", "maxRequestBytes: 10\nauthorization: {service: {name: grpc, port: 80, namespace: team}}"))
		s.awaitConditions(t, "RoutePolicy default/all", condition{"ResolvedRefs", "False", "RefNotPermitted", "…no ReferenceGrant in namespace team…"})
		s.awaitAnswer(t, request{host: "app.example.com"}, 500)
		s.awaitAnswer(t, request{host: "app.example.com", path: "/open"}, 200)
		s.apply(t, "apiVersion: gateway.networking.k8s.io/v1\nkind: ReferenceGrant\nmetadata: {name: asked, namespace: team}\nspec:\n"+
			"  from: [{group: fairlead.dev, kind: RoutePolicy, namespace: default}]\n  to: [{group: '', kind: Service, name: grpc}]\n")
		s.awaitAnswer(t, request{host: "app.example.com"}, 401)
		s.awaitAnswer(t, request{host: "app.example.com", header: http.Header{"X-Token": {"good"}}}, 200)
		good := http.Header{"X-Token": {"good"}}
		if status := s.post(t, request{host: "app.example.com", path: "/small", header: good}, strings.Repeat("x", 50)); status != 200 {
			t.Errorf("the rule's own limit: %d, want 200", status)
		}
		if status := s.post(t, request{host: "app.example.com", header: good}, strings.Repeat("x", 50)); status != 413 {
			t.Errorf("the Gateway's limit: %d, want 413", status)
		}
		s.awaitAnswer(t, request{host: "old.example.com"}, 200) // no Gateway has an IngressRoute
		s.apply(t, policy("RoutePolicy", "default", "later", "Gateway edge", "maxRequestBytes: 1"))
		s.awaitConditions(t, "RoutePolicy default/later", condition{"Accepted", "False", "Conflicted", "…the older RoutePolicy default/all has the same target…"})
		s.kubectl(t, "delete", "routepolicy", "-n", "default", "all", "later")
		s.awaitAnswer(t, request{host: "app.example.com"}, 200)
	})
}

// encoded: answers of IngressRoutes are compressed, as by Contour, and those of others where a policy says so.
func (s *site) encoded(t *testing.T) {
	await := func(host, accept, want string) {
		t.Helper()
		s.await(t, fmt.Sprintf("%s, asked for %q, to answer by %q", host, accept, want), func(ctx context.Context) error {
			a, err := s.ask(ctx, edge1.Name, request{host: host, path: backend.PathEcho, header: http.Header{"Accept-Encoding": {accept}}})
			coding := ""
			switch {
			case err != nil:
				return err
			case strings.HasPrefix(a.body, "\x1f\x8b"):
				coding = "gzip"
			case strings.HasPrefix(a.body, "\x28\xb5\x2f\xfd"):
				coding = "zstd"
			}
			if a.status != 200 || coding != want {
				return fmt.Errorf("it answers by %q: %s", coding, a)
			}
			return nil
		})
	}
	await("old.example.com", "gzip, zstd", "gzip")
	await("app.example.com", "gzip, zstd", "")
	s.apply(t,
		policy("RoutePolicy", "team", "encoded", "HTTPRoute app", "compression: {algorithms: [zstd, gzip]}"),
		policy("RoutePolicy", "team", "old-encoded", "IngressRoute root", "compression: {disabled: true}\ngrpcWeb: false"),
	)
	await("old.example.com", "gzip, zstd", "")
	await("app.example.com", "gzip, zstd", "zstd")
	await("app.example.com", "gzip", "gzip")
	s.kubectl(t, "delete", "routepolicy", "-n", "team", "encoded", "old-encoded")
	await("old.example.com", "gzip", "gzip")
	await("app.example.com", "gzip", "")
}

// TestBackendPolicies: one backend that fails is taken out, and what is too much at once is
// answered 503.
func TestBackendPolicies(t *testing.T) {
	s, _ := policyLab(t)
	m := s.Lab.Machine(os1.Name)
	bad, good := at(m, 0, 9100), at(m, 1, 9100)
	arrived, gate := make(chan struct{}, 1), make(chan struct{})
	serveAt(t, m, bad, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	serveAt(t, m, good, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(backend.NameHeader, "good")
		if r.URL.Path == "/slow" {
			arrived <- struct{}{}
			select {
			case <-gate:
			case <-r.Context().Done():
			}
		}
	})
	s.apply(t, service("team", "mixed", bad, good), httpRoute("team", "mixed", "mixed.example.com", to("mixed")))
	s.awaitAnswer(t, request{host: "mixed.example.com"}, 500)
	s.apply(t, policy("BackendPolicy", "team", "mixed", "Service mixed",
		"outlierDetection: {consecutiveErrors: 2, interval: 1h, ejectionTime: 24h, maxEjectedPercent: 100}"))
	s.awaitConditions(t, "BackendPolicy team/mixed", accepted)
	s.await(t, "the bad backend to be out", func(ctx context.Context) error { return s.answers(ctx, "mixed.example.com", 20) })

	// The policy comes first, so that no request goes another way.
	s.apply(t, policy("BackendPolicy", "team", "narrow", "Service narrow", "circuitBreaker: {maxRequests: 1, maxPendingRequests: 1}"))
	s.apply(t, service("team", "narrow", good), httpRoute("team", "narrow", "narrow.example.com", to("narrow")))
	s.awaitConditions(t, "BackendPolicy team/narrow", accepted)
	s.awaitAnswer(t, request{host: "narrow.example.com"}, 200)
	slow := make(chan error, 1)
	go func() {
		a, err := s.ask(context.WithoutCancel(t.Context()), edge1.Name, request{host: "narrow.example.com", path: "/slow", patience: rig.Patience})
		if err == nil && a.status != 200 {
			err = fmt.Errorf("the slow request: %s", a)
		}
		slow <- err
	}()
	select {
	case <-arrived:
	case err := <-slow:
		t.Fatalf("the slow request ended: %v", err)
	}
	s.awaitAnswer(t, request{host: "narrow.example.com"}, 503)
	close(gate)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	s.awaitAnswer(t, request{host: "narrow.example.com"}, 200)

	t.Run("PROXY protocol", func(t *testing.T) {
		heads := make(chan string, 64)
		l, err := m.Listen(t.Context(), "tcp", at(m, 0, 9101).Address.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				head := make([]byte, 28)
				_ = c.SetDeadline(time.Now().Add(answerTime))
				if _, err := io.ReadFull(c, head); err == nil {
					select {
					case heads <- string(head):
					default:
					}
				}
				_ = c.Close()
			}
		}()
		s.apply(t, service("team", "proxied", at(m, 0, 9101)), httpRoute("team", "proxied", "proxied.example.com", to("proxied")),
			policy("BackendPolicy", "team", "proxied", "Service proxied", "sendProxyProtocol: true"))
		want := "\r\n\r\n\x00\r\nQUIT\n\x21\x11"
		from := s.Lab.Machine(client.Name).Addr4().As4()
		s.await(t, "a PROXY header with the client's address", func(ctx context.Context) error {
			if _, err := s.ask(ctx, edge1.Name, request{host: "proxied.example.com"}); err != nil {
				return err
			}
			select {
			case head := <-heads:
				if !strings.HasPrefix(head, want) || head[16:20] != string(from[:]) {
					return fmt.Errorf("the connection begins with %q", head)
				}
				return nil
			default:
				return fmt.Errorf("there was no connection")
			}
		})
	})
}

// post sends a body and returns the status of the answer.
func (s *site) post(t *testing.T, r request, body string) int {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.Lab.Machine(edge1.Name).Addr4().String()+r.path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Host = r.host
	for name, values := range r.header {
		q.Header[name] = values
	}
	answer, err := s.Lab.Machine(client.Name).HTTPClient().Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// at is a backend at a port of one of a machine's addresses.
func at(m *lab.Machine, i int, port uint16) rig.Backend {
	return rig.Backend{Name: m.Name(), Cluster: m.Name(), Address: netip.AddrPortFrom(m.Addrs4()[i], port)}
}

// serveAt answers at a backend's address until the test ends.
func serveAt(t *testing.T, m *lab.Machine, b rig.Backend, h http.HandlerFunc) {
	t.Helper()
	l, err := m.Listen(t.Context(), "tcp", b.Address.String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h} //nolint:gosec // a test's
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

// answers holds that a host answers 200 some times in a row.
func (s *site) answers(ctx context.Context, host string, times int) error {
	for range times {
		a, err := s.ask(ctx, edge1.Name, request{host: host})
		if err != nil {
			return err
		}
		if a.status != 200 {
			return fmt.Errorf("it answers %s", a)
		}
	}
	return nil
}

// echo holds that a backend gets a header with a value.
func (s *site) echo(t *testing.T, r request, header, want string) {
	t.Helper()
	s.await(t, fmt.Sprintf("the backend of %s%s to see %s: %s", r.host, r.path, header, want), func(ctx context.Context) error {
		a, err := s.ask(ctx, edge1.Name, r)
		if err != nil {
			return err
		}
		var e backend.Echo
		if err := json.Unmarshal([]byte(a.body), &e); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
		if got := e.Headers.Get(header); got != want {
			return fmt.Errorf("it sees %q", got)
		}
		return nil
	})
}
