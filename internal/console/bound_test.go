package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type healthy struct{}

func (healthy) Healthz(context.Context) error { return nil }
func (healthy) Readyz(context.Context) error  { return nil }

// TestAnswersAreBounded holds that a console makes no more answers at once than it may, that the others have
// theirs later, and that probes do not wait.
func TestAnswersAreBounded(t *testing.T) {
	var now, most, all atomic.Int64
	release := make(chan struct{})
	s := httptest.NewServer(Handler(Config{Health: healthy{}, Metrics: prometheus.NewRegistry(), Status: func(context.Context) any {
		for n := now.Add(1); ; {
			old := most.Load()
			if n <= old || most.CompareAndSwap(old, n) {
				break
			}
		}
		<-release
		now.Add(-1)
		all.Add(1)
		return "status"
	}}))
	defer s.Close()
	const askers = 3 * maxAnswers
	var running sync.WaitGroup
	for range askers {
		running.Go(func() {
			if r, err := http.Get(s.URL + StatusPath); err != nil || r.StatusCode != http.StatusOK {
				t.Errorf("a question: %v %v", r, err)
			} else {
				_ = r.Body.Close()
			}
		})
	}
	for deadline := time.Now().Add(10 * time.Second); now.Load() < maxAnswers && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		r, err := http.Get(s.URL + path)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%s meanwhile: %v %v", path, r, err)
		}
		_ = r.Body.Close()
	}
	close(release)
	running.Wait()
	if most.Load() != maxAnswers || all.Load() != askers {
		t.Errorf("%d answers at once and %d in all, want %d and %d", most.Load(), all.Load(), maxAnswers, askers)
	}
}

// TestPagesOfOthersAreNotAnswered holds that a browser's page costs nothing, though it may not read the answer.
func TestPagesOfOthersAreNotAnswered(t *testing.T) {
	asked := 0
	h := Handler(Config{Health: healthy{}, Metrics: prometheus.NewRegistry(), Status: func(context.Context) any { asked++; return "status" }})
	for site, want := range map[string]int{"": 200, "none": 200, "same-origin": 200, "same-site": 403, "cross-site": 403} {
		r := httptest.NewRequest(http.MethodGet, StatusPath, nil)
		if site != "" {
			r.Header.Set("Sec-Fetch-Site", site)
		}
		w := httptest.NewRecorder()
		before := asked
		if h.ServeHTTP(w, r); w.Code != want || (asked > before) != (want == 200) {
			t.Errorf("Sec-Fetch-Site %q: %d, and asked %d times", site, w.Code, asked-before)
		}
	}
}
