package xds_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestExplanationsAreWhatEnvoyDoes asks a real Envoy and an explanation the same questions:
// made requests, then many that are put together from pieces which differ in one thing.
func TestExplanationsAreWhatEnvoyDoes(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	backend := w.serve(func(rw http.ResponseWriter, q *http.Request) { rw.Header().Set("Backend", q.URL.RequestURI()) })
	w.group("ns/b/80", backend)
	w.group("ns/none/80")
	sets := map[model.SetID]*model.BackendSet{
		"ns/b/80":    {ID: "ns/b/80", Backends: []model.Backend{{Address: backend}}},
		"ns/none/80": {ID: "ns/none/80"},
	}
	exact := func(p string) model.PathMatch { return model.PathMatch{Kind: model.PathExact, Value: p} }
	regex := func(p string) model.PathMatch { return model.PathMatch{Kind: model.PathRegex, Value: p} }
	text := func(p string) model.PathMatch { return model.PathMatch{Kind: model.PathPrefix, Value: p} }
	when := func(r model.Route, m model.Match) model.Route {
		m.Path = r.Match.Path
		r.Match = m
		return r
	}
	rewrite := func(name string, m model.PathMatch, to string) model.Route {
		r := forward(name, "/", "ns/b/80", 1)
		r.Match.Path, r.Forward.Path = m, &model.PathRewrite{Kind: model.RewritePrefix, Value: to}
		return r
	}
	socket := forward("socket", "/ws", "ns/b/80", 1)
	socket.Forward.WebSocket = true
	plain := forward("plain", "/plain", "ns/b/80", 1)
	plain.Forward.NoUpgrade = true
	hosts := []model.VirtualHost{
		host(l.ID, "plain.test", plain, says("here", prefix("/here"))),
		host(l.ID, "paths.test",
			says("exact", exact("/a/b")), says("exact slash", exact("/a/b/")), says("dot", exact("/a.b")), says("escaped", exact("/a%2Fb")),
			says("regex", regex("/v[0-9]+/.*")), says("alternatives", regex("/x|/xy")),
			says("segments", prefix("/a/b/c")), says("text", text("/ab")), says("a", prefix("/a")), says("upper", prefix("/A"))),
		host(l.ID, "conditions.test",
			when(says("method", prefix("/m")), model.Match{Method: "DELETE"}),
			when(says("two headers", prefix("/")), model.Match{Headers: []model.ValueMatch{{Name: "env", Value: "canary"}, {Name: "user", Value: "j.*", Regex: true}}}),
			when(says("list", prefix("/")), model.Match{Headers: []model.ValueMatch{{Name: "env", Value: "canary,blue"}}}),
			when(says("header", prefix("/")), model.Match{Headers: []model.ValueMatch{{Name: "env", Value: "canary"}}}),
			when(says("host", prefix("/")), model.Match{Headers: []model.ValueMatch{{Name: "host", Value: "Conditions.test:81"}}}),
			when(says("secure", prefix("/")), model.Match{Headers: []model.ValueMatch{{Name: "x-forwarded-proto", Value: "https"}}}),
			when(says("id", prefix("/")), model.Match{Headers: []model.ValueMatch{{Name: "x-request-id", Value: "mine"}}}),
			when(says("under", prefix("/")), model.Match{Headers: []model.ValueMatch{{Name: "x_under", Value: "1"}}}),
			when(says("scope", prefix("/")), model.Match{Headers: []model.ValueMatch{{Name: "x-fairlead-scope", Value: "mine"}}}),
			when(says("query", prefix("/")), model.Match{Query: []model.ValueMatch{{Name: "q", Value: "a b"}}}),
			when(says("plus", prefix("/")), model.Match{Query: []model.ValueMatch{{Name: "q", Value: "a+b"}}}),
			when(says("empty", prefix("/")), model.Match{Query: []model.ValueMatch{{Name: "q", Value: ""}}}),
			when(says("number", prefix("/")), model.Match{Query: []model.ValueMatch{{Name: "q", Value: "[0-9]+", Regex: true}}, Method: "GET"}),
			when(says("proto", prefix("/p")), model.Match{Headers: []model.ValueMatch{{Name: "x-forwarded-proto", Value: "http"}}})),
		host(l.ID, "*.test", says("wild", prefix("/"))),
		host(l.ID, "*.deep.test", says("deep", prefix("/d"))),
		host(l.ID, "nothing.test"),
		host(l.ID, "forward.test",
			rewrite("to root", prefix("/a"), "/"), rewrite("to x", prefix("/b/"), "/x/"), rewrite("slash", text("/c"), "/y/"),
			rewrite("string", text("/d/"), "/z"), rewrite("exact", exact("/e/e"), "/f"), rewrite("regex", regex("/r/[0-9]+"), "/s"),
			socket, plain, forward("empty", "/none", "ns/none/80", 1), forward("broken", "/broken", "", 1), rewrite("all", prefix("/"), "/all")),
	}
	w.listen(l, xds.Options{}, hosts...)
	world := explain.World{
		Listeners: []model.Listener{l},
		VirtualHost: func(k model.HostKey) *model.VirtualHost {
			for i := range hosts {
				if hosts[i].HostKey == k {
					return &hosts[i]
				}
			}
			return nil
		},
		Group:   func(id model.GroupID) *model.BackendGroup { return &model.BackendGroup{ID: id, Set: model.SetID(id)} },
		Set:     func(id model.SetID) *model.BackendSet { return sets[id] },
		Serving: func(model.ListenerID) []string { return []string{"edge-1"} },
		Machines: []model.MachineStatus{
			{Name: "edge-1", Connected: true, Addresses: []string{"127.0.0.1"}, Proxy: model.ProxyStatus{State: "ready"}},
		},
	}

	check := func(method, name, target string, headers ...string) (status int) {
		t.Helper()
		var b strings.Builder
		fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, name)
		upgrade := false
		for _, h := range headers {
			b.WriteString(h + "\r\n")
			upgrade = upgrade || strings.HasPrefix(h, "Connection:")
		}
		if !upgrade {
			b.WriteString("Connection: close\r\n")
		}
		a, err := ask(l.Port, b.String()+"\r\n")
		if err != nil {
			t.Errorf("%s %s%s %q: %v", method, name, target, headers, err)
			return 0
		}
		r, err := explain.NewRequest(explain.Options{URL: "http://x" + target, Method: method, Headers: append([]string{"Host: " + name}, headers...)})
		must(t, err)
		r.Port = l.Port
		e := explain.Explain(r, world)
		got := fmt.Sprint(a.status)
		switch {
		case a.headers.Get("Backend") != "":
			got = "backend " + a.headers.Get("Backend")
		case a.status == 200:
			got = a.body
		}
		want := e.Answer.Text
		switch {
		case len(e.Answer.Outcomes) != 1:
		case e.Answer.Outcomes[0].Status == 0:
			want = "backend " + e.Route.Forward.Path
		case e.Answer.Outcomes[0].Status == 200:
			want = e.Route.Respond.Body
		default:
			want = fmt.Sprint(e.Answer.Outcomes[0].Status)
		}
		if got != want {
			t.Errorf("%s %s%s %q: Envoy gives %q, the explanation says %q (%s)", method, name, target, headers, got, want, e.Answer.Text)
		}
		return a.status
	}

	const ws, up = "Upgrade: websocket", "Connection: Upgrade"
	check("GET", "forward.test", "/a/b", ws, up)
	check("GET", "forward.test", "/a/b", "Upgrade: websocket", "Connection: close")
	check("GET", "forward.test", "/a/b", "Upgrade: h2c", "Connection: Upgrade")
	check("GET", "forward.test", "/ws", "Upgrade: other", up)
	check("GET", "forward.test", "/none", ws, up)
	check("POST", "forward.test", "/a/b", ws, up)
	check("GET", "forward.test", "/a/b", ws, up, "Content-Length: 0")
	check("GET", "forward.test", "/plain", ws, up)
	check("GET", "forward.test", "/plain")
	check("GET", "plain.test", "/plain", ws, up)
	check("GET", "plain.test", "/here", ws, up)
	check("GET", "plain.test", "/nowhere", ws, up)
	check("GET", "plain.test", "/nowhere", "Upgrade: other", up)
	check("GET", "forward.test", "/broken", ws, up)
	check("GET", "forward.test", "/ws", ws, "Connection: keep-alive, upgrade")
	check("GET", "paths.test", "/a", ws, up)
	check("GET", "paths.test", "/z", ws, up)
	check("GET", "nobody.example", "/", ws, up)
	check("GET", "nobody.example", "/")
	check("GET", "paths.test", "/a%00b")
	check("GET", "conditions.test", "/", "env: canary", "env: blue")
	check("GET", "conditions.test", "/", "env: blue", "env: canary")
	check("GET", "conditions.test", "/", "env: canary,blue")
	check("GET", "conditions.test", "/", "env: canary", "user: o", "user: jo")
	check("GET", "conditions.test", "/", "env:")
	for _, method := range strings.Fields("ACL BIND CHECKOUT COPY LINK LOCK M-SEARCH MSEARCH MERGE MKACTIVITY MKCALENDAR MKCOL MOVE NOTIFY OPTIONS PATCH PROPFIND " +
		"PROPPATCH PURGE PUT REBIND REPORT SEARCH SOURCE SUBSCRIBE TRACE UNBIND UNLINK UNLOCK UNSUBSCRIBE QUERY get FOO") {
		check(method, "paths.test", "/a")
	}

	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	seen := map[int]int{}
	for range 1500 {
		name := pick("paths.test", "paths.test", "Paths.TEST:80", "paths.test.", "conditions.test", "Conditions.test:81", "other.test", "a.b.test",
			"x.deep.test", "deep.test", "nothing.test", "forward.test", "forward.test", "test", ".test", "nobody.example", "[::1]:80", "127.0.0.1")
		target := "/" + pick("a", "A", "ab", "b", "c", "d", "e", "r", "v1", "x", "m", "p", "none", "broken", "%61", "a.b", "a%2Eb", "")
		for range random.IntN(4) {
			target += pick("/", "//", "/./", "/../", "/%2e%2E/", "/.", "/..", "/.../", "%2F", "%2f", "%5C", "/a", "/b", "/b", "/c", "/e", "/9", "xy", ".", "%7E", "%20")
		}
		target += pick("", "", "?q", "?q=", "?q=7", "?q=7x", "?q=a%20b", "?q=a+b", "?p=1&q=7&q=x", "?&&q=7", "?Q=7", "?q=a/../b")
		var headers []string
		for range random.IntN(3) {
			headers = append(headers, pick("env: canary", "Env: canary ", "env: Canary", "user: jo", "user: o", "x_under: 1", "X-Forwarded-Proto: https",
				"x-request-id: mine", "x-fairlead-scope: mine"))
		}
		seen[check(pick("GET", "GET", "POST", "DELETE"), name, target, headers...)]++
	}
	t.Logf("answers by status: %v", seen)
	for _, status := range []int{200, 404, 500, 503} {
		if seen[status] < 5 {
			t.Errorf("only %d answers with status %d: the questions do not try enough", seen[status], status)
		}
	}
}
