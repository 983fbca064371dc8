package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fairlead.dev/lab/backend"
)

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func do(t *testing.T, c Config) Report {
	t.Helper()
	r, err := Do(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestClosedLoopCountsEveryAnswerByName(t *testing.T) {
	a, b := backend.New("a"), backend.New("b")
	var turn atomic.Int64
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "www.example.com" || r.URL.Path != "/x" || r.Header.Get("X-Test") != "1" {
			http.Error(w, "not what was to be sent", http.StatusTeapot)
			return
		}
		if turn.Add(1)%4 == 0 {
			b.ServeHTTP(w, r)
			return
		}
		a.ServeHTTP(w, r)
	}))
	c := Config{Address: address, Host: "www.example.com", Path: "/x", Header: http.Header{"X-Test": {"1"}}, Requests: 1000, Concurrency: 8}
	for _, fresh := range []bool{false, true} {
		c.NewConnections = fresh
		r := do(t, c)
		if r.Requests != 1000 || r.OK != 1000 || r.Failed != 0 || r.Answers["a"] != 750 || r.Answers["b"] != 250 || r.Statuses[200] != 1000 {
			t.Errorf("report is %s %v %v", r, r.Answers, r.Statuses)
		}
		if want := map[bool]int{false: 8, true: 1000}[fresh]; r.Connections > want || fresh && r.Connections != want {
			t.Errorf("%d connections, want %d", r.Connections, want)
		}
		if l := r.Latency; l.P50 <= 0 || l.P50 > l.P99 || l.P99 > l.Max {
			t.Errorf("latency is %+v", l)
		}
	}
}

func TestNameFromTheBody(t *testing.T) {
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "plain and more") }))
	if r := do(t, Config{Address: address, Requests: 3}); r.Answers["plain"] != 3 {
		t.Errorf("answers are %v", r.Answers)
	}
}

func TestEachFailureHasItsKind(t *testing.T) {
	release := make(chan bool)
	defer close(release)
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/503", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no healthy upstream", http.StatusServiceUnavailable)
	})
	mux.HandleFunc("/reset", func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := w.(http.Hijacker).Hijack()
		_ = c.Close()
	})
	mux.HandleFunc("/half", func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := w.(http.Hijacker).Hijack()
		_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"))
		_ = c.Close()
	})
	mux.HandleFunc("/garbage", func(w http.ResponseWriter, _ *http.Request) {
		c, _, _ := w.(http.Hijacker).Hijack()
		_, _ = c.Write([]byte("SSH-2.0-OpenSSH\r\n\r\n"))
		_ = c.Close()
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	address := serve(t, mux)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for _, c := range []struct {
		address, path string
		kind          Kind
		says          string
	}{
		{address, "/ok", "", ""},
		{address, "/503", Kind5xx, "503 Service Unavailable: no healthy upstream"},
		{address, "/404", KindUnexpected, "404 Not Found"},
		{address, "/reset", KindReset, "EOF"},
		{address, "/half", KindReset, "EOF"},
		{address, "/garbage", KindUnexpected, "malformed"},
		{address, "/slow", KindTimeout, "timeout"},
		{closed.Addr().String(), "/", KindConnect, "refused"},
	} {
		timeout := time.Minute
		if c.kind == KindTimeout {
			timeout = 50 * time.Millisecond
		}
		r := do(t, Config{Address: c.address, Path: c.path, Requests: 4, Concurrency: 2, Timeout: timeout})
		if c.kind == "" {
			if r.OK != 4 || r.Failed != 0 || r.Why() != "" {
				t.Errorf("%s: %s", c.path, r)
			}
			continue
		}
		if f := r.Failures[c.kind]; r.Requests != 4 || r.Failed != 4 || f.Count != 4 || !strings.Contains(f.First, c.says) {
			t.Errorf("%s: %s, want 4 of kind %s that say %q", c.path, r, c.kind, c.says)
		}
	}
}

// A connection that breaks while it is reused must not be hidden by a retry.
func TestNothingIsRetried(t *testing.T) {
	var n atomic.Int64
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) == 2 {
			c, _, _ := w.(http.Hijacker).Hijack()
			_ = c.Close()
		}
	}))
	r := do(t, Config{Address: address, Requests: 3})
	if r.OK != 2 || r.Failures[KindReset].Count != 1 || n.Load() != 3 {
		t.Errorf("%s, and the server saw %d requests", r, n.Load())
	}
}

func TestOpenLoopKeepsItsRateWhileTheServerHangs(t *testing.T) {
	const rate = 200
	hold := make(chan bool)
	var n atomic.Int64
	address := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if n.Add(1) == 1 {
			<-hold
		}
	}))
	sent := make(chan Result, rate)
	run, err := Start(t.Context(), Config{Address: address, Rate: rate, Requests: 40, Concurrency: 2, Timeout: time.Minute, OnResult: func(r Result) { sent <- r }})
	if err != nil {
		t.Fatal(err)
	}
	var last time.Time
	for range 39 { // one client hangs, the other sends all the rest
		if r := <-sent; r.Start.After(last) {
			last = r.Start
		}
	}
	close(hold)
	<-run.Done()
	r := run.Stop()
	if r.OK != 40 || r.Failed != 0 {
		t.Fatal(r)
	}
	if got, want := last.Sub(r.Started), 39*time.Second/rate; got.Round(time.Millisecond) != want {
		t.Errorf("the last request was due after %s, want %s", got, want)
	}
	if r.Latency.Max < 38*time.Second/rate {
		t.Errorf("the hanging request took %s by its report", r.Latency.Max)
	}
}

