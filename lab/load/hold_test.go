package load

import (
	"context"
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
	before := time.Now()
	cut.Store(true)
	for len(h.Broken(before)) < n {
		if ctx.Err() != nil {
			t.Fatalf("%d are broken, want all %d", len(h.Broken(before)), n)
		}
		time.Sleep(time.Millisecond)
	}
	for _, b := range h.Broken(before) {
		if b.Kind != KindReset || b.Name != "a" {
			t.Errorf("broken: %+v", b)
		}
	}
	cut.Store(false)
	if err := h.Whole(ctx, time.Now()); err != nil {
		t.Error(err)
	}
}
