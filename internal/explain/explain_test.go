package explain

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// given is a world in plain lists.
type given struct {
	hosts []model.VirtualHost
	sets  []model.BackendSet
	World
}

func (g given) world() World {
	w := g.World
	if w.Listeners == nil {
		w.Listeners = []model.Listener{{ID: "http-80", Port: 80, Protocol: model.ProtocolHTTP}}
	}
	w.VirtualHost = func(k model.HostKey) *model.VirtualHost {
		for i := range g.hosts {
			if g.hosts[i].HostKey == k {
				return &g.hosts[i]
			}
		}
		return nil
	}
	w.Group = func(id model.GroupID) *model.BackendGroup {
		set, option, _ := strings.Cut(string(id), "~")
		group := &model.BackendGroup{ID: id, Set: model.SetID(set)}
		if option != "" {
			group.Balance, group.HealthCheck = model.BalanceCookie, &model.HealthCheck{Path: "/" + option}
		}
		return group
	}
	w.Set = func(id model.SetID) *model.BackendSet {
		for i := range g.sets {
			if g.sets[i].ID == id {
				return &g.sets[i]
			}
		}
		return nil
	}
	if w.Serving == nil {
		w.Serving = func(model.ListenerID) []string { return []string{"edge-1", "edge-2"} }
	}
	if w.Machines == nil && !w.Offline {
		w.Machines = []model.MachineStatus{
			{Name: "edge-1", Connected: true, Addresses: []string{"10.0.0.1", "fd00::1"}, Proxy: model.ProxyStatus{State: "ready"}},
			{Name: "edge-2", Connected: true, Addresses: []string{"10.0.0.2"}, Proxy: model.ProxyStatus{State: "ready"}},
		}
	}
	return w
}