func TestDurationEndsTheRun(t *testing.T) {
	address := serve(t, backend.New("a"))
	for _, c := range []Config{{Address: address}, {Address: address, Rate: 500}} {
		c.Duration = 100 * time.Millisecond
		if r := do(t, c); r.OK == 0 || r.Failed != 0 || r.Elapsed < 90*time.Millisecond {
			t.Errorf("%s in %s", r, r.Elapsed)
		}
	}
}

func TestStopCountsWhatIsUnderWayAndCancelDoesNot(t *testing.T) {
	arrived, hold := make(chan bool), make(chan bool)
	address := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- true
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	run, err := Start(t.Context(), Config{Address: address, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	<-arrived
	run.Finish()
	close(hold)
	if r := run.Stop(); r.OK != 1 || r.Requests != 1 {
		t.Errorf("stopped: %s, want the one under way", r)
	}

	hold = make(chan bool)
	ctx, cancel := context.WithCancel(t.Context())
	run, err = Start(ctx, Config{Address: address, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	<-arrived
	cancel()
	if r := run.Stop(); r.Requests != 0 {
		t.Errorf("cancelled: %s, want nothing counted", r)
	}
	if _, err := Do(ctx, Config{Address: address}); !errors.Is(err, context.Canceled) {
		t.Errorf("done with a cancelled context: %v", err)
	}
}

func TestConfigThatCannotWork(t *testing.T) {
	for _, c := range []Config{{}, {Address: "10.0.0.1"}, {Address: "10.0.0.1:80", Requests: -1}, {Address: "10.0.0.1:80", Rate: -1}} {
		if _, err := Start(t.Context(), c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
}

// of makes a report of events: "ok" or "failed" with start and duration in ms.
func of(started time.Time, events ...event) Report {
	c := newCollector()
	for _, e := range events {
		r := Result{Start: started.Add(e.at * time.Millisecond), Latency: e.took * time.Millisecond, Status: 200, Name: "a"}
		if e.failed {
			r.Status, r.Name, r.Kind, r.Err = 0, "", KindConnect, fmt.Errorf("failed at %d", e.at)
		}
		c.add(started, r)
	}
	return summarise(started, started.Add(time.Second), []*collector{c})
}

func TestBack(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	r := of(t0, event{0, 1, false}, event{10, 1, true}, event{20, 1, false}, event{100, 50, true}, event{130, 1, false}, event{140, 1, true}, event{170, 1, false}, event{180, 1, false})
	for _, c := range []struct {
		event int
		want  time.Duration
		back  bool
	}{
		{0, 170 * time.Millisecond, true},
		{120, 50 * time.Millisecond, true}, // the one under way at 120 fails, and one more
		{141, 29 * time.Millisecond, true}, // the one from 140 ends just then
		{142, 0, true},                     // only the one from 100 is under way, and later ones were well at once
		{160, 0, true},
	} {
		if got, back := r.Back(at(c.event)); got != c.want || back != c.back {
			t.Errorf("back after an event at %d: %s %v, want %s %v", c.event, got, back, c.want, c.back)
		}
	}
	r = of(t0, event{0, 1, false}, event{10, 1, true})
	if got, back := r.Back(at(5)); back {
		t.Errorf("back after %s though the last request failed", got)
	}
}

func TestMergeAndTimeline(t *testing.T) {
	t0 := time.Unix(1000, 0)
	a := of(t0.Add(100*time.Millisecond), event{0, 10, false}, event{50, 10, true})
	b := of(t0, event{120, 30, true}, event{130, 20, false})
	r := Merge(a, b)
	if r.Requests != 4 || r.OK != 2 || r.Failed != 2 || !r.Started.Equal(t0) || r.Elapsed != 1100*time.Millisecond || r.Answers["a"] != 2 {
		t.Errorf("merged: %s from %s in %s", r, r.Started, r.Elapsed)
	}
	if f := r.Failures[KindConnect]; f.Count != 2 || f.First != "failed at 120" {
		t.Errorf("failures are %+v, want the earlier one first", f)
	}
	if a.Failures[KindConnect].FirstAt != 50*time.Millisecond {
		t.Error("merging changed a part")
	}
	if got := fmt.Sprint(r.Timeline(100 * time.Millisecond)); got != "[{0 0} {2 2}]" {
		t.Errorf("timeline is %s", got)
	}
	raw, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(raw), `"failed":2`) || !strings.Contains(string(raw), `"p50":20`) {
		t.Errorf("as JSON: %s (%v)", raw, err)
	}
	if got := Merge().String(); !strings.HasPrefix(got, "0 requests") {
		t.Errorf("nothing merged: %s", got)
	}
}
