package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestHostsOfConsoles holds that a page of another name gets nothing of a console at a loopback address.
func TestHostsOfConsoles(t *testing.T) {
	s := httptest.NewServer(Handler(Config{Health: health{}, Metrics: prometheus.NewRegistry()}))
	defer s.Close()
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST.:7080": 200, "127.0.0.1:7080": 200, "[::1]:7080": 200, "192.0.2.1": 200, "plane.localhost": 200, hostname: 200,
		"attacker.example": 403, "attacker.example:7080": 403, "localhost.attacker.example": 403, "127.0.0.1.attacker.example": 403,
	} {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Host = host
		a, err := s.Client().Do(q)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, a.Body); err != nil {
			t.Error(err)
		}
		a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, a.StatusCode, want)
		}
	}
	// At another address a console may have any name.
	r := httptest.NewRequest(http.MethodGet, "http://plane.example/healthz", nil)
	w := httptest.NewRecorder()
	if Handler(Config{Health: health{}, Metrics: prometheus.NewRegistry()}).ServeHTTP(w, r); w.Code != 200 {
		t.Errorf("elsewhere: %d", w.Code)
	}
}
