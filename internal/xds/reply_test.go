package xds_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// scripted answers each request with a text; without one it ends the connection.
func (w *world) scripted(text string) netip.AddrPort {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(w.t, err)
	w.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for r := bufio.NewReader(c); ; {
					q, err := http.ReadRequest(r)
					if err != nil {
						return
					}
					if _, err = io.Copy(io.Discard, q.Body); err != nil || text == "" {
						return
					}
					if _, err = io.WriteString(c, text); err != nil {
						return
					}
				}
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// troubled is a listener whose routes go wrong, each in its own way.
func (w *world) troubled(clients *model.ClientSettings, pages *model.ErrorPages) model.Listener {
	w.t.Helper()
	l := model.Listener{ID: "http-1", Port: freePort(w.t), Protocol: model.ProtocolHTTP, Clients: clients}
	w.group("ns/echo/1", w.backend("echo"))
	w.group("ns/dead/1", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(w.t)))
	w.group("ns/empty/1")
	w.group("ns/ends/1", w.scripted(""))
	w.group("ns/babble/1", w.scripted("hello\r\n\r\n"))
	w.group("ns/own/1", w.serve(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Backend", "own")
		rw.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(rw, "the backend's own")
	}))
	silent := make(chan struct{})
	w.group("ns/slow/1", w.serve(func(http.ResponseWriter, *http.Request) { <-silent }))
	w.t.Cleanup(func() { close(silent) })
	var routes []model.Route
	for _, name := range []string{"echo", "dead", "empty", "ends", "babble", "own", "slow"} {
		r := forward(name, "/"+name, "ns/"+name+"/1", 1)
		r.Forward.Timeout = 2 * time.Second
		routes = append(routes, r)
	}
	for name, p := range map[string]*model.RoutePolicy{
		"/shut":    {Addresses: &model.AddressFilter{Deny: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}},
		"/small":   {MaxRequestBytes: 3},
		"/limited": {RateLimit: &model.RateLimit{Requests: 1, Per: time.Hour, Burst: 1}},
	} {
		r := forward(name, name, "ns/echo/1", 1)
		r.Policy = p
		routes = append(routes, r)
	}
	routes = append(routes, forward("broken", "/broken", "", 1))
	if pages != nil {
		for i := range routes {
			routes[i].Policy = routes[i].Policy.Or(&model.RoutePolicy{ErrorPages: pages})
		}
	}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", routes...))
	w.eventually("the routes", func() error {
		if a, err := ask(l.Port, get("/echo")); err != nil || a.status != 200 {
			return fmt.Errorf("%d, %w", a.status, err)
		}
		return nil
	})
	return l
}

func get(path string, headers ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: a.test\r\n" + strings.Join(append(headers, "Connection: close"), "\r\n") + "\r\n\r\n"
}

// TestRepliesInPlainWords holds what clients are told where the proxy itself answers: a line that somebody who knows
// nothing of proxies can read, and never nothing.
func TestRepliesInPlainWords(t *testing.T) {
	w := newWorld(t)
	l := w.troubled(nil, nil)
	w.get(l.Port, "a.test", "/limited")
	for request, want := range map[string]string{
		get("/"):        "404 nothing is served here\n",
		get("/empty"):   "503 no backend is available\n",
		get("/dead"):    "503 the backend cannot be reached\n",
		get("/ends"):    "503 the backend ended the connection\n",
		get("/babble"):  "502 the backend's response is malformed\n",
		get("/slow"):    "504 the backend did not answer in time\n",
		get("/shut"):    "403 clients from this address are not allowed\n",
		get("/limited"): "429 too many requests\n",
		get("/broken"):  "500 the route refers to an object that does not exist or that it may not use\n",
		get("/own"):     "503 the backend's own",
		"POST /small HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nConnection: close\r\n\r\n1234": "413 the request is too large\n",
		"GET / HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n":                                "404 nothing is served here\n",
		"GET / HTTP/1.1\r\nConnection: close\r\n\r\n":                                                "400 the request has no host\n",
		get("/a%00b"): "400 the path is malformed\n",
		get("/echo", "Upgrade: foo", "Connection: upgrade"): "400 connections are upgraded to WebSockets only\n",
	} {
		a, err := ask(l.Port, request)
		got := a.body
		if !strings.HasPrefix(got, fmt.Sprint(a.status)) {
			got = fmt.Sprint(a.status) + " " + got
		}
		if err != nil || got != want {
			t.Errorf("%.40q: %q, %v; want %q", request, got, err, want)
		}
	}
	// Of a call of gRPC it is the message.
	a := w.raw(l.Port, get("/dead", "Content-Type: application/grpc", "TE: trailers"))
	if a.status != 200 || a.headers.Get("Grpc-Status") != "14" || !strings.HasPrefix(a.headers.Get("Grpc-Message"), "503 the backend cannot be reached") {
		t.Errorf("gRPC: %d %v", a.status, a.headers)
	}
}

