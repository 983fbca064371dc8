package console

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/share"
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
			if r, err := http.Get(s.URL + v1.StatusPath); err != nil || r.StatusCode != http.StatusOK {
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

// TestSlowReadersMakeRoom holds that readers who read nothing, as many as there are places, keep no answer from others.
func TestSlowReadersMakeRoom(t *testing.T) {
	large := strings.Repeat("x", 12<<20) // more than sockets hold
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "large", Help: large}))
	for _, path := range []string{"/metrics", v1.StatusPath, v1.FlowsPath} {
		s := httptest.NewServer(Handler(Config{
			Health: healthy{}, Metrics: metrics, Status: func(context.Context) any { return large },
			Flows: func(context.Context, FlowFilter) (model.FlowList, error) {
				return model.FlowList{Answered: []string{large}}, nil
			},
		}))
		for range maxAnswers {
			c, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err != nil { // its answer has begun
				t.Fatal(err)
			}
		}
		r, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, r.Body); err != nil || r.StatusCode != http.StatusOK || n < int64(len(large)) {
			t.Errorf("%s beside slow readers: %s, %d bytes, %v", path, r.Status, n, err)
		}
		_ = r.Body.Close()
		s.CloseClientConnections()
		s.Close()
	}
}

// TestSlotsOfSlowReaders holds that few slow readers keep their answers.
func TestSlotsOfSlowReaders(t *testing.T) {
	quick, slow := share.New(maxAnswers, maxAnswers), share.New(maxSlow, fewest)
	var all []*slotted
	for i := range maxAnswers {
		release, _ := quick.Try("")
		p := &slotted{held: release, slow: slow}
		if i < fewest+1 { // one user is slow, too, and leaves room for other slow ones
			p.user = "anna"
		}
		slows := i < fewest || i > fewest && i <= maxSlow
		if p.slowDown() != slows {
			t.Errorf("slow reader %d of %d slots", i, maxSlow)
		}
		all = append(all, p)
	}
	if quick.Held() != maxAnswers-maxSlow || slow.Held() != maxSlow {
		t.Errorf("%d quick and %d slow readers", quick.Held(), slow.Held())
	}
	for _, p := range all {
		p.release()
		p.slowDown() // too late
	}
	if quick.Held()+slow.Held() > 0 {
		t.Errorf("%d and %d slots are held after all were released", quick.Held(), slow.Held())
	}
}

// TestFlowQuestionsHoldNobodyUp holds that questions which wait for machines leave the others their slots.
func TestFlowQuestionsHoldNobodyUp(t *testing.T) {
	release := make(chan struct{})
	var asked atomic.Int64
	waits := func() { asked.Add(1); <-release }
	s := httptest.NewServer(Handler(Config{
		Health: healthy{}, Metrics: prometheus.NewRegistry(), Status: func(context.Context) any { return "status" },
		Flows: func(context.Context, FlowFilter) (model.FlowList, error) { waits(); return model.FlowList{}, nil },
		ExplainFlow: func(context.Context, explain.FlowRequest) (explain.FlowExplanation, error) {
			waits()
			return explain.FlowExplanation{}, nil
		},
	}))
	defer s.Close()
	var running sync.WaitGroup
	for i := range 2 * maxAnswers {
		path := []string{v1.FlowsPath, v1.ExplainFlowPath + "?url=tcp://192.0.2.1:80&from=198.51.100.7:4000"}[i%2]
		running.Go(func() {
			if r, err := http.Get(s.URL + path); err == nil {
				_ = r.Body.Close()
			}
		})
	}
	for deadline := time.Now().Add(10 * time.Second); asked.Load() < maxFlowAnswers && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	r, err := http.Get(s.URL + v1.StatusPath)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("the status meanwhile: %v %v", r, err)
	} else {
		_ = r.Body.Close()
	}
	if n := asked.Load(); n != maxFlowAnswers {
		t.Errorf("%d questions about flows at once, want %d", n, maxFlowAnswers)
	}
	close(release)
	running.Wait()
}

// TestPagesOfOthersAreNotAnswered holds that a browser's page costs nothing, though it may not read the answer.
func TestPagesOfOthersAreNotAnswered(t *testing.T) {
	asked := 0
	h := Handler(Config{Health: healthy{}, Metrics: prometheus.NewRegistry(), Status: func(context.Context) any { asked++; return "status" }})
	for site, want := range map[string]int{"": 200, "none": 200, "same-origin": 200, "same-site": 403, "cross-site": 403} {
		r := httptest.NewRequest(http.MethodGet, v1.StatusPath, nil)
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
