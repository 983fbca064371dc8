package load

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func TestHeldConnectionsAreCountedWhenTheyBreak(t *testing.T) {
	var cut atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Backend", "a")
		if cut.Load() {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write([]byte("a\n"))
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	const n = 20
	h, err := Hold(ctx, HoldConfig{Address: server.Listener.Addr().String(), Connections: n, Every: 20 * time.Millisecond, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Stop()
	if got := h.Names(); got["a"] != n || len(got) != 1 {
		t.Errorf("answered by %v, want a %d times", got, n)
	}
	if got := h.Broken(time.Time{}); len(got) != 0 {
		t.Errorf("broken: %v", got)
	}
	cut.Store(true)
	for len(h.Broken(time.Time{})) < n {
		if ctx.Err() != nil {
			t.Fatalf("%d are broken, want all %d", len(h.Broken(time.Time{})), n)
		}
		time.Sleep(time.Millisecond)
	}
	for _, b := range h.Broken(time.Time{}) {
		if b.Kind != KindReset || b.Name != "a" {
			t.Errorf("broken: %+v", b)
		}
	}
	cut.Store(false)
	if err := h.Whole(ctx, time.Now()); err != nil {
		t.Error(err)
	}
}

// An error is an answer: whose connection it is lives on.
func TestHeldConnectionsOutliveErrors(t *testing.T) {
	var fails atomic.Bool
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fails.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte("a\n"))
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	h, err := Hold(ctx, HoldConfig{Address: server.Listener.Addr().String(), Connections: 3, Every: 20 * time.Millisecond, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Stop()
	before := time.Now()
	fails.Store(true)
	for h.Unserved(before) < 10 {
		if ctx.Err() != nil {
			t.Fatal("errors are not counted")
		}
		time.Sleep(time.Millisecond)
	}
	fails.Store(false)
	if err := h.Whole(ctx, time.Now()); err != nil {
		t.Error(err)
	}
	if got := h.Broken(time.Time{}); len(got) != 0 || opened.Load() != 3 {
		t.Errorf("broken: %v; %d connections were opened, want 3", got, opened.Load())
	}
}
