package xds_test

import (
	"bufio"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

func TestRedirects(t *testing.T) {
	w := newWorld(t)
	port := freePort(t)
	l := model.Listener{ID: model.SharedListener(model.ProtocolHTTP, port), Port: port, Protocol: model.ProtocolHTTP}
	eighty := model.Listener{ID: model.SharedListener(model.ProtocolHTTP, 80), Port: freePort(t), Protocol: model.ProtocolHTTP}
	to := func(kind model.PathRewriteKind, value string) *model.PathRewrite {
		return &model.PathRewrite{Kind: kind, Value: value}
	}
	exact := model.PathMatch{Kind: model.PathExact, Value: "/e"}
	regex := model.PathMatch{Kind: model.PathRegex, Value: "/r.*"}
	text := model.PathMatch{Kind: model.PathPrefix, Value: "/p"}
	cases := []struct {
		at       model.Listener
		host     string // as the key says it; "*" by default
		path     model.PathMatch
		redirect model.Redirect
		ask      string // host and path
		want     string
	}{
		{at: eighty, redirect: model.Redirect{Status: 301, Scheme: "https"}, ask: "a.test /x?q=1", want: "301 https://a.test/x?q=1"},
		{at: eighty, redirect: model.Redirect{Status: 301, Scheme: "https"}, ask: "a.test:80 /x", want: "301 https://a.test:443/x"},
		{at: l, redirect: model.Redirect{Status: 301, Scheme: "https"}, ask: "a.test:8080 /x", want: "301 https://a.test:443/x"},
		{at: l, host: "b.test", redirect: model.Redirect{Status: 301, Scheme: "https"}, ask: "B.test:8080 /x", want: "301 https://b.test/x"},
		{at: l, redirect: model.Redirect{Status: 302, Scheme: "https", Port: 8443}, ask: "a.test:8080 /x", want: "302 https://a.test:8443/x"},
		{at: l, redirect: model.Redirect{Status: 302, Scheme: "https", Port: 443}, ask: "a.test /x", want: "302 https://a.test/x"},
		{at: l, redirect: model.Redirect{Status: 303, Host: "c.test"}, ask: "a.test /x", want: fmt.Sprintf("303 http://c.test:%d/x", port)},
		{at: eighty, redirect: model.Redirect{Status: 303, Host: "c.test"}, ask: "a.test:80 /x", want: "303 http://c.test/x"},
		{at: l, redirect: model.Redirect{Status: 307, Host: "c.test", Scheme: "http"}, ask: "a.test /x", want: "307 http://c.test/x"},
		{at: l, redirect: model.Redirect{Status: 308, Port: 80}, ask: "a.test /x", want: "308 http://a.test/x"},
		{at: l, redirect: model.Redirect{Status: 308, Port: 80}, ask: "a.test:99 /x", want: "308 http://a.test:80/x"},
		{at: l, redirect: model.Redirect{Status: 302}, ask: "a.test /x", want: fmt.Sprintf("302 http://a.test:%d/x", port)},
		{at: eighty, redirect: model.Redirect{Status: 302, Path: to(model.RewriteFull, "/full")}, ask: "a.test /x/y?q=1", want: "302 http://a.test/full?q=1"},
		{at: eighty, path: prefix("/old"), redirect: model.Redirect{Status: 302, Path: to(model.RewritePrefix, "/new")}, ask: "a.test /old/y?q=1", want: "302 http://a.test/new/y?q=1"},
		{at: eighty, path: prefix("/old"), redirect: model.Redirect{Status: 302, Path: to(model.RewritePrefix, "/")}, ask: "a.test /old/y", want: "302 http://a.test/y"},
		{at: eighty, path: prefix("/old"), redirect: model.Redirect{Status: 302, Path: to(model.RewritePrefix, "")}, ask: "a.test /old", want: "302 http://a.test/"},
		{at: eighty, path: exact, redirect: model.Redirect{Status: 302, Path: to(model.RewritePrefix, "/new")}, ask: "a.test /e", want: "302 http://a.test/new"},
		{at: eighty, path: regex, redirect: model.Redirect{Status: 302, Path: to(model.RewritePrefix, "/new")}, ask: "a.test /r/x", want: "302 http://a.test/new"},
		{at: eighty, path: text, redirect: model.Redirect{Status: 302, Path: to(model.RewritePrefix, "/q")}, ask: "a.test /px", want: "302 http://a.test/qx"},
	}
	hosts := map[model.ListenerID][]model.VirtualHost{}
	for i, c := range cases {
		name := fmt.Sprintf("*.h%d.test", i)
		if c.host != "" {
			name = fmt.Sprintf("%s.h%d.test", c.host, i)
		}
		r := model.Route{Name: "r", Match: model.Match{Path: c.path}, Redirect: &c.redirect}
		r.ResponseHeaders = &model.HeaderEdits{Set: []model.Header{{Name: "x-edited", Value: "100%"}}}
		hosts[c.at.ID] = append(hosts[c.at.ID], host(c.at.ID, name, r))
	}
	w.listen(l, xds.Options{}, hosts[l.ID]...)
	// A later listener opens before its shards are there, unless they were awaited.
	rcs := shards(eighty.ID, hosts[eighty.ID])
	for _, rc := range rcs {
		w.set(rc)
	}
	for _, scope := range xds.Scopes(eighty.ID) {
		w.set(scope)
	}
	for _, rc := range rcs {
		must(t, w.ads.Acked(w.ctx, rdsURL, rc.Name))
	}
	w.set(xds.Listener(eighty, nil, xds.Options{}))
	w.accepting(eighty)
	for i, c := range cases {
		suffix := fmt.Sprintf(".h%d.test", i)
		name, path, _ := strings.Cut(c.ask, " ")
		name, given, _ := strings.Cut(name, ":")
		if given != "" {
			given = ":" + given
		}
		a := w.get(c.at.Port, name+suffix+given, path)
		got := fmt.Sprint(a.status, " ", strings.Replace(a.headers.Get("Location"), suffix, "", 1))
		if got != c.want || a.headers.Get("X-Edited") != "100%" {
			t.Errorf("%+v for %s: %s %v, want %s", c.redirect, c.ask, got, a.headers, c.want)
		}
	}
}

func TestHeaderEdits(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	echo := w.serve(func(rw http.ResponseWriter, q *http.Request) {
		rw.Header().Set("X-Old", "backend")
		rw.Header().Set("X-Both", "backend")
		rw.Header().Set("X-Gone", "backend")
		var lines []string
		for name, values := range q.Header {
			lines = append(lines, fmt.Sprintf("%s: %s", name, strings.Join(values, ",")))
		}
		slices.Sort(lines)
		fmt.Fprintf(rw, "%s %s\n%s\n", q.Host, q.URL.RequestURI(), strings.Join(lines, "\n"))
	})
	w.group("ns/a/80", echo)
	w.group("ns/b/80", echo)
	w.group("ns/none/80")
	set := func(name, value string) model.HeaderEdits {
		return model.HeaderEdits{Set: []model.Header{{Name: name, Value: value}}}
	}
	request := &model.HeaderEdits{
		Set:    []model.Header{{Name: "x-set", Value: "set %REQ(host)% 100%"}, {Name: "x-share", Value: "route"}, {Name: "x-empty", Value: ""}},
		Add:    []model.Header{{Name: "x-add", Value: "more"}},
		Remove: []string{"x-gone"},
	}
	response := &model.HeaderEdits{
		Set: []model.Header{{Name: "x-old", Value: "new"}, {Name: "x-share", Value: "route"}},
		Add: []model.Header{{Name: "x-both", Value: "proxy"}}, Remove: []string{"x-gone"},
	}
	edited := func(r model.Route) model.Route {
		r.RequestHeaders, r.ResponseHeaders = request, response
		return r
	}
	share := edited(forward("share", "/share", "ns/a/80", 1))
	fromShare := set("x-share", "share")
	share.Forward.Backends[0].RequestHeaders, share.Forward.Backends[0].ResponseHeaders = &fromShare, &fromShare
	two := forward("two", "/two", "ns/a/80", 1, "ns/b/80", 1)
	for i := range two.Forward.Backends {
		e := set("x-share", fmt.Sprint(two.Forward.Backends[i].Group))
		two.Forward.Backends[i].RequestHeaders, two.Forward.Backends[i].ResponseHeaders = &e, &e
	}
	hostSet, hostRewrite, full := forward("host", "/hostset", "ns/a/80", 1), forward("rewrite", "/host", "ns/a/80", 1), forward("full", "/full", "ns/a/80", 1)
	e := set("host", "set.test")
	hostSet.RequestHeaders = &e
	hostRewrite.Forward.Host = "other.test"
	full.Forward.Path = &model.PathRewrite{Kind: model.RewriteFull, Value: `/whole\1/path`}
	w.listen(l, xds.Options{}, host(l.ID, "a.test",
		edited(forward("edit", "/edit", "ns/a/80", 1)), share, two, hostSet, hostRewrite, full,
		edited(forward("none", "/none", "ns/none/80", 1)), edited(forward("broken", "/broken", "", 1)),
		edited(says("said", prefix("/said")))))

	a := w.get(l.Port, "a.test", "/edit", "X-Set: old", "X-Add: old", "X-Gone: old", "X-Empty: old")
	for _, want := range []string{"a.test /edit\n", "X-Set: set %REQ(host)% 100%\n", "X-Add: old,more\n", "X-Share: route\n", "X-Empty: \n"} {
		if !strings.Contains(a.body, want) {
			t.Errorf("no %q in\n%s", want, a.body)
		}
	}
	if strings.Contains(a.body, "X-Gone") {
		t.Errorf("x-gone is there:\n%s", a.body)
	}
	if h := a.headers; h.Get("X-Old") != "new" || strings.Join(h.Values("X-Both"), ",") != "backend,proxy" || h.Get("X-Gone") != "" || h.Get("X-Share") != "route" {
		t.Errorf("response has %v", h)
	}
	if a := w.get(l.Port, "a.test", "/share"); !strings.Contains(a.body, "X-Share: share\n") || a.headers.Get("X-Share") != "share" || a.headers.Get("X-Old") != "new" {
		t.Errorf("a share edits after its route: %v\n%s", a.headers, a.body)
	}
	seen := map[string]bool{}
	for range 100 {
		a := w.get(l.Port, "a.test", "/two")
		by := a.headers.Get("X-Share")
		seen[by] = true
		if !strings.Contains(a.body, "X-Share: "+by+"\n") {
			t.Errorf("share %q: %s", by, a.body)
		}
	}
	if len(seen) != 2 {
		t.Errorf("shares seen: %v", seen)
	}
	for path, want := range map[string]string{"/hostset": "set.test /hostset\n", "/host": "other.test /host\n", "/full/x?q=1": "a.test /whole%5C1/path?q=1\n"} {
		if a := w.get(l.Port, "a.test", path); !strings.HasPrefix(a.body, want) {
			t.Errorf("%s arrives as %q, want %q", path, a.body, want)
		}
	}
	for path, status := range map[string]int{"/said": 200, "/broken": 500, "/none": 503} {
		if a := w.get(l.Port, "a.test", path); a.status != status || a.headers.Get("X-Old") != "new" {
			t.Errorf("%s: %d %v, want %d with the edits", path, a.status, a.headers, status)
		}
	}
}

func TestMirrors(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.group("ns/a/80", w.backend("a"))
	var all, part, none atomic.Int64
	var shadow atomic.Value
	count := func(n *atomic.Int64) http.HandlerFunc {
		return func(_ http.ResponseWriter, q *http.Request) {
			shadow.Store(q.Host + " " + q.URL.RequestURI())
			n.Add(1)
		}
	}
	w.group("ns/all/80", w.serve(count(&all)))
	w.group("ns/part/80", w.serve(count(&part)))
	w.group("ns/zero/80", w.serve(count(&none)))
	r := forward("m", "/", "ns/a/80", 1)
	r.Forward.Mirrors = []model.Mirror{
		{Group: "ns/all/80", Numerator: 100, Denominator: 100},
		{Group: "ns/part/80", Numerator: 1, Denominator: 4},
		{Group: "ns/zero/80", Numerator: 0, Denominator: 100},
		{Group: ""},
	}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", r))
	const n = 1000
	for range n {
		if a := w.get(l.Port, "a.test:81", "/x?q=1"); a.headers.Get("Backend") != "a" {
			t.Fatalf("%d %q", a.status, a.body)
		}
	}
	must(t, w.envoy.Until(w.ctx, "all copies", func() bool { return all.Load() == n }))
	// Binomial with p 1/4; six standard deviations either side.
	if got := part.Load(); got < 250-83 || got > 250+83 || none.Load() != 0 {
		t.Errorf("a quarter of %d copies: %d; none of them: %d", n, got, none.Load())
	}
	if got := shadow.Load(); got != "a.test:81 /x?q=1" {
		t.Errorf("the copy is %q", got)
	}
}

func TestCORS(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.group("ns/a/80", w.backend("a"))
	with := func(path string, c model.CORS) model.Route {
		r := forward(path, path, "ns/a/80", 1)
		c.MaxAge = 3600 * time.Second
		r.CORS = &c
		return r
	}
	get := with("/get", model.CORS{Origins: []string{"https://www.foo.com"}, Methods: []string{"GET"}})
	get.Match.Method = "GET"
	moved := with("/moved", model.CORS{Origins: []string{"https://*.bar.com", "https://f.com"}, Methods: []string{"*"}, Headers: []string{"x-1"}, Credentials: true})
	moved.Forward, moved.Redirect = nil, &model.Redirect{Status: 302, Host: "new.test"}
	w.listen(l, xds.Options{}, host(l.ID, "a.test",
		with("/list", model.CORS{
			Origins: []string{"https://www.foo.com", "https://*.bar.com", "http://x.com:80"}, Methods: []string{"GET", "OPTIONS"},
			Headers: []string{"x-header-1", "x-header-2"}, Expose: []string{"x-header-3", "x-header-4"}, Credentials: true,
		}),
		with("/any", model.CORS{Origins: []string{"*"}, Methods: []string{"*"}, Headers: []string{"*"}}),
		with("/credentials", model.CORS{Origins: []string{"*"}, Methods: []string{"*"}, Headers: []string{"*"}, Expose: []string{"*"}, Credentials: true}),
		moved, get, forward("other", "/", "ns/a/80", 1)))
	const (
		origin      = "Access-Control-Allow-Origin"
		methods     = "Access-Control-Allow-Methods"
		headers     = "Access-Control-Allow-Headers"
		expose      = "Access-Control-Expose-Headers"
		age         = "Access-Control-Max-Age"
		credentials = "Access-Control-Allow-Credentials"
	)
	ask := func(method, path, from string, more ...string) answer {
		t.Helper()
		request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: a.test\r\nOrigin: %s\r\n%s\r\n\r\n", method, path, from, strings.Join(append(more, "X-End: 1"), "\r\n"))
		return w.raw(l.Port, request)
	}
	preflight := func(path, from, method string, want map[string]string) {
		t.Helper()
		a := ask("OPTIONS", path, from, "Access-Control-Request-Method: "+method, "Access-Control-Request-Headers: x-header-1, x-header-2")
		if a.status != 200 || a.headers.Get("Backend") != "" {
			t.Errorf("preflight of %s at %s: %d from %q", from, path, a.status, a.headers.Get("Backend"))
		}
		for _, h := range []string{origin, methods, headers, expose, age, credentials} {
			if got := strings.Join(a.headers.Values(h), "|"); got != want[h] {
				t.Errorf("preflight of %s at %s: %s is %q, want %q", from, path, h, got, want[h])
			}
		}
	}
	// Without the origin browsers look at nothing else.
	stranger := func(path, from string) {
		t.Helper()
		a := ask("OPTIONS", path, from, "Access-Control-Request-Method: GET")
		if _, there := a.headers[origin]; there || a.status != 200 || a.headers.Get("Backend") != "" {
			t.Errorf("preflight of %s at %s: %d %v", from, path, a.status, a.headers)
		}
	}
	for _, from := range []string{"https://www.foo.com", "https://www.bar.com", "https://xpto.www.bar.com", "http://x.com"} {
		preflight("/list", from, "GET", map[string]string{
			origin: from, methods: "GET, OPTIONS", headers: "x-header-1, x-header-2", expose: "x-header-3, x-header-4", age: "3600", credentials: "true",
		})
		if a := ask("GET", "/list", from); a.headers.Get("Backend") != "a" || a.headers.Get(origin) != from || a.headers.Get(credentials) != "true" {
			t.Errorf("%s: %d %v", from, a.status, a.headers)
		}
	}
	for _, from := range []string{"https://foobar.com", "http://www.foo.com", "https://bar.com", "https://evil.com:1/.bar.com"} {
		stranger("/list", from)
		if a := ask("GET", "/list", from); a.headers.Get("Backend") != "a" || a.headers.Get(origin) != "" {
			t.Errorf("%s: %d %v", from, a.status, a.headers)
		}
	}
	preflight("/any", "https://f.com:12345", "PUT", map[string]string{origin: "https://f.com:12345", methods: "PUT", headers: "x-header-1, x-header-2", age: "3600"})
	preflight("/credentials", "https://f.com", "PUT", map[string]string{
		origin: "https://f.com", methods: "PUT", headers: "x-header-1, x-header-2", age: "3600", credentials: "true",
	})
	a := ask("OPTIONS", "/credentials", "https://f.com", "Access-Control-Request-Method: PUT")
	if a.status != 200 || a.headers.Get(headers) != "" || a.headers.Get(methods) != "PUT" {
		t.Errorf("nothing asked of headers: %d %v", a.status, a.headers)
	}
	if a := ask("GET", "/credentials", "https://f.com"); a.headers.Get("Backend") != "a" || a.headers.Get(origin) != "https://f.com" || a.headers.Get(expose) != "" {
		t.Errorf("%d %v", a.status, a.headers)
	}
	preflight("/get", "https://www.foo.com", "GET", map[string]string{origin: "https://www.foo.com", methods: "GET", age: "3600"})
	stranger("/get", "https://evil.com")
	if a := ask("OPTIONS", "/get", "https://www.foo.com", "Access-Control-Request-Method: PUT"); a.headers.Get("Backend") != "a" {
		t.Errorf("a preflight for another method is another route's: %d %v", a.status, a.headers)
	}
	preflight("/moved", "https://a.bar.com", "PUT", map[string]string{
		origin: "https://a.bar.com", methods: "PUT", headers: "x-1", age: "3600", credentials: "true",
	})
	if a := ask("GET", "/moved", "https://f.com"); a.status != 302 || a.headers.Get(origin) != "https://f.com" || a.headers.Get(credentials) != "true" || a.headers.Get(methods) != "" {
		t.Errorf("a redirect that scripts may read: %d %v", a.status, a.headers)
	}
	if a := ask("GET", "/moved", "https://g.com"); a.status != 302 || a.headers.Get(origin) != "" {
		t.Errorf("a redirect that scripts may not read: %d %v", a.status, a.headers)
	}
	if a := ask("OPTIONS", "/list", "https://www.foo.com"); a.headers.Get("Backend") != "a" {
		t.Errorf("no preflight, but an OPTIONS request: %d %v", a.status, a.headers)
	}
}

func TestRetries(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	var tries atomic.Int64
	w.group("ns/a/80", w.serve(func(rw http.ResponseWriter, q *http.Request) {
		tries.Add(1)
		var code int
		_, _ = fmt.Sscan(q.URL.Query().Get("code"), &code)
		rw.WriteHeader(code)
	}))
	retry := func(name string, r model.Retry) model.Route {
		f := forward(name, "/"+name, "ns/a/80", 1)
		r.Backoff = time.Millisecond
		f.Forward.Retry = &r
		return f
	}
	w.listen(l, xds.Options{}, host(l.ID, "a.test",
		retry("codes", model.Retry{Attempts: 3, Codes: []uint32{404, 500}}),
		retry("errors", model.Retry{Attempts: 2, ServerErrors: true}),
		retry("none", model.Retry{Attempts: 2}),
		forward("plain", "/", "ns/a/80", 1)))
	for _, c := range []struct {
		path string
		want int64
	}{
		{"/codes?code=500", 4},
		{"/codes?code=404", 4},
		{"/codes?code=503", 1},
		{"/codes?code=200", 1},
		{"/errors?code=503", 3},
		{"/errors?code=404", 1},
		{"/none?code=503", 1},
		{"/?code=503", 1},
	} {
		tries.Store(0)
		a := w.get(l.Port, "a.test", c.path)
		if want := strings.TrimPrefix(c.path[strings.Index(c.path, "="):], "="); fmt.Sprint(a.status) != want || tries.Load() != c.want {
			t.Errorf("%s: %d after %d tries, want %d", c.path, a.status, tries.Load(), c.want)
		}
	}
}

// A try without a response is repeated: a safe one whose connection breaks after the request was
// sent, and where the route retries (HTTPRouteRetry) one that takes too long.
func TestRetriesWithoutAResponse(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	var tries atomic.Int64
	w.group("ns/a/80", w.serve(func(rw http.ResponseWriter, q *http.Request) {
		switch first := tries.Add(1) == 1; {
		case first && q.URL.Path == "/slow":
			<-q.Context().Done()
		case first:
			panic(http.ErrAbortHandler)
		}
	}))
	slow, cut, try, plain := forward("slow", "/slow", "ns/a/80", 1), forward("cut", "/cut", "ns/a/80", 1), forward("try", "/try", "ns/a/80", 1), forward("plain", "/plain", "ns/a/80", 1)
	try.Forward.TryTimeout, try.Forward.Timeout = 3*time.Second, model.Never
	slow.Forward.Retry, slow.Forward.TryTimeout, slow.Forward.Timeout = &model.Retry{Attempts: 3, Codes: []uint32{500}}, 3*time.Second, model.Never
	cut.Forward.Retry = &model.Retry{Attempts: 3}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", slow, cut, try, plain))
	for path, want := range map[string]int{"/slow": 200, "/cut": 200, "/try": 503, "/plain": 200} {
		tries.Store(0)
		if a := w.get(l.Port, "a.test", path); a.status != want || (tries.Load() > 1) != (want == 200) {
			t.Errorf("%s: %d after %d tries, want %d", path, a.status, tries.Load(), want)
		}
	}
}

func TestSticky(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.group("ns/a/80", w.backend("1"), w.backend("2"), w.backend("3"))
	cookie, header, lasting := forward("cookie", "/cookie", "ns/a/80", 1), forward("header", "/header", "ns/a/80", 1), forward("lasting", "/lasting", "ns/a/80", 1)
	cookie.Forward.Sticky = &model.Sticky{Name: "sid", Path: "/cookie"}
	header.Forward.Sticky = &model.Sticky{Name: "x-sid", Header: true}
	lasting.Forward.Sticky = &model.Sticky{Name: "sid", Lifetime: time.Hour}
	w.group("ns/b/80", w.backend("4"), w.backend("5"))
	split := forward("split", "/split", "ns/a/80", 1, "ns/b/80", 1)
	split.Forward.Sticky = &model.Sticky{Name: "both"}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", cookie, header, lasting, split, forward("plain", "/", "ns/a/80", 1)))
	seen := map[string]bool{}
	for range 20 {
		first := w.get(l.Port, "a.test", "/split")
		seen[first.headers.Get("Backend")] = true
		var cookies []string
		for _, c := range first.headers.Values("Set-Cookie") {
			value, _, _ := strings.Cut(c, ";")
			cookies = append(cookies, value)
		}
		for range 10 {
			a := w.get(l.Port, "a.test", "/split", "Cookie: "+strings.Join(cookies, "; "))
			if a.headers.Get("Backend") != first.headers.Get("Backend") {
				t.Fatalf("with %q from %q to %q", cookies, first.headers.Get("Backend"), a.headers.Get("Backend"))
			}
		}
	}
	if len(seen) < 3 {
		t.Errorf("sessions began at %v only", seen)
	}
	if a := w.get(l.Port, "a.test", "/"); a.headers.Get("Set-Cookie") != "" {
		t.Errorf("a route without sessions set %q", a.headers.Get("Set-Cookie"))
	}
	first := w.get(l.Port, "a.test", "/cookie")
	set := first.headers.Get("Set-Cookie")
	value, attributes, _ := strings.Cut(set, ";")
	if !strings.HasPrefix(value, "sid=") || !strings.Contains(attributes, "Path=/cookie") || strings.Contains(attributes, "Max-Age") {
		t.Fatalf("cookie %q", set)
	}
	if a := w.get(l.Port, "a.test", "/lasting"); !strings.Contains(a.headers.Get("Set-Cookie"), "Max-Age=3600") {
		t.Errorf("cookie %q", a.headers.Get("Set-Cookie"))
	}
	id := w.get(l.Port, "a.test", "/header")
	if id.headers.Get("X-Sid") == "" {
		t.Fatalf("no session: %v", id.headers)
	}
	for range 20 {
		if a := w.get(l.Port, "a.test", "/cookie", "Cookie: a=b; "+value); a.headers.Get("Backend") != first.headers.Get("Backend") {
			t.Fatalf("cookie moved from %q to %q", first.headers.Get("Backend"), a.headers.Get("Backend"))
		}
		if a := w.get(l.Port, "a.test", "/header", "X-Sid: "+id.headers.Get("X-Sid")); a.headers.Get("Backend") != id.headers.Get("Backend") {
			t.Fatalf("header moved from %q to %q", id.headers.Get("Backend"), a.headers.Get("Backend"))
		}
	}
	if a := w.get(l.Port, "a.test", "/cookie", "Cookie: sid=forged"); a.status != 200 {
		t.Errorf("a forged cookie: %d", a.status)
	}
}

// TestSessionsWhileDraining holds that a client with a session stays at its backend while
// that drains, and goes when it takes nothing any more.
func TestSessionsWhileDraining(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	g := model.BackendGroup{ID: "ns/a/80", Set: "ns/a/80"}
	b1, b2 := w.backend("1"), w.backend("2")
	w.serveGroup(g, b1, b2)
	r := forward("r", "/", "ns/a/80", 1)
	r.Forward.Sticky = &model.Sticky{Name: "x-sid", Header: true}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", r))
	var id string
	for id == "" {
		if a := w.get(l.Port, "a.test", "/"); a.headers.Get("Backend") == "1" {
			id = a.headers.Get("X-Sid")
		}
	}
	for _, c := range []struct {
		state model.BackendState
		want  string
	}{{model.BackendDraining, "1"}, {model.BackendUnready, "2"}} {
		w.set(xds.LoadAssignment(g, model.BackendSet{ID: g.Set, Backends: []model.Backend{{Address: b1, State: c.state}, {Address: b2}}}, nil))
		must(t, w.ads.Acked(w.ctx, edsURL, xds.EndpointsName(g)))
		for range 10 {
			if a := w.get(l.Port, "a.test", "/", "X-Sid: "+id); a.headers.Get("Backend") != c.want {
				t.Fatalf("%v: a session goes to %q, want %q", c.state, a.headers.Get("Backend"), c.want)
			}
			if a := w.get(l.Port, "a.test", "/"); a.headers.Get("Backend") != "2" {
				t.Fatalf("%v: a newcomer goes to %q", c.state, a.headers.Get("Backend"))
			}
		}
	}
}

func TestTimeouts(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.group("ns/hang/80", w.serve(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }))
	stream, try := forward("stream", "/stream", "ns/hang/80", 1), forward("try", "/try", "ns/hang/80", 1)
	stream.Forward.Stream = true
	try.Forward.Timeout, try.Forward.TryTimeout = model.Never, 50*time.Millisecond
	h := host(l.ID, "a.test", stream, try)
	w.listen(l, xds.Options{}, h)
	a := w.get(l.Port, "a.test", "/stream", "Content-Type: application/grpc", "Grpc-Timeout: 50m", "Te: trailers")
	if a.status != 200 || a.headers.Get("Grpc-Status") != "4" {
		t.Errorf("a gRPC client's deadline: %d %v, want status 4", a.status, a.headers)
	}
	if a := w.get(l.Port, "a.test", "/try"); a.status != 504 {
		t.Errorf("one try too long: %d, want 504", a.status)
	}

	// What takes longer than a test.
	timeouts := func(f model.Forward) string {
		f.Backends = []model.WeightedGroup{{Group: "g", Weight: 1}}
		v := xds.VirtualHost(host(l.ID, "h", model.Route{Name: "r", Match: model.Match{Path: prefix("/")}, Forward: &f}))
		r := v.GetRoutes()[0].GetRoute()
		text := func(d *durationpb.Duration) string {
			if d == nil {
				return "default"
			}
			return d.AsDuration().String()
		}
		return text(r.GetTimeout()) + " idle " + text(r.GetIdleTimeout())
	}
	for _, c := range []struct {
		forward model.Forward
		want    string
	}{
		{model.Forward{}, "0s idle default"},
		{model.Forward{Timeout: time.Minute}, "1m0s idle default"},
		{model.Forward{Timeout: time.Hour}, "1h0m0s idle 1h0m0s"},
		{model.Forward{Timeout: model.Never}, "0s idle 0s"},
		{model.Forward{Stream: true}, "0s idle 1h0m0s"},
		{model.Forward{Stream: true, Timeout: time.Minute}, "1m0s idle 1h0m0s"},
		{model.Forward{WebSocket: true}, "0s idle 1h0m0s"},
	} {
		if got := timeouts(c.forward); got != c.want {
			t.Errorf("%+v: %s, want %s", c.forward, got, c.want)
		}
	}
}

