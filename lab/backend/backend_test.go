package backend

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func ask(t *testing.T, b *Backend, method, target, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	if got := w.Header().Get(NameHeader); got != "os1-a" {
		t.Errorf("%s %s: %s is %q", method, target, NameHeader, got)
	}
	if got := w.Header().Get(PeerHeader); got != "192.0.2.1" { // httptest's
		t.Errorf("%s %s: %s is %q", method, target, PeerHeader, got)
	}
	return w
}

func TestAnswersWithItsName(t *testing.T) {
	b := New("os1-a")
	if got := ask(t, b, "GET", "/any/path?x=1", "").Body.String(); got != "os1-a\n" {
		t.Errorf("body is %q", got)
	}
	if got := ask(t, b, "GET", "/", "", "Accept", "application/json").Body.String(); got != `{"backend":"os1-a"}`+"\n" {
		t.Errorf("body is %q", got)
	}
	var e Echo
	if err := json.Unmarshal(ask(t, b, "POST", "http://h.example/echo?q=1", "hello", "X-Test", "y").Body.Bytes(), &e); err != nil {
		t.Fatal(err)
	}
	if e.Backend != "os1-a" || e.Method != "POST" || e.Host != "h.example" || !strings.HasSuffix(e.Path, "/echo?q=1") || e.Body != "hello" || e.Headers.Get("X-Test") != "y" {
		t.Errorf("echo is %+v", e)
	}
	if got := ask(t, b, "GET", PathControlCount, "").Body.String(); got != "3\n" || b.Count() != 3 {
		t.Errorf("count is %q and %d, want 3", got, b.Count())
	}
}

func TestHealthPageFollowsTheControlPath(t *testing.T) {
	b := New("os1-a")
	for _, c := range []struct {
		method, target string
		want, health   int
	}{
		{"GET", "/", 200, 200},
		{"POST", PathControlStatus + "?code=503", 200, 503},
		{"GET", PathControlStatus + "?code=200", 400, 503},
		{"POST", PathControlStatus + "?code=42", 400, 503},
		{"POST", PathControlStatus + "?code=200", 200, 200},
	} {
		if got := ask(t, b, c.method, c.target, "").Code; got != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.target, got, c.want)
		}
		if got := ask(t, b, "GET", PathStatus, "").Code; got != c.health {
			t.Errorf("after %s %s the health page says %d, want %d", c.method, c.target, got, c.health)
		}
	}
	if b.Count() != 1 {
		t.Errorf("count is %d, want 1: control and health requests do not count", b.Count())
	}
}

func TestServeFinishesRequestsInFlight(t *testing.T) {
	var listeners []net.Listener
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
	}
	arrived, release := make(chan bool), make(chan bool)
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-release
		New("os1-a").ServeHTTP(w, r)
	})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, slow, time.Minute, listeners...) }()

	answers := make(chan string, len(listeners))
	for _, l := range listeners {
		go func() {
			resp, err := http.Get("http://" + l.Addr().String())
			if err != nil {
				answers <- err.Error()
				return
			}
			defer func() { _ = resp.Body.Close() }()
			body, _ := io.ReadAll(resp.Body)
			answers <- string(body)
		}()
		<-arrived
	}
	// A connection without a request must not hold the end up.
	idle, err := net.Dial("tcp", listeners[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	cancel()
	if n, err := idle.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the connection without a request: read %d, %v", n, err)
	}
	close(release)
	for range listeners {
		if got := <-answers; got != "os1-a\n" {
			t.Errorf("a request in flight got %q", got)
		}
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	for _, l := range listeners {
		if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
			_ = c.Close()
			t.Error("it still accepts connections")
		}
	}
}

func TestServeEndsWhenAListenerBreaks(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := Serve(t.Context(), New("x"), time.Second, l); err == nil {
		t.Error("a closed listener gave no error")
	}
}
