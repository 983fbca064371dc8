package xds_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// client is a raw connection to a listener.
type client struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, port uint16) *client {
	t.Helper()
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	return &client{t: t, Conn: c, r: bufio.NewReader(c)}
}

// ask sends bytes and reads a response; 0 says that the connection ended instead.
func (c *client) ask(request string) (status int, header http.Header, body string) {
	c.t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		return 0, nil, ""
	}
	r, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0, nil, ""
	}
	defer r.Body.Close()
	all, _ := io.ReadAll(r.Body) // a connection may end in it
	return r.StatusCode, r.Header, string(all)
}

const plainGet = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"

// TestClientSettings: what a policy says of clients holds, and defaults hold without.
func TestClientSettings(t *testing.T) {
	w := newWorld(t)
	w.group("ns/app/1", w.backend("app"))
	n := 0
	listen := func(c model.ClientSettings) uint16 {
		t.Helper()
		n++
		l := model.Listener{ID: model.ListenerID(fmt.Sprintf("http-1_ns_%d", n)), Port: freePort(t), Protocol: model.ProtocolHTTP, Clients: &c}
		w.listen(l, xds.Options{}, host(l.ID, "a.test", forward("r", "/", "ns/app/1", 1)))
		w.routed(l.ID)
		return l.Port
	}

	t.Run("PROXY protocol", func(t *testing.T) {
		port := listen(model.ClientSettings{AcceptProxyProtocol: true})
		v1 := "PROXY TCP4 192.0.2.9 192.0.2.1 4711 80\r\n"
		v2 := "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + "\xc0\x00\x02\x09\xc0\x00\x02\x01\x12\x67\x00\x50"
		v6 := "PROXY TCP6 2001:db8::9 2001:db8::1 4711 80\r\n"
		for header, want := range map[string]string{v1: "192.0.2.9", v2: "192.0.2.9", v6: "2001:db8::9"} {
			status, _, body := dial(t, port).ask(header + plainGet)
			if status != 200 || !strings.Contains(body, "X-Forwarded-For: "+want+"\r\n") {
				t.Errorf("header %q: %d\n%s", header, status, body)
			}
		}
		for _, without := range []string{plainGet, "PROXY TCP4 1.2.3.4\r\n" + plainGet} {
			if status, _, body := dial(t, port).ask(without); status != 0 {
				t.Errorf("%q was answered: %d %s", without, status, body)
			}
		}
	})

	t.Run("trusted hops", func(t *testing.T) {
		one := uint32(1)
		port := listen(model.ClientSettings{TrustedHops: &one})
		_, _, body := dial(t, port).ask("GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 203.0.113.5\r\nX-Forwarded-Proto: https\r\n\r\n")
		if !strings.Contains(body, "X-Forwarded-For: 203.0.113.5,") || !strings.Contains(body, "X-Forwarded-Proto: https") {
			t.Errorf("the backend saw\n%s", body)
		}
	})

	t.Run("headers", func(t *testing.T) {
		port := listen(model.ClientSettings{MaxHeaderBytes: 2000, MaxHeaders: 10})
		big := "GET / HTTP/1.1\r\nHost: a.test\r\nX: " + strings.Repeat("x", 3000) + "\r\n\r\n"
		many := "GET / HTTP/1.1\r\nHost: a.test\r\n" + strings.Repeat("X: "+strings.Repeat("y", 40)+"\r\n", 11) + "\r\n"
		for request, want := range map[string]int{big: 431, many: 431, plainGet: 200} {
			if status, _, _ := dial(t, port).ask(request); status != want {
				t.Errorf("%.40q...: %d, want %d", request, status, want)
			}
		}
		if status, _, _ := dial(t, listen(model.ClientSettings{})).ask(big); status != 200 {
			t.Errorf("without a limit: %d", status)
		}
	})

	t.Run("requests a connection", func(t *testing.T) {
		c := dial(t, listen(model.ClientSettings{MaxRequestsPerConnection: 2}))
		for i, want := range []int{200, 200, 0} {
			if status, _, _ := c.ask(plainGet); status != want {
				t.Errorf("request %d: %d, want %d", i, status, want)
			}
		}
	})

	t.Run("slow clients", func(t *testing.T) {
		port := listen(model.ClientSettings{HeadersTimeout: time.Second, RequestTimeout: 2 * time.Second, IdleTimeout: time.Second})
		if status, _, _ := dial(t, port).ask("GET / HTTP/1.1\r\nHost: a.test\r\n"); status != 408 {
			t.Errorf("half a header: %d, want 408", status)
		}
		if status, _, _ := dial(t, port).ask("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\nx"); status != 408 {
			t.Errorf("half a body: %d, want 408", status)
		}
		c := dial(t, port)
		c.ask(plainGet)
		if _, err := c.r.ReadByte(); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("an idle connection: %v, want its end", err)
		}
	})

	t.Run("connections", func(t *testing.T) {
		port := listen(model.ClientSettings{MaxConnections: 2})
		w.eventually("the listener's first connections are gone", func() error {
			a, b := dial(t, port), dial(t, port)
			defer a.Close()
			defer b.Close()
			for _, c := range []*client{a, b} {
				if status, _, _ := c.ask(plainGet); status != 200 {
					return fmt.Errorf("%d", status)
				}
			}
			if status, _, _ := dial(t, port).ask(plainGet); status != 0 {
				t.Errorf("a third connection: %d", status)
			}
			if status, _, _ := a.ask(plainGet); status != 200 {
				t.Errorf("the first afterwards: %d", status)
			}
			return nil
		})
	})
}