func ask(t *testing.T, o Options) Request {
	t.Helper()
	r, err := NewRequest(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func host(name string, routes ...model.Route) model.VirtualHost {
	return model.VirtualHost{HostKey: model.HostKey{Listener: "http-80", Host: name}, Routes: routes}
}

// route is the i-th rule of HTTPRoute team/app; it answers 299 unless it is given groups.
func route(i int, m model.Match, shares ...model.WeightedGroup) model.Route {
	r := model.Route{
		Name: fmt.Sprintf("HTTPRoute/team/app/rules/%d/matches/0", i), Owner: model.Object{Kind: "HTTPRoute", Namespace: "team", Name: "app"},
		Match: m, Respond: &model.Respond{Status: 299},
	}
	if shares != nil {
		r.Respond, r.Forward = nil, &model.Forward{Backends: shares}
	}
	return r
}

func path(kind model.PathMatchKind, value string) model.Match {
	return model.Match{Path: model.PathMatch{Kind: kind, Value: value}}
}

func TestMatches(t *testing.T) {
	with := func(m model.Match, change func(*model.Match)) model.Match { change(&m); return m }
	anyPath := path(model.PathSegments, "/")
	header := func(name, value string, regex bool) model.Match {
		return with(anyPath, func(m *model.Match) { m.Headers = []model.ValueMatch{{Name: name, Value: value, Regex: regex}} })
	}
	query := func(name, value string, regex bool) model.Match {
		return with(anyPath, func(m *model.Match) { m.Query = []model.ValueMatch{{Name: name, Value: value, Regex: regex}} })
	}
	for _, c := range []struct {
		match   model.Match
		target  string
		headers []string
		method  string
		why     string // "" is taken
	}{
		{match: path(model.PathExact, "/a"), target: "/a?x"},
		{match: path(model.PathExact, "/a"), target: "/a/", why: "the path is not /a"},
		{match: path(model.PathExact, "/a"), target: "/A", why: "the path is not /a"},
		{match: path(model.PathExact, "/b"), target: "/a/../b"},
		{match: path(model.PathSegments, "/a"), target: "/a"},
		{match: path(model.PathSegments, "/a"), target: "/a/b"},
		{match: path(model.PathSegments, "/a/"), target: "/a"},
		{match: path(model.PathSegments, "/a"), target: "/ab", why: "the path is neither /a nor below it"},
		{match: path(model.PathSegments, "/"), target: ""},
		{match: path(model.PathPrefix, "/a"), target: "/ab"},
		{match: path(model.PathPrefix, "/a/"), target: "/a", why: "the path does not begin with /a/"},
		{match: path(model.PathRegex, "/v[0-9]+"), target: "/v12"},
		{match: path(model.PathRegex, "/v[0-9]+"), target: "/v12/", why: "the whole path does not match the expression /v[0-9]+"},
		{match: path(model.PathRegex, "/a|/b/c"), target: "/b/c"},
		{match: path(model.PathRegex, "("), target: "/", why: "the whole path does not match the expression ("},
		{match: model.Match{}, target: "/anything"},
		{match: with(anyPath, func(m *model.Match) { m.Method = "POST" }), method: "POST"},
		{match: with(anyPath, func(m *model.Match) { m.Method = "POST" }), why: "the method is GET, not POST"},
		{match: header("env", "canary", false), headers: []string{"ENV:  canary "}},
		{match: header("env", "canary", false), headers: []string{"env: blue", "env: canary"}},
		{match: header("env", "canary", false), why: "the header env is missing"},
		{match: header("env", "canary", false), headers: []string{"env: Canary"}, why: `the header env is "Canary", not "canary"`},
		{match: header("env", "c.*", true), headers: []string{"env: canary"}},
		{match: header("env", "c", true), headers: []string{"env: canary"}, why: `the header env is "canary", which does not match c`},
		{match: header("x_under", "1", false), headers: []string{"x_under: 1"}, why: "the header x_under is missing"},
		{match: header("x-forwarded-proto", "https", false), headers: []string{"X-Forwarded-Proto: https"}, why: `the header x-forwarded-proto is "http", not "https"`},
		{match: header("x-forwarded-for", "1.2.3.4,192.0.2.7", false), headers: []string{"X-Forwarded-For: 1.2.3.4"}},
		{match: query("q", "1", false), target: "/?p=2&q=1&q=2"},
		{match: query("q", "2", false), target: "/?q=1&q=2", why: `the query parameter q is "1", not "2"`},
		{match: query("q", "", false), target: "/?q"},
		{match: query("q", "a b", false), target: "/?q=a%20b", why: `the query parameter q is "a%20b", not "a b"`},
		{match: query("q", "[0-9]+", true), target: "/?q=12"},
		{match: query("q", "1", false), why: "the query parameter q is missing"},
	} {
		r := ask(t, Options{URL: "http://a.test" + c.target, Headers: c.headers, Method: c.method, From: "192.0.2.7"})
		e := Explain(r, given{hosts: []model.VirtualHost{host("a.test", route(0, c.match))}}.world())
		switch {
		case c.why == "" && (e.Route == nil || e.Answer.Outcomes[0].Status != 299):
			t.Errorf("%+v does not take %s %q: %+v", c.match, c.target, c.headers, e.Routes)
		case c.why != "" && (e.Route != nil || e.Answer.Outcomes[0].Status != 404 || e.Routes.Passed[0].Why != c.why):
			t.Errorf("%+v and %s %q: %+v, want %q", c.match, c.target, c.headers, e.Routes.Passed, c.why)
		}
	}
}

func TestNormalise(t *testing.T) {
	for in, want := range map[string]string{
		"/":               "/",
		"/a/./b/../c":     "/a/c",
		"/../../a":        "/a",
		"/a/..":           "/",
		"/a/.":            "/a/",
		"/a//../b":        "/a/b",
		"/a/%2e%2E/b":     "/b",
		"/a.../..b/.c":    "/a.../..b/.c",
		"/%61%7E%2D":      "/a~-",
		"/a%2Fb%2f%20%3f": "/a%2Fb%2f%20%3f",
		"/a%5Cb":          "/a%5Cb",
		"/a%zz%4":         "/a%zz%4",
		`/a\..\b`:         "/b",
	} {
		if got, ok := normalise(in); got != want || !ok {
			t.Errorf("%s becomes %s (%v), want %s", in, got, ok, want)
		}
		if again, _ := normalise(want); again != want {
			t.Errorf("%s becomes %s the second time", want, again)
		}
	}
	if _, ok := normalise("/a%00"); ok {
		t.Error("an escaped null passes")
	}
}

func TestHosts(t *testing.T) {
	hosts := []model.VirtualHost{
		host("a.b.test", route(0, path(model.PathExact, "/a"))), host("*.b.test", route(1, model.Match{})),
		host("*.test", route(2, model.Match{})), host("none.test"),
	}
	for _, c := range []struct {
		host, found, kind string
		looked            []string
		status            uint32
	}{
		{"a.b.test", "a.b.test", "exact", []string{"a.b.test"}, 404}, // never goes on to *.b.test
		{"A.b.Test.", "a.b.test", "exact", []string{"a.b.test"}, 404},
		{"A.b.Test.:8080", "a.b.test", "exact", []string{"a.b.test"}, 404},
		{"x.a.b.test", "*.b.test", "wildcard", []string{"x.a.b.test", "*.a.b.test", "*.b.test"}, 299},
		{"b.test", "*.test", "wildcard", []string{"b.test", "*.test"}, 299},
		{"none.test", "none.test", "exact", []string{"none.test"}, 404},
		{"test", "", "", []string{"test", "*"}, 404},
	} {
		e := Explain(ask(t, Options{URL: "http://x/", Headers: []string{"Host: " + c.host}}), given{hosts: hosts}.world())
		if e.Host.VirtualHost != c.found || e.Host.Kind != c.kind || !slices.Equal(e.Host.LookedFor, c.looked) || e.Answer.Outcomes[0].Status != c.status {
			t.Errorf("%s: %+v, %+v", c.host, e.Host, e.Answer)
		}
	}
	e := Explain(ask(t, Options{URL: "http://q/"}), given{hosts: []model.VirtualHost{host("*", route(0, model.Match{}))}}.world())
	if e.Host.Kind != "any" || e.Route == nil {
		t.Errorf("*: %+v", e.Host)
	}
}

func TestRoutesInOrder(t *testing.T) {
	var routes []model.Route
	for i := range 30 {
		routes = append(routes, route(i, path(model.PathExact, fmt.Sprintf("/%d", i))))
	}
	near := path(model.PathSegments, "/x")
	near.Method = "PUT"
	routes = append(routes, route(30, near), route(31, path(model.PathSegments, "/x")), route(32, path(model.PathSegments, "/")))
	w := given{hosts: []model.VirtualHost{host("a.test", routes...)}}.world()
	w.Where = func(o model.Object, field string) string { return o.Name + "|" + field }
	e := Explain(ask(t, Options{URL: "http://a.test/x"}), w)
	if e.Route.By.Field != "spec.rules[31].matches[0]" || e.Route.By.Where != "app|spec.rules[31].matches[0]" {
		t.Errorf("taken by %+v", e.Route.By)
	}
	if e.Routes.Tried != 31 || len(e.Routes.Passed) != maxTried || e.Routes.Passed[0].Why != "the method is GET, not PUT" || e.Routes.Passed[1].Field != "spec.rules[0].matches[0]" {
		t.Errorf("passed: %d, %+v", e.Routes.Tried, e.Routes.Passed)
	}
	if len(e.Routes.Also) != 1 || e.Routes.Also[0].Field != "spec.rules[32].matches[0]" {
		t.Errorf("would take it too: %+v", e.Routes.Also)
	}
}

func TestRouteSources(t *testing.T) {
	root := model.Object{Kind: "IngressRoute", Namespace: "team", Name: "root"}
	for name, field := range map[string]string{
		"IngressRoute/team/root/routes/2":       "spec.routes[2]",
		"IngressRoute/team/root/refused/routes": "spec.routes",
		"of another form":                       "",
	} {
		if got := routeSource(model.Route{Name: name, Owner: root}); got.Field != field || got.Object != root {
			t.Errorf("%s: %+v", name, got)
		}
	}
	e := Explain(ask(t, Options{URL: "http://a.test/"}), given{hosts: []model.VirtualHost{host("a.test", model.Route{
		Name: "IngressRoute/team/root/refused/", Owner: root, Match: path(model.PathPrefix, "/"), Respond: &model.Respond{Status: 503},
	})}}.world())
	if o := e.Answer.Outcomes; len(o) != 1 || o[0].Status != 503 || !strings.Contains(o[0].Why, "IngressRoute team/root is invalid") {
		t.Errorf("%+v", e.Answer)
	}
}

func TestShares(t *testing.T) {
	backend := func(text string, state model.BackendState) model.Backend {
		return model.Backend{Address: netip.MustParseAddrPort(text), State: state}
	}
	sets := []model.BackendSet{
		{ID: "team/a/80", Backends: []model.Backend{backend("10.1.0.1:80", model.BackendReady), backend("10.1.0.2:80", model.BackendReady), backend("10.1.0.3:80", model.BackendDraining)}},
		{ID: "team/b/80", Backends: []model.Backend{backend("10.2.0.1:80", model.BackendUnready), backend("10.2.0.2:80", model.BackendUnready)}},
	}
	r := route(0, path(model.PathSegments, "/api"), []model.WeightedGroup{
		{Group: "team/a/80", Weight: 5}, {Group: "team/b/80", Weight: 2}, {Group: "", Weight: 2}, {Group: "team/gone/80", Weight: 1}, {Group: "team/a/80~check", Weight: 0},
	}...)
	r.Forward.Path, r.Forward.TryTimeout = &model.PathRewrite{Kind: model.RewritePrefix, Value: "/v1"}, time.Second
	r.Forward.Retry, r.Forward.Timeout = &model.Retry{Attempts: 3, ServerErrors: true}, model.Never
	w := given{hosts: []model.VirtualHost{host("a.test", r)}, sets: sets}.world()
	w.SetBy = func(id model.SetID) []Source {
		return []Source{{Object: model.Object{Kind: "EndpointSlice", Namespace: "team", Name: string(id)}}}
	}
	e := Explain(ask(t, Options{URL: "http://a.test/api/x?y=z"}), w)
	var got []string
	for _, o := range e.Answer.Outcomes {
		got = append(got, fmt.Sprintf("%s %d %s", Share(o.Percent), o.Status, o.Group))
	}
	want := []string{"50% 0 team/a/80", "20% 503 team/b/80", "10% 503 team/gone/80", "20% 500 "}
	if !slices.Equal(got, want) {
		t.Errorf("outcomes %q, want %q", got, want)
	}
	var backends []string
	for _, b := range e.Groups[0].Backends {
		backends = append(backends, fmt.Sprintf("%s %s %s", b.Address, b.State, Share(b.Percent)))
	}
	if want := []string{"10.1.0.1:80 ready 25%", "10.1.0.2:80 ready 25%", "10.1.0.3:80 draining 0%"}; !slices.Equal(backends, want) {
		t.Errorf("backends %q, want %q", backends, want)
	}
	if by := e.Groups[0].By; len(by) != 2 || by[0].String() != "Service team/a spec.ports" || by[1].Kind != "EndpointSlice" {
		t.Errorf("by %+v", by)
	}
	if g := e.Groups[4]; g.Check != "/check" || g.Balance != model.BalanceCookie || g.Ready != 2 {
		t.Errorf("%+v", g)
	}
	f := e.Route.Forward
	if f.Path != "/v1/x?y=z" || f.Timeout != 0 || f.Attempts != 3 || !f.RetryAny || f.PerTryTimeout != time.Second || f.By.Field != "spec.rules[0].backendRefs" {
		t.Errorf("%+v", f)
	}
}

// A Service whose last backends drain serves on.
func TestSharesOfDrainingBackends(t *testing.T) {
	sets := []model.BackendSet{{ID: "team/a/80", Backends: []model.Backend{
		{Address: netip.MustParseAddrPort("10.1.0.1:80"), State: model.BackendUnready},
		{Address: netip.MustParseAddrPort("10.1.0.2:80"), State: model.BackendDraining},
	}}}
	r := route(0, path(model.PathSegments, "/"), model.WeightedGroup{Group: "team/a/80", Weight: 1})
	e := Explain(ask(t, Options{URL: "http://a.test/"}), given{hosts: []model.VirtualHost{host("a.test", r)}, sets: sets}.world())
	if o := e.Answer.Outcomes; len(o) != 1 || o[0].Status != 0 || o[0].Group != "team/a/80" || e.Groups[0].Backends[1].Percent != 100 {
		t.Errorf("%+v, %+v", o, e.Groups)
	}
}

// Who finds no backend learns that its endpoints are refused, and why.
func TestRefusedEndpoints(t *testing.T) {
	const refusal = "1 endpoint address is refused: 192.0.2.1 is in AddressPool edge"
	r := route(0, path(model.PathSegments, "/"), model.WeightedGroup{Group: "team/a/80", Weight: 1})
	e := Explain(ask(t, Options{URL: "http://a.test/"}), given{hosts: []model.VirtualHost{host("a.test", r)}, sets: []model.BackendSet{{ID: "team/a/80", Refusal: refusal}}}.world())
	if o := e.Answer.Outcomes; len(o) != 1 || o[0].Status != 503 || !strings.HasSuffix(o[0].Why, "has no backends: "+refusal) || e.Groups[0].Refusal != refusal {
		t.Errorf("%+v, %+v", o, e.Groups)
	}
}

func TestUpgrades(t *testing.T) {
	socket := route(0, path(model.PathSegments, "/ws"), model.WeightedGroup{Group: "team/a/80", Weight: 1})
	socket.Forward.WebSocket = true
	plain := func(i int, at string) model.Route {
		r := route(i, path(model.PathSegments, at), model.WeightedGroup{Group: "team/a/80", Weight: 1})
		r.Forward.NoUpgrade = true
		return r
	}
	w := given{
		hosts: []model.VirtualHost{
			host("a.test", socket, plain(1, "/no"), route(2, path(model.PathExact, "/fixed")), route(3, path(model.PathSegments, "/may"), model.WeightedGroup{Group: "team/a/80", Weight: 1})),
			host("none.test", plain(0, "/no"), route(1, path(model.PathExact, "/fixed"))),
		},
		sets: []model.BackendSet{{ID: "team/a/80", Backends: []model.Backend{{Address: netip.MustParseAddrPort("10.1.0.1:80")}}}},
	}.world()
	for _, c := range []struct {
		path    string
		status  uint32
		headers []string
	}{
		{"/ws", 0, []string{"Upgrade: WebSocket", "Connection: keep-alive, Upgrade"}},
		{"/ws", 400, []string{"Upgrade: other", "Connection: upgrade"}},
		{"/no", 400, []string{"Upgrade: websocket", "Connection: upgrade"}},
		{"/no", 0, []string{"Upgrade: websocket"}},
		{"/no", 0, []string{"Upgrade: h2c", "Connection: upgrade"}},
		{"/fixed", 299, []string{"Upgrade: websocket", "Connection: upgrade"}},
		{"/may", 0, []string{"Upgrade: websocket", "Connection: upgrade"}},
		{"/may", 400, []string{"Upgrade: websocket", "Connection: upgrade", "Content-Length: 0"}},
		{"/fixed", 400, []string{"Host: none.test", "Upgrade: websocket", "Connection: upgrade"}},
		{"/missing", 400, []string{"Host: none.test", "Upgrade: websocket", "Connection: upgrade"}},
		{"/missing", 404, []string{"Upgrade: websocket", "Connection: upgrade"}},
		{"/missing", 404, nil},
	} {
		e := Explain(ask(t, Options{URL: "http://a.test" + c.path, Headers: c.headers}), w)
		if got := e.Answer.Outcomes[0].Status; got != c.status {
			t.Errorf("%s %q: %d, want %d", c.path, c.headers, got, c.status)
		}
	}
}

func TestRewritten(t *testing.T) {
	for _, c := range []struct {
		kind                 model.PathMatchKind
		from, to, path, want string
	}{
		{model.PathSegments, "/a", "", "/a/b", "/b"},
		{model.PathPrefix, "/a", "", "/a/b", "/a/b"},
		{model.PathSegments, "/a", "/", "/a/b", "/b"},
		{model.PathSegments, "/a", "/", "/a", "/"},
		{model.PathSegments, "/a/", "/x/", "/a/b", "/x/b"},
		{model.PathSegments, "/", "/x", "/b", "/x/b"},
		{model.PathPrefix, "/a", "/x", "/ab", "/xb"},
		{model.PathPrefix, "/a", "/x/", "/a/b", "/x/b"},
		{model.PathExact, "/a", "/x", "/a", "/x"},
		{model.PathRegex, "/.*", "/x", "/a", "/x"},
	} {
		if got := rewritten(model.PathMatch{Kind: c.kind, Value: c.from}, &model.PathRewrite{Kind: model.RewritePrefix, Value: c.to}, c.path); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		if got := rewritten(model.PathMatch{Kind: c.kind, Value: c.from}, &model.PathRewrite{Kind: model.RewriteFull, Value: "/new"}, c.path); got != "/new" {
			t.Errorf("%+v: the whole path becomes %s", c, got)
		}
		if got := rewritten(model.PathMatch{Kind: c.kind, Value: c.from}, nil, c.path); got != c.path {
			t.Errorf("%+v: without a rewrite %s", c, got)
		}
	}
}

func TestRedirects(t *testing.T) {
	at := func(to model.Redirect) given {
		return given{hosts: []model.VirtualHost{host("a.test", model.Route{
			Name: "HTTPRoute/team/app/rules/0/matches/0", Match: path(model.PathSegments, "/old"), Redirect: &to,
		})}}
	}
	for _, c := range []struct {
		to   model.Redirect
		want string
	}{
		{model.Redirect{Status: 301, Scheme: "https"}, "https://a.test/old/x?y=z"},
		{model.Redirect{Status: 302, Host: "b.test"}, "http://b.test/old/x?y=z"},
		{model.Redirect{Status: 302, Port: 8080}, "http://a.test:8080/old/x?y=z"},
		{model.Redirect{Status: 308, Path: &model.PathRewrite{Kind: model.RewritePrefix, Value: "/new"}}, "http://a.test/new/x?y=z"},
		{model.Redirect{Status: 307, Path: &model.PathRewrite{Kind: model.RewriteFull, Value: "/all"}}, "http://a.test/all?y=z"},
	} {
		e := Explain(ask(t, Options{URL: "http://a.test/old/x?y=z"}), at(c.to).world())
		if o := e.Answer.Outcomes; len(o) != 1 || o[0].Status != c.to.Status || !strings.HasSuffix(o[0].Why, " "+c.want) || e.Route.Redirect == nil {
			t.Errorf("%+v: %+v, want %s", c.to, e.Answer, c.want)
		}
	}
}

func TestNewRequest(t *testing.T) {
	for _, c := range []struct {
		options Options
		want    Request
	}{
		{Options{URL: "http://a.test"}, Request{Method: "GET", Scheme: "http", Host: "a.test", Port: 80, Path: "/"}},
		{Options{URL: "http://A.test:80/x%2Fy?q#f"}, Request{Method: "GET", Scheme: "http", Host: "A.test", Port: 80, Path: "/x%2Fy", Query: "q"}},
		{Options{URL: "https://a.test:8443/", Method: "PUT"}, Request{Method: "PUT", Scheme: "https", Host: "a.test:8443", Port: 8443, Path: "/"}},
		{Options{URL: "http://[fd00::1]:8080/"}, Request{Method: "GET", Scheme: "http", Host: "[fd00::1]:8080", Port: 8080, Path: "/", VIP: netip.MustParseAddr("fd00::1")}},
		{
			Options{URL: "http://192.0.2.1/", VIP: "192.0.2.2", From: "::ffff:192.0.2.3", Headers: []string{"Host: b.test", "X-A: b:c"}},
			Request{
				Method: "GET", Scheme: "http", Host: "b.test", Port: 80, Path: "/", VIP: netip.MustParseAddr("192.0.2.2"), From: netip.MustParseAddr("192.0.2.3"),
				Headers: []Header{{"x-a", "b:c"}},
			},
		},
	} {
		got, err := NewRequest(c.options)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %+v, %v", c.options, got, err)
		}
	}
	for says, o := range map[string]Options{
		"url: must be given":         {},
		"it has no scheme":           {URL: "a.test/x"},
		`the scheme "ftp"`:           {URL: "ftp://a.test/"},
		"it has no host":             {URL: "http:///x"},
		"port 0":                     {URL: "http://a.test:0/"},
		"port 99999":                 {URL: "http://a.test:99999/"},
		"invalid URL escape":         {URL: "http://a.test/%zz"},
		`method "G T"`:               {URL: "http://a.test/", Method: "G T"},
		"asks for a tunnel":          {URL: "http://a.test/", Method: "CONNECT"},
		`header "nothing"`:           {URL: "http://a.test/", Headers: []string{"nothing"}},
		`header "Host:": want a`:     {URL: "http://a.test/", Headers: []string{"Host:"}},
		`vip "x": want an IP`:        {URL: "http://a.test/", VIP: "x"},
		`from "10.0.0.0/8": want an`: {URL: "http://a.test/", From: "10.0.0.0/8"},
	} {
		if _, err := NewRequest(o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", o, err, says)
		}
	}
}