// TestLongAnswers: an answer that goes on is not cut after Envoy's 15 s. Silence is, and what has
// a timeout.
func TestLongAnswers(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	impatient := model.Listener{ID: "http-2", Port: freePort(t), Protocol: model.ProtocolHTTP, Clients: &model.ClientSettings{IdleTimeout: 200 * time.Millisecond}}
	const events = 17 // seconds, longer than Envoy's default
	w.group("ns/events/80", w.serve(func(rw http.ResponseWriter, q *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		ticks := time.NewTicker(time.Second)
		defer ticks.Stop()
		for i := range events {
			fmt.Fprintf(rw, "data: %d\n\n", i)
			if err := http.NewResponseController(rw).Flush(); err != nil {
				return
			}
			select {
			case <-ticks.C:
			case <-q.Context().Done():
				return
			}
		}
	}))
	w.group("ns/hang/80", w.serve(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }))
	short := forward("short", "/short", "ns/events/80", 1)
	short.Forward.Timeout = 1500 * time.Millisecond
	routes := []model.Route{short, forward("hang", "/hang", "ns/hang/80", 1), forward("events", "/", "ns/events/80", 1)}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", routes...))
	w.listen(impatient, xds.Options{}, host(impatient.ID, "a.test", routes...))
	read := func(path string) (n int, err error) {
		q, err := http.NewRequestWithContext(w.ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", l.Port, path), nil)
		if err != nil {
			return 0, err
		}
		q.Host = "a.test"
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			return 0, err
		}
		defer r.Body.Close()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				n++
			}
		}
		return n, lines.Err()
	}
	if n, err := read("/"); n != events || err != nil {
		t.Errorf("%d events of %d: %v", n, events, err)
	}
	if n, err := read("/short"); n == events || err == nil {
		t.Errorf("with a timeout of 1.5 s all %d events came: %v", n, err)
	}
	if a := w.get(impatient.Port, "a.test", "/hang"); a.status != 504 {
		t.Errorf("a backend that is silent: %d %q, want 504", a.status, a.body)
	}
}