// TestErrorPages holds which page is shown in place of which error: that of the route's policy, else that of the
// listener, else the line.
func TestErrorPages(t *testing.T) {
	const kind = "text/html; charset=utf-8"
	page := func(body string, backends bool, statuses ...string) model.ErrorPage {
		return model.ErrorPage{Statuses: statuses, ContentType: kind, Body: body, Backends: backends}
	}
	w := newWorld(t)
	l := w.troubled(&model.ClientSettings{ErrorPages: []model.ErrorPage{
		page("<h1>100% lost</h1>", false, "404"), page("<h1>the listener's</h1>", false, "403", "5xx"),
	}}, &model.ErrorPages{Pages: []model.ErrorPage{page("<h1>the route's %RESPONSE_CODE%</h1>", false, "503", "504"), page("<h1>others</h1>", true, "500", "503")}})
	for path, want := range map[string]string{
		"/nothing": "<h1>100% lost</h1>",
		"/shut":    "<h1>the listener's</h1>",
		"/babble":  "<h1>the listener's</h1>",
		"/dead":    "<h1>the route's %RESPONSE_CODE%</h1>",
		"/slow":    "<h1>the route's %RESPONSE_CODE%</h1>",
		"/broken":  "<h1>others</h1>",
		"/own":     "<h1>others</h1>",
	} {
		a := w.get(l.Port, "a.test", path)
		if a.body != want || a.headers.Get("Content-Type") != kind || a.headers.Get("Backend") != "" {
			t.Errorf("%s: %d %q %v, want %q", path, a.status, a.body, a.headers, want)
		}
	}
	for path, want := range map[string]int{"/nothing": 404, "/shut": 403, "/babble": 502, "/dead": 503, "/slow": 504, "/own": 503, "/broken": 500} {
		if a := w.raw(l.Port, "HEAD "+path+" HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"); a.status != want || a.body != "" {
			t.Errorf("HEAD %s: %d %q, want %d", path, a.status, a.body, want)
		}
	}
	if a := w.raw(l.Port, "POST /small HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\nConnection: close\r\n\r\n1234"); a.body != "413 the request is too large\n" {
		t.Errorf("without a page: %d %q", a.status, a.body)
	}
	if a := w.raw(l.Port, get("/echo", "Upgrade: foo", "Connection: upgrade")); a.body != "400 connections are upgraded to WebSockets only\n" {
		t.Errorf("without a page: %d %q", a.status, a.body)
	}
	for _, path := range []string{"/dead", "/nothing"} {
		if a := w.raw(l.Port, get(path, "Content-Type: application/grpc+proto", "TE: trailers")); a.status != 200 || strings.Contains(a.headers.Get("Grpc-Message"), "h1") {
			t.Errorf("gRPC %s: %d %v", path, a.status, a.headers)
		}
	}
}

// TestOddMessages holds what becomes of messages that are right and rare, as limits.md has it.
func TestOddMessages(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	var many strings.Builder
	for i := range 900 {
		fmt.Fprintf(&many, "x-%d: v\r\n", i)
	}
	w.group("ns/echo/1", w.backend("echo"))
	w.group("ns/many/1", w.scripted("HTTP/1.1 200 OK\r\n"+many.String()+"Content-Length: 2\r\n\r\nok"))
	w.group("ns/early/1", w.scripted("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	w.group("ns/trailers/1", w.scripted("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n2\r\nok\r\n0\r\nX-T: yes\r\n\r\n"))
	w.group("ns/switches/1", w.scripted("HTTP/1.1 101 Switching Protocols\r\nUpgrade: foo\r\nConnection: upgrade\r\n\r\nhello"))
	var routes []model.Route
	for _, name := range []string{"echo", "many", "early", "trailers", "switches"} {
		routes = append(routes, forward(name, "/"+name, "ns/"+name+"/1", 1))
	}
	w.listen(l, xds.Options{}, host(l.ID, "a.test", routes...))
	line := func(request string) (int, string) {
		a := w.raw(l.Port, request)
		first, _, _ := strings.Cut(a.body, "\n")
		return a.status, first
	}
	for request, want := range map[string]string{
		"GET /echo HTTP/1.1\r\nHost: a.test:\r\nConnection: close\r\n\r\n":     "200 echo a.test /echo",
		"GET /echo HTTP/1.1\r\nHost: A.test.:80\r\nConnection: close\r\n\r\n":  "200 echo A.test:80 /echo",
		"PROPFIND /echo HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n": "200 echo a.test /echo",
		"INVENTED /echo HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n": "400 Bad Request",
		"QUERY /echo HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n":    "400 400 a QUERY request needs a Content-Type",
		"GET /many HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n":      "200 ok",
		"GET /early HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n":     "200 ok",
		"GET /trailers HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n":  "200 ok",
		"GET /switches HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n":  "101 ",
		"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n":              "404 404 nothing is served here",
	} {
		if status, body := line(request); fmt.Sprint(status, " ", body) != want {
			t.Errorf("%.40q: %d %q, want %q", request, status, body, want)
		}
	}
}
