package xds_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// closer is a backend that closes each connection when the second request comes over it, as one
// does whose patience with an idle connection ends at that moment. It tells the requests that it
// answered and those that it saw and did not answer.
type closer struct {
	mu               sync.Mutex
	answered, unseen []string
	headers          http.Header   // of the last request
	ended            chan struct{} // a connection was closed by the other side
}

func (c *closer) serve(t *testing.T) netip.AddrPort {
	t.Helper()
	c.ended = make(chan struct{}, 100)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go c.speak(conn)
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

func (c *closer) speak(conn net.Conn) {
	defer conn.Close()
	b := bufio.NewReader(conn)
	for i := range 2 {
		q, err := http.ReadRequest(b)
		if err != nil {
			if errors.Is(err, io.EOF) {
				c.ended <- struct{}{}
			}
			return
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		c.mu.Lock()
		text := q.Method + " " + q.URL.Path + string(body)
		c.headers = q.Header
		if i == 0 {
			c.answered = append(c.answered, text)
		} else {
			c.unseen = append(c.unseen, text)
		}
		c.mu.Unlock()
		if i == 0 {
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}
}

// saw returns the requests since the last call.
func (c *closer) saw() (answered, unseen []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answered, unseen = c.answered, c.unseen
	c.answered, c.unseen = nil, nil
	return answered, unseen
}

// TestKeepAliveRace: a request that meets a connection which the backend closes is sent again where
// that is safe, or where a policy says so, and nowhere else.
func TestKeepAliveRace(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	backend := &closer{}
	w.group("ns/app/80", backend.serve(t))
	hang := make(chan struct{}, 10)
	w.group("ns/hang/80", w.serve(func(_ http.ResponseWriter, q *http.Request) {
		hang <- struct{}{}
		<-q.Context().Done()
	}))
	codes, posts, wild, try := forward("codes", "/codes", "ns/app/80", 1), forward("posts", "/posts", "ns/app/80", 1), forward("wild", "/", "ns/app/80", 1), forward("try", "/try", "ns/hang/80", 1)
	codes.Forward.Retry = &model.Retry{Attempts: 2, Codes: []uint32{503}}
	posts.Forward.RetryMethods = []string{"POST", "PUT"}
	try.Forward.Timeout, try.Forward.TryTimeout = model.Never, 50*time.Millisecond
	w.listen(l, xds.Options{}, host(l.ID, "*.test", codes, posts, try, wild))
	for _, c := range []struct {
		method, path string
		again        bool
	}{
		{"GET", "/", true},
		{"HEAD", "/", true},
		{"OPTIONS", "/", true},
		{"POST", "/", false},
		{"PUT", "/", false},
		{"DELETE", "/", false},
		{"GET", "/codes", true},
		{"POST", "/codes", false},
		{"GET", "/posts", true},
		{"POST", "/posts", true},
		{"PUT", "/posts", true},
		{"DELETE", "/posts", false},
	} {
		// Whatever the connection has seen until now, this ends it or is the first request over it.
		w.get(l.Port, "a.test", "/")
		if answered, unseen := backend.saw(); len(answered) != 1 || len(unseen) > 1 {
			t.Fatalf("the backend answered %q, and not %q", answered, unseen)
		}
		a := w.raw(l.Port, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: a.test\r\nX-Envoy-Retry-On: reset\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody", c.method, c.path))
		answered, unseen := backend.saw()
		if len(unseen) != 1 {
			t.Fatalf("%s %s met no closing connection: %q, %q", c.method, c.path, answered, unseen)
		}
		if want := map[bool]int{true: 200, false: 503}[c.again]; a.status != want || (len(answered) == 1) != c.again {
			t.Errorf("%s %s: %d, and the backend answered %q; want %d", c.method, c.path, a.status, answered, want)
		}
		if c.again && backend.headers.Get("X-Envoy-Retry-On") != "" {
			t.Errorf("the backend saw %v", backend.headers)
		}
	}
	// A try that may last only so long is one, unless the route wants more.
	if a := w.get(l.Port, "a.test", "/try"); a.status != 504 || len(hang) != 1 {
		t.Errorf("a try that takes too long: %d after %d tries", a.status, len(hang))
	}
}

// TestBackendIdleTimeout: a connection to a backend is closed before the backend does.
func TestBackendIdleTimeout(t *testing.T) {
	w := newWorld(t)
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	backend := &closer{}
	w.serveGroup(model.BackendGroup{ID: "ns/app/80", IdleTimeout: 100 * time.Millisecond}, backend.serve(t))
	w.listen(l, xds.Options{}, host(l.ID, "a.test", forward("r", "/", "ns/app/80", 1)))
	post := "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	for range 3 {
		if a := w.raw(l.Port, post); a.status != 200 {
			t.Fatalf("%d %q", a.status, a.body)
		}
		select {
		case <-backend.ended:
		case <-time.After(30 * time.Second): // the default is 50 s
			t.Fatal("the connection stays")
		}
	}
}