// routed waits until Envoy has the routes of a listener that is not the first.
func (w *world) routed(id model.ListenerID) {
	w.t.Helper()
	for _, s := range xds.AllShards(id) {
		must(w.t, w.ads.Acked(w.ctx, rdsURL, xds.RouteConfigurationName(id, s)))
	}
}

// TestAccessLog: lines are JSON with the fields that were asked for, of the requests that
// were asked for.
func TestAccessLog(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "access.log")
	n := 0
	listen := func(a *model.AccessLog) uint16 {
		t.Helper()
		n++
		l := model.Listener{ID: model.ListenerID(fmt.Sprintf("http-1_ns_%d", n)), Port: freePort(t), Protocol: model.ProtocolHTTP}
		if a != nil {
			l.Clients = &model.ClientSettings{AccessLog: a}
		}
		w.listen(l, xds.Options{AccessLog: file}, host(l.ID, "a.test", says("r", prefix("/"))))
		w.routed(l.ID)
		return l.Port
	}
	lines := func(want int) (all []map[string]any) {
		t.Helper()
		w.eventually(fmt.Sprintf("%d lines", want), func() error {
			body, err := os.ReadFile(file)
			if got := bytes.Count(body, []byte("\n")); err != nil || got < want {
				return fmt.Errorf("%d lines, %w", got, err)
			}
			all = nil
			for line := range bytes.Lines(body) {
				var fields map[string]any
				if err := json.Unmarshal(line, &fields); err != nil {
					t.Errorf("%s: %v", line, err)
				}
				all = append(all, fields)
			}
			return nil
		})
		return all
	}
	whole, some, errors, off := listen(nil), listen(&model.AccessLog{Fields: []string{"host", "status", "no such field"}}),
		listen(&model.AccessLog{Errors: true, Fields: []string{"host"}}), listen(&model.AccessLog{Off: true})
	w.get(off, "a.test", "/")
	w.get(errors, "a.test", "/")
	w.get(errors, "none.test", "/")
	w.get(some, "a.test", "/")
	w.get(whole, "a.test", "/path?q", "User-Agent: tester")
	all := lines(3) // Envoy writes within a second, or when much came
	slices.SortFunc(all, func(a, b map[string]any) int { return len(a) - len(b) })
	if len(all) != 3 {
		t.Fatalf("lines: %v", all)
	}
	if fmt.Sprint(all[0]) != "map[host:none.test]" || fmt.Sprint(all[1]) != "map[host:a.test status:200]" {
		t.Errorf("lines: %v", all[:2])
	}
	last := all[2]
	for name, want := range map[string]any{"host": "a.test", "path": "/path?q", "status": 200.0, "user_agent": "tester", "route": "r", "method": "GET"} {
		if last[name] != want {
			t.Errorf("%s is %v, want %v", name, last[name], want)
		}
	}
	for _, name := range xds.AccessLogFields() {
		if _, ok := last[name]; !ok {
			t.Errorf("field %s is missing", name)
		}
	}
}
